//! Edits of the catalog. Their bytes in the manifest are in [`super::format`].
//!
//! A record of the manifest is one [`VersionEdit`]: edits that hold together or not at all. Whether
//! an edit fits the catalog is decided by [`super::state::CatalogState`].

use crate::{
    expiry::Millis,
    log::Lsn,
    table::TableMeta,
    types::{FileId, SeqNo, TreeId},
};

/// File numbers are below this, so that there is always a next one.
pub(crate) const FILE_ID_END: FileId = 1 << 62;

/// One change of the catalog.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Edit {
    /// The database's random number; the first edit of the first manifest.
    Identity {
        /// The number.
        identity: u64,
    },
    /// A new keyspace with an empty LSM tree.
    CreateKeyspace {
        /// Its number. It was never used before, except by the keyspace that the edit before drops
        /// to change options. The same holds for its LSM tree.
        id: u32,
        /// Its name; no other keyspace has it.
        name: String,
        /// Its options, as the engine encodes them.
        options: Vec<u8>,
        /// Its LSM tree.
        tree: TreeId,
    },
    /// The keyspace, its LSM tree and all tables of it are removed.
    DropKeyspace {
        /// Its number.
        id: u32,
    },
    /// The keyspace has a new, empty LSM tree; the old one is removed with all its tables.
    ReplaceTree {
        /// The keyspace's number.
        keyspace: u32,
        /// The LSM tree it has.
        old: TreeId,
        /// The LSM tree it gets; never used before.
        new: TreeId,
    },
    /// A table becomes part of a level.
    AddTable {
        /// The LSM tree.
        tree: TreeId,
        /// The level, below [`LEVELS_MAX`](crate::types::LEVELS_MAX).
        level: u8,
        /// The table.
        meta: TableMeta,
    },
    /// A table is no longer part of a level. To move a table, remove it before it is added.
    RemoveTable {
        /// The LSM tree.
        tree: TreeId,
        /// The level that has it.
        level: u8,
        /// The table's number.
        id: FileId,
    },
    /// Log segments before this one are no longer needed.
    LogFloor {
        /// The first segment that is still needed.
        segment: FileId,
        /// The place of that segment's first byte.
        lsn: Lsn,
    },
    /// Numbers from these on were not used yet.
    NextIds {
        /// The next number of a file.
        file: FileId,
        /// The next number of a LSM tree.
        tree: TreeId,
        /// The next number of a keyspace.
        keyspace: u32,
    },
    /// No write in a table or before the log's floor has a greater number.
    LastSeq {
        /// The number.
        seq: SeqNo,
    },
    /// A new partition with an empty LSM tree.
    CreatePartition {
        /// The LSM tree of its keyspace.
        root: TreeId,
        /// Its name; no other partition of the keyspace has it.
        name: Box<[u8]>,
        /// Its LSM tree; never used before.
        tree: TreeId,
    },
    /// The partition, its LSM tree and all tables of it are removed.
    DropPartition {
        /// The LSM tree of its keyspace.
        root: TreeId,
        /// Its name.
        name: Box<[u8]>,
    },
    /// Entries that expire before this time have been left out somewhere: the database's clock must
    /// not go back before it.
    Clock {
        /// Milliseconds since the Unix epoch.
        ms: Millis,
    },
    /// A partition is dropped that the manifest does not know: its creation is in the log.
    RetireTree {
        /// Its LSM tree.
        tree: TreeId,
        /// The last segment that may hold its creation.
        segment: FileId,
    },
    /// A keyspace is changed as a whole by the other edits of the record: kept for streams of
    /// changes.
    Event(KeyspaceEvent),
    /// Streams of changes cannot go over what was before this sequence number.
    HistoryFrom {
        /// The number.
        seq: SeqNo,
    },
    /// The database takes the changes of another one.
    Source {
        /// The identity of that database; 0 for none.
        identity: u64,
    },
}

/// A change of a keyspace as a whole, which the log does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyspaceEvent {
    /// Its sequence number, which no write has.
    pub(crate) seq: SeqNo,
    /// The name of the keyspace.
    pub(crate) keyspace: String,
    /// What happened to it.
    pub(crate) what: EventKind,
    /// The LSM trees that it lost, each with the name of its partition, which is empty for the
    /// keyspace's own: the log may hold earlier writes into them.
    pub(crate) gone: Vec<(TreeId, Box<[u8]>)>,
}

/// What happens to a keyspace as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// It has these options from now on, and is created if it did not exist.
    Opened {
        /// The options, as the engine encodes them.
        options: Vec<u8>,
    },
    /// It is dropped.
    Dropped,
    /// It is emptied.
    Cleared,
    /// The partitions of [`KeyspaceEvent::gone`] are dropped.
    PartitionsDropped,
    /// It takes sorted entries that are not in the log.
    Ingested,
}

impl KeyspaceEvent {
    /// The bytes that it takes in the manifest, but for a few.
    pub(crate) fn bytes(&self) -> u64 {
        let options = match &self.what {
            EventKind::Opened { options } => options.len(),
            _ => 0,
        };
        let gone: usize = self.gone.iter().map(|(_, name)| name.len() + 8).sum();
        (self.keyspace.len() + options + gone) as u64
    }
}

/// Edits that hold together or not at all.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct VersionEdit {
    /// The edits, in the order in which they apply.
    pub(crate) edits: Vec<Edit>,
}

impl From<Vec<Edit>> for VersionEdit {
    fn from(edits: Vec<Edit>) -> Self {
        Self { edits }
    }
}
