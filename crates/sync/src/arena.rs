//! Blocks of any size from chunks of two mebibytes, which the system backs by one page each where
//! it can: a lookup then finds every translation of an address in the processor's tables.
//!
//! Thread safety: one lock, taken for a fraction of a microsecond for each block that is allocated
//! or released. No other lock is taken under it, nor is the system called. A thread that finds no
//! room takes the lock of the spares first (`ahead`), so that one chunk is added at a time. What is
//! in a block is its owner's affair.
#![allow(unsafe_code, reason = "hands out parts of mapped memory")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ptr::NonNull,
};

use super::{
    ahead::Spares,
    mapping::{Gauge, Mapping},
    primitive::{Arc, AtomicBool, AtomicUsize, Mutex, Ordering},
};

/// Alignment of every block, in bytes.
pub const ALIGN: usize = 256;

/// Size and alignment of a chunk: a large page.
pub const CHUNK_BYTES: usize = 2 << 20;
/// The largest block that shares a chunk with others. With a sanitizer each block is a chunk of its
/// own, so that the sanitizer sees every use of memory that was given back.
const SHARED_BYTES_MAX: usize = if cfg!(sanitized) { 0 } else { CHUNK_BYTES };
/// The length of a larger block is rounded up to a multiple of this, which is a multiple of every
/// system's pages. The end of the block that does not fill a large page is in small ones.
const LARGE_ALIGN: usize = if cfg!(sanitized) { ALIGN } else { 64 << 10 };
/// Blocks are worth moving out of a chunk if at least one part in this many of it is free.
const STRAY_FREE: usize = 4;
/// A packed arena keeps one spare chunk ready for each this many chunks that it has, up to
/// [`AHEAD_MAX`].
const CHUNKS_FOR_AHEAD: usize = 8;
/// The most spare chunks that a packed arena keeps ready.
const AHEAD_MAX: usize = 2;
/// A packed arena makes spare chunks ready when no free extent is longer than this.
const LOW_BYTES: usize = CHUNK_BYTES / 2;
/// Blocks that came back are kept as they are for the next of the same length, as long as they are
/// together at most one part in this many of the used bytes.
const KEPT_PART: usize = 16;
/// The most bytes of blocks kept as they are: the lock is held while they are made free extents.
const KEPT_BYTES_MAX: usize = 4 << 20;
/// One chunk in this many may be kept empty. Where blocks are not packed, one more may.
const CHUNKS_FOR_SPARE: usize = 32;

/// Memory of one user. All of it is given back when the arena is dropped.
pub struct Arena {
    state: Mutex<State>,
    /// Chunks that it will need.
    spares: Arc<Spares>,
    /// Bytes of all blocks.
    used: AtomicUsize,
    /// True once memory was taken back: until then all that is handed out is as the system gave it.
    has_released: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Length of each free extent, by address. Extents of one chunk that touch are one.
    free: BTreeMap<usize, usize>,
    /// Length and address of each free extent.
    by_len: BTreeSet<(usize, usize)>,
    /// Addresses, by length, of blocks that came back and are not free extents yet: a caller that
    /// replaces blocks by others takes these again, without a look at the extents. Empty where
    /// blocks are packed.
    kept: BTreeMap<usize, Vec<usize>>,
    kept_bytes: usize,
    chunks: Chunks,
    /// Chunks that are one free extent.
    empty: usize,
    /// True if blocks are taken from the lowest addresses, rather than from the extents that fit
    /// best.
    is_packed: bool,
}

/// Every chunk, by address. Columns, because looking for room reads only one of them, to the end
/// where the others are full.
#[derive(Default)]
struct Chunks {
    starts: Vec<usize>,
    /// No free extent of the chunk is longer; kept where blocks are packed.
    rooms: Vec<u32>,
    chunks: Vec<Chunk>,
}

struct Chunk {
    memory: Mapping,
    /// Bytes of all free extents.
    free: usize,
}

impl Chunks {
    fn insert(&mut self, chunk: Chunk) {
        let start = chunk.memory.base().addr().get();
        let at = self.starts.partition_point(|other| *other < start);
        self.starts.insert(at, start);
        self.rooms.insert(at, 0);
        self.chunks.insert(at, chunk);
    }

    fn remove(&mut self, start: usize) -> Option<Chunk> {
        let at = self.starts.binary_search(&start).ok()?;
        self.starts.remove(at);
        self.rooms.remove(at);
        Some(self.chunks.remove(at))
    }

    /// The place of the chunk that an address is in.
    fn find(&self, address: usize) -> usize {
        let above = self.starts.partition_point(|start| *start <= address);
        above.checked_sub(1).expect("every extent is in a chunk")
    }
}

