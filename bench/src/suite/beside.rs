//! A writer at full speed, alone and beside processes that read the same store and follow it.
//!
//! The writer puts two keys into each batch, with the same version, which grows. Readers know so
//! much: a value says of which key and version it is, to its last byte, the two keys of a batch
//! have one version in every snapshot, and no version falls from one snapshot to the next. They
//! verify all that they read.
//!
//! A reader is this program once more. It ends when its standard input does, and prints its
//! figures.

use std::{
    env,
    io::{self, BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use rhumb::{Change, Commit, Database, Keyspace, KeyspaceOptions};
use serde_json::{Value as Json, json};

use crate::{environment, options::parse_size, random::Rng, value::Values, workspace::Workspace};

/// The share of a value that compresses away, in percent.
const REDUNDANCY_PERCENT: u32 = 50;

/// Pairs of keys that a reader reads of each state, and entries that it scans.
const LOOKED_AT: u64 = 200;

/// What is measured, and for how long.
#[derive(Args, Clone, Debug)]
pub struct BesideOptions {
    /// Processes that read
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub readers: u32,
    /// How long the writer writes alone, and as long again beside readers, in seconds
    #[arg(long, value_name = "S", default_value_t = 30.0)]
    pub seconds: f64,
    /// Keys, half of them in each half of a batch
    #[arg(long, value_name = "N", default_value_t = 400_000)]
    pub keys: u64,
    /// Length of values, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    pub value_size: usize,
    /// The memory budget of each process
    #[arg(long, value_name = "SIZE", default_value = "128MiB", value_parser = parse_size)]
    pub memory: u64,
    /// Size of the writer's memtables
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = parse_size)]
    pub memtable: u64,
    /// Follow the writer's changes in a thread of this process, instead of processes that read
    #[arg(long)]
    pub stream: bool,
    /// How long a reader sleeps before it catches up again, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 100)]
    pub pause_ms: u64,
    /// Of what all random choices are made
    #[arg(long, value_name = "N", default_value_t = 42)]
    pub seed: u64,
    /// Where the store is made; it is removed afterwards
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// One JSON object instead of a table
    #[arg(long)]
    pub json: bool,
    /// Read the store in this directory: what this program starts its readers with
    #[arg(long, value_name = "DIR", hide = true)]
    pub read: Option<PathBuf>,
}

impl BesideOptions {
    /// Refuses what cannot be measured.
    ///
    /// # Errors
    /// If a number is 0 or out of range.
    pub fn validate(&self) -> Result<()> {
        ensure!((1..=64).contains(&self.readers), "--readers must be 1 to 64");
        ensure!((0.001..=1e6).contains(&self.seconds), "--seconds must be 0.001 to 1000000");
        ensure!((2..=1 << 31).contains(&self.keys), "--keys must be 2 to 2147483648");
        ensure!((16..=1 << 20).contains(&self.value_size), "--value-size must be 16 to 1048576");
        ensure!(self.memory >= 1 << 20, "--memory must be at least 1MiB");
        ensure!(self.memtable >= 64 << 10, "--memtable must be at least 64KiB");
        Ok(())
    }

    fn pairs(&self) -> u64 {
        self.keys / 2
    }

    fn values(&self) -> Result<Values> {
        Values::new(self.value_size, REDUNDANCY_PERCENT, self.seed)
    }
}

/// One of the two keys of a batch.
fn key_of(pair: u64, half: u8) -> [u8; 9] {
    let mut key = [0; 9];
    key[0] = half;
    key[1..].copy_from_slice(&pair.to_be_bytes());
    key
}

/// Measures, or reads for another process that does.
///
/// # Errors
/// If the store fails, or a reader has seen anything wrong.
pub fn run(options: &BesideOptions) -> Result<()> {
    match &options.read {
        Some(directory) => read(options, directory),
        None => write(options),
    }
}

/// The writer, and what it has written.
struct Writer<'o> {
    options: &'o BesideOptions,
    db: Database,
    keyspace: Keyspace,
    rng: Rng,
    /// The version of each pair.
    versions: Vec<u32>,
}

impl Writer<'_> {
    fn put(&mut self, pair: u64) -> Result<()> {
        let values = self.options.values()?;
        let version = &mut self.versions[pair as usize];
        *version += 1;
        let (mut batch, mut value) = (self.db.batch(), Vec::new());
        for half in 0..2 {
            let key = key_of(pair, half);
            values.fill(&key, *version, &mut value);
            batch.insert(&self.keyspace, key, &value);
        }
        Ok(batch.commit()?)
    }

    /// Writes for the time of a run. Returns batches per second.
    fn run(&mut self) -> Result<f64> {
        let (began, mut batches) = (Instant::now(), 0_u64);
        while began.elapsed().as_secs_f64() < self.options.seconds {
            for _ in 0..64 {
                let pair = self.rng.below(self.options.pairs());
                self.put(pair)?;
            }
            batches += 64;
        }
        Ok(batches as f64 / began.elapsed().as_secs_f64())
    }
}

