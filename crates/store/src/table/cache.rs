//! The block cache: one budget of memory for the blocks of all open tables.
//!
//! A resident block is reached through a slot of its own table: one atomic load, no hash, no lock.
//! The cache proper only keeps the books: which blocks are resident, their weights, and which is
//! evicted next when the budget is spent. Invariants:
//!
//! 1. A block enters the books only after its slot was filled by the same caller, and its slot is
//!    cleared only after it left the books. So at most one block is in the books for a slot, and a
//!    block that is in a slot but not in the books is just being entered or removed.
//! 2. Readers tell the books of a block's use once ([`EpochSlot::touch`] returns true once for the
//!    same contents). After that they only set a flag in the slot, which gives the block a second
//!    chance when it would be evicted.
//! 3. A table gives its blocks back when it is dropped, and no reader of the table is left then.
//! 4. Slots are cleared when the books are unlocked: what is retired may make room for itself by
//!    freeing what others have retired, and that takes time and may use this cache.

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter, sync::Cache};
use rhumb_sync::{
    arena::Arena,
    epoch::{Guard, pin},
    mapping::Gauge,
    placed::Placed,
    prefetch::prefetch,
    shared_bytes::SharedBytes,
    slot::{EpochSlot, Loaded},
};

use crate::slice::BlockRef;

/// The memory of a resident block besides its bytes: its allocation, its place in the books, and
/// the place of an evicted block that is remembered.
const OVERHEAD_BYTES: u64 = 144;
/// The share of the cache for blocks that were used again since they came, or came again; the
/// others are on trial. A larger share keeps hardly more of the blocks that point reads use again
/// and again, and hurts scans, whose blocks come many at once. In a model of the cache (1.7 million
/// keys, a tenth of them in memory, Zipf 0.99) 0.97 in place of 0.8 has points hit 72.1 % instead
/// of 72.3 %, and scans read each block 0.571 instead of 0.549 times.
const PROVEN_SHARE: f64 = 0.8;
/// The number of evicted blocks that are remembered, as a share of those that there is room for. A
/// remembered block that comes back counts as used again.
const REMEMBERED_SHARE: f64 = 1.0;
/// The number of blocks in a row that may claim their second chance before one must go without:
/// bounds the time that an insertion holds a lock.
const SECOND_CHANCES_MAX: u32 = 32;
/// If the cache's memory has no free piece of the needed size, one part in this many of the
/// resident bytes is evicted.
const EVICTED_PART: u64 = 64;
/// The size of a block with its overhead, as assumed when the books are sized.
const EXPECTED_BLOCK_BYTES: u64 = 4 << 10;

/// Names a resident block: the table's registration, then the block's number.
type CacheKey = (u64, u32);

/// Memory for blocks, shared by all tables of a database.
pub(crate) struct BlockCache {
    books: Cache<CacheKey, Resident, ByBytes, DefaultHashBuilder, Evictor>,
    next_table: AtomicU64,
    statistics: Arc<Statistics>,
    /// Where the blocks lie: in large pages, and in the same memory whichever thread reads them.
    /// With a heap for each thread, every heap would grow to the size of the cache.
    arena: Arc<Arena>,
    /// The most bytes that the arena's chunks may have together, as far as blocks are concerned;
    /// indexes and filters are always in memory.
    limit: AtomicUsize,
    /// Where large values lie that readers hold: apart from blocks, whose lifetimes are different.
    large: Arc<Arena>,
}

#[derive(Default)]
struct Statistics {
    /// The budget in bytes.
    capacity: AtomicU64,
    /// The weight of the blocks in the books. It is added after a block was entered, so that blocks
    /// that many threads are just entering do not seem to exceed the budget; hence it is below zero
    /// at times.
    weight: AtomicI64,
    inserts: AtomicU64,
    evictions: AtomicU64,
}

impl Statistics {
    fn resident_bytes(&self) -> u64 {
        u64::try_from(self.weight.load(Ordering::Relaxed)).unwrap_or(0)
    }

