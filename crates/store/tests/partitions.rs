//! Partitions through the public interface: their names, when they exist, what a drop frees and
//! keeps, and what a kill leaves of creations and drops.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rhumb::{
    Compression, Database, DatabaseBuilder, Error, Keyspace, KeyspaceOptions, Partitioning,
    PersistMode, TableOptions, inspect::Inspector, io::sim::SimFs,
};

fn partitioned(partitions: Partitioning) -> KeyspaceOptions {
    KeyspaceOptions { partitions, ..KeyspaceOptions::default() }
}

fn by_tenant() -> KeyspaceOptions {
    partitioned(Partitioning::Delimiter(b'/'))
}

fn builder(fs: &SimFs) -> DatabaseBuilder {
    Database::builder("/db").file_system(Arc::new(fs.clone())).background_threads(0)
}

fn new_disk() -> SimFs {
    SimFs::new(1)
}

fn names(keyspace: &Keyspace) -> Vec<String> {
    keyspace.partitions().into_iter().map(|info| String::from_utf8(info.name).unwrap()).collect()
}

fn keys(iter: rhumb::Iter) -> Vec<String> {
    iter.map(|pair| String::from_utf8(pair.unwrap().0.to_vec()).unwrap()).collect()
}

/// Waits until the database has `expected` files of tables, of one or of several small ones:
/// threads of other tests may hold the epoch back.
fn assert_tables(db: &Database, fs: &SimFs, expected: usize) {
    let tables = || {
        let files = fs.files(Path::new("/db"));
        let is_table = |path: &&PathBuf| path.extension().is_some_and(|e| e == "sst" || e == "set");
        files.iter().filter(is_table).count()
    };
    let begun = std::time::Instant::now();
    while tables() != expected {
        assert!(begun.elapsed().as_secs() < 60, "{} tables instead of {expected}", tables());
        // Reclaims what it can, and writes no table: the memtable is empty.
        db.flush().unwrap();
    }
}

#[test]
fn a_partition_is_there_from_its_first_write_to_its_drop() {
    let db = builder(&new_disk()).open().unwrap();
    let keyspace = db.keyspace("k", by_tenant()).unwrap();
    assert!(names(&keyspace).is_empty());
    assert_eq!(keyspace.get("a/1").unwrap(), None);
    assert!(names(&keyspace).is_empty(), "reads create nothing");
    keyspace.insert("b/1", "x").unwrap();
    let mut batch = db.batch();
    batch.insert(&keyspace, "a/1", "x");
    batch.insert(&keyspace, "c/1", "x");
    batch.insert(&keyspace, "a/2", "x");
    assert_eq!(names(&keyspace), ["b/"], "nothing happens before the commit");
    batch.commit().unwrap();
    assert_eq!(names(&keyspace), ["a/", "b/", "c/"]);
    assert_eq!(keyspace.partition_of("a/7"), b"a/");
    assert!(keyspace.drop_partition("a/").unwrap());
    assert!(!keyspace.drop_partition("a/").unwrap());
    assert!(!keyspace.drop_partition("nowhere").unwrap());
    assert_eq!(names(&keyspace), ["b/", "c/"]);
    assert_eq!(keys(keyspace.iter()), ["b/1", "c/1"]);
    keyspace.insert("a/3", "new").unwrap();
    assert_eq!(keys(keyspace.iter()), ["a/3", "b/1", "c/1"]);
    keyspace.clear().unwrap();
    assert!(names(&keyspace).is_empty() && keys(keyspace.iter()).is_empty());
    let plain = db.keyspace("plain", KeyspaceOptions::default()).unwrap();
    plain.insert("a/1", "x").unwrap();
    assert!(names(&plain).is_empty() && !plain.drop_partition("").unwrap());
    assert_eq!(plain.partition_of("a/1"), b"");
    assert_eq!(keys(plain.iter()), ["a/1"]);
}

