//! A stream of bytes over a queue pair, by sends: what calls go over.
//!
//! Bytes go in messages of up to 4 KiB. A short message is *inline*: the device takes it with its
//! request, and reads no memory for it. An empty message is the end. A peer that has no room for a
//! message is asked again by the device, so that what is sent waits for what is read.
//!
//! One thread may put bytes in while another takes some out.
//!
//! 1. The pair goes before the memory that its requests name.
//! 2. A slot of that memory is written, or given to the device, while no request names it.
#![allow(unsafe_code, reason = "a C library is given memory to read and write")]

use std::{
    ops::Range,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
    thread,
    time::{Duration, Instant},
};

use super::{
    abi::{FLUSHED, QueuePairLimits, ReceiveWorkRequest, ScatterGather, SendWorkRequest, flag},
    device::{Domain, RegisteredMemory},
    pair::{Completions, Pair, Woken},
    queue::{POLL_BUDGET, POLLS_A_LOOK},
};
use crate::{
    error::{Error, Result},
    message::Endpoint,
    primitive::{AtomicU64, Ordering, fence, spin_loop},
};

/// The most bytes of a message: a page, which most calls and answers are a small part of.
pub(crate) const MESSAGE_BYTES: usize = 4 << 10;

/// Words of a message's slot.
const SLOT_WORDS: usize = MESSAGE_BYTES / 8;

/// Messages that may come before the first is read: a call and its answer are one each, and some
/// threads may share a stream.
const RECEIVES: usize = 8;

/// Messages that may be on their way: as many as the other side has room for.
const SENDS: usize = 8;

/// Bytes of a message that goes inline, at most, if the device takes as many: a get, or its answer
/// with a short value. What most cards take without a request of twice the size.
const INLINE_BYTES: u32 = 220;

/// How long [`ByteStream::finish`] waits for the peer, at most: one that is there acknowledges in
/// microseconds.
const LINGER: Duration = Duration::from_millis(20);

/// How long it sleeps before it looks again.
const LINGER_STEP: Duration = Duration::from_micros(100);

/// A stream of bytes to a peer.
pub(crate) struct ByteStream {
    pair: Pair,
    sending: Mutex<Sending>,
    receiving: Mutex<Receiving>,
    /// The slots of messages that come, and then those of messages that go.
    buffers: RegisteredMemory,
    /// The connection that the stream belongs to: if it ends, so does the stream.
    connection: Option<OwnedFd>,
    /// How long receiving and sending wait.
    timeouts: Mutex<(Option<Duration>, Option<Duration>)>,
    is_over: AtomicBool,
}

#[derive(Default)]
struct Sending {
    /// Messages that the device has not sent yet.
    under_way: usize,
    /// Messages so far.
    count: usize,
    has_failed: bool,
    /// True once the peer was told that nothing more comes.
    has_finished: bool,
}

#[derive(Default)]
struct Receiving {
    /// What is left of a message that has come: its slot, and where in it.
    current: Option<(usize, Range<usize>)>,
    has_ended: bool,
}

