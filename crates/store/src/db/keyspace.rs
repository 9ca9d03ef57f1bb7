//! Keyspaces: named ordered maps.

use std::{fmt, sync::atomic::Ordering};

use rhumb_sync::{
    primitive::{Arc, AtomicBool, Mutex},
    published::Published,
};

use super::{Handle, batch::Batch, core::Core, pop::Claims, reader::Reader};
use crate::{
    error::{Error, Result},
    expiry::Millis,
    iter::{Iter, stream::AsyncIter},
    keys::KeyRange,
    log::batch::Encoded,
    memtable::MemView,
    options::{KeyspaceOptions, LiveOptions},
    partition::Router,
    slice::Slice,
    tree::{PartitionMap, Tree},
    types::{Kind, SeqNo, TreeId},
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
#[derive(Clone)]
pub(crate) struct Retired {
    pub(crate) root: Arc<Tree>,
    pub(crate) partitions: Arc<PartitionMap>,
    /// The memtables that belong to them, if those of now do not: in a reader beside a writer.
    pub(crate) view: Option<Arc<MemView>>,
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

    /// Sets the value of `key`, for as long as the keyspace's [`Lifetime`](crate::Lifetime) says,
    /// which is without end by default. O(log n) in memory, and one append to the log.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a key over 64 KiB or a value over 1 GiB;
    /// [`Error::KeyspaceDropped`]; [`Error::Io`] if the log could not be written, for example on a
    /// full disk; [`Error::WritesStopped`]. After an error the value is not set, except that after
    /// a failed sync it may be once the database is reopened.
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        match self.end_of_life() {
            None => self.write(Kind::Value, key.as_ref(), value.as_ref()),
            Some(at_ms) => self.write_until(key.as_ref(), value.as_ref(), at_ms),
        }
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
        if let Some(at_ms) = self.end_of_life() {
            return self.write_until(key, &value, at_ms);
        }
        let tree = self.tree_to_write(key)?;
        let record = Encoded::of_owned(&self.core().shared.memory.records, tree, key, value)?;
        self.core().commit(record, 1, self.core().shared.options.durability)
    }

    /// The LSM tree that a write of `key` goes to.
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
    pub fn remove_range(&self, range: impl KeyRange) -> Result<()> {
        let mut batch = Batch::new(Arc::clone(&self.handle));
        batch.remove_range(self, range);
        batch.commit()
    }

    fn write(&self, kind: Kind, key: &[u8], value: &[u8]) -> Result<()> {
        let tree = self.tree_to_write(key)?;
        let core = self.core();
        let record = Encoded::of(&core.shared.memory.records, tree, kind, key, &[value])?;
        core.commit(record, 1, core.shared.options.durability)
    }

    /// The keyspace as it is now, for reads: the same set of methods that a snapshot offers
    /// ([`Snapshot::keyspace`]).
    ///
    /// [`Snapshot::keyspace`]: crate::Snapshot::keyspace
    #[inline]
    #[must_use]
    pub fn reader(&self) -> Reader<'_> {
        Reader::new(self, None)
    }

    /// The value of `key`. Allocates nothing when the block is in memory.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the block that holds the key is damaged; [`Error::Io`];
    /// [`Error::KeyspaceDropped`]; [`Error::Forked`].
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.reader().get(key)
    }

    /// Returns true if `key` is present.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.reader().contains_key(key)
    }

    /// The values of many keys, in the order of `keys`.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        self.reader().multi_get(keys)
    }

    /// [`Keyspace::get`] that suspends instead of waiting for the disk. The future may be dropped
    /// at any time.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub async fn get_async(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.reader().get_async(key).await
    }

    /// [`Keyspace::multi_get`] that suspends instead of waiting for the disk. All blocks that are
    /// not in memory are requested at once, up to 64 reads at a time. The future may be dropped at
    /// any time.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub async fn multi_get_async<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        self.reader().multi_get_async(keys).await
    }

    /// [`Keyspace::range`] for callers that must not block a thread.
    pub fn range_async(&self, range: impl KeyRange) -> AsyncIter {
        self.reader().range_async(range)
    }

    /// [`Keyspace::iter`] for callers that must not block a thread.
    #[must_use]
    pub fn iter_async(&self) -> AsyncIter {
        self.reader().iter_async()
    }

    /// [`Keyspace::prefix`] for callers that must not block a thread.
    pub fn prefix_async(&self, prefix: impl AsRef<[u8]>) -> AsyncIter {
        self.reader().prefix_async(prefix)
    }

    /// The keys of a range with their values, from both ends. The iterator sees the keyspace as it
    /// is now.
    pub fn range(&self, range: impl KeyRange) -> Iter {
        self.reader().range(range)
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
    /// them. Overwritten versions, and what has expired, count until they are compacted away.
    /// O(tables). [`Iter`] counts exactly, in O(keys).
    #[must_use]
    pub fn len_estimate(&self) -> u64 {
        let core = self.core();
        let (guard, view) = (rhumb_sync::epoch::pin(), core.memtables.get());
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
        self.reader().iter()
    }

    /// The keys that begin with `prefix`, from both ends.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        self.reader().prefix(prefix)
    }

    /// The smallest key with its value.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn first_key_value(&self) -> Result<Option<(Slice, Slice)>> {
        self.reader().first_key_value()
    }

    /// The largest key with its value.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn last_key_value(&self) -> Result<Option<(Slice, Slice)>> {
        self.reader().last_key_value()
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
                // A LSM tree that was cleared or dropped meanwhile is compact.
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
        let end = self.end_of_life();
        self.try_ingest(entries.into_iter().map(|(key, value)| Ok((key, value, end))))
    }

    /// [`Keyspace::ingest`] of entries that may fail to come, and nothing is added then. Each has
    /// the time at which it expires, if it does, whatever the keyspace's lifetime is.
    pub(crate) fn try_ingest<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        entries: impl Iterator<Item = Result<(K, V, Option<Millis>)>>,
    ) -> Result<u64> {
        self.inner.check_live()?;
        self.core().ingest(&self.inner, entries)
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
    pub(crate) fn retired_at(&self, seq: SeqNo) -> Option<Retired> {
        self.retired.lock().iter().find(|retired| seq < retired.until).cloned()
    }
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
