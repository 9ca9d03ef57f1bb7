//! Tests of the index from within the crate; the long ones are in the suite.

mod frees;
mod jitter;
mod open;

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use rhumb_sync::epoch;
use rhumb_testkit::random::Random;

use super::{Index, Key, Preset, Value};
use crate::{
    op::Trigger,
    raw::schema::{KeyProbe, Of, key as key_of, reader},
};

const SCALE: usize = if cfg!(miri) { 50 } else { 1 };

/// Compares a map with the model by everything that can be read.
fn assert_same<K: Key + std::fmt::Debug, V: Value + PartialEq + std::fmt::Debug>(
    index: &Index<K, V>,
    model: &BTreeMap<K, V>,
) {
    assert_eq!(index.len(), model.len());
    assert!(index.iter().eq(model.iter().map(|(k, v)| (k.clone(), v.clone()))), "in order");
    let reversed = model.iter().rev().map(|(k, v)| (k.clone(), v.clone()));
    assert!(index.iter().rev().eq(reversed), "reversed");
    for (key, value) in model {
        assert_eq!(index.get(key.borrow()).as_ref(), Some(value), "{key:?}");
    }
    let keys: Vec<K> = model.keys().cloned().collect();
    let mut found = Vec::new();
    index.multi_get(&keys, &mut found);
    assert!(found.iter().map(Option::as_ref).eq(model.values().map(Some)));
}

/// Random operations on keys from `key`, compared one by one.
fn differ<K: Key + std::fmt::Debug, V: Value + PartialEq + std::fmt::Debug>(
    seed: u64,
    operations: usize,
    mut key: impl FnMut(&mut Random) -> K,
    mut value: impl FnMut(&mut Random) -> V,
) {
    let index = Index::new();
    let mut model = BTreeMap::new();
    let mut random = Random::new(seed);
    for operation in 0..operations / SCALE {
        let k = key(&mut random);
        let growing = operation / 20_000 % 2 == 0;
        match random.below(16) {
            0..=7 if growing => {
                let v = value(&mut random);
                assert_eq!(index.insert(k.clone(), v.clone()), model.insert(k, v));
            }
            8 => {
                let v = value(&mut random);
                let expected = model.get_mut(k.borrow()).map(|old| *old = v.clone()).is_some();
                assert_eq!(index.update(k.borrow(), v), expected);
            }
            9 => {
                let v = value(&mut random);
                let expected = model.entry(k.clone()).or_insert(v.clone()).clone();
                assert_eq!(index.get_or_insert_with(k, || v), expected);
            }
            10 => {
                let to = key(&mut random);
                let (a, b) = (k.clone().min(to.clone()), k.max(to));
                let range = (Bound::Included(a.borrow()), Bound::Excluded(b.borrow()));
                let expected = model.range::<K::Query, _>(range).take(40);
                let expected = expected.map(|(k, v)| (k.clone(), v.clone()));
                assert!(index.range(range).take(40).eq(expected));
                let expected = model.range::<K::Query, _>(range).rev().take(40);
                let expected = expected.map(|(k, v)| (k.clone(), v.clone()));
                assert!(index.range(range).rev().take(40).eq(expected));
            }
            _ if growing => {
                assert_eq!(index.get(k.borrow()), model.get(k.borrow()).cloned());
                assert_eq!(index.contains_key(k.borrow()), model.contains_key(k.borrow()));
            }
            _ => assert_eq!(index.remove(k.borrow()), model.remove(k.borrow())),
        }
    }
    assert_same(&index, &model);
    assert_eq!(index.first(), model.first_key_value().map(|(k, v)| (k.clone(), v.clone())));
    assert_eq!(index.last(), model.last_key_value().map(|(k, v)| (k.clone(), v.clone())));
}

#[test]
fn integers_agree_with_a_plain_map() {
    differ(1, 300_000, |r| r.next(), |r| r.next());
    differ(2, 200_000, |r| r.below(3000), |r| r.next());
    differ(3, 200_000, |r| u64::MAX - r.below(30_000), |r| r.next() as u32);
    differ(4, 100_000, |r| r.next() as u8, |r| r.next() as u8);
    differ(5, 200_000, |r| r.next() as i32, |r| r.next() as i64);
    differ(6, 200_000, |r| r.below(1 << 14) << 50 | r.below(1 << 10), |_| ());
}

