//! Snapshots: the whole database as it was at one moment.

use std::{fmt, ops::Bound};

use rhumb_sync::primitive::Arc;

use super::{
    Handle,
    keyspace::{KeyBound, Keyspace, prefix_bounds},
};
use crate::{
    error::Result,
    iter::{Ends, Iter},
    keys::KeyRange,
    slice::Slice,
    types::SeqNo,
};

/// The whole database as it was when [`Database::snapshot`] was called: reads of all keyspaces
/// through it see that moment, whatever is written, cleared or dropped afterwards.
///
/// A live snapshot keeps the versions that it sees from being reclaimed.
///
/// [`Database::snapshot`]: crate::Database::snapshot
pub struct Snapshot {
    handle: Arc<Handle>,
    seq: SeqNo,
}

impl Snapshot {
    pub(crate) fn new(handle: Arc<Handle>) -> Self {
        Self::at(handle, None)
    }

    /// A snapshot at the sequence number of another that is alive; without one, of now.
    pub(crate) fn at(handle: Arc<Handle>, seq: Option<SeqNo>) -> Self {
        let core = &handle.core;
        if !core.process.is_here() {
            // Every read through it is refused, and the list's lock may be held for good.
            return Self { handle, seq: 0 };
        }
        let seq = core.snapshots.add(|| seq.unwrap_or_else(|| core.visible_seq()));
        Self { handle, seq }
    }

    /// The sequence number at which reads of `keyspace` see it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a keyspace of another database, or of an earlier opening of
    /// this one: its sequence numbers are not those of this one.
    ///
    /// [`Error::InvalidArgument`]: crate::Error::InvalidArgument
    pub(super) fn seq_in(&self, keyspace: &Keyspace) -> Result<Option<SeqNo>> {
        keyspace.check_is_of(&self.handle)?;
        Ok(Some(self.seq))
    }

    /// The ends of a range of `keyspace`; ends that fail if [`Snapshot::seq_in`] fails.
    pub(super) fn ends_in(&self, keyspace: &Keyspace, from: KeyBound, to: KeyBound) -> Ends {
        match self.seq_in(keyspace) {
            Ok(seq) => keyspace.ends_at(from, to, seq),
            Err(error) => Ends::failed(error),
        }
    }

    /// The value of `key` in `keyspace` at the snapshot's moment.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`]; [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a
    /// keyspace of another database, as in all reads through a snapshot. Iterators return it as
    /// their only item.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        keyspace.get_at(key.as_ref(), self.seq_in(keyspace)?)
    }

    /// Returns true if `keyspace` held `key` at the snapshot's moment.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn contains_key(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(keyspace.find_at(key.as_ref(), self.seq_in(keyspace)?)?.is_some())
    }

    /// The values of many keys, in the order of `keys`.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
    ) -> Result<Vec<Option<Slice>>> {
        keyspace.multi_get_at(keys, self.seq_in(keyspace)?)
    }

    /// The keys of a range with their values, from both ends.
    #[must_use]
    pub fn range(&self, keyspace: &Keyspace, range: impl KeyRange) -> Iter {
        let (from, to) = crate::keys::owned_bounds(&range);
        Iter::new(self.ends_in(keyspace, from, to))
    }

    /// All keys with their values, from both ends.
    #[must_use]
    pub fn iter(&self, keyspace: &Keyspace) -> Iter {
        Iter::new(self.ends_in(keyspace, Bound::Unbounded, Bound::Unbounded))
    }

    /// The keys that begin with `prefix`, from both ends.
    #[must_use]
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Iter {
        let (from, to) = prefix_bounds(prefix.as_ref());
        Iter::new(self.ends_in(keyspace, from, to))
    }

    /// The smallest key with its value.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn first_key_value(&self, keyspace: &Keyspace) -> Result<Option<(Slice, Slice)>> {
        self.iter(keyspace).next().transpose()
    }

    /// The largest key with its value.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn last_key_value(&self, keyspace: &Keyspace) -> Result<Option<(Slice, Slice)>> {
        self.iter(keyspace).next_back().transpose()
    }

    /// The sequence number of the last write that the snapshot sees.
    #[must_use]
    pub fn sequence_number(&self) -> SeqNo {
        self.seq
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if !self.handle.core.process.is_here() {
            return;
        }
        self.handle.core.snapshots.remove(self.seq);
        self.handle.core.release_retired();
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("seq", &self.seq).finish_non_exhaustive()
    }
}
