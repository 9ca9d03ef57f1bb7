//! Concurrency primitives: the one door to atomics, and memory reclaimed by epochs.
//!
//! The only unsafe code of the engine lives here, behind types that cannot be misused.

pub(crate) mod primitive;
pub(crate) mod published;
