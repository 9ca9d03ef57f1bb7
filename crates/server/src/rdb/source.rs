//! Bytes of a dump as they arrive: integers, lengths, strings; where they are, and their checksum.

use std::io::Read;

use crc::{CRC_64_REDIS, Crc, Digest, Table};

use super::{
    error::RdbError,
    format::{
        LENGTH_6, LENGTH_14, LENGTH_32, LENGTH_64, LENGTH_ENCODED, STRING_BYTES_MAX, STRING_INT8,
        STRING_INT16, STRING_INT32, STRING_LZF,
    },
    lzf,
};

/// The checksum of dumps and of `DUMP`: polynomial 0xAD93D23594C935A9, reflected, from 0.
pub(crate) static CHECKSUM: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// Bytes that are kept at once for what is only announced.
const ROOM_AHEAD: u64 = 64 << 10;

/// What is where a length may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Length(u64),
    /// How the string is encoded that follows.
    Encoded(u8),
}

/// Bytes as they arrive.
pub(crate) struct Source<R> {
    reader: R,
    offset: u64,
    digest: Option<Digest<'static, u64, Table<16>>>,
}

impl<R: Read> Source<R> {
    /// Reads from here, which is offset 0. If `summed`, the checksum of all
    /// bytes is kept.
    pub(crate) fn new(reader: R, summed: bool) -> Self {
        Self { reader, offset: 0, digest: summed.then(|| CHECKSUM.digest()) }
    }

    /// Where the next byte is.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The checksum of what was read; 0 if none is kept.
    pub(crate) fn checksum(&self) -> u64 {
        self.digest.as_ref().map_or(0, |digest| digest.clone().finalize())
    }

    /// The error that the bytes before this place are damaged.
    pub(crate) fn damaged(&self, what: impl Into<std::borrow::Cow<'static, str>>) -> RdbError {
        RdbError::Damaged { offset: self.offset, what: what.into() }
    }

    fn failed(&self, error: std::io::Error) -> RdbError {
        if error.kind() == std::io::ErrorKind::UnexpectedEof {
            return self.damaged("the bytes end too early");
        }
        RdbError::Io { offset: self.offset, error }
    }

    fn took(&mut self, bytes: &[u8]) {
        self.offset += bytes.len() as u64;
        if let Some(digest) = &mut self.digest {
            digest.update(bytes);
        }
    }

    /// A number of bytes that is known beforehand.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], RdbError> {
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes).map_err(|error| self.failed(error))?;
        self.took(&bytes);
        Ok(bytes)
    }

    /// One byte.
    pub(crate) fn byte(&mut self) -> Result<u8, RdbError> {
        Ok(self.array::<1>()?[0])
    }

    /// An integer of 64 bits, little-endian.
    pub(crate) fn u64_le(&mut self) -> Result<u64, RdbError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// `len` bytes. The room that they take grows as they arrive.
    pub(crate) fn bytes(&mut self, len: u64) -> Result<Vec<u8>, RdbError> {
        if len > STRING_BYTES_MAX {
            let what = format!("a string of {len} bytes: at most {STRING_BYTES_MAX} are read");
            return Err(RdbError::Unsupported { offset: self.offset, what });
        }
        let mut bytes = Vec::with_capacity(len.min(ROOM_AHEAD) as usize);
        let read = self.reader.by_ref().take(len).read_to_end(&mut bytes);
        read.map_err(|error| self.failed(error))?;
        self.took(&bytes);
        if (bytes.len() as u64) < len {
            return Err(self.damaged("the bytes end too early"));
        }
        Ok(bytes)
    }

    /// What is where a length may be.
    pub(crate) fn length_or_encoding(&mut self) -> Result<Length, RdbError> {
        let first = self.byte()?;
        let low = u64::from(first & 0x3F);
        Ok(match (first >> 6, first) {
            (LENGTH_6, _) => Length::Length(low),
            (LENGTH_14, _) => Length::Length(low << 8 | u64::from(self.byte()?)),
            (LENGTH_ENCODED, _) => Length::Encoded(first & 0x3F),
            (_, LENGTH_32) => Length::Length(u32::from_be_bytes(self.array()?).into()),
            (_, LENGTH_64) => Length::Length(u64::from_be_bytes(self.array()?)),
            _ => return Err(self.damaged("a byte that begins no length")),
        })
    }

    /// A length.
    pub(crate) fn length(&mut self) -> Result<u64, RdbError> {
        match self.length_or_encoding()? {
            Length::Length(length) => Ok(length),
            Length::Encoded(_) => Err(self.damaged("a string where a length should be")),
        }
    }

    /// A string, however it is encoded.
    pub(crate) fn string(&mut self) -> Result<Vec<u8>, RdbError> {
        let integer = match self.length_or_encoding()? {
            Length::Length(len) => return self.bytes(len),
            Length::Encoded(STRING_INT8) => i8::from_le_bytes(self.array()?).into(),
            Length::Encoded(STRING_INT16) => i16::from_le_bytes(self.array()?).into(),
            Length::Encoded(STRING_INT32) => i32::from_le_bytes(self.array()?),
            Length::Encoded(STRING_LZF) => return self.compressed(),
            Length::Encoded(_) => return Err(self.damaged("an encoding of strings that is none")),
        };
        Ok(integer.to_string().into_bytes())
    }

    fn compressed(&mut self) -> Result<Vec<u8>, RdbError> {
        let (compressed, len) = (self.length()?, self.length()?);
        if len > compressed.saturating_mul(lzf::EXPANSION_MAX) || len > STRING_BYTES_MAX {
            return Err(self.damaged("a compressed string announces more than it can give"));
        }
        let bytes = self.bytes(compressed)?;
        lzf::decompress(&bytes, len as usize).map_err(|what| self.damaged(what))
    }
}
