//! A keyspace as a client has it: reads of its region, and calls for the rest.

use std::{
    collections::VecDeque,
    ops::{Bound, RangeBounds},
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;

use super::{
    CacheBudget, Outcome, Page, Pairs, Reader, States, Trouble,
    connection::{Inner as Client, unexpected},
    counts::{Counters, Counts},
    models::Models,
    range::Range,
    rdma::{Remote, RemoteReads},
    served::{Known, Reading},
    tcp::{Cache, Link, Pieces, Reads as TcpReads},
};
use crate::{
    binned::Mode,
    bounds::prefix_bounds,
    clock,
    error::{Error, Result},
    fabric::MappedFabric,
    layout::{Geometry, control},
    message::{Part, PartInfo, Reply, Request, format::failure},
    region::ReaderRegion,
};

/// Keys of a call for several values: as many as keep a message small.
const CALL_KEYS: usize = 1_024;

/// Pairs that a call asks for where the region cannot be read: some leaves of them.
const CALL_PAIRS: u32 = 256;

/// Pairs that the first call of a range asks for over TCP, and the most that any does: a leaf of
/// them, and what the host sends at once of pairs of 64 bytes.
const TCP_CALL_PAIRS: (u32, u32) = (32, 4_096);

/// A keyspace that a host shares. Cloning gives another handle of the same one.
///
/// Reads look into the host's memory and make no call, unless a leaf changes all the while, a value
/// is too large for a leaf, or the host has not been heard of for the length of its lease. They see
/// every write that was acknowledged before they began. A call waits for a host that has gone for
/// ten seconds, and goes on with the one that takes its place.
///
/// Over TCP each read is one message to the host, which looks into the leaf that the client
/// predicts by its copy of the directory. [`Keyspace::counts`] says how well that goes.
///
/// A write that returns [`Error::Closed`] or [`Error::TimedOut`] may have happened.
#[derive(Clone, Debug)]
pub struct Keyspace {
    client: Arc<Client>,
    inner: Arc<Inner>,
    pub(super) reads: Reads,
}

#[derive(Debug)]
pub(super) struct Inner {
    name: Vec<u8>,
    source: Source,
    remote: Option<Remote>,
    pub(super) counters: Arc<Counters>,
}

/// Where reads find what they need.
#[derive(Debug)]
pub(super) enum Source {
    /// In a region that is mapped.
    Mapped(ArcSwap<Mapped>),
    /// With a host that is asked to look into leaves.
    Apart(Cache),
    /// In a region that is read piece by piece, by models.
    Pieces(ArcSwap<Pieces>),
}

impl Source {
    pub(super) fn mapped(mapped: Arc<Mapped>) -> Self {
        Self::Mapped(ArcSwap::new(mapped))
    }

    pub(super) fn pieces(pieces: Pieces) -> Self {
        Self::Pieces(ArcSwap::from_pointee(pieces))
    }
}

/// How a handle reads.
#[derive(Clone, Debug, Default)]
pub(super) struct Reads {
    /// True if it asks the host for everything.
    pub(super) by_calls: bool,
    /// Where the leaves are counted that it looks at, if they are.
    pub(super) looks: Option<Arc<AtomicU64>>,
    /// Which side searches level bins.
    pub(super) mode: Mode,
    /// True if a stale model has it ask the host at once.
    pub(super) is_timid: bool,
    /// True if its writes do not say where the key is expected.
    pub(super) is_silent: bool,
}

/// A region that is mapped, of one connection.
pub(super) struct Mapped {
    /// The keyspace's number in the connection.
    pub(super) number: u32,
    control: ReaderRegion,
    leaves: ReaderRegion,
    assembly: Assembly,
    lease_ms: u64,
    /// Which keys the host serves.
    known: ArcSwap<Known>,
    /// Set when the connection is lost.
    is_closed: AtomicBool,
}

/// How a region is made.
enum Assembly {
    Runs(Geometry),
    Models(Models),
}

impl Mapped {
    /// Maps the segments that came with a keyspace.
    pub(super) fn new(
        number: u32,
        control: &PartInfo,
        leaves: &PartInfo,
        lease_ms: u32,
        budget: CacheBudget,
        fds: &mut VecDeque<OwnedFd>,
    ) -> Result<Self> {
        let control_region = ReaderRegion::new(control.capacity_bytes)?;
        let leaf_region = ReaderRegion::new(leaves.capacity_bytes)?;
        attach(&control_region, &control.segments, fds)?;
        attach(&leaf_region, &leaves.segments, fds)?;
        let assembly = match Models::of(&control::first_words(control_region.words()), budget)? {
            Some(models) => Assembly::Models(models),
            None => Assembly::Runs(control::read_header(control_region.words())?),
        };
        Ok(Self {
            number,
            control: control_region,
            leaves: leaf_region,
            assembly,
            lease_ms: u64::from(lease_ms),
            known: ArcSwap::default(),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Maps further segments.
    pub(super) fn attach(
        &self,
        part: Part,
        sizes: &[u64],
        fds: &mut VecDeque<OwnedFd>,
    ) -> Result<()> {
        match part {
            Part::Control => attach(&self.control, sizes, fds),
            Part::Leaves => attach(&self.leaves, sizes, fds),
        }
    }

    /// The words of the control part and of the leaves.
    #[inline]
    pub(super) fn words(&self) -> (&[AtomicU64], &[AtomicU64]) {
        (self.control.words(), self.leaves.words())
    }

    /// The sizes that all leaves have, in a region of runs.
    pub(super) fn geometry(&self) -> Option<Geometry> {
        match &self.assembly {
            Assembly::Runs(geometry) => Some(*geometry),
            Assembly::Models(_) => None,
        }
    }

    /// What is kept of a keyspace whose clients keep models.
    pub(super) fn models(&self) -> Option<&Models> {
        match &self.assembly {
            Assembly::Runs(_) => None,
            Assembly::Models(models) => Some(models),
        }
    }

    /// The way to read it piece by piece, if the host was there within its lease.
    pub(super) fn fabric(&self) -> Option<MappedFabric<'_>> {
        let (control, leaves) = self.words();
        self.is_fresh().then(|| MappedFabric::new(control, leaves))
    }

    /// Which keys the host serves, as far as this client knows.
    #[inline]
    pub(super) fn known(&self) -> &ArcSwap<Known> {
        &self.known
    }

    /// Milliseconds for which the region is read without a sign of its host.
    pub(super) fn lease_ms(&self) -> u64 {
        self.lease_ms
    }

    /// Has reads make calls from here on.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// Returns true if the host was there within its lease.
    #[inline]
    pub(super) fn is_fresh(&self) -> bool {
        let beat = control::heartbeat(self.control.words());
        // planted: reader-not-look-at-heartbeat
        // planted: lease-no-end
        let is_fresh = clock::now_ms().abs_diff(beat) <= self.lease_ms;
        is_fresh && !self.is_closed.load(Ordering::Acquire)
    }

    /// A reader, if the host was there within its lease, of a region of runs.
    #[inline]
    fn reader(&self) -> Option<Reader<'_>> {
        let Assembly::Runs(geometry) = self.assembly else { return None };
        let (control, leaves) = self.words();
        self.is_fresh().then(|| Reader::of(control, leaves, geometry))
    }
}

impl std::fmt::Debug for Mapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mapped").field("number", &self.number).finish_non_exhaustive()
    }
}

