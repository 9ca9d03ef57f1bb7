//! RocksDB, tuned as its own guide advises for point reads: full Bloom filters, index and filters
//! pinned in a HyperClock cache of the shared size, values read without a copy.

use std::path::Path;

use anyhow::{Context, Result};
use rhumb_bench::subject::{
    Compression, Engine, FileCache, Footprint, OnAnswer, OnEntry, OnValue, Session, Store, Tuning,
    WriteGroup,
};
use rocksdb::{
    BlockBasedOptions, BlockBasedTablePinningTier, BottommostLevelCompaction, Cache,
    ColumnFamilyDescriptor, CompactOptions, DB, DBCompressionType, DataBlockIndexType, Options,
    ReadOptions, WriteOptions,
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
             blocks of 4 KiB; compression {}; write buffers {WRITE_BUFFERS_MAX} of {} bytes; \
             {} background jobs; write-ahead log without sync; pinned reads; direct reads {}",
            tuning.cache_bytes,
            tuning.filter_bits,
            tuning.compression.name(),
            tuning.memtable_bytes,
            tuning.background_threads,
            tuning.direct,
        )
    }

    fn file_cache(&self) -> FileCache {
        FileCache::Direct
    }

    fn open(&self, directory: &Path, tuning: &Tuning) -> Result<Box<dyn Store>> {
        let cache = Cache::new_hyper_clock_cache(tuning.cache_bytes as usize, 0);
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&cache);
        table.set_block_size(4096);
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
        // Named, because only a named family has the batched multi-get.
        let family = ColumnFamilyDescriptor::new(FAMILY, options.clone());
        let db = DB::open_cf_descriptors(&options, directory, [family])?;
        Ok(Box::new(RocksDbStore { db, cache }))
    }
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
            write: WriteOptions::default(),
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
    write: WriteOptions,
}

impl Session for RocksDbSession<'_> {
    fn get(&mut self, key: &[u8], on_value: OnValue<'_>) -> Result<bool> {
        match self.db.get_pinned_opt(key, &self.read)? {
            Some(value) => on_value(&value).map(|()| true),
            None => Ok(false),
        }
    }

    fn multi_get(&mut self, keys: &[&[u8]], on_answer: OnAnswer<'_>) -> Result<()> {
        let family = self.db.cf_handle(FAMILY).context("no default column family")?;
        let keys = keys.iter().copied();
        let answers = self.db.batched_multi_get_cf_opt(&family, keys, false, &self.read);
        for (i, answer) in answers.into_iter().enumerate() {
            on_answer(i, answer?.as_deref())?;
        }
        Ok(())
    }

    fn scan(&mut self, from: &[u8], on_entry: OnEntry<'_>) -> Result<()> {
        let mut cursor = self.db.raw_iterator();
        cursor.seek(from);
        while let Some((key, value)) = cursor.item() {
            if !on_entry(key, value)? {
                break;
            }
            cursor.next();
        }
        Ok(cursor.status()?)
    }

    fn write(&mut self, group: &WriteGroup) -> Result<()> {
        for (key, value) in group.iter() {
            self.db.put_opt(key, value, &self.write)?;
        }
        Ok(())
    }
}
