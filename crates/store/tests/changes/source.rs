//! The source: writes and changes of keyspaces of all kinds, kills and power cuts.

use std::{
    collections::BTreeMap,
    time::{Duration, UNIX_EPOCH},
};

use rhumb::{
    Database, Error, Expiry, Keyspace, KeyspaceOptions, Partitioning, PersistMode, TableOptions,
    io::sim::{SimFs, SimRng},
};

use super::{Contents, NAMES, Rules, builder, end, read};

/// The number of keys of a keyspace.
const KEYS: usize = 40;

pub(crate) struct Source {
    pub(crate) fs: SimFs,
    db: Option<Database>,
    seed: u64,
    rules: Rules,
    rng: SimRng,
    /// What is committed.
    contents: Contents,
    /// The contents at each sequence number at which a commit ended.
    states: BTreeMap<u64, Contents>,
    written: u64,
    /// The number of kills and cuts.
    pub(crate) ends: u64,
}

fn key(n: usize) -> Vec<u8> {
    format!("{}/{:02}", n % 4, n).into_bytes()
}

fn options(name: &str, block: Option<u32>) -> KeyspaceOptions {
    let partitions = match name {
        "parts" => Partitioning::Delimiter(b'/'),
        "prefix" => Partitioning::PrefixLength(1),
        _ => Partitioning::None,
    };
    let table = TableOptions { block_bytes: block, ..TableOptions::default() };
    KeyspaceOptions { table, partitions, ..KeyspaceOptions::default() }
}

impl Source {
    pub(crate) fn new(seed: u64, rules: Rules) -> Self {
        let mut source = Self {
            fs: SimFs::new(seed),
            db: None,
            seed,
            rules,
            rng: SimRng::new(seed ^ 3),
            contents: Contents::new(),
            states: BTreeMap::new(),
            written: 0,
            ends: 0,
        };
        source.open();
        source
    }

    pub(crate) fn db(&self) -> &Database {
        self.db.as_ref().expect("it is open")
    }

    /// The contents at a sequence number.
    pub(crate) fn state(&self, seq: u64) -> &Contents {
        let seed = self.seed;
        self.states.get(&seq).unwrap_or_else(|| panic!("seed {seed}: no state {seq}"))
    }

    fn seq(&self) -> u64 {
        self.db().stats().sequence_number
    }

    /// Opens the database, and finds out which of its states is left.
    fn open(&mut self) {
        self.fs.cut_power_at(u64::MAX);
        let db = builder(&self.fs, "/db").open().unwrap();
        let (found, seq) = (read(&db), db.stats().sequence_number);
        self.db = Some(db);
        // A keyspace is created durably, also if earlier writes are lost.
        let is_left = |state: &Contents| {
            let mut all = state.clone();
            for name in found.keys() {
                all.entry(name.clone()).or_default();
            }
            all == found
        };
        let last = self.states.range(..=seq).rev().find(|(_, state)| is_left(state));
        let last = last.map(|(at, _)| *at);
        assert!(last.is_some() || self.states.is_empty(), "seed {}: no state is left", self.seed);
        let lost = last.map_or(0, |last| last + 1);
        self.states.retain(|at, _| *at < lost);
        self.states.insert(seq, found.clone());
        self.contents = found;
    }

    /// Does one thing.
    pub(crate) fn step(&mut self) {
        let is_ended = self.rules.kills || self.rules.cuts;
        if is_ended && self.rng.chance(1, 12) {
            // During what follows.
            let changes = self.fs.counts().changes;
            self.fs.cut_power_at(changes + self.rng.below(12));
        }
        let outcome = match self.rng.index(40) {
            0..24 => self.write(),
            24..26 => self.db().flush(),
            26 => self.compact(),
            27 => self.drop_keyspace(),
            28 => self.clear(),
            29..32 => self.drop_partition(),
            32 if self.rules.ingests => self.ingest(),
            33 => self.change_options(),
            34..36 => self.db().persist(PersistMode::SyncData),
            36 => self.reopen(),
            37 => {
                self.end();
                Ok(())
            }
            _ => self.write(),
        };
        match outcome {
            Ok(()) if !self.fs.is_dead() => self.note(),
            Ok(()) => self.end(),
            Err(error) => {
                assert!(self.fs.is_dead(), "seed {}: a live process failed: {error}", self.seed);
                self.end();
            }
        }
    }

    /// Records the state after a step, during which the power did not fail.
    fn note(&mut self) {
        self.fs.cut_power_at(u64::MAX);
        let seq = self.seq();
        self.states.insert(seq, self.contents.clone());
    }

    /// Records what the next commit, of this many numbers, will have done.
    fn want(&mut self, numbers: u64, contents: Contents) {
        let seq = self.seq();
        self.states.insert(seq + numbers, contents);
    }

    fn end(&mut self) {
        let is_cut = self.rules.cuts && (!self.rules.kills || self.rng.chance(1, 2));
        let fs = end(&self.fs, &mut self.rng, is_cut);
        self.db = None;
        self.fs = fs;
        self.ends += 1;
        self.open();
    }

    /// Ends with everything durable.
    pub(crate) fn settle(&mut self) {
        self.end();
        self.db().persist(PersistMode::SyncData).unwrap();
    }

    fn reopen(&mut self) -> Result<(), Error> {
        let closed = self.db.take().expect("it is open").close();
        if closed.is_err() || self.fs.is_dead() {
            self.db = None;
            let is_cut = self.rules.cuts;
            self.fs = end(&self.fs, &mut self.rng, is_cut);
        }
        self.open();
        Ok(())
    }