impl Arena {
    /// An empty arena, whose memory `gauge` counts.
    pub fn new(gauge: &Gauge) -> Self {
        Self::with(State::default(), gauge)
    }

    /// An arena that keeps blocks together at the lowest addresses, so that chunks become empty
    /// when its user shrinks and moves its blocks. Finding a block takes about a nanosecond for
    /// each chunk. While it grows, from 16 MiB on, its next chunk is made ready before it is
    /// needed, or the next two: at most an eighth of what it has, which goes back a second after it
    /// last grew.
    pub fn packed(gauge: &Gauge) -> Self {
        Self::with(State { is_packed: true, ..State::default() }, gauge)
    }

    fn with(state: State, gauge: &Gauge) -> Self {
        let has_released = AtomicBool::new(false);
        let (state, spares) = (Mutex::new(state), Arc::new(Spares::new(gauge.clone())));
        Self { state, spares, used: AtomicUsize::new(0), has_released }
    }

    /// A block of at least `bytes`, aligned to [`ALIGN`]. Its content is arbitrary.
    ///
    /// Aborts, as every allocation of the language does, if there is no memory.
    pub fn allocate(&self, bytes: usize) -> NonNull<u8> {
        let bytes = bytes.next_multiple_of(ALIGN);
        self.used.fetch_add(bytes, Ordering::Relaxed);
        if bytes > SHARED_BYTES_MAX {
            let wants_large_pages = {
                let state = self.state.lock();
                // A map's first block may stay nearly empty.
                !(state.is_packed && state.chunks.starts.is_empty())
            };
            let bytes = bytes.next_multiple_of(LARGE_ALIGN);
            let memory = Mapping::new(bytes, wants_large_pages, self.spares.gauge());
            return self.state.lock().add_chunk(memory);
        }
        let (found, ahead) = {
            let mut state = self.state.lock();
            let found = state.take(bytes);
            (found, state.ahead())
        };
        let block = found.unwrap_or_else(|| self.grow(bytes));
        if let Some(spares) = ahead {
            self.spares.ask(spares);
        }
        block
    }

    /// As [`Arena::allocate`], unless the chunks would have more than `limit` bytes together.
    pub fn allocate_within(&self, bytes: usize, limit: usize) -> Option<NonNull<u8>> {
        let rounded = bytes.next_multiple_of(ALIGN);
        let (found, has_room, _gone) = {
            let mut state = self.state.lock();
            let found = state.take(rounded);
            let chunks = state.chunks.chunks.iter().map(|chunk| chunk.memory.bytes());
            let has_room =
                found.is_some() || chunks.sum::<usize>() + rounded.max(CHUNK_BYTES) <= limit;
            let gone = if has_room { Vec::new() } else { state.free_kept() };
            (found.or_else(|| if has_room { None } else { state.take(rounded) }), has_room, gone)
        };
        if found.is_some() {
            self.used.fetch_add(rounded, Ordering::Relaxed);
            return found;
        }
        has_room.then(|| self.allocate(bytes))
    }

    /// Adds a chunk and takes a block of it, unless another thread has added one meanwhile.
    #[cold]
    fn grow(&self, bytes: usize) -> NonNull<u8> {
        let mut spares = self.spares.lock();
        let (found, is_first, _gone) = {
            let mut state = self.state.lock();
            // Kept blocks have other lengths, but they may make room together.
            let gone = state.free_kept();
            (state.take(bytes), state.chunks.starts.is_empty(), gone)
        };
        found.unwrap_or_else(|| {
            let new = || Mapping::new(CHUNK_BYTES, !is_first, self.spares.gauge());
            let memory = spares.take().unwrap_or_else(new);
            let mut state = self.state.lock();
            let base = state.add_chunk(memory);
            state.add_free(base.addr().get(), CHUNK_BYTES);
            state.take(bytes).expect("a chunk has room for every block that shares one")
        })
    }

