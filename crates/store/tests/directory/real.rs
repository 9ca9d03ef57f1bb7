//! Random histories on real directories. One thread runs them, because the process's directory
//! changes meanwhile.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rhumb::{Database, Error, Keyspace, PersistMode, inspect::Inspector, io::sim::SimRng};

use super::{
    KEYS, Model, contents, key, keyspace, names_a_file, open_both, read_only, scenes, seeds, small,
    value,
};

/// The number of steps of a history.
const STEPS: usize = 30;

/// A database, its place, and its contents.
struct World {
    home: PathBuf,
    rng: SimRng,
    open: Option<(Database, Keyspace)>,
    /// The present path of the directory; it may have been opened by another.
    place: PathBuf,
    now: Model,
    moves: u64,
    /// A file of the database that was removed.
    removed: Option<PathBuf>,
}

impl World {
    /// Opens the database, by a path that is relative to the present directory of the process.
    fn open(&mut self) -> Result<(), Error> {
        let here = std::env::current_dir().expect("it is there");
        let dir = match self.place.strip_prefix(&here) {
            Ok(below) if self.rng.chance(1, 2) => below.to_owned(),
            _ => self.place.clone(),
        };
        let look = || read_only::look(&self.place);
        self.open = Some(open_both(|| small(Database::builder(&dir)), look)?);
        Ok(())
    }

    fn db(&self) -> &(Database, Keyspace) {
        self.open.as_ref().expect("it is open")
    }

    fn write(&mut self) -> Result<(), Error> {
        let number = self.rng.below(KEYS.end);
        let new = self.rng.below(1 << 40);
        let (db, keyspace) = self.db();
        let mut batch = db.batch();
        if number.is_multiple_of(7) {
            batch = batch.durability(PersistMode::SyncData);
        }
        batch.insert(keyspace, key(number), value(new));
        batch.commit()?;
        self.now.insert(number, new);
        Ok(())
    }

    /// Moves the directory; now and then another database gets its name.
    fn rename(&mut self) {
        self.moves += 1;
        let to = self.home.join(format!("moved-{}", self.moves));
        fs::rename(&self.place, &to).expect("the name is free");
        let old = std::mem::replace(&mut self.place, to);
        if self.rng.chance(1, 2) {
            let other = small(Database::builder(old)).open().expect("a new database");
            let space = keyspace(&other);
            for number in KEYS {
                space.insert(key(number), value(1 << 50)).expect("a new database");
            }
            other.persist(PersistMode::SyncAll).expect("a new database");
        }
    }

    /// Changes to another directory.
    fn change_directory(&mut self) {
        let below = self.home.join("elsewhere");
        fs::create_dir_all(&below).expect("there is room");
        let to = if self.rng.chance(1, 2) { below } else { self.home.clone() };
        std::env::set_current_dir(to).expect("it is there");
    }

    /// Removes a file that the database needs, or its lock.
    fn remove(&mut self) {
        let mut files: Vec<PathBuf> =
            fs::read_dir(&self.place).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let file = files.swap_remove(self.rng.index(files.len()));
        fs::remove_file(&file).expect("it was there");
        self.removed = Some(file);
    }

    /// Ends the process as `kill -9` does: everything handed to the operating system is there.
    fn kill(&mut self) -> Result<(), Error> {
        self.moves += 1;
        let image = self.home.join(format!("image-{}", self.moves));
        scenes::copy(&self.place, &image);
        self.open = None;
        self.place = image;
        self.open()
    }

    fn reopen(&mut self) -> Result<(), Error> {
        self.open = None;
        self.open()
    }

    fn check(&self) -> Result<(), String> {
        let there = contents(&self.db().1).map_err(|error| error.to_string())?;
        if there == self.now { Ok(()) } else { Err(format!("{there:?} and not {:?}", self.now)) }
    }

    /// Checks that a second opener is kept out.
    fn second(&self) -> Result<(), String> {
        match small(Database::builder(&self.place)).open() {
            Err(Error::Locked { .. }) => Ok(()),
            Err(error) if self.removed.is_some() => names_a_file(&error),
            other => Err(format!("a second opener: {other:?}")),
        }
    }

    fn step(&mut self) -> Result<Result<(), String>, Error> {
        match self.rng.below(20) {
            0 => self.rename(),
            1 => self.change_directory(),
            2 if self.removed.is_none() => self.remove(),
            3 => return Ok(self.second()),
            4 => self.reopen()?,
            5 => self.kill()?,
            6 => self.db().0.persist(PersistMode::SyncAll)?,
            7 => self.db().0.flush()?,
            8 if self.removed.is_none() => return Ok(self.check()),
            _ => self.write()?,
        }
        Ok(Ok(()))
    }
}

/// Runs one history. The error says what was lost.
fn run(seed: u64) -> Result<(), String> {
    let home = tempfile::tempdir().expect("there is room");
    std::env::set_current_dir(home.path()).expect("it is there");
    let place = home.path().join("db");
    let (rng, home) = (SimRng::new(seed), home.path().to_owned());
    let mut world =
        World { home, rng, open: None, place, now: Model::new(), moves: 0, removed: None };
    world.open().map_err(|error| error.to_string())?;
    for number in 0..STEPS {
        let outcome = world.step();
        let at = |what: String| format!("step {number}, without {:?}: {what}", world.removed);
        match outcome {
            Ok(held) => held.map_err(at)?,
            // Without one of its files a database may fail, if the error names the file: the
            // history ends.
            Err(error) if world.removed.is_some() => return names_a_file(&error).map_err(at),
            Err(error) => return Err(at(error.to_string())),
        }
    }
    world.open = None;
    let outcome = world.open();
    let at = |what: String| format!("at the end, without {:?}: {what}", world.removed);
    match outcome {
        Ok(()) => world.check().map_err(at),
        Err(error) if world.removed.is_some() => {
            let report = Inspector::new().check(&world.place, &mut |_, _| {});
            let is_told = report.is_ok_and(|report| !report.is_sound());
            if is_told { names_a_file(&error).map_err(at) } else { Err(at("not told".into())) }
        }
        Err(error) => Err(at(error.to_string())),
    }
}

/// The only test that changes the process's directory, and that uses relative paths.
#[test]
fn nothing_is_lost_whatever_is_done_to_the_directory() {
    let before = std::env::current_dir().unwrap();
    for seed in seeds() {
        let outcome = run(seed);
        std::env::set_current_dir(Path::new("/")).unwrap();
        outcome.unwrap_or_else(|what| panic!("RHUMB_SEED={seed}: {what}"));
    }
    // A checkpoint goes where the process is now, and not where it was when the database was
    // opened.
    let home = tempfile::tempdir().unwrap();
    std::env::set_current_dir(home.path()).unwrap();
    let db = small(Database::builder("db")).open().unwrap();
    keyspace(&db).insert(key(1), value(1)).unwrap();
    fs::create_dir(home.path().join("below")).unwrap();
    std::env::set_current_dir(home.path().join("below")).unwrap();
    db.checkpoint("copy").unwrap();
    db.checkpoint("db").unwrap();
    for copy in ["copy", "db"] {
        let copy = Database::builder(home.path().join("below").join(copy)).open().unwrap();
        assert_eq!(contents(&keyspace(&copy)).unwrap(), Model::from([(1, 1)]));
    }
    keyspace(&db).insert(key(2), value(2)).unwrap();
    drop(db);
    let db = Database::builder(home.path().join("db")).open().unwrap();
    assert_eq!(contents(&keyspace(&db)).unwrap(), Model::from([(1, 1), (2, 2)]));
    std::env::set_current_dir(before).unwrap();
}
