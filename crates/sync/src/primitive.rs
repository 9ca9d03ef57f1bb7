//! The one door to atomics, locks and threads, so that a model checker can take their place here
//! and nowhere else: `--cfg loom` or `--cfg shuttle`, of the index alone (see CONTRIBUTING.md).

pub use super::lock::{Condvar, Mutex, MutexGuard};
#[cfg(any(loom, shuttle))]
pub use super::modelled::*;
pub use std::sync::{Arc, atomic::Ordering};
#[cfg(not(any(loom, shuttle)))]
pub use std::{
    hint::spin_loop,
    sync::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, compiler_fence, fence,
    },
    thread,
};

/// Statics; under a model checker each run has its own.
#[cfg(not(any(loom, shuttle)))]
#[macro_export]
macro_rules! global {
    ($(static $name:ident: $type:ty = $init:expr;)*) => {
        $(static $name: $type = $init;)*
    };
}

/// Values of which each thread has its own.
#[cfg(not(any(loom, shuttle)))]
#[macro_export]
macro_rules! local {
    ($(static $name:ident: $type:ty = $init:expr;)*) => {
        std::thread_local! { $(static $name: $type = const { $init };)* }
    };
}

pub use crate::{global, local};

/// Tells loom when its owner is used and when it is dropped, so that loom finds a use that is not
/// certain to come before the end. Nothing otherwise.
#[cfg(not(loom))]
pub struct Lifetime;

#[cfg(not(loom))]
impl Lifetime {
    /// Begins.
    #[expect(clippy::new_without_default, reason = "a model checker has to see where it is made")]
    #[must_use]
    pub fn new() -> Self {
        Self
    }

    /// Records a use.
    #[inline(always)]
    pub fn touch(&self) {}
}

/// True if a model checker runs the code.
pub const IS_MODEL: bool = cfg!(any(loom, shuttle));

/// A size that is small in models, so that they soon reach rare cases.
pub const fn in_models(usual: usize, small: usize) -> usize {
    if IS_MODEL { small } else { usual }
}
