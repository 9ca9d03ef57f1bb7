//! Emptying a database at once, whatever its size.

use std::sync::atomic::Ordering;

use rhumb::{Keyspace, Result};

use crate::{
    commit,
    db::{Databases, Db},
    encode::format::SYSTEM_CLEARING,
};

/// The largest database, in entries, those that were removed included, that is emptied entry by
/// entry: that takes some hundred microseconds, less than one sync.
const FEW_ENTRIES: u64 = 1024;

/// Empties again what a crash left half emptied.
///
/// # Errors
///
/// From the engine.
pub(crate) fn finish(databases: &Databases) -> Result<()> {
    let marks: Vec<_> = databases.system.prefix(SYSTEM_CLEARING).collect::<Result<_>>()?;
    for (mark, _) in marks {
        if let Some(number) = mark.get(SYSTEM_CLEARING.len()) {
            clear(databases, *number)?;
        }
    }
    Ok(())
}

/// Empties the keyspaces of a number at once. The caller holds all locks. What holds little is
/// removed by one batch: taking a keyspace away is the same for any size, but it waits for the disk
/// several times.
///
/// # Errors
///
/// From the engine; what was begun is finished when the data are opened again.
pub(crate) fn clear(databases: &Databases, number: u8) -> Result<()> {
    let db = databases.numbered(number)?;
    databases.ranks.forget_database(number);
    let spaces = [&db.keys, &db.members, &db.work];
    match spaces.map(Keyspace::entries_at_most).iter().sum() {
        0 => {}
        1..=FEW_ENTRIES => remove_few(databases, spaces)?,
        _ => {
            let cleared = clear_many(databases, number, db);
            cleared.inspect_err(|error| databases.health.write_failed(error))?;
        }
    }
    db.has_collections.store(false, Ordering::Relaxed);
    db.count.clear();
    db.segments.forget();
    Ok(())
}

/// Removes all that the keyspaces hold, as one write.
fn remove_few(databases: &Databases, spaces: [&Keyspace; 3]) -> Result<()> {
    let mut batch = databases.engine.batch();
    for space in spaces {
        for pair in space.iter() {
            batch.remove(space, pair?.0);
        }
    }
    if batch.is_empty() { Ok(()) } else { commit::batch(databases, batch) }
}

fn clear_many(databases: &Databases, number: u8, db: &Db) -> Result<()> {
    let mark = [SYSTEM_CLEARING, &[number]].concat();
    databases.system.insert(&mark, [])?;
    db.keys.clear()?;
    db.members.clear()?;
    db.work.clear()?;
    databases.system.remove(&mark)
}
