//! Single cases of damage.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rhumb_sync::primitive::Arc;

use super::{DIR, Map, TARGET, build, contents, disk_of, open, options, salvaged, tables_of};
use crate::{
    Database, Error, Expiry, KeyspaceOptions, Partitioning,
    io::{
        FileSystem,
        sim::{CallKind, Fault, Matcher, SimFs},
    },
    salvage::{Loss, ManifestFound, Salvage},
    table::{TableMeta, TablePlace, footer::Footer, format::FILE_ALIGN_BYTES, home_path},
    version::{edit::Edit, manifest::Manifest},
};

fn salvage(fs: &SimFs) -> Salvage {
    Salvage::new().file_system(Arc::new(fs.clone()))
}

fn paths(fs: &SimFs, ending: &str) -> Vec<PathBuf> {
    let mut paths = fs.files(Path::new(DIR));
    paths.retain(|path| path.to_string_lossy().ends_with(ending));
    paths
}

/// When some entries of [`small`] expire, in the next century.
fn end() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(5_000_000_000)
}

#[test]
fn entries_keep_their_times() {
    for without in [None, Some("MANIFEST"), Some("CURRENT")] {
        let (fs, map) = small();
        let gone =
            |path: &PathBuf| without.is_some_and(|name| path.to_string_lossy().contains(name));
        for path in fs.files(Path::new(DIR)).into_iter().filter(gone) {
            fs.remove_file(&path).unwrap();
        }
        salvage(&fs).into("k").run(DIR, TARGET).unwrap();
        let db = open(&fs, TARGET);
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        assert_eq!(contents(&db, "k"), map);
        for key in map.keys() {
            let expires =
                matches!(&key[..], b"00000" | b"00001" | b"01000" | b"01001" | b"logged until");
            let expected = if expires { Expiry::At(end()) } else { Expiry::Never };
            assert_eq!(keyspace.expiry_of(key).unwrap(), Some(expected), "{}", key.escape_ascii());
        }
    }
}

/// A manifest, with right checksums, that names a table at a place that no file has.
#[test]
fn a_place_that_no_file_has_is_a_loss() {
    const ALIGN: u64 = FILE_ALIGN_BYTES as u64;
    for without in ["none", "CURRENT"] {
        for (offset, file_bytes) in [
            (u64::MAX - ALIGN + 1, ALIGN),
            (u64::MAX, u64::MAX),
            (ALIGN, u64::MAX),
            (1 << 63, 1 << 63),
            (0, u64::MAX),
        ] {
            let (fs, mut map) = small();
            let db = open(&fs, DIR);
            // Two tables that share a file.
            for name in ["a", "b"] {
                let keyspace = db.keyspace(name, KeyspaceOptions::default()).unwrap();
                keyspace.insert(name, "shared").unwrap();
                map.insert(name.into(), b"shared".to_vec());
            }
            db.flush().unwrap();
            let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
            let (core, mut catalog) = (keyspace.core(), keyspace.core().lock_catalog());
            let named = catalog.state.tables().find(|meta| meta.place.is_some()).unwrap().clone();
            let place = named.place.map(|place| TablePlace { offset, ..place });
            let id = core.shared.new_file_id();
            let meta = TableMeta { id, place, file_bytes, ..named };
            let tree = keyspace.inner.tree.get().id;
            catalog.commit(&core.shared, vec![Edit::AddTable { tree, level: 0, meta }]).unwrap();
            drop(catalog);
            let fs = fs.kill();
            drop((keyspace, db));
            for path in paths(&fs, without) {
                fs.remove_file(&path).unwrap();
            }
            let report = salvage(&fs).run(DIR, TARGET).unwrap();
            let is_it = |loss: &Loss| loss.offset >= offset.min(1 << 62);
            assert!(report.losses.iter().any(is_it), "{:?}", report.losses);
            let db = open(&fs, TARGET);
            let mut found = Map::new();
            for name in db.keyspace_names() {
                found.extend(contents(&db, &name));
            }
            assert_eq!(found, map);
        }
    }
}

