//! Rhumb as a server: ordinary Redis clients, RESP2 and RESP3, on an ordered key-value store.
//!
//! The layers, each of which knows only those below it:
//!
//! | module | for |
//! | --- | --- |
//! | `listen`, `accept`, `tls`, `unix_socket`, `workers` | sockets, the life of the server |
//! | `http`, `exposition`, `status`, `history` | the metrics, the status page and what it shows of the last hour |
//! | `connection` | one connection: bytes in, replies out |
//! | `session` | one client: commands to replies, and which of them are run together |
//! | `execute` | how commands are run: alone, in a commit group, or as a run of neighbours |
//! | `command` | what each command does, and a client's state |
//! | `transfer` | dumps of Redis into the store and out of it |
//! | `worker_state`, `pause`, `server` | what the connections of one worker share, and what all share |
//! | `clear`, `commit` | every way of committing |
//! | `values` | whole values in and out of the store, for the serialisation of Redis |
//! | `listeners`, `outbox`, `clients` | messages that clients have not asked for one by one |
//! | `acl` | users, their rules, and what was denied to them |
//! | `places`, `fault`, `txn`, `key_event`, `counting`, `db`, `ranks`, `count`, `waiters`, `watch`, `locks` | reads and pending writes, databases, atomicity |
//! | `health`, `log`, `disk` | what fails at present, and the lines that say so |
//! | `share`, `part`, `share_name` | keyspaces that other processes read without asking, and which of their keys |
//! | `encode` | how the types of Redis lie in ordered keyspaces |
//! | `peer` | connections to other servers |
//! | `rdb` | the serialisation of Redis: values and dumps |
//! | `resp` | the protocol |
#![forbid(unsafe_code)]

mod accept;
mod acl;
mod clear;
mod clients;
mod command;
mod command_stats;
mod commit;
mod config;
mod config_error;
mod connection;
mod copies;
mod count;
mod counting;
mod cursors;
mod db;
mod descriptors;
mod disk;
mod effort;
mod encode;
mod error;
mod execute;
mod exposition;
mod fault;
// For the fuzz targets of `fuzz/`, which see a session and a server that are no public API.
#[doc(hidden)]
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod glob;
mod health;
mod history;
mod http;
mod http_request;
mod json;
mod key_event;
mod libraries;
mod listen;
mod listeners;
mod locks;
mod log;
mod met;
mod metrics;
mod models;
mod notify;
mod outbox;
mod part;
mod pause;
mod peer;
mod places;
mod quantity;
mod random;
mod ranks;
mod rdb;
mod remembered;
pub mod resp;
mod saves;
mod script;
mod segments;
mod server;
mod session;
mod share;
mod share_name;
mod slow;
mod spare_buffers;
mod status;
mod sweep;
mod swept;
#[cfg(feature = "tls")]
mod tls;
mod transfer;
mod txn;
mod unix_socket;
mod unsent;
mod values;
mod waiters;
mod watch;
mod worker_state;
mod workers;

use std::{fmt, io, net::SocketAddr, sync::Arc};

pub use config::{Config, DebugCommand, Fsync, Limits};
pub use config_error::ConfigError;
pub use error::ServeError;
pub use listen::Ready;
pub use log::{LogFormat, LogLevel, LogSink};
pub use quantity::{
    CLIENTS, KEPT_BACKUPS, MEMORY_BYTES, THREADS, parse_address, parse_memory, parse_size,
};
pub use transfer::{
    ImportFrom, ImportOptions, ImportTo, Store, TransferError, Transferred, export_server, import,
};

/// Runs a server until the process gets SIGTERM or SIGINT, or a client says `SHUTDOWN`; then lets
/// every connection answer what it has read, syncs, and returns. `ready` is called once clients
/// can come.
///
/// # Errors
///
/// [`ServeError`], which says what to do about it.
pub fn serve(config: Config, ready: impl FnOnce(&Ready)) -> Result<(), ServeError> {
    config.check_ranges()?;
    let log = Arc::new(log::Log::start(config.log_level, config.log_format, log::Log::stderr()?)?);
    let served = serve_logged(config, &log, ready);
    end_log(&log, &served);
    served
}

