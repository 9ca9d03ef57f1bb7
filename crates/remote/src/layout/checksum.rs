//! The checksum of words, by which parts of a region prove themselves to readers without order.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Words that are hashed at once: most of what has a sum.
const CHUNK_WORDS: usize = 32;

/// The checksum of words in the region's byte order, which is little-endian.
pub(crate) fn checksum(words: impl IntoIterator<Item = u64>, seed: u64) -> u64 {
    let mut chunk = [[0; 8]; CHUNK_WORDS];
    let (mut sum, mut len) = (seed, 0);
    for word in words {
        chunk[len] = word.to_le_bytes();
        len += 1;
        if len == CHUNK_WORDS {
            sum = xxh3_64_with_seed(chunk.as_flattened(), sum);
            len = 0;
        }
    }
    xxh3_64_with_seed(chunk[..len].as_flattened(), sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_and_the_seed_count() {
        for count in [0, 1, 31, 32, 33, 127] {
            let words: Vec<u64> = (0..count).collect();
            let sum = checksum(words.iter().copied(), 5);
            assert_ne!(sum, checksum(words.iter().copied(), 6));
            assert_ne!(sum, checksum(words.iter().copied().chain([0]), 5));
            for at in 0..words.len() {
                let mut other = words.clone();
                other[at] ^= 1 << (at % 64);
                assert_ne!(sum, checksum(other, 5));
            }
        }
    }

    /// Other sums are another format.
    #[test]
    fn golden_checksum() {
        assert_eq!(checksum(0..40, 7), GOLDEN);
    }

    const GOLDEN: u64 = 14_785_788_586_269_744_492;
}
