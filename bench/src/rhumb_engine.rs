//! Rhumb as a subject, through its public interface only.

use std::{cell::RefCell, path::Path};

use anyhow::{Context, Result};
use rhumb::{
    BlockIndexKind, Database, Iter, Keyspace, KeyspaceOptions, MemtableKind, Partitioning,
    PersistMode, StringCoding, TableOptions, Training,
    inspect::Inspector,
    io::{ReadEngineKind, ReadMode},
};

use crate::{
    overlap,
    queueing::{QueueEngine, QueueStore, Step},
    subject::{
        Compression, Engine, FileCache, Footprint, OnAnswer, OnEntry, OnEntryOf, OnValue, Session,
        Store, Tuning, WriteGroup,
    },
    transacting::{KEY_BYTES, OnChange, OnPair, TransactEngine, TransactStore},
};

/// Rhumb with one kind of index block and of memtable.
#[derive(Debug)]
pub struct Rhumb {
    name: &'static str,
    index: BlockIndexKind,
    coding: StringCoding,
    training: Training,
    /// Keys with the same first byte are a partition.
    is_divided: bool,
    memtable: MemtableKind,
    reads: ReadEngineKind,
    reads_ahead: bool,
}

/// What most subjects are.
const USUAL: Rhumb = Rhumb {
    name: "rhumb",
    index: BlockIndexKind::Learned,
    coding: StringCoding::Auto,
    training: Training::Always,
    is_divided: false,
    memtable: MemtableKind::Learned,
    reads: ReadEngineKind::Kernel,
    reads_ahead: true,
};

/// Rhumb as it comes: with learned index blocks and memtables.
pub static LEARNED: Rhumb = USUAL;

/// Rhumb with index blocks that are searched, to show what the models are worth.
pub static BINARY_SEARCH: Rhumb =
    Rhumb { name: "rhumb-binary", index: BlockIndexKind::BinarySearch, ..USUAL };

/// Rhumb whose flushes train models only while writers are few.
pub static ADAPTIVE: Rhumb =
    Rhumb { name: "rhumb-adaptive", training: Training::Adaptive, ..USUAL };

/// Rhumb that trains no models.
pub static UNTRAINED: Rhumb = Rhumb { name: "rhumb-untrained", training: Training::Never, ..USUAL };

/// Rhumb with memtables that are skip lists, to show what the learned ones are worth.
pub static SKIP_LIST: Rhumb =
    Rhumb { name: "rhumb-skiplist", memtable: MemtableKind::SkipList, ..USUAL };

/// Rhumb whose reads that overlap are done by threads, as where the kernel refuses its queue.
pub static THREADS: Rhumb =
    Rhumb { name: "rhumb-threads", reads: ReadEngineKind::Threads, ..USUAL };

/// Rhumb whose scans read no block before they come to it.
pub static PLAIN: Rhumb = Rhumb { name: "rhumb-plain", reads_ahead: false, ..USUAL };

/// Rhumb without any technique of TridentKV, to hold each against.
pub static NONE: Rhumb =
    Rhumb { name: "none", index: BlockIndexKind::BinarySearch, coding: StringCoding::Off, ..USUAL };

/// That with learned index blocks, of plain bytes and trained at every flush.
pub static MODELS: Rhumb = Rhumb { name: "models", index: BlockIndexKind::Learned, ..NONE };

/// That with codes trained from the keys.
pub static CODING: Rhumb = Rhumb { name: "coding", coding: StringCoding::On, ..MODELS };

/// Learned index blocks that are trained while writers are few, or later.
pub static ADAPTIVE_MODELS: Rhumb =
    Rhumb { name: "adaptive", training: Training::Adaptive, ..MODELS };

/// Partitions, and nothing else.
pub static PARTITIONS: Rhumb = Rhumb { name: "partitions", is_divided: true, ..NONE };

