//! Reads after a large deletion: partitions of one keyspace are dropped, or the same keys of a keyspace
//! without partitions are deleted as five ranges, or as five thousand; and what was before is held
//! against what is after. Then, what partitions cost that nobody uses.
//!
//! Figures before the drop are those of the subject `before`, and of `before-ranges` without partitions.
//! Those of `ranges` and `ranges-5000` are taken at once, while the deletes are in memory; those with
//! `-flushed` once the store is at rest. Every entry that is read is verified.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use rhumb::{Database, Keyspace, KeyspaceOptions, Partitioning, TableOptions};

use super::Workspace;
use crate::{
    environment,
    options::Options,
    progress::Progress,
    random::Rng,
    report::{Heading, Report, Sample},
};

/// Partitions of the store, of which every second is dropped.
const PARTITIONS: u32 = 10;

/// Keys of a partition, and of a quick run.
const KEYS: usize = 300_000;
const QUICK_KEYS: usize = 30_000;

/// Entries of one scan.
const SCAN_ENTRIES: usize = 100;

/// How many partitions idle, and are looked into, at a time.
const IDLE: [u32; 3] = [10, 1_000, 10_000];

/// Subjects: after the drop, and before it.
const AFTER: &str = "rhumb";
const BEFORE: &str = "before";
const BEFORE_RANGES: &str = "before-ranges";

/// How many ranges are deleted, and the subjects that read after that, at once and at rest.
const RANGES: [(usize, &str, &str); 2] =
    [(5, "ranges", "ranges-flushed"), (5_000, "ranges-5000", "ranges-5000-flushed")];

/// The store is at rest when its files have not changed for so long.
const REST: Duration = Duration::from_secs(2);

/// Measures Rhumb.
///
/// # Errors
/// If the store fails, or returns anything but what was written to it.
pub fn run(options: &Options) -> Result<Report> {
    options.run.validate()?;
    let quick = if options.run.quick { QUICK_KEYS } else { KEYS };
    let keys = options.run.keys.unwrap_or(quick);
    let heading = Heading {
        suite: "readafterdelete",
        data: format!("{PARTITIONS} partitions"),
        keys: keys * PARTITIONS as usize,
        value_bytes: options.value_size,
    };
    let mut report = Report::new(heading, super::environment_line(options, &[], &[]));
    let workspace = Workspace::create(options)?;
    let mut progress = Progress::default();
    for repetition in 0..options.run.repetitions() {
        progress.task(format!("repetition {repetition}"));
        let directory = workspace.path("store");
        Workspace::empty(&directory)?;
        drop_and_read(options, keys, &directory, &mut report)?;
        for (ranges, at_once, flushed) in RANGES {
            Workspace::empty(&directory)?;
            let subjects = [at_once, flushed];
            delete_and_read(options, keys, ranges, subjects, &directory, &mut report)?;
        }
        for partitions in IDLE {
            Workspace::empty(&directory)?;
            idle(options, partitions, &directory, &mut report)?;
        }
        Workspace::remove(&directory)?;
    }
    Ok(report)
}

fn open(options: &Options, directory: &Path) -> Result<(Database, Keyspace)> {
    open_with(options, directory, Partitioning::Delimiter(b'/'))
}

fn open_with(
    options: &Options,
    directory: &Path,
    partitions: Partitioning,
) -> Result<(Database, Keyspace)> {
    let db = Database::builder(directory).memtable_bytes(options.memtable << 20).open()?;
    let table = TableOptions { compression: rhumb::Compression::None, ..TableOptions::default() };
    let keyspace = db.keyspace("bench", KeyspaceOptions { table, partitions })?;
    Ok((db, keyspace))
}

fn name(partition: u32) -> String {
    format!("tenant-{partition:05}/")
}

fn key(partition: u32, number: usize) -> String {
    format!("{}{number:08}", name(partition))
}

/// The value of a key: its own bytes over and over.
fn is_value(key: &[u8], value: &[u8], len: usize) -> bool {
    value.len() == len && value.iter().zip(key.iter().cycle()).all(|(a, b)| a == b)
}

/// Writes all keys, and brings the store to rest.
fn fill(options: &Options, keys: usize, db: &Database, keyspace: &Keyspace) -> Result<()> {
    let mut value = Vec::new();
    for number in 0..keys {
        for partition in 0..PARTITIONS {
            let key = key(partition, number);
            value.clear();
            value.extend(key.bytes().cycle().take(options.value_size));
            keyspace.insert(key, &value)?;
        }
    }
    db.flush()?;
    keyspace.compact()?;
    Ok(())
}

/// Deletes what [`drop_and_read`] drops, as so many ranges.
fn delete_and_read(
    options: &Options,
    keys: usize,
    ranges: usize,
    [at_once, flushed]: [&str; 2],
    directory: &Path,
    report: &mut Report,
) -> Result<()> {
    let (db, keyspace) = open_with(options, directory, Partitioning::None)?;
    fill(options, keys, &db, &keyspace)?;
    read(options, keys, &keyspace, BEFORE_RANGES, report)?;
    let each = (ranges * 2 / PARTITIONS as usize).clamp(1, keys);
    let begun = Instant::now();
    for partition in (0..PARTITIONS).step_by(2) {
        for part in 0..each {
            let bound = |part: usize| key(partition, part * keys / each);
            keyspace.delete_range(bound(part)..bound(part + 1))?;
        }
    }
    let took = begun.elapsed().as_secs_f64() * 1e3;
    report.add(at_once, "drop", 1, Sample::plain(took, "ms"));
    read(options, keys, &keyspace, at_once, report)?;
    db.flush()?;
    let mut last = (environment::disk_bytes(directory)?, Instant::now());
    let begun = Instant::now();
    while last.1.elapsed() < REST {
        std::thread::sleep(REST / 20);
        let now = environment::disk_bytes(directory)?;
        if now != last.0 {
            last = (now, Instant::now());
        }
    }
    let rest = begun.elapsed().saturating_sub(REST).as_secs_f64() * 1e3;
    report.add(flushed, "rest", 1, Sample::plain(rest, "ms"));
    read(options, keys, &keyspace, flushed, report)?;
    report.add(flushed, "space", 1, bytes(environment::disk_bytes(directory)?));
    let left = keyspace.iter().count();
    ensure!(left == keys * PARTITIONS as usize / 2, "{left} entries are left");
    Ok(())
}

