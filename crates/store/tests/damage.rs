//! Damage at rest: bytes of a closed or killed database, or of a backup, change, in every kind of
//! file. Every open and every read that follows is right or an error; nothing panics, and `check`
//! finds everything that matters.
//!
//! `RHUMB_BIT_FLIPS` sets the number of changes, `RHUMB_SEED` repeats one of them. Two kinds of
//! change may cost writes, a suffix of those in the log, because they look like what a power cut
//! leaves. One is a change after the last position that something durable vouches for; `check`
//! notes it. The other is a log cut short exactly between two records, which cannot be told from a
//! log that was never longer.

use std::{
    collections::BTreeMap,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rhumb::{
    Backups, BlockIndexKind, Compression, Database, Error, Keyspace, KeyspaceOptions, Partitioning,
    PersistMode, StringCoding, TableOptions,
    error::IoFailure,
    inspect::{CheckReport, Inspector},
    io::{FileSystem, sim::SimFs, write_all},
};
use rhumb_testkit::random::Random;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Files with their bytes.
type Files = Vec<(PathBuf, Vec<u8>)>;

const DIR: &str = "/db";
const BACKUP: &str = "/backup";
const RESTORED: &str = "/restored";

/// The number of writes that are in the log and in no table; their keys begin with
/// [`LOGGED_PREFIX`].
const LOGGED: u32 = 40;
const LOGGED_PREFIX: &[u8] = b"~log/";

fn open(fs: &SimFs) -> rhumb::Result<Database> {
    let builder = Database::builder(DIR).file_system(Arc::new(fs.clone()));
    builder.create_if_missing(false).background_threads(0).open()
}

/// The options of keyspaces that together have every kind of index, block and value.
fn options(name: &str) -> KeyspaceOptions {
    let table = TableOptions {
        block_bytes: Some(512),
        large_value_bytes: Some(1000),
        string_coding: Some(StringCoding::On),
        ..TableOptions::default()
    };
    match name {
        "learned" => KeyspaceOptions { table, ..KeyspaceOptions::default() },
        _ => KeyspaceOptions {
            table: TableOptions {
                index: Some(BlockIndexKind::BinarySearch),
                compression: Some(Compression::None),
                filter_bits_per_key: Some(0),
                ..table
            },
            partitions: Partitioning::PrefixLength(5),
            ..KeyspaceOptions::default()
        },
    }
}

const KEYSPACES: [&str; 2] = ["learned", "searched"];

/// When an entry with this value expires: some do, in the next century.
fn expires(value: &[u8]) -> Option<SystemTime> {
    (value.len() % 4 == 1).then(|| UNIX_EPOCH + Duration::from_secs(5_000_000_000))
}

/// The files of a process that was killed, and the contents of each keyspace: tables in two levels,
/// large values, tombstones of keys and ranges, and writes that are in the log alone.
///
/// The files of a backup of the same contents come with them.
fn build() -> (Files, Map) {
    let fs = SimFs::new(1);
    let builder = Database::builder(DIR).file_system(Arc::new(fs.clone()));
    let db = builder.background_threads(0).open().unwrap();
    let keyspaces = KEYSPACES.map(|name| db.keyspace(name, options(name)).unwrap());
    let mut map = Map::new();
    let put = |map: &mut Map, key: &[u8], value: &[u8]| {
        for keyspace in &keyspaces {
            match expires(value) {
                None => keyspace.insert(key, value).unwrap(),
                Some(time) => keyspace.insert_until(key, value, time).unwrap(),
            }
        }
        map.insert(key.to_vec(), value.to_vec());
    };
    for n in 0..400_u64 {
        put(&mut map, &(n * n * 977).to_be_bytes(), format!("value {n}").as_bytes());
        put(&mut map, format!("path/to/{:05}", n * 3).as_bytes(), b"abc");
    }
    put(&mut map, b"large", &[7; 3000]);
    for keyspace in &keyspaces {
        keyspace.compact().unwrap();
    }
    for n in 0..50_u64 {
        put(&mut map, format!("path/to/{:05}", n * 6).as_bytes(), b"newer");
        let removed = (n * n * 4 * 977).to_be_bytes();
        keyspaces.iter().for_each(|keyspace| keyspace.remove(removed).unwrap());
        map.remove(&removed[..]);
    }
    for (from, to) in [("path/to/00301", "path/to/00330"), ("path/to/00310", "path/to/00340")] {
        let range = from.as_bytes()..to.as_bytes();
        keyspaces.iter().for_each(|keyspace| keyspace.remove_range(range.clone()).unwrap());
        map.retain(|key, _| !range.contains(&&key[..]));
    }
    db.flush().unwrap();
    let ranges =
        |db: &Database| db.stats().keyspaces.iter().map(|k| k.range_tombstones).sum::<u64>();
    assert!(ranges(&db) >= 2, "range tombstones in tables");
    for n in 0..LOGGED {
        if n % 15 == 0 {
            // This range covers no key, so it may be lost with the writes around it.
            let range = &b"~log0"[..]..&b"~log1"[..];
            keyspaces.iter().for_each(|keyspace| keyspace.remove_range(range.clone()).unwrap());
        }
        let key = [LOGGED_PREFIX, format!("{n:03}").as_bytes()].concat();
        put(&mut map, &key, b"in the log");
        if n % 10 == 0 {
            db.persist(PersistMode::SyncAll).unwrap();
        }
    }
    let killed = fs.kill();
    drop((keyspaces, db));
    let backed_up = killed.copy();
    assert_eq!(open(&backed_up).unwrap().backup(BACKUP).unwrap().number, 1);
    let of = |fs: &SimFs, dir: &str| -> Files {
        let paths = fs.files(Path::new(dir)).into_iter();
        paths.map(|path| (path.clone(), fs.content(&path).unwrap())).collect()
    };
    let files = of(&killed, DIR).into_iter().chain(of(&backed_up, BACKUP));
    (files.filter(|(_, bytes)| !bytes.is_empty()).collect(), map)
}

/// A disk that holds `files`.
fn disk_of(files: &Files) -> SimFs {
    let fs = SimFs::new(1);
    for dir in [DIR, BACKUP] {
        fs.create_dir_all(Path::new(dir)).unwrap();
    }
    for (path, bytes) in files {
        write_all(&mut *fs.create(path).unwrap(), path, bytes).unwrap();
    }
    fs
}

/// Damages a random file. Returns its path, its new bytes and a description.
fn damage(files: &Files, random: &mut Random) -> (PathBuf, Vec<u8>, String) {
    let (path, mut bytes) = files[random.index(files.len())].clone();
    let at = random.index(bytes.len());
    let what = match random.below(40) {
        0 => {
            bytes.truncate(at);
            format!("cut to {at} bytes")
        }
        1 => {
            let end = bytes.len().min(at + 512);
            bytes[at..end].fill(0);
            format!("{at}..{end} zeroed")
        }
        2 => {
            let end = bytes.len().min(at + 1 + random.index(16));
            bytes[at..end].iter_mut().for_each(|byte| *byte = random.next() as u8);
            format!("{at}..{end} overwritten")
        }
        _ => {
            let bit = random.below(8);
            bytes[at] ^= 1 << bit;
            format!("bit {bit} of byte {at} flipped")
        }
    };
    (path, bytes, what)
}

/// The result of a damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Found,
    Harmless,
    /// A suffix of the writes in the log is gone, and noted.
    TornTail,
}

