//! Publishers and volatile keyspaces against sorted maps, long keys included.

use std::{
    collections::BTreeMap,
    ops::{Bound, RangeBounds},
    sync::Arc,
    thread,
    time::Duration,
};

use proptest::prelude::*;

use super::{
    Authority, Change, Load, Pair, Preset, Publisher, Scan, Table,
    replica::{AnyReplica, Arrays},
    share::{Region, ShareOptions},
    two_stage_store::table_in,
    volatile::Volatile,
};
use crate::{
    binned,
    client::{Outcome, Page, Reader},
    error::Error,
    layout::{Geometry, control},
    region::HostRegion,
};

mod copies;

use copies::{Copy, PRESETS};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn region(capacity_bytes: u64) -> Region {
    let region = || Arc::new(HostRegion::new(capacity_bytes).unwrap());
    Region { control: region(), leaves: region() }
}

/// The smallest leaves, so that keys and values of few bytes are too long for them.
fn geometry() -> Geometry {
    Geometry::new(512, 24).unwrap()
}

fn table(region: &Region) -> Table<Arc<HostRegion>> {
    let geometry = geometry();
    let (leaves, control) = (Arc::clone(&region.leaves), Arc::clone(&region.control));
    Table::build(geometry, leaves, control, []).unwrap()
}

fn replica(region: &Region, preset: Preset) -> AnyReplica {
    let tuning = ShareOptions::default().entry_bytes(24).tuning();
    match preset {
        Preset::Rhumb => AnyReplica::Runs(Box::new(table(region))),
        Preset::XStore => AnyReplica::TwoStage(Box::new(table_in(region, tuning).unwrap())),
        Preset::FineStore => {
            // No lease ends while a test is kept waiting.
            let options = binned::Options { lease_ms: u64::MAX, ..binned::Options::default() };
            AnyReplica::Binned(Box::new(Arrays::new(region, options).unwrap()))
        }
    }
}

/// Short keys, and ones of which most are too long for leaves, many of which begin alike.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let text = prop::collection::vec(prop::sample::select(vec![0u8, b'a', 0xff]), 0..6);
    let long = (prop::sample::select(vec![0u8, b'a', 0xff]), 30usize..60, 0u8..4);
    prop_oneof![
        3 => text,
        2 => long.prop_map(|(byte, len, last)| [vec![byte; len], vec![last]].concat()),
        1 => (0u16..500).prop_map(|n| n.to_be_bytes().to_vec()),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => prop::collection::vec(any::<u8>(), 0..12),
        1 => prop::collection::vec(any::<u8>(), 100..200),
    ]
}

/// Checks what a reader of the region says of these keys. Long ones, and large values, are asked
/// for; so are absent keys that begin as long ones do.
fn check_reader(region: &Region, map: &Map, keys: &[Vec<u8>]) {
    let reader = Reader::new(region.control.words(), region.leaves.words()).unwrap();
    let geometry = geometry();
    let mut out = Vec::new();
    for key in keys.iter().chain(map.keys()) {
        out.clear();
        let is_asked = |value: &Vec<u8>| value.len() > geometry.value_bytes_max();
        match (reader.get(key, &mut out), map.get(key)) {
            (Outcome::Found, Some(value)) => assert_eq!(out, *value),
            (Outcome::Ask(_), Some(value)) if geometry.is_long(key) || is_asked(value) => {}
            (Outcome::Ask(_), None) if geometry.is_long(key) => {}
            (Outcome::Absent, None) => {}
            (outcome, value) => panic!("{key:?}: {outcome:?} for {value:?}"),
        }
    }
    // Leaves that hold no long key are scanned by readers.
    let mut seen = Vec::new();
    let (mut at, mut page) = (Vec::<u8>::new(), Page::default());
    loop {
        assert!(reader.page_up(Bound::Included(&at), usize::MAX, &mut page));
        let keys = page.pairs.iter().map(|(key, _)| key.to_vec());
        seen.extend(keys.filter(|key| !geometry.is_long(key)));
        match page.next.take() {
            Some(next) => at = next,
            None => break,
        }
    }
    assert!(seen.iter().eq(map.keys().filter(|key| !geometry.is_long(key))));
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    RemoveRange(Vec<u8>, Option<Vec<u8>>),
    Reset,
    BeginLoad,
    FinishLoad,
    GiveUpLoad,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (key(), value()).prop_map(|(key, value)| Step::Insert(key, value)),
        6 => key().prop_map(Step::Remove),
        2 => (key(), prop::option::of(key())).prop_map(|(from, to)| Step::RemoveRange(from, to)),
        1 => Just(Step::Reset),
        3 => Just(Step::BeginLoad),
        3 => Just(Step::FinishLoad),
        1 => Just(Step::GiveUpLoad),
    ]
}

