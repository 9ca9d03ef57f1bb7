//! Figures of the server: counters that commands add to, and how they are read.
//!
//! Times are taken once for each batch of commands that a client sent together, so that a figure
//! costs no command its speed.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Buckets of the latency histogram: four for each power of two of nanoseconds.
const BUCKETS: usize = 4 * 40;

/// All figures.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// By a command's place in the table.
    calls: Box<[AtomicU64]>,
    latency: Box<[AtomicU64]>,
    latency_ns_total: AtomicU64,
    /// The longest command since this was taken last.
    latency_ns_max: AtomicU64,
    /// `GET`s of absent keys.
    absent: AtomicU64,
    input_bytes: AtomicU64,
    output_bytes: AtomicU64,
    expired_keys: AtomicU64,
    reclaimed_collections: AtomicU64,
    protocol_errors: AtomicU64,
    refused_passwords: AtomicU64,
    slow_commands: AtomicU64,
    /// Commands of the last second.
    per_second: AtomicU64,
    last_total: AtomicU64,
}

fn zeros(len: usize) -> Box<[AtomicU64]> {
    (0..len).map(|_| AtomicU64::new(0)).collect()
}

impl Metrics {
    /// Nothing counted, of this number of commands.
    pub(crate) fn new(commands: usize) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            calls: zeros(commands),
            latency: zeros(BUCKETS),
            latency_ns_total: zero(),
            latency_ns_max: zero(),
            absent: zero(),
            input_bytes: zero(),
            output_bytes: zero(),
            expired_keys: zero(),
            reclaimed_collections: zero(),
            protocol_errors: zero(),
            refused_passwords: zero(),
            slow_commands: zero(),
            per_second: zero(),
            last_total: zero(),
        }
    }

    /// Counts calls of a command.
    #[inline]
    pub(crate) fn count(&self, command: usize, calls: usize) {
        self.calls[command].fetch_add(calls as u64, Relaxed);
    }

    /// Counts a batch of commands that took so long together: each takes its share.
    pub(crate) fn count_batch(&self, commands: usize, time: Duration, input: usize, output: usize) {
        self.input_bytes.fetch_add(input as u64, Relaxed);
        self.output_bytes.fetch_add(output as u64, Relaxed);
        if commands > 0 {
            let total = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            self.latency_ns_total.fetch_add(total, Relaxed);
            let each = total / commands as u64;
            self.latency[bucket_of(each)].fetch_add(commands as u64, Relaxed);
            // Looked at first: it seldom changes.
            if each > self.latency_ns_max.load(Relaxed) {
                self.latency_ns_max.fetch_max(each, Relaxed);
            }
        }
    }

    /// Counts `GET`s of absent keys.
    #[inline]
    pub(crate) fn count_absent(&self, keys: usize) {
        if keys > 0 {
            self.absent.fetch_add(keys as u64, Relaxed);
        }
    }

    pub(crate) fn absent(&self) -> u64 {
        self.absent.load(Relaxed)
    }

    pub(crate) fn count_expired(&self, keys: u64) {
        self.expired_keys.fetch_add(keys, Relaxed);
    }

    pub(crate) fn count_reclaimed(&self) {
        self.reclaimed_collections.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_protocol_error(&self) {
        self.protocol_errors.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_refused_password(&self) {
        self.refused_passwords.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_slow(&self) {
        self.slow_commands.fetch_add(1, Relaxed);
    }

    pub(crate) fn slow_commands(&self) -> u64 {
        self.slow_commands.load(Relaxed)
    }

    /// Calls of the command at a place of the table.
    pub(crate) fn calls(&self, command: usize) -> u64 {
        self.calls[command].load(Relaxed)
    }

    pub(crate) fn commands_total(&self) -> u64 {
        self.calls.iter().map(|calls| calls.load(Relaxed)).sum()
    }

    pub(crate) fn commands_per_second(&self) -> u64 {
        self.per_second.load(Relaxed)
    }

    pub(crate) fn input_bytes(&self) -> u64 {
        self.input_bytes.load(Relaxed)
    }

    pub(crate) fn output_bytes(&self) -> u64 {
        self.output_bytes.load(Relaxed)
    }

    pub(crate) fn expired_keys(&self) -> u64 {
        self.expired_keys.load(Relaxed)
    }

    pub(crate) fn reclaimed_collections(&self) -> u64 {
        self.reclaimed_collections.load(Relaxed)
    }

    pub(crate) fn protocol_errors(&self) -> u64 {
        self.protocol_errors.load(Relaxed)
    }

    pub(crate) fn refused_passwords(&self) -> u64 {
        self.refused_passwords.load(Relaxed)
    }

    /// Nanoseconds of all commands together.
    pub(crate) fn latency_ns_total(&self) -> u64 {
        self.latency_ns_total.load(Relaxed)
    }

    /// The longest command since this was called last, in nanoseconds.
    pub(crate) fn take_latency_ns_max(&self) -> u64 {
        self.latency_ns_max.swap(0, Relaxed)
    }

    /// The histogram of latencies since the start.
    pub(crate) fn latencies(&self) -> Histogram {
        Histogram(self.latency.iter().map(|bucket| bucket.load(Relaxed)).collect())
    }

    /// Calls of every command, by its place in the table.
    pub(crate) fn all_calls(&self) -> Box<[u64]> {
        self.calls.iter().map(|calls| calls.load(Relaxed)).collect()
    }

    /// Ends a second.
    pub(crate) fn end_second(&self) {
        let total = self.commands_total();
        let before = self.last_total.swap(total, Relaxed);
        self.per_second.store(total.saturating_sub(before), Relaxed);
    }

    /// Begins again at zero.
    pub(crate) fn reset(&self) {
        let one_by_one = [
            &self.latency_ns_total,
            &self.latency_ns_max,
            &self.absent,
            &self.input_bytes,
            &self.output_bytes,
            &self.expired_keys,
            &self.reclaimed_collections,
            &self.protocol_errors,
            &self.refused_passwords,
            &self.slow_commands,
            &self.last_total,
        ];
        let all = self.calls.iter().chain(self.latency.iter()).chain(one_by_one);
        all.for_each(|counter| counter.store(0, Relaxed));
    }
}

/// How many commands took how long.
#[derive(Clone, Debug)]
pub(crate) struct Histogram(Box<[u64]>);

impl Histogram {
    /// What was counted since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        // The counters may have begun again at zero meanwhile.
        Self(self.0.iter().zip(&before.0).map(|(now, then)| now.saturating_sub(*then)).collect())
    }

    /// How many commands.
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// How many commands took less than two to the power of `exponent` nanoseconds; it is at least
    /// 3.
    pub(crate) fn below(&self, exponent: u32) -> u64 {
        let buckets = (4 * (exponent as usize - 2)).min(BUCKETS);
        self.0[..buckets].iter().sum()
    }

    /// The nanoseconds that this share of the commands did not pass; 0 if there were none. At most
    /// a quarter too high.
    pub(crate) fn percentile_ns(&self, share: f64) -> u64 {
        let wanted = (self.count() as f64 * share).ceil() as u64;
        let mut passed = 0;
        for (bucket, count) in self.0.iter().enumerate() {
            passed += count;
            if passed >= wanted && passed > 0 {
                return bucket_end(bucket);
            }
        }
        0
    }
}

/// The bucket of a time in nanoseconds.
fn bucket_of(ns: u64) -> usize {
    let ns = ns.max(4);
    let power = ns.ilog2() as usize;
    let quarter = (ns >> (power - 2)) as usize & 3;
    ((power - 2) * 4 + quarter).min(BUCKETS - 1)
}

/// The time at which a bucket ends, in nanoseconds.
fn bucket_end(bucket: usize) -> u64 {
    (5 + bucket as u64 % 4) << (bucket / 4)
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

    #[test]
    fn percentiles_are_a_quarter_off_at_most() {
        let metrics = Metrics::new(1);
        assert_eq!(metrics.latencies().percentile_ns(0.5), 0);
        for us in 1..=100 {
            metrics.count_batch(1, Duration::from_micros(us), 0, 0);
        }
        let before = metrics.latencies();
        let half = before.percentile_ns(0.5);
        assert!((50_000..63_000).contains(&half), "{half}");
        assert!(before.percentile_ns(0.99) >= 99_000);
        assert_eq!((metrics.take_latency_ns_max(), metrics.take_latency_ns_max()), (100_000, 0));
        // What was before does not count.
        metrics.count_batch(3, Duration::from_millis(9), 0, 0);
        let since = metrics.latencies().since(&before);
        assert_eq!(since.count(), 3);
        assert!((3_000_000..3_750_000).contains(&since.percentile_ns(0.01)));
    }

    #[test]
    fn buckets_end_at_powers_of_two() {
        let metrics = Metrics::new(1);
        for ns in [4095, 4096, 4097, 8191, 8192] {
            metrics.count_batch(1, Duration::from_nanos(ns), 0, 0);
        }
        let latencies = metrics.latencies();
        assert_eq!([11, 12, 13, 14, 60].map(|exponent| latencies.below(exponent)), [0, 1, 4, 5, 5]);
    }
}
