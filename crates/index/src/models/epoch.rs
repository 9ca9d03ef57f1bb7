//! Epochs: nothing is freed that a pinned thread may hold.
#![allow(unsafe_code, reason = "loom checks the accesses")]

use std::sync::Arc;

use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicUsize, Ordering},
};
use rhumb_sync::{
    epoch::{self, Guard},
    garbage::{Garbage, Piece},
    models::race,
};

/// A shared thing: every reader of it must be done when it is freed.
#[derive(Default)]
struct Thing(UnsafeCell<bool>);

// SAFETY: loom checks every access to the cell.
unsafe impl Sync for Thing {}

/// A thing that was unlinked.
struct Unlinked(Arc<[Thing]>, usize);

impl Thing {
    fn read(&self) {
        // SAFETY: loom checks that no thread frees the thing at the same time.
        let is_freed = self.0.with(|freed| unsafe { *freed });
        assert!(!is_freed, "read after it was freed");
    }
}

impl Piece for Unlinked {
    type Context = ();

    /// # Safety
    /// As for every [`Piece`]: no thread uses it again.
    unsafe fn free(self, (): &()) {
        // SAFETY: loom checks that no thread reads the thing at the same time.
        self.0[self.1].0.with_mut(|freed| unsafe { *freed = true });
    }
}

/// Things, one of which can be reached.
struct Shared {
    things: Arc<[Thing]>,
    current: AtomicUsize,
    garbage: Garbage<Unlinked>,
}

impl Shared {
    fn new() -> Self {
        let things = (0..4).map(|_| Thing::default()).collect();
        Self { things, current: AtomicUsize::new(0), garbage: Garbage::new(1 << 20) }
    }

    fn read(&self, _guard: &Guard) {
        self.things[self.current.load(Ordering::Acquire)].read();
    }

    /// Makes the next thing the one that can be reached.
    fn unlink(&self) {
        let guard = epoch::pin();
        let old = self.current.fetch_add(1, Ordering::AcqRel);
        let piece = Unlinked(Arc::clone(&self.things), old);
        // SAFETY: the thing was unlinked just now, by this thread alone.
        unsafe { self.garbage.retire(&guard, piece, 1, &()) };
    }

    /// Frees what may be freed.
    fn collect(&self) {
        self.garbage.collect(&());
    }

    fn replace(&self) {
        self.unlink();
        self.collect();
    }
}

/// Checks that everything retired is freed once no thread is pinned.
fn all_is_freed(shared: &Shared) {
    shared.garbage.collect(&());
    assert_eq!(shared.garbage.bytes(), 0);
}

#[test]
fn nothing_is_freed_that_a_pinned_thread_holds() {
    let read = |shared: &Shared| shared.read(&epoch::pin());
    race(3, Shared::new, [Shared::replace, read], all_is_freed);
}

#[test]
fn who_frees_need_not_be_who_unlinked() {
    let read = |shared: &Shared| shared.read(&epoch::pin());
    race(2, Shared::new, [Shared::unlink, Shared::collect, read], all_is_freed);
}

#[test]
fn reads_of_an_earlier_pin_are_over() {
    let read = |shared: &Shared| {
        let mut guard = epoch::pin();
        shared.read(&guard);
        guard.repin();
        shared.read(&guard);
        drop(guard);
        shared.read(&epoch::pin());
    };
    race(2, Shared::new, [Shared::replace, read], all_is_freed);
}

#[test]
fn two_threads_may_retire_and_advance_at_a_time() {
    let read = |shared: &Shared| {
        shared.replace();
        shared.read(&epoch::pin());
    };
    race(2, Shared::new, [Shared::replace, read], all_is_freed);
}
