//! The inputs that a fuzzer starts from: small real encodings, made by the writers of each format.

use std::{path::Path, sync::Arc};

use rhumb_sync::mapping::Gauge;

use super::{DIR, IDENTITY, file_system, log, manifest, table};
use crate::{
    db::Database,
    expiry::Expiries,
    io::{
        FileSystem, ReadMode, engine::ReadEngine, open_files::OpenFiles, read_exact_at, sim::SimFs,
    },
    log::{
        LogWriter,
        batch::BatchBuilder,
        creation::{Creation, encode_creations},
        segment::SegmentHeader,
    },
    options::KeyspaceOptions,
    partition::Partitioning,
    ranges::{RangeLog, Tombstone},
    slice::Slice,
    table::{
        BlockCache, BlockIndexKind, Compression, KeyHash, StringCoding, TableContext,
        TableCounters, TableLayout, TableMeta, TablePlace, TableWriter, block::BlockBuilder,
        index_block::BlockIndexBuilder, table_path,
    },
    types::Kind,
    version::{
        edit::{Edit, VersionEdit},
        manifest::{Manifest, manifest_path},
    },
};

/// The seeds of the target of this name; none if there is no such target.
///
/// # Panics
///
/// If a writer fails.
#[must_use]
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    match target {
        "block" => blocks(),
        "index" => indexes(),
        "table" => tables(),
        "log" => logs(),
        "manifest" => manifests(),
        "dump" => dumps(),
        "salvage" => stores(),
        "backup" => backups(),
        "cursor" => cursors(),
        "transactions" => histories(),
        _ => Vec::new(),
    }
}

/// Keys that ascend, of several shapes.
fn keys(shape: u8, count: u32) -> Vec<Vec<u8>> {
    (0..count)
        .map(|i| match shape {
            0 => u64::from(i * 1000).to_be_bytes().to_vec(),
            1 => format!("key-{i:05}").into_bytes(),
            2 => format!("{}/{}", "abcdefgh".repeat(1 + i as usize / 20), 100 + i).into_bytes(),
            _ => i.pow(3).to_be_bytes().to_vec(),
        })
        .collect()
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_le_bytes(), bytes].concat()
}

fn short(bytes: &[u8]) -> Vec<u8> {
    [&[bytes.len() as u8], bytes].concat()
}

/// The payload of a block of these keys, of which every fifth has two versions.
fn block_payload(keys: &[Vec<u8>], interval: u8, value_len: usize) -> Vec<u8> {
    let mut builder = BlockBuilder::new(interval);
    for (i, key) in keys.iter().enumerate() {
        let tag = KeyHash::of(key).tag();
        if i % 5 == 0 {
            builder.add(key, tag, 300, Kind::Tombstone, &[]);
        }
        if i % 7 == 3 {
            let pointer = [&[0; 8][..], &[9, 0, 0, 0, 0, 0, 0, 0], &[0; 8]].concat();
            builder.add(key, tag, 11, Kind::LargeValue, &pointer);
        } else {
            builder.add(key, tag, 7, Kind::Value, &vec![b'v'; value_len]);
        }
    }
    let mut payload = Vec::new();
    builder.finish(&mut payload);
    payload
}

fn blocks() -> Vec<Vec<u8>> {
    let shapes = [(0, 0, 1, 0), (0, 1, 16, 3), (1, 20, 4, 5), (2, 40, 16, 0), (3, 9, 3, 9000)];
    let seed = |(shape, count, interval, value_len)| {
        let keys = keys(shape, count);
        let payload = block_payload(&keys, interval, value_len);
        [short(keys.last().map_or(b"", |key| key)), vec![9, 0], payload].concat()
    };
    shapes.map(seed).to_vec()
}

/// A kind of index, and how its keys are coded.
type Way = (BlockIndexKind, StringCoding);

const WAYS: [Way; 3] = [
    (BlockIndexKind::Learned, StringCoding::Off),
    (BlockIndexKind::Learned, StringCoding::On),
    (BlockIndexKind::BinarySearch, StringCoding::Off),
];

/// An index block, and the numbers of its blocks and pages.
fn index_of((kind, coding): Way, keys: &[Vec<u8>], block_bytes: u32) -> (Vec<u8>, u16, u16) {
    let mut builder = BlockIndexBuilder::new(kind, coding, block_bytes);
    let mut cuts = Vec::new();
    for key in keys {
        builder.push(key, key.len() + 20, &mut cuts);
    }
    builder.finish_cuts(&mut cuts);
    let mut offset = 2;
    for _ in &cuts {
        builder.block_written(offset, block_bytes);
        offset += u64::from(block_bytes);
        offset += if offset % 4096 < 2 { 2 } else { 0 };
    }
    let pages = (offset + u64::from(block_bytes)) / 4096 + 1;
    let mut bytes = Vec::new();
    builder.encode(&mut bytes);
    (bytes, cuts.len() as u16, pages as u16)
}

