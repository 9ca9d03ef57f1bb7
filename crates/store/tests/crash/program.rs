//! A simulated program: it does the steps of a history with a database, and tells the oracle what
//! the database has promised.

mod backups;
mod beside;
mod settings;
mod transactions;
mod writes;

use std::{path::PathBuf, sync::Arc};

use rhumb::{
    Database, DatabaseBuilder, Error, Keyspace, PersistMode, Snapshot,
    io::sim::{CallKind, SimClock, SimFs},
};

use self::{beside::Reader, settings::keyspace_options};
use super::{
    coverage::{COVERAGE, Coverage},
    history::{KEYSPACES, Step},
    oracle::{Effect, Event, Model, Oracle, differences},
};

pub(crate) use settings::{Settings, new_disk};

/// The directory of all databases.
const HOME: &str = "/data";

/// The extension of log segments.
pub(crate) const LOG_EXTENSION: &str = "log";

/// A program and the database that it has open.
pub(crate) struct Program {
    pub(crate) fs: SimFs,
    pub(crate) oracle: Oracle,
    /// The event before the state that is found when the database is next reopened.
    pub(crate) event_at_reopening: Event,
    /// The number of times that the log was acknowledged as durable.
    pub(crate) durable_acknowledgements: u64,
    settings: Settings,
    /// Part of the names of its keyspaces, so that several programs can share a database.
    number: usize,
    keyspaces: [Option<Keyspace>; KEYSPACES],
    /// The number of times that keyspaces were opened.
    openings: usize,
    snapshots: Vec<Remembered>,
    /// A process beside the program that reads the same database.
    reader: Option<Reader>,
    db: Option<Database>,
}

/// The largest number of snapshots that a program has at once.
const SNAPSHOTS_MAX: usize = 3;

/// A snapshot, and what it must show of the keyspaces that were open.
struct Remembered {
    snapshot: Snapshot,
    keyspaces: Vec<(usize, Keyspace)>,
    model: Model,
}

impl Program {
    /// A program that has not opened its database yet.
    pub(crate) fn new(fs: SimFs, settings: Settings) -> Self {
        Self {
            fs,
            oracle: Oracle::default(),
            event_at_reopening: Event::Nothing,
            durable_acknowledgements: 0,
            settings,
            number: 0,
            keyspaces: Default::default(),
            openings: 0,
            snapshots: Vec::new(),
            reader: None,
            db: None,
        }
    }

    /// Another program, with keyspaces of its own.
    pub(crate) fn another(&self, number: usize) -> Self {
        Self { number, ..Self::new(self.fs.clone(), self.settings.clone()) }
    }

    /// Uses the database that `other` has open.
    pub(crate) fn share(&mut self, other: &Self) {
        self.close();
        self.db.clone_from(&other.db);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.db.is_some()
    }

    fn keyspace_name(&self, keyspace: usize) -> String {
        format!("program-{}-keyspace-{keyspace}", self.number)
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(HOME).join("db")
    }

    fn open_at(&self, path: PathBuf) -> Result<Database, Error> {
        self.builder(path).open()
    }

    fn builder(&self, path: PathBuf) -> DatabaseBuilder {
        let settings = &self.settings;
        Database::builder(path)
            .file_system(Arc::new(self.fs.clone()))
            .clock(Arc::new(SimClock::new()))
            .memory_budget_bytes(1 << 20)
            .memtable_bytes(settings.memtable_bytes)
            .memtable_kind(settings.memtable_kind)
            .table_bytes(settings.table_bytes)
            .level_one_bytes(settings.level_one_bytes)
            .background_threads(settings.background_threads)
            .read_mode(settings.read_mode)
            .durability(settings.durability)
    }

    /// Opens the database.
    pub(crate) fn open(&mut self) -> Result<(), Error> {
        self.close();
        self.db = Some(self.open_at(self.path())?);
        Ok(())
    }

    /// Closes the database, or drops what a dead process had open.
    pub(crate) fn close(&mut self) {
        if let Some(db) = &self.db {
            Coverage::add(&COVERAGE.trained_later, db.stats().tables_trained_reading);
            let files = self.fs.files(&self.path());
            let shared = files.iter().filter(|path| path.extension().is_some_and(|e| e == "set"));
            Coverage::add(&COVERAGE.shared_files, shared.count() as u64);
        }
        self.snapshots.clear();
        self.keyspaces = Default::default();
        self.db = None;
    }

    /// Goes on with another disk, such as the one after a power cut.
    pub(crate) fn move_to(&mut self, fs: SimFs) {
        self.close();
        self.reader = None;
        self.oracle.backups.are_checked = false;
        self.fs = fs;
    }

