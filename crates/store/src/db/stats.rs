//! Statistics of a database.

use std::sync::atomic::Ordering;

use rhumb_sync::{deferred, epoch};

use super::{core::Core, read_times::ReadLatency};
use crate::{error::Corruption, io::ReadEngineKind, tree::Tree, version::levels::Levels};

/// The contents of a database, and its activity since it was opened.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Every keyspace, by name.
    pub keyspaces: Vec<KeyspaceStats>,
    /// True if the database is [open for reading only](crate::DatabaseBuilder::open_read_only).
    /// `writes_stopped` is then false, and `write_failure` is `None`: nothing has failed.
    pub is_read_only: bool,
    /// The sequence number of the last visible write.
    pub sequence_number: u64,
    /// The number of live snapshots; an iterator over several partitions counts as one, and an open
    /// transaction too.
    pub snapshots: u64,
    /// The number of open transactions.
    pub open_transactions: u64,
    /// The number of transactions, since the database was opened, that were not committed because
    /// of a conflict.
    pub transaction_conflicts: u64,
    /// Memory of all memtables, in bytes.
    pub memtable_bytes: u64,
    /// Memory from the system for memtables, cached blocks, and pinned index and filter blocks, in
    /// bytes. Counted are whole chunks, with the free space in them, and memtables that only
    /// readers hold.
    pub mapped_bytes: u64,
    /// The part of `mapped_bytes` for log records of memtables.
    pub record_chunk_bytes: u64,
    /// The part of `mapped_bytes` for cached blocks, and for pinned index and filter blocks.
    pub cache_chunk_bytes: u64,
    /// The number of full memtables that wait for their flush.
    pub sealed_memtables: u64,
    /// Memory of the pinned index and filter blocks, in bytes.
    pub pinned_bytes: u64,
    /// Memory of the cached blocks, in bytes.
    pub cache_bytes: u64,
    /// The number of blocks in the cache.
    pub cache_blocks: u64,
    /// The number of blocks that entered the cache.
    pub cache_inserts: u64,
    /// The number of blocks that left the cache to make room.
    pub cache_evictions: u64,
    /// The present capacity of the cache, in bytes.
    pub cache_capacity_bytes: u64,
    /// The memory budget, in bytes.
    pub memory_budget_bytes: u64,
    /// Memory that was evicted or replaced in any database of the process and waits until no
    /// thread uses it, in bytes.
    pub deferred_bytes: u64,
    /// The number of times in a row that such memory could not be freed because a thread had been
    /// using some since before, counted for the whole process. A few are usual. A number that keeps
    /// growing means that a program keeps an iterator of an [`Index`](crate::Index) without
    /// advancing it: memory, memtables and files of all databases wait for it.
    pub refused_frees: u64,
    /// The number of blocks read from files.
    pub block_reads: u64,
    /// The number of reads of files that brought those blocks; one may bring several.
    pub block_read_calls: u64,
    /// The number of bytes read from files for blocks.
    pub block_read_bytes: u64,
    /// The number of table files that are open.
    pub open_files: u64,
    /// The limit of `open_files`, which files that reads are using may exceed.
    pub open_files_max: u64,
    /// The number of times that a table's file was opened. If it grows as fast as
    /// `block_read_calls`, a larger limit would help: see
    /// [`DatabaseBuilder::open_files_max`](crate::DatabaseBuilder::open_files_max).
    pub file_opens: u64,
    /// The way in which simultaneous reads are done.
    pub read_engine: ReadEngineKind,
    /// The number of buffers that such reads are filling, or that iterators have not used up.
    pub read_buffers: u64,
    /// Memory of those buffers and of the ones that are kept for the next reads, in bytes.
    /// Read-ahead takes at most a sixteenth of the memory budget, or 1 MiB.
    pub read_buffer_bytes: u64,
    /// The number of entries written, tombstones included.
    pub written_entries: u64,
    /// The number of entries that scans, and searches for a first or last key, looked at and did
    /// not return: tombstones, older versions, entries under a tombstone of their key or of a
    /// range, and entries newer than the reader. Entries that a seek passes are not looked at.
    /// Counted when an iterator is dropped.
    pub passed_entries: u64,
    /// The number of syncs of the log.
    pub log_syncs: u64,
    /// The number of log records that opening the database replayed: writes that no table held yet.
    pub replayed_records: u64,
    /// The number of memtables flushed.
    pub flushes: u64,
    /// Bytes of flushed tables.
    pub flushed_bytes: u64,
    /// The number of compactions that merged tables.
    pub compactions: u64,
    /// The number of tables that were removed unread, because range tombstones covered all of their
    /// keys.
    pub hidden_tables: u64,
    /// The number of tables that were removed unread, because all of their entries had expired.
    pub expired_tables: u64,
    /// Bytes that compactions read.
    pub compacted_read_bytes: u64,
    /// Bytes that compactions wrote.
    pub compacted_written_bytes: u64,
    /// The number of flushes and compactions that failed; they are tried again.
    pub failed_jobs: u64,
    /// True if the file system has no sync of directories: after a power cut the newest files may
    /// be missing, whatever [`PersistMode`](crate::PersistMode) was requested.
    pub no_directory_sync: bool,
    /// The error with which background work fails at present: that of the last flush or the last
    /// compaction that was tried. `None` once one of its kind succeeded or there is no more work of
    /// its kind.
    pub failure: Option<String>,
    /// The error with which writes fail at present. `None` once a write of the same kind (of
    /// entries, or of keyspaces and tables) succeeded. If writes are stopped, it stays until the
    /// database is reopened. Writes that were refused for their arguments are not failures.
    pub write_failure: Option<String>,
    /// True if writes are stopped until the database is reopened: a sync failed, or a thread
    /// panicked while it wrote.
    pub writes_stopped: bool,
    /// The number of batches that were not committed, and of changes of keyspaces and tables that
    /// were not made.
    pub failed_writes: u64,
    /// The number of failed syncs of the log and of the manifest.
    pub failed_syncs: u64,
    /// The number of reads of tables that the operating system refused.
    pub failed_reads: u64,
    /// The error of the last of them, with the file.
    pub last_failed_read: Option<String>,
    /// The number of reads of tables that met damage; each read that meets the same damage counts.
    pub damage_met: u64,
    /// The damage that was met last, with the file and the place.
    pub last_damage: Option<Corruption>,
    /// The number of files that are no longer needed and could not be removed. The next open tries
    /// again.
    pub failed_removals: u64,
    /// The number of tables that flushes and compactions wrote with a model.
    pub tables_trained: u64,
    /// The number of tables that they wrote without a model: the keyspace has no models, or there
    /// were many writers.
    pub tables_untrained: u64,
    /// The number of tables that were written without a model and got one later.
    pub tables_trained_reading: u64,
    /// The number of tables for which that was refused: the model would have been poor, or took too
    /// long.
    pub trainings_refused: u64,
    /// The number of reads that found a table's index to be wrong about where a key belongs, and
    /// searched elsewhere. 0 unless a file is damaged in a way that its checksums do not detect.
    pub indexes_refuted: u64,
    /// The longest time that one write waited for the background, in nanoseconds.
    pub stall_ns_max: u64,
    /// The time that writes waited for flushes, in nanoseconds.
    pub stall_ns_total: u64,
    /// The time that writes were slowed down by the throttle, in nanoseconds.
    pub delay_ns_total: u64,
    /// How long point reads took; empty unless
    /// [`DatabaseBuilder::timed_reads`](crate::DatabaseBuilder::timed_reads) asks for it.
    pub read_latency: ReadLatency,
}

