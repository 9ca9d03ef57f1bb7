//! Arrays of a fixed length in memory of an arena: for arrays that every lookup reads somewhere, so
//! that it also finds the translation of the address in the processor's tables.
//!
//! Thread safety: that of a `Box<[T]>`. Invariants:
//!
//! 1. `start` is aligned for `T`, and its first `len` elements are initialised and belong to this
//!    alone.
//! 2. `start` came from `arena` as a block of `bytes`, which have room for `len` elements. Without
//!    an arena `len` is 0 and there is no block.
//!    `len` is 0 and there is no block.
#![allow(unsafe_code, reason = "elements in memory that an arena hands out")]

use std::{
    ops::{Deref, DerefMut},
    ptr::{self, NonNull},
    slice,
};

use super::{
    arena::{self, Arena},
    primitive::Arc,
};

/// An array in memory of an arena, which lives at least as long.
pub struct Placed<T> {
    start: NonNull<T>,
    len: usize,
    bytes: usize,
    arena: Option<Arc<Arena>>,
}

// SAFETY: the elements belong to this alone (invariant 1), and an arena may be used on any thread.
unsafe impl<T: Send> Send for Placed<T> {}
// SAFETY: `&Placed` gives nothing but `&[T]`.
unsafe impl<T: Sync> Sync for Placed<T> {}

impl<T> Placed<T> {
    /// No elements, and no memory.
    pub const fn empty() -> Self {
        Self { start: NonNull::dangling(), len: 0, bytes: 0, arena: None }
    }

    /// The elements that `elements` yields, but no more than it says that it has.
    pub fn new(arena: &Arc<Arena>, elements: impl ExactSizeIterator<Item = T>) -> Self {
        const { assert!(align_of::<T>() <= arena::ALIGN) };
        let room = elements.len();
        let Some(bytes) = room.checked_mul(size_of::<T>()).filter(|bytes| *bytes > 0) else {
            assert!(room == 0, "elements with a size, and fewer than the address space holds");
            return Self::empty();
        };
        let start = arena.allocate(bytes).cast::<T>();
        let mut placed = Self { start, len: 0, bytes, arena: Some(Arc::clone(arena)) };
        for element in elements.take(room) {
            // SAFETY: fewer than `room` elements are there, so that the block has room for this
            // one.
            unsafe { placed.start.add(placed.len).write(element) };
            placed.len += 1;
        }
        placed
    }

    /// The memory that the elements take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.next_multiple_of(arena::ALIGN)
    }
}

impl<T> Deref for Placed<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements are initialised (invariant 1).
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Placed<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`, and no other thread can reach them (invariant 1).
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for Placed<T> {
    fn drop(&mut self) {
        let Some(arena) = self.arena.take() else { return };
        let elements: *mut [T] = &raw mut **self;
        // SAFETY: the elements are initialised and no thread looks at them again.
        unsafe { ptr::drop_in_place(elements) };
        // SAFETY: the block came from this arena with this length (invariant 2) and is not used
        // again.
        unsafe { arena.release(self.start.cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Gauge;

    #[test]
    fn elements_of_every_count_are_there_and_are_dropped_with_their_memory() {
        let arena = Arc::new(Arena::new(&Gauge::default()));
        let element = std::sync::Arc::new(());
        for count in [0, 1, 31, 1000, 300_000] {
            let mut placed = Placed::new(&arena, (0..count).map(|i| (i, element.clone())));
            assert!(placed.iter().map(|(i, _)| *i).eq(0..count));
            assert!(placed.memory_bytes() >= size_of_val(&*placed));
            placed.iter_mut().for_each(|(i, _)| *i += 1);
            assert!(placed.iter().map(|(i, _)| *i).eq(1..=count));
            assert_eq!(std::sync::Arc::strong_count(&element), count + 1);
            drop(placed);
            assert_eq!(std::sync::Arc::strong_count(&element), 1);
            assert_eq!(arena.used_bytes(), 0);
        }
    }

    #[test]
    fn an_iterator_that_miscounts_or_panics_leaves_nothing_behind() {
        struct Miscounts(usize, usize);

        impl Iterator for Miscounts {
            type Item = std::sync::Arc<()>;

            fn next(&mut self) -> Option<Self::Item> {
                assert!(self.1 != 13, "planted");
                self.1 = self.1.checked_sub(1)?;
                Some(std::sync::Arc::default())
            }

            fn size_hint(&self) -> (usize, Option<usize>) {
                (self.0, Some(self.0))
            }
        }

        impl ExactSizeIterator for Miscounts {}

        let arena = Arc::new(Arena::new(&Gauge::default()));
        assert_eq!(Placed::new(&arena, Miscounts(5, 3)).len(), 3);
        assert_eq!(Placed::new(&arena, Miscounts(3, 5)).len(), 3);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Placed::new(&arena, Miscounts(20, 20));
        }));
        assert!(panicked.is_err());
        assert_eq!(arena.used_bytes(), 0);
    }
}
