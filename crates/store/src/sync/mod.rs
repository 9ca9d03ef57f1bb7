//! Sharing between threads without locks: the one door to atomics, and memory reclaimed by epochs.
//! Nothing here knows what is being shared.
//!
//! The only unsafe code of the engine lives here, behind types that cannot be misused.

#![cfg_attr(any(alone, loom, shuttle), allow(dead_code, reason = "the engine's part is left out"))]

mod ahead;
pub(crate) mod arena;
#[cfg(not(any(alone, loom, shuttle)))]
pub(crate) mod bulk;
#[cfg(not(any(alone, loom, shuttle)))]
pub(crate) mod epoch;
#[cfg(not(any(alone, loom, shuttle)))]
pub(crate) mod limbo;
pub(crate) mod lock;
pub(crate) mod mapping;
#[cfg(any(loom, shuttle))]
mod modelled;
#[cfg(not(any(alone, loom, shuttle)))]
pub(crate) mod placed;
pub(crate) mod prefetch;
pub(crate) mod primitive;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod process;
#[cfg(not(any(alone, loom, shuttle)))]
pub(crate) mod published;
#[cfg(not(any(alone, loom, shuttle)))]
pub(crate) mod record;
#[cfg(not(any(alone, loom, shuttle)))]
pub(crate) mod shared_bytes;
