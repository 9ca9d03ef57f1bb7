//! Tables against a sorted map, through what a reader sees.

#[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
mod deaths;

use std::{cell::Cell, collections::BTreeMap, ops::Bound};

use proptest::{prelude::*, test_runner::TestRunner};
use rhumb_testkit::random::Random;

use super::{Space, Table, heap::HeapSpace, table::scrub};
use crate::{
    client::{Outcome, Page, Reader},
    layout::{
        Geometry, Memory, control,
        format::{LATCHED, LIVE, NO_SLOT, head},
    },
    leaf::Entry,
    primitive::AtomicU64,
};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn table(geometry: Geometry, map: &Map) -> Table<HeapSpace> {
    let space = || HeapSpace::new(64 << 10, 4 << 20);
    let entries = map.iter().map(|(key, value)| Entry::new(geometry, key, value));
    Table::build(geometry, space(), space(), entries).unwrap()
}

fn reader(table: &Table<HeapSpace>) -> Reader<'_> {
    Reader::new(table.control_space().all(), table.leaf_space().all()).unwrap()
}

/// The leaves that answer for keys, with their slots.
fn live(table: &Table<HeapSpace>) -> impl Iterator<Item = (u32, &[AtomicU64])> {
    let leaves = table.leaf_space().words().chunks(table.geometry().leaf_words());
    (0..).zip(leaves).filter(|(_, leaf)| (leaf.load(head::SHAPE) >> 24) as u8 & LIVE != 0)
}

/// Checks that the leaves are a list that is linked both ways.
fn check_links(table: &Table<HeapSpace>) {
    let links: BTreeMap<u32, u64> =
        live(table).map(|(slot, leaf)| (slot, leaf.load(head::LINKS))).collect();
    assert_eq!(links.len() as u64, table.leaf_count());
    let first = links.iter().find(|(_, links)| (**links >> 32) as u32 == NO_SLOT);
    let (mut slot, mut previous, mut count) = (*first.unwrap().0, NO_SLOT, 0);
    while slot != NO_SLOT {
        assert_eq!((links[&slot] >> 32) as u32, previous, "the link back of {slot}");
        (previous, slot, count) = (slot, links[&slot] as u32, count + 1);
    }
    assert_eq!(count, links.len());
}

/// A value as readers see it: none of those that the host has.
fn seen(table: &Table<HeapSpace>, value: &[u8]) -> Option<Vec<u8>> {
    (value.len() <= table.geometry().value_bytes_max()).then(|| value.to_vec())
}

fn check_get(table: &Table<HeapSpace>, map: &Map, key: &[u8]) {
    let mut out = b"before".to_vec();
    let outcome = reader(table).get(key, &mut out);
    let expected = match map.get(key) {
        None => Outcome::Absent,
        Some(value) if seen(table, value).is_some() => Outcome::Found,
        Some(value) => Outcome::Ask(value.len()),
    };
    assert_eq!(outcome, expected, "{key:?}");
    if outcome == Outcome::Found {
        assert_eq!(&out[6..], &map[key][..], "{key:?}");
    } else {
        assert_eq!(out, b"before");
    }
}

/// The pairs that pages have, from a bound on in one direction.
fn scanned(
    table: &Table<HeapSpace>,
    bound: Bound<&[u8]>,
    reverse: bool,
    limit: usize,
) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let reader = reader(table);
    let (mut found, mut page) = (Vec::new(), Page::default());
    let mut at = bound.map(<[u8]>::to_vec);
    loop {
        let bound = at.as_ref().map(Vec::as_slice);
        let is_read = if reverse {
            reader.page_down(bound, limit, &mut page)
        } else {
            reader.page_up(bound, limit, &mut page)
        };
        assert!(is_read && page.pairs.len() <= limit);
        let owned =
            |(key, value): (&[u8], Option<&[u8]>)| (key.to_vec(), value.map(<[u8]>::to_vec));
        found.extend(page.pairs.iter().map(owned));
        let Some(next) = page.next.take() else { return found };
        at = if reverse { Bound::Excluded(next) } else { Bound::Included(next) };
    }
}

fn check_scans(table: &Table<HeapSpace>, map: &Map, from: Bound<&[u8]>) {
    let pair = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), seen(table, value));
    for limit in [usize::MAX, 3, 1] {
        let expected = map.range::<[u8], _>((from, Bound::Unbounded)).map(pair);
        let found = scanned(table, from, false, limit);
        assert_eq!(found, expected.collect::<Vec<_>>(), "up from {from:?}");
        let expected = map.range::<[u8], _>((Bound::Unbounded, from)).rev().map(pair);
        let found = scanned(table, from, true, limit);
        assert_eq!(found, expected.collect::<Vec<_>>(), "down from {from:?}");
    }
}

