//! What a stream of changes yields: committed batches, and changes of keyspaces as a whole.

use std::{collections::HashMap, fmt};

use rhumb_sync::primitive::Arc;

use super::super::tap::{Change, change_of};
use crate::{
    error::{Error, Result},
    log::batch::{Batch, BatchOp, BatchOps},
    options::KeyspaceOptions,
    types::{SeqNo, TreeId},
    version::edit::{EventKind, KeyspaceEvent},
};

/// One committed unit of a database's history: the writes of a batch, a transaction or a single
/// call, or one change of a keyspace as a whole. Each write has a sequence number of its own, and
/// so has each change of a keyspace.
///
/// It belongs to the database whose [`Database::changes`](crate::Database::changes) it comes from:
/// only copies of that one take it ([`Database::apply`](crate::Database::apply)).
#[derive(Clone)]
pub struct Commit {
    /// The identity of the database.
    pub(super) origin: u64,
    /// The position of the stream before it: no change has a number from there on and before its
    /// own.
    pub(super) after: SeqNo,
    pub(super) first_seq: SeqNo,
    pub(super) last_seq: SeqNo,
    pub(super) content: Content,
}

/// What a commit holds.
#[derive(Clone)]
pub(super) enum Content {
    /// A batch of the log, and the names of the LSM trees in it.
    Writes {
        payload: Arc<Vec<u8>>,
        names: HashMap<TreeId, TreeName>,
    },
    Event(Arc<KeyspaceEvent>),
}

/// The keyspace and the partition of a LSM tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TreeName {
    pub(super) keyspace: Arc<str>,
    /// Empty for the keyspace's own LSM tree.
    pub(super) partition: Arc<[u8]>,
}

/// A change of a keyspace as a whole.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum KeyspaceChange<'c> {
    /// The keyspace has these options from now on, and is created if it did not exist.
    Opened {
        /// Its name.
        keyspace: &'c str,
        /// Its options.
        options: KeyspaceOptions,
    },
    /// The keyspace is dropped.
    Dropped {
        /// Its name.
        keyspace: &'c str,
    },
    /// All entries of the keyspace are removed.
    Cleared {
        /// Its name.
        keyspace: &'c str,
    },
    /// Partitions of the keyspace are dropped.
    PartitionsDropped {
        /// Its name.
        keyspace: &'c str,
        /// The names of the partitions.
        partitions: Vec<&'c [u8]>,
    },
    /// The keyspace took sorted entries ([`Keyspace::ingest`](crate::Keyspace::ingest)), which the
    /// log does not have: a follower has to copy the keyspace, or the database, anew.
    Ingested {
        /// Its name.
        keyspace: &'c str,
    },
}

/// One write of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Write<'c> {
    /// Its sequence number.
    pub seq: u64,
    /// The name of the keyspace.
    pub keyspace: &'c str,
    /// The change. A removal of a range from a keyspace with partitions is one for each.
    pub change: Change<'c>,
}

/// The writes of a commit, in order. [`Commit::writes`] returns it.
#[derive(Clone)]
pub struct Writes<'c>(Option<Rest<'c>>);

/// What is left of the writes of a batch.
#[derive(Clone)]
struct Rest<'c> {
    payload: &'c [u8],
    names: &'c HashMap<TreeId, TreeName>,
    /// The sequence number of the next write.
    seq: SeqNo,
    ops: BatchOps<'c>,
}

impl Commit {
    /// The sequence number of the first write.
    #[must_use]
    pub fn first_seq(&self) -> u64 {
        self.first_seq
    }

    /// The sequence number of the last write. A stream from the next number on yields what follows.
    #[must_use]
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// The bytes that it takes in the log.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.content {
            Content::Event(_) => 0,
            Content::Writes { payload, .. } => payload.len(),
        }
    }

    /// The writes, in order; none if the commit changes a keyspace as a whole. Writes into a
    /// keyspace that was dropped before they were committed are left out: they have no effect.
    #[must_use]
    pub fn writes(&self) -> Writes<'_> {
        Writes(match &self.content {
            Content::Event(_) => None,
            Content::Writes { payload, names } => {
                let ops = Batch::built(payload).ops();
                Some(Rest { payload, names, seq: self.first_seq, ops })
            }
        })
    }

    /// The change of a keyspace as a whole; `None` if the commit holds writes.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the options are those of a newer version.
    pub fn keyspace_change(&self) -> Result<Option<KeyspaceChange<'_>>> {
        let Content::Event(event) = &self.content else { return Ok(None) };
        let keyspace = event.keyspace.as_str();
        Ok(Some(match &event.what {
            EventKind::Opened { options } => {
                KeyspaceChange::Opened { keyspace, options: decode(keyspace, options)? }
            }
            EventKind::Dropped => KeyspaceChange::Dropped { keyspace },
            EventKind::Cleared => KeyspaceChange::Cleared { keyspace },
            EventKind::PartitionsDropped => KeyspaceChange::PartitionsDropped {
                keyspace,
                partitions: event.gone.iter().map(|(_, name)| &**name).collect(),
            },
            EventKind::Ingested => KeyspaceChange::Ingested { keyspace },
        }))
    }
}

fn decode(keyspace: &str, options: &[u8]) -> Result<KeyspaceOptions> {
    KeyspaceOptions::decode(options).map_err(|found| Error::Unsupported {
        path: keyspace.into(),
        what: format!("options of a keyspace with {found}"),
    })
}

impl<'c> Iterator for Writes<'c> {
    type Item = Write<'c>;

    fn next(&mut self) -> Option<Write<'c>> {
        let rest = self.0.as_mut()?;
        loop {
            let op: BatchOp = rest.ops.next()?;
            let seq = rest.seq;
            rest.seq += 1;
            if let Some(name) = rest.names.get(&op.tree) {
                let change = change_of(&op, rest.payload);
                return Some(Write { seq, keyspace: &name.keyspace, change });
            }
        }
    }
}

impl fmt::Debug for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Commit");
        f.field("first_seq", &self.first_seq).field("last_seq", &self.last_seq);
        if let Content::Event(event) = &self.content {
            f.field("event", event);
        }
        f.finish_non_exhaustive()
    }
}

impl fmt::Debug for Writes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}
