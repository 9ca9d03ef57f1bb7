//! Settings of a client.

use std::path::{Path, PathBuf};

use super::{Client, address::Address, target::Credentials, tcp::CacheBudget};
use crate::error::Result;

/// Settings of a [`Client`].
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use rhumb_remote::{CacheBudget, Client};
///
/// let client = Client::builder("tcp:db.example:7000")
///     .token(std::fs::read("/etc/rhumb/token")?)
///     .cache(CacheBudget::Bytes(1 << 20))
///     .connect()?;
/// let users = client.keyspace("users")?;
/// assert_eq!(users.get("ada")?.as_deref(), Some(&b"1815"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a client is connected by `connect`"]
pub struct ClientBuilder {
    pub(super) address: PathBuf,
    pub(super) credentials: Credentials,
    pub(super) budget: CacheBudget,
}

impl Client {
    /// Settings of a client of the host at an [`Address`].
    pub fn builder(address: impl AsRef<Path>) -> ClientBuilder {
        let address = address.as_ref().to_owned();
        let (credentials, budget) = Default::default();
        ClientBuilder { address, credentials, budget }
    }
}

impl ClientBuilder {
    /// What a client over TCP presents to its host: at most 256 bytes. A host on a Unix socket is
    /// sent none.
    pub fn token(mut self, token: impl Into<Vec<u8>>) -> Self {
        self.credentials.token = Some(token.into());
        self
    }

    /// A PEM file of certificates with which a client over TLS ([`Address::Tls`]) checks a host's
    /// certificate: those of the authorities that sign hosts, as a rule, or that of a host itself.
    /// There may be several files. Without any it trusts nobody; what the system trusts does not
    /// count.
    pub fn root_certificates(mut self, path: impl AsRef<Path>) -> Self {
        self.credentials.roots.push(path.as_ref().to_owned());
        self
    }

    /// How much a client over TCP keeps of each keyspace's directory, and how much any client keeps
    /// of the models of a keyspace with another preset than
    /// [`Preset::Rhumb`](crate::Preset::Rhumb). Clients on a Unix socket read the directory in the
    /// region, which all of them share.
    pub fn cache(mut self, budget: CacheBudget) -> Self {
        self.budget = budget;
        self
    }

    /// Connects.
    ///
    /// # Errors
    ///
    /// As [`Client::connect`].
    pub fn connect(self) -> Result<Client> {
        let address = Address::parse(&self.address)?;
        Client::connect_to(address, &self.credentials, self.budget)
    }
}

impl std::fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token is nobody's to read.
        let mut debug = f.debug_struct("ClientBuilder");
        debug.field("address", &self.address).field("budget", &self.budget).finish_non_exhaustive()
    }
}
