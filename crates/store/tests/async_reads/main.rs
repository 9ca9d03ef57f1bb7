//! Simultaneous reads: of many keys at once, asynchronous ones, and read-ahead of scans, by the
//! kernel's queue and by threads, with caches that hold next to nothing.
//!
//! `RHUMB_ASYNC_ROUNDS` sets the number of rounds of each suite.

mod cancel;
mod common;
mod damage;
mod differential;
mod expected;
mod faults;
mod shared;
