//! Values that a reader can check to the last byte without remembering them.
//!
//! A value is a function of the run's seed, the key and a version number, which stands in its first
//! four bytes. A value of another key, an old version under a new number, and any changed byte are
//! all recognised.

use crate::random::{GOLDEN, hash_bytes, mix};

/// The smallest value that can carry its version and still be checked, in bytes.
pub const VALUE_BYTES_MIN: usize = 8;

/// Bytes at the head of a value that hold its version.
const VERSION_BYTES: usize = 4;

/// Makes and checks the values of one run.
#[derive(Clone, Copy, Debug)]
pub struct Values {
    size: usize,
    /// Bytes at the front that do not repeat; the rest repeats one word.
    distinct: usize,
    seed: u64,
}

impl Values {
    /// Values of `size` bytes, of which `redundancy_percent` can be compressed away.
    ///
    /// # Errors
    /// If `size` is below [`VALUE_BYTES_MIN`] or `redundancy_percent` over 100.
    pub fn new(size: usize, redundancy_percent: u32, seed: u64) -> anyhow::Result<Self> {
        anyhow::ensure!(
            size >= VALUE_BYTES_MIN,
            "a value needs {VALUE_BYTES_MIN} bytes to be verified, not {size}"
        );
        anyhow::ensure!(redundancy_percent <= 100, "{redundancy_percent} is over 100 percent");
        let repeated = size * redundancy_percent as usize / 100;
        Ok(Self { size, distinct: (size - repeated).max(VALUE_BYTES_MIN), seed: mix(seed) })
    }

    /// The length of each value, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Replaces the contents of `out` by the value of `key` at `version`.
    pub fn fill(&self, key: &[u8], version: u32, out: &mut Vec<u8>) {
        out.clear();
        self.append(key, version, out);
    }

    /// Appends the value of `key` at `version` to `out`.
    pub fn append(&self, key: &[u8], version: u32, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&version.to_le_bytes());
        let base = self.base(key, version);
        let mut i = 0;
        while out.len() - start < self.size {
            let word = self.word(base, i).to_le_bytes();
            let room = self.size - (out.len() - start);
            out.extend_from_slice(&word[..room.min(8)]);
            i += 1;
        }
    }

    /// The version of `value`, if it is exactly what `key` had at that version.
    #[inline]
    #[must_use]
    pub fn version_of(&self, key: &[u8], value: &[u8]) -> Option<u32> {
        if value.len() != self.size {
            return None;
        }
        let (head, body) = value.split_at(VERSION_BYTES);
        let version = u32::from_le_bytes(head.try_into().ok()?);
        let base = self.base(key, version);
        let words = body.chunks_exact(8);
        let rest = words.remainder();
        let count = body.len() / 8;
        // All differences are gathered before the one branch: a right value, the usual one, is
        // checked at memory speed.
        let mut difference = 0;
        for (i, word) in words.enumerate() {
            difference |= u64::from_le_bytes(word.try_into().ok()?) ^ self.word(base, i);
        }
        let tail = &self.word(base, count).to_le_bytes()[..rest.len()];
        (difference == 0 && rest == tail).then_some(version)
    }

    fn base(&self, key: &[u8], version: u32) -> u64 {
        hash_bytes(key, self.seed ^ u64::from(version).wrapping_mul(GOLDEN))
    }

    /// The `i`-th word after the version.
    #[inline]
    fn word(&self, base: u64, i: usize) -> u64 {
        let i = i.min(self.distinct / 8);
        base.wrapping_add((i as u64).wrapping_mul(GOLDEN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_recognised_and_any_change_is_not() {
        for size in [8, 9, 12, 20, 100, 257] {
            for redundancy in [0, 50, 100] {
                let values = Values::new(size, redundancy, 42).expect("valid");
                let mut value = Vec::new();
                values.fill(b"key", 7, &mut value);
                assert_eq!(value.len(), size);
                assert_eq!(values.version_of(b"key", &value), Some(7));
                assert_eq!(values.version_of(b"kez", &value), None);
                assert_eq!(values.version_of(b"key", &value[..size - 1]), None);
                for byte in 0..size {
                    value[byte] ^= 0x10;
                    assert_eq!(values.version_of(b"key", &value), None, "{size} byte {byte}");
                    value[byte] ^= 0x10;
                }
            }
        }
    }

    #[test]
    fn a_value_of_another_run_is_not_recognised() {
        let (a, b) = (Values::new(64, 0, 1), Values::new(64, 0, 2));
        let (a, b) = (a.expect("valid"), b.expect("valid"));
        let mut value = Vec::new();
        a.fill(b"key", 0, &mut value);
        assert_eq!(b.version_of(b"key", &value), None);
    }

    #[test]
    fn sizes_that_cannot_be_verified_are_refused() {
        assert!(Values::new(VALUE_BYTES_MIN - 1, 0, 0).is_err());
        assert!(Values::new(100, 101, 0).is_err());
    }
}
