//! A shared value that readers reach without waiting and writers replace whole.
//!
//! Thread safety: `current` is never null. A reader borrows the cell and an epoch guard for as long
//! as it uses what it loaded. A replaced value is given to the [`DropQueue`] through the epoch, so
//! not before every guard of that time is gone. The last value goes with the cell.
#![allow(unsafe_code, reason = "the epoch's loads are unsafe; this type makes them sound")]

use std::fmt;

use super::{
    deferred,
    drop_queue::DropQueue,
    epoch::{self, Guard},
    primitive::{Arc, AtomicPtr, Ordering},
};

/// An [`Arc`] that can be replaced while it is being read.
pub struct Published<T: Send + Sync + 'static> {
    /// A box that is this cell's own.
    current: AtomicPtr<Arc<T>>,
    drops: Arc<DropQueue>,
}

/// A value that was replaced: it goes to the queue once no reader holds it.
struct Replaced<T: Send + Sync + 'static> {
    /// A box, which is no box before the drop: readers may hold references into it.
    value: *mut Arc<T>,
    drops: Arc<DropQueue>,
}

// SAFETY: it owns an `Arc<T>`, which may be sent because `T` is `Send + Sync`, and so may the
// drops.
unsafe impl<T: Send + Sync + 'static> Send for Replaced<T> {}

impl<T: Send + Sync + 'static> Drop for Replaced<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from a box and was unlinked once (`store`). This is dropped
        // through the epoch, so that no reader holds it any more.
        self.drops.push(unsafe { Box::from_raw(self.value) });
    }
}

impl<T: Send + Sync + 'static> Published<T> {
    /// Publishes `value`. The thread that empties `drops` drops what replaced values hold.
    pub fn new(value: Arc<T>, drops: &Arc<DropQueue>) -> Self {
        let current = AtomicPtr::new(Box::into_raw(Box::new(value)));
        Self { current, drops: Arc::clone(drops) }
    }

    /// The value of this moment, for as long as `guard` is held. Never waits.
    #[inline]
    pub fn load<'g>(&'g self, _guard: &'g Guard) -> &'g Arc<T> {
        // SAFETY: the pointer came from a box in `new` or `store`. The thread that unlinks it drops
        // it through the epoch, which the guard holds back, and the value that stays to the end is
        // not dropped while `self` is borrowed.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// The value of this moment, to keep.
    pub fn get(&self) -> Arc<T> {
        Arc::clone(self.load(&epoch::pin()))
    }

    /// Replaces the value. Readers that loaded the old one keep it until they release it.
    pub fn store(&self, value: Arc<T>) {
        let guard = epoch::pin();
        // The swap unlinks it: no later load can reach it, and each thread that swaps gets another
        // one.
        let old = self.current.swap(Box::into_raw(Box::new(value)), Ordering::AcqRel);
        let replaced = Replaced { value: old, drops: Arc::clone(&self.drops) };
        deferred::drop_later(&guard, size_of::<Replaced<T>>(), Box::new(replaced));
    }
}

impl<T: Send + Sync + 'static> Drop for Published<T> {
    fn drop(&mut self) {
        // SAFETY: `&mut self` says that nobody borrows the cell, hence nobody its value, which came
        // from a box, was never unlinked and has no other owner.
        drop(unsafe { Box::from_raw(*self.current.get_mut()) });
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
    fn a_loaded_value_outlives_its_replacement() {
        let cell = Published::new(Arc::new(1), &Arc::default());
        let guard = epoch::pin();
        let one = cell.load(&guard);
        cell.store(Arc::new(2));
        assert_eq!((**one, **cell.load(&guard)), (1, 2));
    }

    /// Counts its drop.
    struct Told(Arc<crate::primitive::AtomicUsize>);

    impl Drop for Told {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn what_was_replaced_is_dropped_where_the_queue_is_emptied_and_nowhere_else() {
        let (queue, drops) = (Arc::<DropQueue>::default(), Arc::default());
        let cell = Published::new(Arc::new(Told(Arc::clone(&drops))), &queue);
        cell.store(Arc::new(Told(Arc::clone(&drops))));
        let seen = || drops.load(Ordering::Relaxed);
        // Other tests' threads may be pinned, so the epoch may take its time.
        while seen() < 1 {
            let before = seen();
            deferred::collect();
            assert_eq!(seen(), before, "a collection drops nothing");
            queue.drop_all();
        }
        drop(cell);
        assert_eq!(seen(), 2, "the last value goes with the cell");
    }

    #[test]
    fn what_holds_the_queue_itself_is_dropped_after_the_end_too() {
        struct Tree(#[expect(dead_code, reason = "held, not read")] Published<Told>);
        let drops = Arc::default();
        let queue = Arc::default();
        let tree = || Tree(Published::new(Arc::new(Told(Arc::clone(&drops))), &queue));
        let cell = Published::new(Arc::new(tree()), &queue);
        let guard = epoch::pin();
        cell.store(Arc::new(tree()));
        queue.close();
        drop(cell);
        drop(guard);
        while Arc::strong_count(&queue) > 1 {
            deferred::collect();
        }
        assert_eq!(drops.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn readers_see_whole_values_while_they_are_replaced() {
        let cell = Arc::new(Published::new(Arc::new([0_u64; 8]), &Arc::default()));
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