#[test]
fn skewed_integers_agree_with_a_plain_map() {
    // The scale jumps by orders of magnitude.
    let skewed = |r: &mut Random| {
        let shift = r.below(64);
        r.next() >> shift
    };
    differ(7, 300_000, skewed, |r| r.next());
}

#[test]
fn keys_uneven_at_every_scale_agree_with_a_plain_map() {
    // A leaf's worth of keys whose bits lie far from each other: no step is both narrow enough for
    // many of its buckets and wide enough for all.
    let spread = |i: u64| (0..11).map(|bit| (i >> bit & 1) << (5 * bit)).sum::<u64>();
    for len in [1800, 1 << 11] {
        let keys: Vec<u64> = (0..len).map(spread).collect();
        let index = Index::new();
        index.bulk_load(keys.iter().map(|key| (*key, !key))).unwrap();
        assert_same(&index, &keys.iter().map(|key| (*key, !key)).collect());
        assert_eq!(index.stats().pivot_leaves, 2, "one leaf has too few units for {len}");
        let guard = epoch::pin();
        for key in keys {
            let place = index.core.place(KeyProbe { word: key, bytes: &[] }, &guard);
            assert!(place.bucket(key).is_some(), "the group has the tops");
            assert_eq!(index.get(&key), Some(!key));
            assert_eq!(index.get(&(key + 2)), None);
        }
    }
    differ(8, 200_000, |r| spread(r.below(1 << 12)) << r.below(4), |r| r.next());
}

#[test]
fn wide_integers_agree_with_a_plain_map() {
    differ(11, 100_000, |r| u128::from(r.next()) << 64 | u128::from(r.below(4)), |r| r.next());
    differ(12, 100_000, |r| i128::from(r.next() as i64) * 3, |r| r.next());
    differ(13, 100_000, |r| u128::from(r.below(20_000)), |r| r.next());
}

#[test]
fn byte_strings_agree_with_a_plain_map() {
    let text = |r: &mut Random| format!("user:{:06}:profile", r.below(20_000)).into_bytes();
    differ(21, 100_000, text, |r| r.next());
    let letters = |r: &mut Random| -> Vec<u8> {
        (0..r.below(12)).map(|_| b"\0a\xff"[r.below(3) as usize]).collect()
    };
    differ(22, 100_000, letters, |r| r.next());
    // Each key starts with all that come before it, so that most share their word.
    let nested = |r: &mut Random| -> Box<[u8]> {
        let mut key = vec![b'a'; r.below(3000) as usize];
        key.push(b'b' + r.below(2) as u8);
        key.into()
    };
    differ(23, 40_000, nested, |r| r.next());
}

#[test]
fn boxed_values_agree_with_a_plain_map() {
    differ(31, 100_000, |r| r.below(20_000), |r| r.next().to_string());
    let text = |r: &mut Random| r.below(10_000).to_string().into_bytes();
    differ(32, 100_000, text, |r| vec![r.next(); 3]);
}

#[test]
fn sorted_runs_grow_well_at_either_end() {
    let len = 200_000 / SCALE as u64;
    let up: Vec<u64> = (0..len).collect();
    let down: Vec<u64> = (0..len).rev().map(|i| u64::MAX - len + 1 + i).collect();
    let wide: Vec<u64> = (0..len).map(|i| i * 1_000_003).collect();
    let inside: Vec<u64> = (0..len).map(|i| (i % 7) << 60 | i).collect();
    for (case, keys) in [up, down, wide, inside].into_iter().enumerate() {
        let index = Index::new();
        for key in &keys {
            assert_eq!(index.insert(*key, !key), None);
        }
        assert_same(&index, &keys.iter().map(|key| (*key, !key)).collect());
        let stats = index.stats();
        println!("{case}: {stats:?}");
        if SCALE == 1 {
            assert!(stats.fill > 0.5, "{case}: {stats:?}");
            assert!(stats.retrains < len / 100, "{case}: {stats:?}");
        }
    }
}

