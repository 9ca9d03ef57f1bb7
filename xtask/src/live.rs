//! A server that tasks start, kill and start again on the same data, and its clients, which speak
//! RESP2 and nothing more.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

/// How long a server may take to start on its data. Debug builds on a busy machine take seconds.
const START_TIME: Duration = Duration::from_secs(60);

/// The longest wait of a client for a reply.
const REPLY_TIME: Duration = Duration::from_secs(30);

/// Arrays may lie in each other as deep as this; no reply that tasks ask for does.
const DEPTH_MAX: u32 = 32;

/// What is started.
#[derive(Clone, Debug)]
pub(crate) enum Program {
    /// `rhumb serve` of this binary.
    Rhumb(PathBuf),
    /// `redis-server`, found by its name.
    Redis,
}

/// A server and its data; it is killed with this value.
pub(crate) struct Live {
    program: Program,
    options: Vec<String>,
    process: Child,
    port: u16,
    dir: tempfile::TempDir,
}

impl Live {
    /// Starts a server with a directory of its own, and waits until clients can come.
    ///
    /// # Errors
    /// If it does not start.
    pub(crate) fn start(program: &Program, options: &[&str]) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let process = spawn(program, &options, dir.path(), port)?;
        let mut live = Self { program: program.clone(), options, process, port, dir };
        live.wait()?;
        Ok(live)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Sends SIGKILL, and waits until the process is gone.
    ///
    /// # Errors
    /// If the process had ended by itself: nothing but this ends it.
    pub(crate) fn kill(&mut self) -> Result<()> {
        if let Some(status) = self.process.try_wait()? {
            bail!("the server ended by itself: {status}");
        }
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    /// Starts the server again, at the same port and on the same data.
    ///
    /// # Errors
    /// If it does not start.
    pub(crate) fn start_again(&mut self) -> Result<()> {
        self.process = spawn(&self.program, &self.options, self.dir.path(), self.port)?;
        self.wait()
    }

    /// Waits until the server answers, and has loaded its data.
    fn wait(&mut self) -> Result<()> {
        let until = Instant::now() + START_TIME;
        loop {
            let answer = Client::connect(self.address()).and_then(|mut one| one.call(&["PING"]));
            if matches!(answer, Ok(Value::Text(text)) if text == b"PONG") {
                return Ok(());
            }
            if let Some(status) = self.process.try_wait()? {
                bail!("the server ended while it started: {status}");
            }
            ensure!(Instant::now() < until, "no server answers at port {}", self.port);
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// A figure of the process, such as `VmRSS` in KiB or `Threads`.
    ///
    /// # Errors
    /// If the process is gone.
    pub(crate) fn figure(&self, name: &str) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let found = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let figure = found.and_then(|rest| rest.split_whitespace().next()).context("no figure")?;
        Ok(figure.parse()?)
    }

    /// The time that all its threads have run, in milliseconds.
    ///
    /// # Errors
    /// If the process is gone.
    pub(crate) fn cpu_ms(&self) -> Result<u64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id()))?;
        // After the name, which may hold spaces: the state, then the numbers from the fourth on.
        let (_, rest) = stat.rsplit_once(')').context("a name")?;
        let times = rest.split_whitespace().skip(11).take(2);
        let ticks: u64 = times.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
        // A hundred a second, as Linux tells programs whatever it counts itself.
        Ok(ticks * 10)
    }

    /// The bytes of all files of its data.
    pub(crate) fn data_bytes(&self) -> u64 {
        bytes_in(self.dir.path())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(program: &Program, options: &[String], dir: &Path, port: u16) -> Result<Child> {
    let mut command = match program {
        Program::Rhumb(binary) => {
            let mut command = Command::new(binary);
            command.args(["serve", "--log-level", "error", "--listen"]);
            command.arg(format!("127.0.0.1:{port}")).arg("--data").arg(dir.join("data"));
            command
        }
        Program::Redis => {
            let mut command = Command::new("redis-server");
            command.args(["--save", "", "--port", &port.to_string(), "--dir"]).arg(dir);
            command
        }
    };
    let name = command.get_program().to_string_lossy().into_owned();
    command.args(options).stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().with_context(|| format!("cannot start {name}"))
}

/// Files that go while this counts are not counted.
fn bytes_in(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let bytes = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_in(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.flatten().map(bytes).sum()
}

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Int(i64),
    /// A bulk or a simple string.
    Text(Vec<u8>),
    Error(String),
    Array(Vec<Value>),
}

impl Value {
    /// The text, or none if this is something else.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Self::Text(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        }
    }

    /// The elements; none if this is no array.
    pub(crate) fn elements(&self) -> &[Self] {
        match self {
            Self::Array(elements) => elements,
            _ => &[],
        }
    }

    /// The number.
    ///
    /// # Errors
    /// If this is something else.
    pub(crate) fn int(&self) -> Result<i64> {
        match self {
            Self::Int(number) => Ok(*number),
            other => bail!("{other:?} is no number"),
        }
    }
}

