//! Listening, and the life of the server: from the bound sockets to the last synced byte.

use std::{
    io,
    net::SocketAddr,
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use rhumb::PersistMode;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream},
    runtime::{Builder, Runtime},
};

use crate::{
    accept::{accept_failed, enter, prepare},
    clients::ClientInfo,
    config::Fsync,
    connection,
    error::ServeError,
    http,
    log::Event,
    server::Server,
    sweep,
    unix_socket::SocketFile,
    worker_state::WorkerState,
    workers::{Assign, Socket},
};

/// Where a server that has started can be found.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Where clients come to.
    pub address: SocketAddr,
    /// Where clients that speak TLS come to.
    pub tls: Option<SocketAddr>,
    /// Where the metrics and the status page are.
    pub metrics: Option<SocketAddr>,
}

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// How long connections may take to end.
const DRAIN: Duration = Duration::from_secs(5);

/// Sockets that are bound, so that clients can come.
pub(crate) struct Listeners {
    tcp: TcpListener,
    #[cfg(feature = "tls")]
    tls: Option<(TcpListener, tokio_rustls::TlsAcceptor)>,
    unix: Option<(UnixListener, SocketFile)>,
    metrics: Option<TcpListener>,
}

impl Listeners {
    /// Where clients come to, and monitors.
    pub(crate) fn ready(&self) -> io::Result<Ready> {
        let of = |listener: &TcpListener| listener.local_addr().ok();
        Ok(Ready {
            address: self.tcp.local_addr()?,
            #[cfg(feature = "tls")]
            tls: self.tls.as_ref().and_then(|(listener, _)| of(listener)),
            #[cfg(not(feature = "tls"))]
            tls: None,
            metrics: self.metrics.as_ref().and_then(of),
        })
    }
}

/// The runtime that accepts connections and serves monitors.
pub(crate) fn runtime() -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).thread_name("rhumb-accept").enable_all().build()
}

fn bind_tcp(address: SocketAddr) -> Result<TcpListener, ServeError> {
    let bind = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    bind().map_err(|error| ServeError::listen(address, &error))
}

fn bind_unix(path: &Path) -> Result<(UnixListener, SocketFile), ServeError> {
    let (listener, file) = SocketFile::bind(path)?;
    let listener = UnixListener::from_std(listener);
    Ok((listener.map_err(|error| ServeError::listen(path.display(), &error))?, file))
}

/// Binds all sockets. To be called within the runtime.
pub(crate) fn bind(server: &Server) -> Result<Listeners, ServeError> {
    let config = &server.config;
    let listeners = Listeners {
        tcp: bind_tcp(config.listen)?,
        #[cfg(feature = "tls")]
        tls: match config.tls_listen {
            Some(address) => Some((bind_tcp(address)?, crate::tls::acceptor(config)?)),
            None => None,
        },
        unix: config.unix.as_deref().map(bind_unix).transpose()?,
        metrics: config.metrics.map(bind_tcp).transpose()?,
    };
    let port = listeners.tcp.local_addr().map_or(0, |address| address.port());
    server.port.store(port.into(), Ordering::Relaxed);
    tell_addresses(server, &listeners.ready()?);
    Ok(listeners)
}

/// Serves until the server is asked to end; then drains and syncs.
pub(crate) async fn serve(
    server: &Arc<Server>,
    listeners: Listeners,
    assign: Assign,
) -> Result<(), ServeError> {
    let background = Background::start(server)?;
    let mut accepting = Vec::new();
    #[cfg(feature = "tls")]
    if let Some((tls, acceptor)) = listeners.tls {
        let serve = crate::tls::serve(Arc::clone(server), tls, acceptor, assign.clone());
        accepting.push(tokio::spawn(serve));
    }
    let Listeners { tcp, unix, metrics, .. } = listeners;
    accepting.push(tokio::spawn(accept_tcp(Arc::clone(server), tcp, assign.clone())));
    let socket_file = unix.map(|(unix, file)| {
        accepting.push(tokio::spawn(accept_unix(Arc::clone(server), unix, assign)));
        file
    });
    if let Some(metrics) = metrics {
        accepting.push(tokio::spawn(http::serve(Arc::clone(server), metrics)));
    }
    server.stopped().await;
    accepting.iter().for_each(tokio::task::JoinHandle::abort);
    drain(server).await;
    background.end();
    drop(socket_file);
    // Before the last sync, so that it is of what their clients wrote as well.
    drop(server.shared.write().take());
    server.databases.keep_clock()?;
    let began = Instant::now();
    let synced = server.databases.engine.persist(PersistMode::SyncData);
    synced.inspect_err(|error| server.databases.health.sync_failed(error))?;
    let fields = [("took", began.elapsed().into())];
    server.log.write(Event::Stopped, "everything is synced", &fields);
    Ok(())
}

/// Says where clients can come to.
fn tell_addresses(server: &Server, ready: &Ready) {
    let tell = |what: &'static str, address: String| {
        server.log.write(Event::Listening, what, &[("address", address.into())]);
    };
    tell("clients can come", ready.address.to_string());
    if let Some(address) = ready.tls {
        tell("clients can come by TLS", address.to_string());
    }
    if let Some(path) = &server.config.unix {
        tell("clients can come by a Unix socket", path.display().to_string());
    }
    if let Some(address) = ready.metrics {
        tell("metrics and the status page are served", address.to_string());
    }
}

/// Waits until every connection has run and answered what it had read.
async fn drain(server: &Server) {
    let began = Instant::now();
    let until = tokio::time::Instant::now() + DRAIN;
    let clients = server.clients.count();
    server.clients.end_all();
    while server.clients.count() > 0 && tokio::time::Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(5)).await;
        // Those that came in between.
        server.clients.end_all();
    }
    let fields = [
        ("clients", clients.into()),
        ("cut_off", server.clients.count().into()),
        ("took", began.elapsed().into()),
    ];
    server.log.write(Event::Stopped, "the clients have their replies", &fields);
}

