//! The core workloads of the Yahoo! Cloud Serving Benchmark (Cooper et al. 2010).
//!
//! Each subject is loaded once per repetition and brought to rest; then the workloads run one after
//! another in the order A, B, C, F, D, E, so that the two that insert come last. All have a cache
//! that holds everything, or one that holds a share of it and no page cache behind it; a store that
//! maps its file cannot be held to that, and the report says so.

use std::{
    path::PathBuf,
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::json;

use crate::{
    choose::{ZIPF_EXPONENT, Zipf},
    contents::{Contents, Writer},
    drive::{Course, Worker, run as drive},
    environment,
    options::Options,
    plot,
    progress::Progress,
    report::{Heading, Report, Sample},
    subject::{Engine, FileCache, Session, Store, Tuning},
    work::{Field, read_latest},
    workspace::Workspace,
};

/// Most entries of one of E's scans.
const SCAN_ENTRIES_MAX: u64 = 100;

/// Popularities drawn before the clock starts.
const DRAWS: usize = 1 << 20;

/// Draws for each record at most: small sets need no long preparation.
const DRAWS_PER_RECORD: usize = 16;

/// One in this many keys is kept back to be inserted by D and E.
const KEYS_PER_INSERT: usize = 6;

/// What the suite takes besides the options that all suites have.
#[derive(Args, Clone, Debug, Default)]
pub struct YcsbOptions {
    /// Cache only this share of the data, and read past the page cache: 0.1 for data ten times the
    /// cache. Where an engine reads through the page cache, that is emptied again and again
    #[arg(long, value_name = "SHARE")]
    pub cache_share: Option<f64>,
    /// Draw the rates of all subjects, with the first of --threads, into this SVG file
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

impl YcsbOptions {
    /// Refuses what cannot be measured.
    ///
    /// # Errors
    /// If a number is out of range.
    pub fn validate(&self) -> Result<()> {
        let share = self.cache_share.unwrap_or(1.0);
        ensure!((0.001..=1.0).contains(&share), "--cache-share must be between 0.001 and 1");
        Ok(())
    }

    /// Settings for a set of keys whose tuning with everything in the cache is `warm`.
    fn tuning(&self, warm: Tuning) -> Result<Tuning> {
        let Some(share) = self.cache_share else { return Ok(warm) };
        let cache_bytes = ((warm.data_bytes as f64 * share) as u64).max(1 << 20);
        Ok(Tuning { cache_bytes, direct: true, ..warm })
    }
}

/// A core workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Letter {
    /// Half reads, half updates, of popular records.
    A,
    /// 95% reads, 5% updates, of popular records.
    B,
    /// Reads of popular records.
    C,
    /// Half reads, half read-modify-writes, of popular records.
    F,
    /// 95% reads of recent records, 5% inserts.
    D,
    /// 95% scans of up to 100 entries, 5% inserts.
    E,
}

/// What one operation does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Read,
    ReadLatest,
    Update,
    ReadModifyWrite,
    Scan,
    Insert,
}

impl Letter {
    const ALL: [Self; 6] = [Self::A, Self::B, Self::C, Self::F, Self::D, Self::E];

    /// The name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
            Self::D => "d",
            Self::E => "e",
            Self::F => "f",
        }
    }

    /// The more frequent operation with its share in percent, and the other.
    fn mix(self) -> (u64, Operation, Operation) {
        match self {
            Self::A => (50, Operation::Read, Operation::Update),
            Self::B => (95, Operation::Read, Operation::Update),
            Self::C => (100, Operation::Read, Operation::Read),
            Self::D => (95, Operation::ReadLatest, Operation::Insert),
            Self::E => (95, Operation::Scan, Operation::Insert),
            Self::F => (50, Operation::Read, Operation::ReadModifyWrite),
        }
    }
}

/// Chooses workloads by their letters; all if none is named.
///
/// # Errors
/// If a letter is not from a to f.
pub fn choose_workloads(names: &[String]) -> Result<Vec<Letter>> {
    let mut chosen = Vec::new();
    for name in names {
        let known = Letter::ALL.into_iter().find(|l| l.name().eq_ignore_ascii_case(name));
        chosen.push(known.with_context(|| format!("no YCSB workload {name}: there are a to f"))?);
    }
    if names.is_empty() {
        chosen.extend(Letter::ALL);
    }
    chosen.sort_unstable();
    chosen.dedup();
    Ok(chosen)
}

