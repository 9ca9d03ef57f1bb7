//! Locks of the operating system.
//!
//! Two things are locked: the lock file, whose content tells people which process holds it, and its
//! directory. The file can be removed, and a second process would then lock a file of its own; the
//! directory cannot be removed while it has files. Some network file systems do not lock
//! directories; there, only the file is locked.

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

/// The directories that this process has locked, and what for, so that a second opener is told that
/// the holder is the same process.
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
    /// The entry to remove from [`HELD`].
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
        // If directories cannot be locked, the file may have been replaced before it was locked.
        if !is_locked && place.check().is_err() {
            return Err(ErrorKind::WouldBlock.into());
        }
        file.set_len(0)?;
        file.write_all(holder.as_bytes())?;
        Ok(Self { place: Some(place), _file: Some(file), _dir: own, held: hold(id, Use::Writing) })
    }

    /// Keeps writers out of `dir`, whose lock file is `name`; other readers are let in.
    ///
    /// Nothing is written, and both are opened read-only, which is all that a lock needs: a
    /// read-only file system works, and so does a directory of another user. The lock file need not
    /// exist; and if the directory is locked, this process need not have the right to open the lock
    /// file. Without either lock it would be unknown whether another process writes, so that is
    /// refused. The exception is a file system that has no locks at all: no writer opens a database
    /// there.
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
            // A file system may have no locks of files. Then either the directory is locked, or
            // nothing can be.
            let locked = rustix::fs::flock(file, FlockOperation::NonBlockingLockShared);
            if let Err(error @ Errno::WOULDBLOCK) = locked {
                return Err(refusal(error, file, id));
            }
        }
        Ok(Self { place: None, _file: file, _dir: own, held: hold(id, Use::Reading) })
    }
}

/// Records what this process holds.
fn hold(id: Identity, how: Use) -> (Identity, Use) {
    HELD.lock().push((id, how));
    (id, how)
}

/// Locks a directory; returns whether its file system can. The lock belongs to the returned
/// descriptor and to no other.
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

/// The error for a refused lock of `file`, naming the holder as far as the system tells it. The
/// descriptor is not used for anything else.
fn refusal(error: Errno, file: impl AsFd, id: Identity) -> io::Error {
    if error != Errno::WOULDBLOCK {
        return error.into();
    }
    let holds = |how| HELD.lock().contains(&(id, how));
    if holds(Use::Writing) {
        return io::Error::new(ErrorKind::WouldBlock, LOCKED_BY_THIS_PROCESS);
    }
    // If a reader is let in, the holders are readers; the lock is released with the descriptor.
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
