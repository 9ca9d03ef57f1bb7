//! Reads that go on while their callers do something else, or wait for many at once.
//!
//! A caller that waits for its own reads borrows a queue ([`ReadEngine::borrow_queue`]) and does
//! them without another thread. A caller that does not wait hands its reads over
//! ([`ReadEngine::start`]). The *completion thread*, a thread with a queue of its own, begins them
//! and tells each caller's waker when its bytes are there. The first such read starts the
//! completion thread, which waits in the kernel only while reads are in flight, and sleeps
//! otherwise.
//!
//! Buffers belong to the queue until the read has ended, never to a caller: a caller may drop a
//! [`Pending`] read at any time without freeing the memory of the read.
//!
//! Lock order: a slot's lock and the submission queue's are each held alone, and no caller's code
//! runs under either.

use std::{
    io,
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};

use rhumb_sync::{
    primitive::{Arc, AtomicU32, AtomicU64, Condvar, Mutex, Ordering, thread},
    process::Process,
};

use super::{
    FileSystem, QueueUse, ReadDone, ReadEngineKind, ReadQueue, ReadRequest, ReadableFile,
    buffers::{Buffers, ReadBuf},
    pool::ReadPool,
    queue::QueueWaker,
    read_full,
};

/// The number of reads that one borrowed queue has in flight at once.
pub(crate) const BORROWED_DEPTH: u32 = 64;
/// The number of reads that the completion thread has in flight at once.
const COMPLETION_DEPTH: u32 = 256;
/// Each time this many more reads are queued, the thread that queued them yields: the completion
/// thread was woken, and may be waiting for this very core.
const REQUESTS_PER_YIELD: usize = 4;
/// A yield that returns later than this means that threads outside the engine want the core, or
/// that the machine stumbled.
const YIELD_LATE: Duration = Duration::from_micros(500);
/// After a late yield, no thread yields for ten times as long as that yield took, after the second
/// in a row for a hundred times, and so on up to this power of ten.
const YIELD_PAUSE_POWER_MAX: u32 = 3;
/// The largest number of threads that read where the kernel has no queue.
const THREADS_MAX: usize = 32;
/// The largest number of bytes that are read ahead, unless [`ReadEngine::with_ahead_bytes`] sets
/// another.
const AHEAD_BYTES_MAX: usize = 32 << 20;
/// The number of queues on the free list, for the next borrowers.
const FREE_QUEUES_MAX: usize = 16;

/// A part of a file to read.
#[derive(Debug)]
pub(crate) struct ReadPart {
    pub(crate) file: Arc<dyn ReadableFile>,
    pub(crate) offset: u64,
    pub(crate) len: usize,
}

/// Does the reads of a database that go on at the same time.
pub(crate) struct ReadEngine {
    fs: Arc<dyn FileSystem>,
    kind: ReadEngineKind,
    /// Reads are done where they are asked for, so that a run can be repeated exactly.
    is_inline: bool,
    /// The process that owns the threads and the kernel's queues.
    process: Process,
    pool: Arc<ReadPool>,
    /// The queues that nobody borrows.
    free_queues: Mutex<Vec<Box<dyn ReadQueue>>>,
    submissions: Arc<SubmissionQueue>,
    completion: Mutex<Option<thread::JoinHandle<()>>>,
    buffers: Arc<Buffers>,
}

impl ReadEngine {
    /// An engine of the kind that is wanted, or of threads where the kernel refuses. With
    /// `is_inline`, every read is done by the thread that asks for it, when it asks.
    pub(crate) fn new(fs: &Arc<dyn FileSystem>, wanted: ReadEngineKind, is_inline: bool) -> Self {
        let first = match wanted {
            ReadEngineKind::Kernel if !is_inline => {
                fs.read_queue(BORROWED_DEPTH, QueueUse::InTurns).ok()
            }
            _ => None,
        };
        Self {
            fs: Arc::clone(fs),
            kind: first.as_ref().map_or(ReadEngineKind::Threads, |_| ReadEngineKind::Kernel),
            is_inline,
            process: Process::default(),
            pool: Arc::new(ReadPool::new(if is_inline { 0 } else { THREADS_MAX })),
            free_queues: Mutex::new(first.into_iter().collect()),
            submissions: Arc::default(),
            completion: Mutex::default(),
            buffers: Arc::new(Buffers::new(AHEAD_BYTES_MAX)),
        }
    }

