//! The life of keyspaces, and the end of the database.
//!
//! Creating, clearing and dropping keyspaces are manifest edits: they are durable when the call returns, and
//! a log record of a sub-tree that the manifest does not know is never replayed.

use std::{
    collections::HashSet,
    sync::{Weak, atomic::Ordering},
};

use super::{
    core::{Catalog, Core, Tree},
    hold::Held,
    keyspace::{KeyspaceInner, Retired},
    write::WriteState,
};
use crate::{
    error::{Error, Result},
    options::{KeyspaceOptions, PersistMode},
    partition::{NAME_BYTES_MAX, PartitionMap, Partitioning, Router},
    sync::{
        limbo::Limbo,
        primitive::{Arc, AtomicBool, Mutex},
        published::Published,
    },
    types::{SeqNo, TreeId},
    version::{edit::Edit, levels::Levels},
};

impl Core {
    /// Opens keyspaces, in the order of their names, and creates those that are not there: all or
    /// none, with one edit of the manifest and one sync.
    pub(crate) fn open_keyspaces(
        &self,
        names: &[&str],
        options: &KeyspaceOptions,
    ) -> Result<Vec<Arc<KeyspaceInner>>> {
        for name in names {
            if name.is_empty() || name.len() > NAME_BYTES_MAX {
                let what =
                    format!("the name of a keyspace has 1 to {NAME_BYTES_MAX} bytes: {name:?}");
                return Err(Error::InvalidArgument(what.into()));
            }
        }
        options.check()?;
        let router = Router::new(&options.partitions, &self.functions)?;
        self.check_process()?;
        let mut catalog = self.lock_catalog();
        for inner in names.iter().filter_map(|name| catalog.keyspaces.get(*name)) {
            refuse_other_partitions(inner, options)?;
        }
        let mut seen = HashSet::new();
        let mut new = names.to_vec();
        new.retain(|name| !catalog.keyspaces.contains_key(*name) && seen.insert(*name));
        if !new.is_empty() {
            self.check_running()?;
            self.create_keyspaces(&mut catalog, &new, options, &router)?;
        }
        // All of them are there now.
        Ok(names.iter().filter_map(|name| catalog.keyspaces.get(*name)).cloned().collect())
    }

    /// Creates keyspaces of different names, none of which is there.
    fn create_keyspaces(
        &self,
        catalog: &mut Catalog,
        names: &[&str],
        options: &KeyspaceOptions,
        router: &Router,
    ) -> Result<()> {
        let first = catalog.state.next_keyspace;
        let ids: Vec<(u32, TreeId)> =
            (first..).zip(names).map(|(id, _)| (id, self.new_tree_id())).collect();
        let edits = names.iter().zip(&ids).map(|(name, &(id, tree))| Edit::CreateKeyspace {
            id,
            name: (*name).to_owned(),
            options: options.encode(),
            tree,
        });
        let edits: Vec<Edit> = edits.collect();
        catalog.state.next_keyspace = ids.last().map_or(first, |(last, _)| last + 1);
        catalog.commit(self, edits)?;
        let options = Arc::new(options.clone());
        for (name, (id, tree)) in names.iter().zip(ids) {
            let (levels, none) = (Levels::default(), PartitionMap::default());
            let tree = Tree::root(tree, Arc::clone(&options), levels, none, 0, &self.limbo);
            let (name, router) = ((*name).into(), router.clone());
            let inner = KeyspaceInner::new(id, name, Arc::clone(&tree), router, &self.limbo);
            self.trees.lock().add(tree);
            catalog.keyspaces.insert(Arc::clone(&inner.name), inner);
        }
        Ok(())
    }

    /// Drops a keyspace; says whether it was there.
    pub(crate) fn drop_keyspace(&self, name: &str) -> Result<bool> {
        self.check_process()?;
        let inner = self.lock_catalog().keyspaces.get(name).cloned();
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

    /// Takes a keyspace's sub-tree away, with those of its partitions, and gives it a new one unless the
    /// keyspace is dropped. Says whether the keyspace was there.
    fn retire_tree(&self, inner: &Arc<KeyspaceInner>, drop_keyspace: bool) -> Result<bool> {
        let mut state = self.lock_to_drop()?;
        let mut catalog = self.lock_catalog();
        if inner.dropped.load(Ordering::Acquire) {
            return Ok(false);
        }
        // The change takes a number of its own, so that snapshots are before or after it.
        let at = state.next_seq;
        let old = inner.tree.get();
        let new_id = self.new_tree_id();
        let edit = if drop_keyspace {
            Edit::DropKeyspace { id: inner.id }
        } else {
            Edit::ReplaceTree { keyspace: inner.id, old: old.id, new: new_id }
        };
        let last_seq = Edit::LastSeq { seq: at };
        catalog.commit(self, vec![edit, last_seq])?;
        state.next_seq += 1;
        let (options, none) = (Arc::clone(&inner.options), PartitionMap::default());
        let new = Tree::root(new_id, options, Levels::default(), none, at, &self.limbo);
        if drop_keyspace {
            catalog.keyspaces.remove(&inner.name);
            inner.dropped.store(true, Ordering::Release);
        } else {
            self.trees.lock().add(Arc::clone(&new));
        }
        let gone = old.with_partitions();
        self.keep_for_snapshots(inner, &old, at);
        inner.tree.store(new);
        self.end_drop(state, catalog, &gone, at);
        drop((old, gone));
        self.reclaim_soon();
        Ok(true)
    }

    /// Takes the write lock for a change that is durable when it returns and takes writes away.
    ///
    /// So what was written before must be durable: after a crash the state is that of a moment, never
    /// a later change without an earlier write. Most of it is synced before anyone waits for the lock.
    pub(super) fn lock_to_drop(&self) -> Result<Held<'_, WriteState>> {
        self.check_process()?;
        {
            let mut state = self.lock_write();
            self.check_running()?;
            self.give_up_logs(&mut state);
            // After a flush there is nothing to be synced, not even the file's name.
            if state.sealed_logs.is_empty() && state.log.is_bare() {
                return Ok(state);
            }
        }
        self.persist(PersistMode::SyncData)?;
        let mut state = self.lock_write();
        self.check_running()?;
        self.sync_logs(&mut state, PersistMode::SyncData)?;
        Ok(state)
    }

