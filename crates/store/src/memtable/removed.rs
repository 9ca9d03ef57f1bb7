//! The range tombstones of a memtable: how they are inserted, and what reads and flushes ask of
//! them.
//!
//! [`ranges`](crate::ranges) says what they are and how they are searched. Until the first one
//! comes, all of this costs a read one load, and it must not cost the entries more.

use rhumb_sync::{primitive::Ordering, record::Record};

use super::Memtable;
use crate::{
    log::batch::{BatchOp, RangeEnd},
    ranges::{RangeLog, RangeSpan, Ranges, Tombstone},
    slice::Slice,
    types::{SeqNo, TreeId},
};

/// The least number of bytes that the range tombstones of an LSM tree take.
const RANGE_LOG_BYTES: usize = 2 << 10;

impl Memtable {
    /// Records an entry that is about to be inserted, if range tombstones cover its key.
    #[cold]
    #[inline(never)]
    pub(super) fn record_under_ranges(&self, tree: TreeId, key: &[u8]) {
        let bytes = self.range_log(tree).map_or(0, |log| log.record_entry(key));
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Inserts a range tombstone. O(log n) on average.
    #[cold]
    pub(super) fn insert_range(
        &self,
        record: &Record,
        operation: &BatchOp,
        end: RangeEnd,
        seq: SeqNo,
    ) {
        self.last_range.store(seq.max(self.last_range.load(Ordering::Relaxed)), Ordering::Relaxed);
        // No entry has a smaller sequence number than the first.
        if seq == 0 {
            return;
        }
        let slice = |start, len| Slice::from_record(record.clone(), start, len).made_small();
        let to =
            (end == RangeEnd::Before).then(|| slice(operation.value_start, operation.value_len));
        let from = slice(operation.key_start, operation.key_len);
        let log = self.ranges.get(operation.tree).unwrap_or_else(|| {
            self.bytes.fetch_add(RANGE_LOG_BYTES, Ordering::Relaxed);
            self.ranges.add(operation.tree, RangeLog::new())
        });
        let bytes = log.add(Tombstone { from, to, seq });
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.has_ranges.store(true, Ordering::Release);
    }

    /// The range tombstones of an LSM tree, if there have ever been any.
    #[inline]
    pub(super) fn range_log(&self, tree: TreeId) -> Option<&RangeLog> {
        if !self.has_ranges.load(Ordering::Acquire) {
            return None;
        }
        self.ranges.get(tree)
    }

    /// Returns true if there are range tombstones of an LSM tree.
    pub(crate) fn has_ranges_of(&self, tree: TreeId) -> bool {
        self.range_log(tree).is_some()
    }

    /// The sequence number of the newest range tombstone over `key` that a reader at `seq` sees; 0
    /// if none. Costs one load if there are none, else O(log² n).
    #[inline]
    pub(crate) fn newest_range(&self, tree: TreeId, key: &[u8], seq: SeqNo) -> SeqNo {
        if self.has_ranges.load(Ordering::Acquire) { self.look_up_range(tree, key, seq) } else { 0 }
    }

    #[cold]
    #[inline(never)]
    fn look_up_range(&self, tree: TreeId, key: &[u8], seq: SeqNo) -> SeqNo {
        self.range_log(tree).map_or(0, |log| log.newest(key, seq))
    }

    /// Like [`RangeLog::narrow_to_fragment`].
    pub(crate) fn narrow_to_fragment(
        &self,
        tree: TreeId,
        key: &[u8],
        seq: SeqNo,
        span: &mut RangeSpan,
    ) -> bool {
        self.range_log(tree).is_some_and(|log| log.narrow_to_fragment(key, seq, span))
    }

    /// Like [`RangeLog::narrow_to_run`].
    pub(crate) fn narrow_to_run(
        &self,
        tree: TreeId,
        key: &[u8],
        seq: SeqNo,
        span: &mut RangeSpan,
    ) -> bool {
        self.range_log(tree).is_some_and(|log| log.narrow_to_run(key, seq, span))
    }

    /// The greatest sequence number of a range tombstone; 0 if there is none.
    pub(crate) fn last_range_seq(&self) -> SeqNo {
        self.last_range.load(Ordering::Relaxed)
    }

    /// The greatest sequence number of a range tombstone of an LSM tree; 0 if there is none.
    pub(crate) fn most_range(&self, tree: TreeId) -> SeqNo {
        self.range_log(tree).map_or(0, RangeLog::most)
    }

    /// Like [`RangeLog::retained`].
    pub(crate) fn retained_ranges(&self, tree: TreeId, snapshots: &[SeqNo]) -> Ranges {
        self.range_log(tree).map(|log| log.retained(snapshots)).unwrap_or_default()
    }
}