    /// The same engine, reading ahead at most `bytes` bytes. To be called before the first read.
    pub(crate) fn with_ahead_bytes(mut self, bytes: usize) -> Self {
        self.buffers = Arc::new(Buffers::new(bytes));
        self
    }

    /// An engine without threads, for the tools that read files one place at a time.
    pub(crate) fn inline(fs: &Arc<dyn FileSystem>) -> Arc<Self> {
        Arc::new(Self::new(fs, ReadEngineKind::Threads, true))
    }

    /// How reads are done.
    pub(crate) fn kind(&self) -> ReadEngineKind {
        self.kind
    }

    /// Buffers that are being read into or still looked at.
    pub(crate) fn buffers_in_use(&self) -> u64 {
        self.buffers.lent()
    }

    /// Memory of buffers, in use or on the free lists, in bytes.
    pub(crate) fn buffer_bytes(&self) -> u64 {
        self.buffers.bytes()
    }

    /// Returns true if `bytes` bytes may be read that are not needed yet.
    pub(crate) fn has_room_ahead(&self, bytes: usize) -> bool {
        self.buffers.has_room_ahead(bytes)
    }

    /// A buffer to read into.
    pub(crate) fn lend_buffer(&self, len: usize) -> ReadBuf {
        self.buffers.lend(len)
    }

    /// A queue for the caller's own reads.
    pub(crate) fn borrow_queue(&self) -> BorrowedQueue<'_> {
        if !self.process.is_here() {
            // The borrower does its reads itself.
            let queue: Box<dyn ReadQueue> = Box::new(ReadPool::new(0).queue());
            return BorrowedQueue { engine: self, queue: Some(queue), done: Vec::new() };
        }
        let free = self.free_queues.lock().pop();
        let queue = free.unwrap_or_else(|| self.make_queue(BORROWED_DEPTH, QueueUse::InTurns));
        BorrowedQueue { engine: self, queue: Some(queue), done: Vec::new() }
    }

    fn make_queue(&self, depth: u32, used: QueueUse) -> Box<dyn ReadQueue> {
        make_queue(&*self.fs, self.kind, &self.pool, depth, used)
    }

    /// Begins a read.
    pub(crate) fn start(&self, part: ReadPart) -> Pending {
        let mut pending = Vec::with_capacity(1);
        self.start_all(std::iter::once(part), &mut pending);
        pending.pop().expect("one for each part")
    }

    /// Begins many reads; appends them to `pending` in the same order.
    pub(crate) fn start_all(
        &self,
        parts: impl Iterator<Item = ReadPart>,
        pending: &mut Vec<Pending>,
    ) {
        if self.is_inline || !self.process.is_here() {
            pending.extend(parts.map(|ReadPart { file, offset, len }| {
                let mut buffer = self.buffers.lend(len);
                let result = read_full(&*file, &mut buffer, offset);
                Pending(Arc::new(Slot(Mutex::new(SlotState::Done(result, buffer)))))
            }));
            return;
        }
        let requests = parts.map(|ReadPart { file, offset, len }| {
            let slot = Arc::new(Slot(Mutex::new(SlotState::Waiting(None))));
            pending.push(Pending(Arc::clone(&slot)));
            Submission { file, offset, buffer: self.buffers.lend(len), slot }
        });
        if self.submissions.put(requests) {
            self.start_completion_thread();
        }
    }

    /// Starts the completion thread. If no thread can be started, the caller does the reads that
    /// are queued.
    #[cold]
    fn start_completion_thread(&self) {
        let (fs, pool, kind) = (Arc::clone(&self.fs), Arc::clone(&self.pool), self.kind);
        let submissions = Arc::clone(&self.submissions);
        let run = move || {
            let queue = make_queue(&*fs, kind, &pool, COMPLETION_DEPTH, QueueUse::OneThread);
            CompletionThread::new(queue, Arc::clone(&pool), submissions).run();
        };
        match thread::Builder::new().name("rhumb-complete".into()).spawn(run) {
            Ok(thread) => *self.completion.lock() = Some(thread),
            Err(_) => {
                for request in self.submissions.take_back() {
                    request.perform();
                }
            }
        }
    }
}

