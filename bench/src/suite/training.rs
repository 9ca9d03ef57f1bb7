//! What it costs to train models at flushes: a number of writers fill a store whose flushes train
//! always, while writers are few, or never. Then, when the store has come to rest, it is read.
//!
//! Beside the rate of the fill stands the CPU time of all threads for each write: on a machine
//! whose cores are all taken this is what training costs, and it varies less than the rate does.
//!
//! Every value that is read is verified. Subjects take turns within each repetition.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use crate::{
    contents::Contents,
    drive::process_cpu_time,
    options::Options,
    progress::Progress,
    report::{Heading, Report, Sample},
    rhumb_engine::{ADAPTIVE, LEARNED, UNTRAINED},
    subject::Engine,
    work::{Field, Workload, perform, warm_up},
    workspace::Workspace,
};

/// Trained always, adaptively, never.
static SUBJECTS: [&dyn Engine; 3] = [&LEARNED, &ADAPTIVE, &UNTRAINED];

/// Fills and reads stores with each number of writers that `options` names.
///
/// # Errors
/// If a store fails, or returns anything but what was written to it.
pub fn run(options: &Options) -> Result<Report> {
    options.validate()?;
    let (set, values) = (options.key_set()?, options.values()?);
    let warm = options.warm(&set);
    let heading = Heading {
        suite: "training",
        data: set.name.clone(),
        keys: set.keys.len(),
        value_bytes: values.size(),
    };
    let environment = super::environment_line(options, &SUBJECTS, &[("warm", warm)]);
    let mut report = Report::new(heading, environment);
    let workspace = Workspace::create(options.dir.as_deref())?;
    let mut progress = Progress::default();
    for repetition in 0..options.run.repetitions() {
        let seed = options.run.seed ^ ((repetition as u64 + 1) << 40);
        for &writers in &options.run.threads {
            for i in 0..SUBJECTS.len() {
                let engine = SUBJECTS[(i + repetition) % SUBJECTS.len()];
                let name = engine.name();
                progress.task(format!("repetition {repetition}, {name}, {writers} writers"));
                let directory = workspace.path("store");
                Workspace::empty(&directory)?;
                let contents = Contents::new(&set, values);
                let store = engine.open(&directory, &warm)?;
                let field = Field { store: store.as_ref(), contents: &contents, write_group: 1 };
                let work = |workload, threads| {
                    let time = options.run.time();
                    perform(workload, &field, threads, time, seed, &mut |_, _| Ok(()))
                        .with_context(|| format!("{name}, {writers} writers"))
                };
                let cpu = process_cpu_time();
                let filled = work(Workload::FillRandom, writers)?;
                let cpu_ns = (process_cpu_time() - cpu).as_secs_f64() * 1e9;
                let of_one = Sample::plain(cpu_ns / filled.units.max(1) as f64, "ns/op");
                report.add(name, "fillrandom", writers, Sample::rate(&filled, "ops/s"));
                report.add(name, "fillrandom_cpu", writers, of_one);
                // As the writers left it, but for blocks that come into the cache: reads that share
                // the cores with compactions would tell who had more of those left to do.
                come_to_rest();
                warm_up(&field)?;
                come_to_rest();
                let read = work(Workload::ReadRandom, 1)?;
                report.add(name, "read_after", writers, Sample::rate(&read, "ops/s"));
                store.close()?;
                Workspace::remove(&directory)?;
            }
        }
    }
    Ok(report)
}

/// Between two looks at how busy this process is.
const LOOK: Duration = Duration::from_millis(250);

/// Waits until the background threads have next to nothing to do, or for a minute.
fn come_to_rest() {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        let before = process_cpu_time();
        thread::sleep(LOOK);
        if process_cpu_time() - before < LOOK / 20 {
            break;
        }
    }
}
