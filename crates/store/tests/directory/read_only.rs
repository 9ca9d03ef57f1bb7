//! Opening for reading only: everything is read, nothing is written, and writers come and go.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use rhumb::{
    Database, DatabaseBuilder, Error, Keyspace, KeyspaceOptions, Partitioning, PersistMode,
    TableOptions,
    inspect::Inspector,
    io::FileSystem,
    io::sim::{CallKind, Fault, Matcher, SimFs},
};

use super::{Model, contents, key, keyspace, scenes, small, value};

const EROFS: i32 = 30;

/// The number of keys of the keyspace that has no partitions.
const NUMBERS: u64 = 400;

/// The contents of a database that was killed: tables, files that tables share, values beside them,
/// and writes, deleted ranges and partitions that only the log knows.
type Expected = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// Fills a database; some of the entries are in tables, and some in the log alone.
fn fill(db: &Database) -> Expected {
    let divided = Partitioning::Delimiter(b'/');
    let options = KeyspaceOptions { partitions: divided, ..KeyspaceOptions::default() };
    let parts = db.keyspace("parts", options).unwrap();
    let numbers = keyspace(db);
    let mut expected = Expected::new();
    let mut put = |keyspace: &Keyspace, key: Vec<u8>, value: Vec<u8>| {
        keyspace.insert(&key, &value).unwrap();
        expected.entry(keyspace.name().to_owned()).or_default().insert(key, value);
    };
    for number in 0..NUMBERS / 2 {
        put(&numbers, key(number).into(), value(number));
        put(&parts, format!("old/{number:04}").into(), vec![3; 20]);
    }
    put(&numbers, key(NUMBERS).into(), vec![9; 200_000]);
    db.flush().unwrap();
    // Fewer than the memtable holds, so they stay in the log.
    for number in (0..NUMBERS).step_by(40) {
        put(&numbers, key(number).into(), value(number + 7));
        put(&parts, format!("new-{}/{number:04}", number % 3).into(), vec![4; 20]);
    }
    numbers.remove_range(key(100)..key(140)).unwrap();
    numbers.remove(key(3)).unwrap();
    let in_numbers = expected.get_mut("k").unwrap();
    in_numbers.retain(|at, _| *at < key(100).to_vec() || *at >= key(140).to_vec());
    in_numbers.remove(&key(3)[..]).unwrap();
    expected
}

/// Compares every way to read with what is expected.
fn check(db: &Database, expected: &Expected) {
    assert!(db.is_read_only());
    assert_eq!(db.keyspace_names(), expected.keys().cloned().collect::<Vec<_>>());
    for (name, entries) in expected {
        let keyspace = db.keyspace(name, KeyspaceOptions::default()).unwrap();
        let own = |pair: rhumb::Result<(rhumb::Slice, rhumb::Slice)>| {
            let (key, value) = pair.unwrap();
            (key.to_vec(), value.to_vec())
        };
        assert!(keyspace.iter().map(own).eq(entries.clone()), "{name}");
        assert!(keyspace.iter().rev().map(own).eq(entries.clone().into_iter().rev()), "{name}");
        let snapshot = db.snapshot();
        assert!(
            snapshot.keyspace(&keyspace).unwrap().iter().map(own).eq(entries.clone()),
            "{name}"
        );
        let keys: Vec<&Vec<u8>> = entries.keys().collect();
        let many = keyspace.multi_get(&keys).unwrap();
        for ((key, value), found) in entries.iter().zip(many) {
            assert_eq!(found.as_deref(), Some(&value[..]), "{name} {key:?}");
            assert_eq!(keyspace.get(key).unwrap().as_deref(), Some(&value[..]), "{name} {key:?}");
        }
        keyspace.explain(keys[0]).unwrap();
        assert!(keyspace.get(b"absent").unwrap().is_none());
        assert_eq!(keyspace.first_key_value().map(|first| first.unwrap().0).unwrap(), **keys[0]);
    }
    let stats = db.stats();
    assert!(stats.is_read_only && !stats.writes_stopped, "{stats:?}");
    assert_eq!((stats.write_failure, stats.failure, stats.failed_writes), (None, None, 0));
    assert_eq!((stats.flushes, stats.compactions, stats.failed_removals), (0, 0, 0));
    assert!(stats.replayed_records > 0 && stats.memtable_bytes > 0);
}

