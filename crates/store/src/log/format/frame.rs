//! Frames: the form of a record in an append-only file, for the log and for the manifest alike.
//!
//! A frame is a header of 24 bytes and a payload. Both checksums are seeded with the file and the
//! frame's place in it. So bytes that are intact but in the wrong place, or that came from a user's
//! value, are not taken for a frame. No I/O here.

use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use crate::types::FileId;

/// Bytes of a frame's header.
pub(crate) const FRAME_HEADER_BYTES: usize = 24;

/// The longest payload of a frame, in bytes. Just under 4 GiB, so that header and payload together
/// have a 32-bit length.
pub(crate) const PAYLOAD_BYTES_MAX: usize = u32::MAX as usize - FRAME_HEADER_BYTES;

/// The seed of the checksums of one file's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameSeed(u64);

impl FrameSeed {
    /// The seed of the file `id` of the database `identity`. The identity is random, so that a user
    /// that merely writes values cannot make bytes that look like a frame.
    pub(crate) fn new(identity: u64, id: FileId) -> Self {
        Self(identity ^ id.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn at(self, offset: u64) -> u64 {
        self.0.wrapping_add(offset)
    }

    /// The checksum of a payload in one piece, in the frame at `offset`.
    pub(crate) fn payload_hash(self, offset: u64, payload: &[u8]) -> u64 {
        xxh3_64_with_seed(payload, self.at(offset))
    }

    /// The checksum of a payload in several pieces; the same as if it were in one.
    pub(crate) fn payload_hash_of_parts(self, offset: u64, parts: &[&[u8]]) -> u64 {
        let mut hasher = Xxh3::with_seed(self.at(offset));
        for part in parts {
            hasher.update(part);
        }
        hasher.digest()
    }
}

/// A frame's header: `[check u32][payload length u32][synced u64][payload checksum u64]`, little
/// endian; `check` is the low half of the checksum of the other fields.
///
/// A frame with an empty payload is a *mark*: it only carries `synced`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// Bytes of payload that follow.
    pub(crate) len: u32,
    /// Everything before this place was known to be durable when the frame was written. In a log
    /// this is an LSN, in a manifest an offset.
    pub(crate) synced: u64,
    /// The payload's checksum.
    pub(crate) hash: u64,
}

impl FrameHeader {
    /// The bytes of the header, for the frame at `offset`.
    pub(crate) fn encode(&self, seed: FrameSeed, offset: u64) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[4..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.synced.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.hash.to_le_bytes());
        let check = check_of(&bytes, seed, offset);
        bytes[0..4].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Reads the header of the frame at `offset`; `None` if its check is wrong. Does not check the
    /// payload. O(1).
    pub(crate) fn decode(
        bytes: &[u8; FRAME_HEADER_BYTES],
        seed: FrameSeed,
        offset: u64,
    ) -> Option<Self> {
        if u32_at(bytes, 0) != check_of(bytes, seed, offset) {
            return None;
        }
        let len = u32_at(bytes, 4);
        (len as usize <= PAYLOAD_BYTES_MAX).then_some(Self {
            len,
            synced: u64_at(bytes, 8),
            hash: u64_at(bytes, 16),
        })
    }

    /// Bytes of the whole frame.
    pub(crate) fn frame_bytes(&self) -> u64 {
        FRAME_HEADER_BYTES as u64 + u64::from(self.len)
    }

    /// Returns true if the frame only says what is durable.
    pub(crate) fn is_mark(&self) -> bool {
        self.len == 0
    }
}

/// `synced` of header bytes that were not checked: a scan looks at it first, because comparing it
/// is cheaper than the check.
pub(crate) fn unchecked_synced(bytes: &[u8; FRAME_HEADER_BYTES]) -> u64 {
    u64_at(bytes, 8)
}

fn check_of(bytes: &[u8; FRAME_HEADER_BYTES], seed: FrameSeed, offset: u64) -> u32 {
    xxh3_64_with_seed(&bytes[4..], seed.at(offset)) as u32
}

fn u32_at(bytes: &[u8; FRAME_HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8; FRAME_HEADER_BYTES], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_hash_as_one(parts: Vec<Vec<u8>>, identity: u64, id: u64, offset: u64) {
            let seed = FrameSeed::new(identity, id);
            let slices: Vec<&[u8]> = parts.iter().map(|p| &p[..]).collect();
            prop_assert_eq!(
                seed.payload_hash_of_parts(offset, &slices),
                seed.payload_hash(offset, &parts.concat())
            );
        }

        #[test]
        fn a_header_is_read_back_only_unchanged_and_in_its_place(
            len in 0..=PAYLOAD_BYTES_MAX as u32, synced: u64, hash: u64, flip in 0usize..192, moved in 1u64..1000,
        ) {
            let seed = FrameSeed::new(7, 9);
            let header = FrameHeader { len, synced, hash };
            let bytes = header.encode(seed, 500);
            prop_assert_eq!(FrameHeader::decode(&bytes, seed, 500), Some(header));
            prop_assert_eq!(FrameHeader::decode(&bytes, seed, 500 + moved), None);
            prop_assert_eq!(FrameHeader::decode(&bytes, FrameSeed::new(7, 10), 500), None);
            prop_assert_eq!(FrameHeader::decode(&bytes, FrameSeed::new(8, 9), 500), None);
            let mut flipped = bytes;
            flipped[flip / 8] ^= 1 << (flip % 8);
            prop_assert_eq!(FrameHeader::decode(&flipped, seed, 500), None);
        }
    }
}
