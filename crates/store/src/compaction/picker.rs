//! What to compact next.
//!
//! Level 0 is due when it holds four tables, deeper levels when they outgrow their size, and any level that
//! has a table in a shared file that is mostly dead, or one that is worn (`garbage.rs`). A table that overlaps nothing below moves down
//! without being read. Small partitions are merged whole.

use super::garbage::is_worn;
use crate::{
    options::{DatabaseOptions, LEVEL_RATIO, ZERO_TABLES_TRIGGER},
    sync::primitive::Arc,
    table::{Table, TableMeta},
    types::{FileId, LEVELS_MAX, SeqNo},
    version::levels::Levels,
};

/// The most bytes of a partition that is compacted with others.
const SMALL_BYTES_MAX: u64 = 256 << 10;

/// A compaction to do.
pub(crate) struct Job {
    /// Where the outputs go.
    pub(crate) output_level: usize,
    /// The inputs with their levels: one level and the one that it goes to, or one worn table that
    /// stays in its level.
    pub(crate) inputs: Vec<(usize, Arc<Table>)>,
    /// Nothing is read: the one input only changes its level.
    pub(crate) is_move: bool,
    /// No deeper level holds a key of the inputs' range.
    pub(crate) deepest: bool,
}

/// How urgent each level is; above 1 it is due. `oldest` is the number of the oldest snapshot.
pub(crate) fn scores(levels: &Levels, options: &DatabaseOptions, oldest: SeqNo) -> Vec<f64> {
    let mut target = options.level_one_bytes as f64;
    let is_sought = |at: usize, table: &Arc<Table>| is_sought(levels, at, table, oldest);
    let sought = |at: usize| match levels.tables(at).iter().any(|table| is_sought(at, table)) {
        true => 1.0,
        false => 0.0_f64,
    };
    let zero = levels.zero.len() as f64 / ZERO_TABLES_TRIGGER as f64;
    let mut scores = vec![zero.max(sought(0))];
    for (level, at) in levels.sorted.iter().take(LEVELS_MAX - 2).zip(1..) {
        scores.push((level.bytes() as f64 / target).max(sought(at)));
        target *= LEVEL_RATIO as f64;
    }
    scores
}

/// Whether a table is compacted before its level's turn. What others left behind in a shared file is
/// given back once its last tables have moved out.
fn is_sought(levels: &Levels, level: usize, table: &Table, oldest: SeqNo) -> bool {
    table.is_in_sparse_file() || is_worn(levels, level, table, oldest)
}

/// Whether a partition is so small that all of it is merged at once, together with others like it. What
/// comes of that is not due again: it fits level 1.
pub(crate) fn is_small(levels: &Levels, options: &DatabaseOptions) -> bool {
    let bytes: u64 = levels.all().map(|(_, table)| table.meta().total_bytes()).sum();
    bytes < SMALL_BYTES_MAX.min(options.level_one_bytes)
}

/// The most urgent level that is due, with its score.
pub(crate) fn most_urgent(
    levels: &Levels,
    options: &DatabaseOptions,
    oldest: SeqNo,
) -> Option<(usize, f64)> {
    scores(levels, options, oldest)
        .into_iter()
        .enumerate()
        .filter(|(_, score)| *score >= 1.0)
        .max_by(|a, b| a.1.total_cmp(&b.1))
}

/// A compaction of `level` into the next. `cursor` is the largest key of the level's last one.
pub(crate) fn pick(levels: &Levels, level: usize, cursor: &[u8], oldest: SeqNo) -> Option<Job> {
    let inputs: Vec<Arc<Table>> = if level == 0 {
        pick_zero(levels)?
    } else {
        let sorted = levels.sorted.get(level - 1)?;
        let tables = sorted.tables();
        let sought = tables.iter().position(|table| is_sought(levels, level, table, oldest));
        let next = || tables.partition_point(|t| *t.meta().largest <= *cursor);
        let next = sought.unwrap_or_else(next);
        let table = tables.get(next).or_else(|| tables.first())?;
        let TableMeta { smallest, largest, .. } = table.meta();
        let is_bottom = !levels.deeper_overlaps(level, smallest, largest);
        if is_bottom && is_worn(levels, level, table, oldest) {
            let inputs = vec![(level, Arc::clone(table))];
            return Some(Job { output_level: level, inputs, is_move: false, deepest: true });
        }
        vec![Arc::clone(table)]
    };
    Some(job(levels, level, inputs))
}

