//! What `tls.rs` is in a build without the feature `tls`: nothing that could exist.

use std::{
    convert::Infallible,
    path::{Path, PathBuf},
};

use crate::error::{Error, Result};

/// Says what a build has to have for what was asked of it.
fn missing() -> Error {
    Error::Unsupported("this build has no TLS: it is made with the feature `tls`".into())
}

/// A certificate and its key, which this build cannot use.
#[derive(Clone, Debug)]
pub(crate) struct Identity(Infallible);

impl Identity {
    /// Says that this build has no TLS.
    ///
    /// # Errors
    ///
    /// Always.
    pub(crate) fn load(_: &Path, _: &Path) -> Result<Self> {
        Err(missing())
    }

    pub(super) fn begin(&self) -> Result<Tls> {
        match self.0 {}
    }
}

/// The authorities that a client trusts, which this build cannot use.
#[derive(Clone, Debug)]
pub(crate) struct Roots(Infallible);

impl Roots {
    /// Says that this build has no TLS.
    ///
    /// # Errors
    ///
    /// Always.
    pub(crate) fn load(_: &[PathBuf]) -> Result<Self> {
        Err(missing())
    }

    pub(super) fn begin(&self, _: &str) -> Result<Tls> {
        match self.0 {}
    }
}

/// The state of a connection, of which this build has none.
#[derive(Debug)]
pub(super) struct Tls(Infallible);

impl Tls {
    pub(super) fn is_handshaking(&self) -> bool {
        match self.0 {}
    }

    pub(super) fn put(&self, _: &[u8]) -> Result<()> {
        match self.0 {}
    }

    pub(super) fn take(&self, _: &mut [u8]) -> Result<usize> {
        match self.0 {}
    }

    pub(super) fn has_plain(&self) -> bool {
        match self.0 {}
    }

    pub(super) fn seal(&self, _: &[u8]) -> Result<usize> {
        match self.0 {}
    }

    pub(super) fn has_unsent(&self) -> bool {
        match self.0 {}
    }

    pub(super) fn take_unsent(&self) -> Vec<u8> {
        match self.0 {}
    }

    pub(super) fn flush(&self, _: impl FnMut(&[u8]) -> Result<Option<usize>>) -> Result<bool> {
        match self.0 {}
    }

    pub(super) fn say_goodbye(&self) {
        match self.0 {}
    }

    pub(super) fn kept_bytes(&self) -> usize {
        match self.0 {}
    }
}
