//! Inspections of real databases: whole, and with every kind of damage.

use std::{collections::BTreeMap, fs, path::Path};

use super::*;
use crate::{BlockIndexKind, Database, Keyspace, KeyspaceOptions, PersistMode, TableOptions};

/// The number of entries that are in the log and in no table.
const LOGGED: usize = 200;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn no_progress(_: u64, _: u64) {}

fn options(index: BlockIndexKind) -> KeyspaceOptions {
    KeyspaceOptions {
        table: TableOptions {
            index: Some(index),
            large_value_bytes: Some(4096),
            ..TableOptions::default()
        },
        ..KeyspaceOptions::default()
    }
}

fn open(dir: &Path) -> Database {
    Database::builder(dir).background_threads(0).open().unwrap()
}

/// Builds a database with tables in two keyspaces and two levels, a large value, tombstones, and,
/// in the log only, the last writes. Returns the contents of keyspace "a".
fn build(dir: &Path) -> Model {
    let mut model = Model::new();
    let db = open(dir);
    let a = db.keyspace("a", options(BlockIndexKind::Learned)).unwrap();
    let b = db.keyspace("b", options(BlockIndexKind::BinarySearch)).unwrap();
    let put = |model: &mut Model, key: String, value: Vec<u8>| {
        a.insert(&key, &value).unwrap();
        b.insert(&key, "b").unwrap();
        model.insert(key.into_bytes(), value);
    };
    for n in 0..4000_u32 {
        put(&mut model, format!("user/{:08}", n * 7), format!("value {n}").into_bytes());
    }
    put(&mut model, "large".into(), (0..=255).cycle().take(20_000).collect());
    a.compact().unwrap();
    for n in 0..500_u32 {
        put(&mut model, format!("user/{:08}", n * 21), b"again".to_vec());
        let removed = format!("user/{:08}", n * 35 + 7 * 4);
        a.remove(&removed).unwrap();
        model.remove(removed.as_bytes());
    }
    db.flush().unwrap();
    drop((a, b, db));
    model
}

/// Adds entries that stay in the log: the process ends without closing the database.
fn leave_in_log(dir: &Path, model: &mut Model) {
    let db = open(dir);
    let a = db.keyspace("a", options(BlockIndexKind::Learned)).unwrap();
    for n in 0..LOGGED {
        let (key, value) = (format!("log/{n:04}"), b"in the log".to_vec());
        a.insert(&key, &value).unwrap();
        model.insert(key.into_bytes(), value);
    }
    db.persist(PersistMode::SyncAll).unwrap();
    copy_dir(dir, &dir.with_extension("copy"));
    drop((a, db));
    fs::remove_dir_all(dir).unwrap();
    fs::rename(dir.with_extension("copy"), dir).unwrap();
}

/// Returns true if a key is one of the last `count` that [`leave_in_log`] wrote.
fn is_last(key: &[u8], count: usize) -> bool {
    let first = format!("log/{:04}", LOGGED - count);
    key.starts_with(b"log/") && *key >= *first.as_bytes()
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

fn contents(keyspace: &Keyspace) -> crate::Result<Model> {
    keyspace.iter().map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec()))).collect()
}

#[test]
fn a_whole_database_is_sound() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("db");
    let mut model = build(&dir);
    leave_in_log(&dir, &mut model);
    let mut last = (0, 0);
    let report = Inspector::new()
        .check(&dir, &mut |done, total| {
            assert!(done <= total);
            last = (done, total);
        })
        .unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
    assert!(report.tables >= 3 && report.blocks > 10 && last.1 > 0);
    assert_eq!((report.log_records, report.notes.len()), (LOGGED as u64, 0));
    assert!(reopened(&dir).unwrap() == model);
}

