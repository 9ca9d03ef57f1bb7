//! Checks of what was read of a leaf without order, by the sums of [`proof`](super::proof).

use super::{
    Leaf, Record,
    proof::{head_sum, prefix_seed, record_seed, record_sum, record_words},
};
use crate::{
    layout::{
        Geometry, Memory,
        format::{LATCHED, head},
    },
    primitive::AtomicU64,
};

/// The words of one record, as they lie in a leaf of which there is nothing else.
pub(crate) struct Lone<'w> {
    begin: usize,
    words: &'w [AtomicU64],
}

impl<'w> Lone<'w> {
    /// The words that begin at word `begin` of a leaf.
    pub(crate) fn new(begin: usize, words: &'w [AtomicU64]) -> Self {
        Self { begin, words }
    }
}

impl Memory for Lone<'_> {
    fn load(&self, index: usize) -> u64 {
        index.checked_sub(self.begin).map_or(0, |index| self.words.load(index))
    }

    fn words(&self) -> usize {
        self.begin + self.words.len()
    }
}

/// Returns true if the head proves itself. What is beyond the words that there are is 0.
pub(crate) fn is_head_whole<M: Memory + ?Sized>(memory: &M, geometry: Geometry) -> bool {
    let state = memory.load(head::STATE);
    memory.load(head::CHECKSUM) == head_sum(memory, geometry, state)
}

/// Returns true if the record at an offset proves itself, in a leaf whose seed this is.
pub(crate) fn is_record_whole<M: Memory + ?Sized>(memory: &M, offset: usize, seed: u64) -> bool {
    record_words(memory, offset).is_some_and(|words| {
        let sum = memory.load(words.end);
        record_sum(memory, words, seed) == sum
    })
}

/// The record that begins with the first of these words, if it proves itself in a leaf of this
/// prefix.
pub(crate) fn lone_record<'w, 'l>(
    lone: &'w Lone<'l>,
    geometry: Geometry,
    prefix: &[u8],
) -> Option<Record<'w, Lone<'l>>> {
    let offset = lone.begin * 8;
    // planted: record-hint-names-not-proven
    is_record_whole(lone, offset, prefix_seed(prefix)).then_some(())?;
    Leaf::new(lone, geometry).record_at(offset)
}

/// Returns true if all of a leaf is there, as it was at one moment.
pub(crate) fn is_leaf_whole<M: Memory + ?Sized>(memory: &M, geometry: Geometry) -> bool {
    if memory.load(head::STATE) & LATCHED != 0 || !is_head_whole(memory, geometry) {
        return false;
    }
    let (leaf, seed) = (Leaf::new(memory, geometry), record_seed(memory, geometry));
    let mut left = memory.load(geometry.records_sum_word());
    for index in 0..leaf.head().count {
        let Some(words) = record_words(memory, leaf.offset(index)) else { return false };
        let sum = memory.load(words.end);
        if record_sum(memory, words, seed) != sum {
            return false;
        }
        left = left.wrapping_sub(sum);
    }
    left == 0
}
