//! The file of a Unix socket: made, replaced and removed without touching what belongs to another.
//!
//! Only a socket that nobody answers on is replaced, and only the very socket that was made here is
//! removed at the end. Another file at the path is never touched: it is the user's, and the path is
//! a mistake.

use std::{
    fs::{self, Metadata},
    io::ErrorKind,
    os::unix::{
        fs::{FileTypeExt, MetadataExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

use crate::error::ServeError;

/// A bound socket's file. Dropping it removes the file, if it is still that of this socket.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device_inode: (u64, u64),
}

fn device_inode(of: &Metadata) -> (u64, u64) {
    (of.dev(), of.ino())
}

impl SocketFile {
    /// Binds a listener to `path`.
    ///
    /// # Errors
    ///
    /// If something lies there that is not a socket, or a socket that somebody answers on, or one
    /// of which that cannot be told; and if the system refuses.
    pub(crate) fn bind(path: &Path) -> Result<(UnixListener, Self), ServeError> {
        let failed = |error| ServeError::listen(path.display(), &error);
        remove_stale(path)?;
        let listener = UnixListener::bind(path).map_err(failed)?;
        let made = fs::symlink_metadata(path).map_err(failed)?;
        let file = Self { path: path.to_owned(), device_inode: device_inode(&made) };
        listener.set_nonblocking(true).map_err(failed)?;
        Ok((listener, file))
    }
}

/// Removes the socket of a server that was killed.
fn remove_stale(path: &Path) -> Result<(), ServeError> {
    let failed = |error| ServeError::listen(path.display(), &error);
    let refused =
        |why: &str| Err(ServeError::Listen(format!("cannot listen on {}: {why}", path.display())));
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if !found.file_type().is_socket() {
        return refused("a file that is not a socket lies there; it is left as it is");
    }
    match UnixStream::connect(path) {
        Ok(_) => refused("another program answers there"),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            // A server that started meanwhile may have put its own there.
            let now = fs::symlink_metadata(path).map_err(failed)?;
            if device_inode(&now) != device_inode(&found) {
                return refused("another program has just begun to listen there");
            }
            fs::remove_file(path).map_err(failed)
        }
        Err(error) => refused(&format!("another program may answer there ({error})")),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = |found: Metadata| device_inode(&found) == self.device_inode;
        if fs::symlink_metadata(&self.path).is_ok_and(is_ours) {
            // If it cannot be removed, the next server replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    fn refusal(path: &Path) -> String {
        SocketFile::bind(path).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("precious");
        fs::write(&path, "words").unwrap();
        assert!(refusal(&path).contains("not a socket"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "words");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(refusal(&link).contains("not a socket"));
        assert!(refusal(dir.path()).contains("not a socket"));
        assert!(link.symlink_metadata().unwrap().is_symlink() && path.exists());
    }

    #[test]
    fn only_a_socket_that_nobody_answers_on_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let (listener, file) = SocketFile::bind(&path).unwrap();
        assert!(refusal(&path).contains("another program answers"));
        // As after a kill: the file stays.
        std::mem::forget(file);
        drop(listener);
        let (listener, file) = SocketFile::bind(&path).unwrap();
        drop((listener, file));
        assert!(!path.exists());
        // A socket of another kind, which may be in use.
        let datagrams = UnixDatagram::bind(&path).unwrap();
        assert!(refusal(&path).contains("may answer there"));
        assert!(path.exists());
        drop(datagrams);
    }

    #[test]
    fn only_the_socket_that_was_made_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        for replace in [
            |path: &Path| fs::write(path, "words").unwrap(),
            |path: &Path| drop(UnixListener::bind(path).unwrap()),
        ] {
            let (listener, file) = SocketFile::bind(&path).unwrap();
            fs::rename(&path, dir.path().join("moved")).unwrap();
            replace(&path);
            drop((listener, file));
            assert!(path.symlink_metadata().is_ok());
            fs::remove_file(&path).unwrap();
        }
    }
}
