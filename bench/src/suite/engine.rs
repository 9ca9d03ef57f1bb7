//! The engine suite: loads, reads with everything and with little in the cache, and overwrites.
//!
//! Subjects take turns within each repetition, each stage of the suite by itself, so that a slow
//! minute of the machine meets all of them; the order rotates from repetition to repetition.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result, ensure};

use crate::{
    contents::Contents,
    data::KeySet,
    drive::Measured,
    environment,
    options::Options,
    progress::Progress,
    report::{Heading, Report, Sample, latency},
    subject::{Engine, FileCache, Store, Tuning},
    value::Values,
    work::{Field, Stage, Workload, perform, verify_all, warm_up},
    workspace::Workspace,
};

/// Chooses workloads by their names; the usual ones if none is named.
///
/// # Errors
/// If a name is unknown.
pub fn choose_workloads(names: &[String]) -> Result<Vec<Workload>> {
    let mut chosen = Vec::new();
    for name in names {
        let known = Workload::ALL.into_iter().find(|workload| workload.name() == name);
        let workload = known.with_context(|| {
            let names: Vec<_> = Workload::ALL.iter().map(|workload| workload.name()).collect();
            format!("no workload {name}: there are {}", names.join(", "))
        })?;
        chosen.push(workload);
    }
    if names.is_empty() {
        chosen.extend(Workload::ALL.into_iter().filter(|workload| workload.is_default()));
    }
    chosen.sort_unstable();
    chosen.dedup();
    Ok(chosen)
}

/// Runs `workloads` on `engines` and reports the medians.
///
/// # Errors
/// If a store fails, or returns anything but what was written to it.
pub fn run(engines: &[&dyn Engine], workloads: &[Workload], options: &Options) -> Result<Report> {
    options.validate()?;
    ensure!(!engines.is_empty(), "no subjects");
    let set = options.key_set()?;
    let mut suite = Suite::new(engines, workloads, options, &set)?;
    suite.fill_sorted()?;
    if workloads.iter().any(|workload| workload.stage() > Stage::FillSorted) {
        suite.fill()?;
        suite.repeat(Stage::Warm, Suite::read_warm)?;
        suite.repeat(Stage::Cold, Suite::read_cold)?;
        suite.repeat(Stage::Change, Suite::change)?;
        suite.finish()?;
    }
    Ok(suite.report)
}

struct Suite<'a> {
    options: &'a Options,
    workloads: &'a [Workload],
    warm: Tuning,
    cold: Tuning,
    subjects: Vec<Subject<'a>>,
    workspace: Workspace,
    /// Memory of the process before it opened any store, in bytes.
    resident_before: Option<u64>,
    progress: Progress,
    report: Report,
}

struct Subject<'a> {
    engine: &'a dyn Engine,
    directory: PathBuf,
    contents: Contents<'a>,
}

/// Which run of which repetition this is.
#[derive(Clone, Copy)]
struct Turn {
    repetition: usize,
    subject: usize,
}

impl<'a> Suite<'a> {
    fn new(
        engines: &[&'a dyn Engine],
        workloads: &'a [Workload],
        options: &'a Options,
        set: &'a KeySet,
    ) -> Result<Self> {
        let values: Values = options.values()?;
        let workspace = Workspace::create(options.dir.as_deref())?;
        let subject = |engine: &&'a dyn Engine| Subject {
            engine: *engine,
            directory: workspace.path(engine.name()),
            contents: Contents::new(set, values),
        };
        let subjects = engines.iter().map(subject).collect();
        let (warm, cold) = (options.warm(set), options.cold(set));
        let environment =
            super::environment_line(options, engines, &[("warm", warm), ("cold", cold)]);
        let heading = Heading {
            suite: "engine",
            data: set.name.clone(),
            keys: set.keys.len(),
            value_bytes: values.size(),
        };
        let report = Report::new(heading, environment);
        let progress = Progress::default();
        let resident_before = environment::resident_bytes();
        Ok(Self {
            options,
            workloads,
            warm,
            cold,
            subjects,
            workspace,
            resident_before,
            progress,
            report,
        })
    }

    fn at(&self, stage: Stage) -> Vec<Workload> {
        self.workloads.iter().copied().filter(|workload| workload.stage() == stage).collect()
    }

    /// All turns, subject by subject within each repetition.
    fn turns(&self) -> Vec<Turn> {
        let subjects = self.subjects.len();
        let turns = (0..self.options.run.repetitions()).flat_map(|repetition| {
            (0..subjects).map(move |i| Turn { repetition, subject: (i + repetition) % subjects })
        });
        turns.collect()
    }

    fn repeat(
        &mut self,
        stage: Stage,
        mut one: impl FnMut(&mut Self, Turn) -> Result<()>,
    ) -> Result<()> {
        if self.at(stage).is_empty() {
            return Ok(());
        }
        for turn in self.turns() {
            let name = self.subjects[turn.subject].engine.name();
            one(self, turn).with_context(|| name.to_owned())?;
        }
        Ok(())
    }

