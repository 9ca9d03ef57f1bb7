//! Settings of a server: plain data with defaults that just work, from a file and the command line.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;

use crate::log::{LogFormat, LogLevel};

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

/// What strangers may take.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Limits {
    /// Connections at a time.
    pub clients: usize,
    /// Bytes of one argument.
    pub bulk_bytes: usize,
    /// Arguments of one command.
    pub arguments: usize,
    /// Bytes of a command that is still coming in, and of the commands queued by `MULTI`.
    pub query_bytes: usize,
    /// Bytes of one reply.
    pub reply_bytes: usize,
    /// Bytes of replies that a client has not taken, past which it is not read from. With an eighth
    /// of them a client that takes nothing stalls, whatever it sends.
    pub output_bytes: usize,
    /// Bytes of all clients' buffers together; the client that would pass it is closed. Replies
    /// that were not taken have half of it: past that, those who have many are not read from.
    pub buffers_bytes: usize,
    /// Seconds without a command after which a client is closed; 0 for never.
    pub idle_seconds: u64,
    /// Seconds that a client may take to say who it is, where there is a password.
    pub handshake_seconds: u64,
    /// Seconds that a command may take to come in, or a reply to be taken.
    pub stall_seconds: u64,
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
        }
    }
}

/// All settings of a server.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// Directory of the data; made if it is not there.
    pub data: PathBuf,
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Address to listen on for TLS as well; needs the feature `tls`.
    pub tls_listen: Option<SocketAddr>,
    /// File of the certificate chain, PEM.
    pub tls_cert: Option<PathBuf>,
    /// File of the certificate's private key, PEM.
    pub tls_key: Option<PathBuf>,
    /// Path of a Unix socket to listen on as well.
    pub unix: Option<PathBuf>,
    /// Memory of the engine, in bytes: unflushed writes, indexes, filters and cached blocks.
    pub memory_bytes: u64,
    /// When writes are forced to the disk.
    pub fsync: Fsync,
    /// File whose first line is the password; without one, everyone who connects may do all.
    pub requirepass_file: Option<PathBuf>,
    /// Address of the metrics and the status page.
    pub metrics: Option<SocketAddr>,
    /// Whether to serve other machines without a password.
    pub allow_open: bool,
    /// Threads that serve connections; 0 for one for each core but one, at least one.
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
            listen: SocketAddr::from(([127, 0, 0, 1], 6380)),
            tls_listen: None,
            tls_cert: None,
            tls_key: None,
            unix: None,
            memory_bytes: 512 << 20,
            fsync: Fsync::default(),
            requirepass_file: None,
            metrics: None,
            allow_open: false,
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

/// Why settings cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(pub(crate) String);

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Reads settings from a TOML file; what it does not say has its default.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is no TOML, or has a setting that there is not.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError(format!("cannot read {}: {error}", path.display())))?;
        toml::from_str(&text)
            .map_err(|error| ConfigError(format!("{}: {}", path.display(), error.message())))
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

    /// Refuses what must not be served.
    pub(crate) fn check(&self, has_password: bool) -> Result<(), ConfigError> {
        if self.tls_listen.is_some() && !cfg!(feature = "tls") {
            let what = "this build has no TLS: it is made with --features tls";
            return Err(ConfigError(what.to_owned()));
        }
        let open = [Some(self.listen), self.tls_listen, self.metrics].into_iter().flatten();
        for address in open {
            let is_clients = address == self.listen || Some(address) == self.tls_listen;
            let is_metrics = Some(address) == self.metrics && !is_clients;
            if !address.ip().is_loopback() && !self.allow_open && (is_metrics || !has_password) {
                return Err(ConfigError(format!(
                    "{address} can be reached from other machines: give a password with \
                     --requirepass-file, or say --allow-open to serve everyone"
                )));
            }
        }
        Ok(())
    }
}

impl Limits {
    /// Bytes of replies that a client has not taken, past which it stalls whatever it sends.
    pub(crate) fn output_soft_bytes(&self) -> usize {
        self.output_bytes / 8
    }

    /// Bytes of replies that all clients together have not taken, past which those who have many
    /// are not read from.
    pub(crate) fn all_output_bytes(&self) -> usize {
        self.buffers_bytes / 2
    }

    pub(crate) fn stall(&self) -> Duration {
        Duration::from_secs(self.stall_seconds.max(1))
    }
}

/// Reads a size: digits, and K, M, G or T for powers of 1,024.
///
/// # Errors
///
/// If it is none.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let upper = text.trim().to_ascii_uppercase();
    let upper = upper.strip_suffix("IB").or(upper.strip_suffix('B')).unwrap_or(&upper);
    let shifts = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];
    let found =
        shifts.into_iter().find_map(|(unit, shift)| Some((upper.strip_suffix(unit)?, shift)));
    let (digits, shift) = found.unwrap_or((upper, 0));
    let number: u64 =
        digits.trim().parse().map_err(|_| format!("{text:?} is no size: try 512M or 4G"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text:?} is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("512M"), Ok(512 << 20));
        assert_eq!(parse_size("4GiB"), Ok(4 << 30));
        assert_eq!(parse_size("100"), Ok(100));
        assert_eq!(parse_size("64kb"), Ok(64 << 10));
        assert!(parse_size("x").is_err() && parse_size("99999999999T").is_err());
    }

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
    fn strangers_need_a_password() {
        let mut config = Config { listen: ([0, 0, 0, 0], 1).into(), ..Config::default() };
        assert!(config.check(false).is_err() && config.check(true).is_ok());
        config.metrics = Some(([0, 0, 0, 0], 2).into());
        assert!(config.check(true).is_err());
        config.allow_open = true;
        assert!(config.check(false).is_ok());
        assert!(Config::default().check(false).is_ok());
    }
}