/// Tries every operation that writes: each is refused, and the error names the directory.
fn check_refusals(db: &Database, dir: &Path) {
    let numbers = keyspace(db);
    let parts = db.keyspace("parts", KeyspaceOptions::default()).unwrap();
    let mut batch = db.batch().durability(PersistMode::SyncAll);
    batch.insert(&numbers, key(1), value(2));
    let mut submitted = db.batch();
    submitted.insert(&parts, "other/1", "2");
    let none: [(&[u8], &[u8]); 0] = [];
    let table = TableOptions { block_bytes: Some(1024), ..TableOptions::default() };
    let other_options = KeyspaceOptions { table, ..KeyspaceOptions::default() };
    let outcomes: Vec<(&str, Result<(), Error>)> = vec![
        ("insert", numbers.insert(key(1), value(2))),
        ("insert into a new partition", parts.insert("other/1", "2")),
        ("remove", numbers.remove(key(1))),
        ("remove what is not there", numbers.remove("absent")),
        ("remove_range", numbers.remove_range(key(1)..key(9))),
        ("remove_range of nothing", numbers.remove_range(key(9)..key(1))),
        ("commit", batch.commit()),
        ("commit of nothing", db.batch().commit()),
        ("submit", submitted.submit().map(drop)),
        ("submit of nothing", db.batch().submit().map(drop)),
        ("pop_first", numbers.pop_first().map(drop)),
        ("pop_last", numbers.pop_last().map(drop)),
        ("keyspace", db.keyspace("new", KeyspaceOptions::default()).map(drop)),
        ("keyspaces", db.keyspaces(["k", "new"], KeyspaceOptions::default()).map(drop)),
        ("other options", db.keyspace("k", other_options).map(drop)),
        ("drop_keyspace", db.drop_keyspace("k").map(drop)),
        ("drop_keyspace of nothing", db.drop_keyspace("new").map(drop)),
        ("drop_partition", parts.drop_partition("old").map(drop)),
        ("drop_partition of nothing", parts.drop_partition("none").map(drop)),
        ("clear", numbers.clear()),
        ("ingest", numbers.ingest([(key(1000), value(1))]).map(drop)),
        ("ingest of nothing", numbers.ingest(none).map(drop)),
        ("flush", db.flush()),
        ("compact", numbers.compact()),
        ("persist", db.persist(PersistMode::Buffer)),
        ("persist to the disk", db.persist(PersistMode::SyncAll)),
        ("checkpoint", db.checkpoint(dir.with_file_name("checkpoint"))),
        ("checkpoint into itself", db.checkpoint(dir)),
    ];
    db.commit_submitted();
    for (what, outcome) in outcomes {
        let Err(error) = outcome else { panic!("{what} was done") };
        assert!(matches!(&error, Error::ReadOnly { path } if path == dir), "{what}: {error:?}");
        assert!(error.to_string().contains(dir.to_str().unwrap()), "{what}: {error}");
    }
}

/// All files of a simulated disk, with their bytes.
fn image(disk: &SimFs) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = disk.files(Path::new("/"));
    paths.into_iter().map(|path| (path.clone(), disk.content(&path).unwrap())).collect()
}

fn builder(disk: &SimFs) -> DatabaseBuilder {
    // With a pool, which is not started if nothing may be written.
    Database::builder("/db").file_system(Arc::new(disk.clone())).memtable_bytes(1 << 20)
}

/// A killed process's database on a simulated disk, with a torn log.
fn killed(seed: u64) -> (SimFs, Expected) {
    let disk = SimFs::new(seed);
    let db = builder(&disk).open().unwrap();
    let expected = fill(&db);
    let after = disk.kill();
    drop(db);
    let mut files = after.files(Path::new("/db")).into_iter();
    let log = files.rfind(|path| path.extension().is_some_and(|end| end == "log"));
    let log = log.expect("a segment");
    let mut bytes = after.content(&log).unwrap();
    bytes.extend([0xA5; 77]);
    after.set_content(&log, bytes).unwrap();
    // A crash leaves this of a table that was not finished: the next writer removes it.
    drop(after.create(Path::new("/db/999999.sst")).unwrap());
    (after, expected)
}