#[test]
fn the_report_of_a_database_adds_up() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("db");
    build(&dir);
    let report = Inspector::new().database(&dir).unwrap();
    assert_eq!(report.problems, []);
    let names: Vec<_> = report.keyspaces.iter().map(|keyspace| &*keyspace.name).collect();
    assert_eq!(names, ["a", "b"]);
    let checked = Inspector::new().check(&dir, &mut no_progress).unwrap();
    let levels = || report.keyspaces.iter().flat_map(|keyspace| &keyspace.levels);
    assert_eq!(
        levels().map(|level| level.sum(|table| table.entries)).sum::<u64>(),
        checked.entries
    );
    assert_eq!(levels().map(|level| level.tables.len() as u64).sum::<u64>(), checked.tables);
    for table in levels().flat_map(|level| &level.tables) {
        // A table that shares its file is also found by its number.
        let path = dir.join(format!("{:06}.sst", table.id));
        assert_eq!(&Inspector::new().table(path).unwrap().keys, &table.keys);
        assert!(table.index_bytes > 0 && table.filter_bytes > 0 && table.blocks > 0);
        assert_eq!(table.segments > 0, table.index == "learned");
    }
    let manifest = Inspector::new().manifest(&report.manifest).unwrap();
    let edits = manifest.records.iter().filter_map(|record| match &record.content {
        RecordContent::Edits(edits) => Some(edits.join("\n")),
        _ => None,
    });
    assert!(edits.collect::<String>().contains("create keyspace"));
}

#[test]
fn a_model_is_exact_about_the_keys_it_placed() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("db");
    build(&dir);
    let report = Inspector::new().database(&dir).unwrap();
    for keyspace in &report.keyspaces {
        let tables = keyspace.levels.iter().flat_map(|level| &level.tables);
        let table = tables.max_by_key(|table| table.entries).unwrap();
        let model = Inspector::new().model(&table.path, 100, &mut no_progress).unwrap();
        assert_eq!(model.error_blocks_max, 0);
        assert_eq!(model.segments.len(), table.segments as usize);
        assert!((50..=101).contains(&model.points.len()));
        assert_eq!(model.points[0].key, table.smallest);
        assert_eq!(model.points.last().unwrap().key, table.largest);
        assert!(model.points.is_sorted_by(|a, b| {
            a.key < b.key && a.code <= b.code && a.block <= b.block && a.rank < b.rank
        }));
        let blocks: u32 = model.segments.iter().map(|segment| segment.blocks).sum();
        assert_eq!(blocks, if table.segments == 0 { 0 } else { table.blocks });
    }
}

#[test]
fn a_log_is_listed_record_by_record() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("db");
    leave_in_log(&dir, &mut build(&dir));
    let report = Inspector::new().database(&dir).unwrap();
    let (path, bytes) = report.log.last().unwrap();
    let log = Inspector::new().log(path).unwrap();
    assert_eq!(log.file_bytes, *bytes);
    assert!(log.header.is_ok());
    let writes = log.records.iter().filter_map(|record| match record.content {
        RecordContent::Batch { operations, .. } => Some(operations),
        _ => None,
    });
    assert_eq!(writes.sum::<u32>() as usize, LOGGED);
    let mut next = log.records[0].offset;
    for record in &log.records {
        assert_eq!(record.offset, next);
        next += record.bytes;
    }
    assert_eq!(next, *bytes);
}

#[test]
fn a_read_is_explained() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("db");
    let model = build(&dir);
    let db = open(&dir);
    for (name, index) in [("a", "learned"), ("b", "binary search")] {
        let keyspace = db.keyspace(name, options(BlockIndexKind::Learned)).unwrap();
        for key in model.keys().step_by(97) {
            let explanation = keyspace.explain(key).unwrap();
            let found = keyspace.get(key).unwrap().unwrap();
            let Answer::Found { value_bytes, .. } = explanation.answer else {
                panic!("{explanation:?}");
            };
            assert_eq!(value_bytes, found.len() as u64);
            let step = explanation.tables.last().unwrap();
            assert_eq!(step.index, index);
            assert_eq!(step.actual_block, Some(step.predicted_block), "{explanation:?}");
            assert_eq!(step.filter, Some(true));
            assert_eq!(step.segment.is_some(), index == "learned");
        }
    }
    let a = db.keyspace("a", options(BlockIndexKind::Learned)).unwrap();
    let absent = a.explain("user/00000001").unwrap();
    assert_eq!(absent.answer, Answer::Absent);
    assert!(absent.tables.iter().all(|step| step.actual_block.is_none()));
    let removed = a.explain("user/00000028").unwrap();
    assert!(matches!(removed.answer, Answer::Removed { .. }), "{removed:?}");
    a.insert("new", "1").unwrap();
    let fresh = a.explain("new").unwrap();
    assert!(fresh.is_in_memtable && fresh.tables.is_empty());
    assert!(matches!(fresh.answer, Answer::Found { value_bytes: 1, .. }));
}

