//! The reports of inspections: plain data, for people and programs to read.

use std::{fmt, path::PathBuf};

use crate::types::FileId;

/// A database directory, as its manifest and the ends of its files describe it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DatabaseReport {
    /// The directory.
    pub path: PathBuf,
    /// The manifest in use.
    pub manifest: PathBuf,
    /// The number of bytes of the manifest.
    pub manifest_bytes: u64,
    /// The segments of the log, oldest first, with their lengths in bytes.
    pub log: Vec<(PathBuf, u64)>,
    /// Older segments, likewise, that are kept for cursors of streams of changes.
    pub kept_log: Vec<(PathBuf, u64)>,
    /// The keyspaces, by name.
    pub keyspaces: Vec<KeyspaceReport>,
    /// Files that belong to no keyspace, and will be removed when the database is next opened.
    pub leftover_files: Vec<PathBuf>,
    /// Tables that cannot be read; they are missing from the levels.
    pub problems: Vec<Problem>,
}

/// A keyspace and its levels.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KeyspaceReport {
    /// Its name.
    pub name: String,
    /// The levels down to the deepest that holds a table; the first is level 0.
    pub levels: Vec<LevelReport>,
    /// Its partitions, by name: those that were flushed at least once. The levels of a keyspace
    /// with partitions are empty.
    pub partitions: Vec<PartitionReport>,
}

/// A partition and its levels.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PartitionReport {
    /// Its name.
    pub name: Vec<u8>,
    /// Like the levels of a keyspace.
    pub levels: Vec<LevelReport>,
}

/// One level of a keyspace.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LevelReport {
    /// Its tables, in key order (level 0: newest first).
    pub tables: Vec<TableReport>,
}

impl LevelReport {
    /// The sum of a number over all tables of the level.
    pub fn sum(&self, number: impl Fn(&TableReport) -> u64) -> u64 {
        self.tables.iter().map(number).sum()
    }
}

/// A table's properties, and the cost of its index.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TableReport {
    /// The file.
    pub path: PathBuf,
    /// The number in its name.
    pub id: FileId,
    /// The number of bytes of the file.
    pub file_bytes: u64,
    /// The number of bytes of the file of large values beside it; 0 if there is none.
    pub value_file_bytes: u64,
    /// The number of entries, tombstones included.
    pub entries: u64,
    /// The number of entries that say that a key was removed.
    pub tombstones: u64,
    /// The number of fragments: ranges of keys that the same range tombstones cover.
    pub range_tombstones: u64,
    /// The number of different keys.
    pub keys: u64,
    /// The number of bytes of all keys and values before they were encoded.
    pub raw_bytes: u64,
    /// The first key; no range tombstone begins before it.
    pub smallest: Vec<u8>,
    /// The last key; no range tombstone hides a key after it.
    pub largest: Vec<u8>,
    /// The smallest and the largest sequence number.
    pub seqs: (u64, u64),
    /// The number of blocks of entries.
    pub blocks: u32,
    /// The target size of the entries of a block before compression, in bytes.
    pub block_bytes: u32,
    /// The compression of blocks: "none", "lz4", "zstd".
    pub compression: &'static str,
    /// The number of bits of the filter for each key.
    pub filter_bits_per_key: u8,
    /// The number of bytes of the filter in the file.
    pub filter_bytes: u64,
    /// The way in which a block is found: "learned" or "binary search".
    pub index: &'static str,
    /// The number of bytes of the index in the file.
    pub index_bytes: u64,
    /// The number of bytes of the index in memory.
    pub index_resident_bytes: u64,
    /// The number of codes that were trained for the keys of the model.
    pub codes: u32,
    /// The number of segments whose keys are numbered by those codes; the others take eight bytes
    /// of the key.
    pub coded_segments: u32,
    /// The number of segments of the model; 0 for an index without a model.
    pub segments: u32,
}

impl TableReport {
    /// The number of bytes of the index for each key.
    #[must_use]
    pub fn index_bytes_per_key(&self) -> f64 {
        per(self.index_bytes, self.keys)
    }
}

/// `bytes` for each of `keys`; 0 if there are none.
#[expect(clippy::cast_precision_loss, reason = "a ratio for people to read")]
pub(super) fn per(bytes: u64, keys: u64) -> f64 {
    if keys == 0 { 0.0 } else { bytes as f64 / keys as f64 }
}

/// The model of a table, and how well it fits.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ModelReport {
    /// The table.
    pub table: TableReport,
    /// The bytes that all keys of the table begin with.
    pub common_prefix: Vec<u8>,
    /// The segments, in key order.
    pub segments: Vec<SegmentReport>,
    /// Keys with their places, in key order: evenly spaced, and the first and last of the table.
    pub points: Vec<Point>,
    /// The number of entries of the fullest block, and of the emptiest that has any.
    pub entries_per_block: (u32, u32),
    /// The number of bytes of the largest block before compression, and of the smallest that has
    /// entries.
    pub bytes_per_block: (u64, u64),
    /// The number of blocks without entries.
    pub empty_blocks: u32,
    /// The largest distance, in blocks, between the block that the model predicts for a key and the
    /// block that holds it, over all keys. 0 for a model that placed the keys.
    pub error_blocks_max: u32,
}

/// A line of a model.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SegmentReport {
    /// Keys from this byte string on belong to the segment.
    pub separator: Vec<u8>,
    /// The number of bytes at the start of each key that the model leaves out: all keys of the
    /// segment share them.
    pub skip: u32,
    /// The code of a key at which the line starts.
    pub base_code: u64,
    /// The number of blocks for each step of the code.
    pub slope: f64,
    /// The first of its blocks.
    pub first_block: u32,
    /// The number of its blocks.
    pub blocks: u32,
}