/// Opens and reads the database in every way, and compares it with `map`.
///
/// `is_cut` says that the damaged file was cut short.
fn judge(fs: &SimFs, damaged: &Path, is_cut: bool, map: &Map) -> Result<Verdict, String> {
    let checked = Inspector::with_file_system(Arc::new(fs.clone())).check(DIR, &mut |_, _| {});
    let report = match checked {
        Ok(report) => report,
        Err(error) => return Err(format!("the check ended with {error}")),
    };
    let is_log = damaged.to_string_lossy().ends_with(".log");
    let is_torn = is_log && (!report.notes.is_empty() || is_cut);
    let db = match open(fs) {
        Ok(db) => db,
        Err(Error::Corrupt(_) | Error::Unsupported { .. }) if !report.is_sound() => {
            return Ok(Verdict::Found);
        }
        // A manifest that was cut short names files that later edits removed.
        Err(Error::Io(error)) if is_missing(&error) && !report.is_sound() => {
            return Ok(Verdict::Found);
        }
        Err(error) => return Err(format!("the open ended with {error}, {:?}", report.problems)),
    };
    let (mut errors, mut lost) = (0, 0);
    for name in KEYSPACES {
        if !db.has_keyspace(name) {
            return Err(format!("keyspace {name} is gone"));
        }
        let keyspace = db.keyspace(name, options(name)).map_err(|error| error.to_string())?;
        let lost_here = if is_torn { lost_from_log(&keyspace, map)? } else { 0 };
        lost = lost.max(lost_here);
        let kept = |key: &[u8]| !is_lost(key, lost_here);
        errors += read_all(&keyspace, map, &kept)?;
        errors += scan_all(&keyspace, map, &kept)?;
    }
    verdict(&report, errors, lost)
}

