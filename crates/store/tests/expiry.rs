//! Entries that expire: no read sees them afterwards, whatever the clock does, and their space
//! comes back.
//!
//! `RHUMB_EXPIRY_ROUNDS=n` sets the rounds of the histories against a model (100,000 is a long
//! run),
//! `RHUMB_EXPIRY_ENTRIES=n` the entries that expire in order (1,000,000 is a long run), and
//! `RHUMB_EXPIRY_READS=n` the reads of them at each of 21 moments (500,000 is a long run).

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rhumb::{
    Database, DatabaseBuilder, Error, Expiry, Iter, Keyspace, KeyspaceOptions, Lifetime, Slice,
    Snapshot, TableOptions,
    inspect::Inspector,
    io::{
        Clock,
        sim::{SimClock, SimFs},
    },
};
use rhumb_testkit::random::Random;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

fn at(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}

/// A value, and when it expires.
type Entry = (Vec<u8>, Option<u64>);
type Map = BTreeMap<Vec<u8>, Entry>;
/// Keys with their values, ascending.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// What a reader at a time sees of a map.
fn seen(map: &Map, now_ms: u64) -> Pairs {
    let lives = |entry: &Entry| entry.1.is_none_or(|at_ms| at_ms > now_ms);
    let living = map.iter().filter(|(_, entry)| lives(entry));
    living.map(|(key, (value, _))| (key.clone(), value.clone())).collect()
}

