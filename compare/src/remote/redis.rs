//! Redis over a Unix socket: a process that answers every read.

use std::{
    env,
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rhumb_bench::suite::remote::{
    batch::{Answers, Batch},
    subject::{Counters, OnPair, OnValue, Place, Server, Session, Subject, perform_all},
    workload::{KEYS_AT_ONCE, Kind, Workload},
};
use serde_json::{Value, json};

/// Commands in the pipe of the second subject: the number of remote.md, section 3.3.
const DEPTH: usize = 16;

/// Commands in the pipe while the server is loaded.
const LOAD_DEPTH: usize = 1_000;

/// How long the server may take to listen.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Nanoseconds of a tick in which Linux tells CPU time: there are a hundred a second.
const TICK_NS: u64 = 10_000_000;

/// Redis with this number of commands in the pipe.
pub(crate) struct Redis {
    name: &'static str,
    depth: usize,
}

/// One command after the other, as a client does that needs each answer.
pub(crate) const ONE: Redis = Redis { name: "redis", depth: 1 };

/// [`DEPTH`] commands at a time.
pub(crate) const PIPE: Redis = Redis { name: "redis-pipe", depth: DEPTH };

/// Returns true if there is a server to start.
pub(crate) fn is_installed() -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| directory.join("redis-server").is_file())
}

fn socket(place: &Place<'_>) -> PathBuf {
    place.directory.join("redis.sock")
}

impl Subject for Redis {
    fn name(&self) -> &'static str {
        self.name
    }

    fn options(&self) -> String {
        format!(
            "redis-server over a Unix socket, {} commands in the pipe (multi_get: MGET of \
             {KEYS_AT_ONCE}), no persistence",
            self.depth
        )
    }

    fn keeper(&self) -> Option<&'static str> {
        Some("redis")
    }

    fn performs(&self, workload: Workload) -> bool {
        workload.mix().iter().all(|(_, kind)| *kind != Kind::Scan)
    }

    fn start(&self, place: &Place<'_>) -> Result<Box<dyn Server>> {
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no"]);
        command.arg("--unixsocket").arg(socket(place)).current_dir(place.directory);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().context("cannot start redis-server")?;
        let server = Running { child };
        let mut connection = Connection::open_within(&socket(place), START_TIMEOUT)?;
        let mut value = Vec::new();
        for begin in (0..place.data.records).step_by(LOAD_DEPTH) {
            let some = begin..(begin + LOAD_DEPTH).min(place.data.records);
            for index in some.clone() {
                let key = place.data.key(index);
                place.data.values.fill(key, 0, &mut value);
                connection.push(&[b"SET", key, &value]);
            }
            connection.send()?;
            some.clone().try_for_each(|_| connection.done())?;
        }
        Ok(Box::new(server))
    }

    fn connect(&self, place: &Place<'_>) -> Result<Box<dyn Session>> {
        let connection = Connection::open_within(&socket(place), START_TIMEOUT)?;
        Ok(Box::new(Client { connection, depth: self.depth, counters: Counters::default() }))
    }
}

/// A server, which ends with this.
struct Running {
    child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server for Running {
    fn describe(&self) -> (String, Value) {
        let version = Command::new("redis-server").arg("--version").output();
        let version = version.map_or(String::new(), |output| {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        });
        let object = json!({ "host": "redis", "suite": "remote", "version": version });
        (format!("redis: {version}"), object)
    }

    fn cpu_ns(&self) -> Option<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        // After the name, which stands in parentheses, user and system time are 12th and 13th.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some((ticks(11)? + ticks(12)?) * TICK_NS)
    }
}

/// A connection that sends commands and reads replies of the protocol's second version.
struct Connection {
    stream: UnixStream,
    replies: BufReader<UnixStream>,
    out: Vec<u8>,
    line: Vec<u8>,
}

/// A reply.
enum Reply {
    Status,
    Number,
    Null,
    Bulk,
    Array(usize),
}

