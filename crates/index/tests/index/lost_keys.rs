//! The workload under which a published learned index loses keys: loaded in bulk, then half
//! lookups and half inserts (or inserts alone) by one and two threads in rounds, then everything is
//! looked up and scanned. None may be missing, none wrong, and none there that was never inserted.
//!
//! `rhumb bench index --workload mixed50,insert --verify` is the same at full speed; here it runs
//! for every setting, on several distributions, far outside the loaded domain too.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use rhumb_index::Index;

use crate::common::{Random, Setting, number, scatter};

/// The number of loaded keys unless the environment says otherwise.
const KEYS: u64 = 12_000;

/// Rounds on one growing index.
const ROUNDS: usize = 3;

fn value(key: u64) -> u64 {
    scatter(key ^ 0x5EED)
}

/// Distinct keys: those to be loaded, sorted, and those to be inserted, in random order.
struct Set {
    name: &'static str,
    loaded: Vec<u64>,
    fresh: Vec<u64>,
}

impl Set {
    /// Loads each key of `all` with probability one half.
    fn halves(name: &'static str, mut all: Vec<u64>) -> Self {
        all.sort_unstable();
        all.dedup();
        let (loaded, mut fresh): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|&key| scatter(key).is_multiple_of(2));
        Random::new(9).shuffle(&mut fresh);
        Self { name, loaded, fresh }
    }

    fn all(count: u64) -> Vec<Self> {
        let mut random = Random::new(17);
        let uniform = (0..2 * count).map(|_| random.next()).collect();
        // Clusters of 200 with gaps of very different sizes, and a few keys far away.
        let mut key = 0_u64;
        let clustered = (0..2 * count)
            .map(|i| {
                let cluster = scatter(i / 200);
                let gap = if i % 200 == 0 { cluster >> 30 } else { 1 + i % (1 << (cluster % 18)) };
                key = if i % 5_000 == 4_999 { key } else { key.saturating_add(gap) };
                if i % 5_000 == 4_999 { !scatter(i) | 1 << 63 } else { key }
            })
            .collect();
        let lognormal = (0..2 * count)
            .map(|_| {
                let top = 1_u64 << random.below(40);
                top + random.below(top)
            })
            .collect();
        let sequential = (0..2 * count).collect();
        let outside = Self {
            name: "outside",
            loaded: (0..count).map(|i| (1 << 62) + i * 1_000).collect(),
            fresh: (0..count)
                .map(|i| if i % 2 == 0 { (1 << 62) - 1 - i * 7 } else { (3 << 62) + i * i })
                .collect(),
        };
        vec![
            Self::halves("uniform", uniform),
            Self::halves("clustered", clustered),
            Self::halves("lognormal", lognormal),
            Self::halves("sequential", sequential),
            outside,
        ]
    }
}

/// Answers that were wrong.
#[derive(Debug, Default, PartialEq, Eq)]
struct Faults {
    missing: usize,
    wrong: usize,
    ghosts: usize,
}

impl Faults {
    fn judge(&mut self, key: u64, answer: Option<u64>) {
        match answer {
            None => self.missing += 1,
            Some(found) if found != value(key) => self.wrong += 1,
            Some(_) => {}
        }
    }

    fn add(&mut self, other: &Self) {
        self.missing += other.missing;
        self.wrong += other.wrong;
        self.ghosts += other.ghosts;
    }
}

/// One thread's part of a round.
fn work(index: &Index<u64, u64>, known: &[u64], fresh: &[u64], lookups: bool, seed: u64) -> Faults {
    let (mut random, mut faults) = (Random::new(seed), Faults::default());
    for (i, &key) in fresh.iter().enumerate() {
        faults.ghosts += usize::from(index.insert(key, value(key)).is_some());
        if lookups {
            let which = random.below((known.len() + i + 1) as u64) as usize;
            let key = *known.get(which).unwrap_or_else(|| &fresh[which - known.len()]);
            faults.judge(key, index.get(&key));
        }
    }
    faults
}

/// Looks up and scans everything, `absent` included.
fn verify(index: &Index<u64, u64>, present: &[u64], absent: &[u64]) -> Faults {
    let mut faults = Faults::default();
    for &key in present {
        faults.judge(key, index.get(&key));
    }
    faults.ghosts += absent.iter().filter(|&key| index.get(key).is_some()).count();
    let mut expected = present.to_vec();
    expected.sort_unstable();
    let mut left = expected.into_iter().peekable();
    for (key, found) in index.iter() {
        while left.next_if(|&next| next < key).is_some() {
            faults.missing += 1;
        }
        match left.next_if_eq(&key) {
            Some(_) => faults.judge(key, Some(found)),
            None => faults.ghosts += 1,
        }
    }
    faults.missing += left.count();
    faults
}

