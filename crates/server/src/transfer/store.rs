//! The data of a server, opened without serving them.

use std::{
    fmt,
    io::{Read, Write},
    ops::Bound,
    path::Path,
    sync::Arc,
};

use rhumb::{Database, PersistMode};

use super::{Refusal, Target, TransferError, Transferred, read_dump};
use crate::{
    clear, commit,
    config::Fsync,
    db::{Databases, now_ms},
    encode::{Entry, format::DATABASES},
    error::ServeError,
    health::Health,
    log::Log,
    rdb::{
        DumpWriter, Item, KeyHead, RdbError, ValueBytes, ValueKind, begin_value, push_item, type_of,
    },
    txn::{Space, Txn},
    values::{self, ValueWriter},
};

/// Bytes that are pending before they are committed.
const PENDING_BYTES_MAX: usize = 1 << 20;

/// Bytes of a value that are gathered before they are written to a dump.
const WRITE_BYTES: usize = 64 << 10;

/// The longest key, in bytes: the engine's longest, less what the mark of a time of expiry adds.
const KEY_BYTES_MAX: usize = (64 << 10) - 32;

/// The data of a server, opened without serving them. No server can have them meanwhile.
pub struct Store {
    databases: Databases,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}

impl Store {
    /// Opens the data in a directory. Makes them if there are none and `may_create`.
    ///
    /// # Errors
    ///
    /// If there are none, another process has them, or they cannot be read.
    pub fn open(data: &Path, memory_bytes: u64, may_create: bool) -> Result<Self, ServeError> {
        let engine = Database::builder(data)
            .memory_budget_bytes(memory_bytes)
            .create_if_missing(may_create)
            .open()?;
        let health = Arc::new(Health::new(Arc::new(Log::silent())));
        // What is imported is forced to the disk at the end.
        let databases = Databases::open(engine, Fsync::No, health)?;
        clear::finish(&databases)?;
        Ok(Self { databases })
    }

    /// Reads a dump into the data, in the place of keys of the same names. Memory is bounded by one
    /// node of a value, at most 512 MiB, and a MiB of what is not committed yet. A value is there
    /// whole or not at all, whenever the process ends. `go_on` is asked now and then.
    ///
    /// # Errors
    ///
    /// If the dump is damaged or has what does not fit, unless `is_lenient`; and from the engine.
    /// What was read before stays.
    pub fn import_dump(
        &self,
        from: impl Read,
        is_lenient: bool,
        go_on: &mut dyn FnMut(&Transferred) -> bool,
    ) -> Result<Transferred, TransferError> {
        let now = now_ms();
        let number = self.databases.number(0);
        let mut target = StoreTarget { txn: Txn::new(&self.databases, number, now) };
        read_dump(from, &mut target, (now, is_lenient), go_on)
    }

    /// Writes all keys that have not ended as a dump, which Redis 7.0 and later load. Memory is
    /// bounded by one element of a value; by the value, if it is a stream. `go_on` is asked now and
    /// then; a dump that was not completed has no end, and is refused by every reader.
    ///
    /// # Errors
    ///
    /// If the dump cannot be written, and from the engine.
    pub fn export_dump(
        &self,
        to: impl Write,
        go_on: &mut dyn FnMut(&Transferred) -> bool,
    ) -> Result<Transferred, TransferError> {
        let now = now_ms();
        let mut writer = DumpWriter::begin(to, now)?;
        let mut all = Transferred::default();
        for database in 0..DATABASES {
            let txn = Txn::new(&self.databases, self.databases.number(database), now);
            let mut is_named = false;
            for pair in txn.scan(Space::Keys, Bound::Unbounded, Bound::Unbounded, false)? {
                let (key, value) = pair?;
                let entry = Entry::decode(value).ok_or_else(|| damaged(&key))?;
                if entry.is_expired(now) {
                    all.ended += 1;
                    continue;
                }
                let Some(kind) = values::kind_of(&entry) else {
                    let key = key.escape_ascii();
                    let what = format!("the key \"{key}\" has a value that no dump can hold");
                    return Err(TransferError::Failed(what));
                };
                if !std::mem::replace(&mut is_named, true) {
                    writer.database(database as u64)?;
                }
                export_value(&mut writer, &txn, (&key, &entry, kind))?;
                all.keys += 1;
                all.bytes = writer.written();
                if all.keys.is_multiple_of(super::KEYS_PER_LOOK) && !go_on(&all) {
                    return Ok(all);
                }
            }
        }
        let (mut to, bytes) = writer.finish()?;
        to.flush()?;
        (all.bytes, all.is_complete) = (bytes, true);
        Ok(all)
    }
}

