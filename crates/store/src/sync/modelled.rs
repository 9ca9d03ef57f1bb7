//! What stands behind the door where a model checker runs the code: its atomics and threads, and its
//! locks with the interface of the usual ones.

#[cfg(loom)]
use loom as checker;
#[cfg(shuttle)]
use shuttle as checker;
use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};

pub(crate) use checker::{
    hint::spin_loop,
    lazy_static,
    sync::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    },
    thread, thread_local,
};

macro_rules! global {
    ($(static $name:ident: $type:ty = $init:expr;)*) => {
        $crate::sync::primitive::lazy_static! { $(static ref $name: $type = $init;)* }
    };
}

macro_rules! local {
    ($(static $name:ident: $type:ty = $init:expr;)*) => {
        $crate::sync::primitive::thread_local! { $(static $name: $type = $init;)* }
    };
}

pub(crate) use {global, local};

/// Models have no signals, and no compiler between them and the checker.
pub(crate) fn compiler_fence(_: Ordering) {}

/// A lock; models whose threads panic fail as a whole, so that it is never poisoned.
#[derive(Default)]
pub(crate) struct Mutex<T>(checker::sync::Mutex<T>);

/// Holds a lock; empty only while a condition is waited for.
pub(crate) struct MutexGuard<'a, T>(Option<checker::sync::MutexGuard<'a, T>>);

const HELD: &str = "the lock is held";

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(checker::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(self.0.lock().ok())
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect("no thread has panicked")
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect(HELD)
    }
}

/// See `primitive`, where it is nothing.
#[cfg(loom)]
pub(crate) struct Lifetime(loom::cell::UnsafeCell<()>);

#[cfg(loom)]
impl Lifetime {
    pub(crate) fn new() -> Self {
        Self(loom::cell::UnsafeCell::new(()))
    }

    pub(crate) fn touch(&self) {
        self.0.with(|_| ());
    }
}

#[cfg(loom)]
impl Drop for Lifetime {
    fn drop(&mut self) {
        self.0.with_mut(|_| ());
    }
}

/// How every wait for a condition ends.
pub(crate) struct NotTimedOut;

impl NotTimedOut {
    pub(crate) fn timed_out(&self) -> bool {
        false
    }
}

/// A condition to wait for.
#[derive(Default)]
pub(crate) struct Condvar(checker::sync::Condvar);

impl Condvar {
    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.0 = guard.0.take().and_then(|held| self.0.wait(held).ok());
    }

    /// Models have no time: nothing is ever over.
    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) -> NotTimedOut {
        self.wait(guard);
        NotTimedOut
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}
