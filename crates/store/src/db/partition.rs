//! The life of partitions: a log record creates them, the flush that frees the record makes them
//! durable at the latest, and a manifest edit drops them.
//!
//! Creations and drops hold the write lock. So a partition's creation comes before its first write
//! in the log, and a dropped partition is never created again: a drop *buries* the LSM tree's id in
//! the manifest until the segment that may hold its creation is given up.

use std::sync::atomic::Ordering;

use rhumb_sync::{epoch, primitive::Arc};

use super::{
    core::Core,
    hold::Held,
    keyspace::{Keyspace, KeyspaceInner},
    lifecycle::event_edits,
    writer::WriteState,
};
use crate::{
    error::{Error, Result},
    log::creation::{Creation, encode_creations},
    partition::Router,
    tree::{PartitionMap, Tree},
    types::TreeId,
    version::{
        edit::{Edit, EventKind},
        levels::Levels,
        state::CatalogState,
    },
};

/// The contents of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionInfo {
    /// Its name.
    pub name: Vec<u8>,
    /// The number of bytes of its files.
    pub file_bytes: u64,
    /// The number of its tables.
    pub tables: u64,
    /// The number of entries in tables. Overwritten versions and tombstones that are not yet
    /// compacted away count; entries that were not flushed yet do not.
    pub entries: u64,
}

impl Core {
    /// The LSM trees of the partitions `names` of a keyspace, in the order of the names, which all
    /// differ; for a keyspace without partitions its own. Missing partitions are created, with one
    /// append to the log for all, and no sync.
    pub(crate) fn create_partitions(
        &self,
        inner: &KeyspaceInner,
        names: &[&[u8]],
    ) -> Result<Vec<Arc<Tree>>> {
        self.shared.check_takes_writes()?;
        names.iter().try_for_each(|name| Router::check_name(name))?;
        self.create_partitions_in(&mut self.lock_write(), inner, names)
    }

    /// As [`Core::create_partitions`], of names that were checked, under the write lock.
    pub(super) fn create_partitions_in(
        &self,
        state: &mut WriteState,
        inner: &KeyspaceInner,
        names: &[&[u8]],
    ) -> Result<Vec<Arc<Tree>>> {
        self.shared.check_running()?;
        if inner.dropped.load(Ordering::Acquire) {
            return Err(Error::KeyspaceDropped(Arc::clone(&inner.name)));
        }
        let root = inner.tree.get();
        if root.partitions.is_none() {
            return Ok(names.iter().map(|_| Arc::clone(&root)).collect());
        }
        let map = root.partition_map();
        let created: Vec<Creation> = names
            .iter()
            .filter(|name| map.get(name).is_none())
            .map(|name| Creation {
                root: root.id,
                tree: self.shared.new_tree_id(),
                name: (*name).into(),
            })
            .collect();
        let map = match created.is_empty() {
            true => map,
            false => self.log_creations(state, &root, &map, &created)?,
        };
        Ok(names.iter().filter_map(|name| map.get(name)).cloned().collect())
    }

    /// The LSM tree of the partition of `key`, which is created if it does not exist.
    #[cold]
    pub(crate) fn create_partition_of(&self, inner: &KeyspaceInner, key: &[u8]) -> Result<TreeId> {
        let trees = self.create_partitions(inner, &[&inner.router.name_of(key)])?;
        // There is one LSM tree for each name.
        Ok(trees.first().map_or(0, |tree| tree.id))
    }

    /// Logs new partitions and publishes them. Returns the map of all partitions.
    fn log_creations(
        &self,
        state: &mut WriteState,
        root: &Tree,
        map: &PartitionMap,
        created: &[Creation],
    ) -> Result<Arc<PartitionMap>> {
        let logged = self.writer.log_records(
            &self.shared,
            state,
            std::iter::once(&encode_creations(created)[..]),
        );
        self.shared.health.record_write(1, &logged);
        logged?;
        self.memtables.get().active.add_created(created);
        let new: Vec<Arc<Tree>> = created
            .iter()
            .map(|Creation { tree, name, .. }| {
                let (options, levels) = (Arc::clone(&root.options), Levels::default());
                Tree::new(*tree, name.clone(), options, levels, 0, &self.shared.drops)
            })
            .collect();
        {
            let mut trees = self.trees.lock();
            new.iter().for_each(|tree| trees.add(Arc::clone(tree)));
        }
        let map = Arc::new(map.with(&new));
        if let Some(partitions) = &root.partitions {
            partitions.store(Arc::clone(&map));
        }
        state.taps.add_trees(root.id, &new);
        Ok(map)
    }

    /// The manifest edits of the partitions that were created while a memtable took the writes and
    /// still exist. The caller holds the catalog, whose `state` may know some already.
    pub(super) fn edits_of_created(&self, state: &CatalogState, created: &[Creation]) -> Vec<Edit> {
        let trees = self.trees.lock();
        created
            .iter()
            .filter(|new| !state.has_tree(new.tree) && trees.get(new.tree).is_some())
            .map(|Creation { root, tree, name }| Edit::CreatePartition {
                root: *root,
                name: name.clone(),
                tree: *tree,
            })
            .collect()
    }

