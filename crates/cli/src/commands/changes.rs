//! `changes`: what a database commits, in order.

use std::{
    io,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use clap::Args;
use rhumb::{Change, Changes, ChangesOptions, Commit, Cursor, Database, Error, KeyspaceChange};
use rhumb_server::parse_memory;
use serde_json::{Value as Json, json};

use super::open::DatabaseArg;
use crate::{
    failure::{Failure, Outcome},
    interrupt::Interrupt,
    keys::{Form, KeyFlags},
    output::Output,
};

/// How long a command waits for the next commit before it looks for a signal.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How often the cursor is moved while commits come, which costs two syncs: what is printed again
/// after a crash is at most this much.
const ADVANCE_EVERY: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  rhumb changes --db shop.db                   what the log still has
  rhumb changes --db shop.db --follow --json   and what comes, as objects
  rhumb changes --db shop.db --from now --follow
  rhumb changes --db shop.db --from 4711 --limit 10
  rhumb changes --db shop.db --follow --cursor mail   and go on there next time

A line for each write: its sequence number, its keyspace, what it does, key and value. Writes that
were committed together have the same `commit` in the objects: the numbers of the first and the
last. A program or a server may write the database meanwhile.

The log is kept for as long as unflushed writes need it: what follows commands that each write a
little and end may miss what they wrote, and says so. A cursor keeps the log, up to --keep, also
while nothing follows. It is moved once what was printed is written: a command that is killed prints
up to a second of it again.";

/// Print what is committed, in order, from the log
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ChangesCommand {
    #[command(flatten)]
    database: DatabaseArg,
    /// Sequence number of the first change, or `now` [default: the oldest that is kept]
    #[arg(long, value_name = "N", value_parser = parse_from)]
    from: Option<From>,
    /// Go on where this cursor is, which is made if there is none; only what survives a power cut
    #[arg(long, value_name = "NAME", conflicts_with = "from")]
    cursor: Option<String>,
    /// Log that is kept for the cursor, at most: 512MiB, 4GiB, or bytes
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = parse_memory)]
    keep: u64,
    /// Remove this cursor, and end: the log is not kept for it any more
    #[arg(long, value_name = "NAME", conflicts_with_all = ["from", "cursor", "follow"])]
    forget: Option<String>,
    /// Wait for what comes, until Ctrl-C
    #[arg(long)]
    follow: bool,
    /// Only what survives a power cut, and only once it does
    #[arg(long)]
    durable: bool,
    /// Only this keyspace
    #[arg(long, value_name = "NAME")]
    keyspace: Option<String>,
    /// End after this many commits
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print an object for each change
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    keys: KeyFlags,
}

/// Where a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Number(u64),
    Now,
}

fn parse_from(text: &str) -> Result<From, String> {
    if text == "now" {
        return Ok(From::Now);
    }
    text.parse().map(From::Number).map_err(|_| "a sequence number, or `now`".to_owned())
}

impl ChangesCommand {
    /// Runs the command.
    pub(crate) fn run(self, out: &mut Output) -> Outcome {
        let interrupt = Interrupt::listen()?;
        let db = self.database.open_read_only()?;
        if let Some(name) = &self.forget {
            return match db.remove_cursor(name)? {
                true => Ok(()),
                false => Err(Failure::Absent),
            };
        }
        let cursor = self.cursor.as_ref().map(|name| db.cursor(name, self.keep)).transpose()?;
        let from = cursor.as_ref().map(|cursor| From::Number(cursor.position())).or(self.from);
        let is_durable = self.durable || cursor.is_some();
        let mut changes = begin(&db, from, &ChangesOptions::default().durable(is_durable))?;
        let mut place = Place { cursor, advanced: Instant::now() };
        let mut left = self.limit.unwrap_or(u64::MAX);
        while left > 0 && !interrupt.has_come() {
            let mut commit = changes.try_next()?;
            if commit.is_none() {
                if !self.follow {
                    break;
                }
                // Others may read what there is.
                out.flush()?;
                place.advance(&changes)?;
                commit = changes.next_within(LOOK_EVERY)?;
            }
            if let Some(commit) = commit {
                self.print(&commit, out)?;
                left -= 1;
            }
            if place.advanced.elapsed() > ADVANCE_EVERY {
                out.flush()?;
                place.advance(&changes)?;
            }
        }
        out.flush()?;
        place.advance(&changes)
    }

