//! Keys and orders of insertion that are most likely to be forgotten.

use std::collections::BTreeMap;

use rhumb_index::Index;

use crate::{
    common::{Random, Setting, Shape, TestKey, TestValue, for_each_kind, scatter},
    differential::same,
};

/// The ends of a type alone, together, and among other keys.
fn ends_are_keys_like_others<K: TestKey, V: TestValue>() {
    for setting in Setting::all() {
        let index: Index<K, V> = setting.build();
        assert!(index.is_empty() && index.first().is_none() && index.last().is_none());
        let [low, high] = K::ends();
        for key in [&low, &high] {
            assert_eq!(index.get(key.query()), None);
            assert_eq!(index.remove(key.query()), None);
            assert_eq!(index.insert(key.clone(), V::make(1)), None);
            assert_eq!(index.insert(key.clone(), V::make(2)), Some(V::make(1)));
            assert_eq!(index.get(key.query()), Some(V::make(2)));
        }
        same(
            &index.iter().collect::<Vec<_>>(),
            &[(low.clone(), V::make(2)), (high.clone(), V::make(2))],
        );
        let mut random = Random::new(1);
        let mut map = BTreeMap::from([(low.clone(), V::make(2)), (high.clone(), V::make(2))]);
        for number in 0..2_000 {
            let key = K::draw(&mut random, Shape::ALL[number as usize % 4]);
            let value = V::make(number);
            let old = map.insert(key.clone(), value.clone());
            assert_eq!(index.insert(key, value), old);
        }
        assert_eq!(index.first().map(|entry| entry.0), Some(low.clone()));
        assert_eq!(index.last().map(|entry| entry.0), Some(high.clone()));
        for key in [&low, &high] {
            assert_eq!(index.remove(key.query()), map.remove(key.query()));
            assert_eq!(index.get(key.query()), None);
        }
        same(&index.iter().collect::<Vec<_>>(), &map.into_iter().collect::<Vec<_>>());
    }
}

for_each_kind!(ends_are_keys_like_others);

/// One key that is inserted, replaced and removed again and again, with and without neighbours.
fn one_hot_key<K: TestKey, V: TestValue>() {
    for setting in Setting::all() {
        for neighbours in [0, 500] {
            let index: Index<K, V> = setting.build();
            let mut random = Random::new(7);
            let keys: Vec<K> =
                (0..neighbours).map(|_| K::draw(&mut random, Shape::Dense)).collect();
            for key in &keys {
                index.insert(key.clone(), V::make(3));
            }
            let hot = K::draw(&mut random, Shape::Dense);
            let mut value = index.get(hot.query());
            let others = index.len() - usize::from(value.is_some());
            for round in 0..2_000 {
                let new = V::make(round);
                assert_eq!(index.insert(hot.clone(), new.clone()), value);
                value = Some(new);
                if round % 3 == 0 {
                    assert_eq!(index.remove(hot.query()), value.take());
                }
                assert_eq!(index.get(hot.query()), value);
            }
            assert_eq!(index.len(), others + usize::from(value.is_some()));
        }
    }
}

for_each_kind!(one_hot_key);

/// Orders in which the same keys are inserted.
fn orders(keys: &[u64]) -> Vec<(&'static str, Vec<u64>)> {
    let mut random = Random::new(5);
    let mut shuffled = keys.to_vec();
    random.shuffle(&mut shuffled);
    let inward: Vec<u64> = {
        let (low, high) = keys.split_at(keys.len() / 2);
        low.iter().zip(high.iter().rev()).flat_map(|(&a, &b)| [a, b]).collect()
    };
    let outward: Vec<u64> = inward.iter().rev().copied().collect();
    vec![
        ("sorted", keys.to_vec()),
        ("reversed", keys.iter().rev().copied().collect()),
        ("shuffled", shuffled),
        ("inward", inward),
        ("outward", outward),
    ]
}

/// Distributions that no line fits, or that every line fits.
fn distributions() -> Vec<(&'static str, Vec<u64>)> {
    const COUNT: u64 = 6_000;
    let mut random = Random::new(11);
    let sequential = (0..COUNT).collect();
    let at_the_top = (0..COUNT).map(|i| u64::MAX - (COUNT - 1) + i).collect();
    let exponential = (0..64).flat_map(|bit| (0..90).map(move |i| (1_u64 << bit) | i)).collect();
    let squares = (0..COUNT).map(|i| i * i).collect();
    // Codes that tie as floating-point numbers: distinct words above 2^53 that differ in few bits.
    let ties = (0..COUNT).map(|i| (1 << 63) + i * 3).collect();
    let clusters = (0..30_u64)
        .flat_map(|c| (0..200).map(move |i| (scatter(c) >> 1) + (i << (c % 20))))
        .collect();
    let outliers = (0..COUNT).map(|i| if i % 1_000 == 0 { scatter(i) } else { i }).collect();
    let uniform = (0..COUNT).map(|_| random.next()).collect();
    let mut all: Vec<(&str, Vec<u64>)> = vec![
        ("sequential", sequential),
        ("at the top", at_the_top),
        ("exponential", exponential),
        ("squares", squares),
        ("ties", ties),
        ("clusters", clusters),
        ("outliers", outliers),
        ("uniform", uniform),
    ];
    for (_, keys) in &mut all {
        keys.sort_unstable();
        keys.dedup();
        // The orders that take keys from both ends need pairs.
        keys.truncate(keys.len() / 2 * 2);
    }
    all
}

