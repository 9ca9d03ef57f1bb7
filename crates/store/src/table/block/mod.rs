//! Data blocks in memory.

use std::fmt;

/// A data block in memory: shared, immutable, its payload behind one pointer.
#[derive(Clone)]
pub struct BlockRef(triomphe::ThinArc<(), u8>);

impl BlockRef {
    /// The payload, uncompressed.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.0.slice
    }
}

impl fmt::Debug for BlockRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockRef({} bytes)", self.bytes().len())
    }
}
