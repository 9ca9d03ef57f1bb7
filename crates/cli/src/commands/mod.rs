//! The commands: one file for each group of them.
//!
//! A command reads its arguments, asks the engine, and writes through [`Output`]; it neither
//! prints nor exits on its own.

mod backup;
mod bench;
mod changes;
mod check;
mod dump;
mod entry;
mod explain;
mod import;
mod inspect;
mod load;
mod maintenance;
mod open;
mod range;
mod remote;
mod replicate;
mod salvage;
mod serve;

use clap::Subcommand;

pub(crate) use self::remote::with_place_of_url;

use crate::{failure::Outcome, output::Output};

/// Every command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Load(load::Load),
    Import(import::Import),
    Export(import::Export),
    Get(entry::Get),
    Put(entry::Put),
    Del(entry::Del),
    Scan(range::Scan),
    Dump(dump::Dump),
    Count(range::Count),
    Inspect(inspect::Inspect),
    Explain(explain::Explain),
    Check(check::Check),
    Compact(maintenance::Compact),
    Checkpoint(maintenance::Checkpoint),
    Backup(backup::Backup),
    Restore(backup::Restore),
    Changes(changes::ChangesCommand),
    Replicate(replicate::Replicate),
    Salvage(salvage::Salvage),
    Drop(maintenance::Drop),
    Serve(Box<serve::Serve>),
    Remote(remote::Remote),
    Bench(bench::Bench),
}

impl Command {
    /// Runs the command.
    pub(crate) fn run(self, out: &mut Output) -> Outcome {
        match self {
            Self::Load(command) => command.run(out),
            Self::Import(command) => command.run(out),
            Self::Export(command) => command.run(out),
            Self::Get(command) => command.run(out),
            Self::Put(command) => command.run(),
            Self::Del(command) => command.run(),
            Self::Scan(command) => command.run(out),
            Self::Dump(command) => command.run(out),
            Self::Count(command) => command.run(out),
            Self::Inspect(command) => command.run(out),
            Self::Explain(command) => command.run(out),
            Self::Check(command) => command.run(out),
            Self::Compact(command) => command.run(out),
            Self::Checkpoint(command) => command.run(out),
            Self::Backup(command) => command.run(out),
            Self::Restore(command) => command.run(out),
            Self::Changes(command) => command.run(out),
            Self::Replicate(command) => command.run(out),
            Self::Salvage(command) => command.run(out),
            Self::Drop(command) => command.run(out),
            Self::Serve(command) => command.run(out),
            Self::Remote(command) => command.run(out),
            Self::Bench(command) => command.run(),
        }
    }
}