    fn add_weight(&self, weight: u64) {
        self.weight.fetch_add(weight.cast_signed(), Ordering::Relaxed);
    }

    fn take_weight(&self, weight: u64) {
        self.weight.fetch_sub(weight.cast_signed(), Ordering::Relaxed);
    }
}

impl BlockCache {
    /// A cache that keeps up to about `bytes` of blocks; `gauge` counts its memory.
    pub(crate) fn new(bytes: u64, gauge: &Gauge) -> Arc<Self> {
        let expected = usize::try_from(bytes / EXPECTED_BLOCK_BYTES).unwrap_or(usize::MAX);
        let options = OptionsBuilder::new()
            .estimated_items_capacity(expected.max(64))
            .weight_capacity(bytes)
            .hot_allocation(PROVEN_SHARE)
            .ghost_allocation(REMEMBERED_SHARE)
            .build()
            .expect("both capacities are given");
        let statistics = Arc::new(Statistics::default());
        statistics.capacity.store(bytes, Ordering::Relaxed);
        let evictor = Evictor { chances: AtomicU32::new(0), statistics: Arc::clone(&statistics) };
        let hasher = DefaultHashBuilder::default();
        let books = Cache::with_options(options, ByBytes, hasher, evictor);
        let (arena, large) = (Arc::new(Arena::new(gauge)), Arc::new(Arena::new(gauge)));
        let (next_table, limit) = (AtomicU64::new(0), AtomicUsize::new(usize::MAX));
        Arc::new(Self { books, next_table, statistics, arena, limit, large })
    }

    /// A block of `len` bytes, gathered from the pieces of its payload; in the cache's memory if it
    /// is to stay and there is room.
    pub(crate) fn new_block<'p>(
        &self,
        len: usize,
        pieces: impl Iterator<Item = &'p [u8]>,
        stays: bool,
    ) -> BlockRef {
        let limit = self.limit.load(Ordering::Relaxed);
        let arena = stays.then_some((&self.arena, limit));
        let bytes = SharedBytes::gather(arena, len, pieces);
        if stays && !bytes.is_placed() {
            self.make_room();
        }
        BlockRef::from_shared(bytes)
    }

    /// Called when the arena has no room for another block within its limit, though the books may
    /// have: the free memory is in pieces. Evicts a little, until the next change of the budget; a
    /// block that is not in the arena is not cached. Evicted memory is free only when no reader can
    /// hold it any more, and until then other threads come here too, so at least half of the limit
    /// stays.
    #[cold]
    fn make_room(&self) {
        let (resident, capacity) = (self.resident_bytes(), self.capacity());
        let least = capacity.min(self.limit.load(Ordering::Relaxed) as u64 / 2);
        self.set_capacity((resident - resident / EVICTED_PART).max(least));
    }

    /// The memory that blocks are in, for what tables keep to find them.
    pub(crate) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// The memory for large values that readers hold. They are not cached.
    pub(crate) fn large_arena(&self) -> &Arc<Arena> {
        &self.large
    }

    /// Changes the budget; evicts down to it.
    pub(crate) fn set_capacity(&self, bytes: u64) {
        if self.statistics.capacity.swap(bytes, Ordering::Relaxed) != bytes {
            self.settle();
        }
    }

    /// Changes the most bytes that the chunks of blocks may have together.
    pub(crate) fn set_limit(&self, bytes: u64) {
        self.limit.store(usize::try_from(bytes).unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    /// The budget in bytes.
    pub(crate) fn capacity(&self) -> u64 {
        self.statistics.capacity.load(Ordering::Relaxed)
    }

    /// Bytes of resident blocks, with the overhead of keeping them.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.statistics.resident_bytes()
    }

    /// The number of resident blocks.
    pub(crate) fn resident_blocks(&self) -> usize {
        self.books.len()
    }

    /// The number of blocks that were inserted since the start.
    pub(crate) fn inserts(&self) -> u64 {
        self.statistics.inserts.load(Ordering::Relaxed)
    }

    /// The number of blocks that were evicted since the start, or were too large to stay.
    pub(crate) fn evictions(&self) -> u64 {
        self.statistics.evictions.load(Ordering::Relaxed)
    }

    /// Evicts what is over the budget. An insertion does so by itself, unless all the blocks that
    /// it could evict claimed their second chance.
    fn settle(&self) {
        self.books.set_capacity(self.capacity());
    }
}

