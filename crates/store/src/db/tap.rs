//! Following the writes of a keyspace as they are committed.
//!
//! A tap is called under the write lock, so it sees every change once and in order. Every writer
//! waits for what it does there.

use std::{collections::HashSet, fmt, time::SystemTime};

use rhumb_sync::{primitive::Arc, record::Record};

use super::{
    Handle,
    keyspace::{Keyspace, KeyspaceInner},
    snapshot::Snapshot,
};
use crate::{
    error::Result,
    expiry::{Stamp, time_of},
    log::batch::{Batch, BatchOp, RangeEnd},
    tree::Tree,
    types::{Kind, SeqNo, TreeId},
};

/// One change of a keyspace, as it is reported to a [`Tap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change<'a> {
    /// The key has this value from now on.
    Insert {
        /// The key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// The key has this value until it expires. The expiry itself is not reported.
    InsertUntil {
        /// The key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// When it expires; `None` if the platform's times do not reach as far.
        expires: Option<SystemTime>,
    },
    /// The key is absent from now on. It may have been absent before.
    Remove {
        /// The key.
        key: &'a [u8],
    },
    /// No key of a range is present from now on.
    RemoveRange {
        /// The first key of the range.
        from: &'a [u8],
        /// The first key after the range; `None` if it has no end.
        to: Option<&'a [u8]>,
    },
}

/// Follows a keyspace. [`Keyspace::follow`] registers one.
///
/// All calls come from the thread that commits, under the lock of all writers: they must be short,
/// and must not call the database. A panic in one stops all writes, as any panic during a commit
/// does.
pub trait Tap: Send + Sync {
    /// A change that is about to be written to the log. The write may fail; if it does not,
    /// [`Tap::apply`] reports the change. Of a large group of changes only the first are reported.
    /// A tap may use the time to prefetch memory that it is going to touch.
    fn prepare(&self, change: Change<'_>) {
        let _ = change;
    }

    /// A change that is in the log, as durably as its writer requested, and that no reader of the
    /// database sees yet.
    fn apply(&self, change: Change<'_>);

    /// Readers of the database see every change so far, of which `seq` is the last sequence number.
    /// The writers are told afterwards.
    fn publish(&self, seq: u64);

    /// The contents of the keyspace are about to change in another way than by [`Tap::apply`]: it
    /// was cleared or dropped, lost a partition, or took an ingestion. What the tap has gathered so
    /// far is invalid; [`Followed::snapshot`] then has the new contents.
    fn reset(&self);
}

/// A registered tap; dropping this ends the registration.
#[must_use = "a tap is told of changes for as long as this is kept"]
pub struct Followed {
    handle: Arc<Handle>,
    id: u64,
}

impl Followed {
    /// The database with every change that was reported to the tap by now, and none that will be
    /// reported later. Must not be called by a tap.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`](crate::Error::Forked).
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.handle.core.shared.check_process()?;
        let _state = self.handle.core.lock_write();
        Ok(Snapshot::new(Arc::clone(&self.handle)))
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        let core = &self.handle.core;
        // The parent's lock may be held for good in a forked child.
        if core.shared.process.is_here() {
            core.lock_write().taps.all.retain(|tap| tap.id != self.id);
        }
    }
}

impl fmt::Debug for Followed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Followed").finish_non_exhaustive()
    }
}

impl Keyspace {
    /// Makes `tap` follow every write of this keyspace from now on. [`Followed::snapshot`] has the
    /// earlier contents. Writers wait for a tap; those of other keyspaces do so only while a group
    /// of writes has some of both.
    ///
    /// # Errors
    ///
    /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped),
    /// [`Error::ReadOnly`](crate::Error::ReadOnly), [`Error::Forked`](crate::Error::Forked).
    ///
    /// ```
    /// # fn main() -> rhumb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = rhumb::Database::builder(dir.path().join("db")).open()?;
    /// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
    /// use rhumb::{Change, Tap};
    ///
    /// #[derive(Default)]
    /// struct Inserts(AtomicU64);
    ///
    /// impl Tap for Inserts {
    ///     fn apply(&self, change: Change<'_>) {
    ///         if let Change::Insert { .. } = change {
    ///             self.0.fetch_add(1, Ordering::Relaxed);
    ///         }
    ///     }
    ///     fn publish(&self, _seq: u64) {}
    ///     fn reset(&self) {}
    /// }
    ///
    /// let users = db.keyspace("users", rhumb::KeyspaceOptions::default())?;
    /// let inserts = Arc::new(Inserts::default());
    /// let followed = users.follow(inserts.clone())?;
    /// users.insert("ada", "1815")?;
    /// drop(followed);
    /// users.insert("grace", "1906")?;
    /// assert_eq!(inserts.0.load(Ordering::Relaxed), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn follow(&self, tap: std::sync::Arc<dyn Tap>) -> Result<Followed> {
        self.core().shared.check_writable()?;
        let mut state = self.core().lock_write();
        self.inner.check_live()?;
        let id = state.taps.next_id;
        state.taps.next_id += 1;
        let inner = Arc::clone(&self.inner);
        let trees = trees_of(&inner.tree.get());
        state.taps.all.push(Registered { id, inner, trees, tap });
        drop(state);
        Ok(Followed { handle: Arc::clone(&self.handle), id })
    }
}