fn damaged(key: &[u8]) -> TransferError {
    TransferError::Failed(format!("the entry of the key \"{}\" is damaged", key.escape_ascii()))
}

fn export_value<W: Write>(
    writer: &mut DumpWriter<W>,
    txn: &Txn<'_>,
    (key, entry, kind): (&[u8], &Entry, ValueKind),
) -> Result<(), TransferError> {
    if kind == ValueKind::Stream {
        let (mut value, mut bytes) = (ValueBytes::new(kind), Vec::new());
        values::read(txn, entry, |item| -> Result<(), TransferError> {
            value.push(&item);
            Ok(())
        })?;
        value.finish(&mut bytes)?;
        let (type_byte, bytes) = bytes.split_first().ok_or_else(|| damaged(key))?;
        writer.key(key, *type_byte, entry.expires_ms)?;
        return Ok(writer.raw(bytes)?);
    }
    writer.key(key, type_of(kind, false), entry.expires_ms)?;
    let (expected, mut items) = (values::items_of(txn, entry)?, 0);
    let mut bytes = Vec::new();
    begin_value(&mut bytes, kind, expected);
    values::read(txn, entry, |item| -> Result<(), TransferError> {
        push_item(&mut bytes, &item);
        items += 1;
        if bytes.len() >= WRITE_BYTES {
            writer.raw(&bytes)?;
            bytes.clear();
        }
        Ok(())
    })?;
    if items != expected {
        return Err(damaged(key));
    }
    Ok(writer.raw(&bytes)?)
}

/// Values go into the store.
struct StoreTarget<'s> {
    txn: Txn<'s>,
}

impl Target for StoreTarget<'_> {
    fn database(&mut self, number: u64) -> Result<(), TransferError> {
        let index = usize::try_from(number).ok().filter(|index| *index < DATABASES);
        let index = index.ok_or_else(|| {
            let what = format!("the dump has keys of database {number}: there are {DATABASES}");
            TransferError::Failed(what)
        })?;
        self.txn.number = self.txn.databases.number(index);
        Ok(())
    }

    fn value(
        &mut self,
        head: &KeyHead,
        next: &mut dyn FnMut() -> Result<Option<Item>, RdbError>,
    ) -> Result<(), Refusal> {
        if head.key.len() > KEY_BYTES_MAX {
            let what = format!("a name of {} bytes: at most {KEY_BYTES_MAX}", head.key.len());
            return Err(Refusal::Unfit(what));
        }
        let mut value = ValueWriter::begin(&self.txn, head.kind)?;
        while let Some(item) = next()? {
            value.push(&self.txn, item)?;
            if value.flush_if_large(&mut self.txn) {
                commit::transaction(&mut self.txn)?;
            }
        }
        value.check()?;
        let before = self.txn.edit(&head.key)?;
        value.finish(&mut self.txn, &head.key, before.as_ref(), head.expires_ms)?;
        if self.txn.pending.bytes >= PENDING_BYTES_MAX {
            commit::transaction(&mut self.txn)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), TransferError> {
        commit::transaction(&mut self.txn)?;
        Ok(self.txn.databases.engine.persist(PersistMode::SyncAll)?)
    }
}
