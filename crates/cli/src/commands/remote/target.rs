//! Which keyspace a command works on: of one host, or divided among several.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use clap::Args;
use rhumb_remote::{
    Address, Client, Cluster, ClusterBuilder, ClusterKeyspace, Error, Keyspace, RoutingTable,
    Strings,
};

use super::super::{entry::Lookup, range::Selected};
use crate::failure::{Failure, Outcome};

/// The code by which a host says that it shares no such keyspace (docs/wire.md, section "Replies").
const NO_SUCH_KEYSPACE: u16 = 2;

/// What stands for the URL where a command has a table in its place.
const NO_URL: &str = "-";

/// Puts a placeholder where the URL of `rhumb remote COMMAND URL …` would be if there is a
/// `--table`, which stands for it: the words after it keep their places.
pub(crate) fn with_place_of_url(mut words: Vec<OsString>) -> Vec<OsString> {
    let is_table = |word: &OsString| word == "--table" || has_prefix(word, "--table=");
    let mut options = words.iter().take_while(|word| *word != "--");
    if words.get(1).is_some_and(|word| word == "remote") && options.any(is_table) {
        words.insert(3.min(words.len()), NO_URL.into());
    }
    words
}

fn has_prefix(word: &OsString, prefix: &str) -> bool {
    word.as_encoded_bytes().starts_with(prefix.as_bytes())
}

/// Where the entries are.
#[derive(Debug, Args)]
pub(super) struct Target {
    /// Where a host listens: a path, unix:PATH, tcp:HOST:PORT, tcps:HOST:PORT. Left out with
    /// --table
    #[arg(value_name = "URL")]
    url: OsString,
    /// The keyspace, by the name that it is shared under
    #[arg(value_name = "KEYSPACE")]
    pub(super) keyspace: String,
    /// File that says which of several hosts has which keys, in place of URL
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// File whose first line is the token that hosts ask for over TCP
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// PEM file of the certificate authority that signs the hosts' TLS certificates; may be
    /// repeated
    #[arg(long, value_name = "FILE")]
    cacert: Vec<PathBuf>,
}

/// A keyspace, of one host or of several.
pub(super) enum Opened {
    /// All of it is one host's.
    Whole(Keyspace),
    /// Each host has some of its keys.
    Divided(ClusterKeyspace),
}

/// What is read: a keyspace, or the strings of a database of Redis clients.
pub(super) enum Source {
    Keyspace(Opened),
    Strings(Strings),
}

impl Target {
    /// Connects to the host and maps the keyspace, to be read as what its name says.
    pub(super) fn open(&self) -> Outcome<Source> {
        let Some(database) = self.database() else {
            return self.open_keyspace().map(Source::Keyspace);
        };
        if self.table.is_some() {
            let what = format!("{} is of one server: name its URL, and no table", self.keyspace);
            return Err(Failure::Usage(what));
        }
        let (client, _) = self.connect()?;
        Ok(Source::Strings(client.strings(database)?))
    }

    /// The number of the database of Redis clients that the keyspace's name stands for.
    fn database(&self) -> Option<u8> {
        let number = self.keyspace.strip_prefix("db").and_then(|number| number.parse().ok());
        number.filter(|number: &u8| self.keyspace == format!("db{number}"))
    }

    /// The keyspace, of all its hosts: of those that the table names, or that the host at the URL
    /// knows of.
    pub(super) fn open_keyspace(&self) -> Outcome<Opened> {
        if let Some(table) = self.read_table()? {
            return self.divided(table);
        }
        let (_, keyspace) = self.connect()?;
        match keyspace.routing_table()? {
            Some(table) => self.divided(table),
            None => Ok(Opened::Whole(keyspace)),
        }
    }

    fn divided(&self, table: RoutingTable) -> Outcome<Opened> {
        Ok(Opened::Divided(self.cluster()?.open(table).keyspace(&self.keyspace)))
    }

    fn cluster(&self) -> Outcome<ClusterBuilder> {
        let roots = self.cacert.iter();
        let builder =
            roots.fold(Cluster::builder(), |builder, path| builder.root_certificates(path));
        Ok(match self.token()? {
            Some(token) => builder.token(token),
            None => builder,
        })
    }

    /// The table of the file, if one is named.
    pub(super) fn read_table(&self) -> Outcome<Option<RoutingTable>> {
        match &self.table {
            None if self.url == NO_URL => {
                let what = "URL: \"-\" is no address: give one, or --table FILE";
                Err(Failure::Usage(what.to_owned()))
            }
            None => Ok(None),
            Some(path) => Ok(Some(RoutingTable::read(path)?)),
        }
    }

    fn token(&self) -> Outcome<Option<Vec<u8>>> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let text = std::fs::read(path);
        let text = text
            .map_err(|error| Failure::failed(format!("cannot read {}: {error}", path.display())))?;
        let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        Ok(Some(line.strip_suffix(b"\r").unwrap_or(line).to_vec()))
    }

    /// Connects to the host at the URL and maps the keyspace.
    pub(super) fn connect(&self) -> Outcome<(Client, Keyspace)> {
        self.connect_to(&self.url)
    }

    /// Connects to a host and maps what it has of the keyspace.
    pub(super) fn connect_to(&self, url: impl AsRef<Path>) -> Outcome<(Client, Keyspace)> {
        let address = match Address::parse(&url) {
            Ok(address) => address,
            Err(error) => return Err(Failure::Usage(format!("URL: {error}"))),
        };
        let mut builder = Client::builder(&url);
        if let Some(token) = self.token()? {
            builder = builder.token(token);
        }
        for path in &self.cacert {
            builder = builder.root_certificates(path);
        }
        let client = builder.connect().map_err(|error| unreached(&address, error))?;
        let keyspace = client.keyspace(&self.keyspace).map_err(|error| match error {
            Error::Refused { code: NO_SUCH_KEYSPACE, .. } => Failure::failed(format!(
                "the host at {address} shares no keyspace {:?}: name one that it shares",
                self.keyspace
            )),
            error => error.into(),
        })?;
        Ok((client, keyspace))
    }
}

