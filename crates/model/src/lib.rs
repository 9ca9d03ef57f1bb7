//! Learned models over sorted keys: sorted keys in, bounded positions out.
//!
//! This crate does no I/O, starts no threads and holds no unsafe code.
#![forbid(unsafe_code)]