fn pairs(iter: impl Iterator<Item = rhumb::Result<(Slice, Slice)>>) -> Pairs {
    let pairs = iter.map(|pair| pair.unwrap());
    pairs.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// A database with its clock, and a model of both.
struct World {
    fs: SimFs,
    clock: SimClock,
    db: Option<Database>,
    keyspace: Option<Keyspace>,
    map: Map,
    /// The time of the database: the latest that its clock has been at.
    now_ms: u64,
    random: Random,
    snapshots: Vec<(Snapshot, Pairs)>,
    iterators: Vec<(Iter, Pairs)>,
}

fn builder(fs: &SimFs, clock: &SimClock) -> DatabaseBuilder {
    Database::builder("/db")
        .file_system(Arc::new(fs.clone()))
        .clock(Arc::new(clock.clone()))
        .memtable_bytes(30_000)
        .table_bytes(6_000)
        .level_one_bytes(12_000)
        .background_threads(0)
}

fn options() -> KeyspaceOptions {
    let table = TableOptions {
        large_value_bytes: Some(300),
        block_bytes: Some(512),
        ..TableOptions::default()
    };
    KeyspaceOptions { table, ..KeyspaceOptions::default() }
}

impl World {
    fn new(seed: u64) -> Self {
        let (fs, clock) = (SimFs::new(seed), SimClock::new());
        let mut world = Self {
            now_ms: clock.wall_ms(),
            fs,
            clock,
            db: None,
            keyspace: None,
            map: Map::new(),
            random: Random::new(seed),
            snapshots: Vec::new(),
            iterators: Vec::new(),
        };
        world.open();
        world
    }

    fn open(&mut self) {
        let db = builder(&self.fs, &self.clock).open().unwrap();
        self.keyspace = Some(db.keyspace("k", options()).unwrap());
        self.db = Some(db);
        self.look();
    }

    fn keyspace(&self) -> &Keyspace {
        self.keyspace.as_ref().unwrap()
    }

    fn db(&self) -> &Database {
        self.db.as_ref().unwrap()
    }

    /// The database looks at its clock.
    fn look(&mut self) {
        drop(self.keyspace().iter());
        self.now_ms = self.now_ms.max(self.clock.wall_ms());
    }

    fn key(&mut self) -> Vec<u8> {
        format!("{:03}", self.random.below(150)).into_bytes()
    }

    fn value(&mut self) -> Vec<u8> {
        let len = if self.random.one_in(12) { 400 } else { self.random.index(60) };
        vec![self.random.next() as u8; len]
    }

    /// A time that is over, is soon, or is not.
    fn time(&mut self) -> u64 {
        match self.random.index(5) {
            0 => self.now_ms - self.random.below(3),
            1 => self.now_ms + 1_000_000,
            _ => self.now_ms + self.random.below(200),
        }
    }

    fn write(&mut self) {
        let (key, value, ms) = (self.key(), self.value(), self.time());
        match self.random.index(14) {
            0..=2 => {
                self.keyspace().insert(&key, &value).unwrap();
                self.map.insert(key, (value, None));
            }
            3..=6 => {
                self.keyspace().insert_until(&key, &value, at(ms)).unwrap();
                self.map.insert(key, (value, Some(ms)));
            }
            7 => {
                self.keyspace().remove(&key).unwrap();
                self.map.remove(&key);
            }
            8 => self.write_batch(),
            9 => self.transact(&key, value, ms),
            10 => {
                let lives = self.get(&key).is_some();
                let expiry = if self.random.one_in(3) { Expiry::Never } else { Expiry::At(at(ms)) };
                assert_eq!(self.keyspace().expire_at(&key, expiry).unwrap(), lives);
                if let Some(entry) = self.map.get_mut(&key).filter(|_| lives) {
                    entry.1 = (expiry != Expiry::Never).then_some(ms);
                }
            }
            11 => {
                let expected = self.get(&key);
                let swap = |expected: Option<&[u8]>| {
                    self.keyspace().compare_and_swap(&key, expected, Some(&value)).unwrap()
                };
                assert!(!swap(Some(b"another value, which none has")));
                assert!(swap(expected.as_deref()));
                self.map.insert(key, (value, None));
            }
            12 => {
                let popped = self.keyspace().pop_first().unwrap();
                let first = seen(&self.map, self.now_ms).into_iter().next();
                assert_eq!(popped.map(|(key, value)| (key.to_vec(), value.to_vec())), first);
                first.map(|(key, _)| self.map.remove(&key));
            }
            _ => {
                let end = self.key();
                if key < end {
                    self.keyspace().remove_range(&key[..]..&end[..]).unwrap();
                    self.map.retain(|at, _| *at < key || *at >= end);
                }
            }
        }
    }

    fn write_batch(&mut self) {
        let mut batch = self.db().batch();
        for _ in 0..5 {
            let (key, value, ms) = (self.key(), self.value(), self.time());
            batch.insert_until(self.keyspace(), &key, &value, at(ms));
            self.map.insert(key, (value, Some(ms)));
        }
        batch.commit().unwrap();
    }

    /// A transaction sees its own writes as long as they live at its beginning.
    fn transact(&mut self, key: &[u8], value: Vec<u8>, ms: u64) {
        let mut transaction = self.db().transaction();
        transaction.insert_until(self.keyspace(), key, value.clone(), at(ms)).unwrap();
        let mut map = self.map.clone();
        map.insert(key.to_vec(), (value, Some(ms)));
        let all = seen(&map, self.now_ms);
        assert_eq!(pairs(transaction.iter(self.keyspace()).unwrap()), all);
        let backward = pairs(transaction.iter(self.keyspace()).unwrap().rev());
        assert!(backward.iter().rev().eq(&all));
        let found = transaction.get(self.keyspace(), key).unwrap();
        assert_eq!(found.is_some(), ms > self.now_ms);
        assert_eq!(transaction.contains_key(self.keyspace(), key).unwrap(), ms > self.now_ms);
        transaction.commit().unwrap();
        self.map = map;
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let entry = self.map.get(key).filter(|entry| entry.1.is_none_or(|ms| ms > self.now_ms));
        entry.map(|(value, _)| value.clone())
    }

    fn set_clock(&mut self) {
        let wall = self.clock.wall_ms();
        match self.random.index(6) {
            // Someone sets it back, by a little or by hours.
            0 => self.clock.set_wall_ms(wall - self.random.below(300)),
            1 => self.clock.set_wall_ms(wall - 10_000_000),
            // It is right again.
            2 => self.clock.set_wall_ms(self.now_ms),
            _ => self.clock.advance(Duration::from_millis(self.random.below(100))),
        }
        self.look();
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        self.iterators.clear();
        self.keyspace = None;
        let db = self.db.take().unwrap();
        if self.random.one_in(2) {
            db.close().unwrap();
        } else {
            // What was read after the last flush is forgotten, so the clock must not be before it.
            self.clock.set_wall_ms(self.clock.wall_ms().max(self.now_ms));
            let killed = self.fs.kill();
            drop(db);
            self.fs = killed;
        }
        self.open();
    }

    fn upkeep(&mut self) {
        match self.random.index(8) {
            0..=2 => self.db().flush().unwrap(),
            3 => self.keyspace().compact().unwrap(),
            4 => self.reopen(),
            5 => {
                let sees = seen(&self.map, self.now_ms);
                self.snapshots.push((self.db().snapshot(), sees.clone()));
                self.iterators.push((self.keyspace().iter(), sees));
            }
            _ => {
                if !self.snapshots.is_empty() {
                    let at = self.random.index(self.snapshots.len());
                    let (snapshot, sees) = self.snapshots.swap_remove(at);
                    let reader = snapshot.keyspace(self.keyspace()).unwrap();
                    assert_eq!(pairs(reader.iter()), sees, "a snapshot's clock stands still");
                    for (key, value) in &sees {
                        assert_eq!(reader.get(key).unwrap().as_deref(), Some(&value[..]));
                    }
                }
                if let Some((iter, sees)) = self.iterators.pop() {
                    assert_eq!(pairs(iter), sees, "an iterator's clock stands still");
                }
            }
        }
    }

    fn check(&mut self) {
        let (all, keyspace) = (seen(&self.map, self.now_ms), self.keyspace());
        assert_eq!(pairs(keyspace.iter()), all);
        assert!(pairs(keyspace.iter().rev()).iter().rev().eq(&all));
        let mut looked = keyspace.iter();
        for (key, value) in &all {
            let is_same = looked.next_with(|k, v| (k, v) == (key, value)).unwrap().unwrap();
            assert!(is_same);
        }
        let keys: Vec<Vec<u8>> = (0..150).map(|n| format!("{n:03}").into_bytes()).collect();
        let found = keyspace.multi_get(&keys).unwrap();
        for (key, found) in keys.iter().zip(found) {
            let expected = self.get(key);
            assert_eq!(found.as_deref(), expected.as_deref(), "{}", key.escape_ascii());
            assert_eq!(keyspace.get(key).unwrap().as_deref(), expected.as_deref());
            assert_eq!(keyspace.contains_key(key).unwrap(), expected.is_some());
            let expiry = expected.map(|_| match self.map[key].1 {
                None => Expiry::Never,
                Some(ms) => Expiry::At(at(ms)),
            });
            assert_eq!(keyspace.expiry_of(key).unwrap(), expiry);
        }
    }
}

#[test]
fn reads_equal_those_of_a_model_whatever_the_clock_does() {
    let rounds = number("RHUMB_EXPIRY_ROUNDS").unwrap_or(300);
    for seed in 1..=rounds.div_ceil(100) {
        let (mut world, mut flushes) = (World::new(seed), 0);
        for _ in 0..100 {
            for _ in 0..world.random.index(20) {
                world.write();
            }
            world.set_clock();
            world.upkeep();
            world.check();
            flushes += world.db().stats().flushes;
        }
        assert!(flushes > 0);
        world.reopen();
        world.keyspace = None;
        drop(world.db.take());
        let inspector = Inspector::with_file_system(Arc::new(world.fs.clone()));
        let report = inspector.check("/db", &mut |_, _| {}).unwrap();
        assert!(report.problems.is_empty(), "{report:?}");
    }
}

/// An entry is there up to the last millisecond, and no longer.
#[test]
fn an_entry_expires_at_its_millisecond() {
    let (fs, clock) = (SimFs::new(1), SimClock::new());
    let db = builder(&fs, &clock).open().unwrap();
    let keyspace = db.keyspace("k", options()).unwrap();
    let now = clock.wall_ms();
    for flushed in [false, true] {
        keyspace.insert_until("soon", "v", at(clock.wall_ms() + 5)).unwrap();
        keyspace.insert_until("over", "v", at(now)).unwrap();
        keyspace.insert_until("long over", "v", UNIX_EPOCH).unwrap();
        if flushed {
            db.flush().unwrap();
        }
        clock.advance(Duration::from_millis(4));
        assert_eq!(keyspace.get("soon").unwrap().unwrap(), "v");
        assert_eq!(keyspace.iter().count(), 1);
        let snapshot = db.snapshot();
        clock.advance(Duration::from_millis(1));
        assert_eq!(keyspace.get("soon").unwrap(), None);
        assert_eq!(keyspace.iter().count(), 0);
        assert_eq!(snapshot.keyspace(&keyspace).unwrap().iter().count(), 1);
        // A clock that goes back does not bring it back.
        clock.set_wall_ms(now);
        assert_eq!(keyspace.get("soon").unwrap(), None);
        clock.set_wall_ms(now + 100);
    }
}

/// A value that was written over does not come to light when the newer one expires, wherever either
/// lies.
#[test]
fn what_was_written_over_stays_so() {
    for (deep, flushed) in [(false, false), (false, true), (true, false), (true, true)] {
        let (fs, clock) = (SimFs::new(2), SimClock::new());
        let db = builder(&fs, &clock).open().unwrap();
        let keyspace = db.keyspace("k", options()).unwrap();
        for n in 0..200 {
            keyspace.insert(format!("{n:03}"), [7; 50]).unwrap();
        }
        if deep {
            keyspace.compact().unwrap();
        }
        for n in 0..200 {
            keyspace.insert_until(format!("{n:03}"), "new", at(clock.wall_ms() + 5)).unwrap();
        }
        if flushed {
            db.flush().unwrap();
        }
        clock.advance(Duration::from_millis(5));
        let is_empty =
            || assert!(keyspace.is_empty().unwrap() && !keyspace.contains_key("007").unwrap());
        is_empty();
        db.flush().unwrap();
        is_empty();
        // Anything that makes compactions due.
        for n in 0..150 {
            keyspace.insert(format!("x{n:03}"), [8; 50]).unwrap();
            keyspace.remove(format!("x{n:03}")).unwrap();
        }
        is_empty();
        keyspace.compact().unwrap();
        is_empty();
        let stats = db.stats();
        assert_eq!((stats.keyspaces[0].entries, keyspace.disk_space()), (0, 0));
    }
}

/// Entries that expire in the order of their keys leave with whole tables: little is written for
/// it, and no tombstones.
#[test]
fn what_expires_in_order_leaves_with_whole_tables() {
    let entries = number("RHUMB_EXPIRY_ENTRIES").unwrap_or(5_000);
    let reads = number("RHUMB_EXPIRY_READS").unwrap_or(200);
    let (fs, clock) = (SimFs::new(3), SimClock::new());
    let table_bytes = 100 * entries / 40;
    let sizes = |builder: DatabaseBuilder| {
        builder
            .memtable_bytes(table_bytes)
            .table_bytes(table_bytes)
            .level_one_bytes(4 * table_bytes)
    };
    let db = sizes(builder(&fs, &clock)).open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let other = db.keyspace("other", KeyspaceOptions::default()).unwrap();
    let (begun, mut random) = (clock.wall_ms(), Random::new(3));
    let value = |n: u64| format!("{n:0>60}");
    for n in 0..entries {
        keyspace.insert_until(n.to_be_bytes(), value(n), at(begun + 10_000 + n)).unwrap();
    }
    db.flush().unwrap();
    let (whole, written) = (keyspace.disk_space(), db.stats().compacted_written_bytes);
    let steps = 20;
    for step in 0..=steps {
        let expired = entries * step / steps;
        clock.set_wall_ms(begun + 9_999 + expired);
        // A pool looks by itself. Without one, any write of the database does.
        other.insert("", "").unwrap();
        for _ in 0..reads {
            let n = random.below(entries);
            let found = keyspace.get(n.to_be_bytes()).unwrap();
            assert_eq!(
                found.as_deref(),
                (n >= expired).then(|| value(n)).as_deref().map(str::as_bytes)
            );
        }
        assert_eq!(keyspace.iter().count() as u64, entries - expired);
        let stats = db.stats();
        assert_eq!(stats.keyspaces[0].tombstones, 0, "no tombstone is written");
        let most = whole as f64 * (entries - expired) as f64 / entries as f64 * 1.1 + 66e3;
        let space = keyspace.disk_space();
        assert!(
            space as f64 <= most,
            "{space} bytes after {expired} of {entries}, and {most} at most"
        );
    }
    let stats = db.stats();
    assert_eq!((stats.keyspaces[0].entries, keyspace.disk_space()), (0, 0));
    let rewritten = stats.compacted_written_bytes - written;
    println!(
        "{entries} entries, {whole} bytes; {} tables left whole; {rewritten} bytes were written anew",
        stats.expired_tables
    );
    assert!(stats.expired_tables > 10, "{stats:?}");
    assert!(rewritten < whole / 4, "{rewritten} bytes of {whole} were written anew");
}

/// What has expired since a snapshot was made stays for it, whatever is flushed and compacted.
#[test]
fn a_snapshot_keeps_what_has_expired_since() {
    let (fs, clock) = (SimFs::new(7), SimClock::new());
    let db = builder(&fs, &clock).open().unwrap();
    let keyspace = db.keyspace("k", options()).unwrap();
    for n in 0..300_u32 {
        keyspace.insert_until(n.to_be_bytes(), "v", at(clock.wall_ms() + 10)).unwrap();
    }
    let snapshot = db.snapshot();
    clock.advance(Duration::from_millis(10));
    for step in 0..3 {
        match step {
            0 => {}
            1 => db.flush().unwrap(),
            _ => keyspace.compact().unwrap(),
        }
        assert_eq!(keyspace.iter().count(), 0);
        assert_eq!(snapshot.keyspace(&keyspace).unwrap().iter().count(), 300, "step {step}");
    }
    drop(snapshot);
    keyspace.compact().unwrap();
    assert_eq!(keyspace.disk_space(), 0);
}

/// Walks record where nothing lives, so that others pass it at once. What has expired for some is
/// alive for others.
#[test]
fn a_snapshot_sees_what_many_others_have_passed() {
    let (fs, clock) = (SimFs::new(6), SimClock::new());
    let db = Database::builder("/db").file_system(Arc::new(fs)).clock(Arc::new(clock.clone()));
    let db = db.background_threads(0).open().unwrap();
    let keyspace = db.keyspace("k", options()).unwrap();
    for n in 0..3000_u32 {
        keyspace.insert_until(n.to_be_bytes(), "v", at(clock.wall_ms() + 10)).unwrap();
    }
    // What a memtable holds is searched before a place is recorded.
    db.flush().unwrap();
    let snapshot = db.snapshot();
    clock.advance(Duration::from_millis(10));
    for _ in 0..3 {
        assert_eq!((keyspace.iter().count(), keyspace.iter().rev().count()), (0, 0));
    }
    let before = snapshot.keyspace(&keyspace).unwrap();
    assert_eq!((before.iter().count(), before.iter().rev().count()), (3000, 3000));
}

/// The lifetime of a keyspace holds for every way of writing, and may change.
#[test]
fn a_keyspace_has_a_lifetime() {
    let (fs, clock) = (SimFs::new(4), SimClock::new());
    let limited = |ms| KeyspaceOptions {
        lifetime: Some(Lifetime::For(Duration::from_millis(ms))),
        ..options()
    };
    let db = builder(&fs, &clock).open().unwrap();
    let keyspace = db.keyspace("k", limited(10)).unwrap();
    assert_eq!(keyspace.options().lifetime, Some(Lifetime::For(Duration::from_millis(10))));
    keyspace.insert("insert", "v").unwrap();
    keyspace.insert_owned("owned", b"v".to_vec()).unwrap();
    let mut batch = db.batch();
    batch.insert(&keyspace, "batch", "v");
    batch.insert_owned(&keyspace, "batch owned", vec![b'v'; 100_000]);
    batch.commit().unwrap();
    db.transact(3, |transaction| transaction.insert(&keyspace, "transaction", "v")).unwrap();
    assert!(keyspace.compare_and_swap("swap", None, Some(b"v")).unwrap());
    keyspace.ingest([("x ingest", "v"), ("x ingest 2", "v")]).unwrap();
    keyspace.insert_until("its own", "v", at(clock.wall_ms() + 1000)).unwrap();
    let end = Expiry::At(at(clock.wall_ms() + 10));
    for pair in &keyspace {
        let (key, _) = pair.unwrap();
        let expiry = keyspace.expiry_of(&key).unwrap().unwrap();
        assert_eq!(expiry == end, key != "its own", "{key:?}");
    }
    assert_eq!(keyspace.iter().count(), 9);
    clock.advance(Duration::from_millis(10));
    assert_eq!(keyspace.iter().count(), 1);
    // A transaction that sets a time sets that time.
    assert!(keyspace.expire_at("its own", Expiry::Never).unwrap());
    assert_eq!(keyspace.expiry_of("its own").unwrap(), Some(Expiry::Never));
    drop((keyspace, db));

    let db = builder(&fs, &clock).open().unwrap();
    let same = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    assert_eq!(same.options().lifetime, Some(Lifetime::For(Duration::from_millis(10))));
    let endless = KeyspaceOptions { lifetime: Some(Lifetime::Endless), ..options() };
    let keyspace = db.keyspace("k", endless).unwrap();
    keyspace.insert("stays", "v").unwrap();
    assert_eq!(same.expiry_of("stays").unwrap(), Some(Expiry::Never));
}

/// Over a restart the clock does not go back before what has expired.
#[test]
fn a_clock_that_was_set_back_brings_nothing_back_over_a_restart() {
    let (fs, clock) = (SimFs::new(5), SimClock::new());
    let db = builder(&fs, &clock).open().unwrap();
    let keyspace = db.keyspace("k", options()).unwrap();
    let begun = clock.wall_ms();
    keyspace.insert_until("a", "v", at(begun + 100)).unwrap();
    keyspace.insert_until("b", "v", at(begun + 1000)).unwrap();
    db.flush().unwrap();
    clock.advance(Duration::from_millis(100));
    assert_eq!(keyspace.iter().count(), 1);
    drop(keyspace);
    db.close().unwrap();
    clock.set_wall_ms(begun);
    for read_only in [true, false] {
        let db = match read_only {
            true => builder(&fs, &clock).open_read_only().unwrap(),
            false => builder(&fs, &clock).open().unwrap(),
        };
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        assert_eq!(keyspace.get("a").unwrap(), None, "read only: {read_only}");
        assert_eq!(keyspace.iter().count(), 1);
        let refused = matches!(keyspace.insert_until("c", "v", at(0)), Err(Error::ReadOnly { .. }));
        assert_eq!(refused, read_only);
    }
}

/// Nor if it stood at the first millisecond of all when what expires was flushed, as a program's
/// own clock may.
#[test]
fn a_clock_that_began_at_zero_is_kept_over_a_restart() {
    let (fs, clock) = (SimFs::new(6), SimClock::new());
    clock.set_wall_ms(0);
    let db = builder(&fs, &clock).open().unwrap();
    let keyspace = db.keyspace("k", options()).unwrap();
    keyspace.insert_until("a", "v", at(100)).unwrap();
    db.flush().unwrap();
    drop((keyspace, db));
    let db = builder(&fs, &clock).open().unwrap();
    assert_eq!(db.expiry_ms(), 0);
    let keyspace = db.keyspace("k", options()).unwrap();
    clock.set_wall_ms(200);
    // The table goes, and nothing that expires is flushed.
    keyspace.compact().unwrap();
    assert_eq!(keyspace.iter().count(), 0);
    clock.set_wall_ms(0);
    let db = builder(&fs.kill(), &clock).open().unwrap();
    assert_eq!(db.expiry_ms(), 200);
    let keyspace = db.keyspace("k", options()).unwrap();
    assert_eq!(keyspace.iter().count(), 0);
}

/// A keyspace may expire if it has entries with a time, in memory or in tables, whatever others
/// have.
#[test]
fn a_keyspace_may_expire_for_its_own_entries() {
    let (fs, clock) = (SimFs::new(7), SimClock::new());
    clock.set_wall_ms(0);
    let db = builder(&fs, &clock).open().unwrap();
    let [expires, stays] = ["expires", "stays"].map(|name| db.keyspace(name, options()).unwrap());
    stays.insert("a", "v").unwrap();
    assert!(!expires.may_expire() && !stays.may_expire());
    expires.insert_until("a", "v", at(100)).unwrap();
    for _ in 0..2 {
        assert!(expires.may_expire() && !stays.may_expire());
        db.flush().unwrap();
    }
    drop((db, expires, stays));
    let db = builder(&fs.kill(), &clock).open().unwrap();
    assert!(db.keyspace("expires", options()).unwrap().may_expire());
}
