//! The queue pairs of a keyspace, and reads of its region by them.

use std::{
    cell::Cell,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;

use super::sends::Sends;
use crate::{
    client::{
        Outcome, Page, States,
        connection::unexpected,
        keyspace::KeyspaceInner as Keyspace,
        tcp::Link,
        unordered::{Hints, Leaves, Unordered},
    },
    clock,
    error::{Error, Result},
    layout::{Geometry, format::control},
    message::{Extent, Part, RemoteSegment, Reply, Request, format::REMOTE_READ_MS},
    primitive::{AtomicU64, Ordering},
    verbs::{Device, Domain, Queue, Read},
};

/// How long a read may take, at most.
const READ_TIMEOUT: Duration = Duration::from_millis(REMOTE_READ_MS);

/// How long a region is read without a change of its host's heartbeat, which comes four times as
/// often.
const LEASE: Duration = Duration::from_secs(1);

/// How long a client that may fall back to TCP leaves RDMA alone after it has failed.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// How often a device is looked for while reads by it go well: the system may wait with its removal
/// until it is let go of. The look takes about as long as one read, and comes as often as a host's
/// heartbeat.
const LOOK_EVERY_MS: u64 = 250;

/// Heartbeat and generation, which lie side by side.
const SIGNS: Extent = Extent {
    part: Part::Control,
    at: control::HEARTBEAT as u64 * 8,
    len: 16,
    guard: control::GUARD as u64 * 8,
};

/// How a keyspace is read by RDMA.
pub(in crate::client) struct Remote {
    /// True if what fails is asked for over TCP.
    falls_back: bool,
    state: Mutex<AttachmentState>,
    /// When its device was looked for, by the clock of the machine.
    looked_ms: AtomicU64,
}

#[derive(Default)]
struct AttachmentState {
    attachment: Option<Arc<Attachment>>,
    /// Until when it is not tried again.
    rests_until: Option<Instant>,
    /// Until when all calls go over TCP, because there is no device.
    calls_rest_until: Option<Instant>,
}

/// The queue pairs that belong to one connection.
pub(super) struct Attachment {
    /// Which of the link's connections it is.
    generation: u64,
    domain: Arc<Domain>,
    /// Those that no thread uses now.
    idle: Mutex<Vec<Queue>>,
    control: Segments,
    leaves: Segments,
    /// Of its region alone: a host that takes the place of another has other leaves.
    hints: Arc<Hints>,
    beat: Mutex<Beat>,
    /// Set once the host serves a part of the keys: what it does not serve is not told from the
    /// rest by what is read here.
    is_divided: AtomicBool,
    /// The connection for calls by sends.
    sends: Sends,
}

/// The segments of a part that are known.
#[derive(Default)]
struct Segments(ArcSwap<Vec<RemoteSegment>>);

/// The last heartbeat that was another than the one before, and when it came.
struct Beat {
    last: u64,
    seen: Instant,
}

impl AttachmentState {
    fn rests(&self, now: Instant) -> bool {
        self.rests_until.is_some_and(|until| now < until)
    }
}

/// Every change of what the locks hold is a single step.
fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Remote {
    /// `None` in a build without RDMA, which this is not.
    pub(in crate::client) fn new(falls_back: bool) -> Option<Self> {
        Some(Self { falls_back, state: Mutex::default(), looked_ms: AtomicU64::new(0) })
    }

    /// Lets go of an attachment whose device has gone, if it is time for a look.
    fn look(&self) {
        let now_ms = clock::now_ms();
        if now_ms.abs_diff(self.looked_ms.load(Ordering::Relaxed)) >= LOOK_EVERY_MS {
            self.looked_ms.store(now_ms, Ordering::Relaxed);
            lock(&self.state).attachment.take_if(|now| !now.domain.device().is_there());
        }
    }

    /// The hints of the connection that was used last.
    fn hints(&self) -> Option<Arc<Hints>> {
        lock(&self.state).attachment.as_ref().map(|now| Arc::clone(&now.hints))
    }

    /// Bytes of the hints that are kept now.
    pub(in crate::client) fn hint_bytes(&self) -> usize {
        self.hints().map_or(0, |hints| hints.bytes())
    }
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("falls_back", &self.falls_back).finish_non_exhaustive()
    }
}

