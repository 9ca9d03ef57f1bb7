//! The filter of a table: says of most absent keys that they are absent, at the price of one cache
//! line.
//!
//! A Bloom filter in blocks of 512 bits (Putze, Sanders and Singler, "Cache-, hash- and
//! space-efficient Bloom filters", 2007): a key's hash picks one block, and all its bits lie in
//! that block. Pinned in memory while the table is open.

use std::sync::Arc;

use rhumb_sync::{arena::Arena, bulk::Bulk, mapping::Gauge, placed::Placed, prefetch::prefetch};

use super::hash::KeyHash;

/// Bytes of a filter block: one cache line.
pub(crate) const BLOCK_BYTES: usize = 64;
/// Bytes before the blocks of an encoded filter: probe count u8 and seven of zero.
pub(crate) const HEADER_BYTES: usize = 8;
/// The number of bits that a key sets at ten bits of filter per key.
const PROBES_DEFAULT: u8 = 6;
/// The most bits that a key sets.
const PROBES_MAX: u8 = 14;
/// The number of bits of a hash that name one bit of a block.
const BIT_INDEX_BITS: u32 = 9;
/// The number of probes that one 64-bit product yields.
const PROBES_PER_WORD: u8 = 7;

/// Odd constants that spread a hash over the probes: from the golden ratio and from pi.
const MULTIPLIERS: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0x2437_54A2_5E4D_2B2F];

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Block([u64; 8]);

/// Collects the hashes of a table's distinct keys; eight bytes each until it is encoded.
#[derive(Debug)]
pub(crate) struct FilterBuilder {
    bits_per_key: u8,
    hashes: Bulk<u64>,
}

impl FilterBuilder {
    /// A filter of `bits_per_key` bits for every key; 0 means none.
    pub(crate) fn new(bits_per_key: u8) -> Self {
        Self { bits_per_key, hashes: Bulk::default() }
    }

    /// The same builder, with its memory counted by `gauge`. To be called before the first key.
    pub(crate) fn counted_by(self, gauge: &Gauge) -> Self {
        Self { hashes: Bulk::new(gauge), ..self }
    }

    /// Adds a key.
    pub(crate) fn push(&mut self, hash: KeyHash) {
        if self.bits_per_key > 0 {
            self.hashes.push(hash.bits());
        }
    }

    /// About the number of bytes that [`FilterBuilder::encode`] returns.
    pub(crate) fn bytes_estimate(&self) -> usize {
        self.hashes.len() * usize::from(self.bits_per_key) / 8 + BLOCK_BYTES
    }

    /// The encoded filter; empty if there is none.
    pub(crate) fn encode(&self) -> Bulk<u8> {
        let mut out = self.hashes.another();
        if self.bits_per_key == 0 {
            return out;
        }
        let bits = self.hashes.len() * usize::from(self.bits_per_key);
        let count = bits.div_ceil(BLOCK_BYTES * 8).max(1);
        let probes = probes_for(self.bits_per_key);
        out.resize(HEADER_BYTES + count * BLOCK_BYTES, 0);
        out[0] = probes;
        let (words, _) = out[HEADER_BYTES..].as_chunks_mut::<8>();
        for hash in &*self.hashes {
            let block = block_of(*hash, count) * (BLOCK_BYTES / 8);
            let block = &mut words[block..block + BLOCK_BYTES / 8];
            for_each_bit(*hash, probes, |at, bit| {
                block[at] = (u64::from_le_bytes(block[at]) | bit).to_le_bytes();
            });
        }
        out
    }
}

/// A table's filter in memory.
pub(crate) struct Filter {
    /// Empty if there is no filter: then every key may be there.
    blocks: Placed<Block>,
    probes: u8,
}

impl Filter {
    /// Reads an encoded filter into memory of `arena`. The error says what was expected.
    pub(crate) fn decode(bytes: &[u8], arena: &Arc<Arena>) -> Result<Self, &'static str> {
        if bytes.is_empty() {
            return Ok(Self { blocks: Placed::empty(), probes: 0 });
        }
        let Some((head, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err("a filter header");
        };
        let [probes, rest @ ..] = *head;
        if !(1..=PROBES_MAX).contains(&probes) || rest != [0; 7] {
            return Err("1 to 14 probes and seven zero bytes");
        }
        if body.is_empty() || !body.len().is_multiple_of(BLOCK_BYTES) {
            return Err("whole filter blocks");
        }
        let (words, _) = body.as_chunks::<8>();
        let (blocks, _) = words.as_chunks::<8>();
        let blocks = blocks.iter().map(|words| Block(words.map(u64::from_le_bytes)));
        Ok(Self { blocks: Placed::new(arena, blocks), probes })
    }

