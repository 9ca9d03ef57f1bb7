//! The memory of the index: words and what they stand for, buckets, leaves, the tree that leads to
//! them, and when each may be freed. What it hands out is borrowed from a guard, or from what is,
//! so that the modules above follow no pointer. Nothing here decides by what a leaf is replaced, or
//! when.

pub(crate) mod branch;
pub(crate) mod bucket;
pub(crate) mod keyed;
pub(crate) mod leaf;
pub(crate) mod noted;
pub(crate) mod pool;
pub(crate) mod record;
pub(crate) mod schema;
pub(crate) mod tree;
