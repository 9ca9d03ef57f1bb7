//! The loops that are timed, compiled for each map, and the verification of its contents.
//!
//! Every key is drawn before the clock starts and lies beside the next one, so that the harness
//! itself never waits for memory; every answer is held against what it must be.

use anyhow::{Result, ensure};

use super::{
    case::Case,
    subject::{Changes, Counts, Map, Session, Tally, value_of},
    workload::{HOT_RANGES, Workload},
};
use crate::{
    choose::{ZIPF_EXPONENT, Zipf},
    drive::{Course, Measured, OnTick, Worker, run as drive},
    random::{Rng, mix},
};

/// Keys that a read-only workload draws before the clock starts and then goes through again and
/// again: several times what a last-level cache holds.
const DRAWS: usize = 1 << 22;

/// Keys of a batched lookup.
pub(super) const BATCH_KEYS: usize = 64;

/// Entries of a scan.
const SCAN_ENTRIES: usize = 100;

/// Entries that the verification reads at a time.
const VERIFY_ENTRIES: usize = 1000;

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Lookups, batches or scans until the time is over.
    Read,
    /// The operations of one round.
    Round(usize),
    /// Lookups of everything loaded, and of what the first rounds of this number have inserted,
    /// until the time is over.
    ReadAfter(usize),
    /// Removes nine in ten of all keys.
    RemoveMost,
}

/// A task for the workers of a run.
pub struct Task<'a> {
    pub(super) case: &'a Case<'a>,
    pub(super) step: Step,
    pub(super) course: Course,
    pub(super) tally: &'a Tally,
}

/// Whether [`Step::RemoveMost`] leaves `key`.
pub(super) fn is_kept(key: u64) -> bool {
    mix(key ^ 0x6b65_6570).is_multiple_of(10)
}

/// Runs a task on every worker of its course.
pub(super) fn perform<M: Map>(map: &M, task: &Task<'_>, on_tick: OnTick<'_>) -> Result<Measured> {
    drive(&task.course, on_tick, |worker| {
        let mut session = map.session();
        let mut counts = Counts::default();
        match task.step {
            Step::Read => match task.case.workload {
                Workload::Batch64 => batches(task.case, worker, &mut session, &mut counts),
                Workload::Scan100 => scans(task.case, worker, &mut session, &mut counts),
                _ => lookups(task, worker, &mut session, &mut counts),
            },
            Step::ReadAfter(_) => lookups(task, worker, &mut session, &mut counts),
            Step::Round(round) => operations(task, round, worker, &mut session, &mut counts),
            Step::RemoveMost => removals(task.case, worker, &mut session, &mut counts),
        }?;
        task.tally.add(counts);
        Ok(())
    })
}

/// Draws keys that are in the map.
fn draw(task: &Task<'_>, rng: &mut Rng) -> Vec<u64> {
    let loaded = &task.case.loaded;
    let inserted: &[u64] = match task.step {
        Step::ReadAfter(rounds) => task.case.inserted_by(rounds),
        _ => Default::default(),
    };
    let count = loaded.len() + inserted.len();
    let zipf = (task.case.workload == Workload::LookupZipf)
        .then(|| Zipf::new(count as u64, ZIPF_EXPONENT));
    let place = |rng: &mut Rng| match &zipf {
        // Popular keys are scattered over the domain.
        Some(zipf) => (mix(zipf.draw(rng)) % count as u64) as usize,
        None => rng.below(count as u64) as usize,
    };
    let draws = DRAWS.min(count.next_multiple_of(BATCH_KEYS) * 8);
    let key = |i: usize| loaded.get(i).copied().unwrap_or_else(|| inserted[i - loaded.len()]);
    (0..draws).map(|_| key(place(rng))).collect()
}

fn lookups(
    task: &Task<'_>,
    worker: &mut Worker<'_>,
    session: &mut impl Session,
    counts: &mut Counts,
) -> Result<()> {
    let keys = draw(task, &mut worker.rng);
    worker.begin();
    loop {
        for &key in &keys {
            if !worker.goes_on() {
                return Ok(());
            }
            let answer = worker.time(1, || Ok(session.get(key)))?;
            counts.judge(key, answer);
        }
    }
}

fn batches(
    case: &Case<'_>,
    worker: &mut Worker<'_>,
    session: &mut impl Session,
    counts: &mut Counts,
) -> Result<()> {
    let count = DRAWS.min(case.loaded.len().next_multiple_of(BATCH_KEYS) * 8);
    let draw = |_| case.loaded[worker.rng.below(case.loaded.len() as u64) as usize];
    let keys: Vec<u64> = (0..count).map(draw).collect();
    let mut answers = Vec::with_capacity(BATCH_KEYS);
    worker.begin();
    loop {
        for batch in keys.chunks_exact(BATCH_KEYS) {
            if !worker.goes_on() {
                return Ok(());
            }
            worker.time(BATCH_KEYS as u64, || {
                answers.clear();
                session.get_many(batch, &mut answers);
                ensure!(answers.len() == BATCH_KEYS, "a batch left keys unanswered");
                Ok(())
            })?;
            for (&key, &answer) in batch.iter().zip(&answers) {
                counts.judge(key, answer);
            }
        }
    }
}