#[test]
fn several_partitions_are_dropped_together() {
    let fs = new_disk();
    let db = builder(&fs).open().unwrap();
    let keyspace = db.keyspace("k", by_tenant()).unwrap();
    for tenant in ["a", "b", "c", "d"] {
        keyspace.insert(format!("{tenant}/1"), "x").unwrap();
    }
    db.flush().unwrap();
    // A partition that only the log knows.
    keyspace.insert("e/1", "x").unwrap();
    let snapshot = db.snapshot();
    let number = db.stats().sequence_number;
    assert_eq!(keyspace.drop_partitions(["c/", "nowhere", "a/", "e/", "a/"]).unwrap(), 3);
    assert_eq!(db.stats().sequence_number, number + 1, "one number for all");
    assert_eq!(keyspace.drop_partitions(["c/", "a/"]).unwrap(), 0);
    assert_eq!(keyspace.drop_partitions::<&str>([]).unwrap(), 0);
    assert_eq!(names(&keyspace), ["b/", "d/"]);
    assert_eq!(
        keys(snapshot.keyspace(&keyspace).unwrap().iter()),
        ["a/1", "b/1", "c/1", "d/1", "e/1"]
    );
    drop(snapshot);
    keyspace.insert("c/2", "new").unwrap();
    // The log's remaining records of them are not replayed.
    let killed = fs.kill();
    drop((keyspace, db));
    let db = builder(&killed).open().unwrap();
    let keyspace = db.keyspace("k", by_tenant()).unwrap();
    assert_eq!(keys(keyspace.iter()), ["b/1", "c/2", "d/1"]);
    assert_eq!(names(&keyspace), ["b/", "c/", "d/"]);
}

#[test]
fn a_drop_frees_the_files_at_once_unless_a_snapshot_sees_them() {
    let fs = new_disk();
    let db = builder(&fs).open().unwrap();
    let keyspace = db.keyspace("k", by_tenant()).unwrap();
    for i in 0..100 {
        keyspace.insert(format!("a/{i:03}"), [7; 100]).unwrap();
        keyspace.insert(format!("b/{i:03}"), [7; 100]).unwrap();
    }
    db.flush().unwrap();
    keyspace.compact().unwrap();
    let infos = keyspace.partitions();
    assert!(infos.iter().all(|info| info.entries == 100 && info.tables == 1));
    assert!(infos.iter().all(|info| info.file_bytes > 1_000));
    assert_eq!(db.stats().keyspaces[0].partitions, 2);
    assert_tables(&db, &fs, 2);
    // Writes that only the memtable has when the partition is dropped.
    keyspace.insert("a/new", "x").unwrap();
    let snapshot = db.snapshot();
    keyspace.drop_partition("a/").unwrap();
    keyspace.insert("a/newer", "y").unwrap();
    let seen = || {
        let (a, all) = (
            keys(snapshot.keyspace(&keyspace).unwrap().prefix("a/")),
            keys(snapshot.keyspace(&keyspace).unwrap().iter()),
        );
        assert_eq!(snapshot.keyspace(&keyspace).unwrap().get("a/new").unwrap().unwrap(), b"x");
        assert_eq!(snapshot.keyspace(&keyspace).unwrap().get("a/newer").unwrap(), None);
        (a.len(), all.len())
    };
    assert_eq!(seen(), (101, 201));
    assert_eq!(keys(keyspace.prefix("a/")), ["a/newer"]);
    // The flush keeps the memtable's entries of the dropped partition for the snapshot.
    db.flush().unwrap();
    assert_eq!(seen(), (101, 201));
    drop(snapshot);
    db.flush().unwrap();
    assert_tables(&db, &fs, 2);
    keyspace.drop_partition("a/").unwrap();
    assert_tables(&db, &fs, 1);
    assert_eq!(keys(keyspace.iter()).len(), 100);
}

