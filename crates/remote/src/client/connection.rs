//! The connection to a host: calls, regions that grow, and a host that comes back.

use std::{
    collections::{HashMap, VecDeque},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use super::{
    address::Address,
    calls::Calls,
    counts::Counters,
    keyspace::{Keyspace, KeyspaceInner, Mapped, ReadSource},
    rdma::Remote,
    renewal::Schedule,
    target::{Credentials, Target},
    tcp::{self, Cache, CacheBudget, Pieces, Shape},
};
use crate::{
    error::{Error, Result},
    message::{Frame, Op, Reply, Request, format::failure},
    socket::Stream,
};

/// How long a call waits for its answer: a host that is stopped is given up after this.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a client waits for a host that has gone: a restart takes as long.
pub(super) const RETURN_TIMEOUT: Duration = Duration::from_secs(10);

/// The time between two attempts to reach a host that has gone.
pub(super) const ATTEMPT_EVERY: Duration = Duration::from_millis(20);

/// A client of one host. Cloning gives another handle of the same connection, which any number of
/// threads may use. On a Unix socket calls go one after the other, and reads that need no call do
/// not wait for them; over TCP every read and write is a message, and those of several threads are
/// under way at once. A child that is forked from the process may use it too, if no other thread
/// was calling then: it connects anew.
///
/// ```no_run
/// # fn main() -> rhumb_remote::Result<()> {
/// use rhumb_remote::Client;
///
/// let client = Client::connect("/run/user/1000/rhumb.sock")?;
/// let users = client.keyspace("users")?;
/// users.insert("ada", "1815")?;
/// assert_eq!(users.get("ada")?.as_deref(), Some(&b"1815"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<ClientInner>,
}

#[derive(Debug)]
pub(super) struct ClientInner {
    pub(super) way: HostRoute,
    /// What is under way without a thread that waits for it.
    calls: Calls,
    /// By their names; weak, because a keyspace holds its client.
    keyspaces: Mutex<HashMap<Vec<u8>, Weak<KeyspaceInner>>>,
    /// What was counted of keyspaces, which outlives their handles until it is reported.
    counters: Mutex<HashMap<Vec<u8>, Arc<Counters>>>,
    /// When that is.
    pub(super) schedule: Schedule,
}

/// How the host is reached.
#[derive(Debug)]
pub(super) enum HostRoute {
    Unix {
        path: PathBuf,
        link: Mutex<Link>,
    },
    Tcp {
        link: tcp::Link,
        budget: CacheBudget,
        /// If regions are read by RDMA: what fails, is asked for over TCP if this is true.
        rdma: Option<bool>,
    },
}

/// A connection, or none after it broke.
#[derive(Debug, Default)]
pub(super) struct Link {
    pub(super) stream: Option<Stream>,
    /// The process that connected.
    pub(super) process: u32,
    /// What is kept of models, where clients keep some.
    budget: CacheBudget,
    /// The keyspaces that were opened in this connection, by their numbers.
    pub(super) opened: Vec<Opened>,
    pub(super) next_id: u32,
    /// The id of a report whose answer has not been taken yet.
    pub(super) renewal: Option<u32>,
    pub(super) frame: Vec<u8>,
    pub(super) out: Vec<u8>,
    pub(super) fds: VecDeque<OwnedFd>,
}

/// A keyspace of a connection.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) name: Vec<u8>,
    pub(super) mapped: Arc<Mapped>,
}

impl Client {
    /// Connects to the host at an [`Address`]: a path, or text such as `unix:/run/rhumb.sock` or
    /// `tcp:db.example:7000`. [`Client::builder`] takes a token, whom to trust over TLS and the
    /// budget of a cache as well.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if it is no address; [`Error::Io`] if no host listens there, or
    /// this user may not connect; [`Error::Refused`] if the host asks for another token, or for
    /// TLS; [`Error::Invalid`] if a host over TLS does not prove who it is;
    /// [`Error::Unsupported`] for a host of another version, for `rdma:`, and for `tcps:` in a
    /// build without the feature `tls`.
    pub fn connect(address: impl AsRef<Path>) -> Result<Self> {
        Self::builder(address).connect()
    }

