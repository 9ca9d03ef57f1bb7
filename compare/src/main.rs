//! Measures Rhumb beside its rivals: same process, same data, in turns, every value verified.
//!
//! The workloads are those of `rhumb bench`; this program only adds the rivals. Each rival's
//! settings stand at the head of its file and in the environment line of the output.

mod fjall;
mod lmdb;
mod redb;
mod rocksdb;

use anyhow::Result;
use clap::{Parser, Subcommand};
use rhumb_bench::{
    options::Options,
    rhumb_engine::{BINARY_SEARCH, LEARNED},
    subject::Engine,
    suite::{self, engine, ycsb},
};

#[derive(Parser)]
#[command(version, about = "Measure Rhumb beside RocksDB, fjall, redb and LMDB")]
struct Arguments {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(Subcommand)]
enum Suite {
    /// Loads, reads with everything and with little in the cache, scans, overwrites
    Engine {
        /// Workloads [default: all but mixed50]
        #[arg(value_name = "WORKLOAD")]
        workloads: Vec<String>,
        /// Subjects [default: rhumb,rocksdb,fjall,redb,lmdb]
        #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
        subjects: Vec<String>,
        #[command(flatten)]
        options: Options,
    },
    /// The YCSB core workloads
    Ycsb {
        /// Workloads, a to f [default: all]
        #[arg(long, value_name = "LETTER,…", value_delimiter = ',')]
        workload: Vec<String>,
        /// Subjects [default: rhumb,rocksdb,fjall,redb,lmdb]
        #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
        subjects: Vec<String>,
        #[command(flatten)]
        options: Options,
    },
}

/// Every subject; the last is Rhumb once more and runs only when it is named.
static KNOWN: [&dyn Engine; 6] =
    [&LEARNED, &rocksdb::RocksDb, &fjall::Fjall, &redb::Redb, &lmdb::Lmdb, &BINARY_SEARCH];

fn chosen(names: &[String]) -> Result<Vec<&'static dyn Engine>> {
    let usual = KNOWN.len() - 1;
    suite::choose(names, if names.is_empty() { &KNOWN[..usual] } else { &KNOWN })
}

fn main() -> Result<()> {
    match Arguments::parse().suite {
        Suite::Engine { workloads, subjects, options } => {
            let workloads = engine::choose_workloads(&workloads)?;
            engine::run(&chosen(&subjects)?, &workloads, &options)?.print(options.run.json)
        }
        Suite::Ycsb { workload, subjects, options } => {
            let workloads = ycsb::choose_workloads(&workload)?;
            ycsb::run(&chosen(&subjects)?, &workloads, &options)?.print(options.run.json)
        }
    }
}
