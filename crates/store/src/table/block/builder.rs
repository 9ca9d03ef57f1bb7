//! Writes data blocks.

use crate::{
    table::format::{BLOCK_GROUP, BLOCK_HEADER_BYTES, BLOCK_WIDE_OFFSETS},
    types::{Kind, SeqNo},
    varint,
};

/// A prefix is shared only if that makes the entry smaller by at least one part in this many: an
/// entry that holds its whole key is found without touching the head of its group.
const SHARED_GAIN: usize = 8;

/// Collects entries in ascending order and lays them out as one block. Reused from block to block.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    interval: u8,
    tags: Vec<u8>,
    /// Where each entry starts within `entries`.
    offsets: Vec<usize>,
    entries: Vec<u8>,
    /// The key that the entries of the current group share prefixes with.
    head: Vec<u8>,
}

impl BlockBuilder {
    /// An empty block whose groups hold `interval` entries, and at least one.
    pub(crate) fn new(interval: u8) -> Self {
        Self {
            interval: interval.max(1),
            tags: Vec::new(),
            offsets: Vec::new(),
            entries: Vec::new(),
            head: Vec::new(),
        }
    }

    /// Adds an entry; `tag` is that of its key's hash. O(key + value).
    pub(crate) fn add(&mut self, key: &[u8], tag: u8, seq: SeqNo, kind: Kind, value: &[u8]) {
        debug_assert!(seq < 1 << 56);
        let mut shared = 0;
        if self.tags.len().is_multiple_of(usize::from(self.interval)) {
            self.head.clear();
            self.head.extend_from_slice(key);
        } else {
            shared = Self::shared_bytes(&self.head, key, value.len());
        }
        self.tags.push(tag);
        self.offsets.push(self.entries.len());
        varint::put(&mut self.entries, shared as u64);
        varint::put(&mut self.entries, (key.len() - shared) as u64);
        varint::put(&mut self.entries, seq << 2 | kind as u64);
        if kind != Kind::Tombstone {
            varint::put(&mut self.entries, value.len() as u64);
        }
        self.entries.extend_from_slice(&key[shared..]);
        if kind != Kind::Tombstone {
            self.entries.extend_from_slice(value);
        }
    }

    /// The number of bytes of `key` that are left out of its entry, given the key at the head of
    /// its group.
    pub(crate) fn shared_bytes(head: &[u8], key: &[u8], value_len: usize) -> usize {
        let common = head.iter().zip(key).take_while(|(a, b)| a == b).count();
        if common * SHARED_GAIN >= key.len() + value_len { common } else { 0 }
    }

    /// The bytes that [`BlockBuilder::finish`] would append now, as a sum that may exceed what a
    /// block can hold.
    pub(crate) fn encoded_bytes(&self) -> usize {
        BLOCK_HEADER_BYTES + self.tags.len() * (1 + self.offset_bytes()) + self.entries.len()
    }

    /// Appends the block to `out` and starts an empty one. The caller makes sure that the block is
    /// below 4 GiB ([`BlockBuilder::encoded_bytes`]).
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        out.reserve(self.encoded_bytes());
        let count = u32::try_from(self.tags.len()).expect("a block is below 4 GiB");
        out.extend_from_slice(&count.to_le_bytes());
        out.push(self.interval);
        let wide = self.offset_bytes() == 4;
        out.push(if wide { BLOCK_WIDE_OFFSETS } else { 0 });
        for (tags, offsets) in self.tags.chunks(BLOCK_GROUP).zip(self.offsets.chunks(BLOCK_GROUP)) {
            out.extend_from_slice(tags);
            for offset in offsets {
                let bytes = offset.to_le_bytes();
                out.extend_from_slice(&bytes[..if wide { 4 } else { 2 }]);
            }
        }
        out.extend_from_slice(&self.entries);
        self.tags.clear();
        self.offsets.clear();
        self.entries.clear();
    }

    fn offset_bytes(&self) -> usize {
        let last = self.offsets.last().copied().unwrap_or(0);
        if last > usize::from(u16::MAX) { 4 } else { 2 }
    }
}
