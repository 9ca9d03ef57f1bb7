//! Ranges as a command sees them: what is stored, under what is pending.

use std::iter::Peekable;

use rhumb::{Result, Slice};

use crate::effort;

/// The engine's iterator in one direction.
pub(crate) struct Directed {
    pub(super) stored: rhumb::Iter,
    pub(super) reverse: bool,
}

impl Directed {
    /// As `next`, for a caller that only looks at the pair.
    pub(super) fn next_with<T>(
        &mut self,
        look: impl FnOnce(&[u8], &[u8]) -> T,
    ) -> Option<Result<T>> {
        effort::steps(1);
        if self.reverse { self.stored.next_back_with(look) } else { self.stored.next_with(look) }
    }
}

impl Iterator for Directed {
    type Item = Result<(Slice, Slice)>;

    fn next(&mut self) -> Option<Self::Item> {
        effort::steps(1);
        if self.reverse { self.stored.next_back() } else { self.stored.next() }
    }
}

/// Pairs of a range: those stored, under those pending.
pub(crate) enum Scan {
    Nothing,
    Stored(Box<Directed>),
    Merged {
        stored: Box<Peekable<Directed>>,
        pending: Vec<(Vec<u8>, Option<Vec<u8>>)>,
        reverse: bool,
    },
}

impl Scan {
    /// Says before the first pair is read about how many there will be.
    pub(crate) fn expecting(mut self, pairs: u64) -> Self {
        if let Self::Stored(stored) = &mut self {
            stored.stored.hint_len(usize::try_from(pairs).unwrap_or(usize::MAX));
        }
        self
    }

    /// As `next`, for a caller that only looks at the pair: what is stored is not copied.
    pub(crate) fn next_with<T>(
        &mut self,
        look: impl FnOnce(&[u8], &[u8]) -> T,
    ) -> Option<Result<T>> {
        match self {
            Self::Stored(stored) => stored.next_with(look),
            _ => self.next().map(|pair| pair.map(|(key, value)| look(&key, &value))),
        }
    }
}

impl Iterator for Scan {
    type Item = Result<(Slice, Slice)>;

    fn next(&mut self) -> Option<Self::Item> {
        let (stored, pending, reverse) = match self {
            Self::Nothing => return None,
            Self::Stored(stored) => return stored.next(),
            Self::Merged { stored, pending, reverse } => (stored, pending, *reverse),
        };
        loop {
            let Some((key, _)) = pending.last() else { return stored.next() };
            let order = match stored.peek() {
                Some(Err(_)) => return stored.next(),
                Some(Ok((other, _))) => {
                    let order = key.as_slice().cmp(other);
                    if reverse { order.reverse() } else { order }
                }
                None => std::cmp::Ordering::Less,
            };
            if order.is_gt() {
                return stored.next();
            }
            if order.is_eq() {
                stored.next();
            }
            if let Some((key, Some(value))) = pending.pop() {
                return Some(Ok((Slice::from(key), Slice::from(value))));
            }
        }
    }
}
