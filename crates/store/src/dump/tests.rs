//! Dumps against a model, and every change of a small dump.

use std::{
    collections::BTreeMap,
    time::{Duration, UNIX_EPOCH},
};

use proptest::{collection::vec, prelude::*};
use rhumb_sync::primitive::Arc;

use super::{
    DumpItem, DumpReader,
    format::{Counts, begin_entries, encode_keyspace, put_entry},
    framed,
};
use crate::{
    Database, Error, Expiry, Keyspace, KeyspaceOptions, Partitioning, Result, TableOptions,
    io::sim::SimFs,
};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(fs: &SimFs, dir: &str) -> Database {
    let by = |key: &[u8]| key.last().map(|byte| vec![byte % 3]).unwrap_or_default();
    let builder = Database::builder(dir).file_system(Arc::new(fs.clone()));
    let builder = builder.memtable_bytes(20_000).table_bytes(20_000).background_threads(0);
    builder.partition_function("by", by).open().unwrap()
}

fn options(number: usize) -> KeyspaceOptions {
    let partitions = match number {
        0 => Partitioning::None,
        1 => Partitioning::PrefixLength(1),
        2 => Partitioning::SplitPoints(vec![b"b".to_vec(), b"cd".to_vec()]),
        _ => Partitioning::Function("by".to_owned()),
    };
    let table = TableOptions {
        block_bytes: Some(500 + number as u32),
        large_value_bytes: Some(1_000),
        ..TableOptions::default()
    };
    KeyspaceOptions { table, partitions, ..KeyspaceOptions::default() }
}

const KEYSPACES: usize = 4;

fn contents(keyspace: &Keyspace) -> Map {
    let pairs = keyspace.iter().map(|pair| pair.unwrap());
    pairs.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Insert(usize, Vec<u8>, u8, usize),
    Remove(usize, Vec<u8>),
    RemoveRange(usize, Vec<u8>, Vec<u8>),
    Flush,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![Just(b'a'), Just(b'b'), Just(b'c'), Just(0), Just(255)], 0..5)
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![8 => 0..50_usize, 1 => 900..5_000_usize];
    let keyspace = || 0..KEYSPACES;
    prop_oneof![
        20 => (keyspace(), key(), any::<u8>(), len).prop_map(|(k, key, fill, len)| {
            Step::Insert(k, key, fill, len)
        }),
        4 => (keyspace(), key()).prop_map(|(k, key)| Step::Remove(k, key)),
        1 => (keyspace(), key(), key()).prop_map(|(k, a, b)| Step::RemoveRange(k, a, b)),
        1 => Just(Step::Flush),
    ]
}

/// Some values expire, in the next century.
fn expiry_of(value: &[u8]) -> Expiry {
    let expires =
        |first: &u8| UNIX_EPOCH + Duration::from_millis(5_000_000_000_000 + u64::from(*first));
    value.first().filter(|first| *first % 4 == 0).map_or(Expiry::Never, |f| Expiry::At(expires(f)))
}

