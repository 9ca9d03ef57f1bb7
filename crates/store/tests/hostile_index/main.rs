//! Indexes with invented parameters under valid checksums: a table that has one is refused when it
//! is opened, or every lookup, seek and scan answers as if the index were right.
//!
//! `RHUMB_HOSTILE_INDEXES` sets the number of indexes, `RHUMB_SEED` repeats one of them.

mod rewrite;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rhumb::{
    BlockIndexKind, Compression, Database, Error, Keyspace, KeyspaceOptions, Slice, StringCoding,
    TableOptions,
    io::{
        FileSystem,
        sim::{SimFs, SimRng},
        write_all,
    },
};

use self::rewrite::{Change, rewrite};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const DIR: &str = "/db";

/// A database that was closed: its files, its contents, and all keys that were ever in it.
struct Closed {
    index: BlockIndexKind,
    coding: StringCoding,
    filter_bits_per_key: u8,
    files: Vec<(PathBuf, Vec<u8>)>,
    map: Map,
    keys: Vec<Vec<u8>>,
    probes: Vec<Vec<u8>>,
}

fn options(
    index: BlockIndexKind,
    coding: StringCoding,
    filter_bits_per_key: u8,
) -> KeyspaceOptions {
    let table = TableOptions {
        index: Some(index),
        string_coding: Some(coding),
        filter_bits_per_key: Some(filter_bits_per_key),
        block_bytes: Some(256),
        compression: Some(Compression::None),
        ..TableOptions::default()
    };
    KeyspaceOptions { table, ..KeyspaceOptions::default() }
}

fn open(fs: &SimFs) -> rhumb::Result<Database> {
    let builder = Database::builder(DIR).file_system(Arc::new(fs.clone()));
    builder.background_threads(0).memory_budget_bytes(4 << 20).open()
}

/// Keys of every form, so that lines are steep and flat, segments skip many bytes and none, and
/// some blocks are empty.
fn key(rng: &mut SimRng) -> Vec<u8> {
    let n = rng.below(500);
    match rng.below(6) {
        0 => (n * n * n * 977).to_be_bytes().to_vec(),
        1 => n.to_be_bytes().to_vec(),
        2 => format!("user:{:09}", n * 7).into_bytes(),
        3 => format!("{}/{n}", "a/path/that/many/keys/share".repeat(2)).into_bytes(),
        4 => [vec![b'c' + (n % 5) as u8; 40], n.to_string().into_bytes()].concat(),
        _ => [&[0xff; 3][..], &(n << 40).to_be_bytes()].concat(),
    }
}

fn build(index: BlockIndexKind, coding: StringCoding, filter_bits_per_key: u8) -> Closed {
    let fs = SimFs::new(1);
    let db = open(&fs).unwrap();
    let keyspace = db.keyspace("k", options(index, coding, filter_bits_per_key)).unwrap();
    let (mut map, mut rng) = (Map::new(), SimRng::new(5));
    let mut keys = Vec::new();
    // A table below, and two above it with newer versions and tombstones.
    for (round, count) in [1500, 150, 150].into_iter().enumerate() {
        for _ in 0..count {
            let key = key(&mut rng);
            if round > 0 && rng.chance(1, 3) {
                keyspace.remove(&key).unwrap();
                map.remove(&key);
            } else {
                let value = format!("{round} {}", rng.below(1 << 40)).repeat(1 + rng.index(4));
                keyspace.insert(&key, &value).unwrap();
                map.insert(key.clone(), value.into_bytes());
            }
            keys.push(key);
        }
        if round == 0 {
            keyspace.compact().unwrap();
        }
        db.flush().unwrap();
    }
    drop((keyspace, db));
    keys.sort();
    keys.dedup();
    let near = |key: &Vec<u8>| [[&key[..], &[0]].concat(), key[..key.len() - 1].to_vec()];
    let mut probes: Vec<_> = keys.iter().step_by(3).flat_map(near).collect();
    probes.extend((0..200).map(|_| key(&mut rng)));
    probes.extend(keys.iter().cloned());
    let paths = fs.files(Path::new(DIR)).into_iter();
    let files = paths.map(|path| (path.clone(), fs.content(&path).unwrap()));
    let files = files.filter(|(_, bytes)| !bytes.is_empty()).collect();
    Closed { index, coding, filter_bits_per_key, files, map, keys, probes }
}

