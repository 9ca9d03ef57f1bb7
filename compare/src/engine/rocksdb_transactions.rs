//! RocksDB's optimistic transactions: each has a snapshot, and a commit checks in the memtables
//! that the keys it has read for update were not written since.

use std::path::Path;

use anyhow::{Context, Result};
use rhumb_bench::{
    subject::{Engine, Tuning},
    transacting::{KEY_BYTES, OnChange, OnPair, TransactEngine, TransactStore},
};
use rocksdb::{
    BottommostLevelCompaction, CompactOptions, ErrorKind, OptimisticTransactionDB,
    OptimisticTransactionOptions, WriteOptions,
};

use super::rocksdb::{RocksDb, open_options};

pub(super) struct RocksDbOptimistic;

impl TransactEngine for RocksDbOptimistic {
    fn name(&self) -> &'static str {
        "rocksdb"
    }

    fn options(&self, tuning: &Tuning) -> String {
        format!(
            "{}; OptimisticTransactionDB with set_snapshot, get_pinned_for_update and put: a \
             conflict if a key that is read was changed since; checked in parallel, which is its \
             default; a commit is in the operating system's hands when it returns and not synced",
            RocksDb.options(tuning)
        )
    }

    fn open(&self, directory: &Path, tuning: &Tuning) -> Result<Box<dyn TransactStore>> {
        let (options, _) = open_options(tuning);
        Ok(Box::new(RocksDbTransactions(OptimisticTransactionDB::open(&options, directory)?)))
    }
}

struct RocksDbTransactions(OptimisticTransactionDB);

impl TransactStore for RocksDbTransactions {
    fn insert(&self, key: &[u8; KEY_BYTES], value: &[u8]) -> Result<()> {
        Ok(self.0.put(key, value)?)
    }

    fn settle(&self) -> Result<()> {
        self.0.flush()?;
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        self.0.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
        Ok(())
    }

    fn transact(&self, keys: [&[u8; KEY_BYTES]; 2], on_change: OnChange<'_>) -> Result<bool> {
        let mut options = OptimisticTransactionOptions::default();
        options.set_snapshot(true);
        let transaction = self.0.transaction_opt(&WriteOptions::default(), &options);
        for (at, key) in keys.into_iter().enumerate() {
            let value = transaction.get_pinned_for_update(key, true)?;
            let value = on_change(at, &value.context("a key is missing")?)?;
            transaction.put(key, value)?;
        }
        match transaction.commit() {
            Ok(()) => Ok(true),
            // The second: memtables no longer reach back to the snapshot.
            Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::TryAgain) => {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn values(&self, on_value: OnPair<'_>) -> Result<()> {
        let mut cursor = self.0.raw_iterator();
        cursor.seek_to_first();
        while let Some((key, value)) = cursor.item() {
            on_value(key, value)?;
            cursor.next();
        }
        Ok(cursor.status()?)
    }
}
