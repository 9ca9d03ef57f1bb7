//! `Stats` report present failures, only as long as they last, and count past ones.

use std::{path::PathBuf, sync::Arc};

use rhumb::{
    Database, Keyspace, KeyspaceOptions, PersistMode,
    io::sim::{CallKind, Fault, Matcher, SimFs},
};

const DIR: &str = "/db";

fn open(fs: &SimFs) -> (Database, Keyspace) {
    let builder = Database::builder(DIR).file_system(Arc::new(fs.clone()));
    let db = builder.background_threads(0).open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    (db, keyspace)
}

fn tables(fs: &SimFs) -> Vec<PathBuf> {
    let files = fs.files(DIR.as_ref());
    files.into_iter().filter(|path| path.extension().is_some_and(|ext| ext == "sst")).collect()
}

#[test]
fn a_full_disk_is_a_failure_until_a_write_succeeds() {
    let fs = SimFs::new(1);
    let (db, keyspace) = open(&fs);
    keyspace.insert("a", "1").unwrap();
    let sound = db.stats();
    assert_eq!((sound.write_failure, sound.failed_writes), (None, 0));
    fs.set_free_bytes(Some(0));
    for _ in 0..2 {
        keyspace.insert("b", "1").unwrap_err();
    }
    db.keyspace("other", KeyspaceOptions::default()).unwrap_err();
    let full = db.stats();
    assert!(full.write_failure.expect("a full disk").contains(".log"));
    assert!(!full.writes_stopped);
    assert_eq!(full.failed_writes, 3);
    fs.set_free_bytes(None);
    keyspace.insert("b", "1").unwrap();
    // Entries are accepted again; keyspaces are not known to be.
    assert!(db.stats().write_failure.expect("no keyspace was created").contains("MANIFEST"));
    db.keyspace("other", KeyspaceOptions::default()).unwrap();
    assert_eq!(db.stats().write_failure, None);
    assert_eq!(db.stats().failed_writes, 3);
}

#[test]
fn arguments_that_are_refused_are_no_failure() {
    let (db, keyspace) = open(&SimFs::new(2));
    keyspace.insert(vec![0; 100_000], "1").unwrap_err();
    keyspace.ingest([("b", "1"), ("a", "1")]).unwrap_err();
    db.drop_keyspace("k").unwrap();
    keyspace.insert("a", "1").unwrap_err();
    let stats = db.stats();
    assert_eq!((stats.write_failure, stats.failed_writes, stats.failed_jobs), (None, 0, 0));
}

#[test]
fn a_failed_sync_is_a_failure_until_the_database_is_reopened() {
    let fs = SimFs::new(3);
    let (db, keyspace) = open(&fs);
    keyspace.insert("a", "1").unwrap();
    let syncs = Matcher::any().kinds(&[CallKind::SyncData]).name_suffix(".log");
    fs.inject(syncs, Fault::Eio, 1);
    db.persist(PersistMode::SyncData).unwrap_err();
    keyspace.insert("b", "1").unwrap_err();
    let stats = db.stats();
    assert!(stats.writes_stopped && stats.write_failure.is_some());
    assert_eq!((stats.failed_syncs, stats.failed_writes), (1, 1));
    drop((db, keyspace));
    let (db, keyspace) = open(&fs);
    keyspace.insert("b", "1").unwrap();
    let stats = db.stats();
    assert_eq!((stats.writes_stopped, stats.write_failure), (false, None));
}

#[test]
fn damage_that_reads_meet_is_counted_with_its_file() {
    let fs = SimFs::new(4);
    let (db, keyspace) = open(&fs);
    for i in 0..2_000_u32 {
        keyspace.insert(i.to_be_bytes(), [7; 100]).unwrap();
    }
    db.flush().unwrap();
    drop((db, keyspace));
    let table = tables(&fs).pop().expect("a table");
    let mut content = fs.content(&table).unwrap();
    // Within the first blocks, which are not read at opening.
    content[100] ^= 0xFF;
    fs.set_content(&table, content).unwrap();
    let (db, keyspace) = open(&fs);
    assert_eq!(db.stats().damage_met, 0);
    keyspace.get(0_u32.to_be_bytes()).unwrap_err();
    let stats = db.stats();
    assert_eq!(stats.damage_met, 1);
    assert_eq!(stats.last_damage.expect("the damage").path, table);
    // Walks and reads of many keys meet it, too.
    assert!(keyspace.iter().any(|pair| pair.is_err()));
    assert!(keyspace.multi_get(&[0_u32.to_be_bytes(), 1_u32.to_be_bytes()]).is_err());
    assert!(db.stats().damage_met >= 3);
    assert_eq!(db.stats().failed_reads, 0);
    // Sound data is still read, and writes go on.
    keyspace.get(1_999_u32.to_be_bytes()).unwrap().unwrap();
    keyspace.insert("a", "1").unwrap();
    assert_eq!(db.stats().write_failure, None);
}

#[test]
fn reads_that_the_system_refuses_are_counted() {
    let fs = SimFs::new(5);
    let (db, keyspace) = open(&fs);
    keyspace.insert("a", [7; 100]).unwrap();
    db.flush().unwrap();
    drop((db, keyspace));
    let (db, keyspace) = open(&fs);
    fs.inject(Matcher::any().kinds(&[CallKind::Read]), Fault::Eio, 1);
    keyspace.get("a").unwrap_err();
    keyspace.get("a").unwrap().unwrap();
    let stats = db.stats();
    assert_eq!((stats.failed_reads, stats.damage_met), (1, 0));
    assert!(stats.last_failed_read.expect("the refusal").contains(".sst"));
}

#[test]
fn a_failed_compaction_of_what_was_cleared_is_forgotten() {
    let fs = SimFs::new(6);
    let (db, keyspace) = open(&fs);
    let create = Matcher::any().kinds(&[CallKind::Create]).name_suffix(".sst");
    keyspace.insert("a", "1").unwrap();
    let mut rounds = 0;
    // Each round adds a table, until there are enough for a compaction, which the next write tries.
    while db.stats().failure.is_none() {
        db.flush().unwrap();
        fs.inject(create.clone(), Fault::Eio, u64::MAX);
        keyspace.insert([9; 4], "1").unwrap();
        fs.clear_faults();
        rounds += 1;
        assert!(rounds < 20, "no compaction was tried");
    }
    assert!(db.stats().failed_jobs > 0);
    keyspace.clear().unwrap();
    keyspace.insert("a", "1").unwrap();
    assert_eq!(db.stats().failure, None);
}
