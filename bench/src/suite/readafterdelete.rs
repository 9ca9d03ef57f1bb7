//! Reads after a large deletion: parts of a store are dropped, and what was before is held against
//! what is after. Then, what partitions cost that nobody uses.
//!
//! Figures before the drop are those of the subject `before` for Rhumb, and of the rival's name
//! with `-before` behind it. Every entry that is read is verified.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use super::idle;
use crate::{
    dropping::{DropEngine, DropStore, PARTITIONS, key_of as key, partition_name},
    environment,
    options::Options,
    progress::Progress,
    random::Rng,
    report::{Heading, Report, Sample},
    subject::Tuning,
    workspace::Workspace,
};

/// Keys of a partition, and of a quick run.
const KEYS: usize = 300_000;
const QUICK_KEYS: usize = 30_000;

/// Entries of one scan.
const SCAN_ENTRIES: usize = 100;

/// Memory of a store, unless `--cache` says otherwise.
const CACHE_BYTES: u64 = 512 << 20;

/// Rhumb's name, and that of its figures before the drop.
const OURS: &str = "rhumb";
const BEFORE: &str = "before";

/// Chooses engines by their names, in the order of the names; all of them if none is named.
///
/// # Errors
/// If a name is unknown.
pub fn choose<'e>(
    names: &[String],
    engines: &[&'e dyn DropEngine],
) -> Result<Vec<&'e dyn DropEngine>> {
    let find = |name: &String| {
        let found = engines.iter().find(|engine| engine.name() == name);
        found.copied().with_context(|| {
            let known: Vec<_> = engines.iter().map(|engine| engine.name()).collect();
            format!("no subject {name}: there are {}", known.join(", "))
        })
    };
    let chosen: Result<Vec<_>> = names.iter().map(find).collect();
    Ok(if names.is_empty() { engines.to_vec() } else { chosen? })
}

/// Measures the engines, one after the other within each repetition.
///
/// # Errors
/// If a store fails, or returns anything but what was written to it.
pub fn run(
    engines: &[&dyn DropEngine],
    options: &Options,
    process: idle::Process,
) -> Result<Report> {
    options.run.validate()?;
    let quick = if options.run.quick { QUICK_KEYS } else { KEYS };
    let keys = options.run.keys.unwrap_or(quick);
    let heading = Heading {
        suite: "readafterdelete",
        data: format!("{PARTITIONS} partitions"),
        keys: keys * PARTITIONS as usize,
        value_bytes: options.value_size,
    };
    let tuning = Tuning {
        cache_bytes: options.cache.unwrap_or(CACHE_BYTES),
        memtable_bytes: options.memtable,
        direct: false,
        compression: options.compression,
        block_bytes: options.block_size,
        filter_bits: 10,
        background_threads: 2,
        data_bytes: (keys * PARTITIONS as usize * (options.value_size + 22)) as u64,
    };
    idle::perform_task(options, &tuning)?;
    let mut environment = super::environment_line(options, &[], &[]);
    if let Some(line) = environment.as_object_mut() {
        let subjects =
            engines.iter().map(|engine| (engine.name().to_owned(), engine.options(&tuning)));
        line.insert("subjects".into(), subjects.collect::<serde_json::Map<_, _>>().into());
    }
    let mut report = Report::new(heading, environment);
    let workspace = Workspace::create(options.dir.as_deref())?;
    let mut progress = Progress::default();
    for repetition in 0..options.run.repetitions() {
        let directory = workspace.path("store");
        for i in 0..engines.len() {
            let engine = engines[(i + repetition) % engines.len()];
            progress.task(format!("repetition {repetition}, {}", engine.name()));
            Workspace::empty(&directory)?;
            drop_and_read(options, keys, (engine, &tuning), &directory, &mut report)
                .context(engine.name())?;
        }
        let is_ours = engines.iter().any(|engine| engine.name() == OURS);
        for partitions in idle::PARTITIONS.into_iter().filter(|_| is_ours) {
            progress.task(format!("repetition {repetition}, {partitions} partitions idle"));
            Workspace::empty(&directory)?;
            idle::run(options, &tuning, (partitions, process), &directory, &mut report)?;
        }
        Workspace::remove(&directory)?;
    }
    idle::conclude(&mut report);
    Ok(report)
}

/// The value of a key: its own bytes over and over.
pub(super) fn is_value(key: &[u8], value: &[u8], len: usize) -> bool {
    value.len() == len && value.iter().zip(key.iter().cycle()).all(|(a, b)| a == b)
}

