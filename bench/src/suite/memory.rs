//! What a process takes whose database has a budget: many threads read, write and scan small values
//! and large ones, and hold snapshots, while another looks at how much memory is resident and how
//! much of it the engine counts.
//!
//! Each thread writes keys of its own, so that it knows what each of them has; every value that
//! anybody reads says of which key and which version it is, to the last byte. What the harness
//! itself takes (a byte for each key, one large value that is being written) is in the figures.

use std::{
    io::{self, Write},
    ops::RangeInclusive,
    path::PathBuf,
    sync::{
        Barrier, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use rhumb::{Database, Keyspace, KeyspaceOptions, Snapshot, Stats};
use serde_json::json;

use crate::{
    environment,
    options::{MEMTABLE_BYTES_MIN, parse_size},
    random::{Rng, mix},
    value::Values,
    workspace::Workspace,
};

/// Between two looks at the memory.
const LOOK: Duration = Duration::from_millis(100);

/// Bytes of small values: at least, and at most.
const SMALL: (u64, u64) = (40, 400);

/// Bytes of large values: at least, and at most. Each doubling of the size is as likely as another.
const LARGE: (u64, u64) = (64 << 10, 4 << 20);

/// The versions that a snapshot's holder remembers.
const REMEMBERED: u64 = 32;

/// Budgets that may be measured, in bytes. Numbers without a unit, which are bytes, are mostly
/// below.
const MEMORY_BYTES: RangeInclusive<u64> = 1 << 20..=1 << 40;

/// The share of a value that compresses away, in percent.
const REDUNDANCY_PERCENT: u32 = 50;

/// What is measured, and for how long.
#[derive(Args, Clone, Debug)]
pub struct MemoryOptions {
    /// The memory budget
    #[arg(long, value_name = "SIZE", default_value = "128MiB", value_parser = parse_size)]
    pub memory: u64,
    /// Size of a memtable [default: an eighth of the budget, as the server has it]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memtable: Option<u64>,
    /// Threads that read and write
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub threads: u64,
    /// How long, in seconds
    #[arg(long, value_name = "S", default_value_t = 60.0)]
    pub seconds: f64,
    /// Keys with small values, of all threads together
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub keys: u64,
    /// Keys with values of 64 KiB to 4 MiB, of all threads together; 0 for none
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub large_keys: u64,
    /// Of what all random choices are made
    #[arg(long, value_name = "N", default_value_t = 42)]
    pub seed: u64,
    /// Where the database is made; it is removed afterwards
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// One JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

impl MemoryOptions {
    /// Refuses what cannot be measured.
    ///
    /// # Errors
    /// If a number is 0 or out of range.
    pub fn validate(&self) -> Result<()> {
        ensure!(MEMORY_BYTES.contains(&self.memory), "--memory must be 1MiB to 1TiB");
        let is_enough = self.memtable.is_none_or(|bytes| bytes >= MEMTABLE_BYTES_MIN);
        ensure!(is_enough, "--memtable must be at least 64KiB");
        ensure!((1..=1024).contains(&self.threads), "--threads must be 1 to 1024");
        ensure!((0.001..=1e6).contains(&self.seconds), "--seconds must be 0.001 to 1000000");
        ensure!(self.keys >= self.threads, "--keys must be at least --threads");
        Ok(())
    }

    fn memtable_bytes(&self) -> u64 {
        self.memtable.unwrap_or((self.memory / 8).clamp(1 << 20, 64 << 20))
    }
}

/// What was resident, and what the engine counted of it, at one moment; in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    resident: u64,
    /// Each kind of memory that the engine counts.
    counted: [u64; KINDS.len()],
    /// What the engine has mapped: all of it, for log records, and for the cache.
    mapped: [u64; 3],
}

/// The kinds of memory that the engine counts.
const KINDS: [&str; 4] = ["memtables", "cache", "pinned", "read buffers"];

impl Look {
    fn at(stats: &Stats) -> Result<Self> {
        let resident = environment::resident_bytes().context("no /proc/self/status")?;
        let counted =
            [stats.memtable_bytes, stats.cache_bytes, stats.pinned_bytes, stats.read_buffer_bytes];
        let mapped = [stats.mapped_bytes, stats.record_chunk_bytes, stats.cache_chunk_bytes];
        Ok(Self { resident, counted, mapped })
    }

    fn counted(&self) -> u64 {
        self.counted.iter().sum()
    }
}

/// What all threads share.
struct Mix<'o> {
    options: &'o MemoryOptions,
    db: Database,
    keyspace: Keyspace,
    ends: AtomicBool,
    operations: AtomicU64,
    written_bytes: AtomicU64,
    failure: Mutex<Option<anyhow::Error>>,
    /// A large value that is being written.
    large: Mutex<Vec<u8>>,
}

/// A thread's keys: what each of them has.
struct Own<'m> {
    mix: &'m Mix<'m>,
    rng: Rng,
    thread: u64,
    /// The last byte of each key's version; 0 if it has no value. Large ones come last.
    versions: Vec<u8>,
    smalls: u64,
    value: Vec<u8>,
    held: Option<Held>,
}

