//! `dump`: a keyspace as text, or a whole database as a stream of bytes.

use std::{
    fs::{self, File},
    io::{self, BufWriter, IsTerminal},
    path::{Path, PathBuf},
};

use clap::Args;
use rhumb::{Database, DumpSummary, Error};
use serde_json::json;

use super::open::{DatabaseArg, KeyspaceArg};
use crate::{
    failure::{Failure, Outcome},
    input::dump,
    interrupt::Interrupt,
    keys::{EntryPrinter, KeyFlags},
    output::{self, Output, counted},
};

const EXAMPLES: &str = "\
Examples:
  rhumb dump > names.dump
  rhumb dump | rhumb load --db copy.db -
  rhumb dump --keyspace users | zstd > users.dump.zst
  zstdcat users.dump.zst | rhumb load --keyspace users -
  rhumb dump shop.db --output shop.dump
  rhumb dump shop.db --keyspace users --keyspace films | ssh other rhumb load shop.db --dump -

Without DB one keyspace of the database in --db is printed, as lines: each is an object with `key`
and `value`, or `key_hex` and `value_hex` where the bytes are not UTF-8. With DB all keyspaces of
that database are written, or those that are named, in a form that is not for people: with their
options and partitions, and a checksum for each part. `load` gives back every byte of either, and
notices a dump that was cut short.";

/// Write entries so that `load` takes them back: a keyspace, or a whole database
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Dump {
    #[command(flatten)]
    database: DatabaseArg,
    /// Directory of the database that is dumped as a whole
    #[arg(value_name = "DB")]
    whole: Option<PathBuf>,
    /// Keyspace within the database; with DB several [default: `default`, with DB all]
    #[arg(long, value_name = "NAME")]
    keyspace: Vec<String>,
    /// File to write with DB; it takes this name once it is whole and on disk
    #[arg(long, value_name = "FILE", requires = "whole")]
    output: Option<PathBuf>,
}

impl Dump {
    /// Runs the command.
    pub(crate) fn run(mut self, out: &mut Output) -> Outcome {
        if let Some(path) = self.whole.take() {
            self.database.db = path;
            return self.dump_whole(out);
        }
        if self.keyspace.len() > 1 {
            let what = "several keyspaces are dumped with the database as an argument: \
                        rhumb dump DB --keyspace A --keyspace B";
            return Err(Failure::Usage(what.to_owned()));
        }
        let keyspace = self.keyspace.pop().unwrap_or_else(|| "default".to_owned());
        let target = KeyspaceArg { database: self.database, keyspace };
        print_lines(&target, out)
    }

    fn dump_whole(self, out: &mut Output) -> Outcome {
        if self.output.is_none() && io::stdout().is_terminal() {
            let what = "a dump of a database is not for a terminal: say --output FILE";
            return Err(Failure::Usage(what.to_owned()));
        }
        let db = self.database.open_read_only()?;
        let names = if self.keyspace.is_empty() { db.keyspace_names() } else { self.keyspace };
        let Some(path) = self.output else {
            let mut done = None;
            out.with(|out| {
                done = Some(db.dump_keyspaces(&names, out));
                Ok(())
            })?;
            return match done {
                Some(Err(Error::Io(failure))) if failure.operation == "write" => {
                    Err(Failure::from_output(&failure.source))
                }
                Some(done) => Ok(done.map(drop)?),
                None => Ok(()),
            };
        };
        let (interrupt, target) = (Interrupt::listen()?, path.clone());
        let Some(done) = interrupt.or(move || write_file(&db, &names, &target))? else {
            return Err(Failure::Interrupted(format!(
                "interrupted: {} is as it was",
                path.display()
            )));
        };
        let summary = done?;
        out.line(format!(
            "dumped {} of {} to {}: {}",
            counted(summary.entries, "entry"),
            counted(summary.keyspaces, "keyspace"),
            path.display(),
            output::bytes(summary.bytes)
        ))
    }
}

/// Writes a dump to a file beside `path`, which takes its place once it is on disk.
fn write_file(db: &Database, names: &[String], path: &Path) -> Outcome<DumpSummary> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let beside = PathBuf::from(beside);
    let cannot = |what: &str, error: &io::Error| {
        Failure::failed(format!("cannot {what} {}: {error}", beside.display()))
    };
    let file = File::create(&beside).map_err(|error| cannot("create", &error))?;
    let mut writer = BufWriter::new(file);
    let written = db.dump_keyspaces(names, &mut writer).map_err(|error| match error {
        Error::Io(failure) if failure.operation == "write" => cannot("write", &failure.source),
        error => error.into(),
    });
    let synced = written.and_then(|summary| {
        writer.get_ref().sync_all().map_err(|error| cannot("sync", &error))?;
        fs::rename(&beside, path).map_err(|error| cannot("rename", &error))?;
        Ok(summary)
    });
    if synced.is_err() {
        let _ = fs::remove_file(&beside);
    }
    synced
}

/// Prints a keyspace, an object a line.
fn print_lines(target: &KeyspaceArg, out: &mut Output) -> Outcome {
    let (_db, keyspace) = target.open_read_only()?;
    let mut start = json!({ "keyspace": target.keyspace });
    start[dump::START] = dump::VERSION.into();
    out.json(&start)?;
    let printer = EntryPrinter::new(KeyFlags::default(), true, false);
    let mut count = 0_u64;
    for entry in keyspace.iter() {
        let (key, value) = entry?;
        count += 1;
        out.with(|out| printer.print(out, &key, &value))?;
    }
    out.json(&json!({ dump::END: count }))
}
