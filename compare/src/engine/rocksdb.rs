//! RocksDB, tuned as its own guide advises for point reads: full Bloom filters, index and filters
//! pinned in a HyperClock cache of the shared size, values read without a copy. Then, what it has
//! for dropping parts of the keys: point deletes, ranges, whole files and column families.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use rhumb_bench::dropping::{DropEngine, DropStore, PARTITIONS, partition_name};
use rhumb_bench::subject::{
    Compression, Engine, FileCache, Footprint, OnAnswer, OnEntry, OnEntryOf, OnValue, Session,
    Store, Tuning, WriteGroup,
};
use rocksdb::{
    BlockBasedOptions, BlockBasedTablePinningTier, BottommostLevelCompaction, Cache, ColumnFamily,
    ColumnFamilyDescriptor, CompactOptions, DB, DBCompressionType, DBRawIterator,
    DataBlockIndexType, Options, ReadOptions, WriteBatch, WriteOptions,
};

pub(crate) struct RocksDb;

const FAMILY: &str = "default";
const WRITE_BUFFERS_MAX: i32 = 4;
const DATA_BLOCK_HASH_RATIO: f64 = 0.75;

impl Engine for RocksDb {
    fn name(&self) -> &'static str {
        "rocksdb"
    }

    fn options(&self, tuning: &Tuning) -> String {
        format!(
            "RocksDB 11.8 (rocksdb 0.25); HyperClock cache of {} bytes with index and filters \
             pinned in it; full Bloom filters of {} bits per key; hash index in data blocks; \
             blocks of {} bytes; compression {}; write buffers {WRITE_BUFFERS_MAX} of {} bytes; \
             {} background jobs; write-ahead log without sync; pinned reads; direct reads {}; where \
             the length of a scan is known, ReadOptions::readahead_size of as many entries as the \
             last one had; where reads overlap, ReadOptions::async_io, with io_uring {}",
            tuning.cache_bytes,
            tuning.filter_bits,
            tuning.block_bytes,
            tuning.compression.name(),
            tuning.memtable_bytes,
            tuning.background_threads,
            tuning.direct,
            cfg!(feature = "rocksdb-uring"),
        )
    }

    fn file_cache(&self) -> FileCache {
        FileCache::Direct
    }

    fn open(&self, directory: &Path, tuning: &Tuning) -> Result<Box<dyn Store>> {
        let (options, cache) = open_options(tuning);
        // Named, because only a named family has the batched multi-get.
        let family = ColumnFamilyDescriptor::new(FAMILY, options.clone());
        let db = DB::open_cf_descriptors(&options, directory, [family])?;
        Ok(Box::new(RocksDbStore { db, cache }))
    }
}

/// The settings that all ways to use it share, and the cache.
pub(super) fn open_options(tuning: &Tuning) -> (Options, Cache) {
    let cache = Cache::new_hyper_clock_cache(tuning.cache_bytes as usize, 0);
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&cache);
    table.set_block_size(tuning.block_bytes as usize);
    table.set_format_version(6);
    table.set_bloom_filter(f64::from(tuning.filter_bits), false);
    table.set_cache_index_and_filter_blocks(true);
    table.set_unpartitioned_pinning_tier(BlockBasedTablePinningTier::All);
    table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    table.set_data_block_hash_ratio(DATA_BLOCK_HASH_RATIO);

    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_compression_type(match tuning.compression {
        Compression::None => DBCompressionType::None,
        Compression::Lz4 => DBCompressionType::Lz4,
    });
    options.set_write_buffer_size(tuning.memtable_bytes as usize);
    options.set_max_write_buffer_number(WRITE_BUFFERS_MAX);
    options.set_max_background_jobs(tuning.background_threads as i32);
    options.set_max_open_files(-1);
    options.set_use_direct_reads(tuning.direct);
    options.set_keep_log_file_num(1);
    (options, cache)
}

struct RocksDbStore {
    db: DB,
    cache: Cache,
}

impl Store for RocksDbStore {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(RocksDbSession {
            db: &self.db,
            read: ReadOptions::default(),
            overlapped: overlapped(),
            write: WriteOptions::default(),
            entry_bytes: 0,
        }))
    }

    fn settle(&mut self) -> Result<()> {
        self.db.flush()?;
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        self.db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
        Ok(())
    }

    fn footprint(&self) -> Result<Footprint> {
        // Index and filter blocks are the only ones that stay pinned while nothing is read.
        Ok(Footprint {
            index_and_filter_bytes: Some(self.cache.get_pinned_usage() as u64),
            ..Footprint::default()
        })
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.db.flush_wal(false)?;
        Ok(())
    }
}