#[test]
fn bulk_loads_are_like_insertions() {
    for len in [0, 1, 2, 20, 3_000, 50_000 / SCALE as u64] {
        let model: BTreeMap<u64, u64> = (0..len).map(|i| (u64::MAX - i * i, i)).collect();
        let index = Index::new();
        assert_eq!(index.bulk_load(model.clone()), Ok(model.len()));
        assert_same(&index, &model);
        assert_eq!(index.bulk_load(model.clone()), Ok(model.len()), "again, over what is there");
        assert_same(&index, &model);
        let names: BTreeMap<Vec<u8>, String> =
            model.iter().map(|(k, v)| (k.to_string().into_bytes(), v.to_string())).collect();
        let index = Index::new();
        assert_eq!(index.bulk_load(names.clone()), Ok(names.len()));
        assert_same(&index, &names);
    }
    let index = Index::new();
    let error = index.bulk_load([(1_u64, 1_u64), (2, 2), (2, 3), (4, 4)]).unwrap_err();
    assert_eq!(error.position, 2);
    assert_eq!(index.iter().collect::<Vec<_>>(), [(1, 1), (2, 2)]);
}

#[test]
fn removing_gives_memory_back() {
    let index = Index::new();
    let mut random = Random::new(5);
    let keys: Vec<u64> = (0..1_000_000 / SCALE).map(|_| random.next()).collect();
    for key in &keys {
        index.insert(*key, 1_u64);
    }
    let peak = index.memory_bytes();
    let (kept, removed) = keys.split_at(keys.len() / 10);
    for key in removed {
        assert_eq!(index.remove(key), Some(1));
    }
    assert_eq!(index.len(), kept.len());
    let tries = if SCALE == 1 { 500 } else { 0 };
    // Other tests' threads may be pinned for a while, and may have kept memory from being freed, so
    // that no room was seen to move to. The program `index_memory` does without the second look.
    let is_small = (0..tries).any(|_| {
        thread::sleep(std::time::Duration::from_millis(10));
        index.core.gather(&epoch::pin());
        // Some chunks are kept, or are shared by few blocks.
        index.memory_bytes() < peak / 4 + (8 << 20)
    });
    assert!(is_small || tries == 0, "of {peak}: {:?}", index.stats());
    for key in kept {
        assert_eq!(index.remove(key), Some(1));
    }
    assert!(index.is_empty() && index.iter().next().is_none());
}

/// Counts itself.
struct Counted(&'static AtomicUsize);

impl Clone for Counted {
    fn clone(&self) -> Self {
        self.0.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn every_value_is_dropped_once() {
    static ALIVE: AtomicUsize = AtomicUsize::new(0);
    let make = || {
        ALIVE.fetch_add(1, Ordering::Relaxed);
        Counted(&ALIVE)
    };
    let (words, texts) = (Index::<u64, Counted>::new(), Index::<Vec<u8>, Counted>::new());
    thread::scope(|scope| {
        for thread in 0..2 {
            let (words, texts) = (&words, &texts);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for _ in 0..60_000 / SCALE {
                    let key = random.below(5000);
                    let text = key.to_string().into_bytes();
                    match random.below(4) {
                        0 => drop((words.insert(key, make()), texts.insert(text, make()))),
                        1 => drop((words.remove(&key), texts.remove(&text))),
                        2 => {
                            words.update(&key, make());
                            texts.update(&text, make());
                        }
                        _ => drop((words.get(&key), texts.get_or_insert_with(text, make))),
                    }
                }
            });
        }
    });
    assert!(ALIVE.load(Ordering::Relaxed) >= words.len() + texts.len());
    drop((words, texts));
    assert_eq!(ALIVE.load(Ordering::Relaxed), 0);
}

#[test]
fn writers_of_different_keys_lose_nothing() {
    for trainers in [0, 2] {
        lose_nothing(&Index::builder().trainers(trainers).build());
    }
}

fn lose_nothing(index: &Index<u64, u64>) {
    let len = 150_000 / SCALE as u64;
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            scope.spawn(move || {
                // Two threads fill random places, two append above and below.
                let key = |i: u64| match thread {
                    0 | 1 => (i * 4 + thread).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 63,
                    2 => i,
                    _ => (1 << 62) - i,
                };
                for i in 0..len {
                    assert_eq!(index.insert(key(i), i), None);
                    assert_eq!(index.get(&key(i / 2)), Some(i / 2));
                }
                for i in (0..len).step_by(2) {
                    assert_eq!(index.remove(&key(i)), Some(i));
                }
                for i in 0..len {
                    assert_eq!(index.get(&key(i)), (i % 2 == 1).then_some(i));
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..20 {
                let mut last = None;
                for (key, _) in index.iter().take(20_000 / SCALE) {
                    assert!(last < Some(key), "scans ascend");
                    last = Some(key);
                }
            }
        });
    });
    assert_eq!(index.iter().count(), index.len());
}

