//! Concurrent histories: a few threads work on a few watched keys, every call and its answer is
//! recorded, and each key's history is checked for linearizability. Among the watched keys lie
//! thousands of others, which the same threads insert and remove in bursts, so that what holds the
//! watched ones overflows, is retrained, split, merged and replaced again and again.

use std::{collections::BTreeMap, ops::Bound, sync::Barrier, thread, time::Instant};

use rhumb_index::Index;
use rhumb_testkit::linearizability::{Call, Operation, is_linearizable};

use crate::common::{Random, Setting, TestKey, number, scatter};

/// The number of histories that are recorded for each kind of key, unless the environment says
/// otherwise.
const HISTORIES: u64 = 90;

/// The number of keys whose histories are checked.
const WATCHED: u64 = 5;

/// The number of operations of each thread on watched keys.
const STEPS: u64 = 60;

/// A kind of key with a small domain around the watched ones.
trait Watched: TestKey {
    /// The number of keys in the domain.
    const DOMAIN: u64;
    /// The key of a number below [`Self::DOMAIN`].
    fn of(number: u64) -> Self;
}

impl Watched for u64 {
    const DOMAIN: u64 = 6_000;

    fn of(number: u64) -> Self {
        // Dense, with a far outlier now and then: both kinds of leaf, and lines that do not fit.
        if number % 97 == 5 { scatter(number) } else { number * 3 }
    }
}

impl Watched for u8 {
    const DOMAIN: u64 = 256;

    fn of(number: u64) -> Self {
        number as u8
    }
}

impl Watched for Vec<u8> {
    const DOMAIN: u64 = 1_500;

    fn of(number: u64) -> Self {
        let mut key = b"one code".to_vec();
        key.extend_from_slice(&(number as u16).to_be_bytes());
        key
    }
}

/// The number of a watched key.
fn watched<K: Watched>(which: u64) -> u64 {
    (which * 2 + 1) * K::DOMAIN / (2 * WATCHED)
}

/// The operations of one thread on each watched key, in order.
type Record = Vec<Vec<Operation>>;

struct Actor<'a, K: Watched> {
    index: &'a Index<K, u64>,
    clock: Instant,
    random: Random,
    /// The thread's number, and the number of values it has made: no two inserts have the same
    /// value.
    id: u64,
    made: u64,
    record: Record,
}

impl<K: Watched> Actor<'_, K> {
    fn now(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    /// A value that no other call writes.
    fn fresh(&mut self) -> u64 {
        self.made += 1;
        (self.made << 8) | self.id
    }

    fn run(&mut self) {
        for _ in 0..STEPS {
            match self.random.below(20) {
                0..=1 => self.burst(),
                2 => self.scan(),
                3 => self.batch(),
                4 => thread::yield_now(),
                5 if self.random.below(8) == 0 => _ = self.index.tune(),
                _ => self.step(),
            }
        }
    }

    fn step(&mut self) {
        let which = self.random.below(WATCHED);
        let key = K::of(watched::<K>(which));
        let (index, value) = (self.index, self.fresh());
        // The value that a compare_exchange expects: now and then the current one.
        let guess = index.get(key.query()).unwrap_or(1);
        let kind = self.random.below(12);
        let called = self.now();
        let call = match kind {
            0..=2 => Call::Insert { value, old: index.insert(key, value) },
            3..=4 => Call::Remove { old: index.remove(key.query()) },
            5..=6 => Call::Get { found: index.get(key.query()) },
            7 => Call::Contains { found: index.contains_key(key.query()) },
            8 => Call::Update { value, was_there: index.update(key.query(), value) },
            9 => Call::GetOrInsert { value, got: index.get_or_insert_with(key, || value) },
            _ => {
                let answer = index.compare_exchange(key.query(), guess, value);
                Call::CompareExchange { current: guess, new: value, answer }
            }
        };
        let operation = Operation { call, called, returned: self.now() };
        self.record[which as usize].push(operation);
    }

    /// Inserts neighbours of a watched key, or removes them. Neighbours are never watched ones.
    fn burst(&mut self) {
        let first = watched::<K>(self.random.below(WATCHED));
        let stride = 1 + self.random.below(4);
        let inserts = self.random.below(3) > 0;
        for i in 0..20 + self.random.below(180) {
            let number = (first + i * stride) % K::DOMAIN;
            if (0..WATCHED).any(|which| watched::<K>(which) == number) {
                continue;
            }
            let key = K::of(number);
            if inserts {
                self.index.insert(key, number);
            } else {
                self.index.remove(key.query());
            }
        }
    }

    /// A scan of everything is a lookup of each watched key at some time during the scan.
    fn scan(&mut self) {
        let keys: BTreeMap<K, u64> =
            (0..WATCHED).map(|which| (K::of(watched::<K>(which)), which)).collect();
        let is_reversed = self.random.below(2) == 0;
        let called = self.now();
        let entries =
            self.index.range::<(Bound<_>, Bound<_>)>((Bound::Unbounded, Bound::Unbounded));
        let seen: Vec<(K, u64)> =
            if is_reversed { entries.rev().collect() } else { entries.collect() };
        let returned = self.now();
        let ascending = seen.is_sorted_by(|a, b| (a.0 < b.0) != is_reversed && a.0 != b.0);
        assert!(ascending, "a scan out of order");
        let seen: BTreeMap<K, u64> = seen.into_iter().collect();
        for (key, which) in keys {
            let call = Call::Get { found: seen.get(key.query()).copied() };
            self.record[which as usize].push(Operation { call, called, returned });
        }
    }

    fn batch(&mut self) {
        let keys: Vec<K> = (0..WATCHED).map(|which| K::of(watched::<K>(which))).collect();
        let queries: Vec<&K::Query> = keys.iter().map(TestKey::query).collect();
        let mut answers = Vec::new();
        let called = self.now();
        self.index.multi_get(&queries, &mut answers);
        let returned = self.now();
        for (which, found) in answers.into_iter().enumerate() {
            self.record[which].push(Operation { call: Call::Get { found }, called, returned });
        }
    }
}

