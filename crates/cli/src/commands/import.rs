//! `import` and `export`: data as Redis serialises them, into the data of a server and out of them.

use std::{
    fs::{self, File},
    io::{self, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use clap::Args;
use rhumb_server::{ServeError, Store, TransferError, Transferred};
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

Takes dumps of Redis 1.2 to 7.4, of versions 1 to 12. Keys of the same names are replaced, all others stay. A
value is there whole or not at all, whenever the process ends; everything is on disk when the command
ends. What cannot be taken over exactly is an error that names the key and the offset, and ends the
import after what comes before it; --lenient leaves such keys out, counts them and names the first.
Values of modules and libraries of functions are left out and counted.";

/// Load a dump of Redis into the data of a server, which does not run
#[derive(Debug, Args)]
#[command(after_help = IMPORT_EXAMPLES)]
pub(crate) struct Import {
    #[command(flatten)]
    target: DatabaseArg,
    /// File of the dump; `-` is the standard input
    #[arg(value_name = "FILE")]
    from: PathBuf,
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

The dump has version 10, which Redis 7.0 and later load: give it to `redis-server --dir . --dbfilename
dump.rdb`. It has all keys of all databases that have not ended.";

/// Write the data of a server, which does not run, as a dump of Redis
#[derive(Debug, Args)]
#[command(after_help = EXPORT_EXAMPLES)]
pub(crate) struct Export {
    #[command(flatten)]
    source: DatabaseArg,
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

/// What was left out, in words; empty if nothing was.
fn left_out(all: &Transferred) -> String {
    let mut text = String::new();
    for (count, name) in [
        (all.ended, "key that had ended"),
        (all.unfit, "key that does not fit"),
        (all.modules, "value of modules"),
        (all.functions, "library of functions"),
    ] {
        if count > 0 {
            text += &format!("; left out: {} {name}", output::grouped(count));
        }
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
            "seconds": time.as_secs_f64(),
        }));
    }
    out.line(format!(
        "{what} {} {place} in {:.1} s, {} of a dump{}",
        output::counted(all.keys, "key"),
        time.as_secs_f64(),
        output::bytes(all.bytes),
        left_out(all)
    ))
}

impl Import {
    /// Runs the command.
    pub(crate) fn run(self, out: &mut Output) -> Outcome {
        let (from, len): (Box<dyn Read>, _) = if is_standard(&self.from) {
            (Box::new(io::stdin().lock()), None)
        } else {
            let cannot = |error: io::Error| {
                Failure::failed(format!("cannot read {}: {error}", self.from.display()))
            };
            let file = File::open(&self.from).map_err(cannot)?;
            let metadata = file.metadata().map_err(cannot)?;
            (Box::new(file), metadata.is_file().then_some(metadata.len()))
        };
        let from = BufReader::with_capacity(BUFFER_BYTES, from);
        let db = &self.target.db;
        let store = Store::open(db, self.target.memory(), true).map_err(opened)?;
        let interrupt = Interrupt::listen()?;
        let mut progress = Progress::new("importing", len, self.json);
        let all = store.import_dump(from, self.lenient, &mut |all| {
            progress.update(all.keys, all.bytes);
            !interrupt.has_come()
        });
        let all = all.map_err(failure)?;
        let time = progress.finish();
        if !all.is_complete {
            return Err(Failure::Interrupted(format!(
                "interrupted: {} of {} are in {} and on disk; run the command again for the rest",
                output::counted(all.keys, "key"),
                self.from.display(),
                db.display()
            )));
        }
        report(out, &all, ("imported", &format!("into {}", db.display()), self.json), time)
    }
}

impl Export {
    /// Runs the command.
    pub(crate) fn run(self, out: &mut Output) -> Outcome {
        self.source.require()?;
        let store = Store::open(&self.source.db, self.source.memory(), false).map_err(opened)?;
        let interrupt = Interrupt::listen()?;
        let mut progress = Progress::new("exporting", None, self.json);
        let mut go_on = |all: &Transferred| {
            progress.update(all.keys, all.bytes);
            !interrupt.has_come()
        };
        if is_standard(&self.rdb) {
            let stdout = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
            let all = store.export_dump(stdout, &mut go_on).map_err(failure)?;
            return if all.is_complete { Ok(()) } else { Err(interrupted(&all)) };
        }
        let (partial, all) = write_file(&store, &self.rdb, &mut go_on)?;
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

/// Writes the dump beside the file that it is to replace, and forces it to the disk.
fn write_file(
    store: &Store,
    path: &Path,
    go_on: &mut dyn FnMut(&Transferred) -> bool,
) -> Outcome<(PathBuf, Transferred)> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    let partial = path.with_file_name(name);
    let cannot = |error: io::Error| cannot_write(&partial, &error);
    let file = File::create(&partial).map_err(cannot)?;
    let mut writer = BufWriter::with_capacity(BUFFER_BYTES, &file);
    let all = store.export_dump(&mut writer, go_on).and_then(|all| {
        writer.flush()?;
        file.sync_all()?;
        Ok(all)
    });
    let all = all.map_err(|error| {
        let _ = fs::remove_file(&partial);
        failure(error)
    })?;
    Ok((partial.clone(), all))
}
