//! Futures that are dropped at any point.

use crate::common::{
    Map, Random, WAYS, await_no_buffers, block_on, change, open, poll_some, rounds, some_keys,
};

#[test]
fn dropped_futures_lose_no_buffer_and_disturb_no_other_read() {
    for (number, way) in WAYS.into_iter().enumerate() {
        let dir = tempfile::tempdir().expect("a directory");
        let (db, keyspace) = open(&dir.path().join("db"), way);
        let (mut map, mut random) = (Map::new(), Random(number as u64 + 100));
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
            // One that is waited for, among those that were given up.
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
        let (mut map, mut random) = (Map::new(), Random(number as u64 + 200));
        change(&keyspace, &mut map, &mut random, 6_000);
        db.flush().expect("flush");
        for round in 0..rounds(2) {
            let forward = round % 2 == 0;
            let mut iter = keyspace.iter_async();
            let mut expected = map.iter();
            let (mut dropped, mut in_a_row) = (0, 0);
            loop {
                // A value of many parts is begun anew each time, and has to be waited for in the end.
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

#[test]
fn futures_may_outlive_every_handle_but_their_own() {
    let dir = tempfile::tempdir().expect("a directory");
    let (db, keyspace) = open(&dir.path().join("db"), WAYS[0]);
    let (mut map, mut random) = (Map::new(), Random(7));
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
