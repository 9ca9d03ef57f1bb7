//! Snapshots: the whole database as it was at one moment.

use std::fmt;

use rhumb_sync::primitive::Arc;

use super::{Handle, keyspace::Keyspace, reader::Reader};
use crate::{
    error::Result,
    types::{Moment, SeqNo},
};

/// The whole database as it was when [`Database::snapshot`] was called: reads of all keyspaces
/// through it ([`Snapshot::keyspace`]) see that moment, whatever is written, cleared or dropped
/// afterwards. Its clock stands still: what had not expired when it was made, does not expire in
/// it.
///
/// A live snapshot keeps the versions that it sees from being reclaimed.
///
/// [`Database::snapshot`]: crate::Database::snapshot
pub struct Snapshot {
    handle: Arc<Handle>,
    moment: Moment,
}

impl Snapshot {
    pub(crate) fn new(handle: Arc<Handle>) -> Self {
        Self::at(handle, None)
    }

    /// A snapshot at the moment of another that is alive; without one, of now.
    pub(crate) fn at(handle: Arc<Handle>, moment: Option<Moment>) -> Self {
        let core = &handle.core;
        if !core.shared.process.is_here() {
            // Every read through it is refused, and the list's lock may be held for good.
            return Self { handle, moment: Moment { seq: 0, now_ms: 0 } };
        }
        let now = || Moment { seq: core.writer.visible_seq(), now_ms: core.shared.now_ms() };
        let moment = core.snapshots.add(|| moment.unwrap_or_else(now));
        Self { handle, moment }
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
        Ok(Reader::new(keyspace, Some(self.moment)))
    }

    /// The sequence number of the last write that the snapshot sees.
    #[must_use]
    pub fn sequence_number(&self) -> SeqNo {
        self.moment.seq
    }

    /// What the snapshot sees.
    pub(super) fn moment(&self) -> Moment {
        self.moment
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if !self.handle.core.shared.process.is_here() {
            return;
        }
        self.handle.core.snapshots.remove(self.moment.seq);
        self.handle.core.release_retired();
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("seq", &self.moment.seq).finish_non_exhaustive()
    }
}