fn scans(
    case: &Case<'_>,
    worker: &mut Worker<'_>,
    session: &mut impl Session,
    counts: &mut Counts,
) -> Result<()> {
    let loaded = &case.loaded;
    let count = (DRAWS / 4).min(loaded.len() * 8);
    let digests: Vec<u64> = std::iter::once(0)
        .chain(loaded.iter().scan(0, |sum: &mut u64, &key| {
            *sum = sum.wrapping_add(digest(key, value_of(key)));
            Some(*sum)
        }))
        .collect();
    let start = |rank: usize| {
        let end = (rank + SCAN_ENTRIES).min(loaded.len());
        let digest = digests[end].wrapping_sub(digests[rank]);
        Start { rank: rank as u32, len: (end - rank) as u32, from: loaded[rank], digest }
    };
    let starts: Vec<Start> =
        (0..count).map(|_| start(worker.rng.below(loaded.len() as u64) as usize)).collect();
    drop(digests);
    let mut entries = Vec::with_capacity(SCAN_ENTRIES);
    worker.begin();
    loop {
        for start in &starts {
            if !worker.goes_on() {
                return Ok(());
            }
            worker.time(1, || {
                entries.clear();
                session.scan(start.from, SCAN_ENTRIES, &mut entries);
                Ok(())
            })?;
            if start.is_met_by(&entries) {
                counts.checked += u64::from(start.len);
            } else {
                let expected = &loaded[start.rank as usize..][..start.len as usize];
                judge_scan(expected, &entries, counts);
            }
        }
    }
}

/// A scan to be made, and what it must yield.
struct Start {
    /// Of the first key among those that were loaded.
    rank: u32,
    len: u32,
    from: u64,
    /// The sum of the entries' digests.
    digest: u64,
}

/// A word that depends on all bits of an entry; values are random, so that no two entries change
/// theirs for each other's and keep the sum.
fn digest(key: u64, value: u64) -> u64 {
    key ^ value.rotate_left(32)
}

impl Start {
    /// Whether the entries are those that must come. Reads nothing else, because looking every key
    /// up in the harness's memory would take as long as a good scan.
    fn is_met_by(&self, entries: &[(u64, u64)]) -> bool {
        let is_first = entries.first().is_none_or(|(key, _)| *key == self.from);
        let ascends =
            entries.windows(2).fold(true, |ascends, pair| ascends & (pair[0].0 < pair[1].0));
        let sum = |sum: u64, &(key, value): &(u64, u64)| sum.wrapping_add(digest(key, value));
        let is_same = entries.iter().fold(0, sum) == self.digest;
        is_first && ascends && is_same && entries.len() == self.len as usize
    }
}

/// Holds `entries` against the keys that must come, both ascending.
fn judge_scan(expected: &[u64], entries: &[(u64, u64)], counts: &mut Counts) {
    counts.checked += expected.len() as u64;
    let is_right = |(&key, entry): (&u64, &(u64, u64))| *entry == (key, value_of(key));
    if expected.len() == entries.len() && expected.iter().zip(entries).all(is_right) {
        return;
    }
    let mut left = expected.iter().copied().peekable();
    for &(key, value) in entries {
        while left.next_if(|&next| next < key).is_some() {
            counts.missing += 1;
        }
        if left.next_if_eq(&key).is_none() {
            counts.ghosts += 1;
        } else if value != value_of(key) {
            counts.wrong += 1;
        }
    }
    counts.missing += left.count() as u64;
}

/// One worker's operations of a round, in order.
struct Plan {
    keys: Vec<u64>,
    /// Whether each of `keys` is inserted; otherwise it is looked up.
    inserts: Vec<bool>,
}

impl Plan {
    fn new(case: &Case<'_>, round: usize, worker: &mut Worker<'_>) -> Self {
        let (inserts, threads) = (case.inserts(), worker.threads);
        let before = round * inserts;
        let of_round = &case.fresh[before..before + inserts];
        let mine: Vec<u64> = match case.workload {
            // All threads append at the end, not each in a stretch of its own, and all work in
            // the hot range.
            Workload::Append | Workload::Dynamic => {
                of_round.iter().skip(worker.id).step_by(threads).copied().collect()
            }
            _ => {
                let part = inserts.div_ceil(threads).max(1);
                of_round.chunks(part).nth(worker.id).unwrap_or_default().to_vec()
            }
        };
        let operations = case.operations / threads;
        match case.workload {
            Workload::Dynamic => Self::hot(case, &mine, &mut worker.rng),
            _ => Self::mixed(case, before, &mine, operations, &mut worker.rng),
        }
    }