fn indexes() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for way in WAYS {
        for (shape, count) in [(0, 0), (0, 1), (0, 60), (1, 100), (2, 150), (3, 300)] {
            let keys = keys(shape, count);
            let (bytes, blocks, pages) = index_of(way, &keys, 200);
            let probes: Vec<u8> = keys.iter().step_by(40).flat_map(|key| short(key)).collect();
            let head = [blocks.to_le_bytes(), pages.to_le_bytes()].concat();
            let probe_count = keys.len().div_ceil(40) as u8;
            seeds.push([head, vec![probe_count], probes, bytes].concat());
        }
    }
    seeds
}

fn context(fs: &Arc<dyn FileSystem>) -> Arc<TableContext> {
    Arc::new(TableContext {
        fs: Arc::clone(fs),
        files: OpenFiles::new(&**fs, None),
        dir: DIR.into(),
        read_mode: ReadMode::Buffered,
        reads: ReadEngine::inline(fs),
        cache: BlockCache::new(0, &Gauge::default()),
        mapped: Gauge::default(),
        counters: Arc::new(TableCounters::default()),
        shared: Arc::default(),
    })
}

fn read_file(fs: &Arc<dyn FileSystem>, path: &Path) -> Vec<u8> {
    let file = fs.open(path, ReadMode::Buffered).expect("it was written");
    let mut bytes = vec![0; file.len().expect("it is open") as usize];
    read_exact_at(&*file, path, &mut bytes, 0).expect("it is that long");
    bytes
}

/// A whole table file.
fn table_file(index: BlockIndexKind, compression: Compression, shape: u8, count: u32) -> Vec<u8> {
    let fs = file_system(&[]);
    let options = TableLayout {
        index,
        compression,
        block_bytes: 256,
        large_value_bytes: 300,
        ..TableLayout::default()
    };
    let mut writer = TableWriter::create(&context(&fs), table::ID, &options);
    for (i, key) in keys(shape, count).iter().enumerate() {
        let value = vec![b'x'; if i % 17 == 5 { 400 } else { 15 }];
        writer.add(key, 9, Kind::Value, &value).expect("keys ascend");
        writer.add(key, 4, Kind::Tombstone, &[]).expect("versions descend");
    }
    if shape == 2 {
        let log = RangeLog::new();
        for (seq, (from, to)) in (5..).zip([("a", "m"), ("c", "z")]) {
            let (from, to) = (Slice::copy_from(from.as_bytes()), Slice::copy_from(to.as_bytes()));
            log.add(Tombstone { from, to: Some(to), seq });
        }
        writer.set_ranges(log.retained(&[5]));
    }
    writer.finish().expect("no faults");
    read_file(&fs, &table_path(Path::new(DIR), table::ID))
}

fn tables() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (index, compression, shape, count) in [
        (BlockIndexKind::Learned, Compression::Lz4, 1, 40),
        (BlockIndexKind::Learned, Compression::None, 0, 90),
        (BlockIndexKind::BinarySearch, Compression::Lz4, 2, 30),
    ] {
        let keys: Vec<u8> =
            keys(shape, count).iter().step_by(13).take(4).flat_map(|key| short(key)).collect();
        let file = table_file(index, compression, shape, count);
        seeds.push([vec![1, 1, count.div_ceil(13).min(4) as u8], keys, file].concat());
    }
    // Parts: blocks in two forms, then an index of their own, then nothing that is not needed.
    let (low, high) = (keys(1, 10), keys(1, 20).split_off(10));
    let first = [vec![0], chunk(&block_payload(&low, 4, 30))].concat();
    let second = [vec![1], chunk(&block_payload(&high, 4, 30))].concat();
    let head = [vec![0, 0, 1], short(&low[3]), vec![1], first, second].concat();
    let learned = [1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 60, 0, 0b0011];
    let filter = [&[6, 0, 0, 0, 0, 0, 0, 0][..], &[0xff; 64]].concat();
    seeds.push([head.clone(), vec![0]].concat());
    seeds.push([head, vec![1], chunk(&learned), chunk(&filter)].concat());
    seeds
}

