//! The workloads: what each does to a store, and how its answers are verified.

use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::{
    contents::{Contents, Writer},
    drive::{Course, Measured, OnTick, Worker, run},
    random::Rng,
    subject::{OnEntry, Session, Store},
};

/// Keys in one multi-get.
pub const MULTI_GET_KEYS: usize = 32;

/// Entries visited after a seek.
pub const SEEK_ENTRIES: u32 = 100;

/// How many times as long as other workloads an overwrite may take: compactions need a while to
/// reach their steady state, but a slow subject shall not hold up all others.
const OVERWRITE_TIMES: u32 = 10;

/// How many keys a reader draws before the clock starts. It goes round when they are used up.
const DRAWS: usize = 1 << 20;

/// As [`DRAWS`], for keys that are slow to make or to read.
pub(crate) const DRAWS_SLOW: usize = 1 << 18;

/// Draws for each record at most: small sets need no long preparation.
const DRAWS_PER_RECORD: usize = 16;

/// One kind of work of the engine suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Workload {
    /// Writes all keys in ascending order into an empty store.
    FillSeq,
    /// Writes all keys in random order into an empty store.
    FillRandom,
    /// Reads keys that are there.
    ReadRandom,
    /// Reads keys that are not there.
    ReadMissing,
    /// Goes to a key that is there and visits 100 entries from it.
    Seek100,
    /// Visits all entries.
    Scan,
    /// Reads 32 keys at once.
    MultiGet,
    /// Reads, with a cache of a twentieth of the data and no help from the page cache.
    ReadRandomCold,
    /// Reads 32 keys at once under the same conditions.
    MultiGetCold,
    /// Nine reads to one overwrite.
    Mixed90,
    /// One read to one overwrite: the long run that shows stalls, memory and space.
    Mixed50,
    /// Overwrites random keys, as many as there are, or for ten times as long as the others.
    Overwrite,
}

/// Which state of the store a workload needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// An empty store, filled in order and thrown away.
    FillSorted,
    /// An empty store, filled in random order and kept.
    Fill,
    /// Everything in the cache.
    Warm,
    /// Little in the cache.
    Cold,
    /// Everything in the cache, and versions change.
    Change,
}

impl Workload {
    /// Every workload, in the order in which they run.
    pub const ALL: [Self; 12] = [
        Self::FillSeq,
        Self::FillRandom,
        Self::ReadRandom,
        Self::ReadMissing,
        Self::Seek100,
        Self::Scan,
        Self::MultiGet,
        Self::ReadRandomCold,
        Self::MultiGetCold,
        Self::Mixed90,
        Self::Mixed50,
        Self::Overwrite,
    ];

    /// The name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::FillSeq => "fillseq",
            Self::FillRandom => "fillrandom",
            Self::ReadRandom => "readrandom",
            Self::ReadMissing => "readmissing",
            Self::Seek100 => "seek100",
            Self::Scan => "scan",
            Self::MultiGet => "multiget",
            Self::ReadRandomCold => "readrandom_cold",
            Self::MultiGetCold => "multiget_cold",
            Self::Mixed90 => "mixed90",
            Self::Mixed50 => "mixed50",
            Self::Overwrite => "overwrite",
        }
    }

    /// What its rate counts.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Scan | Self::MultiGet | Self::MultiGetCold => "keys/s",
            _ => "ops/s",
        }
    }

    /// What the CPU time of one unit counts.
    #[must_use]
    pub fn cpu_unit(self) -> &'static str {
        if self.unit() == "keys/s" { "ns/key" } else { "ns/op" }
    }

    /// The state that it needs.
    #[must_use]
    pub fn stage(self) -> Stage {
        match self {
            Self::FillSeq => Stage::FillSorted,
            Self::FillRandom => Stage::Fill,
            Self::ReadRandom | Self::ReadMissing | Self::Seek100 | Self::Scan | Self::MultiGet => {
                Stage::Warm
            }
            Self::ReadRandomCold | Self::MultiGetCold => Stage::Cold,
            Self::Mixed90 | Self::Mixed50 | Self::Overwrite => Stage::Change,
        }
    }

    /// Whether it belongs to a run that names no workloads.
    #[must_use]
    pub fn is_default(self) -> bool {
        self != Self::Mixed50
    }

    /// One in how many operations is timed.
    fn sample_every(self) -> u64 {
        match self {
            Self::ReadRandom | Self::ReadMissing => 8,
            _ => 1,
        }
    }

    /// When it is stopped, if it has not ended by itself.
    fn time_limit(self, time: Duration) -> Option<Duration> {
        match self {
            // What follows needs all of the keys.
            Self::FillSeq | Self::FillRandom => None,
            Self::Overwrite => Some(time * OVERWRITE_TIMES),
            _ => Some(time),
        }
    }
}

