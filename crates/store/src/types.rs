//! The few words that every layer of the engine shares.

use std::cmp::Ordering;

/// The number of a write: every operation has its own, later ones are larger.
///
/// Below 2^56, so that a sequence number and a [`Kind`] share one word.
pub(crate) type SeqNo = u64;

/// Sequence numbers stay below this.
pub(crate) const SEQ_END: SeqNo = 1 << 56;

/// Names a sub-tree: the levels of one keyspace, or of one partition of it. Never used twice in
/// the life of a database, so that a log record of a dropped sub-tree can never reach another.
pub(crate) type TreeId = u32;

/// Names a file of the database; the number in its name. Never used twice.
pub(crate) type FileId = u64;

/// The longest key, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = 64 << 10;

/// The longest value, in bytes.
pub(crate) const VALUE_BYTES_MAX: usize = 1 << 30;

/// What an entry says of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The key has this value.
    Value = 0,
    /// The key was removed.
    Tombstone = 1,
    /// The key has a value that is kept outside the block; the entry holds where.
    LargeValue = 2,
}

impl Kind {
    /// Reads a kind from its byte.
    #[must_use]
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Value),
            1 => Some(Self::Tombstone),
            2 => Some(Self::LargeValue),
            _ => None,
        }
    }
}

/// The order of entries everywhere: user keys ascending as bytes, and the newest version of a key
/// first.
#[must_use]
pub(crate) fn compare_entries(a_key: &[u8], a_seq: SeqNo, b_key: &[u8], b_seq: SeqNo) -> Ordering {
    a_key.cmp(b_key).then(b_seq.cmp(&a_seq))
}