/// Reads of a keyspace's region by RDMA.
#[derive(Clone, Copy)]
pub(in crate::client) struct RemoteReads<'k> {
    link: &'k Link,
    keyspace: &'k Keyspace,
    remote: &'k Remote,
}

impl<'k> RemoteReads<'k> {
    /// Reads of a keyspace, which begin with a look at the device now and then: it is let go of
    /// also where the host cannot be reached.
    pub(in crate::client) fn new(
        link: &'k Link,
        keyspace: &'k Keyspace,
        remote: &'k Remote,
    ) -> Self {
        remote.look();
        Self { link, keyspace, remote }
    }

    pub(super) fn link(&self) -> &'k Link {
        self.link
    }

    pub(super) fn keyspace(&self) -> &'k Keyspace {
        self.keyspace
    }

    /// Gets keys from the leaves that should hold them, as [`Leaves::get_many`]; returns false if
    /// the host must be asked for all that had no call.
    ///
    /// # Errors
    ///
    /// What keeps RDMA from working, if the client does not fall back.
    pub(in crate::client) fn get_many<'w>(
        &self,
        geometry: Geometry,
        wanted: impl IntoIterator<Item = (u32, &'w [u8])>,
        each: impl FnMut(usize, Outcome, &[u8]),
    ) -> Result<bool> {
        self.forgive(Leaves::new(self, geometry).get_many(wanted, each))
    }

    /// [`RemoteReads::get_many`] of one moment; returns false if that was not one, too.
    ///
    /// # Errors
    ///
    /// As [`RemoteReads::get_many`].
    pub(in crate::client) fn get_many_at_once<'w>(
        &self,
        geometry: Geometry,
        wanted: impl IntoIterator<Item = (u32, &'w [u8])>,
        each: impl FnMut(usize, Outcome, &[u8]),
    ) -> Result<bool> {
        let states = States::default();
        let leaves = Leaves::new(self, geometry).noting(&states);
        let read = leaves.get_many(wanted, each);
        self.forgive(read.and_then(|is_read| Ok(is_read && leaves.are_unchanged(&states)?)))
    }

    /// Reads a part of a range, as [`Leaves::page_up`], and notes the states of its leaves; returns
    /// false if the host must be asked.
    pub(in crate::client) fn page_up(
        &self,
        geometry: Geometry,
        slot: u32,
        from: (&[u8], bool),
        limit: usize,
        (page, states): (&mut Page, &States),
    ) -> bool {
        // What keeps it from being read, is met by the call too, or does not matter to it.
        let leaves = Leaves::new(self, geometry).noting_more(states);
        self.forgive(leaves.page_up(slot, from, limit, page)).unwrap_or(false)
    }

    /// The same of a range that goes down, as [`Leaves::page_down`].
    pub(in crate::client) fn page_down(
        &self,
        geometry: Geometry,
        slot: u32,
        to: (Option<&[u8]>, bool),
        limit: usize,
        page: &mut Page,
    ) -> bool {
        let read = Leaves::new(self, geometry).page_down(slot, to, limit, page);
        self.forgive(read).unwrap_or(false)
    }

    /// Returns true if all leaves are in the states that were noted.
    pub(in crate::client) fn are_unchanged(&self, geometry: Geometry, states: &States) -> bool {
        let read = Leaves::new(self, geometry).are_unchanged(states);
        self.forgive(read).unwrap_or(false)
    }

    /// Returns false if there is nothing to be read by RDMA for now, as far as is known.
    pub(in crate::client) fn may_read(&self) -> bool {
        let state = lock(&self.remote.state);
        let is_divided =
            |now: &Arc<Attachment>| now.is_divided.load(std::sync::atomic::Ordering::Relaxed);
        !state.rests(Instant::now()) && !state.attachment.as_ref().is_some_and(is_divided)
    }

    /// Puts the words of those pieces into `out` that the region has, and returns which they are.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the region cannot be read now, or is of another connection; what keeps
    /// RDMA from working, if the client does not fall back.
    pub(super) fn bring_pieces(
        &self,
        connection: u64,
        extents: &[Extent],
        out: &mut Vec<AtomicU64>,
    ) -> Result<Vec<bool>> {
        let mut is_there = Vec::new();
        let read = self.twice(|attachment| {
            if attachment.generation != connection {
                return Ok(false);
            }
            is_there = self.find(attachment, extents)?;
            let some = extents.iter().zip(&is_there).filter(|(_, is_there)| **is_there);
            let some: Vec<Extent> = some.map(|(extent, _)| *extent).collect();
            self.try_bring(attachment, &some, out)
        });
        match self.forgive(read)? {
            true => Ok(is_there),
            false => Err(Error::invalid("a region that cannot be read now")),
        }
    }

    /// Has a client that falls back ask the host, where RDMA has failed.
    fn forgive(&self, read: Result<bool>) -> Result<bool> {
        match read {
            Err(_) if self.remote.falls_back => {
                lock(&self.remote.state).rests_until = Some(Instant::now() + RETRY_EVERY);
                Ok(false)
            }
            read => read,
        }
    }

    /// The attachment of the connection that is used now; `None` while RDMA is left alone.
    fn attachment(&self) -> Result<Option<Arc<Attachment>>> {
        if lock(&self.remote.state).rests(Instant::now()) {
            return Ok(None);
        }
        // Not under the lock: it waits for a host that has gone.
        let generation = self.link.open(self.keyspace.name())?.generation;
        self.attachment_of(generation)
    }

    /// The attachment of a connection.
    fn attachment_of(&self, generation: u64) -> Result<Option<Arc<Attachment>>> {
        let state = &mut *lock(&self.remote.state);
        if state.rests(Instant::now()) {
            return Ok(None);
        }
        let current = state.attachment.as_ref().filter(|now| now.generation == generation);
        if let Some(current) = current {
            return Ok(Some(Arc::clone(current)));
        }
        let device = Device::with_address(self.link.local_address()?)?;
        let attachment = Arc::new(Attachment {
            generation,
            domain: Domain::new(&device)?,
            idle: Mutex::default(),
            control: Segments::default(),
            leaves: Segments::default(),
            hints: Arc::default(),
            beat: Mutex::new(Beat { last: 0, seen: Instant::now() }),
            is_divided: AtomicBool::new(false),
            sends: Sends::default(),
        });
        state.attachment = Some(Arc::clone(&attachment));
        Ok(Some(attachment))
    }

    /// The attachment of the connection that is used now, for calls, which do without: `None` if
    /// they are to go over TCP. Does not wait for a host.
    pub(super) fn attachment_for_calls(&self) -> Option<Arc<Attachment>> {
        let rests = lock(&self.remote.state).calls_rest_until;
        if rests.is_some_and(|until| Instant::now() < until) {
            return None;
        }
        let generation = self.link.opened_now(self.keyspace.name())?.generation;
        self.attachment_of(generation).unwrap_or_else(|_| {
            lock(&self.remote.state).calls_rest_until = Some(Instant::now() + RETRY_EVERY);
            None
        })
    }

    /// Forgets an attachment that has failed: the next read makes another.
    fn lose(&self, attachment: &Arc<Attachment>) {
        let mut state = lock(&self.remote.state);
        if state.attachment.as_ref().is_some_and(|now| Arc::ptr_eq(now, attachment)) {
            state.attachment = None;
        }
    }

    /// A call in the connection of an attachment.
    pub(super) fn call<T>(
        &self,
        attachment: &Attachment,
        request: impl Fn(u32) -> Request<'static>,
        read: impl FnOnce(Reply<'_>) -> Result<T>,
    ) -> Result<T> {
        let came_in = Cell::new(0);
        let done = self.link.call_by_tcp(
            self.keyspace,
            true,
            |opened| {
                came_in.set(opened.generation);
                request(opened.number)
            },
            read,
        )?;
        // What another host says is not of this attachment.
        if came_in.get() == attachment.generation { Ok(done) } else { Err(Error::Closed) }
    }

    /// A queue that is connected.
    fn queue(&self, attachment: &Attachment) -> Result<Queue> {
        if let Some(queue) = lock(&attachment.idle).pop() {
            return Ok(queue);
        }
        let mut queue = Queue::new(&attachment.domain)?;
        let endpoint = queue.endpoint();
        let attach = |keyspace| Request::Attach { keyspace, endpoint };
        let peer = self.call(attachment, attach, |reply| match reply {
            Reply::Attached { endpoint } => Ok(endpoint),
            other => Err(unexpected(&other)),
        })?;
        queue.connect(&peer)?;
        Ok(queue)
    }

    /// What to read for the extents; `None` if the region does not have all of them.
    fn resolve(&self, attachment: &Attachment, extents: &[Extent]) -> Result<Option<Vec<Read>>> {
        let mut reads = Vec::with_capacity(extents.len());
        for extent in extents {
            if !self.find_one(attachment, extent)? {
                return Ok(None);
            }
            attachment.segments(extent.part).resolve(extent, &mut reads);
        }
        Ok(Some(reads))
    }

    /// Returns which of the extents the region has.
    fn find(&self, attachment: &Attachment, extents: &[Extent]) -> Result<Vec<bool>> {
        extents.iter().map(|extent| self.find_one(attachment, extent)).collect()
    }

    fn find_one(&self, attachment: &Attachment, extent: &Extent) -> Result<bool> {
        let segments = attachment.segments(extent.part);
        let end = extent.at.saturating_add(u64::from(extent.len));
        if end > segments.bytes() {
            self.learn_segments(attachment, extent.part)?;
        }
        Ok(end <= segments.bytes())
    }

    /// Asks for the segments that were added to a part.
    fn learn_segments(&self, attachment: &Attachment, part: Part) -> Result<()> {
        let known = attachment.segments(part).0.load_full();
        let request = |keyspace| {
            let known = known.len() as u32;
            Request::RemoteSegments { keyspace, part, known }
        };
        let fresh = self.call(attachment, request, |reply| match reply {
            Reply::RemoteSegments { segments } => Ok(segments),
            other => Err(unexpected(&other)),
        })?;
        // Of two threads that ask at once, the one that knows less is the later one at times: what
        // it lacks is asked for again.
        attachment.segments(part).0.store(Arc::new([&known[..], &fresh[..]].concat()));
        Ok(())
    }

    fn try_bring(
        &self,
        attachment: &Attachment,
        extents: &[Extent],
        out: &mut Vec<AtomicU64>,
    ) -> Result<bool> {
        let mut queue = self.queue(attachment)?;
        let wanted: Vec<Extent> = extents.iter().chain([&SIGNS]).copied().collect();
        let Some(reads) = self.resolve(attachment, &wanted)? else {
            lock(&attachment.idle).push(queue);
            return Ok(false);
        };
        self.keyspace.counters.round_trip();
        let begun = Instant::now();
        let (mut signs, bytes) = ([0; 2], reads.iter().map(|read| read.bytes as usize).sum());
        queue.read(&reads, READ_TIMEOUT, |words| {
            let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
            let (words, last) = words.split_at(words.len() - signs.len());
            out.clear();
            out.extend(words.iter().map(|word| AtomicU64::new(load(word))));
            signs.iter_mut().zip(last).for_each(|(sign, word)| *sign = u64::from_le(load(word)));
        })?;
        lock(&attachment.idle).push(queue);
        self.keyspace.counters.bytes(0, bytes);
        let [beat, generation] = signs;
        attachment.is_divided.store(generation != 0, std::sync::atomic::Ordering::Relaxed);
        let is_prompt = begun.elapsed() <= READ_TIMEOUT;
        Ok(is_prompt && generation == 0 && lock(&attachment.beat).is_fresh(beat, begun))
    }
}