fn write(options: &BesideOptions) -> Result<()> {
    let workspace = Workspace::create(options.dir.as_deref())?;
    let path = workspace.path("store");
    let builder = Database::builder(&path).memory_budget_bytes(options.memory);
    let db = builder.memtable_bytes(options.memtable).open()?;
    let keyspace = db.keyspace("beside", KeyspaceOptions::default())?;
    let versions = vec![0; options.pairs() as usize];
    let rng = Rng::stream(options.seed, 0);
    let mut writer = Writer { options, db, keyspace, rng, versions };
    (0..options.pairs()).try_for_each(|pair| writer.put(pair))?;
    let before = writer.run()?;
    if options.stream {
        return follow(options, writer, before);
    }
    let readers = (0..options.readers).map(|n| Reader::start(options, &path, n));
    let readers = readers.collect::<Result<Vec<_>>>()?;
    let beside = writer.run()?;
    let seen = readers.into_iter().map(Reader::end).collect::<Result<Vec<_>>>()?;
    let after = writer.run()?;
    print(options, [before, beside, after], &seen)
}

/// Writes beside a thread that takes every batch from the stream of changes, and verifies it.
fn follow(options: &BesideOptions, mut writer: Writer<'_>, before: f64) -> Result<()> {
    let (db, ends) = (writer.db.clone(), AtomicBool::new(false));
    let mut changes = db.changes(db.stats().sequence_number + 1)?;
    let mut stream = Stream { values: options.values()?, versions: writer.versions.clone() };
    let (beside, commits, seconds) = thread::scope(|scope| {
        let ends = &ends;
        let following = scope.spawn(move || {
            let (began, mut commits) = (Instant::now(), 0_u64);
            loop {
                let is_last = ends.load(Ordering::Acquire);
                match changes.next_within(Duration::from_millis(10))? {
                    Some(commit) => stream.take(&commit)?,
                    None if is_last => return Ok((commits, began.elapsed().as_secs_f64())),
                    None => continue,
                }
                commits += 1;
            }
        });
        let beside = writer.run();
        ends.store(true, Ordering::Release);
        let followed: Result<(u64, f64)> = following.join().expect("the follower does not panic");
        let (commits, seconds) = followed?;
        anyhow::Ok((beside?, commits, seconds))
    })?;
    let after = writer.run()?;
    let (alone, rate) = (f64::midpoint(before, after), commits as f64 / seconds);
    let (writer_ratio, stream_ratio) = (beside / alone, rate / alone);
    let mut out = io::stdout().lock();
    if options.json {
        writeln!(out, "{}", json!({ "environment": environment::describe() }))?;
        let line = json!({
            "suite": "beside", "subject": "rhumb", "stream": true, "seconds": options.seconds,
            "keys": options.keys, "value_bytes": options.value_size,
            "batches_per_second_before": before, "batches_per_second_beside": beside,
            "batches_per_second_after": after, "stream_batches_per_second": rate,
            "writer_ratio": writer_ratio, "stream_ratio": stream_ratio,
        });
        return Ok(writeln!(out, "{line}")?);
    }
    writeln!(
        out,
        "writer, batches of two a second: {before:.0} alone, {beside:.0} beside its stream, \
         {after:.0} alone again: {writer_ratio:.3}; the stream: {rate:.0}, all right: \
         {stream_ratio:.3} of the writer alone"
    )?;
    Ok(())
}

/// What the stream has shown.
struct Stream {
    values: Values,
    versions: Vec<u32>,
}

impl Stream {
    /// Verifies a batch: both halves are there, and it is the next of its pair.
    fn take(&mut self, commit: &Commit) -> Result<()> {
        let (mut pair, mut halves) = (0, 0);
        for write in commit.writes() {
            let Change::Insert { key, value } = write.change else {
                bail!("number {} is no insertion", write.seq);
            };
            let number = key.get(1..).and_then(|key| key.try_into().ok()).map(u64::from_be_bytes);
            pair = number.context("a key of another length")?;
            let version = self.values.version_of(key, value);
            let expected = self.versions.get(pair as usize).map(|before| before + 1);
            ensure!(version == expected, "pair {pair}: {version:?}, where {expected:?} is next");
            halves += 1;
        }
        ensure!(halves == 2, "a batch of {halves} writes");
        self.versions[pair as usize] += 1;
        Ok(())
    }
}

/// A process that reads.
struct Reader(Child);

