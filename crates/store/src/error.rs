//! The errors of this crate, named for what the caller can do about them.
//!
//! Every error that comes from a file names the file. Damage also names the offset, and what was
//! expected and found there.

use std::{
    borrow::Cow,
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The holder that a refused lock names if this process itself holds the lock.
pub(crate) const LOCKED_BY_THIS_PROCESS: &str = "this process";

/// The holder that a refused lock names if its holders only read, and this process is none of them.
pub(crate) const LOCKED_BY_READERS: &str = "processes that only read";

/// The holder that a refused lock names if its holders only read, and this process is one of them.
pub(crate) const LOCKED_BY_OWN_READERS: &str = "this process, which only reads";

/// The result of every fallible operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The text for a missing file that something durable names.
pub(crate) const NO_FILE: &str = "no such file";

/// The reason why an operation failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation on a file. Reads may be retried; a failed write
    /// was not applied.
    Io(Arc<IoFailure>),
    /// Bytes on disk are not those that were written. Only the operation that met them fails.
    Corrupt(Arc<Corruption>),
    /// Another process has the database open, or this one has it open already.
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The holder that the lock file names.
        holder: String,
    },
    /// Writes are stopped by an earlier failure; reads go on. Reopen the database once the cause is
    /// gone.
    WritesStopped(Arc<Error>),
    /// The database was [opened for reading only](crate::DatabaseBuilder::open_read_only), or as a
    /// [replica](crate::DatabaseBuilder::replica), and the operation would write. Nothing was done.
    ReadOnly {
        /// The database's directory.
        path: PathBuf,
    },
    /// The process was forked from the one that opened the database, and may use none of its
    /// handles: a thread that does not exist in this process may hold any of the locks. Nothing was
    /// done.
    Forked {
        /// The number of the process that opened the database.
        opened_by: u32,
    },
    /// An argument is not one that the operation accepts. Nothing was done.
    InvalidArgument(Cow<'static, str>),
    /// There is no database where one was to be opened. Nothing was created.
    NotFound(Cow<'static, str>),
    /// The database is being closed, and the operation was not done.
    Closed(Cow<'static, str>),
    /// Numbers that are never used again, or the room that a format has for something, are used up.
    Exhausted(Cow<'static, str>),
    /// A transaction was not committed: another commit, since it began, has written what it depends
    /// on. Nothing was done; it may be done again in another transaction.
    Conflict {
        /// The keyspace.
        keyspace: Arc<str>,
        /// A key that was written; empty if the keyspace was changed as a whole, or if more was
        /// committed since the transaction began than is kept.
        key: Box<[u8]>,
    },
    /// A stream of changes cannot go on: the database does not keep what comes next any more. A
    /// follower has to begin with another copy of the database.
    Lagged {
        /// The sequence number that comes next.
        wanted: u64,
        /// The smallest sequence number from which on a stream can begin.
        oldest: u64,
    },
    /// A value is longer than the caller wants to read
    /// ([`Reader::get_at_most`](crate::Reader::get_at_most)), and was not read.
    TooLong {
        /// Its length, in bytes.
        bytes: u64,
        /// The length that the caller allowed, in bytes.
        bytes_max: u64,
    },
    /// The keyspace was dropped.
    KeyspaceDropped(Arc<str>),
    /// The engine broke one of its own promises, or one of its threads panicked. Please report it.
    Internal(Cow<'static, str>),
    /// The database was written by a version of Rhumb that this one cannot read.
    Unsupported {
        /// The file whose version is unknown.
        path: PathBuf,
        /// What was found, and what this version reads.
        what: String,
    },
}

/// A failed operation of the operating system.
#[derive(Debug)]
pub struct IoFailure {
    /// The operation, as a verb: "write", "fdatasync", "rename".
    pub operation: &'static str,
    /// The file or directory it was done to.
    pub path: PathBuf,
    /// The offset in the file, in bytes from its start, if the operation has one.
    pub offset: Option<u64>,
    /// The error of the operating system.
    pub source: io::Error,
}

/// Damage found in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corruption {
    /// The damaged file.
    pub path: PathBuf,
    /// The offset in the file, in bytes from its start.
    pub offset: u64,
    /// The expected contents.
    pub expected: Cow<'static, str>,
    /// The contents that were found.
    pub found: String,
}

impl Error {
    /// Wraps an error of the operating system with the operation and the path it was done to.
    #[doc(hidden)]
    pub fn io(operation: &'static str, path: impl AsRef<Path>, source: io::Error) -> Self {
        let path = path.as_ref().to_owned();
        Self::Io(Arc::new(IoFailure { operation, path, offset: None, source }))
    }

    /// Like [`Error::io`], for an operation at `offset` of the file.
    #[doc(hidden)]
    pub fn io_at(
        operation: &'static str,
        path: impl AsRef<Path>,
        offset: u64,
        source: io::Error,
    ) -> Self {
        let (path, offset) = (path.as_ref().to_owned(), Some(offset));
        Self::Io(Arc::new(IoFailure { operation, path, offset, source }))
    }

    /// Reports damage at `offset` of `path`.
    #[doc(hidden)]
    pub fn corrupt(
        path: impl AsRef<Path>,
        offset: u64,
        expected: impl Into<Cow<'static, str>>,
        found: impl Into<String>,
    ) -> Self {
        Self::Corrupt(Arc::new(Corruption {
            path: path.as_ref().to_owned(),
            offset,
            expected: expected.into(),
            found: found.into(),
        }))
    }

    /// Returns true if a file is missing.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Io(failure) if failure.source.kind() == io::ErrorKind::NotFound)
    }

    /// Turns a failure to open a file into damage if the file is missing, although `named_by` says
    /// that it was made durable.
    pub(crate) fn or_missing(self, named_by: &'static str) -> Self {
        match &self {
            Self::Io(failure) if self.is_missing() => {
                Self::corrupt(&failure.path, 0, named_by, NO_FILE)
            }
            _ => self,
        }
    }

    /// Returns true if the error reports damaged bytes.
    #[must_use]
    pub fn is_corruption(&self) -> bool {
        match self {
            Self::Corrupt(_) => true,
            Self::WritesStopped(cause) => cause.is_corruption(),
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(e) => {
                write!(f, "cannot {} {}", e.operation, e.path.display())?;
                e.offset.map_or(Ok(()), |offset| write!(f, " at offset {offset}"))?;
                write!(f, ": {}", e.source)
            }
            Self::Corrupt(c) => write!(
                f,
                "{} is damaged at offset {}: expected {}, found {}",
                c.path.display(),
                c.offset,
                c.expected,
                c.found
            ),
            Self::Locked { path, holder } if holder == LOCKED_BY_THIS_PROCESS => write!(
                f,
                "{} is held by this process: use the handle that it has, or drop it first",
                path.display()
            ),
            Self::Locked { path, holder } if holder == LOCKED_BY_OWN_READERS => write!(
                f,
                "{} is held by this process, which has the database open for reading alone: drop \
                 those handles first",
                path.display()
            ),
            Self::Locked { path, holder } if holder == LOCKED_BY_READERS => write!(
                f,
                "{} is held by processes that have the database open for reading alone: close them \
                 first",
                path.display()
            ),
            Self::Locked { path, holder } => {
                write!(f, "{} is held by {holder}: close that process first", path.display())
            }
            Self::ReadOnly { path } => write!(
                f,
                "the database in {} is open for reading alone: nothing in it can be changed",
                path.display()
            ),
            Self::WritesStopped(cause) => {
                write!(f, "writes are stopped until the database is reopened: {cause}")
            }
            Self::Forked { opened_by } => write!(
                f,
                "process {opened_by} opened the database, and this one was forked from that: open \
                 it here once that process has closed it"
            ),
            Self::InvalidArgument(what)
            | Self::NotFound(what)
            | Self::Closed(what)
            | Self::Exhausted(what) => f.write_str(what),
            Self::Conflict { keyspace, key } => write!(
                f,
                "keyspace {keyspace:?} was written to since the transaction began, at the key \"{}\"",
                key.escape_ascii()
            ),
            Self::Lagged { wanted, oldest } => write!(
                f,
                "the changes from sequence number {wanted} on are not kept any more, the oldest \
                 are those from {oldest} on: begin with another copy of the database"
            ),
            Self::TooLong { bytes, bytes_max } => {
                write!(f, "a value has {bytes} bytes: at most {bytes_max} were to be read")
            }
            Self::Internal(what) => write!(f, "a fault of Rhumb itself: {what}"),
            Self::KeyspaceDropped(name) => write!(f, "keyspace {name:?} was dropped"),
            Self::Unsupported { path, what } => write!(f, "{}: {what}", path.display()),
        }
    }
}

/// The text of an error includes its cause. So its source is the cause of that cause, and a report
/// that prints the whole chain says nothing twice. [`Error::Io`] and [`Error::WritesStopped`] hold
/// the cause itself.
impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(e) => e.source.source(),
            Self::WritesStopped(cause) => cause.source(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn a_chain_says_nothing_twice() {
        let full = Error::io("write", "/db/log", io::Error::from_raw_os_error(28));
        let stopped = Error::WritesStopped(Arc::new(full.clone()));
        let wrapped = Error::io("write", "/db/log", io::Error::other(full.clone()));
        for error in [full, stopped, wrapped] {
            let mut chain = vec![error.to_string()];
            let mut source = error.source();
            while let Some(next) = source {
                assert!(!chain.iter().any(|said| said.contains(&next.to_string())), "{chain:?}");
                chain.push(next.to_string());
                source = next.source();
            }
        }
    }
}
