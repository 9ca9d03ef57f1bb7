//! Streams of changes, on simulated disks: a source does at random what a database can do, is
//! killed, loses its power and is opened again; a copy on another disk takes its changes, and is
//! killed and loses its power too.
//!
//! After each commit that the copy takes, it must be what the source was at that sequence number:
//! no batch is missing, half there or there twice. In the end the two are the same.
//!
//! `RHUMB_CHANGES_HISTORIES=n` sets the number of histories (3500, with some 100,000 cuts and
//! kills, is the long form); `RHUMB_SEED=n` repeats one.

#![cfg(feature = "sim")]

mod copy;
mod source;
mod streams;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use rhumb::{
    Database, DatabaseBuilder, Expiry, KeyspaceOptions,
    io::{
        FileSystem, ReadEngineKind,
        sim::{Loss, SimClock, SimFs, SimRng},
        write_all,
    },
};

use copy::Copy;
use source::Source;

/// The names of the keyspaces.
const NAMES: [&str; 3] = ["plain", "parts", "prefix"];

/// The number of steps of a history.
const STEPS: u64 = 200;

/// The entries of a keyspace: values, and when they expire.
type Entries = BTreeMap<Vec<u8>, (Vec<u8>, Option<Expiry>)>;

/// The keyspaces with their entries.
type Contents = BTreeMap<String, Entries>;

/// The contents of a database.
fn read(db: &Database) -> Contents {
    let mut contents = Contents::new();
    for name in db.keyspace_names() {
        let keyspace = db.keyspace(&name, KeyspaceOptions::default()).unwrap();
        let entries = contents.entry(name).or_default();
        for pair in &keyspace {
            let (key, value) = pair.unwrap();
            let expiry = keyspace.expiry_of(&key).unwrap();
            entries.insert(key.to_vec(), (value.to_vec(), expiry));
        }
    }
    contents
}

fn builder(fs: &SimFs, path: &str) -> DatabaseBuilder {
    Database::builder(path)
        .file_system(Arc::new(fs.clone()))
        .clock(Arc::new(SimClock::new()))
        .memory_budget_bytes(1 << 20)
        .memtable_bytes(4 << 10)
        .table_bytes(4 << 10)
        .level_one_bytes(16 << 10)
        .background_threads(0)
        .read_engine(ReadEngineKind::Threads)
}

/// What may happen in a history.
#[derive(Clone, Copy)]
struct Rules {
    /// The process of the source may be killed.
    kills: bool,
    /// The source's power may fail.
    cuts: bool,
    /// The source may take ingestions, over which a copy cannot follow.
    ingests: bool,
    /// The copy reads the source as another process does.
    beside: bool,
    /// The bytes of the log that are kept for the copy.
    keep_bytes: u64,
}

impl Rules {
    fn of(seed: u64) -> Self {
        let kind = seed % 4;
        Self {
            kills: kind != 0,
            cuts: kind != 1,
            ingests: kind == 3,
            beside: seed / 4 % 2 == 1,
            keep_bytes: if kind == 3 { 6 << 10 } else { u64::MAX },
        }
    }

    /// Returns true if the copy must never have to begin anew. After a kill, what was not synced is
    /// no longer synced by the log when its segment is given up; if the power fails then, the log
    /// has a gap.
    fn never_lags(self) -> bool {
        let is_both = self.kills && self.cuts;
        !self.ingests && !is_both && self.keep_bytes == u64::MAX
    }
}

#[derive(Default)]
struct Counted {
    commits: u64,
    ends: u64,
    lags: u64,
}

fn run(seed: u64, counted: &mut Counted) {
    let rules = Rules::of(seed);
    let mut rng = SimRng::new(seed ^ 0x5EED);
    let mut source = Source::new(seed, rules);
    let mut copy = Copy::new(seed, rules);
    for _ in 0..STEPS {
        match rng.index(10) {
            0..6 => source.step(),
            6 => copy.end(),
            _ => copy.follow(&mut source, 1 + rng.index(12)),
        }
    }
    source.settle();
    copy.follow(&mut source, usize::MAX);
    assert!(read(copy.db()) == read(source.db()), "seed {seed}: the copy differs");
    let number = |db: &Database| db.stats().sequence_number;
    assert_eq!(number(copy.db()), number(source.db()), "seed {seed}");
    for name in source.db().keyspace_names() {
        let options =
            |db: &Database| db.keyspace(&name, KeyspaceOptions::default()).unwrap().options();
        assert_eq!(options(copy.db()), options(source.db()), "seed {seed}: {name}");
    }
    if rules.never_lags() {
        assert_eq!(copy.lags, 0, "seed {seed}");
    }
    counted.commits += copy.commits;
    counted.ends += copy.ends + source.ends;
    counted.lags += copy.lags;
}

#[test]
fn a_copy_is_its_source_at_every_commit() {
    let var = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match var("RHUMB_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..1 + var("RHUMB_CHANGES_HISTORIES").unwrap_or(24),
    };
    let (mut counted, count) = (Counted::default(), seeds.end - seeds.start);
    for seed in seeds {
        run(seed, &mut counted);
    }
    let Counted { commits, ends, lags } = counted;
    println!("{count} histories: {commits} commits taken, {ends} kills and cuts, {lags} lags");
    if count > 8 {
        assert!(commits > 10 * count && ends > 5 * count, "the histories do too little");
        assert!(lags > 0, "no copy had to begin anew");
    }
}

/// Copies the files of a directory to another disk, durably.
fn carry((from, source): (&SimFs, &Path), (to, target): (&SimFs, &Path)) {
    to.create_dir_all(target).unwrap();
    for path in to.files(target) {
        to.remove_file(&path).unwrap();
    }
    for path in from.files(source) {
        let bytes = from.content(&path).unwrap();
        let path = target.join(path.file_name().unwrap());
        let mut file = to.create(&path).unwrap();
        write_all(&mut *file, &path, &bytes).unwrap();
        file.sync_all().unwrap();
    }
    to.sync_dir(target).unwrap();
    to.sync_dir(Path::new("/")).unwrap();
}

/// Ends a process: kills it, or cuts the power. Returns the disk as it is then.
fn end(fs: &SimFs, rng: &mut SimRng, is_cut: bool) -> SimFs {
    if is_cut {
        let loss = Loss::ALL[rng.index(Loss::ALL.len())];
        fs.power_cut(loss, rng.next_u64())
    } else {
        fs.kill()
    }
}
