//! Rhumb: an ordered key-value store that finds keys by predicting where they are.
//!
//! A *database* is a directory; a *keyspace* is a named ordered map in it. All keyspaces of a
//! database share one write-ahead log and one memtable, so that thousands of them are cheap and a
//! batch over several of them is one unit.
//!
//! Under a model checker (`--cfg loom`, `--cfg shuttle`) and with `--cfg alone` the crate is the index alone,
//! which is built in a fraction of the time; loom also runs the memtable's dead stretches.
#![deny(unsafe_code)]

#[cfg(not(any(alone, loom, shuttle)))]
pub(crate) mod compaction;
#[cfg(not(any(alone, loom, shuttle)))]
mod db;
#[cfg(all(test, loom))]
#[path = "memtable/dead_model.rs"]
mod dead_model;
#[cfg(not(any(alone, loom, shuttle)))]
pub mod error;
#[cfg(all(feature = "fuzzing", not(any(alone, loom, shuttle))))]
#[doc(hidden)]
pub mod fuzzing;
pub mod index;
#[cfg(not(any(alone, loom, shuttle)))]
pub mod inspect;
#[cfg(not(any(alone, loom, shuttle)))]
pub mod io;
#[cfg(not(any(alone, loom, shuttle)))]
pub(crate) mod iter;
#[cfg(any(not(any(alone, loom, shuttle)), all(test, loom)))]
#[cfg_attr(loom, allow(dead_code, reason = "the engine's part is left out"))]
pub(crate) mod keys;
#[cfg(not(any(alone, loom, shuttle)))]
pub(crate) mod log;
#[cfg(not(any(alone, loom, shuttle)))]
pub(crate) mod memtable;
#[cfg(not(any(alone, loom, shuttle)))]
pub mod options;
#[cfg(not(any(alone, loom, shuttle)))]
pub(crate) mod partition;
#[cfg(not(any(alone, loom, shuttle)))]
pub(crate) mod plan;
#[cfg(not(any(alone, loom, shuttle)))]
pub(crate) mod ranges;
#[cfg(not(any(alone, loom, shuttle)))]
pub mod slice;
pub(crate) mod sync;
#[cfg(not(any(alone, loom, shuttle)))]
pub mod table;
#[cfg(any(not(any(alone, loom, shuttle)), all(test, loom)))]
#[cfg_attr(loom, allow(dead_code, reason = "the engine's part is left out"))]
pub(crate) mod types;
#[cfg(not(any(alone, loom, shuttle)))]
pub(crate) mod varint;
#[cfg(not(any(alone, loom, shuttle)))]
pub(crate) mod version;

#[cfg(not(any(alone, loom, shuttle)))]
pub use db::{
    Batch, Change, Database, Followed, Keyspace, KeyspaceStats, LevelStats, PartitionInfo,
    Snapshot, Stats, Submitted, Tap,
};
#[cfg(not(any(alone, loom, shuttle)))]
pub use error::{Corruption, Error, Result};
pub use index::{Index, IndexBuilder, IndexStats, Preset};
#[cfg(not(any(alone, loom, shuttle)))]
pub use iter::{Iter, stream::AsyncIter};
#[cfg(not(any(alone, loom, shuttle)))]
pub use options::{DatabaseBuilder, KeyspaceOptions, KeyspacePreset, MemtableKind, PersistMode};
#[cfg(not(any(alone, loom, shuttle)))]
pub use partition::Partitioning;
#[cfg(not(any(alone, loom, shuttle)))]
pub use slice::Slice;
#[cfg(not(any(alone, loom, shuttle)))]
pub use table::{Compression, IndexKind, StringCoding, TableOptions, Training};