fn batch(first_seq: u64, trees: u32) -> Vec<u8> {
    let mut batch = BatchBuilder::new();
    for tree in 1..=trees {
        batch.put(tree, b"key", &[b'v'; 40]).expect("it is small");
        batch.remove(tree * 100, b"another key").expect("it is small");
        batch.remove_range(tree, b"from", Some(b"to")).expect("it is small");
        batch.remove_range(tree, b"from", None).expect("it is small");
    }
    batch.seal(first_seq).to_vec()
}

fn logs() -> Vec<Vec<u8>> {
    let fs = file_system(&[]);
    let dir = Path::new(DIR);
    let header = SegmentHeader {
        identity: IDENTITY,
        id: 1,
        base: 0,
        previous: 0,
        previous_base: 0,
        synced: 0,
    };
    let mut writer = LogWriter::create(&fs, dir, header).expect("no faults");
    let mut segments = Vec::new();
    for id in 1..=3 {
        for record in 0..id {
            writer.stage(&[&batch(id * 10 + record * 2, 1)]).expect("no faults");
            writer.commit().expect("no faults");
            writer.sync(false).expect("no faults");
        }
        segments.push(chunk(&read_file(&fs, &dir.join(format!("{id:06}.log")))));
        writer = writer.rotate(id + 1).expect("no faults");
    }
    let whole = [&[1, 1, 0, 0, 2][..], &segments.concat()].concat();
    let alone = [&[1, 1, 0, 0, 0][..], &segments[0]].concat();
    // The first record of the second segment is torn, at the check of its frame.
    let mut torn = whole.clone();
    let at = 5 + segments[0].len() + 2 + 72;
    torn[at..at + 4].copy_from_slice(&[0xad, 0xde, 0xad, 0xde]);
    let record = [vec![0], batch(5, 3)].concat();
    let created = Creation { root: 1, tree: 300, name: b"name".as_slice().into() };
    let creations = [vec![0], encode_creations(&[created.clone(), created])].concat();
    let mut repaired = segments[0][2..].to_vec();
    log::repair(&mut repaired, 1);
    assert_eq!(repaired, segments[0][2..], "what is whole is left as it is");
    vec![whole, alone, torn, record, creations]
}

fn edits() -> Vec<VersionEdit> {
    let meta = |id: u64| TableMeta {
        place: None,
        id,
        file_bytes: 8192,
        value_file_bytes: 0,
        entries: 10,
        tombstones: 3,
        range_tombstones: 0,
        smallest: b"a".as_slice().into(),
        largest: b"z".as_slice().into(),
        seq_min: 1,
        seq_max: 70,
        raw_bytes: 100,
        expiries: None,
    };
    let expiries = Expiries { entries: 7, first_ms: 1, parts_ms: [1, 2, 3, 4, 5, 6, 7, 1 << 40] };
    let options = KeyspaceOptions::default().encode();
    let create = |id, name: &str, tree| Edit::CreateKeyspace {
        id,
        name: name.into(),
        options: options.clone(),
        tree,
    };
    vec![
        vec![Edit::Identity { identity: IDENTITY }, create(1, "one", 1), create(2, "two", 2)]
            .into(),
        vec![
            Edit::AddTable { tree: 1, level: 0, meta: meta(9) },
            Edit::AddTable { tree: 2, level: 6, meta: meta(10) },
        ]
        .into(),
        vec![
            Edit::RemoveTable { tree: 1, level: 0, id: 9 },
            Edit::ReplaceTree { keyspace: 1, old: 1, new: 3 },
            Edit::DropKeyspace { id: 2 },
        ]
        .into(),
        vec![
            Edit::LogFloor { segment: 11, lsn: 1 << 40 },
            Edit::NextIds { file: 12, tree: 5, keyspace: 4 },
            Edit::LastSeq { seq: 77 },
        ]
        .into(),
        vec![
            Edit::CreatePartition { root: 3, name: b"a".as_slice().into(), tree: 5 },
            Edit::CreatePartition { root: 3, name: b"b".as_slice().into(), tree: 6 },
            Edit::AddTable {
                tree: 6,
                level: 0,
                meta: TableMeta { place: Some(TablePlace { file: 13, offset: 8192 }), ..meta(12) },
            },
            Edit::AddTable {
                tree: 6,
                level: 1,
                meta: TableMeta { range_tombstones: 3, ..meta(14) },
            },
            Edit::AddTable {
                tree: 6,
                level: 1,
                meta: TableMeta { expiries: Some(expiries), range_tombstones: 3, ..meta(15) },
            },
            Edit::Clock { ms: 1 << 41 },
            Edit::DropPartition { root: 3, name: b"a".as_slice().into() },
            Edit::RetireTree { tree: 5, segment: 11 },
        ]
        .into(),
    ]
}

