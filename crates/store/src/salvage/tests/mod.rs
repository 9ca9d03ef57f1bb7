//! Damaged stores against a model: a salvage returns exactly what is sound, and lists every loss.
//!
//! `RHUMB_SALVAGE_STORES` sets the number of damaged stores, `RHUMB_SEED` repeats one of them, and
//! `RHUMB_FIRST_SEED`, a multiple of 20, makes a long run in pieces.

mod catalog;
mod model;
mod scenes;

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use rhumb_sync::primitive::Arc;
use rhumb_testkit::random::Random;

use self::model::{Damaged, Model, Part};
use super::{ManifestFound, Salvage, SalvageReport};
use crate::{
    BlockIndexKind, Compression, Database, Keyspace, KeyspaceOptions, Partitioning, PersistMode,
    TableOptions,
    io::{
        FileSystem,
        sim::{CallKind, Fault, Matcher, SimFs},
    },
    table::TableMeta,
    version::manifest::{CURRENT_NAME, Manifest},
};

const DIR: &str = "/db";
const TARGET: &str = "/salvaged";

type Files = BTreeMap<PathBuf, Vec<u8>>;
type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(fs: &SimFs, dir: &str) -> Database {
    let builder = Database::builder(dir).file_system(Arc::new(fs.clone()));
    // Tables of up to a sixteenth share files.
    let builder = builder.table_bytes(96_000).level_one_bytes(60_000).memtable_bytes(60_000);
    builder.background_threads(0).open().unwrap()
}

fn options(name: &str) -> KeyspaceOptions {
    let table = TableOptions {
        block_bytes: Some(400),
        large_value_bytes: Some(700),
        ..TableOptions::default()
    };
    match name {
        "parts" => KeyspaceOptions {
            table,
            partitions: Partitioning::PrefixLength(1),
            ..KeyspaceOptions::default()
        },
        "searched" => KeyspaceOptions {
            table: TableOptions {
                index: Some(BlockIndexKind::BinarySearch),
                compression: Some(Compression::None),
                filter_bits_per_key: Some(0),
                ..table
            },
            ..KeyspaceOptions::default()
        },
        _ => KeyspaceOptions { table, ..KeyspaceOptions::default() },
    }
}

const KEYSPACES: [&str; 3] = ["plain", "parts", "searched"];

/// Writes to a keyspace; errors are those of a flush that is made to fail.
fn write(keyspace: &Keyspace, random: &mut Random) {
    let key = |random: &mut Random| match random.below(30) {
        0 => Vec::new(),
        1 => vec![b'0' + random.below(9) as u8; 1 + random.index(300)],
        _ => format!("{:03}", random.below(400)).into_bytes(),
    };
    match random.below(24) {
        0 => {
            let (a, b) = (key(random), key(random));
            let _ = keyspace.remove_range(a.clone().min(b.clone())..a.max(b));
        }
        1..6 => drop(keyspace.remove(key(random))),
        n => {
            let len = if n == 6 { 700 + random.index(3_000) } else { random.index(120) };
            let fill = [random.next() as u8, b'0' + random.below(10) as u8];
            let value: Vec<u8> = fill.into_iter().cycle().take(len).collect();
            drop(keyspace.insert(key(random), value));
        }
    }
}

/// Makes a store of a process that was killed: tables in several levels and in shared files, large
/// values, versions that a snapshot kept, tombstones, ingested tables, keyspaces and partitions
/// that were dropped, a log with several segments, and tables that nothing names any more.
fn build(seed: u64) -> Model {
    let fs = SimFs::new(seed);
    let mut random = Random::new(seed);
    let db = open(&fs, DIR);
    let keyspaces = KEYSPACES.map(|name| db.keyspace(name, options(name)).unwrap());
    let dropped = db.keyspace("dropped", options("dropped")).unwrap();
    let cleared = db.keyspace("cleared", options("parts")).unwrap();
    let mut leftovers = Vec::new();
    let rounds = 2 + random.below(4);
    for round in 0..rounds {
        let snapshot = random.one_in(2).then(|| db.snapshot());
        for _ in 0..150 + random.below(500) {
            write(&keyspaces[random.index(3)], &mut random);
            if random.one_in(10) {
                write(&dropped, &mut random);
                write(&cleared, &mut random);
            }
        }
        match random.below(4) {
            0 => db.flush().unwrap(),
            1 => keyspaces.iter().for_each(|keyspace| keyspace.compact().unwrap()),
            2 => ingest(&keyspaces[random.index(3)], &mut random),
            _ => {}
        }
        if round == 0 {
            leftovers = tables_of(&fs);
        }
        drop(snapshot);
        if random.one_in(3) {
            let _ = keyspaces[1].drop_partition(format!("{}", random.below(4)));
        }
    }
    db.drop_keyspace("dropped").unwrap();
    cleared.clear().unwrap();
    for _ in 0..random.below(60) {
        write(&cleared, &mut random);
    }
    if random.one_in(2) {
        // Memtables that cannot be flushed keep their segments of the log.
        fs.inject(
            Matcher::any().kinds(&[CallKind::Create]).name_contains(".s"),
            Fault::NoSpace,
            9_999,
        );
    }
    for _ in 0..random.below(900) {
        write(&keyspaces[random.index(3)], &mut random);
    }
    let _ = db.persist(PersistMode::SyncAll);
    let killed = fs.kill();
    drop((keyspaces, dropped, cleared, db));
    let kept = keep_leftovers(&killed, leftovers);
    Model::read(&killed, &kept)
}

