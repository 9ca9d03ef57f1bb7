//! Shows what was read of the manifest and the log, so that every read sees the state of one
//! moment.
//!
//! A keyspace whose tables have changed gets another tree, as if it had been cleared, and the
//! former one stays with its memtables for snapshots that are older than the new state: the writer
//! does not know of them, and its compactions drop what they see. Levels are never changed in
//! place, so scans that load them late find those of their moment.

use std::collections::{HashMap, HashSet};

use rhumb_sync::primitive::{Arc, Ordering};

use super::{Beside, new_memtable, tables::Tables};
use crate::{
    db::{
        catalog::Catalog,
        core::Core,
        keyspace::{KeyspaceInner, Retired},
        open::{check_partitions, open_levels, options_of},
    },
    error::{Error, Result},
    expiry::Millis,
    log::{creation::Creation, segment::segment_path},
    memtable::{LogFloor, MemView},
    options::LiveOptions,
    table::{Table, TableMeta},
    tree::{PartitionMap, Tree, Trees},
    types::{SeqNo, TreeId},
    version::{
        levels::Levels,
        manifest::manifest_path,
        state::{CatalogState, KeyspaceState},
    },
};

/// The open table that the manifest describes.
pub(super) fn opened(tables: &Tables, meta: &TableMeta) -> Result<Arc<Table>> {
    let missing = || Error::Internal(format!("table {} is not open", meta.id).into());
    tables.get(&meta.id).cloned().ok_or_else(missing)
}

/// The keyspaces of a new state.
#[derive(Default)]
struct Next {
    /// Keyspaces that get another LSM tree; those that are dropped get an empty one.
    changed: Vec<(Arc<KeyspaceInner>, Arc<Tree>)>,
    new: Vec<Arc<KeyspaceInner>>,
    dropped: Vec<Arc<KeyspaceInner>>,
    trees: Trees,
}

impl Beside {
    /// Shows what was read.
    pub(super) fn publish(&mut self, core: &Core) -> Result<()> {
        let seen = self.tail.state().last_seq.max(self.next_seq - 1);
        let seen = core.writer.visible_seq().max(seen);
        if self.is_stale || self.is_detached {
            self.publish_tables(core, seen)?;
        } else {
            self.publish_created(core)?;
            core.writer.visible.store(seen, Ordering::Release);
        }
        (self.is_stale, self.is_detached) = (false, false);
        Ok(())
    }

    /// Shows another state of the tables, in which `seen` is the number of the last write.
    fn publish_tables(&mut self, core: &Core, seen: SeqNo) -> Result<()> {
        let mut catalog = core.lock_catalog();
        let (state, before) = (self.tail.state().clone(), core.writer.visible_seq());
        // What the writer has left out because it had expired is not looked for by an earlier
        // clock. Snapshots that have one see the former tables, whatever their numbers are; those
        // that begin from here on do not.
        core.shared.latest_ms.fetch_max(state.clock_ms, Ordering::AcqRel);
        let is_any_earlier = core.snapshots.time(Millis::MAX) < state.clock_ms;
        // Reads at this number and later ones see the same in the new tables as in the writer's.
        let since = if is_any_earlier { state.last_seq.max(before + 1) } else { state.last_seq };
        let has_older = is_any_earlier || core.snapshots.oldest(|| before) < since;
        let next = self.next_keyspaces(core, &catalog, since, has_older)?;
        let view = core.memtables.get();
        if has_older {
            for inner in catalog.keyspaces.values() {
                let root = inner.tree.get();
                let (partitions, view) = (root.partition_map(), Some(Arc::clone(&view)));
                core.retire(inner, Retired { root, partitions, view, until: since });
            }
        }
        let is_ahead = state.last_seq > before || self.is_detached;
        if is_ahead {
            // The tables have entries that bypassed the memtables.
            for (_, root) in &next.changed {
                let forget = |tree: &Tree| view.active.forget_dead(tree.id, SeqNo::MAX);
                root.with_partitions().iter().for_each(|tree| forget(tree));
            }
        }
        *core.trees.lock() = next.trees;
        core.snapshots.while_none_begins(|| {
            // The number comes first: a scan loads it last, and what the new tables have dropped
            // must be older.
            core.writer.visible.store(seen, Ordering::Release);
            next.changed.iter().for_each(|(inner, root)| inner.tree.store(Arc::clone(root)));
            // A snapshot that begins later finds what was read of the log up to its number.
            self.drop_memtables(core, is_ahead);
        });
        for inner in &next.dropped {
            catalog.keyspaces.remove(&inner.name);
            inner.dropped.store(true, Ordering::Release);
        }
        let new = next.new.into_iter().map(|inner| (Arc::clone(&inner.name), inner));
        catalog.keyspaces.extend(new);
        core.shared.last_event.store(state.last_event(), Ordering::Release);
        catalog.state = state;
        drop(catalog);
        self.created.unseen.clear();
        core.release_retired();
        Ok(())
    }

