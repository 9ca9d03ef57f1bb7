//! Ranges over several hosts, from both ends.

use std::{ops::Bound, sync::Arc};

use super::{
    super::range::{Pair, Range, is_inside},
    Attempts,
    keyspace::ClusterKeyspace,
    servers::View,
};
use crate::{
    bounds::{as_slices, common},
    error::{Error, Result},
};

/// The keys of a range with their values, ascending, over all hosts that have some of them;
/// descending from its other end. The next host is asked once the one before has no more.
///
/// Each item may fail by itself; after an error the iterator ends.
#[derive(Debug)]
pub struct ClusterRange {
    keyspace: ClusterKeyspace,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    front: End,
    back: End,
    /// Pairs that may still be returned.
    left: usize,
    ended: bool,
}

/// One end of a range.
#[derive(Debug, Default)]
struct End {
    part: Option<Part>,
    /// Where the next part begins, if the last one ended without a pair since then.
    next: Option<Bound<Vec<u8>>>,
}

/// What one host has of a range.
#[derive(Debug)]
struct Part {
    pairs: Range,
    view: Arc<View>,
    /// Which range of the view's table it is.
    range: usize,
    /// Where the next part begins; `None` if this is the last.
    next: Option<Bound<Vec<u8>>>,
}

impl ClusterRange {
    pub(super) fn new(keyspace: ClusterKeyspace, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Self {
        let (front, back) = (End::default(), End::default());
        Self { keyspace, from, to, front, back, left: usize::MAX, ended: false }
    }

    /// The range's first pairs, or its last ones, as [`Range::limit`] has them of one host.
    #[must_use]
    pub fn limit(self, pairs: usize) -> Self {
        Self { left: self.left.min(pairs), ..self }
    }

    fn step(&mut self, reverse: bool) -> Result<Option<Pair>> {
        if self.left == 0 {
            return Ok(None);
        }
        let mut attempts = Attempts::default();
        loop {
            let end = if reverse { &mut self.back } else { &mut self.front };
            let Some(part) = &mut end.part else {
                if self.open(reverse)? {
                    continue;
                }
                return Ok(None);
            };
            let item = if reverse { part.pairs.next_back() } else { part.pairs.next() };
            match item {
                Some(Ok((key, value))) => {
                    if !is_inside(&key, &self.from, &self.to) {
                        return Ok(None);
                    }
                    end.next = None;
                    self.left -= 1;
                    let bound = Bound::Excluded(key.clone());
                    if reverse {
                        self.to = bound
                    } else {
                        self.from = bound
                    }
                    return Ok(Some((key, value)));
                }
                None => {
                    end.next = part.next.take();
                    end.part = None;
                    if end.next.is_none() {
                        return Ok(None);
                    }
                }
                Some(Err(Error::Moved { epoch })) => {
                    // What was returned so far is right: the rest is read anew.
                    if let Some(part) = end.part.take() {
                        self.keyspace.follow(&part.view, part.range, epoch, &mut attempts)?;
                    }
                }
                Some(Err(error)) => return Err(part.view.blame(part.range, error)),
            }
        }
    }

    /// Begins to read the part at one end; returns false if the range is at its end.
    fn open(&mut self, reverse: bool) -> Result<bool> {
        let view = self.keyspace.view();
        let end = if reverse { &mut self.back } else { &mut self.front };
        let bounds = match (reverse, end.next.clone()) {
            (_, None) => (self.from.clone(), self.to.clone()),
            (false, Some(next)) => (next, self.to.clone()),
            (true, Some(next)) => (self.from.clone(), next),
        };
        let (from, to) = as_slices(&bounds);
        let range = match (reverse, from, to) {
            (false, Bound::Unbounded, _) => 0,
            // planted: scan-goes-at-wrong-next
            (false, Bound::Included(key) | Bound::Excluded(key), _) => view.table.range_of(key),
            (true, _, Bound::Included(key)) => view.table.range_of(key),
            (true, _, Bound::Excluded(key)) => view.table.range_below(Some(key)),
            (true, _, Bound::Unbounded) => view.table.range_below(None),
        };
        let keys = view.table.keys(range);
        let Some(both) = common((from, to), keys.bounds()) else { return Ok(false) };
        let pairs = view.keyspace(self.keyspace.name(), range)?.range::<&[u8]>(both);
        let pairs = pairs.limit(self.left);
        let next = if reverse {
            (!keys.low.is_empty()).then_some(Bound::Excluded(keys.low))
        } else {
            keys.high.map(Bound::Included)
        };
        end.part = Some(Part { pairs, view, range, next });
        Ok(true)
    }

    fn item(&mut self, reverse: bool) -> Option<Result<Pair>> {
        if self.ended {
            return None;
        }
        let item = self.step(reverse).transpose();
        self.ended = !matches!(item, Some(Ok(_)));
        item
    }
}

impl Iterator for ClusterRange {
    type Item = Result<Pair>;

    fn next(&mut self) -> Option<Self::Item> {
        self.item(false)
    }
}

impl DoubleEndedIterator for ClusterRange {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.item(true)
    }
}

impl std::iter::FusedIterator for ClusterRange {}
