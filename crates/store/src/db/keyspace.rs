//! Keyspaces: named ordered maps.

use std::{fmt, ops::Bound, sync::atomic::Ordering};

use rhumb_sync::{
    epoch::Guard,
    primitive::{Arc, AtomicBool, Mutex},
    published::Published,
};

use super::{Handle, batch::Batch, core::Core, pop::Claims};
use crate::{
    error::{Error, Result},
    iter::Iter,
    keys::{KeyRange, owned_bounds, prefix_end},
    log::batch::Encoded,
    memtable::{MemEntry, MemView, Memtable},
    options::{KeyspaceOptions, LiveOptions},
    partition::Router,
    plan::{
        BlockRequest, Plan, Progress, drive,
        drivers::drive_many,
        many::ManyReads,
        point::{Found, KeptRead, PointRead, Resident, load, read_resident},
    },
    slice::Slice,
    table::KeyHash,
    tree::{PartitionMap, Tree},
    types::{Kind, SeqNo, TreeId},
    version::{
        levels::Levels,
        prepare::{Hint, PREPARED_READS, prepare},
    },
};

/// The state that all handles of a keyspace share.
pub(crate) struct KeyspaceInner {
    pub(crate) id: u32,
    pub(crate) name: Arc<str>,
    pub(crate) options: Arc<LiveOptions>,
    pub(crate) router: Router,
    /// Replaced when the keyspace is cleared.
    pub(crate) tree: Published<Tree>,
    pub(crate) dropped: AtomicBool,
    /// The contents of the keyspace before each clearing, and before each drop of a partition, that
    /// a live snapshot may still see; oldest first.
    pub(crate) retired: Mutex<Vec<Retired>>,
    /// Keys that pops are taking out at present.
    pub(crate) claims: Mutex<Claims>,
}

/// Former contents of a keyspace, for snapshots.
pub(crate) struct Retired {
    pub(crate) root: Arc<Tree>,
    pub(crate) partitions: Arc<PartitionMap>,
    /// Snapshots from this sequence number on do not see it.
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

/// The number of reads of one call that are begun before their blocks are requested from the disk.
/// It is small, because the disk is idle until then.
const FIRST_READS: usize = 4;

impl Keyspace {
    /// The keyspace's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The options of the keyspace, each with a value.
    #[must_use]
    pub fn options(&self) -> KeyspaceOptions {
        self.inner.options.all()
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.handle.core
    }

    /// Rejects a keyspace that is not of the open database `handle`.
    pub(super) fn check_is_of(&self, handle: &Handle) -> Result<()> {
        if Arc::ptr_eq(&self.handle.core, &handle.core) {
            return Ok(());
        }
        Err(Error::InvalidArgument(
            format!("keyspace {:?} belongs to another database", self.name()).into(),
        ))
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

    /// Like [`Keyspace::insert`], for a value that the caller gives away. From 32 MiB on it is not
    /// copied: its log header is put in front of it, within its own memory, and it stays there
    /// until it is flushed. So it is in memory only once, if the allocator can grow a vector in
    /// place. Smaller values are copied once, as by [`Keyspace::insert`].
    ///
    /// # Errors
    ///
    /// As [`Keyspace::insert`].
    ///
    /// ```
    /// # fn main() -> rhumb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = rhumb::Database::builder(dir.path().join("db")).open()?;
    /// let films = db.keyspace("films", rhumb::KeyspaceOptions::default())?;
    /// films.insert_owned("one", vec![7; 1 << 20])?;
    /// assert_eq!(films.get("one")?.unwrap().len(), 1 << 20);
    /// # Ok(())
    /// # }
    /// ```
    pub fn insert_owned(&self, key: impl AsRef<[u8]>, value: Vec<u8>) -> Result<()> {
        let key = key.as_ref();
        let tree = self.tree_to_write(key)?;
        let record = Encoded::of_owned(&self.core().memory.records, tree, key, value)?;
        self.core().commit(record, 1, self.core().options.durability)
    }

    /// The sub-tree that a write of `key` goes to.
    pub(super) fn tree_to_write(&self, key: &[u8]) -> Result<TreeId> {
        self.inner.check_live()?;
        match self.inner.tree_of(key) {
            Some(tree) => Ok(tree),
            None => self.core().create_partition_of(&self.inner, key),
        }
    }

    /// Removes `key`. Removing an absent key is not an error.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::insert`].
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.write(Kind::Tombstone, key.as_ref(), &[])
    }

