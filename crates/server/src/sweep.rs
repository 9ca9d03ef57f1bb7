//! The sweeper: takes away the bytes of keys and fields that have ended, and of collections that
//! are gone.
//!
//! Nothing depends on it for its answers: what has ended is absent for every reader, and members of
//! a removed collection are reached by nobody.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use rhumb::Result;

use crate::{
    commit,
    db::{Databases, Db, now_ms},
    encode::{Entry, Kind, format::WORK_RECLAIM, member},
    key_event::KeyEvent,
    server::Server,
    txn::{Space, Txn},
};

/// How many keys are taken away at a time, under their locks.
const CHUNK: usize = 128;

/// How many members are taken away at a time.
const MEMBERS_CHUNK: usize = 2048;

/// How long one sweep may take.
const SWEEP_TIME: Duration = Duration::from_millis(25);

/// How many keys a worker that helps takes away at a time, under their locks: fewer, as its clients
/// wait. `cargo xtask expiries` shows whether it suffices.
const HELP_CHUNK: usize = 32;

/// How long a worker may help after some commands. Clients should wait for others for a millisecond
/// at most.
const HELP_TIME: Duration = Duration::from_millis(1);

/// Sweeps all databases once. Returns true if there is more to do at once.
pub(crate) fn sweep(server: &Server) -> Result<bool> {
    if server.pause.is_on() || server.databases.met.sweeper_rests() {
        return Ok(false);
    }
    let began = Instant::now();
    let until = began + SWEEP_TIME;
    let mut more = false;
    for (number, db) in server.databases.opened() {
        while end_keys(server, number, db, CHUNK)? {
            if Instant::now() > until {
                more = true;
                break;
            }
        }
        while end_fields(server, number, db)? {
            if Instant::now() > until {
                more = true;
                break;
            }
        }
        more |= reclaim(server, (number, db), until)?;
    }
    server.slow.monitor("expire-cycle", began.elapsed());
    Ok(more)
}

/// Removes some keys whose time is over, of `most` marks. Returns true if there may be more. The
/// caller holds no locks.
fn end_keys(server: &Server, number: u8, db: &Db, most: usize) -> Result<bool> {
    let now = now_ms();
    let _sweeping = db.count.sweeping.read();
    let marks = db.take_due(now, most)?;
    if marks.is_empty() {
        return Ok(false);
    }
    let due = marks.iter().filter_map(|mark| member::expiry_of(mark));
    let keys: Vec<&[u8]> = due.map(|(_, key)| key).collect();
    let databases: &Databases = &server.databases;
    let _locks = databases.locks.many_exclusive(keys.iter().copied());
    databases.commit_submitted();
    let mut txn = Txn::new(databases, number, now);
    let mut seen = HashSet::new();
    for (key, entry) in keys.iter().copied().zip(db.keys.multi_get(&keys)?) {
        // The mark may be an old one, of a key that is gone, that stays, or that has another.
        let entry = entry.and_then(Entry::decode).filter(|entry| entry.expires_ms != 0);
        let Some(entry) = entry.filter(|_| seen.insert(key)) else { continue };
        if entry.expires_ms <= now {
            txn.end(key, &entry)?;
        } else {
            txn.mark_end(key, entry.expires_ms);
        }
    }
    for mark in &marks {
        txn.remove_work(mark.to_vec());
    }
    commit::ended(&mut txn)?;
    Ok(marks.len() == most)
}

/// Removes keys that have ended if the sweeper is behind: at most one for each command that the
/// caller has run, so that keys do not come faster than they go, and for [`HELP_TIME`] at most. The
/// caller holds no locks and has no open commit group.
pub(crate) fn help(server: &Server, commands: usize) {
    if server.pause.is_on() || server.databases.met.sweeper_rests() {
        return;
    }
    let until = Instant::now() + HELP_TIME;
    let mut left = commands;
    for (number, db) in server.databases.opened() {
        while left > 0 && Instant::now() < until {
            let some = left.min(HELP_CHUNK);
            left -= some;
            // The sweeper meets an error as well, and tells of it.
            if !end_keys(server, number, db, some).unwrap_or(false) {
                break;
            }
        }
    }
}

/// Removes the keys that readers found to have ended while the sweeper rests. The caller holds no
/// locks and has no open commit group.
pub(crate) fn end_met(server: &Server) {
    for (number, key) in server.databases.met.take() {
        // After an error the key stays: the sweeper meets it, and tells of it.
        let _ = end_key(&server.databases, number, &key);
    }
}

fn end_key(databases: &Databases, number: u8, key: &[u8]) -> Result<()> {
    let _sweeping = databases.numbered(number)?.count.sweeping.read();
    let _lock = databases.locks.many_exclusive(std::iter::once(key));
    databases.commit_submitted();
    let mut txn = Txn::new(databases, number, now_ms());
    txn.edit(key)?;
    commit::ended(&mut txn)
}