    /// As [`Arena::allocate`], but zeroed. Memory that was never used need not be touched for that.
    pub fn allocate_zeroed(&self, bytes: usize) -> NonNull<u8> {
        let block = self.allocate(bytes);
        if self.has_released.load(Ordering::Acquire) {
            // SAFETY: the block is ours and that long.
            unsafe { block.write_bytes(0, bytes) };
        }
        block
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// The block came from [`Arena::allocate`] with the same `bytes`, and is not used again.
    pub unsafe fn release(&self, block: NonNull<u8>, bytes: usize) {
        let bytes = bytes.next_multiple_of(ALIGN);
        let address = block.addr().get();
        let used = self.used.fetch_sub(bytes, Ordering::Relaxed) - bytes;
        // Before its lock is released: from then on the block may be handed out again.
        self.has_released.store(true, Ordering::Release);
        // Dropped, and so given back to the system, after the lock is released.
        let _gone = self.state.lock().release(address, bytes, used);
    }

    /// Bytes of all blocks.
    pub fn used_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The bytes of all chunks, including those that are ready for later.
    pub fn bytes(&self) -> usize {
        let spares = self.spares.bytes();
        let chunks = &self.state.lock().chunks.chunks;
        spares + chunks.iter().map(|chunk| chunk.memory.bytes()).sum::<usize>()
    }

    /// Returns true if a block of `bytes` is in a chunk much of which is free, while there is room
    /// for the block at lower addresses. Moving such blocks empties chunks.
    pub fn is_stray(&self, block: NonNull<u8>, bytes: usize) -> bool {
        let bytes = bytes.next_multiple_of(ALIGN);
        let mut state = self.state.lock();
        if bytes > SHARED_BYTES_MAX || !state.is_packed {
            return false;
        }
        let chunk = &state.chunks.chunks[state.chunks.find(block.addr().get())];
        let start = chunk.memory.base().addr().get();
        chunk.free * STRAY_FREE >= chunk.memory.bytes()
            && state.lowest(bytes).is_some_and(|(_, address)| address < start)
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("used", &self.used_bytes()).finish_non_exhaustive()
    }
}

impl State {
    /// A block, if there is room for it.
    fn take(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        if let Some(address) = self.kept.get_mut(&bytes).and_then(Vec::pop) {
            self.kept_bytes -= bytes;
            return Some(self.pointer(address));
        }
        let (len, address) = match self.is_packed {
            true => self.lowest(bytes)?,
            false => self.by_len.range((bytes, 0)..).next().copied()?,
        };
        self.remove_free(address, len);
        if len > bytes {
            self.add_free(address + bytes, len - bytes);
        }
        Some(self.pointer(address))
    }

    /// The number of chunks that should be ready for later, if the next is needed soon.
    fn ahead(&self) -> Option<usize> {
        let wanted = (self.chunks.starts.len() / CHUNKS_FOR_AHEAD).min(AHEAD_MAX);
        let is_low = || self.by_len.last().is_none_or(|(len, _)| *len <= LOW_BYTES);
        (self.is_packed && wanted > 0 && is_low()).then_some(wanted)
    }

    /// Takes a block back; `used` bytes are in use without it. Returns chunks that are to be given
    /// back to the system.
    fn release(&mut self, address: usize, bytes: usize, used: usize) -> Vec<Chunk> {
        if bytes > SHARED_BYTES_MAX {
            return self.chunks.remove(address).into_iter().collect();
        }
        let kept_max = if self.is_packed { 0 } else { KEPT_BYTES_MAX.min(used / KEPT_PART) };
        let mut gone = Vec::new();
        if self.kept_bytes > kept_max {
            gone = self.free_kept();
        }
        if self.kept_bytes + bytes <= kept_max {
            self.kept.entry(bytes).or_default().push(address);
            self.kept_bytes += bytes;
        } else {
            gone.extend(self.free(address, bytes));
        }
        gone
    }

    /// Makes free extents of the kept blocks. Returns chunks that are to be given back to the
    /// system.
    fn free_kept(&mut self) -> Vec<Chunk> {
        self.kept_bytes = 0;
        let kept = std::mem::take(&mut self.kept);
        let blocks =
            kept.iter().flat_map(|(bytes, all)| all.iter().map(|address| (*address, *bytes)));
        blocks.filter_map(|(address, bytes)| self.free(address, bytes)).collect()
    }

    /// Makes a free extent of a block. Returns a chunk that is to be given back to the system.
    fn free(&mut self, address: usize, bytes: usize) -> Option<Chunk> {
        let (address, len) = self.join(address, bytes);
        self.add_free(address, len);
        let spare = usize::from(!self.is_packed) + self.chunks.starts.len() / CHUNKS_FOR_SPARE;
        if len < CHUNK_BYTES || self.empty <= spare {
            return None;
        }
        self.remove_free(address, len);
        self.chunks.remove(address)
    }

    /// The pointer to an address within a chunk.
    fn pointer(&self, address: usize) -> NonNull<u8> {
        let base = self.chunks.chunks[self.chunks.find(address)].memory.base();
        let offset = address - base.addr().get();
        // SAFETY: the extent lies within its chunk.
        unsafe { base.add(offset) }
    }

