//! Data blocks: a run of consecutive entries, written by [`BlockBuilder`], and read by
//! [`BlockView`] from the memory of a [`BlockRef`](crate::slice::BlockRef).
//!
//! A block knows nothing of files, checksums or compression, and does not decide which entries it
//! gets. Nothing but its bounds is trusted: any bytes at all can be read without a panic.

mod builder;
pub(crate) mod view;

pub(crate) use builder::BlockBuilder;
pub(crate) use view::{BlockView, Damaged, Found, SeekTarget, Shape};