    /// Removes all keys in `range`, together: one append to the log and O(log n) in memory,
    /// whatever the range holds; in a keyspace with partitions, one entry for each partition that
    /// the range reaches. Reads and scans pass the removed entries without looking at them, and
    /// compactions free their space once no snapshot sees it. A range without keys is not an error.
    /// A partition that is created during the call may keep what is written into it meanwhile.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::insert`], with bounds of up to 64 KiB.
    pub fn delete_range(&self, range: impl KeyRange) -> Result<()> {
        let mut batch = Batch::new(Arc::clone(&self.handle));
        batch.delete_range(self, range);
        batch.commit()
    }

    fn write(&self, kind: Kind, key: &[u8], value: &[u8]) -> Result<()> {
        let tree = self.tree_to_write(key)?;
        let core = self.core();
        let record = Encoded::of(&core.memory.records, tree, kind, key, &[value])?;
        core.commit(record, 1, core.options.durability)
    }

    /// The value of `key`. Allocates nothing when the block is in memory.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the block that holds the key is damaged; [`Error::Io`];
    /// [`Error::KeyspaceDropped`]; [`Error::Forked`].
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.get_at(key.as_ref(), None)
    }

    /// Returns true if `key` is present.
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
        let mut reads = ManyReads::new(keys.len());
        let (mut begun, mut count) = (0, FIRST_READS);
        drive_many(&self.core().tables.reads, &mut reads, |reads| {
            let some = &keys[begun..keys.len().min(begun + count)];
            self.begin_some(reads, begun, some, seq)?;
            begun += some.len();
            count = PREPARED_READS;
            Ok(begun < keys.len())
        })?;
        reads.into_found().into_iter().map(|found| found.map(load).transpose()).collect()
    }

    /// Begins the reads of many keys: finds what is in memory, and records which blocks the others
    /// need.
    pub(crate) fn begin_many<'k, K: AsRef<[u8]>>(
        &self,
        keys: &'k [K],
        seq: Option<SeqNo>,
    ) -> Result<ManyReads<'k>> {
        let mut reads = ManyReads::new(keys.len());
        for (chunk, some) in keys.chunks(PREPARED_READS).enumerate() {
            self.begin_some(&mut reads, chunk * PREPARED_READS, some, seq)?;
        }
        Ok(reads)
    }

    /// Begins the reads of at most [`PREPARED_READS`] keys, the first of which has the index
    /// `first` in the call.
    fn begin_some<'k, K: AsRef<[u8]>>(
        &self,
        reads: &mut ManyReads<'k>,
        first: usize,
        keys: &'k [K],
        seq: Option<SeqNo>,
    ) -> Result<()> {
        self.core().check_process()?;
        let guard = rhumb_sync::epoch::pin();
        let hints = if keys.len() > 1 { self.prepare(keys, seq, &guard)? } else { [None; _] };
        for ((at, key), hint) in (first..).zip(keys).zip(&hints) {
            match self.begin_at(key.as_ref(), seq, hint.as_ref())? {
                Begun::Found(found) => reads.settle(at, found),
                Begun::Needs(read, request) => reads.add(at, read, request)?,
            }
        }
        Ok(())
    }

    /// Prefetches the cache lines that reads of these keys are likely to touch, and returns where
    /// the reads begin.
    fn prepare<'g, K: AsRef<[u8]>>(
        &'g self,
        keys: &[K],
        seq: Option<SeqNo>,
        guard: &'g Guard,
    ) -> Result<[Option<Hint<'g>>; PREPARED_READS]> {
        let view = self.core().mem.load(guard);
        for memtable in view.all() {
            keys.iter().for_each(|key| memtable.prefetch(key.as_ref()));
        }
        let mut levels = [None; PREPARED_READS];
        for (levels, key) in levels.iter_mut().zip(keys) {
            // A snapshot's read of a keyspace that was changed since is not prepared.
            if let Some(TreeRef::Current(tree)) = self.tree_at(key.as_ref(), seq, guard)? {
                *levels = Some(&**tree.levels.load(guard));
            }
        }
        let reads = levels.iter().zip(keys).map(|(levels, key)| Some(((*levels)?, key.as_ref())));
        Ok(prepare(guard, reads))
    }

    #[inline]
    pub(crate) fn get_at(&self, key: &[u8], seq: Option<SeqNo>) -> Result<Option<Slice>> {
        let read = |levels: &Arc<Levels>, guard: &Guard, seq| {
            let hash = KeyHash::of(key);
            match read_resident(levels, guard, key, hash, seq) {
                Resident::Hit(hit) => Ok(Some(hit.into_slice())),
                Resident::Nothing => Ok(None),
                Resident::Unclear(at, block) => {
                    get_on(PointRead::from(&**levels, guard, key, hash, seq, (at, block)))
                }
            }
        };
        self.read_at(key, seq, read, |found| found.map(load).transpose())
    }

    /// Finds the newest version of `key`; at a snapshot's sequence number, the newest that it sees.
    ///
    /// Without a snapshot the read takes the newest version in the structures that it meets. A
    /// version that is being replaced may be gone from newer levels, so no sequence number may be
    /// fixed before they are loaded.
    #[inline]
    pub(crate) fn find_at(&self, key: &[u8], seq: Option<SeqNo>) -> Result<Option<Found>> {
        self.read_at(
            key,
            seq,
            |levels, guard, seq| {
                let found = drive(&mut PointRead::new(&**levels, guard, key, seq))?;
                Ok((!matches!(found, Found::Nothing)).then_some(found))
            },
            Ok,
        )
    }

    /// Like [`Keyspace::find_at`], as far as memory goes.
    pub(crate) fn begin_at<'k>(
        &self,
        key: &'k [u8],
        seq: Option<SeqNo>,
        hint: Option<&Hint<'_>>,
    ) -> Result<Begun<'k>> {
        self.read_at(
            key,
            seq,
            |levels, guard, seq| {
                let mut read = PointRead::prepared(&**levels, guard, key, seq, hint);
                Ok(match read.step()? {
                    Progress::Done(Found::Nothing) => Begun::Found(None),
                    Progress::Done(found) => Begun::Found(Some(found)),
                    Progress::Need(request) => Begun::Needs(read.keep(Arc::clone(levels)), request),
                })
            },
            |found| Ok(Begun::Found(found)),
        )
    }

    /// The memtables of now, and the id and the levels of the sub-tree that `key` belongs to. A
    /// partition that does not exist is like one that is empty.
    pub(crate) fn view_of(&self, key: &[u8]) -> Result<(Arc<MemView>, TreeId, Arc<Levels>)> {
        self.core().check_process()?;
        let guard = rhumb_sync::epoch::pin();
        let view = self.core().mem.get();
        let tree = self.tree_at(key, None, &guard)?;
        let (id, levels) = tree.map_or_else(Default::default, |tree| (tree.id, tree.levels.get()));
        Ok((view, id, levels))
    }

    /// Reads `key` in the memtables. If it is in none of them, `in_tables` reads it in the levels.
    #[inline]
    fn read_at<T>(
        &self,
        key: &[u8],
        seq: Option<SeqNo>,
        in_tables: impl FnOnce(&Arc<Levels>, &Guard, SeqNo) -> Result<T>,
        in_memory: impl FnOnce(Option<Found>) -> Result<T>,
    ) -> Result<T> {
        self.core().check_process()?;
        let guard = rhumb_sync::epoch::pin();
        // The memtables are loaded before the levels: a flush works in the opposite order.
        let view = self.core().mem.load(&guard);
        let Some(tree) = self.tree_at(key, seq, &guard)? else { return in_memory(None) };
        let seq = seq.unwrap_or(SeqNo::MAX);
        for memtable in view.all() {
            // Looked up before the entry, so that an entry that a batch writes into a range that it
            // removes is not missed.
            let removed = memtable.newest_range(tree.id, key, seq);
            if removed > 0 {
                return in_memory(newer_than(removed, memtable, tree.id, key, seq));
            }
            if let Some(entry) = memtable.get(tree.id, key, seq) {
                return in_memory(found_in(&entry));
            }
        }
        in_tables(tree.levels.load(&guard), &guard, seq)
    }

    /// The sub-tree that holds what a reader sees of `key`; `None` if its partition does not exist,
    /// or if the keyspace is younger than the snapshot.
    #[inline(always)]
    fn tree_at<'g>(
        &'g self,
        key: &[u8],
        seq: Option<SeqNo>,
        guard: &'g Guard,
    ) -> Result<Option<TreeRef<'g>>> {
        if seq.is_none() {
            self.inner.check_live()?;
        }
        let root = self.inner.tree.load(guard);
        let seq = seq.unwrap_or(SeqNo::MAX);
        if root.since <= seq {
            let Some(partitions) = &root.partitions else {
                return Ok(Some(TreeRef::Current(root)));
            };
            let map = partitions.load(guard);
            if map.since <= seq {
                return Ok(map.get(&self.inner.router.name_of(key)).map(TreeRef::Current));
            }
        }
        Ok(self.retired_tree_at(key, seq).map(TreeRef::Retired))
    }

    /// [`Keyspace::tree_at`] if the keyspace was changed since.
    #[cold]
    #[inline(never)]
    fn retired_tree_at(&self, key: &[u8], seq: SeqNo) -> Option<Arc<Tree>> {
        let (root, map) = self.inner.retired_at(seq)?;
        if root.partitions.is_none() {
            return Some(root);
        }
        map.get(&self.inner.router.name_of(key)).cloned()
    }

    /// The keys of a range with their values, from both ends. The iterator sees the keyspace as it
    /// is now.
    pub fn range(&self, range: impl KeyRange) -> Iter {
        let (from, to) = owned_bounds(&range);
        self.iter_at(from, to, None)
    }

    /// Returns true if there is no key. Takes as long as a search for the first one.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.first_key_value()?.is_none())
    }

    /// The approximate number of keys: entries of tables and of memtables less the tombstones among
    /// them. Overwritten versions count until they are compacted away. O(tables). [`Iter`] counts
    /// exactly, in O(keys).
    #[must_use]
    pub fn len_estimate(&self) -> u64 {
        let core = self.core();
        let (guard, view) = (rhumb_sync::epoch::pin(), core.mem.get());
        let mut len = 0_u64;
        for tree in self.inner.tree.get().with_partitions() {
            let tables = tree.levels.load(&guard).all().map(|(_, table)| table.meta());
            len += tables
                .map(|meta| meta.entries - 2 * meta.tombstones.min(meta.entries / 2))
                .sum::<u64>();
            len += view.all().map(|memtable| memtable.entries_at_most(tree.id)).sum::<u64>();
        }
        len
    }

    /// The size in bytes of the files of its tables, with large values. Data in memtables and in
    /// the log has no file of its own. O(tables).
    #[must_use]
    pub fn disk_space(&self) -> u64 {
        let guard = rhumb_sync::epoch::pin();
        let of_tree = |tree: &Arc<Tree>| -> u64 {
            tree.levels.load(&guard).all().map(|(_, table)| table.meta().total_bytes()).sum()
        };
        self.inner.tree.get().with_partitions().iter().map(of_tree).sum()
    }

    /// All keys with their values, from both ends.
    #[must_use]
    pub fn iter(&self) -> Iter {
        self.iter_at(Bound::Unbounded, Bound::Unbounded, None)
    }

    /// The keys that begin with `prefix`, from both ends.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        let (from, to) = prefix_bounds(prefix.as_ref());
        self.iter_at(from, to, None)
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
        self.inner.check_live()?;
        for tree in self.inner.tree.get().with_partitions() {
            match self.core().compact_all(&tree) {
                // A sub-tree that was cleared or dropped meanwhile is compact.
                Err(_) if tree.dropped.load(Ordering::Acquire) => {}
                result => result?,
            }
        }
        self.inner.check_live()
    }

    /// Removes all keys at once: in constant time, and without tombstones.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::KeyspaceDropped`], [`Error::WritesStopped`].
    pub fn clear(&self) -> Result<()> {
        self.core().clear_keyspace(&self.inner)
    }

    /// Adds sorted entries straight to tables, bypassing log and memtable, all at once: they become
    /// visible and durable together when this returns. Returns their number.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if a key is not larger than the one before it, naming its place,
    /// or for bounds as in [`Keyspace::insert`]; then nothing is added. [`Error::Io`].
    pub fn ingest<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64> {
        self.inner.check_live()?;
        self.core().ingest(&self.inner, entries.into_iter())
    }
}

