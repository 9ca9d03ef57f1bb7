//! `bench`: the measuring harness, run on Rhumb alone.

use clap::Args;
use rhumb_bench::cli::BenchCommand;

use crate::{
    failure::{Failure, Outcome},
    interrupt::Interrupt,
};

const EXAMPLES: &str = "\
Examples:
  rhumb bench engine --quick
  rhumb bench engine readrandom multiget --keys 5000000 --threads 1,2
  rhumb bench engine readrandom --data npm-names --subjects rhumb,rhumb-binary
  rhumb bench engine fillrandom fillseq mixed90 --subjects rhumb,rhumb-skiplist
  rhumb bench models --data npm-names --quick
  rhumb bench ycsb --workload a,c --seconds 10 --json
  rhumb bench remote --workload get,multi_get --keys 1000000 --clients 1,2 --verify
  rhumb bench remote --servers 3 --workload get,scan100 --distribution zipf
  rhumb bench index --workload lookup,mixed50 --keys 10000000 --threads 1,2 --verify
  rhumb bench index --workload insert --data hard --sample 1 --plot inserts.svg

Stores are made in a directory of their own and removed afterwards. Every value that is returned is
verified. `cargo run --release --manifest-path compare/Cargo.toml -- engine` runs the same against
RocksDB, fjall, redb and LMDB, `-- index` against other ordered maps in memory, and `-- remote`
against LMDB and Redis.";

/// Measure Rhumb on this machine
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Bench {
    #[command(subcommand)]
    suite: BenchCommand,
}

impl Bench {
    /// Runs the command.
    pub(crate) fn run(self) -> Outcome {
        let interrupt = Interrupt::listen()?;
        if let Some(done) = interrupt.or(move || rhumb_bench::cli::run(self.suite))? {
            return Ok(done?);
        }
        rhumb_bench::workspace::remove_all()?;
        Err(Failure::Interrupted("interrupted: the stores are removed".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    /// The harness reads sizes by a reader of its own.
    #[test]
    fn sizes_mean_the_same_as_in_other_commands() {
        let texts = [
            "0",
            "1",
            "4096",
            "64K",
            "64k",
            "64KB",
            "64KiB",
            "1m",
            "1G",
            "2TiB",
            " 5M ",
            "5 M",
            "",
            "B",
            "KiB",
            "-1",
            "+1",
            "1.5G",
            "64X",
            "16777216T",
            "18446744073709551615",
            "1e3",
        ];
        for text in texts {
            let here = rhumb_bench::options::parse_size(text);
            assert_eq!(here, rhumb_server::parse_size(text), "{text:?}");
        }
    }
}
