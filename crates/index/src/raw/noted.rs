//! A note of a leaf's use, so that the next look at the leaf can tell if it was written since.

use rhumb_sync::primitive::{AtomicU32, Ordering};

/// The writes that the last look at a leaf saw, plus one: 0 if there was no look.
#[derive(Default)]
pub(crate) struct Noted(AtomicU32);

/// The use of a leaf since the look before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// There was no look before.
    Unknown,
    /// It was written this many times.
    Written(u32),
    Unwritten,
}

impl Noted {
    /// Records `writes`, the number of times that keys came and went. Returns whether any did since
    /// the last look.
    pub(crate) fn note(&self, writes: u32) -> Since {
        let now = writes.wrapping_add(1).max(1);
        match self.0.swap(now, Ordering::Relaxed) {
            0 => Since::Unknown,
            before if before == now => Since::Unwritten,
            before => Since::Written(now.wrapping_sub(before)),
        }
    }
}
