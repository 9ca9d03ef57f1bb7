//! Locks and conditions of the standard library, or of a model checker, without poisoning.
//!
//! They keep their state in themselves. `parking_lot` keeps the threads that wait in one table for
//! the whole process: a child that is forked while another thread is in that table can never wait
//! for anything again, not even for a thread of a database of its own.
//!
//! The code that can panic in the middle of a change decides what that means: `db/hold.rs`.

use std::{
    ops::{Deref, DerefMut},
    sync::PoisonError,
    time::Duration,
};

#[cfg(loom)]
use loom::sync as basis;
#[cfg(shuttle)]
use shuttle::sync as basis;
#[cfg(not(any(loom, shuttle)))]
use std::sync as basis;
#[cfg(not(any(loom, shuttle)))]
use std::sync::TryLockError;

/// A lock that a panic does not poison.
#[derive(Debug, Default)]
pub struct Mutex<T>(basis::Mutex<T>);

impl<T> Mutex<T> {
    /// A lock that no thread holds.
    #[cfg(not(any(loom, shuttle)))]
    pub const fn new(value: T) -> Self {
        Self(basis::Mutex::new(value))
    }

    /// A lock that no thread holds.
    #[cfg(any(loom, shuttle))]
    pub fn new(value: T) -> Self {
        Self(basis::Mutex::new(value))
    }

    /// Waits until the lock is free, and takes it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Takes the lock if it is free.
    #[cfg(not(any(loom, shuttle)))]
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(MutexGuard(Some(guard))),
            Err(TryLockError::Poisoned(poisoned)) => Some(MutexGuard(Some(poisoned.into_inner()))),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The value that it guards, by the only reference there is.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Holds a lock until it is dropped; empty only while [`Condvar`] waits.
#[derive(Debug)]
pub struct MutexGuard<'a, T>(Option<basis::MutexGuard<'a, T>>);

/// Explains why a guard is never found empty: [`Condvar`] borrows it mutably while it waits.
const HELD: &str = "a guard holds its lock";

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect(HELD)
    }
}

/// The end of a wait with a limit.
pub struct Waited {
    timed_out: bool,
}

impl Waited {
    /// Returns true if the limit passed first.
    pub fn timed_out(&self) -> bool {
        self.timed_out
    }
}

/// A condition to wait for.
#[derive(Debug, Default)]
pub struct Condvar(basis::Condvar);

impl Condvar {
    /// A condition that no thread waits for.
    #[cfg(not(any(loom, shuttle)))]
    pub const fn new() -> Self {
        Self(basis::Condvar::new())
    }

    /// Releases the lock, waits for a notice, and takes the lock again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect(HELD);
        guard.0 = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    /// As [`Condvar::wait`], for no longer than `limit`.
    #[cfg(not(any(loom, shuttle)))]
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, limit: Duration) -> Waited {
        let held = guard.0.take().expect(HELD);
        let waited = self.0.wait_timeout(held, limit);
        let (held, result) = waited.unwrap_or_else(PoisonError::into_inner);
        guard.0 = Some(held);
        Waited { timed_out: result.timed_out() }
    }

    /// Models have no time: the limit never passes.
    #[cfg(any(loom, shuttle))]
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) -> Waited {
        self.wait(guard);
        Waited { timed_out: false }
    }

    /// Ends the wait of one thread, if any waits.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Ends the wait of all threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
