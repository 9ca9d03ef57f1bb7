//! The host of a database's shares, and the life of its threads.

use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
};

use rhumb::{Batch, Database};
use rhumb_remote::{
    Authority, Error, Host, HostBuilder, HostStats, Paused, Result, ShareOptions, ShareStats,
};

use crate::{
    authority::{Commit, Engine, Source},
    follow::{Event, Follower, Watch},
};

/// Entries whose sizes decide how large leaves are.
const ENTRIES_MEASURED: usize = 1_024;

/// The most bytes of a value that count for that: what a leaf of the largest kind may hold.
const VALUE_BYTES_MEASURED: usize = 1_024;

/// Settings of [`Shared`].
pub struct SharedBuilder {
    host: HostBuilder,
    shares: BTreeMap<String, (Source, ShareOptions)>,
    commit: Commit,
    watch: Watch,
}

impl SharedBuilder {
    /// Shares a keyspace under a name.
    #[must_use]
    pub fn share(mut self, name: impl Into<String>, source: Source, options: ShareOptions) -> Self {
        self.shares.insert(name.into(), (source, options));
        self
    }

    /// Commits what clients write by this in place of [`Batch::commit`].
    #[must_use]
    pub fn commit_by(
        mut self,
        commit: impl Fn(Batch) -> rhumb::Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.commit = Arc::new(commit);
        self
    }

    /// Calls `watch` with the name of a share and what happened to it, from the thread that keeps
    /// it.
    #[must_use]
    pub fn watch(mut self, watch: impl Fn(&str, Event) + Send + Sync + 'static) -> Self {
        self.watch = Arc::new(watch);
        self
    }

    /// Makes the regions, listens, and begins to load the regions. Clients ask the database until
    /// that is done.
    ///
    /// # Errors
    ///
    /// As [`rhumb_remote::HostBuilder::start`].
    pub fn start(self, database: &Database) -> Result<Shared> {
        let sources: BTreeMap<String, Source> =
            self.shares.iter().map(|(name, (source, _))| (name.clone(), source.clone())).collect();
        let engine = Engine { database: database.clone(), sources, commit: self.commit };
        let authority: Arc<dyn Authority> = Arc::new(engine);
        let mut host = self.host;
        for (name, (source, options)) in &self.shares {
            let options = match entry_bytes(source) {
                Some(bytes) => options.or_entry_bytes(bytes),
                None => *options,
            };
            host = host.share_of(name, options, Arc::clone(&authority));
        }
        let mut shared = Shared { host: Some(host.start()?), followers: Vec::new() };
        for (name, (source, _)) in self.shares {
            let Some(publisher) = shared.host().publisher(&name) else { continue };
            let follower = Follower { name, source, publisher, watch: Arc::clone(&self.watch) };
            let thread = thread::Builder::new().name("rhumb-share".to_owned());
            let follower = thread.spawn(move || follower.run());
            // The threads so far end with the host.
            let refused =
                |error| Error::Io { operation: "start a thread".into(), source: Arc::new(error) };
            shared.followers.push(follower.map_err(refused)?);
        }
        Ok(shared)
    }
}

/// The mean size of an entry, if there are some: of the first ones, whose reading takes no time.
fn entry_bytes(source: &Source) -> Option<usize> {
    let keyspace = (source.keyspace)().ok()?;
    let sizes = keyspace.iter().take(ENTRIES_MEASURED).flatten();
    let (count, bytes) = sizes.fold((0, 0), |(count, bytes), (key, value)| {
        // Large values lie elsewhere.
        (count + 1, bytes + key.len() + value.len().min(VALUE_BYTES_MEASURED))
    });
    (count > 0).then(|| bytes / count)
}

impl fmt::Debug for SharedBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.shares.keys().collect();
        f.debug_struct("SharedBuilder").field("host", &self.host).field("shares", &names).finish()
    }
}

/// Keyspaces of a database that other processes read. It keeps the database open; dropping it ends
/// all connections of clients.
#[derive(Debug)]
pub struct Shared {
    /// Taken when it ends.
    host: Option<Host>,
    followers: Vec<JoinHandle<()>>,
}

impl Shared {
    /// Settings of a host whose socket is at `path`. A socket that a dead host has left there is
    /// replaced.
    pub fn listen(path: impl AsRef<Path>) -> SharedBuilder {
        Self::on(Host::listen(path))
    }

    /// Settings of a host that listens as `host` says.
    #[must_use]
    pub fn on(host: HostBuilder) -> SharedBuilder {
        SharedBuilder {
            host,
            shares: BTreeMap::new(),
            commit: Arc::new(Batch::commit),
            watch: Arc::new(|_, _| {}),
        }
    }

    fn host(&self) -> &Host {
        self.host.as_ref().expect("it is there until the drop")
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.host().path()
    }

    /// Where it listens for clients over TCP, but for those that speak TLS.
    #[must_use]
    pub fn tcp_addresses(&self) -> &[SocketAddr] {
        self.host().tcp_addresses()
    }

    /// Where it listens for clients that speak TLS.
    #[must_use]
    pub fn tls_addresses(&self) -> &[SocketAddr] {
        self.host().tls_addresses()
    }

    /// What a share holds; `None` if there is none of that name.
    #[must_use]
    pub fn stats(&self, name: &str) -> Option<ShareStats> {
        self.host().stats(name)
    }

    /// Number of connections.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.host().sessions()
    }

    /// What the host counts of its clients.
    #[must_use]
    pub fn host_stats(&self) -> HostStats {
        self.host().host_stats()
    }

    /// Has clients ask for everything of a share until what is returned is dropped; the region is
    /// loaded again then. `None` if there is no share of that name.
    #[must_use]
    pub fn pause(&self, name: &str) -> Option<Paused> {
        self.host().publisher(name).map(|publisher| publisher.pause())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // It has the threads end.
        drop(self.host.take());
        for follower in self.followers.drain(..) {
            // A panic of it was reported when it happened.
            let _ = follower.join();
        }
    }
}
