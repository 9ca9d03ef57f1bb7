//! The bytes of a region: leaves, descriptors, and reading either out of words that change.
//!
//! Everything here is offsets and numbers. Nothing is trusted: what is read may be torn, damaged or
//! made up, and a wrong length yields less bytes, never a panic.

#[cfg(not(any(loom, shuttle)))]
mod checksum;
pub(crate) mod control;
pub(crate) mod format;
mod memory;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use crate::error::{Error, Result};

#[cfg(not(any(loom, shuttle)))]
pub(crate) use checksum::checksum;
pub(crate) use memory::{Bytes, Memory};

/// The smallest leaf: a head, and room for a few small records.
pub(crate) const LEAF_BYTES_MIN: u32 = 512;
/// The largest leaf. The more keys a leaf has, the longer are the runs that a line describes: with
/// keys in no order their length grows with the square of that. Offsets in a leaf fit 16 bits.
pub(crate) const LEAF_BYTES_MAX: u32 = 16 << 10;

/// The sizes that all leaves of a share have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    leaf_bytes: u32,
    /// Entries that a leaf has room for: a multiple of 8, at most 248.
    room: u32,
    /// True if leaves prove themselves where reads have no order.
    has_checksums: bool,
}

impl Geometry {
    /// Leaves of `leaf_bytes` (a power of two from 512 to 16,384) with room for `room` entries each
    /// (a multiple of 8 from 8 to 248), whose fingerprints and offsets leave at least half of a
    /// leaf to records.
    pub(crate) fn new(leaf_bytes: u32, room: u32) -> Result<Self> {
        let is_size =
            leaf_bytes.is_power_of_two() && (LEAF_BYTES_MIN..=LEAF_BYTES_MAX).contains(&leaf_bytes);
        let is_room = room.is_multiple_of(8) && (8..=248).contains(&room);
        if is_size && is_room && format::LINE_BYTES as u32 + 3 * room <= leaf_bytes / 2 {
            return Ok(Self { leaf_bytes, room, has_checksums: false });
        }
        Err(Error::invalid(format!("leaves of {leaf_bytes} bytes with room for {room} entries")))
    }

    /// Leaves for entries that take `mean_bytes` on average.
    pub(crate) fn for_entries_of(mean_bytes: usize) -> Self {
        /// Entries of the mean size that a leaf should fit, of which it gets two thirds: a run of
        /// keys in no order has some 25 leaves then, and its descriptor takes 0.05 bytes a key.
        /// With 40 of them it has 5 leaves, and reads wait for the directory's lines.
        const ENTRIES: usize = 96;
        let wanted = (mean_bytes.max(16) * ENTRIES) as u64;
        let leaf_bytes =
            wanted.next_power_of_two().clamp(u64::from(LEAF_BYTES_MIN), u64::from(LEAF_BYTES_MAX))
                as u32;
        // Room for entries of three quarters of the mean size in a full leaf.
        let entries = u64::from(leaf_bytes) * 4 / (3 * mean_bytes.max(16) as u64);
        let most = (leaf_bytes / 2 - format::LINE_BYTES as u32) / 3;
        let room = (entries as u32).clamp(8, most.min(248)) / 8 * 8;
        Self { leaf_bytes, room, has_checksums: false }
    }

    /// The same, with checksums of leaves and records or without.
    pub(crate) fn with_checksums(self, has_checksums: bool) -> Self {
        Self { has_checksums, ..self }
    }

    /// Returns true if leaves prove themselves where reads have no order.
    #[inline]
    pub(crate) fn has_checksums(self) -> bool {
        self.has_checksums
    }

    /// Bytes of the record of a key's rest and a value that lies beside it.
    #[inline]
    pub(crate) fn record_bytes(self, rest_len: usize, value_len: usize) -> usize {
        let checksum = if self.has_checksums { 8 } else { 0 };
        format::RECORD_HEAD_BYTES + 8 * (to_words(rest_len) + to_words(value_len)) + checksum
    }

    /// Bytes of a leaf.
    #[inline]
    pub(crate) fn leaf_bytes(self) -> usize {
        self.leaf_bytes as usize
    }

    /// Words of a leaf.
    #[inline]
    pub(crate) fn leaf_words(self) -> usize {
        self.leaf_bytes as usize / 8
    }

    /// Entries that a leaf has room for.
    #[inline]
    pub(crate) fn room(self) -> usize {
        self.room as usize
    }

    /// The first word of the offsets, which follow the fingerprints.
    #[inline]
    pub(crate) fn offsets_word(self) -> usize {
        format::HEAD_WORDS + self.room as usize / 8
    }

    /// The first byte after the offsets, and after a sum of the records where there are checksums:
    /// the prefix, the fences and the records lie from here on.
    #[inline]
    pub(crate) fn rest(self) -> usize {
        let checksum = if self.has_checksums { 8 } else { 0 };
        self.offsets_word() * 8 + 2 * self.room as usize + checksum
    }

    /// The word of the sum of all records' sums, which precedes the rest where there are checksums.
    #[inline]
    pub(crate) fn records_sum_word(self) -> usize {
        self.rest() / 8 - 1
    }

    /// Bytes for prefix, fences and records.
    pub(crate) fn rest_bytes(self) -> usize {
        self.leaf_bytes() - self.rest()
    }

    /// The longest key, and the longest fence, that leaves may hold: two fences and a prefix of
    /// that length leave half of a leaf to records.
    pub(crate) fn key_bytes_max(self) -> usize {
        // A prefix has one byte for its length.
        (self.rest_bytes() / 8 / 8 * 8).min(u8::MAX as usize)
    }

    /// Returns true for a key that leaves do not hold: a record of its first
    /// [`Geometry::key_bytes_max`] bytes stands for it, and for all others that begin with those.
    #[inline]
    pub(crate) fn is_long(self, key: &[u8]) -> bool {
        key.len() >= self.key_bytes_max()
    }

    /// The key, or what stands for it if it is too long.
    #[inline]
    pub(crate) fn short(self, key: &[u8]) -> &[u8] {
        &key[..key.len().min(self.key_bytes_max())]
    }

    /// The longest value that lies in a leaf; larger ones are asked for.
    pub(crate) fn value_bytes_max(self) -> usize {
        self.rest_bytes() / 4 / 8 * 8
    }
}

/// Rounds up to whole words.
#[inline]
pub(crate) const fn to_words(bytes: usize) -> usize {
    bytes.div_ceil(8)
}