/// A snapshot, the versions of some keys that it sees, and until when it is held.
type Held = (Snapshot, Vec<(u64, u8)>, Instant);

/// The key number `nth` of a thread.
fn key_of(thread: u64, nth: u64, is_large: bool) -> [u8; 10] {
    let mut key = [0; 10];
    key[..8].copy_from_slice(&mix((thread << 40) | (nth << 1) | 1).to_be_bytes());
    key[8] = thread as u8;
    key[9] = u8::from(is_large);
    key
}

/// How the value of a key looks at a version.
fn values_of(key: &[u8], version: u32, seed: u64) -> Result<Values> {
    let key: &[u8; 10] = key.try_into().context("a key that nobody wrote")?;
    let head = u64::from_be_bytes(key[..8].try_into().context("ten bytes")?);
    let mut rng = Rng::stream(head, u64::from(version));
    let size = if key[9] == 1 {
        let doublings = (LARGE.1 / LARGE.0).ilog2();
        let base = LARGE.0 << rng.below(u64::from(doublings));
        base + rng.below(base)
    } else {
        SMALL.0 + rng.below(SMALL.1 - SMALL.0)
    };
    Values::new(size as usize, REDUNDANCY_PERCENT, seed)
}

/// The version of a value that somebody read; an error if it is none of the key's.
fn check(key: &[u8], value: &[u8], seed: u64) -> Result<u32> {
    let version = value.first_chunk::<4>().context("a value of fewer than four bytes")?;
    let version = u32::from_le_bytes(*version);
    let found = values_of(key, version, seed)?.version_of(key, value);
    ensure!(found == Some(version), "a wrong value of {key:?}, {} bytes", value.len());
    Ok(version)
}

