//! Queue pairs, and the queues in which a device tells what became of their requests.
//!
//! 1. A pair is destroyed before the completion queues that it tells, and these before the channels
//!    of their events.
//! 2. No event is left unacknowledged, so that a completion queue can be destroyed.
#![allow(unsafe_code, reason = "calls a C library")]

use std::{
    ffi::c_int,
    hash::{BuildHasher, RandomState},
    io,
    os::fd::BorrowedFd,
    ptr,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    abi::{
        CompletionChannel, CompletionQueue, QueuePair, QueuePairAttributes, QueuePairInit,
        QueuePairLimits, RELIABLE_CONNECTED, ReceiveWorkRequest, SendWorkRequest, WorkCompletion,
        mask, state,
    },
    device::{Device, Domain},
};
use crate::{
    error::{Error, Result},
    message::Endpoint,
};

/// Reads that a pair has under way at once, at most, if both devices take as many. The others of a
/// doorbell wait in the device.
const READS_OUT_MAX: u8 = 16;

/// After which time without an acknowledgment a packet is sent again, as the interface counts:
/// 4.096 us * 2^13, which is 34 ms.
const TIMEOUT: u8 = 13;
/// How often a packet is sent again, at most: as many as the interface has bits for. A device may
/// wait for longer than it is told, so that callers have a time of their own.
const RETRIES: u8 = 7;
/// How long a sender waits that has met a peer without room for a message: 0.01 ms, the shortest
/// time that the interface has, because the peer makes room as it reads.
const RECEIVER_TIMER: u8 = 1;
/// A peer without room is asked again for ever: calls have their own time.
const RECEIVER_RETRIES: u8 = 7;
/// Routers on the way, at most: the number that the standard's examples have.
const HOPS_MAX: u8 = 64;

fn failed(device: &Device, what: &str) -> Error {
    let what = format!("make {what} of the RDMA device {}", device.name());
    Error::io(what, io::Error::last_os_error())
}

/// What became of requests.
pub(super) struct Completions {
    raw: NonNull<CompletionQueue>,
    channel: NonNull<CompletionChannel>,
    domain: Arc<Domain>,
    /// True if the channel may have an event that was not taken.
    is_armed: AtomicBool,
}

// SAFETY: the library's functions may be called by several threads at once; what the pointers name
// is there until this is dropped.
unsafe impl Send for Completions {}
// SAFETY: as above. Events are taken by one thread at a time, as `Completions::arm` says.
unsafe impl Sync for Completions {}

impl Completions {
    /// A queue with room for this many completions at once, and a channel of its own.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the device has no more.
    pub(super) fn new(domain: &Arc<Domain>, room: usize) -> Result<Self> {
        let device = domain.device();
        let (library, context) = (device.library(), device.context());
        // SAFETY: the device is open, which the domain sees to.
        let channel = unsafe { (library.create_comp_channel)(context.as_ptr()) };
        let channel = NonNull::new(channel).ok_or_else(|| failed(device, "a channel of events"))?;
        let room = c_int::try_from(room).unwrap_or(c_int::MAX);
        // SAFETY: device and channel are there.
        let raw = unsafe {
            (library.create_cq)(context.as_ptr(), room, ptr::null_mut(), channel.as_ptr(), 0)
        };
        let Some(raw) = NonNull::new(raw) else {
            let error = failed(device, "a completion queue");
            // SAFETY: nothing was made of it.
            unsafe { (library.destroy_comp_channel)(channel.as_ptr()) };
            return Err(error);
        };
        let is_armed = AtomicBool::new(false);
        Ok(Self { raw, channel, domain: Arc::clone(domain), is_armed })
    }

    /// The next completion, if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the device cannot say.
    pub(super) fn poll(&self) -> Result<Option<WorkCompletion>> {
        let mut done = WorkCompletion::default();
        // SAFETY: the queue is there, its context has the function, and there is room for the one
        // completion that is asked for.
        let count = unsafe {
            let ops = &(*self.raw.as_ref().context).ops;
            (ops.poll_cq)(self.raw.as_ptr(), 1, &raw mut done)
        };
        match count {
            0 => Ok(None),
            1 => Ok(Some(done)),
            _ => Err(Error::io("poll a completion queue", io::Error::last_os_error())),
        }
    }

