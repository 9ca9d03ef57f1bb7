//! Snapshots: the whole database as it was at one moment.

use std::fmt;

use rhumb_sync::primitive::Arc;

use super::{Handle, keyspace::Keyspace, reader::Reader};
use crate::{error::Result, types::SeqNo};

/// The whole database as it was when [`Database::snapshot`] was called: reads of all keyspaces
/// through it ([`Snapshot::keyspace`]) see that moment, whatever is written, cleared or dropped
/// afterwards.
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
        if !core.shared.process.is_here() {
            // Every read through it is refused, and the list's lock may be held for good.
            return Self { handle, seq: 0 };
        }
        let seq = core.snapshots.add(|| seq.unwrap_or_else(|| core.writer.visible_seq()));
        Self { handle, seq }
    }

    /// `keyspace` as it was at the snapshot's moment.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a keyspace of another database, or of an earlier opening of
    /// this one: its sequence numbers are not those of this one.
    ///
    /// [`Error::InvalidArgument`]: crate::Error::InvalidArgument
    pub fn keyspace<'a>(&'a self, keyspace: &'a Keyspace) -> Result<Reader<'a>> {
        keyspace.check_is_of(&self.handle)?;
        Ok(Reader::new(keyspace, Some(self.seq)))
    }

    /// The sequence number of the last write that the snapshot sees.
    #[must_use]
    pub fn sequence_number(&self) -> SeqNo {
        self.seq
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if !self.handle.core.shared.process.is_here() {
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
