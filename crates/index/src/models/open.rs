//! Leaves that open buckets after the others, written, read or replaced meanwhile.
#![allow(unsafe_code, reason = "publishes a leaf")]

use rhumb_sync::{epoch, models::race, primitive::Arc};

use super::core::{Words, keys, replace};
use crate::{
    Index,
    core::IndexCore,
    kinds::AnyLeaf,
    op::Trigger,
    preset::Preset,
    raw::{
        branch::Bound,
        bucket::BUCKET_SLOTS,
        leaf::{BucketAddress, BucketLeaf},
        schema::{KeyProbe, Of},
    },
};

/// A map of one leaf with one bucket, full of 10, 20 and so on, and two more to be opened.
fn full() -> Words {
    let core = IndexCore::new(Preset::Auto, None);
    let leaf = BucketLeaf::new(&core.arena, BucketAddress::Open(vec![0]), 3, &[], 0);
    let leaf = Box::new(AnyLeaf::Buckets(*leaf));
    let least = Bound::new::<Of<u64, u64>>(KeyProbe::LEAST);
    // SAFETY: the leaf was made in the map's arena, without keys.
    let replaced = unsafe { core.replace_empty(vec![(least, leaf)], &epoch::pin()) };
    assert!(replaced.is_ok());
    let index = Index { core: Arc::new(core), trainers: Vec::new() };
    (1..=BUCKET_SLOTS as u64).for_each(|i| assert_eq!(index.insert(10 * i, i), None));
    index
}

#[test]
fn a_key_goes_where_a_bucket_was_opened_for_it() {
    let open = |index: &Words| assert_eq!(index.insert(50, 0), None);
    let other = |index: &Words| {
        assert_eq!(index.insert(45, 1), None);
        assert_eq!(index.get(&45), Some(1));
    };
    race(3, full, [open, other], |index| {
        assert_eq!(keys(index), [10, 20, 30, 40, 45, 50]);
        assert_eq!((index.get(&45), index.get(&50)), (Some(1), Some(0)));
    });
}

#[test]
fn a_key_in_an_opened_bucket_stays_seen() {
    let open = |index: &Words| {
        assert_eq!(index.insert(50, 0), None);
        assert_eq!(index.get(&50), Some(0));
    };
    let read = |index: &Words| {
        let first = index.get(&50);
        assert_eq!(index.get(&40), Some(4));
        let (second, all) = (index.get(&50), keys(index));
        assert!(first.is_none() || second.is_some());
        assert!(second.is_none() || all.contains(&50), "{all:?}");
        assert!(all.starts_with(&[10, 20, 30, 40]));
    };
    race(2, full, [open, read], |index| assert_eq!(index.len(), 5));
}

#[test]
fn a_bucket_is_opened_while_its_leaf_is_replaced() {
    let open = |index: &Words| assert_eq!(index.insert(50, 0), None);
    let other = |index: &Words| {
        replace(index, &10, Trigger::Full);
        assert_eq!(index.insert(60, 0), None);
    };
    race(2, full, [open, other], |index| assert_eq!(keys(index), [10, 20, 30, 40, 50, 60]));
}
