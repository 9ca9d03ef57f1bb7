//! Whole maps under random schedules. `--cfg shuttle` runs the threads of a history one step at a
//! time, in an order drawn by chance or with a few changes of priority (PCT), and each key's
//! history is checked for linearizability. Nodes and leaves are small enough there that a history
//! replaces leaves, groups and the root many times.
//!
//! `RHUMB_SCHEDULES=n` sets the number of schedules that each test runs. A failure prints a
//! schedule that `shuttle::replay` repeats.
#![cfg(shuttle)]

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rhumb_index::{Index, Key, Preset};
use rhumb_testkit::linearizability::{Call, Operation, is_linearizable};
use shuttle::{
    Config, Runner,
    rand::{Rng, thread_rng},
    scheduler::{PctScheduler, RandomScheduler},
    thread,
};

/// The number of schedules of each test unless the environment says otherwise.
const SCHEDULES: usize = 2000;
/// Keys whose histories are checked.
const WATCHED: u64 = 3;
/// Operations of each thread.
const STEPS: u64 = 14;
/// The number of changes of priority in a PCT schedule.
const DEPTH: usize = 4;

/// What histories of this kind have done together, so that they are known to reach what they are
/// for.
#[derive(Default)]
struct Reached {
    retrains: AtomicU64,
    regrouped: AtomicU64,
    operations: AtomicU64,
}

/// The state that threads share.
struct Shared<K: Key> {
    index: Index<K, u64>,
    /// A clock of the steps of all threads: it orders the calls and their returns.
    clock: AtomicU64,
    of: fn(u64) -> K,
}

impl<K: Key> Shared<K> {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// The watched key of this number; its neighbours lie before and after it.
    fn watched(&self, which: u64) -> K {
        (self.of)(which * 100 + 50)
    }

    /// Keys around a watched one.
    fn neighbours(&self, which: u64, count: u64) -> impl Iterator<Item = K> {
        let numbers = which * 100 + 40..which * 100 + 40 + count;
        numbers.filter(|number| number % 100 != 50).map(self.of)
    }

    fn insert_neighbours(&self, which: u64, count: u64) {
        self.neighbours(which, count).for_each(|key| _ = self.index.insert(key, 0));
    }

    fn remove_neighbours(&self, which: u64, count: u64) {
        self.neighbours(which, count).for_each(|key| _ = self.index.remove(key.borrow()));
    }

    /// One call on a watched key.
    fn step(&self, value: u64, which: u64, kind: u64) -> Operation {
        let (key, index) = (self.watched(which), &self.index);
        let guess = if kind == 9 { index.get(key.borrow()).unwrap_or(1) } else { 1 };
        let called = self.now();
        let call = match kind {
            0..=2 => Call::Insert { value, old: index.insert(key, value) },
            3..=4 => Call::Remove { old: index.remove(key.borrow()) },
            5..=6 => Call::Get { found: index.get(key.borrow()) },
            7 => Call::Update { value, was_there: index.update(key.borrow(), value) },
            8 => Call::GetOrInsert { value, got: index.get_or_insert_with(key, || value) },
            _ => {
                let answer = index.compare_exchange(key.borrow(), guess, value);
                Call::CompareExchange { current: guess, new: value, answer }
            }
        };
        Operation { call, called, returned: self.now() }
    }

    /// A scan or a batch: a lookup of each watched key at some time between call and return.
    fn look_at_all(&self, kind: u64) -> [Operation; WATCHED as usize] {
        let called = self.now();
        let all = (Bound::Unbounded, Bound::Unbounded);
        let seen: BTreeMap<K, u64> = match kind {
            0 => BTreeMap::new(),
            1 => {
                let entries: Vec<_> = self.index.range::<(Bound<&K::Query>, _)>(all).collect();
                assert!(entries.is_sorted_by(|a, b| a.0 < b.0), "a scan in order");
                entries.into_iter().collect()
            }
            _ => {
                let entries: Vec<_> =
                    self.index.range::<(Bound<&K::Query>, _)>(all).rev().collect();
                assert!(entries.is_sorted_by(|a, b| a.0 > b.0), "a scan in reverse order");
                entries.into_iter().collect()
            }
        };
        let keys: Vec<K> = (0..WATCHED).map(|which| self.watched(which)).collect();
        let mut found = keys.iter().map(|key| seen.get(key.borrow()).copied()).collect();
        if kind == 0 {
            self.index.multi_get(&keys, &mut found);
        }
        let returned = self.now();
        std::array::from_fn(|which| Operation {
            call: Call::Get { found: found[which] },
            called,
            returned,
        })
    }

