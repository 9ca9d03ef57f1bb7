//! A host, and what it takes to connect to it.

use std::path::PathBuf;

use super::address::Address;
use crate::{
    error::{Error, Result},
    socket::{Roots, Stream},
};

/// True in a build whose clients read by RDMA.
const HAS_RDMA: bool = cfg!(all(feature = "rdma", target_os = "linux"));

/// How a client shows that it may use a host, and whom it trusts.
#[derive(Clone, Default)]
pub(super) struct Credentials {
    /// What it presents to a host over TCP.
    pub(super) token: Option<Vec<u8>>,
    /// Files with the certificates of authorities that it trusts.
    pub(super) roots: Vec<PathBuf>,
}

/// A host that may be connected to again and again.
#[derive(Clone, Debug)]
pub(super) struct Target {
    way: TargetRoute,
    token: Token,
}

#[derive(Clone, Debug)]
enum TargetRoute {
    Unix(PathBuf),
    Tcp { host: String, port: u16 },
    Tls { host: String, port: u16, roots: Roots },
}

#[derive(Clone)]
struct Token(Option<Vec<u8>>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // It is nobody's to read.
        f.debug_struct("Token").field("is_set", &self.0.is_some()).finish_non_exhaustive()
    }
}

impl Target {
    /// The host at an address, which is reached in a way that this build has. Reads the files of
    /// the authorities if that is TLS.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for ways that there are not; [`Error::InvalidArgument`] if a file
    /// cannot be used.
    pub(super) fn new(address: Address, credentials: &Credentials) -> Result<Self> {
        let way = match address {
            Address::Unix(path) => TargetRoute::Unix(path),
            Address::Tls { host, port } => {
                TargetRoute::Tls { host, port, roots: Roots::load(&credentials.roots)? }
            }
            ref other if other.is_rdma() && !HAS_RDMA => {
                let what = format!("{other}: this build has no RDMA (the feature rdma, on Linux)");
                return Err(Error::Unsupported(what.into()));
            }
            Address::Tcp { host, port }
            | Address::Rdma { host, port }
            | Address::RdmaOrTcp { host, port } => TargetRoute::Tcp { host, port },
        };
        Ok(Self { way, token: Token(credentials.token.clone()) })
    }

    /// What is presented to the host.
    pub(super) fn token(&self) -> Option<&[u8]> {
        self.token.0.as_deref()
    }

    /// Connects, without a greeting.
    ///
    /// # Errors
    ///
    /// As [`Client::connect`](crate::Client::connect).
    pub(super) fn connect(&self) -> Result<Stream> {
        match &self.way {
            TargetRoute::Unix(path) => Stream::connect(path),
            TargetRoute::Tcp { host, port } => Stream::connect_tcp(host, *port),
            TargetRoute::Tls { host, port, roots } => Stream::connect_tls(host, *port, roots),
        }
    }
}
