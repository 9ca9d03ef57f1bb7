//! Measures `rhumb serve` beside Redis with Redis's own `redis-benchmark`, in turns.
//!
//! Both servers run with the same cores and persist every second; the one that is not measured is
//! idle. Figures are medians over the rounds. It starts the two servers, ends them, and keeps their
//! data in a temporary directory.

use std::{
    io::{BufWriter, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

const USAGE: &str = "\
usage: cargo xtask redis-bench [--json] [--quick] [--rounds N] [--keys N] [--memory SIZE]
                               [--server PATH] [NAME…]

Runs redis-server and `rhumb serve`, fills both with --keys keys (default 1000000) of 100 bytes, and runs
redis-benchmark with 50 connections on each in turns, --rounds times (default 3), and prints the medians
and the ratios. Needs redis-server and redis-benchmark 7.0, and a release build of rhumb, which --server
names (default: rhumb in the release directory).

  get1 set1 get16 set16   GET and SET, at pipeline 1 and 16
  mset lrange zadd        MSET of ten, LRANGE of a hundred, ZADD, at pipeline 1";

/// Bytes of every value.
const VALUE_BYTES: usize = 100;

/// One workload of redis-benchmark.
struct Workload {
    name: &'static str,
    test: &'static str,
    pipeline: u32,
    /// Requests of one round.
    requests: u64,
    /// What the ratio of the throughputs is to be, at least.
    wanted: f64,
}

const fn workload(
    name: &'static str,
    test: &'static str,
    pipeline: u32,
    requests: u64,
    wanted: f64,
) -> Workload {
    Workload { name, test, pipeline, requests, wanted }
}

const WORKLOADS: [Workload; 7] = [
    workload("get1", "get", 1, 400_000, 1.0),
    workload("set1", "set", 1, 400_000, 1.0),
    workload("get16", "get", 16, 3_000_000, 1.3),
    workload("set16", "set", 16, 2_000_000, 1.3),
    workload("mset", "mset", 1, 200_000, 0.8),
    workload("lrange", "lrange_100", 1, 100_000, 0.8),
    workload("zadd", "zadd", 1, 400_000, 0.8),
];

/// What to run.
struct Options {
    json: bool,
    rounds: usize,
    keys: u64,
    memory: String,
    server: PathBuf,
    /// Requests are divided by this.
    divisor: u64,
    names: Vec<String>,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self {
            json: false,
            rounds: 3,
            keys: 1_000_000,
            memory: "1G".to_owned(),
            server: release_binary()?,
            divisor: 1,
            names: Vec::new(),
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || rest.next().with_context(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--json" => options.json = true,
                "--quick" => options.divisor = 10,
                "--rounds" => options.rounds = value()?.parse().context("--rounds")?,
                "--keys" => options.keys = value()?.parse().context("--keys")?,
                "--memory" => value()?.clone_into(&mut options.memory),
                "--server" => options.server = value()?.into(),
                name if WORKLOADS.iter().any(|known| known.name == name) => {
                    options.names.push(name.to_owned());
                }
                _ => bail!("{USAGE}"),
            }
        }
        ensure!(options.rounds > 0 && options.keys > 0, "{USAGE}");
        Ok(options)
    }
}

/// Where `cargo build --release` puts the binary that is measured.
pub(crate) fn release_binary() -> Result<PathBuf> {
    let own = std::env::current_exe().context("where this program is")?;
    let target = own.ancestors().nth(2).context("where programs are built")?;
    Ok(target.join("release/rhumb"))
}

/// A server process; it ends with this value.
struct Server {
    process: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start(command: &mut Command, port: u16) -> Result<Self> {
        let process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let server = Self { process, port };
        let until = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            ensure!(Instant::now() < until, "the server on port {port} does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    fn redis(dir: &Path) -> Result<Self> {
        let port = free_port()?;
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        command.args(["--appendonly", "yes", "--appendfsync", "everysec", "--dir"]).arg(dir);
        Self::start(&mut command, port)
    }

    fn rhumb(options: &Options, dir: &Path) -> Result<Self> {
        let port = free_port()?;
        let mut command = Command::new(&options.server);
        command.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--fsync", "everysec"]);
        command.args(["--memory", &options.memory, "--data"]).arg(dir);
        Self::start(&mut command, port)
    }

    /// Sets the keys that redis-benchmark will ask for.
    fn fill(&self, keys: u64) -> Result<()> {
        const CHUNK: u64 = 10_000;
        let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        let value = "x".repeat(VALUE_BYTES);
        for from in (0..keys).step_by(CHUNK as usize) {
            let to = (from + CHUNK).min(keys);
            let mut writer = BufWriter::new(&socket);
            for key in from..to {
                write!(writer, "*3\r\n$3\r\nSET\r\n$16\r\nkey:{key:012}\r\n")?;
                write!(writer, "${VALUE_BYTES}\r\n{value}\r\n")?;
            }
            writer.flush()?;
            drop(writer);
            let mut replies = vec![0; (to - from) as usize * b"+OK\r\n".len()];
            socket.read_exact(&mut replies).context("the server's replies to SET")?;
            ensure!(replies.chunks(5).all(|reply| reply == b"+OK\r\n"), "a SET was refused");
        }
        Ok(())
    }

    fn measure(&self, workload: &Workload, options: &Options) -> Result<Figures> {
        let output = Command::new("redis-benchmark")
            .args(["-p", &self.port.to_string(), "-c", "50", "--csv", "--precision", "3"])
            .args(["-d", &VALUE_BYTES.to_string(), "-r", &options.keys.to_string()])
            .args(["-n", &(workload.requests / options.divisor).to_string()])
            .args(["-P", &workload.pipeline.to_string(), "-t", workload.test])
            .output()
            .context("cannot run redis-benchmark")?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "redis-benchmark failed: {text}");
        Figures::parse(&text).with_context(|| format!("redis-benchmark said: {text}"))
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// What one run of redis-benchmark measured.
#[derive(Clone, Copy)]
struct Figures {
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

impl Figures {
    /// Reads the last line: name, requests a second, then latencies: average, least, P50, P95, P99,
    /// greatest.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().rfind(|line| line.starts_with('"'))?;
        let fields: Vec<f64> = line
            .split("\",\"")
            .skip(1)
            .map(|field| field.trim_matches(['"', '\r']).parse().ok())
            .collect::<Option<_>>()?;
        let [per_second, _, _, p50_ms, _, p99_ms, max_ms] = fields[..] else { return None };
        Some(Self { per_second, p50_ms, p99_ms, max_ms })
    }

    fn median(all: &[Self]) -> Self {
        let of = |field: fn(&Self) -> f64| {
            let mut values: Vec<f64> = all.iter().map(field).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        Self {
            per_second: of(|f| f.per_second),
            p50_ms: of(|f| f.p50_ms),
            p99_ms: of(|f| f.p99_ms),
            max_ms: of(|f| f.max_ms),
        }
    }

    fn json(&self) -> Value {
        json!({
            "per_second": self.per_second,
            "p50_ms": self.p50_ms,
            "p99_ms": self.p99_ms,
            "max_ms": self.max_ms,
        })
    }
}

/// Runs the workloads that `arguments` name; see the usage text.
///
/// # Errors
/// If an argument is unknown, or one of the programs is missing or fails.
#[expect(clippy::print_stdout, reason = "the figures are for the standard output")]
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let options = Options::parse(arguments)?;
    let dir = tempfile::tempdir()?;
    let redis_dir = dir.path().join("redis");
    std::fs::create_dir(&redis_dir)?;
    let redis = Server::redis(&redis_dir)?;
    let rhumb = Server::rhumb(&options, &dir.path().join("rhumb"))?;
    redis.fill(options.keys)?;
    rhumb.fill(options.keys)?;
    if !options.json {
        println!(
            "{:8} {:>10} {:>10} {:>6} {:>6}  {:>15} {:>15} {:>15}",
            "", "redis/s", "rhumb/s", "ratio", "wanted", "P50 ms", "P99 ms", "max ms"
        );
    }
    for workload in &WORKLOADS {
        let is_named = options.names.iter().any(|name| name == workload.name);
        if !options.names.is_empty() && !is_named {
            continue;
        }
        let mut measured = (Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            measured.0.push(redis.measure(workload, &options)?);
            measured.1.push(rhumb.measure(workload, &options)?);
        }
        let (theirs, ours) = (Figures::median(&measured.0), Figures::median(&measured.1));
        let ratio = ours.per_second / theirs.per_second;
        if options.json {
            let line = json!({
                "workload": workload.name,
                "pipeline": workload.pipeline,
                "ratio": ratio,
                "wanted": workload.wanted,
                "redis": theirs.json(),
                "rhumb": ours.json(),
                "redis_rounds": measured.0.iter().map(|f| f.per_second).collect::<Vec<_>>(),
                "rhumb_rounds": measured.1.iter().map(|f| f.per_second).collect::<Vec<_>>(),
            });
            println!("{line}");
            continue;
        }
        let pair = |of: fn(&Figures) -> f64| format!("{:.2} / {:.2}", of(&theirs), of(&ours));
        println!(
            "{:8} {:>10.0} {:>10.0} {:>6.2} {:>6.2}  {:>15} {:>15} {:>15}",
            workload.name,
            theirs.per_second,
            ours.per_second,
            ratio,
            workload.wanted,
            pair(|f| f.p50_ms),
            pair(|f| f.p99_ms),
            pair(|f| f.max_ms)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Figures;

    #[test]
    fn the_last_line_counts() {
        let text = "\"test\",\"rps\"\n\"GET\",\"1000.5\",\"0.1\",\"0.0\",\"0.2\",\"0.3\",\"0.4\",\"0.5\"\n";
        let figures = Figures::parse(text).unwrap();
        assert!((figures.per_second - 1000.5).abs() < 1e-9 && (figures.p99_ms - 0.4).abs() < 1e-9);
        assert!(Figures::parse("nothing").is_none());
    }
}
