//! Memory from the system, whole mappings of it, backed by large pages where the system can.
//!
//! Hands out nothing but mappings: what is in them is their owner's affair.
#![allow(unsafe_code, reason = "maps memory and hands it out")]

use std::ptr::NonNull;

use super::{
    arena::CHUNK_BYTES,
    primitive::{Arc, AtomicUsize, Ordering},
};

/// The smallest page that the system hands out: writing to each of them finds memory for all.
#[cfg(all(target_os = "linux", not(any(miri, sanitized, loom, shuttle))))]
const PAGE_BYTES: usize = 4 << 10;

/// Drops a vector. If it is long its pages go back to the system first: other threads get memory
/// meanwhile.
pub fn release(bytes: Vec<u8>) {
    #[cfg(all(target_os = "linux", not(any(miri, sanitized))))]
    {
        let mut bytes = bytes;
        // SAFETY: the memory is the vector's, as long as that, and bytes need no dropping: nothing
        // reads them before the allocator has the memory back.
        unsafe { system::empty(bytes.as_mut_ptr(), bytes.capacity()) };
    }
    #[cfg(not(all(target_os = "linux", not(any(miri, sanitized)))))]
    drop(bytes);
}

/// Counts the bytes of all mappings that were made with it or a clone of it.
#[derive(Clone)]
pub struct Gauge(Arc<AtomicUsize>);

impl Default for Gauge {
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(0)))
    }
}

impl Gauge {
    /// The bytes that are mapped.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Memory from the system, zeroed, which goes back when this is dropped.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    gauge: Gauge,
}

impl Mapping {
    /// Maps `bytes`, untouched, which `gauge` counts. Aborts if there is no memory.
    pub(crate) fn new(bytes: usize, wants_large_pages: bool, gauge: &Gauge) -> Self {
        gauge.0.fetch_add(bytes, Ordering::Relaxed);
        Self { base: system::map(bytes, wants_large_pages), bytes, gauge: gauge.clone() }
    }

    /// The start of the mapping.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The length of the mapping.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Has the system find memory for all of it.
    #[cfg(all(target_os = "linux", not(any(miri, sanitized, loom, shuttle))))]
    pub(crate) fn touch(&mut self) {
        for offset in (0..self.bytes).step_by(PAGE_BYTES) {
            // SAFETY: the memory is this mapping's, that long, and zeroed as it is written here.
            unsafe { self.base.add(offset).write_volatile(0) };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.gauge.0.fetch_sub(self.bytes, Ordering::Relaxed);
        // SAFETY: it was mapped with this length, and the code that drops it gives up all that was
        // handed out of it.
        unsafe { system::unmap(self.base, self.bytes) };
    }
}

// SAFETY: a mapping's memory belongs to it alone and may be used and freed on any thread.
unsafe impl Send for Mapping {}

/// Chunks from the system's mappings.
#[cfg(all(target_os = "linux", not(any(miri, sanitized))))]
mod system {
    use std::{
        alloc::{Layout, handle_alloc_error},
        ptr::{self, NonNull},
    };

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::CHUNK_BYTES;

    /// The largest page that Linux uses by itself on any machine, in bytes: the ends of a range of
    /// whole pages are multiples of it.
    const LARGEST_PAGE_BYTES: usize = 64 << 10;

    /// Zeroed memory, aligned to a chunk if it is as long as one; `bytes` is a multiple of a page's
    /// size.
    pub(super) fn map(bytes: usize, wants_large_pages: bool) -> NonNull<u8> {
        let base = if bytes < CHUNK_BYTES { map_anywhere(bytes) } else { map_aligned(bytes) };
        if wants_large_pages {
            // SAFETY: the range is mapped; the advice changes nothing but how it is backed. If it
            // is refused, small pages do.
            let _ = unsafe { madvise(base.cast(), bytes, Advice::LinuxHugepage) };
        }
        NonNull::new(base).unwrap_or_else(|| no_memory(bytes))
    }

    fn map_aligned(bytes: usize) -> *mut u8 {
        // Most kernels align by themselves what large pages fit into.
        let base = map_anywhere(bytes);
        if base.addr().is_multiple_of(CHUNK_BYTES) {
            return base;
        }
        // SAFETY: the mapping was just made with this length, and no other thread has seen it.
        unsafe { unmap_range(base, bytes) };
        let start = map_anywhere(bytes + CHUNK_BYTES);
        let before = start.addr().next_multiple_of(CHUNK_BYTES) - start.addr();
        let base = start.wrapping_add(before);
        // SAFETY: both ranges are ends of the mapping just made, outside of what is handed out.
        unsafe {
            unmap_range(start, before);
            unmap_range(base.wrapping_add(bytes), CHUNK_BYTES - before);
        }
        base
    }