    fn fill_sorted(&mut self) -> Result<()> {
        self.repeat(Stage::FillSorted, |suite, turn| {
            for threads in suite.options.run.threads.clone() {
                let directory = suite.workspace.path("fill-sorted");
                Workspace::empty(&directory)?;
                let store = suite.open(turn, &directory, suite.warm)?;
                suite.measure(Workload::FillSeq, turn, store.as_ref(), &directory, threads)?;
                store.close()?;
                Workspace::remove(&directory)?;
            }
            Ok(())
        })
    }

    /// Loads every subject's store in random order, and brings it to rest. The stores of the last
    /// repetition are kept for all that follows.
    fn fill(&mut self) -> Result<()> {
        let is_measured = self.workloads.contains(&Workload::FillRandom);
        let repetitions = if is_measured { self.options.run.repetitions() } else { 1 };
        for turn in self.turns().into_iter().take(repetitions * self.subjects.len()) {
            let name = self.subjects[turn.subject].engine.name();
            self.fill_one(turn, is_measured, repetitions).with_context(|| name.to_owned())?;
        }
        Ok(())
    }

    fn fill_one(&mut self, turn: Turn, is_measured: bool, repetitions: usize) -> Result<()> {
        let directory = self.subjects[turn.subject].directory.clone();
        let threads = if is_measured { self.options.run.threads.clone() } else { vec![1] };
        for (i, &count) in threads.iter().enumerate() {
            Workspace::empty(&directory)?;
            let mut store = self.open(turn, &directory, self.warm)?;
            if is_measured {
                self.measure(Workload::FillRandom, turn, store.as_ref(), &directory, count)?;
            } else {
                self.perform(Workload::FillRandom, turn, store.as_ref(), &directory, count)?;
            }
            if turn.repetition + 1 == repetitions && i + 1 == threads.len() {
                self.settle(turn, store.as_mut())?;
            }
            store.close()?;
        }
        if turn.repetition + 1 == repetitions {
            self.weigh(turn, "disk")?;
        }
        Ok(())
    }

    fn settle(&mut self, turn: Turn, store: &mut dyn Store) -> Result<()> {
        self.say(turn, "settle");
        let start = Instant::now();
        store.settle()?;
        self.add(turn, "settle", 1, Sample::plain(start.elapsed().as_secs_f64(), "s"));
        Ok(())
    }

    fn read_warm(&mut self, turn: Turn) -> Result<()> {
        let directory = self.subjects[turn.subject].directory.clone();
        let store = self.open(turn, &directory, self.warm)?;
        self.say(turn, "warm up");
        warm_up(&self.field(turn, store.as_ref()))?;
        for workload in self.at(Stage::Warm) {
            for threads in self.options.run.threads.clone() {
                self.measure(workload, turn, store.as_ref(), &directory, threads)?;
            }
        }
        let footprint = store.footprint()?;
        for (name, bytes) in [
            ("memory_index", footprint.index_bytes),
            ("memory_filter", footprint.filter_bytes),
            ("memory_index_and_filter", footprint.index_and_filter_bytes),
            ("disk_index", footprint.index_file_bytes),
        ] {
            if let Some(bytes) = bytes {
                self.add(turn, name, 1, Sample::plain(bytes as f64, "bytes"));
            }
        }
        store.close()
    }

    fn read_cold(&mut self, turn: Turn) -> Result<()> {
        let directory = self.subjects[turn.subject].directory.clone();
        environment::sync_files(&directory)?;
        environment::drop_file_caches(&directory)?;
        let store = self.open(turn, &directory, self.cold)?;
        let file_cache = self.subjects[turn.subject].engine.file_cache();
        for workload in self.at(Stage::Cold) {
            for threads in self.options.run.threads.clone() {
                if file_cache != FileCache::Mapped {
                    // A quarter of the time brings index, filters and a small cache to where they
                    // stay. Mapped pages would stay too, and those are not to be warm.
                    self.say(turn, &format!("{} (warm up)", workload.name()));
                    let field = self.field(turn, store.as_ref());
                    let (time, seed) = (self.options.run.time() / 4, !self.seed(turn));
                    let mut on_tick = |_, _| Ok(());
                    perform(workload, &field, threads, time, seed, &mut on_tick)?;
                }
                self.measure(workload, turn, store.as_ref(), &directory, threads)?;
            }
        }
        store.close()
    }

    fn change(&mut self, turn: Turn) -> Result<()> {
        let directory = self.subjects[turn.subject].directory.clone();
        self.subjects[turn.subject].contents.expect_overwrites();
        let store = self.open(turn, &directory, self.warm)?;
        self.say(turn, "warm up");
        warm_up(&self.field(turn, store.as_ref()))?;
        for workload in self.at(Stage::Change) {
            for threads in self.options.run.threads.clone() {
                let (measured, resident) =
                    self.measure(workload, turn, store.as_ref(), &directory, threads)?;
                if workload != Workload::Mixed50 {
                    continue;
                }
                let writes = &measured.write_latency;
                let value = writes.len() as f64 / measured.seconds;
                let sample = Sample { value, unit: "ops/s", latency: latency(writes) };
                self.add(turn, "mixed50_write", threads, sample);
                self.weigh_memory(turn, threads, resident);
                self.weigh(turn, "mixed50_disk")?;
            }
        }
        store.close()
    }

