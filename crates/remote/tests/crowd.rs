//! A host with many silent clients and some without manners, beside one that reads and calls.
//!
//! The short form has 300 silent clients, the long one as many as `RHUMB_IDLE_SESSIONS` says: the
//! process and the host's own need as many descriptors each.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use rhumb_remote::{Client, Error, Host, Keyspace, ShareOptions};

/// Says to the host's process at which socket it listens.
const SOCKET: &str = "RHUMB_CROWD_SOCKET";

/// Silent clients beside which the host has as many threads as without them.
const THREADS_MAX: usize = 12;

/// What the host keeps of a silent client at most, in bytes: its buffers are given away, and what
/// remains is some hundred bytes and what the allocator adds.
const SESSION_BYTES_MAX: u64 = 4 << 10;

/// What workers that came while the crowd did have left, in bytes.
const OTHER_BYTES_MAX: u64 = 8 << 20;

/// Clients without manners.
const HOARDERS: usize = 90;

/// Reads and calls that are timed in one go.
const ROUNDS: usize = 4_000;

fn idle_sessions() -> usize {
    env::var("RHUMB_IDLE_SESSIONS").map_or(300, |text| text.parse().expect("a number of sessions"))
}

struct Kill(Child);

impl Drop for Kill {
    fn drop(&mut self) {
        // It has ended otherwise.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The host's process.
#[test]
#[ignore = "is a process of another test"]
fn child_host() {
    let path = env::var_os(SOCKET).expect("is started by another test");
    let options = ShareOptions::default().capacity_bytes(256 << 20);
    let host = Host::listen(path).sessions_max(20_000).share("k", options).start().unwrap();
    println!("host is there");
    // Until the other side is closed.
    let _ = std::io::stdin().read(&mut [0]);
    drop(host);
}

fn start_host(path: &Path) -> Kill {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["child_host", "--exact", "--ignored", "--nocapture"]).env(SOCKET, path);
    let mut host = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(host.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("host is there")));
    Kill(host)
}

/// A number of `/proc/PID/status`.
fn status(host: &Kill, field: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", host.0.id())).unwrap();
    let line = text.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < until, "it is never so: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A frame, as `docs/wire.md` has it.
fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = (1 + 4 + body.len()) as u32;
    [&len.to_le_bytes()[..], &[kind], &1u32.to_le_bytes(), body].concat()
}

fn hello() -> Vec<u8> {
    frame(1, &[b"RHUMBWIR\x01\0\0\0\x05crowd", &[0; 8][..], &[0]].concat())
}

/// What a client without manners says: each of three kinds.
fn rudeness(kind: usize) -> Vec<u8> {
    let (open, get) = (frame(2, b"\x01k"), frame(3, b"\0\0\0\0\x05large\0"));
    match kind {
        // Opens what it never reads, as often as it may and more.
        0 => [hello(), open.repeat(400)].concat(),
        // Asks for more than it reads.
        1 => [hello(), open, get.repeat(50)].concat(),
        // Begins what it never ends.
        _ => [hello(), open, get[..9].to_vec()].concat(),
    }
}

/// Keeps clients without manners connected until it is told to end.
fn hoard(path: &Path, ended: &AtomicBool) {
    let connect = |n: usize| {
        let mut stream = UnixStream::connect(path).ok()?;
        stream.set_nonblocking(true).ok()?;
        // What the socket does not take is not said.
        stream.write_all(&rudeness(n % 3)).ok();
        Some(stream)
    };
    let mut hoarders: Vec<_> = (0..HOARDERS).map(connect).collect();
    while !ended.load(Ordering::Relaxed) {
        for (n, hoarder) in hoarders.iter_mut().enumerate() {
            // A byte more, now and then; the host closes those that are too slow.
            let lives = hoarder.as_mut().is_some_and(|stream| stream.write_all(&[0]).is_ok());
            if !lives {
                *hoarder = connect(n);
            }
        }
        thread::sleep(Duration::from_millis(50));
    }
}

