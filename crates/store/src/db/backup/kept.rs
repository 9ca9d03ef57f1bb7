//! The points of a backup: a list of them, checks, restoring and removing.

use std::{
    collections::HashSet,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use rhumb_sync::primitive::Arc;
use xxhash_rust::xxh3::Xxh3Default;

use super::{
    POINT_ENDING, TEMPORARY_ENDING,
    directory::Directory,
    format::{Point, PointFile},
    target::{Files, Held, Take, Target, is_there},
};
use crate::{
    error::{Error, Result},
    io::{FileSystem, ReadMode, read_exact_at, retry, std_fs::StdFs, sync_dir, write_all},
    types::SeqNo,
    version::manifest::{Manifest, remove_created},
};

/// The largest point that is read: one of ten million tables.
const POINT_BYTES_MAX: usize = 1 << 30;

/// A point of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupInfo {
    /// Its number: 1 for the first one; each that is added has the next.
    pub number: u64,
    /// When it was made, in milliseconds since 1970.
    pub time_ms: u64,
    /// The sequence number of the last write in it.
    pub sequence_number: SeqNo,
    /// How many files it has.
    pub files: usize,
    /// The bytes of all its files.
    pub bytes: u64,
    /// The bytes of the files that were copied for it. Known to the backup that made it alone, and
    /// 0 in lists.
    pub copied_bytes: u64,
}

impl BackupInfo {
    pub(super) fn of(point: &Point) -> Self {
        Self {
            number: point.number,
            time_ms: point.time_ms,
            sequence_number: point.seq,
            files: point.files.len(),
            bytes: point.files.iter().map(|file| file.len).sum(),
            copied_bytes: 0,
        }
    }
}

/// The points of a backup in a directory or in a bucket, which
/// [`Database::backup`](crate::Database::backup) and
/// [`Database::backup_to`](crate::Database::backup_to) make. None of this needs the database.
#[derive(Debug)]
pub struct Backups {
    target: Box<dyn Target>,
    /// Where databases are restored to.
    fs: Arc<dyn FileSystem>,
}

