//! What futures have queued, and the slots in which they find their answers.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
    thread,
};

use super::{
    super::{batch::Operation, keyspace::KeyspaceInner as Keyspace, target::Target},
    CALLS_MAX, REQUEST_BYTES_MAX, line, lock,
};
use crate::{
    error::{Error, Result},
    message::Request,
};

/// The stack of a thread that sends or receives, in bytes: wakers are called on it.
const STACK_BYTES: usize = 256 << 10;

/// What a request asks for.
#[derive(Debug)]
pub(super) enum Ask {
    Get(Vec<u8>),
    Insert(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    /// A key, the value that it has, and the one that it is to have.
    Swap(Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>),
    Batch(Vec<Operation>),
}

/// A request that waits to be sent.
#[derive(Debug)]
pub(super) struct Job {
    /// The keyspaces that it names: one but for batches.
    pub(super) keyspaces: Vec<Arc<Keyspace>>,
    ask: Ask,
    /// True if it changes nothing, so that it may be sent again.
    is_read: bool,
}

impl Job {
    pub(super) fn new(keyspaces: Vec<Arc<Keyspace>>, ask: Ask, is_read: bool) -> Self {
        Self { keyspaces, ask, is_read }
    }

    /// Bytes of keys and values.
    fn bytes(&self) -> usize {
        let option = |value: &Option<Vec<u8>>| value.as_ref().map_or(0, Vec::len);
        match &self.ask {
            Ask::Get(key) | Ask::Remove(key) => key.len(),
            Ask::Insert(key, value) => key.len() + value.len(),
            Ask::Swap(key, expected, new) => key.len() + option(expected) + option(new),
            Ask::Batch(operations) => operations.iter().map(Operation::bytes).sum(),
        }
    }

    /// Appends the request, with the numbers that its keyspaces have in a connection.
    ///
    /// # Errors
    ///
    /// As [`Request::encode`].
    pub(super) fn encode(&self, numbers: &[u32], id: u32, out: &mut Vec<u8>) -> Result<()> {
        let Some(&keyspace) = numbers.first() else { return Ok(()) };
        let hint = None;
        let request = match &self.ask {
            Ask::Get(key) => Request::Get { keyspace, key, hint },
            Ask::Insert(key, value) => Request::Insert { keyspace, key, value, hint },
            Ask::Remove(key) => Request::Remove { keyspace, key, hint },
            Ask::Swap(key, expected, new) => {
                let (expected, new) = (expected.as_deref(), new.as_deref());
                Request::CompareAndSwap { keyspace, key, expected, new, hint }
            }
            Ask::Batch(operations) => {
                Request::Batch { ops: operations.iter().map(|op| op.op(numbers)).collect() }
            }
        };
        request.encode(id, out)
    }
}

/// Where a future finds its answer.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) job: Job,
    bytes: usize,
    /// True once it is to be sent for the second time, after a connection broke.
    is_repeated: AtomicBool,
    state: Mutex<SlotState>,
}

#[derive(Debug)]
enum SlotState {
    /// There is no answer yet: whom to wake.
    Waits(Waker),
    /// The frame of the answer.
    Answered(Result<Vec<u8>>),
    /// The future was dropped, or has its answer.
    Forgotten,
}

impl Slot {
    /// The answer, which is taken; `None` if it has not come. Then `waker` is woken when it does.
    pub(super) fn answer(&self, waker: &Waker) -> Option<Result<Vec<u8>>> {
        let state = &mut *lock(&self.state);
        match state {
            SlotState::Waits(before) => {
                before.clone_from(waker);
                None
            }
            SlotState::Answered(_) => match std::mem::replace(state, SlotState::Forgotten) {
                SlotState::Answered(answer) => Some(answer),
                _ => None,
            },
            SlotState::Forgotten => Some(Err(Error::Closed)),
        }
    }

    /// Takes note that nobody waits for the answer.
    pub(super) fn forget(&self) {
        // What it held is dropped without the lock: a waker may be anything.
        let _before = std::mem::replace(&mut *lock(&self.state), SlotState::Forgotten);
    }

    /// Returns true if nobody waits for the answer.
    pub(super) fn is_forgotten(&self) -> bool {
        matches!(*lock(&self.state), SlotState::Forgotten)
    }

    /// Returns true if the request may be sent over another connection, after one broke: once, if
    /// it was not sent or changes nothing.
    fn may_repeat(&self, was_sent: bool) -> bool {
        (self.job.is_read || !was_sent) && !self.is_repeated.swap(true, Ordering::Relaxed)
    }

    /// Puts the answer where the future finds it; returns whom to wake.
    fn finish(&self, answer: Result<Vec<u8>>) -> Option<Waker> {
        let state = &mut *lock(&self.state);
        if let SlotState::Forgotten = state {
            return None;
        }
        match std::mem::replace(state, SlotState::Answered(answer)) {
            SlotState::Waits(waker) => Some(waker),
            _ => None,
        }
    }
}

/// What futures have queued.
pub(super) struct Queue {
    pub(super) target: Target,
    process: u32,
    state: Mutex<QueueState>,
    /// The thread that sends waits here.
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    /// Requests that were not sent.
    unsent: VecDeque<Arc<Slot>>,
    /// Calls under way, and bytes of their requests.
    calls: usize,
    bytes: usize,
    /// Futures that wait for room, by their tickets.
    waiting: VecDeque<(u64, Waker)>,
    last_ticket: u64,
    is_closed: bool,
}

