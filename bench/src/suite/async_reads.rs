//! The suite of reads that go on at the same time: many keys at once, asynchronous reads and scans,
//! with a cache of a twentieth of the data and past the page cache, beside what the disk itself
//! gives on the same files.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use crate::{
    contents::Contents,
    drive::{Course, Measured, Worker, run as drive},
    environment,
    options::Options,
    progress::Progress,
    raw_disk::{Places, RawDisk},
    report::{Heading, Report, Sample},
    subject::{Engine, FileCache, Session, Store},
    work::{DRAWS_SLOW, Draws, Field, MULTI_GET_KEYS, SEEK_ENTRIES, Workload, multi_get, perform},
    work::{scan, scan_by, seek},
    workspace::Workspace,
};

/// How many reads go on at a time.
const DEPTH: usize = MULTI_GET_KEYS;
/// Keys that are read [`DEPTH`] at a time before the clock is looked at.
const RUN_KEYS: usize = DEPTH * 64;
/// How much of a file the disk is asked for at once when it is read in order, and how often.
const SEQUENTIAL_BYTES: usize = 1 << 20;
/// See [`SEQUENTIAL_BYTES`].
const SEQUENTIAL_DEPTH: usize = 4;
/// A page of a file.
const PAGE_BYTES: usize = 4096;
/// What the disk itself gives is the figure of this subject.
const DISK: &str = "disk";

/// One kind of work of this suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AsyncWorkload {
    /// 32 keys with one call.
    MultiGet,
    /// 32 asynchronous reads at a time.
    Get,
    /// Asynchronous scans of 100 entries from any key, 32 at a time; beside it one at a time, and
    /// the synchronous ones.
    Range,
    /// All entries in order.
    Scan,
}

impl AsyncWorkload {
    /// Every workload, in the order in which they run.
    pub const ALL: [Self; 4] = [Self::MultiGet, Self::Get, Self::Range, Self::Scan];

    /// The name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::MultiGet => "multiget_cold",
            Self::Get => "get_async_cold",
            Self::Range => "range_cold",
            Self::Scan => "scan_cold",
        }
    }

    fn unit(self) -> &'static str {
        if self == Self::Range { "ops/s" } else { "keys/s" }
    }

    /// What the disk has to do for it, by its name among the disk's figures.
    fn disk_work(self) -> &'static str {
        match self {
            Self::MultiGet | Self::Get => "read_4k",
            Self::Range => "read_range",
            Self::Scan => "read_in_order",
        }
    }
}

/// Chooses workloads by their names; all if none is named.
///
/// # Errors
/// If a name is unknown.
pub fn choose_workloads(names: &[String]) -> Result<Vec<AsyncWorkload>> {
    let mut chosen = Vec::new();
    for name in names {
        let known = AsyncWorkload::ALL.into_iter().find(|workload| workload.name() == name);
        let workload = known.with_context(|| {
            let names = AsyncWorkload::ALL.map(AsyncWorkload::name);
            format!("no workload {name}: there are {}", names.join(", "))
        })?;
        chosen.push(workload);
    }
    if names.is_empty() {
        chosen.extend(AsyncWorkload::ALL);
    }
    chosen.sort_unstable();
    chosen.dedup();
    Ok(chosen)
}

