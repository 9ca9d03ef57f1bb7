//! A keyspace of which several hosts have a range of keys each.
//!
//! A client has a [`RoutingTable`], which says which host has which keys, and one connection and
//! one learned cache for each host. A table may be old: a host that does not serve a key says
//! `Moved`, and the client asks for a newer table.
//!
//! 1. A host alone decides what it serves. A table is a hint: a wrong one costs round trips, and
//!    never an answer.
//! 2. A call that was answered by `Moved` changed nothing. It is made again, for a time and a
//!    number of times that are bounded.
//! 3. A table is replaced by one with a higher epoch alone, and as a whole.
//! 4. A scan reads one range after the other. Where a range ends, the table of that moment says
//!    which host goes on.

mod batch;
mod keyspace;
mod range;
mod servers;
mod table;
#[cfg(all(test, target_os = "linux", target_pointer_width = "64"))]
mod tests;

use std::{
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

pub use batch::ClusterBatch;
pub use keyspace::ClusterKeyspace;
pub use range::ClusterRange;
use servers::Servers;
pub use table::RoutingTable;

use super::{Address, CacheBudget, target::Credentials};
use crate::error::{Error, Result};

/// How long an operation waits for keys that no host serves: a range of some thousand pairs moves
/// in less.
const PATIENCE: Duration = Duration::from_secs(5);

/// Times that one operation is answered by `Moved` before it fails, however fast newer tables come:
/// several times those that the pauses leave room for in [`PATIENCE`].
const ATTEMPTS_MAX: u32 = 1_000;

/// The longest pause before another attempt; the first is a millisecond, and each next one twice
/// as long.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// The hosts that share the keyspaces of a [`RoutingTable`]. Cloning gives another handle of the
/// same connections.
///
/// Connects to a host when one of its keys is asked for first, so one that is down concerns its own
/// keys alone. It believes a table: it connects to where that says, with its token.
///
/// ```
/// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
/// # fn main() -> rhumb_remote::Result<()> {
/// use rhumb_remote::{Address, Cluster, Host, RoutingTable, Served, ShareOptions};
///
/// // Two hosts, which are two processes otherwise.
/// # let dir = std::env::temp_dir().join(format!("rhumb-cluster-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir).unwrap();
/// # let dir = dir.as_path();
/// let (a, b) = (Address::Unix(dir.join("a.sock")), Address::Unix(dir.join("b.sock")));
/// let table = RoutingTable::new(1, [("", a.clone()), ("n", b.clone())])?;
/// let start = |path: &str, address: &Address| {
///     Host::listen(dir.join(path))
///         .share("users", ShareOptions::default())
///         .serve("users", Served::by(&table, address))
///         .start()
/// };
/// let hosts = [start("a.sock", &a)?, start("b.sock", &b)?];
///
/// // A client of both.
/// let users = Cluster::new(table).keyspace("users");
/// users.insert("ada", "1815")?;
/// users.insert("noether", "1882")?;
/// assert_eq!(users.get("noether")?.as_deref(), Some(&b"1882"[..]));
/// assert_eq!(users.range("a".."z").count(), 2);
/// # drop(hosts);
/// # std::fs::remove_dir_all(dir).unwrap();
/// # Ok(())
/// # }
/// # #[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
/// # fn main() {}
/// ```
#[derive(Clone, Debug)]
pub struct Cluster {
    servers: Arc<Servers>,
    table: RoutingTable,
}

/// Settings of a [`Cluster`].
///
/// ```no_run
/// # fn main() -> rhumb_remote::Result<()> {
/// use rhumb_remote::{CacheBudget, Cluster, RoutingTable};
///
/// let builder = Cluster::builder().token("a secret of all").cache(CacheBudget::Full);
/// let users = builder.open(RoutingTable::read("users.table")?).keyspace("users");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a cluster is made by `open` or `ask`"]
pub struct ClusterBuilder {
    credentials: Credentials,
    budget: CacheBudget,
    patience: Duration,
}

impl std::fmt::Debug for ClusterBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token is nobody's to read.
        f.debug_struct("ClusterBuilder").field("budget", &self.budget).finish_non_exhaustive()
    }
}

impl ClusterBuilder {
    /// What the client presents to hosts over TCP, which is the same to all of them.
    pub fn token(mut self, token: impl Into<Vec<u8>>) -> Self {
        self.credentials.token = Some(token.into());
        self
    }

    /// As [`ClientBuilder::root_certificates`](crate::ClientBuilder::root_certificates), for all
    /// hosts. A table may name hosts that are reached without TLS all the same.
    pub fn root_certificates(mut self, path: impl AsRef<Path>) -> Self {
        self.credentials.roots.push(path.as_ref().to_owned());
        self
    }

    /// How much the client keeps of each host's directory or models, as
    /// [`ClientBuilder::cache`](crate::ClientBuilder::cache) has it for one.
    pub fn cache(mut self, budget: CacheBudget) -> Self {
        self.budget = budget;
        self
    }

    /// How long an operation waits for keys that no host serves, because they are on their way to
    /// another one, or may not be written meanwhile. 5 seconds, if nothing is said.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    fn servers(self) -> Arc<Servers> {
        Arc::new(Servers::new(self.credentials, self.budget, self.patience))
    }

    /// The hosts of a table. Connects to none yet.
    #[must_use]
    pub fn open(self, table: RoutingTable) -> Cluster {
        Cluster { servers: self.servers(), table }
    }

    /// The hosts of the table that one of them has for a keyspace.
    ///
    /// # Errors
    ///
    /// As [`Client::connect`](crate::Client::connect) and
    /// [`Client::keyspace`](crate::Client::keyspace); [`Error::InvalidArgument`] if that host was
    /// told no table.
    pub fn ask(self, address: impl AsRef<Path>, keyspace: impl AsRef<[u8]>) -> Result<Cluster> {
        let address = Address::parse(address)?;
        let servers = self.servers();
        let server = servers.server(&address);
        let table = server.client()?.keyspace(keyspace)?.routing_table()?;
        let none = || Error::InvalidArgument(format!("{address} has no routing table").into());
        Ok(Cluster { servers, table: table.ok_or_else(none)? })
    }
}

impl Cluster {
    /// The hosts of a table. Connects to none yet.
    #[must_use]
    pub fn new(table: RoutingTable) -> Self {
        Self::builder().open(table)
    }

    /// Settings for hosts that ask for a token, and of the clients' caches.
    pub fn builder() -> ClusterBuilder {
        let (credentials, budget) = Default::default();
        ClusterBuilder { credentials, budget, patience: PATIENCE }
    }

    /// A keyspace that the hosts share. It begins with the cluster's table, and follows the hosts'
    /// newer ones by itself.
    #[must_use]
    pub fn keyspace(&self, name: impl AsRef<[u8]>) -> ClusterKeyspace {
        ClusterKeyspace::new(Arc::clone(&self.servers), name.as_ref(), &self.table)
    }
}

/// How often an operation was answered by `Moved`.
#[derive(Debug, Default)]
struct Attempts {
    count: u32,
    /// When the first was.
    began: Option<Instant>,
}

impl Attempts {
    /// Counts another answer; returns false if there were too many, or for too long.
    fn again(&mut self, patience: Duration) -> bool {
        self.count += 1;
        let began = *self.began.get_or_insert_with(Instant::now);
        self.count <= ATTEMPTS_MAX && began.elapsed() <= patience
    }

    /// Waits before the next attempt: while keys move, no host serves them.
    fn pause(&self) {
        let pause = Duration::from_millis(1 << self.count.min(10));
        thread::sleep(pause.min(PAUSE_MAX));
    }
}
