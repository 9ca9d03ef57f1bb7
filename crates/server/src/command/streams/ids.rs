//! Identifiers of entries as clients write them.

use super::Range;
use crate::{encode::StreamId, fault::Fault};

const INVALID: &str = "ERR Invalid stream ID specified as stream command argument";

/// Longer texts are no identifiers.
const TEXT_BYTES_MAX: usize = 127;

/// Reads an unsigned number as C's `strtoull` does: spaces, a plus and zeros may come first.
fn number(text: &[u8]) -> Option<u64> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0B | 0x0C);
    let start = text.iter().position(|byte| !is_space(byte))?;
    let digits = &text[start..];
    let digits = digits.strip_prefix(b"+").unwrap_or(digits);
    crate::resp::number::parse_u64(digits)
}

/// Reads `ms` or `ms-seq`; `missing` is the second part of the former.
fn parse(text: &[u8], missing: u64) -> Option<StreamId> {
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    Some(match text.iter().position(|byte| *byte == b'-') {
        None => StreamId { ms: number(text)?, seq: missing },
        Some(dash) => StreamId { ms: number(&text[..dash])?, seq: number(&text[dash + 1..])? },
    })
}

/// Reads an identifier; `missing` stands for a second part that is not there.
pub(super) fn strict(text: &[u8], missing: u64) -> Result<StreamId, Fault> {
    parse(text, missing).ok_or_else(|| INVALID.into())
}

/// As [`strict`], with `-` and `+` for the first and the last one.
pub(super) fn any(text: &[u8], missing: u64) -> Result<StreamId, Fault> {
    match text {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        _ => strict(text, missing),
    }
}

/// The identifier that `XADD` is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The next one at the present moment.
    Next,
    /// The next one of these milliseconds.
    NextOf(u64),
    This(StreamId),
}

/// Reads what `XADD` is given.
pub(super) fn wanted(text: &[u8]) -> Result<Wanted, Fault> {
    if text == b"*" {
        return Ok(Wanted::Next);
    }
    match text.strip_suffix(b"-*").filter(|ms| !ms.contains(&b'-')) {
        Some(ms) if text.len() <= TEXT_BYTES_MAX => {
            number(ms).map(Wanted::NextOf).ok_or_else(|| INVALID.into())
        }
        _ => strict(text, 0).map(Wanted::This),
    }
}

/// Reads one end of a range. One that is left out has `(` before it.
fn end(text: &[u8], missing: u64) -> Result<(StreamId, bool), Fault> {
    match text {
        [b'(', rest @ ..] if !rest.is_empty() => Ok((strict(rest, missing)?, true)),
        _ => Ok((any(text, missing)?, false)),
    }
}

/// Reads the first identifier of a range.
pub(super) fn start(text: &[u8]) -> Result<StreamId, Fault> {
    match end(text, 0)? {
        (id, false) => Ok(id),
        (id, true) => id.next().ok_or_else(|| "ERR invalid start ID for the interval".into()),
    }
}

/// Reads the ends of a range, the smaller one first.
pub(super) fn range(from: &[u8], to: &[u8], reverse: bool) -> Result<Range, Fault> {
    let from = start(from)?;
    let to = match end(to, u64::MAX)? {
        (id, false) => id,
        (id, true) => id.previous().ok_or("ERR invalid end ID for the interval")?,
    };
    Ok(Range { from, to, reverse })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    #[test]
    fn identifiers_are_read_as_c_reads_numbers() {
        assert_eq!(parse(b"1-2", 0), Some(id(1, 2)));
        assert_eq!(parse(b"1", 7), Some(id(1, 7)));
        assert_eq!(parse(b" 01-+2", 0), Some(id(1, 2)));
        assert_eq!(parse(b"18446744073709551615-0", 0), Some(id(u64::MAX, 0)));
        for text in ["", "-", "1-", "-1", "1--2", "1-2-3", "x", "1-*", "18446744073709551616"] {
            assert_eq!(parse(text.as_bytes(), 0), None, "{text:?}");
        }
        assert_eq!(parse(&[b'0'; 128], 0), None);
    }

    #[test]
    fn xadd_may_leave_parts_to_the_server() {
        assert_eq!(wanted(b"*").unwrap(), Wanted::Next);
        assert_eq!(wanted(b"5-*").unwrap(), Wanted::NextOf(5));
        assert_eq!(wanted(b"5").unwrap(), Wanted::This(id(5, 0)));
        for text in ["-*", "5-6-*", "**", "+", "-"] {
            assert!(wanted(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn ends_may_be_left_out() {
        let ends = |from: &str, to: &str| {
            range(from.as_bytes(), to.as_bytes(), false).map(|range| (range.from, range.to)).ok()
        };
        assert_eq!(ends("-", "+"), Some((StreamId::MIN, StreamId::MAX)));
        assert_eq!(ends("1", "1"), Some((id(1, 0), id(1, u64::MAX))));
        assert_eq!(ends("(1-1", "(2"), Some((id(1, 2), id(2, u64::MAX - 1))));
        assert_eq!(ends("(18446744073709551615-18446744073709551615", "+"), None);
        assert_eq!(ends("-", "(0-0"), None);
        assert_eq!((ends("(-", "+"), ends("(", "+")), (None, None));
    }
}
