//! The kernel's queue for reads, `io_uring`.
//!
//! What makes it sound, and what the comments below refer to:
//!
//! 1. A buffer that the kernel may write to lies in `flights`: on the heap, where moving its owner
//!    does not move it, and untouched by us until the kernel has said that the read has ended.
//! 2. The file of such a read lies beside it, so that its descriptor stays that of this file.
//! 3. The ring is not dropped before the last read has ended. If the kernel never says so, the
//!    buffers are leaked.
//!
//! Closing a ring interrupts, some milliseconds later, whatever system call the threads that used
//! it are waiting in then. So the rings that callers' own threads use are not closed: the next
//! queue, of any database, gets them. (A ring that still waits for the bell is closed; the engine
//! leaves none such.)
//!
//! May not be used for anything but reads.
#![allow(unsafe_code, reason = "the kernel reads into memory that the ring's entries point to")]

use std::{
    collections::VecDeque,
    io,
    mem::ManuallyDrop,
    os::fd::{AsRawFd, OwnedFd},
    time::Duration,
};

use io_uring::{EnterFlags, IoUring, opcode, squeue, types};
use rhumb_sync::primitive::{Arc, Mutex, thread};
use rustix::{
    event::{EventfdFlags, eventfd},
    io::Errno,
};

use super::{
    AlignedBuf, DIRECT_ALIGN, ReadableFile,
    queue::{QueueUse, QueueWaker, ReadDone, ReadQueue, ReadRequest, read_full},
};

/// The number of the entry that waits for the bell; no flight has this number.
const BELL: u32 = u32::MAX;
/// The number of reads that are put into the ring before the kernel is told of them. The kernel
/// begins those while more are made ready, and reports their end while the others go on.
const STAGED_MAX: usize = 8;
/// As [`STAGED_MAX`], while the kernel has no read of the ring: the device is idle until it is
/// told.
const STAGED_FIRST: usize = 2;
/// The number of times that a read is begun again without progress before it is done by a plain
/// call.
const ATTEMPTS_MAX: u32 = 16;
/// How long to wait before a kernel that refuses for want of memory is asked again.
const PAUSE: Duration = Duration::from_micros(100);
/// The number of times that a dropped queue asks for the results of its reads before it leaks their
/// buffers.
const FAREWELLS_MAX: u32 = 1 << 20;
/// The event of a bell that was rung (`POLLIN`).
const POLL_IN: u32 = 1;

/// The number of idle rings on the free list, for the next queues.
const FREE_RINGS_MAX: usize = 64;

/// The rings of queues that were used in turns, for the next queues.
static FREE_RINGS: Mutex<Vec<FreeRing>> = Mutex::new(Vec::new());

/// A ring that no queue has.
struct FreeRing {
    ring: IoUring,
    depth: u32,
    /// The process that made it. A forked copy of that process does not have the ring's memory.
    process: u32,
}

/// A queue of reads in the kernel.
pub(crate) struct UringQueue {
    ring: ManuallyDrop<IoUring>,
    depth: u32,
    /// True if only one thread has used the ring.
    is_of_one: bool,
    /// Reads that the kernel knows of, or that are in the ring for it.
    flights: Vec<Option<Flight>>,
    /// Numbers of flights that are free.
    free: Vec<u32>,
    /// Reads for which there was no flight.
    backlog: VecDeque<ReadRequest>,
    /// Entries in the ring that the kernel has not taken, in order.
    staged: VecDeque<u32>,
    bell: Option<Arc<Bell>>,
    /// True if an entry waits for the bell.
    bell_armed: bool,
    /// The kernel refused for good: the reads that it has not taken are done by plain calls.
    refused: bool,
}

/// A read that the kernel may be doing.
struct Flight {
    file: Arc<dyn ReadableFile>,
    buffer: AlignedBuf,
    offset: u64,
    token: u64,
    /// Bytes that have been read.
    done: usize,
    attempts: u32,
}

/// What to do about a read for which the kernel has returned a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// It has ended, with this many bytes read.
    Ended(usize),
    /// It has failed with this error number.
    Failed(i32),
    /// Go on from this byte, in the kernel.
    GoOn(usize),
    /// Go on from this byte by a plain call, which can do what the ring cannot.
    ByCall(usize),
}

