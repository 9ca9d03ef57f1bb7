//! Why a dump cannot be read.

use std::{borrow::Cow, fmt, io};

/// Why a dump cannot be read, and where: bytes from its beginning.
#[derive(Debug)]
pub(crate) enum RdbError {
    /// The bytes do not come.
    Io { offset: u64, error: io::Error },
    /// The bytes are not as the format has them.
    Damaged { offset: u64, what: Cow<'static, str> },
    /// The bytes may be right, and cannot be read here.
    Unsupported { offset: u64, what: String },
}

impl fmt::Display for RdbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { offset, error } => write!(f, "cannot read at offset {offset}: {error}"),
            Self::Damaged { offset, what } => write!(f, "damaged at offset {offset}: {what}"),
            Self::Unsupported { offset, what } => write!(f, "at offset {offset}: {what}"),
        }
    }
}