/// Takes the steps in a database and in maps.
fn run(db: &Database, steps: &[Step]) -> Vec<Map> {
    let open = |number| db.keyspace(&format!("k{number}"), options(number)).unwrap();
    let keyspaces: Vec<Keyspace> = (0..KEYSPACES).map(open).collect();
    let mut maps = vec![Map::new(); KEYSPACES];
    for step in steps {
        match step {
            Step::Insert(at, key, fill, len) => {
                let value = vec![*fill; *len];
                match expiry_of(&value) {
                    Expiry::Never => keyspaces[*at].insert(key, &value).unwrap(),
                    Expiry::At(time) => keyspaces[*at].insert_until(key, &value, time).unwrap(),
                }
                maps[*at].insert(key.clone(), value);
            }
            Step::Remove(at, key) => {
                keyspaces[*at].remove(key).unwrap();
                maps[*at].remove(key);
            }
            Step::RemoveRange(at, a, b) if a < b => {
                keyspaces[*at].remove_range(a.clone()..b.clone()).unwrap();
                maps[*at].retain(|key, _| !(a..b).contains(&key));
            }
            Step::RemoveRange(..) => {}
            Step::Flush => db.flush().unwrap(),
        }
    }
    maps
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_is_dumped_is_loaded(steps in vec(step(), 0..150), there in vec(step(), 0..20)) {
        let fs = SimFs::new(1);
        let db = open(&fs, "/db");
        let maps = run(&db, &steps);
        let mut dump = Vec::new();
        let written = db.dump(&mut dump).unwrap();
        prop_assert_eq!(written.bytes, dump.len() as u64);
        // What is there already stays, unless the dump has the key.
        let other = open(&fs, "/other");
        let mut expected = if there.is_empty() { vec![Map::new(); KEYSPACES] } else { run(&other, &there) };
        let loaded = other.load(&dump[..]).unwrap();
        prop_assert_eq!((loaded.keyspaces, loaded.entries), (written.keyspaces, written.entries));
        for (number, (map, expected)) in maps.into_iter().zip(&mut expected).enumerate() {
            expected.extend(map);
            let keyspace = other.keyspace(&format!("k{number}"), KeyspaceOptions::default()).unwrap();
            prop_assert_eq!(&contents(&keyspace), &*expected);
            for (key, value) in &*expected {
                prop_assert_eq!(keyspace.expiry_of(key).unwrap(), Some(expiry_of(value)));
            }
            prop_assert_eq!(&keyspace.options().partitions, &options(number).partitions);
            prop_assert_eq!(keyspace.options().table.block_bytes, Some(500 + number as u32));
        }
        // It is durable.
        drop(other);
        let other = open(&fs, "/other");
        let keyspace = other.keyspace("k0", KeyspaceOptions::default()).unwrap();
        prop_assert_eq!(&contents(&keyspace), &expected[0]);
    }
}

/// A dump with blocks of all kinds.
fn small() -> Vec<u8> {
    let db = open(&SimFs::new(1), "/db");
    for (name, entries) in [("a", 3), ("empty", 0), ("z", 2)] {
        let keyspace = db.keyspace(name, KeyspaceOptions::default()).unwrap();
        for n in 0..entries {
            keyspace.insert([n], vec![n; 20]).unwrap();
        }
    }
    let mut dump = Vec::new();
    db.dump(&mut dump).unwrap();
    dump
}

/// Everything that a dump hands out.
fn read(dump: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut reader = DumpReader::new(dump, "small.dump")?;
    let mut items = Vec::new();
    while let Some(item) = reader.next()? {
        items.push(match item {
            DumpItem::Keyspace(name, options) => (name.as_bytes().to_vec(), options.encode()),
            DumpItem::Entry(key, value, _) => (key.to_vec(), value.to_vec()),
        });
    }
    Ok(items)
}

#[test]
fn every_cut_and_every_changed_bit_is_refused() {
    let dump = small();
    assert_eq!(read(&dump).unwrap().len(), 8);
    for len in 0..dump.len() {
        let Err(Error::Corrupt(damage)) = read(&dump[..len]) else { panic!("cut to {len}") };
        assert!(damage.offset <= len as u64 && damage.path.ends_with("small.dump"));
    }
    for bit in 0..dump.len() * 8 {
        let mut flipped = dump.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let refused = read(&flipped);
        assert!(matches!(refused, Err(Error::Corrupt(_))), "bit {bit}: {refused:?}");
    }
    let longer = [&dump[..], b"\0"].concat();
    let Err(Error::Corrupt(damage)) = read(&longer) else { panic!("a byte more") };
    assert_eq!(damage.offset, dump.len() as u64);
}

