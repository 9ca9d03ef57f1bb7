//! Where a backup lies: files by their names, each of which is there whole or not at all. Knows
//! nothing of points, and decides nothing.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    path::{Path, PathBuf},
};

use super::format::PointFile;
use crate::error::Result;

/// Fills parts of a file that is added. They are asked for in order, each once.
pub(super) type Give<'a> = dyn FnMut(&mut [u8]) -> Result<()> + Send + 'a;

/// Takes parts of a file that is read, in order.
pub(super) type Take<'a> = dyn FnMut(&[u8]) -> Result<()> + Send + 'a;

/// The names of all files of a place, with their lengths in bytes where it tells these too.
pub(super) type Files = HashMap<String, Option<u64>>;

/// Returns true if a file is among those that a place has, and has its length as far as that is
/// known.
pub(super) fn is_there(files: &Files, file: &PointFile) -> bool {
    files.get(&file.name).is_some_and(|len| len.is_none_or(|len| len == file.len))
}

/// What keeps others from adding and removing, as long as it lives.
pub(super) trait Held {}

impl<T: ?Sized> Held for T {}

/// A place for a backup.
pub(super) trait Target: fmt::Debug + Send + Sync + 'static {
    /// Where it is, for people.
    fn place(&self) -> &Path;

    /// Where the file of this name is, for people.
    fn path(&self, name: &str) -> PathBuf {
        self.place().join(name)
    }

    /// Keeps others from adding and removing points, or fails with
    /// [`Error::Locked`](crate::Error::Locked).
    fn lock(&self) -> Result<Box<dyn Held + '_>>;

    /// All files.
    fn files(&self) -> Result<Files>;

    /// Reads a file from its beginning to its end.
    fn read(&self, name: &str, take: &mut Take<'_>) -> Result<()>;

    /// Adds a file of `len` bytes. After a failure it may be there nevertheless, and is whole then.
    fn add(&self, name: &str, len: u64, give: &mut Give<'_>) -> Result<()>;

    /// Removes files. One that is not there is no error in a bucket, where another try may have
    /// removed it.
    fn remove(&self, names: &HashSet<String>) -> Result<()>;

    /// Makes durable which files there are.
    fn sync(&self) -> Result<()>;
}
