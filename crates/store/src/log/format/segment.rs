//! The header of a log segment. No I/O here.

use xxhash_rust::xxh3::xxh3_64;

use crate::{log::Lsn, types::FileId};

/// Bytes of a segment's header; the first frame follows.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 72;

/// The first bytes of every segment.
pub(crate) const SEGMENT_MAGIC: [u8; 8] = *b"RHUMBLOG";

/// The version of the segment format that this crate writes and reads.
pub(crate) const SEGMENT_VERSION: u32 = 1;

/// The last place at which a segment may begin: far beyond what can be written, and far from where
/// adding lengths to places would overflow.
pub(crate) const BASE_LSN_MAX: Lsn = 1 << 62;

/// The first 72 bytes of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// The random number of the database that the segment belongs to.
    pub(crate) identity: u64,
    /// The segment's number; also in its name.
    pub(crate) id: FileId,
    /// The place of the segment's first byte. Whatever older segments hold at or after this place
    /// is void: it was refused, or lost before this segment was made.
    pub(crate) base: Lsn,
    /// The segment that this one continues; 0 if none.
    pub(crate) previous: FileId,
    /// The place of the first byte of the segment that this one continues. If that segment is lost,
    /// the older ones end there.
    pub(crate) previous_base: Lsn,
    /// Everything before this place was known to be durable when the segment was made.
    pub(crate) synced: Lsn,
}

/// Why bytes are not a segment's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    /// Not a whole header: torn or damaged. What was found instead.
    Invalid(&'static str),
    /// A whole header of another version.
    Version(u32),
}

impl SegmentHeader {
    /// The bytes of the header.
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[0..8].copy_from_slice(&SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&SEGMENT_VERSION.to_le_bytes());
        let words =
            [self.identity, self.id, self.base, self.previous, self.previous_base, self.synced];
        for (i, word) in words.iter().enumerate() {
            bytes[16 + 8 * i..24 + 8 * i].copy_from_slice(&word.to_le_bytes());
        }
        let hash = xxh3_64(&bytes[..64]);
        bytes[64..].copy_from_slice(&hash.to_le_bytes());
        bytes
    }

    /// Reads a header from the front of a file.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, HeaderFault> {
        let Some(bytes) = bytes.first_chunk::<SEGMENT_HEADER_BYTES>() else {
            return Err(HeaderFault::Invalid("a file shorter than that"));
        };
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        if bytes[..8] != SEGMENT_MAGIC {
            return Err(HeaderFault::Invalid("other first bytes"));
        }
        if word(64) != xxh3_64(&bytes[..64]) {
            return Err(HeaderFault::Invalid("a wrong checksum"));
        }
        let version = word(8) as u32;
        if version != SEGMENT_VERSION {
            return Err(HeaderFault::Version(version));
        }
        let header = Self {
            identity: word(16),
            id: word(24),
            base: word(32),
            previous: word(40),
            previous_base: word(48),
            synced: word(56),
        };
        if header.base > BASE_LSN_MAX {
            return Err(HeaderFault::Invalid("a place beyond the end of every log"));
        }
        if header.synced > header.base {
            return Err(HeaderFault::Invalid("a segment that was durable before it was made"));
        }
        if header.previous >= header.id || header.previous_base > header.base {
            return Err(HeaderFault::Invalid("a segment that continues a later one"));
        }
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: SegmentHeader = SegmentHeader {
        identity: 0x0123_4567_89AB_CDEF,
        id: 9,
        base: 0x1_0000_0040,
        previous: 7,
        previous_base: 0x1_0000_0000,
        synced: 0x1_0000_0000,
    };

    #[test]
    fn a_header_is_read_back_and_every_flipped_bit_is_seen() {
        let bytes = HEADER.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Ok(HEADER));
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(
                matches!(SegmentHeader::decode(&flipped), Err(HeaderFault::Invalid(_))),
                "{bit}"
            );
        }
        for len in 0..bytes.len() {
            assert!(SegmentHeader::decode(&bytes[..len]).is_err());
        }
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = HEADER.encode();
        bytes[8] = 2;
        let hash = xxh3_64(&bytes[..64]);
        bytes[64..].copy_from_slice(&hash.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&bytes), Err(HeaderFault::Version(2)));
    }
}
