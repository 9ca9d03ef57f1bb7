//! The options of the suites: those that all have, and those of suites that run on stores.

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, ensure};
use clap::Args;

use crate::{
    data::{KeySet, Request},
    keys::Encoding,
    subject::{Compression, Tuning},
    value::Values,
};

/// The least size of a memtable, in bytes. Less is not worth measuring, and is what `--memtable 64`
/// says since a number without a unit is bytes: it once meant MiB.
pub(crate) const MEMTABLE_BYTES_MIN: u64 = 64 << 10;

/// The least memory for cached blocks, in bytes, for the same reason as [`MEMTABLE_BYTES_MIN`].
const CACHE_BYTES_MIN: u64 = 1 << 20;

/// Memory beyond the data itself that an in-cache run may use.
const CACHE_SLACK_BYTES: u64 = 64 << 20;

/// Keys of a quick run.
const QUICK_KEYS: usize = 500_000;

/// What is measured, how long and how often: the options that every suite has.
#[derive(Args, Clone, Debug)]
pub struct Run {
    /// Data set: random16, uniform, lognormal, clustered (or hard), zipf-gapped, sequential,
    /// snowflake, or a file in data/ by its name without extension (npm-names, ipv4)
    #[arg(long, value_name = "NAME", conflicts_with = "keys_file")]
    pub data: Option<String>,
    /// Keys from a file: SOSD binary (a little-endian u64 count, then sorted u64), or one key a
    /// line
    #[arg(long, value_name = "FILE")]
    pub keys_file: Option<PathBuf>,
    /// Number of keys [default: 5000000 (index: 10000000, remote: 1000000), or all of a file]
    #[arg(long, value_name = "N")]
    pub keys: Option<usize>,
    /// Threads; with a list, each run is made with each number
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1")]
    pub threads: Vec<usize>,
    /// Length of each timed run, in seconds [default: 5, or 1 with --quick]
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
    /// Repetitions, of which medians are reported [default: 3, or 1 with --quick]
    #[arg(long, value_name = "N")]
    pub repeat: Option<usize>,
    /// Of what all random choices are made
    #[arg(long, value_name = "N", default_value_t = 42)]
    pub seed: u64,
    /// A small run that ends within three minutes
    #[arg(long)]
    pub quick: bool,
    /// One JSON object a line instead of tables
    #[arg(long)]
    pub json: bool,
}

impl Run {
    /// Refuses what cannot be measured.
    ///
    /// # Errors
    /// If a number is 0 or out of range.
    pub fn validate(&self) -> Result<()> {
        ensure!(self.keys != Some(0), "--keys must be at least 1");
        ensure!(!self.threads.contains(&0), "--threads must be at least 1");
        ensure!(self.repeat != Some(0), "--repeat must be at least 1");
        let seconds = self.seconds.unwrap_or(1.0);
        ensure!((0.001..=1e6).contains(&seconds), "--seconds must be between 0.001 and 1000000");
        Ok(())
    }

    /// How long each timed run takes.
    #[must_use]
    pub fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.unwrap_or(if self.quick { 1.0 } else { 5.0 }))
    }

    /// How many repetitions there are.
    #[must_use]
    pub fn repetitions(&self) -> usize {
        self.repeat.unwrap_or(if self.quick { 1 } else { 3 })
    }
}

/// How to measure a store.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// What every suite has.
    #[command(flatten)]
    pub run: Run,
    /// How 64-bit keys become bytes
    #[arg(long, value_enum, default_value_t)]
    pub encoding: Encoding,
    /// Length of each value: 100, 4KiB
    #[arg(long, value_name = "SIZE", default_value = "100", value_parser = parse_length)]
    pub value_size: usize,
    /// How much of each value repeats itself, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    pub redundancy: u32,
    /// Compression of data blocks, in engines that have it
    #[arg(long, value_enum, default_value_t)]
    pub compression: Compression,
    /// Size of data blocks before compression, in engines that have them
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = parse_block)]
    pub block_size: u32,
    /// Size of a memtable: 64MiB, or bytes
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_size)]
    pub memtable: u64,
    /// Memory for cached blocks, where everything shall be in the cache: 512MiB, or bytes
    /// [default: one and a half times the data]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub cache: Option<u64>,
    /// Where the stores are made, in a directory of their own that is removed afterwards
    /// [default: the system's directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

impl Options {
    /// Refuses what cannot be measured.
    ///
    /// # Errors
    /// If a number is 0 or out of range.
    pub fn validate(&self) -> Result<()> {
        self.run.validate()?;
        Values::new(self.value_size, self.redundancy, self.run.seed)?;
        let check = |what: &str, bytes: u64, least: u64| {
            ensure!(
                bytes >= least,
                "--{what} of {bytes} bytes: it must be at least {}KiB, and a number without a unit \
                 is bytes",
                least >> 10
            );
            Ok(())
        };
        check("memtable", self.memtable, MEMTABLE_BYTES_MIN)?;
        check("cache", self.cache.unwrap_or(CACHE_BYTES_MIN), CACHE_BYTES_MIN)?;
        ensure!(
            (64..=4 << 20).contains(&self.block_size),
            "--block-size must be from 64 bytes to 4 MiB"
        );
        Ok(())
    }

