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

/// A window of [`Peaks`] ends when this many times the cache's capacity was read from files. To
/// forget a peak that comes back costs at most that the cache is emptied and read anew: one in this
/// many parts of what was read in the window anyway. Halved, that share is twice as large; doubled,
/// the cache stays small for twice as long after a peak.
const WINDOW_CACHES: u64 = 16;

/// The largest number of bytes that were seen to be mapped besides the cache, in this window and
/// the one before (a windowed maximum). A peak counts for one to two windows: memtables and files
/// that a reader held for long do not keep the cache small for good.
#[derive(Default)]
struct Peaks {
    now: AtomicU64,
    before: AtomicU64,
    /// The bytes that had been read from files when the window began.
    began_at: AtomicU64,
}

impl Peaks {
    /// Records what is mapped. Returns the largest number of bytes.
    fn record(&self, mapped: u64) -> u64 {
        self.now.fetch_max(mapped, Ordering::Relaxed);
        self.most()
    }

    fn most(&self) -> u64 {
        self.now.load(Ordering::Relaxed).max(self.before.load(Ordering::Relaxed))
    }

    /// Begins another window if this one is over, now that `read` bytes were read and `mapped` are
    /// mapped. Returns the bytes by which the largest number has fallen.
    fn turn(&self, mapped: u64, read: u64, capacity: u64) -> u64 {
        let (began_at, most) = (self.began_at.load(Ordering::Relaxed), self.most());
        let is_over = read.saturating_sub(began_at) >= capacity.saturating_mul(WINDOW_CACHES);
        let (ok, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        if !is_over || self.began_at.compare_exchange(began_at, read, ok, failed).is_err() {
            return 0;
        }
        // Nobody sees less than the larger of the two meanwhile, and what is recorded is not lost.
        self.before.store(self.now.load(Ordering::Relaxed), Ordering::Relaxed);
        let last = self.now.swap(mapped, Ordering::Relaxed);
        self.before.fetch_max(last, Ordering::Relaxed);
        most.saturating_sub(self.most())
    }
}

/// The sources of the database's memory.
pub(crate) struct Memory {
    /// Counts the memory of memtables, their records, the block cache, indexes, filters and large
    /// values.
    pub(crate) mapped: Gauge,
    /// The arena of the memtables' log records.
    pub(crate) records: Arc<Arena>,
    /// What is mapped besides the cache, at its most.
    peaks: Peaks,
    /// The cache's limit when it was last emptied, and what it has risen by since because peaks
    /// were forgotten.
    emptied_at: AtomicU64,
}

impl Default for Memory {
    fn default() -> Self {
        let mapped = Gauge::default();
        Self {
            records: Arc::new(Arena::new(&mapped)),
            mapped,
            peaks: Peaks::default(),
            emptied_at: AtomicU64::new(u64::MAX),
        }
    }
}

impl Memory {
    /// Returns true if all blocks of the cache, whose limit is `limit` now, must be dropped so that
    /// its chunks of `bytes` are freed: evicting block by block would leave each chunk half full.
    /// As limits fall only gradually, a cache is emptied a few times in its life, and at most once
    /// more for each window of [`Peaks`].
    fn shall_empty(&self, bytes: u64, limit: u64) -> bool {
        let before = self.emptied_at.load(Ordering::Relaxed);
        let shall = bytes > limit + OVER_LIMIT_BYTES && limit + OVER_LIMIT_BYTES <= before;
        if shall {
            self.emptied_at.store(limit, Ordering::Relaxed);
        }
        shall
    }

    /// Forgets old peaks, now that `mapped` bytes are mapped besides a cache of this capacity and
    /// `read` bytes were read from files since the start.
    fn forget_peaks(&self, mapped: u64, read: u64, capacity: u64) {
        let forgotten = self.peaks.turn(mapped, read, capacity);
        let higher = |limit: u64| Some(limit.saturating_add(forgotten));
        let _ = self.emptied_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, higher);
    }
}

impl Shared {
    /// Bytes that are mapped besides the cache.
    fn mapped_besides(&self) -> u64 {
        self.memory.mapped.bytes().saturating_sub(self.tables.cache.arena().bytes()) as u64
    }

    /// Records what is mapped besides the cache. Returns the largest number of bytes of late.
    pub(crate) fn record_mapped(&self) -> u64 {
        self.memory.peaks.record(self.mapped_besides())
    }

    /// Gives the block cache what the rest leaves of the budget.
    ///
    /// The rest is the largest amount that was mapped besides the cache of late, or the size of all
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
        let read = self.tables.counters.read_bytes.load(Ordering::Relaxed);
        self.memory.forget_peaks(self.mapped_besides(), read, cache.capacity());
        let taken = self.record_mapped().max(memtables + memtables / MEMTABLE_CHUNKS)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Database, io::sim::SimFs};

    /// An arena of the database in which this number of bytes is taken.
    fn map(core: &Shared, bytes: usize) -> Arena {
        let arena = Arena::new(&core.memory.mapped);
        (0..bytes / CHUNK_BYTES).for_each(|_| {
            arena.allocate_within(CHUNK_BYTES / 2 + 1, usize::MAX).expect("there is room");
        });
        arena
    }

    #[test]
    fn the_cache_grows_again_after_a_peak_and_not_at_once() {
        let builder = Database::builder("/db").file_system(Arc::new(SimFs::new(1)));
        let budget = 256 << 20;
        let builder = builder.background_threads(0).memtable_bytes(1 << 20);
        let db = builder.memory_budget_bytes(budget).open().unwrap();
        let core = &db.core().shared;
        let capacity = || {
            core.balance_memory();
            core.tables.cache.capacity()
        };
        let read = |caches: u64| {
            let bytes = caches * core.tables.cache.capacity();
            core.tables.counters.read_bytes.fetch_add(bytes, Ordering::Relaxed);
        };
        let usual = capacity();
        let held = map(core, 200 << 20);
        let small = capacity();
        assert!(small < usual / 2, "{small} of {usual}");
        drop(held);
        assert_eq!(capacity(), small);
        read(WINDOW_CACHES);
        assert_eq!(capacity(), small, "it counts for the window after its own");
        read(WINDOW_CACHES - 1);
        assert_eq!(capacity(), small);
        read(1);
        assert_eq!(capacity(), usual);
    }

    #[test]
    fn a_cache_is_emptied_again_when_a_peak_that_was_forgotten_comes_back() {
        let memory = Memory::default();
        memory.peaks.record(60 << 20);
        assert!(memory.shall_empty(100 << 20, 40 << 20));
        assert!(!memory.shall_empty(100 << 20, 38 << 20), "the limit has hardly fallen");
        for window in 1..=2 {
            memory.forget_peaks(10 << 20, window * WINDOW_CACHES * 1000, 1000);
        }
        assert_eq!(memory.peaks.most(), 10 << 20);
        assert!(memory.shall_empty(100 << 20, 40 << 20), "the limit had risen by 50 MiB");
    }
}
