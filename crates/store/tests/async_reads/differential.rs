//! Every kind of read against a `BTreeMap`.

use std::ops::Bound;

use rhumb::{AsyncIter, Database, Iter, Keyspace, Slice, Snapshot};
use rhumb_testkit::random::Random;

use crate::common::{Draw, Map, WAYS, await_no_buffers, block_on, change, open, rounds, some_keys};

/// A database, its expected contents, and what a snapshot of it saw.
struct World {
    db: Database,
    keyspace: Keyspace,
    map: Map,
    snapshot: Option<(Snapshot, Map)>,
    random: Random,
}

impl World {
    fn check_gets(&mut self) {
        let count = 1 + self.random.below(200);
        let keys = some_keys(&self.map, &mut self.random, count);
        let values = self.keyspace.multi_get(&keys).expect("multi_get");
        check_values(&self.map, &keys, &values);
        let keys = some_keys(&self.map, &mut self.random, count);
        let values = block_on(self.keyspace.multi_get_async(&keys)).expect("multi_get_async");
        check_values(&self.map, &keys, &values);
        for key in some_keys(&self.map, &mut self.random, 30) {
            let value = block_on(self.keyspace.get_async(&key)).expect("get_async");
            assert_eq!(value.as_deref(), self.map.get(&key).map(Vec::as_slice));
        }
        if let Some((snapshot, map)) = &self.snapshot {
            let keys = some_keys(map, &mut self.random, count);
            let values =
                snapshot.keyspace(&self.keyspace).unwrap().multi_get(&keys).expect("multi_get");
            check_values(map, &keys, &values);
            let values =
                block_on(snapshot.keyspace(&self.keyspace).unwrap().multi_get_async(&keys));
            check_values(map, &keys, &values.expect("multi_get_async"));
            let value = block_on(snapshot.keyspace(&self.keyspace).unwrap().get_async(&keys[0]))
                .expect("get_async");
            assert_eq!(value.as_deref(), map.get(&keys[0]).map(Vec::as_slice));
        }
    }

    fn check_ranges(&mut self) {
        let range = self.bounds();
        let expected: Vec<_> = match is_empty_range(&range) {
            true => Vec::new(),
            false => self.map.range(range.clone()).collect(),
        };
        let ends = Ends { expected: &expected, random: &mut self.random };
        ends.check(&mut self.keyspace.range(range.clone()));
        let ends = Ends { expected: &expected, random: &mut self.random };
        ends.check(&mut self.keyspace.range_async(range.clone()));
        if let Some((snapshot, map)) = &self.snapshot {
            let expected: Vec<_> = match is_empty_range(&range) {
                true => Vec::new(),
                false => map.range(range.clone()).collect(),
            };
            let mut iter = snapshot.keyspace(&self.keyspace).unwrap().range_async(range);
            Ends { expected: &expected, random: &mut self.random }.check(&mut iter);
        }
        let prefix =
            [b"user0".as_slice(), b"user01", b"a/", b"none"][self.random.below(4) as usize];
        let expected: Vec<_> = self.map.iter().filter(|(key, _)| key.starts_with(prefix)).collect();
        let mut iter = self.keyspace.prefix_async(prefix);
        Ends { expected: &expected, random: &mut self.random }.check(&mut iter);
    }

    fn bounds(&mut self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let mut bound = || match self.random.below(4) {
            0 => Bound::Unbounded,
            1 => Bound::Excluded(self.random.key()),
            _ => Bound::Included(self.random.key()),
        };
        (bound(), bound())
    }
}

/// Ranges that `BTreeMap` refuses, and that here are empty.
fn is_empty_range(range: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> bool {
    match range {
        (Bound::Excluded(from), Bound::Excluded(to)) => from >= to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to))
        | (Bound::Included(from), Bound::Excluded(to)) => from > to,
        _ => false,
    }
}

fn check_values(map: &Map, keys: &[Vec<u8>], values: &[Option<Slice>]) {
    assert_eq!(keys.len(), values.len());
    for (key, value) in keys.iter().zip(values) {
        let expected = map.get(key).map(Vec::as_slice);
        assert!(value.as_deref() == expected, "a wrong value of {}", key.escape_ascii());
    }
}

/// A range that is read from both ends.
trait TwoEnded {
    fn expect(&mut self, entries: usize);
    fn step(&mut self, forward: bool) -> Option<(Slice, Slice)>;
}

impl TwoEnded for Iter {
    fn expect(&mut self, entries: usize) {
        Self::hint_len(self, entries);
    }

    fn step(&mut self, forward: bool) -> Option<(Slice, Slice)> {
        let item = if forward { self.next() } else { self.next_back() };
        item.map(|item| item.expect("an entry"))
    }
}

impl TwoEnded for AsyncIter {
    fn expect(&mut self, entries: usize) {
        Self::hint_len(self, entries);
    }

