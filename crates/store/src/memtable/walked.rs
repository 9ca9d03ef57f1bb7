//! What walks tell a memtable and ask of it: the ranges where they found nothing living, and how
//! many entries they stepped over.
//!
//! [`DeadRanges`](super::dead::DeadRanges) keeps the dead ranges; this file connects them with the
//! entries. While there are none, a write must not pay more than one load for them.

use rhumb_sync::{
    primitive::{Arc, Ordering},
    record::Record,
};

use super::{
    Memtable,
    cursor::MemCursor,
    dead::{Asked, DeadRange},
};
use crate::{
    keys::KeySpan,
    log::batch::BatchOps,
    types::{Kind, SeqNo, TreeId},
};

/// The largest number of keys that are searched for entries that came in since a dead range was
/// walked. It is larger than what walks record at once, and small enough that no walk waits for it.
const SEARCHED_MAX: usize = 4096;

impl Memtable {
    /// Accounts for a record whose operations have been inserted, and that no reader sees yet. Keys
    /// that were found dead and have values in the record are dead no more.
    #[inline]
    pub(crate) fn finish_record(&self, record: &Record, operations: BatchOps<'_>) {
        let values = operations.filter(|operation| operation.kind != Kind::Tombstone);
        self.dead.record_inserted(
            &self.bytes,
            record.memory_bytes(),
            values.map(|operation| (operation.tree, operation.key(record))),
        );
    }

    /// A dead range: keys of an LSM tree where a reader at `seq`, which reads this memtable and
    /// older ones, sees nothing. O(log dead ranges).
    #[inline]
    pub(crate) fn dead_range(
        &self,
        tree: TreeId,
        asked: Asked<'_>,
        seq: SeqNo,
    ) -> Option<DeadRange> {
        self.dead.find(tree, asked, seq)
    }

    /// Records a dead range in which a reader at `seq`, which reads this memtable and older ones,
    /// saw nothing living; later readers pass it at once. O(keys of the memtable in it that are in
    /// no other dead range).
    pub(crate) fn record_dead_range(self: &Arc<Self>, tree: TreeId, dead: DeadRange, seq: SeqNo) {
        self.dead.record(&self.bytes, tree, dead, seq, |parts| self.newest_of_dead(tree, parts));
    }

    /// The greatest sequence number of a tombstone in these parts, if the memtable has nothing but
    /// tombstones there; 0 if it has nothing. `None` if it has a value, or too much to be searched.
    fn newest_of_dead(self: &Arc<Self>, tree: TreeId, parts: &[KeySpan]) -> Option<SeqNo> {
        let (mut newest, mut searched) = (0, 0);
        for (from, to) in parts {
            let mut cursor = MemCursor::newest(Arc::clone(self), tree, SeqNo::MAX);
            cursor.seek(from, SeqNo::MAX);
            while let Some(entry) = cursor.entry() {
                if to.as_ref().is_some_and(|to| *entry.key() >= **to) {
                    break;
                }
                searched += 1;
                if entry.kind() != Kind::Tombstone || searched > SEARCHED_MAX {
                    return None;
                }
                newest = newest.max(entry.seq());
                cursor.advance();
            }
        }
        Some(newest)
    }

    /// Must be called before an LSM tree gets entries with the sequence number `seq` that bypass
    /// the memtable, and before a reader can see them: keys that were found dead may not be any
    /// more.
    pub(crate) fn forget_dead(&self, tree: TreeId, seq: SeqNo) {
        self.dead.forget(tree, seq);
    }

    /// Counts entries that a walk stepped over.
    pub(crate) fn count_passed(&self, entries: u64) {
        self.passed.fetch_add(entries, Ordering::Relaxed);
    }

    /// The number of entries that walks of the database stepped over since it was opened.
    pub(crate) fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }
}
