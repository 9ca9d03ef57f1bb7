//! Power cuts of a database that is shared, on a simulated disk: what clients read after reopening
//! is what the database holds, and nothing that they have ever read is lost where writers had their
//! changes synced; in every preset. `RHUMB_SHARE_CUTS=n` says how many cuts there are,
//! `RHUMB_SEED=n` which history is the first.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

use std::{collections::BTreeMap, path::Path, sync::Arc, thread, time::Duration};

use rhumb::{
    Database, KeyspaceOptions, PersistMode,
    io::{
        FileSystem,
        sim::{Loss, SimClock, SimFs, SimRng},
    },
};
use rhumb_remote::{Client, Keyspace};
use rhumb_share::{Preset, ShareOptions, Shared, Source};

/// Cuts unless the environment says otherwise.
const CUTS: u64 = 60;
/// Cuts of one history.
const CUTS_PER_HISTORY: u64 = 6;
/// Steps between two cuts at most.
const STEPS_MAX: u64 = 120;
/// Keys that are never removed, whose versions ascend, and others.
const KEYS: u64 = 40;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|number| number.parse().expect("a number"))
}

fn key(n: u64) -> Vec<u8> {
    format!("key {n:04}").into_bytes()
}

/// A value of a version: one in some is too large for a leaf.
fn value(version: u64) -> Vec<u8> {
    let fill = if version.is_multiple_of(37) { 3_000 } else { version % 60 };
    [&version.to_le_bytes()[..], &vec![7; fill as usize]].concat()
}

fn version(found: &[u8]) -> u64 {
    let version = u64::from_le_bytes(found[..8].try_into().unwrap());
    assert_eq!(found, value(version), "a value that nobody wrote");
    version
}

/// A program that shares a database, and what clients of it have seen.
struct Program {
    seed: u64,
    rng: SimRng,
    fs: SimFs,
    /// How the share is made.
    preset: Preset,
    /// What writers ask for.
    durability: PersistMode,
    /// The last version that was read or acknowledged of each key that is never removed.
    seen: Vec<u64>,
    version: u64,
}

impl Program {
    fn new(seed: u64) -> Self {
        let (mut rng, fs) = (SimRng::new(seed), SimFs::new(seed));
        fs.create_dir_all("/data".as_ref()).unwrap();
        fs.sync_dir("/".as_ref()).unwrap();
        let modes = [PersistMode::SyncData, PersistMode::SyncAll, PersistMode::Buffer];
        let durability = modes[rng.index(3)];
        let preset = Preset::ALL[seed as usize % Preset::ALL.len()];
        Self { seed, rng, fs, preset, durability, seen: vec![0; KEYS as usize], version: 0 }
    }

    fn is_synced(&self) -> bool {
        !matches!(self.durability, PersistMode::Buffer)
    }

    /// Opens and shares the database, and writes to it until the power goes; returns none once it
    /// has.
    fn live(&mut self, socket: &Path) -> Option<()> {
        let db = Database::builder("/data/db")
            .file_system(Arc::new(self.fs.clone()))
            .clock(Arc::new(SimClock::new()))
            .memtable_bytes(8_000)
            .background_threads(0)
            .durability(self.durability);
        let db = self.alive(db.open())?;
        let written = self.alive(db.keyspace("users", KeyspaceOptions::default()))?;
        let options = ShareOptions::default().entry_bytes(40).capacity_bytes(16 << 20);
        let options = options.preset(self.preset);
        let shared = Shared::listen(socket).share("k", Source::of(written.clone()), options);
        let shared = shared.start(&db).unwrap();
        let client = Client::connect(socket).unwrap();
        let read = client.keyspace("k").unwrap();
        while !shared.stats("k").unwrap().is_live {
            if self.fs.is_dead() {
                return None;
            }
            thread::sleep(Duration::from_micros(200));
        }
        self.compare(&written, &read, true)?;
        for _ in 0..self.rng.below(STEPS_MAX) {
            self.step(&written, &client, &read)?;
        }
        // The power may go while nothing is written.
        self.compare(&written, &read, false)
    }

