//! redb, a copy-on-write B-tree: writes grouped into transactions, reads from a transaction that
//! is renewed when something was committed.

use std::path::Path;

use anyhow::Result;
use redb::{
    Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition, WriteTransaction,
};
use rhumb_bench::queueing::{QueueEngine, QueueStore, Step};
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
        Ok(Box::new(RedbStore { db: open_database(directory, tuning)? }))
    }
}

fn open_database(directory: &Path, tuning: &Tuning) -> Result<Database> {
    let db = Database::builder()
        .set_cache_size(tuning.cache_bytes as usize)
        .create(directory.join("bench.redb"))?;
    let transaction = db.begin_write()?;
    transaction.open_table(TABLE)?;
    transaction.commit()?;
    Ok(db)
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

/// Steps of a queue between two syncs.
const STEPS_PER_SYNC: u64 = GROUP as u64 * GROUPS_PER_SYNC;

fn queue_options(tuning: &Tuning, group: usize) -> String {
    format!(
        "redb 4.4; cache of {} bytes; pop_first and pop_last; transactions of {group} steps, committed \
         without durability: they outlive nothing until the next sync, after each {STEPS_PER_SYNC} \
         steps, so that it reclaims space",
        tuning.cache_bytes,
    )
}

impl QueueEngine for Redb {
    fn name(&self) -> &'static str {
        "redb"
    }

    fn options(&self, tuning: &Tuning) -> String {
        queue_options(tuning, GROUP)
    }

    fn group(&self) -> usize {
        GROUP
    }

    fn open(&self, directory: &Path, tuning: &Tuning) -> Result<Box<dyn QueueStore>> {
        let db = open_database(directory, tuning)?;
        Ok(Box::new(RedbQueue { db, group: GROUP, steps: 0 }))
    }
}

/// redb with a transaction for each step of a queue, as the others have it.
pub(crate) struct Single;

impl QueueEngine for Single {
    fn name(&self) -> &'static str {
        "redb-single"
    }

    fn options(&self, tuning: &Tuning) -> String {
        queue_options(tuning, 1)
    }

    fn open(&self, directory: &Path, tuning: &Tuning) -> Result<Box<dyn QueueStore>> {
        Ok(Box::new(RedbQueue { db: open_database(directory, tuning)?, group: 1, steps: 0 }))
    }
}

struct RedbQueue {
    db: Database,
    group: usize,
    /// Since the last sync.
    steps: u64,
}

impl QueueStore for RedbQueue {
    fn perform(&mut self, steps: &[Step], on_popped: OnEntry<'_>) -> Result<()> {
        for group in steps.chunks(self.group) {
            self.steps += group.len() as u64;
            let syncs = self.steps >= STEPS_PER_SYNC;
            let durability = if syncs { Durability::Immediate } else { Durability::None };
            let transaction = begin(&self.db, durability)?;
            let mut table = transaction.open_table(TABLE)?;
            for step in group {
                let popped = match step {
                    Step::Push { key, value } => {
                        table.insert(&key[..], &value[..])?;
                        continue;
                    }
                    Step::PopFirst => table.pop_first()?,
                    Step::PopLast => table.pop_last()?,
                };
                if let Some((key, value)) = popped {
                    on_popped(key.value(), value.value())?;
                }
            }
            drop(table);
            transaction.commit()?;
            if syncs {
                self.steps = 0;
            }
        }
        Ok(())
    }
}