fn ingest(keyspace: &Keyspace, random: &mut Random) {
    let first = random.below(300);
    let entries = (first..first + 60).map(|n| (format!("{n:03}"), format!("ingested {n}")));
    let _ = keyspace.ingest(entries);
}

/// The tables of a store, with the bytes of their files.
type Kept = Vec<(TableMeta, Vec<(PathBuf, Vec<u8>)>)>;

fn tables_of(fs: &SimFs) -> Kept {
    let dir = Path::new(DIR);
    let state = Manifest::recover(fs, dir).unwrap().unwrap().state;
    let own = state.tables().filter(|meta| meta.place.is_none());
    own.map(|meta| {
        let paths = [crate::table::home_path(dir, meta), crate::table::value_path(dir, meta.id)];
        let files =
            paths.into_iter().filter_map(|path| Some((path.clone(), fs.content(&path).ok()?)));
        (meta.clone(), files.collect())
    })
    .collect()
}

/// Puts the files of tables back that the store has removed since.
fn keep_leftovers(fs: &SimFs, kept: Kept) -> Vec<TableMeta> {
    let state = Manifest::recover(fs, Path::new(DIR)).unwrap().unwrap().state;
    let mut leftovers = Vec::new();
    for (mut meta, files) in kept {
        if state.tables().any(|table| table.id == meta.id) {
            continue;
        }
        for (path, bytes) in files {
            fs.set_content(&path, bytes).unwrap();
        }
        // Its number was given by the manifest, which does not name it any more.
        if meta.seq_min == meta.seq_max && meta.entries > 1 {
            (meta.seq_min, meta.seq_max) = (0, 0);
        }
        leftovers.push(meta);
    }
    leftovers
}

/// Changes one to four places. Returns the changed files and a description.
fn damage(model: &Model, random: &mut Random) -> (HashMap<PathBuf, Option<Vec<u8>>>, String) {
    let mut changed: HashMap<PathBuf, Option<Vec<u8>>> = HashMap::new();
    let mut what = String::new();
    let paths: Vec<&PathBuf> = model.files.keys().filter(|path| !path.ends_with("LOCK")).collect();
    let catalog: Vec<&PathBuf> = paths
        .iter()
        .copied()
        .filter(|path| path.ends_with(CURRENT_NAME) || **path == model.manifest)
        .collect();
    let others: Vec<&PathBuf> =
        paths.iter().copied().filter(|path| !catalog.contains(path)).collect();
    for _ in 0..1 + random.below(4) {
        let from = if random.one_in(6) { &catalog } else { &others };
        let path = from[random.index(from.len())];
        let before = changed.get(path).cloned().unwrap_or_else(|| Some(model.files[path].clone()));
        let Some(mut bytes) = before.filter(|bytes| !bytes.is_empty()) else { continue };
        let at = random.index(bytes.len());
        let name = path.file_name().unwrap().to_string_lossy();
        let end = bytes.len().min(at + 1 + random.index(2_000));
        let now = match random.below(12) {
            0 => {
                what += &format!("{name} gone; ");
                None
            }
            1 => {
                bytes.truncate(at);
                what += &format!("{name} cut to {at}; ");
                Some(bytes)
            }
            2 => {
                let extra = 1 + random.index(9_000);
                bytes.extend((0..extra).map(|_| random.next() as u8));
                what += &format!("{name} with {extra} bytes more; ");
                Some(bytes)
            }
            3 | 4 => {
                bytes[at..end].fill(0);
                what += &format!("{name} {at}..{end} zeroed; ");
                Some(bytes)
            }
            5 => {
                bytes[at..end].iter_mut().for_each(|byte| *byte = random.next() as u8);
                what += &format!("{name} {at}..{end} overwritten; ");
                Some(bytes)
            }
            _ => {
                bytes[at] ^= 1 << random.below(8);
                what += &format!("{name} {at} flipped; ");
                Some(bytes)
            }
        };
        changed.insert(path.clone(), now);
    }
    (changed, what)
}

