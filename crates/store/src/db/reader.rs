//! The one face of reads: points, many keys and ranges of one keyspace, as it is now or as a
//! snapshot sees it, waiting for the disk or as futures.
//!
//! A read of a key, step by step:
//!
//! 1. Pin the epoch, so that what is replaced meanwhile stays (`lookup.rs`).
//! 2. Look in the memtables, newest first.
//! 3. Look in the tables of the key's LSM tree, as far as their blocks are in memory
//!    (`plan/point.rs`).
//! 4. Unpin. From here on the read holds what it reads by counts.
//! 5. Fetch the block that is missing, and go on with it, until there is an answer.
//! 6. Fetch the value if it is stored outside its table's blocks.
//!
//! Reads of several keys do the steps 1 to 3 for some of them at a time, and fetch blocks of all of
//! them together. Ranges hold their structures by counts from the start (`scan.rs`).
//!
//! No executor is required for futures and none is started. The database's own thread wakes a
//! future once its bytes are there, whichever executor polls it. Reads of data in memory are
//! answered without suspending.

use std::{fmt, ops::Bound};

use super::{expiring::Expiry, keyspace::Keyspace};
use crate::{
    error::Result,
    expiry::{Millis, time_of},
    iter::{Iter, stream::AsyncIter},
    keys::{KeyRange, owned_bounds, prefix_bounds},
    plan::{
        drivers::{drive_async, drive_many, drive_many_async, load_async},
        many::ManyReads,
        point::{Begun, Found, WaitingRead, load, load_at_most},
    },
    slice::Slice,
    types::{Moment, SeqNo},
    version::prepare::PREPARED_READS,
};

/// The number of reads of one call that are begun before their blocks are requested from the disk.
/// It is small, because the disk is idle until then.
const FIRST_READS: usize = 4;

/// A keyspace for reads: as it is now ([`Keyspace::reader`]), or as a snapshot sees it
/// ([`Snapshot::keyspace`]).
///
/// Every method has the errors of [`Keyspace::get`]; iterators return one as their last item. As of
/// now, each call sees what was written before it; a call for many keys may see different moments
/// for different keys. As of a snapshot, all calls see the same moment.
///
/// ```
/// # fn main() -> rhumb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let db = rhumb::Database::open(dir.path())?;
/// let films = db.keyspace("films", rhumb::KeyspaceOptions::default())?;
/// films.insert("one", "1")?;
/// let snapshot = db.snapshot();
/// films.insert("two", "2")?;
/// let before = snapshot.keyspace(&films)?;
/// assert_eq!(before.iter().count(), 1);
/// assert_eq!(before.get("two")?, None);
/// assert_eq!(films.reader().get("two")?.unwrap(), b"2");
/// # Ok(())
/// # }
/// ```
///
/// [`Snapshot::keyspace`]: crate::Snapshot::keyspace
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    pub(super) keyspace: &'a Keyspace,
    /// The snapshot's moment; `None` for the newest versions.
    ///
    /// Without a snapshot a read takes the newest version in the structures that it meets. A
    /// version that is being replaced may be gone from newer levels, so no sequence number may be
    /// fixed before they are loaded.
    pub(super) moment: Option<Moment>,
}

impl<'a> Reader<'a> {
    #[inline]
    pub(super) fn new(keyspace: &'a Keyspace, moment: Option<Moment>) -> Self {
        Self { keyspace, moment }
    }

    /// The number of the last write that the reader sees.
    #[inline]
    pub(super) fn seq(&self) -> SeqNo {
        self.moment.map_or(SeqNo::MAX, |moment| moment.seq)
    }

    /// The time by which entries have expired for the reader.
    fn now_ms(&self) -> Millis {
        let now = || self.keyspace.core().shared.now_ms();
        self.moment.map_or_else(now, |moment| moment.now_ms)
    }

    /// What the reader finds of a key, waiting for the disk.
    #[inline]
    fn find(&self, key: &[u8]) -> Result<Found> {
        self.begin(key, None)?.wait()?.at(|| self.now_ms())
    }