struct RocksDbSession<'a> {
    db: &'a DB,
    read: ReadOptions,
    overlapped: ReadOptions,
    write: WriteOptions,
    /// How large the entries of the last scan were whose length was known, on average.
    entry_bytes: usize,
}

/// Reads that the engine may have in flight together.
fn overlapped() -> ReadOptions {
    let mut read = ReadOptions::default();
    read.set_async_io(true);
    read
}

impl RocksDbSession<'_> {
    fn multi_get_by(
        &self,
        read: &ReadOptions,
        keys: &[&[u8]],
        mut on_answer: impl FnMut(usize, Option<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        let family = self.db.cf_handle(FAMILY).context("no default column family")?;
        let keys = keys.iter().copied();
        let answers = self.db.batched_multi_get_cf_opt(&family, keys, false, read);
        for (i, answer) in answers.into_iter().enumerate() {
            on_answer(i, answer?.as_deref())?;
        }
        Ok(())
    }
}

impl Session for RocksDbSession<'_> {
    fn get(&mut self, key: &[u8], on_value: OnValue<'_>) -> Result<bool> {
        match self.db.get_pinned_opt(key, &self.read)? {
            Some(value) => on_value(&value).map(|()| true),
            None => Ok(false),
        }
    }

    fn multi_get(&mut self, keys: &[&[u8]], on_answer: OnAnswer<'_>) -> Result<()> {
        self.multi_get_by(&self.read, keys, on_answer)
    }

    fn get_overlapped(
        &mut self,
        keys: &[&[u8]],
        depth: usize,
        on_answer: OnAnswer<'_>,
    ) -> Result<()> {
        for (number, some) in keys.chunks(depth).enumerate() {
            let first = number * depth;
            self.multi_get_by(&self.overlapped, some, |i, value| on_answer(first + i, value))?;
        }
        Ok(())
    }

    fn scan_overlapped(&mut self, from: &[u8], on_entry: OnEntry<'_>) -> Result<()> {
        scan_by(self.db.raw_iterator_opt(overlapped()), from, on_entry)
    }

    fn scans_overlapped(
        &mut self,
        starts: &[&[u8]],
        _: usize,
        on_entry: OnEntryOf<'_>,
    ) -> Result<()> {
        for (i, start) in starts.iter().enumerate() {
            self.scan_overlapped(start, &mut |key, value| on_entry(i, key, value))?;
        }
        Ok(())
    }

    fn scan(&mut self, from: &[u8], on_entry: OnEntry<'_>) -> Result<()> {
        scan_by(self.db.raw_iterator(), from, on_entry)
    }

    fn scan_some(&mut self, from: &[u8], entries: usize, on_entry: OnEntry<'_>) -> Result<()> {
        let mut read = ReadOptions::default();
        read.set_readahead_size(entries * self.entry_bytes);
        let (mut visited, mut bytes) = (0, 0);
        scan_by(self.db.raw_iterator_opt(read), from, &mut |key, value| {
            visited += 1;
            bytes += key.len() + value.len();
            on_entry(key, value)
        })?;
        self.entry_bytes = bytes.div_ceil(visited.max(1));
        Ok(())
    }

    fn write(&mut self, group: &WriteGroup) -> Result<()> {
        for (key, value) in group.iter() {
            self.db.put_opt(key, value, &self.write)?;
        }
        Ok(())
    }
}

/// Visits entries from the first that is not less than `from`.
fn scan_by(
    mut cursor: DBRawIterator<'_>,
    from: &[u8],
    on_entry: &mut dyn FnMut(&[u8], &[u8]) -> Result<bool>,
) -> Result<()> {
    cursor.seek(from);
    while let Some((key, value)) = cursor.item() {
        if !on_entry(key, value)? {
            break;
        }
        cursor.next();
    }
    Ok(cursor.status()?)
}

/// A way to drop a part of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A tombstone for each key.
    Deletes,
    /// One tombstone for the range.
    Range,
    /// The files that lie within the range, and one tombstone for what other files have of it.
    Files,
    /// A column family for each part.
    Families,
}