/// Why there is no connection, and what to do.
fn unreached(address: &Address, error: Error) -> Failure {
    let kind = match &error {
        Error::Io { source, .. } => Some(source.kind()),
        _ => None,
    };
    match kind {
        Some(io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            Failure::failed(format!(
                "no host listens at {address}: start one, `rhumb serve --share NAME` or a \
                 program with `rhumb_remote::Host`, or name another path"
            ))
        }
        Some(io::ErrorKind::PermissionDenied) => Failure::failed(format!(
            "this user may not connect to {address}: a host's socket is its own user's alone"
        )),
        _ => error.into(),
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
        Self::Failed(format!("{error}{}", source.unwrap_or_default()))
    }
}

impl Opened {
    /// The value of a key.
    pub(super) fn get(&self, key: &[u8]) -> Outcome<Option<Vec<u8>>> {
        Ok(match self {
            Self::Whole(keyspace) => keyspace.get(key)?,
            Self::Divided(keyspace) => keyspace.get(key)?,
        })
    }

    /// Appends the value of a key to `value`; returns false if it is not there.
    pub(super) fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        Ok(match self {
            Self::Whole(keyspace) => keyspace.get_into(key, value)?,
            Self::Divided(keyspace) => keyspace.get_into(key, value)?,
        })
    }

    /// Messages that hosts have answered so far.
    pub(super) fn messages(&self) -> u64 {
        match self {
            Self::Whole(keyspace) => keyspace.counts().round_trips,
            Self::Divided(keyspace) => {
                keyspace.counts().iter().map(|(_, counts)| counts.round_trips).sum()
            }
        }
    }

    /// Inserts a key, or replaces its value.
    pub(super) fn insert(&self, key: &[u8], value: &[u8]) -> Outcome {
        match self {
            Self::Whole(keyspace) => keyspace.insert(key, value)?,
            Self::Divided(keyspace) => keyspace.insert(key, value)?,
        }
        Ok(())
    }

    /// Removes a key, if it has this value; returns false otherwise.
    pub(super) fn remove_if(&self, key: &[u8], value: &[u8]) -> Outcome<bool> {
        Ok(match self {
            Self::Whole(keyspace) => keyspace.compare_and_swap(key, Some(value), None)?,
            Self::Divided(keyspace) => keyspace.compare_and_swap(key, Some(value), None)?,
        })
    }

    /// The entries that are selected.
    pub(super) fn entries(&self, selected: Selected) -> Entries {
        match (self, selected) {
            (Self::Whole(keyspace), Selected::Prefix(prefix)) => Box::new(keyspace.prefix(prefix)),
            (Self::Whole(keyspace), Selected::Range(from, to)) => {
                Box::new(keyspace.range((from, to)))
            }
            (Self::Divided(keyspace), Selected::Prefix(prefix)) => {
                Box::new(keyspace.prefix(prefix))
            }
            (Self::Divided(keyspace), Selected::Range(from, to)) => {
                Box::new(keyspace.range((from, to)))
            }
        }
    }
}

impl Source {
    /// The entries that are selected.
    pub(super) fn entries(&self, selected: Selected) -> Entries {
        match (self, selected) {
            (Self::Keyspace(keyspace), selected) => keyspace.entries(selected),
            (Self::Strings(strings), Selected::Prefix(prefix)) => Box::new(strings.prefix(prefix)),
            (Self::Strings(strings), Selected::Range(from, to)) => {
                Box::new(strings.range((from, to)))
            }
        }
    }
}

impl Lookup for Source {
    type Value = Vec<u8>;

    fn get(&self, key: &[u8]) -> Outcome<Option<Vec<u8>>> {
        match self {
            Self::Keyspace(keyspace) => keyspace.get(key),
            Self::Strings(strings) => Ok(strings.get(key)?),
        }
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Outcome<Vec<Option<Vec<u8>>>> {
        Ok(match self {
            Self::Keyspace(Opened::Whole(keyspace)) => keyspace.multi_get(keys)?,
            Self::Keyspace(Opened::Divided(keyspace)) => keyspace.multi_get(keys)?,
            Self::Strings(strings) => strings.multi_get(keys)?,
        })
    }
}

/// A range of any of them.
pub(super) type Entries = Box<dyn DoubleEndedIterator<Item = Result<(Vec<u8>, Vec<u8>), Error>>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_stands_for_the_url() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        for (line, placed) in [
            ("rhumb remote get --table t users ada", "rhumb remote get - --table t users ada"),
            ("rhumb remote scan users --table=t", "rhumb remote scan - users --table=t"),
            ("rhumb remote get s users ada", "rhumb remote get s users ada"),
            ("rhumb remote put s users -- --table x", "rhumb remote put s users -- --table x"),
            ("rhumb get --table", "rhumb get --table"),
            ("rhumb remote --table", "rhumb remote --table -"),
        ] {
            assert_eq!(with_place_of_url(words(line)), words(placed), "{line}");
        }
    }
}
