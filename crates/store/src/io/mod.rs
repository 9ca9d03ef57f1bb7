//! The door to files and to time: everything the engine does to a disk goes through these traits,
//! so that tests can cut the power, fail any call and replay any order.
//!
//! The traits are thin on purpose: a call may be short or interrupted, as in the operating system,
//! and the helpers at the end of this file do the looping. That way an injected short write meets
//! the same loop as a real one.
//!
//! The engine's use is narrow, and implementations may rely on it: a file is created once, written
//! by appending only, and never appended to again after it was closed; a file that is read as a
//! table is complete. Paths are never followed through a symbolic link.

pub mod aligned;
pub(crate) mod buffers;
pub(crate) mod engine;
pub(crate) mod frozen;
pub(crate) mod open_files;
mod pool;
pub(crate) mod priority;
pub mod queue;
pub(crate) mod read_only;
#[cfg(feature = "sim")]
pub mod sim;
#[cfg(unix)]
pub mod std_fs;
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
))]
mod uring;

use std::{
    fmt,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use crate::error::{Error, Result};

pub use aligned::AlignedBuf;
pub use queue::{
    QueueUse, QueueWaker, ReadDone, ReadEngineKind, ReadQueue, ReadRequest, read_full,
};
#[cfg(unix)]
use std::os::fd::BorrowedFd;
#[cfg(unix)]
pub use std_fs::StdFs;

/// How the blocks of a table reach memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadMode {
    /// Through the operating system's page cache.
    #[default]
    Buffered,
    /// Past the page cache (`O_DIRECT`): buffers are multiples of [`DIRECT_ALIGN`], offsets and
    /// lengths of [`ReadableFile::read_align`]. Falls back to buffered reads where the file system
    /// refuses.
    Direct,
}

/// The alignment, in bytes, of the memory of direct reads. Also that of their offsets and lengths
/// in files that do not ask for a smaller one ([`ReadableFile::read_align`]).
pub const DIRECT_ALIGN: usize = 4096;

/// A file system. Every path is absolute or relative to the process; all errors are the operating
/// system's own.
pub trait FileSystem: fmt::Debug + Send + Sync + 'static {
    /// Holds the directory `dir` open. The file system that is returned finds every path below
    /// `dir` from the held directory: callers go on passing whole paths, which then stay right when
    /// the directory is renamed, when another directory takes its name, and when the process
    /// changes its working directory. Other paths are found as before.
    ///
    /// # Errors
    ///
    /// Those of opening a directory; [`ErrorKind::Unsupported`] if this file system cannot hold
    /// one.
    fn hold_dir(&self, dir: &Path) -> io::Result<Arc<dyn FileSystem>> {
        let _ = dir;
        Err(ErrorKind::Unsupported.into())
    }
    /// The path that stands for `path` whatever the process's working directory becomes.
    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_owned())
    }
    /// Returns true if `path` itself is a symbolic link.
    fn is_symlink(&self, path: &Path) -> bool {
        let _ = path;
        false
    }
    /// Creates `path` and its missing parents, private to the user (0700). Not an error if it is
    /// there. The new entries are durable only after [`FileSystem::sync_dir`] on the parents.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Creates a new file, private to the user (0600), for appending. Fails if the path exists.
    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>>;
    /// Opens a file for reading.
    fn open(&self, path: &Path, mode: ReadMode) -> io::Result<Arc<dyn ReadableFile>>;
    /// Names (not paths) of the directory's entries, in any order.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Atomically renames `from` to `to`, replacing `to`. Durable after [`FileSystem::sync_dir`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file. Durable after [`FileSystem::sync_dir`].
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Gives the file `from` the second name `to`.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes all entries of the directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Takes the exclusive lock of the file `path`, creating it if need be, and of the directory
    /// that it is in, which cannot be unlinked while it has files. Writes `holder` into the file.
    /// `Err(WouldBlock)` if another holds either; a message in that error says more than the file
    /// does. The lock is released on drop.
    fn lock(&self, path: &Path, holder: &str) -> io::Result<Box<dyn FileLock>>;
    /// The number of descriptors that the process may have, if files take any; may raise the limit
    /// first. `None` (the default) if there is no limit.
    fn descriptors_max(&self) -> Option<u64> {
        None
    }
    /// Takes a lock that keeps [`FileSystem::lock`] of `path` out and that several readers may
    /// hold. It writes nothing: the file need not exist, and neither it nor its directory need be
    /// writable. `Err(WouldBlock)` if a writer holds the lock; the file says which. Only readers
    /// that cannot keep all their files open take it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] (the default) if this file system has no such lock.
    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let _ = path;
        Err(ErrorKind::Unsupported.into())
    }
    /// A queue that does up to `depth` reads of this file system's files at once.
    ///
    /// # Errors
    ///
    /// If there is none, or the system refuses it: threads then do the reads by
    /// [`ReadableFile::read_at`].
    fn read_queue(&self, depth: u32, used: QueueUse) -> io::Result<Box<dyn ReadQueue>> {
        let _ = (depth, used);
        Err(ErrorKind::Unsupported.into())
    }
}