    pub(super) fn connect_to(
        address: Address,
        credentials: &Credentials,
        budget: CacheBudget,
    ) -> Result<Self> {
        let target = Target::new(address.clone(), credentials)?;
        let calls = Calls::new(target.clone());
        let falls_back = matches!(address, Address::RdmaOrTcp { .. });
        let rdma = address.is_rdma().then_some(falls_back);
        let way = match address {
            Address::Unix(path) => HostRoute::unix(path, budget)?,
            _ => HostRoute::Tcp { link: tcp::Link::connect(target)?, budget, rdma },
        };
        let (keyspaces, counters, schedule) = Default::default();
        Ok(Self { inner: Arc::new(ClientInner { way, calls, keyspaces, counters, schedule }) })
    }

    /// Opens a keyspace that the host shares, and maps its region for reading if it can.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if the host shares none of that name; [`Error::Invalid`] for a region
    /// that is not what it must be; [`Error::Closed`], [`Error::TimedOut`], [`Error::Io`].
    pub fn keyspace(&self, name: impl AsRef<[u8]>) -> Result<Keyspace> {
        let name = name.as_ref();
        let inner = match &self.inner.way {
            HostRoute::Unix { path, link } => {
                // Held, so that two threads do not open the same one.
                let mut link = lock(link);
                match self.inner.known(name) {
                    Some(inner) => inner,
                    None => {
                        let mapped = connected(path, &mut link, true, |link| link.open(name))?;
                        self.inner.remember(name, ReadSource::mapped(mapped))
                    }
                }
            }
            HostRoute::Tcp { link, budget, .. } => match self.inner.known(name) {
                Some(inner) => inner,
                None => {
                    let opened = link.open(name)?;
                    let source = match opened.shape {
                        Shape::Runs(_) => ReadSource::Apart(Cache::new(*budget)),
                        Shape::Pieces(_) => ReadSource::pieces(Pieces::new(&opened, *budget)?),
                    };
                    self.inner.remember(name, source)
                }
            },
        };
        Ok(Keyspace::new(Arc::clone(&self.inner), inner))
    }
}

impl Client {
    /// What all handles share.
    pub(super) fn inner(&self) -> &Arc<ClientInner> {
        &self.inner
    }
}

