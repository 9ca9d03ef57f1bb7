//! The one door to atomics and locks, so that a model checker can take their place here and
//! nowhere else.

pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

pub(crate) use parking_lot::{Condvar, Mutex};