/// Runs `workloads` on `engines` and reports the medians.
///
/// # Errors
/// If a store fails, or returns anything but what was written to it.
pub fn run(
    engines: &[&dyn Engine],
    workloads: &[AsyncWorkload],
    options: &Options,
) -> Result<Report> {
    options.validate()?;
    ensure!(!engines.is_empty(), "no subjects");
    let set = options.key_set()?;
    let (warm, cold) = (options.warm(&set), options.cold(&set));
    let values = options.values()?;
    let heading = Heading {
        suite: "async",
        data: set.name.clone(),
        keys: set.keys.len(),
        value_bytes: values.size(),
    };
    let environment = super::environment_line(options, engines, &[("cold", cold)]);
    let mut report = Report::new(heading, environment);
    let workspace = Workspace::create(options.dir.as_deref())?;
    let mut progress = Progress::default();
    let mut subjects = Vec::new();
    for engine in engines {
        let directory = workspace.path(engine.name());
        Workspace::empty(&directory)?;
        let subject =
            Subject { engine: *engine, directory, contents: Contents::new(&set, values), options };
        progress.task(format!("{} load", engine.name()));
        let mut store = engine.open(&subject.directory, &warm)?;
        subject.load(store.as_ref())?;
        store.settle()?;
        store.close()?;
        environment::sync_files(&subject.directory)?;
        subjects.push(subject);
    }
    for repetition in 0..options.run.repetitions() {
        let seed = options.run.seed ^ ((repetition as u64 + 1) << 40);
        for i in 0..subjects.len() {
            let subject = &subjects[(i + repetition) % subjects.len()];
            let name = subject.engine.name();
            // Any store's files do; not all are such that the disk can be asked for them by itself.
            let asked = subjects.iter().find(|subject| raw_directory(&subject.directory).is_ok());
            if let (0, Some(asked)) = (i, asked) {
                asked.disk(seed, workloads, &mut progress, &mut report).context(DISK)?;
            }
            environment::drop_file_caches(&subject.directory)?;
            let store = subject.engine.open(&subject.directory, &cold)?;
            for &workload in workloads {
                progress.task(format!("{name} {}", workload.name()));
                subject.measure(workload, store.as_ref(), seed, &mut report).context(name)?;
            }
            store.close()?;
        }
    }
    conclude(&mut report, &subjects, workloads);
    Ok(report)
}

/// One engine with its store.
struct Subject<'a> {
    engine: &'a dyn Engine,
    directory: PathBuf,
    contents: Contents<'a>,
    options: &'a Options,
}

