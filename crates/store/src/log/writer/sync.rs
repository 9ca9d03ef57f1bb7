//! Waiting for the disk: the syncs of one segment, one after the other, on any thread.
//!
//! The operating system reports a failure to one caller and lets the next one succeed, although the
//! bytes are lost. So every sync of a segment goes through [`Syncs`], which remembers a failure and
//! returns it to every later caller. Nothing else is known here of what a log is.

use std::{path::PathBuf, sync::Arc};

use rhumb_sync::primitive::Mutex;

use crate::{
    error::{Error, Result},
    io::{FileSystem, SyncFile, retry, sync_dir},
    types::FileId,
};

/// The syncs of one segment.
pub(super) struct Syncs {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    path: PathBuf,
    file: Arc<dyn SyncFile>,
    /// Locked during a sync; keeps the first failure.
    failure: Mutex<Option<Error>>,
}

impl Syncs {
    pub(super) fn new(
        fs: Arc<dyn FileSystem>,
        dir: PathBuf,
        path: PathBuf,
        file: Arc<dyn SyncFile>,
    ) -> Self {
        Self { fs, dir, path, file, failure: Mutex::new(None) }
    }

    fn sync(&self, run: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut failure = self.failure.lock();
        if let Some(cause) = &*failure {
            return Err(cause.clone());
        }
        let outcome = run();
        *failure = outcome.as_ref().err().cloned();
        outcome
    }

    /// Makes the file's contents durable, with all metadata if `all`.
    pub(super) fn sync_file(&self, all: bool) -> Result<()> {
        self.sync(|| {
            if all {
                retry("fsync", &self.path, || self.file.sync_all())
            } else {
                retry("fdatasync", &self.path, || self.file.sync_data())
            }
        })
    }

    /// Fails if the segment is no longer found by its name. To be called only for segments that are
    /// needed: the engine removes the others while a sync of them may be in progress.
    pub(super) fn check_name(&self) -> Result<()> {
        retry("append to", &self.path, || self.file.check_name())
    }

    /// Makes the file's name durable.
    pub(super) fn sync_name(&self) -> Result<()> {
        self.sync(|| sync_dir(&*self.fs, &self.dir).map(drop))
    }
}

/// A sync of a segment that is done apart from its writer.
pub(crate) struct SegmentSync {
    /// The segment.
    pub(crate) id: FileId,
    /// The place in the file up to which records are durable afterwards.
    pub(super) end: u64,
    /// `Some` if the file is synced; true if that includes all metadata.
    pub(super) file: Option<bool>,
    /// True if the name is synced.
    pub(super) name: bool,
    pub(super) syncs: Arc<Syncs>,
}

impl SegmentSync {
    /// Waits for the disk. Pass the outcome to [`super::LogWriter::end_sync`].
    pub(crate) fn run(&self) -> Result<()> {
        if let Some(all) = self.file {
            self.syncs.sync_file(all)?;
        }
        if self.name { self.syncs.sync_name() } else { Ok(()) }
    }
}
