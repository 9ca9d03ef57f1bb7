//! The host's side: an ordered map of trained arrays with level bins, of which it is the only
//! writer.
//!
//! 1. Every piece that a group of changes touches stays latched until [`Host::publish`], so that a
//!    reader sees all of a group in it or nothing.
//! 2. An address that a client sends is checked before it is used: the array's epoch, that the key
//!    belongs to the record or its gap, and the bin with its incarnation. If anything does not
//!    match, the host walks from its own directory, and the reply brings the array's descriptor.
//! 3. An array that was replaced can be read until all live sessions have acknowledged what
//!    replaced it, and what it says stays right: a change of a key ends, before it is published,
//!    the block that would have told of that key.
//!
//! The caller serialises all calls. A search between a change and its publication sees the change.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use super::{
    array::Array,
    barrier::Barrier,
    bins,
    descriptor::{Descriptor, Lesson, Span, up_to},
    layout::{HEADER_LINES, Link, Record, Sizes, Slot, Token, header},
    message::{Address, Operation, Outcome, Reply, Request, Value, Verb},
    records::{Records, VALUE_BYTES_MAX},
};
use crate::{error::Result, host::Space};

/// Links to small arrays that are followed: more than there ever are.
const DEPTH_LIMIT: usize = 8;
/// Changes of the model that sessions can learn one by one, where older ones learn the model anew:
/// 1.5 s of retraining without a pause, at the 1.5 ms each of the paper's section 5.6.1.
pub(super) const CHANGES_MAX: usize = 1024;
/// Searches in the gaps of an array for which it is trained anew, if they are also enough for its
/// records: fewer would train small arrays again and again while keys come.
const ASKED_MIN: u32 = 64;
/// Records of an array for each search in its gaps after which it is trained anew. A search costs
/// the host some 3 us and the training of a record 0.2 us, so that both take the same time.
const RECORDS_PER_ASK: u32 = 16;
/// Bytes of descriptors in one reply: some 900, which a host copies in well under a millisecond.
const LESSON_BYTES_MAX: usize = 128 << 10;

/// What a host is told when it is built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// The longest value that the region holds; longer ones are asked for.
    pub(crate) value_bytes_max: usize,
    /// How long a session lives without a sign.
    pub(crate) lease_ms: u64,
    /// Blocks and wide records prove themselves by checksums.
    pub(crate) has_checksums: bool,
}

impl Default for Options {
    fn default() -> Self {
        // A session costs a message in each second, and one that dies delays frees for a second.
        Self { value_bytes_max: VALUE_BYTES_MAX, lease_ms: 1000, has_checksums: false }
    }
}

/// What a host has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostCounts {
    /// Pipeline operations.
    pub(crate) operations: u64,
    /// Operations whose address named the record and its bin, if any, as they are.
    pub(crate) direct: u64,
    /// Operations whose address named the record, but no longer what is in its gap.
    pub(crate) followed: u64,
    /// Operations for which the host walked from its directory.
    pub(crate) walked: u64,
    /// Full bins that became small arrays.
    pub(crate) bin_retrainings: u64,
    /// Times that arrays were trained anew.
    pub(crate) model_retrainings: u64,
    /// Trainings that were given up because their records changed too much meanwhile.
    pub(crate) trainings_dropped: u64,
    /// Arrays that were replaced, small ones among them.
    pub(crate) arrays_retired: u64,
    /// Those that all sessions then knew to be replaced.
    pub(crate) arrays_freed: u64,
    /// Blocks of replaced arrays that a change has ended.
    pub(crate) blocks_ended: u64,
}

/// What waits for the barrier.
pub(super) struct Retired {
    arrays: Vec<u64>,
    /// Records of removed keys that no new array has.
    pub(super) dropped: Vec<Record>,
    bytes: u64,
}

/// Where a key is, or would be: a record, or the gap after it.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    pub(super) array: u64,
    pub(super) index: usize,
    /// The key is the record's.
    pub(super) is_record: bool,
    /// Links to small arrays that lead there.
    pub(super) depth: usize,
}

