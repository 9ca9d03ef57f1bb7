//! What clients read of a store's keyspace by RDMA is what the database holds.
//!
//! The tests need an RDMA device whose address is `RHUMB_RDMA_ADDRESS`: `cargo xtask rdma` runs
//! them in a guest that has one.
#![cfg(all(feature = "rdma", target_os = "linux", target_pointer_width = "64"))]

use std::{
    collections::BTreeMap,
    env,
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use rhumb::{Database, KeyspaceOptions};
use rhumb_remote::{Client, Error, Keyspace};
use rhumb_share::{Host, Preset, ShareOptions, Shared, Source};

type Pair = (Vec<u8>, Vec<u8>);
type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keys of the keyspace.
const KEYS: u64 = 5_000;
/// Keys that are written beside readers: the even ones through the database, the others by a
/// client.
const HOT: u64 = 100;

/// Keys of eight bytes, and a few that are longer than leaves hold.
fn key(n: u64) -> Vec<u8> {
    let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    key.repeat(if n % 97 == 13 { 40 } else { 1 })
}

/// A value that proves its key and its version, of which a few are longer than leaves hold.
fn value(n: u64, version: u64) -> Vec<u8> {
    let len = if n % 61 == 7 { 3_000 } else { 4 + version % 25 * 4 };
    let head = [n.to_le_bytes(), version.to_le_bytes()].concat();
    head.into_iter().chain((0..len).map(|at| (n ^ version ^ at) as u8)).collect()
}

/// The version of a value; `None` if it is not one of the key's.
fn version_of(n: u64, found: &[u8]) -> Option<u64> {
    let version = u64::from_le_bytes(found.get(8..16)?.try_into().ok()?);
    (found == value(n, version)).then_some(version)
}

fn all_of(pairs: impl Iterator<Item = Result<Pair, Error>>) -> Vec<Pair> {
    pairs.map(|pair| pair.unwrap()).collect()
}

/// Reads everything in every way, and compares it with what the database holds.
fn read_all(read: &Keyspace, written: &rhumb::Keyspace) {
    let all: Map = written.iter().map(|pair| pair.unwrap()).map(owned).collect();
    assert_eq!(all.len() as u64, KEYS);
    for n in 0..KEYS {
        assert_eq!(read.get(key(n)).unwrap().as_ref(), all.get(&key(n)), "{n}");
    }
    for n in KEYS..KEYS + 50 {
        assert_eq!(read.get(key(n)).unwrap(), None);
    }
    for first in (0..KEYS).step_by(256) {
        let keys: Vec<Vec<u8>> = (first..first + 32).map(key).collect();
        let found = read.multi_get(&keys).unwrap();
        assert!(keys.iter().zip(&found).all(|(key, found)| all.get(key) == found.as_ref()));
    }
    let upwards: Vec<Pair> = all.clone().into_iter().collect();
    let downwards: Vec<Pair> = upwards.iter().rev().cloned().collect();
    assert!(all_of(read.iter()) == upwards);
    assert!(all_of(read.iter().rev()) == downwards);
    for n in (0..KEYS).step_by(500) {
        let from = key(n);
        let some = all_of(read.range(from.clone()..).limit(100));
        assert!(some.into_iter().eq(all.range(from.clone()..).take(100).map(cloned)));
        let some = all_of(read.range(..from.clone()).rev().take(100));
        assert!(some.into_iter().eq(all.range(..from).rev().take(100).map(cloned)));
    }
}

fn owned((key, value): (impl AsRef<[u8]>, impl AsRef<[u8]>)) -> Pair {
    (key.as_ref().to_vec(), value.as_ref().to_vec())
}

fn cloned((key, value): (&Vec<u8>, &Vec<u8>)) -> Pair {
    (key.clone(), value.clone())
}

/// Gets short entries until none of them costs a call: leaves hold them all.
fn reads_without_calls(preset: Preset, read: &Keyspace) {
    let is_short = |n: &u64| value(*n, 0).len() < 1_000 && key(*n).len() < 100;
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let before = read.counts();
        for n in (HOT..KEYS).filter(is_short).take(1_000) {
            assert_eq!(read.get(key(n)).unwrap().unwrap(), value(n, 0));
        }
        let after = read.counts();
        let [calls, trips] = [after.calls - before.calls, after.round_trips - before.round_trips];
        if calls == 0 {
            println!("{}: 1000 gets, 0 calls, {trips} round trips", preset.name());
            return;
        }
        assert!(Instant::now() < until, "{calls} calls");
        thread::sleep(Duration::from_millis(200));
    }
}

