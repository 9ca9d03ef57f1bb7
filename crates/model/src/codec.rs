//! The byte codec of models: how numbers, columns of numbers and lines are written and read.
//!
//! Reading trusts nothing: every length is checked against the bytes that are there before anything
//! is allocated, and a refusal says where, what was expected and what was found.
//!
//! * *varint*: seven bits a byte, least significant first, the high bit set on all but the last.
//! * *column*: `[middle varint][low bits u8][differences to the middle as a Rice code]`; the number
//!   of values is known from elsewhere.
//! * *line*: `[x0 u64][y0 i64][mantissa u32][shift u8]`, little endian.

mod column;

use std::fmt;

pub use self::column::put_column;
use crate::segment::Line;

/// Bytes that are not a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// The position of the error, in bytes from the start of what was read.
    pub offset: usize,
    /// The expected content.
    pub expected: &'static str,
    /// The content that was found.
    pub found: String,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {} at byte {}, found {}", self.expected, self.offset, self.found)
    }
}

impl std::error::Error for DecodeError {}

/// Reads bytes from first to last. Never panics; allocates at most 64 bytes for each that is left.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    /// The number of bytes read.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The number of bytes left.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.offset
    }

    /// An error at the current place.
    pub fn error(&self, expected: &'static str, found: impl fmt::Display) -> DecodeError {
        DecodeError { offset: self.offset, expected, found: found.to_string() }
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize, expected: &'static str) -> Result<&'a [u8], DecodeError> {
        let Some(taken) = self.bytes[self.offset..].get(..len) else {
            return Err(self.error(
                expected,
                format_args!("{} bytes left of the {len} needed", self.remaining()),
            ));
        };
        self.offset += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, expected: &'static str) -> Result<[u8; N], DecodeError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, expected)?);
        Ok(array)
    }

    /// The next byte.
    pub fn u8(&mut self, expected: &'static str) -> Result<u8, DecodeError> {
        Ok(self.array::<1>(expected)?[0])
    }

    /// The next four bytes, little endian.
    pub fn u32(&mut self, expected: &'static str) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array(expected)?))
    }

    /// The next eight bytes, little endian.
    pub fn u64(&mut self, expected: &'static str) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array(expected)?))
    }

    /// The next varint.
    pub fn varint(&mut self, expected: &'static str) -> Result<u64, DecodeError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8(expected)?;
            let digits = u64::from(byte & 0x7f);
            if shift == 63 && digits > 1 {
                break;
            }
            value |= digits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.error(expected, "a varint of more than 64 bits"))
    }

    /// The next varint, at most `max`.
    pub fn varint_up_to(&mut self, max: u64, expected: &'static str) -> Result<u64, DecodeError> {
        let value = self.varint(expected)?;
        if value > max {
            return Err(self.error(expected, format_args!("{value}, over {max}")));
        }
        Ok(value)
    }

    /// The next line.
    pub fn line(&mut self) -> Result<Line, DecodeError> {
        let line = Line {
            x0: self.u64("the line's x0")?,
            y0: self.u64("the line's y0")? as i64,
            mantissa: self.u32("the line's mantissa")?,
            shift: self.u8("the line's shift")?,
        };
        if line.shift > Line::SHIFT_MAX {
            return Err(self.error("a shift of at most 95", line.shift));
        }
        Ok(line)
    }

    /// Returns an error if bytes are left.
    pub fn finish(&self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            left => Err(self.error("the end", format_args!("{left} more bytes"))),
        }
    }
}

/// Appends a varint, 1 to 10 bytes.
pub fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a line, 21 bytes.
pub fn put_line(line: &Line, out: &mut Vec<u8>) {
    out.extend_from_slice(&line.x0.to_le_bytes());
    out.extend_from_slice(&line.y0.to_le_bytes());
    out.extend_from_slice(&line.mantissa.to_le_bytes());
    out.push(line.shift.min(Line::SHIFT_MAX));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn golden_bytes() {
        let mut out = Vec::new();
        put_varint(300, &mut out);
        put_line(&Line { x0: 1, y0: -1, mantissa: 2, shift: 3 }, &mut out);
        let line = [1, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 3];
        assert_eq!(out[..2], [0xac, 2]);
        assert_eq!(out[2..], line);
    }

    #[test]
    fn refusals_say_where_and_what() {
        let error = Reader::new(&[0x80]).varint("a count").unwrap_err();
        assert_eq!(
            error.to_string(),
            "expected a count at byte 1, found 0 bytes left of the 1 needed"
        );
        assert!(Reader::new(&[0xff; 11]).varint("a count").is_err());
        assert!(Reader::new(&[1]).finish().is_err());
    }

    proptest! {
        #[test]
        fn round_trip(
            number: u64, shift in 0u32..64, x0: u64, y0: i64, mantissa: u32, line_shift in 0u8..=Line::SHIFT_MAX,
        ) {
            let line = Line { x0, y0, mantissa, shift: line_shift };
            let mut out = Vec::new();
            put_varint(number >> shift, &mut out);
            put_line(&line, &mut out);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.varint("a number"), Ok(number >> shift));
            prop_assert_eq!(reader.line(), Ok(line));
            prop_assert_eq!(reader.finish(), Ok(()));
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let mut reader = Reader::new(&bytes);
            while reader.varint("a number").is_ok() && reader.remaining() > 0 {}
            let _ = Reader::new(&bytes).line();
        }
    }
}
