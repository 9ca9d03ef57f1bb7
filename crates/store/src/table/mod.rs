//! Tables: immutable sorted files of entries, found by a pinned index block and a pinned filter.

pub(crate) mod block;
pub(crate) mod index_block;

pub use block::BlockRef;
