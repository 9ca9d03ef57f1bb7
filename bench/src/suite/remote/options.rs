//! The options of the remote suite.

use std::net::IpAddr;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};

use crate::{
    data::{KeySet, Request},
    keys::Encoding,
    options::{Run, parse_length},
    value::Values,
};

/// Keys of a run that does not say how many: the host is loaded by calls, of which it answers from
/// ten to a hundred thousand a second.
const KEYS_DEFAULT: usize = 1_000_000;

/// Keys of a quick run.
const QUICK_KEYS: usize = 100_000;

/// One in this many keys is kept back to be inserted, as in the YCSB suite.
const KEYS_PER_INSERT: usize = 6;

/// The least number of keys: each client has some to insert.
const KEYS_MIN: usize = 100;

/// The most reading processes.
const CLIENTS_MAX: usize = 256;

/// The most host processes: more than divide the keys in the papers.
pub const SERVERS_MAX: usize = 8;

/// How a shared keyspace is found and laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// Runs of leaves that a line finds, with fences that prove each answer.
    #[default]
    Rhumb,
    /// Two stages of regression and a table, as in the paper on `XStore`.
    Xstore,
    /// Lines over trained arrays with level bins, as in the paper on `FineStore`.
    Finestore,
}

/// How clients reach the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Fabric {
    /// Memory that is mapped, and a Unix socket for calls.
    #[default]
    Shm,
    /// A connection over TCP for reads and calls.
    Tcp,
    /// RDMA for reads, and a connection over TCP for calls; for builds with the feature `rdma`, on
    /// Linux.
    Rdma,
}

/// Which keys are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Distribution {
    /// All with the same probability.
    Uniform,
    /// By Zipf's law with YCSB's exponent; the popular ones lie anywhere.
    Zipf,
    /// By the same law, the newest being the most popular.
    Latest,
}

impl Distribution {
    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "zipf",
            Self::Latest => "latest",
        }
    }
}

/// How to measure a shared keyspace.
#[derive(Args, Clone, Debug)]
pub struct RemoteOptions {
    /// What every suite has.
    #[command(flatten)]
    pub run: Run,
    /// How 64-bit keys become bytes
    #[arg(long, value_enum, default_value_t)]
    pub encoding: Encoding,
    /// Length of each value: 100, 4KiB
    #[arg(long, value_name = "SIZE", default_value = "100", value_parser = parse_length)]
    pub value_size: usize,
    /// How the keyspace is found and laid out
    #[arg(long, value_enum, default_value_t)]
    pub preset: Preset,
    /// How clients reach the host
    #[arg(long, value_enum, default_value_t)]
    pub fabric: Fabric,
    /// Address of this machine at which hosts listen. With `--fabric rdma` that of an RDMA device
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub address: IpAddr,
    /// Which keys are asked for [default: uniform; zipf in a to f, latest in d]
    #[arg(long, value_enum)]
    pub distribution: Option<Distribution>,
    /// Reading processes, of one thread each; with a list, each run is made with each number
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1")]
    pub clients: Vec<usize>,
    /// Host processes that divide the keys
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub servers: usize,
    /// Read everything once more at the end, and hold it against what was written
    #[arg(long)]
    pub verify: bool,
}

impl RemoteOptions {
    /// Refuses what cannot be measured.
    ///
    /// # Errors
    /// If a number is out of range, or something is named that is not built yet.
    pub fn validate(&self) -> Result<()> {
        self.run.validate()?;
        ensure!(self.run.threads == [1], "--threads: --clients says how many processes read");
        ensure!(self.keys() >= KEYS_MIN, "--keys must be at least {KEYS_MIN}");
        Values::new(self.value_size, 0, self.run.seed)?;
        let is_number = (1..=SERVERS_MAX).contains(&self.servers);
        ensure!(is_number, "--servers must be from 1 to {SERVERS_MAX}");
        for clients in &self.clients {
            let is_number = (1..=CLIENTS_MAX).contains(clients);
            ensure!(is_number, "--clients must be from 1 to {CLIENTS_MAX}");
        }
        Ok(())
    }

    fn keys(&self) -> usize {
        self.run.keys.unwrap_or(if self.run.quick { QUICK_KEYS } else { KEYS_DEFAULT })
    }

    /// Makes or reads the keys and the maker of values.
    ///
    /// # Errors
    /// As [`KeySet::load`], or if there are too few.
    pub fn data(&self) -> Result<Data> {
        let whole_file = self.run.keys_file.is_some() && self.run.keys.is_none();
        let set = KeySet::load(&Request {
            data: self.run.data.clone(),
            keys_file: self.run.keys_file.clone(),
            keys: (!whole_file).then(|| self.keys()),
            encoding: self.encoding,
            seed: self.run.seed,
        })?;
        ensure!(set.keys.len() >= KEYS_MIN, "fewer than {KEYS_MIN} keys");
        let records = set.keys.len() - set.keys.len() / KEYS_PER_INSERT;
        let values = Values::new(self.value_size, 0, self.run.seed)?;
        let (preset, fabric, servers) = (self.preset, self.fabric, self.servers);
        Ok(Data { set, values, records, preset, fabric, address: self.address, servers })
    }
}

/// What is in the store, and what may be inserted.
#[derive(Debug)]
pub struct Data {
    /// All keys. Record *i* is the key of rank `order[i]`.
    pub set: KeySet,
    /// Makes and checks values.
    pub values: Values,
    /// Number of records that are loaded: the first of the set's order. The others are inserted.
    pub records: usize,
    /// How the keyspace is found and laid out.
    pub preset: Preset,
    /// How clients reach the host.
    pub fabric: Fabric,
    /// Where hosts listen.
    pub address: IpAddr,
    /// Number of host processes that divide the keys.
    pub servers: usize,
}

impl Data {
    /// The key of record `index`.
    #[must_use]
    pub fn key(&self, index: usize) -> &[u8] {
        self.set.keys.get(self.set.order[index] as usize)
    }

    /// Bytes of an entry on average.
    #[must_use]
    pub fn entry_bytes(&self) -> usize {
        self.set.keys.total_bytes() as usize / self.set.keys.len() + self.values.size()
    }
}