/// Records one history and checks it. Returns the number of operations that were checked, and the
/// number of leaves that were replaced meanwhile.
fn check_one<K: Watched>(setting: Setting, seed: u64) -> (usize, u64) {
    let index: Index<K, u64> = setting.build();
    let mut random = Random::new(seed);
    let mut initial = vec![None; WATCHED as usize];
    for (which, value) in initial.iter_mut().enumerate() {
        if random.below(2) == 0 {
            let first = 0xFF00 + which as u64;
            index.insert(K::of(watched::<K>(which as u64)), first);
            *value = Some(first);
        }
    }
    let threads = 2 + random.below(3);
    let (barrier, clock) = (Barrier::new(threads as usize), Instant::now());
    let records: Vec<Record> = thread::scope(|scope| {
        let actors: Vec<_> = (0..threads)
            .map(|id| {
                let (index, barrier) = (&index, &barrier);
                let random = Random::new(scatter(seed) ^ id);
                scope.spawn(move || {
                    let record = vec![Vec::new(); WATCHED as usize];
                    let mut actor = Actor { index, clock, random, id, made: 0, record };
                    barrier.wait();
                    actor.run();
                    actor.record
                })
            })
            .collect();
        actors.into_iter().map(|actor| actor.join().expect("no panics")).collect()
    });
    let mut checked = 0;
    for which in 0..WATCHED as usize {
        let mut threads: Vec<Vec<Operation>> =
            records.iter().map(|record| record[which].clone()).collect();
        // What is there in the end counts as one more lookup, after all others.
        let found = index.get(K::of(watched::<K>(which as u64)).query());
        let end = clock.elapsed().as_nanos() as u64 + 1;
        let last = Operation { call: Call::Get { found }, called: end, returned: end };
        threads.push(vec![last]);
        checked += threads.iter().map(Vec::len).sum::<usize>();
        assert!(
            is_linearizable(&threads, initial[which]),
            "{setting:?}, seed {seed}: key {which} is not linearizable from {:?}: {threads:#?}",
            initial[which]
        );
    }
    (checked, index.stats().retrains)
}

fn histories_are_linearizable<K: Watched>() {
    let count = number("RHUMB_INDEX_HISTORIES").unwrap_or(HISTORIES);
    let first = number("RHUMB_INDEX_SEED").unwrap_or(0);
    let settings: Vec<_> = Setting::all().collect();
    let (mut checked, mut retrains, mut retrained) = (0, 0, 0);
    for seed in first..first + count {
        let (operations, replaced) = check_one::<K>(settings[seed as usize % settings.len()], seed);
        (checked, retrains) = (checked + operations, retrains + replaced);
        retrained += u64::from(replaced > 0);
    }
    println!(
        "{count} histories, {checked} operations, {retrains} leaves replaced in {retrained} of them"
    );
    // Where and when leaves are replaced depends on the schedule; without any replacement, a
    // history shows little.
    assert!(checked > 0 && retrained > count / 4, "{retrained} of {count} replaced a leaf");
}

#[test]
fn words() {
    histories_are_linearizable::<u64>();
}

#[test]
fn short_words() {
    histories_are_linearizable::<u8>();
}

#[test]
fn strings_of_one_code() {
    histories_are_linearizable::<Vec<u8>>();
}
