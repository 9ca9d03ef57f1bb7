//! The hosts of a cluster, and the connection to each.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{
    super::{Address, CacheBudget, Client, Keyspace, target::Credentials},
    RoutingTable,
};
use crate::error::{Error, Result};

/// All hosts that keyspaces of a cluster use, each with one connection.
pub(super) struct Servers {
    credentials: Credentials,
    budget: CacheBudget,
    patience: Duration,
    /// Weak, so that a host that no table names any more is forgotten.
    known: Mutex<HashMap<Address, Weak<Server>>>,
}

/// A host.
pub(super) struct Server {
    pub(super) address: Address,
    credentials: Credentials,
    budget: CacheBudget,
    client: Mutex<Option<Client>>,
    /// True after it could not be reached, until it could.
    is_down: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change of what it holds is a single step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Servers {
    pub(super) fn new(credentials: Credentials, budget: CacheBudget, patience: Duration) -> Self {
        Self { credentials, budget, patience, known: Mutex::default() }
    }

    /// How long an operation waits for keys that no host serves.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// The host at an address. Does not connect.
    pub(super) fn server(&self, address: &Address) -> Arc<Server> {
        let mut known = lock(&self.known);
        if let Some(server) = known.get(address).and_then(Weak::upgrade) {
            return server;
        }
        known.retain(|_, server| server.strong_count() > 0);
        let server = Arc::new(Server {
            address: address.clone(),
            credentials: self.credentials.clone(),
            budget: self.budget,
            client: Mutex::default(),
            is_down: AtomicBool::new(false),
        });
        known.insert(address.clone(), Arc::downgrade(&server));
        server
    }
}

impl Server {
    /// The connection to the host, which is made if there was none yet.
    pub(super) fn client(&self) -> Result<Client> {
        let mut client = lock(&self.client);
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        let connected = Client::connect_to(self.address.clone(), &self.credentials, self.budget)?;
        Ok(client.insert(connected).clone())
    }

    /// Records if the host could be reached, according to the result of a call.
    fn record_reachable<T>(&self, result: &Result<T>) {
        let is_down = matches!(result, Err(Error::Io { .. } | Error::Closed | Error::TimedOut));
        if is_down != self.is_down.load(Ordering::Relaxed) {
            self.is_down.store(is_down, Ordering::Relaxed);
        }
    }
}

/// A table, and a keyspace's handles of the hosts that it names. Handles are made when they are
/// used.
pub(super) struct View {
    pub(super) table: RoutingTable,
    servers: Vec<Arc<Handle>>,
}

/// How the handles of hosts read, for those that measure.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadSettings {
    /// By calls alone.
    pub(super) by_calls: bool,
    /// The leaves that are looked at are counted.
    pub(super) counted: bool,
}

/// A keyspace of one host.
struct Handle {
    server: Arc<Server>,
    reads: ReadSettings,
    keyspace: OnceLock<Keyspace>,
}

impl View {
    /// The hosts of a table. Those of `before` are kept, with their caches.
    pub(super) fn new(
        servers: &Servers,
        table: &RoutingTable,
        reads: ReadSettings,
        before: Option<&Self>,
    ) -> Self {
        let known: HashMap<&Address, &Arc<Handle>> = before
            .iter()
            .flat_map(|before| &before.servers)
            .map(|handle| (&handle.server.address, handle))
            .collect();
        let handle = |address: &Address| match known.get(address) {
            Some(handle) => Arc::clone(handle),
            None => {
                let server = servers.server(address);
                Arc::new(Handle { server, reads, keyspace: OnceLock::new() })
            }
        };
        Self { table: table.clone(), servers: table.servers().iter().map(handle).collect() }
    }

    /// The keyspace of the host that has a range. Connects to the host if need be.
    ///
    /// # Errors
    ///
    /// [`Error::Server`].
    pub(super) fn keyspace(&self, name: &[u8], range: usize) -> Result<&Keyspace> {
        let opened = self.servers[self.table.server_index(range)].keyspace(name);
        opened.map_err(|error| self.blame(range, error))
    }

    /// Has the host of a range do something.
    ///
    /// # Errors
    ///
    /// [`Error::Moved`]; otherwise [`Error::Server`].
    pub(super) fn ask<T>(
        &self,
        name: &[u8],
        range: usize,
        act: impl FnOnce(&Keyspace) -> Result<T>,
    ) -> Result<T> {
        let handle = &self.servers[self.table.server_index(range)];
        let result = handle.keyspace(name).and_then(act);
        handle.server.record_reachable(&result);
        result.map_err(|error| self.blame(range, error))
    }

    /// The host of a range.
    pub(super) fn server(&self, range: usize) -> &Arc<Server> {
        &self.servers[self.table.server_index(range)].server
    }

    /// The keyspaces that are open, with their hosts.
    pub(super) fn opened(&self) -> impl Iterator<Item = (&Address, &Keyspace)> {
        let opened = |handle: &'_ Arc<Handle>| handle.keyspace.get().is_some();
        self.servers.iter().filter(move |handle| opened(handle)).filter_map(|handle| {
            handle.keyspace.get().map(|keyspace| (&handle.server.address, keyspace))
        })
    }

    /// A table with a higher epoch, of the host that comes `attempt` places after that of a range.
    /// None that is down is asked, and none that cannot say is waited for.
    pub(super) fn newer_table(
        &self,
        name: &[u8],
        range: usize,
        attempt: usize,
    ) -> Option<RoutingTable> {
        let handle = &self.servers[(self.table.server_index(range) + attempt) % self.servers.len()];
        if handle.server.is_down.load(Ordering::Relaxed) {
            return None;
        }
        let keyspace = handle.keyspace(name);
        let table = keyspace.and_then(|keyspace| keyspace.newer_table(self.table.epoch()));
        handle.server.record_reachable(&table);
        table.ok().flatten()
    }

    /// Says which host failed, and which keys it has. An argument that is wrong is so everywhere.
    pub(super) fn blame(&self, range: usize, error: Error) -> Error {
        if matches!(error, Error::Moved { .. } | Error::InvalidArgument(_) | Error::Server { .. }) {
            return error;
        }
        self.blamed(range, error)
    }

    /// [`View::blame`] of any error.
    pub(super) fn blamed(&self, range: usize, error: Error) -> Error {
        let keys = self.table.keys(range);
        let low = keys.low.escape_ascii();
        let until = keys.high.map_or_else(
            || "to the last".to_owned(),
            |high| format!("to before \"{}\"", high.escape_ascii()),
        );
        let server = format!("{} (keys from \"{low}\" {until})", self.table.server(range));
        Error::Server { server: server.into(), source: Arc::new(error) }
    }
}

impl Handle {
    #[inline]
    fn keyspace(&self, name: &[u8]) -> Result<&Keyspace> {
        match self.keyspace.get() {
            Some(keyspace) => Ok(keyspace),
            None => self.open(name),
        }
    }

    #[cold]
    fn open(&self, name: &[u8]) -> Result<&Keyspace> {
        let mut keyspace = self.server.client()?.keyspace(name)?;
        if self.reads.by_calls {
            keyspace = keyspace.by_calls();
        }
        if self.reads.counted {
            keyspace = keyspace.counted();
        }
        // Another thread may have been faster: both are handles of the same one.
        Ok(self.keyspace.get_or_init(|| keyspace))
    }
}

impl std::fmt::Debug for Servers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token is nobody's to read.
        let known: Vec<Address> = lock(&self.known).keys().cloned().collect();
        f.debug_struct("Servers").field("known", &known).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("table", &self.table).finish_non_exhaustive()
    }
}
