//! The part of a point read that is done under a pin of the epoch: from the key to its LSM tree,
//! and to its newest version in memory.
//!
//! Nothing here waits for the disk: a pin that lasts for a slow read would hold back all garbage of
//! the process, and every database of it.

use rhumb_sync::{epoch::Guard, primitive::Arc};

use super::{
    keyspace::{Keyspace, Retired},
    reader::Reader,
};
use crate::{
    error::Result,
    memtable::{MemEntry, MemView, Memtable},
    plan::{
        many::ManyReads,
        point::{Begun, Found, begin},
    },
    tree::Tree,
    types::{Kind, SeqNo, TreeId},
    version::{
        levels::Levels,
        prepare::{Hint, PREPARED_READS, prepare},
    },
};

impl Reader<'_> {
    /// Reads the newest version of `key` that the reader sees, as far as memory goes. `hint` is the
    /// place where the tables are searched first.
    #[inline(always)]
    pub(super) fn begin<'k>(&self, key: &'k [u8], hint: Option<&Hint<'_>>) -> Result<Begun<'k>> {
        let core = self.keyspace.core();
        core.shared.check_process()?;
        let guard = rhumb_sync::epoch::pin();
        // The memtables are loaded before the levels: a flush works in the opposite order.
        let view = core.memtables.load(&guard);
        let Some(tree) = self.tree_of(key, &guard)? else {
            return Ok(Begun::Done(Found::Nothing));
        };
        let view = tree.view().unwrap_or(view);
        let seq = self.seq();
        for memtable in view.all() {
            // Looked up before the entry, so that an entry that a batch writes into a range that it
            // removes is not missed.
            let removed = memtable.newest_range(tree.id, key, seq);
            if removed > 0 {
                return Ok(Begun::Done(newer_than(removed, memtable, tree.id, key, seq)));
            }
            if let Some(entry) = memtable.get(tree.id, key, seq) {
                return Ok(Begun::Done(found_in(&entry)));
            }
        }
        begin(tree.levels.load(&guard), &guard, key, seq, hint)
    }

    /// Begins the reads of at most [`PREPARED_READS`] keys, the first of which has the index
    /// `first` in the call: finds what is in memory, and records which blocks the others need.
    pub(super) fn begin_some<'k, K: AsRef<[u8]>>(
        &self,
        reads: &mut ManyReads<'k>,
        first: usize,
        keys: &'k [K],
    ) -> Result<()> {
        self.keyspace.core().shared.check_process()?;
        let guard = rhumb_sync::epoch::pin();
        let hints = if keys.len() > 1 { self.prepare(keys, &guard)? } else { [None; _] };
        for ((at, key), hint) in (first..).zip(keys).zip(&hints) {
            match self.begin(key.as_ref(), hint.as_ref())? {
                Begun::Done(found) => reads.finish(at, found),
                Begun::Needs(waiting) => reads.add(at, *waiting)?,
            }
        }
        Ok(())
    }

    /// Prefetches the cache lines that reads of these keys are likely to touch, and returns where
    /// the reads begin.
    fn prepare<'g, K: AsRef<[u8]>>(
        &'g self,
        keys: &[K],
        guard: &'g Guard,
    ) -> Result<[Option<Hint<'g>>; PREPARED_READS]> {
        let view = self.keyspace.core().memtables.load(guard);
        for memtable in view.all() {
            keys.iter().for_each(|key| memtable.prefetch(key.as_ref()));
        }
        let mut levels = [None; PREPARED_READS];
        for (levels, key) in levels.iter_mut().zip(keys) {
            // A snapshot's read of a keyspace that was changed since is not prepared.
            if let Some(TreeRef::Current(tree)) = self.tree_of(key.as_ref(), guard)? {
                *levels = Some(&**tree.levels.load(guard));
            }
        }
        let reads = levels.iter().zip(keys).map(|(levels, key)| Some(((*levels)?, key.as_ref())));
        Ok(prepare(guard, reads))
    }

    /// The LSM tree that holds what the reader sees of `key`; `None` if its partition does not
    /// exist, or if the keyspace is younger than the snapshot.
    #[inline(always)]
    fn tree_of<'g>(&'g self, key: &[u8], guard: &'g Guard) -> Result<Option<TreeRef<'g>>> {
        let inner = &self.keyspace.inner;
        if self.moment.is_none() {
            inner.check_live()?;
        }
        let root = inner.tree.load(guard);
        let seq = self.seq();
        if root.since <= seq {
            let Some(partitions) = &root.partitions else {
                return Ok(Some(TreeRef::Current(root)));
            };
            let map = partitions.load(guard);
            if map.since <= seq {
                return Ok(map.get(&inner.router.name_of(key)).map(TreeRef::Current));
            }
        }
        Ok(self.retired_tree_of(key, seq))
    }

    /// [`Reader::tree_of`] if the keyspace was changed since.
    #[cold]
    #[inline(never)]
    fn retired_tree_of<'g>(&self, key: &[u8], seq: SeqNo) -> Option<TreeRef<'g>> {
        let inner = &self.keyspace.inner;
        let Retired { root, partitions, view, .. } = inner.retired_at(seq)?;
        if root.partitions.is_none() {
            return Some(TreeRef::Retired(root, view));
        }
        let tree = partitions.get(&inner.router.name_of(key)).cloned()?;
        Some(TreeRef::Retired(tree, view))
    }
}

impl Keyspace {
    /// The memtables of now, and the id and the levels of the LSM tree that `key` belongs to. A
    /// partition that does not exist is like one that is empty.
    pub(crate) fn view_of(&self, key: &[u8]) -> Result<(Arc<MemView>, TreeId, Arc<Levels>)> {
        self.core().shared.check_process()?;
        let guard = rhumb_sync::epoch::pin();
        let (view, reader) = (self.core().memtables.get(), self.reader());
        let tree = reader.tree_of(key, &guard)?;
        let (id, levels) = tree.map_or_else(Default::default, |tree| (tree.id, tree.levels.get()));
        Ok((view, id, levels))
    }
}

/// The result that an entry of a memtable gives for its key.
#[inline]
fn found_in(entry: &MemEntry) -> Found {
    match entry.kind() {
        Kind::Value => Found::Value(entry.value_slice()),
        Kind::Expiring => Found::Expiring(entry.value_slice(), None),
        Kind::Tombstone | Kind::LargeValue => Found::Nothing,
    }
}

/// The result that a memtable gives for a key over which it has a range tombstone with the sequence
/// number `removed`.
#[cold]
#[inline(never)]
fn newer_than(removed: SeqNo, memtable: &Memtable, tree: TreeId, key: &[u8], seq: SeqNo) -> Found {
    let newer = memtable.get(tree, key, seq).filter(|entry| entry.seq() >= removed);
    newer.map_or(Found::Nothing, |entry| found_in(&entry))
}

/// An LSM tree, borrowed while a guard is held or kept.
enum TreeRef<'g> {
    Current(&'g Arc<Tree>),
    /// With the memtables that belong to it, if those of now do not.
    Retired(Arc<Tree>, Option<Arc<MemView>>),
}

impl TreeRef<'_> {
    /// The memtables that belong to the LSM tree; `None` for those of now.
    #[inline]
    fn view(&self) -> Option<&Arc<MemView>> {
        match self {
            Self::Current(_) => None,
            Self::Retired(_, view) => view.as_ref(),
        }
    }
}

impl std::ops::Deref for TreeRef<'_> {
    type Target = Tree;

    #[inline]
    fn deref(&self) -> &Tree {
        match self {
            Self::Current(tree) => tree,
            Self::Retired(tree, _) => tree,
        }
    }
}
