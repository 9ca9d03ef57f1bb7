//! The index against `BTreeMap` on short histories that shrink to the shortest one that fails.

use std::{collections::BTreeMap, ops::Bound};

use proptest::{collection::vec, prelude::*};
use rhumb_index::Index;

use crate::{
    common::{Random, Setting, Shape, TestKey, TestValue},
    differential::same,
};

/// One operation; keys and values follow from the numbers.
#[derive(Clone, Debug)]
enum Step {
    Insert(u64, u64),
    /// Inserts this many neighbours of a key, so that whatever holds it overflows.
    InsertRun(u64, u8),
    Update(u64, u64),
    Remove(u64),
    Get(u64),
    Range(u64, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let number = || 0..5_000_u64;
    let step = prop_oneof![
        6 => (number(), any::<u64>()).prop_map(|(key, value)| Step::Insert(key, value)),
        1 => (number(), any::<u8>()).prop_map(|(key, count)| Step::InsertRun(key, count)),
        1 => (number(), any::<u64>()).prop_map(|(key, value)| Step::Update(key, value)),
        4 => number().prop_map(Step::Remove),
        3 => number().prop_map(Step::Get),
        1 => (number(), number()).prop_map(|(a, b)| Step::Range(a, b)),
    ];
    vec(step, 0..250)
}

fn key<K: TestKey>(shape: Shape, number: u64) -> K {
    K::draw(&mut Random::new(number), shape)
}

fn check<K: TestKey, V: TestValue>(setting: Setting, shape: Shape, steps: &[Step]) {
    let index: Index<K, V> = setting.build();
    let mut map = BTreeMap::new();
    for step in steps {
        match *step {
            Step::Insert(k, v) => {
                let (k, v) = (key::<K>(shape, k), V::make(v));
                assert_eq!(index.insert(k.clone(), v.clone()), map.insert(k, v));
            }
            Step::InsertRun(first, count) => {
                for number in first..first + u64::from(count) {
                    let (k, v) = (key::<K>(shape, number), V::make(number));
                    assert_eq!(index.insert(k.clone(), v.clone()), map.insert(k, v));
                }
            }
            Step::Update(k, v) => {
                let (k, v) = (key::<K>(shape, k), V::make(v));
                let is_there = map.get_mut(k.query()).map(|slot| *slot = v.clone()).is_some();
                assert_eq!(index.update(k.query(), v), is_there);
            }
            Step::Remove(k) => {
                let k = key::<K>(shape, k);
                assert_eq!(index.remove(k.query()), map.remove(k.query()));
            }
            Step::Get(k) => {
                let k = key::<K>(shape, k);
                assert_eq!(index.get(k.query()).as_ref(), map.get(k.query()));
            }
            Step::Range(a, b) => {
                let (a, b) = (key::<K>(shape, a), key::<K>(shape, b));
                let (low, high) = if a <= b { (a, b) } else { (b, a) };
                let bounds = (Bound::Included(low.query()), Bound::Excluded(high.query()));
                let found: Vec<_> = index.range::<(_, _)>(bounds).collect();
                let expected = map.range::<K::Query, _>(bounds);
                let expected: Vec<_> = expected.map(|(k, v)| (k.clone(), v.clone())).collect();
                same(&found, &expected);
            }
        }
    }
    same(&index.iter().collect::<Vec<_>>(), &map.into_iter().collect::<Vec<_>>());
}

fn setting(number: u64) -> Setting {
    let all: Vec<_> = Setting::all().collect();
    all[number as usize % all.len()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn bytes(steps in steps(), chosen: u64) {
        check::<u8, u64>(setting(chosen), Shape::Sparse, &steps);
    }

    #[test]
    fn words(steps in steps(), chosen: u64, shape in 0..4_usize) {
        check::<u64, u64>(setting(chosen), Shape::ALL[shape], &steps);
    }

    #[test]
    fn signed_words(steps in steps(), chosen: u64, shape in 0..4_usize) {
        check::<i64, crate::common::Text>(setting(chosen), Shape::ALL[shape], &steps);
    }

    #[test]
    fn wide_words(steps in steps(), chosen: u64, shape in 0..4_usize) {
        check::<u128, u64>(setting(chosen), Shape::ALL[shape], &steps);
    }

    #[test]
    fn strings(steps in steps(), chosen: u64, shape in 0..4_usize) {
        check::<Vec<u8>, crate::common::Text>(setting(chosen), Shape::ALL[shape], &steps);
    }
}