impl Subject<'_> {
    fn field<'f>(&'f self, store: &'f dyn Store) -> Field<'f> {
        Field { store, contents: &self.contents, write_group: self.engine.write_group() }
    }

    fn load(&self, store: &dyn Store) -> Result<()> {
        let (time, seed) = (self.options.run.time(), self.options.run.seed);
        let field = self.field(store);
        perform(Workload::FillRandom, &field, 1, time, seed, &mut |_, _| Ok(())).map(drop)
    }

    fn course(&self, seed: u64, is_warm_up: bool) -> Course {
        let time = self.options.run.time();
        let time = if is_warm_up { time / 4 } else { time };
        Course { threads: 1, time: Some(time), sample_every: 1, seed }
    }

    /// What the disk gives for reads of one page at the suite's depth, and in order.
    fn disk(
        &self,
        seed: u64,
        workloads: &[AsyncWorkload],
        progress: &mut Progress,
        report: &mut Report,
    ) -> Result<()> {
        let directory = raw_directory(&self.directory)?;
        let entries = SEEK_ENTRIES.min(self.contents.len() as u32) as usize;
        let of_a_range = (self.entry_bytes()? * entries as f64) as usize;
        for (name, places, depth, bytes) in [
            ("read_4k", Places::Random, DEPTH, PAGE_BYTES),
            ("read_8k", Places::Random, DEPTH, 2 * PAGE_BYTES),
            ("read_4k_alone", Places::Random, 1, PAGE_BYTES),
            // The pages that a record of this size touches, wherever it begins.
            (
                "read_range",
                Places::Random,
                DEPTH,
                (of_a_range.div_ceil(PAGE_BYTES) + 1) * PAGE_BYTES,
            ),
            ("read_in_order", Places::InOrder, SEQUENTIAL_DEPTH, SEQUENTIAL_BYTES),
        ] {
            let is_wanted = match name {
                "read_in_order" => workloads.contains(&AsyncWorkload::Scan),
                "read_range" => workloads.contains(&AsyncWorkload::Range),
                _ => true,
            };
            if !is_wanted {
                continue;
            }
            progress.task(format!("{DISK} {name}"));
            let measured = drive(&self.course(seed, false), &mut |_, _| Ok(()), |worker| {
                let mut disk = RawDisk::open(&directory, depth, bytes)?;
                let mut rng = worker.rng.clone();
                worker.begin();
                let units = if places == Places::InOrder { bytes as u64 } else { 1 };
                let count = disk.read(places, &mut rng, || worker.goes_on())?;
                worker.count(count * units);
                Ok(())
            })?;
            let unit = if places == Places::InOrder { "bytes/s" } else { "ops/s" };
            report.add(DISK, name, 1, Sample::rate(&measured, unit));
            // The same under the names of what a store has it for.
            for workload in workloads.iter().filter(|workload| workload.disk_work() == name) {
                let of_one = if places == Places::InOrder { self.entry_bytes()? } else { 1.0 };
                let sample = Sample::plain(measured.rate() / of_one, workload.unit());
                report.add(DISK, workload.name(), 1, sample);
            }
        }
        Ok(())
    }

    /// Bytes of the store's files for each entry.
    fn entry_bytes(&self) -> Result<f64> {
        let bytes = environment::disk_bytes(&self.directory)? as f64;
        Ok(bytes / self.contents.len() as f64)
    }

    fn measure(
        &self,
        workload: AsyncWorkload,
        store: &dyn Store,
        seed: u64,
        report: &mut Report,
    ) -> Result<()> {
        let name = self.engine.name();
        let seed = seed ^ ((workload as u64) << 32);
        if workload != AsyncWorkload::Scan {
            self.perform(workload, Manner::Named, store, !seed, true)?;
        }
        let measured = self.perform(workload, Manner::Named, store, seed, false)?;
        report.add(name, workload.name(), 1, Sample::rate(&measured, workload.unit()));
        let others: &[(&str, Manner)] = match workload {
            AsyncWorkload::MultiGet | AsyncWorkload::Get => &[],
            AsyncWorkload::Range => {
                &[("range_alone_cold", Manner::Alone), ("range_sync_cold", Manner::Other)]
            }
            AsyncWorkload::Scan => &[("scan_async_cold", Manner::Other)],
        };
        for (other_name, manner) in others {
            let other = self.perform(workload, *manner, store, seed ^ 1, false)?;
            report.add(name, other_name, 1, Sample::rate(&other, workload.unit()));
        }
        Ok(())
    }

    /// Performs a workload in one of the manners that it has.
    fn perform(
        &self,
        workload: AsyncWorkload,
        manner: Manner,
        store: &dyn Store,
        seed: u64,
        is_warm_up: bool,
    ) -> Result<Measured> {
        let field = self.field(store);
        let drops = self.engine.file_cache() == FileCache::Buffered;
        let mut on_tick = |_, _| match drops {
            true => environment::drop_file_caches(&self.directory),
            false => Ok(()),
        };
        drive(&self.course(seed, is_warm_up), &mut on_tick, |worker| match (workload, manner) {
            (AsyncWorkload::MultiGet, _) => multi_get(&field, worker, DRAWS_SLOW),
            (AsyncWorkload::Get, _) => get_overlapped(&field, worker),
            (AsyncWorkload::Range, Manner::Named) => ranges_overlapped(&field, worker),
            (AsyncWorkload::Range, Manner::Alone) => range_alone(&field, worker),
            (AsyncWorkload::Range, Manner::Other) => seek(&field, worker),
            (AsyncWorkload::Scan, Manner::Named) => scan(&field, worker),
            (AsyncWorkload::Scan, _) => scan_async(&field, worker),
        })
        .with_context(|| workload.name())
    }
}

/// In which of its forms a workload is performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// The one that it is named for.
    Named,
    /// One operation at a time.
    Alone,
    /// Through the synchronous interface where it is named for the other, and the reverse.
    Other,
}

/// Where the larger files of a store are: in its directory or in one below it.
fn raw_directory(directory: &Path) -> Result<PathBuf> {
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|name| name == "sst") {
                return Ok(directory);
            }
            if path.is_dir() {
                pending.push(path);
            }
        }
    }
    bail!("no tables in {}", directory.display())
}

/// Reads of any keys, each by a read of its own, [`DEPTH`] at a time.
pub(super) fn get_overlapped(field: &Field<'_>, worker: &mut Worker<'_>) -> Result<()> {
    let contents = field.contents;
    let draws = Draws::random(contents, DRAWS_SLOW, &mut worker.rng);
    let mut session = field.store.session()?;
    let mut keys = Vec::with_capacity(RUN_KEYS);
    worker.begin();
    loop {
        for first in (0..draws.len()).step_by(RUN_KEYS) {
            if !worker.goes_on() {
                return Ok(());
            }
            keys.clear();
            keys.extend((first..draws.len().min(first + RUN_KEYS)).map(|i| draws.get(i).1));
            let ranks = &draws.ranks[first..];
            worker
                .time(keys.len() as u64, || get_some(contents, session.as_mut(), &keys, ranks))?;
        }
    }
}

