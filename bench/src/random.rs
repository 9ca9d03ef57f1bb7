//! Reproducible random numbers: the same seed gives the same run on every machine.
//!
//! Not for secrets. Kept here so that a figure does not change with a dependency.

/// A xoshiro256++ generator.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

/// Scatters the bits of `x` (a bijection on 64-bit words).
#[inline]
#[must_use]
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The odd constant by which counters are spread before [`mix`].
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A 64-bit hash of `bytes`. Used for values and choices, never against an adversary.
#[inline]
#[must_use]
pub fn hash_bytes(bytes: &[u8], seed: u64) -> u64 {
    let mut state = mix(seed ^ (bytes.len() as u64).wrapping_mul(GOLDEN));
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let word = u64::from_le_bytes(word.try_into().expect("chunks of 8"));
        state = fold(state ^ word, GOLDEN);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        state = fold(state ^ u64::from_le_bytes(last), GOLDEN);
    }
    mix(state)
}

/// Multiplies to 128 bits and folds the halves.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

impl Rng {
    /// The generator of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut counter = seed;
        let state = std::array::from_fn(|_| {
            counter = counter.wrapping_add(GOLDEN);
            mix(counter)
        });
        Self { state }
    }

    /// One of many independent generators of `seed`.
    #[must_use]
    pub fn stream(seed: u64, number: u64) -> Self {
        Self::new(mix(seed).wrapping_add(mix(number.wrapping_mul(GOLDEN) ^ 0x5eed)))
    }

    /// 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// A number below `bound`; 0 if `bound` is 0. Biased by less than `bound / 2^64`.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `[0, 1)`, with 53 random bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number of the standard normal distribution (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Puts `items` in random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = self.below(i as u64 + 1) as usize;
            items.swap(i, j);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_reproducible_and_streams_differ() {
        let draw = |mut rng: Rng| (0..8).map(|_| rng.next_u64()).collect::<Vec<_>>();
        assert_eq!(draw(Rng::new(7)), draw(Rng::new(7)));
        assert_ne!(draw(Rng::new(7)), draw(Rng::new(8)));
        assert_ne!(draw(Rng::stream(7, 0)), draw(Rng::stream(7, 1)));
    }

    #[test]
    fn below_covers_its_range_evenly() {
        let mut rng = Rng::new(1);
        let mut seen = [0u32; 10];
        for _ in 0..100_000 {
            seen[rng.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (9_500..10_500).contains(&n)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn shuffle_is_a_permutation() {
        let mut items: Vec<u32> = (0..1000).collect();
        Rng::new(3).shuffle(&mut items);
        assert_ne!(items, (0..1000).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn the_hash_sees_length_and_every_byte() {
        assert_ne!(hash_bytes(b"", 0), hash_bytes(b"\0", 0));
        assert_ne!(hash_bytes(b"a\0", 0), hash_bytes(b"a", 0));
        let base = [7u8; 21];
        for i in 0..base.len() {
            let mut other = base;
            other[i] ^= 1;
            assert_ne!(hash_bytes(&base, 5), hash_bytes(&other, 5), "byte {i}");
        }
    }
}