/// A held lock; released when dropped.
pub trait FileLock: Send + Sync {
    /// Fails if the lock file is no longer the one that its name stands for: it was removed or
    /// replaced, alone or with its directory, and no longer keeps others out.
    fn check(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A file being written by appending.
pub trait WritableFile: Send + Sync {
    /// Appends a prefix of `bytes` and returns its length. May be short or interrupted.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// Cuts the file to `len` bytes; later appends go there.
    fn truncate(&mut self, len: u64) -> io::Result<()>;
    /// Makes the contents and the length durable (`fdatasync`).
    fn sync_data(&mut self) -> io::Result<()>;
    /// Makes contents and all metadata durable (`fsync`).
    fn sync_all(&mut self) -> io::Result<()>;
    /// The same open file, to sync it while others append to it.
    fn syncer(&self) -> Arc<dyn SyncFile>;
}

/// An open file that can only be synced. The system reports an error of the disk to one caller of
/// an open file and not to the next, so callers take turns and keep the error that they were told.
pub trait SyncFile: Send + Sync {
    /// As [`WritableFile::sync_data`], of what was appended before the call.
    fn sync_data(&self) -> io::Result<()>;
    /// As [`WritableFile::sync_all`], of what was appended before the call.
    fn sync_all(&self) -> io::Result<()>;
    /// Fails if the name by which the file was created no longer stands for it: it was removed,
    /// renamed or replaced, and what was appended to it cannot be found.
    fn check_name(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A file being read at any place, by many threads at once.
#[expect(clippy::len_without_is_empty, reason = "nobody asks whether a file is empty")]
pub trait ReadableFile: fmt::Debug + Send + Sync {
    /// Reads up to `buf.len()` bytes from `offset`; 0 at or past the end. May be short or
    /// interrupted.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// The length of the file in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Returns true if reads go past the page cache, and so must obey [`ReadableFile::read_align`].
    fn is_direct(&self) -> bool {
        false
    }
    /// The alignment of the offsets and lengths of reads, in bytes: a power of two of at most
    /// [`DIRECT_ALIGN`], and 1 where they may be any.
    fn read_align(&self) -> usize {
        if self.is_direct() { DIRECT_ALIGN } else { 1 }
    }
    /// The file that holds a descriptor for this one, and the place there of `len` bytes at
    /// `offset`. A caller that hands the descriptor to the kernel holds the file until the read has
    /// ended. `None` (the default) if this file is itself the one.
    ///
    /// # Errors
    ///
    /// If the file had to be opened again, and could not be.
    fn opened(&self, offset: u64, len: usize) -> io::Result<Option<(Arc<dyn ReadableFile>, u64)>> {
        let _ = (offset, len);
        Ok(None)
    }
    /// The open file's number, if it is one of the operating system's.
    #[cfg(unix)]
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Time, as the engine sees it.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// A monotonic instant.
    fn now(&self) -> Instant;
    /// The time of day in milliseconds since the Unix epoch. It may jump, also back.
    fn wall_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
    /// The time in milliseconds since the Unix epoch up to which entries have expired: the time of
    /// day, unless a program has something to do before an entry is gone for its readers, and says
    /// here how far it is. It may be earlier than the time of day, and may not be later.
    fn expiry_ms(&self) -> u64 {
        self.wall_ms()
    }
    /// Waits.
    fn sleep(&self, duration: Duration);
}

/// The operating system's own clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// Writes and syncs a file; replaces a leftover of that name.
pub(crate) fn write_new(
    fs: &dyn FileSystem,
    path: &Path,
    bytes: &[u8],
) -> Result<Box<dyn WritableFile>> {
    match retry("remove", path, || fs.remove_file(path)) {
        Err(error) if error.is_missing() => {}
        other => other?,
    }
    let mut file = retry("create", path, || fs.create(path))?;
    write_all(file.as_mut(), path, bytes)?;
    retry("fsync", path, || file.sync_all())?;
    Ok(file)
}

/// Appends all of `bytes`; `path` is for the error.
pub fn write_all(file: &mut dyn WritableFile, path: &Path, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(Error::io("write", path, ErrorKind::WriteZero.into())),
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::io("write", path, e)),
        }
    }
    Ok(())
}

/// Fills `buf` from `offset`, or reports the file as damaged if it ends before.
pub fn read_exact_at(
    file: &dyn ReadableFile,
    path: &Path,
    buf: &mut [u8],
    offset: u64,
) -> Result<()> {
    let result = read_full(file, buf, offset);
    check_read(path, offset, buf.len(), result)
}

/// Turns the result of a read of `len` bytes from `offset` into an error, if it is one.
pub(crate) fn check_read(
    path: &Path,
    offset: u64,
    len: usize,
    result: io::Result<usize>,
) -> Result<()> {
    let n = result.map_err(|e| Error::io_at("read", path, offset, e))?;
    if n == len {
        return Ok(());
    }
    Err(Error::corrupt(path, offset, format!("{len} bytes"), format!("{n} before the end")))
}

/// Holds the directory `dir` open, or goes on by paths where the file system cannot hold one.
pub(crate) fn hold_dir(fs: &Arc<dyn FileSystem>, dir: &Path) -> Result<Arc<dyn FileSystem>> {
    match retry("open directory", dir, || fs.hold_dir(dir)) {
        Err(Error::Io(e)) if e.source.kind() == ErrorKind::Unsupported => Ok(Arc::clone(fs)),
        other => other,
    }
}

/// Makes the entries of a directory durable. Returns false if the file system has no such sync:
/// CIFS and some that run in user space answer `EINVAL` or `ENOTSUP`, and keep entries in their own
/// order.
pub(crate) fn sync_dir(fs: &dyn FileSystem, dir: &Path) -> Result<bool> {
    match retry("sync directory", dir, || fs.sync_dir(dir)) {
        Ok(()) => Ok(true),
        Err(Error::Io(e))
            if matches!(e.source.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// The error of a file that is no longer where it was put.
pub(crate) fn moved_away(what: &'static str) -> io::Error {
    io::Error::new(ErrorKind::NotFound, what)
}

/// Retries a call that a signal interrupted, and names what failed.
pub fn retry<T>(
    operation: &'static str,
    path: &Path,
    mut call: impl FnMut() -> io::Result<T>,
) -> Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            other => return other.map_err(|e| Error::io(operation, path, e)),
        }
    }
}
