//! Neighbouring keys and spans of keys: pure functions, below everything that orders keys.

use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use crate::types::KEY_BYTES_MAX;

/// A span from the first key up to, but not including, the second; `None` if it has no end.
pub(crate) type KeySpan = (Box<[u8]>, Option<Box<[u8]>>);

/// The smallest key after `key`; `None` if a keyspace can hold no such key.
pub(crate) fn key_after(key: &[u8]) -> Option<Box<[u8]>> {
    if key.len() >= KEY_BYTES_MAX {
        // Keys that extend this one are too long.
        return prefix_end(key);
    }
    Some([key, &[0]].concat().into())
}

/// The smallest key that is larger than every key with this prefix; `None` if there is no such key.
pub(crate) fn prefix_end(prefix: &[u8]) -> Option<Box<[u8]>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xFF)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end.into_boxed_slice())
}

/// The smallest byte string that is larger than `key`; it may be too long to be a key.
pub(crate) fn successor(key: &[u8]) -> Box<[u8]> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into_boxed_slice()
}

/// A range of keys: any range of the standard library over bytes, or a pair of bounds.
///
/// ```
/// # fn main() -> rhumb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let db = rhumb::Database::open(dir.path())?;
/// let users = db.keyspace("users", rhumb::KeyspaceOptions::default())?;
/// users.insert("ada", "1815")?;
/// assert_eq!(users.range(..).count(), 1);
/// assert_eq!(users.range("b"..).count(), 0);
/// assert_eq!(users.range(vec![b'a']..=vec![b'b']).count(), 1);
/// # Ok(())
/// # }
/// ```
pub trait KeyRange {
    /// The lower bound.
    fn low(&self) -> Bound<&[u8]>;
    /// The upper bound.
    fn high(&self) -> Bound<&[u8]>;
}

/// One end of a range of keys, owned.
pub(crate) type OwnedBound = Bound<Box<[u8]>>;

/// The two ends of a range, owned.
pub(crate) type OwnedBounds = (OwnedBound, OwnedBound);

/// Owned bounds, for a walk that outlives the range.
pub(crate) fn owned_bounds(range: &impl KeyRange) -> OwnedBounds {
    (range.low().map(Box::from), range.high().map(Box::from))
}

/// The bounds of the keys that begin with `prefix`.
pub(crate) fn prefix_bounds(prefix: &[u8]) -> OwnedBounds {
    let to = prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded);
    (Bound::Included(prefix.into()), to)
}

impl KeyRange for RangeFull {
    fn low(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }

    fn high(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }
}

impl<K: AsRef<[u8]>> KeyRange for (Bound<K>, Bound<K>) {
    fn low(&self) -> Bound<&[u8]> {
        self.0.as_ref().map(AsRef::as_ref)
    }

    fn high(&self) -> Bound<&[u8]> {
        self.1.as_ref().map(AsRef::as_ref)
    }
}

impl<R: KeyRange> KeyRange for &R {
    fn low(&self) -> Bound<&[u8]> {
        (**self).low()
    }

    fn high(&self) -> Bound<&[u8]> {
        (**self).high()
    }
}

macro_rules! ranges {
    ($($range:ident, $low:expr, $high:expr;)*) => {$(
        impl<K: AsRef<[u8]>> KeyRange for $range<K> {
            fn low(&self) -> Bound<&[u8]> {
                let low: fn(&Self) -> Bound<&K> = $low;
                low(self).map(AsRef::as_ref)
            }

            fn high(&self) -> Bound<&[u8]> {
                let high: fn(&Self) -> Bound<&K> = $high;
                high(self).map(AsRef::as_ref)
            }
        }
    )*};
}

ranges! {
    Range, |it| Bound::Included(&it.start), |it| Bound::Excluded(&it.end);
    RangeFrom, |it| Bound::Included(&it.start), |_| Bound::Unbounded;
    RangeTo, |_| Bound::Unbounded, |it| Bound::Excluded(&it.end);
    RangeInclusive, |it| Bound::Included(it.start()), |it| Bound::Included(it.end());
    RangeToInclusive, |_| Bound::Unbounded, |it| Bound::Included(&it.end);
}