impl Reader {
    fn start(options: &BesideOptions, path: &Path, n: u32) -> Result<Self> {
        let program = env::current_exe().context("where is this program?")?;
        let mut command = Command::new(program);
        command.args(["bench", "beside", "--read"]).arg(path);
        for (name, value) in [
            ("--keys", options.keys),
            ("--value-size", options.value_size as u64),
            ("--memory", options.memory),
            ("--pause-ms", options.pause_ms),
            ("--seed", options.seed),
            ("--readers", u64::from(n) + 1),
        ] {
            command.arg(name).arg(value.to_string());
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Ok(Self(child.context("cannot start a reader")?))
    }

    /// Ends the reader. Returns its figures.
    fn end(mut self) -> Result<Json> {
        drop(self.0.stdin.take());
        let mut line = String::new();
        let out = self.0.stdout.take().context("a pipe")?;
        BufReader::new(out).read_line(&mut line)?;
        ensure!(self.0.wait()?.success(), "a reader failed");
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a reader has seen.
struct Seen<'o> {
    options: &'o BesideOptions,
    values: Values,
    versions: Vec<u32>,
    reads: u64,
}

impl Seen<'_> {
    fn check(&mut self, db: &Database, keyspace: &Keyspace, rng: &mut Rng) -> Result<()> {
        let snapshot = db.snapshot();
        let reader = snapshot.keyspace(keyspace)?;
        for _ in 0..LOOKED_AT {
            let pair = rng.below(self.options.pairs());
            let mut version = None;
            for half in 0..2 {
                let key = key_of(pair, half);
                let value = reader.get(key)?.with_context(|| format!("pair {pair} is gone"))?;
                let found = self.values.version_of(&key, &value);
                let found = found.with_context(|| format!("pair {pair} has a wrong value"))?;
                ensure!(version.is_none_or(|other| other == found), "half a batch of pair {pair}");
                version = Some(found);
            }
            let (found, seen) = (version.unwrap_or(0), &mut self.versions[pair as usize]);
            ensure!(found >= *seen, "pair {pair} goes back from {seen} to {found}");
            *seen = found;
            self.reads += 2;
        }
        let from = key_of(rng.below(self.options.pairs()), 0);
        for entry in reader.range(&from[..]..).take(LOOKED_AT as usize) {
            let (key, value) = entry?;
            ensure!(self.values.version_of(&key, &value).is_some(), "a wrong value in a scan");
            self.reads += 1;
        }
        Ok(())
    }
}

fn read(options: &BesideOptions, directory: &Path) -> Result<()> {
    let ends = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&ends);
    thread::spawn(move || {
        // The other process closes it, or is gone.
        let _ = io::stdin().lock().read(&mut [0]);
        end.store(true, Ordering::Relaxed);
    });
    let builder = Database::builder(directory).memory_budget_bytes(options.memory);
    let db = builder.open_read_only()?;
    let keyspace = db.keyspace("beside", KeyspaceOptions::default())?;
    let versions = vec![0; options.pairs() as usize];
    let mut seen = Seen { options, values: options.values()?, versions, reads: 0 };
    let mut rng = Rng::stream(options.seed, u64::from(options.readers));
    let (mut times, mut resident) = (Vec::new(), Vec::new());
    while !ends.load(Ordering::Relaxed) {
        let began = Instant::now();
        db.catch_up()?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
        seen.check(&db, &keyspace, &mut rng)?;
        resident.push(environment::resident_bytes().unwrap_or(0));
        thread::sleep(Duration::from_millis(options.pause_ms));
    }
    times.sort_by(f64::total_cmp);
    let at = |quantile: f64| times.get((times.len() as f64 * quantile) as usize).copied();
    let (first, second) = resident.split_at(resident.len() / 2);
    let most = |part: &[u64]| part.iter().copied().max().unwrap_or(0);
    let line = json!({
        "catch_ups": times.len(), "reads": seen.reads, "catch_up_ms_p50": at(0.5),
        "catch_up_ms_p99": at(0.99), "catch_up_ms_max": times.last(),
        "resident_bytes_max_first_half": most(first), "resident_bytes_max": most(second),
        "open_files": db.stats().open_files, "memtable_bytes": db.stats().memtable_bytes,
    });
    writeln!(io::stdout().lock(), "{line}")?;
    Ok(())
}

fn print(options: &BesideOptions, speeds: [f64; 3], readers: &[Json]) -> Result<()> {
    let mut out = io::stdout().lock();
    let [before, beside, after] = speeds;
    let ratio = beside / f64::midpoint(before, after);
    if options.json {
        writeln!(out, "{}", json!({ "environment": environment::describe() }))?;
        let line = json!({
            "suite": "beside", "subject": "rhumb", "seconds": options.seconds,
            "keys": options.keys, "value_bytes": options.value_size,
            "pause_ms": options.pause_ms, "batches_per_second_before": before,
            "batches_per_second_beside": beside, "batches_per_second_after": after,
            "ratio": ratio, "readers": readers,
        });
        writeln!(out, "{line}")?;
        return Ok(());
    }
    writeln!(
        out,
        "writer, batches of two a second: {before:.0} alone, {beside:.0} beside {} readers, \
         {after:.0} alone again: {ratio:.3}",
        readers.len()
    )?;
    for (n, reader) in (1..).zip(readers) {
        let number = |name: &str| reader[name].as_f64().unwrap_or(0.0);
        let mib = |name: &str| number(name) / f64::from(1 << 20);
        writeln!(
            out,
            "reader {n}: {} states, {} reads, all right; catching up takes {:.1} ms, P99 {:.1}, at \
             most {:.1}; resident at most {:.1} MiB in the first half, {:.1} in the second",
            number("catch_ups"),
            number("reads"),
            number("catch_up_ms_p50"),
            number("catch_up_ms_p99"),
            number("catch_up_ms_max"),
            mib("resident_bytes_max_first_half"),
            mib("resident_bytes_max")
        )?;
    }
    Ok(())
}
