//! The threads that answer clients, and the connections that wait for one.
//!
//! A connection whose client says nothing is *parked*: one worker at a time, the *leader*, watches
//! all of them by the system's queue of events, so that a silent client costs a descriptor and some
//! hundred bytes. When bytes come, the leader itself answers the first client, after it has woken
//! others to answer the rest and to lead: so a call wakes one thread, as if its client had one of
//! its own. A worker answers all that is there and then lingers on the connection for a moment: a
//! client that calls again and again is answered without the queue of events.
//!
//! Invariants:
//!
//! 1. A connection is in one place at a time: parked, ready, or with a worker.
//! 2. A parked connection is registered with the queue of events and no other is, so no event is
//!    for a connection that a worker has. Both change under the lock.
//! 3. Where a connection is ready, or nobody leads, a worker is awake or on its way, or there are
//!    as many as there may be and the next that is free does it.

#[cfg(all(test, feature = "tls", target_os = "linux", target_pointer_width = "64", not(miri)))]
mod encrypted;
#[cfg(all(test, target_os = "linux", target_pointer_width = "64", not(miri)))]
mod tests;

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use mio::{Events, Interest, Poll, Registry, Token, Waker, unix::SourceFd};

use super::{
    buffers::Buffers,
    session::{Next, Session},
};
use crate::error::{Error, Result};

/// The workers that stay when there is nothing to do: one leads, and some may linger on clients
/// before the next one has to wait for a thread to be made.
const WORKERS_MIN: usize = 4;

/// The most workers. Each may be in a commit that waits for the disk, so there are more than cores;
/// a store commits those that wait together, and more of them than these gain nothing.
const WORKERS_MAX: usize = if cfg!(test) { 8 } else { 128 };

/// How long a worker beyond [`WORKERS_MIN`] waits for work before it ends: making another one takes
/// some 50 us, which is nothing once a second.
const WORKER_IDLE: Duration = Duration::from_secs(1);

/// How long the leader waits for an event: how late a time-out may be noticed.
const TICK: Duration = Duration::from_millis(250);

/// Events that are taken at once. What is beyond them comes with the next call.
const EVENTS: usize = 1_024;

/// The stack of a worker, in bytes: requests recurse nowhere.
const STACK_BYTES: usize = 256 << 10;

/// What the leader is woken by when the host ends.
const END: Token = Token(usize::MAX);

/// The workers and the connections that wait.
pub(super) struct Pool {
    state: Mutex<PoolState>,
    /// Wakes a worker.
    work: Condvar,
    /// Tells that a worker has ended.
    ended: Condvar,
    /// Where parked connections are registered.
    registry: Registry,
    waker: Waker,
    /// Connections that wait for a worker, and 1 more if nobody leads, while there can be no more
    /// workers. While it is not 0, workers linger on no connection.
    pressing: AtomicU64,
    /// The most bytes that are kept for clients of parked connections, all together.
    kept_bytes_max: usize,
}

/// Where the connections are.
#[derive(Default)]
struct PoolState {
    parked: HashMap<usize, Box<Session>>,
    /// When parked connections are closed, of those that are.
    deadlines: BTreeSet<(Instant, usize)>,
    ready: VecDeque<Box<Session>>,
    /// Bytes that are kept for clients of parked connections.
    kept_bytes: usize,
    /// What the leader waits with, while nobody leads.
    lead: Option<Lead>,
    /// Number of workers.
    workers: usize,
    /// Number of workers that wait for work, or were woken and have not taken any yet.
    idle: usize,
    is_closing: bool,
}

/// What the leader waits with.
struct Lead {
    poll: Poll,
    events: Events,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

/// Takes note of a worker that ends by a panic.
struct Worker<'p>(&'p Arc<Pool>);

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let mut state = self.0.state();
            self.0.end_worker(&mut state);
            // What it was about to do is another's.
            self.0.wake(state);
        }
    }
}