/// Runs `letters` on `engines` and reports the medians.
///
/// # Errors
/// If a store fails, or returns anything but what was written to it.
pub fn run(
    engines: &[&dyn Engine],
    letters: &[Letter],
    options: &Options,
    own: &YcsbOptions,
) -> Result<Report> {
    options.validate()?;
    own.validate()?;
    ensure!(!engines.is_empty(), "no subjects");
    let set = options.key_set()?;
    let inserts = letters.iter().any(|letter| *letter >= Letter::D);
    let reserve = if inserts { set.keys.len() / KEYS_PER_INSERT } else { 0 };
    let records = set.keys.len() - reserve;
    let values = options.values()?;
    let tuning = own.tuning(options.warm(&set))?;
    let heading = Heading {
        suite: "ycsb",
        data: set.name.clone(),
        keys: records,
        value_bytes: values.size(),
    };
    let environment = super::environment_line(
        options,
        engines,
        &[(if tuning.direct { "cold" } else { "warm" }, tuning)],
    );
    let mut report = Report::new(heading, environment);
    let workspace = Workspace::create(options.dir.as_deref())?;
    let mut progress = Progress::default();
    for repetition in 0..options.run.repetitions() {
        for i in 0..engines.len() {
            let engine = engines[(i + repetition) % engines.len()];
            for &threads in &options.run.threads {
                let directory = workspace.path(engine.name());
                Workspace::empty(&directory)?;
                let turn = Turn {
                    engine,
                    directory,
                    tuning,
                    options,
                    threads,
                    seed: options.run.seed ^ ((repetition as u64 + 1) << 40),
                    contents: Contents::new(&set, values),
                    records,
                };
                turn.run(letters, &mut progress, &mut report).context(engine.name())?;
                Workspace::remove(&turn.directory)?;
            }
        }
    }
    let mapped = engines.iter().filter(|e| tuning.direct && e.file_cache() == FileCache::Mapped);
    for name in mapped.map(|engine| engine.name()) {
        let text = format!(
            "{name} has no cache of its own: it maps its file, and all of it may stay in memory"
        );
        report.conclude(text, json!({ "subject": name, "cache_bytes": null, "is_mapped": true }));
    }
    if let Some(path) = &own.plot {
        let letters: Vec<_> = letters.iter().map(|letter| letter.name()).collect();
        let names: Vec<_> = engines.iter().map(|engine| engine.name()).collect();
        let threads = options.run.threads.first().copied().unwrap_or(1);
        plot::write_rates(&report, &letters, &names, (threads, "operations"), path)?;
    }
    Ok(report)
}

/// One subject in one repetition.
struct Turn<'a> {
    engine: &'a dyn Engine,
    directory: PathBuf,
    tuning: Tuning,
    options: &'a Options,
    threads: usize,
    seed: u64,
    contents: Contents<'a>,
    /// How many records are loaded: the first of the set's random order.
    records: usize,
}