/// Nothing but that the caller reads asynchronously.
pub static ASYNC: Rhumb = Rhumb { name: "async", ..NONE };

/// All of it, as `KeyspacePreset::TridentKv` sets it.
pub static TRIDENT_KV: Rhumb = Rhumb {
    name: "tridentkv",
    coding: StringCoding::On,
    training: Training::Adaptive,
    is_divided: true,
    ..MODELS
};

const KEYSPACE: &str = "bench";

impl Rhumb {
    fn keyspace_options(&self, tuning: &Tuning) -> KeyspaceOptions {
        let compression = match tuning.compression {
            Compression::None => rhumb::Compression::None,
            Compression::Lz4 => rhumb::Compression::Lz4,
        };
        let table = TableOptions {
            index: Some(self.index),
            string_coding: Some(self.coding),
            training: Some(self.training),
            compression: Some(compression),
            block_bytes: Some(tuning.block_bytes),
            filter_bits_per_key: Some(u8::try_from(tuning.filter_bits).unwrap_or(u8::MAX)),
            ..TableOptions::default()
        };
        let partitions =
            if self.is_divided { Partitioning::PrefixLength(1) } else { Partitioning::None };
        KeyspaceOptions { table, partitions, ..KeyspaceOptions::default() }
    }

    /// Three memtables come on top of the cache, what the engine leaves for what is free between
    /// blocks, and what it leaves to the allocator.
    fn budget(tuning: &Tuning) -> u64 {
        (tuning.cache_bytes / 16 * 17 + tuning.memtable_bytes / 4 * 15) / 7 * 8
    }
}

impl Engine for Rhumb {
    fn name(&self) -> &'static str {
        self.name
    }

    fn options(&self, tuning: &Tuning) -> String {
        format!(
            "memory budget of {} bytes for cache, pinned index and filters, and two memtables of {} \
             bytes ({:?}); {:?} index blocks, coded {:?}, trained {:?}; partitions {}; blocked Bloom filters of {} bits per key; blocks of {} \
             bytes; compression {}; {} background threads; write-ahead log without sync; direct \
             reads {}, {}; read-ahead {}",
            Self::budget(tuning),
            tuning.memtable_bytes,
            self.memtable,
            self.index,
            self.coding,
            self.training,
            if self.is_divided { "by the first byte" } else { "none" },
            tuning.filter_bits,
            tuning.block_bytes,
            tuning.compression.name(),
            tuning.background_threads,
            tuning.direct,
            self.reads.name(),
            self.reads_ahead,
        )
    }

    fn memory_budget_bytes(&self, tuning: &Tuning) -> Option<u64> {
        Some(Self::budget(tuning))
    }

    fn file_cache(&self) -> FileCache {
        FileCache::Direct
    }

    fn open(&self, directory: &Path, tuning: &Tuning) -> Result<Box<dyn Store>> {
        Ok(Box::new(self.open_store(directory, tuning)?))
    }
}

impl Rhumb {
    fn open_store(&self, directory: &Path, tuning: &Tuning) -> Result<RhumbStore> {
        let db = Database::builder(directory)
            .memory_budget_bytes(Self::budget(tuning))
            .memtable_bytes(tuning.memtable_bytes)
            .memtable_kind(self.memtable)
            .background_threads(tuning.background_threads as usize)
            .read_engine(self.reads)
            .read_ahead(self.reads_ahead)
            .read_mode(if tuning.direct { ReadMode::Direct } else { ReadMode::Buffered })
            .open()?;
        let keyspace = db.keyspace(KEYSPACE, self.keyspace_options(tuning))?;
        Ok(RhumbStore { db, keyspace })
    }
}

struct RhumbStore {
    db: Database,
    keyspace: Keyspace,
}

