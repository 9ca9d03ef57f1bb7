//! A database of Redis clients, as other processes read it: its strings, and none that has expired.
//!
//! The server keeps an entry for each key: a byte with the type, whose high bit says that eight
//! bytes with a time follow, and then the string (`docs/format/server.md`).

use std::{
    ops::RangeBounds,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{Client, Keyspace, Range};
use crate::error::{Error, Result};

/// In an entry's first byte: a time of expiry follows.
const FLAG_EXPIRES: u8 = 0x80;
/// In an entry's first byte: the type.
const KIND_MASK: u8 = 0x0f;
/// The types, by their numbers.
const KINDS: [&str; 5] = ["a string", "a hash", "a sorted set", "a list", "a set"];

impl Client {
    /// The strings of a database of Redis clients, for a server that shares it under its name:
    /// `rhumb serve --share db0` for database 0.
    ///
    /// ```no_run
    /// # fn main() -> rhumb_remote::Result<()> {
    /// let client = rhumb_remote::Client::connect("rhumb-data.sock")?;
    /// let strings = client.strings(0)?;
    /// if let Some(greeting) = strings.get("greeting")? {
    ///     println!("{}", greeting.escape_ascii());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Client::keyspace`].
    pub fn strings(&self, database: u8) -> Result<Strings> {
        Ok(Strings { keyspace: self.keyspace(format!("db{database}"))? })
    }
}

/// The strings of a database of Redis clients, to be read. What has expired is not there; what is
/// of another type is an error where it is asked for, and passed over by ranges. Redis clients
/// write to it.
#[derive(Clone, Debug)]
pub struct Strings {
    keyspace: Keyspace,
}

/// What an entry says of a key, and where its string begins.
#[derive(Debug, PartialEq, Eq)]
enum StringEntry {
    String { begin: usize, expires_ms: u64 },
    Expired,
    Other(&'static str),
}

impl StringEntry {
    fn read(bytes: &[u8], now_ms: u64) -> Result<Self> {
        let damaged = || Error::invalid("an entry that is none of the server's");
        let first = *bytes.first().ok_or_else(damaged)?;
        let kind = *KINDS.get(usize::from(first & KIND_MASK)).ok_or_else(damaged)?;
        let (mut begin, mut expires_ms) = (1, 0);
        if first & FLAG_EXPIRES != 0 {
            let time = bytes.get(1..).and_then(<[u8]>::first_chunk).ok_or_else(damaged)?;
            (begin, expires_ms) = (9, u64::from_le_bytes(*time));
        }
        // planted: expired-read-had-not
        Ok(if expires_ms != 0 && expires_ms <= now_ms {
            Self::Expired
        } else if kind == KINDS[0] {
            Self::String { begin, expires_ms }
        } else {
            Self::Other(kind)
        })
    }
}

/// Milliseconds since 1970, as the server counts them.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn other(key: &[u8], kind: &str) -> Error {
    let what = format!("the key \"{}\" holds {kind}, not a string", key.escape_ascii());
    Error::InvalidArgument(what.into())
}

impl Strings {
    /// The keyspace itself, with its entries as the server keeps them.
    #[must_use]
    pub fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    /// The string of `key`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if the key holds something else than a string; otherwise as
    /// [`Keyspace::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// Appends the string of `key` to `value`; returns false if there is none. Allocates nothing
    /// where `value` has room for nine bytes more than the string, and no call is needed.
    ///
    /// # Errors
    ///
    /// As [`Strings::get`].
    pub fn get_into(&self, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> {
        let (key, begin) = (key.as_ref(), value.len());
        if !self.keyspace.get_into(key, value)? {
            return Ok(false);
        }
        let entry = StringEntry::read(&value[begin..], now_ms());
        if let Ok(StringEntry::String { begin: head, .. }) = &entry {
            value.drain(begin..begin + head);
            return Ok(true);
        }
        value.truncate(begin);
        match entry? {
            StringEntry::Other(kind) => Err(other(key, kind)),
            _ => Ok(false),
        }
    }

    /// The strings of several keys, in their order; none for a key that holds something else, as
    /// `MGET` answers. Several times as fast as one by one.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        let now_ms = now_ms();
        let entries = self.keyspace.multi_get(keys)?;
        let string = |entry: Option<Vec<u8>>| entry.map_or(Ok(None), |e| string_of(e, now_ms));
        entries.into_iter().map(string).collect()
    }

    /// The time until `key` expires; `None` if it does not, or is not there.
    ///
    /// # Errors
    ///
    /// As [`Strings::get`].
    pub fn expires_in(&self, key: impl AsRef<[u8]>) -> Result<Option<Duration>> {
        let key = key.as_ref();
        let Some(entry) = self.keyspace.get(key)? else { return Ok(None) };
        let now_ms = now_ms();
        match StringEntry::read(&entry, now_ms)? {
            StringEntry::Other(kind) => Err(other(key, kind)),
            StringEntry::String { expires_ms, .. } if expires_ms != 0 => {
                Ok(Some(Duration::from_millis(expires_ms - now_ms)))
            }
            _ => Ok(None),
        }
    }

    /// The keys of a range with their strings, from both ends.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> StringRange {
        StringRange { entries: self.keyspace.range(range) }
    }

    /// All keys that hold strings, with their strings.
    pub fn iter(&self) -> StringRange {
        StringRange { entries: self.keyspace.iter() }
    }

    /// The keys that begin with `prefix`, with their strings.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> StringRange {
        StringRange { entries: self.keyspace.prefix(prefix) }
    }
}