async fn accept_tcp(server: Arc<Server>, listener: TcpListener, assign: Assign) {
    loop {
        match listener.accept().await {
            Ok((socket, from)) => {
                prepare(&socket);
                let to = socket.local_addr().map_or(String::new(), |address| address.to_string());
                accept(&server, &assign, socket, (from.to_string(), to), refuse_tcp);
            }
            Err(error) => accept_failed(&server, &error).await,
        }
    }
}

async fn accept_unix(server: Arc<Server>, listener: UnixListener, assign: Assign) {
    let path = server.config.unix.clone().unwrap_or_default().display().to_string();
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                let from = format!("{path}:0");
                accept(&server, &assign, socket, (from.clone(), from), refuse_unix);
            }
            Err(error) => accept_failed(&server, &error).await,
        }
    }
}

const TOO_MANY_CLIENTS: &[u8] = b"-ERR max number of clients reached\r\n";

fn refuse_tcp(mut socket: TcpStream) {
    tokio::spawn(async move {
        let _ = socket.write_all(TOO_MANY_CLIENTS).await;
    });
}

fn refuse_unix(mut socket: UnixStream) {
    tokio::spawn(async move {
        let _ = socket.write_all(TOO_MANY_CLIENTS).await;
    });
}

fn accept<S: Socket>(
    server: &Arc<Server>,
    assign: &Assign,
    socket: S,
    (from, to): (String, String),
    refuse: fn(S),
) {
    let Some(info) = enter(server, from, to) else { return refuse(socket) };
    let id = info.id;
    let serving = Arc::clone(server);
    if assign.serve(socket, |socket, worker| serve_one(serving, socket, info, worker)).is_err() {
        server.clients.leave(id);
    }
}

async fn serve_one<S: Socket>(
    server: Arc<Server>,
    socket: io::Result<S>,
    info: Arc<ClientInfo>,
    worker: Arc<WorkerState>,
) {
    match socket {
        Ok(socket) => connection::serve(server, socket, info, worker).await,
        Err(_) => server.clients.leave(info.id),
    }
}

/// Threads that do what is to be done from time to time.
struct Background {
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Background {
    fn start(server: &Arc<Server>) -> Result<Self, ServeError> {
        let start = |name: &str, run: fn(&Server)| {
            let server = Arc::clone(server);
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || run(&server))
                .map_err(|error| ServeError::thread(&error))
        };
        Ok(Self {
            threads: vec![start("rhumb-second", each_second)?, start("rhumb-sweep", sweeps)?],
        })
    }

    fn end(self) {
        for thread in self.threads {
            thread.thread().unpark();
            // One that has panicked has said so.
            let _ = thread.join();
        }
    }
}

fn each_second(server: &Server) {
    server.end_second(&server.databases.engine.stats());
    while !server.is_stopping() {
        std::thread::park_timeout(Duration::from_secs(1));
        server.metrics.end_second();
        let limits = server.limits.read().clone();
        for info in server.clients.end_overdue(&limits) {
            let fields = [
                ("client", info.address.as_str().into()),
                ("idle_seconds", info.idle_seconds().into()),
            ];
            let what = "a client was silent or slow for too long and is closed";
            server.log.write(Event::ClientOverdue, what, &fields);
        }
        server.databases.opened().for_each(|(_, db)| db.count.lapse());
        server.databases.ranks.lapse();
        if server.databases.fsync() == Fsync::Everysec {
            // A sync that fails stops writes: every writer, the log and the health say so.
            let _ = server.databases.sync();
        }
        let stats = server.databases.engine.stats();
        server.end_second(&stats);
        watch_health(server, &stats);
        server.log.end_windows();
    }
}

/// After this number of sweeps that left something to do, each of some 30 ms, the sweeper is
/// behind: it has not the processor for itself, or keys come faster than one thread removes them.
const SWEEPS_BEHIND: u32 = 8;

fn sweeps(server: &Server) {
    let mut sweeps_on_end = 0;
    while !server.is_stopping() {
        let outcome = sweep::sweep(server);
        sweeps_on_end = if matches!(outcome, Ok(true)) { sweeps_on_end + 1 } else { 0 };
        server.is_sweep_behind.store(sweeps_on_end >= SWEEPS_BEHIND, Ordering::Relaxed);
        let pause = match outcome {
            Ok(true) => Duration::from_millis(5),
            Ok(false) => Duration::from_millis(100),
            Err(error) => {
                // It is tried again.
                server.databases.health.met(&error);
                let what = format!("expired keys cannot be removed: {error}");
                server.log.write(Event::SweepFailed, &what, &[]);
                Duration::from_secs(1)
            }
        };
        std::thread::park_timeout(pause);
    }
}

/// While writes fail, the disk must have this much room before one is tried, in bytes: a small
/// write that finds the last room of a full disk says nothing of the next one.
const PROBE_ROOM_BYTES: u64 = 1 << 20;

/// Looks whether what failed works again.
fn watch_health(server: &Server, stats: &rhumb::Stats) {
    let health = &server.databases.health;
    health.watch_background(stats.failure.as_deref());
    health.watch_damage(stats.last_damage.as_ref(), &server.config.data);
    health.look_again(&server.config.data);
    let room = crate::disk::free_bytes(&server.config.data);
    if health.are_writes_failing() && room.is_none_or(|room| room >= PROBE_ROOM_BYTES) {
        // If it fails nothing has changed.
        let _ = server.databases.try_write();
    }
}
