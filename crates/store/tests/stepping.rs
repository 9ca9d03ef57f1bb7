//! The number of entries that walks step over is bounded for each step, however much was written,
//! overwritten or removed before. These are counts, not times; `RHUMB_POPS` is the number of
//! entries that go through each queue.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Mutex,
        atomic::{AtomicI64, Ordering},
    },
};

use rhumb::{Database, DatabaseBuilder, Keyspace, KeyspaceOptions, MemtableKind, Partitioning};

/// The most entries that one search for a first or last key may step over. Between two living keys
/// are at most two parts that are not recorded together, each of fewer than 16 steps, of which a
/// pass counts four: 32 dead keys, and eight before each of eight passes. A skip list has two
/// versions of each of these 96 keys, and counts those of the eight keys that it reads ahead at
/// each pass. 309 is the most that two million steps have shown, 97 with a learned memtable.
const PASSED_A_POP: u64 = 96 * 2 + 8 * 8 * 2;
/// The most entries that a search may step over on average.
const PASSED_ON_AVERAGE: u64 = 40;
/// The most versions of one key in one source that a walk steps over: eight on each side of the one
/// that its reader sees, before it seeks.
const VERSIONS_A_KEY: u64 = 16;

fn pops() -> u64 {
    std::env::var("RHUMB_POPS").map_or(10_000, |text| text.parse().expect("RHUMB_POPS is a number"))
}

fn open(dir: &tempfile::TempDir) -> DatabaseBuilder {
    Database::builder(dir.path().join("db"))
}

/// Counts the entries that each call steps over.
struct Counted<'a> {
    db: &'a Database,
    before: u64,
    most: u64,
    calls: u64,
    all: u64,
}

impl<'a> Counted<'a> {
    fn new(db: &'a Database) -> Self {
        Self { db, before: db.stats().passed_entries, most: 0, calls: 0, all: 0 }
    }

    fn call<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let result = call();
        let now = self.db.stats().passed_entries;
        let passed = now - std::mem::replace(&mut self.before, now);
        (self.most, self.calls, self.all) =
            (self.most.max(passed), self.calls + 1, self.all + passed);
        result
    }

    #[track_caller]
    fn check(&self) {
        assert!(self.most <= PASSED_A_POP, "one call stepped over {} entries", self.most);
        let average = self.all / self.calls.max(1);
        assert!(average <= PASSED_ON_AVERAGE, "{} of {} on average", average, self.calls);
    }
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn kinds() -> [MemtableKind; 2] {
    [MemtableKind::Learned, MemtableKind::SkipList]
}

/// Pushes at the end and takes the first, with `depth` entries in between.
fn queue(db: &Database, jobs: &Keyspace, depth: u64, count: u64, flush_every: Option<u64>) {
    let mut counted = Counted::new(db);
    for number in 0..count + depth {
        jobs.insert(key(number), number.to_le_bytes()).unwrap();
        if let Some(expected) = number.checked_sub(depth) {
            let (first, value) = counted.call(|| jobs.first_key_value()).unwrap().unwrap();
            assert_eq!((&*first, &*value), (&key(expected)[..], &expected.to_le_bytes()[..]));
            jobs.remove(first).unwrap();
        }
        if flush_every.is_some_and(|every| number % every == every - 1) {
            db.flush().unwrap();
        }
    }
    counted.check();
}

#[test]
fn a_queue_steps_over_few_entries() {
    for kind in kinds() {
        for depth in [0, 1, 1000] {
            let dir = tempfile::tempdir().unwrap();
            let db = open(&dir).memtable_kind(kind).open().unwrap();
            let jobs = db.keyspace("jobs", KeyspaceOptions::default()).unwrap();
            queue(&db, &jobs, depth, pops(), None);
        }
    }
}

#[test]
fn a_queue_steps_over_few_entries_between_flushes() {
    for (depth, every) in [(1, 1000), (700, 500), (3000, 777)] {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir).open().unwrap();
        let jobs = db.keyspace("jobs", KeyspaceOptions::default()).unwrap();
        queue(&db, &jobs, depth, pops(), Some(every));
        db.flush().unwrap();
        drop(jobs);
        // Entries that were taken and put within one memtable have left nothing.
        let stats = db.stats();
        assert!(stats.keyspaces[0].entries < 4 * depth + 4096, "{:?}", stats.keyspaces[0]);
    }
}

