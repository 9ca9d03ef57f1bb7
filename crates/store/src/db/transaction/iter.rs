//! Ranges as a transaction sees them: what its snapshot has, under what it has written.

use std::{
    collections::{VecDeque, btree_map},
    fmt,
    iter::FusedIterator,
};

use super::{
    pending::{Overlay, Written, is_empty},
    reads::{RangeRead, Reads},
};
use crate::{
    db::{keyspace::Keyspace, reader::Reader},
    error::Result,
    iter::Iter,
    keys::OwnedBounds,
    slice::Slice,
    types::Moment,
};

type Pair = (Slice, Slice);

/// The keys of a range with their values, ascending, as a
/// [`Transaction`](crate::Transaction) sees them; descending from its other end.
///
/// Any item may be an error; after an error the iterator ends.
pub struct TransactionIter<'t> {
    stored: BothEnds<Stored>,
    written: BothEnds<btree_map::Range<'t, Slice, Option<Written>>>,
    /// Where it is recorded what was read; dropped with the iterator.
    read: Option<RangeRead<'t>>,
    has_failed: bool,
}

impl<'t> TransactionIter<'t> {
    pub(super) fn new(
        (moment, keyspace): (Moment, Keyspace),
        overlay: Option<&'t Overlay>,
        (from, to): OwnedBounds,
        reads: Option<(&'t Reads, usize)>,
    ) -> Self {
        let gaps = match overlay {
            Some(overlay) => overlay.removed().gaps(&from, &to),
            None => vec![(from.clone(), to.clone())],
        };
        let is_empty = is_empty(&from, &to);
        let bounds = (from.as_ref().map(|key| &key[..]), to.as_ref().map(|key| &key[..]));
        let all =
            overlay.filter(|_| !is_empty).map(|overlay| overlay.writes().range::<[u8], _>(bounds));
        Self {
            stored: BothEnds::new(Stored {
                keyspace,
                moment,
                first: None,
                gaps: gaps.into(),
                last: None,
            }),
            written: BothEnds::new(all.unwrap_or_default()),
            read: reads.map(|(reads, place)| reads.range(place, (from, to))),
            has_failed: false,
        }
    }

    fn step(&mut self, is_front: bool) -> Option<Result<Pair>> {
        loop {
            let stored = match self.stored.peek(is_front) {
                Some(Err(_)) => {
                    self.has_failed = true;
                    return self.stored.take(is_front);
                }
                Some(Ok((key, _))) => Some(key),
                None => None,
            };
            let written = self.written.peek(is_front).map(|(key, _)| *key);
            let order = match (stored, written) {
                (None, None) => {
                    if let Some(read) = &mut self.read {
                        read.ended();
                    }
                    return None;
                }
                (Some(stored), Some(written)) if stored == written => {
                    // What was written takes the place of what is stored.
                    // planted: transaction-hides
                    self.stored.take(is_front);
                    continue;
                }
                (Some(stored), Some(written)) => (stored < written) == is_front,
                (stored, _) => stored.is_some(),
            };
            if order {
                return self.stored.take(is_front);
            }
            let now_ms = self.stored.iter.moment.now_ms;
            if let Some((key, Some(written))) = self.written.take(is_front)
                && let Some(value) = written.seen(now_ms)
            {
                return Some(Ok((key.clone(), value.clone())));
            }
        }
    }

    fn read(&mut self, is_front: bool) -> Option<Result<Pair>> {
        if self.has_failed {
            return None;
        }
        let item = self.step(is_front);
        if let (Some(read), Some(Ok((key, _)))) = (&mut self.read, &item) {
            read.passed(key, is_front);
        }
        item
    }
}

impl Iterator for TransactionIter<'_> {
    type Item = Result<Pair>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read(true)
    }
}

impl DoubleEndedIterator for TransactionIter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.read(false)
    }
}

impl FusedIterator for TransactionIter<'_> {}

impl fmt::Debug for TransactionIter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionIter").finish_non_exhaustive()
    }
}

/// An iterator that can be looked at from both ends.
struct BothEnds<I: DoubleEndedIterator> {
    iter: I,
    front: Option<I::Item>,
    back: Option<I::Item>,
}

impl<I: DoubleEndedIterator> BothEnds<I> {
    fn new(iter: I) -> Self {
        Self { iter, front: None, back: None }
    }

    /// The next item of an end.
    fn peek(&mut self, is_front: bool) -> Option<&I::Item> {
        if is_front {
            if self.front.is_none() {
                self.front = self.iter.next().or_else(|| self.back.take());
            }
            return self.front.as_ref();
        }
        if self.back.is_none() {
            self.back = self.iter.next_back().or_else(|| self.front.take());
        }
        self.back.as_ref()
    }

    fn take(&mut self, is_front: bool) -> Option<I::Item> {
        self.peek(is_front);
        if is_front { self.front.take() } else { self.back.take() }
    }
}

/// What is stored of a range, but for the ranges that the transaction has removed: these are not
/// stepped through.
struct Stored {
    keyspace: Keyspace,
    moment: Moment,
    /// The gap that is read from the front.
    first: Option<Iter>,
    /// Those that neither end has begun.
    gaps: VecDeque<OwnedBounds>,
    /// The gap that is read from the back.
    last: Option<Iter>,
}

impl Stored {
    fn open(&self, (from, to): OwnedBounds) -> Iter {
        Reader::new(&self.keyspace, Some(self.moment)).range((from, to))
    }
}

impl Iterator for Stored {
    type Item = Result<Pair>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.first.as_mut().and_then(Iterator::next) {
                return Some(item);
            }
            match self.gaps.pop_front() {
                Some(gap) => self.first = Some(self.open(gap)),
                None => return self.last.as_mut()?.next(),
            }
        }
    }
}

impl DoubleEndedIterator for Stored {
    fn next_back(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.last.as_mut().and_then(DoubleEndedIterator::next_back) {
                return Some(item);
            }
            match self.gaps.pop_back() {
                Some(gap) => self.last = Some(self.open(gap)),
                None => return self.first.as_mut()?.next_back(),
            }
        }
    }
}