/// The result of a database with invented indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Nothing could be rewritten: it did not fit.
    NotTried,
    /// A table was refused.
    Refused,
    /// All answers were right; this many reads found an index to be wrong.
    Right(u64),
}

fn run(closed: &Closed, seed: u64) -> Result<Verdict, String> {
    let mut rng = SimRng::new(seed);
    let change = Change::ALL[rng.index(Change::ALL.len())];
    let fs = SimFs::new(1);
    fs.create_dir_all(Path::new(DIR)).unwrap();
    let mut rewritten = 0;
    for (path, bytes) in &closed.files {
        let is_table = path.extension().is_some_and(|extension| extension == "sst");
        let made_up = is_table.then(|| rewrite(bytes, change, &closed.keys, &mut rng)).flatten();
        rewritten += u32::from(made_up.is_some());
        let bytes = made_up.as_ref().unwrap_or(bytes);
        write_all(&mut *fs.create(path).unwrap(), path, bytes).unwrap();
    }
    if rewritten == 0 {
        return Ok(Verdict::NotTried);
    }
    let is_refusal =
        |error: &Error| matches!(error, Error::Corrupt(bad) if bad.path.starts_with(DIR));
    // Only an invalid model may be refused, and only random bytes and changed codes make one.
    let db = match open(&fs) {
        Ok(db) => db,
        Err(error) if is_refusal(&error) && matches!(change, Change::Bytes | Change::Codes) => {
            return Ok(Verdict::Refused);
        }
        Err(error) => return Err(format!("{change:?}: {error}")),
    };
    let options = options(closed.index, closed.coding, closed.filter_bits_per_key);
    let keyspace = db.keyspace("k", options).map_err(|error| error.to_string())?;
    let answers = [points, seeks, scans, waiting].iter().try_for_each(|read| {
        read(&keyspace, closed, &mut rng).map_err(|wrong| format!("{change:?}: {wrong}"))
    });
    // Random bytes may also say that blocks start elsewhere, which the blocks' checksums detect.
    match answers {
        Err(wrong) if change == Change::Bytes && wrong.contains("is damaged") => {
            Ok(Verdict::Refused)
        }
        Err(wrong) => Err(wrong),
        Ok(()) => Ok(Verdict::Right(db.stats().indexes_refuted)),
    }
}

fn text(error: Error) -> String {
    error.to_string()
}

fn hold(
    what: &str,
    key: &[u8],
    found: Option<&[u8]>,
    expected: Option<&[u8]>,
) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    let [found, expected] = [found, expected].map(|value| value.map(<[u8]>::escape_ascii));
    let words = found.map_or("nothing".into(), |value| value.to_string());
    let right = expected.map_or("nothing".into(), |value| value.to_string());
    Err(format!("{what} {}: {words}, not {right}", key.escape_ascii()))
}

/// Reads every key and many absent ones, alone and together.
fn points(keyspace: &Keyspace, closed: &Closed, _: &mut SimRng) -> Result<(), String> {
    let expected = |key: &[u8]| closed.map.get(key).map(Vec::as_slice);
    for key in &closed.probes {
        let found = keyspace.get(key).map_err(text)?;
        hold("get", key, found.as_deref(), expected(key))?;
    }
    for keys in closed.probes.chunks(50) {
        let found = keyspace.multi_get(keys).map_err(text)?;
        for (key, found) in keys.iter().zip(found) {
            hold("multi_get", key, found.as_deref(), expected(key))?;
        }
    }
    Ok(())
}

