//! Leaves and records as they were read: plain words, which may be damaged or made up.
//!
//! Every number is checked where it is used. A leaf's fences say for which keys it answers, so that
//! a key between them that is not among its pairs is nowhere.

use std::cmp::Ordering as Order;

use xxhash_rust::xxh3::xxh3_64;

use super::{
    layout::{
        FENCE_BYTES, FIRST, HASHED, LAST, LEAF, LONG_FENCE, SLOTS, append_bytes, begins_with, head,
        kind, lines_of, record, words_of,
    },
    proof::record_sum,
};
use crate::leaf::Side;

/// Lines of a record that its fat pointer can state: more are read by a second read.
pub(super) const POINTER_LINES_MAX: u32 = u8::MAX as u32;

/// A fat pointer with a hash: the key slot of a key of any length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HashPointer {
    /// 24 bits of the key's hash.
    pub(super) hash: u32,
    /// Lines of the record, or [`POINTER_LINES_MAX`] if it has more.
    pub(super) lines: u32,
    pub(super) first_line: u32,
}

impl HashPointer {
    pub(super) fn from_word(word: u64) -> Self {
        Self {
            hash: (word >> 40) as u32,
            lines: u32::from((word >> 32) as u8),
            first_line: word as u32,
        }
    }

    pub(super) fn to_word(self) -> u64 {
        let lines = u64::from(self.lines.min(POINTER_LINES_MAX));
        u64::from(self.hash) << 40 | lines << 32 | u64::from(self.first_line)
    }
}

/// 24 bits of a key's hash.
pub(super) fn hash_of(key: &[u8]) -> u32 {
    (xxh3_64(key) >> 40) as u32
}

/// The pointer of a value slot: kind (2 bits), bytes of the value or lines of its record (14), room
/// for a version (16), place of the record (32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ValuePointer {
    pub(super) kind: u8,
    pub(super) size: u32,
    pub(super) first_line: u32,
}

/// Lines of a record that a value slot's pointer can state.
pub(super) const SLOT_LINES_MAX: u32 = (1 << 14) - 1;

impl ValuePointer {
    pub(super) fn from_word(word: u64) -> Self {
        Self {
            kind: word as u8 & 3,
            size: (word >> 2) as u32 & SLOT_LINES_MAX,
            first_line: (word >> 32) as u32,
        }
    }

    pub(super) fn to_word(self) -> u64 {
        let size = u64::from(self.size.min(SLOT_LINES_MAX));
        u64::from(self.kind) | size << 2 | u64::from(self.first_line) << 32
    }
}

/// The first words of a leaf: all but its values.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) number: u32,
    pub(super) guard: u64,
    pub(super) incarnation: u32,
    pub(super) count: usize,
    pub(super) next: u32,
    shape: u64,
    low: u64,
    high: u64,
    keys: [u64; SLOTS],
}

impl Head {
    /// The head of leaf `number`; `None` for words that are none.
    pub(super) fn parse(number: u32, words: &[u64], guard: u64) -> Option<Self> {
        let words: &[u64; head::WORDS] = words.first_chunk()?;
        let (header, shape) = (words[head::HEADER], words[head::SHAPE]);
        let count = usize::from((header >> 24) as u8);
        if shape as u8 & LEAF == 0 || count > SLOTS {
            return None;
        }
        let mut keys = [0; SLOTS];
        keys.copy_from_slice(&words[head::KEYS..]);
        Some(Self {
            number,
            guard,
            incarnation: header as u32 & 0xff_ffff,
            count,
            next: (header >> 32) as u32,
            shape,
            low: words[head::LOW],
            high: words[head::HIGH],
            keys,
        })
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.shape as u8 & flag != 0
    }

    /// Returns true if key slots are keys.
    pub(super) fn is_exact(&self) -> bool {
        !self.has(HASHED)
    }

    /// The key slots that are in use.
    pub(super) fn keys(&self) -> &[u64] {
        &self.keys[..self.count]
    }

    /// The slot of a key of eight bytes, in a leaf of such keys.
    pub(super) fn find_exact(&self, key: &[u8]) -> Option<usize> {
        let word = u64::from_be_bytes(*key.first_chunk()?);
        if key.len() != 8 || !self.is_exact() {
            return None;
        }
        self.keys().iter().position(|slot| *slot == word)
    }

    /// The slots that a key may be in, in a leaf of hashes.
    pub(super) fn find_hashed(&self, hash: u32) -> impl Iterator<Item = (usize, HashPointer)> {
        let keys = if self.is_exact() { &[] } else { self.keys() };
        let pointers = keys.iter().map(|word| HashPointer::from_word(*word));
        pointers.enumerate().filter(move |(_, pointer)| pointer.hash == hash)
    }

    /// First line and number of lines of the record of fences, if either is long.
    pub(super) fn fences_record(&self) -> Option<(u32, u32)> {
        let is_long = |shift: u32| self.shape >> shift & 15 >= LONG_FENCE;
        let lines = u32::from((self.shape >> 16) as u16);
        (is_long(8) || is_long(12)).then_some(((self.shape >> 32) as u32, lines))
    }

    /// Where a key belongs; `None` if the record of fences must be read for that.
    pub(super) fn side(&self, key: &[u8]) -> Option<Side> {
        let low = (!self.has(FIRST)).then(|| compare_fence(key, self.low, self.shape >> 8 & 15));
        let high = (!self.has(LAST)).then(|| compare_fence(key, self.high, self.shape >> 12 & 15));
        match (low, high) {
            (Some(Some(Order::Less)), _) => Some(Side::Left),
            (_, Some(Some(Order::Greater | Order::Equal))) => Some(Side::Right),
            (Some(None), _) | (_, Some(None)) => None,
            _ => Some(Side::Inside),
        }
    }

