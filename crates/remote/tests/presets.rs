//! Keyspaces of every preset, through a host and its clients, against a sorted map.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use proptest::prelude::*;
use rhumb_remote::{Client, Error, Host, Keyspace, Preset, ShareOptions};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const PRESETS: [Preset; 3] = [Preset::Rhumb, Preset::XStore, Preset::FineStore];

/// A host with an empty keyspace `k`; and its directory, to be kept.
fn host(preset: Preset) -> (Host, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let options = ShareOptions::default().capacity_bytes(64 << 20).entry_bytes(32).preset(preset);
    let host = Host::listen(dir.path().join("socket")).listen_tcp(([127, 0, 0, 1], 0).into());
    (host.share("k", options).start().unwrap(), dir)
}

fn open(host: &Host) -> Keyspace {
    Client::connect(host.path()).unwrap().keyspace("k").unwrap()
}

/// What is there is counted, as far as a client can see it.
#[test]
fn keyspaces_are_inspected() {
    for preset in PRESETS {
        let (host, _dir) = host(preset);
        let keyspace = open(&host);
        for n in 0..500u64 {
            keyspace.insert((n << 40).to_be_bytes(), [7; 8]).unwrap();
        }
        let (seen, stats) = (keyspace.inspect(true).unwrap(), host.stats("k").unwrap());
        assert_eq!((seen.preset, seen.applied), (preset, stats.applied));
        assert_eq!(seen.mapped_bytes(), stats.mapped_bytes);
        assert!(seen.heartbeat_age_ms.is_some() && seen.leaf_room > 8);
        assert_eq!(seen.walk.is_none(), preset == Preset::FineStore);
        let Some(walk) = seen.walk else { continue };
        assert_eq!((walk.entries, walk.asked, walk.unread), (500, 0, 0), "{preset:?}");
        assert_eq!((walk.leaves, seen.leaf_bytes), (stats.leaves, stats.leaf_bytes));
        assert!((0.2..1.0).contains(&walk.fill(seen.leaf_bytes)), "{preset:?}: {walk:?}");
        assert_eq!(keyspace.inspect(false).unwrap().walk, None);
    }
}

/// The same keyspace, whose reads are messages.
fn open_apart(host: &Host) -> Keyspace {
    let address = format!("tcp:{}", host.tcp_addresses()[0]);
    Client::connect(address).unwrap().keyspace("k").unwrap()
}

#[test]
fn leaves_of_every_preset_have_a_size() {
    for preset in PRESETS {
        let (host, _dir) = host(preset);
        let keyspace = open(&host);
        (0..2_000u32).for_each(|n| keyspace.insert(n.to_be_bytes(), [7; 24]).unwrap());
        let stats = host.stats("k").unwrap();
        let bytes = stats.leaves * stats.leaf_bytes;
        assert!((2_000 * 24..=stats.mapped_bytes).contains(&bytes), "{preset:?}: {stats:?}");
    }
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (0u64..400).prop_map(|n| (n << 40).to_be_bytes().to_vec()),
        2 => prop::collection::vec(prop::sample::select(vec![0u8, b'a', 0xff]), 0..7),
        1 => (250usize..300).prop_map(|len| vec![b'l'; len]),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..24),
        1 => (100usize..5_000).prop_map(|len| vec![7; len]),
        1 => (60_000usize..70_000).prop_map(|len| vec![8; len]),
    ]
}

fn check(keyspace: &Keyspace, map: &Map, probes: &[Vec<u8>]) {
    for key in map.keys().chain(probes) {
        assert_eq!(keyspace.get(key).unwrap().as_ref(), map.get(key), "{key:?}");
    }
    let values = keyspace.multi_get(probes).unwrap();
    assert!(values.iter().zip(probes).all(|(value, key)| value.as_ref() == map.get(key)));
    let values = keyspace.multi_get_atomic(probes).unwrap();
    assert!(values.iter().zip(probes).all(|(value, key)| value.as_ref() == map.get(key)));
    let pair = |pair: Result<(Vec<u8>, Vec<u8>), Error>| pair.unwrap();
    let all = || map.iter().map(|(key, value)| (key.clone(), value.clone()));
    assert!(keyspace.iter().map(pair).eq(all()));
    assert!(keyspace.iter().rev().map(pair).eq(all().rev()));
    for probe in probes.iter().take(5) {
        let bounds = (Bound::Excluded(&probe[..]), Bound::Unbounded);
        let after = map.range::<[u8], _>(bounds).map(|(key, _)| key);
        assert!(keyspace.range::<&[u8]>(bounds).map(|p| pair(p).0).eq(after.cloned()));
        let bounds = (Bound::Unbounded, Bound::Included(&probe[..]));
        let before = map.range::<[u8], _>(bounds).map(|(key, _)| key).rev();
        assert!(keyspace.range::<&[u8]>(bounds).rev().map(|p| pair(p).0).eq(before.cloned()));
    }
}