/// A disk with the store, damaged.
fn disk_of(model: &Model, changed: &HashMap<PathBuf, Option<Vec<u8>>>) -> SimFs {
    let fs = SimFs::new(1);
    fs.create_dir_all(Path::new(DIR)).unwrap();
    for (path, bytes) in &model.files {
        let bytes = changed.get(path).cloned().unwrap_or_else(|| Some(bytes.clone()));
        if let Some(bytes) = bytes {
            fs.set_content(path, bytes).unwrap();
        }
    }
    fs
}

fn contents(db: &Database, name: &str) -> Map {
    let keyspace = db.keyspace(name, KeyspaceOptions::default()).unwrap();
    let pairs = keyspace.iter().map(|pair| pair.unwrap());
    pairs.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn salvaged(fs: &SimFs) -> (SalvageReport, BTreeMap<String, Map>) {
    let before: Vec<(PathBuf, Vec<u8>)> = files_of(fs);
    let salvage = Salvage::new().file_system(Arc::new(fs.clone()));
    let report = salvage.run(DIR, TARGET).unwrap();
    assert!(files_of(fs) == before, "the store was written to");
    let db = open(fs, TARGET);
    let names = db.keyspace_names();
    let maps: BTreeMap<String, Map> =
        names.iter().map(|name| (name.clone(), contents(&db, name))).collect();
    for keyspace in &report.keyspaces {
        assert_eq!(maps[&keyspace.name].len() as u64, keyspace.entries);
    }
    assert_eq!(maps.len(), report.keyspaces.len());
    (report, maps)
}

fn files_of(fs: &SimFs) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = fs.files(Path::new(DIR)).into_iter();
    paths.map(|path| (path.clone(), fs.content(&path).unwrap())).collect()
}

/// Compares what a salvage did with the model. Returns the number of losses.
fn judge(
    model: &Model,
    changed: HashMap<PathBuf, Option<Vec<u8>>>,
) -> Result<(ManifestFound, usize), String> {
    let fs = disk_of(model, &changed);
    let is_whole = matches!(Manifest::recover(&fs, Path::new(DIR)), Ok(Some(_)));
    let (report, found) = salvaged(&fs);
    let damaged = Damaged { model, changed, is_whole };
    let expected = damaged.expected();
    if (report.manifest == ManifestFound::Whole) != is_whole {
        return Err(format!("the manifest: {:?}", report.manifest));
    }
    let with_obsolete = damaged.with_obsolete();
    for (name, map) in expected.keyspaces.iter().filter(|(name, _)| !with_obsolete.contains(name)) {
        let none = Map::new();
        let found = found.get(name).unwrap_or(&none);
        if let Some((key, value)) = map.iter().find(|(key, value)| found.get(*key) != Some(value)) {
            return Err(format!(
                "{name}: key {} with {} bytes is {:?}",
                key.escape_ascii(),
                value.len(),
                found.get(key).map(Vec::len)
            ));
        }
        if let Some(key) = found.keys().find(|key| !map.contains_key(*key)) {
            return Err(format!("{name}: key {} is unexpected", key.escape_ascii()));
        }
    }
    // What is left in a shared file of a table that was removed is a table like any other, if the
    // manifest does not say so.
    let is_obsolete = |name: &str| {
        let id = name.strip_prefix("table-").and_then(|id| id.parse().ok());
        !is_whole && id.is_some_and(|id| model.tables.iter().all(|table| table.meta.id != id))
    };
    let is_unexpected = |name: &&String| {
        let is_known = expected.keyspaces.contains_key(*name) || with_obsolete.contains(name);
        !is_known && !is_obsolete(name)
    };
    if let Some(name) = found.keys().find(is_unexpected) {
        return Err(format!("keyspace {name} is unexpected"));
    }
    if is_whole {
        let unlisted = expected.lost.iter().find(|part| !is_listed(&damaged, part, &report));
        if let Some(part) = unlisted {
            return Err(format!("{part:?} is not listed in {:#?}", report.losses));
        }
        let is_log = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "log");
        if expected.lost.is_empty()
            && !damaged.changed.contains_key(&model.manifest)
            && !damaged.changed.keys().any(is_log)
            && !report.losses.is_empty()
        {
            return Err(format!("nothing is lost but {:?}", report.losses));
        }
    }
    Ok((report.manifest, report.losses.len()))
}

