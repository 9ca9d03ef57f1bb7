//! Chooses what to compact next.
//!
//! Level 0 is due when it holds four tables. Deeper levels are due when they outgrow their size or
//! have small neighbours to join (`joins.rs`). Any level is due if it has a table in a shared file
//! that is mostly dead, or a tombstone-heavy one (`garbage.rs`), or the one of which most has
//! expired if that is much (`expired.rs`). A table that overlaps nothing below moves down without
//! being read, unless it is small: then it is merged with those beside it.

use rhumb_sync::primitive::Arc;

use super::{
    expired::{Horizon, mostly_expired},
    garbage::is_tombstone_heavy,
    job::{Job, Merge},
    joins::{self, JoinSizes},
};
use crate::{
    expiry::Millis,
    options::{DatabaseOptions, L0_TABLES_TRIGGER, LEVEL_RATIO},
    table::{Table, TableMeta},
    types::{LEVELS_MAX, SeqNo},
    version::levels::{Level, Levels},
};

/// The tables that one small compaction reads have at most this many times the size of a small
/// table: that of the four tables of level 0 that make it due.
const SMALL_JOB_TABLES: u64 = 4;

/// The urgency of each level; a level is due from 1 on.
pub(crate) fn scores(levels: &Levels, options: &DatabaseOptions, horizon: Horizon) -> Vec<f64> {
    let expired = mostly_expired(levels, horizon.time_ms);
    let needs = |at: usize, table: &Arc<Table>| {
        expired == Some((at, table.meta().id))
            || needs_compaction(levels, at, table, horizon.oldest)
    };
    let any_needs = |at: usize| match levels.tables(at).iter().any(|table| needs(at, table)) {
        true => 1.0,
        false => 0.0_f64,
    };
    let l0 = levels.l0.len() as f64 / L0_TABLES_TRIGGER as f64;
    let mut scores = vec![l0.max(any_needs(0))];
    let sizes = JoinSizes::of(options);
    for (level, at) in levels.sorted.iter().zip(1..) {
        let joins = match run_of(level.tables(), sizes) {
            Some(_) => 1.0,
            None => 0.0_f64,
        };
        scores.push(size_score(levels, at, options).max(any_needs(at)).max(joins));
    }
    scores
}

/// The fill of a level below level 0, relative to its size. The deepest level has nowhere to go.
fn size_score(levels: &Levels, level: usize, options: &DatabaseOptions) -> f64 {
    let Some(sorted) = level.checked_sub(1).and_then(|at| levels.sorted.get(at)) else {
        return 0.0;
    };
    if level + 1 >= LEVELS_MAX {
        return 0.0;
    }
    let deeper = u32::try_from(level - 1).unwrap_or(0);
    let target = options.level_one_bytes as f64 * (LEVEL_RATIO as f64).powf(f64::from(deeper));
    sorted.bytes() as f64 / target
}

/// The neighbours in a level that should be joined.
fn run_of(tables: &[Arc<Table>], sizes: JoinSizes) -> Option<&[Arc<Table>]> {
    let bytes: Vec<u64> = tables.iter().map(|table| table.meta().total_bytes()).collect();
    joins::pick_run(&bytes, sizes).map(|run| &tables[run])
}

/// Returns true if a table is compacted even if its level is not full. The space that other tables
/// left in a shared file is freed once the last tables have moved out.
fn needs_compaction(levels: &Levels, level: usize, table: &Table, oldest: SeqNo) -> bool {
    table.is_in_sparse_file() || is_tombstone_heavy(levels, level, table, oldest)
}

/// Returns true if a compaction reads little enough to be done together with others like it, of
/// other LSM trees: their outputs share a file.
pub(crate) fn is_small(merge: &Merge, options: &DatabaseOptions) -> bool {
    merge.input_bytes() <= SMALL_JOB_TABLES * JoinSizes::of(options).shared
}

/// The most urgent level that is due, with its score.
pub(crate) fn most_urgent(
    levels: &Levels,
    options: &DatabaseOptions,
    horizon: Horizon,
) -> Option<(usize, f64)> {
    scores(levels, options, horizon)
        .into_iter()
        .enumerate()
        .filter(|(_, score)| *score >= 1.0)
        .max_by(|a, b| a.1.total_cmp(&b.1))
}

/// A compaction of `level` into the next level or within itself. `cursor` is the largest key of the
/// level's last compaction.
pub(crate) fn pick(
    levels: &Levels,
    level: usize,
    cursor: &[u8],
    options: &DatabaseOptions,
    Horizon { oldest, time_ms }: Horizon,
) -> Option<Job> {
    let sizes = JoinSizes::of(options);
    if level == 0 {
        return pick_l0(levels, options);
    }
    let tables = levels.tables(level);
    let expired = mostly_expired(levels, time_ms).filter(|(at, _)| *at == level);
    if let Some(table) = expired.and_then(|(_, id)| tables.iter().find(|t| t.meta().id == id)) {
        return Some(Job::Merge(merge_within(levels, level, std::slice::from_ref(table))));
    }
    if let Some(run) = run_of(tables, sizes) {
        return Some(Job::Merge(merge_within(levels, level, run)));
    }
    let needed = tables.iter().find(|table| needs_compaction(levels, level, table, oldest));
    if let Some(table) = needed {
        let TableMeta { smallest, largest, .. } = table.meta();
        let is_bottom = !levels.deeper_overlaps(level, smallest, largest);
        if is_bottom && is_tombstone_heavy(levels, level, table, oldest)
            || table.is_in_sparse_file()
        {
            return Some(Job::Merge(merge_within(levels, level, std::slice::from_ref(table))));
        }
    }
    if needed.is_none() && size_score(levels, level, options) < 1.0 {
        // It was due, and no longer is.
        return None;
    }
    let next = || tables.get(tables.partition_point(|t| *t.meta().largest <= *cursor));
    let table = needed.or_else(next).or_else(|| tables.first())?;
    Some(job(levels, level, vec![Arc::clone(table)]))
}