/// What survives a kill: creations and drops in every state of the log and the manifest.
#[test]
fn creations_and_drops_survive_a_kill() {
    type Act = fn(&Database, &Keyspace);
    let acts: [(Act, &[&str]); 9] = [
        (|_, k| k.insert("a/1", "x").unwrap(), &["a/1"]),
        (|db, _| db.flush().unwrap(), &["a/1"]),
        (|_, k| k.insert("b/1", "x").unwrap(), &["a/1", "b/1"]),
        // The first is in the manifest; the second in the log alone.
        (|_, k| assert!(k.drop_partition("a/").unwrap()), &["b/1"]),
        (|_, k| assert!(k.drop_partition("b/").unwrap()), &[]),
        (|_, k| k.insert("b/2", "x").unwrap(), &["b/2"]),
        // In the manifest by an ingestion, and in the log.
        (
            |_, k| assert_eq!(k.ingest([("c/1", "x"), ("d/1", "x")]).unwrap(), 2),
            &["b/2", "c/1", "d/1"],
        ),
        (|_, k| assert!(k.drop_partition("c/").unwrap()), &["b/2", "d/1"]),
        (|_, k| k.clear().unwrap(), &[]),
    ];
    // With and without an opening in between, which flushes what it replays.
    for (reopened_at, killed_after) in
        (0..=acts.len()).flat_map(|at| (1..=acts.len()).map(move |n| (at, n)))
    {
        let fs = new_disk();
        let db = builder(&fs).open().unwrap();
        let keyspace = db.keyspace("k", by_tenant()).unwrap();
        let mut open = Some((db, keyspace));
        for (number, (act, expected)) in acts.iter().take(killed_after).enumerate() {
            if number == reopened_at {
                drop(open.take());
                let db = builder(&fs).open().unwrap();
                let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
                open = Some((db, keyspace));
            }
            let (db, keyspace) = open.as_ref().unwrap();
            act(db, keyspace);
            assert_eq!(keys(keyspace.iter()), *expected, "after {number}");
        }
        let expected = acts[killed_after - 1].1;
        let listed: Vec<_> = expected.iter().map(|key| key[..2].to_owned()).collect();
        // Once more, from what that opening left.
        let mut fs = fs;
        for times in 1..3 {
            fs = fs.kill();
            drop(open.take());
            let db = builder(&fs).open().unwrap();
            let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
            let case =
                format!("opened at {reopened_at}, killed after {killed_after}, {times} times");
            assert_eq!(keys(keyspace.iter()), *expected, "{case}");
            assert_eq!(names(&keyspace), listed, "{case}");
            open = Some((db, keyspace));
        }
    }
}

#[test]
fn a_creation_costs_no_sync() {
    let db = builder(&new_disk()).open().unwrap();
    let keyspace = db.keyspace("k", by_tenant()).unwrap();
    let before = db.stats().log_syncs;
    for i in 0..1_000 {
        keyspace.insert(format!("{i:04}/key"), "x").unwrap();
    }
    assert_eq!(db.stats().log_syncs, before);
    assert_eq!(keyspace.partitions().len(), 1_000);
    keyspace.insert("sync/key", "x").unwrap();
    db.persist(PersistMode::SyncAll).unwrap();
    assert_eq!(db.stats().log_syncs, before + 1);
}

#[test]
fn scans_of_neighbours_are_whole_and_from_both_ends() {
    let db = builder(&new_disk()).open().unwrap();
    let keyspace = db.keyspace("k", by_tenant()).unwrap();
    let mut expected = Vec::new();
    for i in 0..300 {
        for j in 0..i % 4 {
            let key = format!("{i:03}/{j}");
            keyspace.insert(&key, "x").unwrap();
            expected.push(key);
        }
        if i == 100 || i == 200 {
            db.flush().unwrap();
        }
    }
    for i in (0..300).step_by(3) {
        let name = format!("{i:03}/");
        keyspace.drop_partition(&name).unwrap();
        expected.retain(|key| !key.starts_with(&name));
    }
    assert_eq!(keys(keyspace.iter()), expected);
    let mut backward: Vec<_> =
        keyspace.iter().rev().map(|p| String::from_utf8(p.unwrap().0.to_vec()).unwrap()).collect();
    backward.reverse();
    assert_eq!(backward, expected);
    let inside: Vec<_> = expected.iter().filter(|key| ("05".."17").contains(&&***key)).collect();
    assert_eq!(keys(keyspace.range("05".."17")), inside.into_iter().cloned().collect::<Vec<_>>());
    assert_eq!(keys(keyspace.prefix("007/")), ["007/0", "007/1", "007/2"]);
    assert!(keys(keyspace.prefix("006/")).is_empty());
}

