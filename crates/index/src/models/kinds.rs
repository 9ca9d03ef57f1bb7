//! Leaves of the published kinds: claiming slots, filling and splitting bins, the secondary array,
//! and which of these go on while a leaf is replaced.

use loom::sync::atomic::{AtomicUsize, Ordering};
use rhumb_sync::{epoch, models::race};

use super::core::replace;
use crate::{
    Index, Key, Preset,
    op::{Action, Trigger},
    raw::schema::{KeyProbe, Of},
};

type Words = Index<u64, u64>;

const PUBLISHED: [Preset; 3] = [Preset::Loft, Preset::FineStore, Preset::Tone];

fn empty<K: Key>(preset: Preset) -> Index<K, u64> {
    Index::builder().preset(preset).build()
}

/// A map of the keys 10 and 20, and of some between them.
fn loaded(preset: Preset, between: u64) -> Words {
    let index = empty(preset);
    index.bulk_load([(10, 1), (20, 2)]).unwrap();
    (11..11 + between).for_each(|key| _ = index.insert(key, key));
    index
}

fn keys(index: &Words) -> Vec<u64> {
    index.iter().map(|(key, _)| key).collect()
}

#[test]
fn one_key_is_inserted_once_whoever_comes_first() {
    type Shared = (Words, AtomicUsize);
    fn act((index, firsts): &Shared) {
        let old = index.insert(15, 5);
        assert!([None, Some(5)].contains(&old), "{old:?}");
        firsts.fetch_add(usize::from(old.is_none()), Ordering::Relaxed);
    }
    for preset in PUBLISHED {
        let make = move || (loaded(preset, 0), AtomicUsize::new(0));
        race(2, make, [act, act], |(index, firsts)| {
            assert_eq!(firsts.load(Ordering::Relaxed), 1);
            assert_eq!(keys(index), [10, 15, 20]);
        });
    }
}

#[test]
fn readers_see_whole_slots() {
    let read = |index: &Words| {
        for key in [16, 15] {
            assert!(index.get(&key).is_none_or(|value| value == 10 * key));
        }
        assert_eq!([index.get(&10), index.get(&20)], [Some(1), Some(2)]);
    };
    let write = |index: &Words| {
        assert_eq!(index.insert(16, 160), None);
        assert_eq!(index.insert(15, 150), None);
    };
    for preset in PUBLISHED {
        race(
            1,
            move || loaded(preset, 0),
            [write, read],
            |index| {
                assert_eq!(keys(index), [10, 15, 16, 20]);
            },
        );
    }
}

/// A key finds no room where it belongs (so a wider run, a split bin or a secondary array is made)
/// while one that lies there is written.
#[test]
fn what_is_full_grows_and_nothing_in_it_is_lost() {
    let grow = |index: &Words| assert_eq!(index.insert(18, 0), None);
    let write = |index: &Words| assert_eq!(index.insert(11, 99), Some(11));
    for (preset, between) in
        [(Preset::Loft, 6), (Preset::FineStore, 2), (Preset::FineStore, 4), (Preset::Tone, 2)]
    {
        race(
            1,
            move || loaded(preset, between),
            [grow, write],
            |index| {
                assert_eq!(index.get(&11), Some(99));
                assert_eq!(index.get(&18), Some(0));
                assert!(keys(index).is_sorted_by(|a, b| a < b));
            },
        );
    }
}

/// Two writers find the primary array full, each in a segment of its own.
#[test]
fn a_secondary_array_is_made_once() {
    let make = || {
        let index: Words = empty(Preset::Tone);
        index.bulk_load((1..=4).map(|i| (10 * i, i))).unwrap();
        [11, 31].into_iter().for_each(|key| _ = index.insert(key, key));
        index
    };
    let one = |index: &Words| assert_eq!(index.insert(13, 0), None);
    let other = |index: &Words| assert_eq!(index.insert(33, 0), None);
    race(2, make, [one, other], |index| {
        assert_eq!(keys(index), [10, 11, 13, 20, 30, 31, 33, 40]);
    });
}