/// Returns true if a lost part is among the losses.
fn is_listed(damaged: &Damaged<'_>, part: &Part, report: &SalvageReport) -> bool {
    let covers = report.losses.iter().any(|loss| {
        let end = loss.offset.saturating_add(if loss.bytes == 0 { u64::MAX } else { loss.bytes });
        loss.path == part.path && loss.offset < part.at.end && part.at.start < end
    });
    // The last segment of the log, cut off where a record began, looks as if it had ended there.
    let last = damaged.model.segments.last();
    let cut = damaged.changed.get(&part.path).and_then(Option::as_ref).map(|now| now.len() as u64);
    let is_boundary =
        |at: u64| at == 72 || damaged.model.frames.iter().any(|frame| frame.part.at.end == at);
    let is_unseen = last == Some(&part.path) && cut.is_some_and(is_boundary);
    // So does a log whose last segment is gone, if the manifest does not name that.
    let is_gone = last == Some(&part.path)
        && damaged.model.segments.len() > 1
        && damaged.changed.get(&part.path) == Some(&None);
    covers || is_unseen || is_gone
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn an_undamaged_store_is_copied() {
    for seed in 0..6 {
        let model = build(seed);
        let fs = disk_of(&model, &HashMap::new());
        let (report, found) = salvaged(&fs);
        assert!(report.is_complete(), "seed {seed}: {report:#?}");
        let db = open(&fs, DIR);
        for name in db.keyspace_names() {
            let (found, there) = (&found[&name], contents(&db, &name));
            let differs = |key: &&Vec<u8>| found.get(*key) != there.get(*key);
            let different: Vec<&Vec<u8>> =
                found.keys().chain(there.keys()).filter(differs).collect();
            assert!(different.is_empty(), "seed {seed}: {name}: {different:?}");
        }
        assert_eq!(found.len(), db.keyspace_names().len());
        judge(&model, HashMap::new()).unwrap();
    }
}

#[test]
fn what_is_sound_is_brought_across_and_losses_are_listed() {
    let run = |model: &Model, seed: u64| {
        let (changed, what) = damage(model, &mut Random::new(seed));
        judge(model, changed).unwrap_or_else(|broken| panic!("RHUMB_SEED={seed}: {what}: {broken}"))
    };
    if let Some(seed) = number("RHUMB_SEED") {
        run(&build(seed / STORES_OF_ONE_KIND), seed);
        return;
    }
    let first = number("RHUMB_FIRST_SEED").unwrap_or(0);
    let count = number("RHUMB_SALVAGE_STORES").unwrap_or(200);
    let next = AtomicU64::new(first / STORES_OF_ONE_KIND);
    let stores = first + count;
    let (losses, lost, part) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let group = next.fetch_add(1, Ordering::Relaxed);
                    let seeds = group * STORES_OF_ONE_KIND..(group + 1) * STORES_OF_ONE_KIND;
                    if seeds.start >= stores {
                        break;
                    }
                    let model = build(group);
                    for seed in seeds.start..seeds.end.min(stores) {
                        let (manifest, count) = run(&model, seed);
                        losses.fetch_add(count as u64, Ordering::Relaxed);
                        lost.fetch_add(u64::from(count > 0), Ordering::Relaxed);
                        let is_whole = manifest == ManifestFound::Whole;
                        part.fetch_add(u64::from(!is_whole), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let (losses, lost, part) = (losses.into_inner(), lost.into_inner(), part.into_inner());
    println!(
        "{count} damaged stores: {lost} lost something, {losses} losses; {part} without a whole manifest"
    );
    assert!(lost > count / 3, "only {lost} of {count} stores lost anything");
    assert!(part > count / 20, "only {part} of {count} manifests were damaged");
}

/// The number of damaged stores that are made of one store.
const STORES_OF_ONE_KIND: u64 = 20;
