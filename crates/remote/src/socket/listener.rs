//! The host's end: a socket in the file system, and the connections that come to it.
//!
//! A lock on a second file, whose name ends in `.lock`, is held as long as the host lives. Only its
//! holder replaces or removes the socket's file, so two hosts that start at once cannot take each
//! other's for a dead host's. A program that knows no such lock is noticed by connecting to it.

use std::{
    fs::{self, File, Metadata, OpenOptions, Permissions},
    io::{self, ErrorKind},
    os::{
        fd::OwnedFd,
        unix::{
            fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
            net::UnixListener,
        },
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, OFlags, flock},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketType, bind, connect, listen},
};

use super::{Peer, Socket, Stream};
use crate::error::{Error, Result};

/// Only the host's user may connect: connecting to a socket needs the right to write its file.
const MODE: u32 = 0o600;

/// Everybody may connect, and is asked who they are.
const OPEN_MODE: u32 = 0o666;

/// The most connections that wait to be accepted: the system's default bound (`somaxconn` was 128
/// until Linux 5.4) and the standard library's. A client that finds it full waits.
const BACKLOG: i32 = 128;

/// How often the lock's file is opened anew because the host that held it has removed it meanwhile.
/// Each time is another host that ended in these microseconds, so one is rare.
const LOCK_TRIES: u32 = 16;

/// A socket that clients connect to. Dropping it removes its file, if that is still its own.
#[derive(Debug)]
pub(crate) struct Listener {
    // Before the file, so that nobody can connect to a socket that nobody will answer on.
    socket: UnixListener,
    /// Held, so that dropping it removes the file.
    _file: SocketFile,
    has_replaced: bool,
}

impl Listener {
    /// Listens on `path`, which only this user may connect to. The socket of a dead host is
    /// replaced. Makes `path` with `.lock` appended too, until the listener is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if a host or another program listens there, with
    /// [`AddrInUse`](ErrorKind::AddrInUse); if something lies there that is not a socket, which is
    /// left alone; if the path is too long for a socket; and if the system refuses.
    pub(crate) fn bind(path: &Path) -> Result<Self> {
        Self::bind_with(path, MODE)
    }

    /// [`Listener::bind`] for a host that asks who connects: the system lets everybody connect that
    /// reaches `path`.
    ///
    /// # Errors
    ///
    /// As [`Listener::bind`].
    pub(crate) fn bind_open(path: &Path) -> Result<Self> {
        Self::bind_with(path, OPEN_MODE)
    }

    fn bind_with(path: &Path, mode: u32) -> Result<Self> {
        let failed = |error: io::Error| Error::io(format!("listen on {}", path.display()), error);
        // The directory that the process works in may change before the file is removed.
        let file_path = std::path::absolute(path).map_err(failed)?;
        let lock = Lock::take(&file_path).map_err(failed)?;
        let has_replaced = remove_stale(path).map_err(failed)?;
        let socket = new_socket().map_err(failed)?;
        let address = SocketAddrUnix::new(path).map_err(|error| failed(error.into()))?;
        bind(&socket, &address).map_err(|error| failed(error.into()))?;
        let identity = identity(&fs::symlink_metadata(&file_path).map_err(failed)?);
        let file = SocketFile { path: file_path, identity, _lock: lock };
        // Nobody can connect before the call of `listen`.
        fs::set_permissions(&file.path, Permissions::from_mode(mode)).map_err(failed)?;
        listen(&socket, BACKLOG).map_err(|error| failed(error.into()))?;
        Ok(Self { socket: UnixListener::from(socket), _file: file, has_replaced })
    }

    /// Returns true if the host that listened there before did not end but died.
    pub(crate) fn has_replaced(&self) -> bool {
        self.has_replaced
    }

    /// Waits for a client.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] after [`shutdown`](Self::shutdown); [`Error::Io`] if the system refuses,
    /// as it does when the process may open no more descriptors; [`Error::Unsupported`] on a system
    /// that does not tell which user connects. The listener can be used after the latter two.
    pub(crate) fn accept(&self) -> Result<(Stream, Peer)> {
        let (socket, _) = self.socket.accept().map_err(|error| {
            // What the system answers for a socket that was shut down.
            if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) {
                return Error::Closed;
            }
            Error::io("accept a connection", error)
        })?;
        let stream = Stream::new(Socket::Unix(socket))?;
        let peer = stream.peer()?;
        Ok((stream, peer))
    }

    /// Wakes threads that wait in [`accept`](Self::accept), and refuses new connections from now
    /// on.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] on systems other than Linux, which have no such call for a listener.
    pub(crate) fn shutdown(&self) -> Result<()> {
        rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both)
            .map_err(|error| Error::io("stop listening", error))
    }
}

/// A new socket, closed in a program that this one starts.
fn new_socket() -> io::Result<OwnedFd> {
    #[cfg(not(target_vendor = "apple"))]
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    #[cfg(target_vendor = "apple")]
    let socket = {
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
        socket
    };
    Ok(socket)
}

/// What tells a file from another of the same name: its device and inode.
fn identity(of: &Metadata) -> (u64, u64) {
    (of.dev(), of.ino())
}

/// Returns true if `path` names the file of this identity.
fn is_at(path: &Path, file: (u64, u64)) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| identity(&found) == file)
}

fn in_use(what: &str) -> io::Error {
    io::Error::new(ErrorKind::AddrInUse, what)
}

/// Removes the socket of a host that is dead; returns true if there was one. Called with the lock
/// held.
fn remove_stale(path: &Path) -> io::Result<bool> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if !found.file_type().is_socket() {
        let text = "a file that is not a socket lies there; it is left as it is";
        return Err(io::Error::new(ErrorKind::AlreadyExists, text));
    }
    let socket = new_socket()?;
    // A full queue of a program that is alive answers at once too.
    rustix::io::ioctl_fionbio(&socket, true)?;
    match connect(&socket, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path).map(|()| true),
        Ok(()) => Err(in_use("another program answers there")),
        Err(error) => Err(in_use(&format!("another program may answer there ({error})"))),
    }
}

/// A bound socket's file. Dropping it removes the file, if it is still this socket's.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
    /// Held until the file is removed.
    _lock: Lock,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if is_at(&self.path, self.identity) {
            // If it cannot be removed, the next host replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The right to replace and remove a socket's file. The system ends it with the process.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    file: File,
}

impl Lock {
    fn take(socket: &Path) -> io::Result<Self> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        for _ in 0..LOCK_TRIES {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(MODE);
            let file = options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(&path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::AGAIN) => return Err(in_use("another host listens there")),
                locked => locked?,
            }
            // A lock on a file that its last holder has removed keeps nobody out.
            if is_at(&path, identity(&file.metadata()?)) {
                return Ok(Self { path, file });
            }
        }
        Err(in_use("other hosts keep listening there"))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Another file at the path is somebody else's. One that stays is taken by the next host.
        if self.file.metadata().is_ok_and(|file| is_at(&self.path, identity(&file))) {
            let _ = fs::remove_file(&self.path);
        }
    }
}