impl Turn<'_> {
    fn run(&self, letters: &[Letter], progress: &mut Progress, report: &mut Report) -> Result<()> {
        let (engine, threads) = (self.engine, self.threads);
        ensure!(self.records >= threads, "too few keys for {threads} threads");
        let mut store = engine.open(&self.directory, &self.tuning)?;
        self.contents.expect_overwrites();
        progress.task(format!("{} load", engine.name()));
        self.load(store.as_ref())?;
        progress.task(format!("{} settle", engine.name()));
        store.settle()?;
        // A store may only come to rest when it is opened again.
        store.close()?;
        if self.tuning.direct {
            environment::sync_files(&self.directory)?;
            environment::drop_file_caches(&self.directory)?;
        }
        let store = engine.open(&self.directory, &self.tuning)?;

        let present: Vec<_> =
            self.contents.set.order.iter().map(|_| AtomicBool::new(false)).collect();
        let mark = |index: usize| {
            present[self.contents.set.order[index] as usize].store(true, Relaxed);
        };
        (0..self.records).for_each(mark);
        let half = (self.contents.len() - self.records) / 2;
        for &letter in letters {
            progress.task(format!("{} {}", engine.name(), letter.name()));
            let first = self.records + if letter == Letter::E { half } else { 0 };
            let inserts = Inserts::new(first, half, threads);
            let field = self.field(store.as_ref());
            let course = Course {
                threads,
                time: Some(self.options.run.time()),
                sample_every: if letter == Letter::C { 8 } else { 1 },
                seed: self.seed ^ ((letter as u64) << 32),
            };
            let drops = self.tuning.direct && engine.file_cache() == FileCache::Buffered;
            let mut on_tick = |units, elapsed| {
                progress.rate(units, elapsed, "ops/s");
                if drops {
                    environment::drop_file_caches(&self.directory)?;
                }
                Ok(())
            };
            let measured =
                drive(&course, &mut on_tick, |worker| self.work(letter, &field, &inserts, worker))
                    .with_context(|| letter.name())?;
            report.add(engine.name(), letter.name(), threads, Sample::rate(&measured, "ops/s"));
            inserts.indices().for_each(mark);
        }
        progress.task(format!("{} verify", engine.name()));
        self.verify(store.session()?.as_mut(), &present)?;
        store.close()
    }

    fn field<'f>(&'f self, store: &'f dyn Store) -> Field<'f> {
        Field { store, contents: &self.contents, write_group: self.engine.write_group() }
    }

    fn load(&self, store: &dyn Store) -> Result<()> {
        let mut session = store.session()?;
        let mut writer = Writer::new(&self.contents, self.engine.write_group());
        for &rank in &self.contents.set.order[..self.records] {
            writer.insert(session.as_mut(), rank, self.contents.key(rank))?;
        }
        writer.flush(session.as_mut())
    }

    fn work(
        &self,
        letter: Letter,
        field: &Field<'_>,
        inserts: &Inserts,
        worker: &mut Worker<'_>,
    ) -> Result<()> {
        let popular = Zipf::new(self.records as u64, ZIPF_EXPONENT);
        let count = DRAWS.min(self.records * DRAWS_PER_RECORD);
        let draws: Vec<_> = (0..count).map(|_| popular.draw(&mut worker.rng) as usize).collect();
        let contents = &self.contents;
        let rank_of = |index: usize| contents.set.order[index];
        let mut session = field.store.session()?;
        let mut writer = Writer::new(contents, field.write_group);
        let mut commits = contents.commits();
        let (share, usual, other) = letter.mix();
        worker.begin();
        for &draw in draws.iter().cycle() {
            if !worker.goes_on() {
                break;
            }
            let session = session.as_mut();
            let operation = if worker.rng.below(100) < share { usual } else { other };
            match operation {
                Operation::Read => {
                    let rank = rank_of(draw);
                    worker.time(1, || read_latest(field, session, rank, &mut commits))?;
                }
                Operation::ReadLatest => {
                    let newest = inserts.visible_end(self.records);
                    let rank = rank_of(newest - 1 - draw.min(newest - 1));
                    worker.time(1, || read_latest(field, session, rank, &mut commits))?;
                }
                Operation::Update => {
                    let rank = rank_of(own(draw, self.records, worker));
                    let key = contents.key(rank);
                    worker.time_write(|| writer.overwrite(session, rank, key))?;
                }
                Operation::ReadModifyWrite => {
                    let rank = rank_of(own(draw, self.records, worker));
                    worker.time_write(|| {
                        read_latest(field, session, rank, &mut commits)?;
                        writer.overwrite(session, rank, contents.key(rank))
                    })?;
                }
                Operation::Scan => {
                    let length = 1 + worker.rng.below(SCAN_ENTRIES_MAX);
                    let key = contents.key(rank_of(draw));
                    worker.time(1, || scan_some(field, session, key, length, &mut commits))?;
                }
                Operation::Insert => {
                    let Some(index) = inserts.next(worker.id) else { break };
                    let rank = rank_of(index);
                    worker.time_write(|| writer.insert(session, rank, contents.key(rank)))?;
                    inserts.inserted(worker.id, writer.gathered() as u64);
                }
            }
        }
        writer.flush(session.as_mut())?;
        inserts.acknowledge(worker.id, 0);
        Ok(())
    }

    /// Visits all entries: exactly those that are present must come, with their last versions.
    fn verify(&self, session: &mut dyn Session, present: &[AtomicBool]) -> Result<()> {
        let contents = &self.contents;
        let mut expected =
            (0..contents.len() as u32).filter(|rank| present[*rank as usize].load(Relaxed));
        session.scan(&[], &mut |key, value| match expected.next() {
            Some(rank) if contents.key(rank) == key => {
                contents.verify(rank, key, value, contents.lowest(rank)).map(|()| true)
            }
            _ => bail!("a full scan came to key {}, which is not the next", key.escape_ascii()),
        })?;
        match expected.next() {
            None => Ok(()),
            Some(rank) => bail!("key {} is missing", contents.key(rank).escape_ascii()),
        }
    }
}

