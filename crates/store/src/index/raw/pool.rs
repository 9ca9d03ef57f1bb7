//! Memory that a leaf takes piece by piece while it is in use and gives back as a whole.
//!
//! Thread safety: extents are added by CAS and never taken away before the leaf is freed; each piece is
//! handed out once.
#![allow(unsafe_code, reason = "hands out pieces of blocks of an arena")]

use std::ptr::{self, NonNull};

use super::segment::Order;
use crate::sync::{
    arena::Arena,
    primitive::{AtomicPtr, AtomicU32, AtomicU64, IS_MODEL, Ordering},
};

/// Each extent is twice as long as the one before it.
const EXTENTS: usize = 12;
/// The first extent has at least so many bytes.
const FIRST_BYTES: usize = 1024;

/// What may start as zeroed memory.
///
/// # Safety
/// SAFETY: all zeroes are a value of the type, which is made of atomics, needs no drop, and is aligned to at
/// most what an [`Arena`] aligns to. (Where a model checker's atomics are no zeroes, `zero` makes the value.)
pub(crate) unsafe trait Zeroed: Sized {
    /// The value that all zeroes are.
    fn zero() -> Self;

    /// Makes `len` of them from `first` on.
    ///
    /// # Safety
    /// The memory is the caller's, long enough, and aligned.
    unsafe fn make(first: *mut Self, len: usize) {
        // SAFETY: the caller's promise; zeroes are values of the type.
        unsafe {
            first.write_bytes(0, len);
            Self::make_of_zeroes(first, len);
        }
    }

    /// [`Zeroed::make`] where there are zeroes, which need not be touched.
    ///
    /// # Safety
    /// The memory is the caller's, long enough, aligned and zeroed.
    unsafe fn make_of_zeroes(first: *mut Self, len: usize) {
        if !IS_MODEL {
            return;
        }
        for i in 0..len {
            // SAFETY: the caller's promise.
            unsafe { first.add(i).write(Self::zero()) };
        }
    }
}

// SAFETY: zeroes are the number 0, and no more alignment than a word's is needed.
unsafe impl Zeroed for AtomicU64 {
    fn zero() -> Self {
        Self::new(0)
    }
}

// SAFETY: an order is an atomic word, which is 0 where there are no slots.
unsafe impl Zeroed for Order {
    fn zero() -> Self {
        Self::none()
    }
}

// SAFETY: zeroes are the null pointer, and no more alignment than a word's is needed.
unsafe impl<T> Zeroed for AtomicPtr<T> {
    fn zero() -> Self {
        Self::new(ptr::null_mut())
    }
}

/// Pieces of one type.
pub(crate) struct Pool<T> {
    taken: AtomicU32,
    extents: [AtomicPtr<T>; EXTENTS],
}

impl<T: Zeroed> Pool<T> {
    const FIRST: usize =
        if size_of::<T>() >= FIRST_BYTES { 1 } else { FIRST_BYTES / size_of::<T>() };

    pub(crate) fn new() -> Self {
        let extents = std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut()));
        Self { taken: AtomicU32::new(0), extents }
    }

    /// How many pieces are in use.
    pub(crate) fn len(&self) -> usize {
        self.taken.load(Ordering::Relaxed) as usize
    }

    /// Bytes of all extents.
    pub(crate) fn bytes(&self) -> usize {
        let is_there = |extent: &AtomicPtr<T>| !extent.load(Ordering::Relaxed).is_null();
        (0..EXTENTS).filter(|at| is_there(&self.extents[*at])).map(Self::extent_bytes).sum()
    }

    fn extent_bytes(at: usize) -> usize {
        (Self::FIRST << at) * size_of::<T>()
    }

    /// A zeroed piece; none if all that may be have been handed out.
    pub(crate) fn take(&self, arena: &Arena) -> Option<&T> {
        let index = self.taken.fetch_add(1, Ordering::Relaxed) as usize;
        let at = (index / Self::FIRST + 1).ilog2() as usize;
        let Some(extent) = self.extents.get(at) else {
            self.taken.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        let mut pieces = extent.load(Ordering::Acquire);
        if pieces.is_null() {
            let bytes = Self::extent_bytes(at);
            let block = arena.allocate(bytes);
            let fresh = block.cast::<T>().as_ptr();
            // SAFETY: the block is ours and that long.
            unsafe { T::make(fresh, Self::FIRST << at) };
            let (ok, failed) = (Ordering::AcqRel, Ordering::Acquire);
            pieces = match extent.compare_exchange(ptr::null_mut(), fresh, ok, failed) {
                Ok(_) => fresh,
                Err(others) => {
                    // SAFETY: nobody else has seen the block.
                    unsafe { arena.release(block, bytes) };
                    others
                }
            };
        }
        let before = Self::FIRST * ((1 << at) - 1);
        // SAFETY: the extent has `FIRST << at` pieces, zeroed, which is a value of the type; it lives as
        // long as the pool is borrowed, and nobody else gets this index.
        Some(unsafe { &*pieces.add(index - before) })
    }

    /// Gives all memory back.
    ///
    /// # Safety
    /// The pieces were taken from this arena, and none of them is used again.
    pub(crate) unsafe fn free(&self, arena: &Arena) {
        for (at, extent) in self.extents.iter().enumerate() {
            let extent = extent.swap(ptr::null_mut(), Ordering::Acquire);
            if let Some(extent) = NonNull::new(extent) {
                // SAFETY: the extent came from the arena with this length, and the caller gives it up.
                unsafe { arena.release(extent.cast(), Self::extent_bytes(at)) };
            }
        }
    }
}
