//! `serve`: the store behind every Redis client.

use std::{net::SocketAddr, ops::RangeInclusive, path::PathBuf};

use clap::{Args, ValueEnum};
use rhumb_server::{
    Config, DebugCommand, Fsync, KEPT_BACKUPS, LogFormat, LogLevel, Ready, ServeError, THREADS,
    parse_address, parse_memory, parse_size,
};

use crate::{
    failure::{Failure, Outcome},
    output::Output,
};

const SERVE_EXAMPLES: &str = "\
Examples:
  rhumb serve                                    ./rhumb-data on 127.0.0.1:6380
  rhumb serve --fsync always --memory 4G         no acknowledged write is lost in a power cut
  rhumb serve --config rhumb.toml                the same options from a file
  rhumb serve --share db0                        other processes read db0 without asking
  rhumb serve --share users --share-table FILE   one of several servers that divide the keys
  redis-cli -p 6380 set greeting hello           any Redis client works
  redis-cli -p 6380 range - + limit 10           and so do ordered commands

A file of options is TOML: db, backups, keep-backups, listen, tls-listen, tls-cert,
tls-key, unix, share, share-socket, share-listen, share-tls-listen,
share-allow-users, share-allow-groups, share-table, share-address,
share-memory, memory, fsync, requirepass-file, acl-file,
metrics, enable-debug-command, allow-open, metrics-open, threads, log-level, log-format, slow-command-ms,
and a table [limits]. An option on the command line wins over the file.
SIGTERM and SIGINT end the server once every client has its replies and the data are synced.";

/// Serve Redis clients, until SIGTERM or SIGINT
#[derive(Debug, Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub(crate) struct Serve {
    /// Directory of the data; made if it is not there [default: rhumb-data]
    #[arg(long, alias = "data", value_name = "DIR", env = "RHUMB_DB", hide_env_values = true)]
    db: Option<PathBuf>,
    /// Directory of the backup that SAVE and BGSAVE add points to [default: the directory of the
    /// data with .backups appended]
    #[arg(long, value_name = "DIR")]
    backups: Option<PathBuf>,
    /// Newest points of that backup that are kept [default: 3]
    #[arg(long, value_name = "N", value_parser = parse_kept)]
    keep_backups: Option<usize>,
    /// Address or name to listen on [default: 127.0.0.1:6380]
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    listen: Option<SocketAddr>,
    /// Address to listen on for TLS as well; for builds with the feature `tls`
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    tls_listen: Option<SocketAddr>,
    /// File of the certificate chain, PEM
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// File of the certificate's private key, PEM
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Unix socket to listen on as well
    #[arg(long, value_name = "PATH")]
    unix: Option<PathBuf>,
    /// Keyspace that other processes of this machine read without asking; may be repeated. db0 to
    /// db15 are the strings of Redis clients. NAME,preset=xstore and NAME,preset=finestore share it
    /// as these systems do; NAME,checksums lets clients read it by RDMA (in builds with the feature
    /// `rdma`)
    #[arg(long, value_name = "NAME")]
    share: Vec<String>,
    /// Unix socket where those processes come to [default: the directory of the data with .sock
    /// appended]
    #[arg(long, value_name = "PATH")]
    share_socket: Option<PathBuf>,
    /// Address where processes on other machines come to, with the password as their token
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    share_listen: Option<SocketAddr>,
    /// File that says which of several servers has which keys of what they share: this one has its
    /// part, and other processes are sent to the others for all other keys
    #[arg(long, value_name = "FILE")]
    share_table: Option<PathBuf>,
    /// Which server of the table this one is [default: the one whose address it listens at]
    #[arg(long, value_name = "URL")]
    share_address: Option<String>,
    /// Address where they come to by TLS, with the certificate of --tls-cert
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    share_tls_listen: Option<SocketAddr>,
    /// Number of a user that may come to the Unix socket of shares besides the server's own; may be
    /// repeated
    #[arg(long, value_name = "UID")]
    share_allow_user: Vec<u32>,
    /// Number of a group whose users may come to it; may be repeated
    #[arg(long, value_name = "GID")]
    share_allow_group: Vec<u32>,
    /// Memory that each shared keyspace may take besides [default: 64GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    share_memory: Option<usize>,
    /// Memory for unflushed writes, indexes, filters and cached blocks: 64MiB, 4GiB, or bytes
    /// [default: 512MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    memory: Option<u64>,
    /// When writes are forced to the disk [default: everysec]
    #[arg(long, value_name = "WHEN")]
    fsync: Option<When>,
    /// File whose first line is the password that clients have to say
    #[arg(long, value_name = "FILE")]
    requirepass_file: Option<PathBuf>,
    /// File of users, a line for each as ACL LIST gives it; ACL SAVE writes it. It may be empty
    #[arg(long, value_name = "FILE")]
    acl_file: Option<PathBuf>,
    /// Who may use DEBUG, which is for tests: no, yes, or local for clients of this machine
    /// [default: no]
    #[arg(long, value_name = "WHO", value_parser = parse_debug)]
    enable_debug_command: Option<DebugCommand>,
    /// Address of the Prometheus metrics and the status page
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    metrics: Option<SocketAddr>,
    /// Threads that serve connections [default: one for each core but one]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,
    /// How much the log on the standard error says [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<Level>,
    /// How lines of the log are written [default: text]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<Format>,
    /// Commands that take at least this many milliseconds are logged; 0 for none [default: 100]
    #[arg(long, value_name = "MS")]
    slow_command_ms: Option<u64>,
    /// Serve other machines without a password
    #[arg(long)]
    allow_open: bool,
    /// Show other machines the metrics and the status page, which ask for no password
    #[arg(long)]
    metrics_open: bool,
    /// TOML file of options
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// When writes are forced to the disk.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum When {
    /// Before a write is acknowledged
    Always,
    /// Every second
    Everysec,
    /// When the operating system likes
    No,
}