/// The same read, of the file that holds a descriptor for it and that stays open until the read has
/// ended. If that file cannot be opened, the read stays as it was, and fails when it is done.
fn with_descriptor(mut request: ReadRequest) -> ReadRequest {
    if let Ok(Some((file, offset))) = request.file.opened(request.offset, request.buffer.len()) {
        (request.file, request.offset) = (file, offset);
    }
    request
}

/// Decides what to do after the kernel returned `result` for a read of `len` bytes, of which `done`
/// were read before.
fn judge(result: i32, done: usize, len: usize, is_direct: bool) -> Next {
    let Ok(n) = usize::try_from(result) else {
        return match Errno::from_raw_os_error(-result) {
            Errno::INTR | Errno::AGAIN => Next::GoOn(done),
            // The file system refuses direct reads of this part; the file knows a way around that.
            Errno::INVAL | Errno::OPNOTSUPP => Next::ByCall(done),
            other => Next::Failed(other.raw_os_error()),
        };
    };
    let done = done + n;
    if n == 0 || done >= len {
        return Next::Ended(done.min(len));
    }
    if is_direct && !done.is_multiple_of(DIRECT_ALIGN) {
        Next::ByCall(done)
    } else {
        Next::GoOn(done)
    }
}

impl FreeRing {
    /// A ring of this depth that another queue has left.
    fn take(depth: u32) -> Option<IoUring> {
        let (mut rings, process) = (FREE_RINGS.lock(), std::process::id());
        let at = rings.iter().position(|of| of.depth == depth && of.process == process)?;
        Some(rings.swap_remove(at).ring)
    }

    /// Leaves an idle ring for the next queue; closes it if the list is full.
    fn keep(ring: IoUring, depth: u32) {
        let mut rings = FREE_RINGS.lock();
        if rings.len() < FREE_RINGS_MAX {
            rings.push(Self { ring, depth, process: std::process::id() });
        }
    }
}

impl UringQueue {
    /// A queue of up to `depth` reads at a time.
    ///
    /// # Errors
    ///
    /// The kernel's error: it may not support rings, or may be configured to refuse them.
    pub(crate) fn new(depth: u32, used: QueueUse) -> io::Result<Self> {
        let plain = || IoUring::builder().dontfork().build(depth);
        let ring = match used {
            QueueUse::InTurns => match FreeRing::take(depth) {
                Some(ring) => ring,
                None => plain()?,
            },
            // The kernel then makes results available when this thread waits, instead of
            // interrupting it.
            QueueUse::OneThread => IoUring::builder()
                .dontfork()
                .setup_single_issuer()
                .setup_defer_taskrun()
                .build(depth)
                .or_else(|_| plain())?,
        };
        Ok(Self {
            ring: ManuallyDrop::new(ring),
            depth,
            is_of_one: used == QueueUse::OneThread,
            flights: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            backlog: VecDeque::new(),
            staged: VecDeque::new(),
            bell: None,
            bell_armed: false,
            refused: false,
        })
    }

    fn in_flight(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    /// Puts the reads that were pushed into the ring, as far as there is room, and the wait for the
    /// bell.
    fn stage_all(&mut self, done: &mut Vec<ReadDone>) {
        if let Some(bell) = &self.bell
            && !self.bell_armed
        {
            let entry = opcode::PollAdd::new(types::Fd(bell.0.as_raw_fd()), POLL_IN).build();
            // SAFETY: the entry points to no memory, and the queue keeps the bell open.
            unsafe { self.stage(BELL, entry) };
            self.bell_armed = true;
        }
        while !self.refused
            && let Some(number) = self.free.last().copied()
        {
            let Some(request) = self.backlog.pop_front() else { break };
            let request = with_descriptor(request);
            if request.file.descriptor().is_none() {
                done.push(request.perform());
                continue;
            }
            self.free.pop();
            let ReadRequest { file, offset, buffer, token } = request;
            let flight = Flight { file, buffer, offset, token, done: 0, attempts: 0 };
            self.flights[number as usize] = Some(flight);
            self.stage_flight(number);
            let are_first = self.in_flight() == STAGED_FIRST && self.staged.len() >= STAGED_FIRST;
            if are_first || self.staged.len() >= STAGED_MAX {
                self.enter(0);
            }
        }
    }

    /// Puts a flight, or what is left of it, into the ring.
    fn stage_flight(&mut self, number: u32) {
        let Some(flight) = self.flights[number as usize].as_mut() else { return };
        let Some(fd) = flight.file.descriptor() else { return };
        let fd = types::Fd(fd.as_raw_fd());
        let rest = &mut flight.buffer[flight.done..];
        // The kernel reads less at once if it must, and says how much it read.
        let len = u32::try_from(rest.len()).unwrap_or(1 << 30);
        let entry = opcode::Read::new(fd, rest.as_mut_ptr(), len)
            .offset(flight.offset + flight.done as u64)
            .build();
        // SAFETY: the entry points to the rest of the flight's buffer, which stays where it is and
        // untouched until the kernel has ended the read (1), as does the file (2).
        unsafe { self.stage(number, entry) };
    }

    /// Puts an entry into the ring.
    ///
    /// # Safety
    ///
    /// What the entry points to stays valid until the kernel has ended it.
    unsafe fn stage(&mut self, number: u32, entry: squeue::Entry) {
        let entry = entry.user_data(u64::from(number));
        // SAFETY: as the caller says.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            // The ring is full: the kernel takes what is there.
            self.enter(0);
            if self.refused {
                break;
            }
        }
        self.staged.push_back(number);
    }