fn make_queue(
    fs: &dyn FileSystem,
    kind: ReadEngineKind,
    pool: &ReadPool,
    depth: u32,
    used: QueueUse,
) -> Box<dyn ReadQueue> {
    let own = match kind {
        ReadEngineKind::Kernel => fs.read_queue(depth, used).ok(),
        ReadEngineKind::Threads => None,
    };
    own.unwrap_or_else(|| Box::new(pool.queue()))
}

impl Drop for ReadEngine {
    fn drop(&mut self) {
        self.submissions.close();
        if let Some(completion) = self.completion.get_mut().take()
            // A waker may have dropped the last handle, on the completion thread's own thread,
            // which cannot join itself.
            && completion.thread().id() != thread::current().id()
        {
            let _ = completion.join();
        }
    }
}

/// A queue that belongs to its borrower alone, and is given back when it is dropped.
pub(crate) struct BorrowedQueue<'a> {
    engine: &'a ReadEngine,
    queue: Option<Box<dyn ReadQueue>>,
    done: Vec<ReadDone>,
}

impl BorrowedQueue<'_> {
    /// The queue.
    pub(crate) fn queue(&mut self) -> &mut dyn ReadQueue {
        &mut **self.queue.as_mut().expect("taken only when it is dropped")
    }

    /// Begins the reads that were pushed, as far as there is room.
    pub(crate) fn start(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        self.queue().start(&mut done);
        self.done = done;
    }

    /// Waits until a read has ended, and takes the ended reads.
    pub(crate) fn wait(&mut self) -> std::vec::Drain<'_, ReadDone> {
        let mut done = std::mem::take(&mut self.done);
        if done.is_empty() {
            self.queue().wait(&mut done);
        }
        self.done = done;
        self.done.drain(..)
    }
}

impl Drop for BorrowedQueue<'_> {
    fn drop(&mut self) {
        let Some(mut queue) = self.queue.take() else { return };
        // The next borrower must not meet this one's reads.
        while queue.pending() > 0 {
            queue.wait(&mut self.done);
            self.done.clear();
        }
        if !self.engine.process.is_here() {
            return;
        }
        let mut free = self.engine.free_queues.lock();
        if free.len() < FREE_QUEUES_MAX {
            free.push(queue);
        }
    }
}

/// A read that was begun. Dropping it only gives up the result: the read ends by itself.
#[derive(Debug)]
pub(crate) struct Pending(Arc<Slot>);

/// Where the completion thread leaves a result.
#[derive(Debug)]
struct Slot(Mutex<SlotState>);

#[derive(Debug)]
enum SlotState {
    /// No result yet, and the waker to tell.
    Waiting(Option<Waker>),
    /// The result of the read, and its buffer.
    Done(io::Result<usize>, ReadBuf),
    /// The result was taken.
    Taken,
}

impl Slot {
    /// Stores the result, and returns the waker to tell.
    #[must_use]
    fn complete(&self, result: io::Result<usize>, buffer: ReadBuf) -> Option<Waker> {
        match std::mem::replace(&mut *self.0.lock(), SlotState::Done(result, buffer)) {
            SlotState::Waiting(waker) => waker,
            _ => None,
        }
    }
}

impl Pending {
    /// Takes the result, or has the context's waker told once the result is there. Pending for ever
    /// after it was taken.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<(io::Result<usize>, ReadBuf)> {
        let mut state = self.0.0.lock();
        match std::mem::replace(&mut *state, SlotState::Taken) {
            SlotState::Done(result, buffer) => Poll::Ready((result, buffer)),
            SlotState::Waiting(waker) => {
                let waker = match waker {
                    Some(waker) if waker.will_wake(cx.waker()) => waker,
                    _ => cx.waker().clone(),
                };
                *state = SlotState::Waiting(Some(waker));
                Poll::Pending
            }
            SlotState::Taken => Poll::Pending,
        }
    }
}

