//! LMDB, a memory-mapped copy-on-write B+tree: writes grouped into transactions, reads from a
//! transaction that is renewed when something was committed.

use std::{ops::Bound, path::Path};

use anyhow::{Context, Result};
use heed::{
    CommitOrAbort, CompactionOption, Database, Env, EnvFlags, EnvOpenOptions, RoTxn, WithTls,
    types::Bytes,
};
use rhumb_bench::subject::{
    Engine, FileCache, OnEntry, OnValue, Session, Store, Tuning, WriteGroup,
};

pub(crate) struct Lmdb;

/// Writes in one transaction.
const GROUP: usize = 1000;

/// Room in the address space, as a multiple of the data.
const MAP_FACTOR: u64 = 8;

impl Engine for Lmdb {
    fn name(&self) -> &'static str {
        "lmdb"
    }

    fn options(&self, tuning: &Tuning) -> String {
        format!(
            "LMDB 0.9 (heed 0.23); no read-ahead; transactions of {GROUP} writes without sync; \
             read transactions renewed after commits; copied compactly when settled; no \
             compression, no background threads; the page cache is its cache{}",
            if tuning.direct {
                ", unbounded, its file dropped from it before the run only: what it has read once \
                 is warm"
            } else {
                ""
            },
        )
    }

    fn write_group(&self) -> usize {
        GROUP
    }

    fn file_cache(&self) -> FileCache {
        FileCache::Mapped
    }

    fn open(&self, directory: &Path, tuning: &Tuning) -> Result<Box<dyn Store>> {
        let map_bytes = (tuning.data_bytes * MAP_FACTOR + (64 << 20)).next_multiple_of(1 << 20);
        let mut options = EnvOpenOptions::new();
        options.map_size(map_bytes as usize);
        // SAFETY: without sync, a crash of the whole machine may damage the file; the run's
        // directory is made for this run and thrown away after it.
        unsafe { options.flags(EnvFlags::NO_SYNC | EnvFlags::NO_READ_AHEAD) };
        // SAFETY: nothing else than the processes of the run opens or changes the file in the run's
        // own directory: each opens it once, and all change it by LMDB, which locks.
        let env = unsafe { options.open(directory) }?;
        let db = env
            .create_databases_and_commit(env.write_txn()?, |opener, transaction| {
                opener.create_database(transaction, None).map(CommitOrAbort::<_, ()>::Commit)
            })?
            .unwrap_commit();
        Ok(Box::new(LmdbStore { env, db }))
    }
}

struct LmdbStore {
    env: Env,
    db: Database<'static, Bytes, Bytes>,
}

impl Store for LmdbStore {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(LmdbSession { store: self, transaction: Some(self.env.read_txn()?) }))
    }

    /// Replaces the file by a compact copy, which takes effect when the store is next opened.
    fn settle(&mut self) -> Result<()> {
        let directory = self.env.path();
        let copy = directory.join("compact.mdb");
        self.env.copy_to_path(&copy, CompactionOption::Enabled)?;
        std::fs::rename(copy, directory.join("data.mdb")).context("cannot replace data.mdb")
    }

    fn close(self: Box<Self>) -> Result<()> {
        let closing = self.env.clone().prepare_for_closing();
        drop(self);
        closing.wait();
        Ok(())
    }
}

struct LmdbSession<'a> {
    store: &'a LmdbStore,
    /// Absent only while it is renewed: a thread has one read transaction at a time.
    transaction: Option<RoTxn<'a, WithTls>>,
}

impl<'a> LmdbSession<'a> {
    fn reader(&mut self) -> Result<&RoTxn<'a, WithTls>> {
        if self.transaction.is_none() {
            self.transaction = Some(self.store.env.read_txn()?);
        }
        self.transaction.as_ref().context("no read transaction")
    }
}

impl Session for LmdbSession<'_> {
    fn get(&mut self, key: &[u8], on_value: OnValue<'_>) -> Result<bool> {
        let db = self.store.db;
        match db.get(self.reader()?, key)? {
            Some(value) => on_value(value).map(|()| true),
            None => Ok(false),
        }
    }

    fn scan(&mut self, from: &[u8], on_entry: OnEntry<'_>) -> Result<()> {
        let db = self.store.db;
        // LMDB has no empty keys, and does not take one as a bound.
        let from = if from.is_empty() { Bound::Unbounded } else { Bound::Included(from) };
        for entry in db.range(self.reader()?, &(from, Bound::Unbounded))? {
            let (key, value) = entry?;
            if !on_entry(key, value)? {
                break;
            }
        }
        Ok(())
    }

    fn write(&mut self, group: &WriteGroup) -> Result<()> {
        // An old reader would keep every replaced page from being used again.
        self.transaction = None;
        let mut transaction = self.store.env.write_txn()?;
        for (key, value) in group.iter() {
            self.store.db.put(&mut transaction, key, value)?;
        }
        Ok(transaction.commit()?)
    }

    fn refresh(&mut self) -> Result<()> {
        self.transaction = None;
        self.reader().map(|_| ())
    }
}
