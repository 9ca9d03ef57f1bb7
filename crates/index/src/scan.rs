//! Scans: bucket by bucket, in order within each.
//!
//! A scan walks the leaves of one state of the route. Leaves that are replaced meanwhile go on
//! being read: their content is that of a moment after the scan began. From time to time the scan
//! unpins its thread and finds its place again, so that a long one does not hold memory back.
//!
//! Thread safety: as in `core`. Invariants:
//!
//! 1. Places and buffered entries are of the current pin. When it ends the places are given up and
//!    the entries forgotten: the edges say where each end goes on.
//! 2. Once both ends were asked, what was yielded lies outside of `low..=high`, so the ends never
//!    cross. While only one end is asked, its edge moves bucket by bucket.
#![allow(unsafe_code, reason = "keeps places beside the guard that keeps them alive")]

use std::{
    cell::Cell,
    ops::{Bound as Limit, Range},
};

use rhumb_sync::{
    epoch::{self, Guard},
    primitive::{in_models, local},
};

use crate::{
    core::IndexCore,
    entry::Entry,
    kinds::{AnyLeaf, SCAN_AHEAD, SCAN_STEP},
    raw::schema::{self, KeyProbe, Schema},
    route::LeafPlace,
};

/// A scan finds its place again after this many leaves. Chosen, not measured: 32 leaves have some
/// 60,000 keys, which take a fraction of a millisecond, beside which finding the place again does
/// not count.
const LEAVES_PINNED: usize = in_models(32, 2);
/// The buckets that are prefetched when a leaf is entered. Chosen, not measured: four buckets have
/// some 36 keys, and a short scan needs no more.
const FIRST: usize = 4;
/// The room of a buffer beyond the entries that are wanted: 48 entries, a bucket (15) with four
/// overflow nodes (28) and some more.
const BUFFER: usize = 48;
/// The most entries that are read at once. Chosen, not measured: 4 KiB of entries, which stay in
/// the first-level cache until they are yielded.
const RUN_MAX: usize = 256;

/// An end of a range: the first or last key that may be yielded.
struct Edge {
    word: u64,
    bytes: Vec<u8>,
    /// True if the key itself is outside.
    is_excluded: bool,
    /// True if there is no limit on this side.
    is_open: bool,
}

impl Edge {
    fn new(limit: Limit<KeyProbe<'_>>, open_word: u64) -> Self {
        let (probe, is_excluded, is_open) = match limit {
            Limit::Included(probe) => (probe, false, false),
            Limit::Excluded(probe) => (probe, true, false),
            Limit::Unbounded => (KeyProbe { word: open_word, bytes: &[] }, false, true),
        };
        Self { word: probe.word, bytes: probe.bytes.to_vec(), is_excluded, is_open }
    }

    fn exclude<S: Schema>(&mut self, entry: &Entry) {
        (self.is_excluded, self.is_open) = (true, false);
        if S::WIDE {
            let probe = KeyProbe::wide(schema::key::<S>(entry));
            self.word = probe.word;
            self.bytes.clear();
            self.bytes.extend_from_slice(probe.bytes);
        } else {
            self.word = entry.word;
        }
    }

    fn probe(&self) -> KeyProbe<'_> {
        KeyProbe { word: self.word, bytes: &self.bytes }
    }

    /// Returns true if an entry is above this edge, taken as a lower one.
    #[inline]
    fn is_below<S: Schema>(&self, entry: &Entry) -> bool {
        if S::WIDE {
            self.is_open || {
                let key = schema::key::<S>(entry);
                *key > *self.bytes || (!self.is_excluded && *key == *self.bytes)
            }
        } else {
            entry.word > self.word || (!self.is_excluded && entry.word == self.word)
        }
    }

    /// Returns true if an entry is below this edge, taken as an upper one.
    #[inline]
    fn is_above<S: Schema>(&self, entry: &Entry) -> bool {
        if S::WIDE {
            self.is_open || {
                let key = schema::key::<S>(entry);
                *key < *self.bytes || (!self.is_excluded && *key == *self.bytes)
            }
        } else {
            entry.word < self.word || (!self.is_excluded && entry.word == self.word)
        }
    }
}

/// A buffer that is kept for the thread's next scan has room for at most this many entries: 16 KiB.
/// Chosen, not measured: three times what [`RUN_MAX`] needs, and a bound for each thread.
const SPARE_MAX: usize = 1024;

