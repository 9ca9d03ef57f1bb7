//! Sharing between threads without locks: the one door to atomics, and memory reclaimed by epochs.
//! Nothing here knows what is being shared.
//!
//! The only unsafe code of the engine lives here, behind types that cannot be misused.

pub(crate) mod arena;
pub(crate) mod epoch;
pub(crate) mod limbo;
pub(crate) mod prefetch;
pub(crate) mod primitive;
pub(crate) mod published;
pub(crate) mod shared_bytes;
