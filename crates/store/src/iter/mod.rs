//! Ordered iteration from both ends.
//!
//! An iterator holds the memtables and the levels of the moment it was made, and reads at that
//! moment's sequence number: writes after that do not show, and nothing that it may return goes
//! away under it. It keeps the memory and the files of that moment alive until it is dropped.

pub(crate) mod merge;
pub(crate) mod partitions;
pub(crate) mod source;
pub(crate) mod walk;

use std::ops::Bound;

use crate::{
    error::{Error, Result},
    plan::{drive, point::Found},
    slice::Slice,
    types::SeqNo,
};
use source::{Source, Start};
use walk::Walk;

/// Makes the sources of a walk; called once for each end that is used.
pub(crate) type Sources = Box<dyn Fn() -> Vec<Source> + Send + Sync>;

/// The keys of a range with their values, ascending; descending from its other end.
///
/// Every item may fail by itself: after an error the iterator ends.
pub struct Iter {
    sources: Sources,
    seq: SeqNo,
    from: Bound<Box<[u8]>>,
    to: Bound<Box<[u8]>>,
    front: Option<Walk>,
    back: Option<Walk>,
    front_key: Option<Slice>,
    back_key: Option<Slice>,
    failure: Option<Error>,
    ended: bool,
}

impl Iter {
    pub(crate) fn new(
        sources: Sources,
        seq: SeqNo,
        from: Bound<Box<[u8]>>,
        to: Bound<Box<[u8]>>,
    ) -> Self {
        Self {
            sources,
            seq,
            from,
            to,
            front: None,
            back: None,
            front_key: None,
            back_key: None,
            failure: None,
            ended: false,
        }
    }

    /// An iterator that returns an error and ends.
    pub(crate) fn failed(error: Error) -> Self {
        let nothing = Box::new(Vec::new);
        let mut iter = Self::new(nothing, 0, Bound::Unbounded, Bound::Unbounded);
        iter.failure = Some(error);
        iter
    }

    fn make_front(&self) -> Walk {
        let start = match &self.from {
            Bound::Unbounded => Start::First,
            Bound::Included(key) => Start::At(key.clone(), SeqNo::MAX),
            Bound::Excluded(key) => Start::At(successor(key), SeqNo::MAX),
        };
        Walk::new((self.sources)(), start, self.seq)
    }

    fn make_back(&self) -> Walk {
        let start = match &self.to {
            Bound::Unbounded => Start::Last,
            Bound::Included(key) => Start::Before(successor(key), SeqNo::MAX),
            Bound::Excluded(key) => Start::Before(key.clone(), SeqNo::MAX),
        };
        Walk::new((self.sources)(), start, self.seq)
    }

    #[inline]
    fn step_front(&mut self) -> Result<Option<(Slice, Slice)>> {
        if self.front.is_none() {
            self.front = Some(self.make_front());
        }
        let Some(front) = &mut self.front else { return Ok(None) };
        if !drive(front)? {
            return Ok(None);
        }
        let key = front.key();
        let inside = match &self.to {
            Bound::Unbounded => true,
            Bound::Included(to) => *key <= **to,
            Bound::Excluded(to) => *key < **to,
        };
        if !inside || self.back_key.as_ref().is_some_and(|back| *key >= **back) {
            return Ok(None);
        }
        let key = Slice::copy_from(key);
        if self.back.is_some() {
            self.front_key = Some(key.clone());
        }
        Ok(Some((key, load(front.value())?)))
    }

    fn step_back(&mut self) -> Result<Option<(Slice, Slice)>> {
        if self.back.is_none() {
            self.back = Some(self.make_back());
            self.front_key = self.front.as_ref().map(|front| Slice::copy_from(front.key()));
        }
        let Some(back) = &mut self.back else { return Ok(None) };
        if !drive(back)? {
            return Ok(None);
        }
        let (key, found) = (Slice::copy_from(back.key()), back.value());
        let inside = match &self.from {
            Bound::Unbounded => true,
            Bound::Included(from) => *key >= **from,
            Bound::Excluded(from) => *key > **from,
        };
        if !inside || self.front_key.as_ref().is_some_and(|front| *key <= **front) {
            return Ok(None);
        }
        self.back_key = Some(key.clone());
        Ok(Some((key, load(found)?)))
    }

    #[inline]
    fn end(&mut self, item: Result<Option<(Slice, Slice)>>) -> Option<Result<(Slice, Slice)>> {
        let item = item.transpose();
        if !matches!(item, Some(Ok(_))) {
            self.ended = true;
            self.front = None;
            self.back = None;
        }
        item
    }
}

/// The smallest key that is larger than `key`.
fn successor(key: &[u8]) -> Box<[u8]> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into_boxed_slice()
}

/// The smallest key that is larger than every key with this prefix; none if there is no such key.
pub(crate) fn prefix_end(prefix: &[u8]) -> Option<Box<[u8]>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xFF)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end.into_boxed_slice())
}

/// Fetches a value that a read found.
#[inline]
pub(crate) fn load(found: Found) -> Result<Slice> {
    match found {
        Found::Value(value) => Ok(value),
        Found::Large(large) => large.table.read_large(&large.pointer),
        Found::Nothing => Ok(Slice::copy_from(&[])),
    }
}

impl Iterator for Iter {
    type Item = Result<(Slice, Slice)>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let item = self.failure.take().map_or_else(|| self.step_front(), Err);
        self.end(item)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let item = self.failure.take().map_or_else(|| self.step_back(), Err);
        self.end(item)
    }
}

impl std::iter::FusedIterator for Iter {}

impl std::fmt::Debug for Iter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iter").field("seq", &self.seq).finish_non_exhaustive()
    }
}
