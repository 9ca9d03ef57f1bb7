//! Immutable bytes behind one pointer, with a shared count, in memory of an arena if wanted.
//!
//! Thread safety: may be cloned, read and dropped on any thread. Invariants:
//!
//! 1. `head` points to a `Head` followed by `len` bytes that were written when it was made and
//!    never since.
//! 2. `count` is the number of [`SharedBytes`] and of raw pointers that own a count; the thread
//!    that takes it to zero is the only one left and frees the memory, once.
#![allow(unsafe_code, reason = "counts travel through raw pointers to fit an atomic")]

use std::{
    alloc::{Layout, alloc, dealloc, handle_alloc_error},
    ffi::c_void,
    ops::Deref,
    ptr::{self, NonNull},
    slice,
    sync::atomic::fence,
};

use super::{
    arena::{self, Arena},
    deferred::OneWord,
    primitive::{Arc, AtomicUsize, Ordering},
};

/// Immutable bytes behind one pointer.
pub struct SharedBytes {
    head: NonNull<Head>,
}

/// The header in front of the bytes.
#[repr(C, align(16))]
struct Head {
    count: AtomicUsize,
    len: usize,
    /// The arena that the memory is from; `None` if it is from the program's allocator.
    arena: Option<Arc<Arena>>,
}

/// A count beyond this is a leak that is about to wrap around.
const COUNT_MAX: usize = isize::MAX as usize;

// SAFETY: the bytes are never written while they can be reached (invariant 1), the count is atomic
// and decides which thread frees (invariant 2), and an arena may be used on any thread.
unsafe impl Send for SharedBytes {}
// SAFETY: as for `Send`: `&SharedBytes` gives reads and clones.
unsafe impl Sync for SharedBytes {}

impl SharedBytes {
    /// Copies `pieces`, which are `len` bytes together, to memory of `arena`, which lives at least
    /// as long as the copy. Without an arena, or if its chunks would have more bytes than the
    /// limit, they are copied to memory of the program's allocator.
    pub fn gather<'p>(
        arena: Option<(&Arc<Arena>, usize)>,
        len: usize,
        pieces: impl Iterator<Item = &'p [u8]>,
    ) -> Self {
        let layout = layout_for(len);
        let placed = arena.and_then(|(arena, limit)| {
            let memory = arena.allocate_within(layout.size(), limit)?;
            Some((memory, Arc::clone(arena)))
        });
        let (memory, arena) = match placed {
            Some((memory, arena)) => (memory, Some(arena)),
            None => {
                // SAFETY: the layout is not empty: there is a head.
                let memory = unsafe { alloc(layout) };
                (NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout)), None)
            }
        };
        let head = memory.cast::<Head>();
        // SAFETY: the memory was just allocated with this layout, aligned to a head and with room
        // for it, and is used nowhere else.
        unsafe { head.write(Head { count: AtomicUsize::new(1), len, arena }) };
        let mut at = 0;
        for piece in pieces {
            assert!(piece.len() <= len - at, "more bytes than there is room for");
            // SAFETY: `len` bytes lie after the head, and those of the piece end within them.
            unsafe {
                let bytes = memory.add(size_of::<Head>() + at);
                ptr::copy_nonoverlapping(piece.as_ptr(), bytes.as_ptr(), piece.len());
            }
            at += piece.len();
        }
        assert_eq!(at, len, "all bytes are written");
        Self { head }
    }

    /// Copies `contents` to memory of the program's allocator.
    pub fn copy_from(contents: &[u8]) -> Self {
        Self::gather(None, contents.len(), std::iter::once(contents))
    }

    #[inline]
    fn head(&self) -> &Head {
        // SAFETY: this owns a count, so the head is there (invariants 1 and 2).
        unsafe { self.head.as_ref() }
    }

    /// The memory that the bytes take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let bytes = layout_for(self.len()).size();
        if self.head().arena.is_some() { bytes.next_multiple_of(arena::ALIGN) } else { bytes }
    }

    /// Returns true if the bytes lie in an arena.
    pub fn is_placed(&self) -> bool {
        self.head().arena.is_some()
    }

    /// The number of owners that share the bytes.
    pub fn strong_count(&self) -> usize {
        self.head().count.load(Ordering::Relaxed)
    }

    /// The pointer, which owns the count from now on.
    #[inline]
    pub(crate) fn into_raw(self) -> *mut c_void {
        let head = self.head;
        std::mem::forget(self);
        head.as_ptr().cast()
    }

    /// The bytes of a pointer that [`SharedBytes::into_raw`] gave.
    ///
    /// # Safety
    ///
    /// `raw` came from `into_raw`, and the count that it owns was not dropped; it is dropped once
    /// only, whatever is made of the same pointer.
    #[inline]
    pub(crate) unsafe fn from_raw(raw: *mut c_void) -> Self {
        // SAFETY: `into_raw` gives pointers to heads only, which are not null.
        Self { head: unsafe { NonNull::new_unchecked(raw.cast()) } }
    }

    /// Frees the memory.
    #[cold]
    #[inline(never)]
    fn free(&mut self) {
        let layout = layout_for(self.len());
        // SAFETY: the count is zero, so this is the only one left (invariant 2): the arena is moved
        // out of memory that no thread looks at again.
        let arena = unsafe { (&raw const (*self.head.as_ptr()).arena).read() };
        let memory = self.head.cast::<u8>();
        match arena {
            // SAFETY: the memory came from this arena with this size, and is not used again.
            Some(arena) => unsafe { arena.release(memory, layout.size()) },
            // SAFETY: the memory came from the allocator with this layout, and is not used again.
            None => unsafe { dealloc(memory.as_ptr(), layout) },
        }
    }
}

