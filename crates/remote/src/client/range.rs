//! Ranges from both ends, a leaf at a time.

use std::{
    cmp::Ordering,
    ops::{
        Bound::{self, Unbounded},
        RangeBounds,
    },
};

use rhumb_model::code::code_at;

use super::{Page, Pairs, keyspace::Keyspace};
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
/// Each item may fail by itself; after an error the iterator ends. A range whose length is known is
/// read faster with [`Range::limit`]. [`Range::next_ref`] lends each pair, where the iterator
/// allocates a key and a value:
///
/// ```no_run
/// # fn main() -> rhumb_remote::Result<()> {
/// # let users = rhumb_remote::Client::connect("rhumb-data.sock")?.keyspace("users")?;
/// let mut range = users.range("user:1000"..).limit(100);
/// let mut bytes = 0;
/// while let Some(pair) = range.next_ref() {
///     let (key, value) = pair?;
///     bytes += key.len() + value.len();
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Range {
    keyspace: Keyspace,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    front: End,
    back: End,
    /// Pairs that the next call asks for, and the most that one does.
    call_pairs: (u32, u32),
    /// Pairs that may still be returned.
    left: usize,
    /// A value that the host was asked for.
    asked: Vec<u8>,
    /// True if the back was the end that was used last.
    is_at_back: bool,
    ended: bool,
}

/// One end of a range.
#[derive(Debug, Default)]
struct End {
    page: Page,
    /// Pairs of the page that were returned, or passed over. The range's bound follows once that
    /// matters.
    taken: usize,
    /// Where the next page begins, if one was read.
    next: Option<Bound<Vec<u8>>>,
    is_at_end: bool,
}

impl End {
    /// Moves the bound of the range to the last pair that was taken.
    fn move_bound(&mut self, bound: &mut Bound<Vec<u8>>) {
        if let Some((key, _)) = self.taken.checked_sub(1).and_then(|last| self.page.pairs.get(last))
        {
            *bound = Bound::Excluded(key.to_vec());
        }
    }

    /// Forgets what was read from the first pair on that is outside of the range or out of order:
    /// the range ends there.
    fn clip(&mut self, from: &Bound<Vec<u8>>, to: &Bound<Vec<u8>>, reverse: bool) {
        let (near, far) = if reverse { (to, from) } else { (from, to) };
        let mut last = as_slice(near);
        let far = as_slice(far);
        let mut inside = self.taken;
        while let Some((key, _)) = self.page.pairs.get(inside) {
            if !advances_to(last, key, reverse) || !advances_to(far, key, !reverse) {
                self.page.pairs.truncate(inside);
                self.is_at_end = true;
                return;
            }
            last = Bound::Excluded(key);
            inside += 1;
        }
    }
}

/// Returns true if a key is after a bound, in one direction.
#[inline]
fn advances_to(bound: Bound<&[u8]>, key: &[u8], reverse: bool) -> bool {
    let (bound, is_included) = match bound {
        Bound::Unbounded => return true,
        Bound::Included(bound) => (bound, true),
        Bound::Excluded(bound) => (bound, false),
    };
    // Most keys differ in what fits a word.
    let codes = code_at(key, 0).cmp(&code_at(bound, 0));
    match if codes.is_eq() { key.cmp(bound) } else { codes } {
        Ordering::Equal => is_included,
        Ordering::Less => reverse,
        Ordering::Greater => !reverse,
    }
}

impl Range {
    pub(super) fn new(keyspace: Keyspace, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Self {
        let call_pairs = keyspace.call_pairs();
        Self {
            keyspace,
            from,
            to,
            front: End::default(),
            back: End::default(),
            call_pairs,
            left: usize::MAX,
            asked: Vec::new(),
            is_at_back: false,
            ended: false,
        }
    }

    /// The range's first pairs, or its last ones: `pairs` of them at most, from both ends together.
    /// No more is read than that, where an unlimited range reads whole leaves.
    #[must_use]
    pub fn limit(self, pairs: usize) -> Self {
        Self { left: self.left.min(pairs), ..self }
    }

    /// The next pair, from the front, without an allocation where the host need not be asked.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`]. The range ends after an error.
    pub fn next_ref(&mut self) -> Option<Result<(&[u8], &[u8])>> {
        self.lend(false)
    }

    /// The next pair from the back. Otherwise as [`Range::next_ref`].
    ///
    /// # Errors
    ///
    /// As [`Range::next_ref`].
    pub fn next_back_ref(&mut self) -> Option<Result<(&[u8], &[u8])>> {
        self.lend(true)
    }

    #[inline]
    fn lend(&mut self, reverse: bool) -> Option<Result<(&[u8], &[u8])>> {
        if self.ended {
            return None;
        }
        match self.step(reverse) {
            Ok(true) => {}
            Ok(false) => {
                self.ended = true;
                return None;
            }
            Err(error) => {
                self.ended = true;
                return Some(Err(error));
            }
        }
        let end = if reverse { &self.back } else { &self.front };
        let (key, value) = end.page.pairs.get(end.taken - 1)?;
        Some(Ok((key, value.unwrap_or(&self.asked))))
    }

    /// Takes the next pair; false if there is none.
    #[inline]
    fn step(&mut self, reverse: bool) -> Result<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        if reverse != self.is_at_back {
            self.turn();
        }
        loop {
            let end = if reverse { &mut self.back } else { &mut self.front };
            let Some((key, value)) = end.page.pairs.get(end.taken) else {
                if end.is_at_end {
                    return Ok(false);
                }
                self.read(reverse)?;
                continue;
            };
            end.taken += 1;
            let is_there = value.is_some() || {
                self.asked.clear();
                self.keyspace.get_into(key, &mut self.asked)?
            };
            // Otherwise removed since its leaf was read.
            if is_there {
                self.left -= 1;
                return Ok(true);
            }
        }
    }

