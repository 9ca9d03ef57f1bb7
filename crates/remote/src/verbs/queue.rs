//! One end of a connection between two devices.
//!
//! A queue is made, told of its peer, and then reads the peer's memory or is read from. What it
//! reads lands in memory of its own. A queue that has failed once is of no more use: its
//! holder makes another one.
//!
//! 1. The library's queue is destroyed before the memory that its requests name: what is under way
//!    writes into memory that is still there.
//! 2. Nobody waits for longer than it was told to.
#![allow(unsafe_code, reason = "calls a C library, which is given memory to write into")]

use std::{
    ffi::c_int,
    hash::{BuildHasher, RandomState},
    io, ptr,
    ptr::NonNull,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    abi::{
        CompletionChannel, CompletionQueue, QueuePair, QueuePairAttributes, QueuePairInit,
        QueuePairLimits, RELIABLE_CONNECTED, ScatterGather, SendWorkRequest, WorkCompletion,
        access, flag, mask, state,
    },
    device::{Domain, Memory},
};
use crate::{
    error::{Error, Result},
    message::Endpoint,
    primitive::{AtomicU64, Ordering, fence, spin_loop},
};

/// Reads of one doorbell: as many as a send queue holds at once, and more leaves than a get or a
/// part of a scan asks for as a rule.
const READS_MAX: usize = 64;

/// Reads that a queue has under way at once, at most, if both devices take as many. The others
/// of a doorbell wait in the device.
const READS_OUT_MAX: u8 = 16;

/// How long a completion is polled for before the thread sleeps until there is one: an assumption,
/// not measured with a card, that a sleep and its wake take as long.
const POLL_BUDGET: Duration = Duration::from_micros(50);

/// Polls between two looks at the clock.
const POLLS_A_LOOK: u32 = 16;

/// Words of the memory that reads land in, to begin with: what a get of several keys brings.
const BUFFER_WORDS: usize = 64 << 10 >> 3;

/// The most bytes that one call of [`Queue::read`] brings: twice the largest value that a region
/// publishes.
pub(crate) const READ_BYTES_MAX: usize = 128 << 20;

/// After which time without an acknowledgment a packet is sent again, as the interface counts:
/// 4.096 us * 2^13, which is 34 ms.
const TIMEOUT: u8 = 13;
/// How often a packet is sent again, at most: as many as the interface has bits for. A device may
/// wait for longer than it is told, so that callers have a time of their own.
const RETRIES: u8 = 7;
/// How long a peer that has no room for a message is left alone: 0.64 ms, as the interface counts.
const RECEIVER_TIMER: u8 = 12;
/// A peer without room is asked again for ever: calls have their own time.
const RECEIVER_RETRIES: u8 = 7;
/// Routers on the way, at most: the number that the standard's examples have.
const HOPS_MAX: u8 = 64;

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
    pair: NonNull<QueuePair>,
    completions: NonNull<CompletionQueue>,
    channel: NonNull<CompletionChannel>,
    /// What reads land in, once there was one: a queue that is read from alone needs none.
    buffer: Option<Memory>,
    domain: Arc<Domain>,
    /// The number of its first packet.
    sequence: u32,
    /// True once a request has failed or was not waited for.
    is_broken: bool,
    /// The number of the last doorbell.
    doorbells: u64,
}

// SAFETY: the library's functions may be called by any thread, and what changes is changed through
// an exclusive reference.
unsafe impl Send for Queue {}

impl Queue {
    /// A queue without a peer.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the device has no more, or no room for what it needs.
    pub(crate) fn new(domain: &Arc<Domain>) -> Result<Self> {
        let device = domain.device();
        let (library, context) = (device.library(), device.context());
        let failed = |what: &str| {
            let what = format!("make {what} of the RDMA device {}", device.name());
            Error::io(what, io::Error::last_os_error())
        };
        // SAFETY: the device is open, which the domain sees to.
        let channel = unsafe { (library.create_comp_channel)(context.as_ptr()) };
        let channel = NonNull::new(channel).ok_or_else(|| failed("a channel of events"))?;
        let room = READS_MAX as c_int + 1;
        // SAFETY: device and channel are there.
        let completions = unsafe {
            (library.create_cq)(context.as_ptr(), room, ptr::null_mut(), channel.as_ptr(), 0)
        };
        let Some(completions) = NonNull::new(completions) else {
            let error = failed("a completion queue");
            // SAFETY: nothing was made of it.
            unsafe { (library.destroy_comp_channel)(channel.as_ptr()) };
            return Err(error);
        };
        let limits = QueuePairLimits {
            sends: READS_MAX as u32,
            receives: 1,
            send_entries: 1,
            receive_entries: 1,
            inline_bytes: 0,
        };
        let mut init = QueuePairInit {
            user: ptr::null_mut(),
            send_queue: completions.as_ptr(),
            receive_queue: completions.as_ptr(),
            shared_receives: ptr::null_mut(),
            limits,
            kind: RELIABLE_CONNECTED,
            signals_all: 0,
        };
        // SAFETY: domain and completion queue are there, and the settings are read alone.
        let pair = unsafe { (library.create_qp)(domain.raw().as_ptr(), &raw mut init) };
        let Some(pair) = NonNull::new(pair) else {
            let error = failed("a queue pair");
            // SAFETY: nothing was made of either, and the channel goes last.
            unsafe {
                (library.destroy_cq)(completions.as_ptr());
                (library.destroy_comp_channel)(channel.as_ptr());
            }
            return Err(error);
        };
        let sequence = RandomState::new().hash_one(pair.as_ptr().addr()) as u32 & 0xff_ffff;
        let domain = Arc::clone(domain);
        let (buffer, is_broken, doorbells) = (None, false, 0);
        Ok(Self { pair, completions, channel, buffer, domain, sequence, is_broken, doorbells })
    }

