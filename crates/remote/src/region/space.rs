//! A range of addresses that is filled with segments from its beginning.
//!
//! Hands out atomic words of what is mapped. What is in the files, and whether they are safe to
//! map, is the caller's affair: a file that loses its length or pages ends the process that reads
//! them, and does no worse.
//!
//! 1. The first `limit_bytes` from `base` on are this space's, mapped or reserved: nothing else is
//!    mapped there before the space is dropped.
//! 2. The first `len_bytes` of them are segments, which are never mapped anew, protected or
//!    unmapped before that. `len_bytes` only grows, after what it counts is mapped.
//! 3. The rest is changed by the holder of the lock alone.
#![allow(unsafe_code, reason = "maps files and hands out references to what is mapped")]

use std::{
    os::fd::BorrowedFd,
    ptr::{self, NonNull},
    slice,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::{
    io::Errno,
    mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap},
};

use super::{PAGE_BYTES, SEGMENT_BYTES_MIN};
use crate::{
    error::{Error, Result},
    primitive::{AtomicU64, Ordering},
};

/// What `base` is a multiple of: a large page lies at a multiple of its size, in the file and in
/// the address space, or is read through a table of small ones.
const ALIGN: usize = SEGMENT_BYTES_MIN as usize;

/// Linux's number of the advice to put a range into large pages now (`asm-generic/mman-common.h`,
/// since 6.1). rustix does not know it, and libc only for glibc.
const MADV_COLLAPSE: libc::c_int = 25;

/// What may be done with a mapping.
#[derive(Clone, Copy, Debug)]
pub(super) enum Access {
    Read,
    ReadWrite,
}

/// A range of addresses, the first part of which is mapped.
pub(super) struct Space {
    base: NonNull<u8>,
    capacity_bytes: usize,
    len_bytes: AtomicU64,
    /// How many bytes are this space's: all, unless the system refused a mapping and did not give
    /// the place back.
    limit_bytes: Mutex<usize>,
}

// SAFETY: the memory is the space's until it is dropped, wherever that is, and is handed out as
// atomics alone.
unsafe impl Send for Space {}
// SAFETY: what is changed through a shared reference is an atomic or behind a lock, and the memory
// is handed out as atomics alone.
unsafe impl Sync for Space {}

impl Space {
    /// Reserves addresses, which take no memory. `capacity_bytes` is a multiple of the smallest
    /// segment's length and far smaller than the address space.
    pub(super) fn reserve(capacity_bytes: usize) -> Result<Self> {
        // As far as a page can be from the next border.
        let spare = ALIGN - PAGE_BYTES;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the system's choice touches nothing.
        let start = unsafe {
            mmap_anonymous(ptr::null_mut(), capacity_bytes + spare, ProtFlags::empty(), flags)
        };
        let start = start.map_err(|e| {
            Error::io(format!("reserve addresses for a region of {capacity_bytes} bytes"), e)
        })?;
        let before = start.addr().next_multiple_of(ALIGN) - start.addr();
        let base = start.wrapping_byte_add(before);
        // SAFETY: both ranges are ends of the mapping just made, outside of what is kept.
        unsafe {
            unmap(start, before);
            unmap(base.wrapping_byte_add(capacity_bytes), spare - before);
        }
        Ok(Self {
            base: NonNull::new(base.cast()).expect("the system maps nothing at address 0"),
            capacity_bytes,
            len_bytes: AtomicU64::new(0),
            limit_bytes: Mutex::new(capacity_bytes),
        })
    }

    /// The bytes that can be mapped.
    pub(super) fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes as u64
    }

    /// The bytes that are mapped.
    pub(super) fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Ordering::Acquire)
    }

    /// What is mapped.
    #[inline]
    pub(super) fn words(&self) -> &[AtomicU64] {
        // It is at most `capacity_bytes`.
        let len_bytes = self.len_bytes.load(Ordering::Acquire) as usize;
        let first = self.base.cast::<AtomicU64>().as_ptr();
        // SAFETY: by invariant 2 these bytes are mapped and readable while `self` lives. The base
        // is aligned and every bit pattern is a number. Other processes change the memory, and
        // nobody here is given anything but atomics.
        unsafe { slice::from_raw_parts(first, len_bytes / size_of::<AtomicU64>()) }
    }

    /// Waits until nobody else grows the space and begins to grow it by `bytes`; none if there is
    /// no room.
    pub(super) fn grow(&self, bytes: u64) -> Option<Growth<'_>> {
        let limit_bytes = self.limit_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let at = self.len_bytes.load(Ordering::Relaxed) as usize;
        let bytes = usize::try_from(bytes).ok()?;
        let fits = bytes <= *limit_bytes - at;
        fits.then_some(Growth { space: self, limit_bytes, at, bytes, is_mapped: false })
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let limit_bytes = *self.limit_bytes.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: by invariant 1 the range is the space's, and no reference into it outlives it.
        unsafe { unmap(self.base.as_ptr().cast(), limit_bytes) };
    }
}

