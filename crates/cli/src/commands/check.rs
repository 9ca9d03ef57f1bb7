//! `check`: reads and verifies every byte of a database.

use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use rhumb::inspect::{CheckReport, Inspector, Problem};
use serde_json::{Value as Json, json};

use super::open::DatabaseArg;
use crate::{
    failure::{Failure, Outcome},
    interrupt::Interrupt,
    keys::with_path,
    output::{self, Output, Progress, counted, grouped},
};

const EXAMPLES: &str = "\
Examples:
  rhumb check
  rhumb check --json --db /backup/today

Reads every file: checksums, the order of keys, the counts that tables state, every key through
its index and its filter, the log, the manifest. Writes nothing: the directory may be one that
cannot be written to.

Exit code 2, and a line for each problem, if anything is damaged.";

/// Read and verify every byte
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Check {
    #[command(flatten)]
    database: DatabaseArg,
    /// Print an object
    #[arg(long)]
    json: bool,
}

impl Check {
    /// Runs the command.
    pub(crate) fn run(self, out: &mut Output) -> Outcome {
        self.database.require()?;
        let (path, interrupt) = (self.database.db.clone(), Interrupt::listen()?);
        let progress = Arc::new(Mutex::new((Progress::in_bytes("checking"), 0, 0)));
        let seen = Arc::clone(&progress);
        let Some(report) = interrupt.or(move || {
            Inspector::new().check(path, &mut |done, total| {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.0.update_bytes(done, total);
                (seen.1, seen.2) = (done, total);
            })
        })?
        else {
            let mut seen = progress.lock().unwrap_or_else(PoisonError::into_inner);
            seen.0.finish();
            return Err(Failure::Interrupted(format!(
                "interrupted: read {} of {}; whether {} is sound is not known",
                output::bytes(seen.1),
                output::bytes(seen.2),
                self.database.db.display()
            )));
        };
        drop(progress);
        let report = report?;
        let printed = if self.json { out.json(&to_json(&report)) } else { print(&report, out) };
        if report.is_sound() {
            return printed;
        }
        // The exit code says it even if nobody reads the list.
        let problems = counted(report.problems.len() as u64 + report.problems_unlisted, "problem");
        Err(Failure::Damaged(format!(
            "{} has {problems}: restore a backup, or `rhumb salvage` brings what is sound across",
            self.database.db.display()
        )))
    }
}

fn print(report: &CheckReport, out: &mut Output) -> Outcome {
    for note in &report.notes {
        out.line(format!("note: {note}"))?;
    }
    for problem in &report.problems {
        out.line(problem)?;
    }
    if report.problems_unlisted > 0 {
        out.line(format!("and {} more", grouped(report.problems_unlisted)))?;
    }
    out.line(format!(
        "read {} in {}: {}, {}, {}, {}; {}",
        output::bytes(report.bytes),
        counted(report.files, "file"),
        counted(report.tables, "table"),
        counted(report.blocks, "block"),
        counted(report.entries, "entry"),
        counted(report.log_records, "log record"),
        if report.is_sound() { "all sound" } else { "damaged" }
    ))
}

fn to_json(report: &CheckReport) -> Json {
    let list = |problems: &[Problem]| -> Vec<Json> {
        let objects = problems.iter().map(|problem| {
            let object = json!({ "offset": problem.offset, "what": problem.what });
            with_path(object, &problem.path)
        });
        objects.collect()
    };
    json!({
        "sound": report.is_sound(),
        "files": report.files,
        "bytes": report.bytes,
        "tables": report.tables,
        "blocks": report.blocks,
        "entries": report.entries,
        "log_records": report.log_records,
        "problems": list(&report.problems),
        "notes": list(&report.notes),
        "problems_unlisted": report.problems_unlisted,
    })
}
