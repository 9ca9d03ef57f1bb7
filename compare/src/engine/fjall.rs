//! fjall, with its cache at the shared size, Bloom filters on all levels, and index and filters
//! whole and pinned. Then with a keyspace for each part of the keys that may be dropped.

use std::path::Path;

use anyhow::{Context, Result};
use fjall::{
    AbstractTree, CompressionType, Database, Keyspace, KeyspaceCreateOptions, OptimisticTxDatabase,
    OptimisticTxKeyspace, PersistMode, Readable,
    config::{
        BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy,
        FilterPolicyEntry, PartitioningPolicy, PinningPolicy,
    },
};
use rhumb_bench::dropping::{DropEngine, DropStore, PARTITIONS, partition_name};
use rhumb_bench::queueing::{QueueEngine, QueueStore, Step};
use rhumb_bench::subject::{
    Compression, Engine, FileCache, Footprint, OnEntry, OnValue, Session, Store, Tuning, WriteGroup,
};
use rhumb_bench::transacting::{KEY_BYTES, OnChange, OnPair, TransactEngine, TransactStore};

pub(crate) struct Fjall;

impl Engine for Fjall {
    fn name(&self) -> &'static str {
        "fjall"
    }

    fn options(&self, tuning: &Tuning) -> String {
        format!(
            "fjall 3.1; cache of {} bytes; Bloom filters of {} bits per key; index and filters \
             whole and pinned beside the cache; blocks of {} bytes; compression {}; memtable of {} \
             bytes; {} worker threads; journal without sync; {}",
            tuning.cache_bytes,
            tuning.filter_bits,
            tuning.block_bytes,
            tuning.compression.name(),
            tuning.memtable_bytes,
            tuning.background_threads,
            if tuning.direct {
                "buffered reads (it has no direct ones), its files dropped from the page cache \
                 ten times a second"
            } else {
                "buffered reads"
            },
        )
    }

    fn file_cache(&self) -> FileCache {
        FileCache::Buffered
    }

    fn open(&self, directory: &Path, tuning: &Tuning) -> Result<Box<dyn Store>> {
        let db = open_database(directory, tuning)?;
        let keyspace = open_keyspace(&db, "bench", tuning)?;
        Ok(Box::new(FjallStore { db, keyspace }))
    }
}

fn open_database(directory: &Path, tuning: &Tuning) -> Result<Database> {
    let builder = Database::builder(directory).cache_size(tuning.cache_bytes);
    Ok(builder.worker_threads(tuning.background_threads as usize).open()?)
}

fn open_keyspace(db: &Database, name: &str, tuning: &Tuning) -> Result<Keyspace> {
    Ok(db.keyspace(name, || keyspace_options(tuning))?)
}

fn keyspace_options(tuning: &Tuning) -> KeyspaceCreateOptions {
    let compression = match tuning.compression {
        Compression::None => CompressionType::None,
        Compression::Lz4 => CompressionType::Lz4,
    };
    let bits = BloomConstructionPolicy::BitsPerKey(tuning.filter_bits as f32);
    KeyspaceCreateOptions::default()
        .max_memtable_size(tuning.memtable_bytes)
        .data_block_size_policy(BlockSizePolicy::all(tuning.block_bytes))
        .data_block_compression_policy(CompressionPolicy::all(compression))
        .filter_policy(FilterPolicy::all(FilterPolicyEntry::Bloom(bits)))
        .filter_block_partitioning_policy(PartitioningPolicy::all(false))
        .index_block_partitioning_policy(PartitioningPolicy::all(false))
        .filter_block_pinning_policy(PinningPolicy::all(true))
        .index_block_pinning_policy(PinningPolicy::all(true))
}

struct FjallStore {
    db: Database,
    keyspace: Keyspace,
}

impl Store for FjallStore {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(FjallSession { keyspace: &self.keyspace }))
    }

    fn settle(&mut self) -> Result<()> {
        self.keyspace.rotate_memtable_and_wait()?;
        Ok(self.keyspace.major_compact()?)
    }

    fn footprint(&self) -> Result<Footprint> {
        let tree = &self.keyspace.tree;
        let (index, filter) = (tree.pinned_block_index_size(), tree.pinned_filter_size());
        Ok(Footprint {
            index_bytes: Some(index as u64),
            filter_bytes: Some(filter as u64),
            index_and_filter_bytes: Some((index + filter) as u64),
            ..Footprint::default()
        })
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.db.persist(PersistMode::Buffer)?)
    }
}

struct FjallSession<'a> {
    keyspace: &'a Keyspace,
}

impl Session for FjallSession<'_> {
    fn get(&mut self, key: &[u8], on_value: OnValue<'_>) -> Result<bool> {
        match self.keyspace.get(key)? {
            Some(value) => on_value(&value).map(|()| true),
            None => Ok(false),
        }
    }

    fn scan(&mut self, from: &[u8], on_entry: OnEntry<'_>) -> Result<()> {
        scan_by(self.keyspace, from, on_entry)
    }

    fn write(&mut self, group: &WriteGroup) -> Result<()> {
        for (key, value) in group.iter() {
            self.keyspace.insert(key, value)?;
        }
        Ok(())
    }
}

/// Visits entries from the first that is not less than `from`.
fn scan_by(keyspace: &Keyspace, from: &[u8], on_entry: OnEntry<'_>) -> Result<()> {
    for entry in keyspace.range(from..) {
        let (key, value) = entry.into_inner()?;
        if !on_entry(&key, &value)? {
            break;
        }
    }
    Ok(())
}

