//! Ordered iteration from both ends.
//!
//! An iterator holds the memtables and the levels of the moment it was made, and reads at that
//! moment's sequence number: writes after that do not show, and nothing that it may return goes
//! away under it. It keeps the memory and the files of that moment alive until it is dropped.

pub(crate) mod merge;
pub(crate) mod partitions;
pub(crate) mod ranges;
pub(crate) mod source;
pub(crate) mod stream;
#[cfg(test)]
mod tests;
mod trail;
pub(crate) mod walk;

use std::ops::Bound;

use self::{
    merge::{Inputs, SourceSet},
    source::Start,
    walk::Walk,
};
use crate::{
    error::{Error, Result},
    expiry::Millis,
    keys::successor,
    plan::point::{Found, load},
    slice::Slice,
    table::Access,
    types::{Moment, SeqNo, compare_keys},
};

/// Makes the inputs of a walk. It is called once for each end that is used.
pub(crate) type Sources = Box<dyn Fn(Access) -> Inputs + Send + Sync>;

/// A key, its value, and the time at which it expires if it does.
pub(crate) type Stamped = (Slice, Slice, Option<Millis>);

/// The two ends of a range, each a walk towards the other. The code that drives the walks tells the
/// ends where the walks came to stand.
pub(crate) struct Ends {
    sources: Sources,
    moment: Moment,
    from: Bound<Box<[u8]>>,
    to: Bound<Box<[u8]>>,
    /// About how many entries will be asked for.
    expected: usize,
    front: Option<Walk>,
    back: Option<Walk>,
    front_key: Option<Slice>,
    back_key: Option<Slice>,
    failure: Option<Error>,
    ended: bool,
}

impl Ends {
    pub(crate) fn new(
        sources: Sources,
        moment: Moment,
        from: Bound<Box<[u8]>>,
        to: Bound<Box<[u8]>>,
    ) -> Self {
        Self {
            sources,
            moment,
            from,
            to,
            expected: 0,
            front: None,
            back: None,
            front_key: None,
            back_key: None,
            failure: None,
            ended: false,
        }
    }

    /// Ends of an empty range, with an error to return first.
    pub(crate) fn failed(error: Error) -> Self {
        let nothing = Box::new(|_| Inputs::Sources(SourceSet::default()));
        let mut ends =
            Self::new(nothing, Moment { seq: 0, now_ms: 0 }, Bound::Unbounded, Bound::Unbounded);
        ends.failure = Some(error);
        ends
    }

    /// The walk from the front, to be driven to its next key.
    #[inline]
    fn front(&mut self, access: Access) -> &mut Walk {
        let Self { sources, moment, from, to, expected, front, back, back_key, .. } = self;
        front.get_or_insert_with(|| {
            *back_key = back.as_ref().map(|back| Slice::copy_from(back.key()));
            let start = match from {
                Bound::Unbounded => Start::First,
                Bound::Included(key) => Start::At(key.clone(), SeqNo::MAX),
                Bound::Excluded(key) => Start::At(successor(key), SeqNo::MAX),
            };
            let mut walk = Walk::new(sources(access), start, to.clone(), *moment);
            walk.hint_len(*expected);
            walk
        })
    }

    /// The walk from the back, to be driven to its next key.
    fn back(&mut self, access: Access) -> &mut Walk {
        let Self { sources, moment, from, to, expected, front, back, front_key, .. } = self;
        back.get_or_insert_with(|| {
            *front_key = front.as_ref().map(|front| Slice::copy_from(front.key()));
            let start = match to {
                Bound::Unbounded => Start::Last,
                Bound::Included(key) => Start::Before(successor(key), SeqNo::MAX),
                Bound::Excluded(key) => Start::Before(key.clone(), SeqNo::MAX),
            };
            let mut walk = Walk::new(sources(access), start, from.clone(), *moment);
            walk.hint_len(*expected);
            walk
        })
    }

    /// Returns true if the walk from the front stands, and on a key of the range that the walk from
    /// the back has not reached.
    #[inline]
    fn record_front(&mut self, stands: bool) -> bool {
        let Some(front) = self.front.as_ref().filter(|_| stands) else { return false };
        let key = front.key();
        let inside = match &self.to {
            Bound::Unbounded => true,
            Bound::Included(to) => compare_keys(key, to).is_le(),
            Bound::Excluded(to) => compare_keys(key, to).is_lt(),
        };
        if !inside || self.back_key.as_ref().is_some_and(|back| *key >= **back) {
            return false;
        }
        if self.back.is_some() {
            self.front_key = Some(Slice::copy_from(key));
        }
        true
    }

    /// Returns true if the walk from the back stands, and on a key of the range that the walk from
    /// the front has not reached.
    fn record_back(&mut self, stands: bool) -> bool {
        let Some(back) = self.back.as_ref().filter(|_| stands) else { return false };
        let key = back.key();
        let inside = match &self.from {
            Bound::Unbounded => true,
            Bound::Included(from) => compare_keys(key, from).is_ge(),
            Bound::Excluded(from) => compare_keys(key, from).is_gt(),
        };
        if !inside || self.front_key.as_ref().is_some_and(|front| *key <= **front) {
            return false;
        }
        if self.front.is_some() {
            self.back_key = Some(Slice::copy_from(key));
        }
        true
    }

