//! Readers beside a writer, on a simulated disk: a writer does at random what a writer can do, is
//! killed and reopened, while readers open, catch up, take snapshots, iterate and are killed.
//!
//! Every state that a reader sees must be the model's state at the sequence number that it names,
//! and no number falls. Readers act between any two file calls of the writer, and the writer
//! between any two of theirs.
//!
//! `RHUMB_BESIDE_HISTORIES=10000` is the long form; `RHUMB_SEED=n` repeats one history.

#![cfg(feature = "sim")]

mod process;
mod readers;
mod scenes;
mod writer;

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc};

use rhumb::{
    Database, DatabaseBuilder, KeyspaceOptions,
    io::{
        ReadEngineKind,
        sim::{SimClock, SimFs, SimRng},
    },
};

use process::{Process, Role, View, clear_meanwhile, set_meanwhile};
use readers::Readers;
use writer::Writer;

/// The names of the keyspaces.
const NAMES: [&str; 4] = ["plain", "parts", "prefix", "large"];
/// The number of steps of a history.
const STEPS: u64 = 160;

/// The contents of all keyspaces. One that does not exist is like an empty one.
type Contents = BTreeMap<&'static str, BTreeMap<Vec<u8>, Vec<u8>>>;

/// The contents at each sequence number at which a batch, a drop or the like ended.
#[derive(Default)]
struct States {
    at: BTreeMap<u64, Contents>,
}

impl States {
    fn get(&self, seq: u64) -> Contents {
        self.at.get(&seq).unwrap_or_else(|| panic!("no state has the number {seq}")).clone()
    }
}

/// Sizes of memtables, in bytes: with the largest nothing is flushed unasked, so that all is in the
/// log.
const MEMTABLES: [u64; 3] = [6 << 10, 1 << 10, 1 << 20];

fn builder(fs: &SimFs, process: &Arc<Process>, seed: u64) -> DatabaseBuilder {
    let memtable_bytes = MEMTABLES[(seed % MEMTABLES.len() as u64) as usize];
    Database::builder("/db")
        .file_system(Arc::new(View::new(fs, process)))
        .clock(Arc::new(SimClock::new()))
        .memory_budget_bytes(1 << 20)
        .memtable_bytes(memtable_bytes)
        .table_bytes(4 << 10)
        .level_one_bytes(16 << 10)
        .background_threads(0)
        .read_engine(ReadEngineKind::Threads)
}

fn run(seed: u64) {
    let fs = SimFs::new(seed);
    let states = Rc::new(RefCell::new(States::default()));
    let writer = Rc::new(RefCell::new(Writer::new(&fs, seed, &states)));
    let readers = Rc::new(RefCell::new(Readers::new(&fs, seed, &states)));
    writer.borrow_mut().open();
    let mut rng = SimRng::new(seed ^ 0x5EED);
    // How often others act between two calls of a process, of a thousand calls.
    let (often_read, often_write) = (1 + rng.index(60), 1 + rng.index(60));
    let (other, mut chance) = (Rc::clone(&readers), SimRng::new(seed ^ 1));
    set_meanwhile(Role::Writer, move || {
        if chance.chance(often_read as u64, 1000) {
            other.borrow_mut().step();
        }
    });
    let (other, mut chance) = (Rc::clone(&writer), SimRng::new(seed ^ 2));
    set_meanwhile(Role::Reader, move || {
        if chance.chance(often_write as u64, 1000) {
            other.borrow_mut().step();
        }
    });
    for _ in 0..STEPS {
        if rng.chance(2, 3) {
            writer.borrow_mut().step();
        } else {
            readers.borrow_mut().step();
        }
    }
    clear_meanwhile();
    // Nothing acts meanwhile: readers see all there is, and nothing is left behind.
    let last = writer.borrow_mut().settle();
    readers.borrow_mut().settle(last);
    drop(readers);
    writer.borrow_mut().close();
}

/// Walks remember where nothing lives. What the writer puts there past its log is seen all the
/// same.
#[test]
fn what_walks_remember_is_forgotten_when_tables_come() {
    let (fs, writing) = (SimFs::new(7), Process::new(Role::Writer, u64::MAX));
    let writer = builder(&fs, &writing, 2).open().unwrap();
    let keyspace = writer.keyspace("plain", KeyspaceOptions::default()).unwrap();
    let key = |n: u32| n.to_be_bytes();
    // Keys around a gap, which an ingestion fills later without a flush of what is around it.
    let around = || (0..1000).chain(2000..3000);
    around().for_each(|n| keyspace.insert(key(n), "1").unwrap());
    let reader = builder(&fs, &Process::new(Role::Reader, 0), 2).open_read_only().unwrap();
    let seen = reader.keyspace("plain", KeyspaceOptions::default()).unwrap();
    around().for_each(|n| keyspace.remove(key(n)).unwrap());
    reader.catch_up().unwrap();
    let passed = reader.stats().passed_entries;
    for _ in 0..3 {
        assert_eq!(seen.iter().count(), 0);
        assert_eq!(seen.iter().rev().count(), 0);
    }
    let each = (reader.stats().passed_entries - passed) / 6;
    assert!(each < 1500, "nothing is remembered: {each} steps a walk");
    keyspace.ingest((1400..1500).map(|n| (key(n), "2"))).unwrap();
    assert_eq!(writer.stats().flushes, 0, "the log is needed as before");
    assert_eq!(seen.iter().count(), 0);
    reader.catch_up().unwrap();
    assert_eq!(seen.iter().count(), 100);
    assert_eq!(seen.iter().rev().count(), 100);
}

#[test]
fn every_state_that_readers_see_is_one_of_the_writers() {
    let histories =
        std::env::var("RHUMB_BESIDE_HISTORIES").map_or(40, |n| n.parse().expect("a number"));
    let seeds = match std::env::var("RHUMB_SEED") {
        Ok(seed) => {
            let seed: u64 = seed.parse().expect("a number");
            seed..seed + 1
        }
        Err(_) => 0..histories,
    };
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| run(seed));
        if let Err(panic) = outcome {
            clear_meanwhile();
            eprintln!("history {seed} failed: RHUMB_SEED={seed} repeats it");
            std::panic::resume_unwind(panic);
        }
    }
}
