//! What threads of Rhumb share, and when it may be freed: the one door to atomics, memory mapped
//! from the system, values that readers reach without waiting. Nothing here knows what is being
//! shared.
//!
//! This crate is a part of `rhumb`, of `rhumb-index` and of the server. Its interface changes with
//! theirs, in any release. It may use `unsafe`, inside types that cannot be misused; it does no
//! I/O.
#![deny(unsafe_code)]

mod ahead;
pub mod arena;
#[cfg(not(any(loom, shuttle)))]
pub mod bulk;
#[cfg(not(any(loom, shuttle)))]
pub mod deferred;
#[cfg(not(any(loom, shuttle)))]
pub mod drop_queue;
pub mod epoch;
pub mod garbage;
#[cfg(not(any(loom, shuttle)))]
pub mod histogram;
pub mod lock;
pub mod mapping;
#[cfg(any(loom, shuttle))]
mod modelled;
#[cfg(loom)]
pub mod models;
pub mod panics;
#[cfg(not(any(loom, shuttle)))]
pub mod placed;
pub mod prefetch;
pub mod primitive;
pub mod process;
#[cfg(not(any(loom, shuttle)))]
pub mod published;
#[cfg(not(any(loom, shuttle)))]
pub mod record;
#[cfg(not(any(loom, shuttle)))]
pub mod shared_bytes;
#[cfg(not(any(loom, shuttle)))]
pub mod slot;
