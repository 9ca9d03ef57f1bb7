//! Deletes of ranges against `BTreeMap`: with snapshots and in both directions, across flushes and
//! compactions that cut them, in batches, partitions and after reopening; and the space that they
//! free.

use std::{
    collections::BTreeMap,
    ops::{Bound, RangeBounds},
    path::Path,
    sync::Arc,
};

use proptest::{collection::vec, prelude::*};
use rhumb::{
    Database, Keyspace, KeyspaceOptions, MemtableKind, Partitioning, TableOptions, io::sim::SimFs,
};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Two bounds of keys.
type Range = (Bound<Vec<u8>>, Bound<Vec<u8>>);

fn open(dir: &Path, memtables: MemtableKind) -> Database {
    let builder = Database::builder(dir).memtable_kind(memtables).background_threads(0);
    let builder = builder.memtable_bytes(64 << 10).table_bytes(4 << 10).level_one_bytes(16 << 10);
    let builder =
        builder.partition_function("by-last", |key| vec![key.last().map_or(0, |b| b % 3)]);
    builder.open().unwrap()
}

fn options(partitions: Partitioning) -> KeyspaceOptions {
    let table = TableOptions { block_bytes: Some(256), ..TableOptions::default() };
    KeyspaceOptions { table, partitions, ..KeyspaceOptions::default() }
}

fn key(at: u32) -> Vec<u8> {
    format!("key{at:05}").into_bytes()
}

/// A step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// Writes values for keys: the first key, the number of keys, and the distance between them.
    Write(u32, u32, u32),
    Remove(u32),
    Delete(Bound<u32>, Bound<u32>),
    /// Deletes and writes together, in this order.
    Batch(Vec<(u32, u32, bool)>),
    Snapshot,
    ForgetSnapshot,
    Flush,
    Compact,
    Reopen,
    Look(u32, u32),
}

fn step() -> impl Strategy<Value = Step> {
    let at = || 0..400_u32;
    let bound = || {
        prop_oneof![
            4 => at().prop_map(Bound::Included),
            4 => at().prop_map(Bound::Excluded),
            1 => Just(Bound::Unbounded),
        ]
    };
    let part = (at(), 0..30_u32, any::<bool>());
    prop_oneof![
        6 => (at(), 1..80_u32, 1..4_u32).prop_map(|(from, len, step)| Step::Write(from, len, step)),
        2 => at().prop_map(Step::Remove),
        5 => (bound(), bound()).prop_map(|(from, to)| Step::Delete(from, to)),
        2 => vec(part, 1..6).prop_map(Step::Batch),
        1 => Just(Step::Snapshot),
        1 => Just(Step::ForgetSnapshot),
        3 => Just(Step::Flush),
        1 => Just(Step::Compact),
        1 => Just(Step::Reopen),
        4 => (at(), at()).prop_map(|(from, to)| Step::Look(from, to)),
    ]
}

fn partitions() -> impl Strategy<Value = Partitioning> {
    prop_oneof![
        4 => Just(Partitioning::None),
        1 => Just(Partitioning::PrefixLength(6)),
        1 => Just(Partitioning::SplitPoints(vec![b"key00100".to_vec(), b"key00250".to_vec()])),
        1 => Just(Partitioning::Function("by-last".into())),
    ]
}

/// The range of a map as two bounds of keys; `None` if a map would refuse it.
fn bounds(from: Bound<u32>, to: Bound<u32>) -> Option<Range> {
    let at = |bound: &Bound<u32>| match bound {
        Bound::Included(at) | Bound::Excluded(at) => Some(*at),
        Bound::Unbounded => None,
    };
    let is_empty = at(&from).zip(at(&to)).is_some_and(|(from, to)| from >= to);
    (!is_empty).then(|| (from.map(key), to.map(key)))
}

fn assert_same(got: rhumb::Iter, want: &Map, range: &Range) {
    let got: Vec<_> = got.map(Result::unwrap).map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    let want: Vec<_> =
        want.range::<Vec<u8>, _>(range.clone()).map(|(k, v)| (k.clone(), v.clone())).collect();
    assert_eq!(got.len(), want.len(), "{range:?}");
    assert!(got == want, "{range:?}");
}