    /// Has the channel tell of the next completion, and forgets what it told of earlier ones. One
    /// thread at a time may do so; those that came before are to be polled for once more.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the device refuses.
    pub(super) fn arm(&self) -> Result<()> {
        if self.is_armed.load(Ordering::Relaxed) {
            while self.wait(Some(Duration::ZERO), None)? == Woken::Event {
                self.take_event()?;
            }
        }
        // SAFETY: the queue is there, and its context has the function.
        let refused = unsafe {
            let ops = &(*self.raw.as_ref().context).ops;
            (ops.req_notify_cq)(self.raw.as_ptr(), 0)
        };
        if refused == 0 {
            self.is_armed.store(true, Ordering::Relaxed);
            return Ok(());
        }
        let error = io::Error::from_raw_os_error(refused.abs());
        Err(Error::io("ask for the event of a completion", error))
    }

    /// Takes an event that is there.
    fn take_event(&self) -> Result<()> {
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
        unsafe { (library.ack_cq_events)(self.raw.as_ptr(), 1) };
        Ok(())
    }

    /// Waits until the channel has an event, the peer of a TCP connection has gone, or a time is
    /// over; without one it waits for ever.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(super) fn wait(
        &self,
        most: Option<Duration>,
        connection: Option<BorrowedFd<'_>>,
    ) -> Result<Woken> {
        let event = self.events();
        let mut fds = vec![PollFd::new(&event, PollFlags::IN)];
        // A connection that has ended is told of without being asked for.
        fds.extend(connection.as_ref().map(|fd| PollFd::new(fd, PollFlags::RDHUP)));
        let most = most.map(Timespec::try_from).transpose();
        let most = most.map_err(|_| Error::InvalidArgument("a time that is too long".into()))?;
        match poll(&mut fds, most.as_ref()) {
            // A signal: the caller looks at the clock and comes again.
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(Woken::Not),
            Ok(_) if fds[0].revents().is_empty() => Ok(Woken::Gone),
            Ok(_) => Ok(Woken::Event),
            Err(error) => Err(Error::io("wait for a completion", error)),
        }
    }

    /// What is readable while the channel has an event.
    pub(super) fn events(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is there until this is dropped, and so is its descriptor.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_ref().fd) }
    }
}

/// What a wait has ended by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// Its time, or a signal.
    Not,
    /// An event.
    Event,
    /// The end of the connection.
    Gone,
}

impl Drop for Completions {
    fn drop(&mut self) {
        if self.domain.device().is_own() {
            let library = self.domain.device().library();
            // SAFETY: by invariants 1 and 2 nothing uses the queue; the channel goes after it.
            unsafe {
                (library.destroy_cq)(self.raw.as_ptr());
                (library.destroy_comp_channel)(self.channel.as_ptr());
            }
        }
    }
}

/// A queue pair.
pub(super) struct Pair {
    raw: NonNull<QueuePair>,
    /// Bytes of a message that the device takes with its request.
    inline_bytes: usize,
    /// The number of its first packet.
    sequence: u32,
    sends: Completions,
    /// Where those of receives are told, if not among those of sends.
    receives: Option<Completions>,
}

// SAFETY: the library's functions may be called by several threads at once; the pair is there until
// this is dropped.
unsafe impl Send for Pair {}
// SAFETY: as above.
unsafe impl Sync for Pair {}

impl Pair {
    /// A pair without a peer, to which receives may be posted.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the device has no more, or no room for what is wanted.
    pub(super) fn new(
        sends: Completions,
        receives: Option<Completions>,
        limits: QueuePairLimits,
        access: c_int,
    ) -> Result<Self> {
        let domain = &sends.domain;
        let device = domain.device();
        let mut init = QueuePairInit {
            user: ptr::null_mut(),
            send_queue: sends.raw.as_ptr(),
            receive_queue: receives.as_ref().unwrap_or(&sends).raw.as_ptr(),
            shared_receives: ptr::null_mut(),
            limits,
            kind: RELIABLE_CONNECTED,
            signals_all: 0,
        };
        let create = device.library().create_qp;
        // SAFETY: domain and completion queues are there. The library writes into the settings what
        // the pair has got.
        let mut pair = NonNull::new(unsafe { create(domain.raw().as_ptr(), &raw mut init) });
        if pair.is_none() && limits.inline_bytes > 0 {
            // Not every device takes messages with their requests.
            init.limits = QueuePairLimits { inline_bytes: 0, ..limits };
            // SAFETY: as above.
            pair = NonNull::new(unsafe { create(domain.raw().as_ptr(), &raw mut init) });
        }
        let raw = pair.ok_or_else(|| failed(device, "a queue pair"))?;
        let inline_bytes = init.limits.inline_bytes.min(limits.inline_bytes) as usize;
        let sequence = RandomState::new().hash_one(raw.as_ptr().addr()) as u32 & 0xff_ffff;
        let mut init = QueuePairAttributes {
            state: state::INIT,
            port: device.port(),
            access: access as u32,
            ..QueuePairAttributes::default()
        };
        let pair = Self { raw, inline_bytes, sequence, sends, receives };
        pair.transition(&mut init, mask::STATE | mask::KEY_INDEX | mask::PORT | mask::ACCESS)?;
        Ok(pair)
    }

