//! Repository checks, suites with builds of their own, data sets, and what measures and tries the
//! server, as a program.
//!
//! Dispatches only; each task has its own module.
#![forbid(unsafe_code)]

mod apps;
mod clients;
mod data;
mod expiries;
mod hostile;
mod isolation;
mod live;
mod planted;
mod queues;
mod rdma;
mod redis_bench;
mod tidy;
mod verify;

use std::{path::PathBuf, process::ExitCode};

const USAGE: &str = "\
Repository checks and data sets.

Usage: cargo xtask <TASK>

Tasks:
  tidy    Check what the compiler does not: sizes of files and functions, unsafe code and its
          SAFETY lines, leftovers, module docs, docs that must name files. Exit code 1 if
          something must be changed; notes alone do not fail.
  verify  The suites that need a build of their own: models of the index (loom), whole maps under
          random schedules (shuttle), sanitizers. `cargo xtask verify` lists them.
  planted Plant known bugs in copies of the index, one at a time, and see that a suite catches each.
          With part of a bug's name: those bugs only.
  data    Fetch real key sets through ordinary package clients, and make synthetic ones, in data/.
          `cargo xtask data --help` lists them.
  apps    Run programs that are written for Redis on Redis and on `rhumb serve`, and compare.
  clients Run a smoke program for each Redis client against `rhumb serve`.
  rdma    Run the remote tier's tests over RDMA, in a virtual machine with a software device.
          `cargo xtask rdma --help` says what it needs.
  hostile Set hostile clients on `rhumb serve` and measure what a healthy one feels.
  isolation
          Measure what clients of `rhumb serve` wait while another one runs long commands.
  expiries
          Set keys that end as fast as they come, and see that memory and disk stay flat.
  queues  Kill `rhumb serve` under job queues, and see that no job is lost or comes again.
  redis-bench
          Measure `rhumb serve` beside Redis, in turns. `cargo xtask redis-bench --help` says how.
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match args.first().map(String::as_str) {
        Some("tidy") if args.len() == 1 => tidy::run(&repository_root()),
        Some("verify") => verify::run(&repository_root(), &args[1..]),
        Some("planted") => planted::run(&repository_root(), &args[1..]),
        Some("data") => data::run(&args[1..]),
        Some("apps") => apps::run(&args[1..]),
        Some("clients") => clients::run(&args[1..]),
        Some("rdma") => rdma::run(&repository_root(), &args[1..]),
        Some("expiries") => expiries::run(&args[1..]),
        Some("hostile") => hostile::run(&args[1..]),
        Some("isolation") => isolation::run(&args[1..]),
        Some("queues") => queues::run(&args[1..]),
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
