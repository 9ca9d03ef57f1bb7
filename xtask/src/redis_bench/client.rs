//! A client of the load generator: requests in one buffer, replies checked as they lie in another.
//!
//! One thread serves all clients in turn: while it reads one client's replies, the requests of the
//! others are with the server. So the generator asks the system for nothing but reads and writes.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use super::figures::Figures;

/// How long a server may keep a client waiting.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;

/// A connection and what it has received.
pub(super) struct Client {
    socket: TcpStream,
    requests: Vec<u8>,
    /// Bytes that were received, up to `filled`, and room for more.
    received: Vec<u8>,
    filled: usize,
    /// How many of the received bytes were taken.
    taken: usize,
}

/// Appends a request of these words.
pub(super) fn push_words(out: &mut Vec<u8>, words: &[&[u8]]) {
    push_head(out, b'*', words.len());
    for word in words {
        push_head(out, b'$', word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

fn push_head(out: &mut Vec<u8>, kind: u8, len: usize) {
    out.push(kind);
    push_number(out, len as u64);
    out.extend_from_slice(b"\r\n");
}

/// Appends the digits of a number.
pub(super) fn push_number(out: &mut Vec<u8>, number: u64) {
    let (mut digits, mut at, mut left) = ([0; 20], 20, number);
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// The digits of a number.
pub(super) fn digits(number: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(20);
    push_number(&mut out, number);
    out
}

/// Reads a number.
pub(super) fn number(text: &[u8]) -> Result<u64> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.with_context(|| format!("no number: {}", String::from_utf8_lossy(text)))
}

impl Client {
    /// Connects to a server of this machine.
    pub(super) fn connect(port: u16) -> Result<Self> {
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        let received = vec![0; READ_BYTES];
        Ok(Self { socket, requests: Vec::new(), received, filled: 0, taken: 0 })
    }

    /// Where requests are appended.
    pub(super) fn requests(&mut self) -> &mut Vec<u8> {
        &mut self.requests
    }

    /// Appends a request.
    pub(super) fn push(&mut self, words: &[&[u8]]) {
        push_words(&mut self.requests, words);
    }

    /// Sends the requests.
    pub(super) fn send(&mut self) -> Result<()> {
        self.socket.write_all(&self.requests)?;
        self.requests.clear();
        Ok(())
    }

    /// Sends a request whose reply is read next.
    pub(super) fn call(&mut self, words: &[&[u8]]) -> Result<()> {
        self.push(words);
        self.send()
    }

    fn fill(&mut self) -> Result<()> {
        self.received.copy_within(self.taken..self.filled, 0);
        (self.filled, self.taken) = (self.filled - self.taken, 0);
        if self.filled == self.received.len() {
            self.received.resize(2 * self.filled, 0);
        }
        let read = self.socket.read(&mut self.received[self.filled..]).context("a reply")?;
        self.filled += read;
        ensure!(read > 0, "the server has closed a connection");
        Ok(())
    }

    /// The next bytes, of this number.
    fn bytes(&mut self, len: usize) -> Result<&[u8]> {
        while self.filled - self.taken < len {
            self.fill()?;
        }
        self.taken += len;
        Ok(&self.received[self.taken - len..self.taken])
    }

    /// The next line, without its end.
    pub(super) fn line(&mut self) -> Result<&[u8]> {
        let mut from = self.taken;
        loop {
            if let Some(at) =
                self.received[from..self.filled].iter().position(|byte| *byte == b'\n')
            {
                let (begin, end) = (self.taken, from + at);
                self.taken = end + 1;
                return Ok(self.received[begin..end].trim_ascii_end());
            }
            from = self.filled - self.taken;
            self.fill()?;
        }
    }

    fn head(&mut self, kind: u8) -> Result<u64> {
        let line = self.line()?;
        ensure!(
            line.first() == Some(&kind),
            "{} in the place of {}",
            String::from_utf8_lossy(line),
            char::from(kind)
        );
        number(&line[1..])
    }

    /// The integer that the server replies.
    pub(super) fn int(&mut self) -> Result<u64> {
        self.head(b':')
    }

    /// The length of the array that the server replies.
    pub(super) fn array(&mut self) -> Result<u64> {
        self.head(b'*')
    }

    /// The string that the server replies.
    pub(super) fn bulk(&mut self) -> Result<&[u8]> {
        let len = usize::try_from(self.head(b'$')?)?;
        let bytes = self.bytes(len + 2)?;
        Ok(&bytes[..len])
    }

    /// Reads `OK`.
    pub(super) fn ok(&mut self) -> Result<()> {
        let line = self.line()?;
        ensure!(line == b"+OK", "{} in the place of OK", String::from_utf8_lossy(line));
        Ok(())
    }

    /// Reads bytes that are known.
    pub(super) fn expect(&mut self, wanted: &[u8]) -> Result<()> {
        let got = self.bytes(wanted.len())?;
        if got != wanted {
            let (got, wanted) = (String::from_utf8_lossy(got), String::from_utf8_lossy(wanted));
            bail!("the server said {got:?} in the place of {wanted:?}");
        }
        Ok(())
    }
}

/// What the clients of a workload ask for, and what they must be told.
pub(super) trait Load {
    /// Appends the next request of a client.
    fn ask(&mut self, client: usize, out: &mut Vec<u8>);

    /// Reads the reply to the first request of a client that was not replied to.
    fn check(&mut self, client: usize, replies: &mut Client) -> Result<()>;
}

/// Has clients ask for `requests` together, each for `pipeline` before it reads; returns
/// the figures of them.
pub(super) fn drive(
    port: u16,
    (clients, pipeline, requests): (usize, usize, u64),
    load: &mut impl Load,
) -> Result<Figures> {
    let mut all: Vec<Client> =
        (0..clients).map(|_| Client::connect(port)).collect::<Result<_>>()?;
    let rounds = (requests / (clients * pipeline) as u64).max(1);
    let began = Instant::now();
    for round in 0..=rounds {
        for (at, client) in all.iter_mut().enumerate() {
            if round > 0 {
                for _ in 0..pipeline {
                    load.check(at, client)?;
                }
            }
            if round < rounds {
                for _ in 0..pipeline {
                    load.ask(at, &mut client.requests);
                }
                client.send()?;
            }
        }
    }
    let asked = rounds * (clients * pipeline) as u64;
    Ok(Figures::rate(asked, asked as f64 / began.elapsed().as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_their_bytes() {
        let mut out = Vec::new();
        push_words(&mut out, &[b"GET", b"a-long-key"]);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$10\r\na-long-key\r\n");
        assert_eq!(digits(0), b"0");
        assert_eq!(digits(u64::MAX), b"18446744073709551615");
    }

    #[test]
    fn replies_are_read_as_they_come() {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            for byte in b"*2\r\n:12\r\n$3\r\na\nb\r\n+OK\r\n-ERR no\r\n" {
                socket.write_all(&[*byte]).unwrap();
            }
        });
        let mut client = Client::connect(port).unwrap();
        assert_eq!(client.array().unwrap(), 2);
        assert_eq!(client.int().unwrap(), 12);
        assert_eq!(client.bulk().unwrap(), b"a\nb");
        client.ok().unwrap();
        assert!(client.int().is_err());
        server.join().unwrap();
    }
}
