//! Reads that go on at the same time: many keys at once, asynchronous reads, and scans that read ahead,
//! by the kernel's queue and by threads, with caches that hold next to nothing.
//!
//! `RHUMB_ASYNC_ROUNDS` says how many rounds each suite makes.

mod cancel;
mod common;
mod damage;
mod differential;
mod expected;
mod faults;
mod shared;
