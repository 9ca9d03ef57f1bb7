//! Files of a damaged disk: a part that the system cannot read is zeros, and the rest is read.
//! Nothing can be written here.

use std::{
    fmt,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use rhumb_sync::primitive::{Arc, Mutex};

use crate::{
    error::Result,
    io::{
        FileLock, FileSystem, ReadMode, ReadableFile, WritableFile, open_files::OpenFiles,
        read_full, read_only::ReadOnlyFs, retry,
    },
};

/// The number of bytes that are given up together where the system cannot read a file: a page, as
/// disks have no smaller sectors that fail alone.
const UNREADABLE_BYTES: usize = 4096;

/// No file has bytes from this offset on, by the limits of all systems, and a place within a table
/// may be added to it.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// A part of a file that the system could not read.
#[derive(Clone, Debug)]
pub(super) struct Unreadable {
    pub(super) path: PathBuf,
    pub(super) offset: u64,
    pub(super) error: String,
}

/// A file system that only reads, and whose files never fail once they are open.
#[derive(Debug)]
struct LossyFs {
    inner: ReadOnlyFs,
    unreadable: Arc<Mutex<Vec<Unreadable>>>,
}

/// The disk of a damaged store.
pub(super) struct Disk {
    pub(super) fs: Arc<dyn FileSystem>,
    files: Arc<OpenFiles>,
    unreadable: Arc<Mutex<Vec<Unreadable>>>,
}

impl Disk {
    pub(super) fn new(fs: Arc<dyn FileSystem>) -> Self {
        let lossy = LossyFs { inner: ReadOnlyFs(fs), unreadable: Arc::default() };
        let unreadable = Arc::clone(&lossy.unreadable);
        Self { files: OpenFiles::new(&lossy, None), fs: Arc::new(lossy), unreadable }
    }

    /// The parts that could not be read.
    pub(super) fn take_unreadable(&self) -> Vec<Unreadable> {
        std::mem::take(&mut self.unreadable.lock())
    }
}

impl FileSystem for LossyFs {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.inner.create(path)
    }

    fn open(&self, path: &Path, mode: ReadMode) -> io::Result<Arc<dyn ReadableFile>> {
        let file = self.inner.open(path, mode)?;
        let (path, unreadable) = (path.to_owned(), Arc::clone(&self.unreadable));
        Ok(Arc::new(LossyFile { file, path, unreadable }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_file(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.hard_link(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Box<dyn FileLock>> {
        self.inner.lock(path, holder)
    }

    fn descriptors_max(&self) -> Option<u64> {
        self.inner.descriptors_max()
    }
}

struct LossyFile {
    file: Arc<dyn ReadableFile>,
    path: PathBuf,
    unreadable: Arc<Mutex<Vec<Unreadable>>>,
}

impl LossyFile {
    /// Reads up to the next multiple of [`UNREADABLE_BYTES`], or gives that part up.
    fn read_small(&self, buf: &mut [u8], offset: u64) -> usize {
        let room = UNREADABLE_BYTES - (offset % UNREADABLE_BYTES as u64) as usize;
        let room = room.min(buf.len());
        let len = self.file.len().unwrap_or(u64::MAX).saturating_sub(offset);
        let now = usize::try_from(len).unwrap_or(usize::MAX).min(room);
        let buf = &mut buf[..now];
        match read_full(&*self.file, buf, offset) {
            Ok(read) => read,
            Err(error) => {
                buf.fill(0);
                let (path, error) = (self.path.clone(), error.to_string());
                self.unreadable.lock().push(Unreadable { path, offset, error });
                now
            }
        }
    }
}

impl ReadableFile for LossyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.file.read_at(buf, offset) {
            Err(e) if !matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {
                Ok(self.read_small(buf, offset))
            }
            other => other,
        }
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}

impl fmt::Debug for LossyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LossyFile").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A part of a file.
#[derive(Clone, Debug)]
pub(super) struct Region {
    pub(super) file: Arc<dyn ReadableFile>,
    pub(super) path: PathBuf,
    /// Where it begins in the file, in bytes.
    pub(super) base: u64,
    pub(super) len: u64,
}

impl Region {
    /// All of a file; `None` if it is not there or cannot be opened.
    pub(super) fn open(disk: &Disk, path: &Path) -> Option<Self> {
        let open = || disk.files.pool(&disk.fs, path, ReadMode::Buffered);
        let file = retry("open", path, open).ok()?;
        let len = file.len().ok()?;
        Some(Self { file, path: path.to_owned(), base: 0, len })
    }

    /// The part of `len` bytes from `base` on, as far as it is there. `base` may be any number.
    pub(super) fn part(&self, base: u64, len: u64) -> Self {
        let len = len.min(self.len.saturating_sub(base));
        Self { base: self.base.saturating_add(base).min(OFFSET_MAX), len, ..self.clone() }
    }

    /// Appends up to `len` bytes from `offset` of the region on; fewer at its end.
    pub(super) fn read(&self, offset: u64, len: u64, out: &mut Vec<u8>) -> Result<()> {
        let len = usize::try_from(len.min(self.len.saturating_sub(offset))).unwrap_or(usize::MAX);
        let start = out.len();
        out.resize(start + len, 0);
        let offset = self.base + offset;
        let read = retry("read", &self.path, || read_full(&*self.file, &mut out[start..], offset))?;
        out.truncate(start + read);
        Ok(())
    }

    /// [`Region::read`] into a buffer of its own.
    pub(super) fn bytes(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        self.read(offset, len, &mut out)?;
        Ok(out)
    }
}
