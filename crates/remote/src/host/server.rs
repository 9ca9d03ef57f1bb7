//! A host: keyspaces that are shared, and the sockets at which clients ask for them.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, RwLock},
    thread::{self, JoinHandle},
    time::Duration,
};

use mio::Interest;

use super::{
    Authority, Publisher,
    access::Access,
    care::Bell,
    limits::{Limits, Origin},
    pool::Pool,
    registry::Registry,
    served::{Gate, Moving, Served},
    session::Session,
    share::{Share, ShareOptions, ShareStats},
    tally::{HostStats, Tally},
};
use crate::{
    client::Keyspace,
    clock,
    error::{Error, Result},
    ranges::KeyRange,
    socket::{Door, Identity, Listener, Other, Stream, TcpPort},
};

/// How long clients trust a region without a sign of its host. A host that dies is noticed after
/// this at the latest; one that is stopped for longer has its clients ask.
const LEASE: Duration = Duration::from_secs(1);

/// A host says four times in a lease that it is there, so that one late beat does no harm.
const BEATS: u32 = 4;

/// The clock of leases is coarse: it steps with the timer's interrupt, 100 times a second at least.
const CLOCK_STEP: Duration = Duration::from_millis(20);

/// The most threads that train models: more would wait for each other.
const TRAINERS_MAX: usize = 64;

/// The stack of a thread that accepts connections or keeps the lease, in bytes.
const STACK_BYTES: usize = 256 << 10;

/// Settings of a [`Host`].
pub struct HostBuilder {
    path: Option<PathBuf>,
    ports: Vec<SocketAddr>,
    tls_ports: Vec<SocketAddr>,
    /// The files of the certificates and of the key.
    identity: Option<(PathBuf, PathBuf)>,
    pub(super) access: Access,
    pub(super) limits: Limits,
    shares: BTreeMap<String, (ShareOptions, Option<Arc<dyn Authority>>)>,
    served: BTreeMap<String, Served>,
    trainers: usize,
}

impl std::fmt::Debug for HostBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&String> = self.shares.keys().collect();
        let mut debug = f.debug_struct("HostBuilder");
        debug.field("path", &self.path).field("ports", &self.ports);
        debug.field("tls_ports", &self.tls_ports).field("shares", &names);
        debug.finish_non_exhaustive()
    }
}

impl HostBuilder {
    /// Listens on a Unix socket at `path`: [`Host::listen`] for a builder that has none.
    #[must_use]
    pub fn listen(mut self, path: impl AsRef<Path>) -> Self {
        self.path = Some(path.as_ref().to_owned());
        self
    }

    /// Listens for clients on other machines, or on this one, at an address and a port; the port 0
    /// stands for any that is free, and [`Host::tcp_addresses`] says which. There may be several
    /// addresses.
    ///
    /// What goes over the network is not encrypted: a token can be read on the way, and so can
    /// values. Between machines that others can listen to, use [`HostBuilder::listen_tls`], or have
    /// a tunnel carry it (WireGuard, SSH).
    #[must_use]
    pub fn listen_tcp(mut self, address: SocketAddr) -> Self {
        self.ports.push(address);
        self
    }

    /// As [`HostBuilder::listen_tcp`], for clients that speak TLS: [`Address::Tls`]. It needs
    /// [`HostBuilder::identity`], and a build with the feature `tls`. Clients present the token all
    /// the same. [`Host::tls_addresses`] says where it listens.
    ///
    /// A handshake takes some hundred microseconds of a worker, which does not wait for the client
    /// meanwhile. A silent client costs some kilobytes instead of some hundred bytes.
    ///
    /// [`Address::Tls`]: crate::Address::Tls
    #[must_use]
    pub fn listen_tls(mut self, address: SocketAddr) -> Self {
        self.tls_ports.push(address);
        self
    }

    /// The files of the host's certificate, with those that lead to the authority after it, and of
    /// its private key, both PEM. They are read when the host starts.
    #[must_use]
    pub fn identity(mut self, chain: impl AsRef<Path>, key: impl AsRef<Path>) -> Self {
        self.identity = Some((chain.as_ref().to_owned(), key.as_ref().to_owned()));
        self
    }

