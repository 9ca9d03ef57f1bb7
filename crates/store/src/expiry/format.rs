//! The bytes of a stamp, and of what a table knows of its stamps. No I/O here.
//!
//! A stamp is eight bytes, little endian. The lower 63 bits are the time in milliseconds since the
//! Unix epoch from which on no reader sees the entry. The highest bit says that what follows is not
//! the value but the place of a large one.

use super::{Expiries, MILLIS_MAX, PARTS, Stamp};

/// Bytes of a stamp.
pub(crate) const STAMP_BYTES: usize = 8;

/// The bit of a stamp that marks a large value.
const LARGE: u64 = 1 << 63;

impl Stamp {
    /// The bytes.
    #[inline]
    pub(crate) fn encode(self) -> [u8; STAMP_BYTES] {
        (self.at_ms | if self.is_large { LARGE } else { 0 }).to_le_bytes()
    }

    /// Reads the stamp at the beginning of a value, and returns it with what follows; `None` if the
    /// value is shorter than a stamp.
    #[inline]
    pub(crate) fn split(value: &[u8]) -> Option<(Self, &[u8])> {
        let (stamp, rest) = value.split_first_chunk::<STAMP_BYTES>()?;
        let word = u64::from_le_bytes(*stamp);
        Some((Self { at_ms: word & MILLIS_MAX, is_large: word & LARGE != 0 }, rest))
    }

    /// The place of a large value that follows a stamp; `None` if the value itself follows.
    pub(crate) fn pointer(value: &[u8]) -> Option<&[u8]> {
        Self::split(value).filter(|(stamp, _)| stamp.is_large).map(|(_, pointer)| pointer)
    }
}

impl Expiries {
    /// Bytes of the encoded form.
    pub(crate) const BYTES: usize = 8 * (2 + PARTS);

    /// The bytes, as tables and the manifest hold them.
    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let words = [self.entries, self.first_ms].into_iter().chain(self.parts_ms);
        for (to, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        bytes
    }

    /// Reads the output of [`Expiries::encode`]; `None` if the times do not ascend or no entry
    /// expires.
    pub(crate) fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |at: usize| u64::from_le_bytes(words[at]);
        let read = Self {
            entries: word(0),
            first_ms: word(1),
            parts_ms: std::array::from_fn(|part| word(2 + part)),
        };
        let times = [read.first_ms].into_iter().chain(read.parts_ms);
        let is_whole = read.entries > 0 && times.is_sorted() && read.last_ms() <= MILLIS_MAX;
        is_whole.then_some(read)
    }
}
