//! Counting the keys of a database, where their number is not known (`count`).

use std::collections::HashSet;

use rhumb::Result;

use crate::{
    count::Tally,
    db::{Databases, Db, now_ms},
    encode::{entry::decode_head, member},
};

/// How many keys the database has that have not ended; counts, if that is not known: O(keys) then,
/// and holds nobody up meanwhile. The caller holds no locks.
///
/// # Errors
///
/// From the engine.
pub(crate) fn live_keys(databases: &Databases, db: &Db) -> Result<i64> {
    let counted = keys(databases, db)?;
    let _none_is_swept = db.swept.sweeping();
    let all = db.count.known().unwrap_or(counted);
    Ok(all.keys - ended_keys(db)?)
}

/// How many keys there are, with those that have ended and are not yet swept.
///
/// # Errors
///
/// From the engine.
pub(crate) fn kept_keys(databases: &Databases, db: &Db) -> Result<i64> {
    Ok(keys(databases, db)?.keys)
}

/// How many keys have ended and are not yet swept.
fn ended_keys(db: &Db) -> Result<i64> {
    let (now, place) = (now_ms(), db.swept.place());
    let (mut ended, mut found_early) = (0, HashSet::new());
    for mark in db.due(now) {
        let (mark, _) = mark?;
        let Some((expires, key)) = member::expiry_of(&mark) else { continue };
        let entry = db.keys.get(key)?.filter(|entry| !place.has_told(key, entry));
        let Some((_, end, _)) = entry.as_deref().and_then(decode_head) else { continue };
        // A mark may be an old one, and a key whose time was put off may have no other: each key
        // is counted once.
        ended += i64::from(match end {
            0 => false,
            _ if end == expires => true,
            _ if end > now || db.work.get(member::expiry(end, key))?.is_some() => false,
            _ => found_early.insert(key.to_vec()),
        });
    }
    Ok(ended)
}

fn keys(databases: &Databases, db: &Db) -> Result<Tally> {
    let count = &db.count;
    let _one = count.ask();
    if let Some(known) = count.known() {
        return Ok(known);
    }
    // Keys that the sweeper tells of after this moment are taken off the count then.
    let (snapshot, place) = {
        let _all = databases.locks.everything();
        databases.commit_submitted();
        count.begin();
        (databases.engine.snapshot(), db.swept.place())
    };
    let mut counted = Tally::default();
    for pair in snapshot.keyspace(&db.keys)?.iter() {
        let (key, entry) = pair.inspect_err(|_| count.forget())?;
        if !place.has_told(&key, &entry) {
            counted.add(Some(&entry));
        }
    }
    Ok(count.end(counted))
}