/// The result that an entry of a memtable gives for its key.
#[inline]
fn found_in(entry: &MemEntry) -> Option<Found> {
    (entry.kind() == Kind::Value).then(|| Found::Value(entry.value_slice()))
}

/// The result that a memtable gives for a key over which it has a range tombstone with the sequence
/// number `removed`.
#[cold]
#[inline(never)]
fn newer_than(
    removed: SeqNo,
    memtable: &Memtable,
    tree: TreeId,
    key: &[u8],
    seq: SeqNo,
) -> Option<Found> {
    found_in(&memtable.get(tree, key, seq).filter(|entry| entry.seq() >= removed)?)
}

/// Completes a read whose value is not resident.
#[inline(never)]
fn get_on(mut read: PointRead<'_, &Levels, &Guard>) -> Result<Option<Slice>> {
    match drive(&mut read)? {
        Found::Nothing => Ok(None),
        found => load(found).map(Some),
    }
}

/// The progress of a read in memory.
pub(crate) enum Begun<'k> {
    /// The read is complete.
    Found(Option<Found>),
    /// The read needs this block.
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

impl KeyspaceInner {
    /// Rejects a keyspace that was dropped.
    pub(crate) fn check_live(&self) -> Result<()> {
        if self.dropped.load(Ordering::Acquire) {
            return Err(Error::KeyspaceDropped(Arc::clone(&self.name)));
        }
        Ok(())
    }

    /// What snapshots at `seq` see of a keyspace that was changed since; `None` if the keyspace is
    /// younger than the snapshot.
    pub(crate) fn retired_at(&self, seq: SeqNo) -> Option<(Arc<Tree>, Arc<PartitionMap>)> {
        let retired = self.retired.lock();
        let seen = retired.iter().find(|retired| seq < retired.until)?;
        Some((Arc::clone(&seen.root), Arc::clone(&seen.partitions)))
    }
}

/// One end of a range of keys.
pub(crate) type KeyBound = Bound<Box<[u8]>>;

/// The bounds of the keys that begin with `prefix`.
pub(crate) fn prefix_bounds(prefix: &[u8]) -> (KeyBound, KeyBound) {
    let to = prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded);
    (Bound::Included(prefix.into()), to)
}

impl IntoIterator for &Keyspace {
    type Item = Result<(Slice, Slice)>;
    type IntoIter = Iter;

    fn into_iter(self) -> Iter {
        self.iter()
    }
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyspace").field("name", &self.name()).finish_non_exhaustive()
    }
}
