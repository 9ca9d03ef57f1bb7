//! Every way of committing: no other module hands a batch to the engine.
//!
//! | way | for |
//! | --- | --- |
//! | [`transaction`] | what one command, one `EXEC` or one commit group has pending |
//! | [`before_waiting`] | what a blocking command has pending that is to wait |
//! | [`ended`] | keys and fields that the sweeper removes: whose time is over, synced or not |
//! | [`overwritten`], [`submit_overwritten`] | strings that a run of commands replaces without a look |
//! | [`batch`] | a batch that another process, or an emptying, has made |
//! | [`in_background`] | members that the sweeper removes |
//!
//! A [`CommitGroup`](group::CommitGroups) collects the commands of a worker's clients and ends as
//! one transaction. A [`CommitHandle`] is what a client waits on before its replies are sent.

mod group;
mod left;
mod tell;

use std::sync::atomic::Ordering;

use rhumb::{Batch, Result, Submitted};

pub(crate) use group::{CommitGroups, GroupHandle};
pub(crate) use tell::tell;

use tell::{touch, wake};

use crate::{
    count::Tally,
    db::{Databases, Db},
    encode::{Entry, Kind, member},
    ranks::Changes,
    txn::{Pending, Space, Txn, Writes},
};

/// Operations of a batch past which others are not to wait for its commit on their workers: writing
/// one takes half a microsecond.
const LARGE_BATCH: usize = 2000;

/// A commit that replies wait for.
pub(crate) enum CommitHandle {
    /// Of the commit group that a command has joined.
    Group(GroupHandle),
    /// Of a batch that was submitted.
    Submitted(Submitted),
}

impl CommitHandle {
    /// Returns true if both are of the same commit group.
    pub(crate) fn is_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Group(one), Self::Group(other)) => one.is_with(other),
            _ => false,
        }
    }

    /// Sees to it that the commit is done.
    ///
    /// # Errors
    ///
    /// From the engine; nothing of it is visible.
    pub(crate) fn finish(self, databases: &Databases, groups: &CommitGroups) -> Result<()> {
        match self {
            Self::Group(handle) => groups.finish(databases, &handle),
            Self::Submitted(submitted) => finish(databases, submitted),
        }
    }
}

/// Commits a batch as durably as the writes of clients.
///
/// # Errors
///
/// From the engine; nothing of the batch is visible.
pub(crate) fn batch(databases: &Databases, batch: Batch) -> Result<()> {
    let is_large = batch.len() > LARGE_BATCH;
    let batch = batch.durability(databases.durability());
    let committed = if is_large {
        databases.large_commits.fetch_add(1, Ordering::Relaxed);
        let committed = batch.commit();
        databases.large_commits.fetch_sub(1, Ordering::Relaxed);
        committed
    } else {
        databases.committing(|| batch.commit())
    };
    committed.inspect_err(|error| databases.note_failed_commit(error))?;
    databases.note_commit();
    Ok(())
}

/// Commits a batch that nobody is told of: it asks for no sync, not even for that of each second.
///
/// # Errors
///
/// From the engine; nothing of the batch is visible.
pub(crate) fn in_background(databases: &Databases, batch: Batch) -> Result<()> {
    batch.commit().inspect_err(|error| databases.note_failed_commit(error))
}

/// Commits what is pending, all or nothing, and marks the clients that watch what changed.
///
/// # Errors
///
/// From the engine; nothing of it is visible.
pub(crate) fn transaction(txn: &mut Txn<'_>) -> Result<()> {
    let _below = left::hold_sweeper(txn)?;
    all_pending(txn, batch)
}

/// As [`transaction`], but asks for no sync: after a power cut these keys have ended as well. Also
/// tells of strings that have ended and are left to the engine.
///
/// # Errors
///
/// From the engine; nothing of it is visible.
pub(crate) fn ended(txn: &mut Txn<'_>) -> Result<()> {
    if !txn.pending.is_empty() {
        return all_pending(txn, in_background);
    }
    let Pending { touched, told, .. } = std::mem::take(&mut txn.pending);
    touch(txn.databases, &touched);
    tell(txn.databases, told);
    wake(txn.databases, &touched);
    Ok(())
}

/// As [`transaction`], but asks for no sync: a client that is to wait has no reply that promises
/// it.
///
/// # Errors
///
/// From the engine; nothing of it is visible.
pub(crate) fn before_waiting(txn: &mut Txn<'_>) -> Result<()> {
    let _below = left::hold_sweeper(txn)?;
    all_pending(txn, in_background)
}

/// Commits what is pending by `commit`.
fn all_pending(txn: &mut Txn<'_>, commit: fn(&Databases, Batch) -> Result<()>) -> Result<()> {
    let databases = txn.databases;
    if txn.pending.is_empty() {
        // What was published, and reads of absent keys.
        tell(databases, std::mem::take(&mut txn.pending).told);
        return Ok(());
    }
    let Pending { writes: pending, ranges, touched, system, told, changes: commands, .. } =
        std::mem::take(&mut txn.pending);
    let (mut all, mut changes) = (databases.engine.batch(), Changes::default());
    for (number, from, to) in ranges {
        all.remove_range(&databases.numbered(number)?.members, (from, to));
    }
    for (number, space, writes) in pending {
        let db = databases.numbered(number)?;
        let keyspace = space.of(db);
        if space == Space::Keys && db.count.is_kept() {
            let change =
                change_of(db, &writes).inspect_err(|error| databases.note_failed_commit(error))?;
            db.count.change(change);
        }
        if space == Space::Members {
            let writes = writes.iter().map(|(key, value)| (key.as_slice(), value.is_some()));
            databases.ranks.look(&mut changes, (number, keyspace), writes);
        }
        if space == Space::Work {
            for (mark, value) in &writes {
                left::put_work(&mut all, db, mark, value.as_deref());
            }
            continue;
        }
        for (key, value) in writes {
            match value {
                Some(value) if space == Space::Keys => left::put_entry(&mut all, db, key, value),
                Some(value) => all.insert_owned(keyspace, key, value),
                None => all.remove(keyspace, key),
            }
        }
    }
    for (key, value) in system {
        match value {
            Some(value) => all.insert(&databases.system, key, value),
            None => all.remove(&databases.system, key),
        }
    }
    commit(databases, all)?;
    // A command that is run alone has not counted itself.
    databases.changes.fetch_add(commands.max(1), Ordering::Relaxed);
    databases.ranks.apply(changes);
    touch(databases, &touched);
    tell(databases, told);
    wake(databases, &touched);
    Ok(())
}

