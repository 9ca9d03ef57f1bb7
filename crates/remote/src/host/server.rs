//! A host: keyspaces that are shared, and the socket at which clients ask for them.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{
    Authority, Publisher,
    care::Bell,
    session::Session,
    share::{Share, ShareOptions, ShareStats},
};
use crate::{
    clock,
    error::{Error, Result},
    socket::{Listener, Stream},
};

/// How long clients trust a region without a sign of its host. A host that dies is noticed after
/// this at the latest; one that is stopped for longer has its clients ask.
const LEASE: Duration = Duration::from_secs(1);

/// A host says four times in a lease that it is there, so that one late beat does no harm.
const BEATS: u32 = 4;

/// The clock of leases is coarse: it steps with the timer's interrupt, 100 times a second at least.
const CLOCK_STEP: Duration = Duration::from_millis(20);

/// The most connections, each of which has a thread of its own.
const SESSIONS_MAX: usize = 4_096;

/// How long a client may leave an answer unread before its connection ends.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// The stack of a connection's thread, in bytes: requests recurse nowhere.
const STACK_BYTES: usize = 256 << 10;

/// Settings of a [`Host`].
pub struct HostBuilder {
    path: PathBuf,
    shares: BTreeMap<String, (ShareOptions, Option<Arc<dyn Authority>>)>,
}

impl std::fmt::Debug for HostBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&String> = self.shares.keys().collect();
        f.debug_struct("HostBuilder").field("path", &self.path).field("shares", &names).finish()
    }
}

impl HostBuilder {
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

    /// Makes the regions and listens. Where a host has died at this path, it waits for a second
    /// before that, the length of the lease, for which clients may go on to read what that host
    /// shared: so writes to the same data are to begin afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if another host listens there, or the system refuses the socket or the memory;
    /// [`Error::Unsupported`] where there is no memory that can be sealed (other systems than
    /// Linux).
    pub fn start(self) -> Result<Host> {
        let listener = Listener::bind(&self.path)?;
        if listener.has_replaced() {
            // Clients of the host that died read its region until its lease is over. They would
            // miss what is written before that.
            thread::sleep(LEASE + CLOCK_STEP);
        }
        let (mut shares, bell) = (BTreeMap::new(), Arc::new(Bell::default()));
        for (name, (options, authority)) in self.shares {
            let share = match authority {
                None => Share::volatile(options, &bell)?,
                Some(authority) => Share::published(options, authority, &bell)?,
            };
            shares.insert(name, Arc::new(share));
        }
        let inner = Arc::new(Inner { shares, bell, registry: Arc::default() });
        inner.beat(clock::now_ms());
        let listener = Arc::new(listener);
        let (host, socket) = (Arc::clone(&inner), Arc::clone(&listener));
        let accepts = spawn("rhumb-accept", move || host.accept(&socket))?;
        let process = std::process::id();
        let mut host = Host { inner, listener, threads: vec![accepts], path: self.path, process };
        let inner = Arc::clone(&host.inner);
        // If there is no such thread, dropping `host` ends the other.
        host.threads.push(spawn("rhumb-lease", move || inner.keep_lease())?);
        let inner = Arc::clone(&host.inner);
        host.threads.push(spawn("rhumb-care", move || inner.care())?);
        Ok(host)
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let thread = thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES);
    thread.spawn(run).map_err(|error| Error::io("start a thread", error))
}

/// Shares keyspaces with other processes of the machine.
///
/// Clients map the memory of a keyspace and read it themselves; they ask the host for writes, and
/// for what they cannot read. Dropping a host ends all connections. In a child that is forked from
/// its process, dropping it does nothing; the process goes on to be the host.
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
#[derive(Debug)]
pub struct Host {
    inner: Arc<Inner>,
    listener: Arc<Listener>,
    threads: Vec<JoinHandle<()>>,
    path: PathBuf,
    /// The process that started it.
    process: u32,
}

/// What a host's threads share.
#[derive(Debug)]
pub(super) struct Inner {
    shares: BTreeMap<String, Arc<Share>>,
    /// Wakes the thread that stands by for the tables.
    bell: Arc<Bell>,
    registry: Arc<Registry>,
}

/// The connections, which outlive what they speak of.
#[derive(Debug, Default)]
struct Registry {
    sessions: Mutex<Sessions>,
    ended: Condvar,
}

