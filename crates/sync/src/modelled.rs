//! The atomics and threads that `primitive` gives when a model checker runs the code: the checker's
//! own.

pub use checker::{
    hint::spin_loop,
    lazy_static,
    sync::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    },
    thread, thread_local,
};
#[cfg(loom)]
use loom as checker;
#[cfg(shuttle)]
use shuttle as checker;

/// Statics of which each run of a model has its own.
#[macro_export]
macro_rules! global {
    ($(static $name:ident: $type:ty = $init:expr;)*) => {
        $crate::primitive::lazy_static! { $(static ref $name: $type = $init;)* }
    };
}

/// Values of which each thread of a model has its own.
#[macro_export]
macro_rules! local {
    ($(static $name:ident: $type:ty = $init:expr;)*) => {
        $crate::primitive::thread_local! { $(static $name: $type = $init;)* }
    };
}

/// Models have no signals, and no compiler between them and the checker.
pub fn compiler_fence(_: Ordering) {}

/// See `primitive`: without a model checker it is nothing.
#[cfg(loom)]
pub struct Lifetime(loom::cell::UnsafeCell<()>);

#[cfg(loom)]
impl Lifetime {
    /// Begins now, and ends when it is dropped.
    pub fn new() -> Self {
        Self(loom::cell::UnsafeCell::new(()))
    }

    /// Tells the checker of an access, with which the end must not race.
    pub fn touch(&self) {
        self.0.with(|_| ());
    }
}

#[cfg(loom)]
impl Drop for Lifetime {
    fn drop(&mut self) {
        self.0.with_mut(|_| ());
    }
}