/// Takes pairs from both ends in the order that bits say, `limit` of them at most.
fn check_both_ends(keyspace: &Keyspace, map: &Map, (from, to): (&[u8], &[u8]), bits: u64) {
    let limit = bits as usize % 97;
    let bounds = (Bound::Excluded(from.min(to)), Bound::Included(to.max(from)));
    let mut expected = map.range::<[u8], _>(bounds);
    let mut range = keyspace.range::<&[u8]>(bounds).limit(limit);
    for n in 0.. {
        let reverse = bits.rotate_left(n) & 1 == 1;
        let right = if n as usize == limit {
            None
        } else if reverse {
            expected.next_back()
        } else {
            expected.next()
        };
        let pair = if reverse { range.next_back_ref() } else { range.next_ref() };
        let pair = pair.transpose().unwrap();
        assert_eq!(pair, right.map(|(key, value)| (&key[..], &value[..])), "pair {n}");
        if pair.is_none() {
            return;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_keyspace_is_a_sorted_map(
        changes in prop::collection::vec((key(), prop::option::weighted(0.8, value())), 1..400),
        probes in prop::collection::vec(key(), 12),
        bits: [u64; 6],
    ) {
        for preset in PRESETS {
            let (host, _dir) = host(preset);
            let (writers, reader) = ([open(&host), open_apart(&host)], open(&host));
            let mut map = Map::new();
            for (n, (key, value)) in changes.iter().enumerate() {
                let writer = &writers[n / 7 % 2];
                match value {
                    Some(value) if n % 3 == 0 => {
                        let expected = map.get(key).map(Vec::as_slice);
                        assert!(writer.compare_and_swap(key, expected, Some(value)).unwrap());
                        assert!(!writer.compare_and_swap(key, Some(b"not that"), None).unwrap());
                    }
                    Some(value) => writer.insert(key, value).unwrap(),
                    None => writer.remove(key).unwrap(),
                }
                match value {
                    Some(value) => drop(map.insert(key.clone(), value.clone())),
                    None => drop(map.remove(key)),
                }
                // A reader whose cache is as old as that.
                if n % 16 == 0 {
                    assert_eq!(reader.get(key).unwrap().as_ref(), map.get(key), "{preset:?}");
                }
            }
            let [near, apart] = &writers;
            for keyspace in [near, apart, &reader] {
                check(keyspace, &map, &probes);
                for (ends, bits) in probes.chunks(2).zip(bits) {
                    check_both_ends(keyspace, &map, (&ends[0], &ends[1]), bits);
                }
            }
        }
    }
}

/// Gets that need no call, once what has changed was learned.
#[test]
fn what_does_not_change_is_read_without_calls() {
    for preset in PRESETS {
        let (host, _dir) = host(preset);
        let keyspace = open(&host);
        let key = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        for n in 0..20_000u64 {
            keyspace.insert(key(n), n.to_le_bytes()).unwrap();
        }
        let read = || {
            let before = keyspace.calls();
            for n in 0..20_000u64 {
                assert_eq!(keyspace.get(key(n)).unwrap().unwrap(), n.to_le_bytes());
            }
            keyspace.calls() - before
        };
        // Arrays are trained anew once the searches in their bins cost more than that, so that a
        // few keys stay there.
        let most = if preset == Preset::FineStore { 200 } else { 0 };
        read();
        let mut calls = read();
        for _ in 0..50 {
            if calls <= most {
                break;
            }
            calls = read();
        }
        assert!(calls <= most, "{preset:?}: {calls} calls");
    }
}

/// Readers see what was acknowledged before they began, beside a writer that never stops.
#[test]
fn readers_see_what_was_acknowledged() {
    const KEYS: u64 = 500;
    for preset in PRESETS {
        let (host, _dir) = host(preset);
        let acknowledged: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        let done = AtomicBool::new(false);
        let key = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let readers = [open(&host), open_apart(&host)];
        thread::scope(|scope| {
            for seed in 0..4u64 {
                let reader = readers[seed as usize % 2].clone();
                let (acknowledged, done) = (&acknowledged, &done);
                scope.spawn(move || {
                    let mut n = seed;
                    while !done.load(Ordering::SeqCst) {
                        n = (n * 13 + 7) % KEYS;
                        let least = acknowledged[n as usize].load(Ordering::SeqCst);
                        let found = reader.get(key(n)).unwrap();
                        let found = found.map_or(0, |value| {
                            assert_eq!(value[..8], n.to_le_bytes(), "another key's");
                            u64::from_le_bytes(value[8..16].try_into().unwrap())
                        });
                        assert!(found >= least, "{preset:?}: {found} after {least}");
                    }
                });
            }
            let writer = open(&host);
            for version in 1..4_000u64 {
                let n = version * 11 % KEYS;
                let value = [n.to_le_bytes(), version.to_le_bytes()].concat();
                writer
                    .insert(key(n), [&value[..], &vec![1; (version % 200) as usize]].concat())
                    .unwrap();
                acknowledged[n as usize].store(version, Ordering::SeqCst);
                // Others between them split leaves.
                writer.insert([&key(n)[..], &version.to_be_bytes()].concat(), "beside").unwrap();
            }
            done.store(true, Ordering::SeqCst);
        });
    }
}
