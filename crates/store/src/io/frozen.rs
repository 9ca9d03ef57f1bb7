//! A directory as it was when it was looked at: its names, and some of its files at the lengths
//! that they had, held open. What a writer appends, makes or removes afterwards is not seen.
//!
//! For inspections beside a writer. It writes nothing, and relies on files being written by
//! appending only.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    FileLock, FileSystem, QueueUse, ReadMode, ReadQueue, ReadableFile, WritableFile,
    read_only::ReadOnlyFs,
};

/// A file system of which one directory is held as it was.
#[derive(Debug)]
pub(crate) struct FrozenDir {
    fs: ReadOnlyFs,
    dir: PathBuf,
    names: BTreeSet<String>,
    files: HashMap<PathBuf, Arc<FrozenFile>>,
}

impl FrozenDir {
    /// The directory `dir` without any names.
    pub(crate) fn new(fs: &Arc<dyn FileSystem>, dir: &Path) -> Self {
        let (fs, dir) = (ReadOnlyFs(Arc::clone(fs)), dir.to_owned());
        Self { fs, dir, names: BTreeSet::new(), files: HashMap::new() }
    }

    /// Takes the names of the directory as they are now.
    pub(crate) fn list_now(&mut self) -> io::Result<()> {
        self.names = self.fs.list(&self.dir)?.into_iter().collect();
        Ok(())
    }

    /// The number of files that are held.
    pub(crate) fn held(&self) -> usize {
        self.files.len()
    }

    /// Holds the file `path` as it is now, unless it is held already.
    pub(crate) fn hold(&mut self, path: &Path) -> io::Result<()> {
        if !self.files.contains_key(path) {
            self.hold_again(path)?;
        }
        Ok(())
    }

    /// Holds the file `path` as it is now.
    pub(crate) fn hold_again(&mut self, path: &Path) -> io::Result<()> {
        let file = self.fs.open(path, ReadMode::Buffered)?;
        let len = file.len()?;
        self.files.insert(path.to_owned(), Arc::new(FrozenFile { file, len }));
        Ok(())
    }
}

impl FileSystem for FrozenDir {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.fs.create_dir_all(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.fs.create(path)
    }

    fn open(&self, path: &Path, mode: ReadMode) -> io::Result<Arc<dyn ReadableFile>> {
        match self.files.get(path) {
            Some(file) => Ok(Arc::clone(file) as Arc<dyn ReadableFile>),
            None => self.fs.open(path, mode),
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        if dir == self.dir { Ok(self.names.iter().cloned().collect()) } else { self.fs.list(dir) }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.fs.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.fs.remove_file(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.fs.hard_link(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.fs.sync_dir(dir)
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Box<dyn FileLock>> {
        self.fs.lock(path, holder)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.fs.lock_shared(path)
    }

    fn descriptors_max(&self) -> Option<u64> {
        self.fs.descriptors_max()
    }

    fn read_queue(&self, depth: u32, used: QueueUse) -> io::Result<Box<dyn ReadQueue>> {
        self.fs.read_queue(depth, used)
    }
}

/// A file at a length that it had.
#[derive(Debug)]
struct FrozenFile {
    file: Arc<dyn ReadableFile>,
    len: u64,
}

impl ReadableFile for FrozenFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = buf.len().min(left);
        self.file.read_at(&mut buf[..len], offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }
}
