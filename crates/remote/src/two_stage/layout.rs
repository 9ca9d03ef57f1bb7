//! The bytes of a two-stage region: constants, sizes, and the header of its control part.
//!
//! The leaves part holds leaves and nothing else, so that no number in a damaged table names
//! anything but a leaf. The control part holds the header, the models, the tables and the records.
//! All words are little-endian.
//!
//! In a region with checksums, what one read brings proves itself ([`proof`](super::proof)):
//! [`head::CHECKSUM`], a word at the end of each value slot, and [`record::CHECK`] are for that.

use xxhash_rust::xxh3::xxh3_64;

use crate::{
    error::{Error, Result},
    layout::format::LINE_BYTES,
    primitive::{AtomicU64, Ordering},
};

/// Words of a line.
pub(super) const LINE_WORDS: usize = LINE_BYTES / 8;

/// Pairs that a leaf has room for: the paper's N, which keeps a leaf's keys within one small read.
pub(crate) const SLOTS: usize = 16;

/// The first words of a leaf, which the first read of a get fetches: head and key slots.
pub(super) mod head {
    use super::SLOTS;

    /// `latched` (bit 0) and version (63 bits): the guard of all that the leaf holds.
    pub(in crate::two_stage) const STATE: usize = 0;
    /// Incarnation (24 bits), number of pairs (8), number of the next leaf (32): the paper's whole
    /// header.
    pub(in crate::two_stage) const HEADER: usize = 1;
    /// Flags (8 bits), lengths of the low and of the high fence (4 each), lines of the record of
    /// fences (16), its place (32).
    pub(in crate::two_stage) const SHAPE: usize = 2;
    /// First eight bytes of the low fence, as a big-endian number.
    pub(in crate::two_stage) const LOW: usize = 3;
    /// First eight bytes of the high fence.
    pub(in crate::two_stage) const HIGH: usize = 4;
    /// The head's sum, in a region with checksums; 0 in others.
    pub(in crate::two_stage) const CHECKSUM: usize = 5;
    /// The first key slot.
    pub(in crate::two_stage) const KEYS: usize = 6;
    /// Words up to the first value slot.
    pub(in crate::two_stage) const WORDS: usize = KEYS + SLOTS;
}

/// Flag: the slot holds a leaf.
pub(super) const LEAF: u8 = 1;
/// Flag: no leaf precedes this one; there is no low fence.
pub(super) const FIRST: u8 = 2;
/// Flag: no leaf follows this one; there is no high fence.
pub(super) const LAST: u8 = 4;
/// Flag: a key slot holds a hash and the place of a record. Without it, all keys are of eight
/// bytes and a key slot is the key.
pub(super) const HASHED: u8 = 8;

/// The longest fence that lies in the head as a whole.
pub(super) const FENCE_BYTES: usize = 8;
/// In place of a fence's length: it is longer, and lies in the record of fences.
pub(super) const LONG_FENCE: u64 = 9;

/// A link to no leaf.
pub(super) const NO_LEAF: u32 = u32::MAX;
/// Numbers of leaves have 31 bits, as in a table's entries.
pub(super) const LEAVES_MAX: u32 = 1 << 31;

/// Kinds of values, in the pointers of value slots and in the heads of records.
pub(super) mod kind {
    /// There is no value: the slot is empty.
    #[allow(dead_code, reason = "named for the format; matched as any unknown kind")]
    pub(in crate::two_stage) const NONE: u8 = 0;
    /// The value follows.
    pub(in crate::two_stage) const HERE: u8 = 1;
    /// The value is in a record, which repeats the key.
    pub(in crate::two_stage) const RECORD: u8 = 2;
    /// The value is fetched by a call: it is larger than the region publishes.
    pub(in crate::two_stage) const ASK: u8 = 3;
    /// The record holds the fences of a leaf.
    pub(in crate::two_stage) const FENCES: u8 = 4;
}

/// The words of a record.
pub(super) mod record {
    /// `latched` and version: odd also while the record is free.
    pub(in crate::two_stage) const STATE: usize = 0;
    /// Length of the key (16 bits), kind (8), length of the value (32, from bit 32); in a record of
    /// fences the lengths of the low and of the high fence.
    pub(in crate::two_stage) const LENGTHS: usize = 1;
    /// What the record means: in a record of fences the leaf's number (32 bits) and incarnation
    /// (24), in others 0. In a region with checksums, exclusive or the record's sum.
    pub(in crate::two_stage) const CHECK: usize = 2;
    /// The key's first word; the value begins with the word after the key's last.
    pub(in crate::two_stage) const KEY: usize = 3;
}

