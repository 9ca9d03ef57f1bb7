//! Measures `rhumb serve` beside Redis, or beside another Rhumb, in turns: with Redis's own
//! `redis-benchmark`, and with a generator of its own for what that does not ask for.
//!
//! Both servers run with the same cores and persist every second; the one that is not measured is
//! idle. Figures are medians over the rounds. It starts the two servers, ends them, and keeps their
//! data in a temporary directory.

mod by_redis;
mod client;
mod figures;
mod own;
mod server;

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use self::{by_redis::ByRedis, figures::Figures, own::Own, server::Server};

const USAGE: &str = "\
usage: cargo xtask redis-bench [--json] [--quick] [--rounds N] [--keys N] [--memory SIZE]
                               [--server PATH] [--against PATH] [NAME…]

Runs redis-server and `rhumb serve`, fills both with --keys keys (default 1000000) of 100 bytes, has
50 clients ask each in turns, --rounds times (default 3), and prints the medians and the ratios. Needs
redis-server and redis-benchmark 7.0, and a release build of rhumb, which --server names (default: rhumb in
the release directory). With --against another binary of Rhumb is measured in the place of Redis. Ends with
an error if something is worse than wanted, but for --quick.

By redis-benchmark:
  get1 set1 get16 set16   GET and SET, at pipeline 1 and 16
  mset lrange zadd        MSET of ten, LRANGE of a hundred, ZADD, at pipeline 1
  only if they are named, or all of them with `table`: set get incr lpush rpush lpop rpop sadd hset spop
  zadd zpopmin, each with 1, 16 or 64 after it, its pipeline

By our own generator, which checks every reply; --keys is also the number of members:
  zrank zcount zrange_by_rank   of a sorted set; with 16 after it at pipeline 16
  eval_token_bucket eval_sliding_window   rate limiters, by EVALSHA
  xadd xadd16 xreadgroup        entries added; entries taken and acknowledged, ten at a time
  publish_100 publish_100_16    messages that reach 100 subscribers
  blpop_handover                from a push to the reply of the client that waits: P50";

/// Bytes of every value.
const VALUE_BYTES: usize = 100;

/// What a workload is to reach beside Redis.
#[derive(Clone, Copy)]
enum Wanted {
    /// The ratio of the throughputs, at least.
    Throughput(f64),
    /// The ratio of the median latencies, at most.
    Latency(f64),
}

/// What another build of Rhumb is to reach, at least.
const WANTED_OF_RHUMB: f64 = 0.97;

/// How large a round is.
#[derive(Clone, Copy)]
struct Size {
    keys: u64,
    /// Requests are divided by this.
    divisor: u64,
}

/// How a workload is measured.
#[derive(Clone, Copy)]
enum How {
    ByRedis(ByRedis),
    Own(Own),
}

struct Workload {
    name: String,
    how: How,
    wanted: Wanted,
}

const BY_REDIS: [(&str, ByRedis, f64); 7] = [
    ("get1", ByRedis::new("get", 1, 400_000), 1.0),
    ("set1", ByRedis::new("set", 1, 400_000), 1.0),
    ("get16", ByRedis::new("get", 16, 3_000_000), 1.3),
    ("set16", ByRedis::new("set", 16, 2_000_000), 1.3),
    ("mset", ByRedis::new("mset", 1, 200_000), 0.8),
    ("lrange", ByRedis::new("lrange_100", 1, 100_000), 0.8),
    ("zadd", ByRedis::new("zadd", 1, 400_000), 0.8),
];

impl Workload {
    fn new(name: &str, how: How, wanted: Wanted) -> Self {
        Self { name: name.to_owned(), how, wanted }
    }

    /// Those that are measured if none are named.
    fn usual() -> Vec<Self> {
        let by_redis = BY_REDIS
            .into_iter()
            .map(|(name, by, least)| Self::new(name, How::ByRedis(by), Wanted::Throughput(least)));
        let own = Own::ALL.into_iter().map(|(name, own, w)| Self::new(name, How::Own(own), w));
        by_redis.chain(own).collect()
    }