    fn print(&self, commit: &Commit, out: &mut Output) -> Outcome {
        let wanted = |name: &str| self.keyspace.as_deref().is_none_or(|only| only == name);
        let printer = Printer { key: self.keys.key_form(), value: self.keys.value_form() };
        let numbers = (commit.first_seq(), commit.last_seq());
        for write in commit.writes().filter(|write| wanted(write.keyspace)) {
            let (seq, keyspace) = (write.seq, write.keyspace);
            if self.json {
                let mut object = json!({
                    "seq": seq,
                    "commit": [numbers.0, numbers.1],
                    "keyspace": keyspace,
                });
                printer.add_to(&mut object, &write.change);
                out.json(&object)?;
            } else {
                out.with(|out| {
                    write!(out, "{seq}\t{keyspace}\t")?;
                    printer.write(out, &write.change)?;
                    writeln!(out)
                })?;
            }
        }
        match commit.keyspace_change()? {
            Some(change) => {
                let (keyspace, what, partitions) = in_words(&change);
                if !wanted(keyspace) {
                    return Ok(());
                }
                if self.json {
                    let mut object = json!({
                        "seq": numbers.0,
                        "commit": [numbers.0, numbers.1],
                        "keyspace": keyspace,
                        "op": what,
                    });
                    if !partitions.is_empty() {
                        let names = partitions.iter().map(|name| Form::Hex.show(name));
                        object["partitions_hex"] = names.collect();
                    }
                    return out.json(&object);
                }
                out.line(format!("{}\t{keyspace}\t{what}", numbers.0))
            }
            None => Ok(()),
        }
    }
}

/// How far what is printed is written.
struct Place {
    cursor: Option<Cursor>,
    /// When the cursor was moved last.
    advanced: Instant,
}

impl Place {
    /// Says that what a stream has yielded is written.
    fn advance(&mut self, changes: &Changes) -> Outcome {
        if let Some(cursor) = &mut self.cursor {
            cursor.advance(changes.position())?;
        }
        self.advanced = Instant::now();
        Ok(())
    }
}

/// Begins a stream; by default with the oldest change that is kept.
fn begin(db: &Database, from: Option<From>, options: &ChangesOptions) -> Outcome<Changes> {
    let now = || db.stats().sequence_number + 1;
    let first = match from {
        Some(From::Number(number)) => number,
        Some(From::Now) => now(),
        None => 1,
    };
    match db.changes_with(first, options.clone()) {
        // The log may be given up further in between.
        Err(Error::Lagged { oldest, .. }) if from.is_none() => {
            Ok(db.changes_with(oldest, options.clone())?)
        }
        other => Ok(other?),
    }
}

/// The keyspace, the operation and the partitions of a change of a keyspace as a whole.
fn in_words<'c>(change: &KeyspaceChange<'c>) -> (&'c str, &'static str, Vec<&'c [u8]>) {
    match change {
        KeyspaceChange::Opened { keyspace, .. } => (keyspace, "open", Vec::new()),
        KeyspaceChange::Dropped { keyspace } => (keyspace, "drop", Vec::new()),
        KeyspaceChange::Cleared { keyspace } => (keyspace, "clear", Vec::new()),
        KeyspaceChange::PartitionsDropped { keyspace, partitions } => {
            (keyspace, "drop_partitions", partitions.clone())
        }
        KeyspaceChange::Ingested { keyspace } => (keyspace, "ingest", Vec::new()),
        _ => ("", "unknown", Vec::new()),
    }
}

/// How keys and values are printed.
struct Printer {
    key: Form,
    value: Form,
}

impl Printer {
    fn write(&self, out: &mut dyn io::Write, change: &Change<'_>) -> io::Result<()> {
        let mut pair = |op: &str, key: &[u8], value: Option<(&[u8], Form)>| {
            write!(out, "{op}\t")?;
            self.key.write(out, key)?;
            if let Some((value, form)) = value {
                out.write_all(b"\t")?;
                form.write(out, value)?;
            }
            Ok(())
        };
        match change {
            Change::Insert { key, value } => pair("insert", key, Some((value, self.value))),
            Change::InsertUntil { key, value, expires } => {
                let op = format!("insert until {}", millis(*expires));
                pair(&op, key, Some((value, self.value)))
            }
            Change::Remove { key } => pair("remove", key, None),
            Change::RemoveRange { from, to } => {
                pair("remove range", from, to.map(|to| (to, self.key)))
            }
            _ => pair("unknown", &[], None),
        }
    }

    /// Adds the members of a change to an object.
    fn add_to(&self, object: &mut Json, change: &Change<'_>) {
        let mut add = |form: Form, name: &str, bytes: &[u8]| {
            let (name, value) = form.to_json(name, bytes);
            object[name] = value;
        };
        let op = match change {
            Change::Insert { key, value } => {
                add(self.key, "key", key);
                add(self.value, "value", value);
                "insert"
            }
            Change::InsertUntil { key, value, expires } => {
                add(self.key, "key", key);
                add(self.value, "value", value);
                object["expires_ms"] = millis(*expires).into();
                "insert"
            }
            Change::Remove { key } => {
                add(self.key, "key", key);
                "remove"
            }
            Change::RemoveRange { from, to } => {
                add(self.key, "from", from);
                if let Some(to) = to {
                    add(self.key, "to", to);
                }
                "remove_range"
            }
            _ => "unknown",
        };
        object["op"] = op.into();
    }
}

/// Milliseconds since 1970; the greatest number for a time that the platform cannot state.
fn millis(time: Option<SystemTime>) -> u64 {
    let since = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(u64::MAX, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
