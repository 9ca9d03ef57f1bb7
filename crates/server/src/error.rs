//! Why a server does not start, or ends.

use std::{fmt, io};

use crate::config_error::ConfigError;

/// Why a server does not start, or ends.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// The settings cannot be used.
    Config(ConfigError),
    /// The engine failed: the data cannot be opened, or the last sync failed.
    Engine(rhumb::Error),
    /// An address cannot be listened on.
    Listen(String),
    /// The operating system refused a thread, a signal handler or a socket.
    System(io::Error),
}

impl ServeError {
    pub(crate) fn listen(address: impl fmt::Display, error: &io::Error) -> Self {
        Self::Listen(format!("cannot listen on {address}: {error}"))
    }

    pub(crate) fn thread(error: &io::Error) -> Self {
        Self::System(io::Error::new(error.kind(), format!("cannot start a thread: {error}")))
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Engine(error) => error.fmt(f),
            Self::Listen(what) => f.write_str(what),
            Self::System(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ServeError {}

impl From<ConfigError> for ServeError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<rhumb::Error> for ServeError {
    fn from(error: rhumb::Error) -> Self {
        Self::Engine(error)
    }
}

impl From<io::Error> for ServeError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}