    /// Those of this name.
    fn named(name: &str) -> Option<Vec<Self>> {
        if name == "table" {
            return Some(
                ByRedis::names().filter_map(|name| Self::named(&name)).flatten().collect(),
            );
        }
        let mut usual = Self::usual();
        if let Some(at) = usual.iter().position(|one| one.name == name) {
            return Some(vec![usual.swap_remove(at)]);
        }
        let how = How::ByRedis(ByRedis::named(name)?);
        Some(vec![Self::new(name, how, Wanted::Throughput(0.8))])
    }

    /// Measures a round. The processor time is also that of filling.
    fn measure(&self, server: &Server, size: Size) -> Result<Figures> {
        let before = server.cpu_seconds();
        let measured = match &self.how {
            How::ByRedis(by_redis) => by_redis.measure(server.port, size),
            How::Own(own) => own.measure(server.port, size),
        };
        let figures = measured.with_context(|| self.name.clone())?;
        let cpu_us = (server.cpu_seconds() - before) * 1e6 / figures.requests.max(1.0);
        Ok(Figures { cpu_us, ..figures })
    }

    /// The ratio of what is compared, the ratio that is wanted, and true if it is reached.
    fn judge(&self, theirs: &Figures, ours: &Figures, is_rhumb: bool) -> (f64, f64, bool) {
        match self.wanted {
            Wanted::Throughput(least) => {
                let least = if is_rhumb { WANTED_OF_RHUMB } else { least };
                let ratio = ours.per_second / theirs.per_second;
                (ratio, least, ratio >= least)
            }
            Wanted::Latency(most) => {
                let most = if is_rhumb { 1.0 / WANTED_OF_RHUMB } else { most };
                let ratio = ours.p50_ms / theirs.p50_ms;
                (ratio, most, ratio <= most)
            }
        }
    }
}

/// What to run.
struct Options {
    json: bool,
    rounds: usize,
    memory: String,
    server: PathBuf,
    against: Option<PathBuf>,
    size: Size,
    workloads: Vec<Workload>,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self {
            json: false,
            rounds: 3,
            memory: "1G".to_owned(),
            server: release_binary()?,
            against: None,
            size: Size { keys: 1_000_000, divisor: 1 },
            workloads: Vec::new(),
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || rest.next().with_context(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--json" => options.json = true,
                "--quick" => options.size.divisor = 10,
                "--rounds" => options.rounds = value()?.parse().context("--rounds")?,
                "--keys" => options.size.keys = value()?.parse().context("--keys")?,
                "--memory" => value()?.clone_into(&mut options.memory),
                "--server" => options.server = value()?.into(),
                "--against" => options.against = Some(value()?.into()),
                name => match Workload::named(name) {
                    Some(named) => options.workloads.extend(named),
                    None => bail!("{USAGE}"),
                },
            }
        }
        ensure!(options.rounds > 0 && options.size.keys > 0, "{USAGE}");
        if options.workloads.is_empty() {
            options.workloads = Workload::usual();
        }
        Ok(options)
    }

    fn other_name(&self) -> &'static str {
        if self.against.is_some() { "other" } else { "redis" }
    }
}

/// Where `cargo build --release` puts the binary that is measured.
pub(crate) fn release_binary() -> Result<PathBuf> {
    let own = std::env::current_exe().context("where this program is")?;
    let target = own.ancestors().nth(2).context("where programs are built")?;
    Ok(target.join("release/rhumb"))
}

