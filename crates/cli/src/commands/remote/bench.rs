//! `remote bench`: how fast this process reads what is there.

use std::time::{Duration, Instant};

use clap::Args;
use rhumb_bench::random::Rng;
use serde_json::json;

use super::{
    super::range::Selected,
    target::{Opened, Target},
};
use crate::{
    failure::{Failure, Outcome},
    output::{Output, counted, grouped, per_second},
};

/// One in this many gets is timed by itself: reading the clock costs as much as a tenth of a get.
const SAMPLE_EVERY: u64 = 16;

const BENCH_EXAMPLES: &str = "\
Examples:
  rhumb remote bench /run/rhumb.sock users
  rhumb remote bench users --table users.table --seconds 5 --json

Gets keys that are there, one after the other, in random order, and writes nothing. `rhumb bench
remote` starts hosts of its own, writes as well, and compares.";

/// Measure gets of keys that are there
#[derive(Debug, Args)]
#[command(after_help = BENCH_EXAMPLES)]
pub(super) struct Bench {
    #[command(flatten)]
    target: Target,
    /// How long gets are measured, in seconds
    #[arg(long, value_name = "N", default_value_t = 2.0, value_parser = parse_seconds)]
    seconds: f64,
    /// Keys that are chosen from: the first ones of the keyspace
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    keys: u64,
    /// Print an object
    #[arg(long)]
    json: bool,
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    if !(0.001..=86_400.0).contains(&seconds) {
        return Err("it may be from 0.001 to 86400".to_owned());
    }
    Ok(seconds)
}

/// Keys of a keyspace, and the hosts that have them.
struct Keys {
    keys: Vec<Vec<u8>>,
    hosts: Vec<String>,
    /// The host of each key, as an index of `hosts`.
    places: Vec<usize>,
}

impl Keys {
    fn read(keyspace: &Opened, count: u64) -> Outcome<Self> {
        use std::ops::Bound::Unbounded;
        let entries = keyspace.entries(Selected::Range(Unbounded, Unbounded));
        let keys = entries.take(usize::try_from(count).unwrap_or(usize::MAX));
        let keys: Vec<Vec<u8>> =
            keys.map(|pair| pair.map(|(key, _)| key)).collect::<Result<_, _>>()?;
        let (mut hosts, mut places) = (Vec::new(), vec![0; keys.len()]);
        if let Opened::Divided(keyspace) = keyspace {
            let table = keyspace.table();
            hosts = table.servers().iter().map(ToString::to_string).collect();
            for (key, place) in keys.iter().zip(&mut places) {
                let of = table.server_of(key);
                *place = table.servers().iter().position(|server| server == of).unwrap_or(0);
            }
        }
        Ok(Self { keys, hosts, places })
    }
}

/// What was measured.
#[derive(Default)]
struct Measured {
    gets: u64,
    absent: u64,
    took: Duration,
    /// Nanoseconds of some gets, ascending.
    sample_ns: Vec<u64>,
    /// Gets of each host.
    of_hosts: Vec<u64>,
}

impl Measured {
    fn percentile(&self, share: f64) -> u64 {
        let last = self.sample_ns.len().saturating_sub(1);
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an index of a few million samples"
        )]
        let index = (last as f64 * share) as usize;
        self.sample_ns.get(index).copied().unwrap_or(0)
    }
}

impl Bench {
    /// Runs the command.
    pub(super) fn run(self, out: &mut Output) -> Outcome {
        let keyspace = self.target.open_keyspace()?;
        let keys = Keys::read(&keyspace, self.keys)?;
        if keys.keys.is_empty() {
            let what = format!("{}: there are no keys to get", self.target.keyspace);
            return Err(Failure::failed(what));
        }
        let before = keyspace.messages();
        let measured = self.measure(&keyspace, &keys)?;
        let messages = keyspace.messages() - before;
        self.print(&keys, &measured, messages, out)
    }

    fn measure(&self, keyspace: &Opened, keys: &Keys) -> Outcome<Measured> {
        let time = Duration::from_secs_f64(self.seconds);
        let mut measured =
            Measured { of_hosts: vec![0; keys.hosts.len().max(1)], ..Measured::default() };
        let (mut random, mut value) = (Rng::new(keys.keys.len() as u64), Vec::new());
        let start = Instant::now();
        while measured.took < time {
            let index = usize::try_from(random.below(keys.keys.len() as u64)).unwrap_or(0);
            value.clear();
            let began = measured.gets.is_multiple_of(SAMPLE_EVERY).then(Instant::now);
            let is_there = keyspace.get_into(&keys.keys[index], &mut value)?;
            if let Some(began) = began {
                let ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
                measured.sample_ns.push(ns);
                measured.took = start.elapsed();
            }
            measured.gets += 1;
            measured.absent += u64::from(!is_there);
            measured.of_hosts[keys.places[index]] += 1;
        }
        measured.sample_ns.sort_unstable();
        Ok(measured)
    }

    fn print(&self, keys: &Keys, measured: &Measured, messages: u64, out: &mut Output) -> Outcome {
        let rate = per_second(measured.gets, measured.took);
        #[expect(clippy::cast_precision_loss, reason = "a share is shown with a few digits")]
        let per_get = |count: u64| count as f64 / measured.gets.max(1) as f64;
        let (p50, p99) = (measured.percentile(0.5), measured.percentile(0.99));
        if self.json {
            let hosts = keys.hosts.iter().zip(&measured.of_hosts);
            let hosts: Vec<_> = hosts
                .map(|(host, gets)| json!({ "host": host, "share": per_get(*gets) }))
                .collect();
            return out.json(&json!({
                "keyspace": self.target.keyspace, "keys": keys.keys.len(), "gets": measured.gets,
                "gets_per_second": rate, "p50_ns": p50, "p99_ns": p99,
                "absent": measured.absent, "trips_per_get": per_get(messages), "hosts": hosts,
            }));
        }
        let keys_read = counted(keys.keys.len() as u64, "key");
        out.line(format!("gets       {} a second, of {keys_read}", grouped(rate)))?;
        let (p50, p99) = (grouped(p50), grouped(p99));
        out.line(format!("latency    {p50} ns (P50), {p99} ns (P99)"))?;
        out.line(format!("messages   {:.3} for each get", per_get(messages)))?;
        if measured.absent > 0 {
            let gets = counted(measured.absent, "get");
            out.line(format!("absent     {gets}: the key was removed meanwhile"))?;
        }
        for (host, gets) in keys.hosts.iter().zip(&measured.of_hosts) {
            out.line(format!("host       {host}: {:.1}% of the gets", 100.0 * per_get(*gets)))?;
        }
        Ok(())
    }
}