/// Writes hot keys until it is over, each with its next version, and says what is acknowledged.
fn write(first: u64, acknowledged: &[AtomicU64], is_over: &AtomicBool, put: impl Fn(u64, u64)) {
    for version in 1.. {
        for n in (first..HOT).step_by(2) {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            put(n, version);
            acknowledged[n as usize].store(version, Ordering::SeqCst);
        }
    }
}

/// Has writers end, also if a reader panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reads hot keys: none is older than what was acknowledged before, or read before.
fn read_beside_writers(preset: Preset, read: &Keyspace, acknowledged: &[AtomicU64]) {
    let (mut last, mut changes) = (vec![0; HOT as usize], 0_u64);
    let mut see = |n: u64, found: &Option<Vec<u8>>, least: u64| {
        let found = found.as_ref().expect("a key that is never removed");
        let version = version_of(n, found).expect("a value of the key");
        let last = &mut last[n as usize];
        assert!(version >= least.max(*last), "{version} after {last}, {least} is acknowledged");
        changes += u64::from(version > *last);
        *last = version;
    };
    let least = |n: u64| acknowledged[n as usize].load(Ordering::SeqCst);
    let gets = 5_000;
    for at in 0..gets {
        let n = at * 7 % HOT;
        let least = least(n);
        see(n, &read.get(key(n)).unwrap(), least);
    }
    for at in 0..gets / 20 {
        let numbers: Vec<u64> = (0..16).map(|n| (at + n * 5) % HOT).collect();
        let (keys, least): (Vec<_>, Vec<_>) = numbers.iter().map(|n| (key(*n), least(*n))).unzip();
        let found = read.multi_get(&keys).unwrap();
        numbers.iter().zip(&found).zip(least).for_each(|((n, found), least)| see(*n, found, least));
    }
    println!("{}: {gets} gets beside writers, {changes} new versions, 0 wrong", preset.name());
    assert!(changes > 0);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn rdma_reads_of_a_store_are_what_the_store_holds() {
    Preset::ALL.into_iter().for_each(reads_of_a_store_are_what_the_store_holds);
}

fn reads_of_a_store_are_what_the_store_holds(preset: Preset) {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::builder(dir.path().join("data")).memtable_bytes(1 << 20).open().unwrap();
    let written = db.keyspace("users", KeyspaceOptions::default()).unwrap();
    for n in 0..KEYS {
        written.insert(key(n), value(n, 0)).unwrap();
    }
    let address = env::var("RHUMB_RDMA_ADDRESS").expect("the address of a device");
    let address = SocketAddr::new(address.parse().unwrap(), 0);
    let options = ShareOptions::default().capacity_bytes(64 << 20).preset(preset).checksums(true);
    let shared = Shared::on(Host::builder().listen_tcp(address).allow_open(true))
        .share("shared", Source::of(written.clone()), options)
        .start(&db)
        .unwrap();
    while !shared.stats("shared").unwrap().is_live {
        thread::sleep(Duration::from_millis(1));
    }
    let address = shared.tcp_addresses()[0];
    let keyspace = |scheme: &str| {
        Client::connect(format!("{scheme}:{address}")).unwrap().keyspace("shared").unwrap()
    };
    let read = keyspace("rdma");
    read_all(&read, &written);
    reads_without_calls(preset, &read);
    let acknowledged: Vec<AtomicU64> = (0..HOT).map(|_| AtomicU64::new(0)).collect();
    let (is_over, by_client) = (AtomicBool::new(false), keyspace("tcp"));
    thread::scope(|scope| {
        let _over = Over(&is_over);
        scope.spawn(|| {
            write(0, &acknowledged, &is_over, |n, version| {
                written.insert(key(n), value(n, version)).unwrap();
            });
        });
        scope.spawn(|| {
            write(1, &acknowledged, &is_over, |n, version| {
                by_client.insert(key(n), value(n, version)).unwrap();
            });
        });
        read_beside_writers(preset, &read, &acknowledged);
    });
    read_all(&read, &written);
    reads_without_calls(preset, &read);
}
