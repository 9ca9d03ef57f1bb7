//! The database's share of its memory budget, and what is left of it for the block cache.

use rhumb_sync::{
    arena::{Arena, CHUNK_BYTES},
    mapping::Gauge,
    primitive::{Arc, AtomicU64, Ordering},
};

use super::shared::Shared;
use crate::options::SEALED_MAX;

/// One in this many parts of the budget is left to the program's allocator: for what tables and
/// compactions keep beside their blocks, and for fragments.
const ALLOCATOR_SLACK: u64 = 8;

/// Memtables may have one byte more mapped for each of this number of bytes: chunks that are not
/// full, and chunks that are reserved ahead.
const MEMTABLE_CHUNKS: u64 = 4;

/// The cache's chunks have one byte more for each of this number of bytes of blocks: the free space
/// between them.
const FRAGMENTS: u64 = 16;

/// The cache has at least one in this many parts of the budget, whatever the rest takes.
const CACHE_MIN: u64 = 16;

/// The cache's chunks may exceed a limit that has fallen by this number of bytes, because a few
/// chunks are never full.
const OVER_LIMIT_BYTES: u64 = 2 * CHUNK_BYTES as u64;

/// The sources of the database's memory.
pub(crate) struct Memory {
    /// Counts the memory of memtables, their records, the block cache, indexes, filters and large
    /// values.
    pub(crate) mapped: Gauge,
    /// The arena of the memtables' log records.
    pub(crate) records: Arc<Arena>,
    /// The largest number of bytes that were seen to be mapped besides the cache.
    most: AtomicU64,
    /// The cache's limit when it was last emptied.
    emptied_at: AtomicU64,
}

impl Default for Memory {
    fn default() -> Self {
        let mapped = Gauge::default();
        Self {
            records: Arc::new(Arena::new(&mapped)),
            mapped,
            most: AtomicU64::new(0),
            emptied_at: AtomicU64::new(u64::MAX),
        }
    }
}

impl Memory {
    /// Returns true if all blocks of the cache, whose limit is `limit` now, must be dropped so that
    /// its chunks of `bytes` are freed: evicting block by block would leave each chunk half full.
    /// As limits fall only gradually, a cache is emptied a few times in its life.
    fn shall_empty(&self, bytes: u64, limit: u64) -> bool {
        let before = self.emptied_at.load(Ordering::Relaxed);
        let shall = bytes > limit + OVER_LIMIT_BYTES && limit + OVER_LIMIT_BYTES <= before;
        if shall {
            self.emptied_at.store(limit, Ordering::Relaxed);
        }
        shall
    }
}

impl Shared {
    /// Records what is mapped besides the cache. Returns the largest number of bytes so far.
    pub(crate) fn note_mapped(&self) -> u64 {
        let mapped = self.memory.mapped.bytes().saturating_sub(self.tables.cache.arena().bytes());
        self.memory.most.fetch_max(mapped as u64, Ordering::Relaxed).max(mapped as u64)
    }

    /// Gives the block cache what the rest leaves of the budget.
    ///
    /// The rest is the largest amount that was mapped besides the cache so far, or the size of all
    /// memtables that can exist at a time if that is more: the active one will fill up and wait for
    /// its flush while the next ones fill, and readers keep those that were flushed. A cache that
    /// grew and shrank with every flush would make the process larger than the budget: the memory
    /// of evicted blocks lies between that of others, and no memtable can use it.
    ///
    /// The cache gets a limit in chunks, which it never exceeds, and a capacity in blocks, which
    /// fits into that limit.
    pub(crate) fn balance_memory(&self) {
        let (budget, cache) = (self.options.memory_budget_bytes, &self.tables.cache);
        let memtables = match self.is_read_only {
            true => 0,
            false => self.options.memtable_bytes * (SEALED_MAX as u64 + 1),
        };
        // A read-only database does not balance its memory again later, so read-ahead gets its room
        // from the start.
        let buffers = match self.is_read_only {
            true => self.options.ahead_bytes_max() as u64,
            false => self.tables.reads.buffer_bytes(),
        };
        let taken = self.note_mapped().max(memtables + memtables / MEMTABLE_CHUNKS)
            + buffers
            + budget / ALLOCATOR_SLACK;
        let room = budget.saturating_sub(taken).max(budget / CACHE_MIN);
        // The cache needs at least two chunks: one may be empty.
        let limit = room.max(2 * CHUNK_BYTES as u64);
        let pinned = self.tables.counters.pinned_bytes.load(Ordering::Relaxed);
        let blocks = room.saturating_sub(pinned) / (FRAGMENTS + 1) * FRAGMENTS;
        let limit = limit.max(pinned + budget / CACHE_MIN);
        cache.set_limit(limit);
        if self.memory.shall_empty(cache.arena().bytes() as u64, limit) {
            cache.set_capacity(0);
        }
        cache.set_capacity(blocks.max(budget / CACHE_MIN));
    }
}
