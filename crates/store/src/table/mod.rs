//! Tables: immutable sorted files of entries, found by a pinned index block and a pinned filter.
//!
//! A table is written once, in order, by a `TableWriter`, and read by many threads at once through
//! a `Table`: point lookups that never wait for a lock, and cursors in both directions. Neither
//! ever waits for the disk unasked: they say which block they need, and the caller fetches it in
//! whatever way it does I/O. `docs/format/table.md` describes the bytes.
//!
//! Tables know nothing of levels, snapshots or each other. They are handed a sequence number and
//! answer for it.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rhumb_sync::{mapping::Gauge, primitive::Mutex, process::Process};

use crate::{
    error::{Corruption, Error, Result},
    expiry::Expiries,
    io::{FileSystem, ReadMode, ReadableFile, engine::ReadEngine, open_files::OpenFiles, retry},
    types::{FileId, SeqNo},
};

pub(crate) mod block;
mod bracket;
pub(crate) mod cache;
pub(crate) mod compress;
mod cursor;
mod fetch;
mod file;
mod filter;
pub(crate) mod footer;
pub(crate) mod format;
mod hash;
pub(crate) mod index_block;
mod lookup;
mod new_tables;
mod options;
pub(crate) mod pages;
mod progress;
mod read_ahead;
mod reader;
mod sample;
mod shared;
#[cfg(test)]
mod tests;
pub(crate) mod values;
mod warm;
mod writer;

pub use index_block::{BlockIndexKind, StringCoding};
pub(crate) use options::TableLayout;
pub use options::{Compression, TableOptions, Training};

pub(crate) use bracket::Bracket;
pub(crate) use cache::BlockCache;
pub(crate) use cursor::{Step, TableCursor};
pub(crate) use format::PAGE_BYTES;
pub(crate) use hash::KeyHash;
pub(crate) use index_block::{BlockAddress, Trained};
pub(crate) use lookup::{Hit, Lookup};
pub(crate) use new_tables::NewTables;
pub(crate) use progress::Progress;
pub(crate) use read_ahead::{Access, DataSize};
pub(crate) use reader::Table;
pub(crate) use sample::Drawn;
pub use shared::TablePlace;
pub(crate) use shared::{SharedFiles, SharedWriter, home_path};
pub(crate) use values::VALUE_PART_BYTES;
pub(crate) use writer::TableWriter;

/// What all tables of a database share.
#[derive(Clone)]
pub(crate) struct TableContext {
    /// The file system of the database.
    pub(crate) fs: Arc<dyn FileSystem>,
    /// The descriptors of open files.
    pub(crate) files: Arc<OpenFiles>,
    /// The directory of the tables.
    pub(crate) dir: PathBuf,
    /// How blocks reach memory.
    pub(crate) read_mode: ReadMode,
    /// Does several reads at once.
    pub(crate) reads: Arc<ReadEngine>,
    /// Where blocks stay in memory.
    pub(crate) cache: Arc<BlockCache>,
    /// Counts the memory in which tables are written.
    pub(crate) mapped: Gauge,
    /// What the tables did.
    pub(crate) counters: Arc<TableCounters>,
    /// Files that several tables lie in.
    pub(crate) shared: Arc<SharedFiles>,
}

impl TableContext {
    /// Opens a table's file; it has a descriptor only while it is read and as long as there are
    /// enough.
    fn open_file(&self, path: &Path) -> Result<Arc<dyn ReadableFile>> {
        let file = retry("open", path, || self.files.pool(&self.fs, path, self.read_mode))?;
        Ok(file)
    }
}

/// What the tables of a database did since it was opened. Nothing here is counted by a read that
/// finds its block in memory.
#[derive(Debug, Default)]
pub(crate) struct TableCounters {
    /// Blocks brought in from files.
    pub(crate) block_reads: AtomicU64,
    /// Read calls for blocks.
    pub(crate) reads: AtomicU64,
    /// Bytes that those calls brought.
    pub(crate) read_bytes: AtomicU64,
    /// Reads that found the index to be wrong about a key's block.
    pub(crate) refuted: AtomicU64,
    /// Large values read.
    pub(crate) large_value_reads: AtomicU64,
    /// Memory that open tables take at present, without resident blocks, in bytes.
    pub(crate) pinned_bytes: AtomicU64,
    /// Files of obsolete tables that could not be removed.
    pub(crate) removals_failed: AtomicU64,
    /// The process whose files the tables are.
    pub(crate) process: Process,
    /// Reads that met damage.
    pub(crate) damage_met: AtomicU64,
    /// Reads that the operating system refused.
    pub(crate) failed_reads: AtomicU64,
    /// The last damage and the last failed read.
    last_failures: Mutex<LastFailures>,
}

/// The last damage that a read met, and the last read that failed.
#[derive(Debug, Default)]
struct LastFailures {
    damage: Option<Arc<Corruption>>,
    read: Option<Error>,
}

impl TableCounters {
    /// Counts a read that failed.
    #[cold]
    pub(crate) fn count_failure(&self, error: &Error) {
        match error {
            Error::Corrupt(damage) => {
                Self::add(&self.damage_met, 1);
                self.last_failures.lock().damage = Some(Arc::clone(damage));
            }
            Error::Io(_) => {
                Self::add(&self.failed_reads, 1);
                self.last_failures.lock().read = Some(error.clone());
            }
            _ => {}
        }
    }

    /// The damage that was met last.
    pub(crate) fn last_damage(&self) -> Option<Corruption> {
        self.last_failures.lock().damage.as_deref().cloned()
    }

    /// The last failure of a read.
    pub(crate) fn last_failed_read(&self) -> Option<Error> {
        self.last_failures.lock().read.clone()
    }

    fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }
}

/// What is known of a table without opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMeta {
    /// The number in the names of its files.
    pub id: FileId,
    /// Where it lies in a file that it shares with other tables; none if it has its own.
    pub place: Option<TablePlace>,
    /// Length of the table file in bytes, or of the table's part of a shared one.
    pub file_bytes: u64,
    /// Length of the file of large values in bytes; 0 if there is none.
    pub value_file_bytes: u64,
    /// The number of entries, tombstones included.
    pub entries: u64,
    /// The number of tombstones among the entries.
    pub tombstones: u64,
    /// The number of fragments of the key space that range tombstones cover.
    pub range_tombstones: u64,
    /// Its first key; no range tombstone begins before it.
    pub smallest: Box<[u8]>,
    /// Its last key; no range tombstone hides a key after it.
    pub largest: Box<[u8]>,
    /// The smallest sequence number in it.
    pub seq_min: SeqNo,
    /// The largest sequence number in it.
    pub seq_max: SeqNo,
    /// Bytes of all keys and values as they were given, before any encoding.
    pub raw_bytes: u64,
    /// When its entries expire; none if none of them does.
    pub expiries: Option<Expiries>,
}

impl TableMeta {
    /// Bytes of all its files.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.file_bytes + self.value_file_bytes
    }
}

/// The path of table `id`.
pub(crate) fn table_path(dir: &Path, id: FileId) -> PathBuf {
    dir.join(format!("{id:06}.sst"))
}

/// The path of the large values of table `id`.
pub(crate) fn value_path(dir: &Path, id: FileId) -> PathBuf {
    dir.join(format!("{id:06}.val"))
}

/// The number of the table with this file name, if it is one.
pub(crate) fn parse_table_name(name: &str) -> Option<FileId> {
    let id = name.strip_suffix(".sst")?.parse().ok()?;
    (format!("{id:06}.sst") == name).then_some(id)
}
