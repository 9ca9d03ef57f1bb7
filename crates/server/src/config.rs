//! Settings of a server: plain data with defaults that just work, from a file and the command line.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;

use crate::{
    config_error::ConfigError,
    log::{LogFormat, LogLevel},
    quantity, share_name,
};

/// When what was written is forced to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Fsync {
    /// Before a write is acknowledged: nothing acknowledged is lost in a power cut.
    Always = 0,
    /// Every second: at most the last second is lost in a power cut, nothing by a killed process.
    #[default]
    Everysec = 1,
    /// When the operating system likes.
    No = 2,
}

impl Fsync {
    pub(crate) fn from_byte(byte: u8) -> Self {
        match byte {
            0 => Self::Always,
            1 => Self::Everysec,
            _ => Self::No,
        }
    }

    /// The name of the setting, as in Redis.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Everysec => "everysec",
            Self::No => "no",
        }
    }

    /// The setting of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Always, Self::Everysec, Self::No];
        all.into_iter().find(|fsync| name.eq_ignore_ascii_case(fsync.name()))
    }
}

/// Who may use `DEBUG`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DebugCommand {
    /// Nobody.
    #[default]
    No,
    /// Everyone that may use the commands of operators.
    Yes,
    /// Such clients of the same machine.
    Local,
}

impl DebugCommand {
    /// The name of the setting, as in Redis.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Yes => "yes",
            Self::Local => "local",
        }
    }

    /// The setting of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::No, Self::Yes, Self::Local].into_iter().find(|one| one.name() == name)
    }
}

/// What strangers may take.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Limits {
    /// Connections at a time, from 1 to a million.
    #[serde(deserialize_with = "quantity::clients")]
    pub clients: usize,
    /// Bytes of one argument.
    #[serde(deserialize_with = "quantity::size")]
    pub bulk_bytes: usize,
    /// Arguments of one command.
    pub arguments: usize,
    /// Bytes of a command that is still coming in, and of the commands queued by `MULTI`.
    #[serde(deserialize_with = "quantity::size")]
    pub query_bytes: usize,
    /// Bytes of one reply.
    #[serde(deserialize_with = "quantity::size")]
    pub reply_bytes: usize,
    /// Bytes of replies that a client has not taken, past which it is not read from. With an eighth
    /// of them a client that takes nothing stalls, whatever it sends.
    #[serde(deserialize_with = "quantity::size")]
    pub output_bytes: usize,
    /// Bytes of all clients' buffers together; the client that would pass it is closed. Replies
    /// that were not taken have half of it: past that, clients with many are not read from.
    #[serde(deserialize_with = "quantity::size")]
    pub buffers_bytes: usize,
    /// Seconds without a command after which a client is closed; 0 for never.
    pub idle_seconds: u64,
    /// Seconds that a client may take to say the password, where there is one.
    pub handshake_seconds: u64,
    /// Seconds that a command may take to come in, or a reply to be taken.
    pub stall_seconds: u64,
    /// Connections, at a time, of other processes to what is shared, from 1 to a million. At most
    /// three quarters of them are over TCP.
    #[serde(deserialize_with = "quantity::clients")]
    pub share_sessions: usize,
    /// Of these, connections of one user over the Unix socket; all, if nothing is said.
    #[serde(deserialize_with = "quantity::clients_if_any")]
    pub share_sessions_per_user: Option<usize>,
    /// Of these, connections of one address over TCP; a quarter, if nothing is said.
    #[serde(deserialize_with = "quantity::clients_if_any")]
    pub share_sessions_per_address: Option<usize>,
    /// Keyspaces that such a connection may open, each as often as it does.
    #[serde(deserialize_with = "quantity::clients")]
    pub share_keyspaces: usize,
    /// Bytes of what such processes have sent in part or not read yet, of all together; past it the
    /// one that has the most is closed.
    #[serde(deserialize_with = "quantity::size")]
    pub share_buffers_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 10_000,
            bulk_bytes: 512 << 20,
            arguments: 1 << 20,
            query_bytes: 1 << 30,
            reply_bytes: 1 << 30,
            output_bytes: 256 << 20,
            buffers_bytes: 2 << 30,
            idle_seconds: 0,
            handshake_seconds: 10,
            stall_seconds: 60,
            share_sessions: 10_000,
            share_sessions_per_user: None,
            share_sessions_per_address: None,
            share_keyspaces: 256,
            share_buffers_bytes: 256 << 20,
        }
    }
}