    /// Prefetches the line that [`Filter::may_contain`] reads.
    #[inline]
    pub(crate) fn prefetch(&self, hash: KeyHash) {
        if let Some(block) = self.blocks.get(block_of(hash.bits(), self.blocks.len())) {
            prefetch(block);
        }
    }

    /// Returns true if the table may hold a key of this hash; `false` is certain.
    #[inline]
    pub(crate) fn may_contain(&self, hash: KeyHash) -> bool {
        if self.blocks.is_empty() {
            return true;
        }
        let block = &self.blocks[block_of(hash.bits(), self.blocks.len())];
        // Branch-free: the line is the cost, and which bit is missing cannot be predicted. The
        // default number of probes is a constant to the compiler, which unrolls it.
        let mut missing = 0;
        let probe = |word: usize, bit: u64| missing |= !block.0[word] & bit;
        if self.probes == PROBES_DEFAULT {
            for_each_bit(hash.bits(), PROBES_DEFAULT, probe);
        } else {
            for_each_bit(hash.bits(), self.probes, probe);
        }
        missing == 0
    }

    /// Bytes of memory.
    pub(crate) fn resident_bytes(&self) -> usize {
        self.blocks.memory_bytes()
    }
}

/// The block of a hash: its high half scaled to the count of blocks.
#[inline]
fn block_of(hash: u64, count: usize) -> usize {
    (((hash >> 32) * count as u64) >> 32) as usize
}

/// Calls `act` with the word and the bit of each probe.
#[inline(always)]
fn for_each_bit(hash: u64, probes: u8, mut act: impl FnMut(usize, u64)) {
    let mut left = probes;
    for multiplier in MULTIPLIERS {
        let mut bits = (hash ^ (hash >> 32)).wrapping_mul(multiplier);
        for _ in 0..left.min(PROBES_PER_WORD) {
            let index = bits >> (64 - BIT_INDEX_BITS);
            act((index >> 6) as usize, 1 << (index & 63));
            bits <<= BIT_INDEX_BITS;
        }
        if left <= PROBES_PER_WORD {
            return;
        }
        left -= PROBES_PER_WORD;
    }
}

/// The number of probes that lets the fewest absent keys through: a little fewer than bits per key
/// times ln 2, because blocks fill unevenly.
fn probes_for(bits_per_key: u8) -> u8 {
    let probes = u32::from(bits_per_key) * 3 / 5;
    u8::try_from(probes).map_or(PROBES_MAX, |probes| probes.clamp(1, PROBES_MAX))
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use rhumb_sync::mapping::Gauge;

    fn hash(number: u64) -> KeyHash {
        KeyHash::of(&number.to_le_bytes())
    }

    fn decode(bytes: &[u8]) -> Result<Filter, &'static str> {
        Filter::decode(bytes, &Arc::new(Arena::new(&Gauge::default())))
    }

    fn filter_of(keys: u64, bits_per_key: u8) -> Filter {
        let mut builder = FilterBuilder::new(bits_per_key);
        (0..keys).for_each(|key| builder.push(hash(key)));
        decode(&builder.encode()).unwrap()
    }

    #[test]
    fn no_key_is_missed_and_few_strangers_pass() {
        for (bits_per_key, most_in_10_000) in [(1, 7000), (5, 1400), (10, 140), (16, 25), (32, 3)] {
            let filter = filter_of(200_000, bits_per_key);
            assert!((0..200_000).all(|key| filter.may_contain(hash(key))));
            let passed =
                (1 << 40..(1 << 40) + 100_000).filter(|key| filter.may_contain(hash(*key)));
            let in_10_000 = passed.count() / 10;
            assert!(in_10_000 <= most_in_10_000, "{bits_per_key} bits: {in_10_000} in 10000");
        }
    }

    #[test]
    fn without_bits_everything_passes() {
        let filter = filter_of(100, 0);
        assert!(filter.may_contain(hash(12345)));
        assert_eq!(filter.resident_bytes(), 0);
    }

    #[test]
    fn an_empty_filter_lets_nothing_through() {
        assert!((0..1000).all(|key| !filter_of(0, 10).may_contain(hash(key))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in vec(any::<u8>(), 0..300), key: u64) {
            if let Ok(filter) = decode(&bytes) {
                filter.may_contain(hash(key));
            }
            let mut framed = vec![9, 0, 0, 0, 0, 0, 0, 0];
            framed.extend(&bytes);
            if let Ok(filter) = decode(&framed) {
                filter.may_contain(hash(key));
            }
        }
    }
}
