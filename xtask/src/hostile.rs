//! Hostile clients against `rhumb serve`: what a healthy client feels of them, and what they cost.
//!
//! The attackers only hold or send bytes; each kind comes in numbers and stays while the healthy
//! client measures. It starts the server and ends it.

mod crowds;
mod payload;

use std::{
    io::{BufRead, BufReader, Read, Write},
    iter::repeat_n,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

const USAGE: &str = "\
usage: cargo xtask hostile [--server PATH] [--idle N] [--waiters N] [attack|crowds]

Measures the P99 of a healthy client's GETs and SETs alone, and then beside --idle idle connections (default
10000), 300 clients that send a byte now and then, 60 that ask for megabytes and read nothing, and 300 that
announce arguments of 512 MB. Fails if the P99 is over five times that alone, or the server's memory over its
limits and a tenth.

Then, each on a server of its own: subscribers and monitors that never read, 100000 channels and as many
patterns, --waiters clients (default 10000) that wait for a list, a sorted set and a stream and are served in
order of arrival, 1000000 keys that a tracking client has read, a transaction without end, and payloads that
promise more than they hold. Fails if the memory goes over the limits. Needs as many open files as connections: the hard limit must allow them.";

/// Limits of the server, in MiB: the engine's memory, and all clients' buffers.
const MEMORY_MIB: u64 = 128;
const BUFFERS_MIB: u64 = 128;

/// How long the healthy client measures.
const MEASURED: Duration = Duration::from_secs(8);

/// Clients of each kind but the idle ones.
const SLOW: usize = 300;
const HOARDERS: usize = 60;
const HEADERS: usize = 300;

/// Runs the attack; see the usage text.
///
/// # Errors
/// If an argument is unknown, the server does not start, or the healthy client suffers.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let mut binary = crate::redis_bench::release_binary()?;
    let (mut idle, mut waiters, mut only) = (10_000, 10_000, None);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().with_context(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--server" => binary = value()?.into(),
            "--idle" => idle = value()?.parse().context("--idle")?,
            "--waiters" => waiters = value()?.parse().context("--waiters")?,
            "attack" | "crowds" => only = Some(argument.as_str()),
            _ => bail!("{USAGE}"),
        }
    }
    if raise_file_limit(arguments)? {
        return Ok(());
    }
    if only != Some("crowds") {
        attack_and_measure(&binary, idle)?;
    }
    if only != Some("attack") {
        crowds::run(&binary, waiters)?;
    }
    Ok(())
}

/// Measures a healthy client alone and beside the attackers.
fn attack_and_measure(binary: &std::path::Path, idle: usize) -> Result<()> {
    let server = Server::start(&binary.display().to_string())?;
    let mut healthy = connect(server.address)?;
    ensure!(call(&mut healthy, b"SET big", Some(&vec![b'x'; 1 << 20]))? == "+OK", "a SET failed");
    let alone = measure(&mut healthy)?;
    let rss_alone = server.rss_mib()?;
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sockets = attack(server.address, idle)?;
        let (silent, slow) = sockets;
        let dripping = scope.spawn(|| drip(slow, &ended));
        std::thread::sleep(Duration::from_secs(1));
        let beside = measure(&mut healthy);
        ended.store(true, Ordering::Relaxed);
        let _ = dripping.join();
        let rss = server.rss_mib()?;
        let beside = beside?;
        drop(silent);
        println!("alone     P50 {:>8.1} us  P99 {:>8.1} us  {rss_alone} MiB", alone.0, alone.1);
        println!("attacked  P50 {:>8.1} us  P99 {:>8.1} us  {rss} MiB", beside.0, beside.1);
        let most = (MEMORY_MIB + BUFFERS_MIB) * 11 / 10;
        println!(
            "ratio of the P99 {:.2} (at most 5), memory at most {most} MiB",
            beside.1 / alone.1
        );
        ensure!(beside.1 <= 5.0 * alone.1, "the healthy client suffers");
        ensure!(rss <= most, "too much memory");
        Ok(())
    })
}

/// Runs this program again with as many open files as it may have; says whether it did.
fn raise_file_limit(arguments: &[String]) -> Result<bool> {
    const DONE: &str = "RHUMB_HOSTILE_FILES";
    if std::env::var_os(DONE).is_some() {
        return Ok(false);
    }
    let own = std::env::current_exe().context("where this program is")?;
    let status = Command::new("sh")
        .args(["-c", "ulimit -n \"$(ulimit -Hn)\"; exec \"$0\" hostile \"$@\""])
        .arg(own)
        .args(arguments)
        .env(DONE, "1")
        .status()?;
    ensure!(status.success(), "the attack failed");
    Ok(true)
}

