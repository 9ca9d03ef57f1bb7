//! The range tombstones of one LSM tree in a memtable, in the order in which they came.
//!
//! Thread safety: any number of threads may read, and never wait; one at a time adds. Nothing is
//! removed. Invariant: every item numbered below `len` is on its shelf.
//!
//! Every eight tombstones make a chunk. As in a binary indexed tree, block *c* joins the last
//! chunks up to the *c*-th; their number is the lowest set bit of *c*. So any beginning of the list
//! is O(log n) blocks and up to seven tombstones. Adding costs O(log n) on average, and a reader at
//! an older sequence number finds what it sees as fast as one at the newest. A block knows only the
//! newest tombstone over each fragment, so tombstones that cover each other take no more room than
//! as many that lie beside each other.
//!
//! Keys that are written under a tombstone of the list are kept beside it: between them, a walk
//! need not look for anything newer than the tombstones.

use std::ops::Bound;

use crossbeam_skiplist::SkipSet;
use rhumb_sync::primitive::{AtomicUsize, Ordering};

use super::{
    RangeSpan,
    fragments::{Ranges, newest_of_both},
    shelf::Shelf,
};
use crate::{slice::Slice, types::SeqNo};

/// The number of tombstones in a chunk.
const CHUNK: usize = 8;

/// All keys from `from` on and before `to` were removed by the write `seq`.
#[derive(Clone, Debug)]
pub(crate) struct Tombstone {
    pub(crate) from: Slice,
    /// Absent if there is no end.
    pub(crate) to: Option<Slice>,
    pub(crate) seq: SeqNo,
}

impl Tombstone {
    /// As [`Ranges::narrow_to_fragment`].
    fn narrow_to_fragment(&self, key: &[u8], seq: SeqNo, span: &mut RangeSpan) -> bool {
        if *key < *self.from {
            span.narrow(None, Some(&self.from));
            return false;
        }
        if let Some(to) = self.to.as_ref().filter(|to| *key >= ***to) {
            span.narrow(Some(to), None);
            return false;
        }
        span.narrow(Some(&self.from), self.to.as_ref());
        if self.seq > seq {
            return false;
        }
        span.seq = span.seq.max(self.seq);
        true
    }

    fn covers(&self, key: &[u8]) -> bool {
        *self.from <= *key && self.to.as_ref().is_none_or(|to| *key < **to)
    }
}

/// Tombstones that came one after another.
pub(crate) struct RangeLog {
    len: AtomicUsize,
    tombstones: Shelf<Tombstone>,
    blocks: Shelf<Ranges>,
    /// The keys of all entries that a tombstone covered when they were inserted.
    written_over: SkipSet<Box<[u8]>>,
}

/// The memory of a key that was written under a tombstone, besides its bytes: a node of the list
/// with its links.
const WRITTEN_OVER_BYTES: usize = 64;

impl RangeLog {
    /// An empty list.
    pub(crate) fn new() -> Self {
        Self {
            len: AtomicUsize::new(0),
            tombstones: Shelf::new(),
            blocks: Shelf::new(),
            written_over: SkipSet::new(),
        }
    }

    /// Records the key of an entry that is about to be inserted, if a tombstone covers it. Returns
    /// the number of bytes of memory that this took. O(log² n).
    pub(crate) fn record_entry(&self, key: &[u8]) -> usize {
        if self.newest(key, SeqNo::MAX) == 0 || self.written_over.contains(key) {
            return 0;
        }
        self.written_over.insert(key.into());
        key.len() + WRITTEN_OVER_BYTES
    }

    /// Returns true if a tombstone covered `key` when it was written. O(log n).
    pub(crate) fn is_written_over(&self, key: &[u8]) -> bool {
        self.written_over.contains(key)
    }

    /// The next key after `key`, or before it, that a tombstone covered when it was written. O(log
    /// n).
    pub(crate) fn next_written_over(&self, key: &[u8], forward: bool) -> Option<Box<[u8]>> {
        let next = match forward {
            true => self.written_over.lower_bound(Bound::Excluded(key)),
            false => self.written_over.upper_bound(Bound::Excluded(key)),
        };
        next.map(|entry| entry.value().clone())
    }

    /// Adds a tombstone with a greater number than those before it. Returns the number of bytes of
    /// memory that it took.
    pub(crate) fn add(&self, tombstone: Tombstone) -> usize {
        let len = self.len.load(Ordering::Relaxed) + 1;
        self.tombstones.put(len - 1, tombstone);
        let mut bytes = 2 * size_of::<Tombstone>();
        if len.is_multiple_of(CHUNK) {
            let block = self.join(len / CHUNK);
            // The keys' bytes are in log records, which are counted, or in the slices.
            bytes += 2 * block.keys().len() * (size_of::<Slice>() + 20);
            self.blocks.put(len / CHUNK - 1, block);
        }
        self.len.store(len, Ordering::Release);
        bytes
    }