#[test]
fn every_distribution_in_every_order() {
    for setting in Setting::all() {
        for (distribution, sorted) in distributions() {
            let expected: Vec<_> = sorted.iter().map(|&key| (key, !key)).collect();
            for (order, keys) in orders(&sorted) {
                let index: Index<u64, u64> = setting.build();
                for &key in &keys {
                    assert_eq!(index.insert(key, !key), None, "{distribution} {order} {key}");
                }
                assert_eq!(index.len(), sorted.len(), "{distribution} {order}");
                same(&index.iter().collect::<Vec<_>>(), &expected);
                for &key in &keys {
                    assert_eq!(index.get(&key), Some(!key), "{distribution} {order} {key}");
                    let absent = key.wrapping_add(1);
                    let is_absent = sorted.binary_search(&absent).is_err();
                    assert_eq!(index.get(&absent).is_none(), is_absent, "{absent}");
                }
            }
            let index: Index<u64, u64> = setting.build();
            assert_eq!(index.bulk_load(expected.iter().copied()), Ok(expected.len()));
            same(&index.iter().collect::<Vec<_>>(), &expected);
            for (key, value) in expected {
                assert_eq!(index.remove(&key), Some(value), "{distribution}");
            }
            assert!(index.is_empty(), "{distribution}");
        }
    }
}

#[test]
fn long_keys_that_differ_at_their_ends_only() {
    for setting in Setting::all() {
        let index: Index<Vec<u8>, u64> = setting.build();
        let long = vec![b'k'; 1 << 16];
        let mut expected = BTreeMap::new();
        for number in 0..48_u64 {
            let mut key = long.clone();
            let last = key.len() - 1;
            match number % 3 {
                0 => key[last] = number as u8,
                1 => key.truncate(last - number as usize),
                _ => key[0] = number as u8,
            }
            expected.insert(key.clone(), number);
            assert_eq!(index.insert(key, number), None);
        }
        for (key, number) in &expected {
            assert_eq!(index.get(key), Some(*number));
        }
        let found = index.iter().collect::<Vec<_>>();
        assert!(found.iter().map(|(key, number)| (key, number)).eq(&expected));
        for (key, number) in &expected {
            assert_eq!(index.remove(key), Some(*number));
        }
        assert!(index.is_empty());
    }
}

#[test]
fn hundreds_of_keys_of_one_code() {
    for setting in Setting::all() {
        let index: Index<Vec<u8>, u64> = setting.build();
        // Equal in their first bytes, and where they differ one is a prefix of another.
        let keys: Vec<Vec<u8>> = (0..700_usize)
            .map(|i| [b"the same prefix for all of them".as_slice(), &vec![0; i]].concat())
            .collect();
        let mut order: Vec<usize> = (0..keys.len()).collect();
        Random::new(3).shuffle(&mut order);
        for &i in &order {
            assert_eq!(index.insert(keys[i].clone(), i as u64), None);
        }
        let found: Vec<_> = index.iter().map(|(key, i)| (key.len(), i)).collect();
        let expected: Vec<_> = keys.iter().map(Vec::len).zip(0..).collect();
        same(&found, &expected);
        for &i in &order {
            assert_eq!(index.get(&keys[i][..]), Some(i as u64));
            assert_eq!(index.remove(&keys[i][..]), Some(i as u64));
            assert_eq!(index.get(&keys[i][..]), None);
        }
    }
}

#[test]
fn every_bit_pattern_is_a_value() {
    fn check<V: rhumb_index::Word + PartialEq + std::fmt::Debug>(values: &[V]) {
        for setting in Setting::all() {
            let index: Index<u64, V> = setting.build();
            for (key, &value) in (0..).zip(values) {
                assert_eq!(index.insert(key, value), None);
                assert_eq!(index.get(&key), Some(value));
                assert_eq!(index.compare_exchange(&key, value, value), Ok(value));
            }
            assert!(index.iter().map(|(_, value)| value).eq(values.iter().copied()));
        }
    }
    let bits: Vec<u64> = (0..64).flat_map(|bit| [1 << bit, !(1 << bit), !0 << bit]).collect();
    check(&bits);
    check(&bits.iter().map(|&bits| bits as i64).collect::<Vec<_>>());
    check(&[u8::MIN, u8::MAX, 0x80]);
    check(&[i8::MIN, -1, 0, 1, i8::MAX]);
    check(&[true, false, true]);
    check(&['\0', char::MAX, 'x']);
    check(&[0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE, -1.5]);
    check(&[(), (), ()]);
    let index: Index<u64, f64> = Index::new();
    index.insert(1, f64::NAN);
    assert!(index.get(&1).is_some_and(f64::is_nan));
}