    /// What clients over TCP, encrypted or not, must present: 1 to 256 bytes. Those of the Unix
    /// socket need none.
    #[must_use]
    pub fn token(mut self, token: impl Into<Vec<u8>>) -> Self {
        self.access.token = Some(token.into());
        self
    }

    /// Lets everybody in who reaches an address of [`HostBuilder::listen_tcp`] or
    /// [`HostBuilder::listen_tls`], though it is not
    /// one of this machine alone and no token is set.
    #[must_use]
    pub fn allow_open(mut self, allows: bool) -> Self {
        self.access.is_open = allows;
        self
    }

    /// Shares an empty keyspace under a name, which lives as long as the host.
    #[must_use]
    pub fn share(mut self, name: impl Into<String>, options: ShareOptions) -> Self {
        self.shares.insert(name.into(), (options, None));
        self
    }

    /// Shares a keyspace of a store under a name. Clients ask the store for everything until its
    /// [publisher](Host::publisher) was told what it holds.
    #[must_use]
    pub fn share_of(
        mut self,
        name: impl Into<String>,
        options: ShareOptions,
        authority: Arc<dyn Authority>,
    ) -> Self {
        self.shares.insert(name.into(), (options, Some(authority)));
        self
    }

    /// Has the host serve a part of a keyspace that it shares, beside other hosts with other parts.
    #[must_use]
    pub fn serve(mut self, name: impl Into<String>, served: Served) -> Self {
        self.served.insert(name.into(), served);
        self
    }

    /// How many threads train the models that clients keep, of volatile keyspaces of
    /// [`Preset::XStore`](crate::Preset::XStore): 1, unless this is called; at most 64. With more
    /// of them, models are stale for a shorter time where keys are inserted fast. One of them does
    /// what keyspaces of other presets want, too.
    #[must_use]
    pub fn trainers(mut self, count: usize) -> Self {
        self.trainers = count.clamp(1, TRAINERS_MAX);
        self
    }

    /// Makes the regions and listens. Where a host has died at this path, it waits for a second
    /// before that, the length of the lease, for which clients may go on to read what that host
    /// shared: so writes to the same data are to begin afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if another host listens there, or the system refuses the socket or the memory;
    /// [`Error::InvalidArgument`] if it would listen nowhere, if other machines would reach it
    /// without a token, which [`HostBuilder::allow_open`] allows, if it would serve a part of what
    /// it does not share, or if the files of its certificate cannot be used;
    /// [`Error::Unsupported`] where there is no memory that can be sealed (other systems than
    /// Linux), and for TLS in a build without it.
    pub fn start(self) -> Result<Host> {
        let ports = [&self.ports[..], &self.tls_ports].concat();
        self.access.check(&ports)?;
        self.limits.check()?;
        if self.path.is_none() && ports.is_empty() {
            return Err(Error::InvalidArgument("a host that listens nowhere".into()));
        }
        let identity = self.load_identity()?;
        let mut doors: Vec<Door> = Vec::new();
        if let Some(path) = &self.path {
            let has_guests = self.access.has_guests();
            let listener =
                if has_guests { Listener::bind_open(path)? } else { Listener::bind(path)? };
            if listener.has_replaced() {
                // Clients of the host that died read its region until its lease is over. They
                // would miss what is written before that.
                // planted: host-begins-before-lease-killed
                thread::sleep(LEASE + CLOCK_STEP);
            }
            doors.push(Door::Unix(listener));
        }
        let addresses = open_ports(self.ports, None, &mut doors)?;
        let tls_addresses = open_ports(self.tls_ports, identity, &mut doors)?;
        let (mut shares, bell) = (BTreeMap::new(), Arc::new(Bell::default()));
        for (name, (options, authority)) in self.shares {
            let share = match authority {
                None => Share::volatile(options, &bell)?,
                Some(authority) => Share::published(options, authority, &bell)?,
            };
            shares.insert(name, Arc::new(share));
        }
        let (access, gate) = (self.access, Gate::default());
        let registry = Arc::new(Registry::new(self.limits));
        let inner = Arc::new(Inner { shares, gate, access, bell, registry });
        for (name, served) in self.served {
            inner.known(&name)?.serve(served)?;
        }
        let pool = Pool::start(inner.limits().kept_bytes)?;
        inner.beat(clock::now_ms());
        let (path, process) = (self.path.unwrap_or_default(), std::process::id());
        let doors = doors.into_iter().map(|door| (Arc::new(door), None)).collect();
        let helpers = Vec::new();
        let mut host =
            Host { inner, pool, doors, helpers, path, addresses, tls_addresses, process };
        // If there is no such thread, dropping `host` ends the others.
        for (door, thread) in &mut host.doors {
            let (inner, pool, door) =
                (Arc::clone(&host.inner), Arc::clone(&host.pool), Arc::clone(door));
            *thread = Some(spawn("rhumb-accept", move || inner.accept(&pool, &door))?);
        }
        let inner = Arc::clone(&host.inner);
        host.helpers.push(spawn("rhumb-lease", move || inner.keep_lease())?);
        let inner = Arc::clone(&host.inner);
        host.helpers.push(spawn("rhumb-care", move || inner.care())?);
        for _ in 1..self.trainers {
            let inner = Arc::clone(&host.inner);
            host.helpers.push(spawn("rhumb-train", move || inner.train())?);
        }
        Ok(host)
    }

