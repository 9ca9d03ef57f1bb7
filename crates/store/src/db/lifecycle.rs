//! The life of keyspaces, and the end of the database.
//!
//! Creating, clearing and dropping are manifest edits: they are durable when the call returns, and
//! a log record of a sub-tree that the manifest does not know is never replayed.

use std::sync::{Weak, atomic::Ordering};

use super::{
    core::{Core, Tree},
    keyspace::{KeyspaceInner, Retired},
};
use crate::{
    error::{Error, Result},
    options::{KeyspaceOptions, PersistMode},
    sync::{
        limbo::Limbo,
        primitive::{Arc, AtomicBool, Mutex},
        published::Published,
    },
    types::SeqNo,
    version::{edit::Edit, levels::Levels},
};

/// The longest name of a keyspace, in bytes.
const NAME_BYTES_MAX: usize = 255;

impl Core {
    /// Opens a keyspace, or creates it.
    pub(crate) fn open_keyspace(
        &self,
        name: &str,
        options: KeyspaceOptions,
    ) -> Result<Arc<KeyspaceInner>> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(Error::InvalidArgument(
                format!("the name of a keyspace has 1 to {NAME_BYTES_MAX} bytes: {name:?}").into(),
            ));
        }
        options.check()?;
        let mut catalog = self.catalog.lock();
        if let Some(inner) = catalog.keyspaces.get(name) {
            return Ok(Arc::clone(inner));
        }
        self.check_running()?;
        let (id, tree_id) = (catalog.state.next_keyspace, catalog.state.next_tree);
        catalog.state.next_keyspace += 1;
        catalog.state.next_tree += 1;
        let create = Edit::CreateKeyspace {
            id,
            name: name.to_owned(),
            options: options.encode(),
            tree: tree_id,
        };
        catalog.commit(self, vec![create])?;
        let tree = Tree::new(tree_id, options, Levels::default(), 0, &self.limbo);
        let inner = KeyspaceInner::new(id, name.into(), Arc::clone(&tree), &self.limbo);
        catalog.trees.insert(tree_id, tree);
        catalog.keyspaces.insert(Arc::clone(&inner.name), Arc::clone(&inner));
        Ok(inner)
    }

    /// Drops a keyspace; says whether it was there.
    pub(crate) fn drop_keyspace(&self, name: &str) -> Result<bool> {
        let inner = self.catalog.lock().keyspaces.get(name).cloned();
        let Some(inner) = inner else { return Ok(false) };
        self.retire_tree(&inner, true)
    }

    /// Empties a keyspace.
    pub(crate) fn clear_keyspace(&self, inner: &Arc<KeyspaceInner>) -> Result<()> {
        if self.retire_tree(inner, false)? {
            return Ok(());
        }
        Err(Error::KeyspaceDropped(Arc::clone(&inner.name)))
    }

    /// Takes a keyspace's sub-tree away, and gives it a new one unless the keyspace is dropped.
    /// Says whether the keyspace was there.
    fn retire_tree(&self, inner: &Arc<KeyspaceInner>, drop_keyspace: bool) -> Result<bool> {
        let mut state = self.write.lock();
        self.check_running()?;
        let has_snapshots = self.snapshots.count() > 0;
        if has_snapshots && !self.mem.get().active.is_empty() {
            // Snapshots will read the old sub-tree from its tables alone.
            self.seal(&mut state)?;
        }
        if has_snapshots {
            self.wait_for_sealed(0)?;
        }
        // The change is durable at once, so what was written before it must be: after a crash
        // the state is that of a moment, never a later change without an earlier write.
        self.sync_logs(&mut state, PersistMode::SyncData)?;
        let mut catalog = self.catalog.lock();
        if inner.dropped.load(Ordering::Acquire) {
            return Ok(false);
        }
        // The change takes a number of its own, so that snapshots are before or after it.
        let at = state.next_seq;
        let old = inner.tree.get();
        let new_id = catalog.state.next_tree;
        catalog.state.next_tree += 1;
        let edit = if drop_keyspace {
            Edit::DropKeyspace { id: inner.id }
        } else {
            Edit::ReplaceTree { keyspace: inner.id, old: old.id, new: new_id }
        };
        let last_seq = Edit::LastSeq { seq: at };
        catalog.commit(self, vec![edit, last_seq])?;
        state.next_seq += 1;
        catalog.trees.remove(&old.id);
        let (options, levels) = (inner.options.clone(), Levels::default());
        let new = Tree::new(new_id, options, levels, at, &self.limbo);
        if drop_keyspace {
            catalog.keyspaces.remove(&inner.name);
            inner.dropped.store(true, Ordering::Release);
        } else {
            catalog.trees.insert(new_id, Arc::clone(&new));
        }
        if has_snapshots {
            let levels = old.levels.get();
            inner.retired.lock().push(Retired { tree: Arc::clone(&old), levels, until: at });
            self.retiring.lock().push(Arc::downgrade(inner));
        }
        inner.tree.store(new);
        self.visible.store(at, Ordering::Release);
        old.discard();
        self.note_zero_tables(&catalog);
        drop(catalog);
        drop(state);
        // A snapshot may have been dropped in between.
        self.release_retired();
        drop(old);
        self.reclaim();
        Ok(true)
    }

    /// Lets go of retired sub-trees that no snapshot sees any more.
    pub(crate) fn release_retired(&self) {
        let mut retiring = self.retiring.lock();
        if retiring.is_empty() {
            return;
        }
        let oldest = self.snapshots.list().first().copied().unwrap_or(SeqNo::MAX);
        retiring.retain(|inner| {
            let Some(inner) = Weak::upgrade(inner) else { return false };
            let mut retired = inner.retired.lock();
            retired.retain(|r| oldest < r.until);
            !retired.is_empty()
        });
    }

    /// Ends the database: the pool stops, the memtable goes to tables, the log is closed.
    ///
    /// What fails here is in the log, and recovered at the next open.
    pub(crate) fn close(&self) {
        self.work.stop();
        self.flush_and_close_log();
        self.reclaim();
        self.limbo.close();
    }

    fn flush_and_close_log(&self) {
        let mut state = self.write.lock();
        if self.check_running().is_err() {
            return;
        }
        if !self.mem.get().active.is_empty() && self.seal(&mut state).is_err() {
            return;
        }
        drop(state);
        let flushed = loop {
            let _one = self.work.flushing.lock();
            match self.flush_oldest() {
                Ok(true) => {}
                Ok(false) => break true,
                Err(_) => break false,
            }
        };
        let mut state = self.write.lock();
        // A log that holds unflushed records must be durable before it claims a clean end.
        if !flushed && self.sync_logs(&mut state, PersistMode::SyncData).is_err() {
            return;
        }
        let _ = state.log.close();
    }
}

impl KeyspaceInner {
    /// A keyspace that holds `tree`.
    pub(crate) fn new(id: u32, name: Arc<str>, tree: Arc<Tree>, limbo: &Arc<Limbo>) -> Arc<Self> {
        Arc::new(Self {
            id,
            name,
            options: tree.options.clone(),
            tree: Published::new(tree, limbo),
            dropped: AtomicBool::new(false),
            retired: Mutex::default(),
        })
    }
}
