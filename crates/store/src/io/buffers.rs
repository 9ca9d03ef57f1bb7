//! Buffers for reads, used again and counted: as many as are lent are being read into or still looked
//! at by somebody. Knows nothing of files.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use super::AlignedBuf;
use crate::sync::primitive::{Arc, AtomicU64, Mutex, Ordering};

/// Buffers of up to this many bytes are kept apart from larger ones.
const SMALL_BYTES_MAX: usize = 32 << 10;
/// How many bytes of each of the two kinds are kept for the next reads.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// Buffers that are free, and how many are not.
#[derive(Default)]
pub(crate) struct Buffers {
    small: Mutex<Kept>,
    large: Mutex<Kept>,
    lent: AtomicU64,
}

#[derive(Default)]
struct Kept {
    buffers: Vec<AlignedBuf>,
    bytes: usize,
}

impl Buffers {
    /// A buffer of `len` bytes, whose content is unspecified.
    pub(crate) fn lend(self: &Arc<Self>, len: usize) -> ReadBuf {
        let kept = {
            let mut kept = self.kept(len).lock();
            let buffer = kept.buffers.pop();
            kept.bytes -= buffer.as_ref().map_or(0, AlignedBuf::capacity);
            buffer
        };
        let mut bytes = kept.unwrap_or_default();
        bytes.resize_for(len);
        self.lent.fetch_add(1, Ordering::Relaxed);
        ReadBuf { bytes, home: Arc::clone(self) }
    }

    /// Buffers that are lent at present.
    pub(crate) fn lent(&self) -> u64 {
        self.lent.load(Ordering::Relaxed)
    }

    fn kept(&self, len: usize) -> &Mutex<Kept> {
        if len <= SMALL_BYTES_MAX { &self.small } else { &self.large }
    }
}

/// A lent buffer; goes back when it is dropped.
pub(crate) struct ReadBuf {
    bytes: AlignedBuf,
    home: Arc<Buffers>,
}

impl ReadBuf {
    /// The bytes, to be handed to a queue; the rest waits for them.
    pub(crate) fn take(&mut self) -> AlignedBuf {
        std::mem::take(&mut self.bytes)
    }

    /// Puts back what was taken.
    pub(crate) fn put(&mut self, bytes: AlignedBuf) {
        self.bytes = bytes;
    }
}

impl Deref for ReadBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for ReadBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for ReadBuf {
    fn drop(&mut self) {
        let bytes = self.take();
        let capacity = bytes.capacity();
        if capacity > 0 {
            let mut kept = self.home.kept(capacity).lock();
            if kept.bytes + capacity <= KEPT_BYTES_MAX {
                kept.bytes += capacity;
                kept.buffers.push(bytes);
            }
        }
        self.home.lent.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for ReadBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again_and_counted() {
        let buffers = Arc::new(Buffers::default());
        let one = buffers.lend(8192);
        let place = one.as_ptr();
        let other = buffers.lend(1 << 20);
        assert_eq!(buffers.lent(), 2);
        drop(one);
        assert_eq!(buffers.lend(4096).as_ptr(), place);
        drop(other);
        assert_eq!(buffers.lent(), 0);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let buffers = Arc::new(Buffers::default());
        let lent: Vec<ReadBuf> = (0..100).map(|_| buffers.lend(256 << 10)).collect();
        drop(lent);
        assert!(buffers.large.lock().bytes <= KEPT_BYTES_MAX);
        assert_eq!(buffers.lent(), 0);
    }
}