    fn step(&mut self, forward: bool) -> Option<(Slice, Slice)> {
        let item = if forward { block_on(self.next()) } else { block_on(self.next_back()) };
        item.map(|item| item.expect("an entry"))
    }
}

/// The entries that a range must give from either end.
struct Ends<'a> {
    expected: &'a [(&'a Vec<u8>, &'a Vec<u8>)],
    random: &'a mut Random,
}

impl Ends<'_> {
    /// Takes entries from the ends in some pattern: from one end only, from the other only, or from
    /// both; sometimes not all of them.
    fn check(self, iter: &mut impl TwoEnded) {
        let Ends { mut expected, random } = self;
        let forward_of_four = [4, 0, 2, 3][random.below(4) as usize];
        let stops = random.below(4) == 0;
        let mut left = random.below(expected.len() as u64 + 1);
        // Expects nothing, the right number, too many, or far too many: the entries are the same.
        match random.below(8) {
            0 => iter.expect(left as usize),
            1 => iter.expect(random.below(3_000) as usize),
            2 => iter.expect(usize::MAX),
            _ => {}
        }
        loop {
            if stops && left == 0 {
                return;
            }
            left = left.saturating_sub(1);
            let forward = random.below(4) < forward_of_four;
            let item = iter.step(forward);
            let next = if forward { expected.split_first() } else { expected.split_last() };
            match (item, next) {
                (None, None) => break,
                (Some((key, value)), Some((next, rest))) => {
                    assert_eq!(key, *next.0);
                    assert!(value == *next.1, "a wrong value of {}", key.escape_ascii());
                    expected = rest;
                }
                (item, next) => {
                    panic!("{:?} instead of {:?}", item.map(|i| i.0), next.map(|n| n.0.0))
                }
            }
        }
        assert!(iter.step(true).is_none() && iter.step(false).is_none(), "more behind the end");
    }
}

#[test]
fn all_reads_agree_with_a_map() {
    for round in 0..rounds(1) {
        for (number, way) in WAYS.into_iter().enumerate() {
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().join("db");
            let mut random = Random::new(round * 4 + number as u64 + 1);
            let mut map = Map::new();
            for turn in 0..3 {
                // Opened again each time, so that nothing is in memory.
                let (db, keyspace) = open(&path, way);
                change(&keyspace, &mut map, &mut random, 4_000);
                let snapshot = Some((db.snapshot(), map.clone()));
                change(&keyspace, &mut map, &mut random, 1_500);
                if turn == 1 {
                    keyspace.compact().expect("compact");
                }
                let mut world = World { db, keyspace, map, snapshot, random };
                for _ in 0..12 {
                    world.check_gets();
                    world.check_ranges();
                }
                assert_eq!(world.db.stats().read_engine, way.0, "not what was asked for");
                await_no_buffers(&world.db);
                world.snapshot = None;
                (map, random) = (world.map, world.random);
            }
        }
    }
}

#[test]
fn scans_of_all_sizes_agree_with_and_without_read_ahead() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("db");
    let (db, keyspace) = open(&path, WAYS[0]);
    let mut map = Map::new();
    for i in 0..25_000_u32 {
        map.insert(i.to_be_bytes().to_vec(), i.wrapping_mul(7).to_le_bytes().repeat(15));
    }
    keyspace.ingest(map.iter()).expect("ingest");
    drop((keyspace, db));
    for ahead in [true, false] {
        for (kind, mode) in WAYS {
            let builder = crate::common::builder(&path).read_ahead(ahead);
            let db = builder.read_engine(kind).read_mode(mode).open().expect("open");
            let keyspace = db.keyspace("k", Default::default()).expect("keyspace");
            for len in [1, 100, 2_000, 25_000] {
                for first in [0_u32, 12_017, 24_990] {
                    let from = first.to_be_bytes();
                    let expected = || map.range(from.to_vec()..).take(len);
                    let items = keyspace.range(from..).take(len).map(|item| item.expect("entry"));
                    assert!(items.eq(expected().map(own)), "{len} from {first}");
                    let mut iter = keyspace.range_async(from..);
                    for (key, value) in expected() {
                        let look = |k: &[u8], v: &[u8]| k == *key && v == *value;
                        let is_next = block_on(iter.next_with(look)).expect("more");
                        assert!(is_next.expect("an entry"), "{len} from {first}, looked at");
                    }
                    let expected = || map.range(..from.to_vec()).rev().take(len);
                    let back = keyspace.range(..from).rev().take(len);
                    assert!(back.map(|item| item.expect("entry")).eq(expected().map(own)));
                    let mut iter = keyspace.range_async(..from);
                    for (key, value) in expected() {
                        let item = block_on(iter.next_back()).expect("more").expect("an entry");
                        assert!(item.0 == *key && item.1 == *value);
                    }
                }
            }
            await_no_buffers(&db);
        }
    }
}

fn own((key, value): (&Vec<u8>, &Vec<u8>)) -> (Slice, Slice) {
    (Slice::copy_from(key), Slice::copy_from(value))
}