local! {
    static SPARE: Cell<Vec<Entry>> = Cell::new(Vec::new());
}

/// Entries of one end of a scan, in memory that the scans of a thread use one after another. For
/// short scans the allocator would take as long as the reading.
#[derive(Default)]
struct Buffer(Vec<Entry>);

impl Buffer {
    /// Empties the buffer and makes room for `entries` entries.
    fn prepare(&mut self, entries: usize) {
        if self.0.capacity() == 0 {
            self.0 = SPARE.try_with(Cell::take).unwrap_or_default();
        }
        self.0.clear();
        self.0.reserve(entries);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if (1..=SPARE_MAX).contains(&self.0.capacity()) {
            self.0.clear();
            // A thread that is ending has no later scan to keep the buffer for.
            let _ = SPARE.try_with(|spare| spare.set(std::mem::take(&mut self.0)));
        }
    }
}

/// One end of a scan.
struct ScanEnd<'m> {
    /// The leaf that is being read; none before the first and after a pin has ended.
    place: Option<LeafPlace<'m>>,
    /// The bucket to read next; none if there is no other.
    next: Option<usize>,
    /// The last bucket of this leaf that can hold keys of the range.
    last: usize,
    /// The bucket to prefetch next.
    ahead: usize,
    /// Entries of a bucket in ascending order.
    buffer: Buffer,
    /// The entries of the buffer that are still to be yielded.
    left: Range<usize>,
    is_done: bool,
    leaves: usize,
}

impl ScanEnd<'_> {
    fn new() -> Self {
        let buffer = Buffer::default();
        let left = 0..0;
        Self { place: None, next: None, last: 0, ahead: 0, buffer, left, is_done: false, leaves: 0 }
    }

    /// Reads what a place has within the edges.
    fn read<S: Schema>(&mut self, leaf: &AnyLeaf, at: usize, low: &Edge, high: &Edge) {
        self.buffer.prepare(BUFFER);
        leaf.append_sorted::<S>(at, &mut self.buffer.0);
        self.keep::<S>(low, high);
    }

    /// Reads places from `at` on until there are `wanted` entries or the leaf ends, and keeps the
    /// entries within the edges.
    fn read_run<S: Schema>(
        &mut self,
        leaf: &AnyLeaf,
        at: usize,
        wanted: usize,
        low: &Edge,
        high: &Edge,
    ) {
        self.buffer.prepare(wanted + BUFFER);
        let Self { last, ahead, buffer, .. } = self;
        let next = leaf.append_run::<S>(at, *last, wanted, ahead, &mut buffer.0);
        self.next = (next <= self.last).then_some(next);
        self.keep::<S>(low, high);
    }

    /// Leaves out the entries beyond the edges.
    fn keep<S: Schema>(&mut self, low: &Edge, high: &Edge) {
        let start = self.buffer.0.iter().take_while(|entry| !low.is_below::<S>(entry)).count();
        let last = self.buffer.0[start..].iter().rposition(|entry| high.is_above::<S>(entry));
        self.left = start..last.map_or(start, |last| start + last + 1);
    }

    fn forget(&mut self) {
        self.left = 0..0;
        self.buffer.0.clear();
    }

    fn end(&mut self) {
        self.forget();
        self.is_done = true;
    }
}

/// The ends of a scan that were asked for entries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AskedEnds {
    Neither,
    Front,
    Back,
    Both,
}

/// The entries of a range, from both ends.
pub(crate) struct EntryScan<'m, S: Schema> {
    core: &'m IndexCore<S>,
    asked: AskedEnds,
    low: Edge,
    high: Edge,
    front: ScanEnd<'m>,
    back: ScanEnd<'m>,
    /// The number of entries to read from below at once: as many as will be asked for, or twice as
    /// many as the last time.
    wanted: usize,
    guard: Guard,
}

impl<'m, S: Schema> EntryScan<'m, S> {
    pub(crate) fn new(
        core: &'m IndexCore<S>,
        low: Limit<KeyProbe<'_>>,
        high: Limit<KeyProbe<'_>>,
    ) -> Self {
        Self {
            core,
            asked: AskedEnds::Neither,
            low: Edge::new(low, 0),
            high: Edge::new(high, u64::MAX),
            front: ScanEnd::new(),
            back: ScanEnd::new(),
            wanted: 1,
            guard: epoch::pin(),
        }
    }

