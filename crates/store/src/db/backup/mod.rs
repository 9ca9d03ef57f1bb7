//! Backups: points of a database in a directory of any file system or in a bucket, each of which
//! can be restored.
//!
//! Tables never change and their numbers are never used again. So a point is a list of tables with
//! the records of a manifest, and only tables that no earlier point has are copied. A point is
//! there once its list is: it is written last, and whole. What a backup that was ended has left is
//! not in a list, and the next one removes it.

#[cfg(feature = "object-store")]
mod bucket;
mod directory;
mod format;
mod kept;
mod target;

use std::{
    collections::HashMap,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use rhumb_sync::primitive::Arc;

use self::{
    format::{Point, PointFile},
    target::{Files, is_there},
};
use super::{Database, checkpoint::Content, core::Core};
use crate::{
    error::{Error, Result},
    events::{Event, Span, Work},
    io::retry,
};

pub(super) use directory::copy;
#[cfg(feature = "fuzzing")]
pub(crate) use format::{framed_point, recoded_point};
pub use kept::{BackupInfo, Backups};

/// How the names of files end that are not whole yet, in a directory.
const TEMPORARY_ENDING: &str = ".tmp";

/// How the names of points end.
const POINT_ENDING: &str = ".point";

/// Files are copied in parts of this many bytes: long enough that the disk takes the time, not the
/// calls.
const COPY_BYTES: usize = 1 << 20;

/// A backup that was made up may have a point of the last number.
const NO_NUMBERS: &str =
    "the points of the backup have used up their numbers: choose another place";

impl Database {
    /// Adds a point to the backup in the directory `path`, which is created if it is not there: the
    /// database as it is now, durable. Only tables that no earlier point has are copied, so that a
    /// backup after few writes takes little time and space. Writers go on meanwhile. A backup that
    /// fails or is ended, by a power cut too, leaves all earlier points as they are.
    ///
    /// The backup may be on another file system. It has points of one database only; that of a
    /// restored one is another. [`Backups`] lists, checks, restores and removes points.
    ///
    /// ```
    /// # fn main() -> rhumb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use rhumb::{Backups, Database, KeyspaceOptions};
    ///
    /// let db = Database::open(dir.path().join("db"))?;
    /// let films = db.keyspace("films", KeyspaceOptions::default())?;
    /// films.insert("1902", "A Trip to the Moon")?;
    /// let first = db.backup(dir.path().join("backup"))?;
    /// films.remove("1902")?;
    /// db.backup(dir.path().join("backup"))?;
    ///
    /// let backups = Backups::open(dir.path().join("backup"))?;
    /// assert_eq!(backups.list()?.len(), 2);
    /// backups.restore(first.number, dir.path().join("restored"))?;
    /// let restored = Database::open(dir.path().join("restored"))?;
    /// let films = restored.keyspace("films", KeyspaceOptions::default())?;
    /// assert!(films.contains_key("1902")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if the directory has backups of another database;
    /// [`Error::Locked`] if another backup is being made there; [`Error::Corrupt`] if a point there
    /// is damaged; [`Error::Io`]; [`Error::ReadOnly`] if the database is open for reading only.
    pub fn backup(&self, path: impl AsRef<Path>) -> Result<BackupInfo> {
        let (core, path) = (self.core(), path.as_ref());
        core.shared.check_writable()?;
        let fs = &core.shared.fs;
        let path = retry("find", path, || fs.absolute(path))?;
        core.backup(&Backups::create(Arc::clone(fs), path)?)
    }

    /// Adds a point to a backup, as [`Database::backup`] does, wherever it is: in a bucket too,
    /// with the feature `object-store` (`Backups::in_bucket`).
    ///
    /// # Errors
    ///
    /// As [`Database::backup`].
    pub fn backup_to(&self, backups: &Backups) -> Result<BackupInfo> {
        self.core().backup(backups)
    }
}

impl Core {
    fn backup(&self, backups: &Backups) -> Result<BackupInfo> {
        self.shared.check_writable()?;
        let span = Span::enter(Work::Backup);
        let _lock = backups.lock()?;
        let points = backups.points()?;
        let (content, identity) = self.flushed_content()?;
        if points.iter().any(|point| point.identity != identity) {
            let place = backups.place().display();
            let what = format!("{place} has backups of another database: choose another place");
            return Err(Error::InvalidArgument(what.into()));
        }
        let there = backups.remove_leftovers(&points)?;
        let added = self.add_point((backups, &points, &there), content, identity);
        if added.is_err() {
            // The room that it took may be what writers lack. The point is there at times, whose
            // last sync failed.
            let _ = backups.points().and_then(|points| backups.remove_leftovers(&points));
        }
        let info = added?;
        let (number, files) = (info.number, info.files as u64);
        span.report(&Event::BackedUp { number, files, copied_bytes: info.copied_bytes });
        Ok(info)
    }

    /// Adds a point with these contents after those points, to a backup that has these files.
    fn add_point(
        &self,
        (backups, points, there): (&Backups, &[Point], &Files),
        content: Content,
        identity: u64,
    ) -> Result<BackupInfo> {
        let known: HashMap<&str, &PointFile> =
            points.iter().flat_map(|point| &point.files).map(|file| (&*file.name, file)).collect();
        let (mut files, mut copied_bytes) = (Vec::new(), 0);
        for from in self.files_of(&content.state) {
            let name = name_of(&from);
            let before = known.get(&*name).copied();
            // One that the place has lost is copied again.
            // planted: backup-known-lost
            if let Some(file) = before.filter(|file| is_there(there, file)) {
                files.push(file.clone());
                continue;
            }
            let file = backups.add_file(&*self.shared.fs, &from, name, before)?;
            copied_bytes += file.len;
            files.push(file);
        }
        let last = points.iter().map(|point| point.number).max().unwrap_or(0);
        let number = last.checked_add(1).ok_or(Error::Exhausted(NO_NUMBERS.into()))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let point = Point {
            number,
            identity,
            seq: content.state.last_seq,
            time_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            manifest: content.manifest,
            files,
            records: content.records(),
        };
        backups.add_point(&point)?;
        Ok(BackupInfo { copied_bytes, ..BackupInfo::of(&point) })
    }
}

/// The name of a file of the engine.
fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::sim::SimFs;

    #[test]
    fn no_point_comes_after_the_last_number() {
        let fs: Arc<dyn crate::io::FileSystem> = Arc::new(SimFs::new(1));
        let db = Database::builder("/db").file_system(Arc::clone(&fs)).background_threads(0);
        let db = db.open().unwrap();
        let backups = Backups::create(fs, "/backup".into()).unwrap();
        db.backup_to(&backups).unwrap();
        let last = Point { number: u64::MAX, ..backups.points().unwrap().remove(0) };
        backups.add_point(&last).unwrap();
        let refused = db.backup_to(&backups);
        assert!(matches!(refused, Err(Error::Exhausted(_))), "{refused:?}");
        assert_eq!(backups.list().unwrap().len(), 2);
    }
}