fn lock(link: &Mutex<Link>) -> MutexGuard<'_, Link> {
    // A panic leaves a connection that is out of step: its next answer has another id.
    link.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ClientInner {
    fn keyspaces(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Weak<KeyspaceInner>>> {
        // Each change of it is a single step.
        self.keyspaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was counted of keyspaces.
    pub(super) fn counters(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Arc<Counters>>> {
        // Each change of it is a single step.
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, name: &[u8]) -> Option<Arc<KeyspaceInner>> {
        self.keyspaces().get(name).and_then(Weak::upgrade)
    }

    /// The keyspace of a name, with this source if there is none yet.
    fn remember(&self, name: &[u8], source: ReadSource) -> Arc<KeyspaceInner> {
        let mut keyspaces = self.keyspaces();
        keyspaces.retain(|_, keyspace| keyspace.strong_count() > 0);
        if let Some(inner) = keyspaces.get(name).and_then(Weak::upgrade) {
            return inner;
        }
        let inner = Arc::new(KeyspaceInner::new(name.to_vec(), source, self.remote()));
        keyspaces.insert(name.to_vec(), Arc::downgrade(&inner));
        self.counters().insert(name.to_vec(), Arc::clone(&inner.counters));
        inner
    }

    /// How a keyspace is read by RDMA, if this client does so.
    fn remote(&self) -> Option<Remote> {
        match &self.way {
            HostRoute::Tcp { rdma, .. } => rdma.and_then(Remote::new),
            HostRoute::Unix { .. } => None,
        }
    }

    /// Calls as futures.
    pub(super) fn calls(&self) -> &Calls {
        &self.calls
    }

    /// The way to a host over TCP.
    pub(super) fn tcp(&self) -> Option<&tcp::Link> {
        match &self.way {
            HostRoute::Unix { .. } => None,
            HostRoute::Tcp { link, .. } => Some(link),
        }
    }

    /// Makes a call. `request` is given the keyspace's number in the connection that is used, and
    /// `read` the reply. A call that changes nothing is repeated once if the connection breaks.
    pub(super) fn call<'a, T>(
        &self,
        keyspace: &KeyspaceInner,
        is_read: bool,
        request: impl Fn(u32) -> Request<'a>,
        read: impl FnOnce(Reply<'_>) -> Result<T>,
    ) -> Result<T> {
        self.report_if_due();
        let (path, link) = match &self.way {
            HostRoute::Unix { path, link } => (path, link),
            HostRoute::Tcp { link, .. } => {
                return link.call(keyspace, is_read, |opened| request(opened.number), read);
            }
        };
        keyspace.counters.round_trip();
        let mut link = lock(link);
        connected(path, &mut link, is_read, |link| {
            let mapped = link.open(keyspace.name())?;
            let number = mapped.number;
            keyspace.set_mapped(mapped);
            link.exchange(&request(number))
        })?;
        match Reply::decode(&Frame::parse(&link.frame)?)? {
            Reply::Failed { code, text } => Err(Error::Refused { code, text: text.to_owned() }),
            reply => read(reply),
        }
    }

    /// Makes changes of several keyspaces as one. `ops` is given the keyspaces' numbers in the
    /// connection that is used.
    pub(super) fn call_batch<'a, T>(
        &self,
        keyspaces: &[Arc<KeyspaceInner>],
        ops: impl Fn(&[u32]) -> Vec<Op<'a>>,
        read: impl FnOnce(Reply<'_>) -> Result<T>,
    ) -> Result<T> {
        let (path, link) = match &self.way {
            HostRoute::Unix { path, link } => (path, link),
            HostRoute::Tcp { link, .. } => return link.call_batch(keyspaces, ops, read),
        };
        let mut link = lock(link);
        connected(path, &mut link, false, |link| {
            let mut numbers = Vec::with_capacity(keyspaces.len());
            for keyspace in keyspaces {
                let mapped = link.open(keyspace.name())?;
                numbers.push(mapped.number);
                keyspace.set_mapped(mapped);
            }
            link.exchange(&Request::Batch { ops: ops(&numbers) })
        })?;
        match Reply::decode(&Frame::parse(&link.frame)?)? {
            Reply::Failed { code, text } => Err(Error::Refused { code, text: text.to_owned() }),
            reply => read(reply),
        }
    }
}

impl HostRoute {
    fn unix(path: PathBuf, budget: CacheBudget) -> Result<Self> {
        let mut link = Link { budget, ..Link::default() };
        connect(&path, &mut link)?;
        Ok(Self::Unix { path, link: Mutex::new(link) })
    }
}

/// Uses a connection that is there, and another one if it breaks and `repeats` is true.
fn connected<T>(
    path: &Path,
    link: &mut Link,
    repeats: bool,
    act: impl Fn(&mut Link) -> Result<T>,
) -> Result<T> {
    if link.process != std::process::id() {
        // A forked child speaks over a connection of its own.
        link.lose();
    }
    restore(path, link)?;
    match act(link) {
        Err(error) if repeats && is_broken(&error) => {
            restore(path, link)?;
            act(link)
        }
        result => result,
    }
}

/// Connects again if the connection broke. Keyspaces are opened again when they are used.
fn restore(path: &Path, link: &mut Link) -> Result<()> {
    let until = Instant::now() + RETURN_TIMEOUT;
    while link.stream.is_none() {
        match connect(path, link) {
            Ok(()) => {}
            Err(error) if Instant::now() >= until || !is_gone(&error) => return Err(error),
            Err(_) => thread::sleep(ATTEMPT_EVERY),
        }
    }
    Ok(())
}

fn connect(path: &Path, link: &mut Link) -> Result<()> {
    let stream = Stream::connect(path)?;
    stream.set_timeouts(Some(CALL_TIMEOUT), Some(CALL_TIMEOUT))?;
    let (process, budget) = (std::process::id(), link.budget);
    *link = Link { stream: Some(stream), process, budget, ..Link::default() };
    let result = link.greet();
    if result.is_err() {
        link.lose();
    }
    result
}

impl Link {
    fn greet(&mut self) -> Result<()> {
        let program = std::env::args_os().next().unwrap_or_default();
        let program = Path::new(&program).file_name().and_then(|name| name.to_str());
        // Longer names are refused.
        let program = program.filter(|name| name.len() <= 64).unwrap_or_default();
        self.exchange(&Request::Hello { program, features: 0, token: None })?;
        match Reply::decode(&Frame::parse(&self.frame)?)? {
            Reply::Hello { .. } => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Gives the connection up: what it mapped is not read any more.
    pub(super) fn lose(&mut self) {
        self.stream = None;
        self.renewal = None;
        self.opened.drain(..).for_each(|opened| opened.mapped.close());
    }

    /// The region of a keyspace, which is opened if it is not open in this connection.
    fn open(&mut self, name: &[u8]) -> Result<Arc<Mapped>> {
        if let Some(opened) = self.opened.iter().find(|opened| opened.name == name) {
            return Ok(Arc::clone(&opened.mapped));
        }
        self.exchange(&Request::Open { keyspace: name })?;
        let mapped = match Reply::decode(&Frame::parse(&self.frame)?)? {
            Reply::Opened { keyspace, control, leaves, lease_ms }
                if keyspace as usize == self.opened.len() =>
            {
                Mapped::new(keyspace, &control, &leaves, lease_ms, self.budget, &mut self.fds)
            }
            Reply::Opened { .. } => {
                Err(Error::invalid("a keyspace with another number than the next"))
            }
            other => return Err(unexpected(&other)),
        };
        if mapped.is_err() {
            // The host counts this keyspace among those that are open.
            self.lose();
        }
        let mapped = Arc::new(mapped?);
        self.opened.push(Opened { name: name.to_vec(), mapped: Arc::clone(&mapped) });
        Ok(mapped)
    }

    /// Sends a request and receives frames until its reply is in `frame`. Gives the connection up
    /// if it breaks.
    fn exchange(&mut self, request: &Request<'_>) -> Result<()> {
        let result = self.try_exchange(request);
        if result.as_ref().is_err_and(is_broken) {
            self.lose();
        }
        result
    }

    fn try_exchange(&mut self, request: &Request<'_>) -> Result<()> {
        let Some(stream) = &self.stream else { return Err(Error::Closed) };
        self.next_id = self.next_id.wrapping_add(1).max(1);
        self.out.clear();
        request.encode(self.next_id, &mut self.out)?;
        stream.send(&self.out, &[])?;
        let until = Instant::now() + CALL_TIMEOUT;
        loop {
            let Some(stream) = &self.stream else { return Err(Error::Closed) };
            self.fds = stream.receive(&mut self.frame)?.fds.into();
            if Frame::parse(&self.frame)?.id == self.next_id {
                return Ok(());
            }
            self.take_unasked()?;
            if Instant::now() >= until {
                return Err(Error::TimedOut);
            }
        }
    }
}

/// An answer to another question.
pub(super) fn unexpected(reply: &Reply<'_>) -> Error {
    match reply {
        Reply::Failed { code, text } => Error::Refused { code: *code, text: (*text).to_owned() },
        Reply::Moved { epoch } => Error::Moved { epoch: *epoch },
        _ => Error::invalid("an answer to another question"),
    }
}

/// Returns true for errors after which a connection cannot be used.
pub(super) fn is_broken(error: &Error) -> bool {
    matches!(error, Error::Closed | Error::TimedOut | Error::Io { .. } | Error::Invalid(_))
}

/// Returns true for errors that pass when a host comes back.
pub(super) fn is_gone(error: &Error) -> bool {
    match error {
        Error::Closed | Error::Io { .. } => true,
        Error::Refused { code, .. } => *code == failure::CLOSING,
        _ => false,
    }
}