/// Memory that a shared keyspace may take by default: more than most machines have, so that nothing
/// is said of a limit before there is one.
const SHARE_MEMORY_BYTES: usize = 64 << 30;

/// Points of the backup that are kept by default: the last one, and two from before a mistake that
/// it has. Each may take as much room as the data, where all was written anew since.
const KEPT_BACKUPS: usize = 3;

/// All settings of a server.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// Directory of the data; made if it is not there. Called `db` in a file, or `data`.
    #[serde(rename = "db", alias = "data")]
    pub data: PathBuf,
    /// Directory of the backup that `SAVE` and `BGSAVE` add points to; beside the data, with
    /// `.backups` appended, if there is none. It has points of one database only.
    pub backups: Option<PathBuf>,
    /// Points of that backup that are kept, the newest ones, from 1 to 10,000.
    #[serde(deserialize_with = "quantity::kept_backups")]
    pub keep_backups: usize,
    /// Address to listen on.
    #[serde(deserialize_with = "quantity::address")]
    pub listen: SocketAddr,
    /// Address to listen on for TLS as well; needs the feature `tls`.
    #[serde(deserialize_with = "quantity::address_if_any")]
    pub tls_listen: Option<SocketAddr>,
    /// File of the certificate chain, PEM.
    pub tls_cert: Option<PathBuf>,
    /// File of the certificate's private key, PEM.
    pub tls_key: Option<PathBuf>,
    /// Path of a Unix socket to listen on as well.
    pub unix: Option<PathBuf>,
    /// Keyspaces that other processes of the machine read without asking. `db0` to `db15` are the
    /// strings of the databases of Redis clients. With `,preset=xstore` or `,preset=finestore`
    /// after its name, a share is made as a published system does it. With `,checksums` at its end
    /// clients may read it by RDMA.
    pub share: Vec<String>,
    /// Path of the Unix socket where those processes come to; beside the data, with `.sock`
    /// appended, if there is none.
    pub share_socket: Option<PathBuf>,
    /// Address where processes on other machines come to. They present the password, if there is
    /// one, as their token.
    #[serde(deserialize_with = "quantity::address_if_any")]
    pub share_listen: Option<SocketAddr>,
    /// File of a routing table: this server is one of several that divide the keys of what they
    /// share. Databases of Redis clients are shared whole all the same.
    pub share_table: Option<PathBuf>,
    /// The address by which the table names this server; where it listens, if nothing is said.
    pub share_address: Option<String>,
    /// Address where they come to by TLS, with the certificate of `tls_cert`; needs the feature
    /// `tls`.
    #[serde(deserialize_with = "quantity::address_if_any")]
    pub share_tls_listen: Option<SocketAddr>,
    /// Users, by their numbers, that may come to the Unix socket besides the server's own. With
    /// them, or with groups, everybody may connect to it and is asked who they are.
    pub share_allow_users: Vec<u32>,
    /// Groups, by their numbers: users whose process has one of them as its effective group may
    /// come as well.
    pub share_allow_groups: Vec<u32>,
    /// Memory that each shared keyspace may take, in bytes, besides that of the engine. One that
    /// needs more is not read without asking. Called `share-memory` in a file.
    #[serde(rename = "share-memory", deserialize_with = "quantity::size")]
    pub share_memory_bytes: usize,
    /// Memory of the engine, in bytes: unflushed writes, indexes, filters and cached blocks; from
    /// 16 MiB to 16 TiB. Called `memory` in a file, or `memory-bytes`.
    #[serde(rename = "memory", alias = "memory-bytes", deserialize_with = "quantity::memory")]
    pub memory_bytes: u64,
    /// When writes are forced to the disk.
    pub fsync: Fsync,
    /// File whose first line is the password; without one, every client may do all.
    pub requirepass_file: Option<PathBuf>,
    /// File of users, which `ACL SAVE` writes.
    pub acl_file: Option<PathBuf>,
    /// Who may use `DEBUG`, which is for tests.
    pub enable_debug_command: DebugCommand,
    /// Address of the metrics and the status page.
    #[serde(deserialize_with = "quantity::address_if_any")]
    pub metrics: Option<SocketAddr>,
    /// True to serve other machines without a password.
    pub allow_open: bool,
    /// True to serve the metrics and the status page, which ask for no password, to other
    /// machines.
    pub metrics_open: bool,
    /// Threads that serve connections; 0 for one for each core but one, at least one; at most
    /// 1,024.
    #[serde(deserialize_with = "quantity::threads")]
    pub threads: usize,
    /// Makes random choices (`SPOP`, `SRANDMEMBER`, `RANDOMKEY`) the same at each start, for tests;
    /// without one nobody can foresee them.
    pub seed: Option<u64>,
    /// How much the log says.
    pub log_level: LogLevel,
    /// How lines of the log are written.
    pub log_format: LogFormat,
    /// Milliseconds from which on a command is told of as slow; 0 for none.
    pub slow_command_ms: u64,
    /// What strangers may take.
    pub limits: Limits,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data: "rhumb-data".into(),
            backups: None,
            keep_backups: KEPT_BACKUPS,
            listen: SocketAddr::from(([127, 0, 0, 1], 6380)),
            tls_listen: None,
            tls_cert: None,
            tls_key: None,
            unix: None,
            share: Vec::new(),
            share_socket: None,
            share_listen: None,
            share_table: None,
            share_address: None,
            share_tls_listen: None,
            share_allow_users: Vec::new(),
            share_allow_groups: Vec::new(),
            share_memory_bytes: SHARE_MEMORY_BYTES,
            memory_bytes: 512 << 20,
            fsync: Fsync::default(),
            requirepass_file: None,
            acl_file: None,
            enable_debug_command: DebugCommand::default(),
            metrics: None,
            allow_open: false,
            metrics_open: false,
            threads: 0,
            seed: None,
            log_level: LogLevel::default(),
            log_format: LogFormat::default(),
            // Ten seeks of a disk that turns: what takes longer is not the disk's usual latency.
            slow_command_ms: 100,
            limits: Limits::default(),
        }
    }
}

