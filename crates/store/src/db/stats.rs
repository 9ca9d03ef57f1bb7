//! What the database says of itself.

use std::sync::atomic::Ordering;

use super::core::Core;
use crate::{error::Corruption, io::ReadEngineKind, tree::Tree, version::levels::Levels};

/// What a database holds and did since it was opened.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Every keyspace, by name.
    pub keyspaces: Vec<KeyspaceStats>,
    /// True if the database is [open for reading
    /// alone](crate::DatabaseBuilder::open_read_only). `writes_stopped` is false then, and
    /// `write_failure` none: nothing has failed.
    pub is_read_only: bool,
    /// The number of the last visible write.
    pub sequence_number: u64,
    /// Live snapshots; an iterator over several partitions counts as one.
    pub snapshots: u64,
    /// Memory of all memtables, in bytes.
    pub memtable_bytes: u64,
    /// Memory from the system for memtables, cached blocks, and pinned index and filter blocks, in
    /// bytes: in chunks, with the room between what is in use, and with memtables that only readers
    /// hold.
    pub mapped_bytes: u64,
    /// What of that is for log records of memtables.
    pub record_chunk_bytes: u64,
    /// What of that is for cached blocks, and for pinned index and filter blocks.
    pub cache_chunk_bytes: u64,
    /// Full memtables that wait for their flush.
    pub sealed_memtables: u64,
    /// Memory of the pinned index and filter blocks, in bytes.
    pub pinned_bytes: u64,
    /// Memory of the cached blocks, in bytes.
    pub cache_bytes: u64,
    /// Blocks in the cache.
    pub cache_blocks: u64,
    /// Blocks that entered the cache.
    pub cache_inserts: u64,
    /// Blocks that left the cache to make room.
    pub cache_evictions: u64,
    /// What the cache may take at present, in bytes.
    pub cache_capacity_bytes: u64,
    /// The memory budget, in bytes.
    pub memory_budget_bytes: u64,
    /// Blocks read from files.
    pub block_reads: u64,
    /// Reads of files that brought those blocks; one may bring several.
    pub block_read_calls: u64,
    /// Bytes read from files for blocks.
    pub block_read_bytes: u64,
    /// Files of tables that have a descriptor.
    pub open_files: u64,
    /// How many may have one, but for those that reads are using.
    pub open_files_max: u64,
    /// How often a table's file was opened. Where it grows by as much as `block_read_calls`, more
    /// descriptors would help: see
    /// [`DatabaseBuilder::open_files_max`](crate::DatabaseBuilder::open_files_max).
    pub file_opens: u64,
    /// How reads are done that go on at the same time.
    pub read_engine: ReadEngineKind,
    /// Buffers that such reads are filling, or that iterators have not used up.
    pub read_buffers: u64,
    /// Memory of those and of the ones that are kept for the next reads, in bytes. What is read ahead takes
    /// a sixteenth of the memory budget at most, or 1 MiB.
    pub read_buffer_bytes: u64,
    /// Entries written, tombstones included.
    pub written_entries: u64,
    /// Entries that scans, and looks for a first or last key, looked at and did not return:
    /// tombstones, older versions, what lies under a tombstone of its key or of a range, and what
    /// is newer than the reader. Entries that are sought past are not looked at. Counted when an
    /// iterator is dropped.
    pub passed_entries: u64,
    /// Syncs of the log.
    pub log_syncs: u64,
    /// Records of the log that opening the database replayed: writes that no table held yet.
    pub replayed_records: u64,
    /// Memtables flushed.
    pub flushes: u64,
    /// Bytes of flushed tables.
    pub flushed_bytes: u64,
    /// Compactions that merged tables.
    pub compactions: u64,
    /// Tables that were removed unread, because range tombstones lay over all of their keys.
    pub hidden_tables: u64,
    /// Bytes that compactions read.
    pub compacted_read_bytes: u64,
    /// Bytes that compactions wrote.
    pub compacted_written_bytes: u64,
    /// Flushes and compactions that failed; they are tried again.
    pub failed_jobs: u64,
    /// True if the file system has no sync of directories: after a power cut the newest
    /// files may be missing, whatever [`PersistMode`](crate::PersistMode) was asked for.
    pub no_directory_sync: bool,
    /// Why background work fails at present: the last flush or the last compaction that was tried.
    /// None once one of its kind succeeded or nothing of it is left to be done.
    pub failure: Option<String>,
    /// Why writes fail at present. None once a write of the same kind (of entries, or of keyspaces
    /// and tables) succeeded; stays where writes are stopped until the database is reopened. Writes
    /// that were refused for their arguments are no failures.
    pub write_failure: Option<String>,
    /// True if writes are stopped until the database is reopened: a sync failed, or a thread
    /// panicked while it wrote.
    pub writes_stopped: bool,
    /// Batches that were not committed, and changes of keyspaces and tables that were not made.
    pub failed_writes: u64,
    /// Syncs of the log and of the manifest that failed.
    pub failed_syncs: u64,
    /// Reads of tables that the operating system refused.
    pub failed_reads: u64,
    /// What it said to the last of them, with the file.
    pub last_failed_read: Option<String>,
    /// Reads of tables that met damage; each that meets the same damage counts.
    pub damage_met: u64,
    /// The damage that was met last, with the file and the place.
    pub last_damage: Option<Corruption>,
    /// Files that are not needed any more and could not be removed. The next open tries again.
    pub failed_removals: u64,
    /// Tables that flushes and compactions wrote with a model.
    pub tables_trained: u64,
    /// Tables that they wrote without: the keyspace has no models, or writers were many.
    pub tables_untrained: u64,
    /// Tables that were written without a model and got one since.
    pub tables_trained_reading: u64,
    /// Tables for which that was refused: the model would have been poor, or took too long.
    pub trainings_refused: u64,
    /// Reads that found a table's index to be wrong about where a key belongs, and looked elsewhere. 0
    /// unless a file is damaged in a way that its checksums do not tell.
    pub indexes_refuted: u64,
    /// The longest time that one write waited for the background, in nanoseconds.
    pub stall_ns_max: u64,
    /// The time that writes waited for flushes, in nanoseconds.
    pub stall_ns_total: u64,
    /// The time that writes were slowed down by the throttle, in nanoseconds.
    pub delay_ns_total: u64,
}

