//! The one door to atomics and locks, so that a model checker can take their place here and
//! nowhere else.

pub(crate) use std::sync::{
    Arc,
    atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
        compiler_fence, fence,
    },
};

pub(crate) use parking_lot::{Condvar, Mutex};