    /// Hands the ring's entries to the kernel and waits for `wanted` results.
    fn enter(&mut self, wanted: u32) {
        // The entries that the kernel has refused are done by calls, so it must not take them
        // later.
        let entries = if self.refused { 0 } else { self.ring.submission().len() };
        let entries = u32::try_from(entries).unwrap_or(0);
        let flags = if wanted > 0 { EnterFlags::GETEVENTS } else { EnterFlags::empty() };
        // SAFETY: the ring holds at least `entries` entries, each valid until it has ended as
        // `stage` demands, and no argument is passed.
        let entered =
            unsafe { self.ring.submitter().enter::<()>(entries, wanted, flags.bits(), None) };
        match entered {
            Ok(_) if self.refused => {}
            Ok(taken) => drop(self.staged.drain(..taken.min(self.staged.len()))),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::INTR) => {}
                // The kernel has too many results to hand over, or too little memory. Results are
                // taken next; if there are none, the kernel is asked again.
                Some(Errno::AGAIN | Errno::BUSY | Errno::NOMEM) => thread::sleep(PAUSE),
                _ => {
                    self.refused = true;
                    thread::sleep(PAUSE);
                }
            },
        }
    }

    /// Takes the results that are there.
    fn take_results(&mut self, done: &mut Vec<ReadDone>) -> bool {
        let mut woken = false;
        loop {
            let Some(entry) = self.ring.completion().next() else { return woken };
            #[expect(clippy::cast_possible_truncation, reason = "it was made from 32 bits")]
            let number = entry.user_data() as u32;
            if number == BELL {
                self.bell_armed = false;
                woken = true;
                self.bell.iter().for_each(|bell| bell.silence());
            } else {
                self.settle(number, entry.result(), done);
            }
        }
    }

    /// Does what a result of the kernel calls for.
    fn settle(&mut self, number: u32, result: i32, done: &mut Vec<ReadDone>) {
        let Some(flight) = self.flights.get_mut(number as usize).and_then(Option::as_mut) else {
            return;
        };
        let (len, is_direct) = (flight.buffer.len(), flight.file.is_direct());
        let next = judge(result, flight.done, len, is_direct);
        match next {
            Next::Ended(n) => self.end(number, Ok(n), done),
            Next::Failed(code) => self.end(number, Err(io::Error::from_raw_os_error(code)), done),
            Next::ByCall(n) => {
                flight.done = n;
                self.read_by_call(number, done);
            }
            Next::GoOn(n) => {
                flight.attempts = if n > flight.done { 0 } else { flight.attempts + 1 };
                flight.done = n;
                if flight.attempts < ATTEMPTS_MAX && !self.refused {
                    self.stage_flight(number);
                } else {
                    self.read_by_call(number, done);
                }
            }
        }
    }

    /// Ends a flight by plain calls. The kernel does not have it.
    fn read_by_call(&mut self, number: u32, done: &mut Vec<ReadDone>) {
        let Some(flight) = self.flights[number as usize].as_mut() else { return };
        let (at, offset) = (flight.done, flight.offset + flight.done as u64);
        let result = read_full(&*flight.file, &mut flight.buffer[at..], offset);
        self.end(number, result.map(|n| at + n), done);
    }

    /// Hands a flight back.
    fn end(&mut self, number: u32, result: io::Result<usize>, done: &mut Vec<ReadDone>) {
        if let Some(Flight { buffer, token, .. }) = self.flights[number as usize].take() {
            self.free.push(number);
            done.push(ReadDone { token, buffer, result });
        }
    }

    /// After the kernel has refused: does by plain calls the reads that it has not taken.
    fn read_untaken(&mut self, done: &mut Vec<ReadDone>) {
        while let Some(number) = self.staged.pop_front() {
            if number != BELL {
                self.read_by_call(number, done);
            }
        }
        done.extend(self.backlog.drain(..).map(ReadRequest::perform));
    }

    /// Waits for the end of all reads; leaks the buffers of those for which the kernel returns
    /// nothing.
    fn await_all(&mut self) {
        self.backlog.clear();
        let mut done = Vec::new();
        for _ in 0..FAREWELLS_MAX {
            if self.in_flight() == 0 {
                return;
            }
            self.enter(1);
            if self.refused {
                self.read_untaken(&mut done);
            }
            self.take_results(&mut done);
        }
        // The kernel does not say that it is done with them (3).
        std::mem::forget(std::mem::take(&mut self.flights));
        std::mem::take(&mut self.free);
        self.refused = true;
    }

    /// Begins what can be begun.
    fn begin(&mut self, done: &mut Vec<ReadDone>) {
        if !self.refused {
            self.stage_all(done);
        }
        // The kernel may have refused just now. It will never end the reads that it has not taken.
        if self.refused {
            self.read_untaken(done);
        }
    }
}

