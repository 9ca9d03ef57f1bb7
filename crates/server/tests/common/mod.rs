//! A small client for the tests: sends commands, reads replies of both versions of the protocol.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use rhumb_server::{Config, Running};

/// Bytes read at once from the server: those that a local socket usually holds.
const READ_BYTES: usize = 64 << 10;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Value {
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Null,
    NullArray,
    Double(String),
    Boolean(bool),
    BigNumber(String),
    Verbatim(String),
    Array(Vec<Value>),
    Map(Vec<Value>),
    Set(Vec<Value>),
    Push(Vec<Value>),
}

impl Value {
    /// A bulk string.
    pub(crate) fn bulk(text: impl AsRef<[u8]>) -> Self {
        Self::Bulk(text.as_ref().to_vec())
    }

    /// `+OK`.
    pub(crate) fn ok() -> Self {
        Self::Simple("OK".to_owned())
    }

    /// An array of bulk strings.
    pub(crate) fn bulks(texts: &[&str]) -> Self {
        Self::Array(texts.iter().map(Self::bulk).collect())
    }

    /// The bytes of a bulk string.
    #[track_caller]
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Simple(text) | Self::Error(text) | Self::Verbatim(text) => text.clone(),
            other => panic!("no text: {other:?}"),
        }
    }
}

/// What a client speaks through.
pub(crate) trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

/// A connection to a server.
pub(crate) struct Client {
    stream: Box<dyn Stream>,
    buffer: Vec<u8>,
    at: usize,
}

impl Client {
    /// Connects.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::over(Self::socket(address))
    }

    /// A connected socket.
    pub(crate) fn socket(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
        stream
    }

    /// A client that speaks through this.
    pub(crate) fn over(stream: impl Stream + 'static) -> Self {
        Self { stream: Box::new(stream), buffer: Vec::new(), at: 0 }
    }

    /// Returns true if bytes were read after the last reply.
    pub(crate) fn has_read_ahead(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Sends bytes as they are.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a command and reads its reply.
    #[track_caller]
    pub(crate) fn call(&mut self, words: &[&str]) -> Value {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.call_bytes(&words)
    }

    /// Sends a command and reads its reply.
    #[track_caller]
    pub(crate) fn call_bytes(&mut self, words: &[&[u8]]) -> Value {
        self.send_raw(&encode(words)).expect("the server reads");
        self.reply().expect("the server replies")
    }

    /// Sends a command that is written with spaces.
    #[track_caller]
    pub(crate) fn run(&mut self, line: &str) -> Value {
        self.call(&line.split(' ').collect::<Vec<_>>())
    }

    /// Reads a reply; none if the server has closed the connection.
    pub(crate) fn reply(&mut self) -> Option<Value> {
        let value = self.value()?;
        self.buffer.drain(..self.at);
        self.at = 0;
        Some(value)
    }

    /// Reads what has arrived to the end of the buffer.
    ///
    /// The space to read into is part of the buffer: on the stack it would be inlined into
    /// `value`, which calls itself once for each level of a nested reply.
    fn fill(&mut self) -> Option<()> {
        let held = self.buffer.len();
        self.buffer.resize(held + READ_BYTES, 0);
        let read = self.stream.read(&mut self.buffer[held..]).unwrap_or(0);
        self.buffer.truncate(held + read);
        (read > 0).then_some(())
    }

    fn line(&mut self) -> Option<String> {
        loop {
            let rest = &self.buffer[self.at..];
            if let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
                let line = String::from_utf8_lossy(&rest[..end]).into_owned();
                self.at += end + 2;
                return Some(line);
            }
            self.fill()?;
        }
    }

    fn bytes(&mut self, len: usize) -> Option<Vec<u8>> {
        while self.buffer.len() < self.at + len + 2 {
            self.fill()?;
        }
        let bytes = self.buffer[self.at..self.at + len].to_vec();
        self.at += len + 2;
        Some(bytes)
    }

    fn values(&mut self, len: usize) -> Option<Vec<Value>> {
        (0..len).map(|_| self.value()).collect()
    }

    fn value(&mut self) -> Option<Value> {
        let line = self.line()?;
        let (kind, rest) = line.split_at(1);
        let len = || rest.parse::<i64>().unwrap_or_else(|_| panic!("no length: {line:?}"));
        Some(match kind {
            "+" => Value::Simple(rest.to_owned()),
            "-" => Value::Error(rest.to_owned()),
            ":" => Value::Int(len()),
            "_" => Value::Null,
            "#" => Value::Boolean(rest == "t"),
            "(" => Value::BigNumber(rest.to_owned()),
            "," => Value::Double(rest.to_owned()),
            "$" if len() < 0 => Value::Null,
            "$" => Value::Bulk(self.bytes(len() as usize)?),
            "=" => Value::Verbatim(String::from_utf8_lossy(&self.bytes(len() as usize)?).into()),
            "*" if len() < 0 => Value::NullArray,
            "*" => Value::Array(self.values(len() as usize)?),
            "%" => Value::Map(self.values(2 * len() as usize)?),
            ">" => Value::Push(self.values(len() as usize)?),
            "~" => Value::Set(self.values(len() as usize)?),
            _ => panic!("no reply: {line:?}"),
        })
    }
}

/// A command's bytes.
pub(crate) fn encode(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Settings for a server of a test: any free port, data in a directory of its own.
pub(crate) fn config(dir: &tempfile::TempDir) -> Config {
    Config {
        data: dir.path().join("data"),
        listen: ([127, 0, 0, 1], 0).into(),
        memory_bytes: 32 << 20,
        threads: 2,
        ..Config::default()
    }
}

/// A server with its data, and a client of it.
pub(crate) fn start() -> (tempfile::TempDir, Running, Client) {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(config(&dir)).unwrap();
    let client = Client::connect(server.address());
    (dir, server, client)
}

/// What a page of the metrics' address says: the status and the body.
pub(crate) fn http(server: &Running, path: &str) -> (u16, String) {
    let mut stream = Client::socket(server.metrics_address().expect("metrics are served"));
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    (status.expect("a status"), body.expect("a body"))
}

/// Waits until `done`, which the server's background brings about.
#[track_caller]
pub(crate) fn wait_until(mut done: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("it does not happen");
}
