//! Memory that a leaf takes piece by piece while it is in use and gives back as a whole.
//!
//! Thread safety: extents are added by CAS, each linked to the one before it, and never taken away
//! before the leaf is freed; each piece is handed out once.
#![allow(unsafe_code, reason = "hands out pieces of blocks of an arena")]
#![cfg_attr(not(feature = "published"), allow(dead_code, reason = "for leaves of other kinds"))]

use std::ptr::{self, NonNull};

use rhumb_sync::{
    arena::Arena,
    primitive::{AtomicPtr, AtomicU64, AtomicUsize, IS_MODEL, Ordering},
};

/// The first extent has about this many bytes. Chosen, not measured: eight nodes of 128 bytes. A
/// leaf that needs no piece has no extent.
const FIRST_BYTES: usize = 1024;
/// Each later extent has one part in this many of the pieces of all before it, or as many as the
/// first if that is more: what is not handed out yet is at most a fifth of the whole, or one first
/// extent.
const GROWTH: usize = 4;

/// A type whose values may start as zeroed memory.
///
/// # Safety
/// SAFETY: all zeroes are a value of the type, which is made of atomics, needs no drop, and is
/// aligned to at most what an [`Arena`] aligns to. (Where a model checker's atomics are not zeroes,
/// `zero` makes the value.)
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

    /// [`Zeroed::make`] in memory that is already zeroed, which need not be touched.
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

// SAFETY: zeroes are the null pointer, and no more alignment than a word's is needed.
unsafe impl<T> Zeroed for AtomicPtr<T> {
    fn zero() -> Self {
        Self::new(ptr::null_mut())
    }
}

/// Pieces of one type.
pub(crate) struct PiecePool<T> {
    /// The extent that pieces are taken from, before all others.
    last: AtomicPtr<PoolExtent<T>>,
}

/// Pieces that lie one after the other.
struct PoolExtent<T> {
    pieces: NonNull<T>,
    len: usize,
    /// The pieces that were asked for: all that are there, and some more once none are left.
    taken: AtomicUsize,
    /// The extent before this one.
    before: *mut Self,
    /// The number of pieces in all extents before.
    len_before: usize,
}

impl<T: Zeroed> PiecePool<T> {
    const FIRST: usize =
        if size_of::<T>() >= FIRST_BYTES { 1 } else { FIRST_BYTES / size_of::<T>() };

    pub(crate) fn new() -> Self {
        Self { last: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The extents, the last one first.
    fn extents(&self) -> impl Iterator<Item = &PoolExtent<T>> {
        let mut next = self.last.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            // SAFETY: extents come from boxes and live as the pool does: they are freed by the
            // thread that has the pool to itself.
            let extent = unsafe { next.as_ref() }?;
            next = extent.before;
            Some(extent)
        })
    }

    /// The number of pieces in use.
    pub(crate) fn len(&self) -> usize {
        let taken = |extent: &PoolExtent<T>| extent.taken.load(Ordering::Relaxed).min(extent.len);
        self.extents().next().map_or(0, |extent| extent.len_before + taken(extent))
    }

    /// Bytes of all extents.
    pub(crate) fn bytes(&self) -> usize {
        self.extents().map(|extent| extent.len * size_of::<T>() + size_of::<PoolExtent<T>>()).sum()
    }

    /// A zeroed piece.
    pub(crate) fn take(&self, arena: &Arena) -> &T {
        loop {
            let last = self.last.load(Ordering::Acquire);
            // SAFETY: as in `extents`.
            if let Some(extent) = unsafe { last.as_ref() } {
                let index = extent.taken.fetch_add(1, Ordering::Relaxed);
                if index < extent.len {
                    // SAFETY: the extent has more than `index` pieces, zeroed, which is a value of
                    // the type; it lives as long as the pool is borrowed, and no other thread gets
                    // this index.
                    return unsafe { &*extent.pieces.as_ptr().add(index) };
                }
            }
            self.grow(last, arena);
        }
    }

    /// Adds an extent, unless another thread was faster.
    #[cold]
    fn grow(&self, last: *mut PoolExtent<T>, arena: &Arena) {
        // SAFETY: as in `extents`.
        let len_before = unsafe { last.as_ref() }.map_or(0, |last| last.len_before + last.len);
        let len = Self::FIRST.max(len_before / GROWTH);
        let pieces = arena.allocate(len * size_of::<T>()).cast::<T>();
        // SAFETY: the block is ours and that long.
        unsafe { T::make(pieces.as_ptr(), len) };
        let taken = AtomicUsize::new(0);
        let fresh =
            Box::into_raw(Box::new(PoolExtent { pieces, len, taken, before: last, len_before }));
        let (ok, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        if self.last.compare_exchange(last, fresh, ok, failed).is_err() {
            // SAFETY: no other thread has seen the extent.
            unsafe { PoolExtent::free(fresh, arena) };
        }
    }

    /// Gives all memory back.
    ///
    /// # Safety
    /// The pieces were taken from this arena, and none of them is used again.
    pub(crate) unsafe fn free(&self, arena: &Arena) {
        let mut next = self.last.swap(ptr::null_mut(), Ordering::Acquire);
        while !next.is_null() {
            // SAFETY: the extent is the pool's, and the caller gives it up.
            next = unsafe { PoolExtent::free(next, arena) };
        }
    }
}

impl<T> PoolExtent<T> {
    /// Gives an extent back. Returns the one before it.
    ///
    /// # Safety
    /// It came from a box, its pieces from this arena, and no thread uses it again.
    unsafe fn free(extent: *mut Self, arena: &Arena) -> *mut Self {
        // SAFETY: the caller's promise.
        let extent = unsafe { Box::from_raw(extent) };
        // SAFETY: the block came from the arena with this length.
        unsafe { arena.release(extent.pieces.cast(), extent.len * size_of::<T>()) };
        extent.before
    }
}
