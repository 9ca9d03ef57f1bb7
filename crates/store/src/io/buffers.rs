//! Reusable buffers for reads, counted: a lent buffer is being read into, or its bytes are still
//! looked at. Says when lent buffers take too much memory for anything to be read ahead. Knows
//! nothing of files.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use rhumb_sync::primitive::{Arc, AtomicU64, AtomicUsize, Mutex, Ordering};

use super::AlignedBuf;

/// Buffers of up to this many bytes have a free list of their own.
const SMALL_BYTES_MAX: usize = 32 << 10;
/// The largest number of bytes of free buffers on each of the two lists.
const FREE_BYTES_MAX: usize = 4 << 20;
/// Each free list takes at most one part in this many of [`Buffers::ahead_bytes_max`].
const FREE_SHARE: usize = 4;

/// The free buffers, and the number of lent ones.
pub(crate) struct Buffers {
    small: Mutex<FreeList>,
    large: Mutex<FreeList>,
    lent: AtomicU64,
    lent_bytes: AtomicUsize,
    free_bytes: AtomicUsize,
    /// While more is lent than this, nothing is read ahead.
    ahead_bytes_max: usize,
}

/// Free buffers of one kind.
#[derive(Default)]
struct FreeList {
    buffers: Vec<AlignedBuf>,
    bytes: usize,
}

impl Buffers {
    /// No buffers yet.
    pub(crate) fn new(ahead_bytes_max: usize) -> Self {
        Self {
            small: Mutex::default(),
            large: Mutex::default(),
            lent: AtomicU64::new(0),
            lent_bytes: AtomicUsize::new(0),
            free_bytes: AtomicUsize::new(0),
            ahead_bytes_max,
        }
    }

    /// A buffer of `len` bytes, whose content is unspecified.
    pub(crate) fn lend(self: &Arc<Self>, len: usize) -> ReadBuf {
        let free = {
            let mut list = self.free_list(len).lock();
            let buffer = list.buffers.pop();
            let bytes = buffer.as_ref().map_or(0, AlignedBuf::capacity);
            list.bytes -= bytes;
            self.free_bytes.fetch_sub(bytes, Ordering::Relaxed);
            buffer
        };
        let mut bytes = free.unwrap_or_default();
        bytes.resize_for(len);
        let counted = bytes.capacity();
        self.lent.fetch_add(1, Ordering::Relaxed);
        self.lent_bytes.fetch_add(counted, Ordering::Relaxed);
        ReadBuf { bytes, counted, home: Arc::clone(self) }
    }

    /// Memory of all buffers, lent or free, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let (lent, free) = (&self.lent_bytes, &self.free_bytes);
        (lent.load(Ordering::Relaxed) + free.load(Ordering::Relaxed)) as u64
    }

    /// Returns true if `bytes` bytes may be read that are not needed yet. Threads that ask at the
    /// same time may each be told true for the same room.
    pub(crate) fn has_room_ahead(&self, bytes: usize) -> bool {
        self.lent_bytes.load(Ordering::Relaxed).saturating_add(bytes) <= self.ahead_bytes_max
    }

    /// Buffers that are lent at present.
    pub(crate) fn lent(&self) -> u64 {
        self.lent.load(Ordering::Relaxed)
    }

    fn free_list(&self, len: usize) -> &Mutex<FreeList> {
        if len <= SMALL_BYTES_MAX { &self.small } else { &self.large }
    }
}

/// A lent buffer; goes back when it is dropped.
pub(crate) struct ReadBuf {
    bytes: AlignedBuf,
    /// The bytes of it that are counted as lent.
    counted: usize,
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
            let mut list = self.home.free_list(capacity).lock();
            let most = FREE_BYTES_MAX.min(self.home.ahead_bytes_max / FREE_SHARE);
            if list.bytes + capacity <= most {
                list.bytes += capacity;
                self.home.free_bytes.fetch_add(capacity, Ordering::Relaxed);
                list.buffers.push(bytes);
            }
        }
        self.home.lent_bytes.fetch_sub(self.counted, Ordering::Relaxed);
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
        let buffers = Arc::new(Buffers::new(64 << 20));
        let one = buffers.lend(8192);
        let place = one.as_ptr();
        let other = buffers.lend(1 << 20);
        // Some bytes of each are there for the alignment.
        let (lent, both) = (buffers.bytes(), 8192 + (1 << 20)..=16_384 + (1 << 20));
        assert!(buffers.lent() == 2 && both.contains(&lent), "{lent} bytes");
        assert!(buffers.has_room_ahead(1 << 20) && !buffers.has_room_ahead(63 << 20));
        drop(one);
        assert_eq!(buffers.lend(4096).as_ptr(), place);
        drop(other);
        assert_eq!(buffers.lent(), 0);
        assert!(buffers.has_room_ahead(64 << 20));
        assert_eq!(buffers.bytes(), lent, "they are on the free list");
    }

    #[test]
    fn free_lists_are_bounded() {
        let buffers = Arc::new(Buffers::new(64 << 20));
        let lent: Vec<ReadBuf> = (0..100).map(|_| buffers.lend(256 << 10)).collect();
        drop(lent);
        assert!(buffers.large.lock().bytes <= FREE_BYTES_MAX);
        assert_eq!(buffers.bytes(), buffers.large.lock().bytes as u64);
        assert_eq!(buffers.lent(), 0);
    }
}