/// A key for which a wider run is made, while the leaf is frozen.
#[test]
fn no_run_is_linked_to_a_frozen_group() {
    type Shared = (Words, AtomicUsize, AtomicUsize);
    const KEY: KeyProbe<'_> = KeyProbe { word: 9, bytes: &[] };
    let write = |(index, written, _): &Shared| {
        let guard = epoch::pin();
        let leaf = index.core.place(KEY, &guard).leaf;
        let outcome = leaf.write::<Of<u64, u64>>(&index.core.arena, KEY, Action::Set(0));
        written.store(usize::from(outcome.is_ok()), Ordering::Relaxed);
    };
    let freeze = |(index, _, copied): &Shared| {
        let guard = epoch::pin();
        let mut entries = Vec::new();
        index.core.place(KEY, &guard).leaf.collect::<Of<u64, u64>>(&mut entries);
        let is_there = entries.iter().any(|entry| entry.word == KEY.word);
        copied.store(usize::from(is_there), Ordering::Relaxed);
    };
    let make = || (loaded(Preset::Loft, 6), AtomicUsize::new(0), AtomicUsize::new(0));
    race(1, make, [write, freeze], |(_, written, copied)| {
        assert_eq!(written.load(Ordering::Relaxed), copied.load(Ordering::Relaxed));
    });
}

/// A bin under a root is full, so that all of them become a small trained array while another bin
/// is written.
#[test]
fn bins_are_trained_while_another_writes_one_of_them() {
    let one = |index: &Words| assert_eq!(index.insert(18, 0), None);
    let other = |index: &Words| {
        assert_eq!(index.remove(&11), Some(11));
        assert_eq!(index.insert(11, 0), None);
    };
    for between in [5, 6] {
        race(
            2,
            move || loaded(Preset::FineStore, between),
            [one, other],
            |index| {
                assert_eq!(index.get(&11), Some(0));
                assert_eq!(index.get(&18), Some(0));
                assert!(keys(index).is_sorted_by(|a, b| a < b));
            },
        );
    }
}

/// The stage that was found: 1, then absent, then 2, and never back.
fn stage(found: Option<u64>) -> usize {
    match found {
        Some(1) => 0,
        None => 1,
        Some(2) => 2,
        found => panic!("{found:?} was never there"),
    }
}

#[test]
fn a_key_that_comes_back_is_not_seen_too_early() {
    let write = |index: &Words| {
        assert_eq!(index.remove(&10), Some(1));
        assert_eq!(index.insert(10, 2), None);
    };
    let get = |index: &Words| {
        let (first, second) = (stage(index.get(&10)), stage(index.get(&10)));
        assert!(first <= second, "stage {second} after stage {first}");
    };
    let scan = |index: &Words| {
        let first = stage(index.range(..20).next().map(|(_, value)| value));
        let second = stage(index.get(&10));
        assert!(first <= second, "stage {second} after stage {first}");
    };
    for preset in PUBLISHED {
        for read in [get, scan] {
            race(
                2,
                move || loaded(preset, 0),
                [write, read],
                |index| {
                    assert_eq!(index.get(&10), Some(2));
                },
            );
        }
    }
}

#[test]
fn no_write_is_lost_while_the_leaf_is_replaced() {
    let help = |index: &Words| {
        replace(index, &10, Trigger::Full);
        assert_eq!(index.remove(&20), Some(2));
    };
    let write = |index: &Words| {
        assert_eq!(index.insert(15, 0), None);
        assert_eq!(index.insert(10, 5), Some(1));
    };
    for preset in PUBLISHED {
        race(
            2,
            move || loaded(preset, 0),
            [help, write],
            |index| {
                assert_eq!(keys(index), [10, 15]);
                assert_eq!(index.get(&10), Some(5));
            },
        );
    }
}

#[test]
fn a_wide_key_comes_back_while_its_leaf_is_replaced() {
    const KEY: &[u8] = b"key";
    type Strings = Index<Vec<u8>, u64>;
    let write = |index: &Strings| {
        replace(index, KEY, Trigger::Full);
        assert_eq!(index.remove(KEY), Some(1));
        assert_eq!(index.insert(KEY.into(), 2), None);
    };
    let read = |index: &Strings| {
        let (first, second) = (stage(index.get(KEY)), stage(index.get(KEY)));
        assert!(first <= second, "stage {second} after stage {first}");
    };
    for preset in PUBLISHED {
        let make = move || {
            let index = empty(preset);
            index.insert(KEY.into(), 1);
            index
        };
        race(2, make, [write, read], |index: &Strings| assert_eq!(index.get(KEY), Some(2)));
    }
}