/// Wakes a thread that waits.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls until it is ready; this thread sleeps in between.
pub(crate) fn block_on<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    std::thread_local! {
        static WAKER: Waker = Waker::from(Arc::new(Unpark(thread::current())));
    }
    WAKER.with(|waker| {
        let mut cx = Context::from_waker(waker);
        loop {
            if let Poll::Ready(result) = poll(&mut cx) {
                return result;
            }
            thread::park();
        }
    })
}

/// A read on its way to the completion thread.
struct Submission {
    file: Arc<dyn ReadableFile>,
    offset: u64,
    buffer: ReadBuf,
    slot: Arc<Slot>,
}

impl Submission {
    /// Returns true if no caller waits for the result any more.
    fn is_unwanted(&self) -> bool {
        Arc::strong_count(&self.slot) == 1
    }

    /// Does the read in the calling thread.
    fn perform(mut self) {
        let result = read_full(&*self.file, &mut self.buffer, self.offset);
        if let Some(waker) = self.slot.complete(result, self.buffer) {
            waker.wake();
        }
    }
}

/// The yield policy: when threads of the engine yield to each other, so that threads on one core
/// work in turns. They stop yielding while others want the core, because a yield then returns only
/// after milliseconds.
struct YieldPolicy {
    since: Instant,
    /// No thread yields before this time, in nanoseconds from `since`.
    paused_until: AtomicU64,
    /// The number of yields in a row that returned late.
    late: AtomicU32,
}

impl Default for YieldPolicy {
    fn default() -> Self {
        let (paused_until, late) = (AtomicU64::new(0), AtomicU32::new(0));
        Self { since: Instant::now(), paused_until, late }
    }
}

impl YieldPolicy {
    /// Yields to another thread, unless yields have lately returned late.
    fn yield_now(&self) {
        let began = self.since.elapsed();
        if began.as_nanos() < u128::from(self.paused_until.load(Ordering::Relaxed)) {
            return;
        }
        thread::yield_now();
        let took = self.since.elapsed().saturating_sub(began);
        if took <= YIELD_LATE {
            self.late.store(0, Ordering::Relaxed);
            return;
        }
        let late = self.late.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let pause = took.saturating_mul(10_u32.pow(late.min(YIELD_PAUSE_POWER_MAX)));
        let until = u64::try_from((began + pause).as_nanos()).unwrap_or(u64::MAX);
        self.paused_until.store(until, Ordering::Relaxed);
    }
}

/// The queue by which reads go from callers to the completion thread.
#[derive(Default)]
struct SubmissionQueue {
    state: Mutex<SubmissionState>,
    filled: Condvar,
    yield_policy: YieldPolicy,
}

#[derive(Default)]
struct SubmissionState {
    requests: Vec<Submission>,
    thread: CompletionState,
    waker: Option<Arc<dyn QueueWaker>>,
    closed: bool,
}

/// What the completion thread is doing, as far as callers have to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CompletionState {
    /// There is none.
    #[default]
    Nowhere,
    /// It takes requests before it waits again.
    Awake,
    /// It waits for requests.
    Asleep,
    /// It waits for its queue, and no thread has woken it.
    InQueue,
}

impl SubmissionQueue {
    /// Adds requests, and wakes the completion thread if it waits. Returns true if the caller has
    /// to start that thread.
    fn put(&self, requests: impl Iterator<Item = Submission>) -> bool {
        // Made before the lock is taken.
        let requests: Vec<Submission> = requests.collect();
        let mut state = self.state.lock();
        let before = state.requests.len();
        state.requests.extend(requests);
        let must_yield = before / REQUESTS_PER_YIELD < state.requests.len() / REQUESTS_PER_YIELD;
        match std::mem::replace(&mut state.thread, CompletionState::Awake) {
            CompletionState::Nowhere => return true,
            CompletionState::Awake => drop(state),
            CompletionState::Asleep => {
                drop(state);
                self.filled.notify_one();
            }
            CompletionState::InQueue => {
                let waker = state.waker.clone();
                drop(state);
                waker.iter().for_each(|waker| waker.wake());
            }
        }
        if must_yield {
            self.yield_policy.yield_now();
        }
        false
    }