    /// What its peer needs to know.
    pub(crate) fn endpoint(&self) -> Endpoint {
        // SAFETY: it is there.
        let number = unsafe { self.pair.as_ref() }.number;
        self.domain.device().endpoint(number, self.sequence)
    }

    /// Connects to a peer, which may read what is shared in the domain.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the device does not know the way.
    pub(crate) fn connect(&mut self, peer: &Endpoint) -> Result<()> {
        let device = Arc::clone(self.domain.device());
        let own = device.endpoint(0, 0);
        let mut init = QueuePairAttributes {
            state: state::INIT,
            port: device.port(),
            access: access::REMOTE_READ as u32,
            ..QueuePairAttributes::default()
        };
        self.transition(&mut init, mask::STATE | mask::KEY_INDEX | mask::PORT | mask::ACCESS)?;
        let mut receive = QueuePairAttributes {
            state: state::READY_TO_RECEIVE,
            path_mtu: u32::from(own.mtu.min(peer.mtu)),
            peer: peer.queue,
            receive_sequence: peer.sequence & 0xff_ffff,
            reads_in: own.reads_in.min(READS_OUT_MAX),
            receiver_timer: RECEIVER_TIMER,
            ..QueuePairAttributes::default()
        };
        let address = &mut receive.address;
        (address.lid, address.port) = (peer.lid, device.port());
        if device.is_ethernet() {
            address.is_global = 1;
            address.gid = gid_words(peer.gid);
            address.gid_index = device.gid_index();
            address.hop_limit = HOPS_MAX;
        }
        let wanted = mask::STATE
            | mask::ADDRESS
            | mask::PATH_MTU
            | mask::PEER
            | mask::RECEIVE_SEQUENCE
            | mask::READS_IN
            | mask::RECEIVER_TIMER;
        self.transition(&mut receive, wanted)?;
        let reads_out = u8::try_from(device.limits().reads_out.clamp(1, 255)).unwrap_or(1);
        let mut send = QueuePairAttributes {
            state: state::READY_TO_SEND,
            timeout: TIMEOUT,
            retries: RETRIES,
            receiver_retries: RECEIVER_RETRIES,
            send_sequence: self.sequence,
            reads_out: reads_out.min(peer.reads_in).clamp(1, READS_OUT_MAX),
            ..QueuePairAttributes::default()
        };
        let wanted = mask::STATE
            | mask::TIMEOUT
            | mask::RETRIES
            | mask::RECEIVER_RETRIES
            | mask::SEND_SEQUENCE
            | mask::READS_OUT;
        self.transition(&mut send, wanted)
    }

    fn transition(&mut self, attributes: &mut QueuePairAttributes, wanted: c_int) -> Result<()> {
        let device = self.domain.device();
        // SAFETY: the pair is there, and the function reads the fields that the mask names.
        let refused = unsafe {
            (device.library().modify_qp)(self.pair.as_ptr(), ptr::from_mut(attributes), wanted)
        };
        if refused == 0 {
            return Ok(());
        }
        self.is_broken = true;
        let what = format!("connect a queue pair of the RDMA device {}", device.name());
        Err(Error::io(what, io::Error::from_raw_os_error(refused)))
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
            None => Memory::own(&self.domain, words.next_power_of_two().max(BUFFER_WORDS))?,
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
        let mut bad = ptr::null_mut();
        // SAFETY: the pair is there, and its context has the function. The chain, which has at
        // least one request, and the entries that it names are read before the call returns; what
        // the device writes later is in the buffer, which by invariant 1 is there until the pair is
        // not. Its words are atomics that nobody reads until the completion.
        let refused = unsafe {
            let ops = &(*self.pair.as_ref().context).ops;
            (ops.post_send)(self.pair.as_ptr(), request, &raw mut bad)
        };
        if refused == 0 {
            return Ok(());
        }
        let what = format!("begin reads by the RDMA device {}", self.domain.device().name());
        Err(Error::io(what, io::Error::from_raw_os_error(refused.abs())))
    }

