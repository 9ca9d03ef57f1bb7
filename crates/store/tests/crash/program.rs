//! A simulated program: it does the steps of a history with a database, and tells the oracle what
//! the database has promised.

use std::{ops::Bound, path::PathBuf, sync::Arc};

use rhumb::{
    BlockIndexKind, Compression, Database, DatabaseBuilder, Error, Keyspace, KeyspaceOptions,
    MemtableKind, Partitioning, PersistMode, Snapshot, StringCoding, TableOptions, Training,
    io::{
        ReadMode,
        sim::{CallKind, SimClock, SimFs, SimRng},
    },
};

use super::{
    coverage::{COVERAGE, Coverage},
    history::{Change, KEYSPACES, Step, expires},
    oracle::{Effect, Event, Model, Oracle, differences},
};

/// The directory of all databases.
const HOME: &str = "/data";

/// The settings that the database is opened with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) memtable_bytes: u64,
    pub(crate) table_bytes: u64,
    pub(crate) level_one_bytes: u64,
    pub(crate) background_threads: usize,
    pub(crate) read_mode: ReadMode,
    pub(crate) durability: PersistMode,
    pub(crate) memtable_kind: MemtableKind,
}

impl Settings {
    /// Settings with sizes so small that flushes and compactions happen all the time.
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = SimRng::new(seed ^ 0x5e77_1265);
        Self {
            memtable_bytes: [500, 4_000, 30_000, 60_000][rng.index(4)],
            table_bytes: [1_000, 8_000, 100_000][rng.index(3)],
            level_one_bytes: [2_000, 20_000][rng.index(2)],
            background_threads: 0,
            read_mode: if rng.chance(1, 4) { ReadMode::Direct } else { ReadMode::Buffered },
            durability: match rng.below(8) {
                0 => PersistMode::SyncData,
                1 => PersistMode::SyncAll,
                _ => PersistMode::Buffer,
            },
            memtable_kind: [MemtableKind::Learned, MemtableKind::SkipList][rng.index(2)],
        }
    }
}

/// The extension of log segments.
pub(crate) const LOG_EXTENSION: &str = "log";

/// A disk with an empty, durable home for databases.
pub(crate) fn new_disk(seed: u64) -> SimFs {
    use rhumb::io::FileSystem;
    let fs = SimFs::new(seed);
    fs.create_dir_all(HOME.as_ref()).expect("the disk is sound");
    fs.sync_dir("/".as_ref()).expect("the disk is sound");
    fs
}

