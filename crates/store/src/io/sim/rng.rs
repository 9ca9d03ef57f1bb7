//! A small seeded generator, so that a simulation is repeated exactly by its seed.

/// A seeded generator of numbers (SplitMix64). Not for secrets.
#[derive(Clone, Debug)]
pub struct SimRng(u64);

impl SimRng {
    /// A generator whose whole sequence follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, uniform over all of `u64`.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which must be above 0; nearly uniform for small bounds.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound
    }

    /// An index into something of `len` items, which must be above 0.
    pub fn index(&mut self, len: usize) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "below a usize")]
        return self.below(len as u64) as usize;
    }

    /// Returns true in `numerator` of `denominator` cases.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }
}
