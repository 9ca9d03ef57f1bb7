//! The bytes of the log: segments, frames, and the two kinds of payload that a frame has.
//! `docs/format/log.md` describes them. No I/O here.

pub(crate) mod batch;
pub(crate) mod creation;
pub(crate) mod frame;
pub(crate) mod segment;
