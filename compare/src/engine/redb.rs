//! redb, a copy-on-write B-tree: writes grouped into transactions, reads from a transaction that
//! is renewed when something was committed.

use std::path::Path;

use anyhow::Result;
use redb::{
    Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition, WriteTransaction,
};
use rhumb_bench::subject::{
    Engine, FileCache, OnEntry, OnValue, Session, Store, Tuning, WriteGroup,
};

pub(crate) struct Redb;

/// Writes in one transaction.
const GROUP: usize = 1000;

/// One in this many transactions is synced: only then does redb use freed pages again.
const GROUPS_PER_SYNC: u64 = 100;

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("bench");

impl Engine for Redb {
    fn name(&self) -> &'static str {
        "redb"
    }

    fn options(&self, tuning: &Tuning) -> String {
        format!(
            "redb 4.4; cache of {} bytes; transactions of {GROUP} writes, one in \
             {GROUPS_PER_SYNC} synced so that it reclaims space; read transactions renewed after \
             commits; no compression, no background threads; {}",
            tuning.cache_bytes,
            if tuning.direct {
                "buffered reads (it has no direct ones), its file dropped from the page cache \
                 ten times a second"
            } else {
                "buffered reads"
            },
        )
    }

    fn write_group(&self) -> usize {
        GROUP
    }

    fn file_cache(&self) -> FileCache {
        FileCache::Buffered
    }

    fn open(&self, directory: &Path, tuning: &Tuning) -> Result<Box<dyn Store>> {
        let db = Database::builder()
            .set_cache_size(tuning.cache_bytes as usize)
            .create(directory.join("bench.redb"))?;
        let transaction = db.begin_write()?;
        transaction.open_table(TABLE)?;
        transaction.commit()?;
        Ok(Box::new(RedbStore { db }))
    }
}

struct RedbStore {
    db: Database,
}

impl RedbStore {
    fn table(&self) -> Result<ReadOnlyTable<&'static [u8], &'static [u8]>> {
        Ok(self.db.begin_read()?.open_table(TABLE)?)
    }
}

impl Store for RedbStore {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(RedbSession { store: self, table: self.table()?, groups: 0 }))
    }

    fn settle(&mut self) -> Result<()> {
        sync(&self.db)?;
        self.db.compact()?;
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        sync(&self.db)
    }
}

/// Makes everything durable that was committed before.
fn sync(db: &Database) -> Result<()> {
    Ok(begin(db, Durability::Immediate)?.commit()?)
}

fn begin(db: &Database, durability: Durability) -> Result<WriteTransaction> {
    let mut transaction = db.begin_write()?;
    transaction.set_durability(durability)?;
    Ok(transaction)
}

struct RedbSession<'a> {
    store: &'a RedbStore,
    table: ReadOnlyTable<&'static [u8], &'static [u8]>,
    groups: u64,
}

impl Session for RedbSession<'_> {
    fn get(&mut self, key: &[u8], on_value: OnValue<'_>) -> Result<bool> {
        match self.table.get(key)? {
            Some(value) => on_value(value.value()).map(|()| true),
            None => Ok(false),
        }
    }

    fn scan(&mut self, from: &[u8], on_entry: OnEntry<'_>) -> Result<()> {
        for entry in self.table.range(from..)? {
            let (key, value) = entry?;
            if !on_entry(key.value(), value.value())? {
                break;
            }
        }
        Ok(())
    }

    fn write(&mut self, group: &WriteGroup) -> Result<()> {
        self.groups += 1;
        let syncs = self.groups.is_multiple_of(GROUPS_PER_SYNC);
        let durability = if syncs { Durability::Immediate } else { Durability::None };
        let transaction = begin(&self.store.db, durability)?;
        let mut table = transaction.open_table(TABLE)?;
        for (key, value) in group.iter() {
            table.insert(key, value)?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }

    fn refresh(&mut self) -> Result<()> {
        self.table = self.store.table()?;
        Ok(())
    }
}
