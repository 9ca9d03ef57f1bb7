//! File systems that refuse operations that are not essential.

use std::{path::Path, sync::Arc};

use rhumb::{
    Database,
    io::sim::{CallKind, Fault, Matcher, SimFs},
};

use super::{Model, contents, key, keyspace, small, value};

const EPERM: i32 = 1;
const EXDEV: i32 = 18;
const EINVAL: i32 = 22;
const EMLINK: i32 = 31;

fn open(fs: &SimFs, dir: &str) -> Database {
    small(Database::builder(dir)).file_system(Arc::new(fs.clone())).open().unwrap()
}

/// CIFS and others do not sync directories: the statistics say so, and the database opens all the
/// same.
#[test]
fn a_disk_without_syncs_of_directories_is_used() {
    let fs = SimFs::new(1);
    assert!(!open(&fs, "/sound").stats().no_directory_sync);
    fs.inject(Matcher::any().kinds(&[CallKind::SyncDir]), Fault::Errno(EINVAL), u64::MAX);
    let db = open(&fs, "/db");
    assert!(db.stats().no_directory_sync);
    let keys = keyspace(&db);
    (0..200).for_each(|number| keys.insert(key(number), value(number)).unwrap());
    db.persist(rhumb::PersistMode::SyncAll).unwrap();
    db.flush().unwrap();
    db.checkpoint("/copy").unwrap();
    assert!(db.stats().failure.is_none());
    drop((db, keys));
    for dir in ["/db", "/copy"] {
        assert_eq!(contents(&keyspace(&open(&fs, dir))).unwrap().len(), 200);
    }
}

/// A checkpoint is copied if it cannot be linked, and leaves nothing if it fails.
#[test]
fn a_checkpoint_is_copied_or_leaves_nothing() {
    for (at, errno) in [EPERM, EXDEV, EMLINK].into_iter().enumerate() {
        let fs = SimFs::new(2);
        let db = open(&fs, "/db");
        let keys = keyspace(&db);
        (0..500).for_each(|number| keys.insert(key(number), value(number)).unwrap());
        keys.insert(key(500), vec![3; 3 << 20]).unwrap();
        keys.remove(key(500)).unwrap();
        db.flush().unwrap();
        let links = Matcher::any().kinds(&[CallKind::HardLink]);
        fs.inject(links.clone(), Fault::Errno(errno), u64::MAX);
        fs.set_free_bytes(Some(5_000));
        let full = db.checkpoint("/copy").unwrap_err();
        assert!(full.to_string().contains("/copy/"), "{full}");
        assert!(fs.files(Path::new("/copy")).is_empty(), "{:?}", fs.files(Path::new("/copy")));
        fs.clear_faults();
        for kind in [CallKind::Create, CallKind::Rename, CallKind::SyncAll, CallKind::SyncDir] {
            fs.inject(Matcher::any().kinds(&[kind]), Fault::NoSpace, 1);
            fs.inject(links.clone(), Fault::Errno(errno), u64::MAX);
            assert!(db.checkpoint("/copy").is_err(), "{kind:?}");
            assert!(fs.files(Path::new("/copy")).is_empty(), "{kind:?}");
            fs.clear_faults();
        }
        fs.inject(links, Fault::Errno(errno), u64::MAX);
        let target = format!("/copy-{at}");
        db.checkpoint(&target).unwrap();
        fs.clear_faults();
        let copy = open(&fs, &target);
        let all: Model = (0..500).map(|number| (number, number)).collect();
        assert_eq!(contents(&keyspace(&copy)).unwrap(), all);
    }
}