fn drop_and_read(
    options: &Options,
    keys: usize,
    directory: &Path,
    report: &mut Report,
) -> Result<()> {
    let (db, keyspace) = open(options, directory)?;
    fill(options, keys, &db, &keyspace)?;
    read(options, keys, &keyspace, BEFORE, report)?;
    report.add(BEFORE, "space", 1, bytes(environment::disk_bytes(directory)?));
    for partition in (0..PARTITIONS).step_by(2) {
        let begun = Instant::now();
        let was_there = keyspace.drop_partition(name(partition))?;
        let took = begun.elapsed();
        ensure!(was_there, "partition {partition} is not there");
        report.add(AFTER, "drop", 1, Sample::plain(took.as_secs_f64() * 1e3, "ms"));
    }
    read(options, keys, &keyspace, AFTER, report)?;
    report.add(AFTER, "space", 1, bytes(environment::disk_bytes(directory)?));
    let left = keyspace.iter().count();
    ensure!(left == keys * PARTITIONS as usize / 2, "{left} entries are left");
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

type Pair = rhumb::Result<(rhumb::Slice, rhumb::Slice)>;

/// The key of an entry, once its value is known to be right.
fn key_of(options: &Options, pair: Pair) -> Result<Vec<u8>> {
    let (key, value) = pair?;
    ensure!(is_value(&key, &value, options.value_size), "a wrong value of {key:?}");
    Ok(key.to_vec())
}

/// Reads what is dropped or will be, and what stays.
fn read(
    options: &Options,
    keys: usize,
    keyspace: &Keyspace,
    subject: &str,
    report: &mut Report,
) -> Result<()> {
    let (mut rng, time) = (Rng::new(options.run.seed), options.run.time());
    let is_after = ![BEFORE, BEFORE_RANGES].contains(&subject);
    let seek_dead = rate(time, || {
        let (partition, number) = draw(&mut rng, keys, true);
        let first = keyspace.range(key(partition, number)..).next();
        let found = first.map(|pair| key_of(options, pair)).transpose()?;
        let expected = if is_after { key(partition + 1, 0) } else { key(partition, number) };
        ensure!(found.as_deref() == Some(expected.as_bytes()), "{found:?}, not {expected}");
        Ok(())
    })?;
    let scan_dead = rate(time, || {
        let (partition, _) = draw(&mut rng, keys, true);
        let mut found = 0;
        for pair in keyspace.prefix(name(partition)).take(SCAN_ENTRIES) {
            key_of(options, pair)?;
            found += 1;
        }
        ensure!(found == if is_after { 0 } else { SCAN_ENTRIES.min(keys) }, "{found} entries");
        Ok(())
    })?;
    let scan_live = rate(time, || {
        let (partition, number) = draw(&mut rng, keys, false);
        for pair in keyspace.range(key(partition, number)..).take(SCAN_ENTRIES) {
            key_of(options, pair)?;
        }
        Ok(())
    })?;
    let get_live = rate(time, || {
        let (partition, number) = draw(&mut rng, keys, false);
        let key = key(partition, number);
        let value = keyspace.get(&key)?;
        let is_right = value.is_some_and(|v| is_value(key.as_bytes(), &v, options.value_size));
        ensure!(is_right, "a wrong value of {key}");
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
fn rate(time: Duration, mut one: impl FnMut() -> Result<()>) -> Result<Sample> {
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

/// What partitions take that hold one entry each and are not used, and what a short scan costs among
/// them.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn idle(options: &Options, partitions: u32, directory: &Path, report: &mut Report) -> Result<()> {
    let (db, keyspace) = open(options, directory)?;
    let begun = Instant::now();
    for partition in 0..partitions {
        let key = key(partition, 0);
        let value: Vec<u8> = key.bytes().cycle().take(options.value_size).collect();
        keyspace.insert(key, value)?;
    }
    let took = begun.elapsed().as_secs_f64() * 1e9 / f64::from(partitions);
    report.add(AFTER, &format!("create_{partitions}"), 1, Sample::plain(took, "ns"));
    db.flush()?;
    drop((db, keyspace));
    let before = environment::resident_bytes().unwrap_or(0);
    let (db, keyspace) = open(options, directory)?;
    let taken = environment::resident_bytes().unwrap_or(0).saturating_sub(before);
    let each = Sample::plain(taken as f64 / f64::from(partitions), "bytes");
    report.add(AFTER, &format!("idle_{partitions}"), 1, each);
    let mut rng = Rng::new(options.run.seed);
    let scan = rate(options.run.time(), || {
        let partition = rng.below(u64::from(partitions)) as u32;
        let found = keyspace.range(key(partition, 0)..).take(10).count();
        ensure!(found == 10.min((partitions - partition) as usize), "{found} entries");
        Ok(())
    })?;
    report.add(AFTER, &format!("scan10_{partitions}"), 1, scan);
    drop((db, keyspace));
    Ok(())
}