/// Opens the data, and shares what is to be shared before clients come.
fn open(config: Config, log: &Arc<log::Log>) -> Result<Arc<server::Server>, ServeError> {
    let server = server::Server::open(config, Arc::clone(log), command::catalog())?.share();
    share::start(&server)?;
    Ok(server)
}

fn serve_logged(
    config: Config,
    log: &Arc<log::Log>,
    ready: impl FnOnce(&Ready),
) -> Result<(), ServeError> {
    let (runtime, workers) = (listen::runtime()?, workers::Workers::start(config.threads)?);
    let server = open(config, log)?;
    runtime.block_on(async {
        let listeners = listen::bind(&server)?;
        stop_on_signals(&server)?;
        ready(&listeners.ready()?);
        notify::ready();
        let served = listen::serve(&server, listeners, workers.assign()).await;
        notify::stopping();
        served
    })
}

/// Writes the last line of the log. An error is the caller's to report, and is not said twice.
fn end_log(log: &log::Log, served: &Result<(), ServeError>) {
    if served.is_ok() {
        log.write(log::Event::Stopped, "the server has ended", &[]);
    }
    log.flush();
}

fn stop_on_signals(server: &Arc<server::Server>) -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let server = Arc::clone(server);
    tokio::spawn(async move {
        let signal = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        let fields = [("signal", signal.into())];
        server.log.write(log::Event::Stopping, "a signal asks the server to end", &fields);
        server.stop();
    });
    Ok(())
}

/// A server within this process, for tests and for programs that want one at hand. It ends, and
/// syncs, when it is dropped.
#[derive(Debug)]
pub struct Running {
    ready: Ready,
    stop: Stop,
    thread: Option<std::thread::JoinHandle<Result<(), ServeError>>>,
}

struct Stop(Arc<server::Server>);

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stop")
    }
}

impl Running {
    /// The most steps that a worker has made for one client while its others waited, since this was
    /// asked for last: see `effort.rs`. For the test of isolation; 0 in release builds.
    #[doc(hidden)]
    #[must_use]
    pub fn take_most_steps(&self) -> u64 {
        self.stop.0.most_steps.take()
    }

    /// Starts a server in threads of its own. It writes no log.
    ///
    /// # Errors
    ///
    /// As [`serve`].
    pub fn start(config: Config) -> Result<Self, ServeError> {
        Self::start_logged(config, log::Log::silent())
    }

    /// Starts a server in threads of its own, whose log goes to `sink`: lines, one write each, from
    /// a thread that may be kept waiting.
    ///
    /// # Errors
    ///
    /// As [`serve`].
    pub fn start_with_log(config: Config, sink: LogSink) -> Result<Self, ServeError> {
        let log = log::Log::start(config.log_level, config.log_format, sink)?;
        Self::start_logged(config, log)
    }

    fn start_logged(config: Config, log: log::Log) -> Result<Self, ServeError> {
        config.check_ranges()?;
        let log = Arc::new(log);
        let (runtime, workers) = (listen::runtime()?, workers::Workers::start(config.threads)?);
        let server = open(config, &log)?;
        let listeners = runtime.block_on(async { listen::bind(&server) })?;
        let ready = listeners.ready()?;
        let running = Arc::clone(&server);
        let thread = std::thread::Builder::new()
            .name("rhumb-server".to_owned())
            .spawn(move || {
                let assign = workers.assign();
                let served = runtime.block_on(listen::serve(&running, listeners, assign));
                // No connection keeps the data open when this ends.
                drop(workers);
                end_log(&log, &served);
                served
            })
            .map_err(|error| ServeError::thread(&error))?;
        Ok(Self { ready, stop: Stop(server), thread: Some(thread) })
    }

    /// Where clients come to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.ready.address
    }

    /// Where clients that speak TLS come to.
    #[must_use]
    pub fn tls_address(&self) -> Option<SocketAddr> {
        self.ready.tls
    }

    /// Where the metrics are.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.ready.metrics
    }

    /// Ends the server and waits for it.
    ///
    /// # Errors
    ///
    /// If the last sync failed.
    pub fn stop(mut self) -> Result<(), ServeError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), ServeError> {
        self.stop.0.stop();
        match self.thread.take().map(std::thread::JoinHandle::join) {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(error),
            Some(Err(_)) => Err(io::Error::other("the server's thread panicked").into()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A caller that wants the error calls `stop`.
        let _ = self.end();
    }
}