/// Runs the workloads that `arguments` name; see the usage text.
///
/// # Errors
/// If an argument is unknown, one of the programs is missing or fails, a reply is wrong, or a
/// figure is worse than wanted.
#[expect(clippy::print_stdout, reason = "the figures are for the standard output")]
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let options = Options::parse(arguments)?;
    let dir = tempfile::tempdir()?;
    let (redis_dir, other_dir) = (dir.path().join("redis"), dir.path().join("other"));
    std::fs::create_dir(&redis_dir)?;
    let other = match &options.against {
        Some(binary) => Server::rhumb(binary, &options.memory, &other_dir)?,
        None => Server::redis(&redis_dir)?,
    };
    let rhumb = Server::rhumb(&options.server, &options.memory, &dir.path().join("rhumb"))?;
    other.fill(options.size.keys)?;
    rhumb.fill(options.size.keys)?;
    if options.json {
        println!("{}", json!({ "environment": rhumb_bench::environment::describe() }));
    } else {
        let name = options.other_name();
        println!(
            "{:20} {:>10} {:>10} {:>6} {:>6}  {:>15} {:>15} {:>15} {:>15}",
            "",
            format!("{name}/s"),
            "rhumb/s",
            "ratio",
            "wanted",
            "P50 ms",
            "P99 ms",
            "max ms",
            "CPU us"
        );
    }
    let mut short = Vec::new();
    for workload in &options.workloads {
        let mut measured = (Vec::new(), Vec::new());
        for round in 0..options.rounds {
            // Each is the first one in every other round.
            if round % 2 == 0 {
                measured.0.push(workload.measure(&other, options.size)?);
            }
            measured.1.push(workload.measure(&rhumb, options.size)?);
            if round % 2 == 1 {
                measured.0.push(workload.measure(&other, options.size)?);
            }
        }
        let (line, is_reached) = line(&options, workload, &measured);
        println!("{line}");
        if !is_reached {
            short.push(workload.name.as_str());
        }
    }
    ensure!(short.is_empty() || options.size.divisor > 1, "worse than wanted: {}", short.join(" "));
    Ok(())
}

/// The line that tells of a workload, and true if it reaches what is wanted.
fn line(
    options: &Options,
    workload: &Workload,
    measured: &(Vec<Figures>, Vec<Figures>),
) -> (String, bool) {
    let (theirs, ours) = (Figures::median(&measured.0), Figures::median(&measured.1));
    let (ratio, wanted, is_reached) = workload.judge(&theirs, &ours, options.against.is_some());
    let name = options.other_name();
    if options.json {
        let rounds = |all: &[Figures]| all.iter().map(|f| f.per_second).collect::<Vec<_>>();
        let line = json!({
            "workload": workload.name,
            "compared": match workload.wanted {
                Wanted::Throughput(_) => "per_second",
                Wanted::Latency(_) => "p50_ms",
            },
            "ratio": ratio,
            "wanted": wanted,
            "reached": is_reached,
            name: theirs.json(),
            "rhumb": ours.json(),
            format!("{name}_rounds"): rounds(&measured.0),
            "rhumb_rounds": rounds(&measured.1),
        });
        return (line.to_string(), is_reached);
    }
    let pair = |of: fn(&Figures) -> f64| format!("{:.2} / {:.2}", of(&theirs), of(&ours));
    let line = format!(
        "{:20} {:>10.0} {:>10.0} {:>6.2} {:>6.2}  {:>15} {:>15} {:>15} {:>15}",
        workload.name,
        theirs.per_second,
        ours.per_second,
        ratio,
        wanted,
        pair(|f| f.p50_ms),
        pair(|f| f.p99_ms),
        pair(|f| f.max_ms),
        pair(|f| f.cpu_us)
    );
    (line, is_reached)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_are_found_by_their_names() {
        for one in Workload::usual() {
            assert_eq!(Workload::named(&one.name).map(|all| all.len()), Some(1), "{}", one.name);
        }
        assert_eq!(Workload::named("table").map(|all| all.len()), Some(36));
        assert!(Workload::named("incr64").is_some() && Workload::named("incr2").is_none());
    }

    #[test]
    fn throughputs_are_to_be_high_and_latencies_low() {
        let of = |per_second, p50_ms| Figures { per_second, p50_ms, ..Figures::default() };
        let (theirs, ours) = (of(100.0, 1.0), of(90.0, 1.4));
        let named = |name| Workload::named(name).unwrap().remove(0);
        assert!(named("xadd").judge(&theirs, &ours, false).2);
        assert!(!named("get1").judge(&theirs, &ours, false).2);
        assert!(!named("xadd").judge(&theirs, &ours, true).2);
        assert!(named("blpop_handover").judge(&theirs, &ours, false).2);
        assert!(!named("blpop_handover").judge(&theirs, &of(90.0, 1.6), false).2);
    }
}