fn attach(region: &ReaderRegion, sizes: &[u64], fds: &mut VecDeque<OwnedFd>) -> Result<()> {
    for bytes in sizes {
        let missing = || Error::invalid("a segment was announced without its descriptor");
        region.attach(fds.pop_front().ok_or_else(missing)?, *bytes)?;
    }
    Ok(())
}

impl Inner {
    pub(super) fn new(name: Vec<u8>, source: Source, remote: Option<Remote>) -> Self {
        Self { name, source, remote, counters: Arc::default() }
    }

    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    #[inline]
    fn mapped(&self) -> Option<arc_swap::Guard<Arc<Mapped>>> {
        match &self.source {
            Source::Mapped(mapped) => Some(mapped.load()),
            Source::Apart(_) | Source::Pieces(_) => None,
        }
    }

    /// What is read piece by piece.
    pub(super) fn pieces(&self) -> Option<&ArcSwap<Pieces>> {
        match &self.source {
            Source::Pieces(pieces) => Some(pieces),
            Source::Mapped(_) | Source::Apart(_) => None,
        }
    }

    /// The way to read the region by RDMA, if this client does so.
    pub(super) fn remote<'k>(&'k self, link: &'k Link) -> Option<RemoteReads<'k>> {
        self.remote.as_ref().map(|remote| RemoteReads::new(link, self, remote))
    }

