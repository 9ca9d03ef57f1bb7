//! A time series: values that live for one window of time, and three ways to be rid of them: they
//! expire, their ranges are removed, or their partitions are dropped.
//!
//! Time is the bench's own, and goes on with each write: a window is a number of writes, and the
//! store runs as fast as it can. Every value read is verified, and none may be seen that is older
//! than the window. After two windows everything is steady; what is told is of the windows after
//! that.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rhumb::{
    Database, Keyspace, KeyspaceOptions, Lifetime, Partitioning, io::Clock, options::PersistMode,
};

use crate::{
    options::Options,
    progress::Progress,
    random::Rng,
    report::{Heading, Report, Sample},
    value::Values,
    workspace::Workspace,
};

/// The name of the workload.
const NAME: &str = "series";

/// Values that live at a time, unless `--keys` says otherwise; and in a quick run.
const LIVING: u64 = 200_000;
const QUICK_LIVING: u64 = 20_000;

/// Slots of a window: what is older is removed slot by slot, as of a minute at a time of an hour.
const SLOTS: u64 = 60;

/// Windows before anything is told, in which the store becomes steady, and windows of which it is.
const WINDOWS_BEFORE: u64 = 2;
const WINDOWS: u64 = 4;

/// How long a value lives, in milliseconds of the bench's time: an hour.
const LIFE_MS: u64 = 3_600_000;

/// Reads after each slot.
const READS: u64 = 200;

/// Ways to be rid of old values.
const SUBJECTS: [&str; 3] = ["expire", "delete_range", "drop_partition"];

/// Returns true if the workloads named are this one alone.
///
/// # Errors
/// If it is named beside others.
pub fn is_chosen(names: &[String]) -> Result<bool> {
    super::is_alone(names, NAME)
}

/// A clock that the bench turns.
#[derive(Debug)]
struct Turned(AtomicU64);

impl Clock for Turned {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// A store with a series.
struct Series<'o> {
    subject: &'static str,
    options: &'o Options,
    db: Database,
    keyspace: Keyspace,
    clock: Arc<Turned>,
    values: Values,
    /// Values of a slot.
    per_slot: u64,
    rng: Rng,
}

/// The key of the value `n`, which begins with its slot.
fn key_of(slot: u64, n: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&slot.to_be_bytes());
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

impl<'o> Series<'o> {
    fn open(
        subject: &'static str,
        options: &'o Options,
        directory: &std::path::Path,
        living: u64,
    ) -> Result<Self> {
        let clock = Arc::new(Turned(AtomicU64::new(LIFE_MS)));
        let builder = Database::builder(directory).memtable_bytes(options.memtable);
        let db = builder.clock(Arc::clone(&clock) as Arc<dyn Clock>).open()?;
        let kept = match subject {
            "expire" => KeyspaceOptions {
                lifetime: Some(Lifetime::For(Duration::from_millis(LIFE_MS))),
                ..KeyspaceOptions::default()
            },
            "drop_partition" => KeyspaceOptions {
                partitions: Partitioning::PrefixLength(8),
                ..KeyspaceOptions::default()
            },
            _ => KeyspaceOptions::default(),
        };
        let keyspace = db.keyspace("series", kept)?;
        let values = Values::new(options.value_size, options.redundancy, options.run.seed)?;
        let (per_slot, rng) = (living / SLOTS, Rng::stream(options.run.seed, 0));
        Ok(Self { subject, options, db, keyspace, clock, values, per_slot, rng })
    }

    /// Writes a slot, after what is older than a window has gone.
    fn write(&mut self, slot: u64) -> Result<()> {
        if let Some(old) = slot.checked_sub(SLOTS) {
            match self.subject {
                "delete_range" => {
                    let (from, to) = (key_of(old, 0), key_of(old + 1, 0));
                    self.keyspace.remove_range(from..to)?;
                }
                "drop_partition" => {
                    self.keyspace.drop_partition(old.to_be_bytes())?;
                }
                _ => {}
            }
        }
        let mut value = Vec::new();
        for n in 0..self.per_slot {
            // Within the slot time stands still: a value expires with its slot.
            let key = key_of(slot, n);
            self.values.fill(&key, 1, &mut value);
            self.keyspace.insert(key, &value)?;
        }
        self.clock.0.fetch_add(LIFE_MS / SLOTS, Ordering::Relaxed);
        Ok(())
    }

