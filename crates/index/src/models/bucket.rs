//! Buckets: claiming a slot, publishing what is in it, overflow nodes, and freezing.

use loom::sync::atomic::{AtomicUsize, Ordering};
use rhumb_sync::models::race;

use super::super::raw::{
    bucket::{BUCKET_SLOTS, Bucket, OverflowNode},
    pool::Zeroed,
};

fn get(bucket: &Bucket, key: u64) -> Option<u64> {
    bucket.get(key, Some)
}

/// Sets the value of a key. Returns the one before, or nothing if the bucket is frozen.
fn set(bucket: &Bucket, key: u64, value: u64) -> Option<Option<u64>> {
    let mut locked = bucket.lock().ok()?;
    let same = |_| true;
    Some(match locked.find(key, same) {
        Some(spot) if spot.is_present => {
            let cell = locked.value(&spot);
            let old = cell.load(Ordering::Relaxed);
            cell.store(value, Ordering::Release);
            Some(old)
        }
        Some(spot) => {
            locked.value(&spot).store(value, Ordering::Release);
            locked.set_present(&spot, true);
            None
        }
        None => {
            let node = || Some(&*Box::leak(Box::new(OverflowNode::zero())));
            assert!(locked.add(key, value, node).is_ok());
            None
        }
    })
}

fn remove(bucket: &Bucket, key: u64) {
    if let Ok(mut locked) = bucket.lock()
        && let Some(spot) = locked.find(key, |_| true)
    {
        locked.set_present(&spot, false);
    }
}

fn entries(bucket: &Bucket) -> Vec<(u64, u64)> {
    let mut entries = Vec::new();
    bucket.for_each(|key, value| entries.push((key, value)));
    entries.sort_unstable();
    entries
}

/// A bucket with keys from 1 on, each with ten times itself as its value.
fn filled(len: usize) -> Bucket {
    let bucket = Bucket::zero();
    (1..=len as u64).for_each(|key| insert(&bucket, key));
    bucket
}

/// Inserts a key that is absent.
fn insert(bucket: &Bucket, key: u64) {
    assert_eq!(set(bucket, key, 10 * key), Some(None));
}

#[test]
fn two_writers_claim_slots_and_a_reader_sees_whole_ones() {
    let read = |bucket: &Bucket| {
        for key in [1, 2] {
            assert!(get(bucket, key).is_none_or(|value| value == 10 * key));
        }
    };
    let end = |bucket: &Bucket| assert_eq!(entries(bucket), [(1, 10), (2, 20)]);
    race(2, || filled(0), [|bucket| insert(bucket, 1), |bucket| insert(bucket, 2), read], end);
}

#[test]
fn one_key_has_one_slot_whoever_inserts_it() {
    let firsts = || (filled(0), AtomicUsize::new(0));
    fn act((bucket, firsts): &(Bucket, AtomicUsize)) {
        let old = set(bucket, 1, 10).expect("nobody freezes");
        firsts.fetch_add(usize::from(old.is_none()), Ordering::Relaxed);
    }
    race(3, firsts, [act, act], |(bucket, firsts)| {
        assert_eq!(firsts.load(Ordering::Relaxed), 1);
        assert_eq!(entries(bucket), [(1, 10)]);
    });
}

/// A way to look up a key.
type Look = fn(&Bucket, u64) -> Option<u64>;

/// Checks a key that is removed and inserted again, looked up by `look`: the reader sees 10, then
/// absent, then 20, and never an earlier state again.
fn watch_a_key_come_back<const KEY: u64>(look: Look) {
    fn come_back<const KEY: u64>((bucket, _): &(Bucket, Look)) {
        remove(bucket, KEY);
        assert_eq!(set(bucket, KEY, 20), Some(None));
    }
    fn stage<const KEY: u64>((bucket, look): &(Bucket, Look)) -> usize {
        match look(bucket, KEY) {
            Some(value) if value == 10 * KEY => 0,
            None => 1,
            Some(20) => 2,
            found => panic!("{found:?} was never there"),
        }
    }
    fn watch<const KEY: u64>(shared: &(Bucket, Look)) {
        let (first, second) = (stage::<KEY>(shared), stage::<KEY>(shared));
        assert!(first <= second, "stage {second} after stage {first}");
    }
    let make = move || (filled(KEY as usize), look);
    race(3, make, [come_back::<KEY>, watch::<KEY>], |shared| assert_eq!(stage::<KEY>(shared), 2));
}

#[test]
fn a_value_is_not_seen_before_its_key_is_back() {
    watch_a_key_come_back::<1>(get);
}

#[test]
fn a_value_in_a_node_is_not_seen_before_its_key_is_back() {
    watch_a_key_come_back::<{ BUCKET_SLOTS as u64 + 1 }>(get);
}

#[test]
fn a_scan_does_not_see_a_value_before_its_key_is_back() {
    watch_a_key_come_back::<1>(|bucket, key| {
        entries(bucket).into_iter().find_map(|(k, value)| (k == key).then_some(value))
    });
    watch_a_key_come_back::<1>(|bucket, key| {
        let mut all = Vec::new();
        bucket.append_ascending(&mut all);
        all.into_iter().find_map(|entry| (entry.word == key).then_some(entry.value))
    });
}

#[test]
fn an_overflow_node_is_whole_when_it_is_linked() {
    const FULL: u64 = BUCKET_SLOTS as u64;
    let write =
        |bucket: &Bucket| [FULL + 1, FULL + 2].into_iter().for_each(|key| insert(bucket, key));
    let read = |bucket: &Bucket| {
        for key in [FULL + 2, FULL + 1, FULL] {
            let found = get(bucket, key);
            assert!(found == Some(10 * key) || (key > FULL && found.is_none()), "{found:?}");
        }
    };
    race(
        3,
        || filled(BUCKET_SLOTS),
        [write, read],
        |bucket| {
            assert_eq!(entries(bucket).len(), BUCKET_SLOTS + 2);
        },
    );
}

#[test]
fn nothing_changes_after_the_freezing() {
    type Shared = (Bucket, AtomicUsize, AtomicUsize);
    let write = |(bucket, written, _): &Shared| {
        remove(bucket, 1);
        written.store(usize::from(set(bucket, 2, 20).is_some()), Ordering::Relaxed);
    };
    let freeze = |(bucket, _, copied): &Shared| {
        bucket.freeze();
        let before = entries(bucket);
        copied.store(usize::from(before.contains(&(2, 20))), Ordering::Relaxed);
        assert_eq!(before, entries(bucket));
    };
    let make = || (filled(1), AtomicUsize::new(0), AtomicUsize::new(0));
    race(3, make, [write, freeze], |(bucket, written, copied)| {
        assert_eq!(written.load(Ordering::Relaxed), copied.load(Ordering::Relaxed));
        assert!(bucket.lock().is_err());
    });
}
