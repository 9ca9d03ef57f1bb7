//! Leaves whose buckets are found by pivots, through the copy of their pivot root that the group
//! has: read and written while they are replaced and freed.
#![allow(unsafe_code, reason = "publishes a leaf")]

use rhumb_sync::{epoch, models::race, primitive::Arc};

use super::core::{Words, keys, replace};
use crate::{
    Index,
    address::Pivots,
    core::IndexCore,
    kinds::AnyLeaf,
    op::Trigger,
    preset::Preset,
    raw::{
        branch::Bound,
        leaf::{BucketAddress, BucketLeaf},
        schema::{KeyProbe, Of},
    },
};

/// A map of one leaf with two buckets, the second for words from 25 on, and the keys 10 and 30.
fn of_two() -> Words {
    let core = IndexCore::new(Preset::Auto, None);
    // The first leaf makes its group worn, so that the second has a new group, which copies its
    // pivot root.
    for _ in 0..2 {
        let pivots = Pivots::new(&[0, 25], |_| true).expect("two places take one unit");
        let leaf = BucketLeaf::new(&core.arena, BucketAddress::Pivots(pivots), 2, &[], 0);
        let leaf = Box::new(AnyLeaf::Buckets(*leaf));
        let least = Bound::new::<Of<u64, u64>>(KeyProbe::LEAST);
        // SAFETY: the leaf was made in the map's arena, without keys.
        let replaced = unsafe { core.replace_empty(vec![(least, leaf)], &epoch::pin()) };
        assert!(replaced.is_ok());
    }
    let index = Index { core: Arc::new(core), trainers: Vec::new() };
    assert_eq!((index.insert(10, 1), index.insert(30, 3)), (None, None));
    let has_pivot_root = index.core.place(KeyProbe::LEAST, &epoch::pin()).bucket(0).is_some();
    assert!(has_pivot_root, "the leaf's group has its pivot root");
    index
}

#[test]
fn a_read_by_pivots_is_right_while_its_leaf_is_replaced_and_freed() {
    let write = |index: &Words| {
        replace(index, &10, Trigger::Full);
        assert_eq!(index.insert(30, 5), Some(3));
        index.memory_bytes();
    };
    let read = |index: &Words| {
        let seen = [(); 2].map(|()| index.get(&30).expect("it is always there"));
        assert!([[3, 3], [3, 5], [5, 5]].contains(&seen), "{seen:?}");
    };
    race(2, of_two, [write, read], |index| assert_eq!(index.get(&30), Some(5)));
}

#[test]
fn keys_are_written_by_pivots_while_their_leaf_is_replaced() {
    let write = |index: &Words| {
        assert_eq!(index.insert(40, 4), None);
        assert_eq!(index.get(&40), Some(4));
    };
    let other = |index: &Words| {
        replace(index, &10, Trigger::Full);
        assert_eq!(index.insert(20, 2), None);
    };
    race(2, of_two, [write, other], |index| assert_eq!(keys(index), [10, 20, 30, 40]));
}
