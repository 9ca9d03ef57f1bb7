//! The writer: writes of all kinds, and kills.

use std::{cell::RefCell, rc::Rc, sync::Arc};

use rhumb::{
    Database, Error, Keyspace, KeyspaceOptions, Partitioning, PersistMode, TableOptions,
    io::sim::{SimFs, SimRng},
};

use super::{Contents, NAMES, States, builder};
use crate::process::{Process, Role};

/// The number of keys of a keyspace.
const KEYS: usize = 60;

pub(crate) struct Writer {
    fs: SimFs,
    seed: u64,
    rng: SimRng,
    states: Rc<RefCell<States>>,
    open: Option<(Database, Arc<Process>)>,
    /// What is committed, and the number of its last write.
    contents: Contents,
    seq: u64,
    /// What is there and its number if the step under way is done.
    wanted: Option<(u64, Contents)>,
    written: u64,
}

fn key(n: usize) -> Vec<u8> {
    format!("{}/{:02}", n % 4, n).into_bytes()
}

/// The contents of a database.
fn read(db: &Database) -> Result<Contents, Error> {
    let mut contents = Contents::new();
    for name in NAMES.into_iter().filter(|name| db.has_keyspace(name)) {
        for pair in &db.keyspace(name, KeyspaceOptions::default())? {
            let (key, value) = pair?;
            contents.entry(name).or_default().insert(key.to_vec(), value.to_vec());
        }
    }
    Ok(contents)
}

fn options(name: &str) -> KeyspaceOptions {
    let partitions = match name {
        "parts" => Partitioning::Delimiter(b'/'),
        "prefix" => Partitioning::PrefixLength(1),
        _ => Partitioning::None,
    };
    let large = (name == "large").then_some(100);
    let table = TableOptions { large_value_bytes: large, ..TableOptions::default() };
    KeyspaceOptions { table, partitions, ..KeyspaceOptions::default() }
}

impl Writer {
    pub(crate) fn new(fs: &SimFs, seed: u64, states: &Rc<RefCell<States>>) -> Self {
        let (rng, states) = (SimRng::new(seed ^ 3), Rc::clone(states));
        let (contents, fs) = (Contents::new(), fs.clone());
        Self { fs, seed, rng, states, open: None, contents, seq: 0, wanted: None, written: 0 }
    }

    /// Opens the database, again and again if the process dies meanwhile, and finds out what is
    /// committed.
    pub(crate) fn open(&mut self) {
        loop {
            let changes = if self.rng.chance(1, 2) { u64::MAX } else { self.rng.index(400) as u64 };
            let process = Process::new(Role::Writer, changes);
            let db = match builder(&self.fs, &process, self.seed).open() {
                Ok(db) => db,
                Err(error) => {
                    assert!(process.is_dead(), "a live process could not open: {error}");
                    continue;
                }
            };
            let Ok(found) = read(&db) else {
                assert!(process.is_dead(), "a live process could not read");
                continue;
            };
            let seq = db.stats().sequence_number;
            match self.wanted.take() {
                Some((at, wanted)) if seq == at => {
                    assert_eq!(found, wanted, "what a kill has left");
                    self.contents = wanted;
                }
                wanted => {
                    assert_eq!(found, self.contents, "what a kill has left");
                    assert!(seq >= self.seq);
                    if let Some((at, _)) = wanted {
                        self.states.borrow_mut().at.remove(&at);
                    }
                }
            }
            self.seq = seq;
            self.states.borrow_mut().at.insert(seq, self.contents.clone());
            self.open = Some((db, process));
            return;
        }
    }

    /// Ends the process as `kill -9` does.
    fn kill(&mut self) {
        if let Some((db, process)) = self.open.take() {
            process.kill();
            drop(db);
        }
    }

    /// Does one thing, and opens the database again if the process died in it.
    pub(crate) fn step(&mut self) {
        if self.open.is_none() {
            self.open();
        }
        let outcome = match self.rng.index(40) {
            0..22 => self.write(),
            22..25 => self.flush(),
            25..28 => self.compact(),
            28 => self.drop_keyspace(),
            29 => self.clear(),
            30..34 => self.drop_partition(),
            34..36 => self.ingest(),
            36 => self.change_options(),
            37 => {
                self.close();
                Ok(())
            }
            _ => {
                self.kill();
                Ok(())
            }
        };
        match outcome {
            Ok(()) => {
                if let Some((at, contents)) = self.wanted.take() {
                    (self.seq, self.contents) = (at, contents);
                }
            }
            Err(error) => {
                let (_, process) = self.open.as_ref().expect("it was open");
                assert!(process.is_dead(), "a live process failed: {error}");
                self.kill();
            }
        }
        if let Some((db, process)) = &self.open
            && !process.is_dead()
        {
            assert_eq!(db.stats().sequence_number, self.seq);
        }
    }

    /// Closes the database as a program does.
    pub(crate) fn close(&mut self) {
        if let Some((db, process)) = self.open.take()
            && let Err(error) = db.close()
        {
            assert!(process.is_dead(), "a live process failed: {error}");
        }
    }

    /// Ends with a database that is open and whose process lives. Returns the last number.
    pub(crate) fn settle(&mut self) -> u64 {
        self.kill();
        loop {
            self.open();
            let (db, process) = self.open.as_ref().expect("just opened");
            if db.flush().is_ok() && !process.is_dead() {
                return self.seq;
            }
            self.kill();
        }
    }

