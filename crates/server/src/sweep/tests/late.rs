//! Commits during which the sweeper goes on.

use std::ops::Bound;

use super::{super::*, ended, left::open, marks, server_with_ended};
use crate::counting::kept_keys;

/// How many keys there are, and how many were told of.
fn counted(server: &Server) -> (i64, u64) {
    let db = server.databases.numbered(0).unwrap();
    (kept_keys(&server.databases, db).unwrap(), ended(server))
}

fn sweep_until(server: &Server, now_ms: u64) {
    sweep_of(server, 0, now_ms);
}

/// Sweeps the database of this number.
fn sweep_of(server: &Server, number: u8, now_ms: u64) {
    let db = server.databases.numbered(number).unwrap();
    while end_due(server, (number, db), &mut db.swept.sweeping(), (now_ms, CHUNK)).unwrap() {}
    server.databases.drop_told().unwrap();
}

/// Strings are written at 1000, and committed once all that ends by 2000 was told of and dropped.
fn commit_late(write: impl FnOnce(&mut Txn<'_>)) -> (tempfile::TempDir, Server) {
    let (dir, server) = server_with_ended(0);
    assert_eq!(counted(&server), (0, 0));
    let mut txn = Txn::new(&server.databases, 0, 1000);
    write(&mut txn);
    sweep_until(&server, 2000);
    commit::transaction(&mut txn).unwrap();
    drop(txn);
    (dir, server)
}

fn put_off(txn: &mut Txn<'_>, key: &[u8], ends_ms: u64) {
    let entry = txn.edit(key).unwrap().unwrap();
    txn.put_expiry(key, &entry, ends_ms).unwrap();
}

/// It is not dropped at once, as the engine's clock is past its time.
#[test]
fn a_string_whose_time_was_dropped_before_its_commit_is_told_of() {
    let (_dir, server) = commit_late(|txn| {
        txn.put_string(b"key", None, b"value", 1500).unwrap();
    });
    assert_eq!(counted(&server), (1, 0));
    sweep_until(&server, 2000);
    assert_eq!((counted(&server), marks(&server)), ((0, 1), 0));
}

/// It has the mark of its first time alone, unless the commit sees to it.
#[test]
fn a_string_whose_time_was_put_off_within_its_commit_is_told_of() {
    for again_ms in [1600, 2500] {
        let (_dir, server) = commit_late(|txn| {
            txn.put_string(b"key", None, b"value", 1500).unwrap();
            put_off(txn, b"key", again_ms);
        });
        assert_eq!(counted(&server), (1, 0));
        sweep_until(&server, 3000);
        // What does not vanish comes with the next walk.
        sweep_until(&server, 3000);
        assert_eq!((counted(&server), marks(&server)), ((0, 1), 0));
    }
}

/// What is pending in a transaction is seen in it, whether it is asked for or met in a scan.
#[test]
fn a_string_that_the_sweeper_passes_before_its_commit_is_there_for_its_transaction() {
    let (_dir, server) = server_with_ended(0);
    let mut txn = Txn::new(&server.databases, 0, 1000);
    txn.put_string(b"key", None, b"value", 1500).unwrap();
    sweep_until(&server, 2000);
    assert!(txn.exists(b"key").unwrap());
    let mut all = txn.scan(Space::Keys, Bound::Unbounded, Bound::Unbounded, false).unwrap();
    let (key, entry) = all.next().unwrap().unwrap();
    assert!(txn.is_live(&key, &entry) && all.next().is_none());
}

#[test]
fn the_sweeper_stays_below_what_is_being_committed() {
    let (_dir, server) = server_with_ended(0);
    let db = server.databases.numbered(0).unwrap();
    sweep_until(&server, 1000);
    let (first, second) = (db.swept.begin_commit(1500), db.swept.begin_commit(1500));
    let earlier = db.swept.begin_commit(900);
    assert!(earlier.is_passed(1000) && !earlier.is_passed(1001));
    sweep_until(&server, 2000);
    assert_eq!(db.swept.told_ms(), 1000);
    drop(earlier);
    for held in [first, second] {
        sweep_until(&server, 2000);
        assert_eq!((db.swept.told_ms(), server.databases.engine.expiry_ms()), (1499, 1499));
        assert!(db.swept.is_ahead(1500));
        drop(held);
    }
    sweep_until(&server, 2000);
    assert_eq!((db.swept.told_ms(), server.databases.engine.expiry_ms()), (2000, 2000));
}

/// Of a string over the mark of an earlier time the sweeper tells, and the engine's clock stops
/// between the two times, past the mark: the string is found when the data are opened again.
#[test]
fn a_string_that_outlives_its_mark_is_found_after_a_restart() {
    outlive_mark(false);
}

/// Also if a list has left a mark of the string's own time, which is removed by a write.
#[test]
fn a_string_over_the_mark_of_a_list_is_found_after_a_restart() {
    outlive_mark(true);
}

fn outlive_mark(was_list: bool) {
    let (dir, server) = server_with_ended(0);
    let db = server.databases.numbered(0).unwrap();
    if was_list {
        let mut txn = Txn::new(&server.databases, 0, 1000);
        let meta = txn.new_meta().unwrap();
        txn.put_collection(b"a", Kind::List, &meta, 1020);
        let entry = txn.edit(b"a").unwrap().unwrap();
        txn.delete(b"a", &entry).unwrap();
        commit::transaction(&mut txn).unwrap();
    }
    let mut txn = Txn::new(&server.databases, 0, 1000);
    txn.put_string(b"a", None, b"value", 1010).unwrap();
    put_off(&mut txn, b"a", 1020);
    for key in [b"b", b"c"] {
        txn.put_string(key, None, b"value", 1020).unwrap();
    }
    commit::transaction(&mut txn).unwrap();
    drop(txn);
    // The marks of `a` and of `b`.
    let most = 2 + usize::from(was_list);
    assert!(end_due(&server, (0, db), &mut db.swept.sweeping(), (1030, most)).unwrap());
    server.databases.drop_told().unwrap();
    assert_eq!((ended(&server), server.databases.engine.expiry_ms()), (2, 1019));
    drop(server);
    let server = open(dir.path());
    assert_eq!(counted(&server), (3, 0));
    sweep_until(&server, 1030);
    assert_eq!(counted(&server), (0, 3));
}

#[test]
fn the_clock_waits_for_every_database() {
    let (_dir, server) = server_with_ended(0);
    let stored = |number| server.databases.numbered(number).unwrap().keys.get(b"key").unwrap();
    for number in [0, 1] {
        let mut txn = Txn::new(&server.databases, number, 1000);
        txn.put_string(b"key", None, b"value", 1500).unwrap();
        commit::transaction(&mut txn).unwrap();
    }
    sweep_of(&server, 0, 2000);
    assert!(ended(&server) == 1 && stored(1).is_some());
    sweep_of(&server, 1, 2000);
    assert_eq!((ended(&server), stored(0), stored(1)), (2, None, None));
}