    fn db(&self) -> &Database {
        self.db.as_ref().expect("the database is open")
    }

    fn keyspace(&mut self, keyspace: usize) -> Result<Keyspace, Error> {
        if let Some(open) = &self.keyspaces[keyspace] {
            return Ok(open.clone());
        }
        self.openings += 1;
        let options = keyspace_options(keyspace, self.openings);
        let open = self.db().keyspace(&self.keyspace_name(keyspace), options)?;
        self.keyspaces[keyspace] = Some(open.clone());
        Ok(open)
    }

    /// Reads the whole contents of the database.
    pub(crate) fn read_all(&mut self) -> Result<Model, Error> {
        let mut model = Model::default();
        for (keyspace, entries) in model.iter_mut().enumerate() {
            *entries = read_keyspace(&self.keyspace(keyspace)?)?;
        }
        Ok(model)
    }

    /// Compares the contents of the database with the oracle; `Ok(Err)` is a broken promise.
    pub(crate) fn verify(&mut self, event: Event) -> Result<Result<(), String>, Error> {
        let found = self.read_all()?;
        if let Err(broken) = self.oracle.settle(&found, event) {
            return Ok(Err(broken));
        }
        if let Err(broken) = self.verify_backups()? {
            return Ok(Err(broken));
        }
        self.verify_checkpoint()
    }

    /// Compares the open keyspaces with the oracle, without writing anything.
    pub(crate) fn verify_open_keyspaces(&mut self) -> Result<Result<(), String>, Error> {
        let mut expected = self.oracle.now();
        let mut found = Model::default();
        for (keyspace, open) in self.keyspaces.iter().enumerate() {
            match open {
                Some(open) => found[keyspace] = read_keyspace(open)?,
                None => expected[keyspace].clear(),
            }
        }
        if found == expected {
            return Ok(Ok(()));
        }
        Ok(Err(format!("reads show another state:\n{}", differences(&expected, &found))))
    }

    /// Compares the newest checkpoint with the state that it was taken of.
    fn verify_checkpoint(&mut self) -> Result<Result<(), String>, Error> {
        let Some((number, expected)) = self.oracle.checkpoint.clone() else { return Ok(Ok(())) };
        let db = self.open_at(checkpoint_path(number))?;
        let mut found = Model::default();
        for (keyspace, entries) in found.iter_mut().enumerate() {
            let options = keyspace_options(keyspace, self.openings + 1);
            let open = db.keyspace(&self.keyspace_name(keyspace), options)?;
            *entries = read_keyspace(&open)?;
        }
        if found == expected {
            return Ok(Ok(()));
        }
        let differences = differences(&expected, &found);
        Ok(Err(format!("checkpoint {number} is not what it was made of:\n{differences}")))
    }

    /// Does one step. An error is the engine's, and already noted in the oracle; `Ok(Err)` is a
    /// broken promise.
    pub(crate) fn step(&mut self, step: &Step) -> Result<Result<(), String>, Error> {
        Coverage::add(&COVERAGE.steps, 1);
        match step {
            Step::Write(change) => self.write(change)?,
            Step::Submit { batches } => self.submit(batches)?,
            Step::Snapshot => self.take_snapshot(),
            Step::LookBack => return self.look_back(),
            Step::Batch { changes, durability } => self.batch(changes, *durability)?,
            Step::Persist(mode) => {
                let result = self.db().persist(*mode);
                self.finish_write(result, Vec::new(), *mode)?;
            }
            Step::Flush => {
                self.db().flush()?;
                self.acknowledge(Vec::new(), PersistMode::SyncAll);
            }
            Step::Compact { keyspace } => self.keyspace(*keyspace)?.compact()?,
            Step::Clear { keyspace } => {
                let open = self.keyspace(*keyspace)?;
                let effects = vec![Effect::Empty { keyspace: *keyspace }];
                self.finish(open.clear(), effects, PersistMode::SyncAll)?;
            }
            Step::DropPartition { keyspace, key } => self.drop_partition(*keyspace, key)?,
            Step::Drop { keyspace } => return self.drop_keyspace(*keyspace),
            Step::Ingest { keyspace, entries } => self.ingest(*keyspace, entries)?,
            Step::Checkpoint { number } => {
                self.db().checkpoint(checkpoint_path(*number))?;
                self.oracle.checkpoint = Some((*number, self.oracle.now()));
                return self.verify_checkpoint();
            }
            Step::Transaction(transaction) => return self.transact(transaction),
            Step::Backup => return self.backup(),
            Step::Follow { ends } => return self.follow(*ends),
            Step::Get { keyspace, key } => return self.get(*keyspace, key),
            Step::Reopen => {
                self.note_failed_log_sync();
                self.open()?;
                let event = std::mem::replace(&mut self.event_at_reopening, Event::Nothing);
                return self.verify(event);
            }
        }
        Ok(Ok(()))
    }

