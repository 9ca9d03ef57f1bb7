//! What a store must do to be measured by dropping parts of its keys, and Rhumb, which has partitions for
//! that.
//!
//! A part is known by its number; its keys begin with its name. Where the parts are stores of their own,
//! a scan goes from one to the next that is there.

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

    /// Visits entries in ascending order from the first that is not less than `from`, which is of this
    /// part, until `on_entry` says `false`. Need not go beyond the next part that is there.
    fn scan(&mut self, partition: u32, from: &[u8], on_entry: OnEntry<'_>) -> Result<()>;
}

/// Rhumb with partitions.
#[derive(Debug)]
pub struct RhumbDropEngine;

/// See [`RhumbDropEngine`].
pub static RHUMB: RhumbDropEngine = RhumbDropEngine;

impl DropEngine for RhumbDropEngine {
    fn name(&self) -> &'static str {
        "rhumb"
    }

    fn options(&self, tuning: &Tuning) -> Value {
        format!(
            "a keyspace with a partition for each part; memory budget of {} bytes; memtables of {} \
             bytes; compression {}",
            tuning.cache_bytes,
            tuning.memtable_bytes,
            tuning.compression.name(),
        )
        .into()
    }

    fn open(&self, directory: &Path, tuning: &Tuning) -> Result<Box<dyn DropStore>> {
        Ok(Box::new(RhumbDrops::open(directory, tuning)?))
    }
}

/// An open store of Rhumb.
pub(crate) struct RhumbDrops {
    db: Database,
    keyspace: Keyspace,
}

impl RhumbDrops {
    /// Opens a store, which may have been there.
    pub(crate) fn open(directory: &Path, tuning: &Tuning) -> Result<Self> {
        let db = Database::builder(directory)
            .memory_budget_bytes(tuning.cache_bytes)
            .memtable_bytes(tuning.memtable_bytes)
            .open()?;
        let compression = match tuning.compression {
            Compression::None => rhumb::Compression::None,
            Compression::Lz4 => rhumb::Compression::Lz4,
        };
        let table = TableOptions { compression, ..TableOptions::default() };
        let partitions = Partitioning::Delimiter(b'/');
        let keyspace = db.keyspace("bench", KeyspaceOptions { table, partitions })?;
        Ok(Self { db, keyspace })
    }

    /// Has what is in memory written to tables.
    pub(crate) fn flush(&self) -> Result<()> {
        Ok(self.db.flush()?)
    }
}

impl DropStore for RhumbDrops {
    fn insert(&mut self, _: u32, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.keyspace.insert(key, value)?)
    }

    fn settle(&mut self) -> Result<()> {
        self.db.flush()?;
        Ok(self.keyspace.compact()?)
    }

    fn drop_partition(&mut self, partition: u32) -> Result<()> {
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
