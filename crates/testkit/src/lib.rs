//! What the tests of several crates share: a generator of numbers, a driver of fuzz targets, and a
//! checker of concurrent histories.
//!
//! Other crates depend on this one only for their tests, and this one depends on none of ours, so
//! unit tests may use it, too.
#![forbid(unsafe_code)]

pub mod fuzzing;
pub mod linearizability;
pub mod random;
