//! Rhumb: an ordered key-value store that finds keys by predicting where they are.
//!
//! A *database* is a directory; a *keyspace* is a named ordered map in it. All keyspaces of a
//! database share one write-ahead log and one memtable, so that thousands of them are cheap and a
//! batch over several of them is one unit.
#![deny(unsafe_code)]

#[cfg(feature = "object-store")]
pub use object_store;

pub(crate) mod compaction;
mod db;
mod dump;
pub mod error;
pub(crate) mod events;
pub(crate) mod expiry;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod inspect;
pub mod io;
pub(crate) mod iter;
pub(crate) mod keys;
pub(crate) mod log;
pub(crate) mod memtable;
pub mod options;
pub(crate) mod partition;
pub(crate) mod plan;
pub(crate) mod ranges;
mod salvage;
pub mod slice;
pub mod table;
pub(crate) mod tree;
pub(crate) mod types;
pub(crate) mod varint;
pub(crate) mod version;

pub use db::{
    BackupInfo, Backups, Batch, Change, Changes, ChangesOptions, Commit, CommitFuture, Cursor,
    CursorInfo, Database, DatabaseBuilder, Expiry, Followed, Keyspace, KeyspaceChange,
    KeyspaceStats, LevelStats, NextCommit, PartitionInfo, ReadLatency, Reader, Savepoint, Snapshot,
    Stats, Submitted, Tap, Transaction, TransactionIter, TransactionOptions, Write, Writes,
};
pub use dump::{DumpItem, DumpReader, DumpSummary};
pub use error::{Corruption, Error, Result};
pub use iter::{Iter, stream::AsyncIter};
pub use keys::KeyRange;
pub use options::{KeyspaceOptions, KeyspacePreset, Lifetime, MemtableKind, PersistMode};
pub use partition::Partitioning;
pub use rhumb_index::{self as index, Index, IndexBuilder, IndexStats, Preset};
pub use salvage::{Loss, ManifestFound, Salvage, SalvageReport, SalvagedKeyspace, salvage};
pub use slice::Slice;
pub use table::{BlockIndexKind, Compression, StringCoding, TableOptions, Training};