/// What a keyspace holds, with all its partitions.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct KeyspaceStats {
    /// Its name.
    pub name: String,
    /// Its partitions; 0 for a keyspace without.
    pub partitions: u64,
    /// Entries in tables; overwritten versions and tombstones that are not yet compacted away
    /// count too.
    pub entries: u64,
    /// Tombstones in tables.
    pub tombstones: u64,
    /// Stretches of keys under range tombstones in tables; where those overlap they are cut.
    pub range_tombstones: u64,
    /// Bytes of keys and values in tables, before compression.
    pub raw_bytes: u64,
    /// Bytes of its files.
    pub file_bytes: u64,
    /// Memory of its pinned index and filter blocks, in bytes.
    pub pinned_bytes: u64,
    /// Tables that lookups find the block in by a model, trained while writing or since.
    pub tables_with_model: u64,
    /// Its levels, from level 0.
    pub levels: Vec<LevelStats>,
}

/// What a level holds.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LevelStats {
    /// Tables.
    pub tables: u64,
    /// Entries.
    pub entries: u64,
    /// Bytes of its files.
    pub file_bytes: u64,
}

impl Core {
    /// What the database holds and did.
    pub(crate) fn stats(&self) -> Stats {
        let (has_directory_sync, mut keyspaces): (bool, Vec<KeyspaceStats>) = {
            let catalog = self.lock_catalog();
            let keyspaces = catalog
                .keyspaces
                .values()
                .map(|inner| keyspace_stats(inner.name.to_string(), &inner.tree.get()))
                .collect();
            (catalog.manifest.has_dir_sync(), keyspaces)
        };
        keyspaces.sort_by(|a, b| a.name.cmp(&b.name));
        let view = self.mem.get();
        let (counters, tables) = (&self.counters, &self.tables.counters);
        let get = |counter: &rhumb_sync::primitive::AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            pinned_bytes: keyspaces.iter().map(|keyspace| keyspace.pinned_bytes).sum(),
            keyspaces,
            is_read_only: self.is_read_only,
            sequence_number: self.visible_seq(),
            snapshots: self.snapshots.count() as u64,
            memtable_bytes: view.bytes(),
            mapped_bytes: self.memory.mapped.bytes() as u64,
            record_chunk_bytes: self.memory.records.bytes() as u64,
            cache_chunk_bytes: self.tables.cache.arena().bytes() as u64,
            sealed_memtables: view.sealed.len() as u64,
            cache_bytes: self.tables.cache.resident_bytes(),
            cache_blocks: self.tables.cache.resident_blocks() as u64,
            cache_inserts: self.tables.cache.inserts(),
            cache_evictions: self.tables.cache.evictions(),
            cache_capacity_bytes: self.tables.cache.capacity(),
            memory_budget_bytes: self.options.memory_budget_bytes,
            block_reads: get(&tables.block_reads),
            block_read_calls: get(&tables.reads),
            block_read_bytes: get(&tables.read_bytes),
            open_files: self.tables.files.open(),
            open_files_max: self.tables.files.max(),
            file_opens: self.tables.files.opens(),
            read_engine: self.tables.reads.kind(),
            read_buffers: self.tables.reads.buffers_in_use(),
            read_buffer_bytes: self.tables.reads.buffer_bytes(),
            written_entries: get(&counters.written_entries),
            passed_entries: view.active.passed(),
            log_syncs: get(&counters.log_syncs),
            replayed_records: get(&counters.replayed_records),
            flushes: get(&counters.flushes),
            flushed_bytes: get(&counters.flushed_bytes),
            compactions: get(&counters.compactions),
            hidden_tables: get(&counters.hidden_tables),
            compacted_read_bytes: get(&counters.compacted_read_bytes),
            compacted_written_bytes: get(&counters.compacted_written_bytes),
            failed_jobs: get(&counters.failed_jobs),
            no_directory_sync: !has_directory_sync,
            failure: self.work.failure().map(|error| error.to_string()),
            write_failure: self.write_failure().map(|error| error.to_string()),
            writes_stopped: !self.is_read_only && self.check_running().is_err(),
            failed_writes: get(&self.health.failed_writes),
            failed_syncs: get(&self.health.failed_syncs),
            failed_reads: get(&tables.failed_reads),
            last_failed_read: tables.last_failed_read().map(|error| error.to_string()),
            damage_met: get(&tables.damage_met),
            last_damage: tables.last_damage(),
            failed_removals: get(&counters.failed_removals) + get(&tables.removals_failed),
            tables_trained: get(&counters.tables_trained),
            tables_untrained: get(&counters.tables_untrained),
            tables_trained_reading: get(&counters.tables_trained_reading),
            trainings_refused: get(&counters.trainings_refused),
            indexes_refuted: get(&tables.refuted),
            stall_ns_max: get(&counters.stall_ns_max),
            stall_ns_total: get(&counters.stall_ns_total),
            delay_ns_total: get(&counters.delay_ns_total),
        }
    }
}

fn keyspace_stats(name: String, tree: &Tree) -> KeyspaceStats {
    let partitions = tree.partition_map();
    let mut stats =
        KeyspaceStats { name, partitions: partitions.len() as u64, ..KeyspaceStats::default() };
    add_levels(&mut stats, &tree.levels.get());
    partitions.iter().for_each(|tree| add_levels(&mut stats, &tree.levels.get()));
    stats
}

fn add_levels(stats: &mut KeyspaceStats, levels: &Levels) {
    let depth = stats.levels.len().max(levels.depth());
    stats.levels.resize_with(depth, LevelStats::default);
    for (level, table) in levels.all() {
        let meta = table.meta();
        stats.entries += meta.entries;
        stats.tombstones += meta.tombstones;
        stats.range_tombstones += meta.range_tombstones;
        stats.raw_bytes += meta.raw_bytes;
        stats.file_bytes += meta.total_bytes();
        stats.pinned_bytes += table.pinned_bytes();
        stats.tables_with_model += u64::from(table.index().has_model());
        let level = &mut stats.levels[level];
        level.tables += 1;
        level.entries += meta.entries;
        level.file_bytes += meta.total_bytes();
    }
}
