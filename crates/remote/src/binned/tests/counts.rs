//! What operations cost in reads, trips and calls, and what stale clients may still read.

use super::*;
use crate::binned::{ClientCounts, HostCounts, TrainingPlan, Verb};
use crate::fabric::ReadCounts;

/// Keys that are spread evenly.
fn spread(count: u64, seed: u64) -> Vec<Vec<u8>> {
    let mut random = Random::new(seed);
    (0..count).map(|_| random.next().to_be_bytes().to_vec()).collect()
}

struct Measured {
    reads: ReadCounts,
    client: ClientCounts,
    host: HostCounts,
    cache_bytes: usize,
}

/// Loads 40,000 keys, and then has a client do 20,000 operations, of which some are inserts.
/// Without a mode, the client has no session.
fn measure(mode: Option<Mode>, inserts_percent: usize) -> Measured {
    let map: Map = spread(40_000, 1).into_iter().map(|key| (key, b"value".to_vec())).collect();
    let local = Local::new(&map, Options::default());
    let mut client = match mode {
        Some(mode) => local.client(mode, CacheBudget::Full),
        None => Client::new(local.clone(), Mode::Pipeline, CacheBudget::Full),
    };
    let keys: Vec<_> = map.keys().collect();
    for (index, new) in spread(20_000, 2).iter().enumerate() {
        let old = keys[index * 7919 % keys.len()];
        if index % 100 < inserts_percent {
            assert!(!client.write(&local.fabric(), 1, Verb::Insert, new, b"new").unwrap());
            assert_ne!(client.get(&local.fabric(), 1, new).unwrap(), Answer::Absent);
        } else {
            assert_ne!(client.get(&local.fabric(), 1, old).unwrap(), Answer::Absent);
        }
    }
    let host = local.host.borrow().counts();
    let (reads, client, cache_bytes) = (client.reads(), client.counts(), client.cache_bytes());
    Measured { reads, client, host, cache_bytes }
}

#[test]
fn a_get_is_one_trip_to_a_window() {
    for mode in [Mode::Pipeline, Mode::AllAtClient] {
        let found = measure(Some(mode), 0);
        assert_eq!((found.client.gets, found.client.one_sided), (20_000, 20_000));
        assert_eq!((found.reads.trips, found.host.operations), (20_000, 0));
        // 65 records, three for the proof, and what lies before them in their first block.
        assert!(found.reads.bytes < 20_000 * 2400, "{:?}", found.reads);
        assert!(found.reads.reads < 20_000 * 3, "{:?}", found.reads);
        assert!(found.cache_bytes < 40_000, "{}", found.cache_bytes);
    }
    let found = measure(None, 0);
    assert_eq!((found.reads.trips, found.host.operations), (0, 20_000));
    assert_eq!((found.host.walked, found.cache_bytes), (20_000, 0));
}

#[test]
fn what_is_in_bins_costs_the_host_or_the_client() {
    let pipeline = measure(Some(Mode::Pipeline), 10);
    // Each insert is an operation, and so is each get of what was inserted.
    assert_eq!(pipeline.host.operations, 4000);
    assert_eq!((pipeline.host.walked, pipeline.host.followed), (0, 0));
    assert_eq!(pipeline.reads.trips, 22_000);
    let client = measure(Some(Mode::AllAtClient), 10);
    assert_eq!((client.host.operations, client.client.one_sided), (2000, 20_000));
    assert!(client.reads.trips >= 24_000, "{:?}", client.reads);
    let server = measure(None, 10);
    assert_eq!((server.host.operations, server.host.walked), (22_000, 22_000));
}

