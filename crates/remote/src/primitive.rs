//! The one door to atomics and locks, so that a model checker can take their place here and nowhere
//! else: `--cfg loom` or `--cfg shuttle` (CONTRIBUTING.md says how).

#[cfg(all(
    test,
    target_os = "linux",
    target_pointer_width = "64",
    not(any(loom, shuttle, miri))
))]
pub(crate) use crate::points::point;
#[cfg(loom)]
pub(crate) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, Ordering, fence},
    thread::yield_now,
};
#[cfg(shuttle)]
pub(crate) use shuttle::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, Ordering, fence},
    thread::yield_now,
};
#[cfg(all(unix, not(any(loom, shuttle))))]
pub(crate) use std::sync::Mutex;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, Ordering, fence},
    thread::yield_now,
};

/// Returns true where a model checker runs the code: sizes are small then, so that what is rare is
/// soon reached.
pub(crate) const IS_MODEL: bool = cfg!(any(loom, shuttle));

/// A moment between two steps of a change that readers may see: tests have a host end there.
#[cfg(not(all(
    test,
    target_os = "linux",
    target_pointer_width = "64",
    not(any(loom, shuttle, miri))
)))]
#[inline]
pub(crate) fn point() {}
