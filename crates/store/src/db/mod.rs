//! The database: handles, keyspaces, writes, snapshots, and background work.

mod backup;
mod batch;
mod beside;
mod builder;
mod catalog;
mod changes;
mod checkpoint;
mod commit_future;
mod committer;
mod compact;
mod compact_small;
pub(crate) mod core;
mod counters;
mod expiring;
mod extent;
mod flush;
mod health;
mod hold;
mod ingest;
mod install;
mod keyspace;
mod lifecycle;
mod lookup;
mod memory;
mod memtables;
mod open;
mod partition;
mod pop;
mod read_times;
mod reader;
mod sample;
mod scan;
mod scheduler;
mod shared;
mod snapshot;
mod stats;
mod swap;
mod tap;
mod training;
mod transaction;
mod write;
mod writer;

use std::{
    fmt,
    path::{Path, PathBuf},
};

use rhumb_sync::primitive::Arc;

use self::core::Core;
use crate::{
    error::{Error, Result},
    options::{KeyspaceOptions, PersistMode},
    types::SeqNo,
};

pub use backup::{BackupInfo, Backups};
#[cfg(feature = "fuzzing")]
pub(crate) use backup::{framed_point, recoded_point};
pub use batch::{Batch, Submitted};
pub use builder::DatabaseBuilder;
pub use changes::{
    Changes, ChangesOptions, Commit, Cursor, CursorInfo, KeyspaceChange, NextCommit, Write, Writes,
};
pub use commit_future::CommitFuture;
pub use expiring::Expiry;
pub use keyspace::Keyspace;
pub(crate) use open::{hold_existing, take_shared_lock};
pub use partition::PartitionInfo;
pub use read_times::ReadLatency;
pub use reader::Reader;
pub use snapshot::Snapshot;
pub use stats::{KeyspaceStats, LevelStats, Stats};
pub use tap::{Change, Followed, Tap};
pub use transaction::{Savepoint, Transaction, TransactionIter, TransactionOptions};
#[cfg(feature = "fuzzing")]
pub(crate) use write::insert_record;

/// Closes the database when the last handle of any kind is dropped.
pub(crate) struct Handle {
    pub(crate) core: Arc<Core>,
    /// Set by [`Database::close`], which has done the work of the drop.
    is_closed: bool,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.core.shared.process.is_here() {
            // In a forked child nothing of it may be ended: its threads do not exist here, and its
            // files are the parent's.
            std::mem::forget(Arc::clone(&self.core));
        } else if !self.is_closed {
            // The error cannot be returned here; [`Database::close`] returns it.
            let _ = self.core.close();
        }
    }
}

/// An open database: a directory of keyspaces. Cloning gives another handle of the same database.
/// It is closed when the last handle, keyspace, snapshot, batch or iterator is dropped.
///
/// It belongs to the process that opened it. In a child that is forked from that process, reads and
/// writes fail with [`Error::Forked`], and dropping handles does nothing. Iterators and futures
/// that were made before the fork may only be dropped there. A child that needs the data opens the
/// directory itself, after the parent has closed it.
///
/// [`Error::Forked`]: crate::Error::Forked
///
/// ```
/// # fn main() -> rhumb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// use rhumb::{Database, KeyspaceOptions, PersistMode};
///
/// let db = Database::builder(dir.path().join("db")).open()?;
/// let users = db.keyspace("users", KeyspaceOptions::default())?;
///
/// users.insert("ada", "1815")?;
/// users.insert("grace", "1906")?;
/// assert_eq!(users.get("ada")?.unwrap(), b"1815");
///
/// let mut batch = db.batch().durability(PersistMode::SyncData);
/// batch.remove(&users, "ada");
/// batch.insert(&users, "edsger", "1930");
/// batch.commit()?;
///
/// let names: Result<Vec<_>, _> = users.range("e".."h").map(|pair| pair.map(|(k, _)| k)).collect();
/// assert_eq!(names?, [b"edsger".as_slice(), b"grace"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Database {
    pub(crate) handle: Arc<Handle>,
}

