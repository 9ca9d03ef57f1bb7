//! The door to files for a database that is opened read-only: everything that would change the disk
//! is refused here, so that no mistake of the layers above can write.
//!
//! The callers check first and refuse with an error that says more
//! ([`Error::ReadOnly`](crate::Error::ReadOnly)); a call that is refused here was not checked.

use std::{
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    FileLock, FileSystem, QueueUse, ReadMode, ReadQueue, ReadableFile, SyncFile, WritableFile,
};

fn refused() -> io::Error {
    io::Error::new(ErrorKind::ReadOnlyFilesystem, "the database is open for reading alone")
}

/// A file system of which only the reading calls are let through.
#[derive(Clone, Debug)]
pub(crate) struct ReadOnlyFs(pub(crate) Arc<dyn FileSystem>);

impl FileSystem for ReadOnlyFs {
    fn hold_dir(&self, dir: &Path) -> io::Result<Arc<dyn FileSystem>> {
        Ok(Arc::new(Self(self.0.hold_dir(dir)?)))
    }

    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        self.0.absolute(path)
    }

    fn is_symlink(&self, path: &Path) -> bool {
        self.0.is_symlink(path)
    }

    fn create_dir_all(&self, _path: &Path) -> io::Result<()> {
        Err(refused())
    }

    fn create(&self, _path: &Path) -> io::Result<Box<dyn WritableFile>> {
        Err(refused())
    }

    fn open(&self, path: &Path, mode: ReadMode) -> io::Result<Arc<dyn ReadableFile>> {
        self.0.open(path, mode)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Err(refused())
    }

    fn remove_file(&self, _path: &Path) -> io::Result<()> {
        Err(refused())
    }

    fn hard_link(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Err(refused())
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Err(refused())
    }

    fn lock(&self, _path: &Path, _holder: &str) -> io::Result<Box<dyn FileLock>> {
        Err(refused())
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.0.lock_shared(path)
    }

    fn descriptors_max(&self) -> Option<u64> {
        self.0.descriptors_max()
    }

    fn read_queue(&self, depth: u32, used: QueueUse) -> io::Result<Box<dyn ReadQueue>> {
        self.0.read_queue(depth, used)
    }
}

/// Stands for the lock of a database that is read beside its writer.
pub(crate) struct NoLock;

impl FileLock for NoLock {}

/// Stands for the files that an open database appends to, if there are none.
pub(crate) struct NoFile;

impl WritableFile for NoFile {
    fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
        Err(refused())
    }

    fn truncate(&mut self, _len: u64) -> io::Result<()> {
        Err(refused())
    }

    fn sync_data(&mut self) -> io::Result<()> {
        Err(refused())
    }

    fn sync_all(&mut self) -> io::Result<()> {
        Err(refused())
    }

    fn syncer(&self) -> Arc<dyn SyncFile> {
        Arc::new(Self)
    }
}

impl SyncFile for NoFile {
    fn sync_data(&self) -> io::Result<()> {
        Err(refused())
    }

    fn sync_all(&self) -> io::Result<()> {
        Err(refused())
    }
}
