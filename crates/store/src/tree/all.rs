//! All LSM trees of an open database, by id.

use std::{collections::HashMap, sync::Weak};

use rhumb_sync::primitive::Arc;

use super::Tree;
use crate::{types::TreeId, version::snapshots::Snapshots};

/// All LSM trees of an open database.
#[derive(Default)]
pub(crate) struct Trees {
    live: HashMap<TreeId, Arc<Tree>>,
    /// Dropped LSM trees that snapshots may still read: their entries in memtables go to tables,
    /// too.
    dropped: HashMap<TreeId, Weak<Tree>>,
}

impl Trees {
    pub(crate) fn add(&mut self, tree: Arc<Tree>) {
        self.live.insert(tree.id, tree);
    }

    /// Drops an LSM tree. It stays known as long as there are readers of it.
    pub(crate) fn retire(&mut self, tree: &Arc<Tree>) {
        self.live.remove(&tree.id);
        self.dropped.retain(|_, dropped| dropped.strong_count() > 0);
        self.dropped.insert(tree.id, Arc::downgrade(tree));
    }

    /// The LSM tree `id` unless it was dropped.
    pub(crate) fn get(&self, id: TreeId) -> Option<&Arc<Tree>> {
        self.live.get(&id)
    }

    /// The LSM tree `id`, unless it has no readers any more; only `snapshots` read a dropped one.
    /// They are asked once the LSM tree is known to be dropped: a snapshot that sees it existed
    /// before that.
    pub(crate) fn get_read(&self, id: TreeId, snapshots: &Snapshots) -> Option<Arc<Tree>> {
        let dropped = || self.dropped.get(&id).filter(|_| snapshots.count() > 0)?.upgrade();
        self.live.get(&id).cloned().or_else(dropped)
    }

    /// All LSM trees that were not dropped.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Arc<Tree>> {
        self.live.values()
    }
}