#[test]
fn scans_miss_nothing_that_stays() {
    let index = Index::<u64, u64>::new();
    let len = 20_000 / SCALE as u64;
    index.bulk_load((0..len).map(|i| (i * 10, i))).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(9);
            while !stop.load(Ordering::Relaxed) {
                let key = random.below(len) * 10 + 1 + random.below(9);
                if random.below(2) == 0 {
                    index.insert(key, 0);
                } else {
                    index.remove(&key);
                }
            }
        });
        for _ in 0..20 {
            let forward: Vec<u64> = index.iter().map(|(key, _)| key).collect();
            assert!(forward.is_sorted_by(|a, b| a < b));
            assert!(forward.iter().filter(|key| *key % 10 == 0).count() as u64 == len);
            let backward: Vec<u64> = index.iter().rev().map(|(key, _)| key).collect();
            assert!(backward.is_sorted_by(|a, b| a > b));
            assert!(backward.iter().filter(|key| *key % 10 == 0).count() as u64 == len);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn one_of_many_inserters_is_the_first() {
    for preset in [Preset::Auto, Preset::Loft, Preset::FineStore, Preset::Tone] {
        let index = Index::<u64, u64>::builder().preset(preset).build();
        let len = 100_000 / SCALE as u64;
        let first = AtomicUsize::new(0);
        thread::scope(|scope| {
            for thread in 0..3 {
                let (index, first) = (&index, &first);
                // All insert the same keys in the same order, so that they meet again and again.
                scope.spawn(move || {
                    for i in 0..len {
                        let key = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                        let is_first = index.insert(key, thread).is_none();
                        first.fetch_add(usize::from(is_first), Ordering::Relaxed);
                        while i % 64 == 0 && index.len() < i as usize {
                            std::hint::spin_loop();
                        }
                    }
                });
            }
        });
        assert_eq!(first.into_inner(), len as usize, "{preset:?}");
        assert_eq!(index.iter().count(), len as usize, "{preset:?}");
    }
}

#[test]
fn one_hot_key_counts_right() {
    let index = Index::<u64, u64>::new();
    let rounds = 20_000 / SCALE as u64;
    index.insert(7, 0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..rounds {
                    let mut seen = index.get(&7).unwrap();
                    while let Err(now) = index.compare_exchange(&7, seen, seen + 1) {
                        seen = now.unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(index.get(&7), Some(3 * rounds));
    assert_eq!(index.compare_exchange(&8, 0, 1), Err(None));
}

#[test]
fn ends_of_a_scan_meet() {
    let index = Index::<u64, u64>::new();
    for i in 0..1000 {
        index.insert(i, i);
    }
    let mut scan = index.range(100..=900);
    let mut seen = Vec::new();
    while let Some((key, _)) = if seen.len() % 3 == 0 { scan.next_back() } else { scan.next() } {
        seen.push(key);
    }
    assert!(scan.next().is_none() && scan.next_back().is_none());
    seen.sort_unstable();
    assert!(seen.into_iter().eq(100..=900));
    #[expect(clippy::reversed_empty_ranges, reason = "such ranges are empty")]
    let empty = index.range(900..100).count();
    assert_eq!(empty, 0);
    assert_eq!(index.range((Bound::Excluded(5), Bound::Excluded(6))).count(), 0);
}

/// A reader that found a wide key before it was removed may read its record late. If the record
/// then had the value of a later insertion, the reader would see that value before it is there for
/// others.
#[test]
fn a_key_that_comes_back_is_not_seen_through_what_it_was_before() {
    type Schema = Of<Vec<u8>, u64>;
    for preset in [Preset::Auto, Preset::Loft, Preset::FineStore, Preset::Tone] {
        let (first, key) = (b"a key".to_vec(), b"another key".to_vec());
        let index = Index::<Vec<u8>, u64>::builder().preset(preset).build();
        index.insert(first.clone(), 0);
        index.insert(key.clone(), 1);
        let guard = epoch::pin();
        let probe = KeyProbe::wide(&key);
        let leaf = index.core.place(probe, &guard).leaf;
        index.core.replace(&index.core.place(probe, &guard), Trigger::Full, &guard);
        let mut scan = index.iter();
        assert_eq!(scan.next(), Some((first, 0)));
        let successor = index.core.place(probe, &guard).leaf;
        let mut read = Vec::new();
        let place = successor.place::<Schema>(probe);
        successor.append_sorted::<Schema>(place, &mut read);
        assert_eq!(index.remove(&key), Some(1));
        assert_eq!(index.insert(key.clone(), 2), None);
        assert_eq!(leaf.get::<Schema>(probe), Some(1), "{preset:?}: in the leaf as it was");
        let entry = read.iter().find(|entry| key_of::<Schema>(entry) == key);
        let slot = entry.expect("the scan has read the key").value;
        assert_eq!(
            reader::<Schema>(probe)(slot),
            Some(1),
            "{preset:?}: in a scan that had read it"
        );
        assert_eq!(index.get(&key), Some(2));
    }
}

/// Leaves that lose nothing are spread over the memory of those that are gone.
#[test]
fn leaves_that_stay_are_moved_together() {
    const KEYS: u64 = 800_000;
    let is_kept = |key: &u64| (key / 2_500).is_multiple_of(8);
    for preset in [Preset::Auto, Preset::Tone, Preset::FineStore, Preset::Loft] {
        let index = Index::<u64, u64>::builder().preset(preset).build();
        index.bulk_load((0..KEYS).map(|key| (key, key))).unwrap();
        let before = index.memory_bytes();
        for key in (0..KEYS).filter(|key| !is_kept(key)) {
            assert_eq!(index.remove(&key), Some(key));
        }
        // Other tests may have kept memory from being freed, so that no room was seen to move to.
        let start = Instant::now();
        while index.memory_bytes() >= before / 2 && start.elapsed() < Duration::from_secs(20) {
            index.core.gather(&epoch::pin());
            thread::sleep(Duration::from_millis(1));
        }
        let after = index.memory_bytes();
        assert!(
            after < before / 2,
            "{preset:?}: {after} of {before} bytes for an eighth of the keys"
        );
        assert!(index.iter().map(|(key, _)| key).eq((0..KEYS).filter(is_kept)));
    }
}

/// A trainer comes late: the leaf has a successor by then, with fewer buckets.
#[test]
fn a_stale_reason_to_replace_a_leaf_does_no_harm() {
    let index = Index::<u64, u64>::new();
    index.bulk_load((0..3000).map(|i| (i * 7, i))).unwrap();
    for beyond in [0, 1, 500] {
        let guard = epoch::pin();
        let place = index.core.place(KeyProbe { word: 7, bytes: &[] }, &guard);
        let at = place.leaf.len() + beyond;
        index.core.replace(&place, Trigger::Chain(at, 3), &guard);
    }
    assert!(index.iter().eq((0..3000).map(|i| (i * 7, i))));
}

/// A lookup in a leaf whose run is not known waits for one more cache miss.
#[test]
fn leaves_that_were_replaced_are_found_by_their_shortcuts_again() {
    let keys = 1_u64..=100_000;
    let index = Index::<u64, u64>::new();
    index.bulk_load(keys.clone().map(|key| (key * 1000, key))).unwrap();
    let guard = epoch::pin();
    let is_found =
        |word: u64| index.core.place(KeyProbe { word, bytes: &[] }, &guard).bucket(word).is_some();
    assert!(keys.clone().all(|key| is_found(key * 1000)), "as it was loaded");
    for key in keys.clone().step_by(1000) {
        let place = index.core.place(KeyProbe { word: key * 1000, bytes: &[] }, &guard);
        index.core.replace(&place, Trigger::Full, &guard);
    }
    let found = keys.clone().filter(|key| is_found(key * 1000)).count();
    assert!(found > 75_000, "{found} of 100,000");
    assert!(keys.clone().all(|key| index.get(&(key * 1000)) == Some(key)));
}

/// Leaves that are not written give back the room that they have, and a look at a leaf in good
/// order changes nothing.
#[test]
#[cfg_attr(miri, ignore = "needs many keys")]
fn leaves_that_are_not_written_are_compacted() {
    // Leaves of two arrays then have both: as these keys are even, all leaves are equally full.
    const KEYS: u64 = 300_000;
    for preset in [Preset::Auto, Preset::Loft, Preset::FineStore, Preset::Tone] {
        let index = Index::<u64, u64>::builder().preset(preset).build();
        let key = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // Leaves of buckets are new; those of the other kinds are as insertions leave them.
        if preset == Preset::Auto {
            let all: BTreeMap<u64, u64> = (0..KEYS).map(|i| (key(i), i)).collect();
            index.bulk_load(all).unwrap();
        } else {
            (0..KEYS).for_each(|i| _ = index.insert(key(i), i));
        }
        // Fewer than would make the thread that removes them replace a leaf.
        let removed_of_20 = if preset == Preset::Auto { 7 } else { 1 };
        let is_kept = |i: &u64| i % 20 >= removed_of_20;
        for i in (0..KEYS).filter(|i| !is_kept(i)) {
            assert_eq!(index.remove(&key(i)), Some(i));
        }
        let before = index.stats();
        // The first look learns what there is.
        index.tune();
        assert!(index.tune() > 0, "{preset:?}");
        let after = index.stats();
        assert!(after.fill > before.fill, "{preset:?}: {before:?} became {after:?}");
        // What was made anew stays as it is, unless its memory is worth giving back.
        let tours = (0..30).take_while(|_| index.tune() > 0).count();
        assert!(tours < 30, "{preset:?}");
        let mut expected: Vec<_> = (0..KEYS).filter(is_kept).map(|i| (key(i), i)).collect();
        expected.sort_unstable();
        assert!(index.iter().eq(expected), "{preset:?}");
    }
}

/// A leaf that fills up is replaced before a writer has to.
#[test]
fn leaves_that_fill_up_are_replaced_ahead_of_need() {
    let index = Index::<u64, u64>::new();
    index.bulk_load((0..1500).map(|i| (i << 32, i))).unwrap();
    let nodes = || index.stats().overflow_nodes;
    let mut random = Random::new(7);
    assert_eq!(index.tune(), 0);
    let mut before = 0;
    loop {
        index.insert((random.below(1500) << 32) + random.below(1 << 32), 1);
        assert_eq!(index.stats().retrains, 0, "a writer was faster");
        before = before.max(nodes());
        if index.tune() == 1 {
            break;
        }
    }
    assert!(before >= 20, "{before}");
    assert!(nodes() < before / 2, "{} of {before}", nodes());
}

/// The first trainer does it unasked, and frees the garbage.
#[test]
fn an_idle_trainer_looks_after_the_leaves() {
    const KEYS: u64 = 50_000;
    let index = Index::<u64, u64>::builder().preset(Preset::Tone).trainers(2).build();
    for i in 0..KEYS {
        index.insert(i * i, i);
    }
    let start = index.stats().retrains;
    let is_done = || index.stats().retrains > start && index.stats().garbage_bytes == 0;
    // Other tests' threads may be pinned for a while.
    assert!((0..6000).any(|_| {
        thread::sleep(std::time::Duration::from_millis(10));
        is_done()
    }));
    assert!(index.iter().eq((0..KEYS).map(|i| (i * i, i))));
}
