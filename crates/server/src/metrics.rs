//! Figures of the server: counters that commands add to, and how they are read.
//!
//! Times are taken once for each batch of commands that a client sent together, so that a figure
//! costs no command its speed.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use rhumb_sync::histogram::{BUCKETS, bucket_of};

use crate::command_stats::{CommandStats, Histogram, zeros};

/// All figures.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// By a command's slot in the table.
    pub(crate) by_command: CommandStats,
    latency: Box<[AtomicU64]>,
    latency_ns_total: AtomicU64,
    /// The longest command since this was taken last.
    latency_ns_max: AtomicU64,
    /// `GET`s of absent keys.
    absent: AtomicU64,
    /// Keys that were looked up by reads: those that were there, and those that were not.
    hits: AtomicU64,
    misses: AtomicU64,
    input_bytes: AtomicU64,
    output_bytes: AtomicU64,
    reclaimed_collections: AtomicU64,
    protocol_errors: AtomicU64,
    refused_passwords: AtomicU64,
    slow_commands: AtomicU64,
    /// Commands of the last second.
    per_second: AtomicU64,
    last_total: AtomicU64,
    /// Bytes of the last second, in and out, and what they were in all at its end.
    bytes_per_second: [AtomicU64; 2],
    last_bytes: [AtomicU64; 2],
    /// The most memory that the server counted at the end of a second.
    memory_peak: AtomicU64,
}

impl Metrics {
    /// Nothing counted, of commands with this number of slots.
    pub(crate) fn new(slots: usize) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            by_command: CommandStats::new(slots),
            latency: zeros(BUCKETS),
            latency_ns_total: zero(),
            latency_ns_max: zero(),
            absent: zero(),
            hits: zero(),
            misses: zero(),
            input_bytes: zero(),
            output_bytes: zero(),
            reclaimed_collections: zero(),
            protocol_errors: zero(),
            refused_passwords: zero(),
            slow_commands: zero(),
            per_second: zero(),
            last_total: zero(),
            bytes_per_second: [zero(), zero()],
            last_bytes: [zero(), zero()],
            memory_peak: zero(),
        }
    }

    /// Counts calls of a command, by its slot, that took this long each.
    #[inline]
    pub(crate) fn count(&self, slot: usize, calls: usize, each: Duration) {
        self.by_command.count(slot, calls, each);
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

    /// Counts keys that reads found, and that they did not.
    #[inline]
    pub(crate) fn count_lookups(&self, hits: u64, misses: u64) {
        if hits > 0 {
            self.hits.fetch_add(hits, Relaxed);
        }
        if misses > 0 {
            self.misses.fetch_add(misses, Relaxed);
        }
    }

    pub(crate) fn keyspace_hits(&self) -> u64 {
        self.hits.load(Relaxed)
    }

    pub(crate) fn keyspace_misses(&self) -> u64 {
        self.misses.load(Relaxed)
    }

    pub(crate) fn absent(&self) -> u64 {
        self.absent.load(Relaxed)
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

    /// Calls of the command of a slot.
    pub(crate) fn calls(&self, slot: usize) -> u64 {
        self.by_command.calls(slot)
    }

    pub(crate) fn commands_total(&self) -> u64 {
        self.by_command.all_calls().iter().sum()
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
        Histogram::of(&self.latency)
    }

    /// Calls of every command, by its slot.
    pub(crate) fn all_calls(&self) -> Box<[u64]> {
        self.by_command.all_calls()
    }

    /// Bytes of the last second, in and out.
    pub(crate) fn bytes_per_second(&self) -> [u64; 2] {
        [0, 1].map(|at| self.bytes_per_second[at].load(Relaxed))
    }

    /// The most memory that was counted, with what is counted now.
    pub(crate) fn memory_peak(&self, now: u64) -> u64 {
        self.memory_peak.fetch_max(now, Relaxed).max(now)
    }

    /// Ends a second.
    pub(crate) fn end_second(&self) {
        let total = self.commands_total();
        let before = self.last_total.swap(total, Relaxed);
        self.per_second.store(total.saturating_sub(before), Relaxed);
        for (at, bytes) in [self.input_bytes(), self.output_bytes()].into_iter().enumerate() {
            let before = self.last_bytes[at].swap(bytes, Relaxed);
            self.bytes_per_second[at].store(bytes.saturating_sub(before), Relaxed);
        }
    }

    /// Begins again at zero.
    pub(crate) fn reset(&self) {
        let one_by_one = [
            &self.latency_ns_total,
            &self.latency_ns_max,
            &self.absent,
            &self.hits,
            &self.misses,
            &self.input_bytes,
            &self.output_bytes,
            &self.reclaimed_collections,
            &self.protocol_errors,
            &self.refused_passwords,
            &self.slow_commands,
            &self.last_total,
            &self.memory_peak,
        ];
        self.by_command.reset();
        let all = self.latency.iter().chain(&self.last_bytes).chain(one_by_one);
        all.for_each(|counter| counter.store(0, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