/// The options of a keyspace. They differ between keyspaces, so that every kind of block and of
/// file is written, and each opening changes how the next tables are written.
fn keyspace_options(keyspace: usize, openings: usize) -> KeyspaceOptions {
    let restart_interval = Some([16, 3][openings % 2]);
    let defaults = TableOptions { restart_interval, ..TableOptions::default() };
    let table = match keyspace {
        // Enough blocks for tables to be worth training in the background.
        0 => TableOptions { block_bytes: Some(64), training: Some(Training::Adaptive), ..defaults },
        1 => TableOptions {
            block_bytes: Some(256),
            large_value_bytes: Some(800),
            string_coding: Some(StringCoding::On),
            training: Some(Training::Adaptive),
            ..defaults
        },
        _ => TableOptions {
            index: Some(BlockIndexKind::BinarySearch),
            compression: Some(Compression::None),
            filter_bits_per_key: Some(0),
            ..defaults
        },
    };
    let partitions = match keyspace {
        0 => Partitioning::None,
        1 => Partitioning::PrefixLength(7),
        _ => Partitioning::Delimiter(b'0'),
    };
    KeyspaceOptions { table, partitions, ..KeyspaceOptions::default() }
}

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

    /// The contents of the database, read without writing anything; `None` if there is no database.
    pub(crate) fn read_alone(&self) -> Result<Option<Model>, Error> {
        let changes = self.fs.counts().changes;
        let db = match self.builder(self.path()).open_read_only() {
            Ok(db) => db,
            Err(Error::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut model = Model::default();
        for (keyspace, entries) in model.iter_mut().enumerate() {
            let name = self.keyspace_name(keyspace);
            if db.has_keyspace(&name) {
                *entries = read_keyspace(&db.keyspace(&name, KeyspaceOptions::default())?)?;
            }
        }
        drop(db);
        assert_eq!(self.fs.counts().changes, changes, "reading alone changed something");
        Ok(Some(model))
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

    fn write(&mut self, change: &Change) -> Result<(), Error> {
        let result = match change {
            Change::Put { keyspace, key, value } => match expires(value) {
                None => self.keyspace(*keyspace)?.insert(key, value),
                Some(time) => self.keyspace(*keyspace)?.insert_until(key, value, time),
            },
            Change::Remove { keyspace, key } => self.keyspace(*keyspace)?.remove(key),
            Change::RemoveRange { keyspace, from, to } => {
                self.keyspace(*keyspace)?.remove_range(range(from, to))
            }
        };
        self.finish_write(result, vec![effect_of(change)], self.settings.durability)
    }

    /// Like [`Program::finish`], for a call that writes to the log.
    fn finish_write(
        &mut self,
        result: Result<(), Error>,
        effects: Vec<Effect>,
        durability: PersistMode,
    ) -> Result<(), Error> {
        if result.is_ok() && durability != PersistMode::Buffer {
            self.durable_acknowledgements += 1;
        }
        // A write that fails has not happened, unless a sync or the power failed.
        let is_undone = !self.fs.faulted_calls().iter().any(|(kind, _)| kind.is_sync());
        if result.is_err() && is_undone && !self.fs.is_dead() {
            return result;
        }
        self.finish(result, effects, durability)
    }

    fn batch(&mut self, changes: &[Change], mode: Option<PersistMode>) -> Result<(), Error> {
        let mut batch = self.db().batch();
        if let Some(mode) = mode {
            batch = batch.durability(mode);
        }
        for change in changes {
            self.add(&mut batch, change)?;
        }
        let effects = changes.iter().map(effect_of).collect();
        self.finish_write(batch.commit(), effects, mode.unwrap_or(self.settings.durability))
    }

    fn add(&mut self, batch: &mut rhumb::Batch, change: &Change) -> Result<(), Error> {
        match change {
            Change::Put { keyspace, key, value } => {
                let keyspace = self.keyspace(*keyspace)?;
                match expires(value) {
                    None => batch.insert(&keyspace, key, value),
                    Some(time) => batch.insert_until(&keyspace, key, value, time),
                }
            }
            Change::Remove { keyspace, key } => batch.remove(&self.keyspace(*keyspace)?, key),
            Change::RemoveRange { keyspace, from, to } => {
                let keyspace = self.keyspace(*keyspace)?;
                batch.remove_range(&keyspace, range(from, to));
            }
        }
        Ok(())
    }

    fn submit(&mut self, batches: &[Vec<Change>]) -> Result<(), Error> {
        type Wait = Box<dyn FnOnce() -> Result<(), Error>>;
        let mut submitted = Vec::new();
        for changes in batches {
            let mut batch = self.db().batch();
            let added = changes.iter().try_for_each(|change| self.add(&mut batch, change));
            let wait: Wait = match added {
                Err(refused) => Box::new(|| Err(refused)),
                Ok(()) if batches.len().is_multiple_of(2) => {
                    let future = batch.commit_async();
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    Box::new(move || runtime.block_on(future))
                }
                Ok(()) => {
                    let submitted = batch.submit();
                    Box::new(|| submitted.and_then(rhumb::Submitted::finish))
                }
            };
            submitted.push((wait, changes));
        }
        let mut all = Ok(());
        for (wait, changes) in submitted {
            let result = wait();
            let effects = changes.iter().map(effect_of).collect();
            all = all.and(self.finish_write(result, effects, self.settings.durability));
        }
        all
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

    fn drop_keyspace(&mut self, keyspace: usize) -> Result<Result<(), String>, Error> {
        let old = self.keyspace(keyspace)?;
        let result = self.db().drop_keyspace(&self.keyspace_name(keyspace));
        self.finish(result, vec![Effect::Empty { keyspace }], PersistMode::SyncAll)?;
        self.keyspaces[keyspace] = None;
        Ok(match old.insert("x", "y") {
            Err(Error::KeyspaceDropped(_)) => Ok(()),
            other => Err(format!("a write to a dropped keyspace returned {other:?}")),
        })
    }

    fn drop_partition(&mut self, keyspace: usize, key: &[u8]) -> Result<(), Error> {
        let open = self.keyspace(keyspace)?;
        let (name, there) = (open.partition_of(key), open.partitions());
        // Half of the drops are of two partitions together.
        let next = there.iter().find(|info| info.name > name && key.len() % 2 == 1);
        let names: Vec<&[u8]> = std::iter::once(&*name).chain(next.map(|n| &*n.name)).collect();
        let now = self.oracle.now();
        let is_partitioned = open.options().partitions != Partitioning::None;
        let keys = now[keyspace].keys().filter(|key| names.contains(&&*open.partition_of(key)));
        let effects = keys.map(|key| Effect::Remove { keyspace, key: key.clone() });
        let effects: Vec<Effect> = effects.filter(|_| is_partitioned).collect();
        Coverage::add(&COVERAGE.partitions_dropped, u64::from(!effects.is_empty()));
        // If there is no such partition, nothing is made durable.
        let mode = match there.iter().any(|info| names.contains(&&*info.name)) {
            true => PersistMode::SyncAll,
            false => PersistMode::Buffer,
        };
        self.finish(open.drop_partitions(names), effects, mode)?;
        Ok(())
    }

    fn ingest(&mut self, keyspace: usize, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Error> {
        let open = self.keyspace(keyspace)?;
        let effects = entries.iter().map(|(key, value)| Effect::Put {
            keyspace,
            key: key.clone(),
            value: value.clone(),
        });
        let effects = effects.collect();
        let result = open.ingest(entries.iter().map(|(key, value)| (key, value)));
        // An empty ingestion makes nothing durable.
        let is_empty = entries.is_empty();
        let mode = if is_empty { PersistMode::Buffer } else { PersistMode::SyncAll };
        self.finish(result, effects, mode)?;
        Ok(())
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

fn effect_of(change: &Change) -> Effect {
    match change.clone() {
        Change::Put { keyspace, key, value } => Effect::Put { keyspace, key, value },
        Change::Remove { keyspace, key } => Effect::Remove { keyspace, key },
        Change::RemoveRange { keyspace, from, to } => Effect::RemoveRange { keyspace, from, to },
    }
}

/// The bounds of a range that has no end if `to` is absent.
fn range<'a>(
    from: &'a Vec<u8>,
    to: &'a Option<Vec<u8>>,
) -> (Bound<&'a Vec<u8>>, Bound<&'a Vec<u8>>) {
    (Bound::Included(from), to.as_ref().map_or(Bound::Unbounded, Bound::Excluded))
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
