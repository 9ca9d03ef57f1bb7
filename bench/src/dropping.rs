//! What a store must do to be measured by dropping parts of its keys, and Rhumb, which has
//! partitions for that, and deletes of ranges for keys that no partition holds together.
//!
//! A part is known by its number; its keys begin with its name. Where the parts are stores of their
//! own, a scan goes from one to the next that is there.

use std::path::Path;

use anyhow::{Result, ensure};
use rhumb::{Database, Keyspace, KeyspaceOptions, Partitioning, TableOptions};
use serde_json::Value;

use crate::subject::{Compression, OnEntry, OnValue, Tuning};

/// Parts of a store, of which every second is dropped.
pub const PARTITIONS: u32 = 10;

/// With what the keys of a part begin; the next part's is the end of them.
#[must_use]
pub fn partition_name(partition: u32) -> String {
    format!("tenant-{partition:05}/")
}

/// A kind of store.
pub trait DropEngine: Sync {
    /// The name in results and on the command line.
    fn name(&self) -> &'static str;

    /// What a reader needs to know to judge the figures.
    fn options(&self, tuning: &Tuning) -> Value;

    /// Opens an empty store in `directory`.
    ///
    /// # Errors
    /// If the store fails.
    fn open(&self, directory: &Path, tuning: &Tuning) -> Result<Box<dyn DropStore>>;
}

/// An open store.
#[expect(clippy::missing_errors_doc, reason = "all fail only if the store does")]
pub trait DropStore {
    /// Writes a key of a part.
    fn insert(&mut self, partition: u32, key: &[u8], value: &[u8]) -> Result<()>;

    /// Brings the store to rest, flushed and compacted.
    fn settle(&mut self) -> Result<()>;

    /// Drops a part, which is there, with all its keys.
    fn drop_partition(&mut self, partition: u32) -> Result<()>;

    /// Reads a key of a part, and says whether it was there.
    fn get(&mut self, partition: u32, key: &[u8], on_value: OnValue<'_>) -> Result<bool>;

    /// Visits entries in ascending order from the first that is not less than `from`, which is of
    /// this part, until `on_entry` says `false`. Need not go beyond the next part that is there.
    fn scan(&mut self, partition: u32, from: &[u8], on_entry: OnEntry<'_>) -> Result<()>;
}

/// The number of a key within its part, as the key ends with it.
#[must_use]
pub fn key_of(partition: u32, number: usize) -> String {
    format!("{}{number:08}", partition_name(partition))
}

/// Rhumb, and how parts are dropped.
#[derive(Debug)]
pub struct RhumbDropEngine {
    name: &'static str,
    /// The number of ranges that each part is; without one, a part is a partition.
    ranges: Option<usize>,
}

/// A partition for each part.
pub static RHUMB: RhumbDropEngine = RhumbDropEngine { name: "rhumb", ranges: None };

/// A keyspace without partitions: a part is one deleted range.
pub static RHUMB_RANGES: RhumbDropEngine =
    RhumbDropEngine { name: "rhumb-ranges", ranges: Some(1) };

/// The same with a thousand ranges for each part: 5,000 when five are dropped.
pub static RHUMB_RANGES_5000: RhumbDropEngine =
    RhumbDropEngine { name: "rhumb-ranges-5000", ranges: Some(1000) };

impl DropEngine for RhumbDropEngine {
    fn name(&self) -> &'static str {
        self.name
    }

    fn options(&self, tuning: &Tuning) -> Value {
        let parts = match self.ranges {
            None => "a keyspace with a partition for each part".to_owned(),
            Some(ranges) => format!("a part is deleted as {ranges} ranges"),
        };
        format!(
            "{parts}; memory budget of {} bytes; memtables of {} bytes; compression {}",
            tuning.cache_bytes,
            tuning.memtable_bytes,
            tuning.compression.name(),
        )
        .into()
    }

    fn open(&self, directory: &Path, tuning: &Tuning) -> Result<Box<dyn DropStore>> {
        Ok(Box::new(RhumbDrops::open(directory, tuning, self.ranges)?))
    }
}

/// An open store of Rhumb.
pub(crate) struct RhumbDrops {
    db: Database,
    keyspace: Keyspace,
    ranges: Option<usize>,
    /// Keys of each part, where parts are ranges.
    keys: Vec<usize>,
}

impl RhumbDrops {
    /// Opens a store, which may have been there.
    pub(crate) fn open(directory: &Path, tuning: &Tuning, ranges: Option<usize>) -> Result<Self> {
        let db = Database::builder(directory)
            .memory_budget_bytes(tuning.cache_bytes)
            .memtable_bytes(tuning.memtable_bytes)
            .open()?;
        let compression = match tuning.compression {
            Compression::None => rhumb::Compression::None,
            Compression::Lz4 => rhumb::Compression::Lz4,
        };
        let table = TableOptions { compression: Some(compression), ..TableOptions::default() };
        let partitions = match ranges {
            None => Partitioning::Delimiter(b'/'),
            Some(_) => Partitioning::None,
        };
        let keyspace = db.keyspace(
            "bench",
            KeyspaceOptions { table, partitions, ..KeyspaceOptions::default() },
        )?;
        Ok(Self { db, keyspace, ranges, keys: vec![0; PARTITIONS as usize] })
    }

    /// Has what is in memory written to tables.
    pub(crate) fn flush(&self) -> Result<()> {
        Ok(self.db.flush()?)
    }
}

impl DropStore for RhumbDrops {
    fn insert(&mut self, partition: u32, key: &[u8], value: &[u8]) -> Result<()> {
        if let Some(keys) = self.keys.get_mut(partition as usize) {
            *keys += 1;
        }
        Ok(self.keyspace.insert(key, value)?)
    }

    fn settle(&mut self) -> Result<()> {
        self.db.flush()?;
        Ok(self.keyspace.compact()?)
    }

    fn drop_partition(&mut self, partition: u32) -> Result<()> {
        if let Some(ranges) = self.ranges {
            let keys = self.keys[partition as usize];
            let ranges = ranges.min(keys);
            let bound = |range: usize| key_of(partition, range * keys / ranges);
            for range in 0..ranges {
                self.keyspace.remove_range(bound(range)..bound(range + 1))?;
            }
            return Ok(());
        }
        let was_there = self.keyspace.drop_partition(partition_name(partition))?;
        ensure!(was_there, "partition {partition} is not there");
        Ok(())
    }

    fn get(&mut self, _: u32, key: &[u8], on_value: OnValue<'_>) -> Result<bool> {
        match self.keyspace.get(key)? {
            Some(value) => on_value(&value).map(|()| true),
            None => Ok(false),
        }
    }

    fn scan(&mut self, _: u32, from: &[u8], on_entry: OnEntry<'_>) -> Result<()> {
        for entry in self.keyspace.range(from..) {
            let (key, value) = entry?;
            if !on_entry(&key, &value)? {
                break;
            }
        }
        Ok(())
    }
}
