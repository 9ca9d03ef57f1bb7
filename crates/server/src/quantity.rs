//! How sizes, counts and addresses are written, on the command line and in the file of settings:
//! one reader for each, so that a word means the same everywhere.

use std::{
    fmt,
    net::{SocketAddr, ToSocketAddrs},
    ops::RangeInclusive,
};

use serde::de::{Deserializer, Error, Visitor};

/// Memory of an engine, in bytes. With less, a memtable of an eighth would hold no more than a few
/// large values; more than the upper bound is a unit too many.
pub const MEMORY_BYTES: RangeInclusive<u64> = 16 << 20..=16 << 40;

/// Threads that serve connections; 0 lets the number of cores decide. The most that machines have
/// as cores today, with room: each takes a stack and an epoll instance.
pub const THREADS: RangeInclusive<u64> = 0..=1024;

/// Connections at a time. The most is what Linux lets a process have as open files at its default
/// `fs.nr_open` of 1,048,576, with room for the engine's own.
pub const CLIENTS: RangeInclusive<u64> = 1..=1_000_000;

/// Points of a backup that are kept. The most keeps the lists of all of them, which every copy
/// reads, within seconds.
pub const KEPT_BACKUPS: RangeInclusive<u64> = 1..=10_000;

/// Reads a size in bytes: digits, and K, M, G or T for powers of 1,024, also as KiB or KB. A number
/// without a unit is bytes.
///
/// # Errors
///
/// If it is none.
///
/// ```
/// assert_eq!(rhumb_server::parse_size("64MiB"), Ok(64 << 20));
/// assert_eq!(rhumb_server::parse_size("1g"), Ok(1 << 30));
/// assert_eq!(rhumb_server::parse_size("4096"), Ok(4096));
/// ```
pub fn parse_size(text: &str) -> Result<u64, String> {
    let upper = text.trim().to_ascii_uppercase();
    let upper = upper.strip_suffix("IB").or(upper.strip_suffix('B')).unwrap_or(&upper);
    let shifts = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];
    let found =
        shifts.into_iter().find_map(|(unit, shift)| Some((upper.strip_suffix(unit)?, shift)));
    let (digits, shift) = found.unwrap_or((upper, 0));
    let digits = digits.trim();
    // `parse` takes a sign as well.
    let number = digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let number: u64 = number.ok_or_else(|| format!("{text:?} is no size: try 512MiB or 4GiB"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text:?} is too large"))
}

/// Reads a size of [`MEMORY_BYTES`].
///
/// # Errors
///
/// If it is none, or out of range.
pub fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    check_memory(bytes)?;
    Ok(bytes)
}

/// Refuses memory that is out of range.
pub(crate) fn check_memory(bytes: u64) -> Result<(), String> {
    if MEMORY_BYTES.contains(&bytes) {
        return Ok(());
    }
    Err(format!(
        "memory of {bytes} bytes: it may be from 16MiB to 16TiB, and a number without a unit is bytes"
    ))
}

/// Refuses a number that is out of range.
pub(crate) fn check_count(
    what: &str,
    number: u64,
    range: &RangeInclusive<u64>,
) -> Result<(), String> {
    if range.contains(&number) {
        return Ok(());
    }
    Err(format!("{number} {what}: it may be from {} to {}", range.start(), range.end()))
}

/// Reads an address with a port. A name is looked up; of its addresses the first of IPv4 is taken,
/// or the first if there is none.
///
/// # Errors
///
/// If it is no address, or the name is not found.
///
/// ```
/// assert_eq!(rhumb_server::parse_address("127.0.0.1:6380"), Ok(([127, 0, 0, 1], 6380).into()));
/// assert_eq!(rhumb_server::parse_address("localhost:6380"), Ok(([127, 0, 0, 1], 6380).into()));
/// ```
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
    if port.is_none_or(|port| port.parse::<u16>().is_err()) {
        return Err(format!("{text:?} is no address with a port: try localhost:6380"));
    }
    let found: Vec<SocketAddr> = text
        .to_socket_addrs()
        .map_err(|error| format!("{text:?} is not found: {error}"))?
        .collect();
    let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
    first.copied().ok_or_else(|| format!("{text:?} has no address"))
}

/// Takes a number, or text that `parse` reads.
struct Quantity<F>(F, &'static str);

impl<T, F: FnOnce(&str) -> Result<T, String>> Visitor<'_> for Quantity<F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.1)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        (self.0)(&number.to_string()).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        (self.0)(&number.to_string()).map_err(E::custom)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.0)(text).map_err(E::custom)
    }
}

pub(crate) fn memory<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    deserializer.deserialize_any(Quantity(parse_memory, "a size, such as \"512MiB\""))
}

/// A size of at least one byte.
pub(crate) fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let read = |text: &str| match parse_size(text)? {
        0 => Err("a limit of 0 bytes lets nothing through".to_owned()),
        bytes => usize::try_from(bytes).map_err(|_| format!("{text:?} is too large")),
    };
    deserializer.deserialize_any(Quantity(read, "a size, such as \"512MiB\""))
}

fn count(what: &str, text: &str, range: &RangeInclusive<u64>) -> Result<usize, String> {
    let number = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    check_count(what, number, range)?;
    usize::try_from(number).map_err(|_| format!("{text:?} is too large"))
}

pub(crate) fn clients<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let read = |text: &str| count("clients", text, &CLIENTS);
    deserializer.deserialize_any(Quantity(read, "a number"))
}

pub(crate) fn clients_if_any<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<usize>, D::Error> {
    clients(deserializer).map(Some)
}

pub(crate) fn threads<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let read = |text: &str| count("threads", text, &THREADS);
    deserializer.deserialize_any(Quantity(read, "a number"))
}

pub(crate) fn kept_backups<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let read = |text: &str| count("kept backups", text, &KEPT_BACKUPS);
    deserializer.deserialize_any(Quantity(read, "a number"))
}

pub(crate) fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    deserializer.deserialize_any(Quantity(parse_address, "an address with a port"))
}

pub(crate) fn address_if_any<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SocketAddr>, D::Error> {
    address(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("512M"), Ok(512 << 20));
        assert_eq!(parse_size("4GiB"), Ok(4 << 30));
        assert_eq!(parse_size("100"), Ok(100));
        assert_eq!(parse_size("64kb"), Ok(64 << 10));
        assert_eq!(parse_size(" 1 TiB "), Ok(1 << 40));
        for wrong in ["", "x", "M", "-1", "+1", "1.5G", "1MM", "99999999999T"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn memory_has_a_range() {
        assert_eq!(parse_memory("16MiB"), Ok(16 << 20));
        for wrong in ["64", "512", "15M", "17T", "0"] {
            let message = parse_memory(wrong).unwrap_err();
            assert!(message.contains("from 16MiB to 16TiB"), "{message}");
        }
    }

    #[test]
    fn names_are_addresses() {
        assert_eq!(parse_address("localhost:6380"), Ok(([127, 0, 0, 1], 6380).into()));
        assert_eq!(parse_address("[::1]:1").unwrap().to_string(), "[::1]:1");
        for wrong in ["", "localhost", ":6380", "localhost:", "localhost:70000", "127.0.0.1"] {
            assert!(parse_address(wrong).unwrap_err().contains("try localhost:6380"), "{wrong}");
        }
    }
}
