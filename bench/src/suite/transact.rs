//! Optimistic transactions of threads that share a store: each reads two of a million keys and
//! writes both, and begins again after a conflict.
//!
//! Every value holds its key's version, which each write raises by one, and bytes that follow from
//! both. Every value is checked as it is read, and at the end the versions must add up to twice the
//! number of commits: a lost update or half a transaction would be seen.
//!
//! Each thread has keys of its own, and a conflict is made where one is wanted: once a transaction
//! has read its keys, another one of the same thread changes the first of them and commits. The
//! first must be refused. So the share of conflicts is the same for every subject, on any number of
//! processors. The measured share is reported.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use crate::{
    options::Options,
    progress::Progress,
    random::{Rng, mix},
    report::{Heading, Report, Sample},
    subject::Tuning,
    transacting::{KEY_BYTES, TransactEngine, TransactStore},
    workspace::Workspace,
};

/// The name of the workload.
const NAME: &str = "transact";

/// Keys, unless `--keys` says otherwise; and in a quick run.
const KEYS: usize = 1_000_000;
const QUICK_KEYS: usize = 100_000;

/// Threads, unless `--threads` says otherwise.
const THREADS: usize = 8;

/// Memory of a store, unless `--cache` says otherwise. All that is alive fits several times.
const CACHE_BYTES: u64 = 512 << 20;

/// The workloads with their conflict rates, in shares of all attempts.
const CASES: [(&str, f64); 3] =
    [("transact_0%", 0.0), ("transact_1%", 0.01), ("transact_10%", 0.1)];

/// Bytes of a value's head: its key's version, and a check of both.
const HEAD_BYTES: usize = 16;

/// Returns true if the workloads named are this one alone.
///
/// # Errors
/// If it is named beside others: they need data sets, and it makes its own.
pub fn is_chosen(names: &[String]) -> Result<bool> {
    super::is_alone(names, NAME)
}

/// Chooses engines by their names, in the order of the names; all of them if none is named.
///
/// # Errors
/// If a name is unknown.
pub fn choose<'e>(
    names: &[String],
    engines: &[&'e dyn TransactEngine],
) -> Result<Vec<&'e dyn TransactEngine>> {
    super::choose_by(names, engines, |engine| engine.name())
}

/// Measures the engines, one after the other within each case and repetition.
///
/// # Errors
/// If a store fails, loses an update, or returns anything but what was written.
pub fn run(engines: &[&dyn TransactEngine], options: &Options) -> Result<Report> {
    options.validate()?;
    let usual = if options.run.quick { QUICK_KEYS } else { KEYS };
    let keys = options.run.keys.unwrap_or(usual) as u64;
    let threads = match options.run.threads[..] {
        [1] | [] => THREADS,
        [threads, ..] => threads,
    };
    ensure!(keys >= 4 * threads as u64, "--keys of {NAME} are at least four for each thread");
    ensure!(options.value_size >= HEAD_BYTES, "values of {NAME} have {HEAD_BYTES} bytes or more");
    let tuning = Tuning {
        cache_bytes: options.cache.unwrap_or(CACHE_BYTES),
        memtable_bytes: options.memtable,
        direct: false,
        compression: options.compression,
        block_bytes: options.block_size,
        filter_bits: 10,
        background_threads: 2,
        data_bytes: keys * (KEY_BYTES + options.value_size) as u64,
    };
    let mut environment = super::environment_line(options, &[], &[]);
    if let Some(line) = environment.as_object_mut() {
        let subjects = engines.iter();
        let subjects = subjects.map(|one| (one.name().to_owned(), one.options(&tuning).into()));
        line.insert("subjects".into(), subjects.collect::<serde_json::Map<_, _>>().into());
    }
    let heading = Heading {
        suite: "engine",
        data: "two keys read and written".into(),
        keys: keys as usize,
        value_bytes: options.value_size,
    };
    let mut report = Report::new(heading, environment);
    let workspace = Workspace::create(options.dir.as_deref())?;
    let mut progress = Progress::default();
    let mut subjects = Vec::new();
    for engine in engines {
        progress.task(format!("{}: load", engine.name()));
        let directory = workspace.path(engine.name());
        Workspace::empty(&directory)?;
        let store = engine.open(&directory, &tuning).with_context(|| engine.name().to_owned())?;
        let subject = Subject { store, keys, value_bytes: options.value_size, threads };
        subject.load().with_context(|| engine.name().to_owned())?;
        subjects.push((engine.name(), subject, 0));
    }
    for (name, wanted) in CASES {
        let share = overtaken_share(wanted);
        for repetition in 0..options.run.repetitions() {
            for turn in 0..subjects.len() {
                let at = (turn + repetition) % subjects.len();
                let (engine, subject, commits) = &mut subjects[at];
                progress.task(format!("{name}, repetition {repetition}, {engine}"));
                let seed = mix(options.run.seed ^ repetition as u64);
                let done = subject
                    .run(share, options.run.time(), !seed)
                    .with_context(|| format!("{engine}, {name}"))?;
                *commits += done.commits;
                let rate = done.commits as f64 / done.seconds;
                report.add(engine, name, threads, Sample::plain(rate, "commits/s"));
                let conflicts = ("conflicts_%", 100.0 * done.conflict_share());
                report.add_counts(engine, name, threads, &[conflicts]);
            }
        }
    }
    for (engine, subject, commits) in subjects {
        progress.task(format!("{engine}: verify"));
        subject.verify(commits).with_context(|| engine.to_owned())?;
        drop(subject);
        Workspace::remove(&workspace.path(engine))?;
    }
    Ok(report)
}

