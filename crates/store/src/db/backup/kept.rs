//! The points of a backup: a list of them, checks, restoring and removing.

use std::{
    collections::HashSet,
    fmt,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use rhumb_sync::primitive::Arc;
use xxhash_rust::xxh3::Xxh3Default;

use super::{
    COPY_BYTES, LOCK_NAME, POINT_ENDING, TEMPORARY_ENDING, copy,
    format::{Point, PointFile},
    temporary_of, write_whole,
};
use crate::{
    error::{Error, Result},
    io::{FileLock, FileSystem, ReadMode, read_exact_at, retry, std_fs::StdFs, sync_dir},
    types::SeqNo,
    version::manifest::{Manifest, remove_created},
};

/// The largest point that is read: one of ten million tables.
const POINT_BYTES_MAX: u64 = 1 << 30;

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

/// The points of a backup in a directory, which [`Database::backup`](crate::Database::backup)
/// makes. None of this needs the database.
pub struct Backups {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
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
            Ok(_) => Ok(Self { fs, dir }),
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
        Ok(Self { fs, dir })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Keeps others from adding and removing points.
    pub(super) fn lock(&self) -> Result<Box<dyn FileLock>> {
        let path = self.dir.join(LOCK_NAME);
        let holder = format!("a backup of process {}", std::process::id());
        self.fs.lock(&path, &holder).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => {
                Error::Locked { path: path.clone(), holder: "another backup".to_owned() }
            }
            _ => Error::io("lock", &path, error),
        })
    }

    fn names(&self) -> Result<Vec<String>> {
        retry("list", &self.dir, || self.fs.list(&self.dir))
    }

    /// All points, ascending by their numbers.
    pub(super) fn points(&self) -> Result<Vec<Point>> {
        let mut points = Vec::new();
        for name in self.names()? {
            let number = name.strip_suffix(POINT_ENDING).and_then(|text| text.parse::<u64>().ok());
            if let Some(number) = number {
                points.push(self.point(number, &self.dir.join(name))?);
            }
        }
        points.sort_by_key(|point| point.number);
        Ok(points)
    }

    fn point(&self, number: u64, path: &Path) -> Result<Point> {
        let file = retry("open", path, || self.fs.open(path, ReadMode::Buffered))?;
        let len = retry("stat", path, || file.len())?;
        let Some(len) = usize::try_from(len).ok().filter(|_| len <= POINT_BYTES_MAX) else {
            let found = format!("{len} bytes");
            return Err(Error::corrupt(path, 0, "a point of at most 1 GiB", found));
        };
        let mut bytes = vec![0; len];
        read_exact_at(&*file, path, &mut bytes, 0)?;
        let point = Point::decode(&bytes).map_err(|fault| {
            Error::corrupt(path, fault.offset as u64, fault.expected, "other bytes")
        })?;
        if point.number != number {
            let found = format!("point {}", point.number);
            return Err(Error::corrupt(path, 8, format!("point {number}"), found));
        }
        Ok(point)
    }

    /// The point with a number.
    fn numbered(&self, number: u64) -> Result<Point> {
        let found = self.points()?.into_iter().find(|point| point.number == number);
        found.ok_or_else(|| {
            let what = format!("{} has no point {number}", self.dir.display());
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
        self.numbered(number)?.files.iter().try_for_each(|file| self.verify_file(file))
    }

    fn verify_file(&self, expected: &PointFile) -> Result<()> {
        let path = self.dir.join(&expected.name);
        let file = retry("open", &path, || self.fs.open(&path, ReadMode::Buffered))?;
        let len = retry("stat", &path, || file.len())?;
        let mut part = vec![0; COPY_BYTES.min(usize::try_from(len).unwrap_or(COPY_BYTES))];
        let (mut at, mut hasher) = (0, Xxh3Default::new());
        while at < len {
            let now = part.len().min(usize::try_from(len - at).unwrap_or(usize::MAX));
            read_exact_at(&*file, &path, &mut part[..now], at)?;
            hasher.update(&part[..now]);
            at += now as u64;
        }
        check(&path, expected, (len, hasher.digest()))
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
            let (from, to) = (self.dir.join(&file.name), target.join(&file.name));
            made.push(to.clone());
            check(&from, file, copy((fs, &from), (fs, &to))?)?;
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
            let what = format!("{} has no point {number}", self.dir.display());
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
        for point in removed {
            let path = self.dir.join(point_name(point.number));
            retry("remove", &path, || self.fs.remove_file(&path))?;
        }
        // Their files go after them: a point whose files are missing is worse than files of no
        // point.
        sync_dir(&*self.fs, &self.dir)?;
        self.remove_leftovers(kept)
    }

    /// Removes the files that none of the points has.
    pub(super) fn remove_leftovers(&self, points: &[Point]) -> Result<()> {
        let used: HashSet<&str> =
            points.iter().flat_map(|point| &point.files).map(|file| &*file.name).collect();
        for name in self.names()? {
            if is_file(&name) && !used.contains(&*name) {
                let path = self.dir.join(name);
                retry("remove", &path, || self.fs.remove_file(&path))?;
            }
        }
        sync_dir(&*self.fs, &self.dir).map(drop)
    }

    /// Copies a file of the database to the backup.
    pub(super) fn add_file(
        &self,
        fs: &dyn FileSystem,
        from: &Path,
        name: String,
    ) -> Result<PointFile> {
        let path = self.dir.join(&name);
        let temporary = temporary_of(&path);
        let (len, checksum) = copy((fs, from), (&*self.fs, &temporary))?;
        retry("rename", &temporary, || self.fs.rename(&temporary, &path))?;
        Ok(PointFile { name, len, checksum })
    }

    /// Adds a point, whose files are there.
    pub(super) fn add_point(&self, point: &Point) -> Result<()> {
        // The names of its files are durable before its own.
        sync_dir(&*self.fs, &self.dir)?;
        write_whole(&*self.fs, &self.dir.join(point_name(point.number)), &point.encode())?;
        sync_dir(&*self.fs, &self.dir).map(drop)
    }
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

/// Compares a file with what was backed up.
fn check(path: &Path, expected: &PointFile, (len, checksum): (u64, u64)) -> Result<()> {
    if (len, checksum) == (expected.len, expected.checksum) {
        return Ok(());
    }
    let what = format!("{} bytes with checksum {:016x}", expected.len, expected.checksum);
    Err(Error::corrupt(path, 0, what, format!("{len} bytes with checksum {checksum:016x}")))
}

impl fmt::Debug for Backups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backups").field("dir", &self.dir).finish_non_exhaustive()
    }
}
