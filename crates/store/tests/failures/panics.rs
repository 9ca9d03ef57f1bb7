//! Threads that panic in the middle of a write: no writer is told that it was done, nothing builds
//! on the half-done work, and what was acknowledged before is there after reopening.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use rhumb::{
    Database, Error, Keyspace, KeyspaceOptions, PersistMode,
    io::sim::{CallKind, Fault, Matcher, SimFs},
};

const DIR: &str = "/db";

fn open(fs: &SimFs, threads: usize) -> (Database, Keyspace) {
    let builder = Database::builder(DIR).file_system(Arc::new(fs.clone()));
    let db = builder.background_threads(threads).memtable_bytes(64 << 10).open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    (db, keyspace)
}

fn panic_at(fs: &SimFs, kind: CallKind, part: &str) {
    fs.inject(Matcher::any().kinds(&[kind]).name_contains(part), Fault::Panic, 1);
}

/// Checks that every call that would write reports that writes are stopped, and that reads go on.
fn assert_stopped(db: &Database, keyspace: &Keyspace) {
    let stopped = |result: rhumb::Result<()>| {
        let error = result.expect_err("writes go on after a panic");
        assert!(matches!(error, Error::WritesStopped(_)), "{error}");
        assert!(error.to_string().contains("panicked"), "{error}");
    };
    stopped(keyspace.insert("later", "1"));
    stopped(db.persist(PersistMode::SyncAll));
    stopped(db.flush());
    stopped(keyspace.clear());
    stopped(keyspace.ingest([("later", "1")]).map(drop));
    stopped(db.keyspace("other", KeyspaceOptions::default()).map(drop));
    stopped(db.drop_keyspace("k").map(drop));
    assert_eq!(keyspace.get("before").unwrap().unwrap(), b"1");
    assert!(
        db.snapshot()
            .keyspace(keyspace)
            .unwrap()
            .iter()
            .all(|pair| pair.unwrap().0 == "before".as_bytes())
    );
}

/// Checks that what was acknowledged is there after reopening, and `group` as a whole or not at
/// all.
fn assert_reopens(fs: &SimFs, group: &[String]) {
    let (db, keyspace) = open(fs, 0);
    assert_eq!(keyspace.get("before").unwrap().unwrap(), b"1");
    let found = group.iter().filter(|key| keyspace.get(key).unwrap().is_some()).count();
    // Each batch is whole in itself; a group's records follow one another.
    assert!(found == group.len() || keyspace.get(&group[found..][0]).unwrap().is_none());
    keyspace.insert("again", "1").unwrap();
    db.persist(PersistMode::SyncAll).unwrap();
    db.flush().unwrap();
}

#[test]
fn a_panic_of_the_committing_thread_acknowledges_nothing() {
    let places = [(CallKind::Write, ".log"), (CallKind::SyncData, ".log")];
    for (kind, part) in places {
        let fs = SimFs::new(1);
        let (db, keyspace) = open(&fs, 0);
        keyspace.insert("before", "1").unwrap();
        let keys: Vec<String> = (0..5).map(|i| format!("group-{i}")).collect();
        let submitted: Vec<_> = keys
            .iter()
            .map(|key| {
                let mut batch = db.batch().durability(PersistMode::SyncData);
                batch.insert(&keyspace, key, "1");
                batch.submit().unwrap()
            })
            .collect();
        panic_at(&fs, kind, part);
        catch_unwind(AssertUnwindSafe(|| db.commit_submitted())).expect_err("no panic");
        for batch in submitted {
            let error = batch.finish().expect_err("acknowledged by a thread that panicked");
            assert!(error.to_string().contains("panicked"), "{error}");
        }
        assert_stopped(&db, &keyspace);
        drop((db, keyspace));
        assert_reopens(&fs, &keys);
    }
}

#[test]
fn a_panic_while_the_segment_changes_stops_writes() {
    let fs = SimFs::new(2);
    let (db, keyspace) = open(&fs, 0);
    keyspace.insert("before", "1").unwrap();
    panic_at(&fs, CallKind::Create, ".log");
    catch_unwind(AssertUnwindSafe(|| db.flush())).expect_err("no panic");
    assert_stopped(&db, &keyspace);
    drop((db, keyspace));
    assert_reopens(&fs, &[]);
}

#[test]
fn a_panic_in_an_edit_of_the_manifest_stops_writes() {
    for kind in [CallKind::Write, CallKind::SyncData] {
        let fs = SimFs::new(3);
        let (db, keyspace) = open(&fs, 0);
        keyspace.insert("before", "1").unwrap();
        panic_at(&fs, kind, "MANIFEST");
        let create = || db.keyspace("new", KeyspaceOptions::default());
        catch_unwind(AssertUnwindSafe(create)).expect_err("no panic");
        assert_stopped(&db, &keyspace);
        drop((db, keyspace));
        assert_reopens(&fs, &[]);
    }
}

#[test]
fn a_panic_of_the_pool_is_a_failure_that_is_told_and_passes() {
    let fs = SimFs::new(4);
    let (db, keyspace) = open(&fs, 2);
    keyspace.insert("before", "1").unwrap();
    let create = Matcher::any().kinds(&[CallKind::Create]).name_contains(".sst");
    fs.inject(create, Fault::Panic, u64::MAX);
    let error = db.flush().expect_err("nothing was flushed");
    assert!(error.to_string().contains("panicked"), "{error}");
    assert!(db.stats().failure.unwrap().contains("panicked"));
    assert!(db.stats().failed_jobs > 0);
    keyspace.insert("meanwhile", "1").unwrap();
    fs.clear_faults();
    // The pool tries again.
    while db.flush().is_err() {
        std::thread::yield_now();
    }
    assert_eq!(db.stats().failure, None);
    assert_eq!(db.stats().sealed_memtables, 0);
}

#[test]
fn a_panic_of_the_pool_in_an_edit_of_the_manifest_stops_writes() {
    let fs = SimFs::new(5);
    let (db, keyspace) = open(&fs, 2);
    keyspace.insert("before", "1").unwrap();
    panic_at(&fs, CallKind::SyncData, "MANIFEST");
    assert!(db.flush().is_err());
    assert_stopped(&db, &keyspace);
    drop((db, keyspace));
    assert_reopens(&fs, &[]);
}
