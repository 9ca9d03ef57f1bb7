//! Backups in a bucket that refuses, loses and forgets what it is asked for: every point that is
//! listed is whole, and the next backup succeeds. Needs the feature `object-store`.
//!
//! `RHUMB_BUCKET_FAULTS=n` sets the number of faults (2000 is a long run).

mod bucket_flaky;

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::Arc,
};

use bucket_flaky::{Fault, Flaky};
use object_store::{ObjectStore, ObjectStoreExt, path::Path as Location};
use rhumb::{Backups, Database, DatabaseBuilder, Error, Keyspace, KeyspaceOptions, io::sim::SimFs};
use rhumb_testkit::random::Random;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn small(path: &Path) -> DatabaseBuilder {
    let builder = Database::builder(path).memtable_bytes(16_000).table_bytes(32_000);
    builder.level_one_bytes(64_000).background_threads(0)
}

fn keyspace(db: &Database) -> Keyspace {
    db.keyspace("k", KeyspaceOptions::default()).unwrap()
}

/// Writes some, and a large value at times, which lies in a file of its own.
fn write(keyspace: &Keyspace, map: &mut Map, random: &mut Random) {
    for _ in 0..40 {
        let key = format!("{:04}", random.below(300)).into_bytes();
        if random.one_in(5) {
            keyspace.remove(&key).unwrap();
            map.remove(&key);
        } else {
            let len = if random.one_in(30) { 80_000 } else { random.index(200) };
            let value = vec![random.next() as u8; len];
            keyspace.insert(&key, &value).unwrap();
            map.insert(key, value);
        }
    }
}

fn contents(db: &Database) -> Map {
    let pairs = keyspace(db).iter().map(|pair| pair.unwrap());
    pairs.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(future)
}

/// Restores a point, and compares it with what was there.
fn check_restored(backups: &Backups, number: u64, expected: &Map) {
    let dir = tempfile::tempdir().unwrap();
    backups.restore(number, dir.path().join("db")).unwrap();
    let db = small(&dir.path().join("db")).open().unwrap();
    assert_eq!(contents(&db), *expected, "point {number}");
}

#[test]
fn points_are_restored_and_only_new_files_are_sent() {
    let dir = tempfile::tempdir().unwrap();
    let db = small(&dir.path().join("db")).open().unwrap();
    let store = Arc::new(Flaky::new());
    // What the user has there, and beside it, stays.
    let theirs = ["b/c/notes.val", "b/c/d/000001.sst", "b/c2/000001.sst", "000001.sst"];
    for name in theirs {
        wait(store.inner.put(&Location::from(name), "theirs".into())).unwrap();
    }
    let backups = Backups::in_bucket(Arc::clone(&store) as _, "b/c").unwrap();
    assert_eq!(backups.list().unwrap(), []);
    let (mut map, mut random, mut maps) = (Map::new(), Random::new(1), Vec::new());
    let mut partial = 0;
    for round in 0..6 {
        write(&keyspace(&db), &mut map, &mut random);
        let (before, puts) = (store.names(), store.puts());
        let info = db.backup_to(&backups).unwrap();
        let new = store.names().iter().filter(|name| !before.contains(name)).count() as u64;
        assert_eq!(store.puts() - puts, new, "round {round}");
        assert_eq!((info.number, info.sequence_number), (round + 1, db.stats().sequence_number));
        // At times a compaction has written all anew.
        partial += u64::from(info.copied_bytes < info.bytes);
        maps.push(map.clone());
    }
    assert!(partial > 0, "all was sent each time");
    let puts = store.puts();
    let again = db.backup_to(&backups).unwrap();
    assert_eq!((again.number, again.copied_bytes, store.puts() - puts), (7, 0, 1));
    maps.push(map.clone());
    backups.remove(3).unwrap();
    assert_eq!(backups.keep_newest(4).unwrap(), [1, 2]);
    for number in 4..=7 {
        backups.verify(number).unwrap();
        check_restored(&backups, number, &maps[number as usize - 1]);
    }
    let other = small(&dir.path().join("other")).open().unwrap();
    let refused = other.backup_to(&backups);
    assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");
    assert_eq!(backups.keep_newest(0).unwrap(), [4, 5, 6, 7]);
    let mut left = store.names();
    left.sort();
    assert_eq!(left, ["000001.sst", "b/c/d/000001.sst", "b/c/notes.val", "b/c2/000001.sst"]);
    let whole = Backups::in_bucket(store as _, "").unwrap();
    other.backup_to(&whole).unwrap();
    whole.verify(1).unwrap();
    for wrong in ["a//b", "a/../b"] {
        let refused = Backups::in_bucket(Arc::new(Flaky::new()), wrong).map(drop);
        assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{wrong}: {refused:?}");
    }
}

