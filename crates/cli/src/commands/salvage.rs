//! `salvage`: what is sound of a damaged database, in a new one.

use std::path::PathBuf;

use clap::Args;
use rhumb::{Loss, ManifestFound, Salvage as Engine, SalvageReport};
use serde_json::{Value as Json, json};

use crate::{
    failure::{Failure, Outcome},
    interrupt::Interrupt,
    keys::{Form, with_path},
    output::{Output, counted, grouped},
};

const EXAMPLES: &str = "\
Examples:
  rhumb salvage shop.db salvaged.db
  rhumb salvage shop.db salvaged.db --into default
  rhumb salvage shop.db salvaged.db --json

Reads all files of SRC and writes nothing to it. Every entry whose checksum is right comes across,
whatever else is damaged or missing; what was lost is listed with its file, its offset and the keys
between which it lay. Where the newer version of an entry is lost, an older one can come to light.

Without a whole manifest, tables and entries of the log whose keyspace is not known go into
keyspaces called after their LSM trees, such as tree-7. Tables that do not name a tree, or share a
file with others, become keyspaces of their own, such as table-12; --into puts them all into one.

Exit code 2 if anything was lost: DST is a sound database all the same.";

/// Bring every sound entry of a damaged database across to a new one
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Salvage {
    /// Directory of the damaged database
    #[arg(value_name = "SRC")]
    from: PathBuf,
    /// Directory of the new database; it must not be there, or be empty
    #[arg(value_name = "DST")]
    to: PathBuf,
    /// Keyspace for all entries whose keyspace is not known
    #[arg(long, value_name = "NAME")]
    into: Option<String>,
    /// Print an object
    #[arg(long)]
    json: bool,
}

impl Salvage {
    /// Runs the command.
    pub(crate) fn run(self, out: &mut Output) -> Outcome {
        let (interrupt, from, to) = (Interrupt::listen()?, self.from.clone(), self.to.clone());
        let mut engine = Engine::new();
        if let Some(into) = &self.into {
            engine = engine.into(into);
        }
        let Some(done) = interrupt.or(move || engine.run(from, to))? else {
            return Err(Failure::Interrupted(format!(
                "interrupted: {} is not whole, and may be removed; nothing was written to {}",
                self.to.display(),
                self.from.display()
            )));
        };
        let report = done?;
        let printed =
            if self.json { out.json(&to_json(&report)) } else { self.print(&report, out) };
        if report.is_complete() {
            return printed;
        }
        // The exit code says it even if nobody reads the list.
        let losses = match report.losses.len() as u64 + report.losses_unlisted {
            0 => "nothing of it that is known is lost".to_owned(),
            1 => "1 part of it is lost".to_owned(),
            more => format!("{} parts of it are lost", grouped(more)),
        };
        Err(Failure::Damaged(format!(
            "{} was damaged, and {losses}; {} is sound",
            self.from.display(),
            self.to.display()
        )))
    }

    fn print(&self, report: &SalvageReport, out: &mut Output) -> Outcome {
        for note in &report.notes {
            out.line(format!("note: {note}"))?;
        }
        for loss in &report.losses {
            out.line(format!("lost: {loss}"))?;
        }
        if report.losses_unlisted > 0 {
            out.line(format!("and {} more", report.losses_unlisted))?;
        }
        for keyspace in &report.keyspaces {
            let unknown = if keyspace.has_own_name { "" } else { ", whose name is not known" };
            let entries = counted(keyspace.entries, "entry");
            out.line(format!("keyspace {}{unknown}: {entries}", keyspace.name))?;
        }
        let manifest = match report.manifest {
            ManifestFound::Whole => "the manifest is whole",
            ManifestFound::Part => "a part of the manifest is lost",
            _ => "the manifest is lost",
        };
        out.line(format!(
            "salvaged {} from {} and {}; {manifest}",
            counted(report.entries(), "entry"),
            counted(report.tables, "table"),
            counted(report.log_records, "log record"),
        ))
    }
}

fn to_json(report: &SalvageReport) -> Json {
    let losses = report.losses.iter().map(|loss: &Loss| {
        let hex = |key: &Option<Vec<u8>>| key.as_ref().map(|key| Form::Hex.show(key));
        let object = json!({
            "offset": loss.offset,
            "bytes": loss.bytes,
            "keyspace": loss.keyspace,
            "from_hex": hex(&loss.from),
            "to_hex": hex(&loss.to),
            "what": loss.what,
        });
        with_path(object, &loss.path)
    });
    let notes = report
        .notes
        .iter()
        .map(|note| with_path(json!({ "offset": note.offset, "what": note.what }), &note.path));
    let keyspaces = report.keyspaces.iter().map(|keyspace| {
        json!({
            "name": keyspace.name,
            "has_own_name": keyspace.has_own_name,
            "entries": keyspace.entries,
        })
    });
    json!({
        "complete": report.is_complete(),
        "manifest": match report.manifest {
            ManifestFound::Whole => "whole",
            ManifestFound::Part => "part",
            _ => "lost",
        },
        "entries": report.entries(),
        "tables": report.tables,
        "log_records": report.log_records,
        "keyspaces": keyspaces.collect::<Vec<_>>(),
        "losses": losses.collect::<Vec<_>>(),
        "losses_unlisted": report.losses_unlisted,
        "notes": notes.collect::<Vec<_>>(),
    })
}
