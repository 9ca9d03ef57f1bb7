//! All sub-trees of an open database, by id.

use std::{collections::HashMap, sync::Weak};

use rhumb_sync::primitive::Arc;

use super::Tree;
use crate::{types::TreeId, version::snapshots::Snapshots};

/// All sub-trees of an open database.
#[derive(Default)]
pub(crate) struct Trees {
    live: HashMap<TreeId, Arc<Tree>>,
    /// Dropped sub-trees that snapshots may still read: their entries in memtables go to tables,
    /// too.
    ghosts: HashMap<TreeId, Weak<Tree>>,
}

impl Trees {
    pub(crate) fn add(&mut self, tree: Arc<Tree>) {
        self.live.insert(tree.id, tree);
    }

    /// Drops a sub-tree. It stays known as long as there are readers of it.
    pub(crate) fn bury(&mut self, tree: &Arc<Tree>) {
        self.live.remove(&tree.id);
        self.ghosts.retain(|_, ghost| ghost.strong_count() > 0);
        self.ghosts.insert(tree.id, Arc::downgrade(tree));
    }

    /// The sub-tree `id` unless it was dropped.
    pub(crate) fn get(&self, id: TreeId) -> Option<&Arc<Tree>> {
        self.live.get(&id)
    }

    /// The sub-tree `id`, unless it has no readers any more; only `snapshots` read a dropped one.
    /// They are asked once the sub-tree is known to be dropped: a snapshot that sees it existed
    /// before that.
    pub(crate) fn get_read(&self, id: TreeId, snapshots: &Snapshots) -> Option<Arc<Tree>> {
        let ghost = || self.ghosts.get(&id).filter(|_| snapshots.count() > 0)?.upgrade();
        self.live.get(&id).cloned().or_else(ghost)
    }

    /// All sub-trees that were not dropped.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Arc<Tree>> {
        self.live.values()
    }
}