fn drop_and_read(
    options: &Options,
    keys: usize,
    (engine, tuning): (&dyn DropEngine, &Tuning),
    directory: &Path,
    report: &mut Report,
) -> Result<()> {
    let mut store = engine.open(directory, tuning)?;
    let mut value = Vec::new();
    for number in 0..keys {
        for partition in 0..PARTITIONS {
            let key = key(partition, number);
            value.clear();
            value.extend(key.bytes().cycle().take(options.value_size));
            store.insert(partition, key.as_bytes(), &value)?;
        }
    }
    store.settle()?;
    let after = engine.name();
    let before = if after == OURS { BEFORE.to_owned() } else { format!("{after}-{BEFORE}") };
    read(options, keys, store.as_mut(), (&before, false), report)?;
    report.add(&before, "space", 1, bytes(environment::disk_bytes(directory)?));
    for partition in (0..PARTITIONS).step_by(2) {
        let begun = Instant::now();
        store.drop_partition(partition)?;
        let took = begun.elapsed();
        report.add(after, "drop", 1, Sample::plain(took.as_secs_f64() * 1e3, "ms"));
    }
    read(options, keys, store.as_mut(), (after, true), report)?;
    report.add(after, "space", 1, bytes(environment::disk_bytes(directory)?));
    for partition in (0..PARTITIONS).filter(|partition| partition % 2 == 1) {
        let mut next = 0;
        store.scan(partition, partition_name(partition).as_bytes(), &mut |found, value| {
            let is_its = found == key(partition, next).as_bytes();
            ensure!(is_its && is_value(found, value, options.value_size), "a wrong entry");
            next += 1;
            Ok(next < keys)
        })?;
        ensure!(next == keys, "{next} entries are left of partition {partition}");
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn bytes(bytes: u64) -> Sample {
    Sample::plain(bytes as f64, "bytes")
}

/// A key by chance, of a partition that is dropped or of one that stays.
fn draw(rng: &mut Rng, keys: usize, dead: bool) -> (u32, usize) {
    let partition = rng.below(u64::from(PARTITIONS / 2)) as u32 * 2 + u32::from(!dead);
    (partition, rng.below(keys as u64) as usize)
}

/// Reads what is dropped or will be, and what stays.
fn read(
    options: &Options,
    keys: usize,
    store: &mut dyn DropStore,
    (subject, is_after): (&str, bool),
    report: &mut Report,
) -> Result<()> {
    let (mut rng, time) = (Rng::new(options.run.seed), options.run.time());
    let is_right = |key: &[u8], value: &[u8]| is_value(key, value, options.value_size);
    let seek_dead = rate(time, || {
        let (partition, number) = draw(&mut rng, keys, true);
        let expected = if is_after { key(partition + 1, 0) } else { key(partition, number) };
        let mut was_found = false;
        store.scan(partition, key(partition, number).as_bytes(), &mut |found, value| {
            was_found = found == expected.as_bytes() && is_right(found, value);
            Ok(false)
        })?;
        ensure!(was_found, "a seek did not come to {expected}");
        Ok(())
    })?;
    let scan_dead = rate(time, || {
        let (partition, _) = draw(&mut rng, keys, true);
        let name = partition_name(partition);
        let mut found = 0;
        store.scan(partition, name.as_bytes(), &mut |key, value| {
            let is_its = key.starts_with(name.as_bytes());
            ensure!(is_right(key, value), "a wrong value of {key:?}");
            found += usize::from(is_its);
            Ok(is_its && found < SCAN_ENTRIES)
        })?;
        ensure!(found == if is_after { 0 } else { SCAN_ENTRIES.min(keys) }, "{found} entries");
        Ok(())
    })?;
    let scan_live = rate(time, || {
        let (partition, number) = draw(&mut rng, keys, false);
        let (mut next, end) = (number, keys.min(number + SCAN_ENTRIES));
        store.scan(partition, key(partition, number).as_bytes(), &mut |found, value| {
            let is_next = found == key(partition, next).as_bytes();
            ensure!(is_next && is_right(found, value), "a scan came to {found:?}");
            next += 1;
            Ok(next < end)
        })?;
        ensure!(next == end, "a scan ended early");
        Ok(())
    })?;
    let get_live = rate(time, || {
        let (partition, number) = draw(&mut rng, keys, false);
        let key = key(partition, number);
        let mut is_there = false;
        store.get(partition, key.as_bytes(), &mut |value| {
            is_there = is_right(key.as_bytes(), value);
            Ok(())
        })?;
        ensure!(is_there, "a wrong value of {key}");
        Ok(())
    })?;
    let samples = [seek_dead, scan_dead, scan_live, get_live];
    for (workload, sample) in
        ["seek_dead", "scan_dead", "scan_live", "get_live"].iter().zip(samples)
    {
        report.add(subject, workload, 1, sample);
    }
    Ok(())
}

/// How often `one` is done in a second.
pub(super) fn rate(time: Duration, mut one: impl FnMut() -> Result<()>) -> Result<Sample> {
    let (begun, mut times) = (Instant::now(), 0_u32);
    loop {
        for _ in 0..16 {
            one()?;
        }
        times += 16;
        let elapsed = begun.elapsed();
        if elapsed >= time {
            return Ok(Sample::plain(f64::from(times) / elapsed.as_secs_f64(), "ops/s"));
        }
    }
}