fn assert_same_back(got: rhumb::Iter, want: &Map, range: &Range) {
    let got: Vec<_> = got.rev().map(|pair| pair.unwrap().0.to_vec()).collect();
    let want: Vec<_> =
        want.range::<Vec<u8>, _>(range.clone()).rev().map(|(k, _)| k.clone()).collect();
    assert_eq!(got, want, "{range:?} from its end");
}

/// Does a step that writes, to the keyspace and to the map.
fn write(step: &Step, number: usize, db: &Database, space: &Keyspace, map: &mut Map) {
    match step {
        Step::Write(from, len, step) => {
            for at in (*from..).step_by(*step as usize).take(*len as usize) {
                let value = format!("{number}/{at}").into_bytes();
                space.insert(key(at), &value).unwrap();
                map.insert(key(at), value);
            }
        }
        Step::Remove(at) => {
            space.remove(key(*at)).unwrap();
            map.remove(&key(*at));
        }
        Step::Delete(from, to) => {
            if let Some(range) = bounds(*from, *to) {
                space.remove_range(range.clone()).unwrap();
                map.retain(|key, _| !range.contains(key));
            }
        }
        Step::Batch(parts) => {
            let mut batch = db.batch();
            for (from, len, is_delete) in parts {
                let range = key(*from)..key(from + len);
                if *is_delete {
                    batch.remove_range(space, range.clone());
                    map.retain(|key, _| !range.contains(key));
                } else {
                    batch.insert(space, key(from + len / 2), b"batch");
                    map.insert(key(from + len / 2), b"batch".to_vec());
                }
            }
            batch.commit().unwrap();
        }
        _ => unreachable!("the others write nothing"),
    }
}

fn run(steps: Vec<Step>, partitioning: &Partitioning, memtables: MemtableKind) {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("db");
    let mut db = open(&dir, memtables);
    let mut space = db.keyspace("k", options(partitioning.clone())).unwrap();
    let mut map = Map::new();
    let mut snapshots = Vec::new();
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Write(..) | Step::Remove(_) | Step::Delete(..) | Step::Batch(_) => {
                write(&step, number, &db, &space, &mut map);
            }
            Step::Snapshot => snapshots.push((db.snapshot(), map.clone())),
            Step::ForgetSnapshot => drop((!snapshots.is_empty()).then(|| snapshots.remove(0))),
            Step::Flush => db.flush().unwrap(),
            Step::Compact => space.compact().unwrap(),
            Step::Reopen => {
                snapshots.clear();
                drop((space, db));
                db = open(&dir, memtables);
                space = db.keyspace("k", options(partitioning.clone())).unwrap();
            }
            Step::Look(from, to) => {
                let to = Bound::Excluded(key(from.max(to) + 1));
                let range = (Bound::Included(key(from.min(from))), to);
                look(&space, &map, &range);
            }
        }
        for (snapshot, seen) in &snapshots {
            let at = key((number as u32 * 37) % 400);
            assert_eq!(
                snapshot.keyspace(&space).unwrap().get(&at).unwrap().as_deref(),
                seen.get(&at).map(|v| &v[..])
            );
        }
    }
    let all = (Bound::Unbounded, Bound::Unbounded);
    look(&space, &map, &all);
    for (snapshot, seen) in &snapshots {
        assert_same(snapshot.keyspace(&space).unwrap().iter(), seen, &all);
        assert_same_back(snapshot.keyspace(&space).unwrap().iter(), seen, &all);
    }
    snapshots.clear();
    space.compact().unwrap();
    look(&space, &map, &all);
    let stats = db.stats();
    let stats = &stats.keyspaces[0];
    assert_eq!((stats.tombstones, stats.range_tombstones), (0, 0), "nothing is left to hide");
    assert_eq!(stats.entries, map.len() as u64);
    drop((space, db));
    let report = rhumb::inspect::Inspector::new().check(&dir, &mut |_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
}

