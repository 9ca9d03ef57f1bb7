//! How the types of Redis lie in ordered keyspaces. `docs/format/server.md` has the bytes.
//!
//! Pure functions from values to bytes and back; bytes that were not written here are an error and
//! never a panic.

pub(crate) mod entry;
pub(crate) mod format;
pub(crate) mod member;
pub(crate) mod stream;
pub(crate) mod stream_member;
pub(crate) mod stream_page;

pub(crate) use entry::{Edited, Entry, Kind, Meta};
pub(crate) use stream::{ConsumerRecord, GroupRecord, PendingRecord, StreamId, StreamMeta};
