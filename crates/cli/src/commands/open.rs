//! Which database and keyspace a command works on, and how they are opened.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use rhumb::{Database, DatabaseBuilder, Keyspace, KeyspaceOptions};
use rhumb_server::parse_memory;

use crate::failure::{Failure, Outcome};

/// Where the database is.
#[derive(Debug, clap::Args)]
pub(crate) struct DatabaseArg {
    /// Directory of the database
    #[arg(
        long,
        alias = "data",
        value_name = "DIR",
        env = "RHUMB_DB",
        hide_env_values = true,
        default_value = "rhumb-data"
    )]
    pub(crate) db: PathBuf,
    /// Memory for unflushed writes, indexes, filters and cached blocks: 64MiB, 4GiB, or bytes
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = parse_memory)]
    memory: u64,
}

/// Where the entries are.
#[derive(Debug, clap::Args)]
pub(crate) struct KeyspaceArg {
    #[command(flatten)]
    pub(crate) database: DatabaseArg,
    /// Keyspace within the database
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) keyspace: String,
}

impl DatabaseArg {
    /// Opens a database that is there, for reading alone: nothing is written to its directory,
    /// which may be one that cannot be written to.
    pub(crate) fn open_read_only(&self) -> Outcome<Database> {
        self.require()?;
        Ok(self.builder().open_read_only()?)
    }

    /// Opens a database that is there.
    pub(crate) fn open(&self) -> Outcome<Database> {
        self.require()?;
        Ok(self.builder().create_if_missing(false).open()?)
    }

    /// Fails, with what to do, if there is no database.
    pub(crate) fn require(&self) -> Outcome {
        require_directory(&self.db)
    }

    /// Memory for the engine, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.memory
    }

    /// Opens the database, or makes it.
    pub(crate) fn open_or_create(&self) -> Outcome<Database> {
        Ok(self.builder().create_if_missing(true).open()?)
    }

    fn builder(&self) -> DatabaseBuilder {
        Database::builder(&self.db).memory_budget_bytes(self.memory)
    }
}

fn require_directory(path: &Path) -> Outcome {
    let why = match path.metadata() {
        Ok(metadata) if metadata.is_dir() => return Ok(()),
        Ok(_) => format!("there is no database at {}, which is no directory", path.display()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            format!("there is no database at {}", path.display())
        }
        // There may well be one: a directory on the way may not be entered, or the disk fails.
        Err(error) => {
            return Err(Failure::failed(format!("cannot look at {}: {error}", path.display())));
        }
    };
    Err(Failure::failed(format!("{why}: name another with --db, or make it with `rhumb load`")))
}

impl KeyspaceArg {
    /// Opens a keyspace that is there, for reading alone.
    pub(crate) fn open_read_only(&self) -> Outcome<(Database, Keyspace)> {
        self.keyspace_of(self.database.open_read_only()?)
    }

    /// Opens a keyspace that is there.
    pub(crate) fn open(&self) -> Outcome<(Database, Keyspace)> {
        self.keyspace_of(self.database.open()?)
    }

    fn keyspace_of(&self, db: Database) -> Outcome<(Database, Keyspace)> {
        let names = db.keyspace_names();
        if !names.contains(&self.keyspace) {
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(Failure::failed(format!(
                "there is no keyspace {:?} in {}: name one with --keyspace; there are: {there}",
                self.keyspace,
                self.database.db.display()
            )));
        }
        let keyspace = db.keyspace(&self.keyspace, KeyspaceOptions::default())?;
        Ok((db, keyspace))
    }

    /// Opens the keyspace, or makes it, and the database too.
    pub(crate) fn open_or_create(&self) -> Outcome<(Database, Keyspace)> {
        let db = self.database.open_or_create()?;
        let keyspace = db.keyspace(&self.keyspace, KeyspaceOptions::default())?;
        Ok((db, keyspace))
    }
}
