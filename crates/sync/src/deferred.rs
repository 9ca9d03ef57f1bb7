//! What is dropped once no thread can hold it any more: of all cells and slots of the process.
//!
//! It is dropped inside a later call that defers something, or in [`collect`], in whatever thread
//! that is and under whatever locks it holds. So what is large or takes locks is handed on from
//! here to a [`DropQueue`](crate::drop_queue::DropQueue). What is deferred by a drop that runs here
//! is dropped later: drops do not nest.

use std::sync::LazyLock;

use crate::{
    epoch::Guard,
    garbage::{Garbage, Piece},
};

/// Bytes that wait in one of sixteen stripes before it looks what may be dropped: so some mebibyte
/// of cached blocks waits at most. Halved, threads are interrupted twice as often while blocks are
/// evicted.
const BYTES_MAX: usize = 64 << 10;

static GARBAGE: LazyLock<Garbage<Deferred>> = LazyLock::new(|| Garbage::new(BYTES_MAX));

/// Something to drop, as one word and what drops it: no memory is allocated for it.
struct Deferred {
    word: *mut (),
    drop: unsafe fn(*mut ()),
}

// SAFETY: only what is `Send` is made one of these (`drop_later`).
#[allow(unsafe_code, reason = "the word stands for something that may be sent")]
unsafe impl Send for Deferred {}

impl Piece for Deferred {
    type Context = ();

    /// # Safety
    /// As for every [`Piece`].
    #[allow(unsafe_code, reason = "drops what the word stands for")]
    unsafe fn free(self, (): &()) {
        // SAFETY: the word was made with this function's type, and is passed once.
        unsafe { (self.drop)(self.word) };
    }
}

/// What fits a word and can be made again of it.
///
/// # Safety
/// `from_word` gives back what `into_word` was given.
#[allow(unsafe_code, reason = "promises about words")]
pub(crate) unsafe trait OneWord: Send + 'static {
    /// The word, which owns it from now on.
    fn into_word(self) -> *mut ();

    /// What the word owns.
    ///
    /// # Safety
    /// The word came from `into_word` of the same type, and is not used again.
    unsafe fn from_word(word: *mut ()) -> Self;
}

// SAFETY: a box is its pointer.
#[allow(unsafe_code, reason = "promises about words")]
unsafe impl<T: Send + 'static> OneWord for Box<T> {
    fn into_word(self) -> *mut () {
        Self::into_raw(self).cast()
    }

    /// # Safety
    /// As the trait's.
    unsafe fn from_word(word: *mut ()) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::from_raw(word.cast()) }
    }
}

/// Drops something of about `bytes` bytes once no thread is pinned that is so now. It can be
/// reached by no thread that pins itself later.
pub(crate) fn drop_later<T: OneWord>(guard: &Guard, bytes: usize, what: T) {
    /// # Safety
    /// The word came from `into_word` of the type, and is not used again.
    #[allow(unsafe_code, reason = "makes it again of its word")]
    unsafe fn drop_word<T: OneWord>(word: *mut ()) {
        // SAFETY: the caller's promise.
        drop(unsafe { T::from_word(word) });
    }
    let deferred = Deferred { word: what.into_word(), drop: drop_word::<T> };
    // SAFETY: what is dropped early is dropped by its owner: nothing that can be reached by others
    // is passed here but by those that have unlinked it, as they say.
    #[allow(unsafe_code, reason = "the caller has unlinked it")]
    unsafe {
        GARBAGE.retire(guard, deferred, bytes, &());
    }
}

/// Calls `f` once no thread is pinned that is so now.
pub fn defer(guard: &Guard, f: impl FnOnce() + Send + 'static) {
    drop_later(guard, 0, Box::new(OnDrop(Some(f))));
}

/// Calls what it has when it is dropped.
struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            f();
        }
    }
}

/// Drops what may be dropped by now. What the calling thread deferred just before is among it,
/// unless another thread is pinned meanwhile.
pub fn collect() {
    GARBAGE.collect(&());
}

/// Bytes that wait to be dropped, in the whole process.
pub fn bytes() -> usize {
    GARBAGE.bytes()
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use super::*;
    use crate::epoch;

    #[test]
    fn what_is_deferred_waits_for_those_that_are_pinned() {
        let is_called = Arc::new(AtomicBool::new(false));
        let guard = epoch::pin();
        let called = Arc::clone(&is_called);
        defer(&guard, move || called.store(true, Ordering::Release));
        for _ in 0..5 {
            collect();
        }
        assert!(!is_called.load(Ordering::Acquire), "this thread is pinned");
        drop(guard);
        // Threads of other tests may be pinned for a moment.
        while !is_called.load(Ordering::Acquire) {
            collect();
            std::thread::yield_now();
        }
    }
}
