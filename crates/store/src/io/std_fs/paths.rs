//! Turns a path into an open directory and a name in it.

use std::{
    fs::File,
    io::{self, ErrorKind},
    os::fd::{AsFd, OwnedFd},
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{AtFlags, Mode, OFlags, Stat};

use super::super::moved_away;

/// Access rights of created files: the user reads and writes.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
/// The flags with which every file is opened: symbolic links are not followed, and programs that we
/// start do not inherit the file.
const BASE_FLAGS: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);
/// The flags with which every directory is opened.
const DIR_FLAGS: OFlags = BASE_FLAGS.union(OFlags::RDONLY).union(OFlags::DIRECTORY);

/// A directory that is held open.
#[derive(Debug)]
struct Held {
    /// The path by which it was found, a prefix of the paths of its files.
    path: PathBuf,
    fd: Arc<OwnedFd>,
}

/// The paths of the process, or those below a held directory. A path below a held directory is
/// found from its descriptor, wherever the directory was moved meanwhile.
#[derive(Clone, Debug)]
pub(super) struct Paths(Option<Arc<Held>>);

impl Paths {
    /// The paths of the process.
    pub(super) const OF_PROCESS: Self = Self(None);

    /// These paths, and `dir` held open.
    pub(super) fn holding(&self, dir: &Path) -> io::Result<Self> {
        let fd = Arc::new(self.open_dir(dir)?);
        Ok(Self(Some(Arc::new(Held { path: dir.to_owned(), fd }))))
    }

    /// The held directory and the rest of `path` below it, if `path` is below one.
    fn below<'p>(&self, path: &'p Path) -> Option<(&Arc<OwnedFd>, &'p Path)> {
        let held = self.0.as_deref()?;
        let rest = path.strip_prefix(&held.path).ok()?;
        // A path that leaves the directory again is a path of the process; so is an absolute one,
        // if the held path is empty.
        let stays = rest.components().all(|part| matches!(part, Component::Normal(_)));
        stays.then_some((&held.fd, rest))
    }

    /// Opens a directory, refusing a symbolic link. The descriptor is a new one, as listing a
    /// directory moves its position.
    pub(super) fn open_dir(&self, path: &Path) -> io::Result<OwnedFd> {
        let opened = match self.below(path) {
            Some((held, rest)) => {
                rustix::fs::openat(held, without_slash(rest), DIR_FLAGS, Mode::empty())
            }
            None => rustix::fs::open(without_slash(path), DIR_FLAGS, Mode::empty()),
        };
        Ok(opened?)
    }

    /// Splits a path into its opened directory and the name in it.
    pub(super) fn locate<'p>(&self, path: &'p Path) -> io::Result<(Arc<OwnedFd>, &'p Path)> {
        let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
        let dir = path.parent().ok_or(ErrorKind::InvalidInput)?;
        let dir = match self.below(dir) {
            Some((held, rest)) if rest.as_os_str().is_empty() => Arc::clone(held),
            _ => Arc::new(self.open_dir(dir)?),
        };
        Ok((dir, Path::new(name)))
    }

    /// Opens the file at `path`.
    pub(super) fn open_file(&self, path: &Path, flags: OFlags) -> io::Result<File> {
        let (dir, name) = self.locate(path)?;
        openat(&dir, name, flags).map(File::from)
    }
}

/// Rebuilds a path of a directory from its components. That drops a trailing slash, with which the
/// operating system would follow a symbolic link.
fn without_slash(path: &Path) -> PathBuf {
    let mut path: PathBuf = path.components().collect();
    if path.as_os_str().is_empty() {
        path.push(".");
    }
    path
}

/// Opens the file `name` of a directory.
pub(super) fn openat(dir: impl AsFd, name: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(dir, name, BASE_FLAGS | flags, FILE_MODE)?)
}

/// Opens a directory a second time, as an open file of its own.
pub(super) fn reopen_dir(dir: impl AsFd) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(dir, ".", DIR_FLAGS, Mode::empty())?)
}

/// The device and the number of a file: no two files that are there at a time have the same.
pub(super) type Identity = (u64, u64);

/// The identity in the system's description of a file. The types differ from system to system.
#[expect(
    clippy::allow_attributes,
    reason = "the casts are needed on some systems and useless on others"
)]
pub(super) fn identity(stat: &Stat) -> Identity {
    #[allow(clippy::unnecessary_cast, clippy::cast_sign_loss)]
    (stat.st_dev as u64, stat.st_ino as u64)
}

/// The directory and the name that a file was created with.
pub(super) struct FilePlace {
    dir: Arc<OwnedFd>,
    name: PathBuf,
    identity: Identity,
}

impl FilePlace {
    /// The place of `file`, which was just created or opened as `name` in `dir`.
    pub(super) fn of(file: impl AsFd, dir: Arc<OwnedFd>, name: &Path) -> io::Result<Self> {
        let identity = identity(&rustix::fs::fstat(file)?);
        Ok(Self { dir, name: name.to_owned(), identity })
    }

    /// Fails if the name no longer stands for the file.
    pub(super) fn check(&self) -> io::Result<()> {
        let stat = rustix::fs::statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        match stat {
            Ok(stat) if identity(&stat) == self.identity => Ok(()),
            Ok(_) => Err(moved_away("another file was put in its place")),
            Err(rustix::io::Errno::NOENT) => {
                Err(moved_away("it was removed or renamed while it was open"))
            }
            Err(error) => Err(error.into()),
        }
    }
}
