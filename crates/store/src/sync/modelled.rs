//! What stands behind the door where a model checker runs the code: its atomics and threads.

pub(crate) use checker::{
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
