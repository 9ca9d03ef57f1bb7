//! The fitter against exhaustive answers: fewest segments, and windows that never miss.

use proptest::prelude::*;

use super::*;
use crate::segment::Window;

/// Returns true if some line passes within `epsilon` of all points, by comparing all pairs: each
/// pair of a floor and a ceiling bounds the slope.
fn some_line_fits(points: &[(u64, u64)], epsilon: u64) -> bool {
    let e = i128::from(epsilon);
    let mut least = (0i128, 1i128);
    let mut most: Option<(i128, i128)> = None;
    for (i, a) in points.iter().enumerate() {
        for b in &points[i..] {
            let run = i128::from(b.0 - a.0);
            let rise = i128::from(b.1) - i128::from(a.1);
            if run == 0 {
                if rise > 2 * e {
                    return false;
                }
                continue;
            }
            let (low, high) = ((rise - 2 * e, run), (rise + 2 * e, run));
            if low.0 * least.1 > least.0 * low.1 {
                least = low;
            }
            if most.is_none_or(|most| high.0 * most.1 < most.0 * high.1) {
                most = Some(high);
            }
        }
    }
    most.is_none_or(|most| least.0 * most.1 <= most.0 * least.1)
}

/// Fits all points, checks every window, returns the length of each run.
fn check(points: &[(u64, u64)], epsilon: u64) -> Vec<usize> {
    let mut fitter = Fitter::new(epsilon);
    let mut lengths = Vec::new();
    let mut from = 0;
    for (i, (x, y)) in points.iter().enumerate() {
        if !fitter.add_point(*x, *y) {
            check_windows(&fitter.segment().unwrap(), &points[from..i], epsilon);
            lengths.push(i - from);
            from = i;
            fitter.clear();
            assert!(fitter.segment().is_none());
            assert!(fitter.add_point(*x, *y));
        }
    }
    if let Some(segment) = fitter.segment() {
        check_windows(&segment, &points[from..], epsilon);
        lengths.push(points.len() - from);
    }
    lengths
}

fn check_windows(segment: &Segment, points: &[(u64, u64)], epsilon: u64) {
    let step = points.windows(2).map(|w| w[1].1 - w[0].1).max().unwrap_or(1).max(1);
    let rise = points[points.len() - 1].1 - points[0].1;
    let slack = 2 * (epsilon + 4 + (rise >> 31)) + step;
    let holds = |x: u64, place: u64| {
        let Window { lo, hi } = segment.window(x);
        assert!(lo <= place && place <= hi, "{x} at {place} outside {lo}..={hi}");
        assert!(hi - lo <= slack, "{lo}..={hi} is wider than {slack}");
    };
    for (i, (x, y)) in points.iter().enumerate() {
        holds(*x, *y);
        // The numbers next to a key that are not keys themselves.
        for probe in [x.saturating_sub(1), x.saturating_add(1), x / 2, x | 0xff] {
            if points.binary_search_by_key(&probe, |p| p.0).is_err() {
                let next = points.partition_point(|p| p.0 < probe);
                holds(probe, points.get(next).map_or(segment.end, |p| p.1));
            }
        }
        if i == 0 && *x > 0 {
            holds(0, *y);
        }
    }
}

/// The lengths of the greedy runs, each as long as any line allows.
fn exhaustive_runs(points: &[(u64, u64)], epsilon: u64) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut from = 0;
    for to in 1..=points.len() {
        if to == points.len() || !some_line_fits(&points[from..=to], epsilon) {
            lengths.push(to - from);
            from = to;
        }
    }
    lengths
}