/// A connection.
pub(crate) struct Client {
    socket: BufReader<TcpStream>,
}

impl Client {
    /// # Errors
    /// If nobody listens.
    pub(crate) fn connect(address: SocketAddr) -> Result<Self> {
        let socket = TcpStream::connect_timeout(&address, REPLY_TIME)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(REPLY_TIME))?;
        Ok(Self { socket: BufReader::new(socket) })
    }

    /// The socket, for what is no command.
    pub(crate) fn socket(&mut self) -> &mut TcpStream {
        self.socket.get_mut()
    }

    /// Sends one command.
    ///
    /// # Errors
    /// If the connection is gone.
    pub(crate) fn send<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Result<()> {
        let mut bytes = Vec::new();
        put(&mut bytes, arguments);
        Ok(self.socket.get_mut().write_all(&bytes)?)
    }

    /// Reads replies that must be these bytes.
    ///
    /// # Errors
    /// If the connection is gone, or others come.
    pub(crate) fn expect(&mut self, replies: &[u8]) -> Result<()> {
        let mut bytes = vec![0; replies.len()];
        self.socket.read_exact(&mut bytes)?;
        ensure!(
            bytes == replies,
            "other replies than expected: {}",
            String::from_utf8_lossy(&bytes)
        );
        Ok(())
    }

    /// The next reply; errors of the server are values.
    ///
    /// # Errors
    /// If the connection is gone, or what comes is no reply.
    pub(crate) fn receive(&mut self) -> Result<Value> {
        self.receive_at(DEPTH_MAX)
    }

    fn receive_at(&mut self, depth: u32) -> Result<Value> {
        let mut line = String::new();
        ensure!(self.socket.read_line(&mut line)? > 0, "the connection was closed");
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).context("an empty line")?;
        Ok(match kind {
            "+" => Value::Text(rest.as_bytes().to_vec()),
            "-" => Value::Error(rest.to_owned()),
            ":" => Value::Int(rest.parse()?),
            "$" => match rest.parse::<i64>()? {
                len if len < 0 => Value::Null,
                len => {
                    let mut bytes = vec![0; usize::try_from(len)? + 2];
                    self.socket.read_exact(&mut bytes)?;
                    bytes.truncate(bytes.len() - 2);
                    Value::Text(bytes)
                }
            },
            "*" => match rest.parse::<i64>()? {
                len if len < 0 => Value::Null,
                len => {
                    ensure!(depth > 0, "arrays lie in each other too deep");
                    Value::Array(
                        (0..len).map(|_| self.receive_at(depth - 1)).collect::<Result<_>>()?,
                    )
                }
            },
            _ => bail!("{line:?} is no reply"),
        })
    }

    /// Sends a command; its reply.
    ///
    /// # Errors
    /// If the connection is gone.
    pub(crate) fn call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Result<Value> {
        self.send(arguments)?;
        self.receive()
    }

    /// A number of `INFO`.
    ///
    /// # Errors
    /// If it is not there.
    pub(crate) fn info(&mut self, name: &str) -> Result<u64> {
        self.info_of("everything", name)
    }

    /// As [`Client::info`], of one section.
    ///
    /// # Errors
    /// If it is not there.
    pub(crate) fn info_of(&mut self, section: &str, name: &str) -> Result<u64> {
        let text = self.call(&["INFO", section])?.text().context("INFO")?;
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        found.and_then(|figure| figure.trim().parse().ok()).with_context(|| name.to_owned())
    }
}

/// Adds one command to `bytes`.
pub(crate) fn put<A: AsRef<[u8]>>(bytes: &mut Vec<u8>, arguments: &[A]) {
    bytes.extend_from_slice(format!("*{}\r\n", arguments.len()).as_bytes());
    for argument in arguments.iter().map(AsRef::as_ref) {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
}

/// Numbers that look random, the same for the same seed (xorshift).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 8) % end
    }
}
