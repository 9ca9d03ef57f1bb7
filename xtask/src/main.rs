//! Repository checks and data sets as a program: `cargo xtask tidy`, `cargo xtask data` and what measures and tries the server.
//!
//! Dispatches only; each task has its own module.
#![forbid(unsafe_code)]

mod clients;
mod data;
mod hostile;
mod redis_bench;
mod tidy;

use std::{path::PathBuf, process::ExitCode};

const USAGE: &str = "\
Repository checks and data sets.

Usage: cargo xtask <TASK>

Tasks:
  tidy    Check what the compiler does not: sizes of files and functions, unsafe code and its
          SAFETY lines, leftovers, module docs, docs that must name files. Exit code 1 if
          something must be changed; notes alone do not fail.
  data    Fetch real key sets through ordinary package clients, and make synthetic ones, in data/.
          `cargo xtask data --help` lists them.
  clients Run a smoke program for each Redis client against `rhumb serve`.
  hostile Set hostile clients on `rhumb serve` and measure what a healthy one feels.
  redis-bench
          Measure `rhumb serve` beside Redis, in turns. `cargo xtask redis-bench --help` says how.
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match args.first().map(String::as_str) {
        Some("tidy") if args.len() == 1 => tidy::run(&repository_root()),
        Some("data") => data::run(&args[1..]),
        Some("clients") => clients::run(&args[1..]),
        Some("hostile") => hostile::run(&args[1..]),
        Some("redis-bench") => redis_bench::run(&args[1..]),
        Some("help" | "--help" | "-h") => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(64);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the repository: the parent of this package.
fn repository_root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}