impl Store for RhumbStore {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(RhumbSession { keyspace: &self.keyspace }))
    }

    fn settle(&mut self) -> Result<()> {
        self.db.flush()?;
        Ok(self.keyspace.compact()?)
    }

    fn footprint(&self) -> Result<Footprint> {
        let report = Inspector::new().database(self.db.path())?;
        let (mut index, mut filter, mut index_file) = (0, 0, 0);
        for level in report.keyspaces.iter().flat_map(|keyspace| &keyspace.levels) {
            index += level.sum(|table| table.index_resident_bytes);
            filter += level.sum(|table| table.filter_bytes);
            index_file += level.sum(|table| table.index_bytes);
        }
        Ok(Footprint {
            index_bytes: Some(index),
            filter_bytes: Some(filter),
            index_and_filter_bytes: Some(self.db.stats().pinned_bytes),
            index_file_bytes: Some(index_file),
        })
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.db.persist(PersistMode::Buffer)?)
    }
}

impl TransactEngine for Rhumb {
    fn name(&self) -> &'static str {
        self.name
    }

    fn options(&self, tuning: &Tuning) -> String {
        format!(
            "{}; snapshot isolation: a conflict if a key that is written was changed since; a \
             commit is in the operating system's hands when it returns and not synced",
            Engine::options(self, tuning)
        )
    }

    fn open(&self, directory: &Path, tuning: &Tuning) -> Result<Box<dyn TransactStore>> {
        Ok(Box::new(self.open_store(directory, tuning)?))
    }
}

impl TransactStore for RhumbStore {
    fn insert(&self, key: &[u8; KEY_BYTES], value: &[u8]) -> Result<()> {
        Ok(self.keyspace.insert(key, value)?)
    }

    fn settle(&self) -> Result<()> {
        self.db.flush()?;
        Ok(self.keyspace.compact()?)
    }

