//! A database with more tables than the process may have descriptors: it can be opened, written,
//! flushed and read below the limit less 64. Each test is a process of its own, started with a low
//! limit.
//!
//! `RHUMB_DESCRIPTOR_KEYSPACES` is the number of keyspaces (10,000 in the long form).

#![cfg(target_os = "linux")]

use std::{env, fs, path::Path, process::Command};

use rhumb::{Database, KeyspaceOptions, PersistMode, Result};

/// The limit of the process.
const LIMIT: u64 = 256;
/// The number of descriptors of the limit that the engine leaves free.
const LEFT: u64 = 64;

/// The number of files that background threads read or open at one moment: they are open beyond the
/// bound.
const READS: u64 = 8;

/// The number of keys of a keyspace.
const KEYS: u32 = 5;

/// Runs the ignored test `name` of this program with `LIMIT` descriptors, which it cannot raise.
fn run_limited(name: &str) {
    let script = format!("ulimit -n {LIMIT} && exec \"$0\" --exact {name} --ignored --nocapture");
    let status = Command::new("sh").arg("-c").arg(script).arg(env::current_exe().unwrap()).status();
    assert!(status.unwrap().success(), "{name} with {LIMIT} descriptors");
}

fn keyspaces() -> u32 {
    env::var("RHUMB_DESCRIPTOR_KEYSPACES").map_or(400, |count| count.parse().unwrap())
}

/// The descriptors of this process.
fn descriptors() -> u64 {
    fs::read_dir("/proc/self/fd").unwrap().count() as u64 - 1
}

fn check_descriptors(db: &Database) {
    let (open, stats) = (descriptors(), db.stats());
    assert!(open <= LIMIT - LEFT, "{open} descriptors");
    assert!(stats.open_files <= stats.open_files_max + READS, "{stats:?}");
    assert!(stats.open_files_max <= LIMIT - LEFT, "{}", stats.open_files_max);
}

fn name(number: u32) -> String {
    format!("keyspace {number}")
}

/// Writes all keyspaces, each into a table that holds nothing else.
fn write(db: &Database, round: u32) -> Result<()> {
    for number in 0..keyspaces() {
        let keyspace = db.keyspace(&name(number), KeyspaceOptions::default())?;
        for key in 0..KEYS {
            let value = format!("{number} {key} {round}").repeat(20);
            keyspace.insert(key.to_be_bytes(), value.as_bytes())?;
        }
        if number % 100 == 0 {
            db.flush()?;
            check_descriptors(db);
        }
    }
    db.flush()?;
    db.persist(PersistMode::SyncAll)
}

fn read(db: &Database, round: u32) -> Result<()> {
    for number in 0..keyspaces() {
        let keyspace = db.keyspace(&name(number), KeyspaceOptions::default())?;
        for key in 0..KEYS {
            let value = keyspace.get(key.to_be_bytes())?.expect("every key was written");
            assert_eq!(&value[..], format!("{number} {key} {round}").repeat(20).as_bytes());
        }
        assert_eq!(keyspace.iter().count(), KEYS as usize);
        if number % 100 == 0 {
            check_descriptors(db);
        }
    }
    Ok(())
}

fn open(path: &Path) -> Result<Database> {
    Database::builder(path).memory_budget_bytes(64 << 20).open()
}

#[test]
fn more_keyspaces_than_descriptors() {
    run_limited("limited_keyspaces");
}

#[test]
#[ignore = "started by another test, with a low limit"]
fn limited_keyspaces() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..2 {
        let db = open(dir.path())?;
        check_descriptors(&db);
        write(&db, round)?;
        read(&db, round)?;
        drop(db);
        let db = open(dir.path())?;
        check_descriptors(&db);
        read(&db, round)?;
    }
    Ok(())
}

/// Tables of their own, none of them small: their keys ascend, so they are never merged.
#[test]
fn more_tables_than_descriptors() {
    run_limited("limited_tables");
}

#[test]
#[ignore = "started by another test, with a low limit"]
fn limited_tables() -> Result<()> {
    const TABLES: u32 = 300;
    const VALUES: u32 = 8;
    let dir = tempfile::tempdir().unwrap();
    let builder =
        || Database::builder(dir.path()).memory_budget_bytes(8 << 20).table_bytes(16 << 10);
    let value = |key: u32| [key.to_le_bytes(); 1024].concat();
    let db = builder().open()?;
    let keyspace = db.keyspace("keys", KeyspaceOptions::default())?;
    for table in 0..TABLES {
        for key in table * VALUES..(table + 1) * VALUES {
            keyspace.insert(key.to_be_bytes(), value(key))?;
        }
        db.flush()?;
        check_descriptors(&db);
    }
    drop((keyspace, db));
    let db = builder().open()?;
    let keyspace = db.keyspace("keys", KeyspaceOptions::default())?;
    // The keys are far apart, so that nearly every read is of another table.
    for step in 0..TABLES * VALUES {
        let key = step * 37 % (TABLES * VALUES);
        assert_eq!(&keyspace.get(key.to_be_bytes())?.expect("it is there")[..], value(key));
        if step % 100 == 0 {
            check_descriptors(&db);
        }
    }
    let keys: Vec<[u8; 4]> = (0..TABLES).map(|table| (table * VALUES).to_be_bytes()).collect();
    for (key, found) in keys.iter().zip(keyspace.multi_get(&keys)?) {
        assert_eq!(&found.expect("it is there")[..], value(u32::from_be_bytes(*key)));
    }
    check_descriptors(&db);
    let mut walked = 0_u32;
    for entry in keyspace.iter() {
        let (key, found) = entry?;
        assert_eq!((&key[..], &found[..]), (&walked.to_be_bytes()[..], &value(walked)[..]));
        walked += 1;
    }
    assert_eq!(walked, TABLES * VALUES);
    check_descriptors(&db);
    Ok(())
}
