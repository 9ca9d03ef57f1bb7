//! One writer and several readers at the same time: values say themselves if they are right.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rhumb_testkit::random::Random;

use super::*;
use crate::binned::Address;

/// A host that threads share, with a clock that stands still unless it is told.
#[derive(Clone)]
struct Shared {
    host: Arc<Mutex<TestHost>>,
}

impl Caller for Shared {
    fn call(&mut self, request: &Request) -> Result<Reply> {
        let mut host = self.host.lock().unwrap();
        host.handle(1, request)
    }
}

const KEYS: u64 = 600;

fn key(n: u64) -> Vec<u8> {
    if n.is_multiple_of(3) {
        format!("wide/key/{n:06}").into_bytes()
    } else {
        (n * 11).to_be_bytes().to_vec()
    }
}

/// A value that says its key and version, of a length that changes with them.
fn value(n: u64, version: u64) -> Vec<u8> {
    let word = n << 40 | version;
    let len = if (version / 7).is_multiple_of(2) { 1 } else { 2 + (version % 30) as usize };
    word.to_le_bytes().repeat(len)
}

/// The version that a value says; panics for a value that no writer wrote.
fn version(n: u64, found: &[u8]) -> u64 {
    let word = u64::from_le_bytes(found[..8].try_into().unwrap());
    assert_eq!(word >> 40, n, "another key's value");
    let version = word & ((1 << 40) - 1);
    assert_eq!(found, value(n, version), "a torn value");
    version
}

/// The versions of each key that a reader may find: from the last one that was published before it
/// looked to the last one that was begun before it was done.
struct Versions {
    begun: Vec<AtomicU64>,
    done: Vec<AtomicU64>,
    is_over: AtomicBool,
}

/// Gets keys until the writer is done; returns how many the client found by itself.
fn read_all(shared: Shared, space: &HeapSpace, versions: &Versions, reader: usize) -> u64 {
    let mode = [Mode::Pipeline, Mode::AllAtClient][reader % 2];
    let budget = [CacheBudget::Full, CacheBudget::Bytes(900)][reader / 2];
    let mut client = Client::new(shared, mode, budget);
    let fabric = MappedFabric::new(&[], space.all());
    client.renew(1).unwrap();
    let (mut random, mut gets) = (Random::new(reader as u64 + 1), 0_u64);
    while !versions.is_over.load(Ordering::Relaxed) {
        let n = random.below(KEYS);
        let low = versions.done[n as usize].load(Ordering::SeqCst);
        let found = client.get(&fabric, 1, &key(n)).unwrap();
        let high = versions.begun[n as usize].load(Ordering::SeqCst);
        match found {
            Answer::Found(found) => {
                let version = version(n, &found);
                assert!(low <= version && version <= high, "{low} {version} {high}");
            }
            // Odd keys come and go.
            _ => assert!(n % 2 == 1, "key {n} is lost"),
        }
        gets += 1;
        if gets.is_multiple_of(512) {
            client.renew(1).unwrap();
        }
    }
    client.leave().unwrap();
    assert!(gets > 1000, "{gets}");
    client.counts().one_sided
}

/// Writes groups of keys, trains arrays and frees old ones, for some seconds.
fn write_all(shared: &Shared, versions: &Versions) {
    let until = Instant::now() + Duration::from_secs(6);
    let (mut random, mut seq) = (Random::new(77), 0);
    while Instant::now() < until {
        let mut host = shared.host.lock().unwrap();
        let mut group = Vec::new();
        for _ in 0..1 + random.below(5) {
            let n = random.below(KEYS);
            seq += 1;
            versions.begun[n as usize].store(seq, Ordering::SeqCst);
            if n % 2 == 1 && random.one_in(4) {
                host.remove(&key(n), Address::default()).unwrap();
            } else {
                host.set(&key(n), &value(n, seq), Address::default()).unwrap();
            }
            group.push((n, seq));
        }
        if seq.is_multiple_of(50) {
            let first = host.tops.values().next().copied();
            host.due.extend(first);
        }
        if let Some(plan) = host.begin_training() {
            host.finish_training(plan.train()).unwrap();
        }
        host.publish(seq);
        host.poll(1);
        drop(host);
        for (n, seq) in group {
            versions.done[n as usize].store(seq, Ordering::SeqCst);
        }
    }
    versions.is_over.store(true, Ordering::Relaxed);
}

#[test]
fn readers_see_no_torn_wrong_or_lost_value() {
    // Even keys are there at first and for good; odd ones come and go.
    let map: Map = (0..KEYS).step_by(2).map(|n| (key(n), value(n, 0))).collect();
    let space = Arc::new(HeapSpace::new(64 << 10, 64 << 20));
    let entries = map.iter().map(|(key, value)| (key.clone(), value.clone()));
    let host = Host::build(Arc::clone(&space), Options::default(), entries).unwrap();
    let shared = Shared { host: Arc::new(Mutex::new(host)) };
    let none = || (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let versions = Versions { begun: none(), done: none(), is_over: AtomicBool::new(false) };
    let one_sided: u64 = thread::scope(|scope| {
        let read = |reader| {
            let (shared, space, versions) = (shared.clone(), &space, &versions);
            scope.spawn(move || read_all(shared, space, versions, reader))
        };
        let readers: Vec<_> = (0..4).map(read).collect();
        write_all(&shared, &versions);
        readers.into_iter().map(|reader| reader.join().unwrap()).sum()
    });
    assert!(one_sided > 10_000, "{one_sided}");
    let mut host = shared.host.lock().unwrap();
    let counts = host.counts();
    assert!(counts.model_retrainings > 10 && counts.arrays_freed > 10, "{counts:?}");
    host.poll(1);
    assert_eq!(host.waiting(), (0, 0));
}
