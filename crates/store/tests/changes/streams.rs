//! What a stream yields, waits for and refuses.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use rhumb::{
    Change, Changes, ChangesOptions, Database, Error, Keyspace, KeyspaceChange, KeyspaceOptions,
    Partitioning, PersistMode,
    io::sim::{CallKind, Fault, Matcher, SimFs},
};

use super::builder;

/// Opens the database of a disk. Nothing is flushed unasked.
fn open(fs: &SimFs) -> Database {
    builder(fs, "/db").memtable_bytes(1 << 20).open().unwrap()
}

fn from_now(db: &Database) -> Changes {
    db.changes(db.stats().sequence_number + 1).unwrap()
}

fn plain(db: &Database) -> Keyspace {
    db.keyspace("plain", KeyspaceOptions::default()).unwrap()
}

/// The numbers of all commits that there are now.
fn numbers(changes: &mut Changes) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    while let Some(commit) = changes.try_next().unwrap() {
        all.push((commit.first_seq(), commit.last_seq()));
    }
    all
}

#[test]
fn writes_and_changes_of_keyspaces_come_in_their_order() {
    let db = open(&SimFs::new(1));
    let _cursor = db.cursor("c", u64::MAX).unwrap();
    let mut changes = db.changes(1).unwrap();
    let keyspace = plain(&db);
    keyspace.insert("a", "1").unwrap();
    let mut batch = db.batch();
    batch.insert(&keyspace, "b", "2");
    batch.remove(&keyspace, "a");
    batch.remove_range(&keyspace, "c".."e");
    batch.commit().unwrap();
    keyspace.clear().unwrap();
    let parts = Partitioning::Delimiter(b'/');
    let options = KeyspaceOptions { partitions: parts, ..KeyspaceOptions::default() };
    let parts = db.keyspace("parts", options).unwrap();
    parts.insert("x/1", "3").unwrap();
    assert!(parts.drop_partition(parts.partition_of("x/1")).unwrap());
    parts.ingest([("y/1", "4")]).unwrap();
    db.drop_keyspace("plain").unwrap();
    let mut told = Vec::new();
    while let Some(commit) = changes.try_next().unwrap() {
        told.extend(commit.writes().map(|write| match write.change {
            Change::Insert { key, value } => format!(
                "{} {} {}={}",
                write.seq,
                write.keyspace,
                key.escape_ascii(),
                value.escape_ascii()
            ),
            other => format!("{} {} {other:?}", write.seq, write.keyspace),
        }));
        told.extend(commit.keyspace_change().unwrap().map(|change| {
            let what = match change {
                KeyspaceChange::Opened { keyspace, options } => {
                    format!("{keyspace} is opened with {:?}", options.partitions)
                }
                other => format!("{other:?}"),
            };
            format!("{} {what}", commit.first_seq())
        }));
    }
    let range = "RemoveRange { from: [99], to: Some([101]) }";
    let expected = [
        "1 plain is opened with None".to_owned(),
        "2 plain a=1".to_owned(),
        "3 plain b=2".to_owned(),
        "4 plain Remove { key: [97] }".to_owned(),
        format!("5 plain {range}"),
        "6 Cleared { keyspace: \"plain\" }".to_owned(),
        "7 parts is opened with Delimiter(47)".to_owned(),
        "8 parts x/1=3".to_owned(),
        "9 PartitionsDropped { keyspace: \"parts\", partitions: [[120, 47]] }".to_owned(),
        "10 Ingested { keyspace: \"parts\" }".to_owned(),
        "11 Dropped { keyspace: \"plain\" }".to_owned(),
    ];
    assert_eq!(told, expected);
    assert_eq!(changes.position(), 12);
}

#[test]
fn a_stream_begins_where_it_is_asked_to() {
    let db = open(&SimFs::new(2));
    let keyspace = plain(&db);
    for n in 0..5 {
        let mut batch = db.batch();
        batch.insert(&keyspace, "a", n.to_string());
        batch.insert(&keyspace, "b", n.to_string());
        batch.commit().unwrap();
    }
    let all = [(1, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11)];
    assert_eq!(numbers(&mut db.changes(0).unwrap()), all);
    assert_eq!(numbers(&mut db.changes(4).unwrap()), all[2..]);
    // Within a batch: the batch is yielded whole.
    assert_eq!(numbers(&mut db.changes(5).unwrap()), all[2..]);
    assert_eq!(numbers(&mut db.changes(12).unwrap()), []);
    let ahead = db.changes(13).unwrap_err();
    assert!(matches!(ahead, Error::InvalidArgument(_)), "{ahead}");
}

