//! An open database: its parts, and the order in which their locks are taken.
//!
//! Lock order: `beside`, then the writer's state, then `catalog`, then a keyspace's `retired`, then
//! `trees`, then the memtables' change, then `snapshots`, then the scheduler's. Readers take none
//! of them: they load the memtables, then the LSM tree's levels, in that order. A flush publishes
//! its tables before it removes its memtable, so that no reader misses an entry.

use std::sync::Weak;

use rhumb_sync::{deferred, primitive::Mutex};

use super::{
    beside::Beside, catalog::Catalog, keyspace::KeyspaceInner, memtables::Memtables,
    scheduler::Scheduler, shared::Shared, writer::Writer,
};
use crate::{tree::Trees, version::snapshots::Snapshots};

/// The parts of an open database, which all handles share.
pub(crate) struct Core {
    pub(crate) shared: Shared,
    pub(crate) memtables: Memtables,
    pub(crate) writer: Writer,
    pub(crate) catalog: Mutex<Catalog>,
    pub(crate) trees: Mutex<Trees>,
    pub(crate) snapshots: Snapshots,
    /// Keyspaces that keep retired LSM trees for snapshots.
    pub(crate) retiring: Mutex<Vec<Weak<KeyspaceInner>>>,
    pub(crate) scheduler: Scheduler,
    /// What follows the writer, if the database is open for reading only.
    pub(crate) beside: Mutex<Option<Beside>>,
}

impl Core {
    /// Drops replaced objects that have no reader any more, and removes old logs: this frees memory
    /// and disk space. The caller holds no lock and may take its time.
    pub(crate) fn reclaim(&self) {
        // A flush could not take old logs out if another thread was writing just then.
        if let Some(mut state) = self.try_lock_write() {
            self.writer.release_logs(&mut state);
        }
        let logs = std::mem::take(&mut *self.writer.old_logs.lock());
        if !logs.is_empty() {
            self.remove_logs(logs);
        }
        deferred::collect();
        self.shared.drops.drop_all();
    }

    /// [`Core::reclaim`] after something large was dropped. Freeing its pages and blocks takes
    /// longer than the caller should wait, so the pool does it if it has a thread that is not
    /// compacting.
    pub(crate) fn reclaim_soon(&self) {
        if self.shared.options.background_threads > 1 {
            self.scheduler.wake();
        } else {
            self.reclaim();
        }
    }
}
