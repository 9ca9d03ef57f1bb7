//! `load --dump`: a dump of a whole database.

use std::{
    fs::File,
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

use rhumb::{DumpReader, DumpSummary, Error};
use serde_json::json;

use crate::{
    commands::open::DatabaseArg,
    failure::{Failure, Outcome},
    interrupt::Interrupt,
    output::{Output, counted},
};

/// Loads the dump in the file `dump`, or from the standard input if that is `-`, and prints how
/// much it was. A file is read and verified as a whole before anything of it is stored.
pub(super) fn load(
    database: &DatabaseArg,
    dump: &Path,
    is_quiet: bool,
    is_json: bool,
    out: &mut Output,
) -> Outcome {
    if dump.as_os_str() != "-" {
        let mut reader = DumpReader::new(open(dump)?, dump).map_err(of_dump)?;
        while reader.next().map_err(of_dump)?.is_some() {}
    }
    let interrupt = Interrupt::listen()?;
    let db = database.open_or_create()?;
    let path = dump.to_owned();
    let work = move || -> Outcome<DumpSummary> {
        let (input, name): (Box<dyn Read>, PathBuf) = match path.as_os_str() == "-" {
            true => (Box::new(io::stdin().lock()), PathBuf::from("the standard input")),
            false => (Box::new(open(&path)?), path),
        };
        let mut reader = DumpReader::new(BufReader::new(input), name).map_err(of_dump)?;
        db.load_from(&mut reader).map_err(of_dump)
    };
    let Some(done) = interrupt.or(work)? else {
        return Err(Failure::Interrupted(
            "interrupted: keyspaces of the dump that were done are stored, and of the one that was \
             being loaded nothing if it was empty; load the dump again"
                .to_owned(),
        ));
    };
    let summary = done?;
    if is_quiet {
        return Ok(());
    }
    if is_json {
        let DumpSummary { keyspaces, entries, .. } = summary;
        return out.json(&json!({ "keyspaces": keyspaces, "loaded": entries }));
    }
    out.line(format!(
        "loaded {} of {}",
        counted(summary.entries, "entry"),
        counted(summary.keyspaces, "keyspace")
    ))
}

fn open(path: &Path) -> Outcome<BufReader<File>> {
    let failed = |error| Failure::failed(format!("cannot open {}: {error}", path.display()));
    File::open(path).map(BufReader::new).map_err(failed)
}

/// What is wrong with a dump says nothing of the database.
fn of_dump(error: Error) -> Failure {
    match error {
        Error::Corrupt(_) => Failure::Failed(error.to_string()),
        error => error.into(),
    }
}