    /// What the host shows to clients over TLS, if there are to be some.
    fn load_identity(&self) -> Result<Option<Identity>> {
        match &self.identity {
            _ if self.tls_ports.is_empty() => Ok(None),
            Some((chain, key)) => Identity::load(chain, key).map(Some),
            None => {
                let text = "a host over TLS has the files of a certificate and its key (identity)";
                Err(Error::InvalidArgument(text.into()))
            }
        }
    }
}

/// Listens on addresses; returns them with the ports that were free.
fn open_ports(
    ports: Vec<SocketAddr>,
    identity: Option<Identity>,
    doors: &mut Vec<Door>,
) -> Result<Vec<SocketAddr>> {
    let mut addresses = Vec::with_capacity(ports.len());
    for address in ports {
        let port = TcpPort::bind(address, identity.clone())?;
        addresses.push(port.address());
        doors.push(Door::Tcp(port));
    }
    Ok(addresses)
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let thread = thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES);
    thread.spawn(run).map_err(|error| Error::io("start a thread", error))
}

/// Shares keyspaces with other processes, of the machine and of others.
///
/// Clients of the machine map the memory of a keyspace and read it themselves; they ask the host
/// for writes, and for what they cannot read. Clients over TCP tell the host in which leaf they
/// expect a key, and the host looks there. Dropping a host ends all connections. In a child that is
/// forked from its process, dropping it does nothing; the process goes on to be the host.
///
/// ```no_run
/// # fn main() -> rhumb_remote::Result<()> {
/// use rhumb_remote::{Host, ShareOptions};
///
/// let host = Host::listen("/run/user/1000/rhumb.sock")
///     .share("users", ShareOptions::default())
///     .start()?;
/// # drop(host);
/// # Ok(())
/// # }
/// ```
///
/// For clients on other machines:
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use rhumb_remote::{Host, ShareOptions};
///
/// let host = Host::builder()
///     .listen_tcp("0.0.0.0:7000".parse()?)
///     .token(std::fs::read("/etc/rhumb/token")?)
///     .share("users", ShareOptions::default())
///     .start()?;
/// # drop(host);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Host {
    inner: Arc<Inner>,
    /// Its connections, and the threads that answer them.
    pool: Arc<Pool>,
    /// Where it listens, each with the thread that accepts connections there.
    doors: Vec<(Arc<Door>, Option<JoinHandle<()>>)>,
    /// Those that keep the lease, and stand by for the tables.
    helpers: Vec<JoinHandle<()>>,
    path: PathBuf,
    addresses: Vec<SocketAddr>,
    tls_addresses: Vec<SocketAddr>,
    /// The process that started it.
    process: u32,
}

/// What a host's threads share.
#[derive(Debug)]
pub(super) struct Inner {
    shares: BTreeMap<String, Arc<Share>>,
    gate: Gate,
    access: Access,
    /// Wakes the threads that stand by for the tables.
    bell: Arc<Bell>,
    registry: Arc<Registry>,
}

impl Host {
    /// Settings of a host whose socket is at `path`. A socket that a dead host has left there is
    /// replaced.
    pub fn listen(path: impl AsRef<Path>) -> HostBuilder {
        Self::builder().listen(path)
    }