    /// Gives up the memtables whose segments the manifest does not need, and shows the others.
    fn drop_memtables(&mut self, core: &Core, is_ahead: bool) {
        let floor = self.tail.state().log_start().segment;
        let is_needed = |log: Option<LogFloor>| log.is_some_and(|log| log.segment >= floor);
        self.memtables.retain(|memtable| is_needed(memtable.log()));
        let last = self.memtables.last().filter(|_| is_ahead && !self.is_detached);
        if let Some(log) = last.and_then(|last| last.log()) {
            // What walks found out before does not hold for what comes.
            self.memtables.push(Arc::new(new_memtable(core, Some(log))));
        }
        self.show_memtables(core);
    }

    /// Shows the memtables, the last one as the one that takes what comes.
    pub(super) fn show_memtables(&self, core: &Core) {
        let mut newest_first = self.memtables.iter().rev().cloned();
        let active = newest_first.next().unwrap_or_else(|| Arc::new(new_memtable(core, None)));
        let sealed = newest_first.collect();
        core.memtables.change(|_| MemView { active, sealed });
    }

    /// Shows the partitions that the log has created since.
    fn publish_created(&mut self, core: &Core) -> Result<()> {
        if self.created.unseen.is_empty() {
            return Ok(());
        }
        let (catalog, state) = (core.lock_catalog(), self.tail.state());
        let by_root: HashMap<TreeId, Arc<Tree>> =
            catalog.keyspaces.values().map(|inner| inner.tree.get()).map(|t| (t.id, t)).collect();
        let mut new: HashMap<TreeId, Vec<Arc<Tree>>> = HashMap::new();
        for &id in &self.created.unseen {
            let Some((segment, created)) = self.created.by_tree.get(&id) else { continue };
            let Some(root) = by_root.get(&created.root).filter(|_| is_alive(state, created)) else {
                continue;
            };
            if root.partitions.is_none() {
                let path = segment_path(&core.shared.dir, *segment);
                let expected = format!("no partition of the LSM tree {}", root.id);
                return Err(Error::corrupt(path, 0, expected, format!("that of {id}")));
            }
            let (options, levels) = (Arc::clone(&root.options), Levels::default());
            let name = created.name.clone();
            let tree = Tree::new(id, name, options, levels, 0, &core.shared.drops);
            new.entry(root.id).or_default().push(tree);
        }
        for (id, trees) in new {
            let Some((root, partitions)) =
                by_root.get(&id).and_then(|root| Some((root, root.partitions.as_ref()?)))
            else {
                continue;
            };
            let mut all = core.trees.lock();
            trees.iter().for_each(|tree| all.add(Arc::clone(tree)));
            partitions.store(Arc::new(root.partition_map().with(&trees)));
        }
        self.created.unseen.clear();
        Ok(())
    }