fn look(space: &Keyspace, map: &Map, range: &Range) {
    assert_same(space.range(range.clone()), map, range);
    assert_same_back(space.range(range.clone()), map, range);
    let keys: Vec<_> = (0..400).step_by(7).map(key).collect();
    let many = space.multi_get(&keys).unwrap();
    for (key, many) in keys.iter().zip(many) {
        let want = map.get(key).map(|value| &value[..]);
        assert_eq!(space.get(key).unwrap().as_deref(), want, "{}", key.escape_ascii());
        assert_eq!(many.as_deref(), want, "{} among many", key.escape_ascii());
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(60),
        ..ProptestConfig::default()
    })]

    #[test]
    fn histories_agree_with_a_map(
        steps in vec(step(), 1..60),
        partitioning in partitions(),
        is_learned in any::<bool>(),
    ) {
        let memtables = if is_learned { MemtableKind::Learned } else { MemtableKind::SkipList };
        run(steps, &partitioning, memtables);
    }
}

/// A keyspace of `keys` keys, flushed and compacted.
fn filled(home: &tempfile::TempDir, keys: u32) -> (Database, Keyspace) {
    let builder = Database::builder(home.path().join("db")).background_threads(0);
    let db = builder.table_bytes(64 << 10).level_one_bytes(256 << 10).open().unwrap();
    let space = db.keyspace("k", options(Partitioning::None)).unwrap();
    for at in 0..keys {
        space.insert(key(at), [7; 100]).unwrap();
    }
    space.compact().unwrap();
    (db, space)
}

/// The log has nothing to replay but the deletes.
#[test]
fn deletes_of_ranges_alone_survive_a_kill() {
    let fs = SimFs::new(1);
    let open = |fs: &SimFs| {
        let builder = Database::builder("/db").file_system(Arc::new(fs.clone()));
        let db = builder.background_threads(0).open().unwrap();
        let space = db.keyspace("k", options(Partitioning::None)).unwrap();
        (db, space)
    };
    let (db, space) = open(&fs);
    (0..100).for_each(|at| space.insert(key(at), "x").unwrap());
    db.flush().unwrap();
    space.remove_range(key(10)..key(20)).unwrap();
    let mut batch = db.batch();
    batch.remove_range(&space, key(30)..key(40));
    batch.remove_range(&space, key(90)..);
    batch.commit().unwrap();
    let mut fs = fs.kill();
    drop((space, db));
    // Once more, from what that opening left.
    for _ in 0..2 {
        let (db, space) = open(&fs);
        assert_eq!(space.iter().count(), 70);
        assert!(space.get(key(15)).unwrap().is_none() && space.get(key(95)).unwrap().is_none());
        fs = fs.kill();
        drop((space, db));
    }
}

#[test]
fn covered_tables_go_without_being_read_once_no_snapshot_sees_them() {
    let home = tempfile::tempdir().unwrap();
    let (db, space) = filled(&home, 20_000);
    let tables =
        |db: &Database| db.stats().keyspaces[0].levels.iter().map(|l| l.tables).sum::<u64>();
    let (before, bytes) = (tables(&db), db.stats().keyspaces[0].file_bytes);
    assert!(before > 20);
    let snapshot = db.snapshot();
    space.remove_range(key(2_000)..key(18_000)).unwrap();
    db.flush().unwrap();
    assert_eq!(tables(&db), before + 1, "the snapshot sees all");
    assert_eq!(snapshot.keyspace(&space).unwrap().iter().count(), 20_000);
    let read = db.stats().compacted_read_bytes;
    drop(snapshot);
    // Without a pool the next write does the pending work.
    space.insert(key(1), b"next").unwrap();
    let stats = db.stats();
    assert!(stats.hidden_tables > before / 2, "{} of {before}", stats.hidden_tables);
    assert!(stats.keyspaces[0].file_bytes < bytes / 3);
    assert!(stats.compacted_read_bytes - read < bytes / 4, "nobody reads what is covered");
    assert_eq!(space.iter().count(), 4_000);
    assert_eq!(space.range(key(2_000)..).next().unwrap().unwrap().0, key(18_000));
    assert_eq!(space.range(..key(18_000)).next_back().unwrap().unwrap().0, key(1_999));
}

#[test]
fn a_table_that_was_written_over_stays() {
    let home = tempfile::tempdir().unwrap();
    let (db, space) = filled(&home, 5_000);
    space.remove_range(..).unwrap();
    for at in (0..5_000).step_by(50) {
        space.insert(key(at), b"again").unwrap();
    }
    db.flush().unwrap();
    space.insert(key(0), b"again").unwrap();
    assert_eq!(space.iter().count(), 100);
    assert_eq!(space.iter().rev().count(), 100);
    assert!(db.stats().hidden_tables > 0);
}

