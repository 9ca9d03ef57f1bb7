//! Databases whose directory is not left alone: it is renamed, another database takes its name, the
//! process changes its own directory, files are removed, a second process tries to open it, and on
//! a simulated disk the power is cut as well. Before every opening for writing it is opened for
//! reading only, which reads the same and writes nothing.
//!
//! The rule: nothing that was acknowledged is lost while calls return `Ok`; otherwise an error
//! names the file.
//!
//! - `RHUMB_DIRECTORY_HISTORIES=n` sets the number of random histories of each kind (10000 is the
//!   long run);
//! - `RHUMB_SEED=n` runs one seed alone.

mod faults;
mod read_only;
mod real;
mod scenes;
mod simulated;

use std::{collections::BTreeMap, ops::Range};

use rhumb::{Database, DatabaseBuilder, Error, Keyspace, KeyspaceOptions};

/// The number of histories of each kind by default: a few seconds without optimisation.
const HISTORIES_DEFAULT: u64 = 12;

/// The keys of a history.
const KEYS: Range<u64> = 0..60;

/// The contents of a database.
type Model = BTreeMap<u64, u64>;

/// The seeds to run.
fn seeds() -> Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    match number("RHUMB_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("RHUMB_DIRECTORY_HISTORIES").unwrap_or(HISTORIES_DEFAULT),
    }
}

/// Sets sizes so small that flushes and new segments happen all the time, and work is done in the
/// calls.
fn small(builder: DatabaseBuilder) -> DatabaseBuilder {
    builder.memtable_bytes(2_000).table_bytes(4_000).level_one_bytes(8_000).background_threads(0)
}

fn keyspace(db: &Database) -> Keyspace {
    db.keyspace("k", KeyspaceOptions::default()).expect("it is there or can be made")
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn value(number: u64) -> Vec<u8> {
    format!("{number:0100}").into_bytes()
}

/// All entries of the keyspace.
fn contents(keyspace: &Keyspace) -> Result<Model, Error> {
    let pairs = keyspace.iter().map(|pair| {
        let (key, value) = pair?;
        let key = u64::from_be_bytes((*key).try_into().expect("eight bytes"));
        Ok((key, String::from_utf8_lossy(&value).parse().expect("a number")))
    });
    pairs.collect()
}

/// Opens a database for reading only and then for writing. Fails if the two differ, or if after the
/// first `look` returns anything that it did not return before.
///
/// Things that it returned before may be missing: files that a database no longer needed when it
/// was closed are removed once no thread of the process can be reading them, and other tests'
/// threads count.
fn open_both<L: PartialEq>(
    builder: impl Fn() -> DatabaseBuilder,
    look: impl Fn() -> Vec<L>,
) -> Result<(Database, Keyspace), Error> {
    let before = look();
    // The handles are dropped before it is opened for writing.
    let read = builder().open_read_only().map(|db| match db.has_keyspace("k") {
        true => contents(&keyspace(&db)),
        false => Ok(Model::new()),
    });
    let is_new = |seen: &L| !before.contains(seen);
    assert!(!look().iter().any(is_new), "opening for reading alone changed something");
    let db = builder().open()?;
    let keyspace = keyspace(&db);
    let there = contents(&keyspace)?;
    match read {
        Ok(read) => assert_eq!(read?, there, "for reading alone, and for writing"),
        Err(Error::NotFound(_)) if there.is_empty() => {}
        Err(error) => panic!("it can be written and not read: {error}"),
    }
    Ok((db, keyspace))
}

/// Fails unless the error names the file that it is about.
fn names_a_file(error: &Error) -> Result<(), String> {
    let path = match error {
        Error::Io(failure) => &failure.path,
        Error::Corrupt(damage) => &damage.path,
        Error::Locked { path, .. } | Error::Unsupported { path, .. } | Error::ReadOnly { path } => {
            path
        }
        Error::WritesStopped(cause) => return names_a_file(cause),
        other => return Err(format!("names no file: {other}")),
    };
    match path.file_name() {
        Some(_) => Ok(()),
        None => Err(format!("names no file: {error}")),
    }
}