/// A compaction of all of level 0 into the next level; or of its oldest table alone, if that can
/// simply move down; or of small tables into one, if the next level would cost much more than they
/// hold.
fn pick_l0(levels: &Levels, options: &DatabaseOptions) -> Option<Job> {
    let sizes = JoinSizes::of(options);
    let (oldest, newer) = levels.l0.split_last()?;
    let (from, to) = (&oldest.meta().smallest, &oldest.meta().largest);
    let alone = newer.iter().all(|t| t.meta().largest < *from || t.meta().smallest > *to);
    let below = levels.sorted.first().map_or(&[][..], |level| level.overlapping(from, to));
    let are_small = levels.l0.iter().all(|table| table.meta().total_bytes() <= sizes.small);
    if alone && below.is_empty() && !are_small {
        return Some(job(levels, 0, vec![Arc::clone(oldest)]));
    }
    let all = job(levels, 0, levels.l0.clone());
    if matches!(&all, Job::Merge(merge) if is_small(merge, options)) {
        return Some(all);
    }
    // Neighbours in level 0 follow each other in time, so one joined table can take their place.
    let run = run_of(&levels.l0, sizes).map(|run| Job::Merge(merge_within(levels, 0, run)));
    run.or(Some(all))
}

/// A compaction of adjacent tables of `level`, whose outputs stay there.
pub(crate) fn merge_within(levels: &Levels, level: usize, tables: &[Arc<Table>]) -> Merge {
    let (smallest, largest) = key_range(tables);
    // Other tables of level 0 may hold older entries.
    let deepest = level > 0 && !levels.deeper_overlaps(level, smallest, largest);
    let inputs = tables.iter().map(|table| (level, Arc::clone(table))).collect();
    Merge { inputs, level, deepest, below: below(levels, level, (smallest, largest), deepest) }
}

/// The tables of the levels deeper than `level` that overlap a range of keys; nothing if it is
/// known that there are none.
fn below(levels: &Levels, level: usize, (from, to): (&[u8], &[u8]), deepest: bool) -> Vec<Level> {
    let deeper = levels.sorted.iter().skip(level).filter(|_| !deepest);
    deeper.map(|level| Level::new(level.overlapping(from, to).to_vec())).collect()
}

fn job(levels: &Levels, level: usize, inputs: Vec<Arc<Table>>) -> Job {
    let (smallest, largest) = key_range(&inputs);
    let below = levels.sorted.get(level).map_or(&[][..], |l| l.overlapping(smallest, largest));
    let output_level = level + 1;
    // The tables below reach further than the tables that they overlap.
    let (below_smallest, below_largest) = key_range(below);
    let deepest = !levels.deeper_overlaps(output_level, smallest, largest)
        && (below.is_empty()
            || !levels.deeper_overlaps(output_level, below_smallest, below_largest));
    // A table leaves a file that is mostly dead, and range tombstones that hide nothing are not
    // moved.
    let moves = |one: &Table| !(one.is_in_sparse_file() || deepest && one.ranges().is_some());
    if let ([], [one]) = (below, &inputs[..])
        && moves(one)
    {
        return Job::Move { table: (level, Arc::clone(one)), level: output_level };
    }
    let mut all: Vec<(usize, Arc<Table>)> = inputs.iter().map(|t| (level, Arc::clone(t))).collect();
    all.extend(below.iter().map(|t| (output_level, Arc::clone(t))));
    let bounds = (smallest.min(below_smallest), largest.max(below_largest));
    let bounds = if below.is_empty() { (smallest, largest) } else { bounds };
    let below = self::below(levels, output_level, bounds, deepest);
    Job::Merge(Merge { inputs: all, level: output_level, deepest, below })
}

/// The smallest and the largest key of all `tables`; empty keys if there are none.
fn key_range(tables: &[Arc<Table>]) -> (&[u8], &[u8]) {
    let smallest = tables.iter().map(|t| &*t.meta().smallest).min().unwrap_or_default();
    let largest = tables.iter().map(|t| &*t.meta().largest).max().unwrap_or_default();
    (smallest, largest)
}

/// A compaction of everything into the deepest level in use; `None` if everything is there and
/// clean.
pub(crate) fn pick_all(levels: &Levels, time_ms: Millis) -> Option<Merge> {
    let merge = pick_whole(levels);
    // A table whose entries all have one sequence number holds one version of each key.
    let clean = merge.inputs.iter().all(|(level, table)| {
        let meta = table.meta();
        let tombstones = meta.tombstones + meta.range_tombstones;
        let has_expired = meta.expiries.is_some_and(|expiries| expiries.first_ms <= time_ms);
        *level == merge.level && tombstones == 0 && meta.seq_min == meta.seq_max && !has_expired
    });
    (!clean).then_some(merge)
}

/// A compaction of everything into the deepest level in use, even if everything is clean.
pub(crate) fn pick_whole(levels: &Levels) -> Merge {
    let inputs = levels.all().map(|(level, table)| (level, Arc::clone(table))).collect();
    Merge { inputs, level: levels.depth().max(2) - 1, deepest: true, below: Vec::new() }
}
