//! What deletes leave behind, and when compaction seeks it out.
//!
//! * A table whose every entry lies under newer range tombstones of shallower tables is *hidden* once no
//!   snapshot sees it: it goes with one edit of the manifest, and nobody reads it.
//! * A table is *worn* if compacting it gives back much for what it costs: half of its entries are
//!   tombstones (one in eight where walks met many one after another), or its range tombstones lie over
//!   a quarter of what would be merged; or if its range tombstones have nothing left to hide.

use crate::{
    db::core::{Core, Tree},
    error::Result,
    ranges::Ranges,
    sync::primitive::{Arc, Ordering},
    table::Table,
    types::SeqNo,
    version::levels::{Level, Levels},
};

use super::picker::Job;

/// One of so many entries of a table is a tombstone: it is worn,
const TOMBSTONES_PART: u64 = 2;
/// also where walks met many in a row.
const TOMBSTONES_PART_MET: u64 = 8;
/// Fewer tombstones slow nobody down.
const TOMBSTONES_MIN: u64 = 64;
/// One of so many bytes that would be merged lies under range tombstones.
const GARBAGE_PART: u64 = 4;

/// Whether all entries of a table lie under newer range tombstones, and no reader sees them.
pub(super) fn is_hidden(table: &Table, over: &Ranges, snapshots: &[SeqNo]) -> bool {
    let meta = table.meta();
    let (least, most) = over.newest_over(&meta.smallest, &meta.largest);
    least > meta.seq_max && !snapshots.iter().any(|seq| (meta.seq_min..most).contains(seq))
}

/// All hidden tables of a sub-tree. O(range tombstones + tables log range tombstones).
fn hidden(levels: &Levels, snapshots: &[SeqNo]) -> Vec<(usize, Arc<Table>)> {
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
    let garbage: u64 = ranges.spans().map(|(from, to)| next.bytes_between(from, to)).sum();
    garbage > 0 && garbage.saturating_mul(GARBAGE_PART) >= bytes + meta.total_bytes()
}

impl Core {
    /// Seals the active memtable if its range tombstones lie over more than a memtable holds, so that
    /// the space comes back although nothing else is written. Says whether it did. For a pool that has
    /// nothing else to do.
    pub(crate) fn seal_deletes(&self) -> bool {
        let view = self.mem.get();
        let last = view.active.last_range_seq();
        if last == 0 || self.work.weighed_deletes.swap(last, Ordering::Relaxed) == last {
            return false;
        }
        let trees: Vec<Arc<Tree>> = {
            let trees = self.trees.lock();
            trees.live().filter(|tree| view.active.has_ranges_of(tree.id)).cloned().collect()
        };
        let lies_over = |tree: &Arc<Tree>| {
            let (levels, ranges) = (tree.levels.get(), view.active.retained_ranges(tree.id, &[]));
            let largest = levels.all().map(|(_, table)| &*table.meta().largest).max();
            let ranges = ranges.closed(largest.unwrap_or_default());
            let over = |level: &Level| -> u64 {
                ranges.spans().map(|(from, to)| level.bytes_between(from, to)).sum()
            };
            levels.sorted.iter().map(over).sum::<u64>()
        };
        if trees.iter().map(lies_over).sum::<u64>() < self.options.memtable_bytes {
            return false;
        }
        let mut state = self.lock_write();
        let now = self.mem.get();
        let is_same = Arc::ptr_eq(&now.active, &view.active) && now.sealed.is_empty();
        // What fails is reported by the next write.
        is_same && self.check_running().is_ok() && self.seal(&mut state).is_ok()
    }

    /// Removes the hidden tables of some sub-tree; says whether there were any.
    pub(super) fn drop_hidden(&self) -> Result<bool> {
        let trees: Vec<Arc<Tree>> = {
            let (trees, snapshots) = (self.trees.lock(), self.snapshots.list());
            let may = |tree: &&Arc<Tree>| tree.levels.get().is_to_be_looked_through(&snapshots);
            let mut found: Vec<_> = trees.live().filter(may).cloned().collect();
            found.sort_by_key(|tree| tree.id);
            found
        };
        for tree in trees {
            let Some(_state) = tree.compaction.try_lock() else { continue };
            let levels = tree.levels.get();
            // After the levels: what begins later is newer than all that is in them.
            let snapshots = self.snapshots.list();
            let inputs = hidden(&levels, &snapshots);
            if inputs.is_empty() {
                levels.note_looked_through(&snapshots);
                continue;
            }
            let job = Job { output_level: 0, inputs, is_move: false, deepest: false };
            let dropped = job.inputs.len() as u64;
            self.install_compaction(&tree, &job, Some(Vec::new()))?;
            self.counters.hidden_tables.fetch_add(dropped, Ordering::Relaxed);
            return Ok(true);
        }
        Ok(false)
    }
}