#[test]
fn damage_and_losses_are_told_of_and_sent_again() {
    let dir = tempfile::tempdir().unwrap();
    let db = small(&dir.path().join("db")).open().unwrap();
    let store = Arc::new(Flaky::new());
    let backups = Backups::in_bucket(Arc::clone(&store) as _, "b").unwrap();
    let mut map = Map::new();
    write(&keyspace(&db), &mut map, &mut Random::new(2));
    keyspace(&db).insert("large", vec![7; 100_000]).unwrap();
    map.insert(b"large".to_vec(), vec![7; 100_000]);
    db.backup_to(&backups).unwrap();
    for name in store.names().iter().filter(|name| !name.ends_with(".point")) {
        let location = Location::from(name.as_str());
        let sound = wait(async { store.inner.get(&location).await?.bytes().await }).unwrap();
        let mut damaged = sound.to_vec();
        damaged[sound.len() / 2] ^= 1;
        for bytes in [damaged, sound[1..].to_vec()] {
            wait(store.inner.put(&location, bytes.into())).unwrap();
            let target = dir.path().join("restored");
            for refused in [backups.verify(1), backups.restore(1, &target)] {
                let Err(Error::Corrupt(damage)) = &refused else { panic!("{name}: {refused:?}") };
                assert!(damage.path.ends_with(name), "{damage:?}");
            }
            assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0);
        }
        // A short one and a missing one are sent again, as the tables are there still.
        let next = db.backup_to(&backups).unwrap();
        assert_eq!(next.copied_bytes, sound.len() as u64);
        backups.verify(1).unwrap();
        wait(store.inner.delete(&location)).unwrap();
        // Nor is it replaced by what the disk has made of the table.
        let table = dir.path().join("db").join(location.filename().unwrap());
        let mut damaged = std::fs::read(&table).unwrap();
        damaged[0] ^= 1;
        std::fs::write(&table, &damaged).unwrap();
        let refused = db.backup_to(&backups);
        let Err(Error::Corrupt(damage)) = &refused else { panic!("{refused:?}") };
        assert_eq!(damage.path, table);
        damaged[0] ^= 1;
        std::fs::write(&table, damaged).unwrap();
        let missing = backups.verify(1);
        assert!(matches!(&missing, Err(Error::Io(_))), "{missing:?}");
        assert!(missing.unwrap_err().to_string().contains(name));
        assert_eq!(db.backup_to(&backups).unwrap().copied_bytes, sound.len() as u64);
        check_restored(&backups, 1, &map);
    }
}

