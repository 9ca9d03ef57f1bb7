//! Futures that are dropped at any point.

use rhumb_testkit::random::Random;

use crate::common::{
    Map, WAYS, await_no_buffers, block_on, change, open, poll_some, rounds, some_keys,
};

#[test]
fn dropped_futures_lose_no_buffer_and_disturb_no_other_read() {
    for (number, way) in WAYS.into_iter().enumerate() {
        let dir = tempfile::tempdir().expect("a directory");
        let (db, keyspace) = open(&dir.path().join("db"), way);
        let (mut map, mut random) = (Map::new(), Random::new(number as u64 + 100));
        change(&keyspace, &mut map, &mut random, 6_000);
        db.flush().expect("flush");
        for _ in 0..rounds(150) {
            let keys = some_keys(&map, &mut random, 40);
            let times = random.below(4);
            if let Some(values) = poll_some(keyspace.multi_get_async(&keys), times) {
                for (key, value) in keys.iter().zip(values.expect("multi_get_async")) {
                    assert!(value.as_deref() == map.get(key).map(Vec::as_slice), "a wrong value");
                }
            }
            let times = random.below(3);
            if let Some(value) = poll_some(keyspace.get_async(&keys[0]), times) {
                let value = value.expect("get_async");
                assert!(value.as_deref() == map.get(&keys[0]).map(Vec::as_slice), "a wrong value");
            }
            // One future that is awaited, among those that were dropped.
            let value = block_on(keyspace.get_async(&keys[1])).expect("get_async");
            assert!(value.as_deref() == map.get(&keys[1]).map(Vec::as_slice), "a wrong value");
        }
        await_no_buffers(&db);
    }
}

#[test]
fn a_scan_goes_on_where_a_dropped_future_left_it() {
    for (number, way) in WAYS.into_iter().enumerate() {
        let dir = tempfile::tempdir().expect("a directory");
        let (db, keyspace) = open(&dir.path().join("db"), way);
        let (mut map, mut random) = (Map::new(), Random::new(number as u64 + 200));
        change(&keyspace, &mut map, &mut random, 6_000);
        db.flush().expect("flush");
        for round in 0..rounds(2) {
            let forward = round % 2 == 0;
            let mut iter = keyspace.iter_async();
            let mut expected = map.iter();
            let (mut dropped, mut in_a_row) = (0, 0);
            loop {
                // A value of many parts is read anew each time, and has to be awaited in the end.
                let times = random.below(3) + in_a_row;
                let item = match forward {
                    true => poll_some(iter.next(), times),
                    false => poll_some(iter.next_back(), times),
                };
                let Some(item) = item else {
                    (dropped, in_a_row) = (dropped + 1, in_a_row + 1);
                    continue;
                };
                in_a_row = 0;
                let next = if forward { expected.next() } else { expected.next_back() };
                match (item.transpose().expect("an entry"), next) {
                    (None, None) => break,
                    (Some((key, value)), Some(next)) => {
                        assert!(
                            key == *next.0 && value == *next.1,
                            "an entry was lost or repeated"
                        );
                    }
                    _ => panic!("the scan and the map end at different places"),
                }
            }
            assert!(dropped > 100, "only {dropped} futures were dropped");
        }
        await_no_buffers(&db);
    }
}

/// A walk seeks past a recorded dead range in all of its sources, and is dropped while
/// some of them wait for blocks.
#[test]
fn a_scan_goes_on_past_a_dead_range_where_a_dropped_future_left_it() {
    for (number, way) in WAYS.into_iter().enumerate() {
        let dir = tempfile::tempdir().expect("a directory");
        let (db, keyspace) = open(&dir.path().join("db"), way);
        let (mut map, mut random) = (Map::new(), Random::new(number as u64 + 300));
        change(&keyspace, &mut map, &mut random, 6_000);
        db.flush().expect("flush");
        // Keeps the values and the tombstones where they are.
        let snapshot = db.snapshot();
        let dead: Vec<_> = map.keys().skip(map.len() / 3).take(map.len() / 3).cloned().collect();
        for key in &dead {
            keyspace.remove(key).expect("remove");
            map.remove(key);
        }
        assert_eq!(keyspace.iter().count(), map.len(), "which records the dead range");
        db.flush().expect("flush");
        for round in 0..rounds(4) {
            let forward = round % 2 == 0;
            let before = db.stats().passed_entries;
            let mut iter = keyspace.iter_async();
            let mut expected = map.iter();
            let mut in_a_row = 0;
            loop {
                let times = random.below(3) + in_a_row;
                let item = match forward {
                    true => poll_some(iter.next(), times),
                    false => poll_some(iter.next_back(), times),
                };
                let Some(item) = item else {
                    in_a_row += 1;
                    continue;
                };
                in_a_row = 0;
                let next = if forward { expected.next() } else { expected.next_back() };
                let item = item.transpose().expect("an entry");
                assert!(item.as_ref().map(|(key, _)| &**key) == next.map(|(key, _)| &**key));
                if item.is_none() {
                    break;
                }
            }
            drop(iter);
            // Each of them is two entries, a value and a tombstone; the others are entries that
            // were overwritten and removed here and there.
            let passed = db.stats().passed_entries - before;
            assert!(passed < dead.len() as u64, "{passed} of {} dead keys", dead.len());
        }
        drop(snapshot);
        await_no_buffers(&db);
    }
}

#[test]
fn futures_may_outlive_every_handle_but_their_own() {
    let dir = tempfile::tempdir().expect("a directory");
    let (db, keyspace) = open(&dir.path().join("db"), WAYS[0]);
    let (mut map, mut random) = (Map::new(), Random::new(7));
    change(&keyspace, &mut map, &mut random, 3_000);
    db.flush().expect("flush");
    for _ in 0..50 {
        let (one, key) = (keyspace.clone(), some_keys(&map, &mut random, 1).remove(0));
        let future = async move { one.get_async(key).await };
        poll_some(future, random.below(3));
    }
    let keys = some_keys(&map, &mut random, 64);
    let (last, expected) = (keyspace.clone(), map.clone());
    let future = async move {
        let values = last.multi_get_async(&keys).await.expect("multi_get_async");
        (keys, values)
    };
    drop((keyspace, db));
    let (keys, values) = block_on(future);
    for (key, value) in keys.iter().zip(values) {
        assert!(value.as_deref() == expected.get(key).map(Vec::as_slice), "a wrong value");
    }
}