    /// The keyspaces of the manifest's state. Those whose tables and partitions are as before stay,
    /// unless `all` is true; the others begin at the sequence number `since`.
    fn next_keyspaces(
        &self,
        core: &Core,
        catalog: &Catalog,
        since: SeqNo,
        all: bool,
    ) -> Result<Next> {
        let (state, shared) = (self.tail.state(), &core.shared);
        let mut created: HashMap<TreeId, Vec<&Creation>> = HashMap::new();
        for (_, new) in self.created.by_tree.values().filter(|(_, new)| is_alive(state, new)) {
            created.entry(new.root).or_default().push(new);
        }
        let (mut next, mut ids) = (Next::default(), HashSet::new());
        for keyspace in state.keyspaces.values() {
            let (options, router) = options_of(keyspace, &shared.dir, &shared.functions)?;
            let known = catalog.keyspaces.get(keyspace.name.as_str());
            let known = known.filter(|inner| inner.id == keyspace.id);
            let created = created.get(&keyspace.tree).map(Vec::as_slice).unwrap_or_default();
            let old = known.map(|inner| inner.tree.get());
            let options = match known {
                Some(inner) => {
                    inner.options.set(&options.all());
                    Arc::clone(&inner.options)
                }
                None => options,
            };
            let (partitions, is_same) =
                self.next_partitions(core, keyspace, created, old.as_ref(), &options)?;
            let manifest = manifest_path(&shared.dir, self.tail.id());
            check_partitions(&keyspace.name, &manifest, &router, partitions.len())?;
            ids.insert(keyspace.id);
            let root = match old.filter(|_| is_same && !all) {
                Some(old) => old,
                None => {
                    let (id, levels) = (keyspace.tree, self.levels_of(keyspace.tree)?);
                    let map = PartitionMap::default().with(&partitions);
                    // No snapshot that there is sees a keyspace that is new.
                    let since = known.map_or(state.last_seq, |_| since);
                    let root = Tree::root(id, options, levels, map, since, &shared.drops);
                    match known {
                        Some(inner) => next.changed.push((Arc::clone(inner), Arc::clone(&root))),
                        None => {
                            let (name, tree) = (keyspace.name.as_str().into(), Arc::clone(&root));
                            let drops = &shared.drops;
                            let inner = KeyspaceInner::new(keyspace.id, name, tree, router, drops);
                            next.new.push(inner);
                        }
                    }
                    root
                }
            };
            root.with_partitions().into_iter().for_each(|tree| next.trees.add(tree));
        }
        for inner in catalog.keyspaces.values().filter(|inner| !ids.contains(&inner.id)) {
            let (levels, none) = (Levels::default(), PartitionMap::default());
            let (id, options) = (inner.tree.get().id, Arc::clone(&inner.options));
            let empty = Tree::root(id, options, levels, none, since, &shared.drops);
            next.changed.push((Arc::clone(inner), empty));
            next.dropped.push(Arc::clone(inner));
        }
        Ok(next)
    }

    /// The LSM trees of a keyspace's partitions in the manifest's state, and true if they, and the
    /// tables of the keyspace, are those of `old`.
    fn next_partitions(
        &self,
        core: &Core,
        keyspace: &KeyspaceState,
        created: &[&Creation],
        old: Option<&Arc<Tree>>,
        options: &Arc<LiveOptions>,
    ) -> Result<(Vec<Arc<Tree>>, bool)> {
        let (state, drops) = (self.tail.state(), &core.shared.drops);
        let old_map = old.map(|old| old.partition_map()).unwrap_or_default();
        let named = state.partitions_of(keyspace.tree).map(|(name, tree)| (&**name, tree));
        let named = named.chain(created.iter().map(|new| (&*new.name, new.tree)));
        let (mut partitions, mut is_same) = (Vec::new(), true);
        for (name, id) in named {
            let known = old_map.get(name).filter(|tree| tree.id == id);
            if let Some(tree) = known.filter(|tree| holds(&tree.levels.get(), state, id)) {
                partitions.push(Arc::clone(tree));
                continue;
            }
            is_same = false;
            let levels = self.levels_of(id)?;
            partitions.push(Tree::new(id, name.into(), Arc::clone(options), levels, 0, drops));
        }
        is_same &= partitions.len() == old_map.len()
            && old.is_some_and(|old| {
                old.id == keyspace.tree && holds(&old.levels.get(), state, old.id)
            });
        Ok((partitions, is_same))
    }

    fn levels_of(&self, tree: TreeId) -> Result<Levels> {
        open_levels(self.tail.state(), tree, &mut |meta| opened(&self.tables, meta))
    }
}

/// Returns true if a partition that the log has created is not in the manifest, and was not
/// dropped.
fn is_alive(state: &CatalogState, created: &Creation) -> bool {
    !state.is_retired(created.tree) && !state.has_tree(created.tree)
}

/// Returns true if levels hold the tables that an LSM tree has in `state`.
fn holds(levels: &Levels, state: &CatalogState, tree: TreeId) -> bool {
    let mut tables: Vec<_> = levels.all().map(|(level, table)| (level, table.meta().id)).collect();
    tables.sort_unstable();
    tables.into_iter().eq(state.tables_of(tree).map(|(level, meta)| (level, meta.id)))
}
