//! Inspection of the files of a database: what is where, how well the models fit, and whether every
//! byte is what was written.
//!
//! An [`Inspector`] reads and never writes. It recovers nothing, so it also works on a damaged
//! database, and beside a writer: what is about a whole database is about one moment of it, whose
//! files are held open. Everything
//! is read with the code that the engine reads with; nothing here knows a format of its own.

mod check;
mod database;
mod explain;
mod frozen;
mod log;
mod manifest;
mod model;
mod report;
mod table;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use rhumb_sync::primitive::Arc;

use crate::{
    error::Result,
    io::{FileSystem, StdFs},
};

pub use report::{
    Answer, CheckReport, DatabaseReport, Explanation, KeyspaceReport, LevelReport, LogReport,
    ManifestReport, ModelReport, PartitionReport, Point, Problem, RecordContent, RecordReport,
    SegmentReport, SegmentStep, TableReport, TableStep,
};

#[cfg(test)]
pub(crate) use table::context as test_context;

/// A callback that gets the number of bytes read so far, and of all bytes.
pub type OnProgress<'a> = &'a mut dyn FnMut(u64, u64);

/// Looks into the files of databases.
///
/// ```
/// # fn main() -> rhumb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("db");
/// use rhumb::{Database, KeyspaceOptions, inspect::Inspector};
///
/// let db = Database::builder(&path).open()?;
/// db.keyspace("users", KeyspaceOptions::default())?.insert("ada", "1815")?;
/// drop(db);
///
/// let report = Inspector::new().check(&path, &mut |_, _| {})?;
/// assert!(report.is_sound());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Inspector {
    fs: Arc<dyn FileSystem>,
}

impl Default for Inspector {
    fn default() -> Self {
        Self::new()
    }
}

impl Inspector {
    /// An inspector of the operating system's files.
    #[must_use]
    pub fn new() -> Self {
        Self::with_file_system(Arc::new(StdFs))
    }

    /// An inspector of the files of `fs`.
    #[must_use]
    pub fn with_file_system(fs: Arc<dyn FileSystem>) -> Self {
        Self { fs }
    }

    /// The keyspaces, levels and files of the database in `dir`. Reads the manifest and the end of
    /// every table. Tables that cannot be read are among the report's problems.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) if the manifest is damaged,
    /// [`Error::NotFound`](crate::Error::NotFound) if there is no database,
    /// [`Error::Io`](crate::Error::Io).
    pub fn database(&self, dir: impl AsRef<Path>) -> Result<DatabaseReport> {
        database::report(&self.fs, dir.as_ref())
    }

    /// The contents of the table in the file `path`, and how it was written.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) if its end is damaged,
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if `path` is not named like a
    /// table, [`Error::Io`](crate::Error::Io).
    pub fn table(&self, path: impl AsRef<Path>) -> Result<TableReport> {
        Ok(table::describe(&*table::open_path(&self.fs, path.as_ref())?))
    }

    /// The model of the table in the file `path`, with up to `points` keys and their places. Reads
    /// every key.
    ///
    /// # Errors
    ///
    /// As [`Inspector::table`], and if a block is damaged.
    pub fn model(
        &self,
        path: impl AsRef<Path>,
        points: usize,
        on_progress: OnProgress<'_>,
    ) -> Result<ModelReport> {
        model::report(&*table::open_path(&self.fs, path.as_ref())?, points, on_progress)
    }

    /// The records of the log segment in the file `path`. Damage is part of the report.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if `path` is not named like a
    /// log, [`Error::Io`](crate::Error::Io).
    pub fn log(&self, path: impl AsRef<Path>) -> Result<LogReport> {
        log::report(&*self.fs, path.as_ref())
    }

    /// The edits of the manifest in the file `path`. Damage is part of the report.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if `path` is not named like a
    /// manifest, [`Error::Io`](crate::Error::Io).
    pub fn manifest(&self, path: impl AsRef<Path>) -> Result<ManifestReport> {
        manifest::report(&*self.fs, path.as_ref())
    }

    /// Reads every byte of the database in `dir` and verifies it: checksums, the order of keys, the
    /// statements of tables and manifest, every key through its index and its filter, large values,
    /// and the log. Works beside a writer, like
    /// [`open_read_only`](crate::DatabaseBuilder::open_read_only), and writes nothing: what is
    /// checked is the database at the moment of the call.
    ///
    /// # Errors
    ///
    /// [`Error::Locked`](crate::Error::Locked) if the database is open for writing and has more
    /// files than the process may have open, [`Error::NotFound`](crate::Error::NotFound) if there
    /// is none. Damage, and files that cannot be read, are part of the report.
    pub fn check(&self, dir: impl AsRef<Path>, on_progress: OnProgress<'_>) -> Result<CheckReport> {
        check::check(&self.fs, dir.as_ref(), on_progress)
    }
}

/// The files of a database's directory, as paths, in order.
fn list(fs: &dyn FileSystem, dir: &Path) -> Result<Vec<PathBuf>> {
    let mut names = crate::io::retry("list", dir, || fs.list(dir))?;
    names.sort();
    Ok(names.into_iter().map(|name| dir.join(name)).collect())
}

/// The length of a file in bytes.
fn file_bytes(fs: &dyn FileSystem, path: &Path) -> Result<u64> {
    let file = crate::io::retry("open", path, || fs.open(path, crate::io::ReadMode::Buffered))?;
    crate::io::retry("read the length of", path, || file.len())
}
