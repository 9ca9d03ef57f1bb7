//! The memory of the index: buckets, leaves, records, and when each may be freed. Nearly all unsafe
//! code of the index is here; nothing here decides where a key belongs or when to retrain.

pub(crate) mod bucket;
pub(crate) mod leaf;
pub(crate) mod noted;
pub(crate) mod pool;