    /// Returns true if a sync of the log failed since the faults were last cleared.
    pub(crate) fn has_failed_log_sync(&self) -> bool {
        self.fs.faulted_calls().iter().any(|(kind, path)| {
            matches!(kind, CallKind::SyncData | CallKind::SyncAll)
                && path.extension().is_some_and(|extension| extension == LOG_EXTENSION)
        })
    }

    /// Remembers a failed sync of the log until the database is reopened.
    pub(crate) fn note_failed_log_sync(&mut self) {
        if self.has_failed_log_sync() {
            self.event_at_reopening = Event::FailedSync;
        }
    }

    /// Notes what a call promised by returning.
    fn acknowledge(&mut self, effects: Vec<Effect>, durability: PersistMode) {
        if !effects.is_empty() {
            self.oracle.acknowledge(effects);
        }
        match durability {
            PersistMode::Buffer => self.oracle.buffer(),
            PersistMode::SyncData | PersistMode::SyncAll => self.oracle.persist(),
        }
    }

    /// Notes how a call with `effects` ended.
    fn finish<T>(
        &mut self,
        result: Result<T, Error>,
        effects: Vec<Effect>,
        durability: PersistMode,
    ) -> Result<T, Error> {
        match &result {
            Ok(_) => self.acknowledge(effects, durability),
            // These errors say that nothing was done.
            Err(Error::WritesStopped(_) | Error::KeyspaceDropped(_)) => {}
            Err(_) if effects.is_empty() => {}
            Err(_) => self.oracle.leave_open(effects),
        }
        result
    }

    fn take_snapshot(&mut self) {
        if self.snapshots.len() < SNAPSHOTS_MAX && self.oracle.is_certain() {
            let open = self.keyspaces.iter().enumerate();
            self.snapshots.push(Remembered {
                snapshot: self.db().snapshot(),
                keyspaces: open.filter_map(|(k, open)| Some((k, open.clone()?))).collect(),
                model: self.oracle.now(),
            });
        }
    }

    fn look_back(&mut self) -> Result<Result<(), String>, Error> {
        if self.snapshots.is_empty() {
            return Ok(Ok(()));
        }
        let Remembered { snapshot, keyspaces, model } = self.snapshots.remove(0);
        let (mut expected, mut found) = (Model::default(), Model::default());
        for (keyspace, open) in keyspaces {
            expected[keyspace].clone_from(&model[keyspace]);
            for entry in snapshot.keyspace(&open).unwrap().iter() {
                let (key, value) = entry?;
                found[keyspace].insert(key.to_vec(), value.to_vec());
            }
        }
        if found != expected {
            let differences = differences(&expected, &found);
            return Ok(Err(format!("a snapshot shows another state:\n{differences}")));
        }
        Coverage::add(&COVERAGE.snapshots_read, u64::from(self.oracle.now() != model));
        Ok(Ok(()))
    }

    fn get(&mut self, keyspace: usize, key: &[u8]) -> Result<Result<(), String>, Error> {
        let found = self.keyspace(keyspace)?.get(key)?;
        let expected = self.oracle.get(keyspace, key);
        if found.as_deref() == expected {
            return Ok(Ok(()));
        }
        Ok(Err(format!("get of {:?} returned {found:?}, not {expected:?}", key.escape_ascii())))
    }
}

fn checkpoint_path(number: usize) -> PathBuf {
    PathBuf::from(HOME).join(format!("checkpoint-{number}"))
}

/// Reads a keyspace by iteration, and compares backward iteration and point reads with it.
///
/// # Panics
/// If they disagree, whichever is right.
fn read_keyspace(
    keyspace: &Keyspace,
) -> Result<std::collections::BTreeMap<Vec<u8>, Vec<u8>>, Error> {
    let mut entries = Vec::new();
    for entry in keyspace.iter() {
        let (key, value) = entry?;
        entries.push((key.to_vec(), value.to_vec()));
    }
    assert!(entries.is_sorted_by(|a, b| a.0 < b.0), "iteration is in order");
    let mut backward = Vec::new();
    for entry in keyspace.iter().rev() {
        let (key, value) = entry?;
        backward.push((key.to_vec(), value.to_vec()));
    }
    backward.reverse();
    assert!(entries == backward, "backward iteration sees what forward iteration sees");
    for (key, value) in entries.iter().step_by(7) {
        let found = keyspace.get(key)?;
        assert_eq!(found.as_deref(), Some(&value[..]), "a point read sees what iteration sees");
    }
    Ok(entries.into_iter().collect())
}
