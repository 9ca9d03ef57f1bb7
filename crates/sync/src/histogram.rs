//! Histograms of times: four buckets for each power of two of nanoseconds, which threads count in
//! without waiting for each other. A time is known to a quarter of itself.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The number of buckets: up to 2^42 nanoseconds, 73 minutes. What took longer is in the last.
pub const BUCKETS: usize = 4 * 40;

/// The bucket of a time in nanoseconds.
#[must_use]
pub fn bucket_of(ns: u64) -> usize {
    let ns = ns.max(4);
    let power = ns.ilog2() as usize;
    let quarter = (ns >> (power - 2)) as usize & 3;
    ((power - 2) * 4 + quarter).min(BUCKETS - 1)
}

/// The time at which a bucket ends, in nanoseconds: all times in it are shorter.
#[must_use]
pub fn bucket_end(bucket: usize) -> u64 {
    (5 + bucket as u64 % 4) << (bucket / 4)
}

/// Counters of all buckets.
#[derive(Debug)]
pub struct Times(Box<[AtomicU64]>);

impl Default for Times {
    fn default() -> Self {
        Self((0..BUCKETS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Times {
    /// Counts a time in nanoseconds.
    pub fn count(&self, ns: u64) {
        self.0[bucket_of(ns)].fetch_add(1, Relaxed);
    }

    /// The counts so far, by bucket.
    #[must_use]
    pub fn counts(&self) -> Box<[u64]> {
        self.0.iter().map(|bucket| bucket.load(Relaxed)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_within_their_buckets() {
        for ns in [1, 4, 5, 7, 8, 100, 1023, 1024, 1_000_000, 123_456_789] {
            let bucket = bucket_of(ns);
            assert!(ns < bucket_end(bucket), "{ns}");
            assert!(bucket == 0 || bucket_end(bucket - 1) <= ns.max(4), "{ns}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }
}
