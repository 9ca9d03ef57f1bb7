//! Reads for callers that must not block a thread.
//!
//! No executor is required and none is started. The database's own thread wakes a future once its
//! bytes are there, whichever executor polls it. Reads of data in memory are answered without
//! suspending.

use std::ops::Bound;

use super::{
    keyspace::{Begun, Keyspace, prefix_bounds},
    snapshot::Snapshot,
};
use crate::{
    error::Result,
    iter::stream::AsyncIter,
    keys::{KeyRange, owned_bounds},
    plan::{
        Progress,
        drivers::{drive_async, drive_many_async, load_async},
        point::Found,
    },
    slice::Slice,
    types::SeqNo,
};

impl Keyspace {
    /// [`Keyspace::get`] that suspends instead of waiting for the disk. The future may be dropped
    /// at any time.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub async fn get_async(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.get_async_at(key.as_ref(), None).await
    }

    /// [`Keyspace::multi_get`] that suspends instead of waiting for the disk. All blocks that are
    /// not in memory are requested at once, up to 64 reads at a time. The future may be dropped at
    /// any time.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub async fn multi_get_async<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        self.multi_get_async_at(keys, None).await
    }

    /// [`Keyspace::range`] for callers that must not block a thread.
    pub fn range_async(&self, range: impl KeyRange) -> AsyncIter {
        let (from, to) = owned_bounds(&range);
        AsyncIter::new(self.ends_at(from, to, None))
    }

    /// [`Keyspace::iter`] for callers that must not block a thread.
    #[must_use]
    pub fn iter_async(&self) -> AsyncIter {
        AsyncIter::new(self.ends_at(Bound::Unbounded, Bound::Unbounded, None))
    }

    /// [`Keyspace::prefix`] for callers that must not block a thread.
    pub fn prefix_async(&self, prefix: impl AsRef<[u8]>) -> AsyncIter {
        let (from, to) = prefix_bounds(prefix.as_ref());
        AsyncIter::new(self.ends_at(from, to, None))
    }

    async fn get_async_at(&self, key: &[u8], seq: Option<SeqNo>) -> Result<Option<Slice>> {
        let found = match self.begin_at(key, seq, None)? {
            Begun::Found(None) => return Ok(None),
            Begun::Found(Some(found)) => found,
            Begun::Needs(mut read, request) => {
                drive_async(&mut read, Progress::Need(request)).await?
            }
        };
        match found {
            Found::Nothing => Ok(None),
            found => load_async(found).await.map(Some),
        }
    }

    async fn multi_get_async_at<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        seq: Option<SeqNo>,
    ) -> Result<Vec<Option<Slice>>> {
        let mut reads = self.begin_many(keys, seq)?;
        drive_many_async(&self.core().tables.reads, &mut reads).await?;
        let mut values = Vec::with_capacity(keys.len());
        for found in reads.into_found() {
            values.push(match found {
                Some(found) => Some(load_async(found).await?),
                None => None,
            });
        }
        Ok(values)
    }
}

impl Snapshot {
    /// [`Snapshot::get`] that suspends instead of waiting for the disk.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub async fn get_async(
        &self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Slice>> {
        keyspace.get_async_at(key.as_ref(), self.seq_in(keyspace)?).await
    }

    /// [`Snapshot::multi_get`] that suspends instead of waiting for the disk.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub async fn multi_get_async<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
    ) -> Result<Vec<Option<Slice>>> {
        keyspace.multi_get_async_at(keys, self.seq_in(keyspace)?).await
    }

    /// [`Snapshot::range`] for callers that must not block a thread.
    pub fn range_async(&self, keyspace: &Keyspace, range: impl KeyRange) -> AsyncIter {
        let (from, to) = owned_bounds(&range);
        AsyncIter::new(self.ends_in(keyspace, from, to))
    }

    /// [`Snapshot::iter`] for callers that must not block a thread.
    #[must_use]
    pub fn iter_async(&self, keyspace: &Keyspace) -> AsyncIter {
        AsyncIter::new(self.ends_in(keyspace, Bound::Unbounded, Bound::Unbounded))
    }

    /// [`Snapshot::prefix`] for callers that must not block a thread.
    pub fn prefix_async(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> AsyncIter {
        let (from, to) = prefix_bounds(prefix.as_ref());
        AsyncIter::new(self.ends_in(keyspace, from, to))
    }
}