impl TransactEngine for Fjall {
    fn name(&self) -> &'static str {
        "fjall"
    }

    fn options(&self, tuning: &Tuning) -> String {
        format!(
            "{}; OptimisticTxDatabase, serializable: a conflict if a key that is read was changed \
             since; a commit is in the operating system's hands when it returns and not synced",
            Engine::options(self, tuning)
        )
    }

    fn open(&self, directory: &Path, tuning: &Tuning) -> Result<Box<dyn TransactStore>> {
        let builder = OptimisticTxDatabase::builder(directory).cache_size(tuning.cache_bytes);
        let db = builder.worker_threads(tuning.background_threads as usize).open()?;
        let keyspace = db.keyspace("bench", || keyspace_options(tuning))?;
        Ok(Box::new(FjallTransactions { db, keyspace }))
    }
}

struct FjallTransactions {
    db: OptimisticTxDatabase,
    keyspace: OptimisticTxKeyspace,
}

impl TransactStore for FjallTransactions {
    fn insert(&self, key: &[u8; KEY_BYTES], value: &[u8]) -> Result<()> {
        Ok(self.keyspace.inner().insert(*key, value)?)
    }

    fn settle(&self) -> Result<()> {
        self.keyspace.inner().rotate_memtable_and_wait()?;
        Ok(self.keyspace.inner().major_compact()?)
    }

    fn transact(&self, keys: [&[u8; KEY_BYTES]; 2], on_change: OnChange<'_>) -> Result<bool> {
        let mut transaction = self.db.write_tx()?.durability(None);
        for (at, key) in keys.into_iter().enumerate() {
            let value = transaction.get(&self.keyspace, key)?.context("a key is missing")?;
            let value = on_change(at, &value)?;
            transaction.insert(&self.keyspace, *key, value);
        }
        Ok(transaction.commit()?.is_ok())
    }

    fn values(&self, on_value: OnPair<'_>) -> Result<()> {
        for entry in self.keyspace.inner().iter() {
            let (key, value) = entry.into_inner()?;
            on_value(&key, &value)?;
        }
        Ok(())
    }
}

impl QueueEngine for Fjall {
    fn name(&self) -> &'static str {
        "fjall"
    }

    fn options(&self, tuning: &Tuning) -> String {
        format!(
            "{}; first_key_value or last_key_value, then remove; each push and each removal is a write \
             of its own, in the operating system's hands when it returns and not synced",
            Engine::options(self, tuning)
        )
    }

    fn open(&self, directory: &Path, tuning: &Tuning) -> Result<Box<dyn QueueStore>> {
        let db = open_database(directory, tuning)?;
        let keyspace = open_keyspace(&db, "bench", tuning)?;
        Ok(Box::new(FjallStore { db, keyspace }))
    }
}

impl QueueStore for FjallStore {
    fn perform(&mut self, steps: &[Step], on_popped: OnEntry<'_>) -> Result<()> {
        for step in steps {
            let popped = match step {
                Step::Push { key, value } => {
                    self.keyspace.insert(key, value)?;
                    continue;
                }
                Step::PopFirst => self.keyspace.first_key_value(),
                Step::PopLast => self.keyspace.last_key_value(),
            };
            if let Some(entry) = popped {
                let (key, value) = entry.into_inner()?;
                self.keyspace.remove(key.clone())?;
                on_popped(&key, &value)?;
            }
        }
        Ok(())
    }
}

/// fjall with a keyspace for each part of the keys.
pub(crate) struct Keyspaces;

impl DropEngine for Keyspaces {
    fn name(&self) -> &'static str {
        "fjall-keyspaces"
    }

    fn options(&self, tuning: &Tuning) -> serde_json::Value {
        format!("{}; a keyspace for each part", Engine::options(&Fjall, tuning)).into()
    }

    fn open(&self, directory: &Path, tuning: &Tuning) -> Result<Box<dyn DropStore>> {
        let db = open_database(directory, tuning)?;
        let open = |partition| {
            // Names there have no slash.
            let name = partition_name(partition).replace('/', "");
            open_keyspace(&db, &name, tuning).map(Some)
        };
        let parts = (0..PARTITIONS).map(open).collect::<Result<_>>()?;
        Ok(Box::new(KeyspacesStore { db, parts }))
    }
}

struct KeyspacesStore {
    db: Database,
    /// None where a part was dropped.
    parts: Vec<Option<Keyspace>>,
}

impl KeyspacesStore {
    fn part(&self, partition: u32) -> Option<&Keyspace> {
        self.parts.get(partition as usize)?.as_ref()
    }
}

impl DropStore for KeyspacesStore {
    fn insert(&mut self, partition: u32, key: &[u8], value: &[u8]) -> Result<()> {
        let part = self.part(partition).context("no such keyspace")?;
        Ok(part.insert(key, value)?)
    }

    fn settle(&mut self) -> Result<()> {
        for part in self.parts.iter().flatten() {
            part.rotate_memtable_and_wait()?;
            part.major_compact()?;
        }
        Ok(())
    }

    fn drop_partition(&mut self, partition: u32) -> Result<()> {
        let part = self.parts.get_mut(partition as usize).and_then(Option::take);
        Ok(self.db.delete_keyspace(part.context("no such keyspace")?)?)
    }

    fn get(&mut self, partition: u32, key: &[u8], on_value: OnValue<'_>) -> Result<bool> {
        let Some(part) = self.part(partition) else { return Ok(false) };
        match part.get(key)? {
            Some(value) => on_value(&value).map(|()| true),
            None => Ok(false),
        }
    }

    fn scan(&mut self, partition: u32, from: &[u8], on_entry: OnEntry<'_>) -> Result<()> {
        let next = (partition..PARTITIONS).find_map(|partition| self.part(partition));
        next.map_or(Ok(()), |part| scan_by(part, from, on_entry))
    }
}
