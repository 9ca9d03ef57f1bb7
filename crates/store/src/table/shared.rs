//! Files that several small tables share, so that a flush of thousands of keyspaces and partitions
//! writes one file and syncs once.
//!
//! A shared file is the tables' own bytes, one table after another. The length of each table is a
//! multiple of 4096 bytes, and so is its offset. The manifest says which table lies where. The file
//! is removed when the last table in it is obsolete; until then the bytes of the tables in use are
//! counted, so that compactions know which files are mostly dead.
//!
//! Thread safety: a [`SharedFile`] is immutable but for its counts.

use std::{
    collections::HashMap,
    fmt, io,
    path::{Path, PathBuf},
    sync::Weak,
};

use rhumb_sync::primitive::{Arc, AtomicU64, Mutex, Ordering};

use super::{TableContext, TableMeta, format::FILE_ALIGN_BYTES};
use crate::{
    error::{Error, Result},
    io::{FileSystem, ReadableFile, WritableFile, retry, write_all},
    types::FileId,
};

/// Where a table lies that shares a file with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TablePlace {
    /// The number in the file's name.
    pub file: FileId,
    /// Where the table begins in it, in bytes: a multiple of 4096.
    pub offset: u64,
}

/// The path of the shared file `id`.
pub(crate) fn shared_path(dir: &Path, id: FileId) -> PathBuf {
    dir.join(format!("{id:06}.set"))
}

/// The path of the file that holds a table.
pub(crate) fn home_path(dir: &Path, meta: &TableMeta) -> PathBuf {
    match meta.place {
        Some(place) => shared_path(dir, place.file),
        None => super::table_path(dir, meta.id),
    }
}

/// An open shared file.
#[derive(Debug)]
pub(crate) struct SharedFile {
    fs: Arc<dyn FileSystem>,
    path: PathBuf,
    file: Arc<dyn ReadableFile>,
    bytes: u64,
    /// Tables in it that are not obsolete, and their bytes.
    tables: AtomicU64,
    live_bytes: AtomicU64,
}

/// The shared files that are open.
#[derive(Debug, Default)]
pub(crate) struct SharedFiles(Mutex<HashMap<FileId, Weak<SharedFile>>>);

impl SharedFiles {
    /// The file that holds a table at `place`.
    fn get(&self, ctx: &TableContext, place: TablePlace) -> Result<Arc<SharedFile>> {
        let mut open = self.0.lock();
        if let Some(file) = open.get(&place.file).and_then(Weak::upgrade) {
            return Ok(file);
        }
        open.retain(|_, file| file.strong_count() > 0);
        let path = shared_path(&ctx.dir, place.file);
        let file = ctx
            .open_file(&path)
            .map_err(|error| error.or_missing("tables that the manifest names"))?;
        let bytes = retry("stat", &path, || file.len())?;
        let shared = Arc::new(SharedFile {
            fs: Arc::clone(&ctx.fs),
            path,
            file,
            bytes,
            tables: AtomicU64::new(0),
            live_bytes: AtomicU64::new(0),
        });
        open.insert(place.file, Arc::downgrade(&shared));
        Ok(shared)
    }
}

impl SharedFile {
    /// Bytes of the file, dead ones included.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns true if less than half of the file belongs to tables that are in use.
    pub(crate) fn is_sparse(&self) -> bool {
        self.live_bytes.load(Ordering::Relaxed) < self.bytes / 2
    }
}

/// A table's part of a shared file. Read as a file, it begins and ends with the table.
#[derive(Debug)]
pub(crate) struct SharedPart {
    shared: Arc<SharedFile>,
    offset: u64,
    len: u64,
}

impl SharedPart {
    /// Opens the part that `meta` describes, which lies at `place`, and counts it as in use.
    pub(crate) fn open(
        ctx: &TableContext,
        meta: &TableMeta,
        place: TablePlace,
    ) -> Result<Arc<Self>> {
        let shared = ctx.shared.get(ctx, place)?;
        let (offset, len) = (place.offset, meta.file_bytes);
        if !offset.is_multiple_of(FILE_ALIGN_BYTES as u64)
            || offset.checked_add(len).is_none_or(|end| end > shared.bytes)
        {
            let expected = format!("{len} bytes of table {}", meta.id);
            let found = format!("a file of {} bytes", shared.bytes);
            return Err(Error::corrupt(&shared.path, offset, expected, found));
        }
        shared.tables.fetch_add(1, Ordering::Relaxed);
        shared.live_bytes.fetch_add(len, Ordering::Relaxed);
        Ok(Arc::new(Self { shared, offset, len }))
    }

    /// The file that it is part of.
    pub(crate) fn file(&self) -> &SharedFile {
        &self.shared
    }

    /// Where it begins in the file.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Counts the table's bytes as dead, because it is obsolete. Called once.
    pub(crate) fn count_dead(&self) {
        self.shared.live_bytes.fetch_sub(self.len, Ordering::Relaxed);
    }

    /// Releases the part of an obsolete table that has no reader left; removes the file after the
    /// last of its tables.
    pub(crate) fn release(&self) -> io::Result<()> {
        if self.shared.tables.fetch_sub(1, Ordering::AcqRel) > 1 {
            return Ok(());
        }
        self.shared.fs.remove_file(&self.shared.path)
    }
}

impl ReadableFile for SharedPart {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = buf.len().min(left);
        if len == 0 {
            return Ok(0);
        }
        self.shared.file.read_at(&mut buf[..len], self.offset + offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn is_direct(&self) -> bool {
        self.shared.file.is_direct()
    }

    fn read_align(&self) -> usize {
        self.shared.file.read_align()
    }

    fn opened(&self, offset: u64, len: usize) -> io::Result<Option<(Arc<dyn ReadableFile>, u64)>> {
        // A read past the table's end is cut off by `read_at`.
        if offset.checked_add(len as u64).is_none_or(|end| end > self.len) {
            return Ok(None);
        }
        self.shared.file.opened(self.offset + offset, len)
    }
}

/// Writes a shared file, which is removed unless it is kept.
pub(crate) struct SharedWriter {
    fs: Arc<dyn FileSystem>,
    id: FileId,
    path: PathBuf,
    file: Box<dyn WritableFile>,
    bytes: u64,
    is_kept: bool,
}

impl SharedWriter {
    /// Starts the shared file `id`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file cannot be created.
    pub(crate) fn create(ctx: &TableContext, id: FileId) -> Result<Self> {
        let path = shared_path(&ctx.dir, id);
        let file = retry("create", &path, || ctx.fs.create(&path))?;
        let fs = Arc::clone(&ctx.fs);
        Ok(Self { fs, id, path, file, bytes: 0, is_kept: false })
    }

    /// Appends a whole table; returns where it lies.
    pub(crate) fn append(&mut self, table: &[u8]) -> Result<TablePlace> {
        let place = TablePlace { file: self.id, offset: self.bytes };
        write_all(&mut *self.file, &self.path, table)?;
        self.bytes += table.len() as u64;
        Ok(place)
    }

    /// Makes the file durable; the caller makes its name durable.
    pub(crate) fn sync(&mut self) -> Result<()> {
        retry("fdatasync", &self.path, || self.file.sync_data())
    }

    /// Keeps the file.
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for SharedWriter {
    fn drop(&mut self) {
        if !self.is_kept {
            // Best effort: a file that remains is unreferenced, and the next open removes it.
            let _ = self.fs.remove_file(&self.path);
        }
    }
}

impl fmt::Debug for SharedWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedWriter").field("path", &self.path).finish_non_exhaustive()
    }
}
