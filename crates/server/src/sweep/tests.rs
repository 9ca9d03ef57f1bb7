//! Tests of the sweeper, and of what it leaves to the engine.

mod late;
mod left;

use std::sync::{Arc, atomic::Ordering};

use super::*;
use crate::{command::catalog, config::Config, counting::live_keys, log::Log};

/// A server whose sweeper does not run, with this number of keys that have ended.
fn server_with_ended(keys: u64) -> (tempfile::TempDir, Server) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let config = Config { data, memory_bytes: 16 << 20, ..Config::default() };
    let server = Server::open(config, Arc::new(Log::silent()), catalog()).unwrap();
    let mut txn = Txn::new(&server.databases, 0, 1);
    for number in 0..keys {
        let key = format!("key:{number:06}");
        txn.put_string(key.as_bytes(), None, b"value", 2 + number % 7).unwrap();
    }
    commit::transaction(&mut txn).unwrap();
    drop(txn);
    (dir, server)
}

fn ended(server: &Server) -> u64 {
    server.databases.ended_keys.load(Ordering::Relaxed)
}

fn marks(server: &Server) -> usize {
    server.databases.opened().map(|(_, db)| db.due(now_ms()).count()).sum()
}

/// Keys whose times are put off again and again have one mark each, which the sweeper moves,
/// and end at their time.
#[test]
fn a_key_that_lasts_longer_keeps_its_mark() {
    let (_dir, server) = server_with_ended(0);
    let db = || server.databases.numbered(0).unwrap();
    let all_marks = || db().due(u64::MAX - 1).count();
    let now = now_ms();
    let put = |key: &[u8], ends: &[u64]| {
        for end in ends {
            let mut txn = Txn::new(&server.databases, 0, 1);
            let before = txn.edit(key).unwrap();
            txn.put_string(key, before.as_ref(), b"value", *end).unwrap();
            commit::transaction(&mut txn).unwrap();
        }
    };
    let far = now + 3_600_000;
    put(b"longer", &[2, 3, 4, far, far + 1]);
    put(b"ended", &[2, 3, 4]);
    put(b"sooner", &[far, 3]);
    put(b"stays", &[2, 0]);
    put(b"again", &[2, 0, far]);
    assert_eq!(all_marks(), 1 + 1 + 2 + 1 + 2);
    // Those that have ended are no keys, before they are swept and afterwards.
    let living = || live_keys(&server.databases, db()).unwrap();
    assert_eq!(living(), 3);
    while end_keys(&server, 0, db(), 2).unwrap() {}
    server.databases.drop_told().unwrap();
    assert_eq!(living(), 3);
    assert_eq!((ended(&server), marks(&server)), (2, 0));
    let left = |key: &[u8]| Txn::new(&server.databases, 0, now).exists(key).unwrap();
    let keys: [&[u8]; 5] = [b"longer", b"ended", b"sooner", b"stays", b"again"];
    assert_eq!(keys.map(left), [true, false, false, true, true]);
    // Those of `longer` and `again`, and one of `sooner` that says nothing any more.
    assert_eq!(all_marks(), 3);
}

#[test]
fn a_worker_that_helps_removes_a_key_for_each_command_at_most() {
    let (_dir, server) = server_with_ended(300);
    help(&server, 0);
    assert_eq!(ended(&server), 0);
    for commands in [1, 2, 5] {
        let before = ended(&server);
        help(&server, commands);
        assert_eq!(ended(&server) - before, commands as u64);
    }
    // The first of those that are left ends in the first millisecond, as each that is told of.
    server.databases.drop_told().unwrap();
    assert_eq!(marks(&server), 300);
    while sweep(&server).unwrap() {}
    assert_eq!((ended(&server), marks(&server)), (300, 0));
}

#[test]
fn what_another_thread_has_begun_is_swept() {
    let (_dir, server) = server_with_ended(1000);
    for (number, db) in server.databases.opened() {
        // Somebody takes marks and fails.
        let due = |cursor: &mut Cursor| db.swept.next_due(&db.work, cursor, now_ms(), 10);
        assert_eq!(due(&mut db.swept.sweeping()).unwrap().due.len(), 10);
        while end_keys(&server, number, db, CHUNK).unwrap() {}
    }
    server.databases.drop_told().unwrap();
    assert_eq!((ended(&server), marks(&server)), (1000, 0));
}

#[test]
fn threads_that_sweep_together_remove_each_key_once() {
    let (_dir, server) = server_with_ended(5000);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..2).for_each(|_| while sweep(&server).unwrap() {}));
            scope.spawn(|| (0..100).for_each(|_| help(&server, 20)));
        }
    });
    assert_eq!((ended(&server), marks(&server)), (5000, 0));
}
