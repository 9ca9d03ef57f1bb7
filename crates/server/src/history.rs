//! What the server did lately: the last minute by seconds, and the last hour in steps of five
//! seconds, so that a page that is opened now shows what was before.
//!
//! Once a second the counters are copied; a figure of a time is the difference of two copies. So
//! commands pay nothing for it. The copies take 200 KiB.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{command_stats::Histogram, metrics::Metrics};

/// Seconds of the time that the present figures are of.
const MINUTE: usize = 60;

/// Seconds of a step of the history.
pub(crate) const STEP_SECONDS: usize = 5;

/// Steps that are kept: an hour.
const STEPS_MAX: usize = 3600 / STEP_SECONDS;

/// The counters at a time.
#[derive(Clone, Debug)]
struct Copy {
    at: Instant,
    latencies: Histogram,
    calls: Box<[u64]>,
    absent: u64,
    input_bytes: u64,
    output_bytes: u64,
    block_reads: u64,
    written_entries: u64,
    /// The longest command of the second that ended with the copy, in nanoseconds.
    latency_ns_max: u64,
}

/// What was done in a time.
#[derive(Clone, Debug)]
pub(crate) struct Recent {
    pub(crate) time: Duration,
    pub(crate) latencies: Histogram,
    pub(crate) latency_ns_max: u64,
    pub(crate) calls: Box<[u64]>,
    /// `GET`s of absent keys.
    pub(crate) absent: u64,
    pub(crate) input_bytes: u64,
    pub(crate) output_bytes: u64,
    pub(crate) block_reads: u64,
    pub(crate) written_entries: u64,
}

impl Recent {
    /// A count as a rate, each second.
    pub(crate) fn rate(&self, count: u64) -> f64 {
        count as f64 / self.time.as_secs_f64().max(1e-3)
    }

    pub(crate) fn commands(&self) -> u64 {
        self.calls.iter().sum()
    }
}

/// A step of the history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) commands_per_second: f64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) latency_ns_max: u64,
    pub(crate) block_reads_per_second: f64,
    pub(crate) memory_bytes: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) clients: u64,
}

/// What the server takes at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) memory_bytes: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) clients: u64,
}

/// Copies and steps.
#[derive(Debug, Default)]
pub(crate) struct History {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    copies: VecDeque<Copy>,
    steps: VecDeque<Step>,
    seconds: usize,
}

fn copy(metrics: &Metrics, stats: &rhumb::Stats, latency_ns_max: u64) -> Copy {
    Copy {
        at: Instant::now(),
        latencies: metrics.latencies(),
        calls: metrics.all_calls(),
        absent: metrics.absent(),
        input_bytes: metrics.input_bytes(),
        output_bytes: metrics.output_bytes(),
        block_reads: stats.block_reads,
        written_entries: stats.written_entries,
        latency_ns_max,
    }
}

impl Kept {
    /// What was done since the copy before the last `seconds` ones.
    fn since(&self, seconds: usize) -> Option<Recent> {
        let now = self.copies.back()?;
        let first = self.copies.len().saturating_sub(seconds + 1);
        let then = &self.copies[first];
        let in_time = self.copies.range(first + 1..);
        let minus = u64::saturating_sub;
        Some(Recent {
            time: now.at - then.at,
            latencies: now.latencies.since(&then.latencies),
            latency_ns_max: in_time.map(|copy| copy.latency_ns_max).max().unwrap_or(0),
            calls: now
                .calls
                .iter()
                .zip(&then.calls)
                .map(|(now, then)| minus(*now, *then))
                .collect(),
            absent: minus(now.absent, then.absent),
            input_bytes: minus(now.input_bytes, then.input_bytes),
            output_bytes: minus(now.output_bytes, then.output_bytes),
            block_reads: minus(now.block_reads, then.block_reads),
            written_entries: minus(now.written_entries, then.written_entries),
        })
    }

    fn push(&mut self, copy: Copy) {
        self.copies.push_back(copy);
        if self.copies.len() > MINUTE + 1 {
            self.copies.pop_front();
        }
        self.seconds += 1;
    }
}

impl History {
    /// Ends a second: to be called at the start as well. `now` says what is not counted, once it is
    /// wanted.
    pub(crate) fn end_second(
        &self,
        metrics: &Metrics,
        stats: &rhumb::Stats,
        now: impl FnOnce() -> Now,
    ) {
        let max = metrics.take_latency_ns_max();
        let copied = copy(metrics, stats, max);
        let mut kept = self.kept.lock();
        kept.push(copied);
        // The first step is there when the first second has ended.
        if kept.seconds % STEP_SECONDS != 2 {
            return;
        }
        let Some(recent) = kept.since(STEP_SECONDS) else { return };
        // The files are counted while nobody waits for the lock.
        drop(kept);
        let Now { memory_bytes, disk_bytes, clients } = now();
        let step = Step {
            commands_per_second: recent.rate(recent.commands()),
            p50_ns: recent.latencies.percentile_ns(0.5),
            p99_ns: recent.latencies.percentile_ns(0.99),
            latency_ns_max: recent.latency_ns_max,
            block_reads_per_second: recent.rate(recent.block_reads),
            memory_bytes,
            disk_bytes,
            clients,
        };
        let mut kept = self.kept.lock();
        kept.steps.push_back(step);
        if kept.steps.len() > STEPS_MAX {
            kept.steps.pop_front();
        }
    }

    /// What was done in the last minute, or since the start if that was less ago; none before the
    /// first second has ended.
    pub(crate) fn minute(&self) -> Option<Recent> {
        self.kept.lock().since(MINUTE)
    }

    /// The steps of the last hour, the oldest first.
    pub(crate) fn steps(&self) -> Vec<Step> {
        self.kept.lock().steps.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minute_forgets_what_was_before() {
        let (metrics, stats) = (Metrics::new(2), rhumb::Stats::default());
        let mut kept = Kept::default();
        let mut end_second = |metrics: &Metrics| {
            let max = metrics.take_latency_ns_max();
            kept.push(copy(metrics, &stats, max));
            kept.since(MINUTE).unwrap()
        };
        end_second(&metrics);
        metrics.count(1, 1, Duration::ZERO);
        metrics.count_batch(1, Duration::from_secs(2), 0, 0);
        let recent = end_second(&metrics);
        assert_eq!((recent.commands(), recent.latency_ns_max), (1, 2_000_000_000));
        assert!(recent.latencies.percentile_ns(0.5) >= 2_000_000_000);
        for _ in 0..MINUTE {
            metrics.count(0, 1, Duration::ZERO);
            metrics.count_batch(1, Duration::from_micros(5), 0, 0);
            end_second(&metrics);
        }
        let recent = end_second(&metrics);
        assert_eq!((recent.commands(), recent.calls[1]), (MINUTE as u64 - 1, 0));
        assert!(recent.latency_ns_max == 5000 && recent.latencies.percentile_ns(1.0) < 7000);
        // As `CONFIG RESETSTAT` does: nothing is below zero.
        metrics.reset();
        assert_eq!(end_second(&metrics).commands(), 0);
        assert_eq!(kept.copies.len(), MINUTE + 1);
    }
}
