//! What the histories have exercised: a promise that was never put to the test says nothing about
//! the engine.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts over all histories of this process.
pub(crate) struct Coverage {
    /// The number of partitions dropped that held something.
    pub(crate) partitions_dropped: AtomicU64,
    /// The number of files of several tables that existed when a process ended.
    pub(crate) shared_files: AtomicU64,
    /// The number of tables that were flushed without a model and got one in the background.
    pub(crate) trained_later: AtomicU64,
    /// The number of snapshots read after more was written.
    pub(crate) snapshots_read: AtomicU64,
    /// The number of transactions that were committed.
    pub(crate) transactions: AtomicU64,
    /// The number of transactions that came into conflict.
    pub(crate) conflicts: AtomicU64,
    /// The number of points of backups that were restored and compared.
    pub(crate) restored: AtomicU64,
    /// The number of points that were found although their backup failed.
    pub(crate) late_points: AtomicU64,
    /// The number of times that a reader beside had caught up and was compared.
    pub(crate) followed: AtomicU64,
    /// The number of operations in histories after whose power cuts everything was compared with
    /// the oracle.
    pub(crate) steps: AtomicU64,
}

pub(crate) static COVERAGE: Coverage = Coverage {
    partitions_dropped: AtomicU64::new(0),
    shared_files: AtomicU64::new(0),
    trained_later: AtomicU64::new(0),
    snapshots_read: AtomicU64::new(0),
    transactions: AtomicU64::new(0),
    conflicts: AtomicU64::new(0),
    restored: AtomicU64::new(0),
    late_points: AtomicU64::new(0),
    followed: AtomicU64::new(0),
    steps: AtomicU64::new(0),
};

impl Coverage {
    pub(crate) fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }

    /// Prints the counts, and checks that none is 0, if there were enough histories to meet all.
    pub(crate) fn report(&self, what: &str, is_long: bool) {
        let counts = [
            ("steps", &self.steps),
            ("partitions dropped", &self.partitions_dropped),
            ("files of several tables", &self.shared_files),
            ("tables trained in the background", &self.trained_later),
            ("snapshots read", &self.snapshots_read),
            ("transactions", &self.transactions),
            ("conflicts", &self.conflicts),
            ("points restored", &self.restored),
            ("states seen from beside", &self.followed),
        ];
        let counts = counts.map(|(name, count)| (name, count.load(Ordering::Relaxed)));
        let late = self.late_points.load(Ordering::Relaxed);
        println!("{late} points of backups that had failed");
        println!("{what}: {}", counts.map(|(name, count)| format!("{count} {name}")).join(", "));
        for (name, count) in counts {
            assert!(count > 0 || !is_long, "no {name} in all these histories");
        }
    }
}
