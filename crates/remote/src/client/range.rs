//! Ranges from both ends, a leaf at a time.

use std::{
    collections::VecDeque,
    ops::{
        Bound::{self, Unbounded},
        RangeBounds,
    },
};

use super::{Page, keyspace::Keyspace};
use crate::{
    bounds::common,
    error::{Error, Result},
};

/// By how much the calls of a range grow: a long one takes few of them.
const CALL_GROWTH: u32 = 4;

/// A key and its value.
pub(super) type Pair = (Vec<u8>, Vec<u8>);

/// The keys of a range with their values, ascending; descending from its other end.
///
/// Each item may fail by itself; after an error the iterator ends.
#[derive(Debug)]
pub struct Range {
    keyspace: Keyspace,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    front: End,
    back: End,
    /// Pairs that the next call asks for, and the most that one does.
    call_pairs: (u32, u32),
    ended: bool,
}

/// One end of a range.
#[derive(Debug, Default)]
struct End {
    /// What was read and not returned.
    ready: VecDeque<(Vec<u8>, Option<Vec<u8>>)>,
    /// Where the next page begins, if one was read.
    next: Option<Bound<Vec<u8>>>,
    page: Option<Page>,
    is_at_end: bool,
}

impl Range {
    pub(super) fn new(keyspace: Keyspace, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Self {
        let (front, back) = (End::default(), End::default());
        let call_pairs = keyspace.call_pairs();
        Self { keyspace, from, to, front, back, call_pairs, ended: false }
    }

    /// The same of which one pair is wanted.
    pub(super) fn short(mut self) -> Self {
        self.call_pairs.0 = 1;
        self
    }

    fn step(&mut self, reverse: bool) -> Result<Option<Pair>> {
        loop {
            let end = if reverse { &mut self.back } else { &mut self.front };
            if let Some((key, value)) = end.ready.pop_front() {
                if !is_inside(&key, &self.from, &self.to) {
                    return Ok(None);
                }
                let bound = Bound::Excluded(key.clone());
                if reverse {
                    self.to = bound
                } else {
                    self.from = bound
                }
                let Some(value) =
                    value.map_or_else(|| self.keyspace.get(&key), |value| Ok(Some(value)))?
                else {
                    // Removed since its leaf was read.
                    continue;
                };
                return Ok(Some((key, value)));
            }
            if end.is_at_end {
                return Ok(None);
            }
            self.read(reverse)?;
        }
    }

    /// Reads the next part at one end.
    fn read(&mut self, reverse: bool) -> Result<()> {
        let (end, bound) =
            if reverse { (&mut self.back, &self.to) } else { (&mut self.front, &self.from) };
        let at = end.next.as_ref().unwrap_or(bound);
        let (from, to) = if reverse { (&self.from, at) } else { (at, &self.to) };
        let (above, below) = ((as_slice(from), Unbounded), (Unbounded, as_slice(to)));
        if common(above, below).is_none() {
            // A host need not serve what comes after the range.
            end.is_at_end = true;
            return Ok(());
        }
        let page = self.keyspace.page(as_slice(at), reverse, end.page.as_ref());
        // A damaged leaf may say that the range goes on where it is.
        let page = page.filter(|page| {
            page.next.as_ref().is_none_or(|next| advances(as_slice(at), next, reverse))
        });
        if let Some(mut page) = page {
            end.ready = std::mem::take(&mut page.pairs).into();
            end.is_at_end = page.next.is_none();
            end.next = page
                .next
                .take()
                .map(|key| if reverse { Bound::Excluded(key) } else { Bound::Included(key) });
            end.page = Some(page);
            return Ok(());
        }
        let (limit, most) = self.call_pairs;
        let (pairs, more) =
            self.keyspace.call_scan(as_slice(from), as_slice(to), reverse, limit, false)?;
        self.call_pairs.0 = limit.saturating_mul(CALL_GROWTH).min(most);
        if !is_answer(&pairs, more, (from, to), reverse) {
            return Err(Error::invalid("an answer to another scan"));
        }
        end.is_at_end = !more;
        end.next = pairs.back().map(|(key, _)| Bound::Excluded(key.clone())).or(end.next.take());
        end.ready = pairs.into_iter().map(|(key, value)| (key, Some(value))).collect();
        end.page = None;
        Ok(())
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

impl Iterator for Range {
    type Item = Result<Pair>;

    fn next(&mut self) -> Option<Self::Item> {
        self.item(false)
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.item(true)
    }
}

impl std::iter::FusedIterator for Range {}

/// Returns true if pairs are what a scan may return: in its order, within its bounds, and some if
/// there is more.
fn is_answer(
    pairs: &VecDeque<Pair>,
    more: bool,
    (from, to): (&Bound<Vec<u8>>, &Bound<Vec<u8>>),
    reverse: bool,
) -> bool {
    let mut keys = pairs.iter().map(|(key, _)| key);
    let is_inside = keys.all(|key| is_inside(key, from, to));
    let mut pairs_of_keys = pairs.iter().zip(pairs.iter().skip(1));
    let ascends = |((a, _), (b, _)): (&Pair, &Pair)| if reverse { b < a } else { a < b };
    is_inside && pairs_of_keys.all(ascends) && !(more && pairs.is_empty())
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

/// Returns true if what follows `next` is less of a range than what follows `at`.
fn advances(at: Bound<&[u8]>, next: &[u8], reverse: bool) -> bool {
    match (at, reverse) {
        (Bound::Unbounded, _) => true,
        (Bound::Included(key) | Bound::Excluded(key), false) => next > key,
        // A page that begins with `key` may be the last of its leaf, whose low fence it is.
        (Bound::Included(key), true) => next <= key,
        (Bound::Excluded(key), true) => next < key,
    }
}

pub(super) fn is_inside(key: &[u8], from: &Bound<Vec<u8>>, to: &Bound<Vec<u8>>) -> bool {
    (as_slice(from), as_slice(to)).contains(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_takes_a_range_further() {
        let advances = |at: Bound<&str>, next: &str, reverse| {
            advances(at.map(str::as_bytes), next.as_bytes(), reverse)
        };
        for reverse in [false, true] {
            assert!(advances(Bound::Unbounded, "", reverse));
            assert_eq!(advances(Bound::Included("b"), "c", reverse), !reverse);
            assert_eq!(advances(Bound::Included("b"), "a", reverse), reverse);
            assert_eq!(advances(Bound::Included("b"), "b", reverse), reverse);
            assert!(!advances(Bound::Excluded("b"), "b", reverse));
            assert_eq!(advances(Bound::Excluded("b"), "a", reverse), reverse);
        }
    }
}
