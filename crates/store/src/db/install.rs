//! The one way in which tables enter and leave LSM trees; flushes, compactions and ingestions use
//! it.
//!
//! 1. The catalog is locked, so that no LSM tree is dropped meanwhile.
//! 2. New files are kept from now on: an edit that failed may still be on the disk.
//! 3. *Durable*: one edit of the manifest names the tables that are added and removed.
//! 4. *Visible*: each LSM tree gets its new levels.
//! 5. The catalog is unlocked. The replaced tables are obsolete: their files are removed with their
//!    last reader.

use rhumb_sync::primitive::{Arc, Ordering};

use super::core::Core;
use crate::{
    compaction::job::Placed,
    error::{Error, Result},
    table::Table,
    tree::Tree,
    version::{edit::Edit, state::CatalogState},
};

/// A change of the tables of one LSM tree.
pub(crate) struct TreeChange {
    pub(crate) tree: Arc<Tree>,
    /// The tables that are removed, with their levels.
    pub(crate) removed: Vec<Placed>,
    /// The tables that are added, with their levels. One table may be among both.
    pub(crate) added: Vec<Placed>,
}

/// What happens to a change whose LSM tree was dropped meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfDropped {
    /// It is given up: there are no readers of the LSM tree.
    GiveUp,
    /// It becomes visible, because snapshots read it. The manifest does not hear of its tables,
    /// which are removed with the last snapshot.
    Show,
    /// The whole installation fails.
    Fail,
}

/// The other parts of an installation.
pub(crate) struct With<K, E, S> {
    /// Keeps files that would otherwise be removed.
    pub(crate) keep: K,
    /// Makes the edit from the edits of the tables.
    pub(crate) edit: E,
    /// Is called with the function that makes all changes visible.
    pub(crate) show: S,
}

impl TreeChange {
    /// The edits that make the change durable.
    fn edits(&self) -> impl Iterator<Item = Edit> {
        let tree = self.tree.id;
        let level = |level: usize| u8::try_from(level).unwrap_or(u8::MAX);
        let removed = self.removed.iter().map(move |(from, table)| {
            let id = table.meta().id;
            Edit::RemoveTable { tree, level: level(*from), id }
        });
        let added = self.added.iter().map(move |(to, table)| {
            let meta = table.meta().clone();
            Edit::AddTable { tree, level: level(*to), meta }
        });
        removed.chain(added)
    }

    /// Publishes the levels that contain the change.
    fn show(&self) {
        let removed: Vec<_> = self.removed.iter().map(|(_, table)| table.meta().id).collect();
        let levels = self.tree.levels.get().edited(&removed, &self.added);
        self.tree.levels.store(Arc::new(levels));
    }

    /// The tables that were removed.
    fn replaced(&self) -> impl Iterator<Item = &Arc<Table>> {
        let is_moved = |old: &Arc<Table>| self.added.iter().any(|(_, new)| Arc::ptr_eq(old, new));
        self.removed.iter().map(|(_, table)| table).filter(move |table| !is_moved(table))
    }
}

impl Core {
    /// Installs changes of different LSM trees, all or none.
    ///
    /// # Errors
    /// Those of the manifest; the tables then stay as they are. With [`IfDropped::Fail`] also if a
    /// LSM tree was dropped.
    pub(crate) fn install<K, E, S>(
        &self,
        changes: &[TreeChange],
        if_dropped: IfDropped,
        with: With<K, E, S>,
    ) -> Result<()>
    where
        K: FnOnce(),
        E: FnOnce(&CatalogState, Vec<Edit>) -> Vec<Edit>,
        S: FnOnce(&dyn Fn()),
    {
        let mut catalog = self.lock_catalog();
        (with.keep)();
        let is_dropped = |change: &&TreeChange| change.tree.dropped.load(Ordering::Acquire);
        let (dropped, live): (Vec<&TreeChange>, Vec<_>) = changes.iter().partition(is_dropped);
        let give_up = |change: &TreeChange| {
            change.added.iter().for_each(|(_, table)| table.mark_obsolete());
        };
        dropped.iter().for_each(|change| give_up(change));
        if if_dropped == IfDropped::Fail && !dropped.is_empty() {
            live.iter().for_each(|change| give_up(change));
            let what = "the keyspace, or a partition of it, was dropped or cleared";
            return Err(Error::InvalidArgument(what.into()));
        }
        if if_dropped == IfDropped::GiveUp && live.is_empty() {
            return Ok(());
        }
        let tables = live.iter().flat_map(|change| change.edits()).collect();
        let edits = (with.edit)(&catalog.state, tables);
        catalog.commit(&self.shared, edits)?;
        (with.show)(&|| {
            live.iter().for_each(|change| change.show());
            if if_dropped == IfDropped::Show {
                dropped.iter().for_each(|change| change.show());
            }
        });
        self.count_tables();
        drop(catalog);
        live.iter().flat_map(|change| change.replaced()).for_each(|table| table.mark_obsolete());
        Ok(())
    }

    /// Records how far compactions lag, for the throttle, and that tables have changed.
    pub(crate) fn count_tables(&self) {
        let guard = rhumb_sync::epoch::pin();
        let trees = self.trees.lock();
        let most = trees.live().map(|tree| tree.levels.load(&guard).l0.len()).max();
        self.scheduler.l0_tables_max.store(most.unwrap_or(0), Ordering::Relaxed);
        self.scheduler.tables_changed.store(true, Ordering::Relaxed);
    }
}