    /// Drops partitions, all or none. Returns how many of them existed.
    pub(crate) fn drop_partitions(
        &self,
        inner: &Arc<KeyspaceInner>,
        names: &[&[u8]],
    ) -> Result<usize> {
        self.shared.check_takes_writes()?;
        let before = inner.tree.get().partition_map();
        if names.iter().all(|name| before.get(name).is_none()) {
            return inner.check_live().map(|()| 0);
        }
        drop(before);
        self.drop_partitions_in(self.lock_to_change()?, inner, names)
    }

    /// As [`Core::drop_partitions`], under the write lock.
    pub(super) fn drop_partitions_in(
        &self,
        mut state: Held<'_, WriteState>,
        inner: &Arc<KeyspaceInner>,
        names: &[&[u8]],
    ) -> Result<usize> {
        let mut catalog = self.lock_catalog();
        inner.check_live()?;
        let root = inner.tree.get();
        let (Some(partitions), before) = (&root.partitions, root.partition_map()) else {
            return Ok(0);
        };
        // The drop takes a sequence number of its own, so that every snapshot is before or after
        // it.
        let at = state.next_seq;
        let (mut map, mut gone) = (Arc::clone(&before), Vec::new());
        let mut edits = Vec::new();
        for name in names {
            let Some(tree) = map.get(name).cloned() else { continue };
            if catalog.state.has_tree(tree.id) {
                edits.push(Edit::DropPartition { root: root.id, name: (*name).into() });
            }
            // The creation is in no segment after this one, and must not be replayed.
            edits.push(Edit::RetireTree { tree: tree.id, segment: state.log.header().id });
            map = Arc::new(map.without(name, tree.id, at));
            gone.push(tree);
        }
        if gone.is_empty() {
            return Ok(0);
        }
        edits.extend(event_edits(at, &inner.name, EventKind::PartitionsDropped, &gone));
        catalog.commit(&self.shared, edits)?;
        state.next_seq += 1;
        self.keep_for_snapshots(inner, &root, at);
        partitions.store(map);
        state.taps.reset(inner);
        state.history.record_keyspace(inner.id, at);
        self.end_drop(state, catalog, &gone, at);
        let count = gone.len();
        drop((before, gone));
        self.reclaim_soon();
        Ok(count)
    }
}

impl KeyspaceInner {
    /// The LSM tree that takes writes of `key`; `None` if its partition must still be created.
    #[inline]
    pub(crate) fn tree_of(&self, key: &[u8]) -> Option<TreeId> {
        let guard = epoch::pin();
        let root = self.tree.load(&guard);
        let Some(partitions) = &root.partitions else { return Some(root.id) };
        partitions.load(&guard).get(&self.router.name_of(key)).map(|tree| tree.id)
    }
}

impl Keyspace {
    /// The name of the partition that `key` belongs to, even if the partition does not exist; empty
    /// for a keyspace without partitions.
    #[must_use]
    pub fn partition_of(&self, key: impl AsRef<[u8]>) -> Vec<u8> {
        self.inner.router.name_of(key.as_ref()).into_owned()
    }

    /// The partitions, in the order of their names: those that were written to since they were last
    /// dropped. O(partitions + tables).
    #[must_use]
    pub fn partitions(&self) -> Vec<PartitionInfo> {
        let map = self.inner.tree.get().partition_map();
        map.iter().map(|tree| info(tree)).collect()
    }

    /// Drops the partition `name` with all its keys, durably, and frees its space: one edit of the
    /// manifest, whatever the partition holds, after a sync of what was written before. Returns
    /// false if it did not exist; a later write into it creates it anew. Snapshots and iterators
    /// made before still see it, and keep its files until they are dropped. The background removes
    /// files without readers at once; with fewer than two background threads, this call does.
    /// [`Keyspace::partition_of`] returns the name for a key.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::KeyspaceDropped`], [`Error::WritesStopped`].
    pub fn drop_partition(&self, name: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.drop_partitions([name])? > 0)
    }

    /// [`Keyspace::drop_partition`] of several partitions together, with one edit of the manifest:
    /// all of them or, after an error or a crash, none. Returns how many existed.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::drop_partition`].
    pub fn drop_partitions<N: AsRef<[u8]>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<usize> {
        let names: Vec<N> = names.into_iter().collect();
        let names: Vec<&[u8]> = names.iter().map(AsRef::as_ref).collect();
        self.core().drop_partitions(&self.inner, &names)
    }
}

fn info(tree: &Tree) -> PartitionInfo {
    let levels = tree.levels.get();
    let mut info = PartitionInfo { name: tree.name.to_vec(), ..PartitionInfo::default() };
    for (_, table) in levels.all() {
        info.file_bytes += table.meta().total_bytes();
        info.tables += 1;
        info.entries += table.meta().entries;
    }
    info
}
