//! A process beside the program: it reads the same database, writes nothing, and takes no lock.

use rhumb::{Database, Error, KeyspaceOptions};

use super::{
    super::{
        coverage::{COVERAGE, Coverage},
        oracle::{Model, differences},
    },
    Program, read_keyspace,
};

/// A database that is open for reading alone.
pub(super) struct Reader {
    db: Database,
    /// The number of the last write that it has seen.
    seen: u64,
}

impl Program {
    /// The contents of the database, read without writing anything; `None` if there is no database.
    /// The process that has read them stays.
    pub(crate) fn read_alone(&mut self) -> Result<Option<Model>, Error> {
        let changes = self.fs.counts().changes;
        let db = match self.builder(self.path()).open_read_only() {
            Ok(db) => db,
            Err(Error::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let model = self.read_from(&db)?;
        self.reader = Some(Reader { seen: db.stats().sequence_number, db });
        assert_eq!(self.fs.counts().changes, changes, "reading alone changed something");
        Ok(Some(model))
    }

    /// All that a process shows of this program's keyspaces.
    pub(super) fn read_from(&self, db: &Database) -> Result<Model, Error> {
        let mut model = Model::default();
        for (keyspace, entries) in model.iter_mut().enumerate() {
            let name = self.keyspace_name(keyspace);
            if db.has_keyspace(&name) {
                *entries = read_keyspace(&db.keyspace(&name, KeyspaceOptions::default())?)?;
            }
        }
        Ok(model)
    }

    /// Has the reader beside catch up, or opens one, and compares what it sees: all that the
    /// program has done, as nothing is under way. After a failure the log may have more.
    pub(super) fn follow(&mut self, ends: bool) -> Result<Result<(), String>, Error> {
        let db = match &self.reader {
            Some(reader) => reader.db.clone(),
            None => self.builder(self.path()).open_read_only()?,
        };
        let seen = match &self.reader {
            Some(_) => db.catch_up()?,
            None => db.stats().sequence_number,
        };
        let found = self.read_from(&db)?;
        let before = self.reader.replace(Reader { db, seen }).map_or(0, |reader| reader.seen);
        if ends {
            self.reader = None;
        }
        if seen < before {
            return Ok(Err(format!("a reader went back from {before} to {seen}")));
        }
        if !self.oracle.is_certain() || !self.fs.faulted_calls().is_empty() {
            return Ok(Ok(()));
        }
        Coverage::add(&COVERAGE.followed, 1);
        let expected = self.oracle.now();
        if found == expected {
            return Ok(Ok(()));
        }
        let differences = differences(&expected, &found);
        Ok(Err(format!("a reader at {seen} shows another state:\n{differences}")))
    }
}