impl Backups {
    /// The backup in the directory `path`. Reads nothing yet.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such directory; [`Error::Io`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_on(Arc::new(StdFs), path.as_ref())
    }

    /// [`Backups::open`] on another file system.
    ///
    /// # Errors
    ///
    /// As [`Backups::open`].
    #[doc(hidden)]
    pub fn open_on(fs: Arc<dyn FileSystem>, path: &Path) -> Result<Self> {
        let dir = retry("find", path, || fs.absolute(path))?;
        match fs.list(&dir) {
            Ok(_) => Ok(Self::of_directory(fs, dir)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(Error::NotFound(format!("there is no backup in {}", dir.display()).into()))
            }
            Err(error) => Err(Error::io("list", dir, error)),
        }
    }

    /// The backup in a directory, which is created if it is not there.
    pub(super) fn create(fs: Arc<dyn FileSystem>, dir: PathBuf) -> Result<Self> {
        retry("create directory", &dir, || fs.create_dir_all(&dir))?;
        if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            sync_dir(&*fs, parent)?;
        }
        Ok(Self::of_directory(fs, dir))
    }

    fn of_directory(fs: Arc<dyn FileSystem>, dir: PathBuf) -> Self {
        let target = Directory { fs: Arc::clone(&fs), dir };
        Self { target: Box::new(target), fs }
    }

    /// The backup in a bucket, whose objects lie under `prefix`, which may be empty. Needs the
    /// feature `object-store`, which brings the crate [`object_store`](crate::object_store) without
    /// any of its clouds: the program chooses those among that crate's own features. Reads nothing
    /// yet.
    ///
    /// Files longer than 8 MiB are sent in parts; a program that dies meanwhile may leave parts
    /// that no list shows, which a rule of the bucket for incomplete uploads removes. Up to 32 MiB
    /// of memory are taken. Calls wait for the bucket, and may be made within an asynchronous
    /// task all the same, though they block its thread.
    ///
    /// A bucket has no lock that ends with its holder. So no other process may add or remove points
    /// while one does; a point that another one adds at the same time is not replaced.
    ///
    /// ```
    /// # fn main() -> rhumb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use std::sync::Arc;
    ///
    /// use rhumb::{Backups, Database, KeyspaceOptions, object_store::memory::InMemory};
    ///
    /// let db = Database::open(dir.path().join("db"))?;
    /// let films = db.keyspace("films", KeyspaceOptions::default())?;
    /// films.insert("1902", "A Trip to the Moon")?;
    ///
    /// let backups = Backups::in_bucket(Arc::new(InMemory::new()), "backups/films")?;
    /// let point = db.backup_to(&backups)?;
    /// backups.verify(point.number)?;
    /// backups.restore(point.number, dir.path().join("restored"))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if the prefix is none: it has empty parts, or characters that
    /// objects' names may not have; [`Error::Io`].
    #[cfg(feature = "object-store")]
    pub fn in_bucket(
        store: std::sync::Arc<dyn object_store::ObjectStore>,
        prefix: &str,
    ) -> Result<Self> {
        let target = super::bucket::Bucket::new(store, prefix)?;
        Ok(Self { target: Box::new(target), fs: Arc::new(StdFs) })
    }

    /// The same backup, which restores databases to another file system.
    #[doc(hidden)]
    #[must_use]
    pub fn restoring_on(self, fs: Arc<dyn FileSystem>) -> Self {
        Self { fs, ..self }
    }

    /// Where the backup is, for people.
    pub(super) fn place(&self) -> &Path {
        self.target.place()
    }

    /// Keeps others from adding and removing points.
    pub(super) fn lock(&self) -> Result<Box<dyn Held + '_>> {
        self.target.lock()
    }

    /// All points, ascending by their numbers.
    pub(super) fn points(&self) -> Result<Vec<Point>> {
        let mut points = Vec::new();
        for name in self.target.files()?.into_keys() {
            if let Some(number) = number_of(&name) {
                points.push(self.point(number, &name)?);
            }
        }
        points.sort_by_key(|point| point.number);
        Ok(points)
    }

    fn point(&self, number: u64, name: &str) -> Result<Point> {
        let (path, mut bytes) = (self.target.path(name), Vec::new());
        self.target.read(name, &mut |part| {
            if bytes.len() + part.len() > POINT_BYTES_MAX {
                let found = "more bytes".to_owned();
                return Err(Error::corrupt(&path, 0, "a point of at most 1 GiB", found));
            }
            bytes.extend_from_slice(part);
            Ok(())
        })?;
        let point = Point::decode(&bytes).map_err(|fault| {
            Error::corrupt(&path, fault.offset as u64, fault.expected, "other bytes")
        })?;
        if point.number != number {
            let found = format!("point {}", point.number);
            return Err(Error::corrupt(&path, 8, format!("point {number}"), found));
        }
        Ok(point)
    }

    /// The point with a number.
    fn numbered(&self, number: u64) -> Result<Point> {
        let found = self.points()?.into_iter().find(|point| point.number == number);
        found.ok_or_else(|| {
            let what = format!("{} has no point {number}", self.place().display());
            Error::NotFound(what.into())
        })
    }

    /// All points, ascending by their numbers. O(files of all points).
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if one is damaged; [`Error::Io`].
    pub fn list(&self) -> Result<Vec<BackupInfo>> {
        Ok(self.points()?.iter().map(BackupInfo::of).collect())
    }

    /// Reads all files of a point and compares them with what was copied.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such point; [`Error::Corrupt`] if a file is not what it
    /// was; [`Error::Io`], for one that is missing too.
    pub fn verify(&self, number: u64) -> Result<()> {
        self.numbered(number)?.files.iter().try_for_each(|file| self.read(file, &mut |_| Ok(())))
    }

    /// Reads a file, and compares it with what was backed up.
    fn read(&self, expected: &PointFile, take: &mut Take<'_>) -> Result<()> {
        let (mut len, mut hasher) = (0, Xxh3Default::new());
        self.target.read(&expected.name, &mut |part| {
            len += part.len() as u64;
            hasher.update(part);
            take(part)
        })?;
        let checksum = hasher.digest();
        if (len, checksum) == (expected.len, expected.checksum) {
            return Ok(());
        }
        Err(expected.differs(&self.target.path(&expected.name), (len, checksum)))
    }

    /// Makes a database of a point, durable, in the directory `target`, which must not exist or
    /// must be empty; it may be on another file system. Every file is compared with what was backed
    /// up on the way. After a failure nothing is left in `target`.
    ///
    /// # Errors
    ///
    /// As [`Backups::verify`]; [`Error::InvalidArgument`] if the directory is not empty.
    pub fn restore(&self, number: u64, target: impl AsRef<Path>) -> Result<()> {
        let (fs, target) = (&*self.fs, target.as_ref());
        let target = &*retry("find", target, || fs.absolute(target))?;
        let point = self.numbered(number)?;
        retry("create directory", target, || fs.create_dir_all(target))?;
        if !retry("list", target, || fs.list(target))?.is_empty() {
            let what = format!("{} is not empty: restore to a new directory", target.display());
            return Err(Error::InvalidArgument(what.into()));
        }
        let mut made = Vec::new();
        let restored = self.restore_to(&point, target, &mut made);
        if restored.is_err() {
            made.iter().for_each(|path| drop(fs.remove_file(path)));
            let _ = sync_dir(fs, target);
        }
        restored
    }

    fn restore_to(&self, point: &Point, target: &Path, made: &mut Vec<PathBuf>) -> Result<()> {
        let fs = &*self.fs;
        for file in &point.files {
            let to = target.join(&file.name);
            made.push(to.clone());
            let mut copy = retry("create", &to, || fs.create(&to))?;
            self.read(file, &mut |part| write_all(&mut *copy, &to, part))?;
            retry("fsync", &to, || copy.sync_all())?;
        }
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
        let created = Manifest::create(fs, target, point.manifest, &point.records)
            .and_then(|_| sync_dir(fs, parent.unwrap_or(Path::new("."))).map(drop));
        if created.is_err() {
            remove_created(fs, target, point.manifest);
        }
        created
    }

    /// Removes a point, and the files that no other point has.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such point; [`Error::Corrupt`] if a point is damaged;
    /// [`Error::Locked`] if a backup is being made; [`Error::Io`].
    pub fn remove(&self, number: u64) -> Result<()> {
        let _lock = self.lock()?;
        let mut points = self.points()?;
        let Some(at) = points.iter().position(|point| point.number == number) else {
            let what = format!("{} has no point {number}", self.place().display());
            return Err(Error::NotFound(what.into()));
        };
        points[at..].rotate_left(1);
        self.remove_points(&points, points.len() - 1)
    }

    /// Removes all points but the `count` newest ones, and the files that none of those has.
    /// Returns the numbers of the points that it removed, ascending.
    ///
    /// ```
    /// # fn main() -> rhumb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use rhumb::{Backups, Database};
    ///
    /// let db = Database::open(dir.path().join("db"))?;
    /// for _ in 0..3 {
    ///     db.backup(dir.path().join("backup"))?;
    /// }
    /// let backups = Backups::open(dir.path().join("backup"))?;
    /// assert_eq!(backups.keep_newest(2)?, [1]);
    /// assert_eq!(backups.list()?.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Backups::remove`], but for [`Error::NotFound`].
    pub fn keep_newest(&self, count: usize) -> Result<Vec<u64>> {
        let _lock = self.lock()?;
        let mut points = self.points()?;
        let kept = count.min(points.len());
        points.reverse();
        self.remove_points(&points, kept)?;
        Ok(points[kept..].iter().rev().map(|point| point.number).collect())
    }

    /// Removes all points but the first `kept`.
    fn remove_points(&self, points: &[Point], kept: usize) -> Result<()> {
        let (kept, removed) = points.split_at(kept);
        let names = removed.iter().map(|point| point_name(point.number)).collect();
        self.target.remove(&names)?;
        // Their files go after them: a point whose files are missing is worse than files of no
        // point.
        self.target.sync()?;
        self.remove_leftovers(kept).map(drop)
    }

    /// Removes the files that none of the points has, and returns those that are there.
    pub(super) fn remove_leftovers(&self, points: &[Point]) -> Result<Files> {
        let used: HashSet<&str> =
            points.iter().flat_map(|point| &point.files).map(|file| &*file.name).collect();
        let mut files = self.target.files()?;
        // One that another process has added where no lock keeps it out, or one that a bucket has
        // not removed although it said so: its files are not left over.
        let is_known = |number| points.iter().any(|point| point.number == number);
        // planted: backup-unknown-point
        if let Some(name) = files.keys().find(|name| number_of(name).is_some_and(|n| !is_known(n)))
        {
            let holder = "another backup, which has this point".to_owned();
            return Err(Error::Locked { path: self.target.path(name), holder });
        }
        let left = files.keys().filter(|name| is_file(name) && !used.contains(&***name));
        let left: HashSet<String> = left.cloned().collect();
        self.target.remove(&left)?;
        self.target.sync()?;
        files.retain(|name, _| !left.contains(name));
        Ok(files)
    }

    /// Copies a file of the database to the backup. `before` is what an earlier point says of it:
    /// a file that the disk has changed since is not added.
    pub(super) fn add_file(
        &self,
        fs: &dyn FileSystem,
        from: &Path,
        name: String,
        before: Option<&PointFile>,
    ) -> Result<PointFile> {
        let file = retry("open", from, || fs.open(from, ReadMode::Buffered))?;
        let len = retry("stat", from, || file.len())?;
        let (mut at, mut hasher) = (0, Xxh3Default::new());
        self.target.add(&name, len, &mut |part| {
            read_exact_at(&*file, from, part, at)?;
            hasher.update(part);
            at += part.len() as u64;
            let found = (len, hasher.digest());
            match before.filter(|_| at == len) {
                Some(before) if (before.len, before.checksum) != found => {
                    Err(before.differs(from, found))
                }
                _ => Ok(()),
            }
        })?;
        Ok(PointFile { name, len, checksum: hasher.digest() })
    }

    /// Adds a point, whose files must be there.
    pub(super) fn add_point(&self, point: &Point) -> Result<()> {
        // The names of its files are durable before its own.
        self.target.sync()?;
        let files = self.target.files()?;
        // planted: backup-no-look
        if let Some(file) = point.files.iter().find(|file| !is_there(&files, file)) {
            let (path, found) = (self.target.path(&file.name), files.get(&file.name));
            let found = found.copied().flatten().map_or("none".to_owned(), |len| len.to_string());
            return Err(Error::corrupt(path, 0, format!("{} bytes", file.len), found));
        }
        let bytes = point.encode();
        let mut left = &*bytes;
        self.target.add(&point_name(point.number), bytes.len() as u64, &mut |part| {
            let (now, later) = left.split_at(part.len());
            part.copy_from_slice(now);
            left = later;
            Ok(())
        })?;
        self.target.sync()
    }
}

