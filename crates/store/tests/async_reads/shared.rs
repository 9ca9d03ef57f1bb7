//! Many callers at once: threads that read the same cold keys, and tasks of an executor.

use std::thread;

use rhumb::{Compression, Keyspace, KeyspaceOptions, TableOptions};
use rhumb_testkit::random::Random;

use crate::common::{
    Map, WAYS, await_cache_within_budget, await_no_buffers, block_on, builder, change, open,
    open_by, rounds, some_keys,
};

#[test]
fn callers_that_ask_for_the_same_blocks_leave_one_of_each() {
    for (number, way) in WAYS.into_iter().enumerate() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("db");
        let (db, keyspace) = open(&path, way);
        let (mut map, mut random) = (Map::new(), Random::new(number as u64 + 400));
        change(&keyspace, &mut map, &mut random, 5_000);
        db.flush().expect("flush");
        let map = &map;
        for _ in 0..rounds(10) {
            let keys = some_keys(map, &mut random, 100);
            thread::scope(|scope| {
                for caller in 0..4 {
                    let (keyspace, keys) = (&keyspace, &keys);
                    scope.spawn(move || {
                        let values = match caller % 2 {
                            0 => keyspace.multi_get(keys),
                            _ => block_on(keyspace.multi_get_async(keys)),
                        };
                        for (key, value) in keys.iter().zip(values.expect("values")) {
                            assert!(value.as_deref() == map.get(key).map(Vec::as_slice));
                        }
                    });
                }
            });
            // Background threads may drop tables with their blocks; these do not count as
            // evictions.
            let stats = db.stats();
            assert!(stats.cache_blocks <= stats.cache_inserts - stats.cache_evictions);
            await_cache_within_budget(&db);
        }
        await_no_buffers(&db);
    }
}

#[test]
fn tasks_of_an_executor_read_side_by_side() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
    let runtime = runtime.expect("a runtime");
    for (number, way) in WAYS.into_iter().enumerate() {
        let dir = tempfile::tempdir().expect("a directory");
        let (db, keyspace) = open(&dir.path().join("db"), way);
        let (mut map, mut random) = (Map::new(), Random::new(number as u64 + 500));
        change(&keyspace, &mut map, &mut random, 5_000);
        db.flush().expect("flush");
        let tasks: Vec<_> = (0..64)
            .map(|task| {
                let keys = some_keys(&map, &mut random, 50);
                let (keyspace, map) = (keyspace.clone(), map.clone());
                runtime.spawn(async move {
                    for key in &keys {
                        let value = keyspace.get_async(key).await.expect("get_async");
                        assert!(value.as_deref() == map.get(key).map(Vec::as_slice));
                    }
                    let mut iter = keyspace.range_async(keys[0].clone()..);
                    for (key, value) in map.range(keys[0].clone()..).take(20 * task) {
                        let item = iter.next().await.expect("more").expect("an entry");
                        assert!(item.0 == *key && item.1 == *value);
                    }
                })
            })
            .collect();
        for task in tasks {
            runtime.block_on(task).expect("a task");
        }
        await_no_buffers(&db);
    }
}

/// A scan reads at most two mebibytes ahead; here all scans together may read one mebibyte ahead.
#[test]
fn many_scans_at_once_read_less_ahead_each() {
    const SCANS: u32 = 24;
    // Two megabytes per scan, by which point it reads as far ahead as scans do.
    const KEYS: u32 = 2_000;
    for way in WAYS {
        let dir = tempfile::tempdir().expect("a directory");
        let db = builder(&dir.path().join("db"))
            .table_bytes(64 << 20)
            .memory_budget_bytes(8 << 20)
            .read_engine(way.0)
            .read_mode(way.1)
            .open()
            .expect("open");
        let table =
            TableOptions { compression: Some(Compression::None), ..TableOptions::default() };
        let options = KeyspaceOptions { table, ..KeyspaceOptions::default() };
        let keyspace = db.keyspace("k", options).expect("keyspace");
        let value = [7; 1000];
        keyspace.ingest((0..SCANS * KEYS).map(|i| (i.to_be_bytes(), value))).expect("ingest");
        let mut scans: Vec<_> =
            (0..SCANS).map(|scan| keyspace.range((scan * KEYS).to_be_bytes()..)).collect();
        let mut most = 0;
        for number in 0..KEYS {
            for (scan, first) in scans.iter_mut().zip((0..).step_by(KEYS as usize)) {
                let (key, found) = scan.next().expect("not the end").expect("a pair");
                assert!(*key == u32::to_be_bytes(first + number) && *found == value);
            }
            most = most.max(db.stats().read_buffer_bytes);
        }
        // Each scan has its present window and one small window more; buffers that are kept come on
        // top.
        let bound = (1 << 20) + u64::from(SCANS) * (48 << 10) + (512 << 10);
        assert!((100 << 10..=bound).contains(&most), "{most} bytes by {way:?}");
        drop(scans);
        await_no_buffers(&db);
        assert!(db.stats().read_buffer_bytes <= 512 << 10, "what is kept is bounded");
    }
}

/// A key may come late in a call, when its block is already being read for another key. The block
/// is then not read again.
#[test]
fn a_call_reads_each_block_once() {
    for way in WAYS {
        let dir = tempfile::tempdir().expect("a directory");
        let reopen = || {
            let builder = builder(&dir.path().join("db")).background_threads(0);
            open_by(builder.memory_budget_bytes(64 << 20), way)
        };
        let key = |i: u32| (i * 7_919 % 20_000).to_be_bytes();
        {
            let (db, keyspace) = reopen();
            for i in 0..20_000 {
                keyspace.insert(key(i), [7; 100]).expect("insert");
            }
            db.flush().expect("flush");
        }
        let blocks_read = |read: &dyn Fn(&Keyspace)| {
            let (db, keyspace) = reopen();
            let before = db.stats().block_reads;
            read(&keyspace);
            db.stats().block_reads - before
        };
        // The same blocks for every sixteen keys, by other keys; some of the blocks are adjacent.
        let place = |i: u32| if i < 4 { i / 2 * 1_250 + i % 2 * 40 } else { i * 1_250 };
        let keys: Vec<_> = (0..256).map(|i| (place(i % 16) + i / 64).to_be_bytes()).collect();
        let alone = blocks_read(&|keyspace| {
            keys.iter().for_each(|key| assert!(keyspace.get(key).expect("get").is_some()));
        });
        for keys in [&keys[..], &keys[..40]] {
            let together = blocks_read(&|keyspace| {
                let values = keyspace.multi_get(keys).expect("multi_get");
                assert!(values.iter().all(Option::is_some));
            });
            let later = blocks_read(&|keyspace| {
                let values = block_on(keyspace.multi_get_async(keys)).expect("multi_get_async");
                assert!(values.iter().all(Option::is_some));
            });
            assert!(together <= alone && later <= alone, "{together}, {later} and {alone} blocks");
        }
    }
}