#[test]
fn what_came_and_went_in_one_memtable_leaves_nothing() {
    for partitions in [Partitioning::None, Partitioning::PrefixLength(7)] {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir).background_threads(0).open().unwrap();
        let options = KeyspaceOptions { partitions, ..KeyspaceOptions::default() };
        let jobs = db.keyspace("jobs", options).unwrap();
        let entries = || db.stats().keyspaces[0].entries;
        let through = |from: u64| {
            for number in from..from + 1000 {
                jobs.insert(key(number), b"job").unwrap();
                jobs.remove(key(number)).unwrap();
            }
        };
        through(0);
        db.flush().unwrap();
        assert_eq!(entries(), 0);
        // What a table may hold is hidden, and what a snapshot sees stays with what hides it.
        jobs.ingest([(key(10), b"old"), (key(20), b"old")]).unwrap();
        through(0);
        jobs.insert(key(5000), b"seen").unwrap();
        let snapshot = db.snapshot();
        jobs.remove(key(5000)).unwrap();
        db.flush().unwrap();
        assert!(jobs.first_key_value().unwrap().is_none());
        let seen = snapshot
            .keyspace(&jobs)
            .unwrap()
            .iter()
            .map(|pair| pair.unwrap().0.to_vec())
            .collect::<Vec<_>>();
        assert_eq!(seen, [key(5000)]);
        let all = entries();
        assert!((6..=15).contains(&all), "{all} entries");
    }
}

/// Small memtables: flushes and compactions run all the time.
#[test]
fn a_queue_steps_over_few_entries_in_small_memtables() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir).memtable_bytes(64 << 10).open().unwrap();
    let jobs = db.keyspace("jobs", KeyspaceOptions::default()).unwrap();
    queue(&db, &jobs, 100, pops(), None);
}

#[test]
fn a_queue_steps_over_few_entries_while_a_snapshot_lives() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir).memtable_bytes(256 << 10).open().unwrap();
    let jobs = db.keyspace("jobs", KeyspaceOptions::default()).unwrap();
    jobs.insert(key(0), 0_u64.to_le_bytes()).unwrap();
    let snapshot = db.snapshot();
    jobs.remove(key(0)).unwrap();
    let mut counted = Counted::new(&db);
    for number in 1..pops() {
        jobs.insert(key(number), b"job").unwrap();
        let (first, _) = counted.call(|| jobs.pop_first()).unwrap().unwrap();
        assert_eq!(*first, key(number));
        if number % 512 == 0 {
            let (first, _) = counted
                .call(|| snapshot.keyspace(&jobs).unwrap().first_key_value())
                .unwrap()
                .unwrap();
            assert_eq!(*first, key(0), "the snapshot sees what it saw");
        }
    }
    counted.check();
}

#[test]
fn a_stack_and_a_double_ended_queue_step_over_few_entries() {
    for kind in kinds() {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir).memtable_kind(kind).open().unwrap();
        let stack = db.keyspace("stack", KeyspaceOptions::default()).unwrap();
        let mut counted = Counted::new(&db);
        let (mut model, mut next) = (VecDeque::new(), 1_u64 << 40);
        for step in 0..pops() {
            // Up and down, with numbers that are not reused.
            for _ in 0..1 + step % 3 {
                stack.insert(key(next), step.to_le_bytes()).unwrap();
                model.push_back(next);
                next += 1;
            }
            for _ in 0..1 + (step + 1) % 3 {
                let expected = model.pop_back();
                let last = counted.call(|| stack.pop_last()).unwrap();
                assert_eq!(last.map(|(key, _)| key.to_vec()), expected.map(|n| key(n).to_vec()));
            }
        }
        counted.check();

        // Both ends: entries are put in and taken out at either.
        let both = db.keyspace("both", KeyspaceOptions::default()).unwrap();
        let mut counted = Counted::new(&db);
        let (mut model, mut low, mut high) = (VecDeque::new(), 1_u64 << 40, 1_u64 << 40);
        let mut state = 7_u64;
        for _ in 0..pops() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            match state >> 62 {
                0 => {
                    low -= 1;
                    both.insert(key(low), b"low").unwrap();
                    model.push_front(low);
                }
                1 => {
                    both.insert(key(high), b"high").unwrap();
                    model.push_back(high);
                    high += 1;
                }
                2 => {
                    let found = counted.call(|| both.pop_first()).unwrap();
                    let expected = model.pop_front().map(|n| key(n).to_vec());
                    assert_eq!(found.map(|(key, _)| key.to_vec()), expected);
                }
                _ => {
                    let found = counted.call(|| both.pop_last()).unwrap();
                    let expected = model.pop_back().map(|n| key(n).to_vec());
                    assert_eq!(found.map(|(key, _)| key.to_vec()), expected);
                }
            }
        }
        counted.check();
    }
}

