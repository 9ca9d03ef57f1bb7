//! A space in ordinary memory, for tests and models.

use std::sync::atomic::AtomicUsize;

use super::Space;
use crate::{
    error::{Error, Result},
    primitive::{AtomicU64, Ordering},
};

/// Memory that is there from the beginning and shown piece by piece.
pub(crate) struct HeapSpace {
    words: Box<[AtomicU64]>,
    shown: AtomicUsize,
    step_bytes: usize,
}

impl HeapSpace {
    /// A space that grows in multiples of `step_bytes`, to `capacity_bytes` at most.
    pub(crate) fn new(step_bytes: usize, capacity_bytes: usize) -> Self {
        let words = (0..capacity_bytes / 8).map(|_| AtomicU64::new(0)).collect();
        Self { words, shown: AtomicUsize::new(0), step_bytes }
    }

    /// All of it, also what is not shown yet.
    pub(crate) fn all(&self) -> &[AtomicU64] {
        &self.words
    }
}

impl Space for HeapSpace {
    fn words(&self) -> &[AtomicU64] {
        &self.words[..self.shown.load(Ordering::Acquire)]
    }

    fn grow(&self, bytes: usize) -> Result<()> {
        let shown =
            self.shown.load(Ordering::Relaxed) + bytes.next_multiple_of(self.step_bytes) / 8;
        if shown > self.words.len() {
            return Err(Error::Full { capacity_bytes: self.words.len() as u64 * 8 });
        }
        self.shown.store(shown, Ordering::Release);
        Ok(())
    }
}