#[test]
fn scans_read_nothing_under_a_range_tombstone() {
    let home = tempfile::tempdir().unwrap();
    let (db, space) = filled(&home, 20_000);
    let snapshot = db.snapshot();
    space.remove_range(key(2_000)..key(18_000)).unwrap();
    for flush in [false, true] {
        if flush {
            db.flush().unwrap();
        }
        let reads = db.stats().block_reads;
        assert_eq!(space.range(key(5_000)..).next().unwrap().unwrap().0, key(18_000));
        assert_eq!(space.range(key(1_990)..key(18_010)).count(), 20);
        assert_eq!(space.range(key(1_990)..key(18_010)).rev().count(), 20);
        assert!(db.stats().block_reads - reads < 60, "{}", db.stats().block_reads - reads);
    }
    assert_eq!(snapshot.keyspace(&space).unwrap().range(key(1_990)..key(18_010)).count(), 16_020);
}

#[test]
fn runs_of_tombstones_are_compacted_away() {
    let home = tempfile::tempdir().unwrap();
    let (db, space) = filled(&home, 20_000);
    let tombstones = |db: &Database| db.stats().keyspaces[0].tombstones;
    for at in 3_000..9_000 {
        space.remove(key(at)).unwrap();
    }
    db.flush().unwrap();
    // One table of level 0 alone is not due. In level 1 it would be, for its share of tombstones.
    for part in 0..4 {
        space.insert(key(12_000 + part), b"more").unwrap();
        db.flush().unwrap();
    }
    space.insert(key(1), b"next").unwrap();
    assert_eq!(tombstones(&db), 0);
    assert_eq!(space.iter().count(), 14_000);
}

#[test]
fn wrong_arguments_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let (db, space) = filled(&home, 10);
    let long = vec![b'k'; (64 << 10) + 1];
    assert!(matches!(space.remove_range(long..), Err(rhumb::Error::InvalidArgument(_))));
    space.remove_range(key(5)..key(5)).unwrap();
    space.remove_range(key(5)..key(3)).unwrap();
    assert_eq!(space.iter().count(), 10);
    let mut batch = db.batch();
    batch.remove_range(&space, key(5)..key(3));
    assert!(batch.is_empty());
    db.drop_keyspace("k").unwrap();
    assert!(matches!(space.remove_range(key(1)..), Err(rhumb::Error::KeyspaceDropped(_))));
}

/// The background looks for tables that deletes have hidden, in a thousand partitions one after
/// another, while snapshots come and go and each is soon older than another delete.
#[test]
fn a_snapshot_keeps_what_was_hidden_after_it_began() {
    const PARTITIONS: u32 = 1_000;
    let rounds = match std::env::var("RHUMB_HIDDEN_ROUNDS") {
        Ok(rounds) => rounds.parse().unwrap(),
        Err(_) => 300,
    };
    let fs = Arc::new(SimFs::new(1));
    let db = Database::builder("/db").file_system(fs).background_threads(2).open().unwrap();
    let space = db.keyspace("k", options(Partitioning::PrefixLength(4))).unwrap();
    let key = |partition: u32, at: u32| format!("{partition:04}{at:02}").into_bytes();
    for partition in 0..PARTITIONS {
        (0..40).for_each(|at| space.insert(key(partition, at), [7; 100]).unwrap());
    }
    space.compact().unwrap();
    // This hides too little for a compaction to be due.
    for partition in 0..PARTITIONS {
        space.remove_range(key(partition, 7)..key(partition, 8)).unwrap();
    }
    db.flush().unwrap();
    for round in 0..rounds {
        let written = [key(PARTITIONS, 1), key(PARTITIONS, 2)];
        written.iter().for_each(|key| space.insert(key, round.to_string()).unwrap());
        db.flush().unwrap();
        let snapshot = db.snapshot();
        space.remove_range(key(PARTITIONS, 0)..).unwrap();
        db.flush().unwrap();
        for key in &written {
            let found = snapshot.keyspace(&space).unwrap().get(key).unwrap();
            assert_eq!(found.as_deref(), Some(round.to_string().as_bytes()), "round {round}");
        }
    }
    assert!(db.stats().hidden_tables > 0, "the background has found some");
}
