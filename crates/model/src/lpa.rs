//! The learning probe: runs of sorted keys that one least-squares line predicts within a threshold.
//!
//! A probe steps forward by a fixed number of keys for as long as the line trained on all keys so
//! far stays within the threshold. Then it steps back, by steps that halve, until the line does so
//! again (FineStore, section 3.1.1). The streaming fitter in [`pla`](crate::pla) finds longer runs
//! in one pass; this one exists so that what is published with it can be built and measured as it
//! is.
//!
//! Lines are integers, and a run's error is that of the very line that is returned. So rounding may
//! make runs shorter, but never breaks the guarantee.

use crate::segment::{Line, Segment};

/// Distances between keys are scaled to this many bits before sums are formed.
const DISTANCE_BITS: u32 = 40;

/// The probe's settings.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// The largest error of a line, in positions.
    pub threshold: u64,
    /// The number of keys of a step forward; steps back are half of it, then a quarter, and so on.
    pub step: usize,
}

impl Probe {
    /// The length of the first run of `keys`, which ascend and may repeat, and its line: `y` is the
    /// position in the run. `None` if there are no keys.
    /// Linear in the run for each step: O(log step) trainings in addition to one for each step of
    /// the run. Looks at 2^20 keys at most.
    #[must_use]
    pub fn first_run(&self, keys: &[u64]) -> Option<(usize, Segment)> {
        let keys = &keys[..keys.len().min(1 << 20)];
        // A single key is a run, even if it repeats; so are any keys that the threshold spans.
        let (mut good, mut fit) = (1, train(keys.get(..1)?));
        let step = self.step.max(1);
        let mut back = step;
        let mut end = good;
        while end < keys.len() {
            end = (good + step).min(keys.len());
            match self.within(&keys[..end]) {
                Some(next) => (good, fit) = (end, next),
                None => break,
            }
        }
        while good < end && back > 1 {
            back = back.div_ceil(2);
            let Some(shorter) = end.checked_sub(back).filter(|shorter| *shorter > good) else {
                continue;
            };
            match self.within(&keys[..shorter]) {
                Some(next) => return Some((shorter, next)),
                None => end = shorter,
            }
        }
        Some((good, fit))
    }

    fn within(&self, keys: &[u64]) -> Option<Segment> {
        let segment = train(keys);
        // One position of the upward reach is for keys that were not trained.
        (segment.below.max(segment.above - 1) <= self.threshold).then_some(segment)
    }
}

/// The least-squares line of the positions of keys that ascend and may repeat, with its error.
///
/// At most 2^20 keys count for the line; the error is that of all. Linear.
#[must_use]
pub fn train(keys: &[u64]) -> Segment {
    let (Some(first), Some(last)) = (keys.first(), keys.last()) else {
        return Segment { line: Line::default(), below: 0, above: 1, start: 0, end: 0 };
    };
    let scale = (64 - (last - first).leading_zeros()).saturating_sub(DISTANCE_BITS);
    let (mut sum_x, mut sum_xx, mut sum_xy) = (0_i128, 0_i128, 0_i128);
    let counted = &keys[..keys.len().min(1 << 20)];
    for (y, key) in counted.iter().enumerate() {
        let x = i128::from((key - first) >> scale);
        sum_x += x;
        sum_xx += x * x;
        sum_xy += x * y as i128;
    }
    let count = counted.len() as i128;
    let sum_y = count * (count - 1) / 2;
    // Below 2^20 * 2^20 * 2^40 * 2^20 and 2^20 * 2^20 * 2^80: both fit.
    let rise = count * sum_xy - sum_x * sum_y;
    let run = count * sum_xx - sum_x * sum_x;
    let (mantissa, shift) = match (u128::try_from(rise), u128::try_from(run)) {
        (Ok(rise @ 1..), Ok(run @ 1..)) => quotient(rise, run, scale),
        _ => (0, 0),
    };
    let sloped = Line { x0: *first, y0: 0, mantissa, shift };
    let middle = (0..).zip(keys).map(|(y, key)| i128::from(y) - i128::from(sloped.at(*key)));
    let line = Line { y0: (middle.sum::<i128>() / keys.len() as i128) as i64, ..sloped };
    let (mut below, mut above) = (0, 0);
    for (y, key) in (0_u64..).zip(keys) {
        let at = line.at(*key);
        below = below.max(at.saturating_sub(y));
        above = above.max(y.saturating_sub(at));
    }
    Segment { line, below, above: above + 1, start: 0, end: keys.len() as u64 }
}

