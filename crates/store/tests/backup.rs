//! Backups: each point is restored as the database was, whatever ended the backups after it, and
//! damage is told of and not restored.
//!
//! `RHUMB_BACKUP_CUTS=n` sets the number of power cuts of the simulated disk (2000 is a long run).

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use rhumb::{
    Backups, Database, DatabaseBuilder, Error, Keyspace, KeyspaceOptions,
    io::sim::{Loss, SimFs},
};
use rhumb_testkit::random::Random;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn small(builder: DatabaseBuilder) -> DatabaseBuilder {
    builder.memtable_bytes(4_000).table_bytes(8_000).level_one_bytes(16_000).background_threads(0)
}

fn keyspace(db: &Database) -> Keyspace {
    db.keyspace("k", KeyspaceOptions::default()).unwrap()
}

/// Writes some, and a large value at times, which lies in a file of its own.
fn write(keyspace: &Keyspace, map: &mut Map, random: &mut Random) {
    for _ in 0..60 {
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

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| !path.ends_with("LOCK"));
    files.sort();
    files
}

#[test]
fn points_are_restored_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let (path, backup) = (dir.path().join("db"), dir.path().join("backup"));
    let db = small(Database::builder(&path)).open().unwrap();
    let (mut map, mut random, mut maps) = (Map::new(), Random::new(1), Vec::new());
    for round in 0..8 {
        write(&keyspace(&db), &mut map, &mut random);
        if round == 4 {
            keyspace(&db).clear().unwrap();
            map.clear();
        }
        let info = db.backup(&backup).unwrap();
        assert_eq!((info.number, info.sequence_number), (round + 1, db.stats().sequence_number));
        assert!(info.copied_bytes <= info.bytes);
        maps.push(map.clone());
    }
    let again = db.backup(&backup).unwrap();
    assert_eq!(
        (again.number, again.copied_bytes),
        (9, 0),
        "nothing was written, and something copied"
    );
    let backups = Backups::open(&backup).unwrap();
    assert_eq!(backups.list().unwrap().len(), 9);
    backups.remove(9).unwrap();
    // What is removed from the database meanwhile is there still.
    drop(db);
    fs::remove_dir_all(&path).unwrap();
    for number in [2_u64, 5] {
        backups.remove(number).unwrap();
        let missing = backups.verify(number);
        assert!(matches!(missing, Err(Error::NotFound(_))), "{missing:?}");
    }
    for (number, map) in (1_u64..).zip(&maps).filter(|(number, _)| ![2, 5].contains(number)) {
        backups.verify(number).unwrap();
        let target = dir.path().join(format!("restored {number}"));
        backups.restore(number, &target).unwrap();
        let db = small(Database::builder(&target)).open().unwrap();
        assert_eq!(contents(&db), *map, "point {number}");
        // It goes on as a database of its own.
        write(&keyspace(&db), &mut Map::new(), &mut random);
        let refused = db.backup(&backup);
        assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");
        db.backup(dir.path().join("another")).unwrap();
        fs::remove_dir_all(dir.path().join("another")).unwrap();
        let refused = backups.restore(number, &target);
        assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");
    }
    for info in backups.list().unwrap() {
        backups.remove(info.number).unwrap();
    }
    assert!(files(&backup).is_empty(), "{:?}", files(&backup));
    let none = Backups::open(dir.path().join("nothing"));
    assert!(matches!(none, Err(Error::NotFound(_))), "{none:?}");
}

#[test]
fn the_newest_points_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let backup = dir.path().join("backup");
    let db = small(Database::builder(dir.path().join("db"))).open().unwrap();
    let (mut map, mut random, mut maps) = (Map::new(), Random::new(3), Vec::new());
    // What the user has there stays.
    fs::create_dir(&backup).unwrap();
    for name in ["notes.val", "a1.sst", "1.point.old", "x.tmp", "12.doc.tmp"] {
        fs::write(backup.join(name), "theirs").unwrap();
    }
    for _ in 0..5 {
        write(&keyspace(&db), &mut map, &mut random);
        db.backup(&backup).unwrap();
        maps.push(map.clone());
    }
    let backups = Backups::open(&backup).unwrap();
    let numbers = || backups.list().unwrap().iter().map(|info| info.number).collect::<Vec<_>>();
    assert_eq!(backups.keep_newest(5).unwrap(), []);
    assert_eq!(backups.keep_newest(2).unwrap(), [1, 2, 3]);
    assert_eq!(numbers(), [4, 5]);
    for number in [4, 5] {
        let target = dir.path().join(format!("restored {number}"));
        backups.restore(number, &target).unwrap();
        let restored = small(Database::builder(target)).open().unwrap();
        assert_eq!(contents(&restored), maps[number as usize - 1]);
    }
    assert_eq!(backups.keep_newest(0).unwrap(), [4, 5]);
    assert_eq!(files(&backup).len(), 5, "{:?}", files(&backup));
}