    /// Bytes of a message that the device takes with its request, at most.
    pub(super) fn inline_bytes(&self) -> usize {
        self.inline_bytes
    }

    /// What became of sends and reads.
    pub(super) fn sends(&self) -> &Completions {
        &self.sends
    }

    /// What became of receives.
    pub(super) fn receives(&self) -> &Completions {
        self.receives.as_ref().unwrap_or(&self.sends)
    }

    pub(super) fn domain(&self) -> &Arc<Domain> {
        &self.sends.domain
    }

    fn device(&self) -> &Arc<Device> {
        self.domain().device()
    }

    /// What its peer needs to know.
    pub(super) fn endpoint(&self) -> Endpoint {
        // SAFETY: it is there.
        let number = unsafe { self.raw.as_ref() }.number;
        self.device().endpoint(number, self.sequence)
    }

    /// Connects to a peer.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the device does not know the way.
    pub(super) fn connect(&self, peer: &Endpoint) -> Result<()> {
        let device = self.device();
        let own = device.endpoint(0, 0);
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

    /// Ends all that is under way, and whatever is begun later, with an error.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the device refuses.
    pub(super) fn fail(&self) -> Result<()> {
        let mut error =
            QueuePairAttributes { state: state::ERROR, ..QueuePairAttributes::default() };
        self.transition(&mut error, mask::STATE)
    }

    fn transition(&self, attributes: &mut QueuePairAttributes, wanted: c_int) -> Result<()> {
        let device = self.device();
        // SAFETY: the pair is there, and the function reads the fields that the mask names.
        let refused = unsafe {
            (device.library().modify_qp)(self.raw.as_ptr(), ptr::from_mut(attributes), wanted)
        };
        if refused == 0 {
            return Ok(());
        }
        let what = format!("change the state of a queue pair of the RDMA device {}", device.name());
        Err(Error::io(what, io::Error::from_raw_os_error(refused)))
    }

    /// Begins requests of a chain.
    ///
    /// # Safety
    ///
    /// The chain, and the entries that it names, are there until the call returns. The memory that
    /// the entries name is registered, and there until the pair is destroyed or the requests have
    /// completed; of those that carry their message inline it is there until the call returns.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the device takes no more.
    pub(super) unsafe fn post_sends(&self, first: *mut SendWorkRequest) -> Result<()> {
        let mut bad = ptr::null_mut();
        // SAFETY: the pair is there, and its context has the function. The caller sees to the rest.
        let refused = unsafe {
            let ops = &(*self.raw.as_ref().context).ops;
            (ops.post_send)(self.raw.as_ptr(), first, &raw mut bad)
        };
        self.check(refused)
    }

    /// Makes room for a message.
    ///
    /// # Safety
    ///
    /// As [`Pair::post_sends`].
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the device takes no more.
    pub(super) unsafe fn post_receives(&self, first: *mut ReceiveWorkRequest) -> Result<()> {
        let mut bad = ptr::null_mut();
        // SAFETY: as in `post_sends`.
        let refused = unsafe {
            let ops = &(*self.raw.as_ref().context).ops;
            (ops.post_recv)(self.raw.as_ptr(), first, &raw mut bad)
        };
        self.check(refused)
    }

    fn check(&self, refused: c_int) -> Result<()> {
        if refused == 0 {
            return Ok(());
        }
        let what = format!("begin requests by the RDMA device {}", self.device().name());
        Err(Error::io(what, io::Error::from_raw_os_error(refused.abs())))
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if self.device().is_own() {
            // SAFETY: it is there, and nothing was made of it.
            unsafe { (self.device().library().destroy_qp)(self.raw.as_ptr()) };
        }
    }
}

/// A name as the library has it: its bytes, in their order.
fn gid_words(gid: [u8; 16]) -> [u64; 2] {
    let words = gid.as_chunks::<8>().0;
    [u64::from_ne_bytes(words[0]), u64::from_ne_bytes(words[1])]
}