    /// Reads values of the last window and of the one before.
    fn read(&mut self, slot: u64) -> Result<()> {
        let oldest = (slot + 1).saturating_sub(SLOTS);
        for _ in 0..READS {
            let of = slot.saturating_sub(self.rng.below(2 * SLOTS));
            let key = key_of(of, self.rng.below(self.per_slot));
            let found = self.keyspace.get(key)?;
            // What expires, or goes, at the end of this slot is either.
            if of == oldest || of + 1 == oldest {
                continue;
            }
            if of < oldest {
                ensure!(found.is_none(), "a value of slot {of} is seen after slot {slot}");
            } else {
                let found = found.with_context(|| format!("a value of slot {of} is gone"))?;
                let version = self.values.version_of(&key, &found);
                ensure!(version == Some(1), "a wrong value of slot {of}");
            }
        }
        Ok(())
    }

    /// Bytes that flushes and compactions have written.
    fn written(&self) -> u64 {
        let stats = self.db.stats();
        stats.flushed_bytes + stats.compacted_written_bytes
    }

    fn run(&mut self, report: &mut Report) -> Result<()> {
        let slot_bytes = self.per_slot * (16 + self.options.value_size as u64);
        let living = (slot_bytes * SLOTS) as f64;
        let first = WINDOWS_BEFORE * SLOTS;
        (0..first).try_for_each(|slot| self.write(slot).and_then(|()| self.read(slot)))?;
        let (mut spaces, mut began) = (Vec::new(), Duration::ZERO);
        let written = self.written();
        for slot in first..first + WINDOWS * SLOTS {
            let begun = Instant::now();
            self.write(slot)?;
            began += begun.elapsed();
            self.read(slot)?;
            spaces.push(self.keyspace.disk_space() as f64 / living);
        }
        self.db.persist(PersistMode::SyncData)?;
        let user = (slot_bytes * WINDOWS * SLOTS) as f64;
        let writes = (self.per_slot * WINDOWS * SLOTS) as f64;
        let most = |part: &[f64]| part.iter().copied().fold(0.0, f64::max);
        let (early, late) = spaces.split_at(spaces.len() / 2);
        let mut add = |name: &str, value, unit| {
            report.add(self.subject, name, 1, Sample::plain(value, unit));
        };
        add("writes", writes / began.as_secs_f64(), "ops/s");
        add("space_first_half", most(early), "x");
        add("space_second_half", most(late), "x");
        add("write_amplification", (self.written() - written) as f64 / user, "x");
        Ok(())
    }
}

/// Measures the three ways, one after the other.
///
/// # Errors
/// If the store fails, or shows a value that is wrong, gone too early, or there too long.
pub fn run(options: &Options) -> Result<Report> {
    options.validate()?;
    let usual = if options.run.quick { QUICK_LIVING } else { LIVING };
    let living = options.run.keys.map_or(usual, |keys| keys as u64);
    ensure!(living >= SLOTS, "--keys of {NAME} are at least {SLOTS}");
    let heading = Heading {
        suite: "engine",
        data: "a time series; space is that on disk beside what lives".into(),
        keys: living as usize,
        value_bytes: options.value_size,
    };
    let mut report = Report::new(heading, super::environment_line(options, &[], &[]));
    let workspace = Workspace::create(options.dir.as_deref())?;
    let mut progress = Progress::default();
    for subject in SUBJECTS {
        progress.task(format!("{NAME}: {subject}"));
        let directory = workspace.path(subject);
        Workspace::empty(&directory)?;
        Series::open(subject, options, &directory, living)?.run(&mut report)?;
        Workspace::empty(&directory)?;
    }
    Ok(report)
}
