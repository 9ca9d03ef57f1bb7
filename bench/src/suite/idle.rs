//! What partitions cost that hold one entry each and are not used: memory, files, and the time of a
//! flush that touches all of them.
//!
//! Memory is what a process grows by, so each figure of it is taken by a process of its own: this
//! program once more, with the same arguments, and in its environment what it is to do instead. In
//! a process that has had other stores open, what those gave back would be used again, and nothing
//! would be seen to grow.

use std::{
    env,
    io::{self, Write},
    path::Path,
    process::{Command, exit},
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};

use super::readafterdelete::is_value;
use crate::{
    dropping::{DropStore, RhumbDrops, key_of as key},
    environment,
    options::Options,
    random::Rng,
    report::{Report, Sample},
    subject::Tuning,
};

/// How many partitions there are at a time.
pub const PARTITIONS: [u32; 4] = [1, 10, 1_000, 10_000];

/// The subject of all figures.
const OURS: &str = "rhumb";

/// In the environment of a process that is to take figures: what of, how many partitions, where.
const TASK: &str = "RHUMB_BENCH_IDLE";

/// With what a line of figures begins.
const MARK: &str = "rhumb-bench-idle:";

/// Where figures of memory are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// In a process that this program starts from itself.
    Own,
    /// In this one: for tests, whose figures mean nothing.
    This,
}

/// What is done where the memory of the process is told.
#[derive(Clone, Copy)]
enum Step {
    /// Write an entry to each partition, and flush: bytes, nanoseconds to create one, nanoseconds
    /// of the flush.
    Write,
    /// Open what was written: bytes.
    Open,
}

/// Does what the environment says, and ends the process; nothing if it says nothing.
///
/// # Errors
/// If the store fails.
pub(super) fn perform_task(options: &Options, tuning: &Tuning) -> Result<()> {
    let Ok(task) = env::var(TASK) else { return Ok(()) };
    let mut parts = task.splitn(3, ' ');
    let (step, partitions, directory) = (parts.next(), parts.next(), parts.next());
    let step = match step {
        Some("write") => Step::Write,
        Some("open") => Step::Open,
        _ => bail!("{TASK} is {task:?}"),
    };
    let partitions = partitions.and_then(|n| n.parse().ok()).context(TASK)?;
    let directory = Path::new(directory.context(TASK)?);
    let figures = measure(step, options, tuning, partitions, directory)?;
    let line = figures.map(|figure| figure.to_string()).join(" ");
    writeln!(io::stdout().lock(), "{MARK} {line}")?;
    exit(0)
}

/// Bytes that the process grew by, and for [`Step::Write`] the two times.
fn measure(
    step: Step,
    options: &Options,
    tuning: &Tuning,
    partitions: u32,
    directory: &Path,
) -> Result<[u64; 3]> {
    let before = environment::resident_bytes().unwrap_or(0);
    let mut store = RhumbDrops::open(directory, tuning, None)?;
    let (mut created_ns, mut flush_ns) = (0, 0);
    if matches!(step, Step::Write) {
        let begun = Instant::now();
        for partition in 0..partitions {
            let key = key(partition, 0);
            let value: Vec<u8> = key.bytes().cycle().take(options.value_size).collect();
            store.insert(partition, key.as_bytes(), &value)?;
        }
        created_ns = begun.elapsed().as_nanos() as u64 / u64::from(partitions);
        let begun = Instant::now();
        store.flush()?;
        flush_ns = begun.elapsed().as_nanos() as u64;
    }
    // The pool gives back what the flush was done with.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let after = environment::resident_bytes().unwrap_or(0);
    Ok([after.saturating_sub(before), created_ns, flush_ns])
}

fn measure_apart(step: Step, partitions: u32, directory: &Path) -> Result<[u64; 3]> {
    let name = match step {
        Step::Write => "write",
        Step::Open => "open",
    };
    let task = format!("{name} {partitions} {}", directory.display());
    let program = env::current_exe().context("where is this program?")?;
    let output = Command::new(program).args(env::args_os().skip(1)).env(TASK, task).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let figures = text.lines().find_map(|line| line.strip_prefix(MARK));
    let figures: Vec<u64> =
        figures.unwrap_or_default().split_whitespace().filter_map(|f| f.parse().ok()).collect();
    let error = String::from_utf8_lossy(&output.stderr);
    figures.try_into().ok().with_context(|| format!("no figures of its own process: {error}"))
}

/// Measures one number of partitions in the empty `directory`.
///
/// # Errors
/// If the store fails, or returns anything but what was written to it.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub(super) fn run(
    options: &Options,
    tuning: &Tuning,
    (partitions, process): (u32, Process),
    directory: &Path,
    report: &mut Report,
) -> Result<()> {
    let take = |step| match process {
        Process::Own => measure_apart(step, partitions, directory),
        Process::This => measure(step, options, tuning, partitions, directory),
    };
    let mut add = |name: &str, value: f64, unit| {
        report.add(OURS, &format!("{name}_{partitions}"), 1, Sample::plain(value, unit));
    };
    let [written, created_ns, flush_ns] = take(Step::Write)?;
    let [idle, ..] = take(Step::Open)?;
    add("create", created_ns as f64, "ns");
    add("flush", flush_ns as f64 / 1e6, "ms");
    add("written", written as f64, "bytes");
    add("idle", idle as f64, "bytes");
    let files = std::fs::read_dir(directory)?.count();
    add("files", files as f64, "files");

    let mut store = RhumbDrops::open(directory, tuning, None)?;
    let mut rng = Rng::new(options.run.seed);
    let scan = super::readafterdelete::rate(options.run.time(), || {
        let partition = rng.below(u64::from(partitions)) as u32;
        let (mut found, most) = (0, 10.min((partitions - partition) as usize));
        store.scan(partition, key(partition, 0).as_bytes(), &mut |key, value| {
            ensure!(is_value(key, value, options.value_size), "a wrong value of {key:?}");
            found += 1;
            Ok(found < most)
        })?;
        ensure!(found == most, "{found} entries");
        Ok(())
    })?;
    add("scan10", scan.value, scan.unit);
    Ok(())
}

/// What each partition adds, from the fewest to the most.
pub(super) fn conclude(report: &mut Report) {
    let [first, .., last] = PARTITIONS;
    for name in ["written", "idle"] {
        let of = |partitions| report.value(OURS, &format!("{name}_{partitions}"), 1);
        let Some((few, many)) = of(first).zip(of(last)) else { continue };
        let each = ((many - few) / f64::from(last - first)).max(0.0).round();
        let text =
            format!("{name}: each partition adds {each} bytes, from {first} to {last} of them");
        let object = serde_json::json!({
            "suite": "readafterdelete", "workload": format!("{name}_each"), "subject": OURS,
            "value": each, "unit": "bytes",
        });
        report.conclude(text, object);
    }
}
