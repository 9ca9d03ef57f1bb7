//! A connection to another server: commands out, replies in, each within a time. Blocks its thread.

use std::{
    fmt,
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};

/// The most bytes of one reply that is read, a payload of `DUMP` among them: what a server takes
/// from a client, unless it is set to take more.
const REPLY_BYTES_MAX: usize = 512 << 20;

/// Arrays within arrays that are read.
const DEPTH_MAX: usize = 8;

/// Bytes that are kept at once for what is only announced.
const ROOM_AHEAD: usize = 64 << 10;

/// The longest line of a reply, in bytes.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Bytes that are read or written at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PeerReply {
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<PeerReply>),
}

/// Where a server is, and who asks.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct PeerAddress {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) user: Option<Vec<u8>>,
    pub(crate) password: Option<Vec<u8>>,
    pub(crate) database: u64,
}

impl fmt::Debug for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the password.
        write!(f, "redis://{}:{}/{}", self.host, self.port, self.database)
    }
}

/// Text of a URL without its percent signs.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digits = [bytes.next()?, bytes.next()?];
        out.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
    }
    Some(out)
}

impl PeerAddress {
    /// Reads `redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]`.
    pub(crate) fn parse(url: &str) -> Option<Self> {
        let rest = url.strip_prefix("redis://")?;
        let (login, rest) = match rest.rsplit_once('@') {
            Some((login, rest)) => (Some(login), rest),
            None => (None, rest),
        };
        let (user, password) = match login {
            None => (None, None),
            Some(login) => match login.split_once(':') {
                Some(("", password)) => (None, Some(unescape(password)?)),
                Some((user, password)) => (Some(unescape(user)?), Some(unescape(password)?)),
                None => (None, Some(unescape(login)?)),
            },
        };
        let (place, database) = match rest.split_once('/') {
            Some((place, "")) => (place, 0),
            Some((place, database)) => (place, database.parse().ok()?),
            None => (rest, 0),
        };
        let (host, port) = match place.rsplit_once(':') {
            // An IPv6 address in brackets has colons of its own.
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (place, 6379),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        (!host.is_empty()).then_some(Self { host, port, user, password, database })
    }
}

/// A connection.
pub(crate) struct Peer {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
    out: Vec<u8>,
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the server sends {what}"))
}

impl Peer {
    /// Connects. Connecting, and every read and write, ends after `timeout`.
    pub(crate) fn connect(host: &str, port: u16, timeout: Duration) -> io::Result<Self> {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (host, port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(stream) => return Self::over(stream, timeout),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    fn over(stream: TcpStream, timeout: Duration) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        let reader = BufReader::with_capacity(BUFFER_BYTES, stream.try_clone()?);
        Ok(Self { reader, writer: stream, out: Vec::new() })
    }

    /// Connects and says who asks.
    ///
    /// # Errors
    ///
    /// In words.
    pub(crate) fn open(address: &PeerAddress, timeout: Duration) -> Result<Self, String> {
        let PeerAddress { host, port, user, password, .. } = address;
        let mut peer = Self::connect(host, *port, timeout)
            .map_err(|error| format!("cannot connect to {host}:{port}: {error}"))?;
        if let Some(password) = password {
            let words = [Some(&b"AUTH"[..]), user.as_deref(), Some(password)];
            let words: Vec<&[u8]> = words.into_iter().flatten().collect();
            match peer.call(&words) {
                Ok(PeerReply::Error(text)) => {
                    return Err(format!("{host}:{port} refuses the password: {text}"));
                }
                Ok(_) => {}
                Err(error) => return Err(format!("{host}:{port}: {error}")),
            }
        }
        Ok(peer)
    }

    /// Adds a command to those that the next [`Peer::flush`] sends.
    pub(crate) fn push(&mut self, words: &[&[u8]]) {
        self.out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            self.out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            self.out.extend_from_slice(word);
            self.out.extend_from_slice(b"\r\n");
        }
    }

    /// Bytes that the next [`Peer::flush`] sends.
    pub(crate) fn pending(&self) -> usize {
        self.out.len()
    }

    /// Sends the commands.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.writer.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// Sends a command and reads its reply.
    pub(crate) fn call(&mut self, words: &[&[u8]]) -> io::Result<PeerReply> {
        self.push(words);
        self.flush()?;
        self.reply()
    }

    /// Changes how long a read waits.
    pub(crate) fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.writer.set_read_timeout(Some(timeout))
    }

    /// Adds commands as they are on the wire.
    pub(crate) fn push_raw(&mut self, commands: &[u8]) {
        self.out.extend_from_slice(commands);
    }

    /// What is read from, for bytes that are no replies.
    pub(crate) fn reader(&mut self) -> &mut BufReader<TcpStream> {
        &mut self.reader
    }

    /// A line without its end.
    pub(crate) fn line(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        self.reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if line.pop() != Some(b'\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(line)
    }

    /// Reads a reply.
    pub(crate) fn reply(&mut self) -> io::Result<PeerReply> {
        self.reply_within(DEPTH_MAX)
    }

    fn reply_within(&mut self, depth: usize) -> io::Result<PeerReply> {
        let line = self.line()?;
        let (kind, rest) = line.split_first().ok_or_else(|| wrong("an empty line"))?;
        let text = || String::from_utf8_lossy(rest).into_owned();
        let number = || text().parse::<i64>().map_err(|_| wrong("a length that is none"));
        Ok(match kind {
            b'+' => PeerReply::Simple(text()),
            b'-' => PeerReply::Error(text()),
            b':' => PeerReply::Int(number()?),
            b'$' => match usize::try_from(number()?) {
                Err(_) => PeerReply::Null,
                Ok(len) if len > REPLY_BYTES_MAX => return Err(wrong("a reply that is too long")),
                Ok(len) => PeerReply::Bulk(self.bulk(len)?),
            },
            b'*' => match usize::try_from(number()?) {
                Err(_) => PeerReply::Null,
                Ok(_) if depth == 0 => return Err(wrong("too many arrays within arrays")),
                Ok(len) => {
                    let mut all = Vec::with_capacity(len.min(1024));
                    for _ in 0..len {
                        all.push(self.reply_within(depth - 1)?);
                    }
                    PeerReply::Array(all)
                }
            },
            _ => return Err(wrong("what is no reply")),
        })
    }

    fn bulk(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity((len + 2).min(ROOM_AHEAD));
        self.reader.by_ref().take(len as u64 + 2).read_to_end(&mut bytes)?;
        if bytes.len() != len + 2 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.truncate(len);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let parse = PeerAddress::parse;
        let plain = parse("redis://example.org").unwrap();
        assert_eq!((&*plain.host, plain.port, plain.database), ("example.org", 6379, 0));
        let full = parse("redis://user:p%40ss@host:7000/3").unwrap();
        assert_eq!((full.user, full.password), (Some(b"user".to_vec()), Some(b"p@ss".to_vec())));
        assert_eq!((&*full.host, full.port, full.database), ("host", 7000, 3));
        let password = parse("redis://:secret@[::1]:7000").unwrap();
        assert_eq!((&*password.host, password.port), ("::1", 7000));
        assert_eq!(password.user, None);
        assert_eq!(parse("redis://[::1]").unwrap().port, 6379);
        for wrong in ["http://x", "redis://", "redis://h:port", "redis://h/x", "redis://a%4@h"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert!(!format!("{password:?}").contains("secret"));
    }
}