/// `rise / (run << scale)` as digits and shift, both above 0.
fn quotient(rise: u128, run: u128, scale: u32) -> (u32, u8) {
    // As many digits as 32 bits hold.
    let wanted = (31 + run.ilog2()).saturating_sub(rise.ilog2());
    let up = wanted.min(rise.leading_zeros());
    let digits = (rise << up) / (run >> (wanted - up)).max(1);
    // There is at most one digit too many if a shift takes it off; a slope over 2^32 keeps what it
    // can.
    let over = (128 - digits.leading_zeros()).saturating_sub(32);
    let shift = (wanted + scale).saturating_sub(over);
    let excess = shift.saturating_sub(u32::from(Line::SHIFT_MAX));
    ((digits >> (over + excess).min(127)) as u32, (shift - excess) as u8)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(keys: &[u64], segment: &Segment) {
        for (y, key) in keys.iter().enumerate() {
            let window = segment.window(*key);
            assert!(window.contains(y as u64), "{key} at {y}: {window:?} of {segment:?}");
            for near in [key.saturating_sub(1), key.saturating_add(1)] {
                let place = keys.partition_point(|key| *key < near) as u64;
                let window = segment.window(near);
                assert!(window.contains(place), "{near} at {place}: {window:?} of {segment:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn windows_hold_every_place(
            mut keys in prop::collection::vec(any::<u64>(), 0..300),
            shifts in prop::collection::vec(0_u32..64, 300),
        ) {
            for (key, shift) in keys.iter_mut().zip(shifts) {
                *key >>= shift;
            }
            keys.sort_unstable();
            check(&keys, &train(&keys));
        }

        #[test]
        fn runs_stay_within_the_threshold(
            mut keys in prop::collection::vec(any::<u64>(), 1..3000), threshold in 0_u64..64,
            shift in 0_u32..64, step in 1_usize..600,
        ) {
            keys.iter_mut().for_each(|key| *key >>= shift);
            keys.sort_unstable();
            keys.dedup();
            let probe = Probe { threshold, step };
            let mut rest = &keys[..];
            while let Some((len, segment)) = probe.first_run(rest) {
                prop_assert!(len > 0 && len <= rest.len());
                prop_assert!(segment.below <= threshold && segment.above <= threshold + 1);
                check(&rest[..len], &segment);
                rest = &rest[len..];
            }
        }
    }

    #[test]
    fn straight_keys_are_one_run() {
        for stride in [1, 7, 1 << 20, 1 << 45] {
            let keys: Vec<u64> = (0..10_000).map(|i| 5 + i * stride).collect();
            let run = Probe { threshold: 32, step: 512 }.first_run(&keys);
            let (len, segment) = run.expect("there are keys");
            assert_eq!(len, keys.len(), "{stride}: {segment:?}");
            check(&keys, &segment);
        }
    }

    #[test]
    fn a_bend_ends_the_run_near_it() {
        let keys: Vec<u64> =
            (0..1000).map(|i| i * 1000).chain((0..1000).map(|i| 999_001 + i)).collect();
        let (len, _) = Probe { threshold: 32, step: 512 }.first_run(&keys).expect("there are keys");
        assert!((900..1200).contains(&len), "{len}");
    }
}
