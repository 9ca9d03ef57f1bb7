//! Leveled compaction: what to merge next, and the merging.

mod garbage;
pub(crate) mod joins;
mod output;
mod pack;
pub(crate) mod picker;
pub(crate) mod retain;
mod small;
mod warm;
pub(crate) mod worker;
