//! Which of several hosts has which keys.

use std::{fmt, path::Path, sync::Arc};

use super::super::Address;
use crate::{
    error::{Error, Result},
    message::format::{ITEMS_MAX, KEY_BYTES_MAX, SERVER_BYTES_MAX},
    ranges::KeyRange,
};

/// The most bytes of a table's file: more than the longest table whose keys are a line each, and
/// little enough to be read at once.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Which host has which keys of a keyspace: every key belongs to one range, and every range to one
/// host. Cloning gives another handle of the same table.
///
/// A table has an epoch, which its successor's is above: clients and hosts keep the one with the
/// higher epoch. It is one number for the whole table, so that nobody mixes the parts of two.
///
/// A file of a table is text:
///
/// ```text
/// # The first line that is no comment is the epoch.
/// epoch 3
/// # Then the ranges in the order of their keys: the first key of each, and its host. The first
/// # range begins at the empty key. A range ends where the next one begins.
/// from "" unix:/run/a.sock
/// from "n" tcp:db2.example:7000
/// # Bytes that are no text are escaped. A host may have several ranges.
/// from "\xff\x00" unix:/run/a.sock
/// ```
///
/// Keys stand in quotes, with the escapes `\"`, `\\`, `\n`, `\r`, `\t` and `\xHH`. An address
/// stands in quotes too if it has spaces.
///
/// ```
/// # fn main() -> rhumb_remote::Result<()> {
/// use rhumb_remote::RoutingTable;
///
/// let a = "unix:/run/a.sock".parse()?;
/// let b = "tcp:db2.example:7000".parse()?;
/// let table = RoutingTable::new(1, [("", a), ("n", b)])?;
/// assert_eq!(table.server_of("ada").to_string(), "unix:/run/a.sock");
/// assert_eq!(table.server_of("noether").to_string(), "tcp:db2.example:7000");
/// assert_eq!(RoutingTable::parse(&table.to_string())?, table);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct RoutingTable {
    inner: Arc<TableInner>,
}

#[derive(PartialEq, Eq)]
struct TableInner {
    epoch: u64,
    /// The first key of each range, ascending; that of the first is empty.
    lows: Vec<Vec<u8>>,
    /// The host of each range, as an index of `servers`.
    server_indexes: Vec<u32>,
    /// Each host once.
    servers: Vec<Address>,
}

impl RoutingTable {
    /// A table of ranges, each given by its first key and its host, in the order of the keys. The
    /// first key of the first range is empty.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for the epoch 0, for keys that do not ascend from the empty one,
    /// for more than 65,536 ranges, for a key longer than 65,535 bytes, and for an address that is
    /// no text or longer than 1,024 bytes.
    pub fn new<K: AsRef<[u8]>>(
        epoch: u64,
        ranges: impl IntoIterator<Item = (K, Address)>,
    ) -> Result<Self> {
        let wrong = |what: String| Err(Error::InvalidArgument(format!("a table {what}").into()));
        let mut table = TableInner { epoch, lows: vec![], server_indexes: vec![], servers: vec![] };
        let mut known = std::collections::HashMap::new();
        for (low, server) in ranges {
            let low = low.as_ref();
            match table.lows.last() {
                None if !low.is_empty() => {
                    let first = low.escape_ascii();
                    return wrong(format!(
                        "that begins at \"{first}\", so that lower keys have no host"
                    ));
                }
                Some(last) if **last >= *low => {
                    let (low, last) = (low.escape_ascii(), last.escape_ascii());
                    return wrong(format!("in which \"{low}\" follows \"{last}\": keys ascend"));
                }
                _ if table.lows.len() == ITEMS_MAX => {
                    return wrong(format!("of more than {ITEMS_MAX} ranges"));
                }
                _ if low.len() > KEY_BYTES_MAX => {
                    return wrong(format!("with a key of {} bytes", low.len()));
                }
                _ => {}
            }
            let index = match known.get(&server) {
                Some(index) => *index,
                None => {
                    let text = server.to_string();
                    let is_read_back = text.parse::<Address>().is_ok_and(|parsed| parsed == server);
                    if text.len() > SERVER_BYTES_MAX || !is_read_back {
                        return wrong(format!("with an address that is no text: {text:?}"));
                    }
                    let index = table.servers.len() as u32;
                    table.servers.push(server.clone());
                    known.insert(server, index);
                    index
                }
            };
            table.lows.push(low.to_vec());
            table.server_indexes.push(index);
        }
        match () {
            () if epoch == 0 => wrong("of epoch 0: the first is 1".into()),
            () if table.lows.is_empty() => wrong("without a range".into()),
            () => Ok(Self { inner: Arc::new(table) }),
        }
    }

