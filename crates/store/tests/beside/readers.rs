//! The readers, each a process of its own.

use std::{cell::RefCell, rc::Rc, sync::Arc};

use rhumb::{
    Database, Error, Iter, Keyspace, KeyspaceOptions, Snapshot,
    io::sim::{SimFs, SimRng},
};

use super::{Contents, NAMES, States, builder};
use crate::process::{Process, Role};

/// The number of readers at a time, at most.
const READERS: usize = 4;
/// The number of snapshots and iterators that a reader holds at a time, at most.
const HELD: usize = 3;

pub(crate) struct Readers {
    fs: SimFs,
    seed: u64,
    rng: SimRng,
    states: Rc<RefCell<States>>,
    all: Vec<Reader>,
}

struct Reader {
    db: Database,
    process: Arc<Process>,
    seen: u64,
    held: Vec<Held>,
}

/// Something that must not change, whatever the reader catches up with.
enum Held {
    Snapshot { snapshot: Snapshot, keyspaces: Vec<(&'static str, Keyspace)>, seq: u64 },
    Iter { iter: Box<Iter>, left: std::vec::IntoIter<(Vec<u8>, Vec<u8>)> },
}

/// Pairs of keys and values, in memory of their own.
fn pairs(iter: Iter) -> Vec<(Vec<u8>, Vec<u8>)> {
    iter.map(|pair| pair.expect("no file is missing"))
        .map(|(key, value)| (key.to_vec(), value.to_vec()))
        .collect()
}

/// The entries that a keyspace has in a state.
fn entries(state: &Contents, name: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    state.get(name).cloned().unwrap_or_default().into_iter().collect()
}

impl Readers {
    pub(crate) fn new(fs: &SimFs, seed: u64, states: &Rc<RefCell<States>>) -> Self {
        let (rng, states) = (SimRng::new(seed ^ 4), Rc::clone(states));
        Self { fs: fs.clone(), seed, rng, states, all: Vec::new() }
    }

    /// Does one thing.
    pub(crate) fn step(&mut self) {
        if self.all.is_empty() || self.all.len() < READERS && self.rng.chance(1, 8) {
            return self.open();
        }
        let at = self.rng.index(self.all.len());
        match self.rng.index(12) {
            0 => self.end(at),
            1..3 => self.hold(at),
            3..5 => self.look_at_held(at),
            5..7 => self.check(at),
            _ => self.catch_up(at),
        }
    }

    fn open(&mut self) {
        let process = Process::new(Role::Reader, 0);
        match builder(&self.fs, &process, self.seed).open_read_only() {
            Ok(db) => {
                let seen = db.stats().sequence_number;
                self.all.push(Reader { db, process, seen, held: Vec::new() });
                self.check(self.all.len() - 1);
            }
            // The writer was killed before there was a database.
            Err(Error::NotFound(_)) => assert!(self.all.is_empty()),
            Err(error) => panic!("a reader could not open: {error}"),
        }
    }

    /// Kills a reader, or closes it.
    fn end(&mut self, at: usize) {
        let Reader { db, process, held, .. } = self.all.swap_remove(at);
        if self.rng.chance(1, 2) {
            process.kill();
        }
        drop((held, db));
    }

    fn catch_up(&mut self, at: usize) {
        let reader = &mut self.all[at];
        let seen = reader.db.catch_up().expect("a reader catches up");
        assert!(seen >= reader.seen, "a reader goes back from {} to {seen}", reader.seen);
        reader.seen = seen;
        self.check(at);
    }

    /// Compares all that a reader sees with the state of its number.
    fn check(&mut self, at: usize) {
        let Reader { db, seen, .. } = &self.all[at];
        assert_eq!(db.stats().sequence_number, *seen);
        let state = self.states.borrow().get(*seen);
        for name in NAMES {
            let expected = entries(&state, name);
            if !db.has_keyspace(name) {
                assert!(expected.is_empty(), "{name} is not there at {seen}");
                continue;
            }
            let keyspace = db.keyspace(name, KeyspaceOptions::default()).expect("it is there");
            assert_eq!(pairs(keyspace.iter()), expected, "{name} at {seen}");
            for n in 0..3 {
                let key = format!("{}/{:02}", n, self.rng.index(60)).into_bytes();
                let found = keyspace.get(&key).expect("no file is missing");
                let found = found.map(|value| value.to_vec());
                let wanted = state.get(name).and_then(|entries| entries.get(&key)).cloned();
                assert_eq!(found, wanted, "{name} {:?} at {seen}", key.escape_ascii().to_string());
            }
        }
        let failed = db.stats();
        assert_eq!((failed.failed_removals, failed.failed_reads), (0, 0));
    }

    /// Takes a snapshot, or begins to iterate.
    fn hold(&mut self, at: usize) {
        let Reader { db, seen, held, .. } = &mut self.all[at];
        if held.len() == HELD {
            held.remove(0);
        }
        let open = |name| (name, db.keyspace(name, KeyspaceOptions::default()).expect("there"));
        let mut keyspaces: Vec<_> =
            NAMES.into_iter().filter(|name| db.has_keyspace(name)).map(open).collect();
        if keyspaces.is_empty() || self.rng.chance(1, 2) {
            let snapshot = db.snapshot();
            assert_eq!(snapshot.sequence_number(), *seen);
            held.push(Held::Snapshot { snapshot, keyspaces, seq: *seen });
            return;
        }
        let (name, keyspace) = keyspaces.swap_remove(self.rng.index(keyspaces.len()));
        let left = entries(&self.states.borrow().get(*seen), name).into_iter();
        held.push(Held::Iter { iter: Box::new(keyspace.iter()), left });
    }

    /// Compares what a reader holds with what it was.
    fn look_at_held(&mut self, at: usize) {
        for held in &mut self.all[at].held {
            match held {
                Held::Snapshot { snapshot, keyspaces, seq } => {
                    let state = self.states.borrow().get(*seq);
                    for (name, keyspace) in keyspaces {
                        let reader = snapshot.keyspace(keyspace).expect("it is of this database");
                        let expected = entries(&state, name);
                        assert_eq!(pairs(reader.iter()), expected, "{name} in a snapshot of {seq}");
                        for (key, value) in expected.iter().step_by(5) {
                            let found = reader.get(key).expect("no file is missing");
                            assert_eq!(found.as_deref(), Some(&value[..]), "{name} at {seq}");
                        }
                    }
                }
                Held::Iter { iter, left } => {
                    for _ in 0..self.rng.index(9) {
                        let found = iter.next().map(|pair| pair.expect("no file is missing"));
                        let found = found.map(|(key, value)| (key.to_vec(), value.to_vec()));
                        assert_eq!(found, left.next(), "an iterator that was begun before");
                    }
                }
            }
        }
    }

    /// Everybody catches up with a writer that does nothing, and sees all of it.
    pub(crate) fn settle(&mut self, last: u64) {
        self.open();
        for at in 0..self.all.len() {
            self.look_at_held(at);
            self.catch_up(at);
            assert_eq!(self.all[at].seen, last, "the newest write is not seen");
            self.look_at_held(at);
        }
        self.all.clear();
    }
}
