//! What leaves of every kind but buckets have in common: the bytes that their words leave out, and
//! the counts that decide on their replacement.

use rhumb_sync::primitive::{AtomicBool, AtomicU32};

use crate::{
    address::word_behind,
    raw::{
        noted::Noted,
        schema::{KeyProbe, Schema},
    },
};

/// The head of a leaf.
pub(crate) struct LeafHead {
    /// Leading bytes that words leave out, if keys are wide.
    prefix: Box<[u8]>,
    /// Keys that the leaf was built of.
    pub(crate) built_of: u32,
    /// Keys removed since then.
    pub(crate) removed: AtomicU32,
    /// Slots that hold a key, present or removed.
    pub(crate) used: AtomicU32,
    /// The leaf's use, as the last look saw it.
    pub(crate) noted: Noted,
    /// True if a thread is about to replace the leaf.
    pub(crate) is_retraining: AtomicBool,
}

impl LeafHead {
    /// The head of a leaf of `len` keys that start with `prefix`.
    pub(crate) fn new(prefix: &[u8], len: usize) -> Self {
        Self {
            prefix: prefix.into(),
            built_of: len as u32,
            removed: AtomicU32::new(0),
            used: AtomicU32::new(len as u32),
            noted: Noted::default(),
            is_retraining: AtomicBool::new(false),
        }
    }

    /// Bytes that the head owns.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.prefix.len()
    }

    /// The word by which the leaf knows a key.
    #[inline(always)]
    pub(crate) fn word<S: Schema>(&self, probe: KeyProbe<'_>) -> u64 {
        if S::WIDE && !self.prefix.is_empty() {
            word_behind(&self.prefix, probe.bytes)
        } else {
            probe.word
        }
    }
}