/// The memory that `len` bytes and their head take.
#[inline]
fn layout_for(len: usize) -> Layout {
    // A slice whose length and head exceed the address space cannot be there to be copied; if it
    // could, no allocator would have the memory either.
    let size = size_of::<Head>().saturating_add(len);
    let layout = Layout::from_size_align(size, align_of::<Head>());
    layout.unwrap_or_else(|_| handle_alloc_error(Layout::new::<Head>())).pad_to_align()
}

impl Deref for SharedBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let len = self.head().len;
        // SAFETY: `len` bytes follow the head and were written before any other thread saw it
        // (invariant 1), and this owns a count, so that they stay.
        unsafe { slice::from_raw_parts(self.head.as_ptr().add(1).cast::<u8>(), len) }
    }
}

impl Clone for SharedBytes {
    #[inline]
    fn clone(&self) -> Self {
        // The caller owns a count, so no order is needed for another.
        if self.head().count.fetch_add(1, Ordering::Relaxed) > COUNT_MAX {
            std::process::abort();
        }
        Self { head: self.head }
    }
}

impl Drop for SharedBytes {
    #[inline]
    fn drop(&mut self) {
        if self.head().count.fetch_sub(1, Ordering::Release) == 1 {
            // All reads of other threads come before their release.
            fence(Ordering::Acquire);
            self.free();
        }
    }
}

// SAFETY: a shared byte string is its pointer.
unsafe impl OneWord for SharedBytes {
    fn into_word(self) -> *mut () {
        self.into_raw().cast()
    }

    /// # Safety
    /// As for every [`OneWord`].
    unsafe fn from_word(word: *mut ()) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::from_raw(word.cast()) }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::mapping::Gauge;

    #[test]
    fn contents_of_every_length_come_back_from_both_kinds_of_memory() {
        let arena = Arc::new(Arena::new(&Gauge::default()));
        let mut kept = Vec::new();
        for len in (0..40_000).step_by(977) {
            let contents: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let pieces = contents.chunks(1000);
            let both = [
                SharedBytes::copy_from(&contents),
                SharedBytes::gather(Some((&arena, usize::MAX)), contents.len(), pieces),
            ];
            assert!(both.iter().all(|bytes| **bytes == contents));
            assert!(both.iter().all(|bytes| bytes.memory_bytes() >= len + size_of::<Head>()));
            kept.push((contents, both));
        }
        assert!(kept.iter().all(|(contents, both)| both.iter().all(|bytes| **bytes == *contents)));
        drop(kept);
        assert_eq!(Arc::strong_count(&arena), 1, "every copy let go of the arena");
    }

    #[test]
    #[should_panic(expected = "more bytes than there is room for")]
    fn pieces_do_not_go_beyond_their_length() {
        SharedBytes::gather(None, 5, [b"sha", b"red"].into_iter().map(|piece| &piece[..]));
    }

    #[test]
    #[should_panic(expected = "all bytes are written")]
    fn no_bytes_are_shared_that_were_not_written() {
        SharedBytes::gather(None, 7, [b"sha", b"red"].into_iter().map(|piece| &piece[..]));
    }

    #[test]
    fn the_last_one_frees_and_the_arena_outlives_its_owner() {
        let arena = Arc::new(Arena::new(&Gauge::default()));
        let weak = Arc::downgrade(&arena);
        let bytes = SharedBytes::gather(
            Some((&arena, usize::MAX)),
            6,
            [b"sha", b"red"].into_iter().map(|piece| &piece[..]),
        );
        drop(arena);
        thread::scope(|scope| {
            for _ in 0..4 {
                let bytes = bytes.clone();
                scope.spawn(move || {
                    for _ in 0..1000 {
                        assert_eq!(&*bytes.clone(), b"shared");
                    }
                });
            }
        });
        assert_eq!(bytes.strong_count(), 1);
        // SAFETY: the pointer owns the count until it is made bytes again.
        let bytes = unsafe { SharedBytes::from_raw(bytes.into_raw()) };
        assert_eq!(&*bytes, b"shared");
        assert!(weak.strong_count() > 0);
        drop(bytes);
        assert_eq!(weak.strong_count(), 0);
    }
}
