//! How much a worker does for one client before it lets the others go on: a count of steps, not a
//! time, for the test of isolation.
//!
//! A step is an entry that is looked up, walked over or written, or [`BYTES_OF_STEP`] that are
//! written or replied. Steps are counted in builds that check their assertions, and cost nothing in
//! others.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering},
};

use rhumb_sync::mapping::release;

/// Bytes that count as one step: copying them takes less time than looking an entry up.
const BYTES_OF_STEP: usize = 256;

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Counts an entry of this number of bytes.
#[inline]
pub(crate) fn entry(bytes: usize) {
    steps(1 + (bytes / BYTES_OF_STEP) as u64);
}

/// Counts steps.
#[inline]
pub(crate) fn steps(steps: u64) {
    if cfg!(debug_assertions) {
        STEPS.with(|all| all.set(all.get() + steps));
    }
}

/// Counts a reply of this number of bytes.
#[inline]
pub(crate) fn reply(bytes: usize) {
    steps((bytes / BYTES_OF_STEP) as u64);
}

/// Does what takes long while another thread serves the worker's other clients: it does not count.
pub(crate) fn beside_others<T>(work: impl FnOnce() -> T) -> T {
    let before = STEPS.get();
    let done = tokio::task::block_in_place(work);
    STEPS.set(before);
    done
}

/// Bytes from which a buffer is freed beside the worker's other clients: a megabyte of small pages
/// takes a quarter of a millisecond.
const LARGE_BUFFER: usize = 4 << 20;

/// Frees a buffer.
pub(crate) fn free(buffer: Vec<u8>) {
    if buffer.capacity() >= LARGE_BUFFER {
        beside_others(|| release(buffer));
    }
}

/// The most steps that a worker has made at a time.
#[derive(Debug, Default)]
pub(crate) struct MostSteps(AtomicU64);

impl MostSteps {
    /// Begins to count.
    #[inline]
    pub(crate) fn begin(&self) -> Counting<'_> {
        if cfg!(debug_assertions) {
            STEPS.set(0);
        }
        Counting(self)
    }

    /// The most steps since this was asked for last.
    pub(crate) fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

/// Counts until it is dropped.
pub(crate) struct Counting<'m>(&'m MostSteps);

impl Drop for Counting<'_> {
    #[inline]
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            self.0.0.fetch_max(STEPS.get(), Ordering::Relaxed);
        }
    }
}