impl ReadQueue for UringQueue {
    fn push(&mut self, request: ReadRequest) {
        self.backlog.push_back(request);
    }

    fn start(&mut self, done: &mut Vec<ReadDone>) {
        self.begin(done);
        if !self.staged.is_empty() {
            self.enter(0);
        }
    }

    fn wait(&mut self, done: &mut Vec<ReadDone>) {
        let before = done.len();
        while self.pending() > 0 {
            self.begin(done);
            let woken = self.take_results(done);
            if woken || done.len() > before {
                if !self.staged.is_empty() {
                    self.enter(0);
                }
                return;
            }
            self.enter(1);
        }
    }

    fn pending(&self) -> usize {
        self.in_flight() + self.backlog.len()
    }

    fn waker(&mut self) -> io::Result<Arc<dyn QueueWaker>> {
        let bell = match &self.bell {
            Some(bell) => Arc::clone(bell),
            None => {
                let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
                Arc::clone(self.bell.insert(Arc::new(Bell(eventfd(0, flags)?))))
            }
        };
        Ok(bell)
    }
}

impl Drop for UringQueue {
    fn drop(&mut self) {
        self.await_all();
        // SAFETY: the ring is taken here alone, and the queue is not used after this.
        let ring = unsafe { ManuallyDrop::take(&mut self.ring) };
        let is_idle = self.in_flight() == 0 && self.staged.is_empty() && !self.bell_armed;
        if is_idle && !self.is_of_one && !self.refused {
            FreeRing::keep(ring, self.depth);
        }
    }
}

/// A counter of the kernel that ends a wait when it is raised.
struct Bell(OwnedFd);

impl Bell {
    /// Resets it, so that it can be waited for again.
    fn silence(&self) {
        // If there is nothing to read, it is silent already.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl QueueWaker for Bell {
    fn wake(&self) {
        // Fails only if the counter overflows: after about 2^64 rings without a reset.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_gone_on_with_or_told() {
        let (len, part) = (16384, 4096);
        assert_eq!(judge(16384, 0, len, true), Next::Ended(len));
        assert_eq!(judge(4096, 0, len, true), Next::GoOn(part));
        assert_eq!(judge(12288, part, len, true), Next::Ended(len));
        assert_eq!(judge(0, part, len, true), Next::Ended(part), "the end of the file");
        assert_eq!(judge(100, 0, len, true), Next::ByCall(100), "no direct read begins there");
        assert_eq!(judge(100, 0, len, false), Next::GoOn(100));
        for code in [Errno::INTR, Errno::AGAIN] {
            assert_eq!(judge(-code.raw_os_error(), part, len, true), Next::GoOn(part));
        }
        for code in [Errno::INVAL, Errno::OPNOTSUPP] {
            assert_eq!(judge(-code.raw_os_error(), part, len, true), Next::ByCall(part));
        }
        let code = Errno::IO.raw_os_error();
        assert_eq!(judge(-code, part, len, true), Next::Failed(code));
    }
}
