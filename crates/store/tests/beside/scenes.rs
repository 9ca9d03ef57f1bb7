//! Readers beside a writer in single scenes: what random histories meet too rarely, or cannot see.

use std::{
    cell::Cell,
    rc::Rc,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use rhumb::{
    Database, Error, Keyspace, KeyspaceOptions, Partitioning,
    io::{
        Clock,
        sim::{SimClock, SimFs},
    },
};

use super::{builder, clear_meanwhile, set_meanwhile};
use crate::process::{Process, Role};

/// The number of rounds in which a writer replaces its tables.
const ROUNDS: u32 = 40;

fn writer(fs: &SimFs) -> Database {
    builder(fs, &Process::new(Role::Writer, u64::MAX), 2).open().unwrap()
}

fn reader(fs: &SimFs) -> Database {
    builder(fs, &Process::new(Role::Reader, 0), 2).open_read_only().unwrap()
}

fn plain(db: &Database) -> Keyspace {
    db.keyspace("plain", KeyspaceOptions::default()).unwrap()
}

fn pairs(keyspace: &Keyspace) -> Vec<(Vec<u8>, Vec<u8>)> {
    let pairs = keyspace.iter().map(|pair| pair.unwrap());
    pairs.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// Forgets what is to be done meanwhile when it is dropped, also by a test that fails.
struct Cleared;

impl Drop for Cleared {
    fn drop(&mut self) {
        clear_meanwhile();
    }
}

/// A partition that was dropped and created again is a new one: the log has no more than the
/// creation, the manifest the drop. A reader that meets the creation first, and fails before it
/// meets the drop, shows what was before the drop.
#[test]
fn a_creation_of_a_taken_name_waits_for_the_drop() {
    let options = || KeyspaceOptions {
        partitions: Partitioning::Delimiter(b'/'),
        ..KeyspaceOptions::default()
    };
    let open = |db: &Database| db.keyspace("parts", options()).unwrap();
    let mut failures = 0;
    for (acts_at, is_flushed) in (0..16).flat_map(|at| [(at, false), (at, true)]) {
        for fails_at in acts_at..acts_at + 12 {
            let fs = SimFs::new(7);
            let db = writer(&fs);
            let parts = open(&db);
            parts.insert("p/old", "1").unwrap();
            if is_flushed {
                db.flush().unwrap();
            }
            let process = Process::new(Role::Reader, 0);
            let reader = builder(&fs, &process, 2).open_read_only().unwrap();
            let seen = open(&reader);
            let old = (b"p/old".to_vec(), b"1".to_vec());
            let new = (b"p/new".to_vec(), b"2".to_vec());
            assert_eq!(pairs(&seen), std::slice::from_ref(&old));
            let before = reader.stats().sequence_number;
            let (calls, failing) = (Rc::new(Cell::new(0)), Arc::clone(&process));
            set_meanwhile(Role::Reader, move || {
                let call = calls.replace(calls.get() + 1);
                if call == acts_at {
                    assert!(parts.drop_partition("p/").unwrap());
                    parts.insert("p/new", "2").unwrap();
                }
                if call == fails_at {
                    failing.set_failing(true);
                }
            });
            let outcome = {
                let _cleared = Cleared;
                reader.catch_up()
            };
            process.set_failing(false);
            failures += u32::from(outcome.is_err());
            for is_again in [false, true] {
                if is_again {
                    reader.catch_up().unwrap();
                }
                let expected = match reader.stats().sequence_number - before {
                    0 => vec![old.clone()],
                    1 => vec![],
                    _ => vec![new.clone()],
                };
                let case = (acts_at, fails_at, is_flushed, is_again);
                assert_eq!(pairs(&seen), expected, "{case:?}");
            }
        }
    }
    assert!(failures > 50, "{failures}");
}

/// Each table is opened once by a reader, however often it catches up.
#[test]
fn open_tables_are_used_again() {
    let fs = SimFs::new(7);
    let db = writer(&fs);
    let options = || KeyspaceOptions {
        partitions: Partitioning::PrefixLength(1),
        ..KeyspaceOptions::default()
    };
    let parts = db.keyspace("parts", options()).unwrap();
    let (reader, mut tables) = (reader(&fs), 0);
    for round in 0..ROUNDS {
        // Each in a partition of its own, so that no table is ever replaced.
        let key = [b'A' + round as u8, b'k'];
        parts.insert(key, vec![b'v'; 100]).unwrap();
        db.flush().unwrap();
        reader.catch_up().unwrap();
        let levels = &db.stats().keyspaces[0].levels;
        tables = levels.iter().map(|level| level.tables).sum();
    }
    assert_eq!(tables, u64::from(ROUNDS));
    assert_eq!(reader.stats().file_opens, tables);
    assert_eq!(pairs(&reader.keyspace("parts", options()).unwrap()).len(), ROUNDS as usize);
}

/// A snapshot that is held for long keeps the files that it sees, and not those of all states
/// since.
#[test]
fn a_long_snapshot_keeps_no_states_that_nobody_sees() {
    let fs = SimFs::new(7);
    let db = writer(&fs);
    let (keyspace, other) = (plain(&db), db.keyspace("other", KeyspaceOptions::default()).unwrap());
    other.insert("k", "v").unwrap();
    let write = |round: u32| {
        for n in 0..10_u32 {
            keyspace
                .insert(n.to_be_bytes(), [&round.to_be_bytes()[..], &[0; 600]].concat())
                .unwrap();
        }
        keyspace.compact().unwrap();
    };
    write(0);
    let reader = reader(&fs);
    let seen = plain(&reader);
    let (first, at_first) = (reader.snapshot(), pairs(&seen));
    let (mut middle, mut most) = (None, 0);
    for round in 1..=ROUNDS {
        write(round);
        reader.catch_up().unwrap();
        assert_eq!(&pairs(&seen)[0].1[..4], round.to_be_bytes());
        if round == ROUNDS / 2 {
            middle = Some((reader.snapshot(), pairs(&seen)));
        }
        most = most.max(reader.stats().open_files);
    }
    let tables: u64 =
        db.stats().keyspaces.iter().flat_map(|it| &it.levels).map(|it| it.tables).sum();
    assert!(most <= 4 * tables, "{most} files are open for states of {tables} tables");
    let (middle, at_middle) = middle.unwrap();
    for (snapshot, expected) in [(&first, &at_first), (&middle, &at_middle)] {
        let found: Vec<_> =
            snapshot.keyspace(&seen).unwrap().iter().map(|it| it.unwrap()).collect();
        let found = found.iter().map(|(key, value)| (key.to_vec(), value.to_vec()));
        assert!(found.eq(expected.iter().cloned()));
    }
    drop((first, middle));
    for round in ROUNDS..ROUNDS + 3 {
        write(round);
        reader.catch_up().unwrap();
    }
    assert!(reader.stats().open_files <= 2 * tables, "{}", reader.stats().open_files);
}

/// The clock of a snapshot stands still: it sees what has expired since, and what the writer has
/// left out of its tables for that.
#[test]
fn a_snapshot_sees_what_the_writer_has_left_out_since_it_expired() {
    for is_written_to in [false, true] {
        let (fs, clock) = (SimFs::new(7), SimClock::new());
        let process = Process::new(Role::Writer, u64::MAX);
        let db = builder(&fs, &process, 2).clock(Arc::new(clock.clone())).open().unwrap();
        let keyspace = plain(&db);
        let end = UNIX_EPOCH + Duration::from_millis(clock.wall_ms()) + Duration::from_secs(10);
        keyspace.insert_until("k", "v", end).unwrap();
        keyspace.insert("stays", "v").unwrap();
        db.flush().unwrap();
        let reader = reader(&fs);
        let (seen, before) = (plain(&reader), reader.snapshot());
        clock.advance(Duration::from_secs(20));
        if is_written_to {
            keyspace.insert("new", "v").unwrap();
        }
        keyspace.compact().unwrap();
        assert_eq!(db.stats().keyspaces[0].entries, 1 + u64::from(is_written_to));
        reader.catch_up().unwrap();
        let after = reader.snapshot();
        let at = |snapshot: &rhumb::Snapshot, key: &str| -> Result<bool, Error> {
            Ok(snapshot.keyspace(&seen)?.get(key)?.is_some())
        };
        for _ in 0..2 {
            let is_there = ["k", "stays", "new"].map(|key| at(&before, key).unwrap());
            assert_eq!(is_there, [true, true, false]);
            assert_eq!(before.keyspace(&seen).unwrap().iter().count(), 2);
            let is_there = ["k", "stays", "new"].map(|key| at(&after, key).unwrap());
            assert_eq!(is_there, [false, true, is_written_to]);
            assert_eq!(
                after.keyspace(&seen).unwrap().iter().count(),
                1 + usize::from(is_written_to)
            );
            assert_eq!(pairs(&seen).len(), 1 + usize::from(is_written_to));
            reader.catch_up().unwrap();
        }
    }
}
