//! Random histories on the simulated disk: renames and removed files between power cuts.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use rhumb::{
    Database, Error, Keyspace, PersistMode,
    io::{
        FileLock, FileSystem, ReadMode, ReadableFile, WritableFile,
        sim::{CallKind, Loss, SimFs, SimRng},
    },
};

use super::{KEYS, Model, contents, key, keyspace, names_a_file, open_both, seeds, small, value};

/// The directory of the databases.
const HOME: &str = "/data";
/// The number of steps of a history.
const STEPS: usize = 60;
/// The first key identifies the database.
const MARK: u64 = 1000;

/// The way in which the engine accesses the disk.
type Door = fn(&SimFs) -> Arc<dyn FileSystem>;

/// The databases of one disk.
struct World {
    fs: SimFs,
    door: Door,
    rng: SimRng,
    open: Option<(Database, Keyspace)>,
    /// The name of the database's directory, after the renames so far.
    place: PathBuf,
    /// The values that every key may have after a power cut: the last value that is durable, and
    /// all later ones.
    allowed: BTreeMap<u64, Vec<Option<u64>>>,
    now: Model,
    renames: u64,
    writes: u64,
}

impl World {
    fn new(seed: u64, door: Door) -> Result<Self, Error> {
        let fs = SimFs::new(seed);
        fs.create_dir_all(Path::new(HOME)).expect("the disk is sound");
        fs.sync_dir(Path::new("/")).expect("the disk is sound");
        let place = Path::new(HOME).join("db");
        let rng = SimRng::new(seed);
        let mut world = Self {
            fs,
            door,
            rng,
            open: None,
            place,
            allowed: BTreeMap::new(),
            now: Model::new(),
            renames: 0,
            writes: 0,
        };
        world.open = Some(world.database(&world.place.clone())?);
        let (db, keyspace) = world.open.as_ref().expect("just opened");
        keyspace.insert(key(MARK), value(0))?;
        db.persist(PersistMode::SyncAll)?;
        world.now.insert(MARK, 0);
        Ok(world)
    }

    fn database(&self, dir: &Path) -> Result<(Database, Keyspace), Error> {
        let builder = || small(Database::builder(dir)).file_system((self.door)(&self.fs));
        if self.open.is_some() {
            // Another database, or a second opener: the handles that are open here would be in the
            // way.
            let db = builder().open()?;
            let keyspace = keyspace(&db);
            return Ok((db, keyspace));
        }
        let changes = || {
            let counts = self.fs.counts();
            vec![counts.changes - counts.of(CallKind::Remove)]
        };
        open_both(builder, changes)
    }

    /// Notes that everything acknowledged is durable.
    fn settle(&mut self) {
        self.allowed.clear();
    }

    fn write(&mut self) -> Result<(), Error> {
        let (db, keyspace) = self.open.as_ref().expect("it is open");
        let number = KEYS.start + self.rng.below(KEYS.end - KEYS.start);
        let before = self.now.get(&number).copied();
        self.writes += 1;
        let new = (!self.rng.chance(1, 5)).then_some(self.writes);
        // A failed write may be there after a crash.
        self.allowed.entry(number).or_insert_with(|| vec![before]).push(new);
        let is_synced = self.rng.chance(1, 6);
        let mut batch = db.batch();
        if is_synced {
            batch = batch.durability(PersistMode::SyncData);
        }
        match new {
            Some(new) => batch.insert(keyspace, key(number), value(new)),
            None => batch.remove(keyspace, key(number)),
        }
        batch.commit()?;
        match new {
            Some(new) => self.now.insert(number, new),
            None => self.now.remove(&number),
        };
        if is_synced {
            self.settle();
        }
        Ok(())
    }

    /// Moves the directory away; now and then another database gets its name.
    fn rename(&mut self) -> Result<(), Error> {
        self.renames += 1;
        let to = Path::new(HOME).join(format!("moved-{}", self.renames));
        let home = Path::new(HOME);
        self.fs.rename(&self.place, &to).expect("the name is free");
        let old = std::mem::replace(&mut self.place, to);
        if self.rng.chance(1, 2) {
            let (db, other) = self.database(&old)?;
            other.insert(key(MARK), value(self.renames))?;
            for number in KEYS {
                other.insert(key(number), value(1 << 40))?;
            }
            db.persist(PersistMode::SyncAll)?;
        } else if self.rng.chance(1, 2) {
            self.fs.sync_dir(home).expect("the disk is sound");
        }
        Ok(())
    }

    /// Checks that a second opener is kept out, even if the lock file was removed.
    fn second(&mut self, without_lock: bool) -> Result<Result<(), String>, Error> {
        if without_lock {
            let _ = self.fs.remove_file(&self.place.join("LOCK"));
        }
        match self.database(&self.place) {
            Err(Error::Locked { .. }) => {}
            Ok(_) => return Ok(Err("two have the database open".into())),
            Err(other) => return Err(other),
        }
        if without_lock {
            let (db, _) = self.open.as_ref().expect("it is open");
            return Ok(match db.persist(PersistMode::SyncData) {
                Err(error) if error.to_string().contains("LOCK") => {
                    self.reopen()?;
                    Ok(())
                }
                Err(error) => Err(format!("does not name the lock: {error}")),
                Ok(()) => Err("went on without its lock".into()),
            });
        }
        Ok(Ok(()))
    }

