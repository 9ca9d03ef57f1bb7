//! What clients of `rhumb serve` wait while another one runs a long command: every command of the
//! table in its worst form, on a million elements.
//!
//! Two clients ask for other keys at a steady pace, one on the worker of the long command and one
//! on another. A `GET` is timed from the moment at which it was to be sent: one that others held up
//! holds up those after it as well. The cases are those of the test that counts
//! (`crates/server/tests/isolation`).

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

#[path = "../../crates/server/tests/isolation/cases.rs"]
mod cases;

/// The error of a script that reads more than its memory holds: that takes its time as well.
const REFUSED: &str = "not enough memory";

const USAGE: &str = "\
usage: cargo xtask isolation [--server PATH] [--elements N] [--workers N] [--json] [COMMAND...]

Runs each command of the table in its worst form on collections of --elements members (default 1000000), and
prints what two other clients wait for their GETs meanwhile: the P50, the P99 and the longest wait of each, in
milliseconds. With --workers 2 (the default) one of the two is on another worker than the command. Without
commands, all are run; the first line is of GETs beside nothing. Needs 4 GiB of memory and of disk for a million.";

/// How often each of the two clients asks: a hundred times for the P99 takes a twentieth of a
/// second.
const PACE: Duration = Duration::from_micros(500);

/// How long is measured beside nothing.
const ALONE: Duration = Duration::from_secs(5);

/// Commands that are sent together while the collections are made.
const TOGETHER: usize = 500;

struct Options {
    server: PathBuf,
    elements: usize,
    workers: usize,
    json: bool,
    names: BTreeSet<String>,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self {
            server: crate::redis_bench::release_binary()?,
            elements: 1_000_000,
            workers: 2,
            json: false,
            names: BTreeSet::new(),
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || rest.next().with_context(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--json" => options.json = true,
                "--server" => options.server = value()?.into(),
                "--elements" => options.elements = value()?.parse().context("--elements")?,
                "--workers" => options.workers = value()?.parse().context("--workers")?,
                name if cases::CASES.iter().any(|(known, _)| *known == name) => {
                    options.names.insert(name.to_owned());
                }
                _ => bail!("{USAGE}"),
            }
        }
        ensure!(options.elements > 0 && options.workers > 0, "{USAGE}");
        Ok(options)
    }
}

/// Measures; see the usage text.
///
/// # Errors
/// If an argument is unknown, the server does not start, or a command fails.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let options = Options::parse(arguments)?;
    let server = Server::start(&options)?;
    // In this order: each goes to the worker that has the fewest connections.
    let mut client = Client::connect(server.address)?;
    let mut others = Vec::new();
    for _ in 0..options.workers.min(2) {
        others.insert(0, Client::connect(server.address)?);
    }
    if options.workers == 1 {
        others.push(Client::connect(server.address)?);
    }
    let mut batch = Vec::new();
    for command in cases::collections(options.elements) {
        batch.push(command);
        if batch.len() == TOGETHER {
            client.run(&batch)?;
            batch.clear();
        }
    }
    client.run(&batch)?;
    client.run(&cases::commands("SET probe value", 1).1)?;
    if !options.json {
        println!(
            "{:<18} {:>9}  same worker P50/P99/max   other worker P50/P99/max   line",
            "", "took"
        );
    }
    let [same, other] = &mut others[..] else { bail!("two clients are needed") };
    let sleep = |_: &mut Client| {
        std::thread::sleep(ALONE);
        Ok(())
    };
    print(&options, "(nothing)", "", &beside(&mut client, [same, other], sleep)?);
    for (name, lines) in cases::CASES {
        if !options.names.is_empty() && !options.names.contains(*name) {
            continue;
        }
        for line in *lines {
            let (is_measured, commands) = cases::commands(line, options.elements);
            if !is_measured {
                client.run(&commands)?;
                continue;
            }
            let work = |client: &mut Client| client.run(&commands);
            let waits = beside(&mut client, [same, other], work).context(*line)?;
            print(&options, name, line, &waits);
        }
    }
    Ok(())
}

/// How long something took, and what the two others waited.
struct Waits {
    took: Duration,
    waits: [Vec<Duration>; 2],
}

/// Does something while two clients ask.
fn beside(
    client: &mut Client,
    others: [&mut Client; 2],
    work: impl FnOnce(&mut Client) -> Result<()>,
) -> Result<Waits> {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let is_ended = &ended;
        let asking = others.map(|other| scope.spawn(move || ask(other, is_ended)));
        std::thread::sleep(PACE);
        let began = Instant::now();
        let done = work(client);
        let took = began.elapsed();
        ended.store(true, Ordering::Relaxed);
        let mut waits = [Vec::new(), Vec::new()];
        for (waits, asking) in waits.iter_mut().zip(asking) {
            *waits = asking.join().map_err(|_| anyhow::anyhow!("a client has panicked"))??;
        }
        done?;
        Ok(Waits { took, waits })
    })
}

