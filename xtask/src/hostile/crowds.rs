//! Crowds that are cheap to make: clients that never read, channels and patterns, clients that
//! wait, remembered keys, queued commands, payloads that promise more than they hold.

use std::{
    io::Write as _,
    net::TcpStream,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use super::payload;
use crate::live::{Client, Live, Program, Value, put};

/// The server's memory for its engine, and for all clients' buffers.
const MEMORY_MIB: u64 = 128;
const BUFFERS_MIB: u64 = 128;

/// The most memory of the server whatever clients do: its limits, a quarter for what is not counted
/// to the byte, and what the process has anyway.
const MOST_MIB: u64 = (MEMORY_MIB + BUFFERS_MIB) * 5 / 4 + 64;

/// Clients that never read, of each kind.
const SILENT: usize = 20;

/// The bytes of a message, and how many are sent: more than every limit together.
const MESSAGE_BYTES: usize = 64 << 10;
const MESSAGES: usize = 4000;

/// Channels, and patterns.
const CHANNELS: usize = 100_000;

/// Channels of one command, and keys of one pipeline.
const TOGETHER: usize = 1000;

/// Keys that a client reads that keeps what it reads.
const TRACKED: usize = 1_000_000;

/// How long the server is watched while clients wait.
const WATCHED: Duration = Duration::from_secs(3);

/// Sets one crowd on a server; what it saw.
type Set<'a> = &'a dyn Fn(&mut Crowd) -> Result<String>;

/// Sets every crowd on a server of its own.
///
/// # Errors
/// If a limit is broken.
pub(super) fn run(binary: &Path, waiters: usize) -> Result<()> {
    let crowds: [(&str, Set<'_>); 7] = [
        ("subscribers that never read", &silent_subscribers),
        ("monitors that never read", &silent_monitors),
        ("channels and patterns", &channels),
        ("clients that wait", &|crowd| waiting(crowd, waiters)),
        ("tracked keys", &tracked),
        ("payloads that lie", &payloads),
        ("queued commands", &queued),
    ];
    for (name, set) in crowds {
        let mut crowd = Crowd::new(binary)?;
        let began = Instant::now();
        let said = set(&mut crowd).with_context(|| name.to_owned())?;
        let rss = crowd.rss_mib()?;
        println!("{name:28} {said}; {rss} MiB, {:.1} s", began.elapsed().as_secs_f64());
        ensure!(rss <= MOST_MIB, "{name}: more than {MOST_MIB} MiB");
        let pong = crowd.healthy.call(&["PING"])?;
        ensure!(pong.text().as_deref() == Some("PONG"), "{name}: PING gave {pong:?}");
    }
    Ok(())
}

/// A server, and a client of it that does nothing bad.
struct Crowd {
    live: Live,
    healthy: Client,
    _config: tempfile::TempDir,
}

impl Crowd {
    fn new(binary: &Path) -> Result<Self> {
        let config = tempfile::tempdir()?;
        let file = config.path().join("rhumb.toml");
        let limits = format!("[limits]\nclients = 20000\nbuffers-bytes = {}\n", BUFFERS_MIB << 20);
        std::fs::write(&file, limits)?;
        let (file, memory) = (file.display().to_string(), format!("{MEMORY_MIB}M"));
        let options = ["--memory", &memory, "--config", &file];
        let live = Live::start(&Program::Rhumb(binary.to_owned()), &options)?;
        let healthy = Client::connect(live.address())?;
        Ok(Self { live, healthy, _config: config })
    }

    fn client(&self) -> Result<Client> {
        Client::connect(self.live.address())
    }

    fn rss_mib(&self) -> Result<u64> {
        Ok(self.live.figure("VmRSS")? >> 10)
    }

    /// Clients that have sent a command and read nothing after its reply.
    fn silent(&self, command: &[&str]) -> Result<Vec<Client>> {
        let one = || -> Result<Client> {
            let mut client = self.client()?;
            client.call(command)?;
            Ok(client)
        };
        (0..SILENT).map(|_| one()).collect()
    }

    /// Calls of a healthy client, and the server's most memory meanwhile.
    fn calls(&mut self, count: usize, command: &[&[u8]]) -> Result<(Value, u64)> {
        let (mut last, mut most) = (Value::Null, 0);
        for number in 0..count {
            last = self.healthy.call(command)?;
            if number % 100 == 0 {
                most = most.max(self.rss_mib()?);
            }
        }
        ensure!(most <= MOST_MIB, "the server took {most} MiB");
        Ok((last, most))
    }
}

fn silent_subscribers(crowd: &mut Crowd) -> Result<String> {
    let subscribers = crowd.silent(&["SUBSCRIBE", "channel"])?;
    let message = vec![b'm'; MESSAGE_BYTES];
    let (last, most) = crowd.calls(MESSAGES, &[b"PUBLISH", b"channel", &message])?;
    ensure!(last == Value::Int(0), "the last message had {last:?} receivers");
    drop(subscribers);
    Ok(format!("{SILENT} were dropped, {MESSAGES} messages of 64 KiB, at most {most} MiB"))
}

fn silent_monitors(crowd: &mut Crowd) -> Result<String> {
    let monitors = crowd.silent(&["MONITOR"])?;
    let message = vec![b'm'; MESSAGE_BYTES];
    let (_, most) = crowd.calls(MESSAGES, &[b"ECHO", &message])?;
    drop(monitors);
    Ok(format!("{SILENT}, {MESSAGES} commands of 64 KiB, at most {most} MiB"))
}

fn channels(crowd: &mut Crowd) -> Result<String> {
    let before = crowd.rss_mib()?;
    let mut clients = Vec::new();
    for (command, prefix) in [("SUBSCRIBE", "channel"), ("PSUBSCRIBE", "pattern*")] {
        for half in 0..2 {
            let mut client = crowd.client()?;
            for first in (0..CHANNELS / 2).step_by(TOGETHER) {
                let names = (first..first + TOGETHER).map(|at| format!("{prefix}:{half}:{at}"));
                let words: Vec<String> = std::iter::once(command.to_owned()).chain(names).collect();
                client.send(&words)?;
                for _ in 0..TOGETHER {
                    client.receive()?;
                }
            }
            clients.push(client);
        }
    }
    let kept = crowd.rss_mib()?.saturating_sub(before);
    ensure!(crowd.healthy.call(&["PUBSUB", "NUMPAT"])? == Value::Int(CHANNELS as i64), "NUMPAT");
    let began = Instant::now();
    let heard = crowd.healthy.call(&["PUBLISH", "channel:1:77", "message"])?;
    let took = began.elapsed();
    ensure!(heard == Value::Int(1), "{heard:?} receivers");
    ensure!(clients[1].receive()?.elements().len() == 3, "the message did not come");
    drop(clients);
    let until = Instant::now() + Duration::from_secs(60);
    while crowd.healthy.call(&["PUBSUB", "NUMPAT"])? != Value::Int(0) {
        ensure!(Instant::now() < until, "patterns of clients that are gone stay");
        thread::sleep(Duration::from_millis(50));
    }
    let bytes = (kept << 20) / (2 * CHANNELS as u64);
    Ok(format!("{CHANNELS} of each by 4 clients, {bytes} bytes for one, a PUBLISH in {took:.0?}"))
}

fn waiting(crowd: &mut Crowd, count: usize) -> Result<String> {
    let (lists, others) = (count * 2 / 5, count * 3 / 10);
    let (rss, threads) = (crowd.live.figure("VmRSS")?, crowd.live.figure("Threads")?);
    let wait = |crowd: &Crowd, command: &[&str], many: usize| -> Result<Vec<Client>> {
        let one = || -> Result<Client> {
            let mut client = crowd.client()?;
            client.send(command)?;
            Ok(client)
        };
        (0..many).map(|_| one()).collect()
    };
    let mut of_list = Vec::new();
    for number in 0..lists {
        of_list.extend(wait(crowd, &["BLPOP", "list", "0"], 1)?);
        // Each has come before the next one comes.
        until_blocked(crowd, number + 1)?;
    }
    let mut of_set = wait(crowd, &["BZPOPMIN", "set", "0"], others)?;
    let mut of_stream = wait(crowd, &["XREAD", "BLOCK", "0", "STREAMS", "stream", "$"], others)?;
    until_blocked(crowd, lists + 2 * others)?;
    let all = (lists + 2 * others) as u64;
    let bytes = (crowd.live.figure("VmRSS")?.saturating_sub(rss) << 10) / all;
    let more_threads = crowd.live.figure("Threads")?.saturating_sub(threads);
    let cpu = crowd.live.cpu_ms()?;
    thread::sleep(WATCHED);
    let cpu = crowd.live.cpu_ms()? - cpu;
    ensure!(more_threads == 0, "{more_threads} threads more");
    let elements = (0..lists).map(|number| number.to_string());
    let push: Vec<String> =
        ["RPUSH", "list"].map(str::to_owned).into_iter().chain(elements).collect();
    crowd.healthy.call(&push)?;
    for (number, client) in of_list.iter_mut().enumerate() {
        let reply = client.receive()?;
        let got = reply.elements().get(1).and_then(Value::text);
        ensure!(got == Some(number.to_string()), "waiter {number} of the list got {reply:?}");
    }
    for number in 0..others {
        let number = number.to_string();
        crowd.healthy.call(&["ZADD", "set", &number, &number])?;
    }
    let mut scores = Vec::new();
    for client in &mut of_set {
        let reply = client.receive()?;
        scores.push(
            reply.elements().get(2).and_then(Value::text).context("a score")?.parse::<u64>()?,
        );
    }
    scores.sort_unstable();
    ensure!(scores.into_iter().eq(0..others as u64), "members went to nobody or to two");
    crowd.healthy.call(&["XADD", "stream", "5-1", "f", "v"])?;
    for client in &mut of_stream {
        ensure!(client.receive()?.elements().len() == 1, "a reader of the stream got nothing");
    }
    Ok(format!(
        "{all}, {bytes} bytes for each with its connection, no thread, {cpu} ms of processor in \
         {} s; {lists} were served in order of arrival",
        WATCHED.as_secs()
    ))
}

fn until_blocked(crowd: &mut Crowd, count: usize) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(60);
    while crowd.healthy.info_of("clients", "blocked_clients")? < count as u64 {
        ensure!(Instant::now() < until, "clients do not come to wait");
    }
    Ok(())
}

fn tracked(crowd: &mut Crowd) -> Result<String> {
    let before = crowd.rss_mib()?;
    let most = crowd.healthy.call(&["CONFIG", "GET", "tracking-table-max-keys"])?;
    let most = most.elements().get(1).and_then(Value::text).context("a setting")?.parse::<u64>()?;
    // It is told of every key that is forgotten, and never reads.
    let mut told = crowd.client()?;
    let id = told.call(&["CLIENT", "ID"])?.int()?.to_string();
    told.call(&["SUBSCRIBE", "__redis__:invalidate"])?;
    let mut reader = crowd.client()?;
    let reply = reader.call(&["CLIENT", "TRACKING", "ON", "REDIRECT", &id])?;
    ensure!(reply.text().as_deref() == Some("OK"), "TRACKING gave {reply:?}");
    read_keys(&mut reader, 0)?;
    let kept = crowd.healthy.info_of("stats", "tracking_total_keys")?;
    ensure!(kept <= most, "{kept} keys are remembered, at most {most} may be");
    let rss = crowd.rss_mib()?.saturating_sub(before);
    crowd.healthy.call(&["CONFIG", "SET", "tracking-table-max-keys", "100000"])?;
    read_keys(&mut reader, TRACKED)?;
    let until = Instant::now() + Duration::from_secs(30);
    let mut left = kept;
    while left > 100_000 {
        left = crowd.healthy.info_of("stats", "tracking_total_keys")?;
        ensure!(Instant::now() < until, "{left} keys are remembered, and 100000 may be");
    }
    Ok(format!("{kept} remembered in {rss} MiB, then {left} of at most 100000"))
}

fn read_keys(reader: &mut Client, first: usize) -> Result<()> {
    let mut bytes = Vec::new();
    for start in (first..first + TRACKED).step_by(TOGETHER) {
        bytes.clear();
        for number in start..start + TOGETHER {
            put(&mut bytes, &["GET".to_owned(), format!("key:{number:08}")]);
        }
        reader.socket().write_all(&bytes)?;
        for _ in 0..TOGETHER {
            reader.receive()?;
        }
    }
    Ok(())
}

fn queued(crowd: &mut Crowd) -> Result<String> {
    let mut client = crowd.client()?;
    client.call(&["MULTI"])?;
    let value = vec![b'v'; MESSAGE_BYTES];
    let (mut queued, mut refused) = (0, String::new());
    for number in 0..MESSAGES {
        match client.call(&[&b"SET"[..], number.to_string().as_bytes(), &value]) {
            Ok(Value::Text(_)) => queued += 1,
            Ok(other) => refused = format!("{other:?}"),
            Err(error) => refused = error.to_string(),
        }
        ensure!(crowd.rss_mib()? <= MOST_MIB, "{queued} commands took {} MiB", crowd.rss_mib()?);
        if !refused.is_empty() {
            break;
        }
    }
    ensure!(!refused.is_empty(), "all {queued} commands of 64 KiB were queued");
    Ok(format!("{queued} of {MESSAGES} commands of 64 KiB, then {refused}"))
}

fn payloads(crowd: &mut Crowd) -> Result<String> {
    // More than this was not announced by mistake.
    let most = crowd.rss_mib()? + 64;
    let mut tried = 0;
    for (name, bytes) in payload::lies() {
        let reply = crowd.healthy.call(&[&b"RESTORE"[..], b"key", b"0", &bytes])?;
        ensure!(matches!(reply, Value::Error(_)), "{name} gave {reply:?}");
        let rss = crowd.rss_mib()?;
        ensure!(rss <= most, "{name} took the server to {rss} MiB");
        tried += 1;
    }
    // Commands that announce more than they send, of many arguments and of large ones.
    let mut sockets: Vec<TcpStream> = Vec::new();
    for _ in 0..300 {
        for announced in [&b"*1048576\r\n$3\r\nDEL\r\n"[..], b"*2\r\n$3\r\nGET\r\n$536870912\r\nx"]
        {
            let mut socket = TcpStream::connect(crowd.live.address())?;
            socket.write_all(announced)?;
            sockets.push(socket);
        }
    }
    crowd.healthy.call(&["PING"])?;
    ensure!(crowd.rss_mib()? <= most, "what is announced takes memory");
    let count = sockets.len();
    Ok(format!("{tried} were refused, {count} clients announce arguments and send none"))
}