/// The number of cache lines at the front of a block that hold its header and the tags and offsets
/// of some forty entries.
const HEAD_LINES: usize = 3;

/// The number of cache lines around a predicted entry that are prefetched, beginning
/// [`BEFORE_ENTRY_BYTES`] before the prediction. A block of forty entries mostly holds the entry
/// within three places of its prediction.
const ENTRY_LINES: usize = 10;
/// The distance before a predicted entry at which its prefetch begins; see [`ENTRY_LINES`].
const BEFORE_ENTRY_BYTES: usize = 256;

/// The blocks of one open table that may be resident.
pub(crate) struct TableBlocks {
    table: u64,
    slots: Arc<Placed<EpochSlot>>,
    cache: Arc<BlockCache>,
}

impl TableBlocks {
    /// Slots for a table of `count` blocks, all empty. Eight bytes each.
    pub(crate) fn new(cache: &Arc<BlockCache>, count: u32) -> Self {
        let slots = (0..count as usize).map(|_| EpochSlot::empty());
        Self {
            table: cache.next_table.fetch_add(1, Ordering::Relaxed),
            slots: Arc::new(Placed::new(&cache.arena, slots)),
            cache: Arc::clone(cache),
        }
    }

    /// The block, if it is resident; records that it was used. Never waits.
    #[inline]
    pub(crate) fn get<'a>(&'a self, block: u32, guard: &'a Guard) -> Option<Loaded<'a>> {
        let slot = self.slots.get(block as usize)?;
        let loaded = slot.load(guard)?;
        if slot.touch(&loaded) {
            self.report_use(block);
        }
        Some(loaded)
    }

    /// Prefetches the head of the block and the lines around `offset`, if it is resident.
    #[inline]
    pub(crate) fn prefetch(&self, block: u32, offset: u32, guard: &Guard) {
        if let Some(loaded) = self.peek(block, guard) {
            loaded.prefetch(0, HEAD_LINES);
            let offset = (offset as usize).saturating_sub(BEFORE_ENTRY_BYTES);
            loaded.prefetch(offset, ENTRY_LINES);
        }
    }

    /// Prefetches the head of the block, if it is resident.
    #[inline]
    pub(crate) fn prefetch_head(&self, block: u32, guard: &Guard) {
        if let Some(loaded) = self.peek(block, guard) {
            loaded.prefetch(0, HEAD_LINES);
        }
    }

    /// Prefetches the line that says whether a block is resident.
    #[inline]
    pub(crate) fn prefetch_slot(&self, block: u32) {
        if let Some(slot) = self.slots.get(block as usize) {
            prefetch(slot);
        }
    }

    /// The block, if it is resident, without recording its use.
    #[inline]
    pub(crate) fn peek<'a>(&'a self, block: u32, guard: &'a Guard) -> Option<Loaded<'a>> {
        self.slots.get(block as usize)?.load(guard)
    }

    /// Makes a block resident, if the budget admits it and no other thread has done so.
    pub(crate) fn insert(&self, block: u32, contents: &BlockRef) {
        let Some(slot) = self.slots.get(block as usize) else { return };
        let limit = self.cache.limit.load(Ordering::Relaxed);
        if limit != usize::MAX && !contents.is_placed() {
            return;
        }
        if !slot.fill(contents.to_shared()) {
            return;
        }
        self.cache.statistics.inserts.fetch_add(1, Ordering::Relaxed);
        let weight = contents.memory_bytes() as u64 + OVERHEAD_BYTES;
        let resident = Resident { slots: Arc::clone(&self.slots), weight };
        self.cache.books.insert((self.table, block), resident);
        self.cache.statistics.add_weight(weight);
        if self.cache.resident_bytes() > self.cache.capacity() {
            self.cache.settle();
        }
    }