/// A store to work on, and what it holds.
pub struct Field<'a> {
    /// The store.
    pub store: &'a dyn Store,
    /// What it holds.
    pub contents: &'a Contents<'a>,
    /// How many writes go into one transaction.
    pub write_group: usize,
}

/// Runs `workload` for `time` (or to its end, if it has one) and verifies everything it reads.
///
/// # Errors
/// If the store fails, or an answer is wrong.
pub fn perform(
    workload: Workload,
    field: &Field<'_>,
    threads: usize,
    time: Duration,
    seed: u64,
    on_tick: OnTick<'_>,
) -> Result<Measured> {
    let records = field.contents.len();
    ensure!(records >= threads, "{records} keys are too few for {threads} threads");
    if workload.stage() == Stage::Change {
        field.contents.expect_overwrites();
    }
    let course = Course {
        threads,
        time: workload.time_limit(time),
        sample_every: workload.sample_every(),
        seed: seed ^ ((workload as u64) << 32),
    };
    run(&course, on_tick, |worker| match workload {
        Workload::FillSeq => fill(field, worker, (0..records as u32).collect()),
        Workload::FillRandom => fill(field, worker, field.contents.set.order.clone()),
        Workload::ReadRandom => read(field, worker, DRAWS),
        Workload::ReadRandomCold => read(field, worker, DRAWS_SLOW),
        Workload::ReadMissing => read_missing(field, worker),
        Workload::Seek100 => seek(field, worker),
        Workload::Scan => scan(field, worker),
        Workload::MultiGet => multi_get(field, worker, DRAWS),
        Workload::MultiGetCold => multi_get(field, worker, DRAWS_SLOW),
        Workload::Mixed90 => mixed(field, worker, 90),
        Workload::Mixed50 => mixed(field, worker, 50),
        Workload::Overwrite => overwrite(field, worker),
    })
}

/// Reads every entry once and holds it against what was written.
///
/// # Errors
/// If an entry is missing, wrong, out of order or was never written.
pub fn verify_all(field: &Field<'_>) -> Result<()> {
    scan_all(field.contents, field.store.session()?.as_mut())
}

/// Brings every block into the cache: visits all entries, then reads one key in eight by itself.
///
/// # Errors
/// If the store fails, or an answer is wrong.
pub fn warm_up(field: &Field<'_>) -> Result<()> {
    let contents = field.contents;
    let mut session = field.store.session()?;
    scan_all(contents, session.as_mut())?;
    for rank in (0..contents.len() as u32).step_by(8) {
        read_one(contents, session.as_mut(), rank, contents.key(rank))?;
    }
    Ok(())
}

/// Records drawn ahead of the clock, with their keys side by side, so that the harness itself
/// never waits for memory.
pub(crate) struct Draws {
    pub(crate) ranks: Vec<u32>,
    keys: Vec<u8>,
    ends: Vec<usize>,
}

impl Draws {
    fn new(contents: &Contents<'_>, ranks: Vec<u32>) -> Self {
        let mut draws = Self { keys: Vec::new(), ends: Vec::with_capacity(ranks.len()), ranks };
        for &rank in &draws.ranks {
            draws.keys.extend_from_slice(contents.key(rank));
            draws.ends.push(draws.keys.len());
        }
        draws
    }

    pub(crate) fn random(contents: &Contents<'_>, count: usize, rng: &mut Rng) -> Self {
        let n = contents.len();
        let count = Self::count_for(n, count);
        Self::new(contents, (0..count).map(|_| rng.below(n as u64) as u32).collect())
    }

    fn absent(contents: &Contents<'_>, count: usize, rng: &mut Rng) -> Self {
        let count = Self::count_for(contents.len(), count);
        let mut draws = Self { ranks: vec![0; count], keys: Vec::new(), ends: Vec::new() };
        for _ in 0..count {
            contents.set.keys.absent(rng, &mut draws.keys);
            draws.ends.push(draws.keys.len());
        }
        draws
    }

