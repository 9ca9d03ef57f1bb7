//! The part of an open database that every other part uses: its directory, file system, clock,
//! options, tables and counters, the ids of what is new, and the reasons why writes are refused.
//!
//! It takes part in no order of locks: its own locks are held for a moment, and nothing is locked
//! under them.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use rhumb_sync::{
    drop_queue::DropQueue,
    primitive::{Arc, AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering},
    process::Process,
};

use super::{counters::Counters, health::Health, memory::Memory, read_times::ReadTimes};
use crate::{
    error::{Error, Result},
    events::Event,
    expiry::{MILLIS_MAX, Millis},
    io::{Clock, FileLock, FileSystem},
    options::DatabaseOptions,
    partition::Functions,
    table::TableContext,
    types::{FileId, TreeId},
};

/// The name of the lock file.
pub(crate) const LOCK_NAME: &str = "LOCK";

/// The part of an open database that every other part uses.
pub(crate) struct Shared {
    pub(crate) dir: PathBuf,
    pub(crate) fs: Arc<dyn FileSystem>,
    /// As `fs`, and takes the files of cursors even if the database is open for reading only.
    pub(crate) cursor_fs: Arc<dyn FileSystem>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The latest time by which anything has expired.
    pub(crate) latest_ms: AtomicU64,
    /// True if entries that expire have been flushed: the manifest then keeps the clock.
    pub(crate) expires: AtomicBool,
    /// The sequence number of the last event that the manifest keeps for streams of changes.
    pub(crate) last_event: AtomicU64,
    pub(crate) options: DatabaseOptions,
    pub(crate) functions: Functions,
    pub(crate) tables: Arc<TableContext>,
    pub(crate) memory: Memory,
    pub(crate) counters: Counters,
    pub(crate) health: Health,
    pub(crate) read_times: ReadTimes,
    /// The process that opened the database.
    pub(crate) process: Process,
    /// True if the database is open for reading only. Any operation that would write is refused.
    pub(crate) is_read_only: bool,
    /// Set by a failed sync or a panic: from then on nothing is acknowledged.
    pub(crate) stopped: Mutex<Option<Error>>,
    /// Set by a panic while the write lock or the catalog was held: the manifest may then differ
    /// from what it should say.
    pub(crate) unwound: AtomicBool,
    /// The id of the next file.
    pub(crate) next_file: AtomicU64,
    /// The id of the next LSM tree.
    pub(crate) next_tree: AtomicU32,
    /// Replaced objects that wait to be dropped.
    pub(crate) drops: Arc<DropQueue>,
    /// The lock on the directory, held until the database is closed.
    pub(crate) lock: Box<dyn FileLock>,
}

impl Shared {
    /// The time by which entries expire, in milliseconds since the Unix epoch. It never goes back,
    /// whatever the system's clock does, nor before what the manifest states.
    pub(crate) fn now_ms(&self) -> Millis {
        let now = self.clock.expiry_ms().min(MILLIS_MAX);
        let latest = self.latest_ms.load(Ordering::Acquire);
        // planted: expiry-clock-back
        if now <= latest {
            return latest;
        }
        self.latest_ms.fetch_max(now, Ordering::AcqRel).max(now)
    }

    /// The time of day from which lifetimes are counted: not before [`Shared::now_ms`].
    pub(crate) fn wall_ms(&self) -> Millis {
        self.clock.wall_ms().min(MILLIS_MAX).max(self.latest_ms.load(Ordering::Acquire))
    }

    /// An id for a new file.
    pub(crate) fn new_file_id(&self) -> FileId {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    /// An id for a new LSM tree.
    pub(crate) fn new_tree_id(&self) -> TreeId {
        self.next_tree.fetch_add(1, Ordering::Relaxed)
    }

    /// Stops all writes until the database is reopened.
    pub(crate) fn stop(&self, cause: &Error) {
        let mut stopped = self.stopped.lock();
        if stopped.is_none() {
            *stopped = Some(cause.clone());
            drop(stopped);
            Event::Stopped { cause }.report(Duration::ZERO);
        }
    }

    /// Rejects a process that was forked from the one that opened the database. The threads that
    /// flush do not exist in it, and the log is the parent's. A thread that does not exist in it
    /// may hold a lock of the cache, of an arena or of the open files for good, so reads are
    /// refused too. Call this before any lock is taken.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.process.is_here() { Ok(()) } else { Err(self.forked()) }
    }

    /// Rejects operations that would write if the database is open for reading only, and a forked
    /// process as [`Core::check_process`] does. Call this before any lock is taken.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.is_read_only { Err(self.read_only()) } else { self.check_process() }
    }

    /// Rejects writes of the database's user, as [`Shared::check_writable`] does, and also if the
    /// database takes the changes of another one alone. Call this before any lock is taken.
    #[inline]
    pub(crate) fn check_takes_writes(&self) -> Result<()> {
        if self.options.is_replica { Err(self.read_only()) } else { self.check_writable() }
    }

    /// The error of an operation that would write.
    #[cold]
    pub(super) fn read_only(&self) -> Error {
        Error::ReadOnly { path: self.dir.clone() }
    }

    #[cold]
    fn forked(&self) -> Error {
        Error::Forked { opened_by: self.process.id() }
    }

    /// Returns the error of a stopped database, of one that the parent of this process opened, or
    /// of one that is open for reading only.
    pub(crate) fn check_running(&self) -> Result<()> {
        self.check_writable()?;
        match &*self.stopped.lock() {
            None => Ok(()),
            Some(cause) => Err(Error::WritesStopped(Arc::new(cause.clone()))),
        }
    }

    /// Makes the directory's entries durable.
    pub(crate) fn sync_dir(&self) -> Result<()> {
        crate::io::sync_dir(&*self.fs, &self.dir).map(drop)
    }

    /// Fails if the lock file is no longer the one that was locked: another process may have been
    /// let in.
    pub(crate) fn check_lock(&self) -> Result<()> {
        let path = self.dir.join(LOCK_NAME);
        self.lock.check().map_err(|error| Error::io("go on holding", path, error))
    }

    /// Removes a file that is no longer needed. A failure is counted, not reported: the file is
    /// removed at the next open.
    pub(crate) fn remove_file(&self, path: &Path) {
        if self.fs.remove_file(path).is_err() {
            self.counters.failed_removals.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Stops all writes, and all edits of the manifest, because a thread panicked during one.
    #[cold]
    pub(crate) fn stop_after_panic(&self) -> Error {
        let cause = Error::Internal("a thread panicked while it wrote".into());
        self.stop(&cause);
        self.unwound.store(true, Ordering::Release);
        cause
    }
}
