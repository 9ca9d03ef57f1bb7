//! What each technique of TridentKV is worth by itself: a store without any of them beside stores
//! that have one, and one that has all, with a cache of a twentieth of the data and with one for
//! all of it.
//!
//! Every value that is read is verified. Subjects take turns within each repetition.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result};

use super::async_reads::get_overlapped;
use crate::{
    contents::Contents,
    drive::{Course, run as drive},
    environment,
    options::Options,
    plot,
    progress::Progress,
    report::{Heading, Report, Sample},
    rhumb_engine::{ADAPTIVE_MODELS, ASYNC, CODING, MODELS, NONE, PARTITIONS, Rhumb, TRIDENT_KV},
    subject::{Engine, Store, Tuning},
    work::{Field, Workload, perform, warm_up},
    workspace::Workspace,
};

/// What is measured: the engine, and whether its reads are asynchronous.
const TECHNIQUES: [(&Rhumb, bool); 7] = [
    (&NONE, false),
    (&MODELS, false),
    (&CODING, false),
    (&ADAPTIVE_MODELS, false),
    (&PARTITIONS, false),
    (&ASYNC, true),
    (&TRIDENT_KV, true),
];

/// The workloads that are drawn.
const DRAWN: [&str; 2] = ["get_small_cache", "get_large_cache"];

/// Measures every technique.
///
/// # Errors
/// If a store fails, or returns anything but what was written to it, or `drawn` cannot be written.
pub fn run(options: &Options, drawn: Option<&Path>) -> Result<Report> {
    options.validate()?;
    let (set, values) = (options.key_set()?, options.values()?);
    let (warm, cold) = (options.warm(&set), options.cold(&set));
    let engines = TECHNIQUES.map(|(engine, _)| engine as &dyn Engine);
    let heading = Heading {
        suite: "ablation",
        data: set.name.clone(),
        keys: set.keys.len(),
        value_bytes: values.size(),
    };
    let tunings = [("large", warm), ("small", cold)];
    let mut report = Report::new(heading, super::environment_line(options, &engines, &tunings));
    let workspace = Workspace::create(options.dir.as_deref())?;
    let mut progress = Progress::default();
    for repetition in 0..options.run.repetitions() {
        for i in 0..TECHNIQUES.len() {
            let (engine, is_overlapped) = TECHNIQUES[(i + repetition) % TECHNIQUES.len()];
            progress.task(format!("repetition {repetition}, {}", engine.name()));
            let directory = workspace.path("store");
            Workspace::empty(&directory)?;
            let contents = Contents::new(&set, values);
            let seed = options.run.seed ^ ((repetition as u64 + 1) << 40);
            let subject = Subject { options, engine, is_overlapped, directory, contents, seed };
            subject.measure(warm, cold, &mut report).context(engine.name())?;
            Workspace::remove(&subject.directory)?;
        }
    }
    conclude(&mut report);
    if let Some(path) = drawn {
        let names = TECHNIQUES.map(|(engine, _)| engine.name());
        plot::write_rates(&report, &DRAWN, &names, (1, "reads"), path)?;
    }
    Ok(report)
}

/// One technique with its store.
struct Subject<'a> {
    options: &'a Options,
    engine: &'a Rhumb,
    is_overlapped: bool,
    directory: PathBuf,
    contents: Contents<'a>,
    seed: u64,
}

impl Subject<'_> {
    fn measure(&self, large: Tuning, small: Tuning, report: &mut Report) -> Result<()> {
        let name = self.engine.name();
        let mut store = self.engine.open(&self.directory, &large)?;
        let (time, field) = (self.options.run.time(), self.field(store.as_ref()));
        let filled = perform(Workload::FillRandom, &field, 1, time, self.seed, &mut |_, _| Ok(()))?;
        report.add(name, "fill", 1, Sample::rate(&filled, "ops/s"));
        let begun = Instant::now();
        store.settle()?;
        report.add(name, "settle", 1, Sample::plain(begun.elapsed().as_secs_f64(), "s"));
        if let Some(bytes) = store.footprint()?.index_file_bytes {
            report.add(name, "index", 1, Sample::plain(bytes as f64, "bytes"));
        }
        warm_up(&self.field(store.as_ref()))?;
        let sample = self.read(&self.field(store.as_ref()), self.seed)?;
        report.add(name, DRAWN[1], 1, sample);
        store.close()?;

        environment::sync_files(&self.directory)?;
        environment::drop_file_caches(&self.directory)?;
        let store = self.engine.open(&self.directory, &small)?;
        // The first reads bring the small cache to where it stays.
        self.read(&self.field(store.as_ref()), !self.seed)?;
        let sample = self.read(&self.field(store.as_ref()), self.seed)?;
        report.add(name, DRAWN[0], 1, sample);
        store.close()
    }

    fn field<'f>(&'f self, store: &'f dyn Store) -> Field<'f> {
        Field { store, contents: &self.contents, write_group: 1 }
    }

    /// Point reads in the technique's own manner: one after another, or many at a time.
    fn read(&self, field: &Field<'_>, seed: u64) -> Result<Sample> {
        let time = self.options.run.time();
        let mut on_tick = |_, _| Ok(());
        let measured = if self.is_overlapped {
            let course = Course { threads: 1, time: Some(time), sample_every: 1, seed };
            drive(&course, &mut on_tick, |worker| get_overlapped(field, worker))?
        } else {
            perform(Workload::ReadRandom, field, 1, time, seed, &mut on_tick)?
        };
        Ok(Sample::rate(&measured, "ops/s"))
    }
}

/// Holds each technique against none of them.
fn conclude(report: &mut Report) {
    for (engine, _) in &TECHNIQUES[1..] {
        for workload in DRAWN {
            let of = |name| report.value(name, workload, 1);
            let Some((ours, none)) = of(engine.name()).zip(of(NONE.name())) else { continue };
            let (name, times) = (engine.name(), ours / none);
            let object = serde_json::json!({
                "ratio": true, "suite": "ablation", "workload": workload, "threads": 1,
                "subject": name, "against": NONE.name(),
                "value": (times * 1000.0).round() / 1000.0,
            });
            report.conclude(format!("{name} {workload}: {times:.2} times none"), object);
        }
    }
}