/// Verifies and restores the point of the backup. What is damaged is neither verified nor restored,
/// and leaves nothing behind.
fn judge_backup(fs: &SimFs, map: &Map) -> Result<Verdict, String> {
    let backups = Backups::open_on(Arc::new(fs.clone()), Path::new(BACKUP));
    let backups = backups.map_err(|error| error.to_string())?;
    let (verified, restored) = (backups.verify(1), backups.restore(1, RESTORED));
    match (verified, restored) {
        (Ok(()), Ok(())) => {}
        (Err(found), Err(refused)) if found.is_corruption() && refused.is_corruption() => {
            let left = fs.files(Path::new(RESTORED));
            return if left.is_empty() {
                Ok(Verdict::Found)
            } else {
                Err(format!("left {left:?}"))
            };
        }
        other => return Err(format!("verified and restored: {other:?}")),
    }
    let db = Database::builder(RESTORED).file_system(Arc::new(fs.clone()));
    let db = db.background_threads(0).open().map_err(|error| error.to_string())?;
    for name in KEYSPACES {
        let keyspace = db.keyspace(name, options(name)).map_err(|error| error.to_string())?;
        let errors = read_all(&keyspace, map, &|_| true)? + scan_all(&keyspace, map, &|_| true)?;
        if errors > 0 {
            return Err(format!("{errors} reads of what was restored failed"));
        }
    }
    Ok(Verdict::Harmless)
}

fn is_missing(failure: &IoFailure) -> bool {
    failure.source.kind() == ErrorKind::NotFound
}

fn verdict(report: &CheckReport, errors: u32, lost: u32) -> Result<Verdict, String> {
    match (report.is_sound(), errors, lost) {
        (true, 0, 0) => Ok(Verdict::Harmless),
        (true, 0, _) => Ok(Verdict::TornTail),
        (true, ..) => Err(format!("{errors} reads failed, and the check found nothing")),
        (false, ..) => Ok(Verdict::Found),
    }
}

fn log_key(n: u32) -> Vec<u8> {
    [LOGGED_PREFIX, format!("{n:03}").as_bytes()].concat()
}

/// Returns true if `key` is one of the last `count` writes in the log.
fn is_lost(key: &[u8], count: u32) -> bool {
    key.starts_with(LOGGED_PREFIX) && *key >= *log_key(LOGGED - count)
}

/// The number of the last writes in the log that are gone.
fn lost_from_log(keyspace: &Keyspace, map: &Map) -> Result<u32, String> {
    let mut kept = 0;
    while kept < LOGGED && map.contains_key(&log_key(kept)) {
        match keyspace.get(log_key(kept)) {
            Ok(Some(_)) => kept += 1,
            Ok(None) => break,
            Err(error) => return Err(format!("a read of the log's writes: {error}")),
        }
    }
    Ok(LOGGED - kept)
}