/// Changes the map and tells the publisher.
fn take(step: &Step, map: &mut Map, publisher: &Publisher) {
    match step {
        Step::Insert(key, value) => {
            map.insert(key.clone(), value.clone());
            publisher.insert(key, value);
        }
        Step::Remove(key) => {
            map.remove(key);
            publisher.remove(key);
        }
        Step::RemoveRange(from, to) => {
            let end = to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            map.retain(|key, _| !(Bound::Included(&from[..]), end).contains(&key[..]));
            publisher.remove_range(from, to.as_deref());
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_region_that_is_live_is_the_store(
        steps in prop::collection::vec(step(), 1..200),
        preset in prop::sample::select(PRESETS.to_vec()),
    ) {
        let copy = Copy::new(preset, 16 << 20);
        let publisher = copy.publisher.clone();
        let (mut map, mut seq) = (Map::new(), 0);
        let mut load: Option<(Load<'_>, Map)> = None;
        let keys: Vec<Vec<u8>> = steps.iter().filter_map(|step| match step {
            Step::Insert(key, _) | Step::Remove(key) => Some(key.clone()),
            _ => None,
        }).collect();
        for step in &steps {
            match step {
                Step::Reset => publisher.reset(),
                Step::BeginLoad if load.is_none() => {
                    let begun = publisher.begin_load();
                    prop_assert_eq!(begun.is_none(), publisher.stats().is_live);
                    load = begun.map(|load| (load, map.clone()));
                }
                Step::FinishLoad => if let Some((load, loaded)) = load.take() {
                    let is_loaded = load.finish(loaded.into_iter().map(Ok)).unwrap();
                    prop_assert_eq!(is_loaded, publisher.stats().is_live);
                },
                Step::GiveUpLoad => drop(load.take()),
                _ => {
                    take(step, &mut map, &publisher);
                    copy.set_map(&map);
                    seq += 1;
                    publisher.publish(seq);
                }
            }
            if seq.is_multiple_of(7) {
                publisher.care();
            }
            let is_live = publisher.stats().is_live;
            prop_assert_eq!(control::heartbeat(copy.region.control.words()) != 0, is_live);
            if is_live {
                copy.check(&map, &keys);
                let begun = publisher.begin_load();
                prop_assert!(begun.is_none());
            }
        }
    }

    #[test]
    fn a_volatile_keyspace_is_a_map(
        changes in prop::collection::vec((key(), prop::option::weighted(0.7, value())), 1..150),
        bounds in prop::collection::vec((key(), key(), any::<bool>(), 0usize..9), 1..8),
    ) {
        let region = region(16 << 20);
        let volatile = Volatile::new(region.clone(), table(&region), Arc::default());
        let mut map = Map::new();
        for (key, value) in &changes {
            let change = Change { keyspace: "", key, value: value.as_deref() };
            if key.len() % 2 == 0 {
                volatile.commit(&[change]).unwrap();
            } else {
                let expected = map.get(key).map(Vec::as_slice);
                prop_assert!(!volatile.compare_and_swap(&change, Some(b"not that value")).unwrap());
                prop_assert!(volatile.compare_and_swap(&change, expected).unwrap());
            }
            match value {
                Some(value) => drop(map.insert(key.clone(), value.clone())),
                None => drop(map.remove(key)),
            }
        }
        let keys: Vec<Vec<u8>> = changes.iter().map(|(key, _)| key.clone()).collect();
        check_reader(&region, &map, &keys);
        let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let values = volatile.multi_get("", &slices, usize::MAX).unwrap();
        for (key, value) in keys.iter().zip(values) {
            prop_assert_eq!(value.as_ref(), map.get(key));
            prop_assert_eq!(&volatile.get("", key).unwrap(), &value);
        }
        for (from, to, reverse, limit) in &bounds {
            let (from, to) = (Bound::Excluded(&from[..]), Bound::Included(&to[..]));
            for (from, to) in [(from, to), (to, from), (from, Bound::Unbounded)] {
                let scan = Scan { from, to, reverse: *reverse, limit: *limit, bytes_max: 500 };
                check_scan(&volatile, &map, &scan);
            }
        }
    }
}

fn check_scan(volatile: &Volatile, map: &Map, scan: &Scan<'_>) {
    let (pairs, more) = volatile.scan("", scan).unwrap();
    let inside = map.iter().filter(|(key, _)| (scan.from, scan.to).contains(&key[..]));
    let mut expected: Vec<_> = inside.map(|(key, value)| (key.clone(), value.clone())).collect();
    if scan.reverse {
        expected.reverse();
    }
    assert_eq!(pairs, expected[..pairs.len()], "{scan:?}");
    assert_eq!(more, pairs.len() < expected.len(), "{scan:?}");
    let bytes: usize = pairs.iter().map(|(key, value)| key.len() + value.len()).sum();
    assert!(pairs.len() <= scan.limit && (bytes <= scan.bytes_max || pairs.len() == 1));
    let is_full = pairs.len() == scan.limit;
    let next = expected.get(pairs.len()).map_or(0, |(key, value)| key.len() + value.len());
    assert!(!more || is_full || bytes + next > scan.bytes_max, "{scan:?}");
}

#[test]
fn a_budget_that_is_spent_suspends_a_region_until_it_is_loaded_again() {
    for preset in PRESETS {
        // The least that trained arrays and their bins take is more.
        let bytes = if preset == Preset::FineStore { 4 << 20 } else { 2 << 20 };
        let copy = Copy::new(preset, bytes);
        let publisher = &copy.publisher;
        // Keys of eight bytes in no order.
        let key = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let sorted = |count: u64, value: &[u8]| -> Map {
            (0..count).map(|n| (key(n).to_vec(), value.to_vec())).collect()
        };
        let loaded = if preset == Preset::FineStore { 100_000 } else { 15_000 };
        let load = publisher.begin_load().unwrap();
        assert!(load.finish(sorted(loaded, &[6; 8]).into_iter().map(Ok)).unwrap());
        let mut n = loaded;
        while control::heartbeat(copy.region.control.words()) != 0 {
            publisher.insert(&key(n), &[7; 8]);
            n += 1;
            publisher.publish(n);
            if n.is_multiple_of(1_000) {
                publisher.care();
            }
        }
        assert!(n > loaded + 1_000, "{preset:?} is suspended after {n} entries");
        assert!(publisher.wait_for_reset());
        for _ in 0..2 {
            let load = publisher.begin_load().unwrap();
            let too_many = sorted(200_000, &[7; 8]).into_iter().map(Ok);
            assert!(matches!(load.finish(too_many), Err(Error::Full { .. })), "{preset:?}");
        }
        let load = publisher.begin_load().unwrap();
        assert!(load.finish(sorted(1_000, &[8; 8]).into_iter().map(Ok)).unwrap());
        let map = sorted(1_000, &[8; 8]);
        copy.set_map(&map);
        copy.check(&map, &(0..n).step_by(7).map(|n| key(n).to_vec()).collect::<Vec<_>>());
    }
}

/// However often a region is loaded, by however much of another kind, it takes no more memory than
/// it did.
#[test]
fn loads_use_the_memory_of_the_loads_before() {
    for preset in PRESETS {
        let copy = Copy::new(preset, 64 << 20);
        let (publisher, mut bytes) = (&copy.publisher, 0);
        for round in 0..12_u64 {
            let load = publisher.begin_load().unwrap();
            let key = |n: u64| match round % 3 {
                0 => n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec(),
                1 => format!("a longer key, with a number at its end: {n:08}").into_bytes(),
                _ => format!("{n:03}").into_bytes(),
            };
            let len = |n: u64| (n * 7 % 90) as usize;
            let map: Map = (0..6_000).map(|n| (key(n), vec![round as u8; len(n)])).collect();
            copy.set_map(&map);
            assert!(load.finish(map.clone().into_iter().map(Ok)).unwrap());
            for n in 6_000..7_500 {
                publisher.insert(&key(n), &vec![1; len(n)]);
                publisher.publish(n);
            }
            publisher.care();
            if round == 5 {
                bytes = publisher.stats().mapped_bytes;
            }
            publisher.reset();
        }
        assert_eq!(publisher.stats().mapped_bytes, bytes, "{preset:?}");
        assert_eq!(publisher.stats().resets, 12);
    }
}

#[test]
fn a_load_ends_between_two_groups_of_changes() {
    PRESETS.into_iter().for_each(load_amid_a_group);
}

fn load_amid_a_group(preset: Preset) {
    let copy = Copy::new(preset, 4 << 20);
    let publisher = &copy.publisher;
    let load = publisher.begin_load().unwrap();
    publisher.insert(b"a", b"new");
    thread::scope(|scope| {
        let loaded = scope.spawn(|| load.finish([Ok(("a", "old"))]));
        // The store's readers do not see the change yet, so nor do clients, however long it takes.
        thread::sleep(Duration::from_millis(30));
        assert!(!publisher.stats().is_live);
        publisher.publish(1);
        assert!(loaded.join().unwrap().unwrap());
    });
    let map = Map::from([(b"a".to_vec(), b"new".to_vec())]);
    copy.set_map(&map);
    copy.check(&map, &[]);
    // Nor does a load wait for a store that has ended in the middle of a group.
    publisher.reset();
    let load = publisher.begin_load().unwrap();
    publisher.insert(b"a", b"newer");
    thread::scope(|scope| {
        let none: [Result<Pair, Error>; 0] = [];
        let loaded = scope.spawn(|| load.finish(none));
        thread::sleep(Duration::from_millis(10));
        publisher.beat(0);
        assert!(!loaded.join().unwrap().unwrap());
    });
}

#[test]
fn a_thread_that_waits_is_told_of_a_reset_and_of_the_end() {
    let copy = Copy::new(Preset::Rhumb, 2 << 20);
    let publisher = &copy.publisher;
    thread::scope(|scope| {
        let loads = scope.spawn(|| {
            let mut loads = 0;
            while publisher.wait_for_reset() {
                let none: [Result<Pair, Error>; 0] = [];
                publisher.begin_load().unwrap().finish(none).unwrap();
                loads += 1;
            }
            loads
        });
        for _ in 0..3 {
            while !publisher.stats().is_live {
                thread::sleep(Duration::from_millis(1));
            }
            publisher.reset();
        }
        while !publisher.stats().is_live {
            thread::sleep(Duration::from_millis(1));
        }
        publisher.beat(0);
        assert_eq!(loads.join().unwrap(), 4);
    });
    publisher.beat(7);
    assert_eq!(control::heartbeat(copy.region.control.words()), 0);
}
