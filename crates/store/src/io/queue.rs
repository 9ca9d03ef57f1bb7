//! Reading many places at once: a queue takes reads, keeps as many of them going as it can, and
//! hands each back when it has ended, in any order.
//!
//! A queue belongs to one thread at a time and never starts a thread's work unasked: reads go on in
//! the kernel or in other threads, and what became of them is learned in [`ReadQueue::wait`]. A read
//! owns its buffer and keeps its file open until it is handed back, so that nobody can take the memory
//! away under it.

use std::{
    fmt,
    io::{self, ErrorKind},
};

use rhumb_sync::primitive::{Arc, thread};

use super::{AlignedBuf, ReadableFile};

#[cfg(all(test, feature = "sim", unix))]
mod tests;

/// A read to be done: fills `buffer` from `offset` on.
pub struct ReadRequest {
    /// The file.
    pub file: Arc<dyn ReadableFile>,
    /// Where in the file, in bytes; a multiple of [`ReadableFile::read_align`], as is the
    /// buffer's length.
    pub offset: u64,
    /// Where the bytes go; its length says how many.
    pub buffer: AlignedBuf,
    /// Comes back with the result.
    pub token: u64,
}

/// A read that has ended.
pub struct ReadDone {
    /// That of the request.
    pub token: u64,
    /// That of the request. What it holds after an error, or behind the bytes that were read, is
    /// unspecified.
    pub buffer: AlignedBuf,
    /// How many bytes were read: fewer than the buffer has only at the end of the file.
    pub result: io::Result<usize>,
}

/// Does many reads at once.
pub trait ReadQueue: Send {
    /// Takes a read, which begins at the latest in the next [`ReadQueue::wait`]. Any number may be
    /// taken; how many go on at the same time is the queue's affair.
    fn push(&mut self, request: ReadRequest);

    /// Begins what was pushed, as far as there is room, and does not wait; appends what has ended at once to
    /// `done`. A queue may leave it for [`ReadQueue::wait`].
    fn start(&mut self, done: &mut Vec<ReadDone>) {
        let _ = done;
    }

    /// Begins all that was pushed, as far as there is room, and waits until a read has ended or the
    /// queue's waker was used since the last call; returns at once if neither can happen. Appends what
    /// has ended to `done`. Short and interrupted reads are gone on with.
    fn wait(&mut self, done: &mut Vec<ReadDone>);

    /// Reads that were pushed and not handed back.
    fn pending(&self) -> usize;

    /// What ends a [`ReadQueue::wait`] from another thread.
    ///
    /// # Errors
    ///
    /// If the system has no descriptor left for it.
    fn waker(&mut self) -> io::Result<Arc<dyn QueueWaker>>;
}

/// Ends a wait for a queue.
pub trait QueueWaker: Send + Sync {
    /// Has the wait that goes on, or else the next one, return.
    fn wake(&self);
}

/// Who may use a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueUse {
    /// The thread that makes it and no other.
    OneThread,
    /// One thread after another, each from its first read to its last result.
    InTurns,
}

/// How reads are done that should go on at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReadEngineKind {
    /// By the kernel (`io_uring`). Where it refuses, by threads.
    #[default]
    Kernel,
    /// By threads that each do one read at a time.
    Threads,
}

impl ReadEngineKind {
    /// `kernel` or `threads`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Threads => "threads",
        }
    }
}

impl fmt::Debug for ReadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadRequest")
            .field("file", &self.file)
            .field("offset", &self.offset)
            .field("len", &self.buffer.len())
            .finish_non_exhaustive()
    }
}

/// Fills `buf` from `offset` as far as the file goes, and says how far that was: short reads,
/// interruptions and calls to try again are gone on with.
///
/// # Errors
///
/// What the file says otherwise.
pub fn read_full(file: &dyn ReadableFile, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(&mut buf[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => thread::yield_now(),
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

impl ReadRequest {
    /// Does the read here and now.
    pub(crate) fn perform(mut self) -> ReadDone {
        let result = read_full(&*self.file, &mut self.buffer, self.offset);
        ReadDone { token: self.token, buffer: self.buffer, result }
    }
}
