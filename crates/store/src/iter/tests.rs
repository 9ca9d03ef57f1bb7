//! Counts the entries that walks step over.

use std::{collections::BTreeSet, ops::Bound};

use rhumb_index::engine::count_places;

use super::Ends;
use crate::{Database, Keyspace, KeyspaceOptions, Snapshot, table::Access};

/// The number of parts of a database; every second one is deleted.
const PARTS: u32 = 10;

fn key(part: u32, at: u32) -> Vec<u8> {
    format!("part-{part:02}/{at:08}").into_bytes()
}

/// The keys a walk gave, and the entries it stepped over.
struct Walked {
    keys: Vec<Vec<u8>>,
    entries: u64,
    /// The number of buckets and leaves of memtables that were visited.
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
    let reader = match snapshot {
        Some(snapshot) => snapshot.keyspace(space).unwrap(),
        None => space.reader(),
    };
    let places = count_places(0);
    let from = from.into_boxed_slice();
    let mut ends: Ends = if forward {
        reader.ends(Bound::Included(from), Bound::Unbounded)
    } else {
        reader.ends(Bound::Unbounded, Bound::Excluded(from))
    };
    let walk = if forward { ends.front(Access::Cached) } else { ends.back(Access::Cached) };
    let mut keys = Vec::new();
    while keys.len() < most && walk.drive().unwrap() {
        keys.push(walk.key().to_vec());
    }
    Walked { keys, entries: walk.passed(), places: count_places(0) - places }
}

/// A database of ten parts of `each` keys each, written in turns.
fn filled(home: &tempfile::TempDir, each: u32) -> (Database, Keyspace) {
    let builder = Database::builder(home.path().join("db")).background_threads(0);
    filled_in(builder.open().unwrap(), each)
}

/// [`filled`], in an open database.
fn filled_in(db: Database, each: u32) -> (Database, Keyspace) {
    let space = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    for at in 0..each {
        let mut batch = db.batch();
        (0..PARTS).for_each(|part| batch.insert(&space, key(part, at), [7; 20]));
        batch.commit().unwrap();
    }
    (db, space)
}

/// A memtable begins with the leaves of the one before it, without keys. A walk that looks for a
/// key among them does not look into every bucket: if it did, it would visit 2,343 in this test.
#[test]
fn leaves_that_were_taken_over_empty_are_passed() {
    let home = tempfile::tempdir().unwrap();
    let (db, space) = filled(&home, 3_000);
    db.flush().unwrap();
    // Range tombstones alone make no source of entries.
    space.remove_range(key(0, 0)..key(1, 0)).unwrap();
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
    // No key is skipped along with the empty leaves.
    for at in (0..3_000).step_by(37) {
        space.insert(key(at % PARTS, at), b"again").unwrap();
    }
    assert_eq!(space.iter().count(), 27_000 + 9);
    assert_eq!(space.iter().rev().count(), 27_000 + 9);
}

/// The number of keys in each part, for a database of 3,000 keys, or for databases of the sizes in
/// `RHUMB_RANGE_KEYS=300000,3000000`.
fn sizes() -> Vec<u32> {
    let keys = std::env::var("RHUMB_RANGE_KEYS").unwrap_or_else(|_| "3000".into());
    keys.split(',').map(|keys| keys.parse::<u32>().unwrap() / PARTS).collect()
}

/// The most entries that a walk may step over beside ten keys, whatever was deleted: eight in each
/// of two deleted parts on its way, in each of two structures, and eight after a key that was
/// written since.
const PASSED_MAX: u64 = 40;

/// Walks both ways from places in deleted and in living parts; all find what the map has.
fn check(space: &Keyspace, snapshot: Option<&Snapshot>, map: &BTreeSet<Vec<u8>>, when: &str) {
    let each = map.iter().filter(|key| key.starts_with(b"part-01")).count() as u32;
    for part in 0..PARTS {
        for at in [0, each / 2, each - 1] {
            let from = key(part, at);
            let when = format!("{when}, {each} keys a part, from {}", from.escape_ascii());
            let forward = walk(space, snapshot, from.clone(), true, 10);
            let want: Vec<_> = map.range(from.clone()..).take(10).cloned().collect();
            assert!(forward.keys == want, "{when}");
            assert!(forward.entries <= PASSED_MAX, "{} passed {when}", forward.entries);
            let back = walk(space, snapshot, from.clone(), false, 10);
            let want: Vec<_> = map.range(..from).rev().take(10).cloned().collect();
            assert!(back.keys == want, "{when}, back");
            assert!(back.entries <= PASSED_MAX, "{} passed {when}, back", back.entries);
        }
    }
}

/// Deletes parts of a database, and walks through it in each state that follows.
fn delete_and_walk(each: u32, is_flushed: bool, has_snapshot: bool) {
    let home = tempfile::tempdir().unwrap();
    let (db, space) = filled(&home, each);
    if is_flushed {
        db.flush().unwrap();
        space.compact().unwrap();
    }
    let all = (0..PARTS).flat_map(|part| (0..each).map(move |at| key(part, at)));
    let before: BTreeSet<_> = all.collect();
    let mut map = before.clone();
    let snapshot = has_snapshot.then(|| db.snapshot());
    let when = |what| format!("{what}, flushed {is_flushed}, snapshot {has_snapshot}");
    for part in (0..PARTS).step_by(2) {
        space.remove_range(key(part, 0)..key(part, each)).unwrap();
    }
    map.retain(|key| (key[6] - b'0') % 2 == 1);
    check(&space, None, &map, &when("deleted"));
    // From now on, no structure is older than the tombstones as a whole.
    for part in 0..PARTS {
        for at in [each / 3, each - 1] {
            space.insert(key(part, at), b"again").unwrap();
            map.insert(key(part, at));
        }
    }
    let later = db.snapshot();
    check(&space, None, &map, &when("written"));
    check(&space, Some(&later), &map, &when("written, later snapshot"));
    db.flush().unwrap();
    check(&space, None, &map, &when("flushed"));
    space.compact().unwrap();
    check(&space, None, &map, &when("compacted"));
    check(&space, Some(&later), &map, &when("compacted, later snapshot"));
    if let Some(snapshot) = &snapshot {
        check(&space, Some(snapshot), &before, &when("compacted, earlier snapshot"));
        assert_eq!(snapshot.keyspace(&space).unwrap().iter().count(), before.len());
    }
    drop((snapshot, later));
    // Without a pool the next write does the pending work.
    space.insert(key(1, 0), b"next").unwrap();
    let kept: u64 = db.stats().keyspaces[0].entries;
    assert!(kept <= map.len() as u64 + 1, "{kept} entries of {}", when("unseen"));
    check(&space, None, &map, &when("unseen"));
}