    fn db(&self) -> Database {
        self.open.as_ref().expect("it is open").0.clone()
    }

    fn any_name(&mut self) -> &'static str {
        NAMES[self.rng.index(NAMES.len())]
    }

    /// Records what the step will have done, which takes `numbers` sequence numbers.
    fn want(&mut self, numbers: u64, mut contents: Contents) {
        contents.retain(|_, entries| !entries.is_empty());
        let at = self.seq + numbers;
        self.states.borrow_mut().at.insert(at, contents.clone());
        self.wanted = Some((at, contents));
    }

    fn value(&mut self) -> Vec<u8> {
        self.written += 1;
        let len = [8, 40, 150, 600][self.rng.index(4)];
        let mut value = format!("{:06}", self.written).into_bytes();
        value.resize(len, b'.');
        value
    }

    /// Opens a keyspace, which takes a number if it is new or gets other options.
    fn keyspace(&mut self, name: &str, options: KeyspaceOptions) -> Result<Keyspace, Error> {
        let db = self.db();
        self.want(1, self.contents.clone());
        let keyspace = db.keyspace(name, options)?;
        self.wanted = None;
        if db.stats().sequence_number == self.seq {
            self.states.borrow_mut().at.remove(&(self.seq + 1));
        } else {
            self.seq += 1;
        }
        Ok(keyspace)
    }

    fn write(&mut self) -> Result<(), Error> {
        let db = self.db();
        let (mut contents, mut batch) = (self.contents.clone(), db.batch());
        let mode = [PersistMode::Buffer, PersistMode::SyncData][self.rng.index(2)];
        batch = batch.durability(mode);
        let count = 1 + self.rng.index(6);
        for _ in 0..count {
            let name = self.any_name();
            let keyspace = self.keyspace(name, options(name))?;
            let entries = contents.entry(name).or_default();
            let at = key(self.rng.index(KEYS));
            match self.rng.index(8) {
                0 => {
                    batch.remove(&keyspace, &at);
                    entries.remove(&at);
                }
                1 if name == "plain" || name == "large" => {
                    let to = key(self.rng.index(KEYS));
                    let (from, to) =
                        if at < to { (at, to) } else { (to, [&at[..], b"+"].concat()) };
                    batch.remove_range(&keyspace, &from[..]..&to[..]);
                    entries.retain(|key, _| *key < from || *key >= to);
                }
                _ => {
                    let value = self.value();
                    batch.insert(&keyspace, &at, &value);
                    contents.entry(name).or_default().insert(at, value);
                }
            }
        }
        self.want(count as u64, contents);
        batch.commit()
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.db().flush()
    }

    fn compact(&mut self) -> Result<(), Error> {
        let (db, name) = (self.db(), self.any_name());
        if db.has_keyspace(name) {
            db.keyspace(name, KeyspaceOptions::default())?.compact()?;
        }
        Ok(())
    }

    fn drop_keyspace(&mut self) -> Result<(), Error> {
        let (db, name) = (self.db(), self.any_name());
        if db.has_keyspace(name) {
            let mut contents = self.contents.clone();
            contents.remove(name);
            self.want(1, contents);
            db.drop_keyspace(name)?;
        }
        Ok(())
    }

    fn clear(&mut self) -> Result<(), Error> {
        let (db, name) = (self.db(), self.any_name());
        if db.has_keyspace(name) {
            let mut contents = self.contents.clone();
            contents.remove(name);
            let keyspace = db.keyspace(name, KeyspaceOptions::default())?;
            self.want(1, contents);
            keyspace.clear()?;
        }
        Ok(())
    }

    fn drop_partition(&mut self) -> Result<(), Error> {
        let db = self.db();
        let name = ["parts", "prefix"][self.rng.index(2)];
        if !db.has_keyspace(name) {
            return Ok(());
        }
        let keyspace = db.keyspace(name, KeyspaceOptions::default())?;
        let first = self.rng.index(4).to_string().into_bytes();
        // The name ends with the delimiter where there is one.
        let partition = if name == "parts" { [&first[..], b"/"].concat() } else { first.clone() };
        if keyspace.partitions().iter().any(|it| it.name == partition) {
            let mut contents = self.contents.clone();
            let entries = contents.entry(name).or_default();
            entries.retain(|key, _| key[..1] != first[..]);
            self.want(1, contents);
            assert!(keyspace.drop_partition(&partition)?);
        }
        Ok(())
    }

    fn ingest(&mut self) -> Result<(), Error> {
        let name = self.any_name();
        let keyspace = self.keyspace(name, options(name))?;
        let mut new = std::collections::BTreeMap::new();
        for _ in 0..1 + self.rng.index(20) {
            let at = key(self.rng.index(KEYS));
            let value = self.value();
            new.insert(at, value);
        }
        let mut contents = self.contents.clone();
        contents.entry(name).or_default().extend(new.clone());
        self.want(1, contents);
        keyspace.ingest(new).map(drop)
    }

    fn change_options(&mut self) -> Result<(), Error> {
        let name = self.any_name();
        let wanted = options(name);
        let block = Some([512, 1024][self.rng.index(2)]);
        let table = TableOptions { block_bytes: block, ..wanted.table };
        self.keyspace(name, KeyspaceOptions { table, ..wanted }).map(drop)
    }
}