#[derive(Clone, Debug)]
enum Change {
    Set(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    /// Removes all keys that begin with a byte.
    Clear(u8),
}

/// Short keys of few letters, and numbers.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let text = prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', 0xff]), 0..14);
    let number = (0u64..4000).prop_map(|n| n.to_be_bytes().to_vec());
    let long = (0u16..200).prop_map(|n| [&[b'l'; 30][..], &n.to_be_bytes()].concat());
    prop_oneof![text, number, long]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..40),
        1 => prop::collection::vec(any::<u8>(), 150..300),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        20 => (key(), value()).prop_map(|(key, value)| Change::Set(key, value)),
        8 => key().prop_map(Change::Remove),
        1 => prop::sample::select(vec![0u8, 1, b'a', b'l']).prop_map(Change::Clear),
    ]
}

/// Makes a change of both.
fn apply(table: &mut Table<HeapSpace>, map: &mut Map, change: &Change, seq: u64) {
    match change {
        Change::Set(key, value) => {
            table.set(key, value, seq).unwrap();
            map.insert(key.clone(), value.clone());
        }
        Change::Remove(key) => {
            assert_eq!(table.remove(key, seq), map.remove(key).is_some());
        }
        Change::Clear(byte) => {
            let begins = |key: &&Vec<u8>| key.first() == Some(byte);
            let gone: Vec<_> = map.keys().filter(begins).cloned().collect();
            for key in gone {
                assert!(table.remove(&key, seq));
                map.remove(&key);
            }
        }
    }
}

proptest! {
    #[test]
    fn a_table_is_a_sorted_map(
        first in prop::collection::btree_map(key(), value(), 0..1500),
        changes in prop::collection::vec(change(), 0..1500),
        probes in prop::collection::vec(key(), 20),
    ) {
        let geometry = Geometry::new(1024, 24).unwrap();
        let mut map = first;
        let mut table = table(geometry, &map);
        for (seq, change) in (1..).zip(&changes) {
            apply(&mut table, &mut map, change, seq);
            // Groups of three.
            if seq % 3 == 0 {
                table.publish(seq);
            }
        }
        table.publish(9_999);
        prop_assert_eq!(control::applied(table.control_space().all()), 9_999);
        prop_assert_eq!(table.len(), map.len() as u64);
        for key in map.keys().chain(&probes) {
            check_get(&table, &map, key);
        }
        let keys: Vec<_> = map.keys().chain(&probes).collect();
        let mut indexes = 0..keys.len();
        reader(&table).multi_get(&keys, |index, outcome, found| {
            assert_eq!(indexes.next(), Some(index), "each key, in order");
            let value = map.get(keys[index]);
            match outcome {
                Outcome::Found => assert_eq!(Some(found), value.map(Vec::as_slice)),
                Outcome::Absent => assert_eq!(None, value),
                Outcome::Ask(len) => assert_eq!(Some(len), value.map(Vec::len)),
                Outcome::Busy => panic!("nothing changes"),
            }
        });
        prop_assert_eq!(indexes.next(), None);
        check_links(&table);
        check_scans(&table, &map, Bound::Unbounded);
        for key in &probes {
            check_scans(&table, &map, Bound::Included(key));
            check_scans(&table, &map, Bound::Excluded(key));
        }
    }
}

#[test]
fn a_group_is_seen_when_it_is_published() {
    let geometry = Geometry::new(1024, 24).unwrap();
    let mut table = table(geometry, &Map::new());
    let get = |table: &Table<HeapSpace>, key: &[u8]| reader(table).get(key, &mut Vec::new());
    assert_eq!(get(&table, b"a"), Outcome::Absent);
    table.set(b"a", b"1", 1).unwrap();
    assert_eq!(get(&table, b"a"), Outcome::Busy);
    table.publish(1);
    assert_eq!(get(&table, b"a"), Outcome::Found);
    // Enough for several runs: all of them stay latched, also leaves that no reader is sent to yet.
    for i in 0..3_000u32 {
        table.set(&i.to_be_bytes(), b"value", 2).unwrap();
        assert!(live(&table).all(|(_, leaf)| leaf.load(head::STATE) & LATCHED != 0));
    }
    for i in 0..3_000u32 {
        assert_eq!(get(&table, &i.to_be_bytes()), Outcome::Busy);
    }
    table.publish(2);
    for i in 0..3_000u32 {
        assert_eq!(get(&table, &i.to_be_bytes()), Outcome::Found);
    }
}

