//! `import` and `export`: data as Redis serialises them, into the data of a server and out of them.

use std::{
    fs::{self, File},
    io::{self, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use clap::Args;
use rhumb_server::{
    ImportFrom, ImportOptions, ImportTo, ServeError, Store, TransferError, Transferred,
};
use serde_json::json;

use super::open::DatabaseArg;
use crate::{
    failure::{Failure, Outcome},
    interrupt::Interrupt,
    output::{self, Output, Progress},
};

/// Bytes that are read or written at a time.
const BUFFER_BYTES: usize = 256 << 10;

const IMPORT_EXAMPLES: &str = "\
Examples:
  rhumb import dump.rdb                     into ./rhumb-data, which `rhumb serve` serves
  rhumb import --db DIR /var/lib/redis/dump.rdb
  zcat dump.rdb.gz | rhumb import -
  rhumb import redis://:secret@10.0.0.5:6379         follow a server until Ctrl-C, as a replica does it
  rhumb import --once redis://10.0.0.5               what it has now, and no more
  rhumb import dump.rdb --to redis://127.0.0.1:6380  into a server that runs, by RESTORE

Takes dumps of Redis 1.2 to 7.4, of versions 1 to 12. Keys of the same names are replaced, all others stay. A
value is there whole or not at all, whenever the process ends; everything is on disk when the command
ends. What cannot be taken over exactly is an error that names the key and the offset, and ends the
import after what comes before it; --lenient leaves such keys out, counts them and names the first.
Libraries of functions take the place of those of the same names. Values of modules are left out and
counted.

A server that refuses to be followed is read key by key (SCAN and DUMP). What its clients write meanwhile
may be missed then, and the report says so. A URL is redis://[[USER]:PASSWORD@]HOST[:PORT]; other users of the
machine see command lines: RHUMB_FROM and RHUMB_TO may hold the URLs instead.";

/// Load a dump of Redis, or what a server has, into the data of a server that does not run, or into
/// one that does
#[derive(Debug, Args)]
#[command(after_help = IMPORT_EXAMPLES)]
pub(crate) struct Import {
    #[command(flatten)]
    target: DatabaseArg,
    /// File of the dump, `-` for the standard input, or the URL of a server
    #[arg(value_name = "FILE|URL", env = "RHUMB_FROM", hide_env_values = true)]
    from: PathBuf,
    /// Server that all goes to, instead of --db
    #[arg(long, value_name = "URL", env = "RHUMB_TO", hide_env_values = true)]
    to: Option<String>,
    /// End once all that the server had is taken over, and do not follow it
    #[arg(long)]
    once: bool,
    /// Leave out keys that do not fit, and count them
    #[arg(long)]
    lenient: bool,
    /// Print an object
    #[arg(long)]
    json: bool,
}

const EXPORT_EXAMPLES: &str = "\
Examples:
  rhumb export --rdb dump.rdb               from ./rhumb-data
  rhumb export --db DIR --rdb - | gzip > dump.rdb.gz
  rhumb export --from redis://127.0.0.1:6380 --rdb dump.rdb

The dump has version 10, which Redis 7.0 and later load: give it to `redis-server --dir . --dbfilename
dump.rdb`. It has all keys of all databases that have not ended. With --from they are those of a server that
runs, read one after the other (SCAN and DUMP): not of one moment, if its clients write meanwhile.";

/// Write the data of a server as a dump of Redis
#[derive(Debug, Args)]
#[command(after_help = EXPORT_EXAMPLES)]
pub(crate) struct Export {
    #[command(flatten)]
    source: DatabaseArg,
    /// Server whose keys are written, instead of those of --db
    #[arg(long, value_name = "URL", env = "RHUMB_FROM", hide_env_values = true)]
    from: Option<String>,
    /// File of the dump, which is replaced once all is written; `-` is the standard output
    #[arg(long, value_name = "FILE")]
    rdb: PathBuf,
    /// Print an object
    #[arg(long)]
    json: bool,
}

fn opened(error: ServeError) -> Failure {
    match error {
        ServeError::Engine(error) => error.into(),
        error => Failure::failed(error.to_string()),
    }
}

fn failure(error: TransferError) -> Failure {
    match error {
        TransferError::Engine(error) => error.into(),
        error => Failure::failed(error.to_string()),
    }
}

fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// What there was besides keys, and what was left out, in words; empty if nothing was.
fn besides(all: &Transferred) -> String {
    let mut text = match all.functions {
        0 => String::new(),
        1 => "; 1 library of functions".to_owned(),
        count => format!("; {} libraries of functions", output::grouped(count)),
    };
    for (count, name) in [
        (all.ended, "key that had ended"),
        (all.unfit, "key that does not fit"),
        (all.modules, "value of modules"),
    ] {
        if count > 0 {
            text += &format!("; left out: {} {name}", output::grouped(count));
        }
    }
    if all.commands > 0 {
        text += &format!("; then {}", output::counted(all.commands, "command"));
    }
    if let Some(first) = &all.first_refused {
        text += &format!(", of which {} were refused, first: {first}", all.refused);
    }
    if all.was_scanned {
        text += "; key by key: what was written meanwhile may be missing";
    }
    if all.is_snapshot {
        text += "; as they were at one moment: a Rhumb sends no writes after that";
    }
    if let Some(first) = &all.first_unfit {
        text += &format!("; the first that does not fit is {first}");
    }
    text
}

fn report(
    out: &mut Output,
    all: &Transferred,
    (what, place, is_json): (&str, &str, bool),
    time: std::time::Duration,
) -> Outcome {
    if is_json {
        return out.json(&json!({
            "keys": all.keys,
            "bytes": all.bytes,
            "ended": all.ended,
            "unfit": all.unfit,
            "modules": all.modules,
            "functions": all.functions,
            "commands": all.commands,
            "refused": all.refused,
            "scanned": all.was_scanned,
            "snapshot": all.is_snapshot,
            "seconds": time.as_secs_f64(),
        }));
    }
    out.line(format!(
        "{what} {} {place} in {:.1} s, {} of a dump{}",
        output::counted(all.keys, "key"),
        time.as_secs_f64(),
        output::bytes(all.bytes),
        besides(all)
    ))
}

/// The URL of a server, if it is one.
fn as_url(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| text.contains("://"))
}

/// A URL as it may be shown: without who asks.
fn without_login(url: &str) -> &str {
    url.rsplit_once('@').map_or(url, |(_, place)| place)
}

/// A file of a dump, and its length if that is known.
fn open_dump(path: &Path) -> Outcome<(Box<dyn Read>, Option<u64>)> {
    if is_standard(path) {
        return Ok((Box::new(BufReader::with_capacity(BUFFER_BYTES, io::stdin().lock())), None));
    }
    let cannot =
        |error: io::Error| Failure::failed(format!("cannot read {}: {error}", path.display()));
    let file = File::open(path).map_err(cannot)?;
    let metadata = file.metadata().map_err(cannot)?;
    let len = metadata.is_file().then_some(metadata.len());
    Ok((Box::new(BufReader::with_capacity(BUFFER_BYTES, file)), len))
}

impl Import {
    /// Runs the command.
    pub(crate) fn run(self, out: &mut Output) -> Outcome {
        let (from, len) = match as_url(&self.from) {
            Some(url) => (ImportFrom::Server(url), None),
            None => {
                let (dump, len) = open_dump(&self.from)?;
                (ImportFrom::Dump(dump), len)
            }
        };
        let db = &self.target.db;
        let store = match self.to {
            Some(_) => None,
            None => Some(Store::open(db, self.target.memory()).map_err(opened)?),
        };
        let (to, place) = match (&store, &self.to) {
            (Some(store), _) => (ImportTo::Store(store), db.display().to_string()),
            (None, url) => {
                let url = url.as_deref().unwrap_or_default();
                (ImportTo::Server(url), without_login(url).to_owned())
            }
        };
        let mut options = ImportOptions::default();
        (options.is_lenient, options.is_once) = (self.lenient, self.once);
        let interrupt = Interrupt::listen()?;
        let mut progress = Progress::new("importing", len, self.json);
        let all = rhumb_server::import(from, to, options, &mut |all| {
            progress.update(all.keys + all.commands, all.bytes);
            !interrupt.has_come()
        });
        let all = all.map_err(failure)?;
        let time = progress.finish();
        if !all.is_complete {
            return Err(Failure::Interrupted(format!(
                "interrupted: {} are in {place}, which stay; run the command again for the rest",
                output::counted(all.keys, "key"),
            )));
        }
        report(out, &all, ("imported", &format!("into {place}"), self.json), time)
    }
}

impl Export {
    /// Runs the command.
    pub(crate) fn run(self, out: &mut Output) -> Outcome {
        let store = match self.from {
            Some(_) => None,
            None => {
                self.source.require()?;
                Some(Store::open(&self.source.db, self.source.memory()).map_err(opened)?)
            }
        };
        let interrupt = Interrupt::listen()?;
        let mut progress = Progress::new("exporting", None, self.json);
        let mut go_on = |all: &Transferred| {
            progress.update(all.keys, all.bytes);
            !interrupt.has_come()
        };
        if is_standard(&self.rdb) {
            let stdout = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
            let all = write_dump(store.as_ref(), self.from.as_deref(), stdout, &mut go_on);
            let all = all.map_err(failure)?;
            return if all.is_complete { Ok(()) } else { Err(interrupted(&all)) };
        }
        let (partial, all) = write_file(&self.rdb, |file| {
            write_dump(store.as_ref(), self.from.as_deref(), file, &mut go_on)
        })?;
        let time = progress.finish();
        if !all.is_complete {
            // It has no end, and nobody can load it.
            let _ = fs::remove_file(partial);
            return Err(interrupted(&all));
        }
        fs::rename(&partial, &self.rdb).map_err(|error| cannot_write(&self.rdb, &error))?;
        let place = format!("into {}", self.rdb.display());
        report(out, &all, ("exported", &place, self.json), time)
    }
}

fn interrupted(all: &Transferred) -> Failure {
    let keys = output::counted(all.keys, "key");
    Failure::Interrupted(format!("interrupted after {keys}: the dump is not complete"))
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot write {}: {error}", path.display()))
}

/// Writes the keys of a store, or of a server, as a dump.
fn write_dump(
    store: Option<&Store>,
    url: Option<&str>,
    to: impl Write,
    go_on: &mut dyn FnMut(&Transferred) -> bool,
) -> Result<Transferred, TransferError> {
    match store {
        Some(store) => store.export_dump(to, go_on),
        None => rhumb_server::export_server(url.unwrap_or_default(), to, go_on),
    }
}

/// Writes a dump beside the file that it is to replace, and forces it to the disk.
fn write_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> Result<Transferred, TransferError>,
) -> Outcome<(PathBuf, Transferred)> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    let partial = path.with_file_name(name);
    let cannot = |error: io::Error| cannot_write(&partial, &error);
    let file = File::create(&partial).map_err(cannot)?;
    let mut writer = BufWriter::with_capacity(BUFFER_BYTES, &file);
    let all = write(&mut writer).and_then(|all| {
        writer.flush()?;
        file.sync_all()?;
        Ok(all)
    });
    let all = all.map_err(|error| {
        // It has no end, and nobody can load it.
        let _ = fs::remove_file(&partial);
        failure(error)
    })?;
    Ok((partial.clone(), all))
}