    /// Closes the database, and opens it where it is now.
    fn reopen(&mut self) -> Result<(), Error> {
        self.open = None;
        self.open = Some(self.database(&self.place)?);
        Ok(())
    }

    /// Cuts the power, and looks for the database afterwards.
    fn cut(&mut self, loss: Loss) -> Result<Result<(), String>, Error> {
        let seed = self.rng.next_u64();
        let after = self.fs.power_cut(loss, seed);
        self.open = None;
        self.fs = after;
        let mut found = None;
        for name in self.fs.list(Path::new(HOME)).expect("the disk is sound") {
            let dir = Path::new(HOME).join(name);
            if self.fs.content(&dir.join("CURRENT")).is_err() {
                continue;
            }
            let (db, keyspace) = self.database(&dir)?;
            // The other databases have another mark, or were cut before they had one.
            if keyspace.get(key(MARK))?.is_some_and(|mark| *mark == value(0)) {
                self.place = dir;
                found = Some((db, keyspace));
            }
        }
        let Some((db, keyspace)) = found else { return Ok(Err("the database is gone".into())) };
        let there = contents(&keyspace)?;
        for number in KEYS {
            let (is, was) = (there.get(&number).copied(), self.now.get(&number).copied());
            let may = self.allowed.get(&number).is_some_and(|may| may.contains(&is));
            if is != was && !may {
                return Ok(Err(format!("key {number} is {is:?} and was {was:?}")));
            }
        }
        // The surviving entries were written to tables at opening.
        self.now = there;
        self.settle();
        self.open = Some((db, keyspace));
        Ok(Ok(()))
    }

    fn check(&self) -> Result<Result<(), String>, Error> {
        let (_, keyspace) = self.open.as_ref().expect("it is open");
        let there = contents(keyspace)?;
        let is_same = there == self.now;
        Ok(if is_same { Ok(()) } else { Err(format!("{there:?} and not {:?}", self.now)) })
    }

    fn step(&mut self) -> Result<Result<(), String>, Error> {
        match self.rng.below(20) {
            0 => self.rename()?,
            1 => return self.second(false),
            2 if self.rng.chance(1, 3) => return self.second(true),
            3 => {
                let (db, _) = self.open.as_ref().expect("it is open");
                db.persist(PersistMode::SyncAll)?;
                self.settle();
            }
            4 => self.reopen()?,
            5 => return self.check(),
            6 => {
                let all = Loss::ALL;
                let loss = all[self.rng.index(all.len())];
                return self.cut(loss);
            }
            _ => self.write()?,
        }
        Ok(Ok(()))
    }
}

/// Runs one history. The error says what was lost.
fn run(seed: u64, door: Door) -> Result<(), String> {
    let say = |error: Error| format!("an error without a cause: {error}");
    let mut world = World::new(seed, door).map_err(say)?;
    for number in 0..STEPS {
        let step = world.step().map_err(say).and_then(|held| held);
        step.map_err(|what| format!("step {number}: {what}"))?;
    }
    world.check().map_err(say).and_then(|held| held)
}

#[test]
fn nothing_is_lost_whatever_is_renamed_or_removed() {
    for seed in seeds() {
        run(seed, |fs| Arc::new(fs.clone()))
            .unwrap_or_else(|what| panic!("RHUMB_SEED={seed}: {what}"));
    }
}

/// A disk that cannot hold a directory open: the engine finds every file by its path, as it once
/// did.
#[derive(Debug)]
struct ByPath(SimFs);

impl FileSystem for ByPath {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.create_dir_all(path)
    }
    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.0.create(path)
    }
    fn open(&self, path: &Path, mode: ReadMode) -> io::Result<Arc<dyn ReadableFile>> {
        self.0.open(path, mode)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.remove_file(path)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.hard_link(from, to)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.sync_dir(dir)
    }
    fn lock(&self, path: &Path, holder: &str) -> io::Result<Box<dyn FileLock>> {
        self.0.lock(path, holder)
    }
    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.0.lock_shared(path)
    }
}

/// The planted bug: these histories notice an engine that uses paths.
#[test]
fn an_engine_that_goes_by_paths_is_caught() {
    let caught = (0..20).filter(|seed| run(*seed, |fs| Arc::new(ByPath(fs.clone()))).is_err());
    assert!(caught.count() >= 10);
}

/// Errors that the tests of this directory accept name the file.
#[test]
fn a_refusal_names_its_file() {
    let world = World::new(1, |fs| Arc::new(fs.clone())).unwrap();
    let refused = world.database(&world.place).map(drop).unwrap_err();
    names_a_file(&refused).unwrap();
}
