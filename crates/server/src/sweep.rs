//! The sweeper: takes away the bytes of keys that have ended and of collections that are gone.
//!
//! Nothing depends on it for its answers: ended keys are absent for every reader, and members of a
//! removed collection are reached by nobody.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use rhumb::Result;

use crate::{
    commit,
    db::{Databases, Db, now_ms},
    encode::{Entry, format::WORK_RECLAIM, member},
    server::Server,
    txn::{Space, Txn},
};

/// How many keys are taken away at a time, under their locks.
const CHUNK: usize = 128;

/// How many members are taken away at a time.
const MEMBERS_CHUNK: usize = 2048;

/// How long one sweep may take.
const SWEEP_TIME: Duration = Duration::from_millis(25);

/// Sweeps all databases once. Returns true if there is more to do at once.
pub(crate) fn sweep(server: &Server) -> Result<bool> {
    if server.keeps_ended.load(Ordering::Relaxed) {
        return Ok(false);
    }
    let began = Instant::now();
    let until = began + SWEEP_TIME;
    let mut more = false;
    for (number, db) in server.databases.opened() {
        while end_keys(server, number, db)? {
            if Instant::now() > until {
                more = true;
                break;
            }
        }
        more |= reclaim(server, db, until)?;
    }
    server.slow.monitor("expire-cycle", began.elapsed());
    Ok(more)
}

/// Removes keys whose time is over. Returns true if there may be more.
fn end_keys(server: &Server, number: u8, db: &Db) -> Result<bool> {
    let now = now_ms();
    let marks: Vec<_> = db.due(now).take(CHUNK).collect::<Result<_>>()?;
    if marks.is_empty() {
        return Ok(false);
    }
    let _sweeping = db.count.sweeping.lock();
    let due = || marks.iter().filter_map(|(mark, _)| member::expiry_of(mark));
    let databases: &Databases = &server.databases;
    let _locks = databases.locks.many_exclusive(due().map(|(_, key)| key));
    databases.commit_submitted();
    let mut txn = Txn::new(databases, number, now);
    for (_, key) in due() {
        // The mark may be an old one: the entry says when the key ends.
        let is_over = |entry: &Entry| entry.is_expired(now);
        if db.keys.get(key)?.and_then(Entry::decode).is_some_and(|entry| is_over(&entry)) {
            txn.edit(key)?;
        }
    }
    for (mark, _) in &marks {
        txn.remove_work(mark.to_vec());
    }
    commit::transaction(&mut txn)?;
    Ok(marks.len() == CHUNK)
}

/// Removes members of collections that are gone. Returns true if there is more.
fn reclaim(server: &Server, db: &Db, until: Instant) -> Result<bool> {
    for mark in db.work.prefix([WORK_RECLAIM]) {
        let (mark, _) = mark?;
        let Some(id) = member::reclaim_of(&mark) else { continue };
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