struct Server {
    process: Child,
    address: SocketAddr,
    _dir: tempfile::TempDir,
}

impl Server {
    fn start(binary: &str) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let file = dir.path().join("rhumb.toml");
        let limits = format!("[limits]\nclients = 20000\nbuffers-bytes = {}\n", BUFFERS_MIB << 20);
        std::fs::write(&file, limits)?;
        let mut process = Command::new(binary)
            .args(["serve", "--listen", "127.0.0.1:0", "--memory", &format!("{MEMORY_MIB}M")])
            .arg("--data")
            .arg(dir.path().join("data"))
            .arg("--config")
            .arg(&file)
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

    /// The server's memory in MiB.
    fn rss_mib(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("VmRSS")?;
        let kib = line.split_whitespace().nth(1).context("a figure")?.parse::<u64>()?;
        Ok(kib / 1024)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn connect(address: SocketAddr) -> Result<BufReader<TcpStream>> {
    let socket = TcpStream::connect_timeout(&address, Duration::from_secs(20))?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(Duration::from_secs(20)))?;
    Ok(BufReader::new(socket))
}

/// Sends a command of words, and a last argument if there is one; returns the reply's first line.
fn call(client: &mut BufReader<TcpStream>, words: &[u8], last: Option<&[u8]>) -> Result<String> {
    let arguments = words.split(|byte| *byte == b' ').chain(last);
    let mut bytes = format!("*{}\r\n", arguments.clone().count()).into_bytes();
    for argument in arguments {
        write!(bytes, "${}\r\n", argument.len())?;
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    client.get_mut().write_all(&bytes)?;
    let mut line = String::new();
    client.read_line(&mut line)?;
    if let Some(len) = line.strip_prefix('$').and_then(|len| len.trim().parse::<usize>().ok()) {
        client.read_exact(&mut vec![0; len + 2])?;
    }
    Ok(line.trim_end().to_owned())
}

/// The P50 and P99 of SETs and GETs in turns, in microseconds.
fn measure(client: &mut BufReader<TcpStream>) -> Result<(f64, f64)> {
    let until = Instant::now() + MEASURED;
    let mut times = Vec::new();
    for turn in 0.. {
        let began = Instant::now();
        if began >= until {
            break;
        }
        let key = format!("{} key:{:06}", ["SET", "GET"][turn % 2], turn / 2 % 10_000);
        let last = (turn % 2 == 0).then_some(&[b'v'; 100][..]);
        let reply = call(client, key.as_bytes(), last)?;
        ensure!(!reply.starts_with('-'), "{reply}");
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let share = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    Ok((share(50).as_secs_f64() * 1e6, share(99).as_secs_f64() * 1e6))
}

/// Connects all attackers; returns those that say nothing more, and those that go on slowly.
fn attack(address: SocketAddr, idle: usize) -> Result<(Vec<TcpStream>, Vec<TcpStream>)> {
    let one = || -> Result<TcpStream> { Ok(connect(address)?.into_inner()) };
    let mut silent = (0..idle).map(|_| one()).collect::<Result<Vec<_>>>()?;
    for _ in 0..HOARDERS {
        let mut socket = one()?;
        let wanted = b"*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n".repeat(1000);
        // What the server does not read is not sent.
        socket.set_write_timeout(Some(Duration::from_millis(20)))?;
        let _ = socket.write_all(&wanted);
        silent.push(socket);
    }
    for _ in 0..HEADERS {
        let mut socket = one()?;
        socket.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\nbeginning")?;
        silent.push(socket);
    }
    let slow = (0..SLOW).map(|_| one()).collect::<Result<Vec<_>>>()?;
    Ok((silent, slow))
}

/// Sends a byte of a command that never ends, on all sockets in turns.
fn drip(mut sockets: Vec<TcpStream>, ended: &AtomicBool) {
    for byte in
        b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$900000\r\n".iter().chain(repeat_n(&b'x', 100_000))
    {
        for socket in &mut sockets {
            // One that was closed has had its end.
            let _ = socket.write_all(&[*byte]);
        }
        if ended.load(Ordering::Relaxed) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
