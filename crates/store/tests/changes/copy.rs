//! The copy: it takes the changes of the source, and is killed and loses its power.

use std::path::Path;

use rhumb::{
    Changes, ChangesOptions, Database, Error, PersistMode,
    io::sim::{SimFs, SimRng},
};

use super::{Rules, Source, builder, carry, end, read};

/// The name of the copy's cursor.
const CURSOR: &str = "copy";

pub(crate) struct Copy {
    fs: SimFs,
    db: Option<Database>,
    seed: u64,
    rules: Rules,
    rng: SimRng,
    /// What each commit survives.
    durability: PersistMode,
    /// The number of commits that were taken.
    pub(crate) commits: u64,
    /// The number of kills and cuts.
    pub(crate) ends: u64,
    /// The number of times that it had to begin anew.
    pub(crate) lags: u64,
}

impl Copy {
    pub(crate) fn new(seed: u64, rules: Rules) -> Self {
        let rng = SimRng::new(seed ^ 4);
        let durability = match seed % 3 {
            0 => PersistMode::SyncData,
            _ => PersistMode::Buffer,
        };
        let (fs, db) = (SimFs::new(seed ^ 5), None);
        Self { fs, db, seed, rules, rng, durability, commits: 0, ends: 0, lags: 0 }
    }

    pub(crate) fn db(&self) -> &Database {
        self.db.as_ref().expect("it is open")
    }

    /// Kills the copy's process, or cuts its power.
    pub(crate) fn end(&mut self) {
        if let Some(db) = self.db.take() {
            let is_cut = self.rng.chance(1, 2);
            self.fs = end(&self.fs, &mut self.rng, is_cut);
            drop(db);
            self.ends += 1;
            self.open();
        }
    }

    fn open(&mut self) {
        let builder = builder(&self.fs, "/copy").replica(true).durability(self.durability);
        self.db = Some(builder.open().unwrap());
    }

    /// Begins with a copy of the source as it is now.
    fn begin(&mut self, source: &Source) {
        self.db = None;
        let db = source.db();
        db.remove_cursor(CURSOR).unwrap();
        let cursor = db.cursor(CURSOR, self.rules.keep_bytes).unwrap();
        drop(cursor);
        let dir = format!("/copy{}", self.lags);
        db.checkpoint(&dir).unwrap();
        carry((&source.fs, Path::new(&dir)), (&self.fs, Path::new("/copy")));
        self.open();
    }

    /// Takes at most this many commits.
    pub(crate) fn follow(&mut self, source: &mut Source, most: usize) {
        if self.db.is_none() {
            self.begin(source);
        }
        // Each ingestion in between needs another copy.
        for _ in 0..100 {
            let reader = match self.rules.beside {
                true => builder(&source.fs, "/db").open_read_only().unwrap(),
                false => source.db().clone(),
            };
            match self.take(&reader, source, most) {
                Ok(()) => return,
                Err(Error::Lagged { wanted, oldest }) => {
                    let seed = self.seed;
                    assert!(wanted < oldest, "seed {seed}: from {wanted}, the oldest is {oldest}");
                    self.lags += 1;
                    drop(reader);
                    self.begin(source);
                }
                Err(error) => panic!("seed {}: {error}", self.seed),
            }
        }
        panic!("seed {}: it lags again and again", self.seed);
    }

    fn take(&mut self, reader: &Database, source: &Source, most: usize) -> Result<(), Error> {
        let mut cursor = reader.cursor(CURSOR, self.rules.keep_bytes)?;
        let from = self.db().stats().sequence_number + 1;
        // A commit that is there already is skipped.
        let from = if self.rng.chance(1, 4) { cursor.position().min(from) } else { from };
        let options = ChangesOptions::default().durable(true);
        let mut changes: Changes = reader.changes_with(from, options)?;
        for _ in 0..most {
            let mut commits = Vec::new();
            for _ in 0..1 + self.rng.index(3) {
                commits.extend(changes.try_next()?);
            }
            if commits.is_empty() {
                break;
            }
            self.commits += self.db().apply(&commits)?;
            let at = self.db().stats().sequence_number;
            assert!(at + 1 >= changes.position(), "seed {}", self.seed);
            let is_same = read(self.db()) == *source.state(at);
            assert!(is_same, "seed {}: not the source at number {at}", self.seed);
            if most < usize::MAX && self.rng.chance(1, 10) {
                self.end();
                // What was lost comes again.
                return Ok(());
            }
        }
        self.db().persist(PersistMode::SyncData)?;
        cursor.advance(self.db().stats().sequence_number + 1)
    }
}