#[test]
fn nothing_half_is_taken_for_whole() {
    let dump = small();
    for cut in 0..dump.len() {
        let db = open(&SimFs::new(1), "/db");
        let keyspace = db.keyspace("z", KeyspaceOptions::default()).unwrap();
        assert!(db.load(&dump[..cut]).is_err());
        assert!(contents(&keyspace).is_empty(), "cut to {cut}");
        if db.has_keyspace("a") {
            let keyspace = db.keyspace("a", KeyspaceOptions::default()).unwrap();
            assert!([0, 3].contains(&contents(&keyspace).len()), "cut to {cut}");
        }
    }
}

#[test]
fn blocks_cannot_be_left_out_or_exchanged() {
    let dump = small();
    // Where blocks begin: their lengths are in their headers.
    let mut starts = vec![32];
    while starts.last().unwrap() + 13 < dump.len() {
        let at = *starts.last().unwrap();
        let len = u32::from_le_bytes(*dump[at + 1..].first_chunk().unwrap());
        starts.push(at + 13 + len as usize);
    }
    assert_eq!((starts.len(), *starts.last().unwrap()), (7, dump.len()));
    let block = |n: usize| &dump[starts[n]..starts[n + 1]];
    for n in 0..6 {
        let without = [&dump[..starts[n]], &dump[starts[n + 1]..]].concat();
        let twice = [&dump[..starts[n + 1]], &dump[starts[n]..]].concat();
        for wrong in [without, twice] {
            assert!(matches!(read(&wrong), Err(Error::Corrupt(_))), "block {n}");
        }
    }
    let exchanged = [&dump[..32], block(2), block(0), block(1), &dump[starts[3]..]].concat();
    assert!(matches!(read(&exchanged), Err(Error::Corrupt(_))));
}

/// Checksums are right in a dump that a faulty program wrote.
#[test]
fn what_contradicts_itself_is_refused() {
    let end = |keyspaces, entries| Counts { keyspaces, entries }.encode();
    let keyspace = encode_keyspace("a", &KeyspaceOptions::default());
    let mut entries = Vec::new();
    begin_entries(&mut entries, false);
    put_entry(&mut entries, b"b", b"1", None);
    put_entry(&mut entries, b"c", b"2", None);
    let whole = framed(&[(1, &keyspace), (2, &entries), (3, &end(1, 2))]);
    assert_eq!(read(&whole).unwrap().len(), 3);
    for wrong in [
        framed(&[(1, &keyspace), (2, &entries), (3, &end(1, 1))]),
        framed(&[(1, &keyspace), (2, &entries), (3, &end(2, 2))]),
        framed(&[(2, &entries), (3, &end(0, 2))]),
        framed(&[(1, &keyspace), (2, &entries), (2, &entries), (3, &end(1, 4))]),
        framed(&[(1, &keyspace), (2, &entries), (3, &end(1, 2)), (3, &end(1, 2))]),
    ] {
        let refused = read(&wrong);
        assert!(matches!(refused, Err(Error::Corrupt(_))), "{refused:?}");
    }
}

#[test]
fn some_keyspaces_are_dumped_and_missing_ones_are_named() {
    let db = open(&SimFs::new(1), "/db");
    for name in ["a", "b"] {
        db.keyspace(name, KeyspaceOptions::default()).unwrap().insert(name, "1").unwrap();
    }
    let mut dump = Vec::new();
    assert_eq!(db.dump_keyspaces(&["b"], &mut dump).unwrap().entries, 1);
    assert_eq!(read(&dump).unwrap()[0].0, b"b");
    let missing = db.dump_keyspaces(&["c"], &mut Vec::new());
    assert!(matches!(missing, Err(Error::NotFound(_))), "{missing:?}");
    let other = open(&SimFs::new(1), "/db");
    let partitions = Partitioning::PrefixLength(2);
    let options = KeyspaceOptions { partitions, ..KeyspaceOptions::default() };
    other.keyspace("b", options).unwrap();
    // One without partitions may be loaded into one that has some, and not the other way round.
    assert_eq!(other.load(&dump[..]).unwrap().entries, 1);
    let mut divided = Vec::new();
    other.dump(&mut divided).unwrap();
    let refused = db.load(&divided[..]);
    assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");
}