/// A store with one keyspace, a table of its own with large values, and a log.
fn small() -> (SimFs, Map) {
    let fs = SimFs::new(1);
    let db = open(&fs, DIR);
    let keyspace = db.keyspace("k", options("plain")).unwrap();
    let mut map = Map::new();
    for n in 0..2_000_u32 {
        let value = if n % 500 == 0 { vec![n as u8; 1_000] } else { n.to_be_bytes().to_vec() };
        let key = format!("{n:05}").into_bytes();
        match n % 1000 {
            // One of them large, and one small.
            0 | 1 => keyspace.insert_until(&key, &value, end()).unwrap(),
            _ => keyspace.insert(&key, &value).unwrap(),
        }
        map.insert(key, value);
    }
    keyspace.compact().unwrap();
    keyspace.insert("logged", "1").unwrap();
    map.insert(b"logged".to_vec(), b"1".to_vec());
    keyspace.insert_until("logged until", "2", end()).unwrap();
    map.insert(b"logged until".to_vec(), b"2".to_vec());
    let killed = fs.kill();
    drop((keyspace, db));
    (killed, map)
}

#[test]
fn nothing_is_written_where_it_must_not_be() {
    let (fs, _) = small();
    let refused = salvage(&fs).run(DIR, Path::new(DIR).join("within"));
    assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");
    let other = Database::builder("/other").file_system(Arc::new(fs.clone())).open().unwrap();
    let refused = salvage(&fs).run(DIR, "/other");
    assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");
    let locked = salvage(&fs).run("/other", TARGET);
    assert!(matches!(locked, Err(Error::Locked { .. })), "{locked:?}");
    drop(other);
    fs.create_dir_all(Path::new("/empty")).unwrap();
    for nothing in ["/empty", "/missing"] {
        let missing = salvage(&fs).run(nothing, TARGET);
        assert!(matches!(missing, Err(Error::NotFound(_))), "{missing:?}");
    }
    assert!(fs.files(Path::new(TARGET)).is_empty());
}

#[test]
fn a_failure_leaves_nothing_behind() {
    let (fs, map) = small();
    fs.inject(Matcher::any().kinds(&[CallKind::SyncData, CallKind::SyncAll]), Fault::Eio, 1);
    let failed = salvage(&fs).run(DIR, TARGET);
    assert!(failed.is_err(), "{failed:?}");
    assert_eq!(fs.files(Path::new(TARGET)), [""; 0].map(PathBuf::from));
    fs.clear_faults();
    assert_eq!(salvaged(&fs).1["k"], map);
}

/// A sector that cannot be read costs what lies in it, and no more.
#[test]
fn what_the_system_cannot_read_is_lost_and_named() {
    let (fs, map) = small();
    let table = paths(&fs, ".sst").pop().expect("a table of its own");
    let name = table.file_name().unwrap().to_string_lossy().into_owned();
    fs.inject(Matcher::any().kinds(&[CallKind::Read]).name_contains(&name), Fault::Eio, 2);
    let (report, found) = salvaged(&fs);
    assert!(report.notes.iter().any(|note| note.path == table), "{:?}", report.notes);
    assert!(found["k"].len() > map.len() / 2);
    assert!(found["k"].iter().all(|(key, value)| map[key] == *value));
}

#[test]
fn unknown_tables_go_into_one_keyspace_if_that_is_asked_for() {
    let (fs, map) = small();
    for path in fs.files(Path::new(DIR)) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name == "CURRENT" || name.starts_with("MANIFEST") {
            fs.remove_file(&path).unwrap();
        }
    }
    let report = salvage(&fs).into("all").run(DIR, TARGET).unwrap();
    assert_eq!(report.manifest, ManifestFound::Nothing);
    assert!(!report.is_complete() && !report.losses.is_empty());
    let db = open(&fs, TARGET);
    assert_eq!(db.keyspace_names(), ["all"]);
    assert_eq!(contents(&db, "all"), map);
}

