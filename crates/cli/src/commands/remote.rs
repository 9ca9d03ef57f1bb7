//! `remote`: keyspaces that another process shares, read from its memory.

use std::{io, path::PathBuf};

use clap::{Args, Subcommand};
use rhumb_remote::{
    Address, Client, Error, Inspection, Keyspace, Range, StringRange, Strings, Walk,
};
use serde_json::{Value as Json, json};

use super::{
    entry::{EntryArg, KeyArg, Lookup, Wanted},
    range::{Listing, Selected},
};
use crate::{
    failure::{Failure, Outcome},
    output::{Output, bytes, counted, grouped},
};

/// The code by which a host says that it shares no such keyspace (docs/wire.md, section "Replies").
const NO_SUCH_KEYSPACE: u16 = 2;

const EXAMPLES: &str = "\
Examples:
  rhumb remote get unix:/run/rhumb.sock users ada
  rhumb remote scan /run/rhumb.sock users --prefix a --limit 5
  rhumb remote get rhumb-data.sock db0 greeting   a string of Redis clients
  rhumb remote get tcp:db.example:7000 users ada --token-file token.txt
  rhumb remote inspect /run/rhumb.sock users --walk

URL is where a host listens: a path, unix:PATH or tcp:HOST:PORT. A host is a process that shares
keyspaces, such as `rhumb serve --share NAME`. Reads look into its memory and do not disturb it, but
for those over TCP; writes are calls. db0 to db15 are the strings of Redis clients, which they alone
write to. Keys, values, output and exit codes are those of get, scan, put and del.";

/// Read and write keyspaces that another process shares
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Remote {
    #[command(subcommand)]
    command: RemoteCommand,
}

#[derive(Debug, Subcommand)]
enum RemoteCommand {
    Get(Get),
    Scan(Scan),
    Put(Put),
    Del(Del),
    Inspect(Inspect),
}

impl Remote {
    /// Runs the command.
    pub(crate) fn run(self, out: &mut Output) -> Outcome {
        match self.command {
            RemoteCommand::Get(command) => command.run(out),
            RemoteCommand::Scan(command) => command.run(out),
            RemoteCommand::Put(command) => command.run(),
            RemoteCommand::Del(command) => command.run(),
            RemoteCommand::Inspect(command) => command.run(out),
        }
    }
}

/// Where the entries are.
#[derive(Debug, Args)]
struct Target {
    /// Where the host listens: a path, unix:PATH, tcp:HOST:PORT
    #[arg(value_name = "URL")]
    url: std::ffi::OsString,
    /// The keyspace, by the name that the host shares it under
    #[arg(value_name = "KEYSPACE")]
    keyspace: String,
    /// File whose first line is the token that a host asks for over TCP
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// A keyspace, or the strings of a database of Redis clients.
enum Opened {
    Keyspace(Keyspace),
    Strings(Strings),
}

impl Target {
    /// Connects to the host and maps the keyspace, to be read as what its name says.
    fn open(&self) -> Outcome<Opened> {
        let number = self.keyspace.strip_prefix("db").and_then(|number| number.parse().ok());
        let database = number.filter(|number: &u8| self.keyspace == format!("db{number}"));
        let (client, keyspace) = self.connect()?;
        Ok(match database {
            Some(database) => Opened::Strings(client.strings(database)?),
            None => Opened::Keyspace(keyspace),
        })
    }

    /// Connects to the host and maps the keyspace.
    fn open_keyspace(&self) -> Outcome<Keyspace> {
        Ok(self.connect()?.1)
    }

    fn token(&self) -> Outcome<Option<Vec<u8>>> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let text = std::fs::read(path);
        let text = text
            .map_err(|error| Failure::failed(format!("cannot read {}: {error}", path.display())))?;
        let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        Ok(Some(line.strip_suffix(b"\r").unwrap_or(line).to_vec()))
    }