    /// The free extent of at least `bytes` with the lowest address: its length and address.
    fn lowest(&mut self, bytes: usize) -> Option<(usize, usize)> {
        let Self { chunks, free, .. } = self;
        let mut from = 0;
        while let Some(next) = chunks.rooms[from..].iter().position(|room| *room as usize >= bytes)
        {
            let at = from + next;
            let (start, mut longest) = (chunks.starts[at], 0);
            for (address, len) in free.range(start..start + chunks.chunks[at].memory.bytes()) {
                if *len >= bytes {
                    return Some((*len, *address));
                }
                longest = longest.max(*len);
            }
            chunks.rooms[at] = longest as u32;
            from = at + 1;
        }
        None
    }

    fn add_free(&mut self, address: usize, len: usize) {
        let at = self.chunks.find(address);
        self.chunks.chunks[at].free += len;
        if self.is_packed {
            // An extent is at most a chunk that blocks share.
            self.chunks.rooms[at] = self.chunks.rooms[at].max(len as u32);
        }
        self.free.insert(address, len);
        self.by_len.insert((len, address));
        self.empty += usize::from(len == CHUNK_BYTES);
    }

    fn remove_free(&mut self, address: usize, len: usize) {
        let at = self.chunks.find(address);
        self.chunks.chunks[at].free -= len;
        self.free.remove(&address);
        self.by_len.remove(&(len, address));
        self.empty -= usize::from(len == CHUNK_BYTES);
    }

    /// Takes the free extents of the same chunk that touch this one, and returns the whole.
    fn join(&mut self, address: usize, len: usize) -> (usize, usize) {
        let (mut start, mut end) = (address, address + len);
        if let Some((before, len)) = self.free.range(..start).next_back().map(|(a, l)| (*a, *l))
            && before + len == start
            && !start.is_multiple_of(CHUNK_BYTES)
        {
            self.remove_free(before, len);
            start = before;
        }
        if !end.is_multiple_of(CHUNK_BYTES)
            && let Some(len) = self.free.get(&end).copied()
        {
            self.remove_free(end, len);
            end += len;
        }
        (start, end - start)
    }