    /// Waits for the completion of the last doorbell.
    fn wait(&mut self, until: Instant) -> Result<()> {
        let begun = Instant::now();
        let mut is_armed = false;
        loop {
            for _ in 0..POLLS_A_LOOK {
                if let Some(done) = self.poll()? {
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
                self.sleep(until - now)?;
            } else {
                // What completes from here on is told of; what did before is polled once more.
                self.arm()?;
            }
            is_armed = !is_armed;
        }
    }

    fn poll(&mut self) -> Result<Option<WorkCompletion>> {
        let mut done = WorkCompletion::default();
        // SAFETY: the queue is there, its context has the function, and there is room for the one
        // completion that is asked for.
        let count = unsafe {
            let ops = &(*self.completions.as_ref().context).ops;
            (ops.poll_cq)(self.completions.as_ptr(), 1, &raw mut done)
        };
        match count {
            0 => Ok(None),
            1 => Ok(Some(done)),
            _ => Err(Error::io("poll a completion queue", io::Error::last_os_error())),
        }
    }

    fn check(&self, done: &WorkCompletion) -> Result<()> {
        if done.status != 0 {
            let text = self.domain.device().library().status_text(done.status);
            let what = format!("read memory of the peer by {}", self.domain.device().name());
            return Err(Error::io(what, io::Error::other(text)));
        }
        if done.id != self.doorbells {
            return Err(Error::invalid("a completion of another request"));
        }
        Ok(())
    }

    /// Has the channel tell of the next completion.
    fn arm(&mut self) -> Result<()> {
        // SAFETY: the queue is there, and its context has the function.
        let refused = unsafe {
            let ops = &(*self.completions.as_ref().context).ops;
            (ops.req_notify_cq)(self.completions.as_ptr(), 0)
        };
        if refused == 0 {
            return Ok(());
        }
        let error = io::Error::from_raw_os_error(refused.abs());
        Err(Error::io("ask for the event of a completion", error))
    }

    /// Sleeps until the channel tells of a completion.
    fn sleep(&mut self, most: Duration) -> Result<()> {
        if !self.has_event(most)? {
            return Ok(());
        }
        let library = self.domain.device().library();
        let (mut queue, mut user) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel is there and has an event, so that the call does not wait; it says
        // of which queue, of which the channel has this one alone.
        let failed =
            unsafe { (library.get_cq_event)(self.channel.as_ptr(), &raw mut queue, &raw mut user) };
        if failed != 0 {
            let error = io::Error::last_os_error();
            return Err(Error::io("take the event of a completion", error));
        }
        // SAFETY: the event was of this queue. Without this it could not be destroyed.
        unsafe { (library.ack_cq_events)(self.completions.as_ptr(), 1) };
        Ok(())
    }

    fn has_event(&self, most: Duration) -> Result<bool> {
        // SAFETY: the channel is there until this queue is dropped, and so is its descriptor.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(self.channel.as_ref().fd) };
        let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
        let most = rustix::time::Timespec::try_from(most)
            .map_err(|_| Error::InvalidArgument("a time that is too long".into()))?;
        match rustix::event::poll(&mut fds, Some(&most)) {
            Ok(count) => Ok(count > 0),
            // A signal: the caller looks at the clock and comes again.
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(Error::io("wait for a completion", error)),
        }
    }

    /// Returns true unless something has failed.
    #[cfg(test)]
    pub(super) fn is_usable(&self) -> bool {
        !self.is_broken
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("domain", &self.domain).finish_non_exhaustive()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if !self.domain.device().is_own() {
            return;
        }
        let library = self.domain.device().library();
        // SAFETY: all three are this queue's alone, no event is left unacknowledged, and each goes
        // before what it was made of. The buffer goes after them.
        unsafe {
            (library.destroy_qp)(self.pair.as_ptr());
            (library.destroy_cq)(self.completions.as_ptr());
            (library.destroy_comp_channel)(self.channel.as_ptr());
        }
    }
}

/// A name as the library has it: its bytes, in their order.
fn gid_words(gid: [u8; 16]) -> [u64; 2] {
    let words = gid.as_chunks::<8>().0;
    [u64::from_ne_bytes(words[0]), u64::from_ne_bytes(words[1])]
}