impl Own<'_> {
    fn key(&self, nth: u64) -> [u8; 10] {
        key_of(self.thread, nth, nth >= self.smalls)
    }

    fn any_small(&mut self) -> u64 {
        self.rng.below(self.smalls)
    }

    /// One of the large ones, if there are any.
    fn any_large(&mut self) -> u64 {
        let larges = self.versions.len() as u64 - self.smalls;
        if larges == 0 { self.any_small() } else { self.smalls + self.rng.below(larges) }
    }

    fn insert(&mut self, nth: u64) -> Result<()> {
        let key = self.key(nth);
        // 0 stands for none.
        let version = self.versions[nth as usize].wrapping_add(1).max(1);
        let values = values_of(&key, u32::from(version), self.mix.options.seed)?;
        if nth >= self.smalls {
            // One thread after the other: what is counted is the store's memory, not that of its
            // users.
            let mut value = self.mix.large.lock().unwrap_or_else(|e| e.into_inner());
            values.fill(&key, u32::from(version), &mut value);
            self.mix.keyspace.insert(key, &*value)?;
        } else {
            values.fill(&key, u32::from(version), &mut self.value);
            self.mix.keyspace.insert(key, &self.value)?;
        }
        self.mix.written_bytes.fetch_add(values.size() as u64, Ordering::Relaxed);
        self.versions[nth as usize] = version;
        Ok(())
    }

    fn read(&mut self, nth: u64) -> Result<()> {
        let key = self.key(nth);
        let found = self.mix.keyspace.get(key)?;
        self.judge(nth, self.versions[nth as usize], found.as_deref())
    }

    fn judge(&self, nth: u64, expected: u8, found: Option<&[u8]>) -> Result<()> {
        let key = self.key(nth);
        let version = match found {
            Some(value) => check(&key, value, self.mix.options.seed)?,
            None => 0,
        };
        ensure!(version == u32::from(expected), "version {version} of {key:?} and not {expected}");
        Ok(())
    }

    fn remove(&mut self, nth: u64) -> Result<()> {
        let key = self.key(nth);
        self.mix.keyspace.remove(key)?;
        self.versions[nth as usize] = 0;
        Ok(())
    }

    fn scan(&mut self, most: usize, backward: bool) -> Result<()> {
        let from = self.rng.next_u64().to_be_bytes();
        let seed = self.mix.options.seed;
        let mut last: Option<rhumb::Slice> = None;
        let mut judge = |entry: rhumb::Result<(rhumb::Slice, rhumb::Slice)>| -> Result<()> {
            let (key, value) = entry?;
            check(&key, &value, seed)?;
            let follows = |last: &rhumb::Slice| if backward { key < *last } else { key > *last };
            ensure!(last.as_ref().is_none_or(follows), "a scan is out of order");
            last = Some(key);
            Ok(())
        };
        if backward {
            self.mix.keyspace.range(..from).rev().take(most).try_for_each(&mut judge)
        } else {
            self.mix.keyspace.range(from..).take(most).try_for_each(&mut judge)
        }
    }

    /// Takes a snapshot, to be held for a while; gives up the one before, after a look at what it
    /// sees.
    fn snapshot(&mut self) -> Result<()> {
        if let Some((snapshot, remembered, _)) = self.held.take() {
            for (nth, expected) in remembered {
                let found = snapshot.keyspace(&self.mix.keyspace)?.get(self.key(nth))?;
                self.judge(nth, expected, found.as_deref())?;
            }
        }
        let snapshot = self.mix.db.snapshot();
        let remembered = (0..REMEMBERED).map(|_| {
            let nth = self.any_small();
            (nth, self.versions[nth as usize])
        });
        let remembered: Vec<_> = remembered.collect();
        let until = Instant::now() + Duration::from_millis(200 + self.rng.below(3_000));
        self.held = Some((snapshot, remembered, until));
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        let is_due = self.held.as_ref().is_none_or(|(.., until)| *until <= Instant::now());
        match self.rng.below(10_000) {
            0..4_500 => {
                let nth = self.any_small();
                self.read(nth)
            }
            4_500..8_500 => {
                let nth = self.any_small();
                self.insert(nth)
            }
            8_500..9_000 => {
                let nth = self.any_small();
                self.remove(nth)
            }
            9_000..9_400 => {
                let most = 1 + self.rng.below(100) as usize;
                self.scan(most, false)
            }
            9_400..9_800 => {
                let most = 1 + self.rng.below(100) as usize;
                self.scan(most, true)
            }
            9_800..9_810 => self.scan(5_000, false),
            9_810..9_820 => self.scan(5_000, true),
            9_820..9_860 => {
                let nth = self.any_large();
                self.read(nth)
            }
            9_860..9_880 => {
                let nth = self.any_large();
                self.insert(nth)
            }
            _ if is_due => self.snapshot(),
            _ => Ok(()),
        }
    }
}

fn run_thread(mix: &Mix<'_>, thread: u64, start: &Barrier) -> Result<()> {
    let share =
        |all: u64| all / mix.options.threads + u64::from(thread < all % mix.options.threads);
    let (smalls, larges) = (share(mix.options.keys), share(mix.options.large_keys));
    let mut own = Own {
        mix,
        rng: Rng::stream(mix.options.seed, thread),
        thread,
        versions: vec![0; (smalls + larges) as usize],
        smalls,
        value: Vec::new(),
        held: None,
    };
    start.wait();
    while !mix.ends.load(Ordering::Relaxed) {
        own.step()?;
        mix.operations.fetch_add(1, Ordering::Relaxed);
    }
    own.held = None;
    // In the end all is there.
    (0..own.smalls + larges).step_by(97).try_for_each(|nth| own.read(nth))
}

