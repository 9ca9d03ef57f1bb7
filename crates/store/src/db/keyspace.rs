//! Keyspaces: named ordered maps.

use std::{
    fmt,
    ops::{Bound, RangeBounds},
    sync::atomic::Ordering,
};

use crate::sync::epoch::Guard;

use super::{Handle, core::Core, core::Tree};
use crate::{
    error::{Error, Result},
    inspect::{Explanation, explain},
    iter::{
        Ends, Iter, load, prefix_end,
        source::{LevelCursor, Source},
    },
    log::batch::BatchBuilder,
    memtable::MemCursor,
    options::KeyspaceOptions,
    plan::{
        BlockRequest, Plan, Progress, drive,
        drivers::drive_many,
        many::ManyReads,
        point::{Found, KeptRead, PointRead},
    },
    slice::Slice,
    sync::{
        primitive::{Arc, AtomicBool, Mutex},
        published::Published,
    },
    table::{Access, TableCursor},
    types::{Kind, SeqNo},
    version::levels::{Levels, PREFETCHED_KEYS},
};

/// What all handles of a keyspace share.
pub(crate) struct KeyspaceInner {
    pub(crate) id: u32,
    pub(crate) name: Arc<str>,
    pub(crate) options: KeyspaceOptions,
    /// Replaced when the keyspace is cleared.
    pub(crate) tree: Published<Tree>,
    pub(crate) dropped: AtomicBool,
    /// Sub-trees that were cleared or dropped while a snapshot was alive; oldest first.
    pub(crate) retired: Mutex<Vec<Retired>>,
}

/// A sub-tree that only snapshots read.
pub(crate) struct Retired {
    pub(crate) tree: Arc<Tree>,
    /// Its last levels; they keep its files.
    pub(crate) levels: Arc<Levels>,
    /// Snapshots from this number on do not see it.
    pub(crate) until: SeqNo,
}

/// A named ordered map of byte strings in a [`Database`]: keys of up to 64 KiB in bytewise order,
/// values of up to 1 GiB. Cloning gives another handle of the same keyspace.
///
/// [`Database`]: crate::Database
#[derive(Clone)]
pub struct Keyspace {
    pub(crate) handle: Arc<Handle>,
    pub(crate) inner: Arc<KeyspaceInner>,
}

impl Keyspace {
    /// The keyspace's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The options it was created with.
    #[must_use]
    pub fn options(&self) -> &KeyspaceOptions {
        &self.inner.options
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.handle.core
    }

    fn check_live(&self) -> Result<()> {
        if self.inner.dropped.load(Ordering::Acquire) {
            return Err(Error::KeyspaceDropped(Arc::clone(&self.inner.name)));
        }
        Ok(())
    }

    /// The present sub-tree, to write to.
    pub(crate) fn live_tree(&self) -> Result<Arc<Tree>> {
        self.check_live()?;
        Ok(self.inner.tree.get())
    }

