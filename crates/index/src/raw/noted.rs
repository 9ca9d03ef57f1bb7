//! What a look at a leaf saw of its use, so that the next look can tell if it was written since.

use rhumb_sync::primitive::{AtomicU32, Ordering};

/// What the last look at a leaf saw of its use: 0 if there was none.
#[derive(Default)]
pub(crate) struct Noted(AtomicU32);

/// What has become of a leaf since the look before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// There was none.
    Unknown,
    /// So often.
    Written(u32),
    Unwritten,
}

impl Noted {
    /// Notes how often keys came and went, and says whether any did since the last time.
    pub(crate) fn note(&self, writes: u32) -> Since {
        let now = writes.wrapping_add(1).max(1);
        match self.0.swap(now, Ordering::Relaxed) {
            0 => Since::Unknown,
            before if before == now => Since::Unwritten,
            before => Since::Written(now.wrapping_sub(before)),
        }
    }
}
