//! What the tests of several crates share: a generator of numbers, and a checker of concurrent
//! histories.
//!
//! No crate depends on this one but for its tests, and this one depends on none of ours, so that unit
//! tests may use it, too.
#![forbid(unsafe_code)]

pub mod linearizability;
pub mod random;
