//! Any number of files through a bounded number of descriptors.
//!
//! A [`PooledFile`] opens its file at the first read and may lose the descriptor between two reads;
//! the next one opens it again. [`OpenFiles`] counts the descriptors of a database's tables and
//! takes one from a file that was not read lately (the clock algorithm) before another file gets
//! one.
//!
//! A file must stay under its name for as long as it is pooled. Tables do: their files are removed
//! when the last reader drops them. A reader beside a writer of another process has no such
//! promise: its files are [pinned](OpenFiles::pinned), which keeps every descriptor open until its
//! file is dropped. The system keeps a removed file as long as a descriptor of it is open.
//!
//! Thread safety and invariants:
//!
//! 1. A descriptor that a read is using stays open until the read has ended: reads hold an [`Arc`]
//!    of it.
//! 2. A file's slot is locked before the clock, and a thread that has the clock only tries to lock
//!    slots. So neither waits for the other.
//! 3. At most [`OpenFiles::max`] descriptors are open, and beyond them only those that reads are
//!    using.

use std::{
    collections::VecDeque,
    fmt, io,
    path::{Path, PathBuf},
    sync::Weak,
};

use rhumb_sync::primitive::{Arc, AtomicBool, AtomicU64, Mutex, Ordering};

use super::{FileSystem, ReadMode, ReadableFile};

#[cfg(unix)]
use std::os::fd::BorrowedFd;

/// The number of descriptors below the limit that the engine never uses: they are left to the
/// embedding program. A program that has just started holds 3 to 12.
const LEFT_TO_OTHERS: u64 = 64;
/// Of the rest, tables get all but one part in this many: logs, files that are being written, rings
/// of the kernel and the program's sockets share that part. An open database without tables holds 8
/// to 14.
const OTHERS_PART: u64 = 4;
/// The fewest descriptors that tables get, however low the limit: with 16, a read of 16 files at
/// once does not close and reopen its own files.
const OPEN_FILES_MIN: u64 = 16;
/// The bound where the file system names no limit; it is that of [`FileSystem::descriptors_max`] on
/// Linux.
const OPEN_FILES_UNLIMITED: u64 = 1 << 16;
/// Slots whose file is gone are swept once there are at least this many; any small number will do.
const STALE_MIN: u64 = 64;

/// The descriptors of a database's tables.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    max: u64,
    /// True if no file loses its descriptor.
    is_pinned: bool,
    /// The number of open descriptors.
    open: AtomicU64,
    /// The number of times that a file was opened.
    opens: AtomicU64,
    /// The slots that have a descriptor; the first one is looked at next. Slots whose file is gone
    /// stay until they are looked at.
    clock: Mutex<VecDeque<Weak<Slot>>>,
}

/// Holds a file's descriptor while it has one.
#[derive(Debug, Default)]
struct Slot {
    file: Mutex<Option<Arc<OpenFile>>>,
    /// Set by every read, cleared when the clock passes.
    used: AtomicBool,
}

impl OpenFiles {
    /// The descriptors of a database on `fs`: at most `max`, or what the limit of the process
    /// allows.
    pub(crate) fn new(fs: &dyn FileSystem, max: Option<u64>) -> Arc<Self> {
        Arc::new(Self::with(fs, max, false))
    }

    /// As [`OpenFiles::new`], for files that may be removed while they are pooled: each keeps its
    /// descriptor. A file more than `max` is an error, when it is opened.
    pub(crate) fn pinned(fs: &dyn FileSystem, max: Option<u64>) -> Arc<Self> {
        Arc::new(Self::with(fs, max, true))
    }

    fn with(fs: &dyn FileSystem, max: Option<u64>, is_pinned: bool) -> Self {
        let max = max.unwrap_or_else(|| {
            fs.descriptors_max().map_or(OPEN_FILES_UNLIMITED, |limit| {
                let left = limit.saturating_sub(LEFT_TO_OTHERS);
                left - left / OTHERS_PART
            })
        });
        Self {
            max: max.max(OPEN_FILES_MIN),
            is_pinned,
            open: AtomicU64::new(0),
            opens: AtomicU64::new(0),
            clock: Mutex::default(),
        }
    }

    /// The largest number of descriptors, not counting those that reads are using.
    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    /// The number of open descriptors.
    pub(crate) fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// The number of times that a file was opened.
    pub(crate) fn opens(&self) -> u64 {
        self.opens.load(Ordering::Relaxed)
    }

    /// Opens `path` for reading; it may lose its descriptor between reads.
    ///
    /// # Errors
    ///
    /// The errors of [`FileSystem::open`].
    pub(crate) fn pool(
        self: &Arc<Self>,
        fs: &Arc<dyn FileSystem>,
        path: &Path,
        mode: ReadMode,
    ) -> io::Result<Arc<PooledFile>> {
        let mut pooled = PooledFile {
            files: Arc::clone(self),
            fs: Arc::clone(fs),
            path: path.to_owned(),
            mode,
            len: 0,
            is_direct: false,
            read_align: 1,
            slot: Arc::default(),
        };
        let file = pooled.file()?;
        (pooled.len, pooled.is_direct) = (file.len()?, file.is_direct());
        pooled.read_align = file.read_align();
        Ok(Arc::new(pooled))
    }