/// Every call that changes anything would fail, and none is made: everything is read all the same.
#[test]
fn nothing_is_written_and_everything_is_read() {
    for seed in 0..2 {
        let (disk, expected) = killed(seed);
        let before = image(&disk);
        let changing: Vec<CallKind> =
            CallKind::ALL.into_iter().filter(|kind| kind.is_change()).collect();
        disk.inject(Matcher::any().kinds(&changing), Fault::Errno(EROFS), u64::MAX);
        let refused = builder(&disk).open().map(drop).unwrap_err();
        assert!(matches!(refused, Error::Io(_)), "no such disk is written to: {refused}");
        let changes = disk.counts().changes;
        let db = builder(&disk).open_read_only().unwrap();
        check(&db, &expected);
        check_refusals(&db, Path::new("/db"));
        check(&db, &expected);
        let report = Inspector::with_file_system(Arc::new(disk.clone()));
        assert!(report.check("/db", &mut |_, _| {}).unwrap().is_sound());
        db.close().unwrap();
        assert_eq!(disk.counts().changes, changes, "nothing was even tried");
        assert!(image(&disk) == before, "not a byte differs");
        // The torn tail was not cut, and the replayed records were not freed.
        disk.clear_faults();
        let written = builder(&disk).open().unwrap();
        for (name, entries) in &expected {
            let keyspace = written.keyspace(name, KeyspaceOptions::default()).unwrap();
            assert_eq!(keyspace.iter().count(), entries.len(), "{name}");
        }
    }
}

/// A database on a full disk can be read, and checked.
#[test]
fn a_full_disk_is_read() {
    let (disk, expected) = killed(5);
    disk.set_free_bytes(Some(0));
    let full = builder(&disk).open().map(drop).unwrap_err();
    assert!(full.to_string().contains("space"), "{full}");
    let before = image(&disk);
    check(&builder(&disk).open_read_only().unwrap(), &expected);
    let inspector = Inspector::with_file_system(Arc::new(disk.clone()));
    let report = inspector.check("/db", &mut |_, _| {}).unwrap();
    assert!(report.is_sound() && report.notes.len() == 1, "the torn tail is a note: {report:?}");
    assert!(image(&disk) == before);
}

/// Names, bytes, modes and times of the files of a directory; empty if it does not exist.
pub(crate) fn look(dir: &Path) -> Vec<(PathBuf, Vec<u8>, u32, i64, i64)> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths
        .map(|path| {
            let (bytes, meta) = (fs::read(&path).unwrap(), fs::metadata(&path).unwrap());
            (path, bytes, meta.mode(), meta.mtime(), meta.mtime_nsec())
        })
        .collect();
    files.sort();
    files
}

