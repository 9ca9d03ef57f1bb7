//! Maps that grow far beyond what they were trained on, shrink to nothing and grow again. Another
//! program, `memory`, tests the memory that they take.

use std::collections::BTreeMap;

use rhumb_index::{Index, moved_by_thread};

use crate::{
    common::{Random, Setting, Shape, TestKey, TestValue, for_each_kind, scatter},
    differential::same,
};

/// Loaded in bulk, then a thousand times as many keys inserted.
fn grows_a_thousandfold<K: TestKey, V: TestValue>() {
    const LOADED: usize = 8;
    for (setting, shape) in Setting::all().zip(Shape::ALL.into_iter().cycle().skip(2)) {
        let mut random = Random::new(21);
        let mut map = BTreeMap::new();
        while map.len() < LOADED {
            map.insert(K::draw(&mut random, shape), V::make(random.next()));
        }
        let index: Index<K, V> = setting.build();
        assert_eq!(index.bulk_load(map.clone()), Ok(LOADED));
        for _ in 0..LOADED * 1000 {
            let (key, value) = (K::draw(&mut random, shape), V::make(random.next()));
            let old = map.insert(key.clone(), value.clone());
            assert_eq!(index.insert(key, value), old, "{setting:?} {shape:?}");
        }
        same(&index.iter().collect::<Vec<_>>(), &map.clone().into_iter().collect::<Vec<_>>());
        for (key, value) in &map {
            assert_eq!(index.get(key.query()).as_ref(), Some(value), "{setting:?} {shape:?}");
        }
    }
}

for_each_kind!(grows_a_thousandfold);

/// Filled, emptied and filled again with other keys.
fn grows_shrinks_and_grows<K: TestKey, V: TestValue>() {
    for setting in Setting::all() {
        let index: Index<K, V> = setting.build();
        let mut random = Random::new(31);
        for shape in [Shape::Dense, Shape::Sparse, Shape::Dense] {
            let mut map = BTreeMap::new();
            for number in 0..3_000 {
                let key = K::draw(&mut random, shape);
                map.insert(key.clone(), V::make(number));
                index.insert(key, V::make(number));
            }
            assert_eq!(index.len(), map.len());
            let mut keys: Vec<K> = map.keys().cloned().collect();
            random.shuffle(&mut keys);
            for (i, key) in keys.iter().enumerate() {
                assert_eq!(
                    index.remove(key.query()),
                    map.remove(key.query()),
                    "{setting:?} {shape:?}"
                );
                if i % 500 == 0 {
                    let expected = map.iter().map(|(k, v)| (k.clone(), v.clone()));
                    same(&index.iter().collect::<Vec<_>>(), &expected.collect::<Vec<_>>());
                }
            }
            assert!(index.is_empty() && index.first().is_none(), "{setting:?} {shape:?}");
        }
    }
}

for_each_kind!(grows_shrinks_and_grows);

/// In whatever order keys come, no single insertion copies more entries than a few leaves have.
#[test]
fn an_insertion_moves_few_entries() {
    const KEYS: u64 = 40_000;
    const MOST: u64 = 16_000;
    let orders: [fn(u64) -> u64; 4] = [
        scatter,
        |i| i,
        |i| u64::MAX - 3 * i,
        // Clusters of all widths.
        |i| ((i % 7) << 40) + (scatter(i) >> (24 + i % 40)),
    ];
    for (setting, order) in Setting::all().flat_map(|s| orders.map(|order| (s, order))) {
        let index: Index<u64, u64> = setting.build();
        let (mut seen, mut most) = (moved_by_thread(), 0);
        for i in 0..KEYS {
            index.insert(order(i), i);
            let now = moved_by_thread();
            (most, seen) = (most.max(now - seen), now);
        }
        // Copies that a trainer has saved this thread count as well.
        let times = if setting.trainers > 0 { 2 } else { 1 };
        assert!(most <= MOST * times, "{setting:?}: {most}");
        assert!(most > 0 || setting.trainers > 0, "{setting:?} replaced no leaf");
    }
}

/// Keys that are appended where no line fits, as with decimal digits, have leaves replaced at most
/// once for some dozens of them.
#[test]
fn appended_numerals_have_few_leaves_replaced() {
    const KEYS: u64 = 20_000;
    let index: Index<Vec<u8>, u64> = Index::new();
    for i in 0..KEYS {
        index.insert(format!("{i:020}").into_bytes(), i);
    }
    let retrains = index.stats().retrains;
    assert!(retrains < KEYS / 45, "{retrains}");
}
