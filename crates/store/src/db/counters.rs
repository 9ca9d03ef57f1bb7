//! Counters of what the engine did, kept off the read path.

use std::{sync::atomic::Ordering, time::Duration};

use rhumb_sync::primitive::{AtomicU64, AtomicUsize};

/// Counts since the database was opened.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) written_entries: AtomicU64,
    pub(crate) log_syncs: AtomicU64,
    /// Transactions that were not committed because of a conflict.
    pub(crate) transaction_conflicts: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) flushed_bytes: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) hidden_tables: AtomicU64,
    /// Tables that were dropped because everything in them had expired.
    pub(crate) expired_tables: AtomicU64,
    pub(crate) compacted_read_bytes: AtomicU64,
    pub(crate) compacted_written_bytes: AtomicU64,
    pub(crate) failed_jobs: AtomicU64,
    pub(crate) failed_removals: AtomicU64,
    /// The number of log records that opening the database replayed.
    pub(crate) replayed_records: AtomicU64,
    /// The largest number of writers that one commit served since the last flush.
    pub(crate) writers: AtomicUsize,
    pub(crate) tables_trained: AtomicU64,
    pub(crate) tables_untrained: AtomicU64,
    pub(crate) tables_trained_reading: AtomicU64,
    pub(crate) trainings_refused: AtomicU64,
    pub(crate) stall_ns_max: AtomicU64,
    pub(crate) stall_ns_total: AtomicU64,
    pub(crate) delay_ns_total: AtomicU64,
}

impl Counters {
    /// Notes that a commit serves `writers` writers. Called under the write lock.
    #[inline]
    pub(crate) fn count_writers(&self, writers: usize) {
        if writers > self.writers.load(Ordering::Relaxed) {
            self.writers.store(writers, Ordering::Relaxed);
        }
    }

    /// Notes that a flush or a compaction wrote a table, with a model or without.
    pub(crate) fn count_table(&self, is_trained: bool) {
        let counter = if is_trained { &self.tables_trained } else { &self.tables_untrained };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a writer waited for a flush.
    pub(crate) fn count_stall(&self, waited: Duration) {
        let ns = nanoseconds(waited);
        self.stall_ns_max.fetch_max(ns, Ordering::Relaxed);
        self.stall_ns_total.fetch_add(ns, Ordering::Relaxed);
    }

    /// Notes that a writer was slowed down.
    pub(crate) fn count_delay(&self, slept: Duration) {
        let ns = nanoseconds(slept);
        self.stall_ns_max.fetch_max(ns, Ordering::Relaxed);
        self.delay_ns_total.fetch_add(ns, Ordering::Relaxed);
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
