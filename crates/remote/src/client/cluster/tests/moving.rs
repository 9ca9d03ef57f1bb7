//! Readers and a writer while ranges move.

use std::{sync::atomic::AtomicBool, thread};

use super::*;

/// Keys that are written all the while.
const KEYS: u64 = 120;

/// Ranges that are moved, unless `RHUMB_RANGE_MOVES` says how many.
const MOVES: u64 = 24;

fn key(n: u64) -> Vec<u8> {
    format!("{:03}", n).into_bytes()
}

fn value(n: u64, version: u64) -> Vec<u8> {
    format!("{n} {version}").into_bytes()
}

/// The version of a value that proves its key.
fn version(n: u64, found: &[u8]) -> u64 {
    let text = std::str::from_utf8(found).unwrap();
    let (of, version) = text.split_once(' ').unwrap();
    assert_eq!(of, n.to_string(), "another key's");
    version.parse().unwrap()
}

fn moves() -> u64 {
    std::env::var("RHUMB_RANGE_MOVES").map_or(MOVES, |text| text.parse().unwrap())
}

/// The versions that were acknowledged.
struct Acknowledged([AtomicU64; KEYS as usize]);

impl Acknowledged {
    fn of(&self, n: u64) -> u64 {
        self.0[n as usize].load(Ordering::Acquire)
    }
}

/// Reads everything in all ways until it is told to stop; returns the number of rounds.
fn read(keyspace: &ClusterKeyspace, written: &Acknowledged, stop: &AtomicBool) -> u64 {
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        for n in 0..KEYS {
            let least = written.of(n);
            let found = keyspace.get(key(n)).unwrap();
            let found = version(n, &found.unwrap_or_else(|| panic!("lost {n}")));
            assert!(found >= least, "key {n}: version {found} after {least}");
            assert_eq!(keyspace.get([&key(n)[..], b"-"].concat()).unwrap(), None);
        }
        let least: Vec<u64> = (0..KEYS).map(|n| written.of(n)).collect();
        let is_new = |(n, found): (u64, &[u8])| version(n, found) >= least[n as usize];
        let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
        let found = keyspace.multi_get(&keys).unwrap();
        assert!((0..).zip(&found).all(|(n, value)| is_new((n, value.as_ref().expect("lost")))));
        let reverse = rounds % 2 == 1;
        let mut pairs: Vec<_> = if reverse {
            keyspace.iter().rev().map(|pair| pair.unwrap()).collect()
        } else {
            keyspace.iter().map(|pair| pair.unwrap()).collect()
        };
        if reverse {
            pairs.reverse();
        }
        assert!(pairs.iter().map(|(key, _)| key).eq(&keys), "keys are lost or there twice");
        assert!((0..).zip(&pairs).all(|(n, (_, value))| is_new((n, value))));
        rounds += 1;
    }
    rounds
}

#[test]
fn no_key_is_lost_while_ranges_move() {
    kinds().for_each(loses_no_key);
}