/// RocksDB with one of its ways to drop parts of the keys.
pub(crate) struct Drops(&'static str, Way);

pub(crate) static DELETES: Drops = Drops("rocksdb-deletes", Way::Deletes);
pub(crate) static RANGE: Drops = Drops("rocksdb-deleterange", Way::Range);
pub(crate) static FILES: Drops = Drops("rocksdb-deletefiles", Way::Files);
pub(crate) static FAMILIES: Drops = Drops("rocksdb-families", Way::Families);

/// Tombstones of one batch.
const DELETES_AT_ONCE: usize = 1000;

impl DropEngine for Drops {
    fn name(&self) -> &'static str {
        self.0
    }

    fn options(&self, tuning: &Tuning) -> serde_json::Value {
        format!("{}; drops by {:?}", RocksDb.options(tuning), self.1).into()
    }

    fn open(&self, directory: &Path, tuning: &Tuning) -> Result<Box<dyn DropStore>> {
        let (mut options, _) = open_options(tuning);
        options.create_missing_column_families(true);
        let names = match self.1 {
            Way::Families => (0..PARTITIONS).map(partition_name).collect(),
            _ => vec![FAMILY.to_owned()],
        };
        let families = names.iter().map(|name| ColumnFamilyDescriptor::new(name, options.clone()));
        let db = DB::open_cf_descriptors(&options, directory, families)?;
        Ok(Box::new(DropsStore { db, way: self.1, write: WriteOptions::default() }))
    }
}

struct DropsStore {
    db: DB,
    way: Way,
    write: WriteOptions,
}

impl DropsStore {
    /// The family of a part, if it is there.
    fn family(&self, partition: u32) -> Option<&ColumnFamily> {
        match self.way {
            Way::Families => self.db.cf_handle(&partition_name(partition)),
            _ => self.db.cf_handle(FAMILY),
        }
    }
}

impl DropStore for DropsStore {
    fn insert(&mut self, partition: u32, key: &[u8], value: &[u8]) -> Result<()> {
        let family = self.family(partition).context("no such family")?;
        Ok(self.db.put_cf_opt(family, key, value, &self.write)?)
    }

    fn settle(&mut self) -> Result<()> {
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        for family in (0..PARTITIONS).filter_map(|partition| self.family(partition)) {
            self.db.flush_cf(family)?;
            self.db.compact_range_cf_opt(family, None::<&[u8]>, None::<&[u8]>, &options);
            if self.way != Way::Families {
                break;
            }
        }
        Ok(())
    }

    fn drop_partition(&mut self, partition: u32) -> Result<()> {
        let (from, to) = (partition_name(partition), partition_name(partition + 1));
        let family = self.family(partition).context("no such family")?;
        match self.way {
            Way::Families => self.db.drop_cf(&from)?,
            Way::Range => self.db.delete_range_cf(family, &from, &to)?,
            Way::Files => {
                self.db.delete_file_in_range_cf(family, &from, &to)?;
                self.db.delete_range_cf(family, &from, &to)?;
            }
            Way::Deletes => {
                let mut batch = WriteBatch::default();
                let mut deleted = 0;
                scan_by(self.db.raw_iterator_cf(family), from.as_bytes(), &mut |key, _| {
                    if key >= to.as_bytes() {
                        return Ok(false);
                    }
                    batch.delete_cf(family, key);
                    deleted += 1;
                    if batch.len() == DELETES_AT_ONCE {
                        self.db.write_opt(std::mem::take(&mut batch), &self.write)?;
                    }
                    Ok(true)
                })?;
                self.db.write_opt(batch, &self.write)?;
                ensure!(deleted > 0, "partition {partition} is not there");
            }
        }
        Ok(())
    }

    fn get(&mut self, partition: u32, key: &[u8], on_value: OnValue<'_>) -> Result<bool> {
        let Some(family) = self.family(partition) else { return Ok(false) };
        match self.db.get_pinned_cf(family, key)? {
            Some(value) => on_value(&value).map(|()| true),
            None => Ok(false),
        }
    }

    fn scan(&mut self, partition: u32, from: &[u8], on_entry: OnEntry<'_>) -> Result<()> {
        let next = (partition..PARTITIONS).find_map(|partition| self.family(partition));
        let Some(family) = next else { return Ok(()) };
        scan_by(self.db.raw_iterator_cf(family), from, on_entry)
    }
}