/// A backup that finds no room leaves none taken, and the points before it whole.
#[test]
fn a_backup_that_fails_takes_no_room() {
    let (path, backup) = (Path::new("/db"), Path::new("/backup"));
    let mut failed = 0;
    for seed in 0..40 {
        let fs = Arc::new(SimFs::new(seed));
        let db = small(Database::builder(path)).file_system(Arc::clone(&fs) as _).open().unwrap();
        let (mut map, mut random) = (Map::new(), Random::new(seed));
        write(&keyspace(&db), &mut map, &mut random);
        db.backup(backup).unwrap();
        write(&keyspace(&db), &mut map, &mut random);
        // Everything is in tables, so that the backup is what fails.
        db.flush().unwrap();
        let before = fs.files(backup);
        fs.set_free_bytes(Some(random.below(20_000)));
        let Err(error) = db.backup(backup) else { continue };
        assert!(matches!(error, Error::Io(_)), "{error:?}");
        failed += 1;
        fs.set_free_bytes(None);
        let backups = Backups::open_on(Arc::clone(&fs) as _, backup).unwrap();
        assert_eq!(backups.list().unwrap().len(), 1);
        assert_eq!(fs.files(backup), before, "seed {seed}");
        backups.verify(1).unwrap();
        db.backup(backup).unwrap();
        backups.verify(2).unwrap();
    }
    assert!(failed > 10, "{failed}");
}

#[test]
fn damage_is_told_of_and_not_restored() {
    let dir = tempfile::tempdir().unwrap();
    let backup = dir.path().join("backup");
    let db = small(Database::builder(dir.path().join("db"))).open().unwrap();
    write(&keyspace(&db), &mut Map::new(), &mut Random::new(2));
    keyspace(&db).insert("large", vec![7; 100_000]).unwrap();
    db.backup(&backup).unwrap();
    let backups = Backups::open(&backup).unwrap();
    let all = files(&backup);
    assert!(all.len() > 2, "{all:?}");
    for path in all {
        let sound = fs::read(&path).unwrap();
        let mut damaged = sound.clone();
        damaged[sound.len() / 2] ^= 1;
        for bytes in [&damaged[..], &sound[..sound.len() - 1]] {
            fs::write(&path, bytes).unwrap();
            let target = dir.path().join("restored");
            for refused in [backups.verify(1), backups.restore(1, &target)] {
                let Err(Error::Corrupt(damage)) = &refused else { panic!("{path:?}: {refused:?}") };
                assert_eq!(damage.path, path);
            }
            assert!(!target.exists() || files(&target).is_empty());
        }
        fs::write(&path, sound).unwrap();
    }
    backups.verify(1).unwrap();
}

/// The power is cut at every step of a backup, and once during a removal: what is listed afterwards
/// is whole, and nothing that was there is gone.
#[test]
fn a_backup_that_is_ended_leaves_the_points_before_it() {
    let most = std::env::var("RHUMB_BACKUP_CUTS").ok();
    let most: u64 = most.map_or(60, |text| text.parse().unwrap());
    let (path, backup) = (Path::new("/db"), Path::new("/backup"));
    let open =
        |fs: &Arc<SimFs>| small(Database::builder(path)).file_system(Arc::clone(fs) as _).open();
    let (mut cuts, mut seed, mut whole) = (0, 0, 0);
    while cuts < most {
        seed += 1;
        let fs = Arc::new(SimFs::new(seed));
        let (mut random, mut map) = (Random::new(seed), Map::new());
        let db = open(&fs).unwrap();
        write(&keyspace(&db), &mut map, &mut random);
        db.backup(backup).unwrap();
        let first = map.clone();
        write(&keyspace(&db), &mut map, &mut random);
        let removes = random.one_in(4);
        if removes {
            db.backup(backup).unwrap();
        }
        let before = fs.counts().changes;
        // As many changes as it makes, or a few more.
        let steps = if removes { 12 } else { 60 };
        fs.cut_power_at(before + random.below(steps));
        let ended = if removes {
            Backups::open_on(Arc::clone(&fs) as _, backup).unwrap().remove(1).is_err()
        } else {
            db.backup(backup).is_err()
        };
        drop(db);
        let loss = if random.one_in(2) { Loss::Adversarial } else { Loss::Random };
        let fs = Arc::new(fs.power_cut(loss, random.next()));
        cuts += u64::from(ended);
        let backups = Backups::open_on(Arc::clone(&fs) as _, backup).unwrap();
        let points = backups.list().unwrap();
        let numbers: Vec<u64> = points.iter().map(|point| point.number).collect();
        match (removes, ended) {
            (false, true) => assert!(numbers == [1] || numbers == [1, 2], "{numbers:?}"),
            (false, false) => assert_eq!(numbers, [1, 2]),
            (true, true) => assert!(numbers == [2] || numbers == [1, 2], "{numbers:?}"),
            (true, false) => assert_eq!(numbers, [2]),
        }
        whole += numbers.len();
        for number in numbers {
            backups.verify(number).unwrap();
            let target = PathBuf::from(format!("/restored{number}"));
            backups.restore(number, &target).unwrap();
            let restored = small(Database::builder(&target)).file_system(Arc::clone(&fs) as _);
            let expected = if number == 1 { &first } else { &map };
            assert_eq!(contents(&restored.open().unwrap()), *expected, "seed {seed}");
        }
        // The next one succeeds.
        let db = open(&fs).unwrap();
        let now = contents(&db);
        let next = db.backup(backup).unwrap();
        let backups = Backups::open_on(Arc::clone(&fs) as _, backup).unwrap();
        backups.restore(next.number, "/next").unwrap();
        let restored = small(Database::builder("/next")).file_system(Arc::clone(&fs) as _);
        assert_eq!(contents(&restored.open().unwrap()), now, "seed {seed}");
    }
    println!("{cuts} backups were ended, of {seed}; {whole} points were restored");
}
