//! Leaves of other kinds, as the published systems have them: slots within predicted windows
//! (LOFT), sorted arrays with gaps (TONE), trained arrays with bins (FineStore). They are for
//! comparison; the engine is built without them.
//!
//! As in `raw`, nothing here decides where a key belongs or when a leaf is replaced.

pub(crate) mod bins;
mod claim;
pub(crate) mod gapped;
pub(crate) mod head;
mod segment;
pub(crate) mod slots;
mod trained;
