//! What deletes leave behind, and when compaction seeks it out.
//!
//! * A table whose every entry lies under newer range tombstones of shallower tables is *hidden* once no
//!   snapshot sees it: it goes with one edit of the manifest, and nobody reads it.
//! * A table is *worn* if compacting it gives back much for what it costs: half of its entries are
//!   tombstones (one in eight where walks met many one after another), or its range tombstones lie
//!   over a quarter of what would be merged, of its own entries too; or if they have nothing left
//!   to hide.
//! * A memtable whose range tombstones lie over a quarter of what there is goes to the tables once
//!   nothing else is to be done, so that the space comes back although nothing else is written.

use rhumb_sync::primitive::Arc;

use crate::{
    memtable::{MemCursor, Memtable},
    ranges::{HiddenRuns, Ranges, Sweep, newest_of},
    table::Table,
    types::{SeqNo, TreeId},
    version::levels::{Level, Levels},
};

/// One of so many entries of a table is a tombstone: it is worn,
const TOMBSTONES_PART: u64 = 2;
/// also where walks met many in a row.
const TOMBSTONES_PART_MET: u64 = 8;
/// Fewer tombstones slow nobody down.
const TOMBSTONES_MIN: u64 = 64;
/// One of so many bytes that would be merged lies under range tombstones.
const GARBAGE_PART: u64 = 4;
/// Less than that is not worth a flush, which costs two syncs and a file of some KiB.
const GARBAGE_MIN: u64 = 64 << 10;

/// Whether all entries of a table lie under newer range tombstones, and no reader sees them.
pub(super) fn is_hidden(table: &Table, over: &Ranges, snapshots: &[SeqNo]) -> bool {
    let meta = table.meta();
    let (least, most) = over.newest_over(&meta.smallest, &meta.largest);
    least > meta.seq_max && !snapshots.iter().any(|seq| (meta.seq_min..most).contains(seq))
}

/// All hidden tables of a sub-tree. O(range tombstones + tables log range tombstones).
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
                // Tables of level 0 lie over those behind them.
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

/// Whether compaction seeks out this table of `level`, which is not 0, or whether it makes level 0 due.
/// `oldest` is the number of the oldest snapshot.
pub(super) fn is_worn(levels: &Levels, level: usize, table: &Table, oldest: SeqNo) -> bool {
    let meta = table.meta();
    let part = if table.is_worn() { TOMBSTONES_PART_MET } else { TOMBSTONES_PART };
    let has_many = level > 0
        && meta.tombstones >= TOMBSTONES_MIN
        && meta.tombstones.saturating_mul(part) >= meta.entries;
    if !has_many && table.ranges().is_none() {
        return false;
    }
    // What a snapshot is before hides nothing from it.
    if meta.seq_max > oldest {
        return false;
    }
    if !levels.deeper_overlaps(level, &meta.smallest, &meta.largest) {
        return level > 0 || table.ranges().is_some();
    }
    has_many || table.ranges().is_some_and(|ranges| is_mostly_garbage(levels, level, table, ranges))
}

/// Whether much of what a compaction of `table` would read lies under its range tombstones.
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

/// Returns true if the range tombstones of a memtable lie over so much of what there is, `removed`
/// bytes of `all`, that they are worth a flush.
pub(crate) fn is_worth_a_flush(removed: u64, all: u64) -> bool {
    removed >= GARBAGE_MIN && removed.saturating_mul(GARBAGE_PART) >= all
}

/// About how many bytes of a sub-tree the range tombstones of a memtable lie over, of its own
/// entries too, and how many there are. O(entries of the memtable + range tombstones log tables).
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
