//! Leveled compaction: what to merge next, and the merging.
//!
//! Functions over tables and levels. They take no lock and change nothing: who does compactions, and
//! makes their outputs a part of the database, is `db`.

pub(crate) mod garbage;
pub(crate) mod job;
pub(crate) mod joins;
pub(crate) mod merge;
mod output;
pub(crate) mod pack;
pub(crate) mod picker;
pub(crate) mod warm;
