//! `load`: files into a keyspace.
//!
//! This file is the command line and the report; [`loader`] moves the entries.

mod loader;

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use self::loader::{Loader, Settings, Totals};
use super::open::KeyspaceArg;
use crate::{
    failure::{Failure, Outcome},
    input::{self, Fields, Format},
    keys::KeyFlags,
    output::{self, Output, Progress},
};

const EXAMPLES: &str = "\
Examples:
  rhumb load names.txt                               a key a line; value: the number of the line
  rhumb load --key-column user_id users.csv          value: the other columns, as JSON
  rhumb load --key-column 2 --value-column 1 t.tsv
  rhumb load --key-field id events.jsonl             value: the whole line
  rhumb load addresses.u64                           64-bit numbers; value: the place in the file
  zcat names.gz | rhumb load --db names.db -

Input in key order is noticed and written straight to tables; anything else goes in batches,
each of which is whole or absent after a crash. Everything is on disk when the command ends.

Empty lines are skipped. Of entries with the same key the last one stays.

--progress-json prints {\"acknowledged\":N} whenever the first N entries of the input are stored: they
survive the end of this process, however it ends, and with --sync also the end of the machine.";

/// Load entries from files
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Load {
    #[command(flatten)]
    target: KeyspaceArg,
    #[command(flatten)]
    keys: KeyFlags,
    /// How the files are written [default: what their names say, else lines]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// CSV and TSV: the column of the key, by name or number from 1 [default: the first]
    #[arg(long, value_name = "COLUMN", conflicts_with = "key_field")]
    key_column: Option<String>,
    /// CSV and TSV: the column of the value [default: all others, as JSON]
    #[arg(long, value_name = "COLUMN", conflicts_with = "value_field")]
    value_column: Option<String>,
    /// CSV and TSV: the first line is data and not the names of the columns
    #[arg(long)]
    no_header: bool,
    /// JSON lines: the field of the key [default: key]
    #[arg(long, value_name = "FIELD")]
    key_field: Option<String>,
    /// JSON lines: the field of the value [default: the whole line]
    #[arg(long, value_name = "FIELD")]
    value_field: Option<String>,
    /// Entries in a batch
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch: u32,
    /// Put each batch on disk before the next, and not only the last
    #[arg(long)]
    sync: bool,
    /// Do not look whether a key was there before: faster, and no duplicates are counted
    #[arg(long)]
    blind: bool,
    /// Print the report as an object
    #[arg(long)]
    json: bool,
    /// Print an object for each step that is stored, and the report as one
    #[arg(long)]
    progress_json: bool,
    /// Show neither progress nor report
    #[arg(long, short, conflicts_with_all = ["json", "progress_json"])]
    quiet: bool,
    /// Files to load, in this order; `-` is the standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

impl Load {
    /// Runs the command.
    pub(crate) fn run(self, out: &mut Output) -> Outcome {
        self.require_files()?;
        let (db, keyspace) = self.target.open_or_create()?;
        let settings = Settings {
            batch_entries: self.batch as usize,
            is_synced: self.sync,
            counts_duplicates: !self.blind,
            reports_progress: self.progress_json,
        };
        let inputs = loader::Inputs::new(self.files.clone(), self.format, self.fields());
        let progress = Progress::new("loading", input::total_bytes(&self.files), self.quiet);
        let mut loader = Loader::new(&db, &keyspace, inputs, settings, progress, out);
        let outcome = loader.run();
        let totals = loader.finish();
        match outcome {
            Ok(()) => self.report(&totals, out),
            // What was stored before a wrong line stays, so the message says how much that is.
            Err(Failure::Failed(message)) if totals.entries > 0 => Err(Failure::Failed(format!(
                "{message}; loaded before it: {}",
                output::counted(totals.entries, "entry")
            ))),
            Err(failure) => Err(failure),
        }
    }

    /// Fails before anything is loaded if a file is not there.
    fn require_files(&self) -> Outcome {
        for file in &self.files {
            if file.as_os_str() != "-" && !file.exists() {
                return Err(Failure::failed(format!("there is no file {}", file.display())));
            }
        }
        Ok(())
    }

    fn fields(&self) -> Fields {
        Fields {
            key: self.key_column.clone().or_else(|| self.key_field.clone()),
            value: self.value_column.clone().or_else(|| self.value_field.clone()),
            has_header: !self.no_header,
            key_form: self.keys.key_form(),
            value_form: self.keys.value_form(),
        }
    }

    fn report(&self, totals: &Totals, out: &mut Output) -> Outcome {
        if self.quiet {
            return Ok(());
        }
        let seconds = totals.time.as_secs_f64();
        let rate = output::per_second(totals.entries, totals.time);
        if self.json || self.progress_json {
            return out.json(&json!({
                "loaded": totals.entries,
                "ingested": totals.ingested,
                "duplicates": totals.duplicates,
                "seconds": seconds,
                "entries_per_second": rate,
            }));
        }
        let duplicates = match totals.duplicates {
            Some(duplicates) => output::counted(duplicates, "duplicate"),
            None => "duplicates not counted".to_owned(),
        };
        out.line(format!(
            "loaded {} in {seconds:.2} s ({}/s), {duplicates}",
            output::counted(totals.entries, "entry"),
            output::grouped(rate)
        ))
    }
}
