//! Events that were seen in use, each as it happened, on real directories.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rhumb::{Database, Error, KeyspaceOptions, Partitioning, PersistMode, inspect::Inspector};

use super::{Model, contents, key, keyspace, small, value};

/// Copies the files of a directory, as `cp -r` does.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

/// The files of `dir` whose names end in `end`, in order.
fn files(dir: &Path, end: &str) -> Vec<PathBuf> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> =
        paths.filter(|path| path.to_str().is_some_and(|path| path.ends_with(end))).collect();
    paths.sort();
    paths
}

/// `mv db db.bak`, and another process creates its database at `db`.
#[test]
fn a_renamed_database_goes_on_in_its_directory() {
    let home = tempfile::tempdir().unwrap();
    let (dir, moved) = (home.path().join("db"), home.path().join("db.bak"));
    let db = small(Database::builder(&dir)).open().unwrap();
    let first = keyspace(&db);
    (0..100).for_each(|number| first.insert(key(number), value(number)).unwrap());
    fs::rename(&dir, &moved).unwrap();
    let other_db = small(Database::builder(&dir)).open().unwrap();
    let other = keyspace(&other_db);
    for number in 100..200 {
        first.insert(key(number), value(number)).unwrap();
        other.insert(key(number), value(7)).unwrap();
    }
    db.persist(PersistMode::SyncAll).unwrap();
    db.checkpoint(home.path().join("copy")).unwrap();
    drop((db, first, other, other_db));
    for dir in [moved, home.path().join("copy")] {
        let db = Database::builder(&dir).open().unwrap();
        let all: Model = (0..200).map(|number| (number, number)).collect();
        assert_eq!(contents(&keyspace(&db)).unwrap(), all);
        drop(db);
        assert!(Inspector::new().check(&dir, &mut |_, _| {}).unwrap().is_sound());
    }
    let db = Database::builder(&dir).open().unwrap();
    assert_eq!(contents(&keyspace(&db)).unwrap().len(), 100);
}

/// `rm db/LOCK`, and a second process opens the database.
#[test]
fn a_removed_lock_lets_nobody_in_and_stops_writes() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("db");
    let db = small(Database::builder(&dir)).open().unwrap();
    let first = keyspace(&db);
    first.insert(key(1), value(1)).unwrap();
    fs::remove_file(dir.join("LOCK")).unwrap();
    let refused = small(Database::builder(&dir)).open().unwrap_err();
    assert!(matches!(&refused, Error::Locked { .. }), "{refused}");
    assert!(refused.to_string().contains("this process"), "{refused}");
    // The lock is not checked before the next segment or manifest; then writes stop.
    let failed = (2..1000).find_map(|number| first.insert(key(number), value(number)).err());
    let failed = failed.expect("segments were begun");
    assert!(failed.to_string().contains("LOCK"), "{failed}");
    assert!(matches!(db.persist(PersistMode::SyncAll), Err(Error::WritesStopped(_))));
    drop((db, first));
    let db = Database::builder(&dir).open().unwrap();
    assert!(contents(&keyspace(&db)).unwrap().contains_key(&1));
}

/// `rm -r db` under a running process.
#[test]
fn a_removed_directory_is_an_error() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("db");
    for mode in [PersistMode::SyncData, PersistMode::SyncAll] {
        let db = Database::builder(&dir).open().unwrap();
        let first = keyspace(&db);
        first.insert(key(1), value(1)).unwrap();
        fs::remove_dir_all(&dir).unwrap();
        let failed = db.persist(mode).unwrap_err();
        assert!(failed.to_string().contains("LOCK"), "{failed}");
        assert!(matches!(first.insert(key(2), value(2)), Err(Error::WritesStopped(_))));
    }
    // The log alone is removed: a sync that reports success would be in vain.
    let db = Database::builder(&dir).open().unwrap();
    let first = keyspace(&db);
    first.insert(key(1), value(1)).unwrap();
    let log = files(&dir, ".log").pop().unwrap();
    fs::remove_file(&log).unwrap();
    let mut batch = db.batch().durability(PersistMode::SyncData);
    batch.insert(&first, key(2), value(2));
    let failed = batch.commit().unwrap_err();
    assert!(failed.to_string().contains(log.to_str().unwrap()), "{failed}");
    drop((db, first));
    // So it is with a manifest.
    fs::remove_dir_all(&dir).unwrap();
    let db = Database::builder(&dir).open().unwrap();
    let manifest = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
    let manifest = manifest.filter(|path| path.to_str().unwrap().contains("MANIFEST-")).last();
    fs::remove_file(manifest.as_ref().unwrap()).unwrap();
    let failed = db.keyspace("k", Default::default()).unwrap_err();
    assert!(failed.to_string().contains(manifest.unwrap().to_str().unwrap()), "{failed}");
}