    /// The value of `key`. Allocates nothing when the block is in memory.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        let times = &self.keyspace.core().shared.read_times;
        times.time(|| load(self.find(key.as_ref())?))
    }

    /// As [`Reader::get`], for a caller that has no time or memory for long values. A value in
    /// memory is returned whatever its length, since that copies nothing.
    ///
    /// ```
    /// # fn main() -> rhumb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use rhumb::Error;
    ///
    /// let db = rhumb::Database::open(dir.path())?;
    /// let films = db.keyspace("films", rhumb::KeyspaceOptions::default())?;
    /// films.insert("long", vec![1; 1 << 20])?;
    /// db.flush()?;
    /// let read = films.reader().get_at_most("long", 1000);
    /// assert!(matches!(read, Err(Error::TooLong { bytes: 0x10_0000, .. })));
    /// assert_eq!(films.reader().get_at_most("none", 1000)?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`], and [`Error::TooLong`](crate::Error::TooLong) if the value lies in a
    /// file of its own and is longer than `bytes_max`. It was not read.
    #[inline]
    pub fn get_at_most(&self, key: impl AsRef<[u8]>, bytes_max: u64) -> Result<Option<Slice>> {
        let times = &self.keyspace.core().shared.read_times;
        times.time(|| load_at_most(self.find(key.as_ref())?, bytes_max))
    }

    /// Returns true if `key` is present. Reads no value that is stored outside its table's blocks.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(!matches!(self.find(key.as_ref())?, Found::Nothing))
    }

    /// When `key` expires, if it is present: [`Expiry::Never`] or [`Expiry::At`]. Reads no value
    /// that is stored outside its table's blocks.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn expiry_of(&self, key: impl AsRef<[u8]>) -> Result<Option<Expiry>> {
        let found = self.begin(key.as_ref(), None)?.wait()?;
        let expires_ms = found.expires_ms();
        Ok(match found.at(|| self.now_ms())? {
            Found::Nothing => None,
            _ => Some(expires_ms.and_then(time_of).map_or(Expiry::Never, Expiry::At)),
        })
    }

    /// The values of many keys, in the order of `keys`.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        self.find_many(keys)?.into_iter().map(load).collect()
    }

    /// [`Reader::get_at_most`] for many keys, in the order of `keys`.
    ///
    /// # Errors
    ///
    /// As [`Reader::get_at_most`].
    pub fn multi_get_at_most<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        bytes_max: u64,
    ) -> Result<Vec<Option<Slice>>> {
        let found = self.find_many(keys)?.into_iter();
        found.map(|found| load_at_most(found, bytes_max)).collect()
    }

    /// What is found of many keys, in the order of `keys`.
    fn find_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Found>> {
        let mut reads = ManyReads::new(keys.len());
        let (mut begun, mut count) = (0, FIRST_READS);
        drive_many(&self.keyspace.core().shared.tables.reads, &mut reads, |reads| {
            let some = &keys[begun..keys.len().min(begun + count)];
            self.begin_some(reads, begun, some)?;
            begun += some.len();
            count = PREPARED_READS;
            Ok(begun < keys.len())
        })?;
        reads.into_found().into_iter().map(|found| found.at(|| self.now_ms())).collect()
    }

    /// The keys of a range with their values, from both ends. The iterator sees the keyspace as it
    /// is when it is made, or as the snapshot sees it.
    #[must_use]
    pub fn range(&self, range: impl KeyRange) -> Iter {
        let (from, to) = owned_bounds(&range);
        Iter::new(self.ends(from, to))
    }

    /// All keys with their values, from both ends.
    #[must_use]
    pub fn iter(&self) -> Iter {
        Iter::new(self.ends(Bound::Unbounded, Bound::Unbounded))
    }

    /// The keys that begin with `prefix`, from both ends.
    #[must_use]
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        let (from, to) = prefix_bounds(prefix.as_ref());
        Iter::new(self.ends(from, to))
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

    /// [`Reader::get`] that suspends instead of waiting for the disk. The future may be dropped at
    /// any time.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub async fn get_async(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        let found = match self.begin(key.as_ref(), None)? {
            Begun::Done(found) => found,
            Begun::Needs(waiting) => {
                let WaitingRead { mut read, request } = *waiting;
                drive_async(&mut read, request).await?
            }
        };
        load_async(found.at(|| self.now_ms())?).await
    }

    /// [`Reader::multi_get`] that suspends instead of waiting for the disk. All blocks that are not
    /// in memory are requested at once, up to 64 reads at a time. The future may be dropped at any
    /// time.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub async fn multi_get_async<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        let mut reads = ManyReads::new(keys.len());
        for (chunk, some) in keys.chunks(PREPARED_READS).enumerate() {
            self.begin_some(&mut reads, chunk * PREPARED_READS, some)?;
        }
        drive_many_async(&self.keyspace.core().shared.tables.reads, &mut reads).await?;
        let mut values = Vec::with_capacity(keys.len());
        for found in reads.into_found() {
            values.push(load_async(found.at(|| self.now_ms())?).await?);
        }
        Ok(values)
    }

    /// [`Reader::range`] for callers that must not block a thread.
    #[must_use]
    pub fn range_async(&self, range: impl KeyRange) -> AsyncIter {
        let (from, to) = owned_bounds(&range);
        AsyncIter::new(self.ends(from, to))
    }

    /// [`Reader::iter`] for callers that must not block a thread.
    #[must_use]
    pub fn iter_async(&self) -> AsyncIter {
        AsyncIter::new(self.ends(Bound::Unbounded, Bound::Unbounded))
    }

    /// [`Reader::prefix`] for callers that must not block a thread.
    #[must_use]
    pub fn prefix_async(&self, prefix: impl AsRef<[u8]>) -> AsyncIter {
        let (from, to) = prefix_bounds(prefix.as_ref());
        AsyncIter::new(self.ends(from, to))
    }
}

impl fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seq = self.moment.map(|moment| moment.seq);
        f.debug_struct("Reader")
            .field("keyspace", &self.keyspace.name())
            .field("seq", &seq)
            .finish()
    }
}