    /// Verifies all stores once more, after everything that was done to them.
    fn finish(&mut self) -> Result<()> {
        for subject in 0..self.subjects.len() {
            let turn = Turn { repetition: 0, subject };
            let (engine, directory) =
                (self.subjects[subject].engine, self.subjects[subject].directory.clone());
            self.say(turn, "verify");
            let store = self.open(turn, &directory, self.warm)?;
            verify_all(&self.field(turn, store.as_ref()))
                .and_then(|()| store.close())
                .with_context(|| engine.name())?;
            Workspace::remove(&directory)?;
        }
        Ok(())
    }

    fn open(&self, turn: Turn, directory: &Path, tuning: Tuning) -> Result<Box<dyn Store>> {
        let engine = self.subjects[turn.subject].engine;
        engine.open(directory, &tuning).context("cannot open the store")
    }

    fn field<'f>(&'f self, turn: Turn, store: &'f dyn Store) -> Field<'f> {
        let Subject { engine, contents, .. } = &self.subjects[turn.subject];
        Field { store, contents, write_group: engine.write_group() }
    }

    fn seed(&self, turn: Turn) -> u64 {
        self.options.run.seed ^ ((turn.repetition as u64 + 1) << 40)
    }

    fn say(&mut self, turn: Turn, what: &str) {
        let name = self.subjects[turn.subject].engine.name();
        let repetitions = self.options.run.repetitions();
        self.progress.task(format!("{}/{repetitions} {name} {what}", turn.repetition + 1));
    }

    fn add(&mut self, turn: Turn, workload: &str, threads: usize, sample: Sample) {
        self.report.add(self.subjects[turn.subject].engine.name(), workload, threads, sample);
    }

    /// Reports the room that a subject's files take.
    fn weigh(&mut self, turn: Turn, name: &str) -> Result<()> {
        let bytes = environment::disk_bytes(&self.subjects[turn.subject].directory)?;
        self.add(turn, name, 1, Sample::plain(bytes as f64, "bytes"));
        Ok(())
    }

    /// Reports by how much the process grew since before it opened a store, at most, and what was
    /// promised. With several subjects in one process nobody can tell whose memory it is.
    fn weigh_memory(&mut self, turn: Turn, threads: usize, resident: Option<u64>) {
        if self.subjects.len() > 1 {
            return;
        }
        let Subject { engine, contents, .. } = &self.subjects[turn.subject];
        let (budget, versions) = (engine.memory_budget_bytes(&self.warm), contents.version_bytes());
        if let (Some(before), Some(peak)) = (self.resident_before, resident) {
            let grown = peak.saturating_sub(before + versions) as f64;
            self.add(turn, "mixed50_memory", threads, Sample::plain(grown, "bytes"));
        }
        if let Some(budget) = budget {
            self.add(turn, "mixed50_budget", threads, Sample::plain(budget as f64, "bytes"));
        }
    }

    /// Performs a workload and reports it.
    fn measure(
        &mut self,
        workload: Workload,
        turn: Turn,
        store: &dyn Store,
        directory: &Path,
        threads: usize,
    ) -> Result<(Measured, Option<u64>)> {
        let (measured, resident) = self.perform(workload, turn, store, directory, threads)?;
        self.add(turn, workload.name(), threads, Sample::rate(&measured, workload.unit()));
        if workload.stage() == Stage::Warm {
            // Nothing but the CPU is at work here, and its time is the steadier figure on a machine
            // that others use too.
            let cpu_ns = measured.cpu_seconds * 1e9 / measured.units.max(1) as f64;
            let name = format!("{}_cpu", workload.name());
            self.add(turn, &name, threads, Sample::plain(cpu_ns, workload.cpu_unit()));
        }
        Ok((measured, resident))
    }

    /// Performs a workload; also says how much memory was resident at most, in bytes.
    fn perform(
        &mut self,
        workload: Workload,
        turn: Turn,
        store: &dyn Store,
        directory: &Path,
        threads: usize,
    ) -> Result<(Measured, Option<u64>)> {
        self.say(turn, workload.name());
        let Subject { engine, contents, .. } = &self.subjects[turn.subject];
        let field = Field { store, contents, write_group: engine.write_group() };
        let drops = workload.stage() == Stage::Cold && engine.file_cache() == FileCache::Buffered;
        let mut resident = None;
        let mut on_tick = |units, elapsed| {
            self.progress.rate(units, elapsed, workload.unit());
            resident = resident.max(environment::resident_bytes());
            if drops {
                environment::drop_file_caches(directory)?;
            }
            Ok(())
        };
        let seed = self.options.run.seed ^ ((turn.repetition as u64 + 1) << 40);
        let time = self.options.run.time();
        let measured = perform(workload, &field, threads, time, seed, &mut on_tick)
            .with_context(|| workload.name())?;
        Ok((measured, resident))
    }
}
