//! `inspect`: the files of a database, without opening or changing it.

mod database;
mod model;
mod plot;
mod records;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use rhumb::inspect::{DatabaseReport, Inspector, TableReport};

use super::open::DatabaseArg;
use crate::{
    failure::{Failure, Outcome},
    keys::{Form, KeyFlags},
    output::Output,
};

const EXAMPLES: &str = "\
Examples:
  rhumb inspect db
  rhumb inspect sst 12
  rhumb inspect model --plot model.svg      of the largest table
  rhumb inspect log --json | tail -n 3

The files are read as they are: nothing is recovered, changed or locked, so a damaged database, and
one that another process has open, can be looked at too.";

/// Look into the files of a database
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Inspect {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Keyspaces, levels, sizes, and what the indexes cost
    Db(Common),
    /// Tables: what they hold and how they are written
    Sst(Tables),
    /// The model of a table: its segments and how well they fit
    Model(model::Model),
    /// The log, record by record
    Log(Files),
    /// The manifest, edit by edit
    Manifest(Files),
}

/// Options of every kind of inspection.
#[derive(Debug, Args)]
struct Common {
    #[command(flatten)]
    database: DatabaseArg,
    #[command(flatten)]
    keys: KeyFlags,
    /// Print objects
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Tables {
    #[command(flatten)]
    common: Common,
    /// Tables, by number or file [default: all]
    #[arg(value_name = "TABLE")]
    tables: Vec<String>,
}

#[derive(Debug, Args)]
struct Files {
    #[command(flatten)]
    common: Common,
    /// Files to look into [default: those of the database]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl Common {
    fn form(&self) -> Form {
        self.keys.key_form()
    }

    fn report(&self) -> Outcome<DatabaseReport> {
        self.database.require()?;
        Ok(Inspector::new().database(&self.database.db)?)
    }

    /// The table that `name` is the number or the file of.
    fn table(&self, name: &str) -> Outcome<TableReport> {
        let Ok(id) = name.parse::<u64>() else {
            return Ok(Inspector::new().table(Path::new(name))?);
        };
        let report = self.report()?;
        all_tables(&report).find(|table| table.id == id).cloned().ok_or_else(|| {
            let db = self.database.db.display();
            Failure::failed(format!(
                "there is no table {id} in {db}: `rhumb inspect sst` lists them"
            ))
        })
    }
}

/// The tables of all keyspaces.
fn all_tables(report: &DatabaseReport) -> impl Iterator<Item = &TableReport> {
    let levels = report.keyspaces.iter().flat_map(|keyspace| &keyspace.levels);
    levels.flat_map(|level| &level.tables)
}

impl Inspect {
    /// Runs the command.
    pub(crate) fn run(self, out: &mut Output) -> Outcome {
        match self.what {
            What::Db(common) => {
                let report = common.report()?;
                if common.json {
                    return out.json(&database::to_json(&report, common.form()));
                }
                database::print(&report, common.form(), out)
            }
            What::Sst(Tables { common, tables }) => {
                let tables = if tables.is_empty() {
                    all_tables(&common.report()?).cloned().collect()
                } else {
                    tables.iter().map(|name| common.table(name)).collect::<Outcome<Vec<_>>>()?
                };
                for table in &tables {
                    if common.json {
                        out.json(&database::table_json(table, common.form()))?;
                    } else {
                        database::print_table(table, common.form(), out)?;
                    }
                }
                Ok(())
            }
            What::Model(model) => model.run(out),
            What::Log(Files { common, files }) => {
                let files = if files.is_empty() {
                    common.report()?.log.into_iter().map(|(path, _)| path).collect()
                } else {
                    files
                };
                records::logs(&files, common.json, out)
            }
            What::Manifest(Files { common, files }) => {
                let files = if files.is_empty() { vec![common.report()?.manifest] } else { files };
                records::manifests(&files, common.json, out)
            }
        }
    }
}