    /// Opens a file once there is room for its descriptor.
    fn open_file(self: &Arc<Self>, file: &PooledFile) -> io::Result<Arc<OpenFile>> {
        if self.is_pinned {
            return self.open_pinned(file);
        }
        let place = Place::take(self);
        let opened = match file.fs.open(&file.path, file.mode) {
            // The program has used up its limit: tables make do with fewer descriptors for the
            // moment.
            Err(error) if is_out_of_descriptors(&error) => {
                self.close_idle(1 + self.max / OTHERS_PART);
                file.fs.open(&file.path, file.mode)?
            }
            other => other?,
        };
        self.opens.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(OpenFile { file: opened, _place: place }))
    }

    /// Opens a file for good, if there is room for its descriptor.
    fn open_pinned(self: &Arc<Self>, file: &PooledFile) -> io::Result<Arc<OpenFile>> {
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.max {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return Err(io::Error::other(format!(
                "{} files are open already, and a reader beside a writer keeps each of its files \
                 open: raise the limit of descriptors",
                self.max
            )));
        }
        let place = Place(Arc::clone(self));
        let opened = file.fs.open(&file.path, file.mode)?;
        self.opens.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(OpenFile { file: opened, _place: place }))
    }

    /// Adds a slot that has got a descriptor to the clock.
    fn watch(&self, slot: &Arc<Slot>) {
        if self.is_pinned {
            return;
        }
        let mut clock = self.clock.lock();
        // More than half of the slots are stale, so that the sweep costs O(1) for each file that
        // was opened.
        if clock.len() as u64 > 2 * self.open() + STALE_MIN {
            clock.retain(|slot| slot.strong_count() > 0);
        }
        clock.push_back(Arc::downgrade(slot));
    }

    /// Takes the descriptors of up to `wanted` files that were not read since the clock last passed
    /// them. Reads in progress keep theirs open until they end.
    fn close_idle(&self, wanted: u64) {
        let mut closed = Vec::new();
        let mut clock = self.clock.lock();
        // Each slot is looked at twice at most: the first time may only clear its `used` flag.
        for _ in 0..2 * clock.len() {
            if closed.len() as u64 >= wanted {
                break;
            }
            let Some(weak) = clock.pop_front() else { break };
            let Some(slot) = weak.upgrade() else { continue };
            if !slot.used.swap(false, Ordering::Relaxed)
                && let Some(mut file) = slot.file.try_lock()
            {
                closed.extend(file.take());
            } else {
                clock.push_back(weak);
            }
        }
        drop(clock);
        // Closing is a call of the operating system, so it is done after the clock's lock is
        // released.
        drop(closed);
    }
}

/// Room for one descriptor.
#[derive(Debug)]
struct Place(Arc<OpenFiles>);

impl Place {
    fn take(files: &Arc<OpenFiles>) -> Self {
        // Descriptors that were open beyond the bound, because reads were using them, are closed as
        // well: the number would otherwise stay as high as such reads have brought it.
        let open = files.open();
        if open >= files.max {
            files.close_idle(open - files.max + 1);
        }
        files.open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(files))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns true if the process or the system has no descriptor left.
#[cfg(unix)]
fn is_out_of_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Returns true if the process or the system has no descriptor left. How such an error looks on
/// this system is not known.
#[cfg(not(unix))]
fn is_out_of_descriptors(_: &io::Error) -> bool {
    false
}

/// A file that has a descriptor.
#[derive(Debug)]
struct OpenFile {
    file: Arc<dyn ReadableFile>,
    /// Released after the file is closed: fields are dropped in their order.
    _place: Place,
}

impl ReadableFile for OpenFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    fn read_align(&self) -> usize {
        self.file.read_align()
    }

    #[cfg(unix)]
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.descriptor()
    }
}

/// A file that has a descriptor while it is being read, and after that until other files need it.
pub(crate) struct PooledFile {
    files: Arc<OpenFiles>,
    fs: Arc<dyn FileSystem>,
    path: PathBuf,
    mode: ReadMode,
    len: u64,
    is_direct: bool,
    read_align: usize,
    slot: Arc<Slot>,
}

impl PooledFile {
    /// The open file; opens it if it has lost its descriptor.
    fn file(&self) -> io::Result<Arc<OpenFile>> {
        // A read that finds the flag set writes no line that other readers share.
        if !self.slot.used.load(Ordering::Relaxed) {
            self.slot.used.store(true, Ordering::Relaxed);
        }
        let mut slot = self.slot.file.lock();
        if let Some(file) = &*slot {
            return Ok(Arc::clone(file));
        }
        let file = self.files.open_file(self)?;
        *slot = Some(Arc::clone(&file));
        self.files.watch(&self.slot);
        Ok(file)
    }
}

impl fmt::Debug for PooledFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ReadableFile for PooledFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file()?.read_at(buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn is_direct(&self) -> bool {
        self.is_direct
    }

    fn read_align(&self) -> usize {
        self.read_align
    }

    fn opened(&self, offset: u64, _: usize) -> io::Result<Option<(Arc<dyn ReadableFile>, u64)>> {
        Ok(Some((self.file()?, offset)))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