/// Sorted keys of many shapes.
fn keys() -> impl Strategy<Value = Vec<u64>> {
    let uniform = prop::collection::vec(any::<u64>(), 1..120);
    let dense = prop::collection::vec(0u64..60, 1..120);
    let clustered = prop::collection::vec((0u64..6, 0u64..400), 1..120)
        .prop_map(|keys| keys.into_iter().map(|(c, k)| c * (u64::MAX / 6) + k).collect());
    // Many distinct integers that are all the same f64.
    let same_float = prop::collection::vec(0u64..1000, 1..120)
        .prop_map(|keys| keys.into_iter().map(|k| (1 << 63) + k).collect());
    let extremes = prop::collection::vec(
        prop_oneof![Just(0), Just(1), Just(u64::MAX), Just(u64::MAX - 1), Just(1 << 63)],
        1..60,
    );
    let powers = prop::collection::vec((0u32..64, 0u64..3), 1..100)
        .prop_map(|keys| keys.into_iter().map(|(p, k)| (1u64 << p).saturating_add(k)).collect());
    prop_oneof![uniform, dense, clustered, same_float, extremes, powers].prop_map(
        |mut keys: Vec<u64>| {
            keys.sort_unstable();
            keys
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn ranks_of_keys(mut keys in keys(), epsilon in 0u64..12) {
        keys.dedup();
        let points: Vec<_> = keys.iter().zip(0..).map(|(x, y)| (*x, y)).collect();
        prop_assert_eq!(check(&points, epsilon), exhaustive_runs(&points, epsilon));
    }

    #[test]
    fn weighted_points_with_ties(
        keys in keys(), steps in prop::collection::vec(0u64..5000, 120), epsilon in 0u64..20_000, base in 0u64..1 << 47,
    ) {
        let mut y = base;
        let points: Vec<_> = keys.iter().zip(steps).map(|(x, step)| { y += step; (*x, y) }).collect();
        prop_assert_eq!(check(&points, epsilon), exhaustive_runs(&points, epsilon));
    }

    #[test]
    fn any_points_at_all(points in prop::collection::vec((any::<u64>(), any::<u64>()), 0..60), epsilon: u64, shift in 0u32..64) {
        let mut fitter = Fitter::new(epsilon);
        for (x, y) in points {
            fitter.add_point(x, y >> shift);
            if let Some(segment) = fitter.segment() {
                let window = segment.window(x);
                prop_assert!(window.lo <= window.hi);
            }
        }
    }
}

#[test]
fn a_straight_line_is_one_segment() {
    for step in [1, 3, 1 << 20, u64::MAX / 50_000] {
        let points: Vec<_> = (0..50_000).map(|i| (i * step, i)).collect();
        assert_eq!(check(&points, 0), [50_000], "step {step}");
    }
}

#[test]
fn a_cluster_of_equal_keys_is_bounded_by_epsilon() {
    let mut fitter = Fitter::new(10);
    assert!((0..=20).all(|y| fitter.add_point(7, y)));
    assert!(!fitter.add_point(7, 21));
    assert!(fitter.add_point(8, 21), "a refusal must change nothing");
}

#[test]
fn what_cannot_be_fitted_is_refused() {
    let mut fitter = Fitter::new(0);
    assert!(!fitter.add_point(5, Fitter::Y_MAX + 1));
    assert!(fitter.add_point(5, 5));
    assert!(!fitter.add_point(4, 6), "x falls");
    assert!(!fitter.add_point(6, 4), "y falls");
    assert!(!fitter.add_point(6, 6 + (1 << 33)), "too steep");
    assert!(!fitter.add_point(u64::MAX, 6 + Fitter::RISE_MAX));
    assert_eq!(fitter.points(), 1);
}

/// `cargo test --release -p rhumb-model -- --ignored --nocapture fit_ten_million`
#[test]
#[ignore = "prints a figure, checks nothing"]
fn fit_ten_million_keys() {
    let mut state = 1u64;
    let mut keys: Vec<u64> = (0..10_000_000)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state ^ state >> 29
        })
        .collect();
    keys.sort_unstable();
    for epsilon in [8, 64, 512] {
        let begun = std::time::Instant::now();
        let mut fitter = Fitter::new(epsilon);
        let mut segments = 0;
        for (x, y) in keys.iter().zip(0..) {
            if !fitter.add_point(*x, y) {
                segments += 1;
                std::hint::black_box(fitter.segment());
                fitter.clear();
                fitter.add_point(*x, y);
            }
        }
        println!("epsilon {epsilon}: {segments} segments in {:?}", begun.elapsed());
    }
}
