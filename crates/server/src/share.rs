//! Keyspaces that other processes of the machine read without asking: of the names that clients of
//! Redis know, the databases' strings, and any other keyspace of the engine.

use std::{
    path::Path,
    sync::{Arc, Weak},
};

use rhumb::{Keyspace, KeyspaceOptions};
use rhumb_share::{
    Event as ShareEvent, Host, HostBuilder, HostStats, Paused, ShareOptions, ShareStats, Shared,
    Source,
};

use crate::{
    commit,
    config_error::ConfigError,
    error::ServeError,
    log::Event,
    part::Part,
    server::Server,
    share_name::{database_of, is_divisible, name_of, named, names},
};

/// Said to other processes that would write to a database of Redis clients: they know nothing of
/// its locks, counts and times of expiry.
const READ_ONLY: &str = "a database of Redis clients is written to by their commands";

/// Shares what the settings name; nothing if they name nothing. After an unclean end it waits until
/// no process reads what the server had shared before, also if nothing is shared any more.
pub(crate) fn start(server: &Arc<Server>) -> Result<(), ServeError> {
    let config = &server.config;
    let path = config.share_socket();
    if config.share.is_empty() {
        // Left by a server that was killed. Where another program listens at it, there is nothing
        // to wait for.
        if path.exists() {
            drop(Host::listen(&path).start());
        }
        return Ok(());
    }
    let (committed, watched) = (Arc::downgrade(server), Arc::downgrade(server));
    let mut host = host(server, &path)?;
    let part = Part::of(config)?;
    if let Some(part) = &part {
        for share in config.share.iter().filter(|share| is_divisible(share)) {
            let name = named(share).map_err(ServeError::Config)?.name;
            host = host.serve(name, part.served());
        }
    }
    let mut builder = Shared::on(host)
        .commit_by(move |batch| {
            let server = committed.upgrade().ok_or_else(ended)?;
            commit::batch(&server.databases, batch)
        })
        .watch(move |name, event| tell(&watched, name, &event));
    for share in &config.share {
        let share = named(share).map_err(ServeError::Config)?;
        let source = source(server, share.name)?;
        let options = ShareOptions::default().capacity_bytes(config.share_memory_bytes as u64);
        let options = options.preset(share.preset).checksums(share.has_checksums);
        builder = builder.share(share.name, source, options);
    }
    let refused = |error: rhumb_share::Error| match error {
        rhumb_share::Error::InvalidArgument(what) => ConfigError(what.into_owned()).into(),
        error => ServeError::listen(path.display(), &error.into()),
    };
    let shared = builder.start(&server.databases.engine).map_err(refused)?;
    let unix = format!("unix:{}", path.display());
    let tcp = shared.tcp_addresses().iter().map(|address| format!("tcp:{address}"));
    let tls = shared.tls_addresses().iter().map(|address| format!("tcps:{address}"));
    for address in std::iter::once(unix).chain(tcp).chain(tls) {
        let mut fields =
            vec![("address", address.into()), ("keyspaces", config.share.join(" ").into())];
        fields.extend(part.iter().map(|part| ("part", part.to_string().into())));
        server.log.write(Event::Listening, "other processes can read keyspaces", &fields);
    }
    *server.shared.write() = Some(shared);
    Ok(())
}

/// Where other processes come to, which of them, and what they may take.
fn host(server: &Server, path: &Path) -> Result<HostBuilder, ConfigError> {
    let (config, limits) = (&server.config, &server.config.limits);
    let mut host = Host::listen(path)
        .allow_open(config.allow_open)
        .allow_users(config.share_allow_users.iter().copied())
        .allow_groups(config.share_allow_groups.iter().copied())
        .sessions_max(limits.share_sessions)
        .keyspaces_max(limits.share_keyspaces)
        .kept_bytes_max(limits.share_buffers_bytes);
    if let Some(sessions) = limits.share_sessions_per_user {
        host = host.sessions_per_user(sessions);
    }
    if let Some(sessions) = limits.share_sessions_per_address {
        host = host.sessions_per_address(sessions);
    }
    if let Some(address) = config.share_listen {
        host = host.listen_tcp(address);
    }
    if let Some(address) = config.share_tls_listen {
        let (Some(cert), Some(key)) = (&config.tls_cert, &config.tls_key) else {
            return Err(ConfigError("TLS needs both --tls-cert and --tls-key".to_owned()));
        };
        host = host.listen_tls(address).identity(cert, key);
    }
    if let Some(password) = server.password() {
        host = host.token(&*password);
    }
    Ok(host)
}

fn source(server: &Arc<Server>, name: &str) -> Result<Source, ServeError> {
    let Some(database) = database_of(name) else {
        let keyspace = server.databases.engine.keyspace(name, KeyspaceOptions::default())?;
        return Ok(Source::of(keyspace));
    };
    let server = Arc::downgrade(server);
    Ok(Source::chosen(move || keys_of(&server, database)).read_only(READ_ONLY).removes_expired())
}

/// The keyspace in which a database has its keys at present.
fn keys_of(server: &Weak<Server>, database: usize) -> rhumb::Result<Keyspace> {
    let server = server.upgrade().ok_or_else(ended)?;
    let databases = &server.databases;
    Ok(databases.numbered(databases.number(database))?.keys.clone())
}

fn ended() -> rhumb::Error {
    rhumb::Error::InvalidArgument("the server has ended".into())
}

fn tell(server: &Weak<Server>, name: &str, event: &ShareEvent) {
    let Some(server) = server.upgrade() else { return };
    let name = ("keyspace", name.into());
    match event {
        ShareEvent::Loaded { entries, took } => {
            let fields = [name, ("entries", (*entries).into()), ("took", (*took).into())];
            server.log.write(Event::ShareLoaded, "other processes read a keyspace", &fields);
        }
        ShareEvent::Failed { error, retry_in } => {
            let error = ("error", error.to_string().into());
            let fields = [name, error, ("retry_in", (*retry_in).into())];
            server.log.write(Event::ShareFailed, "other processes have to ask", &fields);
        }
        _ => {}
    }
}

/// Has other processes ask for a database until what is returned is dropped; `None` if it is not
/// shared.
pub(crate) fn pause(server: &Server, database: usize) -> Option<Paused> {
    server.shared.read().as_ref()?.pause(&name_of(database))
}

/// What is shared, by name, and what is counted of other processes.
pub(crate) fn stats(server: &Server) -> (Vec<(String, ShareStats)>, HostStats) {
    let shared = server.shared.read();
    let Some(shared) = shared.as_ref() else { return (Vec::new(), HostStats::default()) };
    let stats = names(&server.config.share);
    let stats = stats.filter_map(|name| Some((name.to_owned(), shared.stats(name)?)));
    (stats.collect(), shared.host_stats())
}