/// All of level 0, or its oldest table alone where that can simply move down.
fn pick_zero(levels: &Levels) -> Option<Vec<Arc<Table>>> {
    let (oldest, newer) = levels.zero.split_last()?;
    let (from, to) = (&oldest.meta().smallest, &oldest.meta().largest);
    let alone = newer.iter().all(|t| t.meta().largest < *from || t.meta().smallest > *to);
    let below = levels.sorted.first().map_or(&[][..], |level| level.overlapping(from, to));
    if alone && below.is_empty() {
        return Some(vec![Arc::clone(oldest)]);
    }
    Some(levels.zero.clone())
}

fn job(levels: &Levels, level: usize, inputs: Vec<Arc<Table>>) -> Job {
    let (smallest, largest) = key_range(&inputs);
    let below = levels.sorted.get(level).map_or(&[][..], |l| l.overlapping(smallest, largest));
    let output_level = level + 1;
    // The tables below reach further than those that they overlap.
    let (below_smallest, below_largest) = key_range(below);
    let deepest = !levels.deeper_overlaps(output_level, smallest, largest)
        && (below.is_empty()
            || !levels.deeper_overlaps(output_level, below_smallest, below_largest));
    // A table that shares its file leaves it on the way down, and range tombstones that hide nothing
    // stay behind.
    let moves = |one: &Table| one.meta().place.is_none() && !(deepest && one.ranges().is_some());
    let is_move = below.is_empty() && matches!(&inputs[..], [one] if moves(one));
    let mut all: Vec<(usize, Arc<Table>)> = inputs.iter().map(|t| (level, Arc::clone(t))).collect();
    all.extend(below.iter().map(|t| (output_level, Arc::clone(t))));
    Job { output_level, inputs: all, is_move, deepest }
}

/// The smallest and the largest key of all `tables`; empty keys if there are none.
fn key_range(tables: &[Arc<Table>]) -> (&[u8], &[u8]) {
    let smallest = tables.iter().map(|t| &*t.meta().smallest).min().unwrap_or_default();
    let largest = tables.iter().map(|t| &*t.meta().largest).max().unwrap_or_default();
    (smallest, largest)
}

/// A compaction of everything into the deepest level in use; `None` if it is all there and clean.
pub(crate) fn pick_all(levels: &Levels) -> Option<Job> {
    let job = pick_whole(levels);
    // A table whose entries all have one number holds one version of each key.
    let clean = job.inputs.iter().all(|(level, table)| {
        let meta = table.meta();
        let tombstones = meta.tombstones + meta.range_tombstones;
        *level == job.output_level && tombstones == 0 && meta.seq_min == meta.seq_max
    });
    (!clean).then_some(job)
}

/// A compaction of everything into the deepest level in use, whatever it looks like.
pub(crate) fn pick_whole(levels: &Levels) -> Job {
    let inputs = levels.all().map(|(level, table)| (level, Arc::clone(table))).collect();
    Job { output_level: levels.depth().max(2) - 1, inputs, is_move: false, deepest: true }
}

impl Job {
    /// The numbers of the input tables.
    pub(crate) fn input_ids(&self) -> Vec<FileId> {
        self.inputs.iter().map(|(_, table)| table.meta().id).collect()
    }

    /// The bytes of all input files.
    pub(crate) fn input_bytes(&self) -> u64 {
        self.inputs.iter().map(|(_, table)| table.meta().total_bytes()).sum()
    }
}
