//! Random places, for the commands that take any key or any member. Not for secrets.

use std::{
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU64, Ordering},
};

/// A small generator; each has a beginning of its own.
pub(crate) struct Random(u64);

impl Random {
    /// A generator with an unforeseeable beginning.
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        Self(RandomState::new().hash_one(COUNT.fetch_add(1, Ordering::Relaxed)))
    }

    /// The generator of this number: always the same.
    pub(crate) fn seeded(seed: u64) -> Self {
        // Neighbouring numbers begin far from each other.
        Self(Self(seed).next())
    }

    /// The next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        // SplitMix64 (Steele, Lea, Flood, 2014): a Weyl sequence, scattered by two multiplications.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is larger than 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// A place in the order of byte strings from `first` to `last`, told apart by the eight bytes
    /// after what they have in common.
    pub(crate) fn between(&mut self, first: &[u8], last: &[u8]) -> Vec<u8> {
        let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let code = |key: &[u8]| {
            let mut bytes = [0; 8];
            let rest = key.get(common..).unwrap_or_default();
            let len = rest.len().min(8);
            bytes[..len].copy_from_slice(&rest[..len]);
            u64::from_be_bytes(bytes)
        };
        let (low, high) = (code(first), code(last));
        let at = low + self.below((high - low).saturating_add(1));
        [&first[..common], &at.to_be_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_between() {
        let mut random = Random::new();
        for _ in 0..1000 {
            let place = random.between(b"key:10", b"key:73");
            assert!(place.starts_with(b"key:") && place <= b"key:73\0\0\0\0\0\0\0".to_vec());
            assert!(place >= b"key:10".to_vec());
            assert!(random.below(3) < 3);
        }
        assert!(random.between(b"a", b"a").starts_with(b"a"));
    }
}
