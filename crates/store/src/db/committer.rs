//! The thread that commits for callers that do not wait.
//!
//! An asynchronous writer puts its batch into the queue of all writers and calls this thread, which
//! takes the write lock and commits what is queued. While it waits for the disk, more batches
//! gather, and its next commit serves them all with one sync. Another writer may commit them first.
//! Whichever thread commits, wakers are only woken here: no code of a caller runs under a lock, or
//! on the thread of another writer.
//!
//! The first asynchronous write starts the thread, and the end of the database ends it. Without
//! background threads there is none: a run stays repeatable, and each batch is committed by the
//! call that queues it.
//!
//! Lock order: the lock of the calls is the last of all and held for a moment.

use std::{
    panic::{self, AssertUnwindSafe},
    task::Waker,
};

use rhumb_sync::primitive::{Arc, Condvar, Mutex, thread};

use super::{core::Core, writer::Pending};

/// While writers are slowed down, the thread asks after this number of bytes if the database is
/// being closed. At the slowest, 1 MiB/s, they take 10 ms: no longer than a sync of a slow disk.
const DELAYED_BYTES: usize = 10 << 10;

/// The way to the thread that commits.
#[derive(Default)]
pub(crate) struct Committer {
    calls: Mutex<Calls>,
    called: Condvar,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

/// What the thread is asked to do.
#[derive(Default)]
struct Calls {
    /// True if batches were queued since the thread last looked.
    is_wanted: bool,
    /// The bytes of these batches, for which writers may have to be slowed down.
    bytes: usize,
    /// The wakers of futures whose batches are done.
    wakers: Vec<Waker>,
    state: ThreadState,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum ThreadState {
    #[default]
    NotStarted,
    Awake,
    Asleep,
    /// The thread is to end, or has ended.
    Closed,
}

impl Committer {
    /// Has a future woken soon. May be called under any lock.
    pub(super) fn wake_later(&self, waker: Waker) {
        let mut calls = self.calls.lock();
        calls.wakers.push(waker);
        self.rouse(&mut calls);
    }

    /// Wakes the thread if it sleeps.
    fn rouse(&self, calls: &mut Calls) {
        if calls.state == ThreadState::Asleep {
            calls.state = ThreadState::Awake;
            self.called.notify_one();
        }
    }

    /// Has the queue committed soon, to which `bytes` bytes were added. Returns false if there is
    /// no thread to do it.
    fn call(&self, core: &Arc<Core>, bytes: usize) -> bool {
        let mut calls = self.calls.lock();
        calls.is_wanted = true;
        calls.bytes = calls.bytes.saturating_add(bytes);
        match calls.state {
            ThreadState::Awake => true,
            ThreadState::Asleep => {
                self.rouse(&mut calls);
                true
            }
            ThreadState::Closed => false,
            ThreadState::NotStarted => {
                let core = Arc::clone(core);
                let builder = thread::Builder::new().name("rhumb-commit".into());
                let started = builder.spawn(move || run(&core)).ok();
                let is_started = started.is_some();
                if is_started {
                    calls.state = ThreadState::Awake;
                    *self.thread.lock() = started;
                }
                is_started
            }
        }
    }

    /// Waits for calls; `None` if the thread is to end. What is queued after that is committed by
    /// the thread that closes the database.
    fn next(&self) -> Option<(bool, usize, Vec<Waker>)> {
        let mut calls = self.calls.lock();
        loop {
            if calls.is_wanted || !calls.wakers.is_empty() {
                let wakers = std::mem::take(&mut calls.wakers);
                let is_wanted = std::mem::take(&mut calls.is_wanted);
                return Some((is_wanted, std::mem::take(&mut calls.bytes), wakers));
            }
            if calls.state == ThreadState::Closed {
                return None;
            }
            calls.state = ThreadState::Asleep;
            self.called.wait(&mut calls);
        }
    }

    /// Returns true if there is a thread.
    pub(super) fn has_thread(&self) -> bool {
        matches!(self.calls.lock().state, ThreadState::Awake | ThreadState::Asleep)
    }

    fn is_closed(&self) -> bool {
        self.calls.lock().state == ThreadState::Closed
    }

    /// Has the thread commit what is queued, and ends it.
    pub(super) fn stop(&self) {
        self.calls.lock().state = ThreadState::Closed;
        self.called.notify_one();
        let thread = self.thread.lock().take();
        // A waker may have dropped the last handle, and a thread cannot wait for itself.
        if let Some(thread) = thread.filter(|it| it.thread().id() != thread::current().id()) {
            let _ = thread.join();
        }
    }

    /// Wakes the futures of batches that were done after the thread had ended.
    pub(super) fn wake_all(&self) {
        let wakers = std::mem::take(&mut self.calls.lock().wakers);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// The thread's loop.
fn run(core: &Core) {
    while let Some((is_wanted, bytes, wakers)) = core.writer.committer.next() {
        for waker in wakers {
            // A panic there is not the engine's, and others wait to be woken.
            let _ = panic::catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
        if is_wanted {
            core.delay_committer(bytes);
            // A panic has stopped all writes, and each batch has that as its result.
            let _ = panic::catch_unwind(AssertUnwindSafe(|| core.commit_submitted()));
        }
    }
}

impl Core {
    /// Queues a batch for callers that do not wait: it is committed soon.
    pub(super) fn enqueue_async(self: &Arc<Self>, pending: Pending) -> Arc<Pending> {
        let pending = Arc::new(pending);
        self.writer.queue.lock().push(Arc::clone(&pending));
        let has_threads = self.shared.options.background_threads > 0;
        if !has_threads || !self.writer.committer.call(self, pending.bytes) {
            // The future gives the result.
            let _ = self.finish(&pending);
        }
        pending
    }

    /// Starts the thread, which wakes the tasks that wait for commits of others.
    pub(super) fn start_committer(self: &Arc<Self>) {
        let is_wanted = self.shared.options.background_threads > 0;
        if is_wanted && !self.writer.committer.has_thread() {
            self.writer.committer.call(self, 0);
        }
    }

    /// Slows the commits of `bytes` queued bytes down while compactions lag, as
    /// [`Core::delay_writer`] slows writers that wait.
    fn delay_committer(&self, bytes: usize) {
        let mut left = bytes;
        while left > 0 && !self.writer.committer.is_closed() {
            let now = left.min(DELAYED_BYTES);
            self.delay_writer(now);
            left -= now;
        }
    }
}
