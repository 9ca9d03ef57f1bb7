//! The memory of the index: buckets, leaves, records, and when each may be freed. Nearly all unsafe
//! code of the index is here; nothing here decides where a key belongs or when to retrain.

pub(super) mod bucket;
pub(super) mod epoch;
pub(super) mod garbage;
pub(super) mod leaf;
pub(super) mod record;
pub(super) mod simd;
