//! Leveled compaction: choosing what to merge next, and the merging.
//!
//! These are functions over tables and levels. They take no lock and change nothing: `db` runs
//! compactions and makes their outputs a part of the database.

pub(crate) mod expired;
pub(crate) mod garbage;
pub(crate) mod job;
pub(crate) mod joins;
pub(crate) mod merge;
mod output;
pub(crate) mod pack;
pub(crate) mod picker;
pub(crate) mod warm;
