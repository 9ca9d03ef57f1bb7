//! Blocks of any size from chunks of two mebibytes, which the system backs by one page each where
//! it can: a lookup then finds every translation of an address in the processor's tables.
//!
//! Thread safety: one lock, taken for a fraction of a microsecond for each block that is allocated
//! or released, and no other under it. What is in a block is its owner's affair.
#![allow(unsafe_code, reason = "maps memory and hands it out")]

use std::{
    collections::{BTreeMap, BTreeSet},
    ptr::NonNull,
};

use super::primitive::{AtomicBool, AtomicUsize, Mutex, Ordering};

/// Alignment of every block, in bytes.
pub(crate) const ALIGN: usize = 256;

/// Size and alignment of a chunk: a large page.
pub(crate) const CHUNK_BYTES: usize = 2 << 20;
/// The largest block that shares a chunk with others. With a sanitizer each block is a chunk of its own,
/// so that it sees who uses memory that was given back.
const SHARED_BYTES_MAX: usize = if cfg!(sanitized) { 0 } else { CHUNK_BYTES };
/// What the size of a chunk is a multiple of, and its address.
const CHUNK_ALIGN: usize = if cfg!(sanitized) { ALIGN } else { CHUNK_BYTES };
/// Blocks are worth moving out of a chunk of which one part in so many is free.
const STRAY_FREE: usize = 4;
/// Of so many chunks one may be kept empty, besides one in any case where blocks are not packed.
const CHUNKS_FOR_SPARE: usize = 32;

/// Memory of one user. All of it is given back when the arena is dropped.
pub(crate) struct Arena {
    state: Mutex<State>,
    /// Bytes of all blocks.
    used: AtomicUsize,
    /// Whether memory was ever taken back: until then all that is handed out is as the system gave it.
    has_released: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Length of each free extent, by address. Extents of one chunk that touch are one.
    free: BTreeMap<usize, usize>,
    /// Length and address of each free extent.
    by_len: BTreeSet<(usize, usize)>,
    chunks: Chunks,
    /// Chunks that are one free extent.
    empty: usize,
    /// Whether blocks are taken from the lowest addresses, rather than from the extents that fit
    /// best.
    is_packed: bool,
}

/// Every chunk, by address. Columns, because looking for room reads only one of them, to the end where
/// the others are full.
#[derive(Default)]
struct Chunks {
    starts: Vec<usize>,
    /// No free extent of the chunk is longer; kept where blocks are packed.
    rooms: Vec<u32>,
    chunks: Vec<Chunk>,
}

struct Chunk {
    base: NonNull<u8>,
    bytes: usize,
    /// Bytes of all free extents.
    free: usize,
}