impl Pool {
    /// A pool whose workers wait for connections.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the system has no queue of events left, or no thread.
    pub(super) fn start(kept_bytes_max: usize) -> Result<Arc<Self>> {
        let failed = |error| Error::io("make a queue of events", error);
        let poll = Poll::new().map_err(failed)?;
        let registry = poll.registry().try_clone().map_err(failed)?;
        let waker = Waker::new(&registry, END).map_err(failed)?;
        let pool = Self {
            state: Mutex::new(PoolState {
                lead: Some(Lead { poll, events: Events::with_capacity(EVENTS) }),
                ..PoolState::default()
            }),
            work: Condvar::new(),
            ended: Condvar::new(),
            registry,
            waker,
            pressing: AtomicU64::new(0),
            kept_bytes_max,
        };
        let pool = Arc::new(pool);
        pool.start_worker().map_err(|error| Error::io("start a thread", error))?;
        pool.state().workers += 1;
        Ok(pool)
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        // Nothing that panics is called while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something happens to parked connections, and has those be ready; returns what it
    /// waited with, and the connections whose time is over.
    fn watch(&self, mut lead: Lead) -> (MutexGuard<'_, PoolState>, VecDeque<Box<Session>>) {
        if let Err(error) = lead.poll.poll(&mut lead.events, Some(TICK)) {
            lead.events.clear();
            if error.kind() != std::io::ErrorKind::Interrupted {
                thread::sleep(TICK);
            }
        }
        let (mut state, mut overdue) = (self.state(), VecDeque::new());
        if !state.is_closing {
            for event in &lead.events {
                if let Some(session) = self.unpark(&mut state, event.token().0) {
                    state.ready.push_back(session);
                }
            }
            let now = Instant::now();
            while let Some(&(deadline, id)) = state.deadlines.first()
                && deadline <= now
            {
                overdue.extend(self.unpark(&mut state, id));
            }
        }
        state.lead = Some(lead);
        (state, overdue)
    }

    /// Takes a connection that is parked.
    fn unpark(&self, state: &mut PoolState, id: usize) -> Option<Box<Session>> {
        let session = state.parked.remove(&id)?;
        state.kept_bytes -= session.buffer_bytes();
        if let Some(deadline) = session.deadline() {
            state.deadlines.remove(&(deadline, id));
        }
        // It fails for what is not registered.
        let _ = self.registry.deregister(&mut SourceFd(&session.watched()));
        Some(session)
    }

    /// Sees to it that what is ready has a worker, and that somebody leads.
    fn wake(self: &Arc<Self>, mut state: MutexGuard<'_, PoolState>) {
        let wanted = state.ready.len() + usize::from(state.lead.is_some());
        (0..wanted.min(state.idle)).for_each(|_| self.work.notify_one());
        let missing = wanted.saturating_sub(state.idle);
        let more = missing.min(WORKERS_MAX.saturating_sub(state.workers));
        // Those that the system refuses are asked for again the next time.
        let started = (0..more).take_while(|_| self.start_worker().is_ok()).count();
        state.workers += started;
        self.pressing.store((missing - started) as u64, Ordering::Relaxed);
    }

    fn start_worker(self: &Arc<Self>) -> std::io::Result<()> {
        let pool = Arc::clone(self);
        let thread = thread::Builder::new().name("rhumb-worker".into()).stack_size(STACK_BYTES);
        thread.spawn(move || pool.work()).map(drop)
    }

    /// Answers clients until there is nothing to do.
    fn work(self: &Arc<Self>) {
        let _worker = Worker(self);
        let mut spare = Buffers::default();
        while let Some(mut session) = self.next() {
            session.lend(&mut spare);
            let next = session.serve(|| self.pressing.load(Ordering::Relaxed) > 0);
            session.give_back(&mut spare);
            session.begin_others(self);
            match next {
                Next::End => drop(session),
                Next::Park(interest) => self.park(session, interest),
                Next::Again => self.queue(session),
            }
        }
    }

    /// Has a connection wait for its turn.
    fn queue(self: &Arc<Self>, session: Box<Session>) {
        let mut state = self.state();
        if state.is_closing {
            drop(state);
            drop(session);
        } else {
            state.ready.push_back(session);
            self.wake(state);
        }
    }

    fn end_worker(&self, state: &mut PoolState) {
        state.workers -= 1;
        self.ended.notify_all();
    }

    /// The next connection that is ready; `None` if this worker is to end.
    fn next(self: &Arc<Self>) -> Option<Box<Session>> {
        let mut state = self.state();
        loop {
            if state.is_closing {
                self.end_worker(&mut state);
                return None;
            }
            if let Some(session) = state.ready.pop_front() {
                self.wake(state);
                return Some(session);
            }
            if let Some(lead) = state.lead.take() {
                self.pressing.store(0, Ordering::Relaxed);
                drop(state);
                let overdue;
                (state, overdue) = self.watch(lead);
                if !overdue.is_empty() {
                    // Not under the lock, and not before others answer and lead.
                    self.wake(state);
                    self.end_overdue(overdue);
                    state = self.state();
                }
                continue;
            }
            state.idle += 1;
            let waited = self.work.wait_timeout(state, WORKER_IDLE);
            let (guard, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.idle -= 1;
            let is_needless = state.ready.is_empty() && state.lead.is_none();
            if waited.timed_out() && is_needless && state.workers > WORKERS_MIN {
                self.end_worker(&mut state);
                return None;
            }
        }
    }

    /// Ends connections whose clients were too slow, and parks those again that have caught up
    /// since without a sign of it.
    fn end_overdue(&self, sessions: VecDeque<Box<Session>>) {
        for mut session in sessions {
            if session.has_caught_up() {
                self.park(session, Interest::READABLE);
            } else {
                session.set_overdue();
            }
        }
    }

    /// Parks a connection until something happens to it. One that cannot be watched is closed, and
    /// so are those that keep the most memory, if all together keep too much.
    pub(super) fn park(&self, mut session: Box<Session>, interest: Interest) {
        let (fd, interest) = session.watch(interest);
        let id = session.id();
        let mut state = self.state();
        let mut source = SourceFd(&fd);
        if state.is_closing || self.registry.register(&mut source, Token(id), interest).is_err() {
            drop(state);
            drop(session);
            return;
        }
        state.deadlines.extend(session.deadline().map(|deadline| (deadline, id)));
        state.kept_bytes += session.buffer_bytes();
        state.parked.insert(id, session);
        let mut closed = Vec::new();
        while state.kept_bytes > self.kept_bytes_max {
            let most = state.parked.iter().max_by_key(|(_, session)| session.buffer_bytes());
            let Some(most) = most.map(|(id, _)| *id) else { break };
            closed.extend(self.unpark(&mut state, most));
        }
        // Not under the lock.
        drop(state);
        closed.iter().for_each(|session| session.set_overdue());
    }

    /// Ends all connections but those that a worker has, and lets no more come.
    pub(super) fn close(&self) {
        let (parked, ready) = {
            let mut state = self.state();
            state.is_closing = true;
            state.deadlines.clear();
            state.kept_bytes = 0;
            (std::mem::take(&mut state.parked), std::mem::take(&mut state.ready))
        };
        self.work.notify_all();
        // Without it the leader ends a tick later.
        let _ = self.waker.wake();
        drop((parked, ready));
    }

    /// Waits until all workers have ended, after [`Pool::close`].
    pub(super) fn join(&self) {
        let mut state = self.state();
        while state.workers > 0 {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
