//! One writer and several readers at the same time: values say themselves if they are right.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::*;
use crate::binned::{Address, Verb};

/// A host that threads share, with a clock that stands still unless it is told.
#[derive(Clone)]
struct Shared {
    host: Arc<Mutex<TestHost>>,
}

impl Caller for Shared {
    fn call(&mut self, request: &Request) -> Result<Reply> {
        let mut host = self.host.lock().unwrap();
        Ok(host.handle(1, request))
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

#[test]
fn readers_see_no_torn_wrong_or_lost_value() {
    // Keys of the first half are there at first; of the others every second one comes and goes.
    let map: Map = (0..KEYS).step_by(2).map(|n| (key(n), value(n, 0))).collect();
    let space = Arc::new(HeapSpace::new(64 << 10, 64 << 20));
    let entries = map.iter().map(|(key, value)| (key.clone(), value.clone()));
    let host = Host::build(Arc::clone(&space), Options::default(), entries).unwrap();
    let shared = Shared { host: Arc::new(Mutex::new(host)) };
    let is_over = AtomicBool::new(false);
    // The last published version of each key, raised before and after it is published.
    let begun: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let done: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let until = Instant::now() + Duration::from_secs(6);
    let mut one_sided = 0;
    thread::scope(|scope| {
        let readers: Vec<_> = (0..4)
            .map(|reader| {
                let (shared, space, is_over) = (shared.clone(), &space, &is_over);
                let (begun, done) = (&begun, &done);
                scope.spawn(move || {
                    let mode = [Mode::Pipeline, Mode::AllAtClient][reader % 2];
                    let budget = [CacheBudget::Full, CacheBudget::Bytes(900)][reader / 2];
                    let mut client = Client::new(shared, mode, budget);
                    let fabric = MappedFabric::new(&[], space.all());
                    client.renew(1).unwrap();
                    let (mut random, mut gets) = (reader as u64 + 1, 0_u64);
                    while !is_over.load(Ordering::Relaxed) {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let n = (random >> 33) % KEYS;
                        let low = done[n as usize].load(Ordering::SeqCst);
                        let found = client.get(&fabric, 1, &key(n)).unwrap();
                        let high = begun[n as usize].load(Ordering::SeqCst);
                        match found {
                            Answer::Found(found) => {
                                let version = version(n, &found);
                                assert!(
                                    low <= version && version <= high,
                                    "{low} {version} {high}"
                                );
                            }
                            // Odd keys come and go.
                            _ => assert!(n % 2 == 1, "key {n} is lost"),
                        }
                        gets += 1;
                        if gets % 512 == 0 {
                            client.renew(1).unwrap();
                        }
                    }
                    client.leave().unwrap();
                    (client.counts(), gets)
                })
            })
            .collect();
        let mut random = 77_u64;
        let mut seq = 0;
        while Instant::now() < until {
            let mut host = shared.host.lock().unwrap();
            let mut group = Vec::new();
            for _ in 0..1 + random % 5 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let n = (random >> 33) % KEYS;
                seq += 1;
                begun[n as usize].store(seq, Ordering::SeqCst);
                if n % 2 == 1 && random >> 20 & 3 == 0 {
                    host.write(Verb::Remove, Address::default(), &key(n), &[]).unwrap();
                } else {
                    host.set(&key(n), &value(n, seq), Address::default()).unwrap();
                }
                group.push((n, seq));
            }
            if seq % 50 == 0 {
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
                done[n as usize].store(seq, Ordering::SeqCst);
            }
        }
        is_over.store(true, Ordering::Relaxed);
        for reader in readers {
            let (counts, gets) = reader.join().unwrap();
            assert!(gets > 1000, "{gets}");
            one_sided += counts.one_sided;
        }
    });
    assert!(one_sided > 10_000, "{one_sided}");
    let mut host = shared.host.lock().unwrap();
    let counts = host.counts();
    assert!(counts.model_retrainings > 10 && counts.arrays_freed > 10, "{counts:?}");
    host.poll(1);
    assert_eq!(host.waiting(), (0, 0));
}