impl Connection {
    fn open_within(path: &Path, timeout: Duration) -> Result<Self> {
        let until = Instant::now() + timeout;
        loop {
            match UnixStream::connect(path) {
                Ok(stream) => {
                    let replies = BufReader::with_capacity(64 << 10, stream.try_clone()?);
                    return Ok(Self { stream, replies, out: Vec::new(), line: Vec::new() });
                }
                Err(error) if Instant::now() >= until => {
                    return Err(error).with_context(|| format!("cannot reach {}", path.display()));
                }
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Adds a command to those that are sent next.
    fn push(&mut self, words: &[&[u8]]) {
        // A vector takes every write.
        let _ = write!(self.out, "*{}\r\n", words.len());
        for word in words {
            let _ = write!(self.out, "${}\r\n", word.len());
            self.out.extend_from_slice(word);
            self.out.extend_from_slice(b"\r\n");
        }
    }

    fn send(&mut self) -> Result<()> {
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// Reads a reply; appends the bytes of a bulk to `bytes`.
    fn reply(&mut self, bytes: &mut Vec<u8>) -> Result<Reply> {
        self.line.clear();
        self.replies.read_until(b'\n', &mut self.line)?;
        let Some((kind, rest)) = self.line.split_first() else { bail!("redis has ended") };
        let text = std::str::from_utf8(rest)?.trim_end();
        Ok(match kind {
            b'+' => Reply::Status,
            b':' => Reply::Number,
            b'$' if text == "-1" => Reply::Null,
            b'$' => {
                let len: usize = text.parse()?;
                let begin = bytes.len();
                bytes.resize(begin + len + 2, 0);
                self.replies.read_exact(&mut bytes[begin..])?;
                bytes.truncate(begin + len);
                Reply::Bulk
            }
            b'*' => Reply::Array(text.parse()?),
            _ => bail!("redis says {text:?}"),
        })
    }

    /// Reads the reply to a write.
    fn done(&mut self) -> Result<()> {
        match self.reply(&mut Vec::new())? {
            Reply::Status | Reply::Number => Ok(()),
            _ => bail!("a value in reply to a write"),
        }
    }

    /// Reads the reply to a read; returns false if there was no such key.
    fn value(&mut self, bytes: &mut Vec<u8>) -> Result<bool> {
        match self.reply(bytes)? {
            Reply::Bulk => Ok(true),
            Reply::Null => Ok(false),
            _ => bail!("no value in reply to a read"),
        }
    }
}

struct Client {
    connection: Connection,
    depth: usize,
    counters: Counters,
}

impl Session for Client {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.counters.calls += 1;
        self.counters.trips += 1;
        self.connection.push(&[b"GET", key]);
        self.connection.send()?;
        self.connection.value(value)
    }

    fn multi_get(&mut self, keys: &[&[u8]], on_value: OnValue<'_>) -> Result<()> {
        self.counters.calls += keys.len() as u64;
        self.counters.trips += 1;
        let words: Vec<&[u8]> = [&b"MGET"[..]].into_iter().chain(keys.iter().copied()).collect();
        self.connection.push(&words);
        self.connection.send()?;
        let Reply::Array(count) = self.connection.reply(&mut Vec::new())? else {
            bail!("no array in reply to MGET")
        };
        ensure!(count == keys.len(), "{count} values in reply to {} keys", keys.len());
        let mut value = Vec::new();
        for index in 0..count {
            value.clear();
            let is_there = self.connection.value(&mut value)?;
            on_value(index, is_there.then_some(&value));
        }
        Ok(())
    }

    fn scan(&mut self, _from: &[u8], _limit: usize, _on_pair: OnPair<'_>) -> Result<()> {
        bail!("redis has no order of keys")
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.counters.trips += 1;
        self.connection.push(&[b"SET", key, value]);
        self.connection.send()?;
        self.connection.done()
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.connection.push(&[b"DEL", key]);
        self.connection.send()?;
        self.connection.done()
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn perform(&mut self, batch: &Batch, answers: &mut Answers) -> Result<()> {
        if self.depth == 1 || batch.workload == Workload::MultiGet {
            return perform_all(self, batch, answers);
        }
        for some in batch.operations.chunks(self.depth) {
            let start = Instant::now();
            for operation in some {
                let (key, kind) = (batch.key(operation), operation.kind);
                if matches!(kind, Kind::Read | Kind::ReadModifyWrite) {
                    self.connection.push(&[b"GET", key]);
                    self.counters.calls += 1;
                }
                if kind != Kind::Read {
                    self.connection.push(&[b"SET", key, batch.value(operation)]);
                }
            }
            self.connection.send()?;
            self.counters.trips += 1;
            for operation in some {
                if matches!(operation.kind, Kind::Read | Kind::ReadModifyWrite) {
                    let is_there = self.connection.value(&mut answers.bytes)?;
                    answers.ends.push(is_there.then_some(answers.bytes.len()));
                }
                if operation.kind != Kind::Read {
                    self.connection.done()?;
                }
            }
            answers.time(start);
        }
        Ok(())
    }

    fn answers_scans(&self) -> bool {
        false
    }
}
