//! Leaves that were loaded together, and fill together.

use super::{super::Index, Random, SCALE};

/// Returns, for each percentage of `grown`, how many of a hundred leaves were replaced when their
/// keys had grown to it.
fn replaced(len: u64, grown: &[u64]) -> Vec<u64> {
    let mut random = Random::new(11);
    let mut keys: Vec<u64> = (0..len * 2).map(|_| random.next()).collect();
    keys.sort_unstable();
    keys.dedup();
    let (mut loaded, mut more) = (Vec::new(), Vec::new());
    for key in keys {
        if random.below(2) == 0 { loaded.push(key) } else { more.push(key) }
    }
    let index = Index::<u64, u64>::builder().trainers(0).build();
    index.bulk_load(loaded.iter().map(|key| (*key, !key))).unwrap();
    let leaves = index.stats().line_leaves as u64;
    for at in (1..more.len()).rev() {
        more.swap(at, random.below(at as u64 + 1) as usize);
    }
    let mut more = more.into_iter();
    let replaced = |share: &u64| {
        let target = (loaded.len() as u64 * share / 100) as usize;
        for key in more.by_ref().take(target - index.len()) {
            assert_eq!(index.insert(key, !key), None);
        }
        index.stats().retrains * 100 / leaves
    };
    grown.iter().map(replaced).collect()
}

#[test]
fn leaves_that_fill_together_are_not_replaced_together() {
    let replaced = replaced(400_000 / SCALE as u64, &[120, 130, 140, 150, 160, 170]);
    println!("{replaced:?}");
    if SCALE == 1 {
        // Leaves are replaced one by one, between the time when the first of them must be and the
        // time when the last must be.
        assert!(replaced[0] < 5, "{replaced:?}");
        assert!((10..60).contains(&replaced[2]), "{replaced:?}");
        assert!((40..90).contains(&replaced[3]), "{replaced:?}");
        assert!(replaced[5] >= 95, "{replaced:?}");
    }
}