/// A segment on its way into a space. If it is dropped before it is published, the space is what it
/// was.
pub(super) struct Growth<'a> {
    space: &'a Space,
    limit_bytes: MutexGuard<'a, usize>,
    at: usize,
    bytes: usize,
    is_mapped: bool,
}

impl Growth<'_> {
    /// Maps the file after the last segment and returns its words, which nobody else sees yet.
    pub(super) fn map(&mut self, file: BorrowedFd<'_>, access: Access) -> Result<&[AtomicU64]> {
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        let address = self.address();
        // SAFETY: the range is the space's and not published, by invariants 1 to 3. References
        // to what was mapped here before borrowed this growth, and have ended.
        let mapped = unsafe { mmap(address.cast(), self.bytes, protection, flags, file, 0) };
        if let Err(e) = mapped {
            self.keep_reserved();
            return Err(Error::io(format!("map a segment of {} bytes", self.bytes), e));
        }
        self.is_mapped = true;
        let words = self.bytes / size_of::<AtomicU64>();
        // SAFETY: the range was just mapped for reading at least, stays so until this growth is
        // dropped or, if it is published, until the space is, and is handed out as atomics alone.
        Ok(unsafe { slice::from_raw_parts(address.cast::<AtomicU64>(), words) })
    }

    /// Counts the segment as part of the space. Does nothing if it was not mapped.
    pub(super) fn publish(mut self) {
        if self.is_mapped {
            self.is_mapped = false;
            let len_bytes = (self.at + self.bytes) as u64;
            self.space.len_bytes.store(len_bytes, Ordering::Release);
        }
    }

    fn address(&self) -> *mut u8 {
        self.space.base.as_ptr().wrapping_add(self.at)
    }

    /// Sees to it that the place is the space's after a mapping of it was refused.
    ///
    /// Kernels since 6.12 leave the reservation as it was. Older ones do so too where there are too
    /// many mappings, but have unmapped it where the file system refuses (tmpfs: a file that is
    /// sealed against what is asked) or where they find no memory for their own tables.
    fn keep_reserved(&mut self) {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        let (address, nothing) = (self.address().cast(), ProtFlags::empty());
        // SAFETY: the call takes the place if it is free, and touches nothing that is mapped.
        match unsafe { mmap_anonymous(address, self.bytes, nothing, flags) } {
            Ok(_) | Err(Errno::EXIST) => {}
            // Others may map there now: the space ends here.
            Err(_) => *self.limit_bytes = self.at,
        }
    }
}

impl Drop for Growth<'_> {
    fn drop(&mut self) {
        if !self.is_mapped {
            return;
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let (address, nothing) = (self.address().cast(), ProtFlags::empty());
        // SAFETY: the range is the space's and not published. Where this is refused the segment
        // stays mapped, unseen, until another takes its place.
        let _ = unsafe { mmap_anonymous(address, self.bytes, nothing, flags) };
    }
}

/// Puts memory into large pages. Returns false if the system has not, or not all of it.
pub(super) fn collapse(words: &[AtomicU64]) -> bool {
    let start = words.as_ptr().cast_mut().cast();
    // SAFETY: the range is mapped; the advice changes nothing but how it is backed.
    unsafe { libc::madvise(start, size_of_val(words), MADV_COLLAPSE) == 0 }
}

/// Unmaps a range, which may be empty. Where that fails it stays mapped and is never touched.
///
/// # Safety
/// It is mapped, the caller's, and not used again.
unsafe fn unmap(start: *mut std::ffi::c_void, bytes: usize) {
    if bytes > 0 {
        // SAFETY: the caller gives the range up.
        let _ = unsafe { munmap(start, bytes) };
    }
}