/// A keyspace in a region.
pub(crate) struct Host<S> {
    pub(super) records: Records<S>,
    pub(super) arrays: HashMap<u64, Array>,
    /// The arrays that are in no gap of another, by their low bounds.
    pub(super) tops: BTreeMap<Arc<[u8]>, u64>,
    pub(super) barrier: Barrier<Retired>,
    /// The epoch of the model: raised whenever arrays replace others.
    pub(super) model: u64,
    pub(super) changes: VecDeque<(u64, Span)>,
    pub(super) next_epoch: u64,
    /// Arrays that are to be trained anew.
    pub(super) due: BTreeSet<u64>,
    pub(super) entries: u64,
    applied: u64,
    pub(super) counts: HostCounts,
}

impl<S: Space> Host<S> {
    /// Builds a host of sorted entries, no two of the same key, in an empty space. Linear.
    ///
    /// # Errors
    ///
    /// [`Error::Full`]; [`Error::InvalidArgument`] for a key or value that is too long.
    pub(crate) fn build(
        space: S,
        options: Options,
        entries: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>,
    ) -> Result<Self> {
        let sizes = Sizes::new(options.has_checksums);
        let mut host = Self {
            records: Records::new(space, options.value_bytes_max, sizes),
            arrays: HashMap::new(),
            tops: BTreeMap::new(),
            barrier: Barrier::new(options.lease_ms),
            model: 0,
            changes: VecDeque::new(),
            next_epoch: 1,
            due: BTreeSet::new(),
            entries: 0,
            applied: 0,
            counts: HostCounts::default(),
        };
        host.fill(entries.into_iter().map(Ok))?;
        Ok(host)
    }

    /// The memory that readers see.
    #[cfg(test)]
    pub(crate) fn space(&self) -> &S {
        self.records.slab.space()
    }

    /// Number of keys.
    pub(crate) fn len(&self) -> u64 {
        self.entries
    }