/// The record nearest to `index` that only this worker writes.
fn own(index: usize, records: usize, worker: &Worker<'_>) -> usize {
    let own = index - index % worker.threads + worker.id;
    if own < records { own } else { own - worker.threads }
}

fn scan_some(
    field: &Field<'_>,
    session: &mut dyn Session,
    from: &[u8],
    length: u64,
    commits: &mut u64,
) -> Result<()> {
    let now = field.contents.commits();
    if now != *commits {
        session.refresh()?;
        *commits = now;
    }
    let (mut visited, mut last) = (0, Vec::new());
    session.scan_some(from, length as usize, &mut |key, value| {
        let follows = if visited == 0 { key == from } else { key > last.as_slice() };
        ensure!(follows, "a scan came to key {} out of order", key.escape_ascii());
        let is_valid = field.contents.values.version_of(key, value).is_some();
        ensure!(is_valid, "key {} has a value that was never written to it", key.escape_ascii());
        last.clear();
        last.extend_from_slice(key);
        visited += 1;
        Ok(visited < length)
    })?;
    ensure!(visited > 0, "a scan from a key that is there found nothing");
    Ok(())
}

/// Deals the records kept back to the workers, and knows which of them can be seen.
struct Inserts {
    /// The first of them in the set's random order.
    first: usize,
    count: usize,
    /// For each worker: how many it has inserted, and how many of those are acknowledged.
    workers: Vec<(AtomicU64, AtomicU64)>,
}

impl Inserts {
    fn new(first: usize, count: usize, threads: usize) -> Self {
        let workers = (0..threads).map(|_| (AtomicU64::new(0), AtomicU64::new(0))).collect();
        Self { first, count, workers }
    }

    /// The next record that worker `id` shall insert, as an index into the random order; `None`
    /// when there are no more.
    fn next(&self, id: usize) -> Option<usize> {
        let number = self.workers[id].0.load(Relaxed) as usize * self.workers.len() + id;
        (number < self.count).then_some(self.first + number)
    }

    /// Worker `id` inserted its next record; `gathered` of its last are not written yet.
    fn inserted(&self, id: usize, gathered: u64) {
        self.workers[id].0.fetch_add(1, Relaxed);
        self.acknowledge(id, gathered);
    }

    /// All but the last `gathered` records of worker `id` are written.
    fn acknowledge(&self, id: usize, gathered: u64) {
        let (inserted, acknowledged) = &self.workers[id];
        acknowledged.store(inserted.load(Relaxed).saturating_sub(gathered), Release);
    }

    /// Where the unbroken run of visible records ends, as an index into the random order.
    /// `records` are visible from the start.
    fn visible_end(&self, records: usize) -> usize {
        let fewest = self.workers.iter().map(|(_, acknowledged)| acknowledged.load(Acquire)).min();
        records + fewest.unwrap_or(0) as usize * self.workers.len()
    }

    /// All that were inserted, as indices into the random order.
    fn indices(&self) -> impl Iterator<Item = usize> {
        let threads = self.workers.len();
        self.workers.iter().enumerate().flat_map(move |(id, (inserted, _))| {
            (0..inserted.load(Relaxed) as usize).map(move |i| self.first + i * threads + id)
        })
    }
}
