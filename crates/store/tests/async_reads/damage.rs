//! Damaged tables: a read returns an error that names the file, or the right value, and never
//! another one.

use std::{fs, path::PathBuf};

use rhumb::{Error, Result};
use rhumb_testkit::random::Random;

use crate::common::{Map, WAYS, await_no_buffers, block_on, change, open, rounds, some_keys};

/// Counts an error that is allowed, and fails at others.
fn expect_damage<T>(result: Result<T>, found: &mut u32) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(Error::Corrupt(damage)) => {
            let name = damage.path.extension().expect("a name");
            assert!(name == "sst" || name == "val", "{}", damage.path.display());
            *found += 1;
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn damage_is_an_error_and_never_a_wrong_value() {
    for (number, way) in WAYS.into_iter().enumerate() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("db");
        let (db, keyspace) = open(&path, way);
        let (mut map, mut random) = (Map::new(), Random::new(number as u64 + 300));
        change(&keyspace, &mut map, &mut random, 5_000);
        db.flush().expect("flush");
        keyspace.compact().expect("compact");
        drop((keyspace, db));
        let mut found = 0;
        for _ in 0..rounds(3) {
            let (file, at) = damage_one(&path, &mut random);
            let (db, keyspace) = open(&path, way);
            for _ in 0..10 {
                let keys = some_keys(&map, &mut random, 64);
                let right = |key: &Vec<u8>, value: Option<&[u8]>| {
                    assert!(value == map.get(key).map(Vec::as_slice), "a wrong value, unnoticed");
                };
                for values in [keyspace.multi_get(&keys), block_on(keyspace.multi_get_async(&keys))]
                {
                    if let Some(values) = expect_damage(values, &mut found) {
                        keys.iter()
                            .zip(&values)
                            .for_each(|(key, value)| right(key, value.as_deref()));
                    }
                }
                let value = block_on(keyspace.get_async(&keys[0]));
                if let Some(value) = expect_damage(value, &mut found) {
                    right(&keys[0], value.as_deref());
                }
            }
            let mut iter = keyspace.iter_async();
            let mut expected = map.iter();
            while let Some(item) = block_on(iter.next()) {
                let Some((key, value)) = expect_damage(item, &mut found) else { break };
                let next = expected.next().expect("no more entries than there are");
                assert!(key == *next.0 && value == *next.1, "a wrong entry, unnoticed");
            }
            for item in keyspace.iter().rev() {
                let Some((key, value)) = expect_damage(item, &mut found) else { break };
                assert!(map.get(&*key).is_some_and(|right| value == *right), "a wrong entry");
            }
            drop(iter);
            await_no_buffers(&db);
            drop((keyspace, db));
            let mut bytes = fs::read(&file).expect("read");
            bytes[at] ^= 0x40;
            fs::write(&file, bytes).expect("write");
        }
        assert!(found > 0, "no damage was met");
    }
}

/// Flips a bit in the data of some table. Returns where.
fn damage_one(path: &std::path::Path, random: &mut Random) -> (PathBuf, usize) {
    let mut tables: Vec<PathBuf> = fs::read_dir(path)
        .expect("list")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| path.extension().is_some_and(|name| name == "sst"))
        .collect();
    tables.sort();
    let table = tables.swap_remove(random.below(tables.len() as u64) as usize);
    let mut bytes = fs::read(&table).expect("read");
    // The data area comes first, and is most of the file.
    let at = random.below(bytes.len() as u64 / 2) as usize;
    bytes[at] ^= 0x40;
    fs::write(&table, bytes).expect("write");
    (table, at)
}
