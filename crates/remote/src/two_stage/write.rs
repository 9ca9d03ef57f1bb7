//! Changing leaves and records in shared memory. One thread at a time writes.
//!
//! A change is made while the guard is odd. What no leaf refers to yet may be written before that.

use super::{
    layout::{
        FENCE_BYTES, FIRST, HASHED, LAST, LEAF, LONG_FENCE, SLOTS, Sizes, head, record, word_of,
        words_of,
    },
    leaf::{Fences, Head, Record},
    proof::{head_sum, record_sum, slot_sum},
};
use crate::{
    layout::format::{LATCHED, VERSION_STEP},
    primitive::{AtomicU64, Ordering, fence, point},
};

/// Has readers of what the guard `words[0]` guards try again from here on.
pub(super) fn latch(words: &[AtomicU64]) {
    let state = u64::from_le(words[0].load(Ordering::Relaxed));
    words[0].store((state | LATCHED).to_le(), Ordering::Relaxed);
    // A reader that sees what is stored from here on sees the latch when it looks again.
    fence(Ordering::Release);
    point();
}

/// Lets readers see what was done since [`latch`].
pub(super) fn unlatch(words: &[AtomicU64]) {
    point();
    words[0].store(unlatched(words).to_le(), Ordering::Release);
    point();
}

/// The guard that [`unlatch`] is to leave.
fn unlatched(words: &[AtomicU64]) -> u64 {
    let state = u64::from_le(words[0].load(Ordering::Relaxed)) & !LATCHED;
    state.wrapping_add(VERSION_STEP)
}

/// Adds the sum of the latched record at a place, which is in these words, before it is unlatched.
pub(super) fn seal_record(words: &[AtomicU64], first_line: u32) {
    let mut loaded = load(words);
    loaded[record::STATE] = unlatched(words);
    let Some(len) = Record::parse(&loaded).map(|record| record.words()) else { return };
    let sum = record_sum(&loaded[..len.min(words.len())], first_line);
    store(&words[record::CHECK..], [loaded[record::CHECK] ^ sum]);
}

/// Returns true between [`latch`] and [`unlatch`].
pub(super) fn is_latched(words: &[AtomicU64]) -> bool {
    u64::from_le(words[0].load(Ordering::Relaxed)) & LATCHED != 0
}

/// Stores words, in the region's byte order.
pub(super) fn store(words: &[AtomicU64], values: impl IntoIterator<Item = u64>) {
    for (word, value) in words.iter().zip(values) {
        word.store(value.to_le(), Ordering::Relaxed);
    }
}

/// Loads words that no other thread changes.
pub(super) fn load(words: &[AtomicU64]) -> Vec<u64> {
    words.iter().map(|word| u64::from_le(word.load(Ordering::Relaxed))).collect()
}

fn store_bytes(words: &[AtomicU64], bytes: &[u8]) {
    store(words, bytes.chunks(8).map(word_of));
}

/// Writes a record into a piece that is latched.
pub(super) fn write_record(
    words: &[AtomicU64],
    (key, value): (&[u8], &[u8]),
    kind: u8,
    value_len: usize,
    check: u64,
) {
    let lengths = key.len() as u64 | u64::from(kind) << 16 | (value_len as u64) << 32;
    store(&words[record::LENGTHS..], [lengths, check]);
    store_bytes(&words[record::KEY..], key);
    store_bytes(&words[record::KEY + words_of(key.len())..], value);
}

/// The pair of a slot: what its key slot and its value slot hold. A leaf of hashes has no value
/// slots.
#[derive(Clone, Debug, Default)]
pub(super) struct Pair {
    pub(super) key: u64,
    pub(super) value: Vec<u64>,
}

/// A leaf in shared memory.
#[derive(Clone, Copy)]
pub(super) struct LeafWriter<'m> {
    words: &'m [AtomicU64],
    sizes: Sizes,
}

impl<'m> LeafWriter<'m> {
    /// The leaf in `words`, which is as long as a leaf.
    pub(super) fn new(words: &'m [AtomicU64], sizes: Sizes) -> Self {
        Self { words, sizes }
    }

