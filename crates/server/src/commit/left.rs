//! Commits of strings that are left to the engine, and of the marks by which the sweeper finds
//! them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rhumb::{Batch, Result};

use crate::{
    db::Db,
    encode::{
        entry::{ends_in_engine, leave_to_engine},
        format::{MARK_VANISHES, WORK_EXPIRY},
        member,
    },
    swept::Committing,
    txn::{Space, Txn, Writes},
};

/// Has the sweeper stay below the time of all that is pending, until the result is dropped. Strings
/// whose time it has passed are left to the engine no longer. The caller holds the locks of the
/// keys, and drops the result before them.
///
/// # Errors
///
/// From the engine.
pub(super) fn hold_sweeper<'d>(txn: &mut Txn<'d>) -> Result<Vec<Committing<'d>>> {
    let mut firsts: Vec<(u8, u64)> = Vec::new();
    for (number, space, writes) in &txn.pending.writes {
        let Some(first_ms) = first_end(*space, writes) else { continue };
        match firsts.iter_mut().find(|(of, _)| of == number) {
            Some((_, ms)) => *ms = first_ms.min(*ms),
            None => firsts.push((*number, first_ms)),
        }
    }
    let mut held = Vec::with_capacity(firsts.len());
    for (number, first_ms) in firsts {
        let committing = txn.databases.numbered(number)?.swept.begin_commit(first_ms);
        if committing.is_passed(first_ms) {
            keep_from_engine(&mut txn.pending.writes, number, &committing);
        }
        held.push(committing);
    }
    Ok(held)
}

/// When the first of what is written ends, in milliseconds since 1970: strings that are left to the
/// engine, or what is marked.
fn first_end(space: Space, writes: &Writes) -> Option<u64> {
    let written = writes.iter().filter_map(|(key, value)| Some((key, value.as_deref()?)));
    match space {
        Space::Keys => written.filter_map(|(_, entry)| ends_in_engine(entry)).min(),
        Space::Members => None,
        // In the order of their times.
        Space::Work => written.map(|(mark, _)| end_of_mark(mark)).find(Option::is_some).flatten(),
    }
}

/// The time of a mark of a key that ends.
fn end_of_mark(mark: &[u8]) -> Option<u64> {
    let is_expiry = mark.first() == Some(&WORK_EXPIRY);
    member::expiry_of(mark).filter(|_| is_expiry).map(|(ends_ms, _)| ends_ms)
}

/// Has strings whose time the sweeper has passed be removed by a write, and such marks. The other
/// strings get a mark of their own.
fn keep_from_engine(
    pending: &mut Vec<(u8, Space, Writes)>,
    number: u8,
    committing: &Committing<'_>,
) {
    let is_passed = |ends_ms| committing.is_passed(ends_ms);
    let mut marks = Writes::new();
    for (_, space, writes) in pending.iter_mut().filter(|(of, ..)| *of == number) {
        for (key, value) in writes.iter_mut() {
            let Some(value) = value else { continue };
            match space {
                Space::Work if end_of_mark(key).is_some_and(is_passed) => value.clear(),
                Space::Work | Space::Members => {}
                Space::Keys => {
                    let Some(ends_ms) = ends_in_engine(value) else { continue };
                    // planted: ends-passed
                    let is_left = leave_to_engine(value, !is_passed(ends_ms));
                    // It may have had one of an earlier time, which the sweeper has passed.
                    let mark = if is_left { vec![MARK_VANISHES] } else { Vec::new() };
                    marks.insert(member::expiry(ends_ms, key), Some(mark));
                }
            }
        }
    }
    match pending.iter_mut().find(|(of, space, _)| (*of, *space) == (number, Space::Work)) {
        Some((.., writes)) => writes.extend(marks),
        None => pending.push((number, Space::Work, marks)),
    }
}

/// Adds an entry, which the engine drops at its time if it says so.
pub(super) fn put_entry(batch: &mut Batch, db: &Db, key: Vec<u8>, value: Vec<u8>) {
    match ends_in_engine(&value) {
        Some(ends_ms) => batch.insert_until(&db.keys, key, value, time_of(ends_ms)),
        None => batch.insert_owned(&db.keys, key, value),
    }
}

/// Adds a mark of work, which the engine drops at its time if it says so, or its removal.
pub(super) fn put_work(batch: &mut Batch, db: &Db, mark: &[u8], value: Option<&[u8]>) {
    match (value, member::expiry_of(mark)) {
        (Some(value @ [MARK_VANISHES]), Some((ends_ms, _))) => {
            batch.insert_until(&db.work, mark, value, time_of(ends_ms));
        }
        (Some(value), _) => batch.insert(&db.work, mark, value),
        (None, _) => batch.remove(&db.work, mark),
    }
}

/// A time in milliseconds since 1970.
fn time_of(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}