/// How much the log says.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Level {
    /// Failed writes, damage
    Error,
    /// Refused clients, wrong passwords and slow commands too
    Warn,
    /// The start, the end and changed settings too
    Info,
    /// Every connection too
    Debug,
}

/// How lines of the log are written.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs: a JSON object a line
    Json,
}

impl From<Level> for LogLevel {
    fn from(level: Level) -> Self {
        match level {
            Level::Error => Self::Error,
            Level::Warn => Self::Warn,
            Level::Info => Self::Info,
            Level::Debug => Self::Debug,
        }
    }
}

impl From<Format> for LogFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Text => Self::Text,
            Format::Json => Self::Json,
        }
    }
}

impl Serve {
    /// Runs the command.
    pub(crate) fn run(self, out: &mut Output) -> Outcome {
        let config = self.config()?;
        let shown = config.clone();
        let mut printed = Ok(());
        rhumb_server::serve(config, |ready| printed = banner(out, &shown, ready))
            .map_err(failure)?;
        printed
    }

    fn config(self) -> Outcome<Config> {
        let mut config = match &self.config {
            Some(path) => Config::from_file(path).map_err(|e| Failure::failed(e.to_string()))?,
            None => Config::default(),
        };
        config.data = self.db.unwrap_or(config.data);
        config.backups = self.backups.or(config.backups);
        config.keep_backups = self.keep_backups.unwrap_or(config.keep_backups);
        config.listen = self.listen.unwrap_or(config.listen);
        config.tls_listen = self.tls_listen.or(config.tls_listen);
        config.tls_cert = self.tls_cert.or(config.tls_cert);
        config.tls_key = self.tls_key.or(config.tls_key);
        config.unix = self.unix.or(config.unix);
        if !self.share.is_empty() {
            config.share = self.share;
        }
        config.share_socket = self.share_socket.or(config.share_socket);
        config.share_listen = self.share_listen.or(config.share_listen);
        config.share_table = self.share_table.or(config.share_table);
        config.share_address = self.share_address.or(config.share_address);
        config.share_tls_listen = self.share_tls_listen.or(config.share_tls_listen);
        if !self.share_allow_user.is_empty() {
            config.share_allow_users = self.share_allow_user;
        }
        if !self.share_allow_group.is_empty() {
            config.share_allow_groups = self.share_allow_group;
        }
        config.share_memory_bytes = self.share_memory.unwrap_or(config.share_memory_bytes);
        config.memory_bytes = self.memory.unwrap_or(config.memory_bytes);
        config.requirepass_file = self.requirepass_file.or(config.requirepass_file);
        config.acl_file = self.acl_file.or(config.acl_file);
        config.enable_debug_command =
            self.enable_debug_command.unwrap_or(config.enable_debug_command);
        config.metrics = self.metrics.or(config.metrics);
        config.threads = self.threads.unwrap_or(config.threads);
        config.allow_open |= self.allow_open;
        config.log_level = self.log_level.map_or(config.log_level, Into::into);
        config.log_format = self.log_format.map_or(config.log_format, Into::into);
        config.slow_command_ms = self.slow_command_ms.unwrap_or(config.slow_command_ms);
        config.metrics_open |= self.metrics_open;
        config.fsync = match self.fsync {
            None => config.fsync,
            Some(When::Always) => Fsync::Always,
            Some(When::Everysec) => Fsync::Everysec,
            Some(When::No) => Fsync::No,
        };
        Ok(config)
    }
}

