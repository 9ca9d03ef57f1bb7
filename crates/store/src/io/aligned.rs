//! Memory for reads past the page cache: buffers whose address is a multiple of
//! [`DIRECT_ALIGN`]. Holds bytes and knows nothing of files.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use rhumb_sync::bulk::Bulk;

use super::DIRECT_ALIGN;

/// A byte buffer that starts at a multiple of [`DIRECT_ALIGN`].
///
/// It lies inside a slightly larger allocation, with at most [`DIRECT_ALIGN`] - 1 unused bytes.
#[derive(Default)]
pub struct AlignedBuf {
    storage: Bulk<u8>,
    /// Where the aligned part starts in `storage`.
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// A buffer of `len` zero bytes. `len` itself need not be a multiple of anything.
    #[must_use]
    pub fn new(len: usize) -> Self {
        if len == 0 {
            return Self::default();
        }
        let storage = Bulk::zeroed(len + DIRECT_ALIGN - 1);
        let address = storage.as_ptr().addr();
        let start = address.next_multiple_of(DIRECT_ALIGN) - address;
        Self { storage, start, len }
    }

    /// Makes the buffer `len` bytes long. Its content is then unspecified (but initialised): this
    /// is for a buffer that is about to be read into. Allocates only if `len` is over
    /// [`AlignedBuf::capacity`].
    pub fn resize_for(&mut self, len: usize) {
        if len <= self.capacity() {
            self.len = len;
        } else {
            *self = Self::new(len);
        }
    }

    /// The largest length of the buffer without an allocation, in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.storage.len() - self.start
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.storage[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..self.start + self.len]
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuf").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_aligned(buf: &AlignedBuf) -> bool {
        buf.as_ptr().addr().is_multiple_of(DIRECT_ALIGN)
    }

    #[test]
    fn every_length_is_aligned_zeroed_and_exact() {
        for len in [1, 7, 511, 4095, 4096, 4097, 1 << 20] {
            let buf = AlignedBuf::new(len);
            assert!(is_aligned(&buf), "length {len}");
            assert_eq!(buf.len(), len);
            assert!(buf.iter().all(|&byte| byte == 0));
        }
        assert!(AlignedBuf::new(0).is_empty());
    }

    #[test]
    fn resizing_keeps_the_allocation_while_it_is_large_enough() {
        let mut buf = AlignedBuf::new(8192);
        let address = buf.as_ptr();
        buf.resize_for(100);
        assert_eq!((buf.len(), buf.as_ptr()), (100, address));
        buf.resize_for(8192);
        assert_eq!((buf.len(), buf.as_ptr()), (8192, address));
        buf.resize_for(1 << 20);
        assert_eq!(buf.len(), 1 << 20);
        assert!(is_aligned(&buf));
        buf[(1 << 20) - 1] = 7;
    }
}