    /// At most `count`, in whole multi-gets.
    fn count_for(records: usize, count: usize) -> usize {
        count.min((records * DRAWS_PER_RECORD).next_multiple_of(MULTI_GET_KEYS))
    }

    #[inline]
    pub(crate) fn get(&self, i: usize) -> (u32, &[u8]) {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        (self.ranks[i], &self.keys[start..self.ends[i]])
    }

    pub(crate) fn len(&self) -> usize {
        self.ranks.len()
    }
}

fn fill(field: &Field<'_>, worker: &mut Worker<'_>, mut ranks: Vec<u32>) -> Result<()> {
    let part = ranks.len().div_ceil(worker.threads);
    let end = ranks.len().min((worker.id + 1) * part);
    ranks.truncate(end);
    ranks.drain(..end.min(worker.id * part));
    let draws = Draws::new(field.contents, ranks);
    let mut session = field.store.session()?;
    let mut writer = Writer::new(field.contents, field.write_group);
    worker.begin();
    for i in 0..draws.len() {
        let (rank, key) = draws.get(i);
        worker.time_write(|| writer.insert(session.as_mut(), rank, key))?;
        if !worker.goes_on() {
            break;
        }
    }
    writer.flush(session.as_mut())
}

fn read(field: &Field<'_>, worker: &mut Worker<'_>, count: usize) -> Result<()> {
    let contents = field.contents;
    let draws = Draws::random(contents, count, &mut worker.rng);
    let mut session = field.store.session()?;
    worker.begin();
    loop {
        for i in 0..draws.len() {
            if !worker.goes_on() {
                return Ok(());
            }
            let (rank, key) = draws.get(i);
            worker.time(1, || read_one(contents, session.as_mut(), rank, key))?;
        }
    }
}

#[inline]
fn read_one(
    contents: &Contents<'_>,
    session: &mut dyn Session,
    rank: u32,
    key: &[u8],
) -> Result<()> {
    let lowest = contents.lowest(rank);
    if !session.get(key, &mut |value| contents.verify(rank, key, value, lowest))? {
        bail!("key {} is missing", key.escape_ascii());
    }
    Ok(())
}

fn read_missing(field: &Field<'_>, worker: &mut Worker<'_>) -> Result<()> {
    let draws = Draws::absent(field.contents, DRAWS_SLOW, &mut worker.rng);
    let mut session = field.store.session()?;
    worker.begin();
    loop {
        for i in 0..draws.len() {
            if !worker.goes_on() {
                return Ok(());
            }
            let (_, key) = draws.get(i);
            if worker.time(1, || session.get(key, &mut |_| Ok(())))? {
                bail!("key {} was found but never written", key.escape_ascii());
            }
        }
    }
}

pub(crate) fn seek(field: &Field<'_>, worker: &mut Worker<'_>) -> Result<()> {
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
            worker.time(1, || scan_between(contents, session.as_mut(), key, rank, end))?;
        }
    }
}

/// Visits the records `first..end`, starting at `from`, and verifies that they and no others come.
fn scan_between(
    contents: &Contents<'_>,
    session: &mut dyn Session,
    from: &[u8],
    first: u32,
    end: u32,
) -> Result<()> {
    let entries = (end - first) as usize;
    scan_by(contents, first, end, |on_entry| session.scan_some(from, entries, on_entry))
}