impl Database {
    /// A builder with settings for the database in the directory `path`.
    pub fn builder(path: impl AsRef<Path>) -> DatabaseBuilder {
        DatabaseBuilder::new(path.as_ref())
    }

    /// Opens the database in the directory `path` with the default settings, and creates it if
    /// there is none: [`DatabaseBuilder::open`] of [`Database::builder`].
    ///
    /// # Errors
    ///
    /// As [`DatabaseBuilder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder(path).open()
    }

    pub(crate) fn open_with(builder: DatabaseBuilder) -> Result<Self> {
        let core = open::open(builder)?;
        Ok(Self { handle: Arc::new(Handle { core, is_closed: false }) })
    }

    pub(crate) fn open_read_only(builder: DatabaseBuilder) -> Result<Self> {
        let core = beside::open_read_only(builder)?;
        Ok(Self { handle: Arc::new(Handle { core, is_closed: false }) })
    }

    fn core(&self) -> &Arc<Core> {
        &self.handle.core
    }

    /// The database's directory.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.core().shared.dir.clone()
    }

    /// Returns true if the database was [opened for reading only](DatabaseBuilder::open_read_only):
    /// operations that would write then fail.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.core().shared.is_read_only
    }

    /// The time in milliseconds since the Unix epoch up to which entries have expired for readers:
    /// see [`Keyspace::insert_until`].
    ///
    /// ```
    /// # fn main() -> rhumb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = rhumb::Database::open(dir.path())?;
    /// let before = db.expiry_ms();
    /// assert!(before > 0 && db.expiry_ms() >= before);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn expiry_ms(&self) -> u64 {
        self.core().shared.now_ms()
    }

    /// Opens the keyspace `name`, and creates it with `options` if it does not exist.
    ///
    /// If it exists, options that are set take effect for the tables that are written from now on,
    /// through all handles, and are stored. That costs one sync of the manifest and O(tables of the
    /// keyspace), and nothing if the keyspace has them already. Options that are not set stay as
    /// they are, so the default opens any keyspace as it is. Its partitions are fixed: requesting
    /// others than it has is an error.
    ///
    /// ```
    /// # fn main() -> rhumb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = rhumb::Database::builder(dir.path().join("db")).open()?;
    /// use rhumb::{KeyspaceOptions, TableOptions};
    ///
    /// let table = TableOptions { block_bytes: Some(1024), ..TableOptions::default() };
    /// db.keyspace("users", KeyspaceOptions { table, ..KeyspaceOptions::default() })?;
    /// let users = db.keyspace("users", KeyspaceOptions::default())?;
    /// assert_eq!(users.options().table.block_bytes, Some(1024));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for an empty name or one over 255 bytes, options out of their
    /// bounds, or partitions other than those of an existing keyspace; [`Error::Io`],
    /// [`Error::WritesStopped`]; [`Error::ReadOnly`] if the database is open for reading only and
    /// the keyspace does not exist or its options would change. After an error nothing was created
    /// or changed.
    ///
    /// [`Error::InvalidArgument`]: crate::Error::InvalidArgument
    /// [`Error::Io`]: crate::Error::Io
    /// [`Error::ReadOnly`]: crate::Error::ReadOnly
    /// [`Error::WritesStopped`]: crate::Error::WritesStopped
    pub fn keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        self.keyspaces([name], options)?
            .pop()
            .ok_or_else(|| Error::Internal("a name stands for one keyspace".into()))
    }

    /// [`Database::keyspace`] of several names: opens them, creates those that do not exist, and
    /// changes the options of those that have others; all or, after an error or a crash, none.
    /// Creating any number of keyspaces together costs one sync of the manifest; creating them one
    /// by one costs one sync each. Returns them in the order of their names.
    ///
    /// ```
    /// # fn main() -> rhumb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = rhumb::Database::builder(dir.path().join("db")).open()?;
    /// let names: Vec<String> = (0..1_000).map(|tenant| format!("tenant {tenant}")).collect();
    /// let tenants = db.keyspaces(&names, rhumb::KeyspaceOptions::default())?;
    /// tenants[7].insert("name", "ada")?;
    /// assert_eq!(tenants.len(), 1_000);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Database::keyspace`].
    pub fn keyspaces<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
        options: KeyspaceOptions,
    ) -> Result<Vec<Keyspace>> {
        let names: Vec<N> = names.into_iter().collect();
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        let inners = self.core().open_keyspaces(&names, &options)?;
        let open = |inner| Keyspace { handle: Arc::clone(&self.handle), inner };
        Ok(inners.into_iter().map(open).collect())
    }

    /// Returns true if there is a keyspace `name`.
    #[must_use]
    pub fn has_keyspace(&self, name: &str) -> bool {
        self.core().lock_catalog().keyspaces.contains_key(name)
    }

    /// The names of all keyspaces, ascending.
    #[must_use]
    pub fn keyspace_names(&self) -> Vec<String> {
        let catalog = self.core().lock_catalog();
        let mut names: Vec<String> = catalog.keyspaces.keys().map(|n| n.to_string()).collect();
        names.sort_unstable();
        names
    }

    /// Drops the keyspace `name` with all its data, durably, and frees its space. Takes the same
    /// time for any size. Returns false if there was none. Iterators and snapshots made before go
    /// on; any other use of the keyspace's handles fails.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io), [`Error::WritesStopped`](crate::Error::WritesStopped).
    pub fn drop_keyspace(&self, name: &str) -> Result<bool> {
        self.core().drop_keyspace(name)
    }

    /// An empty batch.
    #[must_use]
    pub fn batch(&self) -> Batch {
        Batch::new(Arc::clone(&self.handle))
    }

    /// Commits all batches that were [submitted](Batch::submit) and are not finished.
    pub fn commit_submitted(&self) {
        self.core().commit_submitted();
    }

    /// The database as it is now, to read from as long as the snapshot lives.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(Arc::clone(&self.handle))
    }

    /// [`Database::snapshot`] with every write that any read has found by now. A plain snapshot may
    /// lack a write that is being committed, although [`Keyspace::get`] finds its value already.
    /// Waits for the group of writes that is being committed.
    ///
    /// ```
    /// # fn main() -> rhumb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = rhumb::Database::builder(dir.path()).open()?;
    /// let users = db.keyspace("users", rhumb::KeyspaceOptions::default())?;
    /// users.insert("ada", "1815")?;
    /// assert_eq!(db.snapshot_after_commits()?.keyspace(&users)?.iter().count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Forked`](crate::Error::Forked).
    pub fn snapshot_after_commits(&self) -> Result<Snapshot> {
        self.core().shared.check_process()?;
        let _state = self.core().lock_write();
        Ok(self.snapshot())
    }

    /// Makes everything acknowledged so far survive the failures that `mode` names.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io) if the sync failed; all later writes then fail until the
    /// database is reopened.
    pub fn persist(&self, mode: PersistMode) -> Result<()> {
        self.core().persist(mode)
    }

    /// Writes the memtable to tables and waits for it.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io); the data stays in the log.
    pub fn flush(&self) -> Result<()> {
        self.core().flush()
    }

    /// Writes a copy of the database as it is now to the directory `path`, which must not exist or
    /// must be empty. Tables are shared by hard links, which takes little time and space. If the
    /// system refuses a link, mostly because `path` is on another file system, the file is copied.
    /// The copy is durable and opens as a database. After a failure nothing is left in `path`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io); [`Error::InvalidArgument`](crate::Error::InvalidArgument)
    /// if the directory is not empty; [`Error::ReadOnly`](crate::Error::ReadOnly) if the database
    /// is open for reading only, because the contents of its log would have to be written to tables
    /// first: copy the directory instead, which nothing changes meanwhile.
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        self.core().checkpoint(path.as_ref())
    }

    /// Closes the database and returns the result of the last flush, which a drop cannot. After an
    /// error, acknowledged writes are as safe as before: they are in the log, as far as it was
    /// synced.
    ///
    /// Files that it no longer needed are removed by then, or a moment later if a thread of this
    /// process was just reading another database. That does no harm: their numbers are never used
    /// again, and the next opening for writing removes what is left.
    ///
    /// ```
    /// # fn main() -> rhumb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = rhumb::Database::builder(dir.path().join("db")).open()?;
    /// db.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if there are other handles, keyspaces, snapshots, batches or
    /// iterators of it: it is closed when the last of them is dropped. [`Error::Io`] and
    /// [`Error::WritesStopped`] if the last writes could not be written to tables: it is closed all
    /// the same.
    ///
    /// [`Error::InvalidArgument`]: crate::Error::InvalidArgument
    /// [`Error::Io`]: crate::Error::Io
    /// [`Error::WritesStopped`]: crate::Error::WritesStopped
    pub fn close(self) -> Result<()> {
        let mut handle = Arc::try_unwrap(self.handle).map_err(|_| {
            Error::InvalidArgument("the database is in use by other handles of it".into())
        })?;
        handle.core.shared.check_process()?;
        handle.is_closed = true;
        handle.core.close()
    }

    /// Brings a database that is [open for reading only](DatabaseBuilder::open_read_only) up to
    /// what its writer, of this or another process, has written by now: reads the edits of the
    /// manifest and the records of the log since the last call. Returns the sequence number of the
    /// last write that reads see now, which never falls.
    ///
    /// What is seen is the state at one moment of the writer's history: a batch is seen whole or
    /// not at all, and every write before one that is seen. It may be newer than what the writer
    /// has acknowledged, by a write that is being committed. Snapshots and iterators that are open
    /// go on as they are, and hold the files that they need; other reads see the new state, those
    /// that run meanwhile some of it. Handles of a keyspace that the writer has dropped fail from
    /// then on.
    ///
    /// Costs a read of a small file and a listing of the directory if nothing was written;
    /// otherwise O(what was written), and O(tables and keyspaces) if the tables have changed, of
    /// which only the new ones are opened. One call runs at a time; others wait for it.
    ///
    /// ```
    /// # fn main() -> rhumb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("db");
    /// use rhumb::{Database, KeyspaceOptions};
    ///
    /// let db = Database::open(&path)?;
    /// let users = db.keyspace("users", KeyspaceOptions::default())?;
    /// let reader = Database::builder(&path).open_read_only()?;
    /// let seen = reader.keyspace("users", KeyspaceOptions::default())?;
    ///
    /// users.insert("ada", "1815")?;
    /// assert_eq!(seen.get("ada")?, None);
    /// assert_eq!(reader.catch_up()?, db.stats().sequence_number);
    /// assert_eq!(seen.get("ada")?.unwrap(), b"1815");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if the database is open for writing; [`Error::Corrupt`] if
    /// something durable is damaged; [`Error::Io`], also if the files are more than the descriptors
    /// that the process may have. After an error, reads see what they saw before, or a later state,
    /// and the next call tries again.
    ///
    /// [`Error::Corrupt`]: crate::Error::Corrupt
    /// [`Error::InvalidArgument`]: crate::Error::InvalidArgument
    /// [`Error::Io`]: crate::Error::Io
    pub fn catch_up(&self) -> Result<SeqNo> {
        self.core().catch_up()
    }

    /// The contents and activity of the database. Costs a walk over the table lists.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.core().stats()
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("path", &self.core().shared.dir).finish_non_exhaustive()
    }
}