impl QueueState {
    fn has_room(&self, bytes: usize) -> bool {
        self.calls == 0 || self.calls < CALLS_MAX && self.bytes + bytes <= REQUEST_BYTES_MAX
    }

    /// The next that waits for room, if there is any room.
    fn next_waiting(&mut self) -> Option<Waker> {
        if !self.has_room(0) {
            return None;
        }
        self.waiting.pop_front().map(|(_, waker)| waker)
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl Queue {
    /// An empty queue, of which nothing is sent yet.
    pub(super) fn new(target: Target) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Self { target, process: std::process::id(), state, changed }
    }

    /// An empty queue with a thread that sends what comes.
    pub(super) fn start(target: Target) -> Result<Arc<Self>> {
        let queue = Arc::new(Self::new(target));
        let of_thread = Arc::clone(&queue);
        spawn("rhumb-call-send", move || line::run(&of_thread))?;
        Ok(queue)
    }

    /// Returns false in a forked child, which has neither the threads nor the connection.
    pub(super) fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// Queues a request, which `job` loses, if there is room; otherwise returns a ticket, and
    /// `waker` is woken when there is.
    pub(super) fn submit(
        &self,
        job: &mut Job,
        ticket: Option<u64>,
        waker: &Waker,
    ) -> Result<Arc<Slot>, u64> {
        let bytes = job.bytes();
        let mut state = lock(&self.state);
        let at = ticket.and_then(|ticket| state.waiting.iter().position(|(n, _)| *n == ticket));
        if !state.has_room(bytes) {
            if let Some((number, before)) = at.and_then(|at| state.waiting.get_mut(at)) {
                before.clone_from(waker);
                return Err(*number);
            }
            state.last_ticket += 1;
            let number = state.last_ticket;
            state.waiting.push_back((number, waker.clone()));
            return Err(number);
        }
        let old = at.and_then(|at| state.waiting.remove(at));
        let nothing = Job::new(Vec::new(), Ask::Batch(Vec::new()), false);
        let job = std::mem::replace(job, nothing);
        job.keyspaces.iter().for_each(|keyspace| keyspace.counters.round_trip());
        let slot = Arc::new(Slot {
            job,
            bytes,
            is_repeated: AtomicBool::new(false),
            state: Mutex::new(SlotState::Waits(waker.clone())),
        });
        state.calls += 1;
        state.bytes += bytes;
        state.unsent.push_back(Arc::clone(&slot));
        // There may be room for more than one, after one that was large.
        let next = state.next_waiting();
        drop(state);
        self.changed.notify_one();
        drop(old);
        wake(next);
        Ok(slot)
    }

    /// Takes a future off those that wait for room. One that was woken meanwhile passes that on.
    pub(super) fn give_up(&self, ticket: u64) {
        let mut state = lock(&self.state);
        let at = state.waiting.iter().position(|(number, _)| *number == ticket);
        let (gone, next) = match at {
            Some(at) => (state.waiting.remove(at), None),
            None => (None, state.next_waiting()),
        };
        drop(state);
        drop(gone);
        wake(next);
    }

    /// Ends a call: its future is woken, and its room is free.
    pub(super) fn finish(&self, slot: &Slot, answer: Result<Vec<u8>>) {
        let waker = slot.finish(answer);
        let next = {
            let mut state = lock(&self.state);
            state.calls -= 1;
            state.bytes -= slot.bytes;
            state.next_waiting()
        };
        wake(waker);
        wake(next);
    }

    /// Ends calls of a connection that broke, but for those that are sent once more over the next.
    pub(super) fn end_all(&self, slots: Vec<Arc<Slot>>, were_sent: bool, error: &Error) {
        let (again, ended): (Vec<_>, Vec<_>) =
            slots.into_iter().partition(|slot| !slot.is_forgotten() && slot.may_repeat(were_sent));
        if !again.is_empty() {
            let mut state = lock(&self.state);
            again.into_iter().rev().for_each(|slot| state.unsent.push_front(slot));
            drop(state);
            self.changed.notify_one();
        }
        ended.iter().for_each(|slot| self.finish(slot, Err(error.clone())));
    }

    /// Waits for requests and takes them all; `None` once the client has gone.
    pub(super) fn next(&self) -> Option<VecDeque<Arc<Slot>>> {
        let mut state = lock(&self.state);
        while state.unsent.is_empty() && !state.is_closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        (!state.is_closed).then(|| std::mem::take(&mut state.unsent))
    }

    /// Returns true once the client has gone.
    pub(super) fn is_closed(&self) -> bool {
        lock(&self.state).is_closed
    }

    /// Returns true if no call is under way.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        let state = lock(&self.state);
        (state.calls, state.bytes, state.waiting.len()) == (0, 0, 0)
    }

    /// Has the threads end, and the connection.
    pub(super) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.changed.notify_one();
    }
}

/// Starts a thread that ends by itself.
pub(super) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES);
    let started = thread.spawn(run);
    started.map(drop).map_err(|error| Error::io("start a thread", error))
}
