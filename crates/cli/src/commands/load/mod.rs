//! `load`: files into a keyspace.
//!
//! This file is the command line and the report; [`loader`] moves the entries.

mod loader;
mod whole;

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use self::loader::{Loader, Settings, Totals};
use super::open::KeyspaceArg;
use crate::{
    failure::{Failure, Outcome},
    input::{self, Fields, Format},
    interrupt::Interrupt,
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
  rhumb dump | rhumb load --db copy.db -             every byte of every entry
  rhumb load copy.db --dump shop.dump                all keyspaces of `rhumb dump shop.db`
  rhumb scan | rhumb load --db copy.db --format tsv --no-header --value-column 2 -

What cannot be loaded exactly is an error that names the file and the line, and ends the import
after what comes before it; --lenient skips it, counts each kind and names the first of each.
docs/shell.md says what each format takes.

Input in key order is noticed and written straight to tables; anything else goes in batches,
each of which is whole or absent after a crash. Everything is on disk when the command ends.
Of entries with the same key the last one stays.

Ctrl-C ends the import after what was read, which is on disk then, and says where to go on.

--progress-json prints {\"acknowledged\":N} whenever the first N entries of the input are stored: they
survive the end of this process, however it ends, and with --sync also the end of the machine.
The import goes on if nobody reads what is printed.";

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
    /// CSV: the byte between columns, `\\t` for a tab [default: a comma]
    #[arg(long, value_name = "BYTE", value_parser = parse_delimiter)]
    delimiter: Option<u8>,
    /// CSV: a quote is a byte like any other
    #[arg(long)]
    no_quotes: bool,
    /// Load an empty line or field as the empty key
    #[arg(long)]
    empty_keys: bool,
    /// Take the bytes as they are, even if they look compressed, binary or like UTF-16
    #[arg(long)]
    as_is: bool,
    /// Skip and count what is no entry, instead of ending there
    #[arg(long)]
    lenient: bool,
    /// Start at this line of the first file; the lines before it are read and left out
    #[arg(long, value_name = "LINE", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..))]
    from_line: u64,
    /// JSON lines: the field of the key [default: key]; also as KEY_hex, in hexadecimal
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
    /// Load a dump of a whole database (`rhumb dump DB`), `-` for the standard input, into the
    /// database that stands in place of FILE
    #[arg(long, value_name = "DUMP", conflicts_with_all = [
        "format", "key_column", "value_column", "key_field", "value_field", "delimiter", "lenient",
        "from_line", "progress_json", "keyspace",
    ])]
    dump: Option<PathBuf>,
    /// Files to load, in this order; `-` is the standard input
    #[arg(value_name = "FILE", required_unless_present = "dump")]
    files: Vec<PathBuf>,
}

impl Load {
    /// Runs the command.
    pub(crate) fn run(mut self, out: &mut Output) -> Outcome {
        if let Some(dump) = self.dump.take() {
            return self.load_dump(&dump, out);
        }
        self.require_files()?;
        self.require_csv()?;
        let interrupt = Interrupt::listen()?;
        let (db, keyspace) = self.target.open_or_create()?;
        let settings = Settings {
            batch_entries: self.batch as usize,
            is_synced: self.sync,
            counts_duplicates: !self.blind,
            reports_progress: self.progress_json,
        };
        let inputs = loader::Inputs::new(self.files.clone(), self.format, self.fields())
            .lenient(self.lenient)
            .starting_at(self.from_line)
            .until(interrupt);
        let progress = Progress::new("loading", input::total_bytes(&self.files), self.quiet);
        let mut loader = Loader::new(&db, &keyspace, inputs, settings, progress, out);
        let outcome = loader.run();
        let totals = loader.finish();
        let entries = output::counted(totals.entries, "entry");
        match outcome {
            Ok(()) => self.report(totals, out),
            // What was stored before a wrong line stays, so the message says how much that is.
            Err(Failure::Failed(message)) if totals.entries > 0 => {
                Err(Failure::Failed(format!("{message}; loaded before it: {entries}")))
            }
            Err(Failure::Interrupted(rest)) => {
                Err(Failure::Interrupted(format!("interrupted: {entries} stored on disk; {rest}")))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Loads a dump of a whole database.
    fn load_dump(mut self, dump: &Path, out: &mut Output) -> Outcome {
        match &mut *self.files {
            [] => {}
            [path] => self.target.database.db = std::mem::take(path),
            _ => {
                let what = "a dump goes into one database: rhumb load DB --dump FILE";
                return Err(Failure::Usage(what.to_owned()));
            }
        }
        whole::load(&self.target.database, dump, self.quiet, self.json, out)
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

    /// Fails if options for CSV are given with another format.
    fn require_csv(&self) -> Outcome {
        let is_other = self.format.is_some_and(|format| format != Format::Csv);
        if is_other && (self.delimiter.is_some() || self.no_quotes) {
            let what = "--delimiter and --no-quotes are for --format csv";
            return Err(Failure::Usage(what.to_owned()));
        }
        Ok(())
    }

    fn fields(&self) -> Fields {
        Fields {
            key: self.key_column.clone().or_else(|| self.key_field.clone()),
            value: self.value_column.clone().or_else(|| self.value_field.clone()),
            has_header: !self.no_header,
            delimiter: self.delimiter,
            has_quotes: !self.no_quotes,
            takes_empty_keys: self.empty_keys,
            is_as_it_is: self.as_is,
            key_form: self.keys.key_form(),
            value_form: self.keys.value_form(),
        }
    }

    fn report(&self, totals: Totals, out: &mut Output) -> Outcome {
        if let Some(failure) = totals.unprinted {
            return Err(failure);
        }
        if self.quiet {
            return Ok(());
        }
        let seconds = totals.time.as_secs_f64();
        let rate = output::per_second(totals.entries, totals.time);
        let skipped = &totals.skipped;
        if self.json || self.progress_json {
            let kinds = skipped.counts.iter().map(|(kind, count)| (kind.id().to_owned(), *count));
            return out.json(&json!({
                "loaded": totals.entries,
                "ingested": totals.ingested,
                "duplicates": totals.duplicates,
                "skipped": skipped.total(),
                "skipped_kinds": kinds.collect::<std::collections::BTreeMap<_, _>>(),
                "skipped_first": skipped.first,
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
        ))?;
        for (kind, count) in &skipped.counts {
            out.line(format!("skipped {}: {}", output::grouped(*count), kind.name()))?;
        }
        for place in &skipped.first {
            out.line(format!("skipped {place}"))?;
        }
        Ok(())
    }
}

/// Reads the byte between columns.
fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" | b"tab" => Ok(b'\t'),
        [b'"' | b'\r' | b'\n'] => Err("a quote or the end of a line cannot be it".to_owned()),
        [byte] => Ok(*byte),
        _ => Err("it is one byte".to_owned()),
    }
}