/// Compares the first item of an iterator with a map's.
fn first(
    what: &str,
    from: &[u8],
    mut found: impl Iterator<Item = rhumb::Result<(Slice, Slice)>>,
    mut expected: impl Iterator<Item = (Vec<u8>, Vec<u8>)>,
) -> Result<(), String> {
    for _ in 0..4 {
        let found = found.next().transpose().map_err(text)?;
        let expected = expected.next();
        let found = found.as_ref().map(|(key, value)| [&key[..], b"=", &value[..]].concat());
        let expected = expected.map(|(key, value)| [&key[..], b"=", &value[..]].concat());
        hold(what, from, found.as_deref(), expected.as_deref())?;
    }
    Ok(())
}

fn seeks(keyspace: &Keyspace, closed: &Closed, rng: &mut SimRng) -> Result<(), String> {
    let owned = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
    for key in closed.probes.iter().skip(rng.index(3)).step_by(3) {
        let above = closed.map.range(key.clone()..).map(owned);
        first("seek", key, keyspace.range(&key[..]..), above)?;
        let below = closed.map.range(..key.clone()).rev().map(owned);
        first("seek backward", key, keyspace.range(..&key[..]).rev(), below)?;
    }
    Ok(())
}

fn scans(keyspace: &Keyspace, closed: &Closed, _: &mut SimRng) -> Result<(), String> {
    let mut expected = closed.map.iter();
    for entry in keyspace.iter() {
        let (key, value) = entry.map_err(text)?;
        if expected.next() != Some((&key.to_vec(), &value.to_vec())) {
            return Err(format!("a scan met {}", key.escape_ascii()));
        }
    }
    expected.next().map_or(Ok(()), |(key, _)| Err(format!("no {}", key.escape_ascii())))
}

/// The asynchronous forms.
fn waiting(keyspace: &Keyspace, closed: &Closed, rng: &mut SimRng) -> Result<(), String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().build().map_err(|e| e.to_string())?;
    runtime.block_on(async {
        for key in closed.probes.iter().skip(rng.index(4)).step_by(4) {
            let expected = closed.map.get(key).map(Vec::as_slice);
            let found = keyspace.get_async(key).await.map_err(text)?;
            hold("get_async", key, found.as_deref(), expected)?;
            let found = keyspace.range_async(&key[..]..).next().await.transpose().map_err(text)?;
            let expected = closed.map.range(key.clone()..).next().map(|(key, _)| &key[..]);
            hold("seek_async", key, found.as_ref().map(|(key, _)| &key[..]), expected)?;
        }
        Ok(())
    })
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn made_up_indexes_hide_no_key() {
    let learned = StringCoding::ALL.map(|coding| (BlockIndexKind::Learned, coding));
    let kinds = learned.into_iter().chain([(BlockIndexKind::BinarySearch, StringCoding::Off)]);
    let databases: Vec<Closed> =
        kinds.flat_map(|(kind, coding)| [10, 0].map(|bits| build(kind, coding, bits))).collect();
    let run = |seed: u64| {
        run(&databases[seed as usize % databases.len()], seed)
            .unwrap_or_else(|wrong| panic!("RHUMB_SEED={seed}: {wrong}"))
    };
    if let Some(seed) = number("RHUMB_SEED") {
        println!("{:?}", run(seed));
        return;
    }
    let times = number("RHUMB_HOSTILE_INDEXES").unwrap_or(150);
    let next = AtomicU64::new(0);
    let [untried, refused, right, wrong] = [const { AtomicU64::new(0) }; 4];
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= times {
                        break;
                    }
                    let counted = match run(seed) {
                        Verdict::NotTried => &untried,
                        Verdict::Refused => &refused,
                        Verdict::Right(0) => &right,
                        Verdict::Right(_) => &wrong,
                    };
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let [untried, refused, right, wrong] =
        [untried, refused, right, wrong].map(AtomicU64::into_inner);
    println!(
        "{times} indexes: {refused} refused, {wrong} wrong about keys that were found nonetheless, \
         {right} harmless, {untried} did not fit"
    );
    assert!(wrong * 3 > times, "only {wrong} of {times} indexes were wrong");
}