    /// Takes what the walk from the front stands on, if the other walk has not been there.
    fn take_front(&mut self, stands: bool) -> Option<(Slice, Found)> {
        if !self.record_front(stands) {
            return None;
        }
        self.front.as_mut().map(|front| (Slice::copy_from(front.key()), front.value()))
    }

    /// Takes what the walk from the back stands on, if the other walk has not been there.
    fn take_back(&mut self, stands: bool) -> Option<(Slice, Found)> {
        if !self.record_back(stands) {
            return None;
        }
        self.back.as_mut().map(|back| (Slice::copy_from(back.key()), back.value()))
    }

    /// Ends both walks after the last item or an error.
    #[inline]
    fn record<T>(&mut self, item: Result<Option<T>>) -> Option<Result<T>> {
        let item = item.transpose();
        if !matches!(item, Some(Ok(_))) {
            self.ended = true;
            self.front = None;
            self.back = None;
        }
        item
    }
}

/// The keys of a range with their values, ascending; descending from its other end.
///
/// Any item may be an error; after an error the iterator ends. Blocks are read ahead, more of them
/// the longer the iterator goes on.
pub struct Iter(Ends);

impl Iter {
    pub(crate) fn new(ends: Ends) -> Self {
        Self(ends)
    }

    /// Hints, before the first entry is read, that about `entries` entries will be read.
    ///
    /// Up to `entries` entries are then taken from a memtable at once. If blocks are not in memory,
    /// each table's share of the entries is read at once: a part of a level then costs one read
    /// instead of several that grow. Any number is correct; 0, the default, means that nothing is
    /// known.
    pub fn hint_len(&mut self, entries: usize) {
        self.0.expected = entries;
    }

    /// [`Iterator::next`], with the time at which the entry expires if it does.
    pub(crate) fn next_stamped(&mut self) -> Option<Result<Stamped>> {
        if self.0.ended {
            return None;
        }
        let read = |walk: &mut Walk| {
            let expires_ms = walk.expires_ms();
            pair(walk).map(|(key, value)| (key, value, expires_ms))
        };
        let item = self.0.failure.take().map_or_else(|| self.step_front(read), Err);
        self.0.record(item)
    }

    #[inline]
    fn step_front<T>(&mut self, read: impl FnOnce(&mut Walk) -> Result<T>) -> Result<Option<T>> {
        let stands = self.0.front(Access::Cached).drive()?;
        if !self.0.record_front(stands) {
            return Ok(None);
        }
        self.0.front.as_mut().map(read).transpose()
    }

    fn step_back<T>(&mut self, read: impl FnOnce(&mut Walk) -> Result<T>) -> Result<Option<T>> {
        let stands = self.0.back(Access::Cached).drive()?;
        if !self.0.record_back(stands) {
            return Ok(None);
        }
        self.0.back.as_mut().map(read).transpose()
    }

    /// Like [`Iterator::next`], for a caller that only looks at the pair: nothing is copied or
    /// counted, except for values that are stored outside their block.
    #[inline]
    pub fn next_with<T>(&mut self, look: impl FnOnce(&[u8], &[u8]) -> T) -> Option<Result<T>> {
        if self.0.ended {
            return None;
        }
        let read = |walk: &mut Walk| look_at(walk, look);
        let item = self.0.failure.take().map_or_else(|| self.step_front(read), Err);
        self.0.record(item)
    }

    /// Like [`DoubleEndedIterator::next_back`], for a caller that only looks at the pair.
    pub fn next_back_with<T>(&mut self, look: impl FnOnce(&[u8], &[u8]) -> T) -> Option<Result<T>> {
        if self.0.ended {
            return None;
        }
        let read = |walk: &mut Walk| look_at(walk, look);
        let item = self.0.failure.take().map_or_else(|| self.step_back(read), Err);
        self.0.record(item)
    }
}

/// The key and the value that a walk stands on.
#[inline]
fn pair(walk: &mut Walk) -> Result<(Slice, Slice)> {
    let key = Slice::copy_from(walk.key());
    Ok((key, load(walk.value())?.unwrap_or_default()))
}

/// Shows the key and the value that a walk stands on.
#[inline]
fn look_at<T>(walk: &mut Walk, look: impl FnOnce(&[u8], &[u8]) -> T) -> Result<T> {
    if let Some(value) = walk.value_bytes() {
        return Ok(look(walk.key(), value));
    }
    let value = load(walk.value())?.unwrap_or_default();
    Ok(look(walk.key(), &value))
}

impl Iterator for Iter {
    type Item = Result<(Slice, Slice)>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.ended {
            return None;
        }
        let item = self.0.failure.take().map_or_else(|| self.step_front(pair), Err);
        self.0.record(item)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.0.ended {
            return None;
        }
        let item = self.0.failure.take().map_or_else(|| self.step_back(pair), Err);
        self.0.record(item)
    }
}

impl std::iter::FusedIterator for Iter {}

impl std::fmt::Debug for Iter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iter").field("seq", &self.0.moment.seq).finish_non_exhaustive()
    }
}
