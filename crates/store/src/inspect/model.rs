//! Measures how well the model of a table fits, by reading every key.

use rhumb_model::code;

use super::{
    OnProgress,
    report::{ModelReport, Point, SegmentReport},
    table::{describe, walk_block},
};
use crate::{
    error::Result,
    table::{BlockIndexKind, Table},
};

/// The number of blocks between two reports of progress.
const BLOCKS_PER_REPORT: u32 = 64;

/// Describes the model of `table`, with up to `points` of its keys (at least two).
pub(super) fn report(
    table: &Table,
    points: usize,
    on_progress: OnProgress<'_>,
) -> Result<ModelReport> {
    let description = describe(table);
    let common = code::common_prefix_len(&description.smallest, &description.largest);
    let mut fit = Fit {
        skip: common,
        every: description.entries.div_ceil(points.max(2) as u64 - 1).max(1),
        entries: 0,
        points: Vec::new(),
        last: None,
        entries_per_block: (0, u32::MAX),
        bytes_per_block: (0, u64::MAX),
        empty_blocks: 0,
        error_blocks_max: 0,
    };
    for number in 0..description.blocks {
        fit.add_block(table, number)?;
        if number % BLOCKS_PER_REPORT == 0 {
            on_progress(
                share(description.file_bytes, number, description.blocks),
                description.file_bytes,
            );
        }
    }
    let is_learned = table.index().kind() == BlockIndexKind::Learned;
    let segments = table.index().segments().filter(|_| is_learned).map(|segment| SegmentReport {
        separator: segment.separator,
        skip: segment.skip,
        base_code: segment.x0,
        slope: segment.slope,
        first_block: segment.first_block,
        blocks: segment.blocks,
    });
    fit.points.extend(fit.last.take());
    Ok(ModelReport {
        segments: segments.collect(),
        common_prefix: description.smallest[..common].to_vec(),
        table: description,
        points: fit.points,
        entries_per_block: fit.entries_per_block,
        bytes_per_block: fit.bytes_per_block,
        empty_blocks: fit.empty_blocks,
        error_blocks_max: fit.error_blocks_max,
    })
}

/// The share `part` of `whole` of `bytes`.
fn share(bytes: u64, part: u32, whole: u32) -> u64 {
    let share = u128::from(bytes) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(bytes)
}

/// The measurements of a walk through a table.
struct Fit {
    skip: usize,
    /// One entry in this many is kept as a point.
    every: u64,
    entries: u64,
    points: Vec<Point>,
    /// The last entry, unless it is a point already.
    last: Option<Point>,
    entries_per_block: (u32, u32),
    bytes_per_block: (u64, u64),
    empty_blocks: u32,
    error_blocks_max: u32,
}

impl Fit {
    fn add_block(&mut self, table: &Table, number: u32) -> Result<()> {
        let block = table.read_block(number, false)?;
        let count = walk_block(table, number, &block, |entry| {
            self.add_key(table, number, entry.key);
            Ok(())
        })?;
        if count == 0 {
            self.empty_blocks += 1;
            return Ok(());
        }
        let bytes = block.bytes().len() as u64;
        self.entries_per_block = widened(self.entries_per_block, count);
        self.bytes_per_block = widened(self.bytes_per_block, bytes);
        Ok(())
    }

    fn add_key(&mut self, table: &Table, block: u32, key: &[u8]) {
        let predicted = table.index().locate(key);
        self.error_blocks_max = self.error_blocks_max.max(predicted.abs_diff(block));
        let point = || Point {
            key: key.to_vec(),
            code: code::code_at(key, self.skip),
            block,
            predicted,
            rank: self.entries,
        };
        if self.entries.is_multiple_of(self.every) {
            self.points.push(point());
            self.last = None;
        } else {
            self.last = Some(point());
        }
        self.entries += 1;
    }
}

/// The largest and the smallest of some numbers, after one more.
fn widened<T: Ord + Copy>((largest, smallest): (T, T), number: T) -> (T, T) {
    (largest.max(number), smallest.min(number))
}
