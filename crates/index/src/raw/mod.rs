//! The memory of the index: buckets, leaves, records, and when each may be freed. Nearly all unsafe
//! code of the index is here; nothing here decides where a key belongs or when to retrain.

pub(super) mod bins;
pub(super) mod bucket;
mod claim;
pub(crate) mod epoch;
pub(super) mod gapped;
pub(super) mod garbage;
pub(super) mod head;
pub(super) mod leaf;
pub(super) mod pool;
mod segment;
pub(super) mod slots;
mod trained;