impl PointFile {
    /// The error that the file at `path` has another length or checksum.
    pub(super) fn differs(&self, path: &Path, (len, checksum): (u64, u64)) -> Error {
        let what = format!("{} bytes with checksum {:016x}", self.len, self.checksum);
        Error::corrupt(path, 0, what, format!("{len} bytes with checksum {checksum:016x}"))
    }
}

/// The number of the point whose file has this name, as it is written by [`point_name`] alone: no
/// other name stands for the same point.
fn number_of(name: &str) -> Option<u64> {
    let number = name.strip_suffix(POINT_ENDING)?.parse().ok()?;
    (point_name(number) == name).then_some(number)
}

/// Returns true if a backup may have made a file of this name, which is no point. Other files are
/// left alone, wherever the user has the backup.
fn is_file(name: &str) -> bool {
    let whole = name.strip_suffix(TEMPORARY_ENDING);
    let (digits, ending) = whole.unwrap_or(name).split_once('.').unwrap_or_default();
    let is_numbered = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_known = ["sst", "val", "set"].contains(&ending);
    is_numbered && (is_known || (whole.is_some() && format!(".{ending}") == POINT_ENDING))
}

fn point_name(number: u64) -> String {
    format!("{number:06}{POINT_ENDING}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_has_one_name() {
        for number in [1, 999_999, 1_000_000, u64::MAX] {
            assert_eq!(number_of(&point_name(number)), Some(number));
        }
        for name in ["1.point", "+00001.point", "0000001.point", "00000x.point", ".point", "000001"]
        {
            assert_eq!(number_of(name), None, "{name}");
        }
    }
}
