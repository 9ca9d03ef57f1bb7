//! Scans: bucket by bucket, in order within each.
//!
//! A scan walks the leaves of one state of the route. Leaves that are replaced meanwhile go on being
//! read: their content is that of a moment after the scan began. From time to time the scan unpins its
//! thread and finds its place again, so that a long one does not hold memory back.
//!
//! Thread safety: as in `core`. Invariants:
//!
//! 1. Places and buffered entries are of the current pin; the pin ends only when no entry is buffered.
//! 2. What was yielded lies outside of `low..=high`, so that the two ends of a scan never cross.
#![allow(unsafe_code, reason = "keeps places beside the guard that keeps them alive")]

use std::ops::Bound as Limit;

use super::{
    core::Core,
    plan::{self, Entry},
    raw::{
        bucket::Bucket,
        epoch::{self, Guard},
    },
    route::Place,
    schema::{Probe, Schema},
};
use crate::sync::primitive::in_models;

/// A scan finds its place again after so many leaves.
const LEAVES_PINNED: usize = in_models(32, 2);
/// So many buckets ahead are asked for.
const AHEAD: usize = 4;
/// Entries that a buffer has room for before a bucket is read.
const BUFFER: usize = 48;

/// An end of a range: the first or last key that may be yielded.
struct Edge {
    word: u64,
    bytes: Vec<u8>,
    /// Whether the key itself is outside.
    is_excluded: bool,
    /// Whether there is no limit on this side.
    is_open: bool,
}

impl Edge {
    fn new(limit: Limit<Probe<'_>>, open_word: u64) -> Self {
        let (probe, is_excluded, is_open) = match limit {
            Limit::Included(probe) => (probe, false, false),
            Limit::Excluded(probe) => (probe, true, false),
            Limit::Unbounded => (Probe { word: open_word, bytes: &[] }, false, true),
        };
        Self { word: probe.word, bytes: probe.bytes.to_vec(), is_excluded, is_open }
    }

    fn exclude<S: Schema>(&mut self, entry: &Entry) {
        (self.is_excluded, self.is_open) = (true, false);
        if S::WIDE {
            let probe = Probe::wide(plan::key(entry));
            self.word = probe.word;
            self.bytes.clear();
            self.bytes.extend_from_slice(probe.bytes);
        } else {
            self.word = entry.word;
        }
    }

    fn probe(&self) -> Probe<'_> {
        Probe { word: self.word, bytes: &self.bytes }
    }

    /// Whether an entry is above this edge, taken as a lower one.
    #[inline]
    fn is_below<S: Schema>(&self, entry: &Entry) -> bool {
        if S::WIDE {
            self.is_open || {
                let key = plan::key(entry);
                *key > *self.bytes || (!self.is_excluded && *key == *self.bytes)
            }
        } else {
            entry.word > self.word || (!self.is_excluded && entry.word == self.word)
        }
    }

    /// Whether an entry is below this edge, taken as an upper one.
    #[inline]
    fn is_above<S: Schema>(&self, entry: &Entry) -> bool {
        if S::WIDE {
            self.is_open || {
                let key = plan::key(entry);
                *key < *self.bytes || (!self.is_excluded && *key == *self.bytes)
            }
        } else {
            entry.word < self.word || (!self.is_excluded && entry.word == self.word)
        }
    }
}

/// One end of a scan.
struct End<'m> {
    /// The leaf that is being read; none before the first and after a pin has ended.
    place: Option<Place<'m>>,
    /// The bucket to read next, and whether there is one.
    next: Option<usize>,
    /// The last bucket of this leaf that can hold keys of the range.
    last: usize,
    /// Entries of a bucket in ascending order; those from `read` on are to be yielded from below, all of
    /// them from above.
    buffer: Vec<Entry>,
    read: usize,
    is_done: bool,
    leaves: usize,
}

impl End<'_> {
    fn new() -> Self {
        let buffer = Vec::new();
        Self { place: None, next: None, last: 0, buffer, read: 0, is_done: false, leaves: 0 }
    }

    fn is_empty(&self) -> bool {
        self.read == self.buffer.len()
    }

    /// Reads a bucket.
    fn read<S: Schema>(&mut self, bucket: &Bucket) {
        self.read = 0;
        self.buffer.clear();
        self.buffer.reserve(BUFFER);
        plan::append_sorted::<S>(bucket, &mut self.buffer);
    }

    fn clear(&mut self) {
        self.read = 0;
        self.buffer.clear();
        self.is_done = true;
    }
}

/// The entries of a range, from both ends.
pub(crate) struct Scan<'m, S: Schema> {
    core: &'m Core<S>,
    low: Edge,
    high: Edge,
    front: End<'m>,
    back: End<'m>,
    guard: Guard,
}

impl<'m, S: Schema> Scan<'m, S> {
    pub(crate) fn new(core: &'m Core<S>, low: Limit<Probe<'_>>, high: Limit<Probe<'_>>) -> Self {
        Self {
            core,
            low: Edge::new(low, 0),
            high: Edge::new(high, u64::MAX),
            front: End::new(),
            back: End::new(),
            guard: epoch::pin(),
        }
    }