impl Config {
    /// Reads settings from a TOML file; what it does not say has its default.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is no TOML, or has a setting that there is not or that is out of
    /// range: the message names the line.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError(format!("cannot read {}: {error}", path.display())))?;
        Self::from_toml(&text).map_err(|wrong| ConfigError(format!("{}: {wrong}", path.display())))
    }

    fn from_toml(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| match error.span() {
            Some(span) => {
                let before = &text.as_bytes()[..span.start.min(text.len())];
                let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
                format!("line {line}: {}", error.message())
            }
            None => error.message().to_owned(),
        })
    }

    /// The names of shared keyspaces.
    pub fn share_names(&self) -> impl Iterator<Item = &str> {
        share_name::names(&self.share)
    }

    /// The most connections at a time: of clients, and of the processes that read what is shared.
    pub(crate) fn connections(&self) -> usize {
        let shared = if self.share.is_empty() { 0 } else { self.limits.share_sessions };
        self.limits.clients.saturating_add(shared)
    }

    /// Where the processes come to that read shared keyspaces.
    #[must_use]
    pub fn share_socket(&self) -> PathBuf {
        let found = self.share_socket.clone().or_else(|| self.beside_data(".sock"));
        found.unwrap_or_else(|| self.data.join("share.sock"))
    }

    /// The directory of the backup.
    #[must_use]
    pub fn backups(&self) -> PathBuf {
        let found = self.backups.clone().or_else(|| self.beside_data(".backups"));
        found.unwrap_or_else(|| self.data.join("backups"))
    }

    /// The path of the data with an ending, if the path has a name.
    fn beside_data(&self, ending: &str) -> Option<PathBuf> {
        let mut name = self.data.file_name()?.to_owned();
        name.push(ending);
        Some(self.data.with_file_name(name))
    }

    /// The password, if there is one.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or its first line is empty.
    pub(crate) fn password(&self) -> Result<Option<Vec<u8>>, ConfigError> {
        let Some(path) = &self.requirepass_file else { return Ok(None) };
        let text = std::fs::read(path)
            .map_err(|error| ConfigError(format!("cannot read {}: {error}", path.display())))?;
        let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return Err(ConfigError(format!("{}: the first line is empty", path.display())));
        }
        Ok(Some(line.to_vec()))
    }

    /// Refuses numbers that make no sense.
    pub(crate) fn check_ranges(&self) -> Result<(), ConfigError> {
        let limits = &self.limits;
        let counts = [
            ("clients", Some(limits.clients)),
            ("connections to shares", Some(limits.share_sessions)),
            ("connections of a user", limits.share_sessions_per_user),
            ("connections of an address", limits.share_sessions_per_address),
            ("keyspaces of a connection", Some(limits.share_keyspaces)),
        ];
        let check = |(what, count): (&str, Option<usize>)| match count {
            Some(count) => quantity::check_count(what, count as u64, &quantity::CLIENTS),
            None => Ok(()),
        };
        quantity::check_memory(self.memory_bytes)
            .and_then(|()| counts.into_iter().try_for_each(check))
            .and_then(|()| {
                quantity::check_count("threads", self.threads as u64, &quantity::THREADS)
            })
            .and_then(|()| {
                let kept = self.keep_backups as u64;
                quantity::check_count("kept backups", kept, &quantity::KEPT_BACKUPS)
            })
            .map_err(ConfigError)
    }

    /// Refuses what must not be served.
    pub(crate) fn check(&self, has_password: bool) -> Result<(), ConfigError> {
        let tls = [self.tls_listen, self.share_tls_listen].into_iter().flatten();
        if tls.count() > 0 && !cfg!(feature = "tls") {
            let what = "this build has no TLS: it is made with --features tls";
            return Err(ConfigError(what.to_owned()));
        }
        let is_far = |address: &SocketAddr| !address.ip().is_loopback();
        let shares = [self.share_listen, self.share_tls_listen];
        let clients = [Some(self.listen), self.tls_listen].into_iter().chain(shares).flatten();
        let open = !self.allow_open && !has_password;
        if let Some(address) = clients.into_iter().find(is_far).filter(|_| open) {
            return Err(ConfigError(format!(
                "{address} can be reached from other machines: give a password with \
                 --requirepass-file, or say --allow-open to serve everyone"
            )));
        }
        share_name::check_names(&self.share)?;
        check_part(self)?;
        let open = !self.allow_open && !self.metrics_open;
        if let Some(address) = self.metrics.filter(is_far).filter(|_| open) {
            return Err(ConfigError(format!(
                "{address} can be reached from other machines, and the metrics and the status page \
                 ask for no password: say --metrics-open to show them to everyone"
            )));
        }
        Ok(())
    }
}

