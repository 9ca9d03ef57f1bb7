//! Decides which small tables are joined and which small files are packed, by their sizes alone.
//!
//! Tables of ascending keys never overlap, so only their number calls for merging them. Joining
//! follows the rule of size-tiered compaction: the joined table is at least [`GROWTH`] times as
//! large as the largest of its parts. So each byte is rewritten at most `log4(small / smallest)`
//! times until it is in a table of `small` bytes, and once more, into a table of at least half the
//! target size. With the default sizes this is 6 times for tables of 4 KiB. A level of ascending
//! keys keeps at most three small tables of each power of four.
//!
//! The module knows sizes only: it does no I/O and takes no lock.

use std::ops::Range;

use crate::options::DatabaseOptions;

/// A joined or packed table is at least this many times as large as its largest part. If this is
/// halved, each byte is rewritten twice as often, and half as many tables stay.
const GROWTH: u64 = 4;

/// The largest number of tables that are joined at once. Chosen, not measured: joining itself
/// leaves at most three small tables of each power of four beside each other, so only tables of an
/// older version make longer runs. Of a thousand such tables, [`pick_run`] takes at most 256,000
/// steps.
const RUN_MAX: usize = 256;

/// The least number of small files that are packed. Chosen, not measured: as many files stay open
/// and unpacked, and a file that is packed is copied. Of 20,000 files of 4 KiB, at most 41 stay and
/// each byte is written at most six times
/// (`many_small_files_are_packed_and_few_stay`). If this is halved, 8 files fewer stay.
const FILES_MIN: usize = 16;

/// A table is small if its size is at most the target size of a table divided by this. Chosen, not
/// measured: it makes 4 MiB of the default target of 64 MiB, and a level keeps at most seven tables
/// of that size beside each other, as eight are half of the target and are joined.
const SMALL_PART: u64 = 16;

/// A table of up to this size shares its file with others that are written with it, even if the
/// target size of tables is smaller: a file of its own would cost a sync, a descriptor and a
/// directory entry.
const SHARED_BYTES_MIN: u64 = 256 << 10;

/// The sizes that joining goes by, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JoinSizes {
    /// The largest table that is joined with others.
    pub(crate) small: u64,
    /// The target size of tables; a joined table never exceeds it.
    pub(crate) target: u64,
    /// The largest table that is put into a file with others.
    pub(crate) shared: u64,
}

impl JoinSizes {
    /// The sizes of a database with these options.
    pub(crate) fn of(options: &DatabaseOptions) -> Self {
        let target = options.table_bytes;
        let shared = (target / SMALL_PART).max(SHARED_BYTES_MIN);
        // A run of small tables must fit into the target size at all.
        Self { small: shared.min(target / GROWTH), target, shared }
    }
}

/// The neighbours to join next, among adjacent tables of these sizes: the longest run that
/// qualifies, and of several the one with the fewest bytes. O(tables x 256).
pub(crate) fn pick_run(bytes: &[u64], sizes: JoinSizes) -> Option<Range<usize>> {
    let mut best: Option<(usize, std::cmp::Reverse<u64>, Range<usize>)> = None;
    for from in 0..bytes.len() {
        let (mut total, mut largest) = (0_u64, 0);
        for (at, &next) in bytes.iter().enumerate().skip(from).take(RUN_MAX) {
            total = total.saturating_add(next);
            if next > sizes.small || total > sizes.target {
                break;
            }
            largest = largest.max(next);
            // No table between a small one and half of the target size is made: it would not be
            // small any more, and too many like it would stay.
            let fits = total <= sizes.small || total >= sizes.target / 2;
            let found = (at + 1 - from, std::cmp::Reverse(total), from..at + 1);
            let is_better = best.as_ref().is_none_or(|best| (found.0, found.1) > (best.0, best.1));
            if fits && total >= GROWTH * largest && is_better {
                best = Some(found);
            }
        }
    }
    best.map(|(.., run)| run)
}