/// Encoded options of a keyspace with partitions.
fn partitioned(partitions: Partitioning) -> Vec<u8> {
    KeyspaceOptions { partitions, ..KeyspaceOptions::default() }.encode()
}

fn manifests() -> Vec<Vec<u8>> {
    let fs = file_system(&[]);
    let dir = Path::new(DIR);
    let edits = edits();
    let mut written = Manifest::create(&*fs, dir, manifest::ID, &edits[..2]).expect("no faults");
    for edit in &edits[2..] {
        written.append(edit).expect("no faults");
    }
    let file = read_file(&fs, &manifest_path(dir, manifest::ID));
    let current = read_file(&fs, &dir.join("CURRENT"));
    let line = &current[..current.len() - 18];
    let records: Vec<u8> = edits.iter().flat_map(|edit| chunk(&edit.encode())).collect();
    vec![
        [vec![0], edits[0].encode()].concat(),
        [vec![1], records].concat(),
        [vec![2, 40, 0], file].concat(),
        [&[3], &current[..]].concat(),
        [&[4], line].concat(),
        [vec![5], KeyspaceOptions::default().encode()].concat(),
        [vec![5], partitioned(Partitioning::Delimiter(b'/'))].concat(),
        [vec![5], partitioned(Partitioning::SplitPoints(vec![b"a".to_vec(), b"b".to_vec()]))]
            .concat(),
        [vec![5], partitioned(Partitioning::Function("f".to_owned()))].concat(),
    ]
}

/// A small database with its files.
fn small_store() -> (Arc<SimFs>, Database) {
    let fs = Arc::new(SimFs::new(1));
    let shared: Arc<dyn FileSystem> = Arc::<SimFs>::clone(&fs);
    let db = Database::builder(DIR).file_system(shared).background_threads(0).open();
    let db = db.expect("a new database on a disk without faults");
    let options =
        KeyspaceOptions { partitions: Partitioning::PrefixLength(1), ..KeyspaceOptions::default() };
    for (name, options) in [("a", KeyspaceOptions::default()), ("b", options)] {
        let keyspace = db.keyspace(name, options).expect("a new keyspace");
        for key in keys(1, 20) {
            keyspace.insert(&key, b"value").expect("an insert");
        }
        db.flush().expect("a flush");
        keyspace.remove_range("key-00003".."key-00007").expect("a removal");
        keyspace.insert("z", vec![7; 5_000]).expect("an insert");
    }
    (fs, db)
}

fn dumps() -> Vec<Vec<u8>> {
    let (_, db) = small_store();
    let mut file = vec![255];
    db.dump(&mut file).expect("a dump into memory");
    // The blocks of it, without their checksums.
    let (mut blocks, mut at) = (Vec::new(), 1 + 32);
    while at + 13 <= file.len() {
        let len = super::u32_at(&file, at + 1) as usize;
        blocks.push(file[at]);
        blocks.extend_from_slice(&chunk(&file[at + 13..at + 13 + len]));
        at += 13 + len;
    }
    vec![file, blocks]
}

fn stores() -> Vec<Vec<u8>> {
    let (fs, db) = small_store();
    let mut seed = Vec::new();
    for path in fs.files(Path::new(DIR)) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let which = [".sst", ".set", ".val", ".log", "MANIFEST-", "CURRENT"];
        let Some(which) = which.iter().position(|part| name.contains(part)) else { continue };
        let number: u64 =
            name.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0);
        seed.extend([which as u8, number as u8]);
        seed.extend_from_slice(&chunk(&fs.content(&path).unwrap_or_default()));
    }
    drop(db);
    vec![seed]
}

/// Backups of two points each, and the last point alone.
fn backups() -> Vec<Vec<u8>> {
    let (fs, db) = small_store();
    let keyspace = db.keyspace("a", KeyspaceOptions::default()).expect("it is there");
    let (mut seeds, mut points) = (Vec::new(), Vec::new());
    let mut back_up = |dir: &str, change: &dyn Fn()| {
        db.backup(dir).expect("a disk without faults");
        change();
        db.backup(dir).expect("a disk without faults");
        let mut whole = vec![1];
        for path in fs.files(Path::new(dir)) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let (number, ending) = name.split_once('.').unwrap_or_default();
            let which = ["sst", "set", "val", "point"].iter().position(|known| *known == ending);
            let (Some(which), Ok(number)) = (which, number.parse::<u8>()) else { continue };
            let mut bytes = fs.content(&path).unwrap_or_default();
            if ending == "point" {
                // What is between the magic and the checksum.
                bytes = bytes[8..bytes.len() - 8].to_vec();
                points = [&[0], &bytes[..]].concat();
            }
            whole.extend([which as u8, number]);
            whole.extend_from_slice(&chunk(&bytes));
        }
        seeds.push(whole);
    };
    back_up("/backup", &|| keyspace.remove("key-00001").expect("a removal"));
    // Without tables all that is changed is a point.
    ["a", "b"].iter().for_each(|name| assert!(db.drop_keyspace(name).expect("no faults")));
    let create = || drop(db.keyspace("c", KeyspaceOptions::default()).expect("a new keyspace"));
    back_up("/empty", &create);
    let named = |name: &[u8]| [short(name), chunk(&points[1..])].concat();
    seeds.push([&[2], &named(b"000002.point")[..], &named(b"+2.point")].concat());
    seeds.push(points);
    seeds
}

