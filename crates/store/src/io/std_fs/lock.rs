//! Locks of the operating system.
//!
//! Two things are locked: the lock file, which says for people who holds it, and its directory. The
//! file can be removed, and a second process would then lock a file of its own; the directory
//! cannot be removed while it has files. Some network file systems do not lock directories; the
//! file is all there is then.

use std::{
    fs::File,
    io::{self, ErrorKind, Write},
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::Arc,
};

use rhumb_sync::primitive::Mutex;
use rustix::{
    fs::{FlockOperation, OFlags},
    io::Errno,
};

use super::{
    super::FileLock,
    paths::{FilePlace, Identity, identity, openat, reopen_dir},
};
use crate::error::{LOCKED_BY_OWN_READERS, LOCKED_BY_READERS, LOCKED_BY_THIS_PROCESS};

/// The directories that this process has locked, and what for: so a second opener is told that it
/// is the same process.
static HELD: Mutex<Vec<(Identity, Use)>> = Mutex::new(Vec::new());

/// What a directory is locked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Writing,
    Reading,
}

/// The operating system releases the locks when the files are closed.
pub(super) struct StdLock {
    /// `None` if there is no lock file, and the holder only reads.
    place: Option<FilePlace>,
    _file: Option<File>,
    _dir: OwnedFd,
    /// What is to be taken out of [`HELD`].
    held: (Identity, Use),
}

impl StdLock {
    /// Locks `name` in `dir` and `dir` itself, for a process that writes.
    pub(super) fn exclusive(dir: Arc<OwnedFd>, name: &Path, holder: &str) -> io::Result<Self> {
        let (own, is_locked) = lock_dir(&dir, FlockOperation::NonBlockingLockExclusive)?;
        let id = identity(&rustix::fs::fstat(&own)?);
        let mut file = File::from(openat(&dir, name, OFlags::RDWR | OFlags::CREATE)?);
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| refusal(error, &file, id))?;
        let place = FilePlace::of(&file, dir, name)?;
        // Where directories are not locked, the file may have been replaced before it was locked.
        if !is_locked && place.check().is_err() {
            return Err(ErrorKind::WouldBlock.into());
        }
        file.set_len(0)?;
        file.write_all(holder.as_bytes())?;
        Ok(Self { place: Some(place), _file: Some(file), _dir: own, held: hold(id, Use::Writing) })
    }

    /// Keeps writers out of `dir`, whose lock file is `name`; other readers are let in.
    ///
    /// Nothing is written, and both are opened for reading alone, which is all that a lock needs: a
    /// read-only file system and a directory of somebody else will do. There need be no lock file,
    /// and where the directory is locked the lock file may be one that this process may not open.
    /// Without either lock it would be unknown if somebody writes, and that is refused, but for a
    /// file system that locks nothing at all: no writer opens a database there.
    pub(super) fn shared(dir: Arc<OwnedFd>, name: &Path) -> io::Result<Self> {
        let (own, is_locked) = lock_dir(&dir, FlockOperation::NonBlockingLockShared)?;
        let id = identity(&rustix::fs::fstat(&own)?);
        let file = match openat(&dir, name, OFlags::RDONLY) {
            Ok(file) => Some(File::from(file)),
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) if e.kind() == ErrorKind::PermissionDenied && is_locked => None,
            Err(e) => return Err(e),
        };
        if let Some(file) = &file {
            // A file system may have no locks of files: the directory is locked then, or nothing
            // can be.
            let locked = rustix::fs::flock(file, FlockOperation::NonBlockingLockShared);
            if let Err(error @ Errno::WOULDBLOCK) = locked {
                return Err(refusal(error, file, id));
            }
        }
        Ok(Self { place: None, _file: file, _dir: own, held: hold(id, Use::Reading) })
    }
}

/// Notes what this process holds.
fn hold(id: Identity, how: Use) -> (Identity, Use) {
    HELD.lock().push((id, how));
    (id, how)
}

/// Locks a directory; says whether its file system can. The lock belongs to the descriptor that is
/// returned and to no other.
fn lock_dir(dir: &Arc<OwnedFd>, how: FlockOperation) -> io::Result<(OwnedFd, bool)> {
    let own = reopen_dir(dir)?;
    match rustix::fs::flock(&own, how) {
        Ok(()) => Ok((own, true)),
        Err(error @ Errno::WOULDBLOCK) => {
            let id = identity(&rustix::fs::fstat(&own)?);
            Err(refusal(error, &own, id))
        }
        Err(_) => Ok((own, false)),
    }
}

/// What to say of a lock of `file` that was refused, as far as the system tells who holds it. The
/// descriptor is not used for anything else.
fn refusal(error: Errno, file: impl AsFd, id: Identity) -> io::Error {
    if error != Errno::WOULDBLOCK {
        return error.into();
    }
    let holds = |how| HELD.lock().contains(&(id, how));
    if holds(Use::Writing) {
        return io::Error::new(ErrorKind::WouldBlock, LOCKED_BY_THIS_PROCESS);
    }
    // Where readers are let in, the holders are readers; the lock goes with the descriptor.
    if rustix::fs::flock(file, FlockOperation::NonBlockingLockShared).is_ok() {
        let readers = if holds(Use::Reading) { LOCKED_BY_OWN_READERS } else { LOCKED_BY_READERS };
        return io::Error::new(ErrorKind::WouldBlock, readers);
    }
    ErrorKind::WouldBlock.into()
}

impl FileLock for StdLock {
    fn check(&self) -> io::Result<()> {
        self.place.as_ref().map_or(Ok(()), FilePlace::check)
    }
}

impl Drop for StdLock {
    fn drop(&mut self) {
        let mut held = HELD.lock();
        if let Some(at) = held.iter().position(|other| *other == self.held) {
            held.swap_remove(at);
        }
    }
}
