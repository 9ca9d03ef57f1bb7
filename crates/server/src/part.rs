//! The keys that this server has of what it shares, where several servers divide them by a routing
//! table.
//!
//! The table says of each range at which address its server listens. Which of these is this server
//! follows from where it listens, or is said.

use std::{
    fmt, fs,
    net::{SocketAddr, ToSocketAddrs},
    path::{Path, PathBuf},
};

use rhumb_share::{Address, RoutingTable, Served};

use crate::{config::Config, config_error::ConfigError};

/// A routing table, and which of its servers this one is.
pub(crate) struct Part {
    table: RoutingTable,
    address: Address,
}

impl Part {
    /// The part that the settings name; `None` if this server has all keys.
    ///
    /// # Errors
    ///
    /// If the table cannot be read, or names none of this server's addresses, or several.
    pub(crate) fn of(config: &Config) -> Result<Option<Self>, ConfigError> {
        let Some(path) = &config.share_table else { return Ok(None) };
        let table = RoutingTable::read(path).map_err(told)?;
        let address = match &config.share_address {
            Some(text) => named(text, &table, path)?,
            None => found(config, &table, path)?,
        };
        Ok(Some(Self { table, address }))
    }

    /// What a host serves that has the part.
    pub(crate) fn served(&self) -> Served {
        Served::by(&self.table, &self.address)
    }
}

/// The ranges, as a line for people.
impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = self.table.ranges().filter(|(_, _, server)| **server == self.address);
        for (low, high, _) in own {
            write!(f, "from \"{}\" ", low.escape_ascii())?;
            match high {
                Some(high) => write!(f, "to before \"{}\", ", high.escape_ascii())?,
                None => f.write_str("to the last, ")?,
            }
        }
        write!(f, "by the table of epoch {}", self.table.epoch())
    }
}

fn told(error: rhumb_share::Error) -> ConfigError {
    let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
    ConfigError(format!("{error}{}", source.unwrap_or_default()))
}

/// The server that the settings name.
fn named(text: &str, table: &RoutingTable, path: &Path) -> Result<Address, ConfigError> {
    let address = Address::parse(text).map_err(told)?;
    if table.servers().contains(&address) {
        return Ok(address);
    }
    let what = format!("{} has no keys for {address}: {}", path.display(), list(table.servers()));
    Err(ConfigError(what))
}

/// The server that listens where this one does.
fn found(config: &Config, table: &RoutingTable, path: &Path) -> Result<Address, ConfigError> {
    let servers = table.servers().iter();
    let own: Vec<Address> = servers.filter(|server| is_own(config, server)).cloned().collect();
    match &own[..] {
        [address] => return Ok(address.clone()),
        [] => {}
        _ => {
            let what = "names this server by several addresses: a server has one";
            return Err(ConfigError(format!("{} {what}", path.display())));
        }
    }
    let socket = Address::Unix(config.share_socket());
    let tcp = config.share_listen.map(|address| format!(" and tcp:{address}"));
    let tls = config.share_tls_listen.map(|address| format!(" and tcps:{address}"));
    let ports = [tcp, tls].into_iter().flatten().collect::<String>();
    Err(ConfigError(format!(
        "this server listens at {socket}{ports}, and {} has {}: say with --share-address which of them \
         it is",
        path.display(),
        list(table.servers())
    )))
}

fn list(servers: &[Address]) -> String {
    let servers: Vec<String> = servers.iter().map(Address::to_string).collect();
    servers.join(", ")
}

/// Returns true if other processes reach this server at an address.
fn is_own(config: &Config, server: &Address) -> bool {
    match server {
        Address::Unix(path) => {
            let own = config.share_socket();
            *path == own || resolved(path).is_some_and(|path| Some(path) == resolved(&own))
        }
        Address::Tcp { host, port } | Address::Tls { host, port } => {
            let is_here = |own: SocketAddr| {
                let known = || (host.as_str(), *port).to_socket_addrs();
                own.port() == *port && known().is_ok_and(|mut known| known.any(|a| a == own))
            };
            let is_tls = matches!(server, Address::Tls { .. });
            let own = if is_tls { config.share_tls_listen } else { config.share_listen };
            own.is_some_and(is_here)
        }
        _ => false,
    }
}

/// The path of a socket that may not be there yet, in a directory that is.
fn resolved(path: &Path) -> Option<PathBuf> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let directory = fs::canonicalize(directory.unwrap_or(Path::new("."))).ok()?;
    Some(directory.join(path.file_name()?))
}

#[cfg(test)]
mod tests {
    use rhumb_share::Preset;

    use super::*;
    use crate::config::check_part;

    fn config(dir: &Path, table: &str) -> Config {
        fs::write(dir.join("t"), table).unwrap();
        Config {
            data: dir.join("a"),
            share: vec!["users".into()],
            share_table: Some(dir.join("t")),
            ..Config::default()
        }
    }

    #[test]
    fn a_server_is_found_where_it_listens() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("./a.sock");
        let text = format!("epoch 2\nfrom \"\" unix:{}\nfrom \"m\" tcp:b:7\n", socket.display());
        let mut config = config(dir.path(), &text);
        let part = Part::of(&config).unwrap().unwrap();
        assert_eq!(part.to_string(), "from \"\" to before \"m\", by the table of epoch 2");
        config.data = dir.path().join("b");
        let wrong = Part::of(&config).err().unwrap().0;
        assert!(wrong.contains("--share-address") && wrong.contains("tcp:b:7"), "{wrong}");
        config.share_address = Some("tcp:b:7".into());
        let part = Part::of(&config).unwrap().unwrap();
        assert_eq!(part.to_string(), "from \"m\" to the last, by the table of epoch 2");
        config.share_address = Some("tcp:c:7".into());
        assert!(Part::of(&config).err().unwrap().0.contains("no keys for tcp:c:7"));
        config.share_address = None;
        config.share_listen = Some(([127, 0, 0, 1], 7).into());
        fs::write(dir.path().join("t"), "epoch 2\nfrom \"\" tcp:127.0.0.1:7\n").unwrap();
        assert!(Part::of(&config).unwrap().unwrap().to_string().starts_with("from \"\" to the"));
        fs::write(dir.path().join("t"), "epoch 2\nfrom \"\" tcp:127.0.0.1:8\n").unwrap();
        assert!(Part::of(&config).is_err());
    }

    #[test]
    fn a_part_is_of_something_that_may_be_divided() {
        let with = |share: &[&str], table: Option<&str>, address: Option<&str>| Config {
            share: share.iter().map(|name| (*name).to_owned()).collect(),
            share_table: table.map(PathBuf::from),
            share_address: address.map(str::to_owned),
            ..Config::default()
        };
        assert!(check_part(&with(&["db0", "users"], Some("t"), Some("a"))).is_ok());
        assert!(check_part(&with(&["db0"], Some("t"), None)).is_err());
        assert!(check_part(&with(&[], Some("t"), None)).is_err());
        assert!(check_part(&with(&["users"], None, Some("a"))).is_err());
        assert!(check_part(&with(&["db0,preset=xstore"], Some("t"), None)).is_err());
        for preset in Preset::ALL {
            let share = format!("users,preset={}", preset.name());
            assert!(check_part(&with(&[&share, "others"], Some("t"), None)).is_ok(), "{share}");
        }
    }
}
