//! A disk that reads short, is interrupted, or fails.

use std::{path::Path, sync::Arc};

use rhumb::{
    Database, Error, Keyspace, KeyspaceOptions, Result, TableOptions,
    io::{
        ReadEngineKind, ReadMode,
        sim::{CallKind, Fault, Matcher, SimFs},
    },
};
use rhumb_testkit::random::Random;

use crate::common::{Map, await_no_buffers, block_on, builder, change, some_keys};

/// A cold database on a simulated disk, read by threads or in the calling thread, bypassing a page
/// cache: in multiples of 4096 bytes if the disk's seed is even, and of 512 if it is odd.
fn cold(fs: &SimFs, threads: usize) -> (Database, Keyspace) {
    let db = builder(Path::new("/db"))
        .file_system(Arc::new(fs.clone()))
        .background_threads(threads)
        .read_mode(ReadMode::Direct)
        .open()
        .expect("open");
    assert_eq!(db.stats().read_engine, ReadEngineKind::Threads);
    let table = TableOptions {
        block_bytes: Some(1024),
        large_value_bytes: Some(6 << 10),
        ..Default::default()
    };
    let keyspace = db
        .keyspace("k", KeyspaceOptions { table, ..KeyspaceOptions::default() })
        .expect("keyspace");
    (db, keyspace)
}

fn filled(fs: &SimFs, seed: u64) -> Map {
    let (db, keyspace) = cold(fs, 2);
    let mut map = Map::new();
    change(&keyspace, &mut map, &mut Random::new(seed), 5_000);
    db.flush().expect("flush");
    map
}

/// Reads in every way. Returns the number of failed reads.
fn read_all(keyspace: &Keyspace, map: &Map, random: &mut Random) -> u32 {
    let mut failed = 0;
    for _ in 0..10 {
        let keys = some_keys(map, random, 64);
        for values in [keyspace.multi_get(&keys), block_on(keyspace.multi_get_async(&keys))] {
            for (key, value) in keys.iter().zip(checked(values, &mut failed).unwrap_or_default()) {
                assert!(value.as_deref() == map.get(key).map(Vec::as_slice), "a wrong value");
            }
        }
        if let Some(value) = checked(block_on(keyspace.get_async(&keys[0])), &mut failed) {
            assert!(value.as_deref() == map.get(&keys[0]).map(Vec::as_slice), "a wrong value");
        }
    }
    let (mut iter, mut expected) = (keyspace.iter_async(), map.iter());
    while let Some(item) = block_on(iter.next()) {
        let Some((key, value)) = checked(item, &mut failed) else { break };
        assert!(expected.next().is_some_and(|next| key == *next.0 && value == *next.1));
    }
    let mut expected = map.iter().rev();
    for item in keyspace.iter().rev() {
        let Some((key, value)) = checked(item, &mut failed) else { break };
        assert!(expected.next().is_some_and(|next| key == *next.0 && value == *next.1));
    }
    failed
}

/// Counts an error, which must name the file and the place.
fn checked<T>(result: Result<T>, failed: &mut u32) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            *failed += 1;
            let Error::Io(failure) = &error else { panic!("{error}") };
            let name = failure.path.extension().expect("a name");
            assert!(name == "sst" || name == "val", "{error}");
            assert!(failure.offset.is_some_and(|at| at.is_multiple_of(512) || name == "val"));
            assert!(error.to_string().contains("at offset"), "{error}");
            None
        }
    }
}

#[test]
fn a_restless_disk_is_not_noticed() {
    for (seed, threads) in [(10, 0), (10, 2), (11, 0), (11, 2)] {
        let fs = SimFs::new(seed);
        let map = filled(&fs, seed);
        let (db, keyspace) = cold(&fs, threads);
        fs.set_restless(300);
        assert_eq!(read_all(&keyspace, &map, &mut Random::new(1)), 0);
        fs.set_restless(0);
        await_no_buffers(&db);
    }
}

#[test]
fn a_failing_disk_is_an_error_with_its_place_and_later_reads_are_right() {
    let fs = SimFs::new(12);
    let map = filled(&fs, 12);
    for threads in [0, 2] {
        let (db, keyspace) = cold(&fs, threads);
        let mut random = Random::new(threads as u64);
        for _ in 0..20 {
            let reads = Matcher::any().kinds(&[CallKind::Read]);
            fs.inject(reads, Fault::Eio, 1 + random.below(4));
            // A fault may hit a block that was read ahead in vain.
            let failed = read_all(&keyspace, &map, &mut random);
            assert!(failed <= 5, "{failed} reads failed");
            fs.clear_faults();
            assert_eq!(read_all(&keyspace, &map, &mut random), 0, "a failure that stays");
        }
        fs.inject(Matcher::any().kinds(&[CallKind::Read]), Fault::Eio, u64::MAX);
        assert!(read_all(&keyspace, &map, &mut random) > 20);
        fs.clear_faults();
        await_no_buffers(&db);
    }
}