impl RemoteReads<'_> {
    /// Reads by the attachment of now, and once more by another one if that has failed; false while
    /// RDMA is left alone.
    fn twice(&self, mut read: impl FnMut(&Attachment) -> Result<bool>) -> Result<bool> {
        let mut tried = None;
        for _ in 0..2 {
            let Some(attachment) = self.attachment()? else { return Ok(false) };
            match read(&attachment) {
                // The host may be another one by now, or the queue's way may have broken.
                Err(error @ (Error::Io { .. } | Error::Closed | Error::TimedOut)) => {
                    self.lose(&attachment);
                    tried = Some(error);
                }
                done => return done,
            }
        }
        Err(tried.unwrap_or(Error::Closed))
    }
}

impl Unordered for RemoteReads<'_> {
    fn bring(&self, extents: &[Extent], out: &mut Vec<AtomicU64>) -> Result<bool> {
        self.twice(|attachment| self.try_bring(attachment, extents, out))
    }

    fn hints(&self) -> Option<Arc<Hints>> {
        self.remote.hints()
    }
}

impl Attachment {
    /// The connection for calls.
    pub(super) fn sends(&self) -> &Sends {
        &self.sends
    }

    /// Which of the link's connections it is of.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    fn segments(&self, part: Part) -> &Segments {
        match part {
            Part::Control => &self.control,
            Part::Leaves => &self.leaves,
        }
    }
}