#[test]
fn an_iterator_over_partitions_sees_one_moment() {
    let fs = new_disk();
    let db = builder(&fs).memtable_bytes(2_000).open().unwrap();
    let keyspace = db.keyspace("k", by_tenant()).unwrap();
    let write = |value: &str| {
        let mut batch = db.batch();
        (0..20).for_each(|i| batch.insert(&keyspace, format!("{i:02}/key"), value));
        batch.commit().unwrap();
    };
    write("old");
    db.flush().unwrap();
    let mut iter = keyspace.iter();
    assert_eq!(iter.next().unwrap().unwrap().1, b"old");
    // The levels that the iterator has not yet opened are rewritten meanwhile.
    for _ in 0..5 {
        write("new");
        db.flush().unwrap();
    }
    keyspace.compact().unwrap();
    keyspace.drop_partition("13/").unwrap();
    let rest: Vec<_> = iter.map(Result::unwrap).collect();
    assert_eq!(rest.len(), 19);
    assert!(rest.iter().all(|(_, value)| *value == b"old"));
    assert_eq!(db.stats().snapshots, 0);
}

#[test]
fn a_function_divides_keys_and_has_to_be_there() {
    let fs = new_disk();
    let by_parity = |key: &[u8]| vec![b"eo"[usize::from(key.last().unwrap_or(&0) % 2)]];
    let options = partitioned(Partitioning::Function("parity".into()));
    let db = builder(&fs).open().unwrap();
    assert!(matches!(db.keyspace("k", options.clone()), Err(Error::InvalidArgument(_))));
    drop(db);
    let db = builder(&fs).partition_function("parity", by_parity).open().unwrap();
    let keyspace = db.keyspace("k", options).unwrap();
    (0..10_u8).for_each(|i| keyspace.insert([i], [i]).unwrap());
    assert_eq!(names(&keyspace), ["e", "o"]);
    assert!(keyspace.iter().map(|pair| pair.unwrap().0[0]).eq(0..10));
    keyspace.drop_partition("e").unwrap();
    assert!(keyspace.iter().rev().map(|pair| pair.unwrap().0[0]).eq([9, 7, 5, 3, 1]));
    drop((keyspace, db));
    match builder(&fs).open().err() {
        Some(Error::InvalidArgument(what)) => {
            assert!(what.contains("parity") && what.contains("\"k\""), "{what}");
        }
        other => panic!("{other:?}"),
    }
    let long = builder(&fs).partition_function("parity", |_| vec![0; 256]).open().unwrap();
    let keyspace = long.keyspace("k", KeyspaceOptions::default()).unwrap();
    assert!(matches!(keyspace.insert("x", "y"), Err(Error::InvalidArgument(_))));
    assert_eq!(keyspace.get("x").unwrap(), None);
}

#[test]
fn what_is_out_of_bounds_is_refused() {
    let db = builder(&new_disk()).open().unwrap();
    for refused in [Partitioning::PrefixLength(0), Partitioning::SplitPoints(Vec::new())] {
        let made = db.keyspace("k", partitioned(refused));
        assert!(matches!(made, Err(Error::InvalidArgument(_))));
    }
    assert!(!db.has_keyspace("k"));
}

