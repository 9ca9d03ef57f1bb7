//! What a serializable transaction has read: keys, and ranges as far as they were walked.

use std::{cell::RefCell, ops::Bound};

use super::{
    check::{Checked, Touched},
    pending::is_empty,
};
use crate::{
    keys::{OwnedBound, OwnedBounds},
    slice::Slice,
};

/// The keys and ranges that were read so far, of all keyspaces.
#[derive(Debug, Default)]
pub(super) struct Reads(RefCell<Touched>);

impl Reads {
    /// Records that a key of the keyspace `place` was read, whether it is there or not.
    pub(super) fn key(&self, place: usize, key: &[u8]) {
        self.0.borrow_mut().key(place, key);
    }

    /// Begins to record what is read of a range.
    pub(super) fn range(&self, place: usize, (from, to): OwnedBounds) -> RangeRead<'_> {
        RangeRead { reads: self, place, from, to, front: None, back: None, is_whole: false }
    }

    /// The memory that the record takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.0.borrow().bytes()
    }

    /// Adds everything to what is checked.
    pub(super) fn add_to(self, checked: &mut Checked) {
        checked.add(self.0.into_inner());
    }
}

/// What is being read of a range. It is recorded when this is dropped: a walk that ends early
/// depends on the keys up to where it ended, and on no other.
pub(super) struct RangeRead<'t> {
    reads: &'t Reads,
    place: usize,
    from: OwnedBound,
    to: OwnedBound,
    /// The last keys that the ends have passed.
    front: Option<Slice>,
    back: Option<Slice>,
    /// True once the ends have met.
    is_whole: bool,
}

impl RangeRead<'_> {
    /// Records that an end has passed a key.
    pub(super) fn passed(&mut self, key: &Slice, is_front: bool) {
        let end = if is_front { &mut self.front } else { &mut self.back };
        *end = Some(key.clone());
    }

    /// Records that there are no more keys.
    pub(super) fn ended(&mut self) {
        self.is_whole = true;
    }
}

impl Drop for RangeRead<'_> {
    fn drop(&mut self) {
        let mut reads = self.reads.0.borrow_mut();
        let from = std::mem::replace(&mut self.from, Bound::Unbounded);
        let to = std::mem::replace(&mut self.to, Bound::Unbounded);
        if is_empty(&from, &to) {
            // No commit changes what is there, one that removes a range around it neither.
            return;
        }
        if self.is_whole {
            return reads.range(self.place, (from, to));
        }
        if let Some(key) = &self.front {
            reads.range(self.place, (from, Bound::Included(Box::from(&key[..]))));
        }
        // planted: transaction-walked-back
        if let Some(key) = &self.back {
            reads.range(self.place, (Bound::Included(Box::from(&key[..])), to));
        }
    }
}