    /// Runs one thread. Returns what it saw of each watched key.
    fn act(&self, id: u64) -> Vec<Vec<Operation>> {
        let mut record = vec![Vec::new(); WATCHED as usize];
        for step in 0..STEPS {
            let mut random = thread_rng();
            let (which, kind) = (random.gen_range(0..WATCHED), random.gen_range(0..16));
            match kind {
                0..=9 => record[which as usize].push(self.step(step << 8 | id, which, kind)),
                10..=11 => self.insert_neighbours(which, random.gen_range(4..20)),
                12 if random.gen_bool(0.3) => _ = self.index.tune(),
                12 => self.remove_neighbours(which, random.gen_range(4..20)),
                _ => {
                    let operations = self.look_at_all(kind - 13);
                    record.iter_mut().zip(operations).for_each(|(of, seen)| of.push(seen));
                }
            }
        }
        record
    }
}

fn history<K: Key>(of: fn(u64) -> K, presets: &[Preset], reached: &Reached) {
    let mut random = thread_rng();
    let trainers = random.gen_range(0..=1);
    let preset = presets[random.gen_range(0..presets.len())];
    let index = Index::<K, u64>::builder().preset(preset).trainers(trainers).build();
    let shared = Arc::new(Shared { index, clock: AtomicU64::new(0), of });
    shared.insert_neighbours(random.gen_range(0..WATCHED), random.gen_range(0..15));
    let initial: Vec<Option<u64>> = (0..WATCHED)
        .map(|which| random.gen_bool(0.5).then_some(0xff00 + which))
        .inspect(|value| {
            if let Some(value) = value {
                shared.index.insert(shared.watched(value - 0xff00), *value);
            }
        })
        .collect();
    let start = |id| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || shared.act(id))
    };
    let threads: Vec<_> = (0..random.gen_range(2..=3)).map(start).collect();
    let mut records: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    records.push(shared.look_at_all(1).into_iter().map(|seen| vec![seen]).collect());
    for (which, initial) in initial.into_iter().enumerate() {
        let threads: Vec<Vec<Operation>> =
            records.iter_mut().map(|record| std::mem::take(&mut record[which])).collect();
        let operations = threads.iter().map(Vec::len).sum::<usize>();
        reached.operations.fetch_add(operations as u64, Ordering::Relaxed);
        let is_right = is_linearizable(&threads, initial);
        assert!(is_right, "key {which} is not linearizable from {initial:?}: {threads:#?}");
    }
    let stats = shared.index.stats();
    reached.retrains.fetch_add(stats.retrains, Ordering::Relaxed);
    reached.regrouped.fetch_add(u64::from(stats.groups > 1), Ordering::Relaxed);
}

/// Runs histories of keys made from numbers, half of them under each kind of schedule.
fn check<K: Key>(of: fn(u64) -> K) {
    check_on(&[Preset::Auto], of);
}

/// [`check`] on maps of any of these presets.
fn check_on<K: Key>(presets: &'static [Preset], of: fn(u64) -> K) {
    let schedules = std::env::var("RHUMB_SCHEDULES").ok();
    let schedules = schedules.map_or(SCHEDULES, |text| text.parse().expect("a number"));
    let reached = Arc::new(Reached::default());
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    config.silence_warnings = true;
    let run = |reached: &Arc<Reached>| {
        let reached = Arc::clone(reached);
        move || history(of, presets, &reached)
    };
    let random = RandomScheduler::new(schedules / 2);
    Runner::new(random, config.clone()).run(run(&reached));
    let pct = PctScheduler::new(DEPTH, schedules.div_ceil(2));
    Runner::new(pct, config).run(run(&reached));
    let [retrains, regrouped, operations] =
        [&reached.retrains, &reached.regrouped, &reached.operations]
            .map(|count| count.load(Ordering::Relaxed));
    println!(
        "{schedules} schedules, {operations} operations, {retrains} leaves replaced, {regrouped} maps \
         of several groups"
    );
    assert!(retrains > 2 * schedules as u64 && regrouped > schedules as u64 / 10);
}

#[test]
fn words() {
    check(|number| number * 3);
}

#[test]
fn uneven_words() {
    check(|number| (number / 7 * 7).pow(7) + number);
}

/// The string of a number, after a prefix that all share.
fn string(number: u64) -> Vec<u8> {
    format!("a prefix of more than a word/{number:05}").into_bytes()
}

/// One of some strings that share their first bytes with many others.
fn string_of_one_code(number: u64) -> Vec<u8> {
    let mut key = vec![0; (number % 3) as usize * 9];
    key.extend_from_slice(&number.to_be_bytes());
    key
}

#[test]
fn strings() {
    check(string);
}

#[test]
fn strings_of_one_code() {
    check(string_of_one_code);
}

#[test]
fn loft_words() {
    check_on(&[Preset::Loft], |number| number * 3);
}

#[test]
fn loft_strings() {
    check_on(&[Preset::Loft], string_of_one_code);
}

#[test]
fn finestore_words() {
    check_on(&[Preset::FineStore], |number| number * 3);
}

#[test]
fn finestore_strings() {
    check_on(&[Preset::FineStore], string_of_one_code);
}

#[test]
fn tone_words() {
    check_on(&[Preset::Tone], |number| number * 3);
}

#[test]
fn tone_strings() {
    check_on(&[Preset::Tone], string_of_one_code);
}
