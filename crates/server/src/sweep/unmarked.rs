//! Marks for keys that have lost theirs.
//!
//! A program other than the server that has the data open for writing, such as one that loads or
//! that follows another database, has the time of day for the engine's clock. Then a mark vanishes
//! at its time although its key, whose time was put off since, is there. The sweeper would not find
//! that key. So all keys are looked through before anything is swept; until then the engine's clock
//! stands, and readers see by the entries' own times what has ended.

use rhumb::Result;

use crate::{
    commit,
    db::{Databases, Db},
    encode::{Entry, entry::decode_head, member},
    server::Server,
    swept::Cursor,
    txn::Txn,
};

/// Gives marks to those of the next `most` keys that end and have none. Returns false if no key of
/// the database lacks one. The caller holds no locks of keys.
///
/// # Errors
///
/// From the engine: the same keys come again.
pub(super) fn mark_some(
    server: &Server,
    (number, db): (u8, &Db),
    cursor: &mut Cursor,
    (now, most): (u64, usize),
) -> Result<bool> {
    let Some(from) = cursor.unmarked() else { return Ok(false) };
    let (mut lacking, mut next) = (Vec::new(), None);
    for (at, pair) in db.keys.range(from..).enumerate() {
        let (key, entry) = pair?;
        if at == most {
            next = Some(key.to_vec());
            break;
        }
        let ends_ms = decode_head(&entry).map_or(0, |(_, ends_ms, _)| ends_ms);
        if ends_ms != 0 && db.work.get(member::expiry(ends_ms, &key))?.is_none() {
            lacking.push(key);
        }
    }
    if !lacking.is_empty() {
        let databases: &Databases = &server.databases;
        let _locks = databases.locks.many_exclusive(lacking.iter().map(|key| &key[..]));
        databases.commit_submitted();
        let mut txn = Txn::new(databases, number, now);
        let mut marked = Vec::new();
        for key in &lacking {
            // Somebody may have written it meanwhile.
            let entry = db.keys.get(key)?.and_then(Entry::decode);
            let Some(entry) = entry.filter(|entry| entry.expires_ms != 0) else { continue };
            txn.mark_end(key, entry.expires_ms, entry.is_left_to_engine());
            marked.push(entry.expires_ms);
        }
        commit::ended(&mut txn)?;
        marked.into_iter().for_each(|ends_ms| db.swept.note_moved_mark(ends_ms));
    }
    db.swept.finish_marking(cursor, next);
    Ok(true)
}