    /// The next entry from below. What its value stands for lives until the next call.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Entry> {
        if matches!(self.asked, AskedEnds::Neither | AskedEnds::Back) {
            self.ask_front();
        }
        loop {
            if let Some(at) = self.front.left.next() {
                let entry = self.front.buffer.0[at];
                return if self.asked == AskedEnds::Front {
                    Some(entry)
                } else {
                    self.low_of(entry)
                };
            }
            if self.front.is_done {
                return None;
            }
            self.fill_front();
        }
    }

    /// The next entries from below, at most `limit` of them; none at the end. What their values
    /// stand for lives until the next call.
    #[inline]
    pub(crate) fn next_run(&mut self, limit: usize) -> &[Entry] {
        if limit == 0 {
            return &[];
        }
        self.wanted = limit.min(RUN_MAX);
        // Resolves what is between the two ends, and fills the buffer.
        let Some(_) = self.next() else { return &[] };
        let start = self.front.left.start - 1;
        if self.asked == AskedEnds::Front {
            self.front.left.start = self.front.left.end.min(start.saturating_add(limit));
        }
        &self.front.buffer.0[start..self.front.left.start]
    }

    /// The next entry from above. What its value stands for lives until the next call.
    #[inline]
    pub(crate) fn next_back(&mut self) -> Option<Entry> {
        if matches!(self.asked, AskedEnds::Neither | AskedEnds::Front) {
            self.ask_back();
        }
        loop {
            if let Some(at) = self.back.left.next_back() {
                let entry = self.back.buffer.0[at];
                return if self.asked == AskedEnds::Back {
                    Some(entry)
                } else {
                    self.high_of(entry)
                };
            }
            if self.back.is_done {
                return None;
            }
            self.fill_back();
        }
    }

    #[cold]
    fn ask_front(&mut self) {
        self.asked =
            if self.asked == AskedEnds::Neither { AskedEnds::Front } else { AskedEnds::Both };
        self.note_back();
    }

    #[cold]
    fn ask_back(&mut self) {
        self.asked =
            if self.asked == AskedEnds::Neither { AskedEnds::Back } else { AskedEnds::Both };
        self.note_front();
    }

    /// Moves the lower edge past what was yielded of the front's bucket.
    fn note_front(&mut self) {
        let yielded = self.front.buffer.0[..self.front.left.start].last();
        if let Some(entry) = yielded.filter(|entry| self.low.is_below::<S>(entry)) {
            self.low.exclude::<S>(entry);
        }
    }

    /// Moves the upper edge before what was yielded of the back's bucket.
    fn note_back(&mut self) {
        let yielded = self.back.buffer.0.get(self.back.left.end);
        if let Some(entry) = yielded.filter(|entry| self.high.is_above::<S>(entry)) {
            self.high.exclude::<S>(entry);
        }
    }

    /// An entry of the front, unless the back was faster.
    fn low_of(&mut self, entry: Entry) -> Option<Entry> {
        if !self.high.is_above::<S>(&entry) {
            self.front.end();
            return None;
        }
        self.low.exclude::<S>(&entry);
        Some(entry)
    }

    /// An entry of the back, unless the front was faster.
    fn high_of(&mut self, entry: Entry) -> Option<Entry> {
        if !self.low.is_below::<S>(&entry) {
            self.back.end();
            return None;
        }
        self.high.exclude::<S>(&entry);
        Some(entry)
    }

    /// The guard for as long as the map may be borrowed.
    fn guard(&self) -> &'m Guard {
        // SAFETY: the reference is used only for the lifetime of places, which this scan drops
        // before it releases the guard (invariant 1); the guard's own address does not matter.
        unsafe { &*std::ptr::from_ref(&self.guard) }
    }

    /// Lets other threads free memory. The end that calls this has yielded all that it had read,
    /// and its edge lies there.
    ///
    /// What the other end has read and not yielded lies within its edge, because both ends were
    /// asked then (invariant 2), and is read again.
    fn repin(&mut self) {
        (self.front.place, self.back.place) = (None, None);
        (self.front.leaves, self.back.leaves) = (0, 0);
        // Their records may be freed from now on.
        self.front.forget();
        self.back.forget();
        self.guard.repin();
    }

    /// Reads the next bucket from below.
    fn fill_front(&mut self) {
        let Some(place) = self.front.place else {
            let place = self.core.place(self.low.probe(), self.guard());
            let first = place.seek::<S>(self.low.probe());
            self.enter_front(place, first);
            return;
        };
        match self.front.next {
            Some(at) => {
                self.note_front();
                self.front.read_run::<S>(place.leaf, at, self.wanted, &self.low, &self.high);
                self.wanted = (self.wanted * 2).min(RUN_MAX);
            }
            None => {
                let is_last = place.upper().is_none_or(|upper| {
                    !self.high.is_open && upper.probe().is_above::<S>(self.high.probe())
                });
                self.front.leaves += 1;
                if is_last {
                    self.front.is_done = true;
                } else if self.front.leaves > LEAVES_PINNED {
                    if let Some(upper) = place.upper() {
                        self.low = Edge::new(Limit::Included(upper.probe()), 0);
                    }
                    self.repin();
                } else if let Some(next) = place.next(self.guard()) {
                    self.enter_front(next, 0);
                }
            }
        }
    }

    fn enter_front(&mut self, place: LeafPlace<'m>, first: usize) {
        #[cfg(any(test, feature = "counts"))]
        crate::counts::count_places(1);
        // Before the leaf is read, if it is certain that this many are wanted.
        let is_asked = self.high.is_open && place.prefetch_once(first, FIRST);
        let leaf = place.leaf;
        self.front.next = Some(first);
        self.front.last = leaf.len() - 1;
        let ends_here =
            place.upper().is_none_or(|upper| upper.probe().is_above::<S>(self.high.probe()));
        if ends_here && !self.high.is_open {
            self.front.last = leaf.place::<S>(self.high.probe());
            if self.front.last < first {
                self.front.next = None;
            }
        }
        self.front.ahead = first + FIRST;
        if !is_asked {
            for at in first..self.front.ahead.min(self.front.last + 1) {
                leaf.prefetch_once(at);
            }
        }
        self.front.place = Some(place);
    }

    /// Reads the next bucket from above.
    fn fill_back(&mut self) {
        let Some(place) = self.back.place else {
            let place = if self.high.is_open {
                self.core.last_place(self.guard())
            } else {
                self.core.place(self.high.probe(), self.guard())
            };
            let first = if self.high.is_open {
                place.leaf.len() - 1
            } else {
                place.leaf.place::<S>(self.high.probe())
            };
            self.enter_back(place, first);
            return;
        };
        match self.back.next {
            Some(at) => {
                let inhabited = place.leaf.last_inhabited(at).filter(|at| *at >= self.back.last);
                let Some(at) = inhabited else {
                    self.back.next = None;
                    return;
                };
                self.back.ahead = self.back.ahead.min(at + 1);
                self.back.next = if at > self.back.last { Some(at - 1) } else { None };
                let ahead = self.back.ahead;
                let end = ahead.saturating_sub(SCAN_STEP).max((at + 1).saturating_sub(SCAN_AHEAD));
                let end = end.max(self.back.last);
                (end..ahead).rev().for_each(|at| place.leaf.prefetch_once(at));
                self.back.ahead = end.min(ahead);
                self.note_back();
                self.back.read::<S>(place.leaf, at, &self.low, &self.high);
            }
            None => {
                let starts_here = place
                    .lower()
                    .is_none_or(|lower| !lower.probe().is_above::<S>(self.low.probe()));
                self.back.leaves += 1;
                match place.previous(self.guard()) {
                    Some(previous) if !starts_here => {
                        if self.back.leaves > LEAVES_PINNED {
                            if let Some(lower) = place.lower() {
                                self.high = Edge::new(Limit::Excluded(lower.probe()), u64::MAX);
                            }
                            self.repin();
                        } else {
                            self.enter_back(previous, previous.leaf.len() - 1);
                        }
                    }
                    _ => self.back.is_done = true,
                }
            }
        }
    }

    fn enter_back(&mut self, place: LeafPlace<'m>, first: usize) {
        #[cfg(any(test, feature = "counts"))]
        crate::counts::count_places(1);
        self.back.next = Some(first);
        self.back.last = 0;
        let starts_here =
            place.lower().is_none_or(|lower| !lower.probe().is_above::<S>(self.low.probe()));
        if starts_here {
            self.back.last = place.leaf.place::<S>(self.low.probe());
            if first < self.back.last {
                self.back.next = None;
            }
        }
        // The next buckets to prefetch lie below this one.
        self.back.ahead = (first + 1).saturating_sub(FIRST).max(self.back.last);
        for at in (self.back.ahead..=first).rev() {
            place.leaf.prefetch_once(at);
        }
        self.back.place = Some(place);
    }
}
