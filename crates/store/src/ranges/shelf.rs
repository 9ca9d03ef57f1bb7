//! A list that only grows, and is read while it does.
//!
//! Thread safety: any number of threads may read; one at a time adds. The thread that adds tells
//! readers of the new length in its own way, after [`Shelf::put`].

use std::sync::OnceLock;

/// The number of slots in the first row; each further row has twice as many.
const FIRST: usize = 8;
/// The number of rows; this many rows hold more than memory does.
const ROWS: usize = 32;

/// Items by their number, in rows that stay where they are.
pub(super) struct Shelf<T> {
    rows: [OnceLock<Box<[OnceLock<T>]>>; ROWS],
}

impl<T> Shelf<T> {
    pub(super) fn new() -> Self {
        Self { rows: std::array::from_fn(|_| OnceLock::new()) }
    }

    /// The number of the row of item `at`, the row's length, and the item's index in it.
    fn locate(at: usize) -> (usize, usize, usize) {
        let row = ((at + FIRST) / FIRST).ilog2() as usize;
        let len = FIRST << row;
        (row, len, at + FIRST - len)
    }

    /// Item `at`, if it was put.
    #[inline]
    pub(super) fn get(&self, at: usize) -> Option<&T> {
        let (row, _, index) = Self::locate(at);
        self.rows.get(row)?.get()?.get(index)?.get()
    }

    /// Puts item `at`, which was not put before.
    pub(super) fn put(&self, at: usize, item: T) {
        let (row, len, index) = Self::locate(at);
        let Some(row) = self.rows.get(row) else { return };
        let row = row.get_or_init(|| (0..len).map(|_| OnceLock::new()).collect());
        // Refused only if it was put before.
        let _ = row[index].set(item);
    }
}