/// The contents of a keyspace, with all its partitions.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct KeyspaceStats {
    /// Its name.
    pub name: String,
    /// The number of its partitions; 0 for a keyspace without partitions.
    pub partitions: u64,
    /// The number of entries in tables. Overwritten versions and tombstones that are not yet
    /// compacted away count.
    pub entries: u64,
    /// The number of tombstones in tables.
    pub tombstones: u64,
    /// The number of stretches of keys under range tombstones in tables; overlapping ones are cut.
    pub range_tombstones: u64,
    /// Bytes of keys and values in tables, before compression.
    pub raw_bytes: u64,
    /// The number of bytes of its files.
    pub file_bytes: u64,
    /// Memory of its pinned index and filter blocks, in bytes.
    pub pinned_bytes: u64,
    /// The number of tables in which lookups find the block by a model, trained during the write or
    /// later.
    pub tables_with_model: u64,
    /// Its levels, from level 0.
    pub levels: Vec<LevelStats>,
}

/// The contents of a level.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LevelStats {
    /// The number of tables.
    pub tables: u64,
    /// The number of entries.
    pub entries: u64,
    /// The number of bytes of its files.
    pub file_bytes: u64,
}

impl Core {
    /// The contents and activity of the database.
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
        let view = self.memtables.get();
        let (counters, tables) = (&self.shared.counters, &self.shared.tables.counters);
        let get = |counter: &rhumb_sync::primitive::AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            pinned_bytes: keyspaces.iter().map(|keyspace| keyspace.pinned_bytes).sum(),
            keyspaces,
            is_read_only: self.shared.is_read_only,
            sequence_number: self.writer.visible_seq(),
            snapshots: self.snapshots.count() as u64,
            open_transactions: self.writer.transactions.count() as u64,
            transaction_conflicts: get(&counters.transaction_conflicts),
            memtable_bytes: view.bytes(),
            mapped_bytes: self.shared.memory.mapped.bytes() as u64,
            record_chunk_bytes: self.shared.memory.records.bytes() as u64,
            cache_chunk_bytes: self.shared.tables.cache.arena().bytes() as u64,
            sealed_memtables: view.sealed.len() as u64,
            cache_bytes: self.shared.tables.cache.resident_bytes(),
            cache_blocks: self.shared.tables.cache.resident_blocks() as u64,
            cache_inserts: self.shared.tables.cache.inserts(),
            cache_evictions: self.shared.tables.cache.evictions(),
            cache_capacity_bytes: self.shared.tables.cache.capacity(),
            memory_budget_bytes: self.shared.options.memory_budget_bytes,
            deferred_bytes: deferred::bytes() as u64,
            refused_frees: epoch::refusals(),
            block_reads: get(&tables.block_reads),
            block_read_calls: get(&tables.reads),
            block_read_bytes: get(&tables.read_bytes),
            open_files: self.shared.tables.files.open(),
            open_files_max: self.shared.tables.files.max(),
            file_opens: self.shared.tables.files.opens(),
            read_engine: self.shared.tables.reads.kind(),
            read_buffers: self.shared.tables.reads.buffers_in_use(),
            read_buffer_bytes: self.shared.tables.reads.buffer_bytes(),
            written_entries: get(&counters.written_entries),
            passed_entries: view.active.passed(),
            log_syncs: get(&counters.log_syncs),
            replayed_records: get(&counters.replayed_records),
            flushes: get(&counters.flushes),
            flushed_bytes: get(&counters.flushed_bytes),
            compactions: get(&counters.compactions),
            hidden_tables: get(&counters.hidden_tables),
            expired_tables: get(&counters.expired_tables),
            compacted_read_bytes: get(&counters.compacted_read_bytes),
            compacted_written_bytes: get(&counters.compacted_written_bytes),
            failed_jobs: get(&counters.failed_jobs),
            no_directory_sync: !has_directory_sync,
            failure: self.scheduler.failure().map(|error| error.to_string()),
            write_failure: self.shared.write_failure().map(|error| error.to_string()),
            writes_stopped: !self.shared.is_read_only && self.shared.check_running().is_err(),
            failed_writes: get(&self.shared.health.failed_writes),
            failed_syncs: get(&self.shared.health.failed_syncs),
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
            read_latency: self.shared.read_times.latency(),
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