/// Leases: what was taken comes back later, with a time of its own, now and then before all others.
#[test]
fn a_priority_queue_steps_over_few_entries() {
    for kind in kinds() {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir).memtable_kind(kind).memtable_bytes(1 << 20).open().unwrap();
        let due = db.keyspace("due", KeyspaceOptions::default()).unwrap();
        let mut model = BTreeMap::new();
        let mut state = 1_u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let place = |time: u64, number: u64| [key(time), key(number)].concat();
        for number in 0..200 {
            let place = place(draw(10_000), number);
            due.insert(&place, key(number)).unwrap();
            model.insert(place, number);
        }
        let mut counted = Counted::new(&db);
        for _ in 0..pops() {
            let (first, value) = counted.call(|| due.pop_first()).unwrap().unwrap();
            let (expected, number) = model.pop_first().unwrap();
            assert_eq!((&*first, &*value), (&expected[..], &key(number)[..]));
            let time = u64::from_be_bytes(expected[..8].try_into().unwrap());
            let time = if draw(10) == 0 { time / 2 } else { time + draw(1000) };
            let place = place(time, number);
            due.insert(&place, key(number)).unwrap();
            model.insert(place, number);
        }
        counted.check();
        let all: Vec<_> = due.iter().map(|pair| pair.unwrap().0.to_vec()).collect();
        assert_eq!(all, model.keys().cloned().collect::<Vec<_>>());
    }
}

#[test]
fn a_queue_over_partitions_steps_over_few_entries() {
    let by_last_byte = |key: &[u8]| vec![key.last().map_or(0, |byte| byte % 4)];
    for partitions in [Partitioning::PrefixLength(7), Partitioning::Function("last".into())] {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir).partition_function("last", by_last_byte).open().unwrap();
        let options = KeyspaceOptions { partitions, ..KeyspaceOptions::default() };
        let jobs = db.keyspace("jobs", options).unwrap();
        queue(&db, &jobs, 300, 5000.min(pops()), None);
    }
}

/// A walk past thousands of partitions that hold nothing looks at no entry of theirs and records
/// nothing about them: what is known of others stays.
#[test]
fn empty_partitions_are_passed_and_not_recorded() {
    // More than the number of LSM trees that may have dead ranges.
    const EMPTY: u32 = 5000;
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir).open().unwrap();
    let options =
        KeyspaceOptions { partitions: Partitioning::PrefixLength(4), ..KeyspaceOptions::default() };
    let parts = db.keyspace("parts", options).unwrap();
    let name = |part: u32, at: u64| [&part.to_be_bytes()[..], &key(at)].concat();
    for is_there in [true, false] {
        let mut batch = db.batch();
        for part in 0..EMPTY {
            match is_there {
                true => batch.insert(&parts, name(part, 0), b"came"),
                false => batch.remove(&parts, name(part, 0)),
            }
        }
        batch.commit().unwrap();
    }
    db.flush().unwrap();
    let jobs = db.keyspace("jobs", KeyspaceOptions::default()).unwrap();
    for (space, part) in [(&jobs, 0), (&parts, EMPTY)] {
        (0..2000).for_each(|at| space.insert(name(part, at), b"job").unwrap());
        (0..1999).for_each(|at| space.remove(name(part, at)).unwrap());
    }
    // The first search in each steps over everything once.
    for (space, part) in [(&jobs, 0), (&parts, EMPTY)] {
        assert_eq!(*space.first_key_value().unwrap().unwrap().0, name(part, 1999));
    }
    let files = db.stats().file_opens;
    let mut counted = Counted::new(&db);
    for _ in 0..3 {
        for (space, part) in [(&jobs, 0), (&parts, EMPTY)] {
            let first = counted.call(|| space.first_key_value()).unwrap().unwrap().0;
            assert_eq!(*first, name(part, 1999));
            let count = counted.call(|| space.iter().rev().count());
            assert_eq!(count, 1);
        }
    }
    assert!(counted.most <= 16, "one walk stepped over {} entries", counted.most);
    assert_eq!(db.stats().file_opens, files, "no file is opened for what holds nothing");
}