    /// Settings of a host that listens nowhere yet.
    #[must_use]
    pub fn builder() -> HostBuilder {
        let (path, ports, access) = (None, Vec::new(), Access::default());
        let (limits, shares, served) = (Limits::default(), BTreeMap::new(), BTreeMap::new());
        let (tls_ports, identity, trainers) = (Vec::new(), None, 1);
        HostBuilder { path, ports, tls_ports, identity, access, limits, shares, served, trainers }
    }

    /// Where its Unix socket is; empty if it has none.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where it listens for clients over TCP, but for those that speak TLS.
    #[must_use]
    pub fn tcp_addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where it listens for clients that speak TLS.
    #[must_use]
    pub fn tls_addresses(&self) -> &[SocketAddr] {
        &self.tls_addresses
    }

    /// What a shared keyspace holds; `None` if there is none of that name. Waits for a write that
    /// is under way.
    #[must_use]
    pub fn stats(&self, name: &str) -> Option<ShareStats> {
        self.inner.shares.get(name).map(|share| share.stats())
    }

    /// Where the changes of a keyspace of a store are told; `None` if none is shared under that
    /// name, or only a volatile one.
    #[must_use]
    pub fn publisher(&self, name: &str) -> Option<Publisher> {
        self.inner.shares.get(name)?.publisher().cloned()
    }

    /// Serves these keys of a keyspace from here on, and no others: their clients are told that
    /// they have moved. Waits for writes that are under way, and for no client. Without a table the
    /// host keeps the one that it has. How keys go to another host is said at [`Served`].
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if no keyspace is shared under that name, and for a table that is
    /// older than the one that the host has.
    pub fn serve(&self, name: &str, served: Served) -> Result<()> {
        let share = self.inner.known(name)?;
        let _no_writes = self.inner.gate.change();
        share.serve(served)
    }

    /// Copies the pairs from `low` on, and before `high` if there is such an end, from another
    /// host, in place of what this one has there; returns their number. This host does not serve
    /// these keys yet, and nobody writes them at the other. Some hundred pairs at a time.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if no keyspace is shared under that name, or if this host serves
    /// one of the keys; those of reading from the other host, and of writing here. What was copied
    /// before stays, and another try begins anew.
    pub fn copy_from(
        &self,
        name: &str,
        other: &Keyspace,
        low: impl AsRef<[u8]>,
        high: Option<&[u8]>,
    ) -> Result<u64> {
        let share = self.inner.known(name)?;
        share.wait_for_reads();
        self.inner.moving(name, share).copy_from(other, &KeyRange::new(low, high))
    }

    /// Removes all keys that the host does not serve; returns their number. Some hundred keys at a
    /// time.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if no keyspace is shared under that name; those of writing here.
    pub fn remove_unserved(&self, name: &str) -> Result<u64> {
        let share = self.inner.known(name)?;
        share.wait_for_reads();
        self.inner.moving(name, share).remove_unserved()
    }

    /// Holds a lock while arrays of a volatile keyspace of the preset FineStore are trained, from
    /// here on: clients that hold it for reading while they read wait for that. What the barrier
    /// saves them is measured so.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if no such keyspace is shared under that name.
    #[doc(hidden)]
    pub fn train_alone(&self, name: &str, lock: Arc<RwLock<()>>) -> Result<()> {
        self.inner.known(name)?.train_alone(lock)
    }

    /// The threads that answer.
    #[cfg(test)]
    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// What it counts of its clients.
    #[must_use]
    pub fn host_stats(&self) -> HostStats {
        self.inner.tally().stats(self.sessions())
    }

    /// Number of connections.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.inner.registry.len()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            // In a forked child nothing of it may be ended: its threads are not here, and its
            // socket and its connections are the parent's.
            std::mem::forget(Arc::clone(&self.inner));
            std::mem::forget(Arc::clone(&self.pool));
            std::mem::forget(std::mem::take(&mut self.doors));
            std::mem::forget(std::mem::take(&mut self.helpers));
            return;
        }
        // Clients stop reading before the writes that others may then make elsewhere.
        self.inner.beat(0);
        let streams = self.inner.registry.close();
        self.pool.close();
        self.inner.bell.end();
        let mut threads: Vec<JoinHandle<()>> = std::mem::take(&mut self.helpers);
        for (door, thread) in &mut self.doors {
            // Where a listener cannot be woken, its thread ends at the next connection.
            if door.shutdown().is_ok() {
                threads.extend(thread.take());
            }
        }
        for stream in streams {
            // What it was doing ends with it.
            let _ = stream.shutdown();
        }
        for thread in threads {
            // A panic of it was reported when it happened.
            let _ = thread.join();
        }
        self.inner.registry.join();
        self.pool.join();
        // One of them may have said that the host is there, to a client that came last.
        self.inner.beat(0);
    }
}