    /// Reads the region of a connection from here on, which may be another one than before.
    pub(super) fn set_mapped(&self, mapped: Arc<Mapped>) {
        if let Source::Mapped(now) = &self.source
            && !Arc::ptr_eq(&mapped, &now.load())
        {
            now.store(mapped);
        }
    }
}

impl Keyspace {
    pub(super) fn new(client: Arc<Client>, inner: Arc<Inner>) -> Self {
        Self { client, inner, reads: Reads::default() }
    }

    /// The client, and what all handles share.
    pub(super) fn parts(&self) -> (&Arc<Client>, &Arc<Inner>) {
        (&self.client, &self.inner)
    }

    /// What is mapped now; `None` if the host cannot share memory.
    #[inline]
    pub(super) fn mapped(&self) -> Option<arc_swap::Guard<Arc<Mapped>>> {
        self.inner.mapped()
    }

    /// The way to read by guesses; `None` where the region is mapped, or every read is a call.
    #[inline]
    pub(super) fn apart(&self) -> Option<TcpReads<'_>> {
        match (&self.inner.source, self.client.tcp()) {
            (Source::Apart(cache), Some(link)) if !self.reads.by_calls => {
                Some(TcpReads::new(link, &self.inner, cache, self.inner.remote(link)))
            }
            _ => None,
        }
    }

    /// A reader of what is mapped; `None` if the host must be asked.
    #[inline]
    pub(super) fn begin_read<'m>(&'m self, mapped: Option<&'m Arc<Mapped>>) -> Option<Reading<'m>> {
        if self.reads.by_calls {
            return None;
        }
        let mapped = mapped?;
        let reader = mapped.reader()?.counted_by(self.reads.looks.as_deref());
        Some(Reading::new(reader, mapped, self.claim(mapped)))
    }

    /// The value of `key`.
    ///
    /// # Errors
    ///
    /// Those of a call, if one is needed: [`Error::Closed`], [`Error::TimedOut`], [`Error::Io`],
    /// [`Error::Refused`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// Appends the value of `key` to `value`; returns false if the key is not there. Allocates
    /// nothing where `value` has room and no call is needed.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    #[inline]
    pub fn get_into(&self, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> {
        let key = key.as_ref();
        match self.look(key, value) {
            Some(is_found) => Ok(is_found),
            None => self.ask_get(key, value),
        }
    }

    /// [`Keyspace::get_into`] by a look into mapped memory; `None` if the host must be asked.
    #[inline]
    pub(super) fn look(&self, key: &[u8], value: &mut Vec<u8>) -> Option<bool> {
        let mapped = self.mapped()?;
        let reading = self.begin_read(Some(&mapped))?;
        let (begin, trouble) = (value.len(), Trouble::default());
        let outcome = reading.reader.telling(&trouble).get(key, value);
        let is_sure = matches!(outcome, Outcome::Found | Outcome::Absent);
        if is_sure && reading.serves(key) {
            self.count_gets(1, value.len() - begin, &trouble);
            return Some(outcome == Outcome::Found);
        }
        value.truncate(begin);
        None
    }

    /// Counts gets, and the bytes that the region brought them.
    #[inline]
    fn count_gets(&self, gets: usize, bytes: usize, trouble: &Trouble) {
        if self.inner.counters.mapped(gets as u64, bytes as u64, trouble) {
            self.client.report_if_due();
        }
    }

    #[cold]
    fn ask_get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        if let Some(apart) = self.apart() {
            return apart.get_into(key, value);
        }
        self.models_get(key, value).unwrap_or_else(|| self.call_get(key, value))
    }

    /// Counts a read that needs the host.
    pub(super) fn count_call(&self) {
        self.inner.counters.call(1);
    }

    pub(super) fn call_get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.inner.counters.call(1);
        let found = self.client.call(
            &self.inner,
            true,
            |keyspace| Request::Get { keyspace, key, hint: None },
            |reply| match reply {
                Reply::Value(found) => Ok(found.map(<[u8]>::to_vec)),
                other => Err(unexpected(&other)),
            },
        )?;
        if let Some(found) = &found {
            value.extend_from_slice(found);
        }
        Ok(found.is_some())
    }

    /// The values of several keys, in their order. What the processor waits for overlaps, and keys
    /// that need a call share it: several times as fast as one by one.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values = vec![None; keys.len()];
        self.multi_get_with(keys, |index, value| values[index] = value.map(<[u8]>::to_vec))?;
        Ok(values)
    }

    /// Calls `each` once for every key, with its index and its value. The order is that of the
    /// keys, but for those that the host is asked for, which come last. Otherwise as
    /// [`Keyspace::multi_get`], without an allocation for each value.
    ///
    /// ```no_run
    /// # fn main() -> rhumb_remote::Result<()> {
    /// # let users = rhumb_remote::Client::connect("rhumb-data.sock")?.keyspace("users")?;
    /// let mut bytes = 0;
    /// users.multi_get_with(&["user:1", "user:2"], |_, value| {
    ///     bytes += value.map_or(0, <[u8]>::len);
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`]. `each` has then been called for some of the keys.
    pub fn multi_get_with<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        mut each: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        if let Some(apart) = self.apart() {
            let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
            let values = apart.multi_get(&keys)?;
            values.iter().enumerate().for_each(|(index, value)| each(index, value.as_deref()));
            return Ok(());
        }
        let mut missed: Vec<usize> = Vec::new();
        let mapped = self.mapped();
        match self.begin_read(mapped.as_deref()) {
            // Over TCP, where each read is a message too, one brings all values; by RDMA, two trips
            // or three do.
            None if self.has_models() && self.client.tcp().is_none() => {
                let mut value = Vec::new();
                for (index, key) in keys.iter().enumerate() {
                    value.clear();
                    let is_there = self.get_into(key, &mut value)?;
                    each(index, is_there.then_some(&value));
                }
            }
            None => {
                let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
                let mut first = 0;
                for some in keys.chunks(CALL_KEYS) {
                    let left = self.models_multi_get(some, |at, value| each(first + at, value))?;
                    let left = left.unwrap_or_else(|| (0..some.len()).collect());
                    missed.extend(left.into_iter().map(|at| first + at));
                    first += some.len();
                }
            }
            Some(reading) => {
                let (mut bytes, trouble) = (0, Trouble::default());
                let is_served = |index: usize| reading.serves(keys[index].as_ref());
                let reader = reading.reader.telling(&trouble);
                reader.multi_get(keys, |index, outcome, value| match outcome {
                    Outcome::Found if is_served(index) => {
                        bytes += value.len();
                        each(index, Some(value));
                    }
                    Outcome::Absent if is_served(index) => each(index, None),
                    _ => missed.push(index),
                });
                self.count_gets(keys.len() - missed.len(), bytes, &trouble);
            }
        }
        for some in missed.chunks(CALL_KEYS) {
            let wanted: Vec<&[u8]> = some.iter().map(|index| keys[*index].as_ref()).collect();
            for (index, value) in some.iter().zip(self.call_multi_get(&wanted)?) {
                each(*index, value.as_deref());
            }
        }
        Ok(())
    }

    fn call_multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        match self.call_multi_get_once(keys) {
            // Values that do not fit one message come in several.
            Err(Error::Refused { code: failure::TOO_LARGE, .. }) if keys.len() > 1 => {
                let (some, others) = keys.split_at(keys.len() / 2);
                let mut found = self.call_multi_get(some)?;
                found.append(&mut self.call_multi_get(others)?);
                Ok(found)
            }
            found => found,
        }
    }

    /// The values of several keys at one moment, by one call.
    pub(super) fn call_multi_get_once(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.inner.counters.call(keys.len() as u64);
        self.client.call(
            &self.inner,
            true,
            |keyspace| Request::MultiGet { keyspace, keys: keys.to_vec() },
            |reply| match reply {
                Reply::Values(values) if values.len() == keys.len() => {
                    Ok(values.iter().map(|value| value.map(<[u8]>::to_vec)).collect())
                }
                other => Err(unexpected(&other)),
            },
        )
    }

    /// The keys of a range with their values, from both ends. Each part of it is as it was at some
    /// moment since the call; a write meanwhile may be seen or not.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Range {
        let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        Range::new(self.clone(), owned(range.start_bound()), owned(range.end_bound()))
    }

    /// All keys with their values.
    pub fn iter(&self) -> Range {
        Range::new(self.clone(), Bound::Unbounded, Bound::Unbounded)
    }

    /// The keys that begin with `prefix`, with their values.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        let (from, to) = prefix_bounds(prefix.as_ref());
        Range::new(self.clone(), from, to)
    }

    /// The smallest key with its value.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn first(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.iter().limit(1).next().transpose()
    }

    /// The largest key with its value.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn last(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.iter().limit(1).next_back().transpose()
    }

    /// Sets the value of `key`. When it returns, every read sees the write, by whatever client.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for a key that is too long, or if the budget is spent; otherwise as
    /// [`Keyspace::get`].
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        if let Some(written) = self.models_write(key, Some(value)) {
            return written;
        }
        self.write(|keyspace| Request::Insert { keyspace, key, value, hint: None })
    }

    /// Removes `key`, if it is there.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::insert`].
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        if let Some(written) = self.models_write(key, None) {
            return written;
        }
        self.write(|keyspace| Request::Remove { keyspace, key, hint: None })
    }

    pub(super) fn write<'a>(&self, request: impl Fn(u32) -> Request<'a>) -> Result<()> {
        self.client.call(&self.inner, false, request, |reply| match reply {
            Reply::Done { .. } => Ok(()),
            other => Err(unexpected(&other)),
        })
    }

    /// Sets the value of `key` to `new`, or removes it, if it has the value `expected`, or is not
    /// there if that is `None`; returns false otherwise.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::insert`].
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        let key = key.as_ref();
        let request =
            |keyspace| Request::CompareAndSwap { keyspace, key, expected, new, hint: None };
        self.client.call(&self.inner, false, request, |reply| match reply {
            Reply::Swapped { swapped, .. } => Ok(swapped),
            other => Err(unexpected(&other)),
        })
    }

    /// Number of reads so far, of this handle and its clones, that had to ask the host; over TCP,
    /// that the host had to do more for than look into the leaf which the client predicted. Reads
    /// without a call are not counted: a counter that threads share would cost as much as the read.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.inner.counters.counts().calls
    }

    /// Number of messages so far, of this handle and its clones, that the host was sent and has
    /// answered or not: writes, and reads that had to ask. Several keys share one.
    #[must_use]
    pub fn round_trips(&self) -> u64 {
        self.inner.counters.counts().round_trips
    }

    /// What reads and writes have cost so far, of this handle and its clones.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let counts = self.inner.counters.counts();
        match &self.inner.source {
            Source::Mapped(mapped) => match mapped.load().models() {
                Some(models) => models.add_to(counts, false),
                None => counts,
            },
            Source::Pieces(pieces) => match pieces.load().models() {
                Some(models) => models.add_to(counts, true),
                None => counts,
            },
            Source::Apart(cache) => {
                let hints = self.inner.remote.as_ref().map_or(0, |remote| remote.hint_bytes());
                Counts { cache_bytes: (cache.bytes() + hints) as u64, ..counts }
            }
        }
    }

    /// The most pairs that the first call of a scan asks for, and that any does. Over TCP, where
    /// every part of a range is a call, short ranges are read by a small one and long ones by few.
    pub(super) fn call_pairs(&self) -> (u32, u32) {
        if self.client.tcp().is_some() { TCP_CALL_PAIRS } else { (CALL_PAIRS, CALL_PAIRS) }
    }

    /// Reads a part of the range by looking into the region: `limit` pairs at most, in place of the
    /// part before. False if the host must be asked.
    pub(super) fn page(
        &self,
        bound: Bound<&[u8]>,
        reverse: bool,
        limit: usize,
        page: &mut Page,
    ) -> bool {
        if self.has_models() {
            let found = if reverse { None } else { self.models_page(bound) };
            return found.is_some_and(|found| {
                *page = found;
                true
            });
        }
        if let Some(apart) = self.apart() {
            let is_read = if reverse {
                apart.page_down(bound, limit, page)
            } else {
                apart.page_up(bound, limit, (page, &States::default()))
            };
            return is_read && !page.has_long_keys;
        }
        let mapped = self.mapped();
        let Some(reading) = self.begin_read(mapped.as_deref()) else { return false };
        let is_read = if reverse {
            reading.reader.page_down(bound, limit, page)
        } else {
            reading.reader.page_up(bound, limit, page)
        };
        is_read && !page.has_long_keys && reading.clip(page, bound, reverse)
    }

    /// Reads a part of the range by a call, as it is at one moment if that is asked for; returns
    /// true if there is more.
    pub(super) fn call_scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        reverse: bool,
        limit: u32,
        is_atomic: bool,
        into: &mut Pairs,
    ) -> Result<bool> {
        self.inner.counters.call(1);
        self.client.call(
            &self.inner,
            true,
            |keyspace| Request::Scan { keyspace, from, to, limit, reverse, is_atomic },
            |reply| match reply {
                Reply::Pairs { pairs, more } => {
                    into.clear();
                    pairs.iter().for_each(|(key, value)| into.push(key, Some(value)));
                    Ok(more)
                }
                other => Err(unexpected(&other)),
            },
        )
    }
}