    /// Makes or reads the keys.
    ///
    /// # Errors
    /// As [`KeySet::load`].
    pub fn key_set(&self) -> Result<KeySet> {
        KeySet::load(&Request {
            data: self.run.data.clone(),
            keys_file: self.run.keys_file.clone(),
            keys: self.run.keys.or(self.run.quick.then_some(QUICK_KEYS)),
            encoding: self.encoding,
            seed: self.run.seed,
        })
    }

    /// The maker of values.
    ///
    /// # Errors
    /// If the size or the redundancy is out of range.
    pub fn values(&self) -> Result<Values> {
        Values::new(self.value_size, self.redundancy, self.run.seed)
    }

    /// Settings under which all of `set` stays in the cache.
    #[must_use]
    pub fn warm(&self, set: &KeySet) -> Tuning {
        let data_bytes = set.keys.total_bytes() + (set.keys.len() * self.value_size) as u64;
        let ample_bytes = data_bytes + data_bytes / 2 + CACHE_SLACK_BYTES;
        Tuning {
            cache_bytes: self.cache.unwrap_or(ample_bytes),
            memtable_bytes: self.memtable,
            direct: false,
            compression: self.compression,
            block_bytes: self.block_size,
            filter_bits: 10,
            background_threads: 2,
            data_bytes,
        }
    }

    /// Settings under which a twentieth of `set` stays in the cache, and direct I/O.
    #[must_use]
    pub fn cold(&self, set: &KeySet) -> Tuning {
        let warm = self.warm(set);
        Tuning { cache_bytes: (warm.data_bytes / 20).max(1 << 20), direct: true, ..warm }
    }
}

/// Reads a size in bytes: digits, and K, M, G or T for powers of 1,024, also as KiB or KB. A number
/// without a unit is bytes.
///
/// The other commands read sizes by `parse_size` of `rhumb-server`, which the harness does not
/// depend on; a test of the shell holds the two against each other.
///
/// # Errors
/// If it is none.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let upper = text.trim().to_ascii_uppercase();
    let upper = upper.strip_suffix("IB").or(upper.strip_suffix('B')).unwrap_or(&upper);
    let shifts = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];
    let found =
        shifts.into_iter().find_map(|(unit, shift)| Some((upper.strip_suffix(unit)?, shift)));
    let (digits, shift) = found.unwrap_or((upper, 0));
    let digits = digits.trim();
    // `parse` takes a sign as well.
    let number = digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let number: u64 = number.ok_or_else(|| format!("{text:?} is no size: try 512MiB or 4GiB"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text:?} is too large"))
}

/// Reads a length in memory.
pub(crate) fn parse_length(text: &str) -> Result<usize, String> {
    usize::try_from(parse_size(text)?).map_err(|_| format!("{text:?} is too large"))
}

/// Reads the size of a block.
fn parse_block(text: &str) -> Result<u32, String> {
    u32::try_from(parse_size(text)?).map_err(|_| format!("{text:?} is too large"))
}

#[cfg(test)]
mod tests {
    use clap::{Parser, error::ErrorKind};

    use super::Options;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parse(args: &[&str]) -> Result<Options, clap::Error> {
        Line::try_parse_from(["bench"].iter().chain(args)).map(|line| line.options)
    }

    #[test]
    fn sizes_have_units() {
        let usual = parse(&[]).unwrap();
        let sizes = |options: &Options| {
            (options.memtable, options.cache, options.block_size, options.value_size)
        };
        assert_eq!(sizes(&usual), (64 << 20, None, 4096, 100));
        usual.validate().unwrap();
        let args = ["--memtable=1G", "--cache=512MiB", "--block-size=8k", "--value-size=1KB"];
        let given = parse(&args).unwrap();
        assert_eq!(sizes(&given), (1 << 30, Some(512 << 20), 8192, 1024));
        given.validate().unwrap();
        // A number without a unit is bytes, as everywhere.
        let plain = parse(&["--memtable=67108864", "--block-size=4096"]).unwrap();
        assert_eq!(sizes(&plain), sizes(&usual));
        for once_mebibytes in ["--memtable=64", "--cache=512"] {
            let refused = parse(&[once_mebibytes]).unwrap().validate().unwrap_err().to_string();
            assert!(refused.contains("a number without a unit is bytes"), "{refused}");
        }
        for wrong in ["--memtable=many", "--cache=-1", "--block-size=8T", "--value-size=1.5K"] {
            assert_eq!(parse(&[wrong]).unwrap_err().kind(), ErrorKind::ValueValidation, "{wrong}");
        }
    }
}
