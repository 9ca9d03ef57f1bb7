//! Locks that notice when the thread that holds them panics.
//!
//! The engine's locks do not poison, and what the write lock and the catalog protect spans memory
//! and disk: a thread that unwinds in the middle may leave a record in the log that is in no
//! memtable, or an edit in the manifest that the levels do not have. Nothing may build on that, so
//! such a panic stops all writes, flushes' and compactions' edits included, until the database is
//! reopened. The log and the manifest are then read as after a crash at that point.
//!
//! Reads go on. A get may find operations of the group whose commit panicked, which was
//! acknowledged to no writer; snapshots and scans do not.

use std::ops::{Deref, DerefMut};

use rhumb_sync::primitive::MutexGuard;

use super::{catalog::Catalog, core::Core, shared::Shared, writer::WriteState};

/// A lock of the database that is held.
pub(crate) struct Held<'c, T> {
    guard: MutexGuard<'c, T>,
    shared: &'c Shared,
    /// True if the thread was panicking already: a destructor that runs during an older panic does
    /// no harm here.
    was_panicking: bool,
}

impl<'c, T> Held<'c, T> {
    fn new(shared: &'c Shared, guard: MutexGuard<'c, T>) -> Self {
        Self { guard, shared, was_panicking: std::thread::panicking() }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if !self.was_panicking && std::thread::panicking() {
            self.shared.stop_after_panic();
        }
    }
}

impl Core {
    /// Takes the write lock.
    #[inline]
    pub(crate) fn lock_write(&self) -> Held<'_, WriteState> {
        Held::new(&self.shared, self.writer.state.lock())
    }

    /// Takes the write lock if it is free.
    pub(crate) fn try_lock_write(&self) -> Option<Held<'_, WriteState>> {
        Some(Held::new(&self.shared, self.writer.state.try_lock()?))
    }

    /// Takes the catalog.
    pub(crate) fn lock_catalog(&self) -> Held<'_, Catalog> {
        Held::new(&self.shared, self.catalog.lock())
    }
}