impl Registry {
    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        // Each change of it is a single step.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connections.
#[derive(Debug, Default)]
struct Sessions {
    live: HashMap<u64, Arc<Stream>>,
    next: u64,
    is_closing: bool,
}

impl Host {
    /// Settings of a host whose socket is at `path`. A socket that a dead host has left there is
    /// replaced.
    pub fn listen(path: impl AsRef<Path>) -> HostBuilder {
        HostBuilder { path: path.as_ref().to_owned(), shares: BTreeMap::new() }
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
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

    /// Number of connections.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.inner.sessions().live.len()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            // In a forked child nothing of it may be ended: its threads are not here, and its
            // socket and its connections are the parent's.
            std::mem::forget(Arc::clone(&self.inner));
            std::mem::forget(Arc::clone(&self.listener));
            std::mem::forget(std::mem::take(&mut self.threads));
            return;
        }
        // Clients stop reading before the writes that others may then make elsewhere.
        self.inner.beat(0);
        let streams: Vec<Arc<Stream>> = {
            let mut sessions = self.inner.sessions();
            sessions.is_closing = true;
            sessions.live.values().cloned().collect()
        };
        self.inner.registry.ended.notify_all();
        self.inner.bell.end();
        // Where a listener cannot be woken, its thread ends at the next connection.
        let is_woken = self.listener.shutdown().is_ok();
        for stream in streams {
            // What it was doing ends with it.
            let _ = stream.shutdown();
        }
        for thread in self.threads.drain(..).skip(usize::from(!is_woken)) {
            // A panic of it was reported when it happened.
            let _ = thread.join();
        }
        let mut sessions = self.inner.sessions();
        while !sessions.live.is_empty() {
            sessions =
                self.inner.registry.ended.wait(sessions).unwrap_or_else(PoisonError::into_inner);
        }
        drop(sessions);
        // One of them may have said that the host is there, to a client that came last.
        self.inner.beat(0);
    }
}

impl Inner {
    /// The keyspace of a name.
    pub(super) fn share(&self, name: &str) -> Option<Arc<Share>> {
        self.shares.get(name).cloned()
    }

    /// How long clients may read without a sign of the host, in milliseconds.
    pub(super) fn lease_ms(&self) -> u32 {
        LEASE.as_millis() as u32
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.registry.sessions()
    }

    fn beat(&self, now_ms: u64) {
        self.shares.values().for_each(|share| share.beat(now_ms));
    }

    /// Says that the host is there until it ends.
    fn keep_lease(&self) {
        let mut sessions = self.sessions();
        while !sessions.is_closing {
            self.beat(clock::now_ms());
            let waited = self.registry.ended.wait_timeout(sessions, LEASE / BEATS);
            sessions = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        self.beat(0);
    }

    /// Does what tables want until the host ends.
    fn care(&self) {
        while self.bell.wait() {
            self.shares.values().for_each(|share| share.care());
        }
    }

    fn accept(self: &Arc<Self>, listener: &Listener) {
        loop {
            match listener.accept() {
                Ok((stream, _peer)) => self.begin(Arc::new(stream)),
                Err(Error::Closed) => return,
                // The process may open no more descriptors for now.
                Err(_) => thread::sleep(LEASE / BEATS),
            }
            if self.sessions().is_closing {
                return;
            }
        }
    }

    /// Gives a connection a thread; closes it if there are too many.
    fn begin(self: &Arc<Self>, stream: Arc<Stream>) {
        let id = {
            let mut sessions = self.sessions();
            if sessions.is_closing || sessions.live.len() >= SESSIONS_MAX {
                return;
            }
            let id = sessions.next;
            sessions.next += 1;
            sessions.live.insert(id, Arc::clone(&stream));
            id
        };
        let (host, registry) = (Arc::clone(self), Arc::clone(&self.registry));
        let started = spawn("rhumb-session", move || {
            let _end = End { registry, id };
            // Dropped before that: once the last session has ended, nothing holds an authority.
            let host = host;
            if stream.set_timeouts(None, Some(SEND_TIMEOUT)).is_err() {
                return;
            }
            // The client was told what it did wrong, or has gone.
            let _ = Session::new(&host, &stream).run();
            let _ = stream.shutdown();
        });
        if started.is_err() {
            self.sessions().live.remove(&id);
        }
    }
}

/// Takes a connection off the list, also if its thread panics.
struct End {
    registry: Arc<Registry>,
    id: u64,
}

impl Drop for End {
    fn drop(&mut self) {
        self.registry.sessions().live.remove(&self.id);
        self.registry.ended.notify_all();
    }
}

impl std::fmt::Debug for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Share").finish_non_exhaustive()
    }
}
