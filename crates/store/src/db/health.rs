//! The present failures, and the failures since the database was opened, for monitoring.

use rhumb_sync::primitive::{AtomicBool, AtomicU64, Mutex, Ordering};

use super::shared::Shared;
use crate::error::{Error, Result};

/// The failures of writes.
#[derive(Default)]
pub(crate) struct Health {
    /// Set while `log` or `catalog` holds a failure, so that a write that succeeds looks no
    /// further.
    is_failing: AtomicBool,
    /// The error of the last group of writes if it was not committed.
    log: Mutex<Option<Error>>,
    /// The error of the last edit of the manifest if it was not committed.
    catalog: Mutex<Option<Error>>,
    /// The number of batches that were not committed, and of changes of keyspaces and tables that
    /// the manifest did not take.
    pub(crate) failed_writes: AtomicU64,
    /// The number of failed syncs of the log and of the manifest.
    pub(crate) failed_syncs: AtomicU64,
}

impl Health {
    /// Notes the result of `batches` of writes.
    #[inline]
    pub(crate) fn record_write(&self, batches: usize, result: &Result<()>) {
        if result.is_err() || self.is_failing.load(Ordering::Relaxed) {
            self.note(&self.log, batches as u64, result);
        }
    }

    /// Notes the result of an edit of the manifest.
    pub(crate) fn record_edit(&self, result: &Result<()>) {
        self.note(&self.catalog, 1, result);
    }

    /// Notes that a sync failed.
    pub(crate) fn count_failed_sync(&self) {
        self.failed_syncs.fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    fn note(&self, last: &Mutex<Option<Error>>, count: u64, result: &Result<()>) {
        match result {
            Ok(()) => *last.lock() = None,
            // A mistake of the caller says nothing about the database.
            Err(
                Error::InvalidArgument(_)
                | Error::Closed(_)
                | Error::KeyspaceDropped(_)
                | Error::ReadOnly { .. },
            ) => return,
            Err(error) => {
                *last.lock() = Some(error.clone());
                self.failed_writes.fetch_add(count, Ordering::Relaxed);
            }
        }
        let is_failing = self.log.lock().is_some() || self.catalog.lock().is_some();
        self.is_failing.store(is_failing, Ordering::Relaxed);
    }
}

impl Shared {
    /// The error with which writes fail at present.
    pub(crate) fn write_failure(&self) -> Option<Error> {
        let stopped = self.check_running().err().filter(|_| !self.is_read_only);
        let log = || self.health.log.lock().clone();
        stopped.or_else(log).or_else(|| self.health.catalog.lock().clone())
    }
}