    /// The number of resident blocks. O(blocks).
    pub(crate) fn resident_count(&self) -> usize {
        self.slots.iter().filter(|slot| !slot.is_empty()).count()
    }

    /// Returns true if the cache has room for `bytes` bytes of blocks without an eviction.
    pub(crate) fn has_room_for(&self, bytes: u64) -> bool {
        self.cache.resident_bytes() + bytes <= self.cache.capacity()
    }

    /// Bytes of memory that the slots take.
    pub(crate) fn slot_bytes(&self) -> usize {
        self.slots.memory_bytes()
    }

    /// Tells the books that a block was used, unless they are busy. Once for each time that the
    /// block becomes resident.
    #[cold]
    fn report_use(&self, block: u32) {
        let _ = self.cache.books.try_get(&(self.table, block));
    }
}

impl Drop for TableBlocks {
    fn drop(&mut self) {
        for (slot, block) in self.slots.iter().zip(0..) {
            if slot.is_empty() {
                continue;
            }
            // Taken at once: other threads may enter blocks in this one's room by now.
            if let Some((_, resident)) = self.cache.books.remove(&(self.table, block)) {
                self.cache.statistics.take_weight(resident.weight);
            }
        }
        // No reader of the slots is left (invariant 3), so their blocks are freed now and not an
        // epoch later. An eviction that holds the slots just now frees them when it drops the last
        // reference.
        if let Some(slots) = Arc::get_mut(&mut self.slots) {
            slots.iter_mut().for_each(|slot| drop(slot.take()));
        }
    }
}

/// A block in the books: where it is, and its weight.
#[derive(Clone)]
struct Resident {
    slots: Arc<Placed<EpochSlot>>,
    weight: u64,
}

/// What one call of the books has evicted. Their slots are cleared when it is dropped, which the
/// books do once they have released their lock.
#[derive(Default)]
struct Evicted {
    /// Mostly there is one.
    first: Option<(u32, Resident)>,
    /// The others, in parts, so that no allocation is large.
    others: Vec<Vec<(u32, Resident)>>,
}

/// The evicted blocks of one part: 24 KiB, so that an emptied cache comes nowhere near the size
/// (128 KiB) from which memory of the engine is mapped (`rhumb_sync::bulk`).
const EVICTED_OF_PART: usize = 1024;

impl Evicted {
    fn push(&mut self, block: u32, resident: Resident) {
        let evicted = (block, resident);
        if self.first.is_none() {
            self.first = Some(evicted);
            return;
        }
        match self.others.last_mut() {
            Some(part) if part.len() < EVICTED_OF_PART => part.push(evicted),
            _ => self.others.push(vec![evicted]),
        }
    }
}

impl Drop for Evicted {
    fn drop(&mut self) {
        let Some(first) = self.first.take() else { return };
        let guard = pin();
        let others = std::mem::take(&mut self.others).into_iter().flatten();
        for (block, resident) in std::iter::once(first).chain(others) {
            resident.slots[block as usize].clear(&guard);
        }
    }
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<CacheKey, Resident> for ByBytes {
    fn weight(&self, _key: &CacheKey, resident: &Resident) -> u64 {
        resident.weight
    }
}

/// Decides which blocks are spared, and counts those that are not. Each shard of the books has its
/// own.
struct Evictor {
    /// Second chances granted in a row.
    chances: AtomicU32,
    statistics: Arc<Statistics>,
}

impl Clone for Evictor {
    fn clone(&self) -> Self {
        Self { chances: AtomicU32::new(0), statistics: Arc::clone(&self.statistics) }
    }
}

impl Lifecycle<CacheKey, Resident> for Evictor {
    type RequestState = Evicted;