    fn add_chunk(&mut self, memory: Mapping) -> NonNull<u8> {
        let base = memory.base();
        self.chunks.insert(Chunk { memory, free: 0 });
        base
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_do_not_overlap_and_come_back() {
        check_blocks(&Arena::new(&Gauge::default()));
        check_blocks(&Arena::packed(&Gauge::default()));
    }

    #[test]
    #[cfg(not(sanitized))]
    fn what_came_back_is_taken_again_until_little_is_used() {
        const BYTES: usize = 17 * ALIGN;
        let arena = Arena::new(&Gauge::default());
        let mut blocks: Vec<NonNull<u8>> = (0..400).map(|_| arena.allocate(BYTES)).collect();
        let back: Vec<NonNull<u8>> = blocks.drain(100..110).collect();
        for block in &back {
            // SAFETY: allocated with the same length and not used again.
            unsafe { arena.release(*block, BYTES) };
        }
        let other = arena.allocate(BYTES - ALIGN);
        assert!(!back.contains(&other), "they are kept for the same length");
        let again: Vec<NonNull<u8>> = (0..10).map(|_| arena.allocate(BYTES)).collect();
        assert!(again.iter().rev().eq(&back), "the last one first");
        assert_eq!(arena.state.lock().kept_bytes, 0);
        blocks.extend(again);
        for (freed, block) in blocks.drain(..).enumerate() {
            // SAFETY: as above.
            unsafe { arena.release(block, BYTES) };
            let (kept, used) = (arena.state.lock().kept_bytes, arena.used_bytes());
            assert!(kept * KEPT_PART <= used + BYTES, "{kept} of {used} after {freed}");
        }
        // SAFETY: as above.
        unsafe { arena.release(other, BYTES - ALIGN) };
        let state = arena.state.lock();
        assert!(state.kept.is_empty());
        assert!(state.free.values().all(|len| *len == CHUNK_BYTES), "extents join again");
    }

    #[test]
    #[cfg(not(sanitized))]
    fn blocks_are_strays_where_much_is_free_and_there_is_room_below() {
        const BYTES: usize = CHUNK_BYTES / 4;
        let arena = Arena::packed(&Gauge::default());
        let mut blocks: Vec<NonNull<u8>> = (0..12).map(|_| arena.allocate(BYTES)).collect();
        blocks.sort_unstable();
        let is_stray = |block| arena.is_stray(block, BYTES);
        assert!(!blocks.iter().any(|block| is_stray(*block)), "all chunks are full");
        let last = blocks.pop().expect("twelve");
        // SAFETY: allocated with the same length and not used again.
        unsafe { arena.release(last, BYTES) };
        assert!(!blocks.iter().any(|block| is_stray(*block)), "no room below");
        let first = blocks.remove(0);
        // SAFETY: as above.
        unsafe { arena.release(first, BYTES) };
        let strays: Vec<bool> = blocks.iter().map(|block| is_stray(*block)).collect();
        assert_eq!(strays, [[false; 3].as_slice(), &[false; 4], &[true; 3]].concat());
        // The largest blocks have chunks of their own.
        let large = arena.allocate(CHUNK_BYTES + 1);
        assert!(!arena.is_stray(large, CHUNK_BYTES + 1));
    }

    /// Waits until an arena holds `bytes`, for 20 seconds at most. Returns true if it does.
    #[cfg(all(target_os = "linux", not(any(miri, sanitized, loom, shuttle))))]
    fn wait_for_bytes(arena: &Arena, bytes: usize) -> bool {
        let start = std::time::Instant::now();
        while arena.bytes() != bytes {
            if start.elapsed().as_secs() > 20 {
                return false;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        true
    }

    #[test]
    #[cfg(all(target_os = "linux", not(any(miri, sanitized, loom, shuttle))))]
    fn chunks_are_ready_ahead_while_an_arena_grows_and_go_back() {
        const BYTES: usize = CHUNK_BYTES / 4;
        let arena = Arena::packed(&Gauge::default());
        let grow = |chunks: usize| {
            // Zeroed memory is as the system gave it: nothing was taken back.
            let block = |_| arena.allocate_zeroed(BYTES);
            let blocks: Vec<_> = (0..chunks * 4).map(block).collect();
            for block in blocks {
                // SAFETY: the block is this test's, that long, and zeroed.
                let words =
                    unsafe { std::slice::from_raw_parts(block.cast::<u64>().as_ptr(), BYTES / 8) };
                assert!(words.iter().all(|word| *word == 0));
            }
        };
        let chunks = || arena.state.lock().chunks.starts.clone();
        let has = |spares: usize| wait_for_bytes(&arena, (chunks().len() + spares) * CHUNK_BYTES);
        grow(CHUNKS_FOR_AHEAD - 1);
        assert_eq!(arena.spares.lock().wanted, 0, "a small one has no spare");
        // If the machine stops the test for long, the spare goes back meanwhile.
        let is_taken = (0..5).any(|_| {
            grow(1);
            assert!(has(1), "one is made");
            let spare = arena.spares.lock().chunks.first().map(|spare| spare.base().addr().get());
            grow(1);
            spare.is_some_and(|spare| chunks().contains(&spare))
        });
        assert!(is_taken);
        grow(CHUNKS_FOR_AHEAD);
        assert!(has(AHEAD_MAX), "a large one has more, but not many");
        assert!(has(0), "they go back");
        drop(arena);
    }

    fn check_blocks(arena: &Arena) {
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let mut blocks: Vec<(NonNull<u8>, usize, u8)> = Vec::new();
        for round in 0..2_000_u32 {
            if blocks.len() > 60 || (!blocks.is_empty() && random(3) == 0) {
                let (block, bytes, mark) = blocks.swap_remove(random(blocks.len() as u64) as usize);
                for offset in [0, bytes / 2, bytes - 1] {
                    // SAFETY: the block is this test's, written below.
                    assert_eq!(unsafe { block.add(offset).read() }, mark, "overwritten");
                }
                // SAFETY: allocated with the same length and not used again.
                unsafe { arena.release(block, bytes) };
            } else {
                let bytes = 1 + random(if round % 50 == 0 { 5 << 20 } else { 150_000 }) as usize;
                let block = arena.allocate(bytes);
                assert_eq!(block.addr().get() % ALIGN, 0);
                let mark = round as u8;
                // SAFETY: the block is `bytes` long and this test's.
                unsafe { block.write_bytes(mark, bytes) };
                blocks.push((block, bytes, mark));
            }
        }
        for (block, bytes, _) in blocks {
            // SAFETY: allocated with the same length and not used again.
            unsafe { arena.release(block, bytes) };
        }
        assert!(arena.bytes() <= 2 * CHUNK_BYTES, "empty chunks go back");
        let state = arena.state.lock();
        assert!(state.free.values().all(|len| *len == CHUNK_BYTES), "extents join again");
        assert_eq!(state.free.len(), state.by_len.len());
        assert_eq!(state.free.len(), state.empty);
    }
}