    /// Sets the value of `key`. O(log n) in memory, and one append to the log.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a key over 64 KiB or a value over 1 GiB;
    /// [`Error::KeyspaceDropped`]; [`Error::Io`] if the log could not be written, for example on a
    /// full disk; [`Error::WritesStopped`]. After an error the value is not set, except that after
    /// a failed sync it may be once the database is reopened.
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.write(Kind::Value, key.as_ref(), value.as_ref())
    }

    /// Removes `key`; removing an absent key is no error.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::insert`].
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.write(Kind::Tombstone, key.as_ref(), &[])
    }

    fn write(&self, kind: Kind, key: &[u8], value: &[u8]) -> Result<()> {
        self.check_live()?;
        let tree = self.inner.tree.load(&crate::sync::epoch::pin()).id;
        let mut builder = BatchBuilder::with_capacity(key.len() + value.len() + 16);
        builder.push(tree, kind, key, value)?;
        self.core().commit(builder.finish(), 1, self.core().options.durability)
    }

    /// The value of `key`. Allocates nothing when the block is in memory.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the block that holds the key is damaged; [`Error::Io`];
    /// [`Error::KeyspaceDropped`].
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.get_at(key.as_ref(), None)
    }

    /// Whether `key` is there.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.find_at(key.as_ref(), None)?.is_some())
    }

    /// The values of many keys, in the order of `keys`.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        self.multi_get_at(keys, None)
    }

    pub(crate) fn multi_get_at<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        seq: Option<SeqNo>,
    ) -> Result<Vec<Option<Slice>>> {
        let mut reads = self.begin_many(keys, seq)?;
        drive_many(&self.core().tables.reads, &mut reads)?;
        reads.into_found().into_iter().map(|found| found.map(load).transpose()).collect()
    }

    /// Begins the reads of many keys: what is in memory is found, and what is not is known.
    pub(crate) fn begin_many<'k, K: AsRef<[u8]>>(
        &self,
        keys: &'k [K],
        seq: Option<SeqNo>,
    ) -> Result<ManyReads<'k>> {
        let mut reads = ManyReads::new(keys.len());
        for (chunk, some) in keys.chunks(PREFETCHED_KEYS).enumerate() {
            if some.len() > 1 {
                let guard = crate::sync::epoch::pin();
                let levels = self.inner.tree.load(&guard).levels.load(&guard);
                levels.prefetch(&guard, some);
            }
            for (at, key) in (chunk * PREFETCHED_KEYS..).zip(some) {
                match self.begin_at(key.as_ref(), seq)? {
                    Begun::Found(found) => reads.settle(at, found),
                    Begun::Needs(read, request) => reads.add(at, read, request),
                }
            }
        }
        Ok(reads)
    }

    #[inline]
    pub(crate) fn get_at(&self, key: &[u8], seq: Option<SeqNo>) -> Result<Option<Slice>> {
        self.find_at(key, seq)?.map(load).transpose()
    }

    /// Finds the newest version of `key`; at a snapshot's number, the newest that it sees.
    ///
    /// Without a snapshot the read takes whatever is newest in the structures that it meets: a
    /// version that is being replaced may be gone from newer levels, so no number may be fixed
    /// before they are loaded.
    #[inline]
    pub(crate) fn find_at(&self, key: &[u8], seq: Option<SeqNo>) -> Result<Option<Found>> {
        self.read_at(
            key,
            seq,
            |levels, guard, seq| {
                let found = drive(&mut PointRead::new(&**levels, guard, key, seq))?;
                Ok((!matches!(found, Found::Nothing)).then_some(found))
            },
            |found| found,
        )
    }

    /// [`Keyspace::find_at`] as far as memory goes.
    pub(crate) fn begin_at<'k>(&self, key: &'k [u8], seq: Option<SeqNo>) -> Result<Begun<'k>> {
        self.read_at(
            key,
            seq,
            |levels, guard, seq| {
                let mut read = PointRead::new(&**levels, guard, key, seq);
                Ok(match read.step()? {
                    Progress::Done(Found::Nothing) => Begun::Found(None),
                    Progress::Done(found) => Begun::Found(Some(found)),
                    Progress::Need(request) => Begun::Needs(read.keep(Arc::clone(levels)), request),
                })
            },
            Begun::Found,
        )
    }

    /// Reads `key` in the memtables, and if it is in none, has `in_tables` read it in the levels.
    #[inline]
    fn read_at<T>(
        &self,
        key: &[u8],
        seq: Option<SeqNo>,
        in_tables: impl FnOnce(&Arc<Levels>, &Guard, SeqNo) -> Result<T>,
        in_memory: impl FnOnce(Option<Found>) -> T,
    ) -> Result<T> {
        let guard = crate::sync::epoch::pin();
        // The memtables before the levels: a flush goes the other way.
        let view = self.core().mem.load(&guard);
        let (tree, retired) = self.tree_at(seq, &guard)?;
        let seq = seq.unwrap_or(SeqNo::MAX);
        for memtable in view.all() {
            if let Some(entry) = memtable.get(tree.id, key, seq) {
                let value = (entry.kind() == Kind::Value).then(|| entry.value_slice());
                return Ok(in_memory(value.map(Found::Value)));
            }
        }
        let levels = match &retired {
            Some(levels) => levels,
            None => tree.levels.load(&guard),
        };
        in_tables(levels, &guard, seq)
    }

    /// How a read of `key` comes to its answer: memtables, tables, filters, models, blocks. Reads
    /// O(log blocks) blocks of each table that may have the key, to say where it really is.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation> {
        self.check_live()?;
        let guard = crate::sync::epoch::pin();
        let view = self.core().mem.get();
        let tree = self.inner.tree.load(&guard);
        explain(view.all(), tree.id, &tree.levels.get(), key.as_ref(), SeqNo::MAX)
    }

    /// The sub-tree that holds what a reader sees, with its last levels if it was cleared.
    #[inline]
    fn tree_at<'g>(
        &'g self,
        seq: Option<SeqNo>,
        guard: &'g Guard,
    ) -> Result<(TreeRef<'g>, Option<Arc<Levels>>)> {
        let Some(seq) = seq else {
            self.check_live()?;
            return Ok((TreeRef::Current(self.inner.tree.load(guard)), None));
        };
        let tree = self.inner.tree.load(guard);
        if tree.since <= seq {
            return Ok((TreeRef::Current(tree), None));
        }
        let retired = self.inner.retired.lock();
        match retired.iter().rev().find(|r| r.tree.since <= seq) {
            Some(Retired { tree, levels, .. }) => {
                Ok((TreeRef::Retired(Arc::clone(tree)), Some(Arc::clone(levels))))
            }
            // The keyspace is younger than the snapshot: an empty map.
            None => Ok((TreeRef::Retired(self.empty_tree()), Some(Arc::default()))),
        }
    }

    fn empty_tree(&self) -> Arc<Tree> {
        let (options, levels) = (self.inner.options.clone(), Levels::default());
        Tree::new(0, options, levels, 0, &self.handle.core.limbo)
    }

    /// The keys of a range with their values, from both ends. The iterator sees the keyspace as it
    /// is now.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Iter {
        let (from, to) = owned_bounds(&range);
        self.iter_at(from, to, None)
    }

    /// All keys with their values, from both ends.
    #[must_use]
    pub fn iter(&self) -> Iter {
        self.iter_at(Bound::Unbounded, Bound::Unbounded, None)
    }

    /// The keys that begin with `prefix`, from both ends.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        let prefix = prefix.as_ref();
        let to = prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded);
        self.iter_at(Bound::Included(prefix.into()), to, None)
    }

    pub(crate) fn iter_at(&self, from: KeyBound, to: KeyBound, seq: Option<SeqNo>) -> Iter {
        Iter::new(self.ends_at(from, to, seq))
    }

    /// The ends of a range as they are now, or as a snapshot sees them.
    pub(crate) fn ends_at(&self, from: KeyBound, to: KeyBound, seq: Option<SeqNo>) -> Ends {
        let guard = crate::sync::epoch::pin();
        let view = self.core().mem.get();
        let (tree, levels) = match self.tree_at(seq, &guard) {
            Ok((tree, retired)) => {
                let levels = retired.unwrap_or_else(|| tree.levels.get());
                (tree.id, levels)
            }
            Err(error) => return Ends::failed(error),
        };
        // Last: everything that the structures above have dropped is older than this.
        let seq = seq.unwrap_or_else(|| self.core().visible_seq());
        let handle = Arc::clone(&self.handle);
        let sources = Box::new(move |access| {
            let access = if handle.core.options.read_ahead { access } else { Access::Blocks };
            let mut sources = Vec::with_capacity(levels.zero.len() + levels.sorted.len() + 3);
            for memtable in view.all().filter(|memtable| memtable.contains_tree(tree)) {
                sources.push(Source::Mem(MemCursor::new(Arc::clone(memtable), tree)));
            }
            for table in &levels.zero {
                sources.push(Source::Table(TableCursor::new(Arc::clone(table), access)));
            }
            for level in 1..levels.depth() {
                if !levels.tables(level).is_empty() {
                    let cursor = LevelCursor::new(Arc::clone(&levels), level, access);
                    sources.push(Source::Level(cursor));
                }
            }
            sources
        });
        Ends::new(sources, seq, from, to)
    }

    /// The smallest key with its value.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn first_key_value(&self) -> Result<Option<(Slice, Slice)>> {
        self.iter().next().transpose()
    }

    /// The largest key with its value.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn last_key_value(&self) -> Result<Option<(Slice, Slice)>> {
        self.iter().next_back().transpose()
    }

    /// Merges everything into one level: no overwritten version, no tombstone and at most one
    /// table per key remain, as far as live snapshots allow. Reads and writes go on meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::Corrupt`], [`Error::KeyspaceDropped`].
    pub fn compact(&self) -> Result<()> {
        self.core().flush()?;
        let tree = self.live_tree()?;
        self.core().compact_all(&tree)
    }

    /// Removes all keys at once: in constant time, and without tombstones.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::KeyspaceDropped`], [`Error::WritesStopped`].
    pub fn clear(&self) -> Result<()> {
        self.core().clear_keyspace(&self.inner)
    }

    /// Adds sorted entries straight to tables, past log and memtable, all at once: they become
    /// visible and durable together when this returns. Returns their number.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if a key is not larger than the one before it, naming the place,
    /// or for bounds as in [`Keyspace::insert`]; nothing is added then. [`Error::Io`].
    pub fn ingest<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64> {
        let tree = self.live_tree()?;
        self.core().ingest(&tree, entries.into_iter())
    }
}

/// How far a read came in memory.
pub(crate) enum Begun<'k> {
    /// To its end.
    Found(Option<Found>),
    /// To where it needs this block.
    Needs(KeptRead<'k>, BlockRequest),
}

/// A sub-tree, borrowed while a guard is held or kept.
enum TreeRef<'g> {
    Current(&'g Arc<Tree>),
    Retired(Arc<Tree>),
}

impl std::ops::Deref for TreeRef<'_> {
    type Target = Tree;

    #[inline]
    fn deref(&self) -> &Tree {
        match self {
            Self::Current(tree) => tree,
            Self::Retired(tree) => tree,
        }
    }
}

/// One end of a range of keys.
pub(crate) type KeyBound = Bound<Box<[u8]>>;

/// The bounds of a range as owned keys.
pub(crate) fn owned_bounds<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> (KeyBound, KeyBound) {
    let own = |bound: Bound<&K>| bound.map(|key| Box::from(key.as_ref()));
    (own(range.start_bound()), own(range.end_bound()))
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyspace").field("name", &self.name()).finish_non_exhaustive()
    }
}