/// What writes to keys will change about their count.
fn change_of(db: &Db, writes: &Writes) -> Result<Tally> {
    let mut change = Tally::default();
    for (key, value) in writes {
        // planted: ends-counted-twice
        let before = db.keys.get(key)?.filter(|before| !db.swept.has_told(key, before));
        change.subtract(before.as_deref());
        change.add(value.as_deref());
    }
    Ok(change)
}

/// Commits the strings that a run of commands has replaced, which have these keys.
///
/// # Errors
///
/// From the engine; nothing of it is visible.
pub(crate) fn overwritten<'k>(
    txn: &mut Txn<'_>,
    keys: impl Iterator<Item = &'k [u8]>,
) -> Result<()> {
    let databases = txn.databases;
    let Some(all) = take_overwritten(txn, keys)? else { return Ok(()) };
    batch(databases, all)?;
    databases.changes.fetch_add(txn.overwritten as u64, Ordering::Relaxed);
    touch(databases, &txn.pending.touched);
    tell(databases, std::mem::take(&mut txn.pending.told));
    wake(databases, &txn.pending.touched);
    Ok(())
}

/// As [`overwritten`], but only queues the strings, to be committed together with those of other
/// clients. The caller holds the locks of the keys and may release them: a client that reads before
/// a write calls [`Databases::commit_submitted`]. `None` if nothing was replaced.
///
/// # Errors
///
/// From the engine; nothing is queued then.
pub(crate) fn submit_overwritten<'k>(
    txn: &mut Txn<'_>,
    keys: impl Iterator<Item = &'k [u8]>,
) -> Result<Option<CommitHandle>> {
    let databases = txn.databases;
    let Some(all) = take_overwritten(txn, keys)? else { return Ok(None) };
    // Before the locks are released, so that the client that takes them next has it committed.
    databases.submitted.fetch_add(1, Ordering::Relaxed);
    let submitted = all.durability(databases.durability()).submit().inspect_err(|error| {
        databases.submitted.fetch_sub(1, Ordering::Relaxed);
        databases.note_failed_commit(error);
    })?;
    databases.changes.fetch_add(txn.overwritten as u64, Ordering::Relaxed);
    // If the write fails after all, clients that watch a key repeat an EXEC for nothing.
    touch(databases, &txn.pending.touched);
    wake(databases, &txn.pending.touched);
    Ok(Some(CommitHandle::Submitted(submitted)))
}

/// Sees to it that a batch that was submitted is committed.
fn finish(databases: &Databases, submitted: Submitted) -> Result<()> {
    let done = databases.committing(|| submitted.finish());
    databases.submitted.fetch_sub(1, Ordering::Relaxed);
    match &done {
        Ok(()) => databases.note_commit(),
        Err(error) => databases.note_failed_commit(error),
    }
    done
}

/// The batch of the strings that were replaced. What they replace is looked at only if it may be a
/// collection, or the keys are counted.
fn take_overwritten<'k>(
    txn: &mut Txn<'_>,
    keys: impl Iterator<Item = &'k [u8]>,
) -> Result<Option<Batch>> {
    let Some(mut all) = txn.overwrites.take().filter(|_| txn.overwritten > 0) else {
        return Ok(None);
    };
    debug_assert!(txn.pending.is_empty(), "a command that only overwrites has written otherwise");
    let db = txn.db()?;
    if db.has_collections.load(Ordering::Relaxed) || db.count.is_kept() {
        look_at_replaced(txn.databases, db, keys.collect(), &mut all)?;
    }
    Ok(Some(all))
}

/// What is to be done about the entries that are replaced: collections are left to the sweeper, and
/// the keys are counted.
fn look_at_replaced(
    databases: &Databases,
    db: &Db,
    mut keys: Vec<&[u8]>,
    batch: &mut Batch,
) -> Result<()> {
    let is_counted = db.count.is_kept();
    if is_counted {
        databases.commit_submitted();
        keys.sort_unstable();
        keys.dedup();
    }
    let replaced = db.keys.multi_get(&keys)?;
    if is_counted {
        let mut change = Tally { keys: keys.len() as i64, expires: 0 };
        for (key, before) in keys.iter().zip(&replaced) {
            let before = before.as_deref().filter(|before| !db.swept.has_told(key, before));
            change.subtract(before);
        }
        db.count.change(change);
    }
    for before in replaced.into_iter().flatten() {
        if let Some(before) = Entry::decode(before)
            && before.kind != Kind::String
            && let Some(meta) = before.meta()
        {
            batch.insert(&db.work, member::reclaim(meta.id), []);
            if meta.times != 0 {
                batch.insert(&db.work, member::reclaim(meta.times), []);
            }
        }
    }
    Ok(())
}
