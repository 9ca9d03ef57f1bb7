//! One end of a connection between two devices.
//!
//! A queue is made, told of its peer, and then reads the peer's memory or is read from. What it
//! reads lands in memory of its own. A queue that has failed once is of no more use: its
//! holder makes another one.
//!
//! 1. The library's queue is destroyed before the memory that its requests name: what is under way
//!    writes into memory that is still there.
//! 2. Nobody waits for longer than it was told to.
#![allow(unsafe_code, reason = "a C library is given memory to write into")]

use std::{
    io, ptr,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    abi::{QueuePairLimits, ScatterGather, SendWorkRequest, WorkCompletion, access, flag},
    device::{Domain, RegisteredMemory},
    pair::{Completions, Pair},
};
use crate::{
    error::{Error, Result},
    message::Endpoint,
    primitive::{AtomicU64, Ordering, fence, spin_loop},
};

/// Reads of one doorbell: as many as a send queue holds at once, and more leaves than a get or a
/// part of a scan asks for as a rule.
const READS_MAX: usize = 64;

/// How long a completion is polled for before the thread sleeps until there is one: an assumption,
/// not measured with a card, that a sleep and its wake take as long.
pub(super) const POLL_BUDGET: Duration = Duration::from_micros(50);

/// Polls between two looks at the clock.
pub(super) const POLLS_A_LOOK: u32 = 16;

/// Words of the memory that reads land in, to begin with: what a get of several keys brings.
const BUFFER_WORDS: usize = 64 << 10 >> 3;

/// The most bytes that one call of [`Queue::read`] brings: twice the largest value that a region
/// publishes.
pub(crate) const READ_BYTES_MAX: usize = 128 << 20;

/// A piece of the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    /// Where it begins, as the peer names it.
    pub(crate) address: u64,
    /// What the peer's device asks for.
    pub(crate) key: u32,
    /// Bytes: a multiple of 8.
    pub(crate) bytes: u32,
}

/// One end of a connection.
pub(crate) struct Queue {
    pair: Pair,
    /// What reads land in, once there was one: a queue that is read from alone needs none.
    buffer: Option<RegisteredMemory>,
    /// True once a request has failed or was not waited for.
    is_broken: bool,
    /// The number of the last doorbell.
    doorbells: u64,
}

impl Queue {
    /// A queue without a peer.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the device has no more, or no room for what it needs.
    pub(crate) fn new(domain: &Arc<Domain>) -> Result<Self> {
        let limits = QueuePairLimits {
            sends: READS_MAX as u32,
            receives: 1,
            send_entries: 1,
            receive_entries: 1,
            inline_bytes: 0,
        };
        let completions = Completions::new(domain, READS_MAX + 1)?;
        let pair = Pair::new(completions, None, limits, access::REMOTE_READ)?;
        Ok(Self { pair, buffer: None, is_broken: false, doorbells: 0 })
    }