/// Every change of what the locks hold is a single step.
fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ByteStream {
    /// A stream without a peer. If there is a `connection`, which is a TCP socket, the stream ends
    /// with it for those that wait.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the device has no more.
    pub(crate) fn new(domain: &Arc<Domain>, connection: Option<OwnedFd>) -> Result<Self> {
        let limits = QueuePairLimits {
            sends: SENDS as u32,
            receives: RECEIVES as u32,
            send_entries: 1,
            receive_entries: 1,
            inline_bytes: INLINE_BYTES,
        };
        let sends = Completions::new(domain, SENDS + 1)?;
        let receives = Completions::new(domain, RECEIVES + 1)?;
        let buffers = RegisteredMemory::own(domain, (RECEIVES + SENDS) * SLOT_WORDS)?;
        let stream = Self {
            pair: Pair::new(sends, Some(receives), limits, 0)?,
            sending: Mutex::default(),
            receiving: Mutex::default(),
            buffers,
            connection,
            timeouts: Mutex::default(),
            is_over: AtomicBool::new(false),
        };
        (0..RECEIVES).try_for_each(|slot| stream.make_room(slot))?;
        Ok(stream)
    }

    /// What its peer needs to know.
    pub(crate) fn endpoint(&self) -> Endpoint {
        self.pair.endpoint()
    }

    /// Connects to a peer. What comes from here on is told of by [`ByteStream::came`].
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the device does not know the way.
    pub(crate) fn connect(&self, peer: &Endpoint) -> Result<()> {
        self.pair.receives().arm()?;
        self.pair.connect(peer)
    }

    /// How long [`ByteStream::receive`] and [`ByteStream::send`] wait; without a time, for ever.
    pub(crate) fn set_timeouts(&self, receive: Option<Duration>, send: Option<Duration>) {
        *lock(&self.timeouts) = (receive, send);
    }

    /// What is readable once something has come, after a [`ByteStream::take`] or a
    /// [`ByteStream::has_some`] that found nothing.
    pub(crate) fn came(&self) -> BorrowedFd<'_> {
        self.pair.receives().events()
    }

    /// What is readable once there is room, after a [`ByteStream::put`] that found none.
    pub(crate) fn has_room(&self) -> BorrowedFd<'_> {
        self.pair.sends().events()
    }

    /// Where a slot is, and what of it a request names.
    fn entry(&self, slot: usize, bytes: usize) -> ScatterGather {
        let address = self.buffers.address() + (slot * MESSAGE_BYTES) as u64;
        ScatterGather { address, length: bytes as u32, local_key: self.buffers.local_key() }
    }

    fn slot(&self, slot: usize) -> &[AtomicU64] {
        &self.buffers.words()[slot * SLOT_WORDS..][..SLOT_WORDS]
    }

    /// Gives a slot to the device, for a message to come.
    fn make_room(&self, slot: usize) -> Result<()> {
        let mut entry = self.entry(slot, MESSAGE_BYTES);
        let mut request = ReceiveWorkRequest {
            id: slot as u64,
            next: ptr::null_mut(),
            scatter_gather: &raw mut entry,
            scatter_gather_count: 1,
        };
        // SAFETY: request and entry are there until the call returns; the slot is, by invariant 1,
        // until the pair is not. Its words are atomics, which nobody reads until it has come.
        unsafe { self.pair.post_receives(&raw mut request) }
    }

    /// Takes note of messages that the device has sent.
    fn reap(&self, sending: &mut Sending) -> Result<()> {
        while sending.under_way > 0 && !sending.has_failed {
            match self.pair.sends().poll()? {
                None => return Ok(()),
                Some(done) if done.status == 0 => sending.under_way -= 1,
                Some(done) => {
                    sending.has_failed = true;
                    return Err(self.failed("send to", done.status));
                }
            }
        }
        if sending.has_failed { Err(Error::Closed) } else { Ok(()) }
    }

    /// The error of a request that has failed.
    fn failed(&self, what: &str, status: u32) -> Error {
        if status == FLUSHED || self.is_over.load(Ordering::Relaxed) {
            return Error::Closed;
        }
        let device = self.pair.domain().device();
        let text = device.library().status_text(status);
        let what = format!("{what} the peer by {}", device.name());
        Error::io(what, std::io::Error::other(text))
    }

    /// Returns true if the peer has not acknowledged all that was put in.
    pub(crate) fn is_sending(&self) -> bool {
        let sending = &mut *lock(&self.sending);
        self.reap(sending).is_ok() && sending.under_way > 0
    }

    /// Puts some first bytes of `bytes` in, at least one; `None` if there is no room now. Does not
    /// wait.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] if the peer has gone; [`Error::Io`].
    pub(crate) fn put(&self, bytes: &[u8]) -> Result<Option<usize>> {
        let sending = &mut *lock(&self.sending);
        self.reap(sending)?;
        if sending.has_finished {
            return Err(Error::Closed);
        }
        if sending.under_way == SENDS {
            self.pair.sends().arm()?;
            self.reap(sending)?;
        }
        if sending.under_way == SENDS {
            return Ok(None);
        }
        let some = &bytes[..bytes.len().min(MESSAGE_BYTES)];
        self.post(sending, some)?;
        Ok(Some(some.len()))
    }

    /// Sends a message, for which there is room.
    fn post(&self, sending: &mut Sending, message: &[u8]) -> Result<()> {
        let is_inline = message.len() <= self.pair.inline_bytes();
        // Messages are sent in their order: of the last ones none is in this slot.
        let slot = RECEIVES + sending.count % SENDS;
        let mut entry = self.entry(slot, message.len());
        if is_inline {
            entry.address = message.as_ptr().addr() as u64;
        } else {
            let words = self.slot(slot);
            for (word, chunk) in words.iter().zip(message.chunks(8)) {
                let mut bytes = [0; 8];
                bytes[..chunk.len()].copy_from_slice(chunk);
                word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
            }
            // The device reads what is stored before it is told.
            fence(Ordering::Release);
        }
        let entry = if message.is_empty() { ptr::null_mut() } else { &raw mut entry };
        let flags = if is_inline { flag::INLINE } else { 0 };
        let mut request = SendWorkRequest::send(entry, flags);
        // SAFETY: request, entry and message are there until the call returns; the slot is, by
        // invariant 1, until the pair is not.
        let posted = unsafe { self.pair.post_sends(&raw mut request) };
        sending.has_failed |= posted.is_err();
        posted?;
        sending.under_way += 1;
        sending.count = sending.count.wrapping_add(1);
        Ok(())
    }

    /// Sends bytes, and waits until the device has them all.
    ///
    /// # Errors
    ///
    /// As [`ByteStream::put`]; [`Error::TimedOut`].
    pub(crate) fn send(&self, bytes: &[u8]) -> Result<()> {
        let (until, mut sent) = (self.until(lock(&self.timeouts).1), 0);
        while sent < bytes.len() {
            match self.put(&bytes[sent..])? {
                Some(some) => sent += some,
                None => self.wait(self.pair.sends(), until)?,
            }
        }
        Ok(())
    }

    /// Waits until there may be room, for at most this long.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(crate) fn wait_for_room(&self, most: Duration) -> Result<()> {
        self.pair.sends().wait(Some(most), None).map(drop)
    }

    /// Returns true if something has come.
    fn has_come(&self, receiving: &mut Receiving) -> Result<bool> {
        // A device that has gone does not say so.
        if receiving.has_ended || self.is_over.load(Ordering::Relaxed) {
            return Err(Error::Closed);
        }
        if receiving.current.is_some() {
            return Ok(true);
        }
        let Some(done) = self.pair.receives().poll()? else { return Ok(false) };
        let (slot, len) = (done.id as usize, done.byte_len as usize);
        receiving.has_ended = done.status != 0 || len == 0;
        if done.status != 0 {
            return Err(self.failed("receive from", done.status));
        }
        if len == 0 {
            return Err(Error::Closed);
        }
        if slot >= RECEIVES || len > MESSAGE_BYTES {
            receiving.has_ended = true;
            return Err(Error::invalid("a completion of no message that may come"));
        }
        // What the device wrote was written before the completion that was seen.
        fence(Ordering::Acquire);
        receiving.current = Some((slot, 0..len));
        Ok(true)
    }

    /// The same; if nothing has come, [`ByteStream::came`] tells of what comes from here on.
    fn has_come_or_is_told_of(&self, receiving: &mut Receiving) -> Result<bool> {
        if self.has_come(receiving)? {
            return Ok(true);
        }
        self.pair.receives().arm()?;
        self.has_come(receiving)
    }

    /// Takes bytes that have come, at least one; `None` if there are none. Does not wait.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] if the peer has gone; [`Error::Io`].
    pub(crate) fn take(&self, out: &mut [u8]) -> Result<Option<usize>> {
        let receiving = &mut *lock(&self.receiving);
        if !self.has_come_or_is_told_of(receiving)? {
            return Ok(None);
        }
        let Some((slot, range)) = &mut receiving.current else { return Ok(None) };
        let (slot, len) = (*slot, range.len().min(out.len()));
        let words = self.slot(slot);
        for (at, byte) in range.clone().zip(&mut out[..len]) {
            *byte = words[at / 8].load(Ordering::Relaxed).to_ne_bytes()[at % 8];
        }
        range.start += len;
        if range.start >= range.end {
            receiving.current = None;
            self.make_room(slot)?;
        }
        Ok(Some(len))
    }

    /// As [`ByteStream::take`], after polling for a while if nothing has come.
    ///
    /// # Errors
    ///
    /// As [`ByteStream::take`].
    pub(crate) fn take_soon(&self, out: &mut [u8]) -> Result<Option<usize>> {
        let begun = Instant::now();
        while begun.elapsed() < POLL_BUDGET {
            for _ in 0..POLLS_A_LOOK {
                if self.has_come(&mut lock(&self.receiving))? {
                    return self.take(out);
                }
                spin_loop();
            }
        }
        self.take(out)
    }

    /// Waits for bytes, and takes some: at least one.
    ///
    /// # Errors
    ///
    /// As [`ByteStream::take`]; [`Error::TimedOut`].
    pub(crate) fn receive(&self, out: &mut [u8]) -> Result<usize> {
        let until = self.until(lock(&self.timeouts).0);
        loop {
            if let Some(len) = self.take_soon(out)? {
                return Ok(len);
            }
            match self.wait(self.pair.receives(), until) {
                // What it sent last may have come.
                Err(Error::Closed) => return self.take(out)?.ok_or(Error::Closed),
                waited => waited?,
            }
        }
    }

    fn until(&self, timeout: Option<Duration>) -> Option<Instant> {
        timeout.and_then(|timeout| Instant::now().checked_add(timeout))
    }

    /// Waits for an event, until a time at most.
    fn wait(&self, completions: &Completions, until: Option<Instant>) -> Result<()> {
        let most = until.map(|until| until.saturating_duration_since(Instant::now()));
        if most == Some(Duration::ZERO) {
            return Err(Error::TimedOut);
        }
        match completions.wait(most, self.connection.as_ref().map(AsFd::as_fd))? {
            Woken::Gone => Err(Error::Closed),
            Woken::Not | Woken::Event => Ok(()),
        }
    }

    /// Returns true if something has come, or the stream has ended. If not, [`ByteStream::came`]
    /// tells of it.
    pub(crate) fn has_some(&self) -> bool {
        self.has_come_or_is_told_of(&mut lock(&self.receiving)).unwrap_or(true)
    }

    /// Says that nothing more comes, and waits until the peer has acknowledged all, for a moment at
    /// most. What is sent afterwards fails.
    pub(crate) fn finish(&self) {
        let until = Instant::now() + LINGER;
        loop {
            {
                let sending = &mut *lock(&self.sending);
                self.try_finish(sending);
                if sending.has_failed || (sending.has_finished && sending.under_way == 0) {
                    return;
                }
            }
            if Instant::now() >= until {
                return;
            }
            thread::sleep(LINGER_STEP);
        }
    }

    /// Tells the peer that nothing more comes, if there is room for it and it was not told yet.
    fn try_finish(&self, sending: &mut Sending) {
        let has_room = self.reap(sending).is_ok() && sending.under_way < SENDS;
        if has_room && !sending.has_finished {
            sending.has_finished = self.post(sending, &[]).is_ok();
        }
    }

    /// Ends the stream in both directions, and waits for nobody: what the peer has not got yet may
    /// be lost, but for what came before [`ByteStream::finish`].
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the device refuses.
    pub(crate) fn shutdown(&self) -> Result<()> {
        let is_own = self.pair.domain().device().is_own();
        if !is_own || self.is_over.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        {
            let sending = &mut *lock(&self.sending);
            self.try_finish(sending);
            sending.has_failed = true;
        }
        // Those that wait are told: what has not come yet comes with an error.
        self.pair.fail()
    }
}

impl std::fmt::Debug for ByteStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ByteStream").field("domain", self.pair.domain()).finish_non_exhaustive()
    }
}

impl Drop for ByteStream {
    fn drop(&mut self) {
        // A device that refuses has ended it.
        let _: Result<(), _> = self.shutdown();
    }
}
