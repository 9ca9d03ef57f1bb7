//! The whole map, of a few keys: replacing leaves, groups and the root, and freeing what was
//! replaced.
#![allow(unsafe_code, reason = "loom checks the accesses")]

use rhumb_sync::{epoch, models::race, primitive::Lifetime};

use crate::{
    Index, Key,
    op::Trigger,
    raw::schema::{KeyProbe, Of, with_probe},
    value::Value,
};

pub(super) type Words = Index<u64, u64>;

/// Replaces the leaf of a key, as a thread does that finds this reason.
pub(super) fn replace<K: Key, V: Value>(index: &Index<K, V>, key: &K::Query, trigger: Trigger) {
    let guard = epoch::pin();
    with_probe::<K, _>(key, |probe| {
        let place = index.core.place(probe, &guard);
        index.core.replace(&place, trigger, &guard);
    });
}

/// A map of the keys 10, 20, 30 and so on.
fn loaded(len: u64) -> Words {
    let index = Index::new();
    index.bulk_load((1..=len).map(|i| (10 * i, i))).unwrap();
    index
}

pub(super) fn keys(index: &Index<u64, u64>) -> Vec<u64> {
    index.iter().map(|(key, _)| key).collect()
}

#[test]
fn two_helpers_replace_a_leaf_and_no_write_is_lost() {
    let help = |index: &Words| {
        replace(index, &10, Trigger::Full);
        assert_eq!(index.remove(&20), Some(2));
    };
    let other = |index: &Words| {
        replace(index, &20, Trigger::Full);
        assert_eq!(index.insert(15, 0), None);
    };
    race(2, || loaded(2), [help, other], |index| assert_eq!(keys(index), [10, 15]));
    // With a second leaf the group is not worn by one replacement: a thread that comes too late
    // loses the slot, and not the group.
    let end = |index: &Words| assert_eq!(keys(index), [10, 15, 30, 40, 50, 60, 70, 80]);
    race(2, || loaded(8), [help, other], end);
}

#[test]
fn a_writer_goes_on_where_a_leaf_is_frozen_and_never_replaced() {
    let freeze = |index: &Words| {
        let guard = epoch::pin();
        index
            .core
            .place(KeyProbe { word: 10, bytes: &[] }, &guard)
            .leaf
            .collect::<Of<u64, u64>>(&mut Vec::new());
    };
    let write = |index: &Words| assert_eq!(index.insert(15, 0), None);
    race(3, || loaded(2), [freeze, write], |index| assert_eq!(keys(index), [10, 15, 20]));
}

#[test]
fn a_read_is_right_while_its_leaf_is_replaced_and_freed() {
    let write = |index: &Words| {
        replace(index, &10, Trigger::Full);
        assert_eq!(index.insert(10, 5), Some(1));
        index.memory_bytes();
    };
    let read = |index: &Words| {
        let seen = [(); 2].map(|()| index.get(&10).expect("it is always there"));
        assert!([[1, 1], [1, 5], [5, 5]].contains(&seen), "{seen:?}");
    };
    race(2, || loaded(2), [write, read], |index| assert_eq!(index.get(&10), Some(5)));
}

/// Joins the first two leaves.
fn join(index: &Words) {
    replace(index, &10, Trigger::Removed);
}

#[test]
fn leaves_are_joined_while_others_write_to_both() {
    let write = |index: &Words| {
        assert_eq!(index.insert(75, 0), None);
        assert_eq!(index.insert(5, 0), None);
        assert_eq!(index.get(&75), Some(0));
    };
    race(
        2,
        || loaded(8),
        [join, write],
        |index| {
            assert_eq!(keys(index), [5, 10, 20, 30, 40, 50, 60, 70, 75, 80]);
        },
    );
}

#[test]
fn a_group_is_replaced_while_another_replaces_its_leaf() {
    let other = |index: &Words| {
        replace(index, &80, Trigger::Full);
        assert_eq!(index.remove(&80), Some(8));
    };
    race(
        2,
        || loaded(8),
        [join, other],
        |index| {
            assert_eq!(keys(index), [10, 20, 30, 40, 50, 60, 70]);
        },
    );
}

#[test]
fn two_groups_are_replaced_at_a_time() {
    let other = |index: &Words| {
        replace(index, &250, Trigger::Removed);
        assert_eq!(index.insert(255, 0), None);
    };
    race(
        1,
        || loaded(25),
        [join, other],
        |index| {
            assert!(index.stats().groups > 1);
            assert_eq!(keys(index).len(), 26);
        },
    );
}

/// A wide key that is removed and inserted again: a reader that holds a leaf as it was before must
/// not see the new value before others do.
#[test]
fn a_wide_key_comes_back_while_its_leaf_is_replaced() {
    const KEY: &[u8] = b"key";
    type Strings = Index<Vec<u8>, u64>;
    let make = || {
        let index = Strings::new();
        index.insert(KEY.into(), 1);
        index
    };
    let write = |index: &Strings| {
        replace(index, KEY, Trigger::Full);
        assert_eq!(index.remove(KEY), Some(1));
        assert_eq!(index.insert(KEY.into(), 2), None);
    };
    let read = |index: &Strings| {
        let stage = || match index.get(KEY) {
            Some(1) => 0,
            None => 1,
            Some(2) => 2,
            found => panic!("{found:?} was never there"),
        };
        let (first, second) = (stage(), stage());
        assert!(first <= second, "stage {second} after stage {first}");
    };
    race(2, make, [write, read], |index| assert_eq!(index.get(KEY), Some(2)));
}

#[test]
fn a_scan_misses_nothing_that_stays() {
    let write = |index: &Words| {
        join(index);
        assert_eq!(index.insert(45, 0), None);
    };
    let scan = |index: &Words| {
        let mut seen = keys(index);
        assert!(seen.is_sorted());
        seen.retain(|key| *key != 45);
        assert_eq!(seen, [10, 20, 30, 40, 50, 60, 70, 80]);
    };
    race(2, || loaded(8), [write, scan], |index| assert_eq!(index.len(), 9));
}

/// A value whose reads and end loom sees; its clones are not checked.
struct Seen {
    cell: Option<Lifetime>,
    number: u64,
}

// SAFETY: loom checks the accesses to the cell.
unsafe impl Sync for Seen {}
// SAFETY: as above.
unsafe impl Send for Seen {}

impl Seen {
    fn new(number: u64) -> Self {
        Self { cell: Some(Lifetime::new()), number }
    }
}

impl Clone for Seen {
    fn clone(&self) -> Self {
        if let Some(cell) = &self.cell {
            cell.touch();
        }
        Self { cell: None, number: self.number }
    }
}

#[test]
fn a_boxed_value_is_not_freed_while_it_is_read() {
    type Boxes = Index<u64, Seen>;
    let make = || {
        let index = Boxes::new();
        index.insert(1, Seen::new(1));
        index
    };
    let write = |index: &Boxes| {
        let old = index.insert(1, Seen::new(2)).map(|old| old.number);
        assert_eq!(old, Some(1));
        assert_eq!(index.remove(&1).map(|old| old.number), Some(2));
        index.memory_bytes();
    };
    let read = |index: &Boxes| {
        assert!(index.get(&1).is_none_or(|seen| [1, 2].contains(&seen.number)));
    };
    race(2, make, [write, read], |index| assert!(index.is_empty()));
}
