//! The options of the index suite.

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, ensure};
use clap::Args;

use super::workload::Workload;
use crate::options::Run;

/// Loaded keys of a run that does not say how many.
const KEYS_DEFAULT: usize = 10_000_000;

/// Loaded keys of a quick run.
const QUICK_KEYS: usize = 500_000;

/// How to measure an index.
#[derive(Args, Clone, Debug)]
pub struct IndexOptions {
    /// What every suite has.
    #[command(flatten)]
    pub run: Run,
    /// Rounds of the workloads that insert, all on one growing index
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub rounds: usize,
    /// Operations of each round [default: half of the loaded keys; insert and append: as many
    /// inserts in all as keys were loaded; outside half, poison a fifth of that]; not for growth
    /// and remove
    #[arg(long, value_name = "N")]
    pub ops: Option<usize>,
    /// One in this many operations is timed, a power of two: 1 finds the slowest of all, and takes
    /// some 40 ns of each [default: 8; of lookups 256]
    #[arg(long, value_name = "N")]
    pub sample: Option<u64>,
    /// Look every loaded and inserted key up after each workload that inserts, and scan the whole
    /// map
    #[arg(long)]
    pub verify: bool,
    /// Background trainers of Rhumb's indexes; with 0 the writers train
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub trainers: usize,
    /// Seconds to wait after removals before memory is measured [default: 2, or 0.2 with --quick]
    #[arg(long, value_name = "S")]
    pub quiet: Option<f64>,
    /// Draw throughput and the slowest timed operation over time into this SVG file
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

impl IndexOptions {
    /// Refuses what cannot be measured.
    ///
    /// # Errors
    /// If a number is 0 or out of range.
    pub fn validate(&self) -> Result<()> {
        self.run.validate()?;
        ensure!(self.rounds > 0, "--rounds must be at least 1");
        ensure!(self.ops != Some(0), "--ops must be at least 1");
        ensure!(self.sample.is_none_or(u64::is_power_of_two), "--sample must be a power of two");
        let quiet = self.quiet.unwrap_or(0.0);
        ensure!((0.0..=3600.0).contains(&quiet), "--quiet must be between 0 and 3600");
        Ok(())
    }

    /// Keys to load.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.run.keys.unwrap_or(if self.run.quick { QUICK_KEYS } else { KEYS_DEFAULT })
    }

    /// Operations of one round of `workload` on `loaded` keys.
    #[must_use]
    pub fn operations(&self, workload: Workload, loaded: usize) -> usize {
        let all = workload.operations(loaded, self.rounds);
        self.ops.unwrap_or(all.div_ceil(self.rounds)).max(1)
    }

    /// New keys that `workload` inserts in all its rounds.
    #[must_use]
    pub fn inserts(&self, workload: Workload, loaded: usize) -> usize {
        let operations = self.operations(workload, loaded);
        (operations * workload.inserts_percent()).div_ceil(100) * self.rounds
    }

    /// How long nothing happens before memory is measured after removals.
    #[must_use]
    pub fn quiet(&self) -> Duration {
        Duration::from_secs_f64(self.quiet.unwrap_or(if self.run.quick { 0.2 } else { 2.0 }))
    }
}