/// Runs the mix, and prints what was resident.
///
/// # Errors
/// If the store fails, or returns anything but what was written to it.
pub fn run(options: &MemoryOptions) -> Result<()> {
    let workspace = Workspace::create(options.dir.as_deref())?;
    let db = Database::builder(workspace.path("db"))
        .memory_budget_bytes(options.memory)
        .memtable_bytes(options.memtable_bytes())
        .open()?;
    let keyspace = db.keyspace("mix", KeyspaceOptions::default())?;
    let mix = Mix {
        options,
        db,
        keyspace,
        ends: AtomicBool::new(false),
        operations: AtomicU64::new(0),
        written_bytes: AtomicU64::new(0),
        failure: Mutex::new(None),
        large: Mutex::new(Vec::with_capacity(LARGE.1 as usize)),
    };
    let start = Barrier::new(options.threads as usize + 1);
    let looks = thread::scope(|scope| {
        for number in 0..options.threads {
            let (mix, start) = (&mix, &start);
            scope.spawn(move || {
                if let Err(error) = run_thread(mix, number, start) {
                    mix.ends.store(true, Ordering::Relaxed);
                    let mut failure = mix.failure.lock().unwrap_or_else(|e| e.into_inner());
                    failure.get_or_insert(error);
                }
            });
        }
        start.wait();
        let looks = look(&mix);
        mix.ends.store(true, Ordering::Relaxed);
        looks
    })?;
    if let Some(error) = mix.failure.lock().unwrap_or_else(|e| e.into_inner()).take() {
        return Err(error);
    }
    print(&mix, looks)
}

/// Looks at the memory until the time is over.
fn look(mix: &Mix<'_>) -> Result<Vec<Look>> {
    let begun = Instant::now();
    let mut looks = Vec::new();
    while begun.elapsed().as_secs_f64() < mix.options.seconds && !mix.ends.load(Ordering::Relaxed) {
        thread::sleep(LOOK);
        looks.push(Look::at(&mix.db.stats())?);
    }
    Ok(looks)
}

fn print(mix: &Mix<'_>, mut looks: Vec<Look>) -> Result<()> {
    let options = mix.options;
    looks.sort_by_key(|look| look.resident);
    let at = |quantile: f64| {
        let place = (looks.len() as f64 * quantile) as usize;
        looks.get(place.min(looks.len() - 1)).copied().unwrap_or_default()
    };
    ensure!(!looks.is_empty(), "it was over before anybody looked");
    let budget = options.memory;
    let most_counted = looks.iter().map(Look::counted).max().unwrap_or(0);
    let (most, p99, median) = (at(1.0), at(0.99), at(0.5));
    let ratio = |bytes: u64| bytes as f64 / budget as f64;
    let operations = mix.operations.load(Ordering::Relaxed);
    let mut out = io::stdout().lock();
    if options.json {
        writeln!(out, "{}", json!({ "environment": environment::describe() }))?;
        let kinds: serde_json::Map<_, _> = KINDS
            .iter()
            .zip(most.counted)
            .map(|(kind, bytes)| (kind.replace(' ', "_"), bytes.into()))
            .collect();
        let line = json!({
            "suite": "memory", "subject": "rhumb", "threads": options.threads,
            "seconds": options.seconds, "keys": options.keys, "large_keys": options.large_keys,
            "budget_bytes": budget, "resident_bytes_max": most.resident,
            "resident_bytes_p99": p99.resident, "resident_bytes_p50": median.resident,
            "ratio_max": ratio(most.resident), "ratio_p99": ratio(p99.resident),
            "counted_bytes_then": kinds, "counted_bytes_max": most_counted,
            "operations": operations,
            "written_bytes": mix.written_bytes.load(Ordering::Relaxed),
        });
        writeln!(out, "{line}")?;
        return Ok(());
    }
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let written = mib(mix.written_bytes.load(Ordering::Relaxed));
    writeln!(
        out,
        "{} threads, {} s: {operations} operations, {written:.0} MiB written; budget {:.0} MiB",
        options.threads,
        options.seconds,
        mib(budget)
    )?;
    for (name, look) in [("max", most), ("p99", p99), ("median", median)] {
        let (resident, ratio) = (mib(look.resident), ratio(look.resident));
        write!(out, "{name:>8}: {resident:7.1} MiB resident, {ratio:.2} of the budget; counted:")?;
        for (kind, bytes) in KINDS.iter().zip(look.counted) {
            write!(out, " {kind} {:.1}", mib(bytes))?;
        }
        let other = look.resident.saturating_sub(look.counted());
        let [mapped, records, cache] = look.mapped.map(mib);
        writeln!(
            out,
            ", other {:.1}; mapped {mapped:.1}: records {records:.1}, cache {cache:.1}",
            mib(other)
        )?;
    }
    writeln!(out, "most that was counted: {:.1} MiB", mib(most_counted))?;
    Ok(())
}