fn get_some(
    contents: &Contents<'_>,
    session: &mut dyn Session,
    keys: &[&[u8]],
    ranks: &[u32],
) -> Result<()> {
    let mut answered = vec![false; keys.len()];
    session.get_overlapped(keys, DEPTH, &mut |i, value| {
        ensure!(!std::mem::replace(&mut answered[i], true), "a read was answered twice");
        match value {
            Some(value) => contents.verify(ranks[i], keys[i], value, contents.lowest(ranks[i])),
            None => bail!("key {} is missing", keys[i].escape_ascii()),
        }
    })?;
    ensure!(answered.iter().all(|answered| *answered), "a read was not answered");
    Ok(())
}

fn ranges_overlapped(field: &Field<'_>, worker: &mut Worker<'_>) -> Result<()> {
    let contents = field.contents;
    let draws = Draws::random(contents, DRAWS_SLOW, &mut worker.rng);
    let mut session = field.store.session()?;
    let mut starts = Vec::with_capacity(RUN_KEYS);
    worker.begin();
    loop {
        for first in (0..draws.len()).step_by(RUN_KEYS) {
            if !worker.goes_on() {
                return Ok(());
            }
            starts.clear();
            starts.extend((first..draws.len().min(first + RUN_KEYS)).map(|i| draws.get(i).1));
            let ranks = &draws.ranks[first..first + starts.len()];
            worker.time(starts.len() as u64, || {
                scan_some(contents, session.as_mut(), &starts, ranks)
            })?;
        }
    }
}

/// Visits 100 records from each start, and verifies that they and no others come.
fn scan_some(
    contents: &Contents<'_>,
    session: &mut dyn Session,
    starts: &[&[u8]],
    ranks: &[u32],
) -> Result<()> {
    let count = contents.len() as u32;
    let mut next = ranks.to_vec();
    let end = |i: usize| ranks[i].saturating_add(SEEK_ENTRIES).min(count);
    session.scans_overlapped(starts, DEPTH, &mut |i, key, value| {
        if contents.key(next[i]) != key {
            bail!("a scan came to key {}, which is not the next", key.escape_ascii());
        }
        contents.verify(next[i], key, value, contents.lowest(next[i]))?;
        next[i] += 1;
        Ok(next[i] < end(i))
    })?;
    ensure!((0..next.len()).all(|i| next[i] == end(i)), "a scan ended early");
    Ok(())
}

fn range_alone(field: &Field<'_>, worker: &mut Worker<'_>) -> Result<()> {
    let contents = field.contents;
    let draws = Draws::random(contents, DRAWS_SLOW, &mut worker.rng);
    let mut session = field.store.session()?;
    worker.begin();
    loop {
        for i in 0..draws.len() {
            if !worker.goes_on() {
                return Ok(());
            }
            let (rank, key) = draws.get(i);
            let end = rank.saturating_add(SEEK_ENTRIES).min(contents.len() as u32);
            worker.time(1, || {
                scan_by(contents, rank, end, |on_entry| session.scan_overlapped(key, on_entry))
            })?;
        }
    }
}

fn scan_async(field: &Field<'_>, worker: &mut Worker<'_>) -> Result<()> {
    let mut session = field.store.session()?;
    let count = field.contents.len() as u32;
    worker.begin();
    loop {
        worker.time(0, || {
            scan_by(field.contents, 0, count, |on_entry| session.scan_overlapped(&[], on_entry))
        })?;
        worker.count(u64::from(count));
        if !worker.goes_on() {
            return Ok(());
        }
    }
}

/// Says how much of what the disk gives came through.
fn conclude(report: &mut Report, subjects: &[Subject<'_>], workloads: &[AsyncWorkload]) {
    for subject in subjects {
        let name = subject.engine.name();
        for &workload in workloads {
            let of = |subject| report.value(subject, workload.name(), 1);
            let Some((value, disk)) = of(name).zip(of(DISK)) else { continue };
            let percent = 100.0 * value / disk;
            let of = workload.disk_work();
            let text = format!("{name} {}: {percent:.0}% of the disk's {of}", workload.name());
            let object = json!({
                "subject": name, "workload": workload.name(), "against": DISK, "of": of,
                "percent": percent.round(),
            });
            report.conclude(text, object);
        }
    }
}