/// A missing file is damage, and named, if the manifest or `CURRENT` says that it existed.
#[test]
fn a_missing_file_is_damage() {
    let home = tempfile::tempdir().unwrap();
    let (dir, image) = (home.path().join("db"), home.path().join("image"));
    let db = Database::builder(&dir).background_threads(0).open().unwrap();
    let first = keyspace(&db);
    let large = vec![7; 100_000];
    first.insert(key(5000), &large).unwrap();
    (0..1000).for_each(|number| first.insert(key(number), value(number)).unwrap());
    db.flush().unwrap();
    (1000..3000).for_each(|number| first.insert(key(number), value(number)).unwrap());
    db.persist(PersistMode::SyncAll).unwrap();
    copy(&dir, &image);
    let mut kinds = Vec::new();
    for end in ["log", "sst", "val", "CURRENT", ""] {
        let image = home.path().join(format!("without-{end}"));
        copy(&dir, &image);
        let needed = match end {
            "" => files(&image, "")
                .into_iter()
                .find(|path| path.to_str().unwrap().contains("MANIFEST")),
            end => files(&image, end).pop(),
        };
        let needed = needed.expect("there is one");
        fs::remove_file(&needed).unwrap();
        let report = Inspector::new().check(&image, &mut |_, _| {}).unwrap();
        let name = needed.to_str().unwrap();
        assert!(report.problems.iter().any(|problem| problem.to_string().contains(name)), "{name}");
        for create in [None, Some(true), Some(false)] {
            let builder = Database::builder(&image);
            let opened = match create {
                None => builder.open_read_only(),
                Some(create) => builder.create_if_missing(create).open(),
            };
            let error = opened.map(drop).unwrap_err();
            assert!(error.is_corruption() && error.to_string().contains(name), "{error}");
        }
        kinds.push(needed);
    }
    assert_eq!(kinds.len(), 5);
    drop(Database::builder(&image).open().unwrap());
}

/// A checkpoint has no log, not even while it is opened for the first time.
#[test]
fn a_checkpoint_needs_no_log() {
    let home = tempfile::tempdir().unwrap();
    let (dir, copy) = (home.path().join("db"), home.path().join("copy"));
    let db = Database::builder(&dir).open().unwrap();
    keyspace(&db).insert(key(1), value(1)).unwrap();
    db.checkpoint(&copy).unwrap();
    assert!(files(&copy, ".log").is_empty());
    let again = home.path().join("again");
    {
        let copy = Database::builder(&copy).open().unwrap();
        copy.checkpoint(&again).unwrap();
    }
    for dir in [copy, again] {
        assert!(Inspector::new().check(&dir, &mut |_, _| {}).unwrap().is_sound());
        let db = Database::builder(&dir).open().unwrap();
        assert_eq!(contents(&keyspace(&db)).unwrap(), Model::from([(1, 1)]));
    }
}

/// A drop cannot report the result of the last flush.
#[test]
fn closing_says_what_the_last_flush_said() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("db");
    let db = Database::builder(&dir).open().unwrap();
    let keys = keyspace(&db);
    keys.insert(key(1), value(1)).unwrap();
    let other = db.clone();
    assert!(matches!(db.close(), Err(Error::InvalidArgument(_))), "the keyspace is in use");
    drop(keys);
    other.close().unwrap();
    let db = Database::builder(&dir).open().unwrap();
    assert_eq!(contents(&keyspace(&db)).unwrap(), Model::from([(1, 1)]));
    keyspace(&db).insert(key(2), value(2)).unwrap();
    fs::remove_dir_all(&dir).unwrap();
    let error = db.close().unwrap_err();
    assert!(error.to_string().contains("LOCK"), "{error}");
}

/// A caller that requests partitions that do not exist gets an error, and does not drop them in
/// vain.
#[test]
fn other_partitions_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let db = Database::builder(home.path().join("db")).open().unwrap();
    let divided = |by| KeyspaceOptions { partitions: by, ..KeyspaceOptions::default() };
    keyspace(&db);
    let wanted = divided(Partitioning::Delimiter(b'/'));
    let error = db.keyspace("k", wanted.clone()).unwrap_err();
    assert!(error.to_string().contains("partitions"), "{error}");
    db.keyspace("divided", wanted.clone()).unwrap();
    db.keyspace("divided", wanted).unwrap();
    db.keyspace("divided", KeyspaceOptions::default()).unwrap();
    db.keyspace("divided", divided(Partitioning::PrefixLength(4))).unwrap_err();
}

/// The error names the symbolic link, and is not "no database".
#[cfg(unix)]
#[test]
fn a_symbolic_link_is_named() {
    let home = tempfile::tempdir().unwrap();
    let (dir, link) = (home.path().join("db"), home.path().join("link"));
    drop(Database::builder(&dir).open().unwrap());
    std::os::unix::fs::symlink(&dir, &link).unwrap();
    for create in [true, false] {
        let error = Database::builder(&link).create_if_missing(create).open().unwrap_err();
        assert!(error.to_string().contains("symbolic link"), "{error}");
    }
    let error = Inspector::new().check(&link, &mut |_, _| {}).unwrap_err();
    assert!(error.to_string().contains("symbolic link"), "{error}");
    let none = Database::builder(home.path()).create_if_missing(false).open().unwrap_err();
    assert!(none.to_string().contains("no database"), "{none}");
    assert!(!home.path().join("LOCK").exists(), "nothing is made");
}