/// Gets every key, and some that are absent. Returns the number of failed reads.
fn read_all(keyspace: &Keyspace, map: &Map, kept: &dyn Fn(&[u8]) -> bool) -> Result<u32, String> {
    let mut errors = 0;
    let absent = map.keys().step_by(7).map(|key| [key, &b"!"[..]].concat());
    for key in map.keys().cloned().chain(absent) {
        let expected = map.get(&key).filter(|_| kept(&key));
        match keyspace.get(&key) {
            Ok(value) if value.as_deref() == expected.map(Vec::as_slice) => {}
            Ok(value) => {
                let found = value.map(|value| value.len());
                return Err(format!("key {}: {found:?} bytes", key.escape_ascii()));
            }
            Err(error) if error.is_corruption() => errors += 1,
            Err(error) => return Err(format!("key {}: {error}", key.escape_ascii())),
        }
    }
    Ok(errors)
}

/// Iterates from both ends up to the first error. Returns the number of errors.
fn scan_all(keyspace: &Keyspace, map: &Map, kept: &dyn Fn(&[u8]) -> bool) -> Result<u32, String> {
    let entries = || map.iter().filter(|(key, _)| kept(key));
    let mut errors = 0;
    let mut hold =
        |found: &mut dyn Iterator<Item = rhumb::Result<(rhumb::Slice, rhumb::Slice)>>,
         expected: &mut dyn Iterator<Item = (&Vec<u8>, &Vec<u8>)>| {
            for entry in found {
                match (entry, expected.next()) {
                    (Ok((key, value)), Some((k, v))) if *key == **k && *value == **v => {}
                    (Ok((key, _)), _) => return Err(format!("a scan met {}", key.escape_ascii())),
                    (Err(error), _) if error.is_corruption() => {
                        errors += 1;
                        return Ok(());
                    }
                    (Err(error), _) => return Err(format!("a scan: {error}")),
                }
            }
            expected.next().map_or(Ok(()), |(key, _)| Err(format!("no {}", key.escape_ascii())))
        };
    hold(&mut keyspace.iter(), &mut entries())?;
    hold(&mut keyspace.iter().rev(), &mut entries().rev())?;
    Ok(errors)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn damage_is_found_or_harmless() {
    let (files, map) = build();
    assert_eq!(judge(&disk_of(&files), Path::new("none"), false, &map), Ok(Verdict::Harmless));
    assert_eq!(judge_backup(&disk_of(&files), &map), Ok(Verdict::Harmless));
    let kinds = ["CURRENT", "MANIFEST-", ".log", ".sst", ".val", ".point"];
    for kind in kinds {
        let is_there = files.iter().any(|(path, _)| path.to_string_lossy().contains(kind));
        assert!(is_there, "no {kind} file");
    }
    let run = |seed: u64| {
        let (path, bytes, what) = damage(&files, &mut Random::new(seed));
        let fs = disk_of(&files);
        fs.set_content(&path, bytes).unwrap();
        let verdict = match path.starts_with(BACKUP) {
            true => judge_backup(&fs, &map),
            false => judge(&fs, &path, what.starts_with("cut"), &map),
        };
        verdict.unwrap_or_else(|broken| {
            panic!("RHUMB_SEED={seed}: {}: {what}: {broken}", path.display())
        })
    };
    if let Some(seed) = number("RHUMB_SEED") {
        run(seed);
        return;
    }
    let times = number("RHUMB_BIT_FLIPS").unwrap_or(600);
    let (next, found, torn) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= times {
                        break;
                    }
                    match run(seed) {
                        Verdict::Found => found.fetch_add(1, Ordering::Relaxed),
                        Verdict::TornTail => torn.fetch_add(1, Ordering::Relaxed),
                        Verdict::Harmless => 0,
                    };
                }
            });
        }
    });
    let (found, torn) = (found.into_inner(), torn.into_inner());
    println!("{times} damages: {found} found, {torn} of the log's end, the others harmless");
    assert!(found > times / 3, "only {found} of {times} were found");
}