    /// Reads the text of a table.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] that names the line, and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self> {
        let lines = text.lines().map(str::trim).zip(1..);
        let mut lines = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
        let wrong =
            |what: String| Error::InvalidArgument(format!("a routing table: {what}").into());
        let epoch =
            lines.next().and_then(|(line, _)| line.strip_prefix("epoch ")?.trim().parse().ok());
        let epoch = epoch.ok_or_else(|| wrong("it begins with `epoch` and a number".into()))?;
        let range = |(line, number): (&str, u32)| {
            parse_range(line).map_err(|what| wrong(format!("line {number}: {what}")))
        };
        Self::new(epoch, lines.map(range).collect::<Result<Vec<_>>>()?)
    }

    /// Reads a table from a file.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if it cannot be read; otherwise as [`RoutingTable::parse`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        use std::io::Read as _;
        let path = path.as_ref();
        let io = |error| Error::io(format!("read the routing table {}", path.display()), error);
        let file = std::fs::File::open(path).map_err(io)?;
        let mut text = String::new();
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(io)?;
        let named =
            |what: String| Error::InvalidArgument(format!("{}: {what}", path.display()).into());
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(named(format!("a file of more than {FILE_BYTES_MAX} bytes")));
        }
        Self::parse(&text).map_err(|error| named(error.to_string()))
    }

    /// The table's epoch, from 1 on.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.inner.epoch
    }

    /// Number of ranges.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "every key belongs to a range")]
    pub fn len(&self) -> usize {
        self.inner.lows.len()
    }

    /// The hosts, each once, in the order of their first ranges.
    #[must_use]
    pub fn servers(&self) -> &[Address] {
        &self.inner.servers
    }

    /// The ranges in the order of their keys: the first key, the end if there is one, and the host.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = (&[u8], Option<&[u8]>, &Address)> {
        (0..self.len()).map(|range| (self.low(range), self.high(range), self.server(range)))
    }

    /// The host of a key. O(log ranges).
    #[must_use]
    pub fn server_of(&self, key: impl AsRef<[u8]>) -> &Address {
        self.server(self.range_of(key.as_ref()))
    }

    /// The index of the range that has a key.
    #[inline]
    pub(super) fn range_of(&self, key: &[u8]) -> usize {
        self.inner.lows.partition_point(|low| **low <= *key).max(1) - 1
    }

    /// The index of the range that has the keys right below one; the last range for the end of all
    /// keys.
    pub(super) fn range_below(&self, key: Option<&[u8]>) -> usize {
        let lows = &self.inner.lows;
        key.map_or(lows.len(), |key| lows.partition_point(|low| **low < *key)).max(1) - 1
    }

    fn low(&self, range: usize) -> &[u8] {
        &self.inner.lows[range]
    }

    fn high(&self, range: usize) -> Option<&[u8]> {
        self.inner.lows.get(range + 1).map(Vec::as_slice)
    }

    /// The keys of a range, by its index.
    pub(super) fn keys(&self, range: usize) -> KeyRange {
        KeyRange::new(self.low(range), self.high(range))
    }

    /// The host of a range, as an index of [`RoutingTable::servers`].
    #[inline]
    pub(super) fn server_index(&self, range: usize) -> usize {
        self.inner.server_indexes[range] as usize
    }

    /// The host of a range, by its index.
    pub(super) fn server(&self, range: usize) -> &Address {
        &self.inner.servers[self.server_index(range)]
    }
}

/// A line of a file: the first key of a range, and its host.
fn parse_range(line: &str) -> Result<(Vec<u8>, Address), String> {
    let rest = line.strip_prefix("from ").map(str::trim_start);
    let rest = rest.filter(|rest| rest.starts_with('"'));
    let rest = rest.ok_or("a range is `from`, a key in quotes, and an address")?;
    let (low, rest) = unquoted(rest)?;
    let rest = rest.trim_start();
    let server = if rest.starts_with('"') {
        let (server, rest) = unquoted(rest)?;
        if !rest.is_empty() {
            return Err(format!("{rest:?} after the address"));
        }
        String::from_utf8(server).map_err(|error| format!("an address: {error}"))?
    } else if rest.contains(char::is_whitespace) || rest.is_empty() {
        return Err(format!("{rest:?} is no address: with spaces it stands in quotes"));
    } else {
        rest.to_owned()
    };
    let server = server.parse().map_err(|error: Error| error.to_string())?;
    Ok((low, server))
}

/// The bytes of the quoted text that `text` begins with, and what follows it.
fn unquoted(text: &str) -> Result<(Vec<u8>, &str), String> {
    let mut bytes = Vec::new();
    let mut rest = text.strip_prefix('"').unwrap_or(text);
    loop {
        let end = rest.find(['"', '\\']).ok_or("a quote without its end")?;
        bytes.extend_from_slice(&rest.as_bytes()[..end]);
        if rest.as_bytes()[end] == b'"' {
            return Ok((bytes, &rest[end + 1..]));
        }
        rest = &rest[end + 1..];
        let hex = |digits: &str| {
            let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)
        };
        let (byte, len) = match rest.as_bytes().first() {
            Some(b'n') => (Some(b'\n'), 1),
            Some(b'r') => (Some(b'\r'), 1),
            Some(b't') => (Some(b'\t'), 1),
            Some(byte @ (b'"' | b'\\' | b'\'')) => (Some(*byte), 1),
            Some(b'x') => (rest.get(1..3).and_then(hex), 3),
            _ => (None, 0),
        };
        bytes.push(byte.ok_or_else(|| format!("no escape is \"\\{}\"", rest.escape_debug()))?);
        rest = &rest[len..];
    }
}

/// The table as the text of its file.
impl fmt::Display for RoutingTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "epoch {}", self.epoch())?;
        for (low, _, server) in self.ranges() {
            let server = server.to_string();
            write!(f, "from \"{}\" ", low.escape_ascii())?;
            if server.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"') {
                writeln!(f, "{server}")?;
            } else {
                writeln!(f, "\"{}\"", server.as_bytes().escape_ascii())?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for RoutingTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("RoutingTable");
        debug.field("epoch", &self.epoch()).field("ranges", &self.len());
        debug.field("servers", &self.servers()).finish_non_exhaustive()
    }
}