/// A walk does not step through what was cleared, or dropped with its partition, even if a snapshot
/// still sees it: before and after a flush and a compaction, in both directions.
#[test]
fn what_was_cleared_or_dropped_under_a_snapshot_is_not_walked_through() {
    for is_flushed in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir).open().unwrap();
        let options = KeyspaceOptions {
            partitions: Partitioning::PrefixLength(7),
            ..KeyspaceOptions::default()
        };
        let spaces = [
            db.keyspace("plain", KeyspaceOptions::default()).unwrap(),
            db.keyspace("parts", options).unwrap(),
        ];
        for space in &spaces {
            (0..2000).for_each(|at| space.insert(key(at), b"value").unwrap());
        }
        if is_flushed {
            db.flush().unwrap();
        }
        let snapshot = db.snapshot();
        spaces[0].clear().unwrap();
        // Partitions of 256 keys: all but the last.
        for at in (0..1792).step_by(256) {
            assert!(spaces[1].drop_partition(&key(at)[..7]).unwrap());
        }
        spaces[0].insert(key(5000), b"value").unwrap();
        let mut counted = Counted::new(&db);
        for step in 0..3 {
            for (space, first, count) in [(&spaces[0], 5000, 1), (&spaces[1], 1792, 208)] {
                let found = counted.call(|| space.first_key_value()).unwrap().unwrap().0;
                assert_eq!(*found, key(first));
                assert_eq!(counted.call(|| space.iter().count()), count);
                assert_eq!(counted.call(|| space.iter().rev().count()), count);
                assert_eq!(counted.call(|| space.range(key(0)..key(1792)).count()), 0);
                assert_eq!(
                    snapshot.keyspace(space).unwrap().iter().count(),
                    2000,
                    "the snapshot sees what it saw"
                );
                assert_eq!(snapshot.keyspace(space).unwrap().iter().rev().count(), 2000);
                counted = Counted { before: db.stats().passed_entries, ..counted };
            }
            match step {
                0 => db.flush().unwrap(),
                _ => spaces.iter().for_each(|space| space.compact().unwrap()),
            }
        }
        assert_eq!(counted.most, 0, "one walk stepped over {} entries", counted.most);
    }
}

/// A walk that stops at its end has not looked at what other sources have beyond it. The entries
/// that it stepped over say nothing of that, whether the next key of its source is living or dead.
#[test]
fn what_lies_beyond_the_end_of_a_range_is_not_recorded() {
    let up: [u64; 3] = [50, 95, 100];
    for (is_back, last_dead) in [(false, None), (false, Some(90)), (true, None), (true, Some(90))] {
        // Backwards the same is mirrored.
        let place = |at: u64| if is_back { key(1000 - at) } else { key(at) };
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir).background_threads(0).open().unwrap();
        let keys = db.keyspace("keys", KeyspaceOptions::default()).unwrap();
        [50, 95].iter().for_each(|at| keys.insert(place(*at), b"in a table").unwrap());
        db.flush().unwrap();
        for at in (0..30).chain(last_dead) {
            keys.insert(place(at), b"short-lived").unwrap();
            keys.remove(place(at)).unwrap();
        }
        keys.insert(place(100), b"in the memtable").unwrap();
        for _ in 0..2 {
            let found = match is_back {
                false => keys.range(key(0)..key(40)).count(),
                true => keys.range(key(961)..key(1001)).rev().count(),
            };
            assert_eq!(found, 0);
        }
        let found = |pair: rhumb::Result<(rhumb::Slice, rhumb::Slice)>| pair.unwrap().0.to_vec();
        let all: Vec<_> = match is_back {
            false => keys.iter().map(found).collect(),
            true => keys.iter().rev().map(found).collect(),
        };
        assert_eq!(all, up.map(place), "back {is_back}, last dead key {last_dead:?}");
    }
}

/// A scan of a range does not walk through what was removed beyond its end.
#[test]
fn a_range_ends_at_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir).open().unwrap();
    let keys = db.keyspace("keys", KeyspaceOptions::default()).unwrap();
    for number in 0..5000 {
        keys.insert(key(number), b"value").unwrap();
    }
    for number in 1000..4000 {
        keys.remove(key(number)).unwrap();
    }
    let mut counted = Counted::new(&db);
    for (from, to) in [(990, 1000), (4000, 4010)] {
        let found = counted.call(|| keys.range(key(from)..key(to)).count());
        assert_eq!(found, 10);
        let found = counted.call(|| keys.range(key(from)..key(to)).rev().count());
        assert_eq!(found, 10);
    }
    counted.check();
}

