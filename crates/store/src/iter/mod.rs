//! Ordered iteration from both ends.
//!
//! An iterator holds the memtables and the levels of the moment it was made, and reads at that
//! moment's sequence number: writes after that do not show, and nothing that it may return goes
//! away under it. It keeps the memory and the files of that moment alive until it is dropped.

pub(crate) mod merge;
pub(crate) mod source;
pub(crate) mod walk;

use std::ops::Bound;

use crate::{
    error::{Error, Result},
    plan::{drive, point::Found},
    slice::Slice,
    types::{SeqNo, compare_keys},
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

    /// Moves the front on; says whether it stands on a key of the range that the back has not
    /// returned.
    #[inline]
    fn move_front(&mut self) -> Result<bool> {
        if self.front.is_none() {
            self.front = Some(self.make_front());
            self.back_key = self.back.as_ref().map(|back| Slice::copy_from(back.key()));
        }
        let Some(front) = &mut self.front else { return Ok(false) };
        if !drive(front)? {
            return Ok(false);
        }
        let key = front.key();
        let inside = match &self.to {
            Bound::Unbounded => true,
            Bound::Included(to) => compare_keys(key, to).is_le(),
            Bound::Excluded(to) => compare_keys(key, to).is_lt(),
        };
        if !inside || self.back_key.as_ref().is_some_and(|back| *key >= **back) {
            return Ok(false);
        }
        if self.back.is_some() {
            self.front_key = Some(Slice::copy_from(key));
        }
        Ok(true)
    }

    #[inline]
    fn step_front<T>(&mut self, read: impl FnOnce(&mut Walk) -> Result<T>) -> Result<Option<T>> {
        if !self.move_front()? {
            return Ok(None);
        }
        self.front.as_mut().map(read).transpose()
    }

    /// Moves the back on; says whether it stands on a key of the range that the front has not
    /// returned.
    fn move_back(&mut self) -> Result<bool> {
        if self.back.is_none() {
            self.back = Some(self.make_back());
            self.front_key = self.front.as_ref().map(|front| Slice::copy_from(front.key()));
        }
        let Some(back) = &mut self.back else { return Ok(false) };
        if !drive(back)? {
            return Ok(false);
        }
        let key = back.key();
        let inside = match &self.from {
            Bound::Unbounded => true,
            Bound::Included(from) => compare_keys(key, from).is_ge(),
            Bound::Excluded(from) => compare_keys(key, from).is_gt(),
        };
        if !inside || self.front_key.as_ref().is_some_and(|front| *key <= **front) {
            return Ok(false);
        }
        if self.front.is_some() {
            self.back_key = Some(Slice::copy_from(key));
        }
        Ok(true)
    }

    fn step_back<T>(&mut self, read: impl FnOnce(&mut Walk) -> Result<T>) -> Result<Option<T>> {
        if !self.move_back()? {
            return Ok(None);
        }
        self.back.as_mut().map(read).transpose()
    }

    /// As [`Iterator::next`], for a caller who only looks at the pair: nothing is copied or counted,
    /// but for values that lie outside of their block.
    #[inline]
    pub fn next_with<T>(&mut self, look: impl FnOnce(&[u8], &[u8]) -> T) -> Option<Result<T>> {
        if self.ended {
            return None;
        }
        let read = |walk: &mut Walk| look_at(walk, look);
        let item = self.failure.take().map_or_else(|| self.step_front(read), Err);
        self.end(item)
    }

    /// As [`DoubleEndedIterator::next_back`], for a caller who only looks at the pair.
    pub fn next_back_with<T>(&mut self, look: impl FnOnce(&[u8], &[u8]) -> T) -> Option<Result<T>> {
        if self.ended {
            return None;
        }
        let read = |walk: &mut Walk| look_at(walk, look);
        let item = self.failure.take().map_or_else(|| self.step_back(read), Err);
        self.end(item)
    }

    #[inline]
    fn end<T>(&mut self, item: Result<Option<T>>) -> Option<Result<T>> {
        let item = item.transpose();
        if !matches!(item, Some(Ok(_))) {
            self.ended = true;
            self.front = None;
            self.back = None;
        }
        item
    }
}

/// The key and the value that a walk stands on.
#[inline]
fn pair(walk: &mut Walk) -> Result<(Slice, Slice)> {
    let key = Slice::copy_from(walk.key());
    Ok((key, load(walk.value())?))
}

/// Shows the key and the value that a walk stands on.
#[inline]
fn look_at<T>(walk: &mut Walk, look: impl FnOnce(&[u8], &[u8]) -> T) -> Result<T> {
    if let Some(value) = walk.value_bytes() {
        return Ok(look(walk.key(), value));
    }
    let value = load(walk.value())?;
    Ok(look(walk.key(), &value))
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
        let item = self.failure.take().map_or_else(|| self.step_front(pair), Err);
        self.end(item)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let item = self.failure.take().map_or_else(|| self.step_back(pair), Err);
        self.end(item)
    }
}

impl std::iter::FusedIterator for Iter {}

impl std::fmt::Debug for Iter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iter").field("seq", &self.seq).finish_non_exhaustive()
    }
}