#[test]
fn a_table_that_grows_and_shrinks_uses_the_same_slots() {
    let geometry = Geometry::new(1024, 24).unwrap();
    let mut table = table(geometry, &Map::new());
    let mut most = 0;
    for round in 0..20u64 {
        for i in 0..4_000u64 {
            let key = (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round).to_be_bytes();
            table.set(&key, &[1; 24], round).unwrap();
            table.publish(round);
        }
        most = most.max(table.leaf_count());
        for i in 0..4_000u64 {
            let key = (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round).to_be_bytes();
            assert!(table.remove(&key, round));
            table.publish(round);
        }
        assert_eq!(table.len(), 0);
        // Runs of one block are joined two by two: some leaf stays for every few runs.
        assert!(table.leaf_count() * 4 < most, "{} of {most} leaves", table.leaf_count());
    }
    // 4,000 records of 40 bytes take 157 leaves if all are full.
    assert!(most < 157 * 2, "{most} leaves at most");
}

#[test]
fn a_full_space_refuses_and_stays_whole() {
    let geometry = Geometry::new(1024, 24).unwrap();
    let leaves = HeapSpace::new(64 << 10, 128 << 10);
    let control = HeapSpace::new(64 << 10, 4 << 20);
    let mut table = Table::build(geometry, leaves, control, []).unwrap();
    let mut map = Map::new();
    let mut refused = 0;
    for i in 0..6_000u64 {
        let key = i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec();
        match table.set(&key, b"value", i) {
            Ok(()) => drop(map.insert(key, b"value".to_vec())),
            Err(error) => {
                assert!(
                    matches!(error, crate::Error::Full { capacity_bytes: 0x2_0000 }),
                    "{error}"
                );
                refused += 1;
            }
        }
        table.publish(i);
    }
    assert!(refused > 0 && map.len() > 1_500, "{refused} refused, {} there", map.len());
    map.keys().for_each(|key| check_get(&table, &map, key));
    check_scans(&table, &map, Bound::Unbounded);
}

#[test]
fn every_leaf_of_a_chain_is_in_a_readers_reach() {
    let geometry = Geometry::new(1024, 24).unwrap();
    let key = |n: u64| n.to_be_bytes().to_vec();
    // A run of a hundred leaves may have a dozen siblings, all of one leaf.
    let mut map: Map = (0..2_000u64).map(|n| (key(n << 32), vec![1; 24])).collect();
    let mut table = table(geometry, &map);
    for n in (1..200u64).rev() {
        // Each new key splits the first leaf of the chain, or one close to it.
        table.set(&key((1_000 << 32) + n), &[2; 24], n).unwrap();
        table.publish(n);
        map.insert(key((1_000 << 32) + n), vec![2; 24]);
        map.range(key(990 << 32)..key(1_010 << 32))
            .for_each(|(key, _)| check_get(&table, &map, key));
    }
}

/// What the thread does that stands by for a table, with changes of the writer between its steps:
/// `between` is told if they may stay latched.
fn renew(
    table: &mut Table<HeapSpace>,
    mut between: impl FnMut(&mut Table<HeapSpace>, bool),
) -> bool {
    let Some(mut renewal) = table.begin_renewal() else { return false };
    between(table, false);
    assert!(renewal.read(table.leaf_space().words()));
    between(table, true);
    if table.reserve_for(&mut renewal).is_err() {
        return true;
    }
    between(table, true);
    renewal.store(table.leaf_space().words());
    between(table, true);
    let ended = table.finish_renewal(&renewal, 1);
    between(table, true);
    scrub(table.leaf_space().words(), table.geometry(), &ended);
    table.give_back(&ended);
    true
}

