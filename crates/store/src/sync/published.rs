//! A shared value that readers reach without waiting and writers replace whole.
//!
//! Thread safety: `current` is only ever null while the cell is being dropped. A reader holds an
//! epoch guard for as long as it uses what it loaded; a replaced value is dropped through the
//! epoch, so not before every guard of that time is gone.
#![allow(unsafe_code, reason = "the epoch's loads are unsafe; this type makes them sound")]

use std::fmt;

use crossbeam_epoch::{Atomic, Owned};

use super::{
    epoch::{self, Guard},
    primitive::{Arc, Ordering},
};

/// An [`Arc`] that can be replaced while it is being read.
pub(crate) struct Published<T: Send + Sync + 'static> {
    current: Atomic<Arc<T>>,
}

impl<T: Send + Sync + 'static> Published<T> {
    /// Publishes `value`.
    pub(crate) fn new(value: Arc<T>) -> Self {
        Self { current: Atomic::new(value) }
    }

    /// The value of this moment, for as long as `guard` is held. Never waits.
    #[inline]
    pub(crate) fn load<'g>(&self, guard: &'g Guard) -> &'g Arc<T> {
        let shared = self.current.load(Ordering::Acquire, guard);
        // SAFETY: the pointer came from `Owned` in `new` or `store` and is never null while `self`
        // can be borrowed; whoever unlinks it defers its destruction through the epoch, which
        // `guard` holds back.
        unsafe { shared.deref() }
    }

    /// The value of this moment, to keep.
    pub(crate) fn get(&self) -> Arc<T> {
        Arc::clone(self.load(&epoch::pin()))
    }

    /// Replaces the value. Readers that loaded the old one keep it until they let go.
    pub(crate) fn store(&self, value: Arc<T>) {
        let guard = epoch::pin();
        let old = self.current.swap(Owned::new(value), Ordering::AcqRel, &guard);
        // SAFETY: the swap unlinked `old`, so that no later load can reach it, and each thread
        // that swaps gets a different pointer; it is destroyed once and after all present guards.
        unsafe { guard.defer_destroy(old) };
        drop(guard);
        // Replacing is rare and what was replaced may hold files: it should go now, on this
        // thread, not with a later read on another. An epoch takes up to three rounds to pass.
        for _ in 0..3 {
            epoch::pin().flush();
        }
    }
}

impl<T: Send + Sync + 'static> Drop for Published<T> {
    fn drop(&mut self) {
        let guard = epoch::pin();
        let old = self.current.swap(crossbeam_epoch::Shared::null(), Ordering::AcqRel, &guard);
        // SAFETY: `&mut self` ends all access through the cell; a reference that a guard still
        // holds stays valid because the destruction waits for that guard.
        unsafe { guard.defer_destroy(old) };
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for Published<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.load(&epoch::pin()).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loaded_value_outlives_its_replacement_and_the_cell() {
        let cell = Published::new(Arc::new(1));
        let guard = epoch::pin();
        let one = cell.load(&guard);
        cell.store(Arc::new(2));
        assert_eq!(**one, 1);
        let two = cell.load(&guard);
        drop(cell);
        assert_eq!(**two, 2);
    }

    #[test]
    fn readers_see_whole_values_while_they_are_replaced() {
        let cell = Arc::new(Published::new(Arc::new([0_u64; 8])));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let guard = epoch::pin();
                        let seen = cell.load(&guard);
                        assert!(seen.iter().all(|x| *x == seen[0]));
                    }
                });
            }
            for i in 0..2_000 {
                cell.store(Arc::new([i; 8]));
            }
        });
    }
}