/// Without a manifest the tables of an LSM tree, and what the log has of it, come together.
#[test]
fn tables_and_the_log_come_together_by_their_tree() {
    let fs = SimFs::new(1);
    let builder = Database::builder(DIR).file_system(Arc::new(fs.clone()));
    // Each flush makes a table with a file of its own, and nothing else is compacted.
    let builder = builder.table_bytes(96_000).memtable_bytes(4 << 20).level_one_bytes(1 << 30);
    let db = builder.background_threads(0).open().unwrap();
    let names = ["a", "b"];
    let keyspaces = names.map(|name| db.keyspace(name, options("plain")).unwrap());
    let trees = keyspaces.each_ref().map(|keyspace| keyspace.inner.tree.get().id);
    let mut maps = [Map::new(), Map::new()];
    for round in 0..4_u32 {
        for (keyspace, map) in keyspaces.iter().zip(&mut maps) {
            for n in (0..2_000_u32).filter(|n| round == 0 || n % (round + 2) == 0) {
                let noise = format!("{:x}", xxhash_rust::xxh3::xxh3_128(&n.to_be_bytes()));
                let value = format!("{} {n} {round} {noise}", keyspace.name()).into_bytes();
                keyspace.insert(n.to_be_bytes(), &value).unwrap();
                map.insert(n.to_be_bytes().to_vec(), value);
            }
            keyspace.remove(round.to_be_bytes()).unwrap();
            map.remove(&round.to_be_bytes()[..]);
            // Tables that are flushed together share a file. The last ones stay in the log.
            if round < 3 {
                db.flush().unwrap();
            }
        }
        if round == 0 {
            keyspaces[0].compact().unwrap();
        }
    }
    let fs = fs.kill();
    drop((keyspaces, db));
    for path in paths(&fs, "").into_iter().filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name == "CURRENT" || name.starts_with("MANIFEST")
    }) {
        fs.remove_file(&path).unwrap();
    }
    let files = paths(&fs, "");
    assert!(paths(&fs, ".sst").len() >= 4 && paths(&fs, ".set").is_empty(), "{files:?}");
    let (report, found) = salvaged(&fs);
    assert_eq!(report.manifest, ManifestFound::Nothing);
    assert!(report.keyspaces.iter().all(|keyspace| !keyspace.has_own_name));
    let expected: BTreeMap<String, Map> =
        trees.into_iter().zip(maps).map(|(tree, map)| (format!("tree-{tree}"), map)).collect();
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    assert!(found == expected);
}

#[test]
fn a_name_that_is_taken_is_not_taken_twice() {
    let fs = SimFs::new(1);
    let db = open(&fs, DIR);
    // An ingested table does not name its LSM tree.
    db.keyspace("k", options("plain")).unwrap().ingest([("a", "1")]).unwrap();
    let (meta, _) = tables_of(&fs).remove(0);
    let taken = format!("table-{}", meta.id);
    db.keyspace(&taken, options("plain")).unwrap();
    drop(db);
    let manifest = fs.files(Path::new(DIR)).into_iter().find(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("MANIFEST"))
    });
    let manifest = manifest.unwrap();
    let bytes = fs.content(&manifest).unwrap();
    // Keeps the keyspace, and loses the record that adds the table.
    let mut cut = None;
    let mut seen = 0;
    crate::version::manifest::read_manifest(&fs, &manifest, 0, |record| {
        let adds = record
            .edit
            .edits
            .iter()
            .any(|edit| matches!(edit, crate::version::edit::Edit::AddTable { .. }));
        if adds && cut.is_none() {
            cut = Some(record.offset);
        }
        seen += 1;
        Ok(())
    })
    .unwrap();
    let mut damaged = bytes;
    damaged[cut.expect("a table") as usize + 30] ^= 1;
    fs.set_content(&manifest, damaged).unwrap();
    let (report, found) = salvaged(&fs);
    assert_eq!(report.manifest, ManifestFound::Part);
    assert!(found[&taken].is_empty() && found["k"].is_empty() && seen > 1);
    assert_eq!(found[&format!("{taken}-")].len(), 1);
}