    /// Makes block `count`, whose last chunk is now complete.
    fn join(&self, count: usize) -> Ranges {
        let last = (count - 1) * CHUNK..count * CHUNK;
        let mut block = last
            .filter_map(|at| self.tombstones.get(at))
            .map(|one| Ranges::of(&one.from, one.to.as_ref(), one.seq))
            .fold(Ranges::default(), |all, one| all.joined(&one, newest_of_both));
        // From the shortest block to the longest: each step is about as long as what it adds.
        let (mut at, end) = (count - 1, count & (count - 1));
        while at > end {
            if let Some(older) = self.blocks.get(at - 1) {
                block = block.joined(older, newest_of_both);
            }
            at &= at - 1;
        }
        block
    }

    /// The number of the first tombstones that a reader at `seq` sees.
    fn seen(&self, seq: SeqNo) -> usize {
        let len = self.len.load(Ordering::Acquire);
        let is_seen = |at: usize| self.tombstones.get(at).is_some_and(|one| one.seq <= seq);
        if len == 0 || is_seen(len - 1) {
            return len;
        }
        rhumb_model::search::partition_point(0, len, is_seen)
    }

    /// The tombstones from `from` up to `to`, the newest first.
    fn singles(&self, from: usize, to: usize) -> impl Iterator<Item = &Tombstone> {
        (from..to).rev().filter_map(|at| self.tombstones.get(at))
    }

    /// The blocks of the first `seen` tombstones, the newest first.
    fn blocks(&self, seen: usize) -> impl Iterator<Item = &Ranges> {
        let first = Some(seen / CHUNK).filter(|count| *count > 0);
        let next = |count: &usize| Some(count & (count - 1)).filter(|count| *count > 0);
        std::iter::successors(first, next).filter_map(|count| self.blocks.get(count - 1))
    }

    /// The number of the newest tombstone over `key` that a reader at `seq` sees; 0 if none. O(log²
    /// n).
    pub(crate) fn newest(&self, key: &[u8], seq: SeqNo) -> SeqNo {
        let seen = self.seen(seq);
        let mut singles = self.singles(seen - seen % CHUNK, seen);
        if let Some(one) = singles.find(|one| one.covers(key)) {
            return one.seq;
        }
        let found = self.blocks(seen).map(|block| block.newest(key, SeqNo::MAX));
        found.into_iter().find(|seq| *seq > 0).unwrap_or(0)
    }

    /// Narrows `span` to keys around `key` for all of which the same tombstone is the newest that a
    /// reader at `seq` sees, and records it there. Returns true if there is one. O(log² n).
    pub(crate) fn narrow_to_fragment(&self, key: &[u8], seq: SeqNo, span: &mut RangeSpan) -> bool {
        let seen = self.seen(seq);
        // Tombstones that are older than the newest one over the key change nothing.
        self.singles(seen - seen % CHUNK, seen).any(|one| one.narrow_to_fragment(key, seq, span))
            || self.blocks(seen).any(|block| block.narrow_to_fragment(key, SeqNo::MAX, span))
    }

    /// As [`Ranges::narrow_to_run`], for the newest block with a tombstone that covers the key.
    pub(crate) fn narrow_to_run(&self, key: &[u8], seq: SeqNo, span: &mut RangeSpan) -> bool {
        let seen = self.seen(seq);
        let mut singles = self.singles(seen - seen % CHUNK, seen);
        if singles.any(|one| one.narrow_to_fragment(key, seq, span)) {
            return true;
        }
        self.blocks(seen).any(|block| block.narrow_to_run(key, SeqNo::MAX, span))
    }

    /// The greatest sequence number of a tombstone.
    pub(crate) fn most(&self) -> SeqNo {
        let len = self.len.load(Ordering::Acquire);
        len.checked_sub(1).and_then(|last| self.tombstones.get(last)).map_or(0, |one| one.seq)
    }

    /// The first `seen` tombstones as one list: the newest over each fragment.
    fn flat(&self, seen: usize) -> Ranges {
        let singles = self.singles(seen - seen % CHUNK, seen);
        let singles = singles.map(|one| Ranges::of(&one.from, one.to.as_ref(), one.seq));
        let newest = singles.fold(Ranges::default(), |all, one| all.joined(&one, newest_of_both));
        self.blocks(seen).fold(newest, |all, block| all.joined(block, newest_of_both))
    }

    /// The tombstones that must stay for readers at the live `snapshots`, which ascend, and at the
    /// newest number: of those between two snapshots the newest. O(n log n) for each snapshot among
    /// them.
    pub(crate) fn retained(&self, snapshots: &[SeqNo]) -> Ranges {
        let mut before = (0, 0);
        let mut stripes = Vec::new();
        for seq in snapshots.iter().copied().chain([SeqNo::MAX]) {
            let seen = self.seen(seq);
            if seen > before.0 {
                stripes.push(self.flat(seen).after(before.1));
            }
            before = (seen, seq);
        }
        Ranges::union(stripes)
    }
}
