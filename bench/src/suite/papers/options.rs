//! The options of the papers suite.

use std::{net::Ipv4Addr, time::Duration};

use anyhow::{Result, ensure};
use clap::Args;

use crate::{
    keys::Encoding,
    options::{Run, parse_length},
    suite::remote::options::{Data, Fabric, Preset, RemoteOptions},
};

/// The data set of runs that name none: the papers' keys are uniform.
const DATA: &str = "uniform";

/// The length of each timed run, in seconds: there are dozens.
const SECONDS: f64 = 1.0;

/// How to measure figures.
#[derive(Args, Clone, Debug)]
pub struct PapersOptions {
    /// What every suite has.
    #[command(flatten)]
    pub run: Run,
    /// How 64-bit keys become bytes
    #[arg(long, value_enum, default_value_t)]
    pub encoding: Encoding,
    /// Length of each value: 8, 100
    #[arg(long, value_name = "SIZE", default_value = "8", value_parser = parse_length)]
    pub value_size: usize,
}

impl PapersOptions {
    /// Refuses what cannot be measured.
    ///
    /// # Errors
    /// If a number is out of range.
    pub fn validate(&self) -> Result<()> {
        self.remote().validate()?;
        ensure!(self.run.threads == [1], "--threads: each figure says how many threads it has");
        Ok(())
    }

    /// How long each timed run takes.
    #[must_use]
    pub fn time(&self) -> Duration {
        Duration::from_secs_f64(self.run.seconds.unwrap_or(SECONDS))
    }

    /// How many repetitions there are.
    #[must_use]
    pub fn repetitions(&self) -> usize {
        self.run.repeat.unwrap_or(1)
    }

    /// Makes the keys and the maker of values.
    ///
    /// # Errors
    /// As [`RemoteOptions::data`].
    pub fn data(&self) -> Result<Data> {
        self.remote().data()
    }

    /// The name of the data set.
    #[must_use]
    pub fn data_name(&self) -> &str {
        self.run.data.as_deref().unwrap_or(DATA)
    }

    /// The same for the remote suite.
    pub(super) fn remote(&self) -> RemoteOptions {
        let mut run = self.run.clone();
        if run.keys_file.is_none() {
            run.data.get_or_insert(DATA.to_owned());
        }
        RemoteOptions {
            run,
            encoding: self.encoding,
            value_size: self.value_size,
            preset: Preset::default(),
            fabric: Fabric::default(),
            address: Ipv4Addr::LOCALHOST.into(),
            distribution: None,
            clients: vec![1],
            servers: 1,
            verify: false,
        }
    }
}