impl Limits {
    /// Bytes of replies that a client has not taken, past which it stalls whatever it sends.
    pub(crate) fn output_soft_bytes(&self) -> usize {
        self.output_bytes / 8
    }

    /// Bytes of replies that all clients together have not taken, past which clients that have many
    /// are not read from.
    pub(crate) fn all_output_bytes(&self) -> usize {
        self.buffers_bytes / 2
    }

    pub(crate) fn stall(&self) -> Duration {
        Duration::from_secs(self.stall_seconds.max(1))
    }
}

/// Refuses settings of a part that name nothing to have a part of.
pub(crate) fn check_part(config: &Config) -> Result<(), ConfigError> {
    let wrong = |what: &str| Err(ConfigError(what.to_owned()));
    if config.share_table.is_none() && config.share_address.is_some() {
        return wrong("--share-address says who a server is in a --share-table, and there is none");
    }
    if config.share_table.is_some()
        && !config.share.iter().any(|share| share_name::is_divisible(share))
    {
        return wrong(
            "--share-table divides keyspaces among servers, and none is shared: name one with \
             --share. Databases of Redis clients are shared whole",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_differs() {
        let config: Config = toml::from_str(
            "fsync = \"always\"\nlisten = \"127.0.0.1:7000\"\n[limits]\nclients = 5",
        )
        .unwrap();
        assert_eq!((config.fsync, config.limits.clients), (Fsync::Always, 5));
        assert_eq!(config.listen.port(), 7000);
        assert_eq!(config.memory_bytes, Config::default().memory_bytes);
        assert!(toml::from_str::<Config>("fsynk = 1").is_err());
    }

    #[test]
    fn a_file_takes_units_and_names() {
        let text = "db = \"d\"\nmemory = \"1GiB\"\nlisten = \"localhost:1\"\n\
                    metrics = \"localhost:2\"\n[limits]\nbulk-bytes = \"64KiB\"\nquery-bytes = 100";
        let config = Config::from_toml(text).unwrap();
        assert_eq!((config.memory_bytes, config.listen.port()), (1 << 30, 1));
        assert_eq!((config.limits.bulk_bytes, config.limits.query_bytes), (64 << 10, 100));
        assert_eq!(config.metrics.map(|address| address.port()), Some(2));
        let old = Config::from_toml("data = \"d\"\nmemory-bytes = 33554432").unwrap();
        assert_eq!((old.data, old.memory_bytes), (config.data, 32 << 20));
    }

    #[test]
    fn what_is_wrong_in_a_file_has_its_line() {
        for (text, wrong) in [
            ("# a\n\nfsynk = 1", "line 3: unknown field `fsynk`"),
            ("a = \n", "line 1: "),
            ("memory = 64", "line 1: memory of 64 bytes: it may be from 16MiB to 16TiB"),
            ("\nthreads = 3000", "line 2: 3000 threads: it may be from 0 to 1024"),
            ("keep-backups = 0", "line 1: 0 kept backups: it may be from 1 to 10000"),
            ("[limits]\nclients = 0", "line 2: 0 clients: it may be from 1 to 1000000"),
            ("[limits]\nbulk-bytes = \"0\"", "line 2: a limit of 0 bytes"),
            ("[limits]\nshare-sessions = 0", "line 2: 0 clients"),
            ("[limits]\nshare-sessions-per-user = 0", "line 2: 0 clients"),
            ("share-allow-users = [\"root\"]", "line 1: "),
            ("listen = \"localhost\"", "line 1: \"localhost\" is no address with a port"),
            ("memory = \"1G\"\nmemory-bytes = 1", "line 1: duplicate field"),
        ] {
            let found = Config::from_toml(text).unwrap_err();
            assert!(found.starts_with(wrong), "{found}");
        }
    }

    #[test]
    fn shares_have_a_socket_beside_the_data() {
        let of = |data: &str| Config { data: data.into(), ..Config::default() }.share_socket();
        assert_eq!(of("rhumb-data"), PathBuf::from("rhumb-data.sock"));
        assert_eq!(of("/var/lib/rhumb/"), PathBuf::from("/var/lib/rhumb.sock"));
        assert_eq!(of(".."), PathBuf::from("../share.sock"));
        let text = "share = [\"users\", \"db0\"]\nshare-socket = \"s\"\nshare-memory = \"1G\"";
        let config = Config::from_toml(text).unwrap();
        assert_eq!((config.share.len(), config.share_memory_bytes), (2, 1 << 30));
        assert_eq!(config.share_socket(), PathBuf::from("s"));
        assert!(config.check(false).is_ok());
        for name in
            ["", "server", "db0.keys", "db16", "db01", "db7.work", ",preset=xstore", ",checksums"]
        {
            let config = Config { share: vec![name.into()], ..Config::default() };
            assert!(config.check(false).is_err(), "{name}");
        }
        let shares =
            ["db0,preset=finestore", "users,preset=xstore,checksums", "a,b", "db1,checksums"];
        let shares = shares.map(str::to_owned);
        let config = Config { share: shares.into(), ..Config::default() };
        assert!(config.check(false).is_ok());
        assert!(config.share_names().eq(["db0", "users", "a,b", "db1"]));
        let config = Config { share: vec!["users,preset=none".into()], ..Config::default() };
        let refused = config.check(false).unwrap_err().to_string();
        assert!(refused.contains("\"none\" is no preset: there are rhumb, xstore"), "{refused}");
    }

    #[test]
    fn backups_lie_beside_the_data() {
        let of = |text: &str| Config::from_toml(text).unwrap().backups();
        assert_eq!(of("db = \"rhumb-data\""), PathBuf::from("rhumb-data.backups"));
        assert_eq!(of("db = \"/var/lib/rhumb/\""), PathBuf::from("/var/lib/rhumb.backups"));
        assert_eq!(of("db = \"..\""), PathBuf::from("../backups"));
        assert_eq!(of("backups = \"/backup/shop\""), PathBuf::from("/backup/shop"));
    }

    #[test]
    fn shares_have_limits_of_their_own() {
        let text = "share = [\"db0\"]\nshare-allow-users = [7, 8]\nshare-allow-groups = [9]\n[limits]\n\
                    clients = 5\nshare-sessions = 20\nshare-sessions-per-user = 3\n\
                    share-buffers-bytes = \"1MiB\"";
        let config = Config::from_toml(text).unwrap();
        let limits = &config.limits;
        assert_eq!((config.share_allow_users.len(), config.share_allow_groups[0]), (2, 9));
        assert_eq!((limits.share_sessions, limits.share_sessions_per_user), (20, Some(3)));
        assert_eq!((limits.share_buffers_bytes, limits.share_keyspaces), (1 << 20, 256));
        assert_eq!(limits.share_sessions_per_address, None);
        // Each connection takes a descriptor, and none does where nothing is shared.
        assert_eq!(config.connections(), 25);
        assert_eq!(Config { share: Vec::new(), ..config }.connections(), 5);
    }

    #[test]
    fn tls_is_for_builds_that_have_it() {
        let listen = Some(([127, 0, 0, 1], 1).into());
        for config in [
            Config { tls_listen: listen, ..Config::default() },
            Config { share_tls_listen: listen, ..Config::default() },
        ] {
            let checked = config.check(false);
            assert_eq!(checked.is_ok(), cfg!(feature = "tls"), "{checked:?}");
        }
        let far = Config { share_tls_listen: Some(([0, 0, 0, 0], 1).into()), ..Config::default() };
        assert!(far.check(false).is_err());
    }

    #[test]
    fn numbers_without_sense_are_refused() {
        let default = Config::default;
        assert!(default().check_ranges().is_ok());
        let no_clients = Limits { clients: 0, ..Limits::default() };
        let no_sessions = Limits { share_sessions: 0, ..Limits::default() };
        let no_users = Limits { share_sessions_per_user: Some(0), ..Limits::default() };
        for config in [
            Config { limits: no_sessions, ..default() },
            Config { limits: no_users, ..default() },
            Config { memory_bytes: 64, ..default() },
            Config { threads: 3000, ..default() },
            Config { keep_backups: 0, ..default() },
            Config { limits: no_clients, ..default() },
        ] {
            assert!(config.check_ranges().unwrap_err().0.contains("it may be from"));
        }
    }

    #[test]
    fn strangers_need_a_password() {
        let mut config = Config { listen: ([0, 0, 0, 0], 1).into(), ..Config::default() };
        assert!(config.check(false).is_err() && config.check(true).is_ok());
        config.metrics = Some(([0, 0, 0, 0], 2).into());
        assert!(config.check(true).unwrap_err().0.contains("--metrics-open"));
        config.metrics_open = true;
        assert!(config.check(true).is_ok());
        assert!(config.check(false).unwrap_err().0.contains("--requirepass-file"));
        config.metrics_open = false;
        config.allow_open = true;
        assert!(config.check(false).is_ok());
        assert!(Config::default().check(false).is_ok());
    }
}
