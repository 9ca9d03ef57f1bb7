//! Ranges of keys with a first key and an end, and sets of them: what one of several hosts serves.

use std::ops::Bound;

use crate::bounds::Bounds;

/// The keys from `low` on, and before `high` if there is such an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyRange {
    pub(crate) low: Vec<u8>,
    pub(crate) high: Option<Vec<u8>>,
}

impl KeyRange {
    pub(crate) fn new(low: impl AsRef<[u8]>, high: Option<&[u8]>) -> Self {
        Self { low: low.as_ref().to_vec(), high: high.map(<[u8]>::to_vec) }
    }

    /// Returns true if `key` is in the range.
    #[inline]
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        *self.low <= *key && self.is_before_high(key)
    }

    fn is_before_high(&self, key: &[u8]) -> bool {
        self.high.as_ref().is_none_or(|high| *key < **high)
    }

    /// Returns true if no key is in the range.
    pub(crate) fn is_empty(&self) -> bool {
        !self.is_before_high(&self.low)
    }

    /// Returns true if all keys of a range with these ends are in this one.
    pub(crate) fn holds(&self, (from, to): Bounds<&[u8]>) -> bool {
        let begins = match from {
            Bound::Unbounded => self.low.is_empty(),
            Bound::Included(key) | Bound::Excluded(key) => *self.low <= *key,
        };
        let ends = match to {
            Bound::Unbounded => self.high.is_none(),
            Bound::Included(key) => self.is_before_high(key),
            Bound::Excluded(key) => self.high.as_ref().is_none_or(|high| *key <= **high),
        };
        begins && ends
    }

    /// The ends of the range.
    pub(crate) fn bounds(&self) -> Bounds<&[u8]> {
        (Bound::Included(&self.low), self.high.as_deref().map_or(Bound::Unbounded, Bound::Excluded))
    }
}

/// Ranges in the order of their keys, with keys between each two that are in neither.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyRanges(Vec<KeyRange>);

