//! The sweeper: takes away the bytes of keys and fields that have ended, and of collections that
//! are gone.
//!
//! Nothing depends on it for its answers: what has ended is absent for every reader, and members of
//! a removed collection are reached by nobody.

mod unmarked;

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use rhumb::Result;

use crate::{
    commit,
    count::Tally,
    db::{Databases, Db, now_ms},
    encode::{Entry, Kind, format::WORK_RECLAIM, member},
    key_event::KeyEvent,
    server::Server,
    swept::{Cursor, Due, Step},
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
    server.databases.drop_told()?;
    server.slow.monitor("expire-cycle", began.elapsed());
    Ok(more)
}

/// Ends some keys whose time is over, of `most` marks. Returns true if there may be more. The
/// caller holds no locks.
fn end_keys(server: &Server, number: u8, db: &Db, most: usize) -> Result<bool> {
    end_due(server, (number, db), &mut db.swept.sweeping(), (now_ms(), most))
}

/// As [`end_keys`], for the thread that sweeps.
fn end_due(
    server: &Server,
    (number, db): (u8, &Db),
    cursor: &mut Cursor,
    (now, most): (u64, usize),
) -> Result<bool> {
    if unmarked::mark_some(server, (number, db), cursor, (now, most))? {
        return Ok(true);
    }
    let chunk = db.swept.next_due(&db.work, cursor, now, most)?;
    let is_last = chunk.is_last;
    let keys: Vec<&[u8]> = chunk.due.iter().map(Due::key).collect();
    let databases: &Databases = &server.databases;
    let locks = databases.locks.many_exclusive(keys.iter().copied());
    databases.commit_submitted();
    let mut txn = Txn::new(databases, number, now);
    // Before any is written: that may be one of them.
    for due in chunk.due.iter().filter(|due| !due.vanishes) {
        txn.remove_work(due.mark.to_vec());
    }
    let (mut seen, mut told, mut moved) = (HashSet::new(), 0, Vec::new());
    for (at, entry) in db.keys.multi_get(&keys)?.into_iter().enumerate() {
        // The mark may be an old one, of a key that is gone, that stays, or that has another.
        let entry = entry.and_then(Entry::decode).filter(|entry| entry.expires_ms != 0);
        let key = keys[at];
        let Some(entry) = entry.filter(|_| seen.insert(key)) else { continue };
        let is_left = entry.is_left_to_engine();
        let step = match is_left {
            true => chunk.step_of(at, key, entry.expires_ms),
            false if entry.expires_ms <= now => Step::Tell,
            false => Step::Mark,
        };
        if matches!(step, Step::Mark | Step::MarkAndTell) {
            txn.mark_end(key, entry.expires_ms, is_left);
            moved.push(entry.expires_ms);
        }
        match step {
            Step::Nothing | Step::Mark => {}
            Step::Tell | Step::MarkAndTell if is_left && !server.removes_ended => {
                txn.tell_end(key);
                told += 1;
            }
            Step::Tell | Step::MarkAndTell => txn.end(key, &entry)?,
        }
    }
    commit::ended(&mut txn)?;
    moved.into_iter().for_each(|ends_ms| db.swept.note_moved_mark(ends_ms));
    // planted: ends-count
    if told > 0 && db.count.is_kept() {
        db.count.change(Tally { keys: -told, expires: -told });
    }
    db.swept.finish(cursor, chunk);
    drop(locks);
    Ok(!is_last)
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
            // One that sweeps is not waited for.
            let Some(mut cursor) = db.swept.try_sweeping() else { return };
            // The sweeper meets an error as well, and tells of it.
            if !end_due(server, (number, db), &mut cursor, (now_ms(), some)).unwrap_or(false) {
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
    let _sweeping = databases.numbered(number)?.swept.sweeping();
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
mod tests;
