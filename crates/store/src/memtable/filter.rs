//! The memtable's filter: it reports most absent keys as absent at the price of reading one word,
//! where the search would touch a cache line for every level of the list.
//!
//! It is a Bloom filter in blocks of one word. Keys are added before their entries, by relaxed
//! operations: a thread that has seen an entry, or was told of it, sees its bits as well.

use rhumb_sync::{
    prefetch::prefetch,
    primitive::{AtomicBool, AtomicU64, Ordering},
};
use xxhash_rust::xxh3::xxh3_64;

/// The number of bits that a key sets.
const PROBES: u32 = 4;

/// The bytes of a memtable for each byte of its filter: about twenty bits for an entry of 200
/// bytes.
const MEMTABLE_BYTES_PER_BYTE: u64 = 128;

/// The largest number of words of a filter: 8 MiB.
const WORDS_MAX: u64 = 1 << 20;

/// The set of keys that may be in the memtable.
pub(super) struct MemFilter {
    words: Box<[AtomicU64]>,
    /// True if any key was added. Reads of an empty memtable, as after a flush, need no word.
    is_used: AtomicBool,
}

impl MemFilter {
    /// A filter for a memtable of about `memtable_bytes`.
    pub(super) fn new(memtable_bytes: u64) -> Self {
        let words = (memtable_bytes / MEMTABLE_BYTES_PER_BYTE / 8).clamp(8, WORDS_MAX);
        Self {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            is_used: AtomicBool::new(false),
        }
    }

    /// The number of bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.words.len() * 8
    }

    /// The word of a key and its bits in it.
    #[inline]
    fn word_and_bits(&self, key: &[u8]) -> (&AtomicU64, u64) {
        let hash = xxh3_64(key);
        // The upper half of the hash selects the word; six bits each of the lower half select the
        // bits.
        let at = ((hash >> 32) * self.words.len() as u64) >> 32;
        let bits = (0..PROBES).fold(0, |bits, probe| bits | 1 << (hash >> (6 * probe) & 63));
        (&self.words[at as usize], bits)
    }

    /// Adds a key.
    #[inline]
    pub(super) fn add(&self, key: &[u8]) {
        // Loaded first, so that its cache line stays shared.
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
        let (word, bits) = self.word_and_bits(key);
        // An overwritten key leaves the cache line shared.
        if word.load(Ordering::Relaxed) & bits != bits {
            word.fetch_or(bits, Ordering::Relaxed);
        }
    }

    /// Prefetches the word of a key.
    #[inline]
    pub(super) fn prefetch(&self, key: &[u8]) {
        if self.is_used.load(Ordering::Relaxed) {
            prefetch(self.word_and_bits(key).0);
        }
    }

    /// Returns true if the key may have been added; false is certain.
    #[inline]
    pub(super) fn may_contain(&self, key: &[u8]) -> bool {
        if !self.is_used.load(Ordering::Relaxed) {
            return false;
        }
        let (word, bits) = self.word_and_bits(key);
        word.load(Ordering::Relaxed) & bits == bits
    }
}

#[cfg(test)]
mod tests {
    use super::MemFilter;

    #[test]
    fn added_keys_are_there_and_few_others() {
        let filter = MemFilter::new(1 << 20);
        let key = |n: u32| format!("key:{n:012}").into_bytes();
        (0..5000).for_each(|n| filter.add(&key(n)));
        assert!((0..5000).all(|n| filter.may_contain(&key(n))));
        let wrong = (5000..15_000).filter(|n| filter.may_contain(&key(*n))).count();
        assert!(wrong < 500, "{wrong} of 10,000 absent keys");
    }

    #[test]
    fn the_smallest_is_a_filter_too() {
        let filter = MemFilter::new(0);
        assert!(!filter.may_contain(b"a"));
        filter.add(b"a");
        assert!(filter.may_contain(b"a") && filter.bytes() == 64);
    }
}