    /// The result of a call, which may fail for want of power alone.
    fn alive<T>(&self, result: rhumb::Result<T>) -> Option<T> {
        match result {
            Ok(done) => Some(done),
            Err(_) if self.fs.is_dead() => None,
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    /// Compares what clients read with what the database holds, and with what was seen before.
    /// Where the region `is_new`, clients of every preset read it without asking.
    fn compare(&mut self, written: &rhumb::Keyspace, read: &Keyspace, is_new: bool) -> Option<()> {
        let pairs = written.iter().map(|pair| pair.map(|(k, v)| (k.to_vec(), v.to_vec())));
        let held: Map = self.alive(pairs.collect())?;
        let calls = read.calls();
        let large = held.values().filter(|value| value.len() > 500).count() as u64;
        let found: Map = read.iter().map(Result::unwrap).collect();
        assert_eq!(found, held, "seed {}: the region and the database differ", self.seed);
        let is_read = read.calls() - calls <= 1 + large;
        let may_ask = self.preset != Preset::Rhumb && !is_new;
        assert!(is_read || may_ask, "seed {}: it is not read", self.seed);
        for n in 0..KEYS {
            self.look(read, n);
        }
        Some(())
    }

    /// Reads a key that is never removed.
    fn look(&mut self, read: &Keyspace, n: u64) {
        let Ok(found) = read.get(key(n)) else { return };
        let (found, seen) = (found.map_or(0, |found| version(&found)), &mut self.seen[n as usize]);
        assert!(found >= *seen, "seed {}: key {n} has {found}, after {seen} was read", self.seed);
        *seen = found.max(*seen);
    }

    fn step(&mut self, written: &rhumb::Keyspace, client: &Client, read: &Keyspace) -> Option<()> {
        self.version += 1;
        let (version, n) = (self.version, self.rng.below(KEYS));
        let other = KEYS + self.rng.below(400);
        let done = match self.rng.below(8) {
            0 | 1 => written.insert(key(n), value(version)).is_ok(),
            2 => read.insert(key(n), value(version)).is_ok(),
            3 => written.remove(key(other)).is_ok(),
            4 => {
                let mut batch = client.batch();
                (0..8).for_each(|at| batch.insert(read, key(other + at), value(version)));
                batch.insert(read, key(n), value(version));
                batch.commit().is_ok()
            }
            5 => read.remove(key(other)).is_ok(),
            _ => written.insert(key(other), value(version)).is_ok(),
        };
        // What a write that failed has left is not to be seen, unless it survives.
        self.look(read, n);
        let m = self.rng.below(KEYS);
        self.look(read, m);
        assert!(done || self.fs.is_dead(), "seed {}: a write has failed", self.seed);
        done.then_some(())
    }

    fn run(&mut self, socket: &Path) {
        for _ in 0..CUTS_PER_HISTORY {
            let changes = [10, 60, 300][self.rng.index(3)];
            let last = self.fs.counts().changes + self.rng.below(changes);
            self.fs.cut_power_at(last);
            let _ = self.live(socket);
            let loss = [Loss::DropUnsynced, Loss::Random, Loss::Adversarial][self.rng.index(3)];
            self.fs = self.fs.power_cut(loss, self.rng.next_u64());
            if !self.is_synced() {
                // What was not synced may be lost.
                self.seen.fill(0);
            }
        }
        // With power to the end.
        assert!(self.live(socket).is_some(), "seed {}", self.seed);
    }
}

#[test]
fn after_a_power_cut_clients_read_what_is_there() {
    let cuts = from_env("RHUMB_SHARE_CUTS").unwrap_or(CUTS);
    let first = from_env("RHUMB_SEED").unwrap_or(0);
    let dir = tempfile::tempdir().unwrap();
    for seed in first..first + cuts.div_ceil(CUTS_PER_HISTORY) {
        Program::new(seed).run(&dir.path().join("socket"));
    }
}
