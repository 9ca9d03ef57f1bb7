//! What HyperLogLogs compute: the hash of an element, and the estimate of how many there were.

/// Bits of the hash that choose the register.
const INDEX_BITS: u32 = 14;

/// Registers.
pub(super) const REGISTERS: usize = 1 << INDEX_BITS;

/// Bits of the hash in which zeros are counted.
const COUNTED_BITS: u32 = 64 - INDEX_BITS;

/// The hash's seed in Redis.
const SEED: u64 = 0xADC8_3B19;

/// MurmurHash64A, with the seed of Redis.
fn hash(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0xC6A4_A793_5BD1_E995;
    let mix = |word: u64| {
        let word = word.wrapping_mul(FACTOR);
        (word ^ word >> 47).wrapping_mul(FACTOR)
    };
    let mut state = SEED ^ (bytes.len() as u64).wrapping_mul(FACTOR);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        state = (state ^ mix(u64::from_le_bytes(*word))).wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        state = (state ^ u64::from_le_bytes(last)).wrapping_mul(FACTOR);
    }
    state = (state ^ state >> 47).wrapping_mul(FACTOR);
    state ^ state >> 47
}

/// The register of an element, and what it is at least: one more than the zeros at the end of the
/// hash's other bits.
pub(super) fn place(element: &[u8]) -> (usize, u8) {
    let hash = hash(element);
    let counted = hash >> INDEX_BITS | 1 << COUNTED_BITS;
    (hash as usize & (REGISTERS - 1), counted.trailing_zeros() as u8 + 1)
}

/// How many registers have each value.
pub(super) type Histogram = [u32; 64];

/// The estimate of Otmar Ertl, "New cardinality estimation algorithms for HyperLogLog sketches"
/// (2017), which Redis computes.
pub(super) fn estimate(histogram: &Histogram) -> i64 {
    /// 1 / (2 ln 2).
    const ALPHA: f64 = 0.721_347_520_444_481_7;
    let m = REGISTERS as f64;
    let full = f64::from(histogram[COUNTED_BITS as usize + 1]);
    let mut z = m * tau((m - full) / m);
    for value in (1..=COUNTED_BITS as usize).rev() {
        z = (z + f64::from(histogram[value])) * 0.5;
    }
    z += m * sigma(f64::from(histogram[0]) / m);
    (ALPHA * m * m / z).round() as i64
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_elements_are_none_and_full_registers_are_many() {
        let mut histogram = [0; 64];
        histogram[0] = REGISTERS as u32;
        assert_eq!(estimate(&histogram), 0);
        histogram[0] -= 1;
        histogram[1] = 1;
        assert_eq!(estimate(&histogram), 1);
        let mut full = [0; 64];
        full[COUNTED_BITS as usize + 1] = REGISTERS as u32;
        assert_eq!(estimate(&full), i64::MAX);
    }

    #[test]
    fn every_length_has_a_hash_of_its_own() {
        let mut seen = std::collections::HashSet::new();
        assert!((0..64).all(|len| seen.insert(hash(&vec![0; len]))));
    }
}