/// The operating system's own files, in a directory without write permission. (A process with all
/// rights may write there; the test sees all the same that it does not. The shell's tests drop
/// their rights.)
#[test]
fn a_directory_that_may_not_be_written_to_is_read() {
    let home = tempfile::tempdir().unwrap();
    let (dir, image) = (home.path().join("db"), home.path().join("image"));
    // Without a pool, so that no file comes or goes while the files are copied.
    let db = Database::builder(&dir).background_threads(0).open().unwrap();
    let expected = fill(&db);
    scenes::copy(&dir, &image);
    drop(db);
    for has_lock in [true, false] {
        if !has_lock {
            fs::remove_file(image.join("LOCK")).unwrap();
        }
        for (path, ..) in look(&image) {
            fs::set_permissions(path, fs::Permissions::from_mode(0o444)).unwrap();
        }
        fs::set_permissions(&image, fs::Permissions::from_mode(0o555)).unwrap();
        let before = look(&image);
        let db = Database::builder(&image).open_read_only().unwrap();
        check(&db, &expected);
        check_refusals(&db, &image);
        drop(db);
        assert!(Inspector::new().check(&image, &mut |_, _| {}).unwrap().is_sound());
        assert!(look(&image) == before, "{:?}", look(&image));
        assert!(!home.path().join("checkpoint").exists());
        fs::set_permissions(&image, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// Readers and one writer let each other in; a second writer is refused.
#[test]
fn one_writes_and_any_number_reads() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("db");
    let disk = SimFs::new(1);
    let real = || Database::builder(&dir);
    let simulated = || builder(&disk);
    open_in_turns(&real, "held by this process", &dir.join("LOCK"));
    open_in_turns(&simulated, "LOCK", Path::new("/db/LOCK"));
    // A reader leaves nothing in the directory, and needs nothing there.
    drop(real().open().unwrap());
    fs::remove_file(dir.join("LOCK")).unwrap();
    let before = look(&dir);
    let reader = real().open_read_only().unwrap();
    reader.catch_up().unwrap();
    assert!(look(&dir) == before);
    drop(real().open().unwrap());
    reader.catch_up().unwrap();
}

fn open_in_turns(builder: &dyn Fn() -> DatabaseBuilder, by_writer: &str, path: &Path) {
    let mut writer = builder().open().unwrap();
    let first = builder().open_read_only().unwrap();
    for round in 0..3 {
        let numbers = keyspace(&writer);
        numbers.insert(key(round), value(round)).unwrap();
        let second = builder().open_read_only().unwrap();
        first.catch_up().unwrap();
        for db in [&first, &second] {
            assert_eq!(keyspace(db).get(key(round)).unwrap().unwrap(), value(round));
        }
        let refused = builder().open().unwrap_err();
        assert!(matches!(&refused, Error::Locked { path: lock, .. } if lock == path));
        assert!(refused.to_string().contains(by_writer), "{refused}");
        drop((numbers, writer));
        writer = builder().open().unwrap();
        assert!(matches!(writer.catch_up(), Err(Error::InvalidArgument(_))));
    }
}

/// A reader of more files than it may keep open takes a lock: it and a writer keep each other out.
#[test]
fn a_reader_without_descriptors_keeps_writers_out() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("db");
    let disk = SimFs::new(1);
    for builder in [&|| small(Database::builder(&dir)), &|| small(builder(&disk))]
        as [&dyn Fn() -> DatabaseBuilder; 2]
    {
        let few = || builder().open_files_max(16);
        let writer = builder().open().unwrap();
        let all = (0..800).map(|number| (key(number), value(number)));
        keyspace(&writer).ingest(all).unwrap();
        let refused = few().open_read_only().unwrap_err();
        assert!(matches!(refused, Error::Locked { .. }), "{refused}");
        assert!(refused.to_string().contains("more than the 16 that may stay open"), "{refused}");
        assert!(builder().open_read_only().is_ok());
        drop(writer);
        let first = few().open_read_only().unwrap();
        let second = few().open_read_only().unwrap();
        let refused = builder().open().unwrap_err();
        assert!(refused.to_string().contains("for reading alone"), "{refused}");
        assert_eq!(keyspace(&second).iter().count(), 800);
        second.catch_up().unwrap();
        drop(first);
        assert!(matches!(builder().open(), Err(Error::Locked { .. })), "one reader is left");
        drop(second);
        drop(builder().open().unwrap());
    }
}

/// The directory is held: another may take its name, and lazy reads are still from the first.
#[test]
fn a_renamed_database_is_read_where_it_is() {
    let home = tempfile::tempdir().unwrap();
    let (dir, moved) = (home.path().join("db"), home.path().join("db.bak"));
    let all: Model = (0..800).map(|number| (number, number)).collect();
    let db = small(Database::builder(&dir)).memtable_bytes(1 << 20).open().unwrap();
    let ascending = all.keys().map(|number| (key(*number), value(*number)));
    keyspace(&db).ingest(ascending).unwrap();
    drop(db);
    // Fewer descriptors than tables: the tables are opened again, by the names that they have.
    let few = Database::builder(&dir).open_files_max(16).memory_budget_bytes(1 << 20);
    let db = few.open_read_only().unwrap();
    assert!(db.stats().keyspaces[0].levels.iter().map(|level| level.tables).sum::<u64>() > 20);
    fs::rename(&dir, &moved).unwrap();
    let other = small(Database::builder(&dir)).open().unwrap();
    keyspace(&other).ingest((0..800).map(|number| (key(number), value(7)))).unwrap();
    assert_eq!(contents(&keyspace(&db)).unwrap(), all);
    assert!(db.stats().file_opens > db.stats().open_files_max);
}

/// A missing database is reported, and nothing is created in its place.
#[test]
fn what_is_no_database_is_said() {
    let home = tempfile::tempdir().unwrap();
    let (dir, link) = (home.path().join("db"), home.path().join("link"));
    for path in [home.path(), &dir] {
        let none = Database::builder(path).open_read_only().unwrap_err();
        assert!(none.to_string().contains("there is no database in"), "{none}");
    }
    assert!(!dir.exists() && look(home.path()).is_empty(), "nothing is made");
    drop(Database::builder(&dir).open().unwrap());
    std::os::unix::fs::symlink(&dir, &link).unwrap();
    let linked = Database::builder(&link).open_read_only().unwrap_err();
    assert!(linked.to_string().contains("symbolic link"), "{linked}");
}