#[test]
fn a_function_that_divides_keys_may_be_registered() {
    let fs = SimFs::new(1);
    let by = |key: &[u8]| key.last().map(|byte| vec![byte % 3]).unwrap_or_default();
    let partitions = Partitioning::Function("by".to_owned());
    let options = KeyspaceOptions { partitions, ..KeyspaceOptions::default() };
    let builder = || Database::builder(DIR).file_system(Arc::new(fs.clone()));
    let db = builder().partition_function("by", by).background_threads(0).open().unwrap();
    let keyspace = db.keyspace("k", options).unwrap();
    for n in 0..100_u8 {
        keyspace.insert([n, n], [n]).unwrap();
    }
    drop((keyspace, db));
    let report = salvage(&fs).partition_function("by", by).run(DIR, TARGET).unwrap();
    assert!(report.is_complete() && report.notes.is_empty(), "{report:?}");
    assert_eq!(report.entries(), 100);
    let unnamed = salvage(&fs).run(DIR, "/plain").unwrap();
    assert_eq!((unnamed.entries(), unnamed.notes.len()), (100, 1));
    assert_eq!(contents(&open(&fs, "/plain"), "k").len(), 100);
}

/// An ingested table has the number 0 in all its entries, and the manifest says which number that
/// stands for.
#[test]
fn an_ingested_table_keeps_its_number_without_its_properties() {
    let fs = SimFs::new(1);
    let db = open(&fs, DIR);
    let keyspace = db.keyspace("k", options("plain")).unwrap();
    keyspace.insert("a", "old").unwrap();
    db.flush().unwrap();
    keyspace.ingest([("a", "new"), ("b", "new")]).unwrap();
    drop((keyspace, db));
    let state = Manifest::recover(&fs, Path::new(DIR)).unwrap().unwrap().state;
    let ingested = state.tables().find(|meta| meta.entries == 2).expect("the ingested table");
    assert!(ingested.place.is_none() && ingested.seq_min == ingested.seq_max);
    let table = &home_path(Path::new(DIR), ingested);
    let mut bytes = fs.content(table).unwrap();
    let len = bytes.len() as u64;
    let footer = Footer::decode(bytes.last_chunk().unwrap(), len).unwrap();
    bytes[footer.properties.offset as usize + 20] ^= 1;
    fs.set_content(table, bytes).unwrap();
    assert!(Database::builder(DIR).file_system(Arc::new(fs.clone())).open().is_err());
    let (report, found) = salvaged(&fs);
    assert!(report.losses.is_empty(), "{:?}", report.losses);
    assert_eq!(found["k"][&b"a"[..]], b"new");
}

/// What the histories of the random test must hold.
#[test]
fn stores_have_everything_that_can_be_damaged() {
    let (mut segments, mut large, mut ranges, mut shared, mut own, mut created) =
        (0, 0, 0, 0, 0, 0);
    for seed in 0..10 {
        let model = build(seed);
        segments = segments.max(model.segments.len());
        for table in &model.tables {
            let entries = table.blocks.iter().flat_map(|unit| &unit.entries);
            large += entries.filter(|entry| entry.large.is_some()).count();
            ranges += usize::from(table.ranges_at.is_some());
            shared += usize::from(table.meta.place.is_some());
            own += usize::from(table.meta.place.is_none() && table.blocks.len() > 3);
        }
        let ops = model.frames.iter().flat_map(|frame| &frame.ops);
        created += ops.filter(|op| matches!(op, super::model::LogOp::Create(..))).count();
        assert!(!disk_of(&model, &HashMap::new()).files(Path::new(DIR)).is_empty());
    }
    assert!(segments > 1, "the log always had one segment");
    let counts = [large, ranges, shared, own, created];
    assert!(counts.iter().all(|count| *count > 5), "{counts:?}");
}