fn parse_debug(text: &str) -> Result<DebugCommand, String> {
    DebugCommand::from_name(text).ok_or_else(|| "it may be no, yes or local".to_owned())
}

fn parse_threads(text: &str) -> Result<usize, String> {
    parse_number(text, &THREADS)
}

fn parse_kept(text: &str) -> Result<usize, String> {
    parse_number(text, &KEPT_BACKUPS)
}

fn parse_number(text: &str, range: &RangeInclusive<u64>) -> Result<usize, String> {
    let number: u64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    if !range.contains(&number) {
        return Err(format!("it may be from {} to {}", range.start(), range.end()));
    }
    usize::try_from(number).map_err(|error| error.to_string())
}

fn failure(error: ServeError) -> Failure {
    match error {
        ServeError::Engine(error) => error.into(),
        error => Failure::failed(error.to_string()),
    }
}

/// Says where the server is and what to type next.
fn banner(out: &mut Output, config: &Config, ready: &Ready) -> Outcome {
    let (ip, port) = (ready.address.ip(), ready.address.port());
    let version = env!("CARGO_PKG_VERSION");
    out.line(format!("rhumb {version} serves {} on {}", config.data.display(), ready.address))?;
    if let Some(address) = ready.tls {
        out.line(format!("TLS on      {address}"))?;
    }
    if let Some(path) = &config.unix {
        out.line(format!("also on     {}", path.display()))?;
    }
    if let Some(name) = config.share_names().next() {
        let socket = config.share_socket();
        out.line(format!("shares      {}", config.share.join(", ")))?;
        if let Some(table) = &config.share_table {
            out.line(format!("            its part by {}", table.display()))?;
        }
        out.line(format!("            rhumb remote scan unix:{} {name}", socket.display()))?;
    }
    if let Some(address) = ready.metrics {
        out.line(format!("status      http://{address}/ and http://{address}/metrics"))?;
    }
    let host =
        if ip.is_loopback() || ip.is_unspecified() { String::new() } else { format!(" -h {ip}") };
    out.line(format!("fsync       {}", config.fsync.name()))?;
    out.line(format!("try         redis-cli{host} -p {port} set greeting hello"))?;
    out.line(format!("            redis-cli{host} -p {port} range - + limit 10"))?;
    out.line("end         Ctrl-C: drains, syncs, and loses nothing")?;
    out.flush()
}