    /// Opens a keyspace, which takes a number if it is new or gets other options.
    fn keyspace(&mut self, name: &str, options: KeyspaceOptions) -> Result<Keyspace, Error> {
        let mut contents = self.contents.clone();
        contents.entry(name.to_owned()).or_default();
        self.want(1, contents.clone());
        let before = self.seq();
        let keyspace = self.db().keyspace(name, options)?;
        if self.seq() == before {
            self.states.remove(&(before + 1));
        }
        self.contents = contents;
        self.note();
        Ok(keyspace)
    }

    fn any_name(&mut self) -> &'static str {
        NAMES[self.rng.index(NAMES.len())]
    }

    fn value(&mut self) -> Vec<u8> {
        self.written += 1;
        let len = [8, 40, 150][self.rng.index(3)];
        let mut value = format!("{:06}", self.written).into_bytes();
        value.resize(len, b'.');
        value
    }

    fn write(&mut self) -> Result<(), Error> {
        let mode = [PersistMode::Buffer, PersistMode::Buffer, PersistMode::SyncData];
        let mode = mode[self.rng.index(mode.len())];
        let mut keyspaces = Vec::new();
        for name in NAMES {
            if self.rng.chance(1, 2) {
                keyspaces.push((name, self.keyspace(name, options(name, None))?));
            }
        }
        let (mut contents, mut batch) = (self.contents.clone(), self.db().batch());
        batch = batch.durability(mode);
        let mut count = 0;
        for (name, keyspace) in &keyspaces {
            for _ in 0..1 + self.rng.index(3) {
                let at = key(self.rng.index(KEYS));
                let entries = contents.entry((*name).to_owned()).or_default();
                count += 1;
                match self.rng.index(8) {
                    0 => {
                        batch.remove(keyspace, &at);
                        entries.remove(&at);
                    }
                    1 if *name == "plain" => {
                        let to = [&at[..], b"+"].concat();
                        batch.remove_range(keyspace, &at[..]..&to[..]);
                        entries.retain(|key, _| *key < at || *key >= to);
                    }
                    2 => {
                        let expires = UNIX_EPOCH + Duration::from_secs(1 << 40);
                        let value = self.value();
                        batch.insert_until(keyspace, &at, &value, expires);
                        entries.insert(at, (value, Some(Expiry::At(expires))));
                    }
                    _ => {
                        let value = self.value();
                        batch.insert(keyspace, &at, &value);
                        entries.insert(at, (value, Some(Expiry::Never)));
                    }
                }
            }
        }
        if count > 0 {
            self.want(count, contents.clone());
            batch.commit()?;
            self.contents = contents;
        }
        Ok(())
    }

    fn compact(&mut self) -> Result<(), Error> {
        let name = self.any_name();
        if self.db().has_keyspace(name) {
            self.db().keyspace(name, KeyspaceOptions::default())?.compact()?;
        }
        Ok(())
    }

    /// Does something to a keyspace that takes one number.
    fn change(
        &mut self,
        name: &str,
        contents: Contents,
        change: impl FnOnce(&Database, &Keyspace) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let keyspace = self.db().keyspace(name, KeyspaceOptions::default())?;
        self.want(1, contents.clone());
        change(self.db(), &keyspace)?;
        self.contents = contents;
        Ok(())
    }

    fn drop_keyspace(&mut self) -> Result<(), Error> {
        let name = self.any_name();
        if !self.db().has_keyspace(name) {
            return Ok(());
        }
        let mut contents = self.contents.clone();
        contents.remove(name);
        self.change(name, contents, |db, _| db.drop_keyspace(name).map(drop))
    }

    fn clear(&mut self) -> Result<(), Error> {
        let name = self.any_name();
        if !self.db().has_keyspace(name) {
            return Ok(());
        }
        let mut contents = self.contents.clone();
        contents.insert(name.to_owned(), BTreeMap::new());
        self.change(name, contents, |_, keyspace| keyspace.clear())
    }

    fn drop_partition(&mut self) -> Result<(), Error> {
        let name = ["parts", "prefix"][self.rng.index(2)];
        if !self.db().has_keyspace(name) {
            return Ok(());
        }
        let keyspace = self.db().keyspace(name, KeyspaceOptions::default())?;
        let partition = keyspace.partition_of(format!("{}/", self.rng.index(4)));
        if !keyspace.partitions().iter().any(|it| it.name == partition) {
            return Ok(());
        }
        let mut contents = self.contents.clone();
        let entries = contents.entry(name.to_owned()).or_default();
        entries.retain(|key, _| keyspace.partition_of(key) != partition);
        self.change(name, contents, |_, keyspace| keyspace.drop_partition(&partition).map(drop))
    }

    fn ingest(&mut self) -> Result<(), Error> {
        let name = self.any_name();
        self.keyspace(name, options(name, None))?;
        let mut new = BTreeMap::new();
        for _ in 0..1 + self.rng.index(20) {
            let at = key(self.rng.index(KEYS));
            new.insert(at, self.value());
        }
        let mut contents = self.contents.clone();
        let entries =
            new.iter().map(|(key, value)| (key.clone(), (value.clone(), Some(Expiry::Never))));
        contents.entry(name.to_owned()).or_default().extend(entries);
        self.change(name, contents, |_, keyspace| keyspace.ingest(&new).map(drop))
    }

    fn change_options(&mut self) -> Result<(), Error> {
        let (name, block) = (self.any_name(), Some([512, 1024][self.rng.index(2)]));
        self.keyspace(name, options(name, block)).map(drop)
    }
}