/// Writers create, drop and write partitions against each other: nothing is lost but what was
/// dropped.
#[test]
fn writers_and_droppers_do_not_disturb_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let builder = Database::builder(dir.path().join("db")).memtable_bytes(32 << 10);
    let db = builder.open().unwrap();
    let keyspace = db.keyspace("k", by_tenant()).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let keyspace = &keyspace;
            scope.spawn(move || {
                for i in 0..2_000 {
                    keyspace.insert(format!("kept{}/{writer}-{i}", i % 7), "x").unwrap();
                    keyspace.insert(format!("gone{}/{writer}-{i}", i % 5), "x").unwrap();
                }
            });
        }
        scope.spawn(|| {
            for i in 0..40 {
                keyspace.drop_partition(format!("gone{}/", i % 5)).unwrap();
                assert!(keyspace.iter().all(|pair| pair.is_ok()));
            }
        });
    });
    for i in 0..5 {
        keyspace.drop_partition(format!("gone{i}/")).unwrap();
    }
    assert_eq!(keyspace.iter().count(), 6_000);
    assert_eq!(names(&keyspace).len(), 7);
    drop((keyspace, db));
    let db = Database::builder(dir.path().join("db")).open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    assert_eq!(keyspace.iter().count(), 6_000);
}

/// The number of the database's files whose names end in `end`.
fn files(fs: &SimFs, end: &str) -> usize {
    let files = fs.files(Path::new("/db"));
    files.iter().filter(|path| path.to_string_lossy().ends_with(end)).count()
}

/// The number of bytes of all files that tables share.
fn shared_bytes(fs: &SimFs) -> usize {
    let files = fs.files(Path::new("/db")).into_iter();
    let shared = files.filter(|path| path.to_string_lossy().ends_with(".set"));
    // One may be removed between listing and reading.
    shared.map(|path| fs.content(&path).map_or(0, |bytes| bytes.len())).sum()
}

#[test]
fn a_flush_of_many_small_partitions_writes_one_file_whose_space_comes_back() {
    let fs = new_disk();
    // Then tables of up to 256 KiB are small.
    let db = builder(&fs).table_bytes(4 << 20).open().unwrap();
    let table = TableOptions { compression: Some(Compression::None), ..TableOptions::default() };
    let keyspace = db.keyspace("k", KeyspaceOptions { table, ..by_tenant() }).unwrap();
    let name = |i: u32| format!("{i:03}/");
    for i in 0..500 {
        keyspace.insert(name(i) + "key", [i as u8; 50]).unwrap();
    }
    // A large table has a file of its own.
    for i in 0..8_000_u32 {
        keyspace.insert(format!("large/{i}"), [i as u8; 50]).unwrap();
    }
    db.flush().unwrap();
    assert_eq!((files(&fs, ".set"), files(&fs, ".sst")), (1, 1));
    let infos = keyspace.partitions();
    assert!(infos.iter().all(|info| info.tables == 1 && info.file_bytes >= 4_096));
    assert!(Inspector::with_file_system(Arc::new(fs.clone())).database("/db").is_ok());
    db.checkpoint("/copy").unwrap();
    // Most of the file is dead: its live tables move to another file, and it is removed.
    let before = shared_bytes(&fs);
    for i in 0..400 {
        keyspace.drop_partition(name(i)).unwrap();
    }
    keyspace.insert("large/0", "x").unwrap();
    let begun = std::time::Instant::now();
    while shared_bytes(&fs) > before / 4 {
        assert!(begun.elapsed().as_secs() < 60, "{} of {before} bytes", shared_bytes(&fs));
        keyspace.insert("large/1", "x").unwrap();
    }
    let left: Vec<String> = (400..500).map(|i| name(i) + "key").collect();
    assert_eq!(keys(keyspace.range(..="499/~".to_owned())), left);
    drop((keyspace, db));
    let checked = Inspector::with_file_system(Arc::new(fs.clone())).check("/db", &mut |_, _| {});
    assert!(checked.unwrap().is_sound());
    let copy = Database::builder("/copy").file_system(Arc::new(fs.clone()));
    let copy = copy.background_threads(0).open().unwrap();
    let keyspace = copy.keyspace("k", KeyspaceOptions::default()).unwrap();
    assert_eq!(keyspace.partitions().len(), 501);
    assert_eq!(keyspace.iter().filter(|pair| pair.is_ok()).count(), 8_500);
}