    /// The next entry from below. What its value stands for lives until the next call.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Entry> {
        loop {
            if let Some(entry) = self.front.buffer.get(self.front.read).copied() {
                self.front.read += 1;
                if !self.high.is_above::<S>(&entry) {
                    self.front.clear();
                    return None;
                }
                self.low.exclude::<S>(&entry);
                return Some(entry);
            }
            if self.front.is_done {
                return None;
            }
            self.fill_front();
        }
    }

    /// The next entry from above. What its value stands for lives until the next call.
    pub(crate) fn next_back(&mut self) -> Option<Entry> {
        loop {
            if let Some(entry) = self.back.buffer.pop() {
                if !self.low.is_below::<S>(&entry) {
                    self.back.clear();
                    return None;
                }
                self.high.exclude::<S>(&entry);
                return Some(entry);
            }
            if self.back.is_done {
                return None;
            }
            self.fill_back();
        }
    }

    /// The guard for as long as the map may be borrowed.
    fn guard(&self) -> &'m Guard {
        // SAFETY: the reference is used for nothing but the lifetime of places, which this scan drops
        // before it lets the guard go (invariant 1); the guard's own address does not matter.
        unsafe { &*std::ptr::from_ref(&self.guard) }
    }

    /// Lets others free memory, if no end has entries of the current pin.
    fn repin(&mut self) {
        if self.front.is_empty() && self.back.is_empty() {
            (self.front.place, self.back.place) = (None, None);
            (self.front.leaves, self.back.leaves) = (0, 0);
            self.guard.repin();
        }
    }

    /// Reads the next bucket from below.
    fn fill_front(&mut self) {
        let Some(place) = self.front.place else {
            let place = self.core.place(self.low.probe(), self.guard());
            let word = place.leaf.word::<S>(self.low.probe());
            let first = place.leaf.place::<S>(word, self.low.probe());
            self.enter_front(place, first);
            return;
        };
        match self.front.next {
            Some(at) => {
                let leaf = place.leaf;
                self.front.next = (at < self.front.last).then_some(at + 1);
                if at + AHEAD <= self.front.last {
                    Bucket::prefetch(leaf.bucket(at + AHEAD));
                }
                self.front.read::<S>(leaf.bucket(at));
                let below = |entry: &Entry| !self.low.is_below::<S>(entry);
                self.front.read = self.front.buffer.iter().take_while(|e| below(e)).count();
            }
            None => {
                let is_last = place.upper().is_none_or(|upper| {
                    !self.high.is_open && upper.probe().is_above::<S>(self.high.probe())
                });
                self.front.leaves += 1;
                if is_last {
                    self.front.is_done = true;
                } else if self.front.leaves > LEAVES_PINNED && self.back.is_empty() {
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

    fn enter_front(&mut self, place: Place<'m>, first: usize) {
        let leaf = place.leaf;
        self.front.next = Some(first);
        self.front.last = leaf.len() - 1;
        let ends_here =
            place.upper().is_none_or(|upper| upper.probe().is_above::<S>(self.high.probe()));
        if ends_here && !self.high.is_open {
            let word = leaf.word::<S>(self.high.probe());
            self.front.last = leaf.place::<S>(word, self.high.probe());
            if self.front.last < first {
                self.front.next = None;
            }
        }
        for at in first..(first + AHEAD).min(self.front.last + 1) {
            Bucket::prefetch(leaf.bucket(at));
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
                let word = place.leaf.word::<S>(self.high.probe());
                place.leaf.place::<S>(word, self.high.probe())
            };
            self.enter_back(place, first);
            return;
        };
        match self.back.next {
            Some(at) => {
                self.back.next = if at > self.back.last { Some(at - 1) } else { None };
                if at >= self.back.last + AHEAD {
                    Bucket::prefetch(place.leaf.bucket(at - AHEAD));
                }
                self.back.read::<S>(place.leaf.bucket(at));
                let above = |entry: &Entry| !self.high.is_above::<S>(entry);
                let len = self.back.buffer.iter().rev().take_while(|e| above(e)).count();
                self.back.buffer.truncate(self.back.buffer.len() - len);
            }
            None => {
                let starts_here = place
                    .lower()
                    .is_none_or(|lower| !lower.probe().is_above::<S>(self.low.probe()));
                self.back.leaves += 1;
                match place.previous(self.guard()) {
                    Some(previous) if !starts_here => {
                        if self.back.leaves > LEAVES_PINNED && self.front.is_empty() {
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

    fn enter_back(&mut self, place: Place<'m>, first: usize) {
        self.back.next = Some(first);
        self.back.last = 0;
        let starts_here =
            place.lower().is_none_or(|lower| !lower.probe().is_above::<S>(self.low.probe()));
        if starts_here {
            let word = place.leaf.word::<S>(self.low.probe());
            self.back.last = place.leaf.place::<S>(word, self.low.probe());
            if first < self.back.last {
                self.back.next = None;
            }
        }
        for at in (self.back.last..=first).rev().take(AHEAD) {
            Bucket::prefetch(place.leaf.bucket(at));
        }
        self.back.place = Some(place);
    }
}