/// Some call of most backups and removals fails, in one of the ways.
#[test]
fn every_listed_point_is_whole_whatever_the_bucket_does() {
    let most = std::env::var("RHUMB_BUCKET_FAULTS").ok();
    let most: u64 = most.map_or(150, |text| text.parse().unwrap());
    let (mut seed, mut faults, mut failed, mut done, mut listed) = (0, 0, 0, 0, 0);
    while faults < most {
        seed += 1;
        let fs: Arc<SimFs> = Arc::new(SimFs::new(seed));
        let open = |path: &str| small(Path::new(path)).file_system(Arc::clone(&fs) as _).open();
        let db = open("/db").unwrap();
        let store = Arc::new(Flaky::new());
        let backups = Backups::in_bucket(Arc::clone(&store) as _, "b").unwrap();
        let backups = backups.restoring_on(Arc::clone(&fs) as _);
        let check_restored = |number: u64, expected: &Map, path: String| {
            backups.restore(number, &path).unwrap();
            assert_eq!(contents(&open(&path).unwrap()), *expected, "seed {seed}: {path}");
        };
        let (mut map, mut random) = (Map::new(), Random::new(seed));
        let mut maps = HashMap::new();
        for round in 0..10 {
            write(&keyspace(&db), &mut map, &mut random);
            let points = backups.list().unwrap();
            let next = points.last().map_or(1, |info| info.number + 1);
            let removes = random.one_in(3) && !points.is_empty();
            let fault = Fault::ALL[random.index(Fault::ALL.len())];
            // As many calls as it makes, or some more.
            store.fail_at(random.below(if removes { 10 } else { 24 }), fault);
            let ended = if removes {
                backups.keep_newest(random.index(points.len())).map(drop)
            } else {
                // It may be there although the call failed.
                maps.insert(next, map.clone());
                db.backup_to(&backups).map(drop)
            };
            let was_met = store.repair();
            faults += u64::from(was_met);
            failed += u64::from(ended.is_err());
            done += u64::from(ended.is_ok() && !removes);
            assert!(was_met || ended.is_ok(), "seed {seed}: {ended:?}");
            let points = backups.list().unwrap();
            assert!(removes || ended.is_err() || points.last().unwrap().number == next);
            for info in &points {
                let whole = backups.verify(info.number);
                assert!(whole.is_ok(), "seed {seed}, point {}: {fault:?}: {whole:?}", info.number);
            }
            listed += points.len();
            if let Some(info) = points.last() {
                check_restored(info.number, &maps[&info.number], format!("/{round}"));
            }
        }
        let next = db.backup_to(&backups).unwrap();
        check_restored(next.number, &map, "/next".to_owned());
        // A restoring that fails leaves nothing.
        store.fail_at(random.below(20), Fault::LoseReply);
        if backups.restore(next.number, "/restored").is_err() {
            let left = fs.files(Path::new("/restored"));
            assert!(left.is_empty(), "seed {seed}: {left:?}");
        } else {
            assert_eq!(contents(&open("/restored").unwrap()), map);
        }
        store.repair();
        // Nothing is left over.
        backups.keep_newest(0).unwrap();
        assert!(store.names().is_empty(), "seed {seed}: {:?}", store.names());
    }
    println!(
        "{faults} faults in {seed} histories: {failed} calls failed, {done} backups were done, \
         {listed} points were whole"
    );
    assert!(failed > most / 3 && done > 0, "{failed} {done}");
}

#[test]
fn long_files_are_sent_in_parts() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::builder(dir.path().join("db")).background_threads(0).open().unwrap();
    let mut random = Random::new(4);
    let mut value = vec![0; 40 << 20];
    value.chunks_mut(8).for_each(|part| part.copy_from_slice(&random.next().to_le_bytes()));
    keyspace(&db).insert("long", &value).unwrap();
    let store = Arc::new(Flaky::new());
    let backups = Backups::in_bucket(Arc::clone(&store) as _, "b").unwrap();
    for fault in [Fault::Refuse, Fault::LoseReply, Fault::Die] {
        // Lists twice, then the parts of the value's file or the table.
        for call in 2..11 {
            store.fail_at(call, fault);
            let failed = db.backup_to(&backups);
            let was_met = store.repair();
            assert!(was_met && failed.is_err(), "{fault:?} at {call}: {failed:?}");
            assert!(backups.list().unwrap().is_empty());
        }
    }
    db.backup_to(&backups).unwrap();
    assert_eq!(store.parts_max(), 4, "parts under way at a time");
    backups.restore(1, dir.path().join("restored")).unwrap();
    let db = Database::builder(dir.path().join("restored")).open().unwrap();
    assert!(keyspace(&db).get("long").unwrap().is_some_and(|found| *found == *value));
}

/// Another process adds a point between the list and the point of this one.
#[test]
fn a_point_of_another_backup_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let db = small(&dir.path().join("db")).open().unwrap();
    let store = Arc::new(Flaky::new());
    let backups = Backups::in_bucket(Arc::clone(&store) as _, "b").unwrap();
    write(&keyspace(&db), &mut Map::new(), &mut Random::new(5));
    store.race();
    let refused = db.backup_to(&backups);
    assert!(matches!(refused, Err(Error::Locked { .. })), "{refused:?}");
    let there =
        wait(async { store.inner.get(&Location::from("b/000001.point")).await?.bytes().await });
    assert_eq!(there.unwrap(), "another");
}

#[test]
fn tasks_of_an_executor_may_back_up() {
    let dir = tempfile::tempdir().unwrap();
    let db = small(&dir.path().join("db")).open().unwrap();
    let mut map = Map::new();
    write(&keyspace(&db), &mut map, &mut Random::new(6));
    wait(async {
        let store: Arc<dyn ObjectStore> = Arc::new(Flaky::new());
        let backups = Backups::in_bucket(store, "b").unwrap();
        db.backup_to(&backups).unwrap();
        check_restored(&backups, 1, &map);
    });
}