fn key(n: usize) -> [u8; 8] {
    (n as u64).to_be_bytes()
}

/// The median and the 99th percentile of gets and of calls, in nanoseconds.
fn measure(keyspace: &Keyspace) -> [[u64; 2]; 2] {
    let mut value = Vec::new();
    let get = |n: usize| {
        value.clear();
        assert!(keyspace.get_into(key(n % 1_000), &mut value).unwrap());
        assert_eq!(value, b"value");
    };
    let call = |n: usize| keyspace.insert(key(n % 1_000), "value").unwrap();
    [percentiles(get), percentiles(call)]
}

fn percentiles(mut act: impl FnMut(usize)) -> [u64; 2] {
    let mut times: Vec<u64> = (0..ROUNDS)
        .map(|n| {
            let began = Instant::now();
            act(n);
            began.elapsed().as_nanos() as u64
        })
        .collect();
    times.sort_unstable();
    [times[ROUNDS / 2], times[ROUNDS / 100 * 99]]
}

/// The medians over several times.
fn settled(keyspace: &Keyspace) -> [[u64; 2]; 2] {
    let all: Vec<_> = (0..9).map(|_| measure(keyspace)).collect();
    [0, 1].map(|what| {
        [0, 1].map(|which| {
            let mut values: Vec<u64> = all.iter().map(|times| times[what][which]).collect();
            values.sort_unstable();
            values[values.len() / 2]
        })
    })
}

#[test]
fn a_crowd_costs_a_host_no_threads_and_others_little() {
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().join("s");
    let host = start_host(&path);
    let client = Client::connect(&path).unwrap();
    let keyspace = client.keyspace("k").unwrap();
    (0..1_000).for_each(|n| keyspace.insert(key(n), "value").unwrap());
    keyspace.insert("large", vec![7; 100_000]).unwrap();
    let alone = settled(&keyspace);
    let bytes_before = status(&host, "VmRSS");

    let sessions = idle_sessions();
    let idle: Vec<Client> = (0..sessions).map(|_| Client::connect(&path).unwrap()).collect();
    // Some read too, and all the while.
    let readers: Vec<Keyspace> =
        idle.iter().take(50).map(|client| client.keyspace("k").unwrap()).collect();
    let threads = || status(&host, "Threads") as usize;
    wait_until("few threads", || threads() <= THREADS_MAX);
    let bytes = 1024 * status(&host, "VmRSS").saturating_sub(bytes_before);
    println!("{sessions} silent clients: {} threads, {bytes} bytes more", threads());
    assert!(bytes <= sessions as u64 * SESSION_BYTES_MAX + OTHER_BYTES_MAX, "{bytes} bytes");
    let beside_idle = settled(&keyspace);

    let ended = AtomicBool::new(false);
    let beside_all = thread::scope(|scope| {
        scope.spawn(|| hoard(&path, &ended));
        let times = settled(&keyspace);
        ended.store(true, Ordering::Relaxed);
        times
    });
    for (at, what) in ["get", "call"].into_iter().enumerate() {
        for (beside, times) in [("the silent ones", beside_idle), ("hoarders too", beside_all)] {
            let ([p50, p99], [p50_alone, p99_alone]) = (times[at], alone[at]);
            let factor = p99 as f64 / p99_alone as f64;
            println!(
                "{what} beside {beside}: P50 {p50} ns (alone {p50_alone}), P99 {p99} ns (alone \
                 {p99_alone}), {factor:.2} times"
            );
        }
    }
    // The silent ones are served as before.
    for keyspace in &readers {
        assert_eq!(keyspace.get(key(7)).unwrap().unwrap(), b"value");
        keyspace.insert(key(8), "value").unwrap();
    }
    for client in idle.iter().rev().take(10) {
        assert!(matches!(client.keyspace("other"), Err(Error::Refused { .. })));
    }
    wait_until("few threads", || threads() <= THREADS_MAX);
}
