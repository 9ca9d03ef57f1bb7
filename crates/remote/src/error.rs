//! What can go wrong, named for what the caller can do about it.

use std::{borrow::Cow, fmt, io, sync::Arc};

use crate::message::format::failure;

/// The result of every fallible operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something.
    Io {
        /// What was being done, as a verb and its object: "map a segment".
        operation: Cow<'static, str>,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// What the other side sent or shares is not what it must be. Nothing of it is used.
    Invalid(Cow<'static, str>),
    /// An argument is outside what the operation takes. Nothing was done.
    InvalidArgument(Cow<'static, str>),
    /// The region's budget is spent: the write was not applied.
    Full {
        /// The budget, in bytes.
        capacity_bytes: u64,
    },
    /// The connection is at its end: the other side closed it between two messages, or it was cut
    /// off within one. Connect again; a write without an answer may or may not have happened.
    Closed,
    /// Nothing came, or nothing could be sent, within the time that was set. Between two messages
    /// the connection is as it was and the operation may be tried again; a connection that was cut
    /// off within a message answers [`Error::Closed`] from then on.
    TimedOut,
    /// The host answered that it will not or cannot do what was asked.
    Refused {
        /// Why, as `docs/wire.md` lists: what to do about it depends on this alone.
        code: u16,
        /// What the host says about it, for people.
        text: String,
    },
    /// The keys belong to another host than the one that was asked; nothing was written.
    /// [`Cluster`](crate::Cluster) finds the right one by itself. It returns this, in
    /// [`Error::Server`], if no host serves the keys for some seconds.
    Moved {
        /// The epoch of the host's routing table; 0 if it has none.
        epoch: u64,
    },
    /// One of several hosts failed. Keys of others are not concerned.
    Server {
        /// Which host, and which keys it has.
        server: Arc<str>,
        /// What went wrong there.
        source: Arc<Self>,
    },
    /// The system lacks something that is needed, as the text says.
    Unsupported(Cow<'static, str>),
}

impl Error {
    /// Wraps an error of the operating system with what was being done.
    pub(crate) fn io(
        operation: impl Into<Cow<'static, str>>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self::Io { operation: operation.into(), source: Arc::new(source.into()) }
    }

    /// An error of an [`Authority`](crate::Authority) that will not do what was asked, with a text
    /// for its client.
    pub fn refused(text: impl Into<String>) -> Self {
        Self::Refused { code: failure::REFUSED, text: text.into() }
    }

    /// An error of an [`Authority`](crate::Authority) that cannot do what was asked, through no
    /// fault of its client, with a text for it.
    pub fn failed(text: impl Into<String>) -> Self {
        Self::Refused { code: failure::INTERNAL, text: text.into() }
    }

    /// An error of an [`Authority`](crate::Authority) whose answer would be too large, with a text
    /// for its client, which asks for less.
    pub fn too_large(text: &str) -> Self {
        Self::Refused { code: failure::TOO_LARGE, text: text.to_owned() }
    }

    /// Reports that what the other side sent or shares is not what it must be.
    pub(crate) fn invalid(what: impl Into<Cow<'static, str>>) -> Self {
        Self::Invalid(what.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { operation, .. } => write!(f, "cannot {operation}"),
            Self::Invalid(what) => write!(f, "the other side is not to be trusted: {what}"),
            Self::InvalidArgument(what) | Self::Unsupported(what) => f.write_str(what),
            Self::Full { capacity_bytes } => {
                write!(f, "the region's budget of {capacity_bytes} bytes is spent")
            }
            Self::Closed => f.write_str("the connection is closed"),
            Self::TimedOut => f.write_str("the other side did not answer in time"),
            Self::Moved { epoch: 0 } => f.write_str("the host does not serve these keys"),
            Self::Moved { epoch } => {
                write!(f, "the host does not serve these keys, by its routing table {epoch}")
            }
            Self::Server { server, source } => write!(f, "{server}: {source}"),
            Self::Refused { code, text } => write!(f, "the host refuses (code {code}): {text}"),
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Io { source, .. } => Self::new(source.kind(), source.to_string()),
            error => Self::other(error.to_string()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source.as_ref()),
            // What failed there is in the text: here is why it did.
            Self::Server { source, .. } => std::error::Error::source(source.as_ref()),
            _ => None,
        }
    }
}