impl Inner {
    /// The keyspace of a name.
    pub(super) fn share(&self, name: &str) -> Option<Arc<Share>> {
        self.shares.get(name).cloned()
    }

    /// The keyspace of a name, for those that must know it.
    fn known(&self, name: &str) -> Result<&Share> {
        let share = self.shares.get(name).map(|share| &**share);
        share.ok_or_else(|| Error::InvalidArgument(format!("no share {name:?}").into()))
    }

    fn moving<'s>(&'s self, name: &'s str, share: &'s Share) -> Moving<'s> {
        let (authority, serving) = (share.authority(), share.serving());
        Moving { name, authority, serving, gate: &self.gate }
    }

    /// What keeps writes and changes of what is served apart.
    pub(super) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Returns true if a client over TCP that presents this may use the host.
    pub(super) fn admits(&self, token: Option<&[u8]>) -> bool {
        self.access.admits(token)
    }

    /// What is counted of clients.
    pub(super) fn tally(&self) -> &Tally {
        self.registry.tally()
    }

    /// What clients may take.
    pub(super) fn limits(&self) -> &Limits {
        self.registry.limits()
    }

    /// How long clients may read without a sign of the host, in milliseconds.
    pub(super) fn lease_ms(&self) -> u32 {
        LEASE.as_millis() as u32
    }

    fn beat(&self, now_ms: u64) {
        self.shares.values().for_each(|share| share.beat(now_ms));
    }

    /// Says that the host is there until it ends.
    fn keep_lease(&self) {
        loop {
            let now_ms = clock::now_ms();
            self.tally().count_beat(now_ms, self.lease_ms());
            self.beat(now_ms);
            if self.shares.values().any(|share| share.has_lost_a_device()) {
                // What takes a while is not for the thread that keeps the lease.
                self.bell.ring();
            }
            if !self.registry.wait(LEASE / BEATS) {
                break;
            }
        }
        self.beat(0);
    }

    /// Does what tables want until the host ends.
    fn care(&self) {
        let mut heard = 0;
        while self.bell.wait(&mut heard) {
            self.shares.values().for_each(|share| share.let_go_of_devices());
            self.shares.values().for_each(|share| share.care());
        }
    }

    /// Trains models beside [`Inner::care`] until the host ends.
    fn train(&self) {
        let mut heard = 0;
        while self.bell.wait(&mut heard) {
            self.shares.values().for_each(|share| share.train());
        }
    }

    fn accept(self: &Arc<Self>, pool: &Pool, door: &Door) {
        loop {
            match door.accept() {
                Ok((stream, other)) => {
                    let (origin, refusal) = match other {
                        Other::User(peer) => (Origin::User(peer.uid), self.access.refuse(peer)),
                        Other::Address(address) => (Origin::Address(address), None),
                    };
                    self.begin(pool, Arc::new(stream), origin, refusal);
                }
                Err(Error::Closed) => return,
                // The process may open no more descriptors for now.
                Err(_) => thread::sleep(LEASE / BEATS),
            }
            if self.registry.is_closing() {
                return;
            }
        }
    }

    /// Has the pool wait for what a client says, also if it may not come: it is told so then.
    pub(super) fn begin(
        self: &Arc<Self>,
        pool: &Pool,
        stream: Arc<Stream>,
        origin: Origin,
        refusal: Option<String>,
    ) {
        let Some((registration, refusal)) = self.registry.enter(&stream, origin, refusal) else {
            return;
        };
        if let Ok(session) = Session::new(Arc::clone(self), stream, registration, refusal) {
            pool.park(Box::new(session), Interest::READABLE);
        }
    }
}

impl std::fmt::Debug for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Share").finish_non_exhaustive()
    }
}