    fn map_anywhere(bytes: usize) -> *mut u8 {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping at an address of the system's choice touches nothing.
        let mapped = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE) };
        mapped.map_or_else(|_| no_memory(bytes), |start| start.cast())
    }

    /// Unmaps a range, which may be empty. If that fails it stays mapped and is never touched.
    ///
    /// # Safety
    /// It is mapped and not used again.
    unsafe fn unmap_range(start: *mut u8, bytes: usize) {
        if bytes > 0 {
            // SAFETY: the caller gives the range up.
            let _ = unsafe { munmap(start.cast(), bytes) };
        }
    }

    fn no_memory(bytes: usize) -> ! {
        let layout = Layout::from_size_align(bytes, CHUNK_BYTES);
        handle_alloc_error(layout.expect("a chunk is far smaller than the address space"))
    }

    /// Gives memory back.
    ///
    /// # Safety
    /// It came from [`map`] with the same length and is not used again.
    pub(super) unsafe fn unmap(base: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller gives the mapping up.
        unsafe {
            empty(base.as_ptr(), bytes);
            unmap_range(base.as_ptr(), bytes);
        }
    }

    /// Gives the whole pages of a long range back, which stays mapped and reads as anything.
    ///
    /// While a thread unmaps a range, no other thread of the process gets memory, nor a page of it:
    /// for a tenth of a second if the range has hundreds of megabytes in small pages. They do while
    /// a thread gives back the pages alone, after which little is left to be unmapped.
    ///
    /// # Safety
    /// Nothing reads what is in the range any more.
    pub(super) unsafe fn empty(start: *mut u8, bytes: usize) {
        if bytes <= CHUNK_BYTES {
            return;
        }
        let end = start.addr() + bytes;
        let mut from = start.addr().next_multiple_of(LARGEST_PAGE_BYTES);
        let end = end - end % LARGEST_PAGE_BYTES;
        while from < end {
            let step = CHUNK_BYTES.min(end - from);
            // SAFETY: the range is mapped, and the caller gives up what is in it. If the advice is
            // refused, the pages go when they are unmapped.
            let _ = unsafe { madvise(start.with_addr(from).cast(), step, Advice::LinuxDontNeed) };
            from += step;
        }
    }
}

/// Chunks from the program's allocator.
#[cfg(not(all(target_os = "linux", not(any(miri, sanitized)))))]
mod system {
    use std::{
        alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
        ptr::NonNull,
    };

    use super::CHUNK_BYTES;
    use crate::arena::ALIGN;

    /// The alignment of a chunk.
    const CHUNK_ALIGN: usize = if cfg!(sanitized) { ALIGN } else { CHUNK_BYTES };

    fn layout(bytes: usize) -> Layout {
        let align = if bytes < CHUNK_BYTES { ALIGN } else { CHUNK_ALIGN };
        let layout = Layout::from_size_align(bytes, align);
        layout.expect("a chunk is far smaller than the address space")
    }

    /// Zeroed memory, aligned to [`CHUNK_ALIGN`] if it is as long as a chunk.
    pub(super) fn map(bytes: usize, _wants_large_pages: bool) -> NonNull<u8> {
        // SAFETY: chunks are not empty.
        let base = unsafe { alloc_zeroed(layout(bytes)) };
        NonNull::new(base).unwrap_or_else(|| handle_alloc_error(layout(bytes)))
    }

    /// Gives memory back.
    ///
    /// # Safety
    /// It came from [`map`] with the same length and is not used again.
    pub(super) unsafe fn unmap(base: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller says that it was allocated with this layout and is unused.
        unsafe { dealloc(base.as_ptr(), layout(bytes)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_of_any_length_are_dropped() {
        for len in [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 5 * CHUNK_BYTES + 7] {
            release(vec![1; len]);
            release(Vec::with_capacity(len));
        }
    }

    #[test]
    fn a_mapping_goes_back_whole() {
        let gauge = Gauge::default();
        let mapping = Mapping::new(3 * CHUNK_BYTES, false, &gauge);
        // SAFETY: the first byte of the mapping, which is this test's alone.
        unsafe { mapping.base().write(1) };
        assert_eq!(gauge.bytes(), 3 * CHUNK_BYTES);
        drop(mapping);
        assert_eq!(gauge.bytes(), 0);
    }
}