/// The share of transactions that are overtaken, so that `wanted` of all attempts conflict.
///
/// One that is overtaken makes three attempts of one: its own, that of the other, and the one that
/// succeeds. With the share `q`, `q / (1 + 2 q)` of the attempts conflict.
fn overtaken_share(wanted: f64) -> f64 {
    wanted / (1.0 - 2.0 * wanted)
}

/// A store that was loaded.
struct Subject {
    store: Box<dyn TransactStore>,
    keys: u64,
    value_bytes: usize,
    threads: usize,
}

/// What the threads did.
#[derive(Clone, Copy, Default)]
struct Done {
    commits: u64,
    conflicts: u64,
    seconds: f64,
}

impl Done {
    /// The share of conflicts in all attempts.
    fn conflict_share(&self) -> f64 {
        self.conflicts as f64 / (self.commits + self.conflicts).max(1) as f64
    }
}

impl Subject {
    fn load(&self) -> Result<()> {
        for number in 0..self.keys {
            let value = value_of(number, 0, self.value_bytes);
            self.store.insert(&key_of(number), &value)?;
        }
        self.store.settle()
    }

    /// Runs transactions on all threads for `time`.
    fn run(&self, share: f64, time: Duration, seed: u64) -> Result<Done> {
        let (is_over, conflicts) = (AtomicBool::new(false), AtomicU64::new(0));
        let began = Instant::now();
        let commits: Result<Vec<u64>> = thread::scope(|scope| {
            let (is_over, conflicts) = (&is_over, &conflicts);
            let work = |number: usize| {
                move || {
                    self.work(number, share, Rng::stream(seed, number as u64), is_over, conflicts)
                }
            };
            let threads: Vec<_> = (0..self.threads).map(|it| scope.spawn(work(it))).collect();
            thread::sleep(time);
            is_over.store(true, Ordering::Relaxed);
            let join = |thread: thread::ScopedJoinHandle<'_, Result<u64>>| {
                thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread panicked")))
            };
            threads.into_iter().map(join).collect()
        });
        Ok(Done {
            commits: commits?.iter().sum(),
            conflicts: conflicts.load(Ordering::Relaxed),
            seconds: began.elapsed().as_secs_f64(),
        })
    }

    /// One thread's transactions. Returns the number of commits.
    fn work(
        &self,
        number: usize,
        share: f64,
        mut rng: Rng,
        is_over: &AtomicBool,
        conflicts: &AtomicU64,
    ) -> Result<u64> {
        let (mut commits, mut refused) = (0, 0);
        // Each thread has an equal part of the keys.
        let part = self.keys / self.threads as u64;
        let first = part * number as u64;
        let other = |one, rng: &mut Rng| first + (one - first + 1 + rng.below(part - 1)) % part;
        while !is_over.load(Ordering::Relaxed) {
            let one = first + rng.below(part);
            let numbers = [one, other(one, &mut rng)];
            if share > rng.unit() {
                let overtaking = [one, other(one, &mut rng)];
                let is_committed = self.attempt(numbers, &mut || {
                    ensure!(self.attempt(overtaking, &mut || Ok(()))?, "a conflict with none");
                    Ok(())
                })?;
                ensure!(!is_committed, "a commit over a change of what it has read");
                refused += 1;
                commits += 1;
            }
            while !self.attempt(numbers, &mut || Ok(()))? {
                refused += 1;
            }
            commits += 1;
        }
        conflicts.fetch_add(refused, Ordering::Relaxed);
        Ok(commits)
    }

    /// Raises the versions of two keys in one transaction. Calls `between` once it has read both.
    /// Returns false if there was a conflict.
    fn attempt(&self, numbers: [u64; 2], between: &mut dyn FnMut() -> Result<()>) -> Result<bool> {
        let keys = numbers.map(key_of);
        self.store.transact([&keys[0], &keys[1]], &mut |at, value| {
            let version = check(numbers[at], value, self.value_bytes)?;
            if at == 1 {
                between()?;
            }
            Ok(value_of(numbers[at], version + 1, self.value_bytes))
        })
    }

    /// Checks every value, and that the versions add up to two for each commit.
    fn verify(&self, commits: u64) -> Result<()> {
        let (mut versions, mut count) = (0, 0);
        self.store.values(&mut |key, value| {
            let number = u64::from_be_bytes(key[KEY_BYTES - 8..].try_into()?);
            versions += check(number, value, self.value_bytes)?;
            count += 1;
            Ok(())
        })?;
        ensure!(count == self.keys, "{count} keys are there, and not {}", self.keys);
        ensure!(versions == 2 * commits, "{commits} commits have written {versions} versions");
        Ok(())
    }
}

