//! What deletes leave in tables, and when compaction picks it up.
//!
//! * A table is *hidden* if its every entry lies under newer range tombstones of shallower tables
//!   and no snapshot sees it. It is dropped with one edit of the manifest, without being read.
//! * A table is *tombstone-heavy* if compacting it frees much for what it costs: if half of its
//!   entries are tombstones (one in eight if walks met many in a row), if its range tombstones
//!   cover a quarter of what would be merged, including its own entries, or if they have nothing
//!   left to hide.
//! * A memtable whose range tombstones cover a quarter of what there is goes to the tables once
//!   nothing else is to be done, so that the space is freed although nothing else is written.

use rhumb_sync::primitive::Arc;

use crate::{
    memtable::{MemCursor, Memtable},
    ranges::{HiddenRuns, Ranges, Sweep, newest_of},
    table::Table,
    types::{SeqNo, TreeId},
    version::levels::{Level, Levels},
};

/// A table is tombstone-heavy if at least one in this many of its entries is a tombstone.
const TOMBSTONES_PART: u64 = 2;
/// A table in which walks met many tombstones in a row is tombstone-heavy if at least one in this
/// many of its entries is a tombstone.
const TOMBSTONES_PART_MET: u64 = 8;
/// A table with fewer tombstones than this is not tombstone-heavy by its entries: so few tombstones
/// slow no reader down.
const TOMBSTONES_MIN: u64 = 64;
/// A table is tombstone-heavy if at least one in this many of the bytes that would be merged lies
/// under its range tombstones. A memtable is flushed for the same share of an LSM tree.
const GARBAGE_PART: u64 = 4;
/// The least number of bytes under range tombstones for which a memtable is flushed. Less is not
/// worth a flush, which costs two syncs and a file of some KiB.
const GARBAGE_MIN: u64 = 64 << 10;

/// Returns true if all entries of a table lie under newer range tombstones, and no reader sees
/// them.
pub(super) fn is_hidden(table: &Table, over: &Ranges, snapshots: &[SeqNo]) -> bool {
    let meta = table.meta();
    let (least, most) = over.newest_over(&meta.smallest, &meta.largest);
    least > meta.seq_max && !snapshots.iter().any(|seq| (meta.seq_min..most).contains(seq))
}

/// All hidden tables of an LSM tree. O(range tombstones + tables log range tombstones).
pub(crate) fn hidden(levels: &Levels, snapshots: &[SeqNo]) -> Vec<(usize, Arc<Table>)> {
    let mut over = Ranges::default();
    let mut found = Vec::new();
    for level in 0..levels.depth() {
        let tables = levels.tables(level);
        let mut here = Vec::new();
        for table in tables {
            if !over.is_empty() && is_hidden(table, &over, snapshots) {
                found.push((level, Arc::clone(table)));
            } else if let Some(ranges) = table.ranges() {
                // The range tombstones of a table of level 0 cover the tables after it.
                match level {
                    0 => over = Ranges::union(vec![over, ranges.clone()]),
                    _ => here.push(ranges.clone()),
                }
            }
        }
        over = Ranges::union([vec![over], here].concat());
    }
    found
}

/// Returns true if this table of `level` is compacted even if its level is not full, or, in level
/// 0, makes the level due. `oldest` is the sequence number of the oldest snapshot.
pub(super) fn is_tombstone_heavy(
    levels: &Levels,
    level: usize,
    table: &Table,
    oldest: SeqNo,
) -> bool {
    let meta = table.meta();
    let part = if table.has_tombstone_runs() { TOMBSTONES_PART_MET } else { TOMBSTONES_PART };
    let has_many = level > 0
        && meta.tombstones >= TOMBSTONES_MIN
        && meta.tombstones.saturating_mul(part) >= meta.entries;
    if !has_many && table.ranges().is_none() {
        return false;
    }
    // Tombstones newer than a snapshot hide nothing from it.
    if meta.seq_max > oldest {
        return false;
    }
    if !levels.deeper_overlaps(level, &meta.smallest, &meta.largest) {
        return level > 0 || table.ranges().is_some();
    }
    has_many || table.ranges().is_some_and(|ranges| is_mostly_garbage(levels, level, table, ranges))
}

/// Returns true if much of what a compaction of `table` would read lies under its range tombstones.
fn is_mostly_garbage(levels: &Levels, level: usize, table: &Table, ranges: &Ranges) -> bool {
    let meta = table.meta();
    let Some(next) = levels.sorted.get(level) else { return false };
    let below = next.overlapping(&meta.smallest, &meta.largest);
    let bytes: u64 = below.iter().map(|table| table.meta().total_bytes()).sum();
    let below_it: u64 = ranges.spans().map(|(from, to)| next.bytes_between(from, to)).sum();
    let own = table.hidden_runs().map_or(0, HiddenRuns::entries);
    let garbage = below_it + meta.total_bytes() / meta.entries.max(1) * own;
    garbage > 0 && garbage.saturating_mul(GARBAGE_PART) >= bytes + meta.total_bytes()
}

/// Returns true if the range tombstones of a memtable cover enough to be worth a flush: `removed`
/// bytes of `all`.
pub(crate) fn is_worth_a_flush(removed: u64, all: u64) -> bool {
    removed >= GARBAGE_MIN && removed.saturating_mul(GARBAGE_PART) >= all
}

/// About how many bytes of an LSM tree the range tombstones of a memtable cover, its own entries
/// included, and how many bytes there are in all. O(entries of the memtable + range tombstones log
/// tables).
pub(crate) fn removed_bytes(memtable: &Arc<Memtable>, tree: TreeId, levels: &Levels) -> (u64, u64) {
    let mut cursor = MemCursor::new(Arc::clone(memtable), tree);
    cursor.seek_to_last();
    let last = cursor.entry().map(|entry| entry.key().to_vec()).unwrap_or_default();
    let largest = levels.all().map(|(_, table)| &*table.meta().largest).max();
    let ranges = memtable.retained_ranges(tree, &[]);
    let ranges = ranges.closed(largest.unwrap_or_default().max(&last));
    let over = |level: &Level| -> u64 {
        ranges.spans().map(|(from, to)| level.bytes_between(from, to)).sum()
    };
    let mut removed: u64 = levels.sorted.iter().map(over).sum();
    let mut all: u64 = levels.all().map(|(_, table)| table.meta().total_bytes()).sum();
    let mut over = Sweep::new(&ranges);
    cursor.seek(&[], SeqNo::MAX);
    while let Some(entry) = cursor.entry() {
        let bytes = (entry.key().len() + entry.value().len()) as u64;
        all += bytes;
        if entry.seq() < newest_of(over.seqs(entry.key()), SeqNo::MAX) {
            removed += bytes;
        }
        cursor.advance();
    }
    (removed, all)
}
