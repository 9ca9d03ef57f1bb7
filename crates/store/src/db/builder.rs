//! The builder of a database: its settings and its components.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use rhumb_sync::primitive::Arc;

use super::Database;
use crate::{
    error::{Error, Result},
    io::{Clock, FileSystem, ReadEngineKind, ReadMode, StdFs, SystemClock},
    options::{DatabaseOptions, MemtableKind, PersistMode},
    partition::Functions,
};

/// The largest number of background threads. Each takes a stack, and no machine of today has cores
/// for more threads that all compact.
const BACKGROUND_THREADS_MAX: usize = 256;

/// The largest niceness of Linux (setpriority(2)).
const NICENESS_MAX: i32 = 19;

/// Opens a [`Database`].
///
/// ```
/// # fn main() -> rhumb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let db = rhumb::Database::builder(dir.path().join("db"))
///     .memory_budget_bytes(256 << 20)
///     .open()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a builder does nothing until it opens"]
pub struct DatabaseBuilder {
    pub(crate) path: PathBuf,
    pub(crate) options: DatabaseOptions,
    pub(crate) functions: Functions,
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl DatabaseBuilder {
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            options: DatabaseOptions::default(),
            functions: Functions::default(),
            fs: Arc::new(StdFs),
            clock: Arc::new(SystemClock),
        }
    }

    /// Sets whether a missing database is created (default: yes) or is an error.
    pub fn create_if_missing(mut self, create: bool) -> Self {
        self.options.create_if_missing = create;
        self
    }

    /// Memory for the database, in bytes. Default 512 MiB.
    ///
    /// Counted are memtables with their log records, cached blocks, pinned indexes and filters, and
    /// large values that reads returned, all of them in chunks as they were mapped
    /// ([`Stats::mapped_bytes`](crate::Stats::mapped_bytes)), and buffers of reads. Room for three
    /// memtables is reserved from the start, an eighth is left to the program's allocator, and the
    /// cache gets the rest: at least a sixteenth, in two chunks or more. Blocks that scans and
    /// compactions read ahead take at most a sixteenth, or 1 MiB: if many run at once, each reads
    /// less ahead.
    ///
    /// Not counted, except by that eighth: the blocks that reads wait for at one moment, what
    /// compactions and flushes collect for the tables that they write (their keys' hashes, the
    /// entries of open blocks, up to 4 MiB of a table that will share a file), and freed memory
    /// that the program's allocator keeps. Values that are given away
    /// ([`Keyspace::insert_owned`](crate::Keyspace::insert_owned)) stay where they are, and count
    /// as a part of their memtable. `rhumb bench memory` measures what is resident.
    pub fn memory_budget_bytes(mut self, bytes: u64) -> Self {
        self.options.memory_budget_bytes = bytes;
        self
    }

    /// The size at which a memtable is flushed, in bytes. Default 64 MiB. Up to three memtables
    /// are in memory at a time.
    pub fn memtable_bytes(mut self, bytes: u64) -> Self {
        self.options.memtable_bytes = bytes;
        self
    }

    /// The data structure of memtables. Default [`MemtableKind::Learned`]. Files do not depend on
    /// it.
    pub fn memtable_kind(mut self, kind: MemtableKind) -> Self {
        self.options.memtable_kind = kind;
        self
    }

    /// The size at which a compaction begins a new table, in bytes. Default 64 MiB. Tables of up to
    /// a sixteenth of it are small: they share files, and are joined with their neighbours until
    /// the result has at least half of this size.
    pub fn table_bytes(mut self, bytes: u64) -> Self {
        self.options.table_bytes = bytes;
        self
    }

    /// The size of level 1, in bytes; each deeper level is ten times larger. Default 256 MiB.
    pub fn level_one_bytes(mut self, bytes: u64) -> Self {
        self.options.level_one_bytes = bytes;
        self
    }

    /// The number of threads for flushes and compactions, at most 256. Default 2. With 0 the work
    /// is done inside the calls that cause it, which makes a run repeatable.
    pub fn background_threads(mut self, threads: usize) -> Self {
        self.options.background_threads = threads;
        self
    }

    /// How far the threads for flushes and compactions yield to other threads of the machine, from
    /// 0 (not at all) to 19; a larger number is that. Default 0. Where requests come
    /// one by one to a machine with few cores, niceness keeps them from waiting for a compaction's
    /// turn; writers that use all cores are slowed down earlier. Linux only.
    pub fn background_niceness(mut self, niceness: u8) -> Self {
        self.options.background_niceness = i32::from(niceness).min(NICENESS_MAX);
        self
    }

    /// Times one of `one_in` calls of `get` and `get_at_most`, for [`Stats::read_latency`]; 0, the
    /// default, times none. Two looks at the clock take some 50 ns, so with 64 the average read
    /// gets about 1 ns longer.
    ///
    /// ```
    /// # fn main() -> rhumb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = rhumb::Database::builder(dir.path().join("db")).timed_reads(64).open()?;
    /// let users = db.keyspace("users", rhumb::KeyspaceOptions::default())?;
    /// for _ in 0..640 {
    ///     users.get("ada")?;
    /// }
    /// let latency = db.stats().read_latency;
    /// assert_eq!(latency.count(), 10);
    /// println!("P99: {} ns", latency.quantile_ns(0.99));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`Stats::read_latency`]: crate::Stats::read_latency
    pub fn timed_reads(mut self, one_in: u32) -> Self {
        self.options.timed_reads = one_in;
        self
    }

    /// How blocks that are not cached are read. Default [`ReadMode::Buffered`].
    pub fn read_mode(mut self, mode: ReadMode) -> Self {
        self.options.read_mode = mode;
        self
    }

    /// How simultaneous reads are done: those of many keys, asynchronous ones, and read-ahead of
    /// scans. Default [`ReadEngineKind::Kernel`]; if the kernel refuses, threads do them.
    /// [`Stats::read_engine`](crate::Stats::read_engine) says which is used. If
    /// [`DatabaseBuilder::background_threads`] is 0, the thread that asks for a read does it.
    pub fn read_engine(mut self, kind: ReadEngineKind) -> Self {
        self.options.read_engine = kind;
        self
    }

    /// Sets whether scans read blocks before they reach them: more of them the longer a scan goes
    /// on, up to two mebibytes of each table that takes part. Default: yes. Without it, scans that
    /// end soon read no byte in vain.
    pub fn read_ahead(mut self, ahead: bool) -> Self {
        self.options.read_ahead = ahead;
        self
    }

    /// What a write survives if it does not say so itself. Default [`PersistMode::Buffer`].
    pub fn durability(mut self, mode: PersistMode) -> Self {
        self.options.durability = mode;
        self
    }

    /// The number of table files that are open at the same time; at least 16. Others are opened
    /// again when they are read, so that any number of tables fits below the limit of the process.
    /// Reads in progress keep their files open, so more files than this may be open.
    ///
    /// By default three quarters of what the limit leaves, less 64. Opening a database first raises
    /// the limit (`RLIMIT_NOFILE`) to 65,536, or as far as the system allows.
    /// [`Stats::open_files`](crate::Stats::open_files) says how many files are open, and
    /// [`Stats::file_opens`](crate::Stats::file_opens) how often one was opened.
    pub fn open_files_max(mut self, files: u64) -> Self {
        self.options.open_files_max = Some(files);
        self
    }

    /// Registers a function from keys to names of partitions, for keyspaces that are divided by
    /// [`Partitioning::Function`](crate::Partitioning::Function) of this name. It must return the
    /// same name for a key as long as the keyspace lives: otherwise the key is not found. A write
    /// of a key whose name has over 255 bytes is refused.
    pub fn partition_function(
        mut self,
        name: &str,
        function: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        self.functions.0.insert(name.to_owned(), Arc::new(function));
        self
    }

    /// The file system to use.
    pub fn file_system(mut self, fs: Arc<dyn FileSystem>) -> Self {
        self.fs = fs;
        self
    }

    /// The clock to use.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Opens the database, and recovers what was written after its last flush.
    ///
    /// # Errors
    ///
    /// [`Error::Locked`] if it is open already, here or in another process; [`Error::Corrupt`] if
    /// files that were made durable are damaged; [`Error::Io`] from the file system;
    /// [`Error::NotFound`] if there is no database and none shall be created;
    /// [`Error::InvalidArgument`] for settings that contradict each other, or if a keyspace is
    /// divided by a function that was not registered.
    pub fn open(self) -> Result<Database> {
        self.check()?;
        Database::open_with(self)
    }

    /// Sets whether a database that is opened for reading only follows the log (default: yes).
    /// Without it, reads see the tables alone: what was written up to the last flush, and drops,
    /// clearings and ingestions since. Opening then takes no memory for what was not flushed, and
    /// [`Database::catch_up`] finds something new only after a flush or another change of the
    /// tables. [`DatabaseBuilder::open`] always takes the log.
    ///
    /// ```
    /// # fn main() -> rhumb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("db");
    /// use rhumb::{Database, KeyspaceOptions};
    ///
    /// let db = Database::open(&path)?;
    /// let users = db.keyspace("users", KeyspaceOptions::default())?;
    /// users.insert("ada", "1815")?;
    /// let flushed = Database::builder(&path).follow_log(false).open_read_only()?;
    /// let seen = flushed.keyspace("users", KeyspaceOptions::default())?;
    /// assert_eq!(seen.get("ada")?, None);
    /// db.flush()?;
    /// flushed.catch_up()?;
    /// assert_eq!(seen.get("ada")?.unwrap(), b"1815");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`Database::catch_up`]: crate::Database::catch_up
    pub fn follow_log(mut self, follow: bool) -> Self {
        self.options.follow_log = follow;
        self
    }

    /// Sets whether the database is opened as a replica (default: no): it takes the changes of the
    /// database that it is a copy of, by [`Database::apply`], and refuses all other writes with
    /// [`Error::ReadOnly`]. A copy is made by [`Database::checkpoint`], or is a backup that was
    /// restored. Once it was opened for writes of its own, it is a database like any other, and can
    /// no longer be opened as a replica.
    ///
    /// [`Database::apply`]: crate::Database::apply
    /// [`Database::checkpoint`]: crate::Database::checkpoint
    pub fn replica(mut self, replica: bool) -> Self {
        self.options.is_replica = replica;
        self
    }

    /// Opens an existing database for reading only, and writes nothing at all to its directory. So
    /// the directory can be one without write permission, on a read-only file system, or on a full
    /// disk.
    ///
    /// Any number of processes, and of handles of one process, may have the database open for
    /// reading only at the same time, beside a process that has it open for writing, or this one. A
    /// writer may come, go and be killed meanwhile. A reader takes no lock and leaves nothing
    /// behind. It sees the database as it was at one moment, and goes on to a later one when it is
    /// told to ([`Database::catch_up`]). Files that the writer has removed stay readable, and take
    /// space, until the reader catches up and drops the snapshots and iterators that need them.
    ///
    /// A reader keeps all files of its tables open. If they are more than the descriptors that it
    /// may have ([`DatabaseBuilder::open_files_max`]), it keeps writers out instead, by a lock: it
    /// is refused beside a writer.
    ///
    /// What was written after the last flush is recovered in memory: everything in the log can be
    /// read, and stays in memtables until the writer has flushed it and the reader has caught up,
    /// even if that is more than the memory budget. It is what the memtables of the writer hold: at
    /// most three, each of its [`DatabaseBuilder::memtable_bytes`] and one more write;
    /// [`Stats::memtable_bytes`] says how much. A torn end of the log ends the recovery as in
    /// [`DatabaseBuilder::open`], and is left as it is. [`DatabaseBuilder::follow_log`] leaves the
    /// log out.
    ///
    /// Operations that would write fail with [`Error::ReadOnly`]: writes, flushes, compactions,
    /// checkpoints, and creating and dropping keyspaces. Reads, scans, snapshots and statistics
    /// work as usual, except that no models are trained while reading
    /// ([`Training::Adaptive`](crate::Training::Adaptive)).
    ///
    /// [`DatabaseBuilder::create_if_missing`], sizes of what is written, and
    /// [`DatabaseBuilder::durability`] have no effect here, and no background threads are started.
    ///
    /// ```
    /// # fn main() -> rhumb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("db");
    /// use rhumb::{Database, Error, KeyspaceOptions};
    ///
    /// let writer = Database::builder(&path).open()?;
    /// writer.keyspace("users", KeyspaceOptions::default())?.insert("ada", "1815")?;
    ///
    /// let db = Database::builder(&path).open_read_only()?;
    /// let users = db.keyspace("users", KeyspaceOptions::default())?;
    /// assert_eq!(users.get("ada")?.unwrap(), b"1815");
    /// assert!(matches!(users.insert("grace", "1906"), Err(Error::ReadOnly { .. })));
    /// assert!(matches!(Database::builder(&path).open(), Err(Error::Locked { .. })));
    /// drop(writer);
    /// let writer = Database::builder(&path).open()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`Database::catch_up`]: crate::Database::catch_up
    /// [`Stats::memtable_bytes`]: crate::Stats::memtable_bytes
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no database; [`Error::Locked`] if a process has it open for
    /// writing and the files cannot all stay open; otherwise as [`DatabaseBuilder::open`].
    pub fn open_read_only(self) -> Result<Database> {
        self.check()?;
        Database::open_read_only(self)
    }

    /// Rejects settings that contradict each other.
    fn check(&self) -> Result<()> {
        let options = &self.options;
        if options.memtable_bytes == 0 || options.table_bytes == 0 || options.level_one_bytes == 0 {
            return Err(Error::InvalidArgument("sizes must be larger than 0".into()));
        }
        if options.background_threads > BACKGROUND_THREADS_MAX {
            let what = format!(
                "{} background threads: there may be from 0 to {BACKGROUND_THREADS_MAX}",
                options.background_threads
            );
            return Err(Error::InvalidArgument(what.into()));
        }
        Ok(())
    }
}

impl fmt::Debug for DatabaseBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseBuilder")
            .field("path", &self.path)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_make_no_sense_are_refused() {
        for threads in [BACKGROUND_THREADS_MAX + 1, 1000, usize::MAX] {
            let opened = Database::builder("not made").background_threads(threads).open();
            assert!(matches!(opened, Err(Error::InvalidArgument(_))), "{threads}");
        }
    }
}