    /// Takes the requests back, because there is no completion thread.
    fn take_back(&self) -> Vec<Submission> {
        let mut state = self.state.lock();
        state.thread = CompletionState::Nowhere;
        std::mem::take(&mut state.requests)
    }

    /// Takes all requests. Waits for one if the completion thread has nothing else to do. Returns
    /// false if that thread should end.
    fn take(&self, requests: &mut Vec<Submission>, is_busy: bool) -> bool {
        let mut state = self.state.lock();
        while state.requests.is_empty() && !is_busy {
            if state.closed {
                return false;
            }
            state.thread = CompletionState::Asleep;
            self.filled.wait(&mut state);
        }
        std::mem::swap(&mut state.requests, requests);
        // The completion thread waits for its queue next.
        state.thread = CompletionState::InQueue;
        true
    }

    /// Records that the completion thread will take requests again without being woken.
    fn set_awake(&self) {
        self.state.lock().thread = CompletionState::Awake;
    }

    fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        drop(state);
        self.filled.notify_one();
    }
}

/// Begins the reads that are queued, and hands their results out.
struct CompletionThread {
    queue: Box<dyn ReadQueue>,
    submissions: Arc<SubmissionQueue>,
    /// The reads in flight, by token.
    in_flight: Vec<Option<(ReadBuf, Arc<Slot>)>>,
    free: Vec<usize>,
}

impl CompletionThread {
    fn new(
        mut queue: Box<dyn ReadQueue>,
        pool: Arc<ReadPool>,
        submissions: Arc<SubmissionQueue>,
    ) -> Self {
        let waker = queue.waker().unwrap_or_else(|_| {
            // No descriptor is left for the kernel's way of waking.
            queue = Box::new(pool.queue());
            queue.waker().expect("a pool needs no descriptor")
        });
        submissions.state.lock().waker = Some(waker);
        Self { queue, submissions, in_flight: Vec::new(), free: Vec::new() }
    }

    fn run(&mut self) {
        let (mut requests, mut done, mut wakers) = (Vec::new(), Vec::new(), Vec::new());
        while self.submissions.take(&mut requests, self.queue.pending() > 0) {
            requests.drain(..).for_each(|request| self.begin(request));
            self.queue.wait(&mut done);
            if done.is_empty() {
                // Woken for a request, perhaps on the core of a thread that has more to queue:
                // requests cost less when they are begun together.
                self.submissions.yield_policy.yield_now();
            }
            self.submissions.set_awake();
            // All results are stored before any thread is woken, because a woken thread may take
            // this core.
            wakers.extend(done.drain(..).filter_map(|done| self.end(done)));
            wakers.drain(..).for_each(Waker::wake);
        }
    }

    fn begin(&mut self, request: Submission) {
        if request.is_unwanted() {
            return;
        }
        let Submission { file, offset, mut buffer, slot } = request;
        let bytes = buffer.take();
        let token = self.free.pop().unwrap_or_else(|| {
            self.in_flight.push(None);
            self.in_flight.len() - 1
        });
        self.in_flight[token] = Some((buffer, slot));
        self.queue.push(ReadRequest { file, offset, buffer: bytes, token: token as u64 });
    }

    /// Hands a result out, and returns the waker to tell.
    fn end(&mut self, done: ReadDone) -> Option<Waker> {
        let ReadDone { token, buffer: bytes, result } = done;
        let token = usize::try_from(token).expect("it was made from one");
        let (mut buffer, slot) = self.in_flight[token].take()?;
        self.free.push(token);
        buffer.put(bytes);
        slot.complete(result, buffer)
    }
}
