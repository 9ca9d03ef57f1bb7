//! Maps that grow far beyond what they were trained on, shrink to nothing and grow again, and the
//! memory that they take meanwhile.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use rhumb::index::{Index, moved_by_thread};

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

/// Keys of the test of memory: enough that what is taken ahead of need is a small part.
const KEYS: usize = 800_000;

/// What an index may take for `keys` integers and words at `each` bytes: a few chunks of two
/// mebibytes, each of which one leaf may hold, and an eighth besides, as its documentation says.
fn bytes_max(keys: usize, each: usize) -> usize {
    keys * each / 8 * 9 + (12 << 20)
}

/// Waits a moment, with some writes, until no reader can hold what an index does without.
fn settle(index: &Index<u64, u64>, goal: usize, writes: impl Fn()) {
    let start = Instant::now();
    while index.memory_bytes() > goal && start.elapsed() < Duration::from_secs(20) {
        writes();
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn memory_is_bounded_and_comes_back() {
    for setting in Setting::all() {
        let index: Index<u64, u64> = setting.build();
        let mut keys: Vec<u64> = (0..KEYS as u64).map(scatter).collect();
        for &key in &keys {
            index.insert(key, key);
        }
        let peak = index.memory_bytes();
        assert!(peak >= KEYS * 16, "{peak} bytes cannot hold {KEYS} pairs");
        assert!(
            peak <= bytes_max(KEYS, setting.bytes_grown()),
            "{setting:?}: {peak} bytes at the peak"
        );
        // Long scans, which let others free memory on their way.
        keys.sort_unstable();
        assert!(index.iter().map(|(key, _)| key).eq(keys.iter().copied()));
        assert!(index.iter().rev().map(|(key, _)| key).eq(keys.iter().rev().copied()));
        Random::new(1).shuffle(&mut keys);
        let kept = keys.split_off(keys.len() / 10 * 9);
        for key in &keys {
            assert_eq!(index.remove(key), Some(*key));
        }
        // Bytes wait until no reader can hold them; a few writes and a moment let them go.
        let goal = bytes_max(kept.len(), setting.bytes_shrunk());
        settle(&index, goal, || {
            for key in &kept[..100] {
                index.insert(*key, *key);
            }
        });
        let (now, stats) = (index.memory_bytes(), index.stats());
        assert!(
            now <= goal,
            "{setting:?}: {now} bytes after removals, {peak} before, at most {goal} wanted: {stats:?}"
        );
        for key in &kept {
            assert_eq!(index.get(key), Some(*key));
        }
        assert_eq!(index.len(), kept.len());
    }
}

#[test]
fn rewriting_the_same_keys_takes_no_more_memory() {
    for setting in Setting::all() {
        let index: Index<u64, u64> = setting.build();
        for key in 0..20_000 {
            index.insert(scatter(key), key);
        }
        let once = index.memory_bytes();
        for round in 0..10 {
            for key in 0..20_000 {
                assert_eq!(index.remove(&scatter(key)), Some(key + round));
                assert_eq!(index.insert(scatter(key), key + round + 1), None);
            }
        }
        let most = bytes_max(20_000, setting.bytes_shrunk());
        settle(&index, most, || {});
        let now = index.memory_bytes();
        assert!(now <= most, "{setting:?}: {once} bytes, then {now}: {:?}", index.stats());
        assert_eq!(index.len(), 20_000);
    }
}

/// However keys come, no single insertion copies more entries than a few leaves have.
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
        // What a trainer was faster at counts as well.
        let times = if setting.trainers > 0 { 2 } else { 1 };
        assert!(most <= MOST * times, "{setting:?}: {most}");
        assert!(most > 0 || setting.trainers > 0, "{setting:?} replaced no leaf");
    }
}

/// Keys that are appended where no line fits, as that of decimal digits does not, have leaves replaced no more
/// often than once for some dozens of them.
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