    /// The guard, and what it guards.
    pub(super) fn words(&self) -> &'m [AtomicU64] {
        self.words
    }

    /// Its head.
    pub(super) fn head(&self, number: u32) -> Option<Head> {
        let words = load(&self.words[..head::WORDS]);
        Head::parse(number, &words, words[head::STATE])
    }

    /// The words of a value slot.
    pub(super) fn slot(&self, index: usize) -> Vec<u64> {
        load(self.slot_words(index))
    }

    fn slot_words(&self, index: usize) -> &'m [AtomicU64] {
        &self.words[self.sizes.slot_word(index)..][..self.sizes.slot_words()]
    }

    /// Makes a pair number `index` of the leaf, which is latched.
    pub(super) fn put(&self, index: usize, pair: &Pair) {
        store(&self.words[head::KEYS + index..], [pair.key]);
        let rest = std::iter::repeat(0);
        store(self.slot_words(index), pair.value.iter().copied().chain(rest));
    }

    /// Sets the sums of leaf `number`, which is latched, before it is unlatched in the load of this
    /// number.
    pub(super) fn seal(&self, number: u32, loads: u64) {
        let mut first = load(&self.words[..head::WORDS]);
        // planted: head-sum-guard-before
        first[head::STATE] = unlatched(self.words);
        let leaf = Head::parse(number, &first, first[head::STATE]);
        let slots = leaf.filter(Head::is_exact).map_or(0, |leaf| leaf.count);
        for index in 0..slots {
            let slot = self.slot(index);
            let covered = &slot[..slot.len() - 1];
            store(&self.slot_words(index)[covered.len()..], [slot_sum(covered, number, index)]);
        }
        store(&self.words[head::CHECKSUM..], [head_sum(&first, loads)]);
    }

    /// Sets the number of pairs of the leaf, which is latched.
    pub(super) fn set_count(&self, count: usize) {
        let header = u64::from_le(self.words[head::HEADER].load(Ordering::Relaxed));
        store(&self.words[head::HEADER..], [header & !(0xff << 24) | (count as u64) << 24]);
    }

    /// Removes pair `index` of the leaf, which is latched: the last one takes its place.
    pub(super) fn remove(&self, index: usize, count: usize) {
        let last = count - 1;
        let key = load(&self.words[head::KEYS + last..][..1])[0];
        self.put(index, &Pair { key, value: self.slot(last) });
        self.put(last, &Pair::default());
        self.set_count(last);
    }

    /// Puts a whole leaf in place of what is there, which is latched.
    pub(super) fn write(&self, draft: &Draft<'_>) {
        let header = u64::from(draft.incarnation & 0xff_ffff)
            | (draft.pairs.len() as u64) << 24
            | u64::from(draft.next) << 32;
        let (shape, low, high) = draft.shape();
        store(&self.words[head::HEADER..], [header, shape, low, high, 0]);
        let none = Pair::default();
        for index in 0..SLOTS {
            self.put(index, draft.pairs.get(index).unwrap_or(&none));
        }
    }
}

/// A leaf that is to be written.
pub(super) struct Draft<'d> {
    pub(super) incarnation: u32,
    pub(super) next: u32,
    pub(super) is_exact: bool,
    pub(super) fences: &'d Fences,
    /// Where the record of fences is, if one is needed.
    pub(super) fences_record: Option<u32>,
    pub(super) pairs: &'d [Pair],
}

impl Draft<'_> {
    /// The words of shape and fences.
    fn shape(&self) -> (u64, u64, u64) {
        let mut shape = u64::from(LEAF | if self.is_exact { 0 } else { HASHED });
        let mut words = [0; 2];
        let ends = [(&self.fences.low, FIRST, 8), (&self.fences.high, LAST, 12)];
        for (word, (fence, flag, shift)) in words.iter_mut().zip(ends) {
            let Some(fence) = fence else {
                shape |= u64::from(flag);
                continue;
            };
            *word = rhumb_model::code::code_at(fence, 0);
            let len = if fence.len() <= FENCE_BYTES { fence.len() as u64 } else { LONG_FENCE };
            shape |= len << shift;
        }
        if let Some(first_line) = self.fences_record {
            let lines = fences_lines(self.fences);
            shape |= u64::from(lines) << 16 | u64::from(first_line) << 32;
        }
        (shape, words[0], words[1])
    }
}

/// Lines of the record that these fences need; 0 if they lie in the head.
pub(super) fn fences_lines(fences: &Fences) -> u32 {
    let len = |fence: &Option<Vec<u8>>| fence.as_ref().map_or(0, Vec::len);
    let (low, high) = (len(&fences.low), len(&fences.high));
    if low.max(high) <= FENCE_BYTES { 0 } else { Record::lines_for(low, high) }
}