impl KeyRanges {
    /// Ranges that come in the order of their keys.
    ///
    /// # Errors
    ///
    /// Says what is wrong if one of them is empty, or is not after the one before with a key in
    /// between.
    pub(crate) fn new(ranges: Vec<KeyRange>) -> Result<Self, &'static str> {
        if ranges.iter().any(KeyRange::is_empty) {
            return Err("a range without a key");
        }
        let follows = |(one, next): (&KeyRange, &KeyRange)| {
            one.high.as_ref().is_some_and(|high| *high < next.low)
        };
        if !ranges.iter().zip(ranges.iter().skip(1)).all(follows) {
            return Err("ranges that are not in order, or that meet");
        }
        Ok(Self(ranges))
    }

    /// The ranges, in the order of their keys.
    pub(crate) fn as_slice(&self) -> &[KeyRange] {
        &self.0
    }

    /// The range that has `key`. O(log ranges).
    #[inline]
    pub(crate) fn of(&self, key: &[u8]) -> Option<&KeyRange> {
        let after = self.0.partition_point(|range| *range.low <= *key);
        self.0[..after].last().filter(|range| range.has(key))
    }

    /// The range that has the first keys above a lower end or, with `reverse`, the last below an
    /// upper end.
    pub(crate) fn at(&self, end: Bound<&[u8]>, reverse: bool) -> Option<&KeyRange> {
        match (end, reverse) {
            (Bound::Unbounded, false) => self.of(&[]),
            (Bound::Unbounded, true) => self.0.last().filter(|range| range.high.is_none()),
            (Bound::Included(key), _) | (Bound::Excluded(key), false) => self.of(key),
            (Bound::Excluded(key), true) => {
                let after = self.0.partition_point(|range| *range.low < *key);
                let holds =
                    |range: &&KeyRange| range.high.as_ref().is_none_or(|high| *key <= **high);
                self.0[..after].last().filter(holds)
            }
        }
    }

    /// Returns true if all keys of a range with these ends are in one of the ranges.
    pub(crate) fn hold(&self, bounds: Bounds<&[u8]>) -> bool {
        self.at(bounds.0, false).is_some_and(|range| range.holds(bounds))
    }

    /// Adds the keys of a range.
    pub(crate) fn add(&mut self, mut range: KeyRange) {
        if range.is_empty() {
            return;
        }
        let mut apart = Vec::with_capacity(self.0.len() + 1);
        for one in self.0.drain(..) {
            let is_below = one.high.as_ref().is_some_and(|high| *high < range.low);
            let is_above = range.high.as_ref().is_some_and(|high| *high < one.low);
            if is_below || is_above {
                apart.push(one);
                continue;
            }
            range.low = range.low.min(one.low);
            range.high = range.high.zip(one.high).map(|(one, other)| one.max(other));
        }
        let at = apart.partition_point(|one| one.low < range.low);
        apart.insert(at, range);
        self.0 = apart;
    }

    /// Takes the keys of a range away.
    pub(crate) fn remove(&mut self, gone: &KeyRange) {
        if gone.is_empty() {
            return;
        }
        let cut = |one: KeyRange| {
            let low = gone.low.clone();
            let below = match &one.high {
                Some(high) if *high < low => Some(high.clone()),
                _ => Some(low),
            };
            let above = gone.high.clone().map(|high| high.max(one.low.clone()));
            let left = KeyRange { low: one.low.clone(), high: below };
            let right = above.map(|low| KeyRange { low, high: one.high });
            [Some(left), right].into_iter().flatten().filter(|range| !range.is_empty())
        };
        self.0 = std::mem::take(&mut self.0).into_iter().flat_map(cut).collect();
    }

    /// The ranges between these, which have all other keys.
    pub(crate) fn others(&self) -> Self {
        let mut others = Self(vec![KeyRange::new([], None)]);
        self.0.iter().for_each(|range| others.remove(range));
        others
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0u8, 1, 0xff]), 0..3)
    }

    fn range() -> impl Strategy<Value = KeyRange> {
        (key(), prop::option::of(key())).prop_map(|(low, high)| KeyRange { low, high })
    }

    fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
        prop_oneof![
            Just(Bound::Unbounded),
            key().prop_map(Bound::Included),
            key().prop_map(Bound::Excluded),
        ]
    }

    proptest! {
        #[test]
        fn sets_have_the_keys_that_were_added_last(
            changes in prop::collection::vec((any::<bool>(), range()), 0..8),
            key in key(),
            from in bound(),
            to in bound(),
        ) {
            let mut ranges = KeyRanges::default();
            for (adds, range) in &changes {
                if *adds { ranges.add(range.clone()) } else { ranges.remove(range) }
            }
            let last = changes.iter().rev().find(|(_, range)| range.has(&key));
            let has = last.is_some_and(|(adds, _)| *adds);
            prop_assert_eq!(ranges.of(&key).is_some(), has);
            prop_assert_eq!(ranges.others().of(&key).is_some(), !has);
            let again = KeyRanges::new(ranges.as_slice().to_vec());
            prop_assert_eq!(again.as_ref(), Ok(&ranges));
            let bounds = crate::bounds::Bounds::<&[u8]>::from((
                from.as_ref().map(Vec::as_slice),
                to.as_ref().map(Vec::as_slice),
            ));
            // What is held lies in the set.
            let is_inside = std::ops::RangeBounds::<[u8]>::contains(&bounds, &key[..]);
            prop_assert!(!ranges.hold(bounds) || !is_inside || has);
            if let Some(range) = ranges.at(bounds.1, true) {
                let high = range.high.as_deref();
                let up_to = (Bound::Included(&range.low[..]), bounds.1);
                prop_assert!(range.holds(up_to), "{high:?}");
            }
        }
    }

    #[test]
    fn ranges_are_in_order_and_apart() {
        let range = |low: &str, high: Option<&str>| KeyRange::new(low, high.map(str::as_bytes));
        for ranges in [
            vec![range("b", Some("a"))],
            vec![range("a", Some("a"))],
            vec![range("a", Some("b")), range("b", None)],
            vec![range("a", Some("c")), range("b", None)],
            vec![range("c", None), range("a", Some("b"))],
            vec![range("a", None), range("b", None)],
        ] {
            assert!(KeyRanges::new(ranges.clone()).is_err(), "{ranges:?}");
        }
        let two = vec![range("", Some("b")), range("c", None)];
        assert!(KeyRanges::new(two).unwrap().of(b"b").is_none());
    }
}