    /// A fence that lies in the head: `Some(None)` where there is none, `None` for a long one.
    pub(super) fn short_fence(&self, is_high: bool) -> Option<Option<Vec<u8>>> {
        let (flag, word, shift) =
            if is_high { (LAST, self.high, 12) } else { (FIRST, self.low, 8) };
        if self.has(flag) {
            return Some(None);
        }
        let len = (self.shape >> shift & 15) as usize;
        Some(Some(word.to_be_bytes().get(..len)?.to_vec()))
    }
}

/// The order of a key against a fence of which the head has this much; `None` if that does not
/// tell.
fn compare_fence(key: &[u8], word: u64, len: u64) -> Option<Order> {
    let fence = word.to_be_bytes();
    if len < LONG_FENCE {
        return Some(key.cmp(&fence[..len as usize]));
    }
    match key[..key.len().min(FENCE_BYTES)].cmp(&fence[..]) {
        Order::Equal if key.len() > FENCE_BYTES => None,
        // The fence goes on where the key ends.
        Order::Equal => Some(Order::Less),
        order => Some(order),
    }
}

/// A record: of a key and its value, or of the fences of a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'w> {
    words: &'w [u64],
    /// Length of the key, or of the low fence.
    pub(super) key_len: usize,
    pub(super) kind: u8,
    /// Length of the value, also where it is not here; or of the high fence.
    pub(super) value_len: usize,
    /// Of which leaf the fences are; 0 for a key.
    meaning: u64,
}

impl<'w> Record<'w> {
    /// The record in words that may not be all of it.
    pub(super) fn parse(words: &'w [u64]) -> Option<Self> {
        let lengths = *words.get(record::LENGTHS)?;
        Some(Self {
            words,
            key_len: usize::from(lengths as u16),
            kind: (lengths >> 16) as u8,
            value_len: (lengths >> 32) as usize,
            meaning: *words.get(record::CHECK)?,
        })
    }

    /// The record that begins at a line, in a region with checksums; `None` if it does not prove
    /// itself. Of one that is not all here nothing is proven.
    pub(super) fn sealed(words: &'w [u64], first_line: u32) -> Option<Self> {
        let record = Self::parse(words)?;
        let Some(all) = words.get(..record.words()) else { return Some(record) };
        // planted: sum-record-fences-stays-means
        let meaning = record.meaning ^ record_sum(all, first_line);
        // planted: record-device-brought-not-proven
        (record.kind == kind::FENCES || meaning == 0).then_some(Self { meaning, ..record })
    }

    /// Lines of a record of these lengths.
    pub(super) fn lines_for(key_len: usize, value_len: usize) -> u32 {
        lines_of(record::KEY + words_of(key_len) + words_of(value_len))
    }

    /// Words of the whole record.
    pub(super) fn words(&self) -> usize {
        let here = if self.kind == kind::ASK { 0 } else { self.value_len };
        record::KEY + words_of(self.key_len) + words_of(here)
    }

    /// Lines of the whole record.
    pub(super) fn lines(&self) -> u32 {
        lines_of(self.words())
    }

    /// Returns true if it is the record of a key.
    pub(super) fn is_of(&self, key: &[u8]) -> bool {
        matches!(self.kind, kind::HERE | kind::ASK)
            && self.key_len == key.len()
            && begins_with(&self.words[record::KEY.min(self.words.len())..], key)
    }

    /// Returns true if it is the record of a leaf's fences.
    pub(super) fn is_of_leaf(&self, leaf: &Head) -> bool {
        let check = u64::from(leaf.number) | u64::from(leaf.incarnation) << 32;
        self.kind == kind::FENCES && self.meaning == check
    }

    /// Appends the key; returns false if it is not all here.
    pub(super) fn append_key(&self, out: &mut Vec<u8>) -> bool {
        self.words.get(record::KEY..).is_some_and(|words| append_bytes(words, self.key_len, out))
    }

    /// Appends the value; returns false if it is not all here.
    pub(super) fn append_value(&self, out: &mut Vec<u8>) -> bool {
        let words = self.words.get(record::KEY + words_of(self.key_len)..);
        words.is_some_and(|words| append_bytes(words, self.value_len, out))
    }

    /// Both fences of a leaf, where it has them.
    pub(super) fn fences(&self, leaf: &Head) -> Option<Fences> {
        let (mut low, mut high) = (Vec::new(), Vec::new());
        if !self.is_of_leaf(leaf) || !self.append_key(&mut low) || !self.append_value(&mut high) {
            return None;
        }
        Some(Fences {
            low: (!leaf.has(FIRST)).then_some(low),
            high: (!leaf.has(LAST)).then_some(high),
        })
    }
}

/// Between what keys a leaf answers: from `low` to below `high`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fences {
    /// `None` in the first leaf.
    pub(super) low: Option<Vec<u8>>,
    /// `None` in the last leaf.
    pub(super) high: Option<Vec<u8>>,
}

impl Fences {
    /// The fences of a leaf that lie in its head; `None` if either is long.
    pub(super) fn of(leaf: &Head) -> Option<Self> {
        Some(Self { low: leaf.short_fence(false)?, high: leaf.short_fence(true)? })
    }

    /// Where a key belongs.
    pub(super) fn side(&self, key: &[u8]) -> Side {
        if self.low.as_deref().is_some_and(|low| key < low) {
            Side::Left
        } else if self.high.as_deref().is_some_and(|high| key >= high) {
            Side::Right
        } else {
            Side::Inside
        }
    }
}
