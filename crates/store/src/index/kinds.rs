//! Leaves of every kind behind one face: what reading, scanning and retraining need of a leaf,
//! whatever it is made of. What only one kind has stays in its own module.
//!
//! The kinds are a closed set, told apart by a byte in the first line of the leaf: a branch that is
//! always the same in a map of one kind, and no call through a table. A map may hold several kinds.
#![allow(unsafe_code, reason = "passes the promise on that a leaf is given up")]

use super::{
    plan::{self, Entry, Growth, Part},
    preset::Preset,
    raw::{bucket::Bucket, leaf::Leaf},
    route::Bound,
    schema::{Probe, Schema},
};
use crate::sync::{arena::Arena, primitive::AtomicBool};

/// A leaf: the keys from its lower bound to that of the next leaf, in places that ascend among each
/// other. A key has the same place for as long as the leaf lives.
pub(crate) enum AnyLeaf {
    /// Buckets that are ordered among each other only.
    Buckets(Leaf),
}

/// Evaluates an expression for the leaf of whichever kind.
macro_rules! each {
    ($leaf:expr, $it:ident => $then:expr) => {
        match $leaf {
            AnyLeaf::Buckets($it) => $then,
        }
    };
}

impl AnyLeaf {
    /// Asks for the lines that finding a place reads.
    #[inline(always)]
    pub(crate) fn prefetch(leaf: *const Self) {
        Leaf::prefetch(leaf.cast());
    }

    /// The number of places.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        each!(self, leaf => leaf.len())
    }

    /// Which place a key belongs to.
    #[inline(always)]
    pub(crate) fn place<S: Schema>(&self, probe: Probe<'_>) -> usize {
        each!(self, leaf => leaf.place::<S>(leaf.word::<S>(probe), probe))
    }

    /// Asks for the lines of a place.
    #[inline(always)]
    pub(crate) fn prefetch_place(&self, place: usize) {
        match self {
            Self::Buckets(leaf) => Bucket::prefetch(leaf.bucket(place)),
        }
    }

    /// Appends the present entries of a place in ascending order. Never waits.
    #[inline]
    pub(crate) fn append_sorted<S: Schema>(&self, place: usize, entries: &mut Vec<Entry>) {
        match self {
            Self::Buckets(leaf) => plan::append_sorted::<S>(leaf.bucket(place), entries),
        }
    }

    /// Calls `visit` with the slot of each removed key.
    pub(crate) fn for_each_dead(&self, mut visit: impl FnMut(u64)) {
        match self {
            Self::Buckets(leaf) => {
                (0..leaf.len()).for_each(|place| leaf.bucket(place).for_each_dead(&mut visit));
            }
        }
    }

    /// Appends all present entries in ascending order. Of one state, if the leaf is frozen.
    pub(crate) fn collect<S: Schema>(&self, entries: &mut Vec<Entry>) {
        (0..self.len()).for_each(|place| self.append_sorted::<S>(place, entries));
    }

    /// Makes the leaf unchangeable. Any number of threads may.
    pub(crate) fn freeze(&self) {
        each!(self, leaf => leaf.freeze());
    }

    /// Bytes of the leaf, about.
    pub(crate) fn bytes(&self) -> usize {
        each!(self, leaf => leaf.bytes())
    }

    /// Bytes of the leaf outside of the arena.
    pub(crate) fn heap_bytes(&self) -> usize {
        each!(self, leaf => leaf.heap_bytes())
    }

    /// Whether somebody is about to replace it.
    pub(crate) fn is_retraining(&self) -> &AtomicBool {
        each!(self, leaf => &leaf.is_retraining)
    }

    /// Gives the leaf's memory back, but not the records that its slots point to.
    ///
    /// # Safety
    /// The leaf was made with this arena, and nobody uses it again.
    pub(crate) unsafe fn free(self: Box<Self>, arena: &Arena) {
        // SAFETY: the caller's promise.
        each!(*self, leaf => unsafe { leaf.free(arena) });
    }
}

/// The leaves of a preset for all entries; at least one. `upper` is the lower bound of the leaf behind
/// them.
pub(super) fn parts<S: Schema>(
    _preset: Preset,
    arena: &Arena,
    entries: &[Entry],
    growth: Growth,
    upper: Option<&Bound>,
) -> Vec<Part> {
    plan::parts::<S>(arena, entries, growth, upper)
}
