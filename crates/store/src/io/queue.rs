//! Reading many places at once: a queue takes reads, keeps as many of them in flight as it can, and
//! hands each back when it has ended, in any order.
//!
//! A queue belongs to one thread at a time, and starts no work in that thread unasked: reads go on
//! in the kernel or in other threads, and [`ReadQueue::wait`] returns their results. A read owns
//! its buffer and keeps its file open until it is handed back, so that no caller can free that
//! memory during the read.

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
    /// Where the bytes go; its length is the number of bytes to read.
    pub buffer: AlignedBuf,
    /// Comes back with the result.
    pub token: u64,
}

/// A read that has ended.
pub struct ReadDone {
    /// The token of the request.
    pub token: u64,
    /// The buffer of the request. After an error, and past the bytes that were read, its content is
    /// unspecified.
    pub buffer: AlignedBuf,
    /// The number of bytes read: fewer than the buffer's length only at the end of the file.
    pub result: io::Result<usize>,
}

/// Does many reads at once.
pub trait ReadQueue: Send {
    /// Takes a read, which begins in the next [`ReadQueue::wait`] at the latest. Any number may be
    /// taken; the queue decides how many are in flight at the same time.
    fn push(&mut self, request: ReadRequest);

    /// Begins the reads that were pushed, as far as there is room, without waiting; appends those
    /// that ended at once to `done`. A queue may leave this to [`ReadQueue::wait`].
    fn start(&mut self, done: &mut Vec<ReadDone>) {
        let _ = done;
    }

    /// Begins all the reads that were pushed, as far as there is room, and waits until a read has
    /// ended or the queue's waker was used since the last call; returns at once if neither can
    /// happen. Appends the ended reads to `done`. Short and interrupted reads are continued.
    fn wait(&mut self, done: &mut Vec<ReadDone>);

    /// Reads that were pushed and not handed back.
    fn pending(&self) -> usize;

    /// Returns the handle that ends a [`ReadQueue::wait`] from another thread.
    ///
    /// # Errors
    ///
    /// If the system has no descriptor left for it.
    fn waker(&mut self) -> io::Result<Arc<dyn QueueWaker>>;
}

/// Ends a wait for a queue.
pub trait QueueWaker: Send + Sync {
    /// Makes the wait that is in progress, or else the next one, return.
    fn wake(&self);
}

/// Which threads may use a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueUse {
    /// The thread that makes it and no other.
    OneThread,
    /// One thread after another, each from its first read to its last result.
    InTurns,
}

/// How reads that should be in flight at the same time are done.
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

/// Fills `buf` from `offset` as far as the file goes, and returns the number of bytes read. Short
/// reads, interruptions and calls to try again are continued.
///
/// # Errors
///
/// Any other error of the file.
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