/// A key and its place.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Point {
    /// The key.
    pub key: Vec<u8>,
    /// The key as a number, after the common prefix of the table.
    pub code: u64,
    /// The block that holds it.
    pub block: u32,
    /// The block that the index names.
    pub predicted: u32,
    /// The number of keys of the table before it.
    pub rank: u64,
}

/// A segment of the log, record by record.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LogReport {
    /// The file.
    pub path: PathBuf,
    /// The number of bytes of the file.
    pub file_bytes: u64,
    /// Its number and its first position in the log; or the problem with its header.
    pub header: Result<(FileId, u64), String>,
    /// Everything after the header, in order.
    pub records: Vec<RecordReport>,
}

/// A part of a log or a manifest.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RecordReport {
    /// The offset of its start, in bytes from the beginning of the file.
    pub offset: u64,
    /// The number of its bytes, header included.
    pub bytes: u64,
    /// Its content.
    pub content: RecordContent,
}

/// The content of a record.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RecordContent {
    /// Writes that happen together.
    Batch {
        /// The sequence number of the first.
        first_seq: u64,
        /// The number of writes.
        operations: u32,
    },
    /// A note that everything before `synced` was durable.
    Mark {
        /// The position in the log.
        synced: u64,
    },
    /// Changes to the set of files, or new partitions, in words.
    Edits(Vec<String>),
    /// Bytes that are no record.
    Damaged(String),
}

/// A manifest, edit by edit.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ManifestReport {
    /// The file.
    pub path: PathBuf,
    /// The number of bytes of the file.
    pub file_bytes: u64,
    /// Its records, in order.
    pub records: Vec<RecordReport>,
}

/// The result of a check that reads and verifies every byte of a database.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CheckReport {
    /// The number of files that were read.
    pub files: u64,
    /// The number of their bytes.
    pub bytes: u64,
    /// The number of tables among them.
    pub tables: u64,
    /// The number of blocks of the tables.
    pub blocks: u64,
    /// The number of entries of the tables, each found again through the index and the filter.
    pub entries: u64,
    /// The number of records of the log.
    pub log_records: u64,
    /// The problems; empty if there are none.
    pub problems: Vec<Problem>,
    /// The number of problems that are not listed.
    pub problems_unlisted: u64,
    /// Findings that are not damage but worth knowing: the torn end that a crash leaves in a log.
    pub notes: Vec<Problem>,
}

impl CheckReport {
    /// Returns true if there are no problems.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

/// A finding about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// The offset in the file, in bytes from its start, if it is known.
    pub offset: Option<u64>,
    /// What was expected and what was found.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        if let Some(offset) = self.offset {
            write!(f, "at {offset}: ")?;
        }
        f.write_str(&self.what)
    }
}

/// The steps by which a read finds a key.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// The key.
    pub key: Vec<u8>,
    /// The number of memtables that were asked. The last one of them answered if `is_in_memtable`.
    pub memtables: u32,
    /// True if a memtable had the answer, so that no table was asked.
    pub is_in_memtable: bool,
    /// Tables whose range of keys holds the key, in the order in which they were asked.
    pub tables: Vec<TableStep>,
    /// The number of tables that a level's ranges of keys ruled out without asking them.
    pub tables_passed: u64,
    /// The answer.
    pub answer: Answer,
    /// The number of blocks read, from the cache or from a file.
    pub block_reads: u32,
}

/// The answer of one table, with its steps.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TableStep {
    /// The file.
    pub path: PathBuf,
    /// The level that it is in.
    pub level: u32,
    /// True if the filter lets the key through; `None` if the table has no filter.
    pub filter: Option<bool>,
    /// The way in which the block is found: "learned" or "binary search".
    pub index: &'static str,
    /// The segment of the model that has the key in its range; `None` without a model.
    pub segment: Option<SegmentStep>,
    /// The block that the index names.
    pub predicted_block: u32,
    /// The block that holds the key, found without the index; `None` if no block does.
    pub actual_block: Option<u32>,
    /// The offset of that block's pages in the file, in bytes, and the number of bytes that one
    /// read brings.
    pub place: (u64, u64),
    /// The number of entries of that block.
    pub block_entries: u32,
    /// The table's answer, with its range tombstones taken into account.
    pub answer: Answer,
}

/// The line that a key is looked up by.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SegmentStep {
    /// Its number in the table.
    pub number: u32,
    /// The number of segments of the table.
    pub of: u32,
    /// The number of bytes at the start of the key that the model leaves out.
    pub skip: u32,
    /// The rest of the key as a number.
    pub code: u64,
    /// The first of its blocks.
    pub first_block: u32,
    /// The number of its blocks: the window of a search without the model.
    pub blocks: u32,
}

/// The state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// The key is not there.
    Absent,
    /// It was removed.
    Removed {
        /// The sequence number of the write that removed it.
        seq: u64,
    },
    /// It has a value.
    Found {
        /// The sequence number of the write that set it.
        seq: u64,
        /// The number of bytes of the value.
        value_bytes: u64,
    },
    /// It has a value until it expires; it may have by now.
    Expiring {
        /// The sequence number of the write that set it.
        seq: u64,
        /// The number of bytes of the value.
        value_bytes: u64,
        /// When it expires, in milliseconds since the Unix epoch.
        expires_ms: u64,
    },
}
