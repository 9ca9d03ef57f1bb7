//! What each technique of TridentKV is worth by itself: a store without any of them beside stores that
//! have one, and one that has all, with a cache of a twentieth of the data and with one for all of it.
//!
//! Every value that is read is verified. Subjects take turns within each repetition.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;

use super::{Workspace, async_reads::get_overlapped};
use crate::{
    contents::Contents,
    drive::{Course, run as drive},
    environment,
    options::Options,
    progress::Progress,
    report::{Heading, Report, Sample},
    rhumb_engine::{ADAPTIVE_MODELS, ASYNC, CODING, MODELS, NONE, PARTITIONS, Rhumb, TRIDENT_KV},
    subject::{Engine, Store, Tuning},
    work::{Field, Workload, perform, warm_up},
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
/// If a store fails, or returns anything but what was written to it, or `plot` cannot be written.
pub fn run(options: &Options, plot: Option<&Path>) -> Result<Report> {
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
    let workspace = Workspace::create(options)?;
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
    if let Some(path) = plot {
        let svg = draw(&report).map_err(|error| anyhow!("cannot draw the figures: {error}"))?;
        fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))?;
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

/// Bars for the reads of each technique, one chart for each cache.
fn draw(report: &Report) -> Result<String, Box<dyn std::error::Error>> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (900, 640)).into_drawing_area();
        root.fill(&WHITE)?;
        for (workload, area) in DRAWN.iter().zip(root.split_evenly((DRAWN.len(), 1))) {
            let rates = TECHNIQUES
                .map(|(engine, _)| report.value(engine.name(), workload, 1).unwrap_or(0.0) / 1e3);
            let highest = rates.into_iter().fold(1e-3, f64::max) * 1.05;
            let count = i32::try_from(TECHNIQUES.len())?;
            let mut chart = ChartBuilder::on(&area)
                .caption(format!("{workload}: thousand reads a second"), ("sans-serif", 16))
                .margin(8)
                .x_label_area_size(28)
                .y_label_area_size(60)
                .build_cartesian_2d((0..count - 1).into_segmented(), 0.0..highest)?;
            let name = |at: &SegmentValue<i32>| match at {
                SegmentValue::CenterOf(i) => usize::try_from(*i)
                    .ok()
                    .and_then(|i| TECHNIQUES.get(i))
                    .map_or_else(String::new, |(engine, _)| engine.name().to_owned()),
                _ => String::new(),
            };
            chart
                .configure_mesh()
                .disable_x_mesh()
                .x_labels(TECHNIQUES.len())
                .x_label_formatter(&name)
                .draw()?;
            let bars = (0..count).zip(rates).map(|(i, rate)| {
                let corners = [(SegmentValue::Exact(i), 0.0), (SegmentValue::Exact(i + 1), rate)];
                let mut bar = Rectangle::new(corners, BLUE.mix(0.6).filled());
                bar.set_margin(0, 0, 8, 8);
                bar
            });
            chart.draw_series(bars)?;
        }
        root.present()?;
    }
    Ok(svg)
}