#[test]
fn a_run_that_was_changing_all_the_while_is_built_anew_later() {
    let key = |n: u64| n.to_be_bytes().to_vec();
    let map: Map = (0..200u64).map(|n| (key(n << 32), vec![1; 24])).collect();
    let mut table = table(Geometry::new(512, 8).unwrap(), &map);
    table.set_cared_for();
    let mut seq = 0;
    // Splits until a run is to be built anew, and one more change, which is not published.
    let mut renewal = loop {
        seq += 1;
        let new = key(((seq % 200) << 32) + seq);
        table.set(&new, &[2; 24], seq).unwrap();
        table.publish(seq);
        if let Some(renewal) = table.begin_renewal() {
            table.set(&new, &[3; 24], seq + 1).unwrap();
            break renewal;
        }
    };
    let mut tries = 1;
    while !renewal.read(table.leaf_space().words()) {
        table.give_up_renewal(&renewal);
        match table.begin_renewal() {
            Some(again) => renewal = again,
            None => break,
        }
        tries += 1;
        if tries == 3 {
            table.publish(seq + 1);
        }
    }
    assert_eq!(tries, 3, "it is wanted until it can be read");
    table.give_up_renewal(&renewal);
    assert!(table.begin_renewal().is_none(), "what was read is not wanted again");
}

#[test]
fn runs_are_built_anew_beside_their_writer() {
    let first = prop::collection::btree_map(key(), value(), 0..300);
    let changes = prop::collection::vec(change(), 200..900);
    let renewals = Cell::new(0);
    let mut runner = TestRunner::new(ProptestConfig::with_cases(64));
    let result = runner.run(&(first, changes, any::<bool>()), |(first, changes, has_groups)| {
        renewals.set(renewals.get() + renew_beside_a_writer(first, &changes, has_groups));
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}\n{runner}"));
    // Few keys need none.
    assert!(renewals.get() > 64, "{}", renewals.get());
}

/// Makes changes, nine between each two steps of those that build runs anew, and compares with a
/// map; returns how often runs were built.
fn renew_beside_a_writer(first: Map, changes: &[Change], has_groups: bool) -> u64 {
    let geometry = Geometry::new(512, 8).unwrap();
    let mut table = table(geometry, &first);
    table.set_cared_for();
    let (mut map, mut seq, mut renewals) = (first, 0, 0);
    let mut changes = changes.iter();
    while changes.len() > 0 {
        let mut between = |table: &mut Table<HeapSpace>, may_latch: bool| {
            for change in changes.by_ref().take(9) {
                seq += 1;
                apply(table, &mut map, change, seq);
            }
            if !may_latch || !has_groups {
                table.publish(seq);
            }
        };
        between(&mut table, false);
        while renew(&mut table, &mut between) {
            renewals += 1;
            table.publish(9_999);
        }
        check_links(&table);
        assert_eq!(table.len(), map.len() as u64);
        check_scans(&table, &map, Bound::Unbounded);
    }
    for key in map.keys() {
        check_get(&table, &map, key);
    }
    renewals
}

/// Without room for what a run becomes, or for what changes meanwhile, all stays as it was.
#[test]
fn a_full_space_gives_renewals_up() {
    let geometry = Geometry::new(512, 8).unwrap();
    let space = |bytes| HeapSpace::new(512, bytes);
    let mut given_up = 0;
    for leaves in 20..120 {
        let mut table = Table::build(geometry, space(leaves * 512), space(1 << 20), []).unwrap();
        table.set_cared_for();
        let mut map = Map::new();
        let mut n = 0u64;
        let mut set = |table: &mut Table<HeapSpace>| {
            n += 1;
            let key = (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50).to_be_bytes().to_vec();
            let is_set = table.set(&key, &[n as u8; 16], n).is_ok();
            table.publish(n);
            if is_set {
                map.insert(key, vec![n as u8; 16]);
            }
            is_set
        };
        while set(&mut table) {
            let before = table.run_count();
            while renew(&mut table, |table, _| {
                for _ in 0..7 {
                    set(table);
                }
            }) {}
            given_up += usize::from(table.run_count() == before);
        }
        assert!(!table.is_lost());
        table.publish(n);
        check_links(&table);
        map.keys().for_each(|key| check_get(&table, &map, key));
    }
    assert!(given_up > 0);
}

/// Short runs of keys that came in any order become long ones.
#[test]
fn neighbours_are_built_anew_together() {
    let geometry = Geometry::new(4096, 96).unwrap();
    let mut table = table(geometry, &Map::new());
    table.set_cared_for();
    let mut random = Random::new(7);
    for n in 0..20_000u64 {
        table.set(&random.next().to_be_bytes(), &[1; 24], n).unwrap();
        table.publish(n);
        if n % 50 == 0 {
            while renew(&mut table, |_, _| {}) {}
        }
    }
    let (runs, leaves) = (table.run_count() as u64, table.leaf_count());
    assert!(leaves > 10 * runs, "{leaves} leaves in {runs} runs");
    assert!(leaves * 4096 < 20_000 * 40 * 2, "{leaves} leaves");
}