impl Segments {
    fn bytes(&self) -> u64 {
        self.0.load().iter().fold(0, |sum, segment| sum.saturating_add(segment.bytes))
    }

    /// Appends what to read for an extent, in as many parts as it has segments; returns false if it
    /// is not all in those that are known.
    fn resolve(&self, extent: &Extent, reads: &mut Vec<Read>) -> bool {
        let segments = self.0.load();
        let (mut at, mut left) = (extent.at, u64::from(extent.len));
        for segment in &**segments {
            if left == 0 {
                break;
            }
            if at >= segment.bytes {
                at -= segment.bytes;
                continue;
            }
            let some = left.min(segment.bytes - at);
            let address = segment.address.wrapping_add(at);
            reads.push(Read { address, key: segment.key, bytes: some as u32 });
            (at, left) = (0, left - some);
        }
        left == 0
    }
}

impl Beat {
    /// Returns true if the host was there within its lease, where its heartbeat was this when a
    /// read began. A heartbeat of 0 says that the region answers for nothing.
    fn is_fresh(&mut self, beat: u64, now: Instant) -> bool {
        if beat != self.last {
            (self.last, self.seen) = (beat, self.seen.max(now));
        }
        beat != 0 && now.saturating_duration_since(self.seen) <= LEASE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(sizes: &[u64]) -> Segments {
        let segment = |(index, bytes): (usize, &u64)| RemoteSegment {
            address: 1_000_000 * (index as u64 + 1),
            bytes: *bytes,
            key: index as u32,
        };
        Segments(ArcSwap::from_pointee(sizes.iter().enumerate().map(segment).collect()))
    }

    #[test]
    fn extents_are_found_in_their_segments() {
        let segments = segments(&[64, 128]);
        let resolved = |at, len| {
            let mut reads = Vec::new();
            let extent = Extent { part: Part::Leaves, at, len, guard: 0 };
            segments.resolve(&extent, &mut reads).then(|| {
                reads.iter().map(|read| (read.address, read.key, read.bytes)).collect::<Vec<_>>()
            })
        };
        assert_eq!(resolved(8, 16), Some(vec![(1_000_008, 0, 16)]));
        assert_eq!(resolved(64, 8), Some(vec![(2_000_000, 1, 8)]));
        assert_eq!(resolved(48, 32), Some(vec![(1_000_048, 0, 16), (2_000_000, 1, 16)]));
        assert_eq!(resolved(184, 8), Some(vec![(2_000_120, 1, 8)]));
        assert_eq!(resolved(184, 16), None);
        assert_eq!(resolved(u64::MAX - 7, 16), None);
        assert_eq!(resolved(8, 0), Some(vec![]));
    }

    #[test]
    fn a_heartbeat_that_stands_still_ends_the_lease() {
        let begun = Instant::now();
        let mut beat = Beat { last: 0, seen: begun };
        let at = |ms| begun + Duration::from_millis(ms);
        assert!(beat.is_fresh(7, at(5_000)));
        assert!(beat.is_fresh(7, at(6_000)));
        assert!(!beat.is_fresh(7, at(6_001)));
        assert!(beat.is_fresh(8, at(9_000)));
        // Of a thread that began earlier.
        assert!(beat.is_fresh(8, at(8_000)));
        assert!(!beat.is_fresh(0, at(9_001)));
    }
}