/// The first bytes of a control part.
const MAGIC: u64 = u64::from_le_bytes(*b"rhumbtwo");
/// The version of all that is laid down here.
const VERSION: u32 = 1;

/// The words at the beginning of a control part. Words 16, 24 and 25 are those of
/// [`crate::layout::format::control`]: what is applied, the heartbeat, and the generation of the
/// keys that the host serves.
mod control {
    /// [`super::MAGIC`].
    pub(super) const MAGIC: usize = 0;
    /// [`super::VERSION`] (32 bits), bytes for a value in a leaf (31), and whether there are
    /// checksums (bit 63).
    pub(super) const SIZES: usize = 1;
    /// The largest published value.
    pub(super) const PUBLISHED: usize = 2;
    /// Checksum of the words before it.
    pub(super) const CHECKSUM: usize = 3;
}

/// The guard of the header: a word of it that stays 0.
pub(super) const HEADER_GUARD: usize = crate::layout::format::control::GUARD;
/// The words of the header's fixed part.
pub(super) const HEADER_WORDS: usize = 4;
/// Where the top model lies in the control part.
pub(super) const TOP: usize = 32;
/// The most bytes of the prefix that the keys share, as far as the models strip it.
pub(super) const PREFIX_BYTES_MAX: usize = 256;
/// Words of the top model: guard; epoch and number of sub-models; place of the sub-models and
/// length of the prefix; the line's `x0`, `y0`, and mantissa with shift; two unused; the prefix.
pub(super) const TOP_WORDS: usize = 8 + PREFIX_BYTES_MAX / 8;
/// The first line of the control part that is handed out.
pub(super) const FIRST_LINE: u32 = ((TOP + TOP_WORDS) / LINE_WORDS) as u32;

/// Words of a sub-model in the control part: guard; slope and base; errors and number of leaves;
/// place of its table.
pub(super) const SUB_MODEL_WORDS: usize = 4;
/// Bytes of a sub-model at a client that has its table: the paper's 14.
pub(super) const SUB_MODEL_BYTES: usize = 14;

/// The most bytes of a value that lies in a leaf: its length has 14 bits, and more would make a
/// leaf larger than a page by far.
const INLINE_BYTES_MAX: u32 = 1024;
/// The largest value that a region may publish: its record is read by one read.
const PUBLISHED_BYTES_MAX: u32 = 64 << 20;

/// Set in the header's word of sizes if there are checksums.
const HAS_CHECKSUMS: u64 = 1 << 63;

/// The sizes that all leaves of a region have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    inline_bytes: u32,
    published_bytes: u32,
    has_checksums: bool,
}

impl Sizes {
    /// Leaves whose slots hold values of up to `inline_bytes` (a multiple of 8 to 1,024); records
    /// hold larger ones of up to `published_bytes`, and the rest is asked for.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for other sizes.
    pub(crate) fn new(inline_bytes: u32, published_bytes: u32) -> Result<Self> {
        let fits = inline_bytes.is_multiple_of(8)
            && inline_bytes <= INLINE_BYTES_MAX
            && (inline_bytes..=PUBLISHED_BYTES_MAX).contains(&published_bytes);
        if fits {
            return Ok(Self { inline_bytes, published_bytes, has_checksums: false });
        }
        let what = format!("leaves for values of {inline_bytes} of {published_bytes} bytes");
        Err(Error::InvalidArgument(what.into()))
    }

    /// The same with checksums, or without.
    pub(crate) fn with_checksums(self, has_checksums: bool) -> Self {
        Self { has_checksums, ..self }
    }

    /// Returns true if what is read proves itself by checksums.
    pub(crate) fn has_checksums(self) -> bool {
        self.has_checksums
    }

    /// The longest value of a slot.
    pub(crate) fn inline_bytes(self) -> usize {
        self.inline_bytes as usize
    }

    /// The longest value of a record.
    pub(crate) fn published_bytes(self) -> usize {
        self.published_bytes as usize
    }

