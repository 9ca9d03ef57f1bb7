//! The state that all handles of an open database share.
//!
//! Lock order: `write`, then `catalog`, then a keyspace's `retired`, then `trees`, then
//! `mem_change`, then `snapshots`, then the work queue's. Readers take none of them: they load
//! `mem`, then the sub-tree's levels, in that order. A flush publishes its tables before it removes
//! its memtable, so that no reader misses an entry.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Weak,
};

use rhumb_sync::{
    deferred,
    drop_queue::DropQueue,
    primitive::{Arc, AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering},
    process::Process,
    published::Published,
};

use super::{
    background::Work,
    counters::Counters,
    health::Health,
    keyspace::KeyspaceInner,
    memory::Memory,
    write::{Pending, WriteState},
};
use crate::{
    error::{Error, Result},
    io::{Clock, FileLock, FileSystem},
    log::{LogWriter, segment::segment_path},
    memtable::MemView,
    options::DatabaseOptions,
    partition::Functions,
    table::TableContext,
    tree::Trees,
    types::{FileId, SeqNo, TreeId},
    version::{
        edit::{Edit, VersionEdit},
        manifest::Manifest,
        snapshots::Snapshots,
        state::CatalogState,
    },
};

/// The keyspaces, and the manifest that records them.
pub(crate) struct Catalog {
    pub(crate) state: CatalogState,
    pub(crate) manifest: Manifest,
    pub(crate) keyspaces: HashMap<Arc<str>, Arc<KeyspaceInner>>,
}

/// The name of the lock file.
pub(crate) const LOCK_NAME: &str = "LOCK";

/// The state that all handles of an open database share.
pub(crate) struct Core {
    pub(crate) dir: PathBuf,
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: DatabaseOptions,
    pub(crate) tables: Arc<TableContext>,
    pub(crate) mem: Published<MemView>,
    pub(crate) memory: Memory,
    /// Held while `mem` is replaced.
    pub(crate) mem_change: Mutex<()>,
    /// Every write up to this sequence number is in the memtables.
    pub(crate) visible: AtomicU64,
    pub(crate) write: Mutex<WriteState>,
    pub(crate) queue: Mutex<Vec<Arc<Pending>>>,
    pub(crate) catalog: Mutex<Catalog>,
    pub(crate) trees: Mutex<Trees>,
    /// The id of the next sub-tree.
    pub(crate) next_tree: AtomicU32,
    pub(crate) functions: Functions,
    pub(crate) snapshots: Snapshots,
    pub(crate) work: Work,
    pub(crate) counters: Counters,
    pub(crate) health: Health,
    /// The process that opened the database.
    pub(crate) process: Process,
    /// True if the database is open for reading only. Any operation that would write is refused.
    pub(crate) is_read_only: bool,
    /// Set by a failed sync or a panic: from then on nothing is acknowledged.
    pub(crate) stopped: Mutex<Option<Error>>,
    /// Set by a panic while the write lock or the catalog was held: the manifest may then differ
    /// from what it should say.
    pub(crate) unwound: AtomicBool,
    pub(crate) next_file: AtomicU64,
    /// Log segments older than this are no longer needed.
    pub(crate) log_floor: AtomicU64,
    /// Logs that are no longer needed but not yet removed.
    pub(crate) old_logs: Mutex<Vec<LogWriter>>,
    /// Replaced objects that wait to be dropped.
    pub(crate) drops: Arc<DropQueue>,
    /// Keyspaces that keep retired sub-trees for snapshots.
    pub(crate) retiring: Mutex<Vec<Weak<KeyspaceInner>>>,
    /// Held until the database is closed.
    pub(crate) lock: Box<dyn FileLock>,
}