/// Asks for a key again and again; returns what each reply took, in ascending order.
fn ask(client: &mut Client, ended: &AtomicBool) -> Result<Vec<Duration>> {
    let (mut due, mut waits) = (Instant::now(), Vec::new());
    let command = cases::commands("GET probe", 1).1;
    while !ended.load(Ordering::Relaxed) {
        client.run(&command)?;
        waits.push(due.elapsed());
        due += PACE;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    waits.sort_unstable();
    Ok(waits)
}

fn print(options: &Options, name: &str, line: &str, waits: &Waits) {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let figures = waits.waits.each_ref().map(|all| {
        let share = |percent: usize| all.get((all.len() * percent / 100).min(all.len().max(1) - 1));
        [share(50), share(99), all.last()].map(|wait| wait.map_or(0.0, |wait| ms(*wait)))
    });
    let line: String = line.trim_start_matches("> ").chars().take(60).collect();
    let took = ms(waits.took);
    if options.json {
        let [same, other] =
            figures.map(|[p50, p99, max]| json!({"p50": p50, "p99": p99, "max": max}));
        let gets = waits.waits.each_ref().map(Vec::len);
        let elements = options.elements;
        println!(
            "{}",
            json!({"isolation": name, "line": line, "elements": elements, "took_ms": took, "gets": gets,
                "same_worker_ms": same, "other_worker_ms": other})
        );
        return;
    }
    let [same, other] = figures.map(|[p50, p99, max]| format!("{p50:6.2} {p99:7.2} {max:8.2}"));
    println!("{name:<18} {took:>7.1}ms  {same}    {other}    {line}");
}

/// A server process; it ends with this value.
struct Server {
    process: Child,
    address: SocketAddr,
    _dir: tempfile::TempDir,
}

impl Server {
    fn start(options: &Options) -> Result<Self> {
        let (dir, binary) = (tempfile::tempdir()?, options.server.display().to_string());
        let mut process = Command::new(&binary)
            .args(["serve", "--listen", "127.0.0.1:0", "--memory", "1G", "--threads"])
            .arg(options.workers.to_string())
            .arg("--data")
            .arg(dir.path().join("data"))
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {binary}"))?;
        let mut banner = String::new();
        BufReader::new(process.stdout.take().context("its output")?).read_line(&mut banner)?;
        let port = banner.trim().rsplit(':').next().and_then(|port| port.parse().ok());
        let port: u16 = port.with_context(|| format!("the server said {banner:?}"))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Ok(Self { process, address, _dir: dir })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A connection.
struct Client {
    socket: BufReader<TcpStream>,
    /// Channels that the last command has subscribed to.
    subscribed: usize,
}

impl Client {
    fn connect(address: SocketAddr) -> Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(Duration::from_secs(300)))?;
        Ok(Self { socket: BufReader::with_capacity(1 << 16, socket), subscribed: 0 })
    }

    /// Sends commands together and reads their replies.
    fn run(&mut self, commands: &[Vec<Vec<u8>>]) -> Result<()> {
        for part in commands.chunks(TOGETHER) {
            let mut bytes = Vec::new();
            for command in part {
                write!(bytes, "*{}\r\n", command.len())?;
                for word in command {
                    write!(bytes, "${}\r\n", word.len())?;
                    bytes.extend_from_slice(word);
                    bytes.extend_from_slice(b"\r\n");
                }
            }
            self.socket.get_mut().write_all(&bytes)?;
            for command in part {
                for _ in 0..self.replies(command) {
                    self.reply().with_context(|| command[0].escape_ascii().to_string())?;
                }
            }
        }
        Ok(())
    }

    /// How many replies a command has: subscriptions have one for each channel.
    fn replies(&mut self, command: &[Vec<u8>]) -> usize {
        let name = String::from_utf8_lossy(&command[0]).to_ascii_lowercase();
        match name.strip_suffix("subscribe") {
            Some("" | "p" | "s") => {
                self.subscribed = command.len() - 1;
                self.subscribed
            }
            Some(_) => std::mem::take(&mut self.subscribed),
            None => 1,
        }
    }

    /// Reads a reply and forgets it.
    fn reply(&mut self) -> Result<()> {
        let mut left = 1_usize;
        let mut line = Vec::new();
        while left > 0 {
            left -= 1;
            line.clear();
            self.socket.read_until(b'\n', &mut line)?;
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end();
            ensure!(!text.is_empty(), "the server has closed the connection");
            let len = text[1..].parse::<i64>();
            match &text[..1] {
                "-" if left == 0 && !text.contains(REFUSED) => bail!("{text}"),
                "$" => {
                    if let Ok(len) = usize::try_from(len.context("a length")?) {
                        let mut bytes = self.socket.by_ref().take(len as u64 + 2);
                        std::io::copy(&mut bytes, &mut std::io::sink())?;
                    }
                }
                "*" => left += usize::try_from(len.context("a length")?).unwrap_or(0),
                _ => {}
            }
        }
        Ok(())
    }
}
