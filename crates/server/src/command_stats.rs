//! What commands took and how they ended, by command; and the codes of errors.
//!
//! Rule of the times: a command that is run by itself has its own time, by two looks at the clock.
//! Neighbours of a pipeline that are run together share the time of their run equally. The time in
//! which a commit that several commands share is written belongs to none of them.

use std::{
    collections::BTreeMap,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use rhumb_sync::histogram::{BUCKETS, bucket_end, bucket_of};

/// How many codes of errors are told apart, as in Redis: clients make them up in scripts.
const CODES_MAX: usize = 128;

/// Counters at zero.
pub(crate) fn zeros(len: usize) -> Box<[AtomicU64]> {
    (0..len).map(|_| AtomicU64::new(0)).collect()
}

/// The figures of one command.
#[derive(Debug, Default)]
struct Slot {
    calls: AtomicU64,
    nanos: AtomicU64,
    rejected: AtomicU64,
    failed: AtomicU64,
    /// Made at the first call: most commands are never called.
    latency: OnceLock<Box<[AtomicU64]>>,
}

/// The figures of a command at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calls {
    pub(crate) calls: u64,
    pub(crate) nanos: u64,
    /// Calls that were refused before they were run, and those that replied with an error.
    pub(crate) rejected: u64,
    pub(crate) failed: u64,
}

/// The figures of all commands, by their slots in the table.
#[derive(Debug)]
pub(crate) struct CommandStats {
    slots: Box<[Slot]>,
    /// True if latencies are kept by command.
    pub(crate) tracks_latency: AtomicBool,
    errors: Mutex<BTreeMap<String, u64>>,
}

impl CommandStats {
    /// Nothing counted.
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            tracks_latency: AtomicBool::new(true),
            errors: Mutex::default(),
        }
    }

    /// Counts calls that took this long each.
    #[inline]
    pub(crate) fn count(&self, slot: usize, calls: usize, each: Duration) {
        let (slot, calls) = (&self.slots[slot], calls as u64);
        let each = u64::try_from(each.as_nanos()).unwrap_or(u64::MAX);
        slot.calls.fetch_add(calls, Relaxed);
        slot.nanos.fetch_add(each.saturating_mul(calls), Relaxed);
        if self.tracks_latency.load(Relaxed) {
            slot.latency.get_or_init(|| zeros(BUCKETS))[bucket_of(each)].fetch_add(calls, Relaxed);
        }
    }

    /// Counts calls that were refused before they were run.
    #[cold]
    pub(crate) fn count_rejected(&self, slot: usize, calls: u64) {
        self.slots[slot].rejected.fetch_add(calls, Relaxed);
    }

    /// Counts calls that replied with an error.
    #[cold]
    pub(crate) fn count_failed(&self, slot: usize, calls: u64) {
        self.slots[slot].failed.fetch_add(calls, Relaxed);
    }

    /// Counts errors, by their codes.
    #[cold]
    pub(crate) fn count_errors(&self, codes: impl Iterator<Item = (String, u64)>) {
        let mut errors = self.errors.lock();
        for (code, times) in codes {
            if let Some(count) = errors.get_mut(&code) {
                *count += times;
            } else if errors.len() < CODES_MAX {
                errors.insert(code, times);
            }
        }
    }

    /// How many errors there were of each code.
    pub(crate) fn errors(&self) -> BTreeMap<String, u64> {
        self.errors.lock().clone()
    }

    /// Calls of the command of a slot.
    pub(crate) fn calls(&self, slot: usize) -> u64 {
        self.slots[slot].calls.load(Relaxed)
    }

    /// Calls of every command.
    pub(crate) fn all_calls(&self) -> Box<[u64]> {
        self.slots.iter().map(|slot| slot.calls.load(Relaxed)).collect()
    }

    /// The figures of the command of a slot; none if it was never called.
    pub(crate) fn of(&self, slot: usize) -> Option<Calls> {
        let slot = &self.slots[slot];
        let [calls, nanos, rejected, failed] =
            [&slot.calls, &slot.nanos, &slot.rejected, &slot.failed].map(|one| one.load(Relaxed));
        let found = Calls { calls, nanos, rejected, failed };
        (calls + rejected + failed > 0).then_some(found)
    }

    /// How long the calls of the command of a slot took; none if that was not kept.
    pub(crate) fn latencies(&self, slot: usize) -> Option<Histogram> {
        let found = Histogram::of(self.slots[slot].latency.get()?);
        (found.count() > 0).then_some(found)
    }

    /// Forgets how long calls took.
    pub(crate) fn forget_latencies(&self, slot: usize) {
        let buckets = self.slots[slot].latency.get().into_iter().flatten();
        buckets.for_each(|bucket| bucket.store(0, Relaxed));
    }

    /// Begins again at zero.
    pub(crate) fn reset(&self) {
        for (at, slot) in self.slots.iter().enumerate() {
            for counter in [&slot.calls, &slot.nanos, &slot.rejected, &slot.failed] {
                counter.store(0, Relaxed);
            }
            self.forget_latencies(at);
        }
        self.errors.lock().clear();
    }
}

/// How many commands took how long.
#[derive(Clone, Debug)]
pub(crate) struct Histogram(Box<[u64]>);

impl Histogram {
    /// What counters of buckets have counted.
    pub(crate) fn of(buckets: &[AtomicU64]) -> Self {
        Self(buckets.iter().map(|bucket| bucket.load(Relaxed)).collect())
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_errors_are_bounded() {
        let stats = CommandStats::new(1);
        stats.count_errors((0..1000).map(|n| (format!("E{n}"), 1)));
        stats.count_errors(["E5", "E999"].map(|code| (code.to_owned(), 2)).into_iter());
        let errors = stats.errors();
        assert_eq!((errors.len(), errors["E5"], errors.get("E999")), (CODES_MAX, 3, None));
    }
}