#[test]
fn without_a_cursor_the_log_is_kept_as_long_as_memtables_need_it() {
    let fs = SimFs::new(3);
    let db = open(&fs);
    let keyspace = plain(&db);
    keyspace.insert("a", "1").unwrap();
    let mut before = db.changes(1).unwrap();
    db.flush().unwrap();
    keyspace.insert("b", "2").unwrap();
    match db.changes(1) {
        Err(Error::Lagged { wanted: 1, oldest: 3 }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(numbers(&mut db.changes(3).unwrap()), [(3, 3)]);
    // A stream that was there holds the segment that it reads.
    assert_eq!(numbers(&mut before), [(1, 1), (2, 2), (3, 3)]);
}

#[test]
fn a_cursor_keeps_the_log_over_restarts_and_up_to_its_limit() {
    let fs = SimFs::new(4);
    let mut db = open(&fs);
    let mut cursor = db.cursor("c", 1 << 20).unwrap();
    assert_eq!(cursor.position(), 1);
    for n in 0..20_u32 {
        plain(&db).insert(n.to_be_bytes(), [7; 300]).unwrap();
        if n % 5 == 4 {
            db.flush().unwrap();
        }
        if n % 7 == 6 {
            drop(cursor);
            db.close().unwrap();
            db = open(&fs);
            cursor = db.cursor("c", 1 << 20).unwrap();
        }
    }
    assert_eq!(numbers(&mut db.changes(1).unwrap()).len(), 21);
    // Another cursor needs less.
    drop(db.cursor("d", 1 << 20).unwrap());
    db.flush().unwrap();
    plain(&db).insert("x", "y").unwrap();
    db.flush().unwrap();
    assert_eq!(numbers(&mut db.changes(1).unwrap()).len(), 22);
    cursor.advance(10).unwrap();
    db.flush().unwrap();
    plain(&db).insert("x", "y").unwrap();
    db.flush().unwrap();
    assert_eq!(numbers(&mut db.changes(10).unwrap()).len(), 14);
    assert!(matches!(db.changes(1), Err(Error::Lagged { .. })));
    // The limit is smaller than what is there.
    let cursor = db.cursor("c", 1000).unwrap();
    assert_eq!(db.cursors().unwrap()[0].keep_bytes, 1000);
    assert!(db.remove_cursor("d").unwrap());
    plain(&db).insert("x", "z").unwrap();
    db.flush().unwrap();
    assert!(matches!(db.changes(cursor.position()), Err(Error::Lagged { .. })));
    assert!(db.remove_cursor("c").unwrap());
    assert!(!db.remove_cursor("c").unwrap());
    assert!(db.cursors().unwrap().is_empty());
}

#[test]
fn a_durable_stream_yields_what_a_power_cut_leaves() {
    let db = open(&SimFs::new(5));
    let keyspace = plain(&db);
    let mut durable = db.changes_with(1, ChangesOptions::default().durable(true)).unwrap();
    assert_eq!(numbers(&mut durable), [(1, 1)]);
    keyspace.insert("a", "1").unwrap();
    keyspace.insert("b", "2").unwrap();
    assert_eq!(numbers(&mut durable), []);
    db.persist(PersistMode::SyncData).unwrap();
    assert_eq!(numbers(&mut durable), [(2, 2), (3, 3)]);
    keyspace.insert("c", "3").unwrap();
    assert_eq!(numbers(&mut durable), []);
    // What is in tables is durable without a sync of the log.
    db.flush().unwrap();
    assert_eq!(numbers(&mut durable), [(4, 4)]);
}

#[test]
fn a_thread_that_waits_is_woken_by_a_commit() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db")).unwrap();
    let keyspace = plain(&db);
    let mut changes = from_now(&db);
    assert!(changes.next_within(Duration::ZERO).unwrap().is_none());
    let waiting = std::thread::spawn(move || {
        let mut seen = Vec::new();
        while seen.len() < 100 {
            // Longer than any test may take: only a commit ends the wait.
            let commit = changes.next_within(Duration::from_secs(3600)).unwrap().unwrap();
            seen.extend(commit.writes().map(|write| write.seq));
        }
        seen
    });
    for n in 0..100_u32 {
        keyspace.insert(n.to_be_bytes(), "1").unwrap();
        if n % 10 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert_eq!(waiting.join().unwrap(), (2..102).collect::<Vec<u64>>());
}

struct Counter(AtomicU64);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_task_that_waits_is_woken_by_a_commit() {
    let db = open(&SimFs::new(6));
    let keyspace = plain(&db);
    let mut changes = from_now(&db);
    let counter = Arc::new(Counter(AtomicU64::new(0)));
    let waker = Waker::from(Arc::clone(&counter));
    let mut cx = Context::from_waker(&waker);
    let mut next = changes.next_async();
    assert!(Pin::new(&mut next).poll(&mut cx).is_pending());
    assert!(Pin::new(&mut next).poll(&mut cx).is_pending());
    assert_eq!(counter.0.load(Ordering::SeqCst), 0);
    keyspace.insert("a", "1").unwrap();
    assert_eq!(counter.0.load(Ordering::SeqCst), 1);
    let Poll::Ready(Ok(commit)) = Pin::new(&mut next).poll(&mut cx) else { panic!("not ready") };
    assert_eq!(commit.first_seq(), 2);
    // With threads.
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db")).unwrap();
    let (keyspace, mut changes) = (plain(&db), from_now(&db));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let writer = std::thread::spawn(move || {
        for n in 0..50_u32 {
            keyspace.insert(n.to_be_bytes(), "1").unwrap();
        }
    });
    runtime.block_on(async {
        for n in 2..52 {
            assert_eq!(changes.next_async().await.unwrap().first_seq(), n);
        }
    });
    writer.join().unwrap();
}

#[test]
fn a_replica_takes_the_changes_of_its_source_alone() {
    let fs = SimFs::new(7);
    let db = open(&fs);
    let keyspace = plain(&db);
    keyspace.insert("a", "1").unwrap();
    db.checkpoint("/copy").unwrap();
    let refused = |result: Result<u64, Error>, part: &str| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    // The source is no replica.
    let mut changes = db.changes(1).unwrap_or_else(|_| from_now(&db));
    for n in 0..3 {
        keyspace.insert("b", n.to_string()).unwrap();
    }
    let commits: Vec<_> = std::iter::from_fn(|| changes.try_next().unwrap()).collect();
    refused(db.apply(&commits), "as a replica");
    assert!(builder(&fs, "/db").replica(true).open().is_err());
    let copy = builder(&fs, "/copy").replica(true).open().unwrap();
    let copied = plain(&copy);
    // Its own writes are refused.
    for error in [
        copied.insert("x", "1").unwrap_err(),
        copied.remove("a").unwrap_err(),
        copied.clear().unwrap_err(),
        copied.ingest([("y", "1")]).unwrap_err(),
        copied.compare_and_swap("a", None, None).unwrap_err(),
        copy.keyspace("new", KeyspaceOptions::default()).unwrap_err(),
        copy.drop_keyspace("plain").unwrap_err(),
    ] {
        assert!(matches!(error, Error::ReadOnly { .. }), "{error}");
    }
    // A commit is missing.
    refused(copy.apply(&commits[1..]), "which follows number 3");
    assert_eq!(copy.apply(&commits).unwrap(), 3);
    assert_eq!(copy.apply(&commits).unwrap(), 0);
    assert_eq!(copied.get("b").unwrap().unwrap(), b"2");
    // Of another database.
    let other = open(&SimFs::new(8));
    let mut changes = from_now(&other);
    plain(&other).insert("a", "1").unwrap();
    let foreign = [changes.try_next().unwrap().unwrap()];
    refused(copy.apply(&foreign), "another database");
    // A copy of the copy takes the copy's changes.
    copy.checkpoint("/second").unwrap();
    keyspace.insert("c", "1").unwrap();
    let mut of_copy = from_now(&copy);
    let mut of_source = from_now(&db);
    assert!(of_source.try_next().unwrap().is_none());
    let mut of_source = db.changes(6).unwrap();
    let commit = of_source.try_next().unwrap().unwrap();
    copy.apply(std::slice::from_ref(&commit)).unwrap();
    let second = builder(&fs, "/second").replica(true).open().unwrap();
    refused(second.apply(&[commit]), "another database");
    let commit = of_copy.try_next().unwrap().unwrap();
    assert_eq!(second.apply(&[commit]).unwrap(), 1);
    drop((copied, of_copy));
    copy.close().unwrap();
    // Once it was open for writes of its own, it is no copy any more.
    builder(&fs, "/copy").open().unwrap().close().unwrap();
    assert!(builder(&fs, "/copy").replica(true).open().is_err());
}

/// A write that fails may leave a whole record, also for good if it cannot be cut off.
#[test]
fn what_a_failed_write_has_left_is_never_yielded() {
    for seed in 0..20 {
        let fs = SimFs::new(seed);
        let db = open(&fs);
        let keyspace = plain(&db);
        let mut changes = from_now(&db);
        keyspace.insert("a", "1").unwrap();
        assert_eq!(numbers(&mut changes), [(2, 2)]);
        let log = |kind| Matcher::any().kinds(&[kind]).name_suffix(".log");
        fs.inject(log(CallKind::Write), Fault::EioAfter(usize::MAX), 1);
        if seed % 2 == 0 {
            fs.inject(log(CallKind::Truncate), Fault::Eio, u64::MAX);
        }
        keyspace.insert("b", "refused").unwrap_err();
        assert_eq!(numbers(&mut changes), []);
        fs.clear_faults();
        keyspace.insert("c", "2").unwrap();
        let commit = changes.try_next().unwrap().unwrap();
        let write = commit.writes().next().unwrap();
        assert_eq!(write.change, Change::Insert { key: b"c", value: b"2" }, "seed {seed}");
        assert!(changes.try_next().unwrap().is_none());
    }
}

/// A writer counts, and creates a keyspace after each number: no copy has a keyspace without the
/// number before it, from which a follower would go on.
#[test]
fn a_checkpoint_is_of_one_moment() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db")).unwrap();
    let keyspace = plain(&db);
    keyspace.insert("n", "0").unwrap();
    let writer = {
        let db = db.clone();
        std::thread::spawn(move || {
            for n in 1..400_u32 {
                keyspace.insert("n", n.to_string()).unwrap();
                db.keyspace(&format!("made after {n:04}"), KeyspaceOptions::default()).unwrap();
            }
        })
    };
    for round in 0.. {
        let copy = dir.path().join(format!("copy {round}"));
        let is_last = writer.is_finished();
        db.checkpoint(&copy).unwrap();
        let copy = Database::builder(&copy).replica(true).open().unwrap();
        let names = copy.keyspace_names();
        let made = names.iter().filter_map(|name| name.strip_prefix("made after "));
        let made: u32 = made.max().map_or(0, |n| n.parse().unwrap());
        let counted = plain(&copy).get("n").unwrap().unwrap();
        let counted: u32 = std::str::from_utf8(&counted).unwrap().parse().unwrap();
        assert!(counted >= made, "{made} was made, and {counted} counted");
        if is_last {
            break;
        }
    }
    writer.join().unwrap();
}

/// Writes into a keyspace that was dropped before they were committed have no effect, there and
/// here, and take their numbers.
#[test]
fn writes_into_what_was_dropped_keep_their_numbers() {
    let fs = SimFs::new(9);
    let db = open(&fs);
    let (keyspace, other) = (plain(&db), db.keyspace("other", KeyspaceOptions::default()).unwrap());
    db.checkpoint("/copy").unwrap();
    let _cursor = db.cursor("c", u64::MAX).unwrap();
    let mut changes = from_now(&db);
    keyspace.insert("z", "0").unwrap();
    let mut batch = db.batch();
    batch.insert(&keyspace, "a", "1");
    batch.insert(&other, "b", "2");
    let submitted = batch.submit().unwrap();
    keyspace.clear().unwrap();
    submitted.finish().unwrap();
    keyspace.insert("c", "3").unwrap();
    let commits: Vec<_> = std::iter::from_fn(|| changes.try_next().unwrap()).collect();
    let copy = builder(&fs, "/copy").replica(true).open().unwrap();
    assert_eq!(copy.apply(&commits).unwrap(), 4);
    assert_eq!(copy.stats().sequence_number, db.stats().sequence_number);
    // Also from tables, and after another opening.
    copy.flush().unwrap();
    copy.close().unwrap();
    let copy = builder(&fs, "/copy").replica(true).open().unwrap();
    for name in ["plain", "other"] {
        let entries = |db: &Database| {
            let keyspace = db.keyspace(name, KeyspaceOptions::default()).unwrap();
            keyspace.iter().map(|pair| pair.unwrap().0.to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(entries(&copy), entries(&db), "{name}");
    }
}