    fn is_pinned(&self, key: &CacheKey, resident: &Resident) -> bool {
        let granted = self.chances.load(Ordering::Relaxed);
        let touched = resident.slots[key.1 as usize].take_touched();
        if touched && granted < SECOND_CHANCES_MAX {
            self.chances.store(granted + 1, Ordering::Relaxed);
            return true;
        }
        self.chances.store(0, Ordering::Relaxed);
        false
    }

    fn on_evict(&self, evicted: &mut Evicted, key: CacheKey, resident: Resident) {
        self.statistics.take_weight(resident.weight);
        self.statistics.evictions.fetch_add(1, Ordering::Relaxed);
        evicted.push(key.1, resident);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn block(byte: u8) -> BlockRef {
        BlockRef::copy_from(&[byte; 4096])
    }

    #[test]
    fn residents_stay_within_the_budget_and_their_slots_agree() {
        let cache = BlockCache::new(1 << 20, &Gauge::default());
        let blocks = TableBlocks::new(&cache, 2000);
        for number in 0..2000 {
            blocks.insert(number, &block(7));
        }
        assert!(cache.resident_bytes() <= 1 << 20);
        assert!(cache.resident_blocks() > 100);
        let resident = (0..2000).filter(|number| blocks.peek(*number, &pin()).is_some()).count();
        assert_eq!(resident, cache.resident_blocks(), "slots and books agree");
        assert_eq!(cache.evictions(), 2000 - resident as u64);
    }

    #[test]
    fn used_blocks_outlive_unused_ones() {
        let cache = BlockCache::new(4 << 20, &Gauge::default());
        let blocks = TableBlocks::new(&cache, 100_000);
        for number in 0..200 {
            blocks.insert(number, &block(1));
        }
        for number in 200..20_000 {
            blocks.insert(number, &block(2));
            for hot in 0..200 {
                if number % 50 == 0 {
                    blocks.get(hot, &pin());
                }
            }
        }
        let kept = (0..200).filter(|number| blocks.peek(*number, &pin()).is_some()).count();
        assert!(kept > 180, "{kept} of 200 blocks in steady use stayed");
    }

    #[test]
    fn shrinking_and_growing_takes_effect() {
        let cache = BlockCache::new(4 << 20, &Gauge::default());
        let blocks = TableBlocks::new(&cache, 1000);
        (0..1000).for_each(|number| blocks.insert(number, &block(1)));
        assert!(cache.resident_blocks() > 900);
        cache.set_capacity(1 << 20);
        assert!(cache.resident_bytes() <= 1 << 20);
        let kept = (0..1000).filter(|number| blocks.peek(*number, &pin()).is_some()).count();
        assert_eq!(kept, cache.resident_blocks());
        cache.set_capacity(8 << 20);
        (0..1000).for_each(|number| blocks.insert(number, &block(1)));
        assert_eq!(cache.resident_blocks(), 1000);
    }

    /// What evictions make room for may take long, wait, or use the cache.
    #[test]
    fn destructors_that_an_eviction_runs_find_the_cache_unlocked() {
        use std::sync::atomic::AtomicBool;
        thread_local! {
            static IS_INSERTING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
        }
        let cache = BlockCache::new(1 << 20, &Gauge::default());
        let blocks = TableBlocks::new(&cache, 1000);
        let (ran, was_locked) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        for number in (0..1000).cycle() {
            let (seen, now, locked) =
                (Arc::clone(&cache), Arc::clone(&ran), Arc::clone(&was_locked));
            // Other tests' threads may run it too.
            let look = move || {
                if IS_INSERTING.get() {
                    let is_locked = |number| seen.books.try_remove(&(u64::MAX, number)).is_err();
                    locked.fetch_or((0..100).any(is_locked), Ordering::Relaxed);
                    now.fetch_add(1, Ordering::Relaxed);
                }
            };
            rhumb_sync::deferred::defer(&pin(), look);
            IS_INSERTING.set(true);
            blocks.insert(number, &block(1));
            if number % 100 == 0 {
                cache.set_capacity(cache.capacity() - 1);
            }
            IS_INSERTING.set(false);
            if ran.load(Ordering::Relaxed) > 100 {
                break;
            }
        }
        assert!(!was_locked.load(Ordering::Relaxed));
    }

    /// While a reader keeps evicted memory from being freed, nothing new has room. What is resident
    /// stays.
    #[test]
    fn a_full_arena_does_not_empty_the_cache() {
        let cache = BlockCache::new(64 << 20, &Gauge::default());
        cache.set_limit(8 << 20);
        let blocks = TableBlocks::new(&cache, 20_000);
        let guard = pin();
        for number in 0..20_000 {
            let bytes = vec![1; 3000 + number as usize % 2000];
            let block = cache.new_block(bytes.len(), std::iter::once(&bytes[..]), true);
            blocks.insert(number, &block);
        }
        assert!(cache.arena().bytes() <= 8 << 20);
        assert!(cache.resident_bytes() >= 3 << 20, "{} bytes", cache.resident_bytes());
        drop(guard);
    }

    #[test]
    fn blocks_in_constant_use_do_not_push_the_cache_over_its_budget() {
        let cache = BlockCache::new(32 << 10, &Gauge::default());
        let blocks = TableBlocks::new(&cache, 100);
        for number in 0..100 {
            blocks.insert(number, &block(1));
            (0..100)
                .for_each(|number| drop(blocks.get(number, &pin()).map(|loaded| loaded.share())));
            assert!(cache.resident_bytes() <= 32 << 10);
            assert!(cache.resident_blocks() > 0);
        }
    }

    #[test]
    fn without_a_budget_nothing_stays() {
        let cache = BlockCache::new(0, &Gauge::default());
        let blocks = TableBlocks::new(&cache, 10);
        blocks.insert(3, &block(1));
        assert!(blocks.get(3, &pin()).is_none());
        assert_eq!(cache.resident_bytes(), 0);
    }

    #[test]
    fn a_dropped_table_gives_its_blocks_back() {
        let cache = BlockCache::new(1 << 20, &Gauge::default());
        let (one, other) = (TableBlocks::new(&cache, 50), TableBlocks::new(&cache, 50));
        let held = block(1);
        for number in 0..50 {
            one.insert(number, &held);
            other.insert(number, &block(2));
        }
        drop(one);
        assert_eq!(cache.resident_blocks(), 50);
        assert!((0..50).all(|number| other.peek(number, &pin()).unwrap()[0] == 2));
    }

    #[test]
    fn threads_that_insert_and_read_agree_in_the_end() {
        let cache = BlockCache::new(256 << 10, &Gauge::default());
        let blocks = TableBlocks::new(&cache, 256);
        thread::scope(|scope| {
            for seed in 0..4_u32 {
                let blocks = &blocks;
                scope.spawn(move || {
                    let mut number = seed * 77 + 1;
                    for _ in 0..20_000 {
                        number = (number.wrapping_mul(1_664_525)).wrapping_add(1_013_904_223);
                        let wanted = number >> 24;
                        let guard = pin();
                        let expected = (wanted % 251) as u8;
                        match blocks.get(wanted, &guard) {
                            Some(found) => assert!(found.iter().all(|byte| *byte == expected)),
                            None => blocks.insert(wanted, &block(expected)),
                        }
                    }
                });
            }
        });
        let resident = (0..256).filter(|number| blocks.peek(*number, &pin()).is_some()).count();
        assert_eq!(resident, cache.resident_blocks());
        drop(blocks);
        assert_eq!((cache.resident_blocks(), cache.resident_bytes()), (0, 0));
    }
}