impl Core {
    /// An id for a new file.
    pub(crate) fn new_file_id(&self) -> FileId {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    /// An id for a new sub-tree.
    pub(crate) fn new_tree_id(&self) -> TreeId {
        self.next_tree.fetch_add(1, Ordering::Relaxed)
    }

    /// The newest sequence number that reads may see.
    #[inline]
    pub(crate) fn visible_seq(&self) -> SeqNo {
        self.visible.load(Ordering::Acquire)
    }

    /// Stops all writes until the database is reopened.
    pub(crate) fn stop(&self, cause: &Error) {
        self.stopped.lock().get_or_insert_with(|| cause.clone());
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

    /// Replaces the memtables' view by the result of `change`.
    pub(crate) fn change_mem(&self, change: impl FnOnce(&MemView) -> MemView) {
        let _one = self.mem_change.lock();
        let next = change(&self.mem.get());
        self.mem.store(Arc::new(next));
    }

    /// Drops replaced objects that have no reader any more, and removes old logs: this frees memory
    /// and disk space. The caller holds no lock and may take its time.
    pub(crate) fn reclaim(&self) {
        // A flush could not take old logs out if another thread was writing just then.
        if let Some(mut state) = self.try_lock_write() {
            self.give_up_logs(&mut state);
        }
        let logs = std::mem::take(&mut *self.old_logs.lock());
        for log in logs {
            self.remove_file(&segment_path(&self.dir, log.header().id));
        }
        deferred::collect();
        self.drops.drop_all();
    }

    /// [`Core::reclaim`] after something large was dropped. Freeing its pages and blocks takes
    /// longer than the caller should wait, so the pool does it if it has a thread that is not
    /// compacting.
    pub(crate) fn reclaim_soon(&self) {
        if self.options.background_threads > 1 {
            self.work.wake();
        } else {
            self.reclaim();
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
}

/// The number of file ids that every manifest edit reserves. A file whose directory entry was lost
/// in a power cut leaves no trace, and its id must not be handed out again: stale sectors of it
/// would then carry valid checksums.
pub(crate) const RESERVED_FILES: u64 = 4096;

impl Catalog {
    /// Makes `edits` durable, all or none, and applies them to the state.
    ///
    /// After an error none of them happened, now or after a crash, unless writes are stopped. Even
    /// so, the files that they name must stay as they are until a later commit succeeds.
    pub(crate) fn commit(&mut self, core: &Core, edits: Vec<Edit>) -> Result<()> {
        let result = self.commit_edits(core, edits);
        core.health.note_edit(&result);
        result
    }

    fn commit_edits(&mut self, core: &Core, mut edits: Vec<Edit>) -> Result<()> {
        if core.unwound.load(Ordering::Acquire) {
            core.check_running()?;
        }
        core.check_lock().inspect_err(|cause| core.stop(cause))?;
        edits.push(self.next_ids(core));
        let edit = VersionEdit::from(edits);
        if self.manifest.is_broken() || self.manifest.is_outgrown() {
            self.replace_manifest(core)?;
        }
        if let Err(cause) = self.manifest.append(&edit) {
            // If the sync failed, the edits may come back after a crash. Writes that go on as if
            // the edits had not happened would then be lost, so a manifest without the edits must
            // take effect first.
            if self.manifest.is_undecided() {
                core.health.note_failed_sync();
            }
            if self.manifest.is_undecided() && self.replace_manifest(core).is_err() {
                core.stop(&cause);
            }
            return Err(cause);
        }
        self.state.apply(&edit).map_err(|what| {
            Error::corrupt(self.manifest.path(), 0, "edits that fit the state", what)
        })
    }

    /// Begins a new manifest with everything that is known to have happened.
    fn replace_manifest(&mut self, core: &Core) -> Result<()> {
        let id = core.new_file_id();
        let new = Manifest::create(&*core.fs, &core.dir, id, &self.state.records())?;
        let old = std::mem::replace(&mut self.manifest, new);
        core.remove_file(old.path());
        Ok(())
    }

    fn next_ids(&self, core: &Core) -> Edit {
        Edit::NextIds {
            file: core.next_file.load(Ordering::Relaxed) + RESERVED_FILES,
            tree: core.next_tree.load(Ordering::Relaxed),
            keyspace: self.state.next_keyspace,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Database, KeyspaceOptions, Partitioning,
        io::sim::SimFs,
        version::edit::{Edit, VersionEdit},
    };
    use rhumb_sync::primitive::Arc;

    /// The bytes that the manifest writes are bounded by its edits: a large catalog is not written
    /// anew at every edit.
    #[test]
    fn a_large_manifest_grows_by_its_edits() {
        let read = |name: &str| std::env::var(name).ok().map(|n| n.parse::<u32>().unwrap());
        let partitions = read("RHUMB_MANIFEST_PARTITIONS").unwrap_or(18_000);
        let edits = read("RHUMB_MANIFEST_EDITS").unwrap_or(150);
        let fs = SimFs::new(3);
        let builder = Database::builder("/db").file_system(Arc::new(fs.clone()));
        let db = builder.background_threads(0).open().unwrap();
        let partitioning = Partitioning::PrefixLength(4);
        let options = KeyspaceOptions { partitions: partitioning, ..KeyspaceOptions::default() };
        let root = db.keyspace("k", options).unwrap().inner.tree.get().id;
        let core = db.core();
        let mut written = Written::default();
        let mut commit = |edits: Vec<Edit>| {
            written.edits += VersionEdit::from(edits.clone()).encode().len() as u64;
            let before = fs.counts().bytes_written;
            core.lock_catalog().commit(core, edits).unwrap();
            written.all += fs.counts().bytes_written - before;
        };
        let create = |i: u32| {
            let name = format!("{i:0250}").into_bytes().into();
            Edit::CreatePartition { root, name, tree: core.new_tree_id() }
        };
        commit((0..partitions).map(create).collect());
        for i in 0..edits {
            commit(vec![create(partitions + i)]);
        }
        // Large edits, so that there are several snapshots.
        for part in 0..20 {
            let first = partitions + edits + part * 2_000;
            commit((first..first + 2_000).map(create).collect());
        }
        let snapshot = core.lock_catalog().state.snapshot().encode().len() as u64;
        assert!(snapshot > 4 << 20, "the test is about large ones: {snapshot} bytes");
        let most = 4 * written.edits + snapshot;
        assert!(written.all <= most, "{written:?} with a snapshot of {snapshot} bytes");
        println!("{written:?} with a snapshot of {snapshot} bytes");
        drop(db);
        let db = Database::builder("/db").file_system(Arc::new(fs)).open().unwrap();
        let known = db.core().lock_catalog().state.partitions_of(root).count();
        assert_eq!(known, (partitions + edits + 40_000) as usize);
    }

    #[derive(Debug, Default)]
    struct Written {
        edits: u64,
        all: u64,
    }
}
