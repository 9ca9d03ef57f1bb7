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