/// The string of an entry, if it holds one that has not expired.
fn string_of(mut entry: Vec<u8>, now_ms: u64) -> Result<Option<Vec<u8>>> {
    Ok(match StringEntry::read(&entry, now_ms)? {
        StringEntry::String { begin, .. } => {
            entry.drain(..begin);
            Some(entry)
        }
        _ => None,
    })
}

/// Keys of a range with their strings.
#[derive(Debug)]
pub struct StringRange {
    entries: Range,
}

impl StringRange {
    fn item(
        &mut self,
        next: impl Fn(&mut Range) -> Option<Result<(Vec<u8>, Vec<u8>)>>,
    ) -> Option<Result<(Vec<u8>, Vec<u8>)>> {
        loop {
            let (key, entry) = match next(&mut self.entries)? {
                Ok(pair) => pair,
                Err(error) => return Some(Err(error)),
            };
            match string_of(entry, now_ms()) {
                Ok(None) => {}
                Ok(Some(string)) => return Some(Ok((key, string))),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl Iterator for StringRange {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.item(Range::next)
    }
}

impl DoubleEndedIterator for StringRange {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.item(Range::next_back)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that the server's own tests have for these entries.
    #[test]
    fn entries_are_read_as_the_server_writes_them() {
        let read = |bytes: &[u8], now_ms| StringEntry::read(bytes, now_ms);
        assert_eq!(read(&[0, b'a'], 9).unwrap(), StringEntry::String { begin: 1, expires_ms: 0 });
        let expires = [0x80, 2, 1, 0, 0, 0, 0, 0, 0];
        let string = StringEntry::String { begin: 9, expires_ms: 0x0102 };
        assert_eq!(read(&expires, 0x0101).unwrap(), string);
        assert_eq!(read(&expires, 0x0102).unwrap(), StringEntry::Expired);
        assert_eq!(read(&[1, 7], 0).unwrap(), StringEntry::Other("a hash"));
        assert_eq!(read(&[3, 7], 0).unwrap(), StringEntry::Other("a list"));
        for damaged in [&[][..], &[9], &[0x80, 1, 2]] {
            assert!(matches!(read(damaged, 0), Err(Error::Invalid(_))));
        }
    }
}
