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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_repeat_and_differ() {
        let draws = |seed: u64| {
            let mut random = Random::seeded(seed);
            (0..1000).map(|_| random.below(1000)).collect::<Vec<u64>>()
        };
        assert!(draws(1) == draws(1) && draws(1) != draws(2));
        assert!(draws(1).iter().all(|drawn| *drawn < 1000));
        // The first draws of neighbouring seeds are as random as those of one: each thousandth ten
        // times, more or less.
        let mut counts = [0; 1000];
        (0..10_000).for_each(|seed| counts[Random::seeded(seed).below(1000) as usize] += 1);
        assert!(counts.iter().all(|count| (0..40).contains(count)));
        assert!(counts.iter().filter(|count| **count == 0).count() < 5);
    }
}
