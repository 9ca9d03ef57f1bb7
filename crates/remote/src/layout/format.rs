//! The constants of a region's bytes: `docs/wire.md`, section "Region", says what they mean.

use crate::primitive::IS_MODEL;

/// Bytes of a cache line, the unit in which leaves are laid out: the line of x86-64 and of most
/// aarch64 processors.
pub(crate) const LINE_BYTES: usize = 64;

/// Words of 8 bytes in a leaf's head, which is its first line.
pub(crate) const HEAD_WORDS: usize = LINE_BYTES / 8;

/// The head's words.
pub(crate) mod head {
    /// `latched` (bit 0), version (39 bits), incarnation (24 bits).
    pub(crate) const STATE: usize = 0;
    /// Number of entries (low 8 bits), sequence number of the last change (56 bits).
    pub(crate) const COUNT: usize = 1;
    /// Slot of the next leaf (low 32 bits) and of the previous one.
    pub(crate) const LINKS: usize = 2;
    /// Bytes in use (16 bits), length of the prefix (8), flags (8), number of the run (32).
    pub(crate) const SHAPE: usize = 3;
    /// Checksum of a leaf that proves itself where reads have no order; otherwise 0.
    pub(crate) const CHECKSUM: usize = 4;
    /// Offset and length of the low fence (16 bits each), then of the high fence.
    pub(crate) const FENCES: usize = 5;
    /// Code of the low fence, after the prefix.
    pub(crate) const LOW_CODE: usize = 6;
    /// Code of the high fence, after the prefix.
    pub(crate) const HIGH_CODE: usize = 7;
}

/// Set in the state of a leaf while the host changes it.
pub(crate) const LATCHED: u64 = 1;
/// What a change adds to the state: the version follows the latch's bit.
pub(crate) const VERSION_STEP: u64 = 2;
/// Where the incarnation begins in the state.
pub(crate) const INCARNATION_SHIFT: u32 = 40;

/// A link to no leaf.
pub(crate) const NO_SLOT: u32 = u32::MAX;

/// Flag: the leaf answers for the keys between its fences. A slot that is free, or whose leaf was
/// replaced, has no such flag.
pub(crate) const LIVE: u8 = 1;
/// Flag: no leaf precedes this one; the low fence is below every key.
pub(crate) const FIRST: u8 = 2;
/// Flag: no leaf follows this one; the high fence is above every key.
pub(crate) const LAST: u8 = 4;
/// Flag: the low fence is its code alone, so that a key with an equal code is not below it.
pub(crate) const LOW_IS_CODE: u8 = 8;
/// Flag: the same of the high fence.
pub(crate) const HIGH_IS_CODE: u8 = 16;

/// Bytes of a record before its key: length of the key's rest (16 bits), kind (8), length of the
/// value (32, from bit 32).
pub(crate) const RECORD_HEAD_BYTES: usize = 8;
/// Where the kind begins in a record's head.
pub(crate) const KIND_SHIFT: u32 = 16;
/// Where the value's length begins in a record's head.
pub(crate) const VALUE_LEN_SHIFT: u32 = 32;

/// Kind of a record whose value follows its key.
pub(crate) const KIND_INLINE: u8 = 0;
/// Kind of a record whose value is fetched by a call: it is larger than the share publishes.
pub(crate) const KIND_ASK: u8 = 1;
/// Kind of a record that stands for keys that are too long for leaves: those that begin with its
/// key, which is as long as keys of records may be. They are asked for, whether or not there are
/// any.
pub(crate) const KIND_LONG_KEYS: u8 = 2;

/// Descriptors of runs in one block of the directory: the low codes of a block are 16 lines, which
/// a search of 7 steps stays within.
pub(crate) const BLOCK_RUNS: usize = if IS_MODEL { 2 } else { 128 };
/// Words of a descriptor: one line.
pub(crate) const DESCRIPTOR_WORDS: usize = LINE_BYTES / 8;

/// The descriptor's words.
pub(crate) mod descriptor {
    /// Byte offset of the low key in the block (32 bits), its length (16), length of the run's
    /// prefix (16), whose bytes follow the low key.
    pub(crate) const KEYS: usize = 0;
    /// The line's `x0`.
    pub(crate) const X0: usize = 1;
    /// The line's `y0`.
    pub(crate) const Y0: usize = 2;
    /// The line's mantissa (32 bits) and shift (8).
    pub(crate) const SLOPE: usize = 3;
    /// Slot of the first leaf (32 bits), number of leaves (32).
    pub(crate) const LEAVES: usize = 4;
    /// Number of the run.
    pub(crate) const RUN: usize = 5;
}

/// Binary digits of a line's height below one leaf: a key's leaf is the height without them.
pub(crate) const LEAF_BITS: u32 = 16;

/// The first bytes of a control region.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"rhumbrem");
/// The version of all that is laid down here.
pub(crate) const VERSION: u32 = 1;

/// Flag of the geometry: leaves and records have checksums.
pub(crate) const HAS_CHECKSUMS: u64 = 1 << 63;

/// Bytes of a unit, in which the control region is handed out: a block of the directory is one, a
/// top is one or several.
pub(crate) const UNIT_BYTES: usize = if IS_MODEL { 512 } else { 16 << 10 };

/// The words at the beginning of a control region, whose first unit is theirs.
pub(crate) mod control {
    /// [`super::MAGIC`].
    pub(crate) const MAGIC: usize = 0;
    /// [`super::VERSION`] (32 bits), bytes of a leaf (16), entries that a leaf has room for (15),
    /// [`super::HAS_CHECKSUMS`].
    pub(crate) const GEOMETRY: usize = 1;
    /// Checksum of the words before it.
    pub(crate) const CHECKSUM: usize = 2;
    /// First unit of the top (32 bits) and number of its units. On a line that changes with it
    /// alone.
    pub(crate) const TOP: usize = 8;
    /// Sequence number of the last write that can be read.
    pub(crate) const APPLIED: usize = 16;
    /// When the host last said that it is there, in milliseconds of the system's monotonic clock; 0
    /// before it did, and after it has ended.
    pub(crate) const HEARTBEAT: usize = 24;
    /// In a region whose clients keep models: a word that stays 0, the guard of words that change
    /// by one store.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) const GUARD: usize = 4;
    /// The generation of the keys that the host serves: 0 while those are all, raised by every
    /// change of them. On the heartbeat's line, which readers look at anyway.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) const GENERATION: usize = 25;
    /// Number of times that all of the region was built anew, in a region whose clients keep
    /// models.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) const LOADS: usize = 26;
    /// The model epoch: number of changes of the directory so far.
    pub(crate) const EPOCH: usize = 32;
}