/// Verifies that what `scan` visits are the records `first..end` and no others.
pub(crate) fn scan_by(
    contents: &Contents<'_>,
    first: u32,
    end: u32,
    scan: impl FnOnce(OnEntry<'_>) -> Result<()>,
) -> Result<()> {
    let mut next = first;
    scan(&mut |key, value| {
        if contents.key(next) != key {
            let expected = contents.key(next).escape_ascii();
            bail!("a scan came to key {}, not {expected}", key.escape_ascii());
        }
        contents.verify(next, key, value, contents.lowest(next))?;
        next += 1;
        Ok(next < end)
    })?;
    ensure!(next == end, "a scan ended {} entries early", end - next);
    Ok(())
}

fn scan_all(contents: &Contents<'_>, session: &mut dyn Session) -> Result<()> {
    let count = contents.len() as u32;
    let mut next = 0;
    session.scan(&[], &mut |key, value| {
        if next == count || contents.key(next) != key {
            bail!("a full scan came to key {}, which is not the next", key.escape_ascii());
        }
        contents.verify(next, key, value, contents.lowest(next))?;
        next += 1;
        Ok(true)
    })?;
    ensure!(next == count, "a full scan found {next} of {count} keys");
    Ok(())
}

pub(crate) fn scan(field: &Field<'_>, worker: &mut Worker<'_>) -> Result<()> {
    let mut session = field.store.session()?;
    worker.begin();
    loop {
        worker.time(0, || scan_all(field.contents, session.as_mut()))?;
        worker.count(field.contents.len() as u64);
        if !worker.goes_on() {
            return Ok(());
        }
    }
}

pub(crate) fn multi_get(field: &Field<'_>, worker: &mut Worker<'_>, count: usize) -> Result<()> {
    let contents = field.contents;
    let draws = Draws::random(contents, count, &mut worker.rng);
    let mut session = field.store.session()?;
    let mut keys = Vec::with_capacity(MULTI_GET_KEYS);
    worker.begin();
    loop {
        for first in (0..draws.len()).step_by(MULTI_GET_KEYS) {
            if !worker.goes_on() {
                return Ok(());
            }
            keys.clear();
            keys.extend((first..first + MULTI_GET_KEYS).map(|i| draws.get(i).1));
            worker.time(MULTI_GET_KEYS as u64, || {
                multi_get_one(contents, session.as_mut(), &keys, &draws.ranks[first..])
            })?;
        }
    }
}

fn multi_get_one(
    contents: &Contents<'_>,
    session: &mut dyn Session,
    keys: &[&[u8]],
    ranks: &[u32],
) -> Result<()> {
    let mut answered = 0u32;
    session.multi_get(keys, &mut |i, value| {
        answered |= 1 << i;
        match value {
            Some(value) => contents.verify(ranks[i], keys[i], value, contents.lowest(ranks[i])),
            None => bail!("key {} is missing from a multi-get", keys[i].escape_ascii()),
        }
    })?;
    ensure!(answered == u32::MAX, "a multi-get left keys unanswered");
    Ok(())
}

/// A record that only this worker writes.
fn own_record(worker: &mut Worker<'_>, records: u64) -> u32 {
    let threads = worker.threads as u64;
    let rank = worker.rng.below(records - records % threads);
    (rank - rank % threads) as u32 + worker.id as u32
}

fn overwrite(field: &Field<'_>, worker: &mut Worker<'_>) -> Result<()> {
    let records = field.contents.len() as u64;
    let ranks = (0..records / worker.threads as u64).map(|_| own_record(worker, records)).collect();
    let draws = Draws::new(field.contents, ranks);
    let mut session = field.store.session()?;
    let mut writer = Writer::new(field.contents, field.write_group);
    worker.begin();
    for i in 0..draws.len() {
        let (rank, key) = draws.get(i);
        worker.time_write(|| writer.overwrite(session.as_mut(), rank, key))?;
        if !worker.goes_on() {
            break;
        }
    }
    writer.flush(session.as_mut())
}

fn mixed(field: &Field<'_>, worker: &mut Worker<'_>, read_percent: u64) -> Result<()> {
    let contents = field.contents;
    let records = contents.len() as u64;
    let mut session = field.store.session()?;
    let mut writer = Writer::new(contents, field.write_group);
    let mut commits = contents.commits();
    worker.begin();
    while worker.goes_on() {
        if worker.rng.below(100) < read_percent {
            let rank = worker.rng.below(records) as u32;
            worker.time(1, || read_latest(field, session.as_mut(), rank, &mut commits))?;
        } else {
            let rank = own_record(worker, records);
            worker.time_write(|| writer.overwrite(session.as_mut(), rank, contents.key(rank)))?;
        }
    }
    writer.flush(session.as_mut())
}

/// Reads a record that others write: what was acknowledged before must be seen.
pub(crate) fn read_latest(
    field: &Field<'_>,
    session: &mut dyn Session,
    rank: u32,
    commits: &mut u64,
) -> Result<()> {
    let (contents, key) = (field.contents, field.contents.key(rank));
    let lowest = contents.lowest(rank);
    if field.write_group > 1 {
        let now = contents.commits();
        if now != *commits {
            session.refresh()?;
            *commits = now;
        }
    }
    if !session.get(key, &mut |value| contents.verify(rank, key, value, lowest))? {
        bail!("key {} is missing", key.escape_ascii());
    }
    Ok(())
}
