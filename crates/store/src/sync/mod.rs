//! Sharing between threads without locks: what the rest of the engine builds on instead of raw
//! atomics and pointers. Nothing here knows what is being shared.

pub(crate) mod epoch;