/// Files of cursors, as they are, without their checksums, and as numbers.
fn cursors() -> Vec<Vec<u8>> {
    let (fs, db) = small_store();
    let name = "search index";
    drop(db.cursor(name, 1 << 30).expect("a disk without faults"));
    let file = read_file(&(fs as Arc<dyn FileSystem>), &Path::new(DIR).join("search index.cursor"));
    let line = &file[..file.len() - 18];
    let numbers = |position: u64, keep_bytes: u64| {
        [position.to_le_bytes(), keep_bytes.to_le_bytes()].concat()
    };
    let of = |name: u8, form: u8, text: &[u8]| [vec![name, form], short(text)].concat();
    vec![
        of(1, 0, &file),
        of(0, 1, line),
        of(2, 2, &numbers(1, 1 << 20)),
        [
            of(0, 2, &numbers(5, 1 << 20)),
            of(1, 2, &numbers(3, 100)),
            of(3, 2, &numbers(1, 1 << 20)),
        ]
        .concat(),
        [of(4, 2, &numbers(u64::MAX, u64::MAX)), of(5, 0, &file), of(2, 0, &file[1..])].concat(),
    ]
}

/// Histories of transactions: some for one rule each, and some of every operation.
fn histories() -> Vec<Vec<u8>> {
    // Three keys are written first: "a", "d" and "f".
    let keys = [3, 0, 0, 1, 1, 3, 0, 3, 1, 1, 3, 0, 5, 1, 1];
    let rules = [
        // Two insert the same key, and both are committed.
        &[0, 0, 0, 0, 13, 0, 0, 1, 9, 3, 13, 1, 0, 1, 8, 3, 1, 0, 1, 0][..],
        // A key comes into a range that a serializable one has walked.
        &[0, 1, 13, 0, 0, 0, 5, 5, 18, 0, 0, 1, 0, 22, 0, 0, 9, 3, 0, 4, 7, 7, 1, 0],
        // A walk has ended before a key that is written.
        &[0, 1, 13, 0, 0, 5, 1, 1, 18, 0, 0, 1, 2, 9, 0, 0, 9, 3, 0, 2, 1, 1, 1, 0],
        // The ends of a walk cross, and a range around both is removed.
        &[0, 1, 13, 0, 2, 0, 1, 1, 18, 0, 0, 1, 14, 5, 0, 0, 1, 6, 0, 0, 0, 1, 0],
        // A walk from both ends has passed a key that is written.
        &[0, 1, 13, 0, 0, 3, 1, 1, 18, 0, 0, 1, 0, 0, 0, 2, 2, 3, 0, 5, 1, 1, 1, 0],
        // All keys are removed beside one that inserts.
        &[0, 0, 13, 0, 0, 3, 1, 1, 6, 0, 0, 0, 1, 0],
        // One removes a range and a part of it.
        &[0, 0, 16, 0, 0, 6, 17, 16, 0, 0, 10, 13, 21, 0, 1, 0],
        // It goes back to before it wrote a key twice.
        &[0, 0, 19, 0, 13, 0, 0, 3, 2, 2, 13, 0, 0, 3, 3, 3, 20, 0, 0, 21, 0, 1, 0],
        // It goes back to before a removed range; the keyspace is flushed, and cleared.
        &[
            3, 0, 3, 7, 255, 8, 0, 0, 13, 0, 0, 3, 1, 1, 19, 0, 16, 0, 0, 0, 0, 20, 0, 0, 10, 0, 1,
            0,
        ],
    ];
    let mut state = 7_u32;
    let mut next = || {
        // The generator of "Numerical Recipes": seeds are the same in every run.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let mixed = [200, 400, 800].map(|len| (0..len).map(|_| next()).collect());
    rules.map(|rule| [&keys, rule].concat()).into_iter().chain(mixed).collect()
}
