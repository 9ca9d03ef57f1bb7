//! Threads that read: the queue for file systems that have none of their own, and for systems that
//! refuse theirs. A thread is started when a read finds none free, up to a limit.
//!
//! Thread safety: there are two locks, the pool's own, and one for the ended reads of each queue.
//! They are never held together, nor during a read.

use std::{collections::VecDeque, io};

use rhumb_sync::primitive::{Arc, Condvar, Mutex, thread};

use super::queue::{QueueWaker, ReadDone, ReadQueue, ReadRequest};

/// Threads that queues share. Dropping it ends them once all reads are done.
pub(crate) struct ReadPool {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    wanted: Condvar,
    threads_max: usize,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Threads that wait for a job.
    idle: usize,
    closed: bool,
}

struct Job {
    request: ReadRequest,
    queue: Arc<Ended>,
}

/// The ended reads of one queue.
#[derive(Default)]
struct Ended {
    state: Mutex<EndedState>,
    changed: Condvar,
}

#[derive(Default)]
struct EndedState {
    done: Vec<ReadDone>,
    woken: bool,
}

impl ReadPool {
    /// A pool of up to `threads_max` threads, none of them started. With 0, the thread that waits
    /// for a queue does its reads.
    pub(crate) fn new(threads_max: usize) -> Self {
        let state = Mutex::new(State::default());
        Self { shared: Arc::new(Shared { state, wanted: Condvar::new(), threads_max }) }
    }

    /// A queue whose reads the pool does.
    pub(crate) fn queue(&self) -> PoolQueue {
        PoolQueue { shared: Arc::clone(&self.shared), ended: Arc::default(), pending: 0 }
    }
}

impl Drop for ReadPool {
    fn drop(&mut self) {
        self.shared.state.lock().closed = true;
        self.shared.wanted.notify_all();
    }
}

/// A queue whose reads the threads of a pool do.
pub(crate) struct PoolQueue {
    shared: Arc<Shared>,
    ended: Arc<Ended>,
    pending: usize,
}

impl Shared {
    fn add(self: &Arc<Self>, job: Job) {
        let mut state = self.state.lock();
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() {
            self.wanted.notify_one();
        } else if state.threads < self.threads_max {
            let shared = Arc::clone(self);
            let name = "rhumb-read".to_owned();
            // If no thread can be started, the reads wait for the other threads, or are done by the
            // thread that waits for them.
            let started = thread::Builder::new().name(name).spawn(move || shared.run());
            state.threads += usize::from(started.is_ok());
        }
    }

    /// What each thread does.
    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job.perform();
                state = self.state.lock();
            } else if state.closed {
                // A queue that outlives its pool starts another thread for the reads that it is
                // still given.
                state.threads -= 1;
                return;
            } else {
                state.idle += 1;
                self.wanted.wait(&mut state);
                state.idle -= 1;
            }
        }
    }

    /// A job for the caller itself, if there is no thread to do it.
    fn take_for_caller(&self) -> Option<Job> {
        let mut state = self.state.lock();
        if state.threads > 0 { None } else { state.jobs.pop_front() }
    }
}

impl Job {
    fn perform(self) {
        let done = self.request.perform();
        self.queue.state.lock().done.push(done);
        self.queue.changed.notify_one();
    }
}

impl ReadQueue for PoolQueue {
    fn push(&mut self, request: ReadRequest) {
        self.pending += 1;
        self.shared.add(Job { request, queue: Arc::clone(&self.ended) });
    }

    fn wait(&mut self, done: &mut Vec<ReadDone>) {
        while let Some(job) = self.shared.take_for_caller() {
            job.perform();
        }
        let mut ended = self.ended.state.lock();
        while ended.done.is_empty() && !ended.woken && self.pending > 0 {
            self.ended.changed.wait(&mut ended);
        }
        ended.woken = false;
        self.pending -= ended.done.len();
        done.append(&mut ended.done);
    }

    fn pending(&self) -> usize {
        self.pending
    }

    fn waker(&mut self) -> io::Result<Arc<dyn QueueWaker>> {
        Ok(Arc::clone(&self.ended) as Arc<dyn QueueWaker>)
    }
}

impl QueueWaker for Ended {
    fn wake(&self) {
        self.state.lock().woken = true;
        self.changed.notify_one();
    }
}