    /// Goes on at the other end, which may have read what this one has returned.
    #[cold]
    fn turn(&mut self) {
        self.is_at_back = !self.is_at_back;
        if self.is_at_back {
            self.front.move_bound(&mut self.from);
            self.back.clip(&self.from, &self.to, true);
        } else {
            self.back.move_bound(&mut self.to);
            self.front.clip(&self.from, &self.to, false);
        }
    }

    /// Reads the next part at one end, of whose last part everything was taken.
    fn read(&mut self, reverse: bool) -> Result<()> {
        let end = if reverse {
            self.back.move_bound(&mut self.to);
            &mut self.back
        } else {
            self.front.move_bound(&mut self.from);
            &mut self.front
        };
        end.taken = 0;
        let next = end.next.take();
        let at = next.as_ref().unwrap_or(if reverse { &self.to } else { &self.from });
        let (from, to) = if reverse { (&self.from, at) } else { (at, &self.to) };
        let (above, below) = ((as_slice(from), Unbounded), (Unbounded, as_slice(to)));
        if common(above, below).is_none() {
            // A host need not serve what comes after the range.
            end.page.pairs.clear();
            end.is_at_end = true;
            return Ok(());
        }
        let is_read = self.keyspace.page(as_slice(at), reverse, self.left, &mut end.page);
        // A damaged leaf may say that the range goes on where it is.
        let advances = |next: &Vec<u8>| advances(as_slice(at), next, reverse);
        if is_read && end.page.next.as_ref().is_none_or(advances) {
            end.is_at_end = end.page.next.is_none();
            let next = end.page.next.take();
            end.next =
                next.map(|key| if reverse { Bound::Excluded(key) } else { Bound::Included(key) });
            end.clip(&self.from, &self.to, reverse);
            return Ok(());
        }
        let (limit, most) = self.call_pairs;
        let limit = limit.min(u32::try_from(self.left).unwrap_or(u32::MAX));
        end.page = Page::default();
        let pairs = &mut end.page.pairs;
        let more =
            self.keyspace.call_scan(as_slice(from), as_slice(to), reverse, limit, false, pairs)?;
        self.call_pairs.0 = self.call_pairs.0.saturating_mul(CALL_GROWTH).min(most);
        if !is_answer(pairs, more, (from, to), reverse) {
            pairs.clear();
            return Err(Error::invalid("an answer to another scan"));
        }
        end.is_at_end = !more;
        let last = pairs.iter().next_back().map(|(key, _)| Bound::Excluded(key.to_vec()));
        end.next = last.or(next);
        Ok(())
    }

    fn item(&mut self, reverse: bool) -> Option<Result<Pair>> {
        let pair = self.lend(reverse)?;
        Some(pair.map(|(key, value)| (key.to_vec(), value.to_vec())))
    }
}

impl Iterator for Range {
    type Item = Result<Pair>;

    fn next(&mut self) -> Option<Self::Item> {
        self.item(false)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left))
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
    pairs: &Pairs,
    more: bool,
    (from, to): (&Bound<Vec<u8>>, &Bound<Vec<u8>>),
    reverse: bool,
) -> bool {
    let keys = || pairs.iter().map(|(key, _)| key);
    let is_inside = keys().all(|key| is_inside(key, from, to));
    let ascends = |(a, b): (&[u8], &[u8])| if reverse { b < a } else { a < b };
    is_inside && keys().zip(keys().skip(1)).all(ascends) && !(more && pairs.is_empty())
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
