//! What is freed, and when: garbage, values, and what a scan holds back.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use rhumb_sync::epoch;

use crate::Index;

/// A long scan holds no memory back, also if its other end has read entries that nobody asks for.
#[test]
fn a_long_scan_ends_its_pin_from_time_to_time() {
    const KEYS: u64 = 300_000;
    let index = Index::<u64, u64>::new();
    index.bulk_load((0..KEYS).map(|key| (key, key))).unwrap();
    for is_reversed in [false, true] {
        // Threads of other tests may be pinned for a while.
        let has_passed = (0..600).any(|_| {
            let mut scan = index.iter();
            let mut step = |is_back: bool| if is_back { scan.next_back() } else { scan.next() };
            let start = epoch::current();
            let other = if is_reversed { 0 } else { KEYS - 1 };
            assert_eq!(step(!is_reversed), Some((other, other)));
            for i in 0..KEYS / 2 {
                let key = if is_reversed { KEYS - 1 - i } else { i };
                assert_eq!(step(is_reversed), Some((key, key)));
                if i % 1000 == 0 {
                    epoch::try_advance();
                }
            }
            // The other end goes on where it was.
            let next = if is_reversed { 1 } else { KEYS - 2 };
            assert_eq!(step(!is_reversed), Some((next, next)));
            epoch::current() > start + 1
        });
        assert!(has_passed, "reversed: {is_reversed}");
    }
}

/// What threads that have ended retired waits for threads that take their places, or for this.
#[test]
fn tuning_frees_what_any_thread_has_retired() {
    let index = Index::<u64, String>::new();
    (0..800).for_each(|key| drop(index.insert(key, key.to_string())));
    thread::scope(|scope| {
        let index = &index;
        for first in 0..8 {
            scope.spawn(move || {
                (0..100).for_each(|i| assert!(index.remove(&(first + 8 * i)).is_some()));
            });
        }
    });
    assert!(index.core.garbage_bytes() > 0);
    // Other tests' threads may be pinned for a while.
    assert!((0..6000).any(|_| {
        index.tune();
        thread::sleep(Duration::from_millis(1));
        index.core.garbage_bytes() == 0
    }));
}

/// Counts its end, and panics if it is one of a thousand.
struct Panicking(&'static AtomicUsize, u64);

impl Clone for Panicking {
    fn clone(&self) -> Self {
        Self(self.0, 1)
    }
}

impl Drop for Panicking {
    fn drop(&mut self) {
        // Those that the map gives away do not count.
        if self.1 != 1 {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        assert!(!self.1.is_multiple_of(1000), "value {}", self.1);
    }
}

#[test]
fn a_value_whose_drop_panics_keeps_no_other_from_its_end() {
    const KEYS: u64 = 6000;
    static ENDS: AtomicUsize = AtomicUsize::new(0);
    let panics = |act: &mut dyn FnMut()| catch_unwind(AssertUnwindSafe(act)).is_err();
    let index = Index::<u64, Panicking>::new();
    // Leaves are split meanwhile.
    for key in 0..KEYS {
        panics(&mut || drop(index.insert(key, Panicking(&ENDS, key + 2))));
        if key.is_multiple_of(3) {
            panics(&mut || drop(index.remove(&key)));
        }
    }
    let left = (KEYS / 3 * 2) as usize;
    assert_eq!((index.len(), index.iter().count()), (left, left));
    panics(&mut || {
        index.tune();
    });
    let mut index = Some(index);
    assert!(panics(&mut || drop(index.take())), "some of those that were left");
    assert_eq!(ENDS.load(Ordering::Relaxed), KEYS as usize);
}