    /// What was done so far.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> HostCounts {
        self.counts
    }

    /// Bytes that are handed out, those of arrays that wait among them.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.records.slab.live_bytes()
    }

    /// Arrays that wait for sessions, and the bytes of their blocks.
    pub(crate) fn waiting(&self) -> (usize, u64) {
        let waiting = || self.barrier.waiting();
        (waiting().map(|what| what.arrays.len()).sum(), waiting().map(|what| what.bytes).sum())
    }

    /// Number of sessions that live, as of the last [`Host::poll`].
    #[cfg(test)]
    pub(crate) fn session_count(&self) -> usize {
        self.barrier.session_count()
    }

    /// Number of arrays that are read, and how many of them are in no gap of another.
    pub(crate) fn array_counts(&self) -> (usize, usize) {
        (self.arrays.len() - self.waiting().0, self.tops.len())
    }

    /// The number of the last change that readers see.
    pub(crate) fn applied(&self) -> u64 {
        self.applied
    }

    /// Lets readers see the changes since the last call, of which `seq` is the last.
    pub(crate) fn publish(&mut self, seq: u64) {
        self.applied = seq;
        self.records.slab.publish();
    }

    /// Has the memory that changes since the last [`Host::publish`] gave back be used for undoing
    /// them.
    pub(crate) fn begin_undo(&mut self) {
        self.records.slab.end_given();
    }

    /// Ends a session.
    pub(crate) fn leave(&mut self, session: u64) {
        self.barrier.leave(session);
    }

    /// Frees what no live session may know any more.
    pub(crate) fn poll(&mut self, now_ms: u64) {
        for what in self.barrier.poll(now_ms) {
            for epoch in &what.arrays {
                if let Some(array) = self.arrays.remove(epoch) {
                    array.free(&mut self.records);
                    self.counts.arrays_freed += 1;
                }
            }
            what.dropped.iter().for_each(|record| self.records.release(record));
        }
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Value> {
        let top = self.top(key)?;
        self.value_at(self.descend(top, None, key)?, key)
    }

    /// Sets the value of a key; returns true if it was there. Readers see it after
    /// [`Host::publish`].
    ///
    /// # Errors
    ///
    /// [`Error::Full`]; [`Error::InvalidArgument`] for a key or value that is too long. No key has
    /// another value then.
    pub(crate) fn set(&mut self, key: &[u8], value: &[u8], address: Address) -> Result<bool> {
        self.write(Verb::Put, address, key, value)
    }

    /// Removes a key; returns false if it was not there. Readers see it after [`Host::publish`].
    ///
    /// # Errors
    ///
    /// As [`Host::set`].
    pub(crate) fn remove(&mut self, key: &[u8], address: Address) -> Result<bool> {
        self.write(Verb::Remove, address, key, &[])
    }

    /// Answers a request. Changes are seen after [`Host::publish`].
    ///
    /// # Errors
    ///
    /// Those of [`Host::set`], for a write.
    pub(crate) fn handle(&mut self, now_ms: u64, request: &Request) -> Result<Reply> {
        Ok(match request {
            Request::Join => {
                let session = self.barrier.join(now_ms, self.model);
                let lease_ms = self.barrier.lease_ms();
                Reply::Joined { session, lease_ms, model: self.model }
            }
            Request::Renew { session, model } => {
                match self.barrier.renew(*session, now_ms, *model, self.model) {
                    true => {
                        Reply::Renewed { model: self.model, lessons: self.lessons_since(*model) }
                    }
                    false => Reply::Unknown,
                }
            }
            Request::Leave { session } => {
                self.leave(*session);
                Reply::Unknown
            }
            Request::Learn { from } => Reply::Learned(self.lesson(from, None)),
            Request::Operate(operation) => self.operate(operation)?,
        })
    }

    /// Does a pipeline operation.
    ///
    /// # Errors
    ///
    /// As [`Host::set`].
    pub(crate) fn operate(&mut self, operation: &Operation) -> Result<Reply> {
        self.counts.operations += 1;
        let Operation { verb, address, ref key, ref value, .. } = *operation;
        let outcome = match verb {
            Verb::Search => {
                let found = self.locate(address, key);
                if let Some((top, _)) = found.filter(|(top, spot)| self.is_in_gap(*top, *spot)) {
                    self.count_asked(top);
                }
                let value = found.and_then(|(_, spot)| self.value_at(spot, key));
                value.map_or(Outcome::Absent, Outcome::Found)
            }
            Verb::Range => {
                self.count_asked(address.array);
                self.range(operation)
            }
            Verb::Insert | Verb::Update | Verb::Put | Verb::Remove => {
                Outcome::Written { was_there: self.write(verb, address, key, value)? }
            }
        };
        let lesson = self.lesson_for(address, key);
        Ok(Reply::Done { outcome, lesson })
    }

    /// Counts a search in the gaps of an array, which no client could do itself, and has the array
    /// trained anew once such searches have cost more than that will.
    fn count_asked(&mut self, top: u64) {
        let array = self.arrays.get_mut(&top).filter(|array| !array.is_retired && !array.is_small);
        let Some(array) = array else { return };
        array.asked += 1;
        if array.asked > ASKED_MIN.max(array.descriptor.records / RECORDS_PER_ASK) {
            (array.asked, array.is_asked) = (0, true);
            self.due.insert(top);
        }
    }

    /// Returns true if a key is to be looked for in what is linked to a gap of an array.
    fn is_in_gap(&self, top: u64, spot: Spot) -> bool {
        spot.array != top || !spot.is_record && self.record(spot).link() != Link::Empty
    }

    /// The array that answers for a key.
    pub(super) fn top(&self, key: &[u8]) -> Option<u64> {
        self.tops.range::<[u8], _>(up_to(key)).next_back().map(|(_, epoch)| *epoch)
    }

    /// The small array that a link names.
    pub(super) fn small(&self, slot: Slot) -> Option<u64> {
        let epoch = self.records.slab.load(slot.line, header::EPOCH);
        let is_there = self.arrays.get(&epoch).is_some_and(|array| array.header == slot);
        is_there.then_some(epoch)
    }

    /// Finds a key in an array, and in the small arrays that lie in its gaps.
    pub(super) fn descend(
        &self,
        top: u64,
        start: Option<Result<usize, usize>>,
        key: &[u8],
    ) -> Option<Spot> {
        let (mut epoch, mut start) = (top, start);
        for depth in 0..DEPTH_LIMIT {
            let array = self.arrays.get(&epoch)?;
            let found = start.take().unwrap_or_else(|| array.search(&self.records, key));
            let (index, is_record) = match found {
                Ok(index) => (index, true),
                Err(index) => (index, false),
            };
            let spot = Spot { array: epoch, index, is_record, depth };
            match array.record(&self.records, index).link() {
                Link::Small(slot) if !is_record => epoch = self.small(slot)?,
                _ => return Some(spot),
            }
        }
        None
    }

    /// Finds a key by the address that a client sent, or without it.
    pub(super) fn locate(&mut self, address: Address, key: &[u8]) -> Option<(u64, Spot)> {
        let named = self.arrays.get(&address.array);
        let named = named.filter(|array| !array.is_retired && !array.is_small);
        let index = address.record as usize;
        let start = named.and_then(|array| {
            // planted: host-takes-address-client-sends
            let found = array.check(&self.records, index, key)?;
            Some((found, array.record(&self.records, index).link()))
        });
        let Some((found, link)) = start else {
            self.counts.walked += 1;
            let top = self.top(key)?;
            return Some((top, self.descend(top, None, key)?));
        };
        let named = Slot { line: address.bin, incarnation: address.incarnation };
        let is_current = match link {
            Link::Bin(slot) | Link::Small(slot) => {
                slot == named && self.records.slab.is_current(slot)
            }
            Link::Empty => named == Slot::default(),
        };
        match is_current || found.is_ok() {
            true => self.counts.direct += 1,
            false => self.counts.followed += 1,
        }
        Some((address.array, self.descend(address.array, Some(found), key)?))
    }

    pub(super) fn record(&self, spot: Spot) -> Record {
        let array = self.arrays.get(&spot.array);
        array.map_or(Record::default(), |array| array.record(&self.records, spot.index))
    }

    pub(super) fn store(&mut self, spot: Spot, record: Record) {
        if let Some(array) = self.arrays.get(&spot.array) {
            array.store(&mut self.records, spot.index, record);
        }
    }

    fn value_at(&self, spot: Spot, key: &[u8]) -> Option<Value> {
        let record = self.record(spot);
        if spot.is_record {
            return (record.token() == Token::Live).then(|| self.records.value(&record));
        }
        let Link::Bin(root) = record.link() else { return None };
        Some(self.records.value(&bins::find(&self.records, root, key)?.found?))
    }

    /// Has replaced arrays wait until all live sessions know of it.
    pub(super) fn retire(&mut self, arrays: Vec<u64>, dropped: Vec<Record>) {
        let mut lines = 0;
        for epoch in &arrays {
            if let Some(array) = self.arrays.get_mut(epoch) {
                array.is_retired = true;
                let blocks = self.records.slab.sizes().blocks_of(array.len());
                lines += blocks * super::layout::BLOCK_LINES + HEADER_LINES;
            }
        }
        self.counts.arrays_retired += arrays.len() as u64;
        let bytes = u64::from(lines) * 64;
        self.barrier.retire(self.model, Retired { arrays, dropped, bytes });
    }

    /// The array of a key, unless the address names it.
    pub(crate) fn lesson_for(&self, address: Address, key: &[u8]) -> Option<Lesson> {
        let array = &self.arrays.get(&self.top(key)?)?.descriptor;
        let wants = address.array != array.epoch && address.array != Address::UNTAUGHT;
        wants.then(|| Lesson { model: self.model, arrays: vec![array.clone()] })
    }

    /// Arrays from the one of a key on, up to the one that has an end.
    fn lesson(&self, from: &[u8], end: Option<&[u8]>) -> Lesson {
        let first = self.tops.range::<[u8], _>(up_to(from)).next_back().map(|(low, _)| low.clone());
        let (mut arrays, mut bytes): (Vec<Descriptor>, usize) = (Vec::new(), 0);
        for (low, epoch) in self.tops.range(first.unwrap_or_default()..) {
            let is_end = end.is_some_and(|end| **low >= *end);
            if bytes > LESSON_BYTES_MAX || is_end && !arrays.is_empty() {
                break;
            }
            if let Some(array) = self.arrays.get(epoch) {
                bytes += array.descriptor.bytes();
                arrays.push(array.descriptor.clone());
            }
        }
        Lesson { model: self.model, arrays }
    }

    /// What changed since an epoch; nothing if that is too much, or too long ago.
    fn lessons_since(&self, model: u64) -> Vec<Lesson> {
        let has_all = self.changes.front().is_some_and(|(first, _)| *first <= model + 1);
        if !has_all {
            return Vec::new();
        }
        let (mut lessons, mut bytes) = (Vec::new(), 0);
        for (_, span) in self.changes.iter().filter(|(changed, _)| *changed > model) {
            let lesson = self.lesson(&span.low, span.high.as_deref());
            bytes += lesson.arrays.iter().map(Descriptor::bytes).sum::<usize>();
            if bytes > LESSON_BYTES_MAX {
                return Vec::new();
            }
            lessons.push(lesson);
        }
        lessons
    }
}