    fn connect(&self) -> Outcome<(Client, Keyspace)> {
        let address = match Address::parse(&self.url) {
            Ok(address) => address,
            Err(error) => return Err(Failure::Usage(format!("URL: {error}"))),
        };
        let mut builder = Client::builder(&self.url);
        if let Some(token) = self.token()? {
            builder = builder.token(token);
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

impl Lookup for Opened {
    type Value = Vec<u8>;

    fn get(&self, key: &[u8]) -> Outcome<Option<Vec<u8>>> {
        Ok(match self {
            Self::Keyspace(keyspace) => keyspace.get(key)?,
            Self::Strings(strings) => strings.get(key)?,
        })
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Outcome<Vec<Option<Vec<u8>>>> {
        Ok(match self {
            Self::Keyspace(keyspace) => keyspace.multi_get(keys)?,
            Self::Strings(strings) => strings.multi_get(keys)?,
        })
    }
}

/// A range of either.
enum Entries {
    Keyspace(Range),
    Strings(StringRange),
}

impl Iterator for Entries {
    type Item = Result<(Vec<u8>, Vec<u8>), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Keyspace(range) => range.next(),
            Self::Strings(range) => range.next(),
        }
    }
}

impl DoubleEndedIterator for Entries {
    fn next_back(&mut self) -> Option<Self::Item> {
        match self {
            Self::Keyspace(range) => range.next_back(),
            Self::Strings(range) => range.next_back(),
        }
    }
}

const GET_EXAMPLES: &str = "\
Examples:
  rhumb remote get /run/rhumb.sock users ada
  rhumb remote get unix:/run/rhumb.sock users --u64 16777216 --json
  rhumb remote get /run/rhumb.sock users --keys-from names.txt

The output is that of `rhumb get`. Exit code 1 if a key is absent.";

/// Print the value of a key
#[derive(Debug, Args)]
#[command(after_help = GET_EXAMPLES)]
struct Get {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    wanted: Wanted,
}

impl Get {
    fn run(self, out: &mut Output) -> Outcome {
        self.wanted.print(out, || self.target.open())
    }
}

const SCAN_EXAMPLES: &str = "\
Examples:
  rhumb remote scan /run/rhumb.sock users --prefix a --limit 5
  rhumb remote scan /run/rhumb.sock users --from a --to b --json
  rhumb remote scan /run/rhumb.sock users --rev --limit 1   the last entry

The output is that of `rhumb scan`. Writes meanwhile may be seen or not.";

/// Print entries in key order
#[derive(Debug, Args)]
#[command(after_help = SCAN_EXAMPLES)]
struct Scan {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    listing: Listing,
}

impl Scan {
    fn run(self, out: &mut Output) -> Outcome {
        self.listing.print(out, |selected| {
            Ok(match (self.target.open()?, selected) {
                (Opened::Keyspace(keyspace), Selected::Prefix(prefix)) => {
                    Entries::Keyspace(keyspace.prefix(prefix))
                }
                (Opened::Keyspace(keyspace), Selected::Range(from, to)) => {
                    Entries::Keyspace(keyspace.range((from, to)))
                }
                (Opened::Strings(strings), Selected::Prefix(prefix)) => {
                    Entries::Strings(strings.prefix(prefix))
                }
                (Opened::Strings(strings), Selected::Range(from, to)) => {
                    Entries::Strings(strings.range((from, to)))
                }
            })
        })
    }
}

const PUT_EXAMPLES: &str = "\
Examples:
  rhumb remote put /run/rhumb.sock users ada 1815
  rhumb remote put /run/rhumb.sock pictures ada < ada.png

Every client sees the entry when the command ends. It lasts as the host says: a keyspace that is not
of a database ends with its host.";

/// Insert a key, or replace its value
#[derive(Debug, Args)]
#[command(after_help = PUT_EXAMPLES)]
struct Put {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    entry: EntryArg,
}

impl Put {
    fn run(self) -> Outcome {
        let (key, value) = self.entry.parse()?;
        Ok(self.target.open_keyspace()?.insert(key, value)?)
    }
}

const DEL_EXAMPLES: &str = "\
Examples:
  rhumb remote del /run/rhumb.sock users ada

Exit code 1 if the key was absent.";

/// Remove a key
#[derive(Debug, Args)]
#[command(after_help = DEL_EXAMPLES)]
struct Del {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    key: KeyArg,
}

impl Del {
    fn run(self) -> Outcome {
        let key = self.key.parse()?;
        let keyspace = self.target.open_keyspace()?;
        loop {
            let Some(value) = keyspace.get(&key)? else { return Err(Failure::Absent) };
            // Two that remove it at the same time do not both find it.
            if keyspace.compare_and_swap(&key, Some(&value), None)? {
                return Ok(());
            }
        }
    }
}

const INSPECT_EXAMPLES: &str = "\
Examples:
  rhumb remote inspect /run/rhumb.sock users
  rhumb remote inspect /run/rhumb.sock users --walk --json

All of it is read from the mapped memory, without a call. --walk reads every leaf as well, which
says how full they are.";

/// Show how a keyspace lies in the memory that is shared
#[derive(Debug, Args)]
#[command(after_help = INSPECT_EXAMPLES)]
struct Inspect {
    #[command(flatten)]
    target: Target,
    /// Read every leaf: entries, fill, siblings
    #[arg(long)]
    walk: bool,
    /// Print an object
    #[arg(long)]
    json: bool,
}

impl Inspect {
    fn run(self, out: &mut Output) -> Outcome {
        let seen = self.target.open_keyspace()?.inspect(self.walk)?;
        if self.json {
            return out.json(&object(&self.target.keyspace, &seen));
        }
        for (name, text) in lines(&seen) {
            out.line(format!("{name:<10} {text}"))?;
        }
        Ok(())
    }
}

fn object(keyspace: &str, seen: &Inspection) -> Json {
    let mut object = json!({
        "keyspace": keyspace,
        "runs": seen.runs,
        "leaves": seen.leaves,
        "blocks": seen.blocks,
        "directory_bytes": seen.directory_bytes,
        "leaf_bytes": seen.leaf_bytes,
        "leaf_room": seen.leaf_room,
        "control_bytes": seen.control_bytes,
        "leaves_bytes": seen.leaves_bytes,
        "mapped_bytes": seen.mapped_bytes(),
        "applied": seen.applied,
        "heartbeat_age_ms": seen.heartbeat_age_ms,
        "lease_ms": seen.lease_ms,
    });
    if let Some(walk) = &seen.walk {
        object["walk"] = json!({
            "leaves": walk.leaves,
            "siblings": walk.siblings,
            "siblings_in_a_row": walk.siblings_in_a_row,
            "entries": walk.entries,
            "asked": walk.asked,
            "used_bytes": walk.used_bytes,
            "unread": walk.unread,
            "runs_replaced": walk.runs_replaced,
            "fill": walk.fill(seen.leaf_bytes),
            "entries_per_leaf": walk.entries_per_leaf(),
        });
    }
    object
}

fn lines(seen: &Inspection) -> Vec<(&'static str, String)> {
    let heard = seen.heartbeat_age_ms.map_or_else(
        || "has ended".to_owned(),
        |age| format!("heard of {} ms ago, lease {} ms", grouped(age), grouped(seen.lease_ms)),
    );
    let mut lines = vec![
        ("host", heard),
        ("applied", format!("write {}", grouped(seen.applied))),
        (
            "mapped",
            format!(
                "{}: {} of leaves, {} of directory and header",
                bytes(seen.mapped_bytes()),
                bytes(seen.leaves_bytes),
                bytes(seen.control_bytes)
            ),
        ),
        (
            "directory",
            format!(
                "{} in {}, {}",
                counted(seen.runs, "run"),
                counted(seen.blocks, "block"),
                bytes(seen.directory_bytes)
            ),
        ),
        (
            "leaves",
            format!(
                "{} found by lines, {} each with room for {}",
                grouped(seen.leaves),
                bytes(seen.leaf_bytes),
                counted(seen.leaf_room, "entry")
            ),
        ),
    ];
    lines.extend(seen.walk.iter().flat_map(|walk| walk_lines(walk, seen.leaf_bytes)));
    lines
}

fn walk_lines(walk: &Walk, leaf_bytes: u64) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        (
            "siblings",
            format!(
                "{}, at most {} in a row",
                grouped(walk.siblings),
                grouped(walk.siblings_in_a_row)
            ),
        ),
        (
            "entries",
            format!(
                "{}, {:.1} a leaf; {} must be asked for",
                grouped(walk.entries),
                walk.entries_per_leaf(),
                grouped(walk.asked)
            ),
        ),
        (
            "fill",
            format!(
                "{:.1}% of {}: {}",
                100.0 * walk.fill(leaf_bytes),
                bytes(walk.leaves.saturating_mul(leaf_bytes)),
                bytes(walk.used_bytes)
            ),
        ),
    ];
    if walk.unread + walk.runs_replaced > 0 {
        let text = format!(
            "{} leaves that changed all the while, {} that were replaced",
            grouped(walk.unread),
            counted(walk.runs_replaced, "run")
        );
        lines.push(("not read", text));
    }
    lines
}
