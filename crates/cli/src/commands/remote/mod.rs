//! `remote`: keyspaces that other processes share, read from their memory.

mod bench;
mod inspect;
mod target;

use clap::{Args, Subcommand};

pub(crate) use self::target::with_place_of_url;
use self::{
    bench::Bench,
    inspect::Inspect,
    target::{Opened, Target},
};
use super::{
    entry::{EntryArg, KeyArg, Wanted},
    range::Listing,
};
use crate::{
    failure::{Failure, Outcome},
    output::Output,
};

const EXAMPLES: &str = "\
Examples:
  rhumb remote get unix:/run/rhumb.sock users ada
  rhumb remote scan /run/rhumb.sock users --prefix a --limit 5
  rhumb remote get rhumb-data.sock db0 greeting   a string of Redis clients
  rhumb remote get tcp:db.example:7000 users ada --token-file token.txt
  rhumb remote get tcps:db.example:7001 users ada --cacert authority.pem
  rhumb remote inspect /run/rhumb.sock users --walk
  rhumb remote scan users --table users.table    several hosts, each with some of the keys

URL is where a host listens: a path, unix:PATH, tcp:HOST:PORT, or tcps:HOST:PORT for TLS (in builds
with the feature `tls`). A host is a process that shares
keyspaces, such as `rhumb serve --share NAME`. Reads look into its memory and do not disturb it, but
for those over TCP; writes are calls. db0 to db15 are the strings of Redis clients, which they alone
write to. Keys, values, output and exit codes are those of get, scan, put and del.

Where several hosts divide the keys of a keyspace, URL is that of any of them: it knows the others.
Or --table FILE stands for URL, as in docs/shell.md.";

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
    Table(Table),
    Bench(Bench),
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
            RemoteCommand::Table(command) => command.run(out),
            RemoteCommand::Bench(command) => command.run(out),
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
        self.listing.print(out, |selected| Ok(self.target.open()?.entries(selected)))
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
        self.target.open_keyspace()?.insert(&key, &value)
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
            if keyspace.remove_if(&key, &value)? {
                return Ok(());
            }
        }
    }
}

const TABLE_EXAMPLES: &str = "\
Examples:
  rhumb remote table tcp:db.example:7000 users > users.table
  rhumb remote get users ada --table users.table

The text is that of a file for --table and for `rhumb serve --share-table`. Exit code 3 if one host
has all keys.";

/// Print which of several hosts has which keys
#[derive(Debug, Args)]
#[command(after_help = TABLE_EXAMPLES)]
struct Table {
    #[command(flatten)]
    target: Target,
}

impl Table {
    fn run(self, out: &mut Output) -> Outcome {
        match self.target.open_keyspace()? {
            Opened::Divided(keyspace) => {
                let table = keyspace.table().to_string();
                out.with(|out| out.write_all(table.as_bytes()))
            }
            Opened::Whole(_) => {
                let name = &self.target.keyspace;
                Err(Failure::failed(format!("{name}: the host has all keys, and no table")))
            }
        }
    }
}