/// Opens a damaged database with the engine. Returns an error, or the entries that the engine
/// returns.
fn reopened(dir: &Path) -> crate::Result<Model> {
    let db = Database::builder(dir).background_threads(0).create_if_missing(false).open()?;
    contents(&db.keyspace("a", options(BlockIndexKind::Learned))?)
}

#[test]
fn a_flipped_bit_is_found_or_harmless() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("db");
    let mut model = build(&dir);
    leave_in_log(&dir, &mut model);
    let damaged = scratch.path().join("damaged");
    let names: Vec<_> = list(&StdFs, &dir)
        .unwrap()
        .into_iter()
        .map(|path| path.file_name().unwrap().to_owned())
        .filter(|name| name != "LOCK")
        .collect();
    let mut state = 12_345_u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    let (mut found, mut harmless) = (0, 0);
    for flip in 0..150 {
        copy_dir(&dir, &damaged);
        let path = damaged.join(&names[flip % names.len()]);
        let mut bytes = fs::read(&path).unwrap();
        if !bytes.is_empty() {
            let at = random(bytes.len());
            bytes[at] ^= 1 << random(8);
            fs::write(&path, bytes).unwrap();
        }
        match Inspector::new().check(&damaged, &mut no_progress) {
            Ok(report) if report.is_sound() => {
                let contents = reopened(&damaged).unwrap();
                // If the log ends in a torn record, as after a crash, the last writes are gone.
                let cut = if report.notes.is_empty() { 0 } else { model.len() - contents.len() };
                let kept = model.iter().filter(|(key, _)| !is_last(key, cut));
                assert!(contents.iter().eq(kept), "{}", path.display());
                harmless += 1;
            }
            _ => found += 1,
        }
        fs::remove_dir_all(&damaged).unwrap();
    }
    assert!(found > 75, "{found} found, {harmless} harmless");
}

#[test]
fn a_missing_table_is_a_problem_that_names_it() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("db");
    build(&dir);
    let before = Inspector::new().check(&dir, &mut no_progress).unwrap();
    let report = Inspector::new().database(&dir).unwrap();
    let mut tables = report.keyspaces[0].levels.iter().flat_map(|level| &level.tables);
    let lost = tables.find(|table| table.path.to_string_lossy().ends_with(".sst")).unwrap();
    fs::remove_file(&lost.path).unwrap();
    let after = Inspector::new().check(&dir, &mut no_progress).unwrap();
    assert!(!after.is_sound());
    assert!(after.problems.iter().all(|problem| problem.path == lost.path), "{after:?}");
    assert_eq!(after.tables, before.tables - 1, "the others are read all the same");
    let report = Inspector::new().database(&dir).unwrap();
    assert!(report.problems.iter().all(|problem| problem.path == lost.path));
    assert_eq!(report.problems.len(), 1);
}

#[test]
fn what_is_no_database_is_said_to_be_none() {
    let scratch = tempfile::tempdir().unwrap();
    let is_none = |error: crate::Error| matches!(error, crate::Error::NotFound(_));
    assert!(is_none(Inspector::new().check(scratch.path(), &mut no_progress).unwrap_err()));
    assert!(is_none(Inspector::new().database(scratch.path()).unwrap_err()));
    let no_table = Inspector::new().table(scratch.path().join("a.txt")).unwrap_err();
    assert!(matches!(no_table, crate::Error::InvalidArgument(_)));
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "nothing is made");
}

#[test]
fn a_database_in_use_is_checked_as_it_is_at_the_moment() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("db");
    build(&dir);
    let db = open(&dir);
    let keyspace = db.keyspace("busy", KeyspaceOptions::default()).unwrap();
    let mut written = 0_u32;
    for _ in 0..10 {
        // A block at a time is read, and meanwhile all tables are replaced.
        let report = Inspector::new().check(&dir, &mut |_, _| {
            (0..50).for_each(|_| {
                written += 1;
                keyspace.insert(written.to_be_bytes(), [7; 100]).unwrap();
            });
            db.flush().unwrap();
            keyspace.compact().unwrap();
        });
        let report = report.unwrap();
        assert!(report.is_sound(), "{report:?}");
        assert!(Inspector::new().database(&dir).unwrap().problems.is_empty());
    }
    assert!(written > 500);
}