/// A client without a lease reads nothing by itself, until it has another.
#[test]
fn a_client_whose_lease_has_ended_calls() {
    let map: Map = spread(1000, 1).into_iter().map(|key| (key, b"value".to_vec())).collect();
    let local = Local::new(&map, Options::default());
    let mut client = local.client(Mode::Pipeline, CacheBudget::Full);
    let key = map.keys().next().unwrap();
    let mut get = |now_ms: u64| {
        local.now_ms.set(now_ms);
        let reads = client.reads().reads;
        assert_eq!(
            client.get(&local.fabric(), now_ms, key).unwrap(),
            Answer::Found(map[key].clone())
        );
        (client.reads().reads > reads, client.counts().operations)
    };
    assert_eq!(get(1), (true, 0));
    assert_eq!(get(1000), (true, 0));
    assert_eq!(get(1001), (false, 1));
    client.renew(1001).unwrap();
    assert_eq!((client.counts().sessions, local.host.borrow().session_count()), (2, 1));
    assert_eq!(client.get(&local.fabric(), 1001, key).unwrap(), Answer::Found(map[key].clone()));
    assert_eq!(client.counts().operations, 1);
}

/// Trains the first array anew, and then changes keys.
fn train(local: &Local, change: &[(u64, &[u8])]) {
    let mut host = local.host.borrow_mut();
    let first = host.tops.values().next().copied();
    host.due.extend(first);
    let trained = host.begin_training().map(TrainingPlan::train).unwrap();
    assert!(host.finish_training(trained).unwrap());
    for (key, value) in change {
        host.set(&key.to_be_bytes(), value, Default::default()).unwrap();
    }
    host.publish(1);
    host.poll(1);
}

/// A client that has not learned of new arrays reads the old ones, which are right where nothing
/// has changed.
#[test]
fn a_stale_client_reads_what_has_not_changed() {
    let map: Map = (0..1000u64).map(|n| ((n << 20).to_be_bytes().to_vec(), vec![1; 3])).collect();
    let local = Local::new(&map, Options::default());
    let mut client = local.client(Mode::Pipeline, CacheBudget::Full);
    let train = |change: &[(u64, &[u8])]| train(&local, change);
    let mut get = |key: u64| {
        let before = client.counts().operations;
        let found = client.get(&local.fabric(), 1, &key.to_be_bytes()).unwrap();
        (found, client.counts().operations - before)
    };
    let found = |value: &[u8]| Answer::Found(value.to_vec());
    train(&[(900 << 20, b"new"), (5 + (500 << 20), b"more")]);
    assert_eq!(local.host.borrow().waiting().0, 1);
    assert_eq!(get(100 << 20), (found(&[1; 3]), 0));
    assert_eq!(get(5 + (100 << 20)), (Answer::Absent, 0));
    assert_eq!(get(900 << 20), (found(b"new"), 1));
    // With the reply came the new array.
    assert_eq!(get(901 << 20), (found(&[1; 3]), 0));
    assert_eq!(get(5 + (500 << 20)), (found(b"more"), 1));
    train(&[]);
    assert_eq!(local.host.borrow().waiting().0, 2);
    assert_eq!(get(5 + (500 << 20)), (found(b"more"), 1));
    client.renew(1).unwrap();
    client.renew(1).unwrap();
    local.host.borrow_mut().poll(1);
    assert_eq!(local.host.borrow().waiting(), (0, 0));
    assert_eq!(local.host.borrow().counts().arrays_freed, 2);
}

/// However many arrays have replaced the one that a client knows, its answers are right.
#[test]
fn a_very_stale_client_is_right() {
    let map: Map = (0..1000u64).map(|n| ((n << 20).to_be_bytes().to_vec(), vec![1; 3])).collect();
    let local = Local::new(&map, Options::default());
    for rounds in 0..12 {
        let mut client = local.client(Mode::AllAtClient, CacheBudget::Full);
        (0..rounds).for_each(|_| train(&local, &[]));
        let value = [2, rounds];
        train(&local, &[(700 << 20, &value), (7 + (300 << 20), &value)]);
        for key in [700 << 20, 7 + (300 << 20)] {
            let found = client.get(&local.fabric(), 1, &u64::to_be_bytes(key)).unwrap();
            assert_eq!(found, Answer::Found(value.to_vec()), "after {rounds}");
        }
        client.leave().unwrap();
    }
}