/// One of three keys was written again and again: a walk asks for the version that it sees.
#[test]
fn a_hot_key_is_one_step() {
    let versions = pops().max(2000);
    for kind in kinds() {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir).memtable_kind(kind).memtable_bytes(1 << 30).open().unwrap();
        let keys = db.keyspace("keys", KeyspaceOptions::default()).unwrap();
        for name in ["a", "c"] {
            keys.insert(name, b"cold").unwrap();
        }
        keys.insert("b", key(0)).unwrap();
        let mut snapshots = vec![(db.snapshot(), 0)];
        for number in 1..versions {
            keys.insert("b", key(number)).unwrap();
            if number == versions / 2 {
                snapshots.push((db.snapshot(), number));
            }
        }
        snapshots.push((db.snapshot(), versions - 1));
        for in_tables in [false, true] {
            let passed = || db.stats().passed_entries;
            let before = passed();
            let walks = 2 * (snapshots.len() as u64 + 1);
            for (snapshot, number) in &snapshots {
                let forward =
                    snapshot.keyspace(&keys).unwrap().iter().map(|pair| pair.unwrap().1.to_vec());
                let expected = [b"cold".to_vec(), key(*number).to_vec(), b"cold".to_vec()];
                assert_eq!(forward.collect::<Vec<_>>(), expected);
                let backward = snapshot
                    .keyspace(&keys)
                    .unwrap()
                    .iter()
                    .rev()
                    .map(|pair| pair.unwrap().1.to_vec());
                assert!(backward.eq(expected.into_iter().rev()));
            }
            assert_eq!((keys.iter().count(), keys.iter().rev().count()), (3, 3));
            let most = if in_tables { walks * VERSIONS_A_KEY } else { walks * 8 };
            assert!(passed() - before <= most, "{} in {walks} walks", passed() - before);
            db.flush().unwrap();
        }
    }
}

/// A table keeps a version for each snapshot: walks seek past them.
#[test]
fn versions_in_a_table_are_seeked_past() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir).open().unwrap();
    let keys = db.keyspace("keys", KeyspaceOptions::default()).unwrap();
    keys.insert("a", b"first").unwrap();
    keys.insert("c", b"last").unwrap();
    let mut snapshots = Vec::new();
    for number in 0..1000 {
        keys.insert("b", key(number)).unwrap();
        snapshots.push(db.snapshot());
    }
    db.flush().unwrap();
    assert_eq!(db.stats().keyspaces[0].entries, 1002);
    for (number, snapshot) in snapshots.iter().enumerate().step_by(37) {
        let before = db.stats().passed_entries;
        let expected = [b"first".to_vec(), key(number as u64).to_vec(), b"last".to_vec()];
        let values = |iter: rhumb::Iter| iter.map(|pair| pair.unwrap().1.to_vec());
        assert_eq!(values(snapshot.keyspace(&keys).unwrap().iter()).collect::<Vec<_>>(), expected);
        let backward: Vec<_> =
            snapshot.keyspace(&keys).unwrap().iter().rev().map(|p| p.unwrap().1.to_vec()).collect();
        assert!(backward.iter().rev().eq(&expected));
        let passed = db.stats().passed_entries - before;
        assert!(passed <= 2 * VERSIONS_A_KEY, "{passed} versions");
    }
}

/// Threads take from both ends while others put in: each entry is taken once, in the order of its
/// end.
#[test]
fn takers_at_once_never_get_the_same_entry() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir).memtable_bytes(256 << 10).open().unwrap();
    let jobs = db.keyspace("jobs", KeyspaceOptions::default()).unwrap();
    let count = pops() / 2;
    let (taken, left) = (Mutex::new(Vec::new()), AtomicI64::new(count as i64));
    std::thread::scope(|scope| {
        for part in 0..2 {
            let jobs = jobs.clone();
            scope.spawn(move || {
                for number in (part..count).step_by(2) {
                    jobs.insert(key(number), number.to_le_bytes()).unwrap();
                }
            });
        }
        for taker in 0..4 {
            let (jobs, taken, left) = (jobs.clone(), &taken, &left);
            scope.spawn(move || {
                let mut mine = Vec::new();
                while left.load(Ordering::Relaxed) > 0 {
                    let found = if taker == 3 { jobs.pop_last() } else { jobs.pop_first() };
                    if let Some((key, value)) = found.unwrap() {
                        let number = u64::from_be_bytes(key[..].try_into().unwrap());
                        assert_eq!(*value, number.to_le_bytes());
                        left.fetch_sub(1, Ordering::Relaxed);
                        mine.push(number);
                    }
                }
                taken.lock().unwrap().extend(mine);
            });
        }
    });
    let mut taken = taken.into_inner().unwrap();
    taken.sort_unstable();
    assert!(taken.iter().copied().eq(0..count), "{} of {count}", taken.len());
    assert!(jobs.first_key_value().unwrap().is_none());
}

