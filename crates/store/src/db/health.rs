//! What fails at present, and what failed since the database was opened, for those who watch it.

use rhumb_sync::primitive::{AtomicBool, AtomicU64, Mutex, Ordering};

use super::core::Core;
use crate::error::{Error, Result};

/// The failures of writes.
#[derive(Default)]
pub(crate) struct Health {
    /// Set while `log` or `catalog` holds a failure, so that a write that succeeds looks no
    /// further.
    is_failing: AtomicBool,
    /// Why the last group of writes was not committed; cleared by the next that is.
    log: Mutex<Option<Error>>,
    /// Why the last edit of the manifest was not committed; cleared by the next that is.
    catalog: Mutex<Option<Error>>,
    /// Batches that were not committed, and changes of keyspaces and tables that the manifest did
    /// not take.
    pub(crate) failed_writes: AtomicU64,
    /// Syncs of the log and of the manifest that failed.
    pub(crate) failed_syncs: AtomicU64,
}

impl Health {
    /// Notes what became of `batches` of writes.
    #[inline]
    pub(crate) fn note_write(&self, batches: usize, result: &Result<()>) {
        if result.is_err() || self.is_failing.load(Ordering::Relaxed) {
            self.note(&self.log, batches as u64, result);
        }
    }

    /// Notes what became of an edit of the manifest.
    pub(crate) fn note_edit(&self, result: &Result<()>) {
        self.note(&self.catalog, 1, result);
    }

    /// Notes that a sync failed.
    pub(crate) fn note_failed_sync(&self) {
        self.failed_syncs.fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    fn note(&self, last: &Mutex<Option<Error>>, count: u64, result: &Result<()>) {
        match result {
            Ok(()) => *last.lock() = None,
            // The caller's mistake says nothing of the database.
            Err(Error::InvalidArgument(_) | Error::KeyspaceDropped(_) | Error::ReadOnly { .. }) => {
                return;
            }
            Err(error) => {
                *last.lock() = Some(error.clone());
                self.failed_writes.fetch_add(count, Ordering::Relaxed);
            }
        }
        let is_failing = self.log.lock().is_some() || self.catalog.lock().is_some();
        self.is_failing.store(is_failing, Ordering::Relaxed);
    }
}

impl Core {
    /// Why writes fail at present.
    pub(crate) fn write_failure(&self) -> Option<Error> {
        let stopped = self.check_running().err().filter(|_| !self.is_read_only);
        let log = || self.health.log.lock().clone();
        stopped.or_else(log).or_else(|| self.health.catalog.lock().clone())
    }
}