    /// Words of a value slot: the key again, the pointer, the value, and its sum if there are any.
    pub(super) fn slot_words(self) -> usize {
        2 + self.inline_bytes() / 8 + usize::from(self.has_checksums)
    }

    /// The first word of a value slot.
    pub(super) fn slot_word(self, index: usize) -> usize {
        head::WORDS + index * self.slot_words()
    }

    /// Words of a leaf: whole lines.
    pub(super) fn leaf_words(self) -> usize {
        self.slot_word(SLOTS).next_multiple_of(LINE_WORDS)
    }

    /// Where a leaf begins in the leaves part, in bytes.
    pub(super) fn leaf_at(self, number: u32) -> u64 {
        u64::from(number) * self.leaf_words() as u64 * 8
    }
}

/// Where a line begins in its part, in bytes.
pub(super) fn line_at(line: u32) -> u64 {
    u64::from(line) * LINE_BYTES as u64
}

/// Lines that hold this many words.
pub(super) fn lines_of(words: usize) -> u32 {
    words.div_ceil(LINE_WORDS) as u32
}

/// Rounds up to whole words.
pub(super) fn words_of(bytes: usize) -> usize {
    bytes.div_ceil(8)
}

/// Eight bytes or fewer as a word, padded with zeros.
pub(super) fn word_of(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// Appends the first `len` bytes of words to `out`; returns false, and appends nothing, if they
/// have fewer.
pub(super) fn append_bytes(words: &[u64], len: usize, out: &mut Vec<u8>) -> bool {
    let Some(words) = words.get(..words_of(len)) else { return false };
    let end = out.len() + len;
    out.reserve(words.len() * 8);
    words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    out.truncate(end);
    true
}

/// Returns true if the first bytes of words are these.
pub(super) fn begins_with(words: &[u64], bytes: &[u8]) -> bool {
    let words = words.get(..words_of(bytes.len()));
    words.is_some_and(|words| {
        words.iter().zip(bytes.chunks(8)).all(|(word, bytes)| {
            let shift = 8 * (8 - bytes.len());
            word << shift == word_of(bytes) << shift
        })
    })
}

/// The fixed part of the header.
fn header(sizes: Sizes) -> [u64; HEADER_WORDS] {
    let checksums = if sizes.has_checksums { HAS_CHECKSUMS } else { 0 };
    let packed = u64::from(VERSION) | u64::from(sizes.inline_bytes) << 32 | checksums;
    let mut words = [0; HEADER_WORDS];
    words[control::MAGIC] = MAGIC;
    words[control::SIZES] = packed;
    words[control::PUBLISHED] = u64::from(sizes.published_bytes);
    let bytes: Vec<u8> =
        words[..control::CHECKSUM].iter().flat_map(|word| word.to_le_bytes()).collect();
    words[control::CHECKSUM] = xxh3_64(&bytes);
    words
}

/// Writes the header of a control part that no client reads yet.
pub(super) fn write_header(region: &[AtomicU64], sizes: Sizes) {
    for (word, value) in region.iter().zip(header(sizes)) {
        word.store(value.to_le(), Ordering::Relaxed);
    }
}

/// Returns true if a region begins as one of this kind.
pub(crate) fn is_header(words: &[u64]) -> bool {
    words.first() == Some(&MAGIC)
}

/// Checks the header's words.
///
/// # Errors
///
/// [`Error::Invalid`] for a region of another kind or version, or a damaged one.
pub(super) fn read_header(words: &[u64]) -> Result<Sizes> {
    let &[magic, packed, published, _] = words else {
        return Err(Error::invalid("a control part without a header"));
    };
    if magic != MAGIC || packed as u32 != VERSION {
        return Err(Error::invalid("a region of another kind or version"));
    }
    let published = u32::try_from(published).unwrap_or(u32::MAX);
    let inline = ((packed & !HAS_CHECKSUMS) >> 32) as u32;
    let sizes = Sizes::new(inline, published)
        .map_err(|_| Error::invalid("a region with leaves of an impossible size"))?
        .with_checksums(packed & HAS_CHECKSUMS != 0);
    if header(sizes) != words {
        return Err(Error::invalid("a region whose header does not match its checksum"));
    }
    Ok(sizes)
}