    /// A descriptor that it has.
    pub(crate) fn events(&self) -> std::os::fd::BorrowedFd<'_> {
        self.pair.sends().events()
    }

    /// What its peer needs to know.
    pub(crate) fn endpoint(&self) -> Endpoint {
        self.pair.endpoint()
    }

    /// Connects to a peer, which may read what is shared in the domain.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the device does not know the way.
    pub(crate) fn connect(&mut self, peer: &Endpoint) -> Result<()> {
        let connected = self.pair.connect(peer);
        self.is_broken |= connected.is_err();
        connected
    }

    /// Reads pieces of the peer's memory, with one doorbell for 64 of them, and passes the words to
    /// `take`, piece after piece. Between the words of a piece, and between pieces, there is no
    /// order: each may be of any moment between the call and its end.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the peer or the way to it has gone, or the peer has no such memory;
    /// [`Error::TimedOut`]. The queue is of no use then.
    pub(crate) fn read(
        &mut self,
        reads: &[Read],
        timeout: Duration,
        take: impl FnOnce(&[AtomicU64]),
    ) -> Result<()> {
        let bytes: usize = reads.iter().map(|read| read.bytes as usize).sum();
        if self.is_broken {
            return Err(Error::Closed);
        }
        if bytes > READ_BYTES_MAX {
            let what = format!("reads of {bytes} bytes, where {READ_BYTES_MAX} are the most");
            return Err(Error::InvalidArgument(what.into()));
        }
        let words = bytes / 8;
        // Nothing is under way: whatever was is waited for, or the queue is broken.
        let room = self.buffer.as_ref().map_or(0, |buffer| buffer.words().len());
        let buffer = match self.buffer.take().filter(|_| words <= room) {
            Some(buffer) => buffer,
            None => RegisteredMemory::own(
                self.pair.domain(),
                words.next_power_of_two().max(BUFFER_WORDS),
            )?,
        };
        let (mut at, key) = (buffer.address(), buffer.local_key());
        self.buffer = Some(buffer);
        let until = Instant::now() + timeout;
        for some in reads.chunks(READS_MAX) {
            self.is_broken = true;
            self.post(some, (&mut at, key))?;
            self.wait(until)?;
            self.is_broken = false;
        }
        // What the device wrote was written before the completion that was seen.
        fence(Ordering::Acquire);
        take(self.buffer.as_ref().map_or(&[], |buffer| &buffer.words()[..words]));
        Ok(())
    }

    /// Begins reads into the buffer, from an address of it on, with a completion for the last.
    fn post(&mut self, reads: &[Read], (at, local_key): (&mut u64, u32)) -> Result<()> {
        self.doorbells += 1;
        let mut entries: Vec<ScatterGather> = Vec::with_capacity(reads.len());
        let mut chain: Vec<SendWorkRequest> = Vec::with_capacity(reads.len());
        // Both keep their memory, as they grow to what they have room for.
        let (entry, request) = (entries.as_mut_ptr(), chain.as_mut_ptr());
        for (index, read) in reads.iter().enumerate() {
            entries.push(ScatterGather { address: *at, length: read.bytes, local_key });
            *at += u64::from(read.bytes);
            let is_last = index + 1 == reads.len();
            let next = if is_last { ptr::null_mut() } else { request.wrapping_add(index + 1) };
            chain.push(SendWorkRequest::read(
                (self.doorbells, next),
                entry.wrapping_add(index),
                (read.address, read.key),
                if is_last { flag::SIGNALED } else { 0 },
            ));
        }
        // SAFETY: chain and entries are there until the call returns. What the device writes later
        // is in the buffer, which by invariant 1 is there until the pair is not. Its words are
        // atomics that nobody reads until the completion.
        unsafe { self.pair.post_sends(request) }
    }

    /// Waits for the completion of the last doorbell.
    fn wait(&mut self, until: Instant) -> Result<()> {
        let begun = Instant::now();
        let mut is_armed = false;
        loop {
            for _ in 0..POLLS_A_LOOK {
                if let Some(done) = self.pair.sends().poll()? {
                    return self.check(&done);
                }
                spin_loop();
            }
            let now = Instant::now();
            if now >= until {
                return Err(Error::TimedOut);
            }
            if now.duration_since(begun) < POLL_BUDGET {
                continue;
            }
            if is_armed {
                self.pair.sends().wait(Some(until - now), None)?;
            } else {
                // What completes from here on is told of; what did before is polled once more.
                self.pair.sends().arm()?;
            }
            is_armed = !is_armed;
        }
    }

    fn check(&self, done: &WorkCompletion) -> Result<()> {
        if done.status != 0 {
            let text = self.pair.domain().device().library().status_text(done.status);
            let what = format!("read memory of the peer by {}", self.pair.domain().device().name());
            return Err(Error::io(what, io::Error::other(text)));
        }
        if done.id != self.doorbells {
            return Err(Error::invalid("a completion of another request"));
        }
        Ok(())
    }

    /// Returns true unless something has failed.
    #[cfg(test)]
    pub(super) fn is_usable(&self) -> bool {
        !self.is_broken
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("domain", self.pair.domain()).finish_non_exhaustive()
    }
}
