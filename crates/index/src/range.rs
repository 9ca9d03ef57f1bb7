//! Ranges of keys, also of keys whose size is not known, which the standard library's `RangeBounds`
//! does not cover.

use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// A range of what keys are looked up by: any range of the standard library, of values or of
/// references, or a pair of bounds.
///
/// ```
/// let index: rhumb_index::Index<String, u32> =
///     ["ada", "bob", "eve"].into_iter().zip(0..).map(|(k, v)| (k.to_owned(), v)).collect();
/// assert_eq!(index.range("b"..).count(), 2);
/// assert_eq!(index.range("ada"..="bob").count(), 2);
/// assert_eq!(index.range(..).count(), 3);
/// ```
pub trait KeyRange<Q: ?Sized> {
    /// The lower end.
    fn low(&self) -> Bound<&Q>;
    /// The upper end.
    fn high(&self) -> Bound<&Q>;
}

impl<Q: ?Sized> KeyRange<Q> for RangeFull {
    fn low(&self) -> Bound<&Q> {
        Bound::Unbounded
    }

    fn high(&self) -> Bound<&Q> {
        Bound::Unbounded
    }
}

impl<Q: ?Sized> KeyRange<Q> for (Bound<&Q>, Bound<&Q>) {
    fn low(&self) -> Bound<&Q> {
        self.0
    }

    fn high(&self) -> Bound<&Q> {
        self.1
    }
}

impl<Q> KeyRange<Q> for (Bound<Q>, Bound<Q>) {
    fn low(&self) -> Bound<&Q> {
        self.0.as_ref()
    }

    fn high(&self) -> Bound<&Q> {
        self.1.as_ref()
    }
}

macro_rules! ranges {
    ($($range:ident, $low:expr, $high:expr;)*) => {$(
        impl<Q> KeyRange<Q> for $range<Q> {
            fn low(&self) -> Bound<&Q> {
                let low: fn(&Self) -> Bound<&Q> = $low;
                low(self)
            }

            fn high(&self) -> Bound<&Q> {
                let high: fn(&Self) -> Bound<&Q> = $high;
                high(self)
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

macro_rules! ranges_of_references {
    ($($range:ident, $low:expr, $high:expr;)*) => {$(
        impl<Q: ?Sized> KeyRange<Q> for $range<&Q> {
            fn low(&self) -> Bound<&Q> {
                let low: fn(&Self) -> Bound<&Q> = $low;
                low(self)
            }

            fn high(&self) -> Bound<&Q> {
                let high: fn(&Self) -> Bound<&Q> = $high;
                high(self)
            }
        }
    )*};
}

ranges_of_references! {
    Range, |it| Bound::Included(it.start), |it| Bound::Excluded(it.end);
    RangeFrom, |it| Bound::Included(it.start), |_| Bound::Unbounded;
    RangeTo, |_| Bound::Unbounded, |it| Bound::Excluded(it.end);
    RangeInclusive, |it| Bound::Included(*it.start()), |it| Bound::Included(*it.end());
    RangeToInclusive, |_| Bound::Unbounded, |it| Bound::Included(it.end);
}
