//! The one hash of a user key that every table of a read shares.

use xxhash_rust::xxh3::xxh3_64;

/// XXH3-64 of a user key. The filter takes its bits from the whole of it; the tag of an entry is
/// its lowest byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyHash(u64);

impl KeyHash {
    /// Hashes `key`.
    #[inline]
    pub(crate) fn of(key: &[u8]) -> Self {
        Self(xxh3_64(key))
    }

    /// The whole hash.
    #[inline]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// The eight bits that a block keeps of it.
    #[inline]
    pub(crate) const fn tag(self) -> u8 {
        self.0.to_le_bytes()[0]
    }
}