fn loses_no_key(kind: Kind) {
    let owners = [("", 0), ("030", 1), ("060", 2), ("090", 0)];
    let owners = owners.map(|(low, owner)| (low.as_bytes().to_vec(), owner));
    let mut hosts = Hosts::start(kind, 3, owners.to_vec());
    let keyspace = hosts.keyspace();
    for n in 0..KEYS {
        keyspace.insert(key(n), value(n, 0)).unwrap();
    }
    let written = Acknowledged([const { AtomicU64::new(0) }; KEYS as usize]);
    let (stop, writes) = (AtomicBool::new(false), AtomicU64::new(0));
    // One reader shares the writer's handle, the other follows the tables by itself.
    let other = hosts.keyspace();
    thread::scope(|scope| {
        let readers =
            [&keyspace, &other].map(|keyspace| scope.spawn(|| read(keyspace, &written, &stop)));
        let writer = scope.spawn(|| {
            for count in 1.. {
                let n = count * 7 % KEYS;
                keyspace.insert(key(n), value(n, count)).unwrap();
                written.0[n as usize].store(count, Ordering::Release);
                writes.store(count, Ordering::Relaxed);
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for count in 0..moves() {
            let before = writes.load(Ordering::Relaxed);
            hosts.move_range(count as usize % 4, (count * count + count / 4 + 1) as usize % 3);
            // Between two moves there are writes.
            while writes.load(Ordering::Relaxed) < before + 3 && !writer.is_finished() {
                thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        assert!(readers.into_iter().all(|reader| reader.join().unwrap() > 0));
    });
    assert!(keyspace.table().epoch() > 1);
    // All that is not served is gone.
    let entries = hosts.hosts.iter().map(|host| host.stats(NAME).unwrap().entries);
    assert_eq!(entries.sum::<u64>(), KEYS);
}

#[test]
fn writes_wait_for_a_range_that_is_copied() {
    kinds().for_each(writes_wait);
}

fn writes_wait(kind: Kind) {
    let mut hosts = Hosts::with_borders(kind, &["m"]);
    let keyspace = hosts.keyspace();
    keyspace.insert("n", "1").unwrap();
    let before = Served::by(&hosts.table, &hosts.addresses[1]);
    hosts.hosts[1].serve(NAME, before.read_only("m", None)).unwrap();
    assert_eq!(keyspace.get("n").unwrap().unwrap(), b"1");
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            keyspace.insert("n", "2").unwrap();
            is_done.store(true, Ordering::SeqCst);
        });
        hosts.move_range(1, 0);
        writer.join().unwrap();
    });
    assert_eq!(keyspace.get("n").unwrap().unwrap(), b"2");
    assert_eq!(hosts.alone(0).get("n").unwrap().unwrap(), b"2");

    // Without patience it fails, and has changed nothing.
    let served = Served::by(&hosts.table, &hosts.addresses[0]).read_only("n", None);
    hosts.hosts[0].serve(NAME, served).unwrap();
    let hasty = Cluster::builder().patience(Duration::from_millis(20)).open(hosts.table.clone());
    let error = hasty.keyspace(NAME).insert("n", "3").unwrap_err();
    let Error::Server { source, .. } = &error else { panic!("{error:?}") };
    assert!(matches!(**source, Error::Moved { epoch: 2 }), "{error}");
    assert_eq!(keyspace.get("n").unwrap().unwrap(), b"2");
}

#[test]
fn what_moves_is_not_served_meanwhile() {
    kinds().for_each(serves_nothing_that_moves);
}

fn serves_nothing_that_moves(kind: Kind) {
    let hosts = Hosts::with_borders(kind, &["m"]);
    let keyspace = hosts.keyspace();
    keyspace.insert("a", "1").unwrap();
    keyspace.insert("n", "1").unwrap();
    let (a, b) = (&hosts.hosts[0], &hosts.hosts[1]);
    // Remains of an earlier time are replaced by a copy, and not mixed with it.
    let wide = Served::nothing().range("", None);
    b.serve(NAME, wide.clone()).unwrap();
    hosts.alone(1).insert("b", "old").unwrap();
    hosts.serve(1);
    let source = hosts.alone(0);
    assert_eq!(b.copy_from(NAME, &source, "", Some(b"m")).unwrap(), 1);
    assert_moved(hosts.alone(1).get("a"));
    for (low, high) in [("", None), ("a", Some(&b"n"[..])), ("z", None)] {
        let error = b.copy_from(NAME, &source, low, high).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    }
    // What the source does not serve is not copied in part.
    assert_moved(a.copy_from(NAME, &source, "m", Some(b"n")));
    b.serve(NAME, wide).unwrap();
    assert_eq!(hosts.alone(1).get("b").unwrap(), None);
    assert_eq!(hosts.alone(1).get("a").unwrap().unwrap(), b"1");
    let error = b.serve("none", Served::nothing()).unwrap_err();
    assert!(error.to_string().contains("none"), "{error}");
    let error = Host::listen(a.path().with_extension("two")).serve("x", Served::nothing());
    assert!(matches!(error.start(), Err(Error::InvalidArgument(_))));
}