fn key_of(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    // Keys in random order, with their number at the end.
    key[..8].copy_from_slice(&mix(number).to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// The value of a key of which `version` updates were committed.
fn value_of(number: u64, version: u64, len: usize) -> Vec<u8> {
    let sum = mix(number ^ version.rotate_left(32));
    let mut value = vec![sum as u8; len];
    value[..8].copy_from_slice(&version.to_be_bytes());
    value[8..HEAD_BYTES].copy_from_slice(&sum.to_be_bytes());
    value
}

/// Checks the value of a key. Returns its version.
fn check(number: u64, value: &[u8], len: usize) -> Result<u64> {
    ensure!(value.len() == len, "key {number} has {} bytes", value.len());
    let version = u64::from_be_bytes(value[..8].try_into()?);
    ensure!(value == value_of(number, version, len), "key {number} has a wrong value");
    Ok(version)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::Path, sync::Mutex};

    use clap::{Args, FromArgMatches};

    use super::*;
    use crate::transacting::{OnChange, OnPair};

    #[test]
    fn a_value_of_another_key_or_version_is_refused() {
        let value = value_of(7, 3, 100);
        assert_eq!(check(7, &value, 100).unwrap(), 3);
        assert!(check(8, &value, 100).is_err() && check(7, &value, 99).is_err());
        for at in 0..value.len() {
            let mut other = value.clone();
            other[at] ^= 1;
            assert!(check(7, &other, 100).is_err(), "byte {at}");
        }
    }

    /// What is wrong with a store in memory.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Flaw {
        None,
        /// Some commits write nothing.
        Loses,
        /// Some commits write one of the keys.
        Halves,
        /// Some conflicts have written.
        Writes,
        /// What has changed since it was read is no conflict.
        Overlooks,
    }

    struct InMemory(Flaw);

    /// The number of the last write, and all values.
    type Numbered = (u64, BTreeMap<[u8; KEY_BYTES], Vec<u8>>);

    struct MapStore {
        flaw: Flaw,
        map: Mutex<Numbered>,
    }

    impl TransactEngine for InMemory {
        fn name(&self) -> &'static str {
            "map"
        }
        fn options(&self, _tuning: &Tuning) -> String {
            String::new()
        }
        fn open(&self, _directory: &Path, _tuning: &Tuning) -> Result<Box<dyn TransactStore>> {
            Ok(Box::new(MapStore { flaw: self.0, map: Mutex::default() }))
        }
    }

    impl TransactStore for MapStore {
        fn insert(&self, key: &[u8; KEY_BYTES], value: &[u8]) -> Result<()> {
            self.map.lock().unwrap().1.insert(*key, value.to_vec());
            Ok(())
        }
        fn settle(&self) -> Result<()> {
            Ok(())
        }
        fn transact(&self, keys: [&[u8; KEY_BYTES]; 2], on_change: OnChange<'_>) -> Result<bool> {
            let mut read = Vec::new();
            for (at, key) in keys.into_iter().enumerate() {
                let old = self.map.lock().unwrap().1[key].clone();
                let new = on_change(at, &old)?;
                read.push((key, old, new));
            }
            let mut state = self.map.lock().unwrap();
            let (count, map) = &mut *state;
            *count += 1;
            let is_odd_one = *count % 97 == 0;
            let is_conflict =
                self.flaw != Flaw::Overlooks && read.iter().any(|(key, old, _)| map[*key] != *old);
            for (at, (key, _, new)) in read.into_iter().enumerate() {
                let is_written = match self.flaw {
                    Flaw::Loses if is_odd_one => is_conflict,
                    Flaw::Halves if is_odd_one => at == 0 && !is_conflict,
                    Flaw::Writes if is_conflict => true,
                    _ => !is_conflict,
                };
                if is_written {
                    map.insert(*key, new);
                }
            }
            Ok(!is_conflict)
        }
        fn values(&self, on_value: OnPair<'_>) -> Result<()> {
            let state = self.map.lock().unwrap();
            state.1.iter().try_for_each(|(key, value)| on_value(key, value))
        }
    }

    #[test]
    fn a_store_that_loses_updates_is_refused() {
        let command = Options::augment_args(clap::Command::new("test"));
        let arguments = ["test", "--keys=500", "--seconds=0.02", "--threads=2", "--repeat=2"];
        let options = Options::from_arg_matches(&command.get_matches_from(arguments)).unwrap();
        let report = run(&[&InMemory(Flaw::None)], &options).expect("sound");
        for (name, _) in CASES {
            assert!(report.value("map", name, 2).is_some_and(|rate| rate > 0.0), "{name}");
        }
        let lines = report.json_lines();
        assert!(lines.contains("conflicts_%"), "{lines}");
        let (wanted, share) = (0.1, overtaken_share(0.1));
        assert!((share / (1.0 + 2.0 * share) - wanted).abs() < 1e-9);
        for flaw in [Flaw::Loses, Flaw::Halves, Flaw::Writes, Flaw::Overlooks] {
            assert!(run(&[&InMemory(flaw)], &options).is_err());
        }
    }
}