fn run(setting: Setting, set: &Set, threads: usize, lookups: bool) -> Faults {
    let index: Index<u64, u64> = setting.build();
    let pairs = set.loaded.iter().map(|&key| (key, value(key)));
    assert_eq!(index.bulk_load(pairs), Ok(set.loaded.len()));
    let mut known = set.loaded.clone();
    let mut faults = Faults::default();
    let of_round = set.fresh.len() / (ROUNDS + 1);
    for (round, fresh) in set.fresh.chunks(of_round).take(ROUNDS).enumerate() {
        thread::scope(|scope| {
            let parts = fresh.chunks(fresh.len().div_ceil(threads));
            let workers: Vec<_> = parts
                .enumerate()
                .map(|(id, part)| {
                    let (index, known, seed) = (&index, &known, (round * 8 + id) as u64);
                    scope.spawn(move || work(index, known, part, lookups, seed))
                })
                .collect();
            for worker in workers {
                faults.add(&worker.join().expect("no panics"));
            }
        });
        known.extend_from_slice(fresh);
    }
    faults.add(&verify(&index, &known, &set.fresh[of_round * ROUNDS..]));
    assert_eq!(index.len(), known.len());
    faults
}

#[test]
fn no_key_is_lost() {
    let sets = Set::all(number("RHUMB_INDEX_KEYS").unwrap_or(KEYS));
    for setting in Setting::all() {
        for set in &sets {
            for threads in [1, 2] {
                for lookups in [true, false] {
                    let faults = run(setting, set, threads, lookups);
                    let name = set.name;
                    assert_eq!(
                        faults,
                        Faults::default(),
                        "{setting:?}, {name}, {threads} threads, lookups {lookups}"
                    );
                }
            }
        }
    }
}

#[test]
fn shrinking_loses_nothing_that_others_write_beside_it() {
    const COUNT: u64 = 40_000;
    /// The distance that the writer is ahead of the removals: in the leaves that are joined next.
    const AHEAD: u64 = 8_000;
    for setting in Setting::all() {
        let index: Index<u64, u64> = setting.build();
        assert_eq!(index.bulk_load((0..COUNT).map(|i| (i * 2, 0))), Ok(COUNT as usize));
        let (progress, ended) = (AtomicU64::new(0), AtomicBool::new(false));
        let mut latest = vec![None; COUNT as usize * 2];
        thread::scope(|scope| {
            scope.spawn(|| {
                for i in (0..COUNT).filter(|i| i % 10 != 0) {
                    assert_eq!(index.remove(&(i * 2)), Some(0));
                    progress.store(i, Relaxed);
                }
                ended.store(true, Relaxed);
            });
            let (mut random, mut version) = (Random::new(3), 0);
            while !ended.load(Relaxed) {
                version += 1;
                let i = (progress.load(Relaxed) + random.below(AHEAD)) % COUNT;
                // Keys that stay are updated; the others are new.
                if i.is_multiple_of(10) {
                    assert!(index.update(&(i * 2), version), "{i}");
                    latest[i as usize * 2] = Some(version);
                } else if version % 8 == 0 {
                    let old = index.insert(i * 2 + 1, version);
                    assert_eq!(old, latest[i as usize * 2 + 1].replace(version), "{i}");
                }
            }
        });
        for i in 0..COUNT * 2 {
            let untouched = (i % 20 == 0).then_some(0);
            let expected = latest[i as usize].or(untouched);
            assert_eq!(index.get(&i), expected, "{setting:?}, {i}");
        }
    }
}

#[test]
fn a_bulk_load_and_inserts_at_the_same_time_lose_none_of_each_other() {
    for setting in Setting::all() {
        for start in 0..12_u64 {
            let index: Index<u64, u64> = setting.build();
            let barrier = Barrier::new(2);
            thread::scope(|scope| {
                scope.spawn(|| {
                    barrier.wait();
                    let run = (0..KEYS).map(|i| (i * 2, value(i * 2)));
                    assert_eq!(index.bulk_load(run), Ok(KEYS as usize));
                });
                barrier.wait();
                // Some begin in the empty map, some while the load is about to be published.
                thread::sleep(Duration::from_micros(start * 50));
                for i in 0..KEYS / 4 {
                    assert_eq!(index.insert(i * 8 + 1, value(i * 8 + 1)), None);
                }
            });
            let mut present: Vec<u64> = (0..KEYS).map(|i| i * 2).collect();
            present.extend((0..KEYS / 4).map(|i| i * 8 + 1));
            let faults = verify(&index, &present, &[3, 5, KEYS * 2 + 1]);
            assert_eq!(faults, Faults::default(), "{setting:?}, {start}");
            assert_eq!(index.len(), present.len());
        }
    }
}
