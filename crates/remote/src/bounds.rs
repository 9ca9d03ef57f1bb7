//! Ranges of keys.

use std::ops::Bound;

/// The two ends of a range.
pub(crate) type Bounds<K> = (Bound<K>, Bound<K>);

/// The range of the keys that begin with `prefix`.
pub(crate) fn prefix_bounds(prefix: &[u8]) -> Bounds<Vec<u8>> {
    let kept = prefix.iter().rposition(|byte| *byte != u8::MAX).map_or(0, |last| last + 1);
    let mut end = prefix[..kept].to_vec();
    let to = match end.last_mut() {
        None => Bound::Unbounded,
        Some(last) => {
            *last += 1;
            Bound::Excluded(end)
        }
    };
    (Bound::Included(prefix.to_vec()), to)
}

/// The keys that are in both ranges; `None` if there can be none.
pub(crate) fn common<'k>(a: Bounds<&'k [u8]>, b: Bounds<&'k [u8]>) -> Option<Bounds<&'k [u8]>> {
    // Of two bounds at the same key, the one that excludes it is narrower.
    let rank = |bound: &Bound<&'k [u8]>, excluded: i8| match *bound {
        Bound::Unbounded => None,
        Bound::Included(key) => Some((key, 0)),
        Bound::Excluded(key) => Some((key, excluded)),
    };
    let from = if rank(&a.0, 1) >= rank(&b.0, 1) { a.0 } else { b.0 };
    let to = match (rank(&a.1, -1), rank(&b.1, -1)) {
        (None, _) => b.1,
        (_, None) => a.1,
        (one, other) => {
            if one <= other {
                a.1
            } else {
                b.1
            }
        }
    };
    match (rank(&from, 1), rank(&to, -1)) {
        (Some(low), Some(high)) if low > high => None,
        _ => Some((from, to)),
    }
}

/// The same bounds of slices.
pub(crate) fn as_slices(bounds: &Bounds<Vec<u8>>) -> Bounds<&[u8]> {
    (bounds.0.as_ref().map(Vec::as_slice), bounds.1.as_ref().map(Vec::as_slice))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::ops::RangeBounds;

    use proptest::prelude::*;

    use super::*;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0u8, 1, 0xff]), 0..3)
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
        fn bounds_hold_what_they_say(
            a in (bound(), bound()),
            b in (bound(), bound()),
            prefix in key(),
            other in key(),
        ) {
            let (a, b) = (as_slices(&a), as_slices(&b));
            let is_in = |bounds: Bounds<&[u8]>| bounds.contains(&other[..]);
            let both = common(a, b);
            prop_assert_eq!(both.is_some_and(is_in), is_in(a) && is_in(b));
            if let Some(both) = both {
                // A map takes them.
                let map = std::collections::BTreeMap::from([(other.clone(), ())]);
                prop_assert_eq!(map.range::<[u8], _>(both).count(), usize::from(is_in(both)));
            }
            let begins = prefix_bounds(&prefix);
            prop_assert_eq!(as_slices(&begins).contains(&other[..]), other.starts_with(&prefix));
        }
    }
}