    /// The inserts spread at random among lookups of what is certainly there: loaded, inserted in
    /// an earlier round, or inserted by this worker before.
    fn mixed(
        case: &Case<'_>,
        before: usize,
        mine: &[u64],
        operations: usize,
        rng: &mut Rng,
    ) -> Self {
        let operations = operations.max(mine.len());
        let mut plan =
            Self { keys: Vec::with_capacity(operations), inserts: Vec::with_capacity(operations) };
        let mut next = 0;
        for i in 0..operations {
            let (left, inserts_left) = ((operations - i) as u64, (mine.len() - next) as u64);
            let is_insert = rng.below(left) < inserts_left;
            let key = if is_insert {
                next += 1;
                mine[next - 1]
            } else {
                let loaded = case.loaded.len();
                match rng.below((loaded + before + next) as u64) as usize {
                    i if i < loaded => case.loaded[i],
                    i if i < loaded + before => case.fresh[i - loaded],
                    i => mine[i - loaded - before],
                }
            };
            plan.keys.push(key);
            plan.inserts.push(is_insert);
        }
        plan
    }

    /// For each insert a lookup: 98 in 100 of them near the key just inserted, of zipfian
    /// popularity, so that 99% of all operations are within a hundredth of the keys.
    fn hot(case: &Case<'_>, mine: &[u64], rng: &mut Rng) -> Self {
        let (mut keys, mut inserts) = (Vec::new(), Vec::new());
        let loaded = &case.loaded;
        let range = (loaded.len() / HOT_RANGES).max(1);
        let zipf = Zipf::new(range as u64, ZIPF_EXPONENT);
        for &key in mine {
            let rank = if rng.below(100) < 2 {
                rng.below(loaded.len() as u64) as usize
            } else {
                let start = loaded.partition_point(|&other| other < key) / range * range;
                start + (mix(zipf.draw(rng)) % range as u64) as usize
            };
            // In either order, so that the operation that is timed is not always of the same kind.
            let mut pair = [(key, true), (loaded[rank.min(loaded.len() - 1)], false)];
            if rng.below(2) == 0 {
                pair.reverse();
            }
            for (key, is_insert) in pair {
                keys.push(key);
                inserts.push(is_insert);
            }
        }
        Self { keys, inserts }
    }
}

fn operations(
    task: &Task<'_>,
    round: usize,
    worker: &mut Worker<'_>,
    session: &mut impl Session,
    counts: &mut Counts,
) -> Result<()> {
    let plan = Plan::new(task.case, round, worker);
    let mut changes = Changes::new(session.moved());
    worker.begin();
    for (&key, &is_insert) in plan.keys.iter().zip(&plan.inserts) {
        if is_insert {
            let is_new = worker.sample_write(|| Ok(session.insert(key, value_of(key))))?;
            counts.ghosts += u64::from(!is_new);
            changes.note(session.moved(), worker.last_write_ns());
        } else {
            let answer = worker.time(1, || Ok(session.get(key)))?;
            counts.judge(key, answer);
        }
    }
    task.tally.add_changes(changes);
    Ok(())
}

fn removals(
    case: &Case<'_>,
    worker: &mut Worker<'_>,
    session: &mut impl Session,
    counts: &mut Counts,
) -> Result<()> {
    let all = case.loaded.iter().chain(case.inserted()).copied();
    let mine = all.skip(worker.id).step_by(worker.threads);
    let mut keys: Vec<u64> = mine.filter(|&key| !is_kept(key)).collect();
    worker.rng.shuffle(&mut keys);
    worker.begin();
    for &key in &keys {
        let was_there = worker.sample_write(|| Ok(session.remove(key)))?;
        counts.missing += u64::from(!was_there);
    }
    Ok(())
}

/// Looks up every key of `expected`, which is sorted, and each of `absent`, and scans the map.
pub(super) fn verify(session: &mut impl Session, expected: &[u64], absent: &[u64], tally: &Tally) {
    let mut counts = Counts::default();
    for &key in expected {
        let answer = session.get(key);
        counts.judge(key, answer);
    }
    for &key in absent {
        counts.ghosts += u64::from(session.get(key).is_some());
    }
    let (mut from, mut rest) = (0, expected);
    let mut entries = Vec::with_capacity(VERIFY_ENTRIES);
    loop {
        entries.clear();
        session.scan(from, VERIFY_ENTRIES, &mut entries);
        // What is before the first key asked for counts as a ghost, like what is not in order.
        let last = entries.last().map(|entry| entry.0).filter(|&last| last >= from);
        let ends = entries.len() < VERIFY_ENTRIES || last.is_none_or(|last| last == u64::MAX);
        let count = match last {
            Some(last) if !ends => rest.partition_point(|&key| key <= last),
            _ => rest.len(),
        };
        let (expected, next) = rest.split_at(count);
        judge_scan(expected, &entries, &mut counts);
        rest = next;
        match last {
            Some(last) if !ends => from = last + 1,
            _ => break,
        }
    }
    tally.add(counts);
}
