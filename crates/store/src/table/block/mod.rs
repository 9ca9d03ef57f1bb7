//! Data blocks: a run of consecutive entries, written by [`BlockBuilder`] and read by
//! [`BlockView`], in memory behind a [`BlockRef`].
//!
//! A block knows nothing of files, checksums or compression, and decides nothing about which
//! entries it gets. Its bytes are trusted no further than their bounds: any bytes at all may be
//! read without a panic.

use std::fmt;

use rhumb_sync::shared_bytes::SharedBytes;

use crate::slice::Slice;

mod builder;
pub(crate) mod view;

pub(crate) use builder::BlockBuilder;
pub(crate) use view::{BlockView, Damaged, Found, Shape, Target};

/// A data block in memory: shared, immutable, its payload behind one pointer.
#[derive(Clone)]
pub struct BlockRef(SharedBytes);

impl BlockRef {
    /// Values up to this many bytes are copied out of a block: cheaper than sharing it, and the
    /// block need not stay in memory for them.
    pub(crate) const COPY_BYTES_MAX: usize = 22;

    /// Copies a payload into a block of its own.
    #[cfg(test)]
    pub(crate) fn copy_from(payload: &[u8]) -> Self {
        Self(SharedBytes::copy_from(payload))
    }

    /// The block behind the bytes that a cache slot shares.
    #[inline]
    pub(crate) fn from_shared(bytes: SharedBytes) -> Self {
        Self(bytes)
    }

    /// The bytes, to be shared by a cache slot.
    pub(crate) fn to_shared(&self) -> SharedBytes {
        self.0.clone()
    }

    /// The payload, uncompressed.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns true if the block lies in the cache's memory.
    pub(crate) fn is_placed(&self) -> bool {
        self.0.is_placed()
    }

    /// The memory that the block takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }

    /// `len` bytes of the payload from `start`, which must lie within it.
    #[inline]
    pub(crate) fn slice(&self, start: usize, len: usize) -> Slice {
        if len <= Self::COPY_BYTES_MAX {
            return Slice::copy_from(&self.bytes()[start..start + len]);
        }
        self.clone().into_slice(start, len)
    }

    /// [`BlockRef::slice`] of more than [`BlockRef::COPY_BYTES_MAX`] bytes, which takes the block, and so
    /// its count, along.
    #[inline]
    pub(crate) fn into_slice(self, start: usize, len: usize) -> Slice {
        const SMALL: &str = "a block's length is a u32 of its frame";
        let start = u32::try_from(start).expect(SMALL);
        Slice::from_block(self, start, u32::try_from(len).expect(SMALL))
    }
}

impl fmt::Debug for BlockRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockRef({} bytes)", self.bytes().len())
    }
}
