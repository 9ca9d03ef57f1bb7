//! The last mile: finishing a lookup inside a window.
//!
//! Binary search whose step is a data dependency rather than a branch, so that a mispredicted
//! comparison costs nothing; a window bounds the number of steps.

use std::hint::select_unpredictable;

use crate::segment::Window;

/// The first position in `lo..hi` for which `is_before` is false, or `hi`.
///
/// `is_before` must be true for a prefix of the range and false for the rest; if it is not, the
/// answer is still in `lo..=hi`. Calls it about `log2(hi - lo) + 1` times, only inside the range.
#[inline]
pub fn partition_point(lo: usize, hi: usize, mut is_before: impl FnMut(usize) -> bool) -> usize {
    let mut base = lo;
    let mut len = hi.saturating_sub(lo);
    while len > 1 {
        let half = len / 2;
        base += select_unpredictable(is_before(base + half - 1), half, 0);
        len -= half;
    }
    base + usize::from(len == 1 && is_before(base))
}

/// The place of `key` in sorted `keys`: the number of keys below it, searched inside `window` only.
///
/// Right whenever the window contains that place; otherwise an end of the window, and never more
/// than `keys.len()`.
#[must_use]
#[inline]
pub fn lower_bound<K: Ord>(keys: &[K], key: &K, window: Window) -> usize {
    let hi = usize::try_from(window.hi).unwrap_or(usize::MAX).min(keys.len());
    let lo = usize::try_from(window.lo).unwrap_or(usize::MAX).min(hi);
    partition_point(lo, hi, |i| keys[i] < *key)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_the_standard_library(
            mut keys in prop::collection::vec(0u32..50, 0..80), key in 0u32..50, lo in 0u64..90, hi in 0u64..90,
        ) {
            keys.sort_unstable();
            let place = keys.partition_point(|k| *k < key);
            prop_assert_eq!(partition_point(0, keys.len(), |i| keys[i] < key), place);
            let found = lower_bound(&keys, &key, Window { lo, hi });
            if lo as usize <= place && place <= hi as usize {
                prop_assert_eq!(found, place);
            }
            prop_assert!(found <= keys.len());
        }
    }
}