/// The largest number of operations of a group that are reported to taps ahead. The memory that
/// they prefetch, some 2 KiB each, must stay in a core's own cache (512 KiB and more) until they
/// are applied.
const PREPARED_MAX: usize = 128;

/// The taps of a database.
#[derive(Default)]
pub(crate) struct Taps {
    all: Vec<Registered>,
    next_id: u64,
}

struct Registered {
    id: u64,
    inner: Arc<KeyspaceInner>,
    /// The LSM trees of the keyspace.
    trees: HashSet<TreeId>,
    tap: std::sync::Arc<dyn Tap>,
}

impl Taps {
    /// Reports the operations of records that are about to be written.
    #[inline]
    pub(crate) fn prepare<'r>(&self, records: impl Iterator<Item = &'r [u8]>) {
        if !self.all.is_empty() {
            let mut left = PREPARED_MAX;
            records.for_each(|record| self.prepare_some(record, &mut left));
        }
    }

    #[inline(never)]
    fn prepare_some(&self, record: &[u8], left: &mut usize) {
        for op in Batch::built(record).ops().take(*left) {
            *left -= 1;
            for registered in self.all.iter().filter(|tap| tap.trees.contains(&op.tree)) {
                registered.tap.prepare(change_of(&op, record));
            }
        }
    }

    /// Reports the operations of a record.
    #[inline]
    pub(crate) fn apply(&self, record: &Record) {
        if !self.all.is_empty() {
            self.apply_all(record);
        }
    }

    #[inline(never)]
    fn apply_all(&self, record: &Record) {
        for op in Batch::built(record).ops() {
            for registered in self.all.iter().filter(|tap| tap.trees.contains(&op.tree)) {
                registered.tap.apply(change_of(&op, record));
            }
        }
    }

    /// Reports that everything applied is visible, up to sequence number `seq`.
    #[inline]
    pub(crate) fn publish(&self, seq: SeqNo) {
        self.all.iter().for_each(|registered| registered.tap.publish(seq));
    }

    /// Reports that a keyspace changes in another way, and records its new LSM trees. Called before
    /// the change is visible.
    pub(crate) fn reset(&mut self, inner: &KeyspaceInner) {
        for registered in self.all.iter_mut().filter(|tap| std::ptr::eq(&*tap.inner, inner)) {
            // planted: tap-not-told-keyspace-cleared
            registered.tap.reset();
            registered.trees = trees_of(&inner.tree.get());
        }
    }

    /// Records new partitions of the keyspace whose own LSM tree is `root`.
    pub(crate) fn add_trees(&mut self, root: TreeId, new: &[Arc<Tree>]) {
        for registered in self.all.iter_mut().filter(|tap| tap.trees.contains(&root)) {
            registered.trees.extend(new.iter().map(|tree| tree.id));
        }
    }
}

fn trees_of(root: &Arc<Tree>) -> HashSet<TreeId> {
    root.with_partitions().iter().map(|tree| tree.id).collect()
}

pub(super) fn change_of<'r>(op: &BatchOp, record: &'r [u8]) -> Change<'r> {
    let key = op.key(record);
    match (op.range, op.kind) {
        (Some(RangeEnd::Before | RangeEnd::Open), _) => {
            Change::RemoveRange { from: key, to: op.range_end(record) }
        }
        (None, Kind::Tombstone) => Change::Remove { key },
        (None, Kind::Expiring) => {
            let stamped = Stamp::split(op.value(record));
            let (stamp, value) = stamped.unwrap_or((Stamp::new(0), &[]));
            Change::InsertUntil { key, value, expires: time_of(stamp.at_ms) }
        }
        (None, Kind::Value | Kind::LargeValue) => Change::Insert { key, value: op.value(record) },
    }
}
