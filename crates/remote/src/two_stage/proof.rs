//! Checksums of leaves and records that are read without order.
//!
//! In a region with checksums every part that one read brings proves itself, since a device that
//! reads another machine's memory promises no order between the lines of a read:
//!
//! - The *head sum* covers all that a head says, with its state. It is seeded with the number of
//!   loads: heads that prove themselves by one number are of one load, in which leaves are never
//!   freed and links lead where they say.
//! - Each value slot ends in a sum of its own, seeded with its place, so that it may be read alone.
//! - A record's sum covers its state, its lengths, its key and its value, and is seeded with its
//!   place. It lies in the check word, added to what the record means there by exclusive or: a
//!   record of fences thus names its leaf still.
//!
//! Sums are set as what they cover is unlatched. What a group has changed and not published has
//! none, and nothing that a reader brings of it proves itself.

use super::layout::{head, record};
use crate::layout::checksum;

/// The sum of a head, in the load of this number.
pub(super) fn head_sum(words: &[u64], loads: u64) -> u64 {
    let covered = words.iter().take(head::WORDS).enumerate();
    let covered = covered.filter(|(at, _)| *at != head::CHECKSUM);
    // planted: head-another-load-taken
    checksum(covered.map(|(_, word)| *word), loads)
}

/// Returns true if a head proves itself, and that it is of this load.
pub(super) fn is_head_whole(words: &[u64], loads: u64) -> bool {
    words.get(head::CHECKSUM).is_some_and(|sum| *sum == head_sum(words, loads))
}

/// The sum of value slot `index` of leaf `number`, without the word that it lies in.
pub(super) fn slot_sum(words: &[u64], number: u32, index: usize) -> u64 {
    checksum(words.iter().copied(), u64::from(number) << 8 | index as u64)
}

/// A value slot that proves itself, without its sum.
pub(super) fn whole_slot(words: &[u64], number: u32, index: usize) -> Option<&[u64]> {
    let (sum, words) = words.split_last()?;
    (slot_sum(words, number, index) == *sum).then_some(words)
}

/// The sum of the record that begins at a line, whose words are these, and no more.
pub(super) fn record_sum(words: &[u64], first_line: u32) -> u64 {
    let covered = words.iter().enumerate().filter(|(at, _)| *at != record::CHECK);
    checksum(covered.map(|(_, word)| *word), u64::from(first_line))
}