/// Walks in both directions and from any place, as of now and of snapshots, compared with a map:
/// while keys are removed and put back in runs, one by one and by ranges, ingested past the
/// memtable, flushed and compacted.
#[test]
fn walks_agree_with_a_map_whatever_was_removed() {
    for (kind, memtable_bytes) in [
        (MemtableKind::Learned, 1 << 20),
        (MemtableKind::SkipList, 1 << 20),
        (MemtableKind::Learned, 64 << 10),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir).memtable_kind(kind).memtable_bytes(memtable_bytes).open().unwrap();
        let keys = db.keyspace("keys", KeyspaceOptions::default()).unwrap();
        let mut model = BTreeMap::new();
        let mut snapshots = VecDeque::new();
        let mut state = 11_u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let value = |step: u64| [step.to_le_bytes(); 8].concat();
        for step in 0..(pops() / 10).max(1000) {
            let (from, len) = (draw(500), draw(120));
            match draw(20) {
                0..=6 => (from..from + len).for_each(|number| {
                    keys.remove(key(number)).unwrap();
                    model.remove(&key(number));
                }),
                7..=8 => (from..from + len / 3).for_each(|number| {
                    keys.insert(key(number), value(step)).unwrap();
                    model.insert(key(number), value(step));
                }),
                9 => {
                    keys.remove_range(key(from)..key(from + len)).unwrap();
                    model.retain(|found, _| !(key(from)..key(from + len)).contains(found));
                }
                10 if draw(8) == 0 => {
                    let new = (from..from + len / 8).map(|number| (key(number), value(step)));
                    keys.ingest(new.clone()).unwrap();
                    model.extend(new);
                }
                11 if draw(8) == 0 => db.flush().unwrap(),
                12 if draw(30) == 0 => keys.compact().unwrap(),
                13 => {
                    snapshots.push_back((db.snapshot(), model.clone()));
                    snapshots.truncate(4);
                }
                14 => drop(snapshots.pop_front()),
                15 => {
                    let expected = model.pop_first().map(|(key, value)| (key.to_vec(), value));
                    let found = keys.pop_first().unwrap();
                    assert_eq!(found.map(|(k, v)| (k.to_vec(), v.to_vec())), expected, "{step}");
                }
                16 => {
                    let expected = model.pop_last().map(|(key, value)| (key.to_vec(), value));
                    let found = keys.pop_last().unwrap();
                    assert_eq!(found.map(|(k, v)| (k.to_vec(), v.to_vec())), expected, "{step}");
                }
                _ => {
                    let number = draw(600);
                    keys.insert(key(number), value(step)).unwrap();
                    model.insert(key(number), value(step));
                }
            }
            let (from, to) = (key(draw(600)), key(draw(600)));
            let (from, to) = (from.min(to), from.max(to));
            let pair = |pair: rhumb::Result<(rhumb::Slice, rhumb::Slice)>| {
                let (key, value) = pair.unwrap();
                (key.to_vec(), value.to_vec())
            };
            let agree = |iter: rhumb::Iter, back: rhumb::Iter, model: &[(Vec<u8>, Vec<u8>)]| {
                assert!(iter.map(pair).eq(model.iter().cloned()), "forward in step {step}");
                assert!(
                    back.rev().map(pair).eq(model.iter().rev().cloned()),
                    "back in step {step}"
                );
            };
            let of = |model: &BTreeMap<[u8; 8], Vec<u8>>, from: [u8; 8], to: [u8; 8]| {
                model.range(from..to).map(|(k, v)| (k.to_vec(), v.clone())).collect::<Vec<_>>()
            };
            agree(keys.range(from..to), keys.range(from..to), &of(&model, from, to));
            if step % 4 == 0 {
                agree(keys.iter(), keys.iter(), &of(&model, key(0), key(u64::MAX)));
                for (snapshot, model) in &snapshots {
                    let (forward, back) = (
                        snapshot.keyspace(&keys).unwrap().iter(),
                        snapshot.keyspace(&keys).unwrap().iter(),
                    );
                    agree(forward, back, &of(model, key(0), key(u64::MAX)));
                }
            }
        }
    }
}
