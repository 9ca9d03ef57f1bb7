//! Data blocks: a run of consecutive entries, written by [`BlockBuilder`] and read by
//! [`BlockView`], in memory behind a
//! [`BlockRef`](crate::slice::BlockRef).
//!
//! A block knows nothing of files, checksums or compression, and decides nothing about which
//! entries it gets. Its bytes are trusted no further than their bounds: any bytes at all may be
//! read without a panic.

mod builder;
pub(crate) mod view;

pub(crate) use builder::BlockBuilder;
pub(crate) use view::{BlockView, Damaged, Found, Shape, Target};