    fn transact(&self, keys: [&[u8; KEY_BYTES]; 2], on_change: OnChange<'_>) -> Result<bool> {
        let mut transaction = self.db.transaction();
        for (at, key) in keys.into_iter().enumerate() {
            let value = transaction.get(&self.keyspace, key)?.context("a key is missing")?;
            let value = on_change(at, &value)?;
            transaction.insert(&self.keyspace, key, value)?;
        }
        match transaction.commit() {
            Ok(()) => Ok(true),
            Err(rhumb::Error::Conflict { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn values(&self, on_value: OnPair<'_>) -> Result<()> {
        for entry in &self.keyspace {
            let (key, value) = entry?;
            on_value(&key, &value)?;
        }
        Ok(())
    }
}

impl QueueEngine for Rhumb {
    fn name(&self) -> &'static str {
        self.name
    }

    fn options(&self, tuning: &Tuning) -> String {
        format!(
            "{}; pop_first and pop_last; each push and each pop is a commit of its own, in the \
             operating system's hands when it returns and not synced: it outlives the process and \
             not a power cut",
            Engine::options(self, tuning)
        )
    }

    fn open(&self, directory: &Path, tuning: &Tuning) -> Result<Box<dyn QueueStore>> {
        Ok(Box::new(self.open_store(directory, tuning)?))
    }
}

impl QueueStore for RhumbStore {
    fn perform(&mut self, steps: &[Step], on_popped: OnEntry<'_>) -> Result<()> {
        for step in steps {
            let popped = match step {
                Step::Push { key, value } => {
                    self.keyspace.insert(key, value)?;
                    continue;
                }
                Step::PopFirst => self.keyspace.pop_first()?,
                Step::PopLast => self.keyspace.pop_last()?,
            };
            if let Some((key, value)) = popped {
                on_popped(&key, &value)?;
            }
        }
        Ok(())
    }

    fn passed_entries(&self) -> Option<u64> {
        Some(self.db.stats().passed_entries)
    }
}

struct RhumbSession<'a> {
    keyspace: &'a Keyspace,
}

impl Session for RhumbSession<'_> {
    fn get(&mut self, key: &[u8], on_value: OnValue<'_>) -> Result<bool> {
        match self.keyspace.get(key)? {
            Some(value) => on_value(&value).map(|()| true),
            None => Ok(false),
        }
    }

    fn multi_get(&mut self, keys: &[&[u8]], on_answer: OnAnswer<'_>) -> Result<()> {
        for (i, value) in self.keyspace.multi_get(keys)?.iter().enumerate() {
            on_answer(i, value.as_deref())?;
        }
        Ok(())
    }

    fn scan(&mut self, from: &[u8], on_entry: OnEntry<'_>) -> Result<()> {
        scan_by(self.keyspace.range(from..), on_entry)
    }

    fn scan_some(&mut self, from: &[u8], entries: usize, on_entry: OnEntry<'_>) -> Result<()> {
        let mut range = self.keyspace.range(from..);
        range.hint_len(entries);
        scan_by(range, on_entry)
    }

    fn get_overlapped(
        &mut self,
        keys: &[&[u8]],
        depth: usize,
        on_answer: OnAnswer<'_>,
    ) -> Result<()> {
        let reads = keys.iter().map(|key| self.keyspace.get_async(key));
        let mut result = Ok(());
        overlap::join(reads, depth, |i, value| {
            let answered = value.map_err(Into::into).and_then(|v| on_answer(i, v.as_deref()));
            if result.is_ok() {
                result = answered;
            }
        });
        result
    }

    fn scan_overlapped(&mut self, from: &[u8], on_entry: OnEntry<'_>) -> Result<()> {
        let mut range = self.keyspace.range_async(from..);
        overlap::block_on(async {
            while let Some(goes_on) = range.next_with(|key, value| on_entry(key, value)).await {
                if !goes_on?? {
                    break;
                }
            }
            Ok(())
        })
    }

    fn scans_overlapped(
        &mut self,
        starts: &[&[u8]],
        depth: usize,
        on_entry: OnEntryOf<'_>,
    ) -> Result<()> {
        let on_entry = RefCell::new(on_entry);
        let scans = starts.iter().enumerate().map(|(i, start)| {
            let (mut range, on_entry) = (self.keyspace.range_async(*start..), &on_entry);
            async move {
                let mut look = |key: &[u8], value: &[u8]| on_entry.borrow_mut()(i, key, value);
                while let Some(goes_on) = range.next_with(&mut look).await {
                    if !goes_on?? {
                        break;
                    }
                }
                Ok(())
            }
        });
        let mut result = Ok(());
        overlap::join(scans, depth, |_, ended: Result<()>| {
            if result.is_ok() {
                result = ended;
            }
        });
        result
    }

    fn write(&mut self, group: &WriteGroup) -> Result<()> {
        for (key, value) in group.iter() {
            self.keyspace.insert(key, value)?;
        }
        Ok(())
    }
}

/// Visits what comes, until the visitor has enough.
fn scan_by(mut range: Iter, on_entry: OnEntry<'_>) -> Result<()> {
    while let Some(goes_on) = range.next_with(|key, value| on_entry(key, value)) {
        if !goes_on?? {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rhumb::KeyspacePreset;

    use super::*;

    #[test]
    fn the_subject_of_a_preset_is_that_preset() {
        let tuning = Tuning {
            cache_bytes: 1 << 20,
            memtable_bytes: 1 << 20,
            direct: false,
            compression: Compression::Lz4,
            block_bytes: 4096,
            filter_bits: 10,
            background_threads: 1,
            data_bytes: 1 << 20,
        };
        let mut published = KeyspacePreset::TridentKv.options(Partitioning::PrefixLength(1));
        // What the preset leaves as it is, the tuning says.
        published.table.block_bytes = Some(tuning.block_bytes);
        published.table.compression = Some(rhumb::Compression::Lz4);
        published.table.filter_bits_per_key = Some(10);
        assert_eq!(TRIDENT_KV.keyspace_options(&tuning), published);
    }
}
