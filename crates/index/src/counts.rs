//! Counts of what threads have done. They say what no clock can say on a machine that does other
//! things as well.

use std::cell::Cell;

use rhumb_sync::primitive::local;

local! {
    static MOVED: Cell<u64> = Cell::new(0);
}

/// The number of copies that the calling thread has made so far to change the structure of the maps
/// that it has used: entries into new leaves, leaves into new groups, and groups into new roots.
///
/// Its growth over an operation tells how much the operation did besides its own work; no clock can
/// say so on a machine that does other things as well. Takes about a nanosecond.
#[must_use]
pub fn moved_by_thread() -> u64 {
    MOVED.with(Cell::get)
}

/// Counts what the thread has copied.
pub(crate) fn count_moved(count: usize) {
    MOVED.with(|moved| moved.set(moved.get() + count as u64));
}

#[cfg(any(test, feature = "counts"))]
thread_local! {
    static PLACES: Cell<usize> = const { Cell::new(0) };
}

/// Adds to the places and leaves that scans of this thread came to, and returns them all.
#[cfg(any(test, feature = "counts"))]
pub fn count_places(more: usize) -> usize {
    PLACES.with(|places| {
        places.set(places.get() + more);
        places.get()
    })
}
