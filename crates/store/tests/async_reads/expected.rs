//! The reads of a scan that announces its length: each level once, and little more than it wants.

use rhumb::{
    Compression, Database, Keyspace, KeyspaceOptions, TableOptions,
    io::{ReadEngineKind, ReadMode},
};
use rhumb_testkit::random::Random;

use crate::common::block_on;

const KEYS: u64 = 20_000;
const VALUE_BYTES: usize = 1_000;
const SCANS: u64 = 60;

/// The number of reads that some scans took, and of bytes read.
#[derive(Clone, Copy, Debug)]
struct Cost {
    calls: u64,
    bytes: u64,
}

fn key_of(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn value_of(number: u64) -> Vec<u8> {
    (0..VALUE_BYTES as u64).map(|i| (number.wrapping_mul(31) + i) as u8).collect()
}

/// A database with a deep level of all keys, a table above it with every fourth key, and a budget
/// of `memory_bytes`.
fn fill(path: &std::path::Path, memory_bytes: u64) -> (Database, Keyspace) {
    let db = Database::builder(path)
        .memtable_bytes(8 << 20)
        .memory_budget_bytes(memory_bytes)
        .read_engine(ReadEngineKind::Threads)
        .read_mode(ReadMode::Direct)
        .open()
        .expect("open");
    let table = TableOptions { compression: Some(Compression::None), ..TableOptions::default() };
    let options = KeyspaceOptions { table, ..KeyspaceOptions::default() };
    let keyspace = db.keyspace("k", options).expect("keyspace");
    for number in 0..KEYS {
        keyspace.insert(key_of(number), value_of(number)).expect("insert");
    }
    keyspace.compact().expect("compact");
    for number in (0..KEYS).step_by(4) {
        keyspace.insert(key_of(number), value_of(number)).expect("insert");
    }
    db.flush().expect("flush");
    (db, keyspace)
}

/// Scans `length` entries from `first`, told to expect `expected`.
fn scan(keyspace: &Keyspace, first: u64, length: u64, expected: usize, awaits: bool) {
    let check = |at: u64, key: &[u8], value: &[u8]| {
        assert_eq!(key, key_of(first + at));
        assert!(value == value_of(first + at), "a wrong value of {}", first + at);
    };
    if awaits {
        let mut range = keyspace.range_async(key_of(first)..);
        range.hint_len(expected);
        for at in 0..length {
            let item = block_on(range.next_with(|key, value| check(at, key, value)));
            item.expect("an entry").expect("no error");
        }
    } else {
        let mut range = keyspace.range(key_of(first)..);
        range.hint_len(expected);
        for at in 0..length {
            let item = range.next_with(|key, value| check(at, key, value));
            item.expect("an entry").expect("no error");
        }
    }
}

/// The cost of `work`.
fn cost(db: &Database, work: impl FnOnce()) -> Cost {
    let before = db.stats();
    work();
    let after = db.stats();
    Cost {
        calls: after.block_read_calls - before.block_read_calls,
        bytes: after.block_read_bytes - before.block_read_bytes,
    }
}

/// The cost of scans of `length` entries from random keys, each told to expect `expected`.
fn cost_of_scans(
    (db, keyspace): (&Database, &Keyspace),
    length: u64,
    expected: usize,
    awaits: bool,
) -> Cost {
    let mut random = Random::new(11);
    cost(db, || {
        for _ in 0..SCANS {
            scan(keyspace, random.below(KEYS - length), length, expected, awaits);
        }
    })
}

#[test]
fn a_scan_of_a_known_length_reads_each_level_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let (db, keyspace) = fill(dir.path(), 1 << 20);
    for awaits in [false, true] {
        for length in [5, 50, 200] {
            let unknown = cost_of_scans((&db, &keyspace), length, 0, awaits);
            let known = cost_of_scans((&db, &keyspace), length, length as usize, awaits);
            // Two levels, and now and then a part that was larger than the mean and a quarter.
            assert!(known.calls <= SCANS * 2 * 3 / 2, "{length} entries: {known:?}");
            assert!(known.bytes < unknown.bytes, "{length} entries: {known:?}, {unknown:?}");
        }
    }
}

/// The first 40 entries of every scan are in the cache, and the last ten. 30 of the deep level are
/// not, and eight of the other: eleven pages, of which some came with the others.
#[test]
fn what_is_in_the_cache_is_not_read_with_the_rest() {
    const STEP: u64 = 300;
    let dir = tempfile::tempdir().expect("a directory");
    let (db, keyspace) = fill(dir.path(), 64 << 20);
    for awaits in [false, true] {
        let lap = u64::from(awaits) * STEP / 2;
        let firsts = (0..SCANS).map(|at| lap + at * STEP);
        for first in firsts.clone() {
            scan(&keyspace, first, 40, 40, awaits);
            scan(&keyspace, first + 70, 30, 30, awaits);
        }
        let rest = cost(&db, || firsts.for_each(|first| scan(&keyspace, first, 80, 80, awaits)));
        assert!(rest.calls <= SCANS * 5 / 2, "{rest:?}");
        assert!(rest.bytes <= SCANS * 14 * 4096, "{rest:?}");
    }
}