/// The number of small files to pack into one, given their live bytes in ascending order. It is the
/// largest number for which the packed file is [`GROWTH`] times as large as the largest of its
/// parts; 0 if packing is not needed. At most 16 files stay unpacked, and one more for each time
/// that sizes grow by a third. O(files).
pub(crate) fn pick_files(ascending: &[u64], sizes: JoinSizes) -> usize {
    let mut total = 0_u64;
    let mut found = 0;
    for (&bytes, count) in ascending.iter().zip(1..) {
        total = total.saturating_add(bytes);
        if bytes > sizes.shared || total > sizes.target {
            break;
        }
        if count >= FILES_MIN && total >= GROWTH.saturating_mul(bytes) {
            found = count;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: JoinSizes = JoinSizes { small: 4 << 20, target: 64 << 20, shared: 4 << 20 };
    const TABLE: u64 = 4 << 10;

    #[test]
    fn small_neighbours_of_like_size_are_joined() {
        assert_eq!(pick_run(&[TABLE; 3], SIZES), None);
        assert_eq!(pick_run(&[TABLE; 4], SIZES), Some(0..4));
        assert_eq!(pick_run(&[4 * TABLE, TABLE, TABLE, TABLE], SIZES), None);
        assert_eq!(pick_run(&[4 * TABLE, TABLE, TABLE, TABLE, TABLE], SIZES), Some(1..5));
        // A large table is not read for the sake of small ones, and small ones are not joined
        // across it.
        let large = 40 << 20;
        assert_eq!(pick_run(&[TABLE, TABLE, large, TABLE, TABLE], SIZES), None);
        assert_eq!(pick_run(&[large; 8], SIZES), None);
        assert_eq!(pick_run(&[5 << 20; 8], SIZES), None, "the cheap move is kept");
    }

    #[test]
    fn nothing_is_made_between_small_and_half_of_the_target() {
        let mebibytes = |count: usize| vec![1 << 20; count];
        assert_eq!(pick_run(&mebibytes(4), SIZES), Some(0..4));
        let fours = |count: usize| vec![4 << 20; count];
        assert_eq!(pick_run(&fours(7), SIZES), None);
        assert_eq!(pick_run(&fours(8), SIZES), Some(0..8));
        assert_eq!(pick_run(&fours(40), SIZES), Some(0..16), "the target is never exceeded");
    }

    /// Appends one table at a time, and checks how many tables there are at most and how often each
    /// byte is written.
    #[test]
    fn ascending_tables_stay_few_and_are_rewritten_a_logarithm_of_times() {
        let mut tables: Vec<u64> = Vec::new();
        let (mut written, mut most) = (0_u64, 0);
        let count = 40_000;
        for _ in 0..count {
            tables.push(TABLE);
            while let Some(run) = pick_run(&tables, SIZES) {
                let total: u64 = tables[run.clone()].iter().sum();
                written += total;
                tables.splice(run, [total]);
            }
            most = most.max(tables.len());
        }
        let large = tables.iter().filter(|bytes| **bytes > SIZES.small).count() as u64;
        assert_eq!(large, count * TABLE / (32 << 20));
        // Three of each power of four from 4 KiB to 1 MiB, and up to seven of 4 MiB.
        assert!(most <= 3 * 5 + 7 + large as usize, "{most} tables");
        assert!(written <= 6 * count * TABLE, "{} times", written as f64 / (count * TABLE) as f64);
    }

    #[test]
    fn many_small_files_are_packed_and_few_stay() {
        assert_eq!(pick_files(&[TABLE; FILES_MIN - 1], SIZES), 0);
        assert_eq!(pick_files(&[TABLE; FILES_MIN], SIZES), FILES_MIN);
        let mut files: Vec<u64> = Vec::new();
        let (mut written, count) = (0, 20_000);
        for _ in 0..count {
            files.push(TABLE);
            files.sort_unstable();
            loop {
                let packed = pick_files(&files, SIZES);
                if packed == 0 {
                    break;
                }
                let total: u64 = files.drain(..packed).sum();
                written += total;
                files.push(total);
                files.sort_unstable();
            }
            let small = files.iter().filter(|bytes| **bytes <= SIZES.shared).count();
            assert!(small <= FILES_MIN + 25, "{small} files");
        }
        assert!(written <= 6 * count * TABLE, "{} times", written / count / TABLE);
    }
}
