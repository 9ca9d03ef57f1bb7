//! The `rhumb` binary: reads the command line, runs one command, turns its outcome into an exit
//! code. Each command is a file under `commands/`.
#![forbid(unsafe_code)]

mod columns;
mod commands;
mod failure;
mod input;
mod interrupt;
mod keys;
mod output;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;

use crate::{
    commands::Command,
    failure::{Failure, WRONG_USAGE},
    output::Output,
};

/// An ordered key-value store that finds keys by predicting where they are
#[derive(Debug, Parser)]
#[command(name = "rhumb", version, after_help = AFTER_HELP, max_term_width = 100)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  rhumb load --db names.db names.txt        a key a line, its value the number of the line
  rhumb get --db names.db left-pad          one value
  rhumb scan --db names.db --prefix @babel/ --limit 5
  rhumb explain --db names.db left-pad      how the store finds the key
  rhumb check --db names.db                 read and verify every byte
  rhumb salvage names.db sound.db           what is sound of a damaged database
  rhumb serve                               serve Redis clients from ./rhumb-data
  rhumb import dump.rdb                     take over what a Redis has
  rhumb remote get /run/rhumb.sock names a  read what another process shares
  rhumb bench engine --quick                measure it on this machine

`rhumb help COMMAND` says more of each. RHUMB_DB may name the database instead of --db.

Exit codes:
  0   done (also when the reader of the output went away)
  1   the key is absent (get, del, and those of remote)
  2   the database is damaged (check, and any command that met the damage)
  3   anything else failed: the message on the standard error says what to do
  64  the command line is wrong
  130 ended by Ctrl-C or SIGTERM (where a command takes long: the message says how far it came)

docs/shell.md has the formats of input and output, sizes, and all of this in full.";

fn main() -> ExitCode {
    let words = std::env::args_os().collect();
    let command_line = match CommandLine::try_parse_from(commands::with_place_of_url(words)) {
        Ok(command_line) => command_line,
        Err(error) => return end_of_parsing(&error),
    };
    let mut output = Output::new();
    let outcome = command_line.command.run(&mut output);
    // What was printed before a failure is part of the answer.
    match failure::worse(outcome, output.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => end_with(&failure),
    }
}

/// Prints help, the version or what is wrong with the command line.
fn end_of_parsing(error: &clap::Error) -> ExitCode {
    let printed = error.print().and_then(|()| io::stdout().flush());
    if error.use_stderr() {
        return ExitCode::from(WRONG_USAGE);
    }
    match printed.map_err(|error| Failure::from_output(&error)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => end_with(&failure),
    }
}

/// Prints the message of a failure; returns its exit code.
fn end_with(failure: &Failure) -> ExitCode {
    if let Some(message) = failure.message() {
        // Nothing is left to be done if the standard error is closed.
        let _ = writeln!(io::stderr(), "rhumb: {message}");
    }
    failure.exit_code()
}
