//! Checksums of blocks and wide records, which are read without order.
//!
//! A block comes as a whole, and its last word is the sum of the others, seeded with its line. A
//! wide record's sum follows its last word. Both cover the guard as it is once they are published:
//! what a group has changed and not published proves nothing.

use super::layout::BLOCK_WORDS;
use crate::layout::checksum;

/// The word of a block that has the sum of the others.
pub(super) const BLOCK_SUM: usize = BLOCK_WORDS - 1;

/// The sum of the words before the last one of a block, which begins at `line`.
pub(super) fn block_sum(words: impl IntoIterator<Item = u64>, line: u32) -> u64 {
    checksum(words.into_iter().take(BLOCK_SUM), line.into())
}

/// Returns true if a block proves itself.
pub(super) fn is_block_whole(words: &[u64], line: u32) -> bool {
    words.len() == BLOCK_WORDS && words[BLOCK_SUM] == block_sum(words.iter().copied(), line)
}

/// The sum of a wide record, which begins at `line` with its guard.
pub(super) fn wide_sum(words: impl IntoIterator<Item = u64>, line: u32) -> u64 {
    // planted: guard-not-sum-wide-record
    checksum(words, line.into())
}
