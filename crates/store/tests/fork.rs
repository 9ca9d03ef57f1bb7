//! A process that is forked from one that has a database open: every read and write is refused,
//! dropping its handles leaves the parent's files alone, and a database of its own works. This test
//! is alone in its process: no other test's thread holds a lock at the moment of the fork.
#![cfg(unix)]
#![allow(unsafe_code, reason = "the library's way to run something in a child is unsafe")]

use std::{
    io::Error as IoError,
    os::unix::process::CommandExt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
};

use rhumb::{Database, Error, Keyspace, KeyspaceOptions, PersistMode, Result, Snapshot, Submitted};

/// The answer of a child that panics. Answers are error numbers of the system, because the standard
/// library passes those on from a child.
const PANICKED: i32 = 100;

/// Runs `act` in a forked child, and returns its answer.
fn in_fork(act: impl Fn() -> i32 + Send + Sync + 'static) -> i32 {
    let mut command = Command::new("true");
    let run = move || match catch_unwind(AssertUnwindSafe(&act)).unwrap_or(PANICKED) {
        0 => Ok(()),
        answer => Err(IoError::from_raw_os_error(answer)),
    };
    // SAFETY: the child allocates and takes locks, which is what is tested. The threads that may
    // hold one at the fork are those of the database: glibc takes care of the allocator's locks,
    // and the engine must take care of its own.
    let command = unsafe { command.pre_exec(run) };
    match command.status() {
        Ok(status) => i32::from(!status.success()),
        Err(error) => error.raw_os_error().expect("the child's answer"),
    }
}

/// All handles of a database.
struct Handles {
    db: Database,
    keyspace: Keyspace,
    _snapshot: Snapshot,
    _submitted: Submitted,
}

fn open(dir: &Path) -> (Database, Keyspace) {
    let db = Database::builder(dir).background_threads(2).memtable_bytes(64 << 10).open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    (db, keyspace)
}

fn key(i: u32) -> [u8; 4] {
    i.to_be_bytes()
}

fn is_refused<T>(result: Result<T>) -> bool {
    matches!(result, Err(error @ Error::Forked { .. }) if error.to_string().contains("forked"))
}

/// Uses the parent's database in a child. Returns the number of the first surprise.
fn child(handles: &Mutex<Option<Handles>>, dir: &Path) -> i32 {
    let Some(handles) = handles.lock().unwrap().take() else { return 1 };
    let Handles { db, keyspace, .. } = &handles;
    let mut batch = db.batch();
    batch.insert(keyspace, "child", "1");
    let refusals = [
        is_refused(keyspace.insert("child", "1")),
        is_refused(batch.commit()),
        is_refused(db.persist(PersistMode::SyncAll)),
        is_refused(db.flush()),
        is_refused(db.keyspace("new", KeyspaceOptions::default())),
        is_refused(db.drop_keyspace("k")),
        is_refused(keyspace.clear()),
        is_refused(keyspace.ingest([("child", "1")])),
        is_refused(keyspace.compact()),
        is_refused(db.checkpoint(dir.join("copy"))),
        is_refused(keyspace.get(key(7))),
        is_refused(keyspace.multi_get(&[key(7), key(8)])),
        is_refused(keyspace.iter().next().transpose()),
        is_refused(keyspace.first_key_value()),
        is_refused(keyspace.explain(key(7))),
        is_refused(keyspace.sample(|_| 0)),
        is_refused(keyspace.pop_first()),
        is_refused(db.snapshot().keyspace(keyspace).unwrap().get(key(7))),
    ];
    if let Some(at) = refusals.iter().position(|is_refused| !is_refused) {
        return 10 + at as i32;
    }
    // A database of its own is like any other.
    let (own, mine) = open(&dir.join("own"));
    mine.insert("child", "1").unwrap();
    own.flush().unwrap();
    drop((own, mine));
    drop(handles);
    0
}

#[test]
fn a_forked_child_is_refused_and_harms_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("db");
    let (db, keyspace) = open(&dir);
    for i in 0..3_000 {
        keyspace.insert(key(i), [7; 100]).unwrap();
    }
    db.flush().unwrap();
    keyspace.compact().unwrap();
    let snapshot = db.snapshot();
    let mut batch = db.batch();
    batch.insert(&keyspace, "submitted", "1");
    let submitted = batch.submit().unwrap();
    let handles = Handles { db, keyspace, _snapshot: snapshot, _submitted: submitted };
    let handles = Arc::new(Mutex::new(Some(handles)));
    let (held, place) = (Arc::clone(&handles), tmp.path().to_owned());
    assert_eq!(in_fork(move || child(&held, &place)), 0, "what `child` says");
    let second = Database::builder(&dir).open();
    assert!(matches!(second, Err(Error::Locked { .. })), "the child gave the lock up");

    // The parent goes on, and closes normally.
    let handles = Arc::into_inner(handles).unwrap().into_inner().unwrap().unwrap();
    handles.keyspace.insert("after", "1").unwrap();
    handles.db.persist(PersistMode::SyncAll).unwrap();
    drop(handles);
    let (_db, keyspace) = open(&dir);
    assert_eq!(keyspace.iter().collect::<rhumb::Result<Vec<_>>>().unwrap().len(), 3_002);
    for key in ["submitted", "after"] {
        assert!(keyspace.contains_key(key).unwrap(), "{key}");
    }
    assert!(!keyspace.contains_key("child").unwrap());
}
