//! The basic types that every layer of the engine shares.

use std::cmp::Ordering;

/// The sequence number of a write: every operation has its own, and later ones are larger.
///
/// It is below 2^56, so that a sequence number and a [`Kind`] fit into one word.
pub(crate) type SeqNo = u64;

/// What a reader sees: the writes up to a number, as far as they have not expired at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// The number of the last write that is seen.
    pub(crate) seq: SeqNo,
    /// Milliseconds since the Unix epoch.
    pub(crate) now_ms: u64,
}

/// Sequence numbers stay below this.
pub(crate) const SEQ_END: SeqNo = 1 << 56;

/// Identifies a LSM tree: the levels of one keyspace, or of one partition of it. Never used twice
/// in the life of a database, so that a log record of a dropped LSM tree can never reach another.
pub(crate) type TreeId = u32;

/// Identifies a file of the database: the number in its name. Never used twice.
pub(crate) type FileId = u64;

/// The longest key, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = 64 << 10;

/// The longest value, in bytes.
pub(crate) const VALUE_BYTES_MAX: usize = 1 << 30;

/// The largest number of levels of a LSM tree. Each holds
/// [`LEVEL_RATIO`](crate::options::LEVEL_RATIO) times what the one above it holds, so more levels
/// would hold petabytes.
pub(crate) const LEVELS_MAX: usize = 7;

/// What an entry says about its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The key has this value.
    Value = 0,
    /// The key was removed.
    Tombstone = 1,
    /// The key has a value that is stored outside the block; the entry says where.
    LargeValue = 2,
    /// The key has a value until it expires; the value begins with a
    /// [`Stamp`](crate::expiry::Stamp).
    Expiring = 3,
}

impl Kind {
    /// Reads a kind from its byte.
    #[must_use]
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Value),
            1 => Some(Self::Tombstone),
            2 => Some(Self::LargeValue),
            3 => Some(Self::Expiring),
            _ => None,
        }
    }
}

/// Keys are compared in words up to this length. Below it, most of the cost of a call would be the
/// call itself.
const WORDS_MAX: usize = 32;

/// Eight bytes of a key as a number of the same order; `None` if the key is too short.
#[inline(always)]
fn word(key: &[u8], at: usize) -> Option<u64> {
    let bytes = key.get(at..at + 8)?;
    bytes.try_into().map(u64::from_be_bytes).ok()
}

/// The order of keys: as bytes, with a key before all longer keys that begin with it.
#[inline]
#[must_use]
pub(crate) fn compare_keys(a: &[u8], b: &[u8]) -> Ordering {
    let mut at = 0;
    while at < WORDS_MAX {
        let (Some(x), Some(y)) = (word(a, at), word(b, at)) else { break };
        if x != y {
            return x.cmp(&y);
        }
        at += 8;
    }
    if at > 0 && at < WORDS_MAX && a.len() == b.len() {
        // The last word of both keys, part of which may have been compared already.
        let last = a.len() - 8;
        return word(a, last).cmp(&word(b, last));
    }
    a[at..].cmp(&b[at..])
}

/// Returns true if two keys are the same. Neighbours mostly differ in their last bytes.
#[inline]
#[must_use]
pub(crate) fn is_same_key(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let last = a.len().saturating_sub(8);
    word(a, last) == word(b, last) && a[..last] == b[..last] && (last > 0 || a == b)
}

/// The order of entries everywhere: user keys ascending as bytes, and the newest version of a key
/// first.
#[inline]
#[must_use]
pub(crate) fn compare_entries(a_key: &[u8], a_seq: SeqNo, b_key: &[u8], b_seq: SeqNo) -> Ordering {
    compare_keys(a_key, b_key).then(b_seq.cmp(&a_seq))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{compare_keys, is_same_key};

    fn keys() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
        let part = || prop::collection::vec(prop_oneof![Just(0), Just(1), Just(255_u8)], 0..20);
        (0..45_usize, part(), part()).prop_map(|(shared, a, b)| {
            let shared = vec![7; shared];
            ([&shared[..], &a].concat(), [&shared[..], &b].concat())
        })
    }

    proptest! {
        #[test]
        fn keys_compare_as_bytes((a, b) in keys()) {
            prop_assert_eq!(compare_keys(&a, &b), a.cmp(&b));
            prop_assert_eq!(is_same_key(&a, &b), a == b);
            prop_assert!(is_same_key(&a, &a.clone()));
        }
    }
}
