//! A backup in a directory of any file system.

use std::{
    collections::HashSet,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use rhumb_sync::primitive::Arc;

use super::{
    COPY_BYTES, TEMPORARY_ENDING,
    target::{Files, Give, Held, Take, Target},
};
use crate::{
    error::{Error, Result},
    io::{FileSystem, ReadMode, read_exact_at, retry, sync_dir, write_all},
};

/// The name of the file that is locked while a point is added or removed.
const LOCK_NAME: &str = "LOCK";

/// A directory.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) fs: Arc<dyn FileSystem>,
    pub(super) dir: PathBuf,
}

impl Target for Directory {
    fn place(&self) -> &Path {
        &self.dir
    }

    fn lock(&self) -> Result<Box<dyn Held + '_>> {
        let path = self.path(LOCK_NAME);
        let holder = format!("a backup of process {}", std::process::id());
        match self.fs.lock(&path, &holder) {
            Ok(lock) => Ok(Box::new(lock)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Err(Error::Locked { path, holder: "another backup".to_owned() })
            }
            Err(error) => Err(Error::io("lock", &path, error)),
        }
    }

    fn files(&self) -> Result<Files> {
        let names = retry("list", &self.dir, || self.fs.list(&self.dir))?;
        Ok(names.into_iter().map(|name| (name, None)).collect())
    }

    fn read(&self, name: &str, take: &mut Take<'_>) -> Result<()> {
        read_parts(&*self.fs, &self.path(name), take)
    }

    /// Writes the file under another name first. Its contents are durable, its name is not yet.
    fn add(&self, name: &str, len: u64, give: &mut Give<'_>) -> Result<()> {
        let (path, temporary) = (self.path(name), self.path(&format!("{name}{TEMPORARY_ENDING}")));
        let mut file = retry("create", &temporary, || self.fs.create(&temporary))?;
        let (mut part, mut left) = (vec![0; part_len(len)], len);
        while left > 0 {
            let part = &mut part[..part_len(left)];
            give(part)?;
            write_all(&mut *file, &temporary, part)?;
            left -= part.len() as u64;
        }
        retry("fsync", &temporary, || file.sync_all())?;
        retry("rename", &temporary, || self.fs.rename(&temporary, &path))
    }

    fn remove(&self, names: &HashSet<String>) -> Result<()> {
        names
            .iter()
            .map(|name| self.path(name))
            .try_for_each(|path| retry("remove", &path, || self.fs.remove_file(&path)))
    }

    fn sync(&self) -> Result<()> {
        sync_dir(&*self.fs, &self.dir).map(drop)
    }
}

/// The length of the next part, of what is left of a file.
fn part_len(left: u64) -> usize {
    COPY_BYTES.min(usize::try_from(left).unwrap_or(COPY_BYTES))
}

/// Reads a file in parts.
fn read_parts(fs: &dyn FileSystem, path: &Path, take: &mut Take<'_>) -> Result<()> {
    let file = retry("open", path, || fs.open(path, ReadMode::Buffered))?;
    let len = retry("stat", path, || file.len())?;
    let (mut part, mut at) = (vec![0; part_len(len)], 0);
    while at < len {
        let part = &mut part[..part_len(len - at)];
        read_exact_at(&*file, path, part, at)?;
        take(part)?;
        at += part.len() as u64;
    }
    Ok(())
}

/// Copies a file, and makes the copy durable, whose name is not.
pub(in crate::db) fn copy(fs: &dyn FileSystem, from: &Path, to: &Path) -> Result<()> {
    let mut target = retry("create", to, || fs.create(to))?;
    read_parts(fs, from, &mut |part| write_all(&mut *target, to, part))?;
    retry("fsync", to, || target.sync_all())
}