/// Removes fields of hashes whose time is over. Returns true if there may be more.
fn end_fields(server: &Server, number: u8, db: &Db) -> Result<bool> {
    let now = now_ms();
    let marks: Vec<_> = db.due_fields(now).take(CHUNK).collect::<Result<_>>()?;
    if marks.is_empty() {
        return Ok(false);
    }
    let due = || marks.iter().filter_map(|(mark, _)| Some((mark, member::expiry_of(mark)?.1)));
    let databases: &Databases = &server.databases;
    let _locks = databases.locks.many_exclusive(due().map(|(_, key)| key));
    databases.commit_submitted();
    let mut txn = Txn::new(databases, number, now);
    let mut left = MEMBERS_CHUNK;
    for (mark, key) in due() {
        txn.remove_work(mark.to_vec());
        left -= end_fields_of(&mut txn, key, left)?;
        if left == 0 {
            // The others, and what is left of this one, come next.
            break;
        }
    }
    commit::ended(&mut txn)?;
    Ok(left == 0 || marks.len() == CHUNK)
}

/// Removes the fields of a key that have ended, of at most `most`, and marks the hash for the time
/// at which the next one ends. Returns how many it has removed.
fn end_fields_of(txn: &mut Txn<'_>, key: &[u8], most: usize) -> Result<usize> {
    // The mark may be an old one: the entry says whether the hash has times.
    let entry = txn.read(key)?.filter(|entry| entry.kind == Kind::Hash);
    let Some(entry) = entry else { return Ok(0) };
    let mut meta = txn.meta(&entry)?;
    if meta.times == 0 {
        return Ok(0);
    }
    let prefix = member::times_prefix(meta.times, true);
    let (mut removed, mut next) = (0, None);
    for pair in txn.members(&prefix)? {
        let (place, _) = pair?;
        let Some((end_ms, field)) = member::field_by_end_of(&place) else { continue };
        if end_ms > txn.now_ms || removed == most {
            next = Some(end_ms);
            break;
        }
        txn.remove_member(member::field(meta.id, field));
        txn.remove_member(member::time_of_field(meta.times, field));
        txn.remove_member(place.to_vec());
        removed += 1;
    }
    meta.count = meta.count.saturating_sub(removed as u64);
    match next {
        Some(end_ms) => txn.mark_fields(key, end_ms),
        None => meta.times = 0,
    }
    if removed > 0 || next.is_none() {
        txn.put_meta(key, Kind::Hash, &meta, entry.expires_ms);
    }
    if removed > 0 {
        txn.notify(KeyEvent::hash("hexpired"), key);
    }
    if meta.count == 0 {
        txn.notify(KeyEvent::generic("del"), key);
    }
    Ok(removed)
}

/// Removes members of collections that are gone. Returns true if there is more.
fn reclaim(server: &Server, (number, db): (u8, &Db), until: Instant) -> Result<bool> {
    for mark in db.work.prefix([WORK_RECLAIM]) {
        let (mark, _) = mark?;
        let Some(id) = member::reclaim_of(&mark) else { continue };
        server.databases.ranks.forget_collection(number, id);
        loop {
            let some = db.members.prefix(member::prefix(id)).take(MEMBERS_CHUNK);
            let keys: Vec<_> = some.map(|pair| Ok(pair?.0)).collect::<Result<_>>()?;
            let mut batch = server.databases.engine.batch();
            keys.iter().for_each(|key| batch.remove(&db.members, key));
            let is_last = keys.len() < MEMBERS_CHUNK;
            if is_last {
                batch.remove(&db.work, &mark);
            }
            commit::in_background(&server.databases, batch)?;
            if is_last {
                break;
            }
            if Instant::now() > until {
                return Ok(true);
            }
        }
        server.metrics.count_reclaimed();
        if Instant::now() > until {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Txn<'_> {
    /// Removes a mark of work that is done.
    fn remove_work(&mut self, mark: Vec<u8>) {
        self.write(Space::Work, mark, None);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, atomic::Ordering};

    use super::*;
    use crate::{command::catalog, config::Config, log::Log};

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
        while end_keys(&server, 0, db(), 2).unwrap() {}
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
        assert_eq!(marks(&server), 292);
    }

    #[test]
    fn the_sweeper_finds_what_is_left_whoever_has_begun() {
        let (_dir, server) = server_with_ended(1000);
        for (number, db) in server.databases.opened() {
            // Somebody takes marks and fails.
            assert_eq!(db.take_due(now_ms(), 10).unwrap().len(), 10);
            while end_keys(&server, number, db, CHUNK).unwrap() {}
            assert_eq!(ended(&server), 990);
            // From the first on.
            while end_keys(&server, number, db, CHUNK).unwrap() {}
        }
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
}