    /// Keeps what a keyspace holds now for snapshots from before number `at`.
    pub(super) fn keep_for_snapshots(
        &self,
        inner: &Arc<KeyspaceInner>,
        root: &Arc<Tree>,
        until: SeqNo,
    ) {
        let partitions = root.partition_map();
        inner.retired.lock().push(Retired { root: Arc::clone(root), partitions, until });
        self.retiring.lock().push(Arc::downgrade(inner));
    }

    /// Makes the drop of the sub-trees `gone` at number `at` visible, and gives up their files.
    pub(super) fn end_drop(
        &self,
        state: Held<'_, WriteState>,
        catalog: Held<'_, Catalog>,
        gone: &[Arc<Tree>],
        at: SeqNo,
    ) {
        // First: a flush asks for snapshots once it finds a sub-tree buried, and none may begin before the drop
        // after that.
        self.visible.store(at, Ordering::Release);
        {
            let mut trees = self.trees.lock();
            gone.iter().for_each(|tree| trees.bury(tree));
        }
        gone.iter().for_each(|tree| tree.discard());
        self.note_zero_tables();
        drop(catalog);
        drop(state);
        // What was kept for snapshots goes unless there are any that are older than the drop.
        self.release_retired();
        // Files that partitions share may have become mostly dead.
        self.work.wake();
    }

    /// Lets go of retired sub-trees that no snapshot sees any more.
    pub(crate) fn release_retired(&self) {
        let mut retiring = self.retiring.lock();
        if retiring.is_empty() {
            return;
        }
        let mut released = Vec::new();
        retiring.retain(|inner| {
            let Some(inner) = Weak::upgrade(inner) else { return false };
            let mut retired = inner.retired.lock();
            // A drop that is not visible yet may be younger than a snapshot that begins now.
            let oldest = self.snapshots.oldest(|| self.visible_seq());
            let kept = retired.iter().position(|r| oldest < r.until).unwrap_or(retired.len());
            released.extend(retired.drain(..kept));
            !retired.is_empty()
        });
        drop(retiring);
        // Their files go now, under no lock.
        drop(released);
    }

    /// Ends the database: the pool stops, the memtable goes to tables, the log is closed.
    ///
    /// What fails here is in the log, and recovered at the next open.
    pub(crate) fn close(&self) -> Result<()> {
        self.work.stop();
        let result = self.flush_and_close_log();
        self.reclaim();
        self.limbo.close();
        result
    }

    fn flush_and_close_log(&self) -> Result<()> {
        let mut state = self.lock_write();
        self.check_running()?;
        if !self.mem.get().active.is_empty() {
            self.seal(&mut state)?;
        }
        drop(state);
        let flushed = loop {
            let _one = self.work.flushing.lock();
            match self.flush_oldest() {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        let mut state = self.lock_write();
        // A log that holds unflushed records must be durable before it claims a clean end.
        if flushed.is_err() {
            self.sync_logs(&mut state, PersistMode::SyncData)?;
        }
        let _ = state.log.close();
        flushed
    }
}

/// Refuses to open a keyspace as if its keys were divided in another way: the caller would go on to
/// drop partitions that are not there. How tables are written may differ, and to ask for no
/// partitions is to ask for what is there.
fn refuse_other_partitions(inner: &KeyspaceInner, wanted: &KeyspaceOptions) -> Result<()> {
    let (name, has, wanted) = (&inner.name, &inner.options.partitions, &wanted.partitions);
    if *wanted == Partitioning::None || wanted == has {
        return Ok(());
    }
    let what = format!("keyspace {name:?} has the partitions {has:?}, and not {wanted:?}");
    Err(Error::InvalidArgument(what.into()))
}

impl KeyspaceInner {
    /// A keyspace that holds `tree`.
    pub(crate) fn new(
        id: u32,
        name: Arc<str>,
        tree: Arc<Tree>,
        router: Router,
        limbo: &Arc<Limbo>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            name,
            options: Arc::clone(&tree.options),
            router,
            tree: Published::new(tree, limbo),
            dropped: AtomicBool::new(false),
            retired: Mutex::default(),
            claims: Mutex::default(),
        })
    }
}