impl Chunks {
    fn insert(&mut self, chunk: Chunk) {
        let start = chunk.base.addr().get();
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

// SAFETY: a chunk's memory belongs to the arena and may be used and freed on any thread.
unsafe impl Send for Chunk {}

impl Arena {
    pub(crate) fn new() -> Self {
        Self::with(State::default())
    }

    /// An arena that keeps blocks together at the lowest addresses, so that chunks become empty when
    /// its user shrinks and moves its blocks. Finding a block takes about a nanosecond for each chunk.
    pub(crate) fn packed() -> Self {
        Self::with(State { is_packed: true, ..State::default() })
    }

    fn with(state: State) -> Self {
        let has_released = AtomicBool::new(false);
        Self { state: Mutex::new(state), used: AtomicUsize::new(0), has_released }
    }

    /// A block of at least `bytes`, aligned to [`ALIGN`]. Its contents are any.
    ///
    /// Aborts, as every allocation of the language does, if there is no memory.
    pub(crate) fn allocate(&self, bytes: usize) -> NonNull<u8> {
        let bytes = bytes.next_multiple_of(ALIGN);
        self.used.fetch_add(bytes, Ordering::Relaxed);
        let mut state = self.state.lock();
        if bytes > SHARED_BYTES_MAX {
            return state.add_chunk(bytes.next_multiple_of(CHUNK_ALIGN));
        }
        let found = match state.is_packed {
            true => state.lowest(bytes),
            false => state.by_len.range((bytes, 0)..).next().copied(),
        };
        let (len, address) = found.unwrap_or_else(|| {
            let base = state.add_chunk(CHUNK_BYTES);
            state.add_free(base.addr().get(), CHUNK_BYTES);
            (CHUNK_BYTES, base.addr().get())
        });
        state.remove_free(address, len);
        if len > bytes {
            state.add_free(address + bytes, len - bytes);
        }
        state.pointer(address)
    }

    /// As [`Arena::allocate`], but zeroed. Memory that was never used need not be touched for that.
    pub(crate) fn allocate_zeroed(&self, bytes: usize) -> NonNull<u8> {
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
    pub(crate) unsafe fn release(&self, block: NonNull<u8>, bytes: usize) {
        let bytes = bytes.next_multiple_of(ALIGN);
        let address = block.addr().get();
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        // Before its lock is given up, under which the block may be handed out again.
        self.has_released.store(true, Ordering::Release);
        let mut state = self.state.lock();
        if bytes > SHARED_BYTES_MAX {
            // SAFETY: the caller says that the block, which is the whole chunk, is unused.
            unsafe { state.drop_chunk(address) };
            return;
        }
        let (address, len) = state.join(address, bytes);
        state.add_free(address, len);
        let spare = usize::from(!state.is_packed) + state.chunks.starts.len() / CHUNKS_FOR_SPARE;
        if len == CHUNK_BYTES && state.empty > spare {
            state.remove_free(address, len);
            // SAFETY: the whole chunk was free.
            unsafe { state.drop_chunk(address) };
        }
    }

    /// Bytes of all blocks.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes of all chunks.
    pub(crate) fn bytes(&self) -> usize {
        self.state.lock().chunks.chunks.iter().map(|chunk| chunk.bytes).sum()
    }

    /// Whether a block of so many bytes is in a chunk of which much is free while there is room for it at
    /// lower addresses: moving such blocks empties chunks.
    pub(crate) fn is_stray(&self, block: NonNull<u8>, bytes: usize) -> bool {
        let bytes = bytes.next_multiple_of(ALIGN);
        let mut state = self.state.lock();
        if bytes > SHARED_BYTES_MAX || !state.is_packed {
            return false;
        }
        let chunk = &state.chunks.chunks[state.chunks.find(block.addr().get())];
        let start = chunk.base.addr().get();
        chunk.free * STRAY_FREE >= chunk.bytes
            && state.lowest(bytes).is_some_and(|(_, address)| address < start)
    }
}

impl State {
    /// The pointer to an address within a chunk.
    fn pointer(&self, address: usize) -> NonNull<u8> {
        let base = self.chunks.chunks[self.chunks.find(address)].base;
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
            for (address, len) in free.range(start..start + chunks.chunks[at].bytes) {
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

    /// Maps a chunk. Aborts if there is no memory.
    fn add_chunk(&mut self, bytes: usize) -> NonNull<u8> {
        // Large pages are for maps that fill them.
        let base = system::map(bytes, !self.chunks.starts.is_empty());
        self.chunks.insert(Chunk { base, bytes, free: 0 });
        base
    }

    /// Gives a chunk back to the system.
    ///
    /// # Safety
    /// Nothing in the chunk is used again.
    unsafe fn drop_chunk(&mut self, address: usize) {
        if let Some(chunk) = self.chunks.remove(address) {
            // SAFETY: the chunk was mapped with this length, and the caller says it is unused.
            unsafe { system::unmap(chunk.base, chunk.bytes) };
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        while let Some(address) = state.chunks.starts.last().copied() {
            // SAFETY: the arena outlives what is in it.
            unsafe { state.drop_chunk(address) };
        }
    }
}

/// Chunks from the system's mappings.
#[cfg(all(target_os = "linux", not(any(miri, sanitized))))]
mod system {
    use std::{alloc::Layout, ptr, ptr::NonNull};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::CHUNK_BYTES;

    /// Zeroed memory aligned to a chunk; `bytes` is a multiple of its size.
    pub(crate) fn map(bytes: usize, wants_large_pages: bool) -> NonNull<u8> {
        let layout = Layout::from_size_align(bytes, CHUNK_BYTES);
        let layout = layout.expect("a chunk is far smaller than the address space");
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping at an address of the system's choice touches nothing.
        let mapped = unsafe {
            mmap_anonymous(ptr::null_mut(), bytes + CHUNK_BYTES, access, MapFlags::PRIVATE)
        };
        let Ok(start) = mapped else { std::alloc::handle_alloc_error(layout) };
        let start = start.cast::<u8>();
        let before = start.addr().next_multiple_of(CHUNK_BYTES) - start.addr();
        let base = start.wrapping_add(before);
        // SAFETY: both ranges are ends of the mapping just made, outside of what is handed out.
        // Where unmapping fails, they stay mapped and are never touched.
        let _ = unsafe {
            [
                if before > 0 { munmap(start.cast(), before) } else { Ok(()) },
                munmap(base.wrapping_add(bytes).cast(), CHUNK_BYTES - before),
            ]
        };
        if wants_large_pages {
            // SAFETY: the range is mapped; the advice changes nothing but how it is backed. Where
            // it is refused, small pages do.
            let _ = unsafe { madvise(base.cast(), bytes, Advice::LinuxHugepage) };
        }
        NonNull::new(base).unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
    }

    /// Gives memory back.
    ///
    /// # Safety
    /// It came from [`map`] with the same length and is not used again.
    pub(crate) unsafe fn unmap(base: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller gives the mapping up. A failure leaves it mapped and unused.
        let _ = unsafe { munmap(base.as_ptr().cast(), bytes) };
    }
}

/// Chunks from the program's allocator.
#[cfg(not(all(target_os = "linux", not(any(miri, sanitized)))))]
mod system {
    use std::{
        alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
        ptr::NonNull,
    };

    use super::CHUNK_ALIGN;

    fn layout(bytes: usize) -> Layout {
        let layout = Layout::from_size_align(bytes, CHUNK_ALIGN);
        layout.expect("a chunk is far smaller than the address space")
    }

    /// Zeroed memory aligned to [`CHUNK_ALIGN`].
    pub(crate) fn map(bytes: usize, _wants_large_pages: bool) -> NonNull<u8> {
        // SAFETY: chunks are not empty.
        let base = unsafe { alloc_zeroed(layout(bytes)) };
        NonNull::new(base).unwrap_or_else(|| handle_alloc_error(layout(bytes)))
    }

    /// Gives memory back.
    ///
    /// # Safety
    /// It came from [`map`] with the same length and is not used again.
    pub(crate) unsafe fn unmap(base: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller says that it was allocated with this layout and is unused.
        unsafe { dealloc(base.as_ptr(), layout(bytes)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_do_not_overlap_and_come_back() {
        check_blocks(&Arena::new());
        check_blocks(&Arena::packed());
    }

    #[test]
    #[cfg(not(sanitized))]
    fn blocks_are_strays_where_much_is_free_and_there_is_room_below() {
        const BYTES: usize = CHUNK_BYTES / 4;
        let arena = Arena::packed();
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
