//! What walks step over, counted.

use std::ops::Bound;

use super::Ends;
use crate::{Database, Keyspace, KeyspaceOptions, Snapshot, index::count_places, table::Access};

/// Parts of a database; every second one is deleted.
const PARTS: u32 = 10;

fn key(part: u32, at: u32) -> Vec<u8> {
    format!("part-{part:02}/{at:08}").into_bytes()
}

/// What a walk gave, and what it stepped over.
struct Walked {
    keys: Vec<Vec<u8>>,
    entries: u64,
    /// Buckets and leaves of memtables.
    places: usize,
}

/// The first `most` keys from `from` on, or before it.
fn walk(
    space: &Keyspace,
    snapshot: Option<&Snapshot>,
    from: Vec<u8>,
    forward: bool,
    most: usize,
) -> Walked {
    let seq = snapshot.map(Snapshot::sequence_number);
    let places = count_places(0);
    let from = from.into_boxed_slice();
    let mut ends: Ends = if forward {
        space.ends_at(Bound::Included(from), Bound::Unbounded, seq)
    } else {
        space.ends_at(Bound::Unbounded, Bound::Excluded(from), seq)
    };
    let walk = if forward { ends.front(Access::Cached) } else { ends.back(Access::Cached) };
    let mut keys = Vec::new();
    while keys.len() < most && walk.drive().unwrap() {
        keys.push(walk.key().to_vec());
    }
    Walked { keys, entries: walk.passed(), places: count_places(0) - places }
}

/// A database of ten parts of so many keys each, which come in turns.
fn filled(home: &tempfile::TempDir, each: u32) -> (Database, Keyspace) {
    let db = Database::builder(home.path().join("db")).background_threads(0).open().unwrap();
    let space = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    for at in 0..each {
        let mut batch = db.batch();
        (0..PARTS).for_each(|part| batch.insert(&space, key(part, at), [7; 20]));
        batch.commit().unwrap();
    }
    (db, space)
}

/// A memtable begins with the leaves of the one before, without keys. A walk that finds a key among them
/// does not look into every bucket: 2,343 in this test if it does.
#[test]
fn leaves_that_were_taken_over_empty_are_passed() {
    let home = tempfile::tempdir().unwrap();
    let (db, space) = filled(&home, 3_000);
    db.flush().unwrap();
    // Range tombstones alone make no source of entries.
    space.delete_range(key(0, 0)..key(1, 0)).unwrap();
    for forward in [true, false] {
        assert_eq!(walk(&space, None, key(5, 100), forward, 10).places, 0);
    }
    space.insert(key(9, 2_999), b"last").unwrap();
    space.insert(key(1, 0), b"first").unwrap();
    for forward in [true, false] {
        let walked = walk(&space, None, key(5, 100), forward, 10);
        assert_eq!(walked.keys.len(), 10);
        assert!(walked.places < 250, "{} places", walked.places);
    }
    // And no key is passed with them.
    for at in (0..3_000).step_by(37) {
        space.insert(key(at % PARTS, at), b"again").unwrap();
    }
    assert_eq!(space.iter().count(), 27_000 + 9);
    assert_eq!(space.iter().rev().count(), 27_000 + 9);
}
