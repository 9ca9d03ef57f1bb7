//! The write-ahead log: what was acknowledged, in order, until tables hold it.
//!
//! A log is a chain of segment files, each written once, front to back, and never again after it
//! was closed. [`LogWriter`] appends records to the newest one; [`recover`] replays them all and
//! tells a torn tail, which a crash may leave, from damage, which is an error. The bytes and the
//! rule are in `docs/format/log.md`.
//!
//! This module knows nothing of memtables, threads or locks: it is given records and hands them
//! back. It never removes a segment, and it never makes a promise about bytes that it did not see
//! synced.

pub(crate) mod batch;
pub(crate) mod begin;
pub(crate) mod follow;
pub(crate) mod format;
pub(crate) mod reader;
pub(crate) mod recovery;
pub(crate) mod segment;
#[cfg(test)]
mod tests;
pub(crate) mod writer;

pub(crate) use format::{creation, frame};
pub(crate) use recovery::{LogRecord, LogStart, Recovery, recover};
pub(crate) use writer::{LogWriter, SegmentSync};

/// A place in the log: bytes from the beginning of the first segment, over all segments. A
/// segment's header counts as bytes too, so every byte of a segment has its own place.
pub(crate) type Lsn = u64;