#[test]
fn deleted_ranges_are_not_walked_through() {
    for each in sizes() {
        for is_flushed in [false, true] {
            for has_snapshot in [false, true] {
                delete_and_walk(each, is_flushed, has_snapshot);
            }
        }
    }
}

/// While nothing else is to be done, large deletes in a small database are pushed down to the
/// tables, and the space is freed: that of tables, and that of the log of entries that were never
/// flushed.
#[test]
fn the_space_of_a_small_database_comes_back() {
    for is_flushed in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let (db, space) = filled(&home, 2_000);
        if is_flushed {
            db.flush().unwrap();
            space.compact().unwrap();
        }
        assert!(!db.handle.core.seal_deletes(), "nothing was deleted");
        space.remove_range(key(0, 0)..key(0, 10)).unwrap();
        assert!(!db.handle.core.seal_deletes(), "ten entries are not worth a flush");
        space.remove_range(key(0, 10)..key(5, 0)).unwrap();
        assert!(db.handle.core.seal_deletes(), "half of all entries are");
        db.handle.core.run_inline();
        let stats = db.stats();
        let keyspace = &stats.keyspaces[0];
        assert_eq!((keyspace.entries, keyspace.range_tombstones), (10_000, 0));
        assert!(!db.handle.core.seal_deletes(), "once");
        assert_eq!(space.iter().count(), 10_000);
    }
}

/// A tombstone of level 1 covers a table of level 2 that has newer entries of other keys. All of
/// its entries under the tombstone are older nevertheless.
#[test]
fn a_deeper_table_with_newer_entries_elsewhere_is_passed() {
    let home = tempfile::tempdir().unwrap();
    let builder = Database::builder(home.path().join("db")).background_threads(0);
    let builder = builder.level_one_bytes(64 << 10).table_bytes(4 << 20);
    let (db, space) = filled_in(builder.open().unwrap(), 1_000);
    db.flush().unwrap();
    space.compact().unwrap();
    // Keeps compaction from picking the tombstone.
    let snapshot = db.snapshot();
    space.remove_range(key(9, 0)..key(9, 900)).unwrap();
    db.flush().unwrap();
    for round in 0..7_u32 {
        for at in 0..1_000_u32 {
            // Tables of over 256 KiB: smaller ones would be merged with the tombstone's table on
            // the way down.
            let noise = |part: u32| (at ^ round << 10 ^ part << 13).wrapping_mul(0x9E37_79B9);
            let value: Vec<u8> = (0..100).flat_map(|part| noise(part).to_be_bytes()).collect();
            space.insert(key(0, at), value).unwrap();
        }
        db.flush().unwrap();
    }
    let levels = &db.stats().keyspaces[0].levels;
    let found = (levels.len(), levels[1].tables, levels[1].entries);
    assert_eq!(found, (3, 1, 0), "only the tombstone is in level 1");
    let forward = walk(&space, None, key(8, 999), true, 2);
    assert_eq!(forward.keys, [key(8, 999), key(9, 900)]);
    let back = walk(&space, None, key(9, 901), false, 2);
    assert_eq!(back.keys, [key(9, 900), key(8, 999)]);
    let passed = forward.entries.max(back.entries);
    assert!(passed <= PASSED_MAX, "{passed} passed");
    assert_eq!(snapshot.keyspace(&space).unwrap().iter().count(), 10_000);
}

/// A key that was written later is found in its newest version, wherever it lies among those that a
/// walk passes. A backward walk comes to the versions under the tombstone first, and must not seek
/// past the newest version from there.
#[test]
fn a_key_written_over_is_found_wherever_the_walk_begins_to_seek() {
    let home = tempfile::tempdir().unwrap();
    let builder = Database::builder(home.path().join("db")).background_threads(0);
    let db = builder.open().unwrap();
    for again in 0..30 {
        let space = db.keyspace(&format!("k{again}"), KeyspaceOptions::default()).unwrap();
        (0..30).for_each(|at| space.insert(key(0, at), b"old").unwrap());
        let snapshot = db.snapshot();
        space.remove_range(key(0, 0)..key(0, 30)).unwrap();
        space.insert(key(0, again), b"new").unwrap();
        for is_flushed in [false, true] {
            if is_flushed {
                db.flush().unwrap();
                space.compact().unwrap();
            }
            let found = |forward, from| walk(&space, None, from, forward, 9).keys;
            assert_eq!(found(false, key(1, 0)), [key(0, again)], "back, flushed {is_flushed}");
            assert_eq!(found(true, key(0, 0)), [key(0, again)], "flushed {is_flushed}");
            assert_eq!(snapshot.keyspace(&space).unwrap().iter().rev().count(), 30);
        }
    }
}
