//! A leaf that is put together outside of shared memory.

use rhumb_model::code::{code_at, common_prefix_len};

use super::fingerprint;
use crate::layout::{
    Geometry,
    format::{
        FIRST, HEAD_WORDS, HIGH_IS_CODE, KIND_ASK, KIND_INLINE, KIND_LONG_KEYS, KIND_SHIFT, LAST,
        LIVE, LOW_IS_CODE, NO_SLOT, RECORD_HEAD_BYTES, VALUE_LEN_SHIFT, head,
    },
    to_words,
};

/// An entry of a leaf, of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The whole key.
    pub(crate) key: Vec<u8>,
    pub(crate) kind: u8,
    /// The value's own length, also where the value is not here.
    pub(crate) value_len: usize,
    /// The value, empty where it is not here.
    pub(crate) value: Vec<u8>,
}

/// An entry of a leaf, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryRef<'a> {
    /// The whole key.
    pub(crate) key: &'a [u8],
    pub(crate) kind: u8,
    /// The value's own length, also where the value is not here.
    pub(crate) value_len: usize,
    /// The value, empty where it is not here.
    pub(crate) value: &'a [u8],
}

impl<'a> EntryRef<'a> {
    /// The entry as leaves of this geometry hold it: a large value is asked for, as is one of a key
    /// that is too long, for which another stands.
    #[inline]
    pub(crate) fn new(geometry: Geometry, key: &'a [u8], value: &'a [u8]) -> Self {
        if geometry.is_long(key) {
            return Self {
                key: geometry.short(key),
                kind: KIND_LONG_KEYS,
                value_len: 0,
                value: &[],
            };
        }
        let is_here = value.len() <= geometry.value_bytes_max();
        let (kind, here) = if is_here { (KIND_INLINE, value) } else { (KIND_ASK, &[][..]) };
        Self { key, kind, value_len: value.len(), value: here }
    }

    /// The same, of its own.
    pub(crate) fn to_entry(self) -> Entry {
        let (key, value) = (self.key.to_vec(), self.value.to_vec());
        Entry { key, kind: self.kind, value_len: self.value_len, value }
    }

    /// Bytes of its record in a leaf whose prefix is `prefix_len` long.
    #[inline]
    pub(crate) fn record_bytes(self, geometry: Geometry, prefix_len: usize) -> usize {
        geometry.record_bytes(self.key.len() - prefix_len, self.value.len())
    }
}

impl Entry {
    /// As [`EntryRef::new`].
    pub(crate) fn new(geometry: Geometry, key: &[u8], value: &[u8]) -> Self {
        EntryRef::new(geometry, key, value).to_entry()
    }

    /// The same, borrowed.
    pub(crate) fn by_ref(&self) -> EntryRef<'_> {
        let (key, value) = (&self.key[..], &self.value[..]);
        EntryRef { key, kind: self.kind, value_len: self.value_len, value }
    }

    /// Bytes of its record in a leaf whose prefix is `prefix_len` long.
    pub(crate) fn record_bytes(&self, geometry: Geometry, prefix_len: usize) -> usize {
        self.by_ref().record_bytes(geometry, prefix_len)
    }
}

/// Between what keys a leaf answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fences {
    /// The lowest key there may be; `None` in the first leaf.
    pub(crate) low: Option<Vec<u8>>,
    /// Above every key there may be; `None` in the last leaf.
    pub(crate) high: Option<Vec<u8>>,
    /// Bytes with which every key between the fences begins.
    prefix: Vec<u8>,
}

impl Fences {
    /// The fences of the keys from `low` to below `high`.
    pub(crate) fn new(low: Option<Vec<u8>>, high: Option<Vec<u8>>) -> Self {
        let shared = match (&low, &high) {
            // The length has one byte.
            (Some(low), Some(high)) => common_prefix_len(low, high).min(u8::MAX as usize),
            _ => 0,
        };
        let prefix = low.as_ref().map_or(Vec::new(), |low| low[..shared].to_vec());
        Self { low, high, prefix }
    }

    /// The code of a fence, and whether the fence is that code alone.
    fn code(&self, fence: &[u8]) -> (u64, bool) {
        let rest = &fence[self.prefix.len()..];
        // A fence of more bytes, or one that ends in the code's padding, is not told by its code.
        (code_at(rest, 0), rest.len() <= 8 && rest.last() != Some(&0))
    }
}

/// A leaf's words, to be stored into a slot.
pub(crate) struct LeafImage {
    words: Vec<u64>,
    geometry: Geometry,
    prefix_len: usize,
    flags: u8,
    run: u32,
    used: usize,
    count: usize,
}

impl LeafImage {
    /// A leaf without entries; its fences and prefix are no longer than the geometry's longest key.
    pub(crate) fn new(geometry: Geometry, fences: &Fences, run: u32) -> Self {
        let mut image = Self {
            words: vec![0; geometry.leaf_words()],
            geometry,
            prefix_len: fences.prefix.len(),
            flags: LIVE,
            run,
            used: geometry.rest(),
            count: 0,
        };
        image.set_links(NO_SLOT, NO_SLOT);
        image.append(&fences.prefix);
        let mut spans = [0u64; 2];
        let ends = [
            (&fences.low, FIRST, LOW_IS_CODE, head::LOW_CODE, 0),
            (&fences.high, LAST, HIGH_IS_CODE, head::HIGH_CODE, u64::MAX),
        ];
        for (span, (fence, is_open, is_code, word, none)) in spans.iter_mut().zip(ends) {
            let Some(fence) = fence else {
                image.flags |= is_open;
                image.words[word] = none;
                *span = image.used as u64;
                continue;
            };
            let (code, is_whole) = fences.code(fence);
            image.words[word] = code;
            if is_whole {
                image.flags |= is_code;
            }
            *span = image.append(fence) as u64 | (fence.len() as u64) << 16;
        }
        image.words[head::FENCES] = spans[0] | spans[1] << 32;
        image.write_shape();
        image
    }

    /// Adds the entry with the largest key so far; returns false if there is no room.
    pub(crate) fn push(&mut self, entry: EntryRef<'_>) -> bool {
        let bytes = entry.record_bytes(self.geometry, self.prefix_len);
        if self.count == self.geometry.room() || self.used + bytes > self.geometry.leaf_bytes() {
            return false;
        }
        let rest = &entry.key[self.prefix_len..];
        let offset = self.used;
        self.words[offset / 8] = record_head(rest.len(), entry.kind, entry.value_len);
        self.used += RECORD_HEAD_BYTES;
        self.append(rest);
        self.append(entry.value);
        if self.geometry.has_checksums() {
            // Set as the leaf is unlatched.
            self.used += 8;
        }
        let index = self.count;
        self.words[HEAD_WORDS + index / 8] |=
            u64::from(fingerprint(entry.key)) << (8 * (index % 8));
        self.words[self.geometry.offsets_word() + index / 4] |=
            (offset as u64) << (16 * (index % 4));
        self.count += 1;
        self.write_shape();
        true
    }

    /// Sets the neighbours.
    pub(crate) fn set_links(&mut self, next: u32, previous: u32) {
        self.words[head::LINKS] = u64::from(next) | u64::from(previous) << 32;
    }

    /// Sets the number of the last change.
    pub(crate) fn set_seq(&mut self, seq: u64) {
        self.words[head::COUNT] = self.count as u64 | seq << 8;
    }

    /// The words, in the processor's byte order; the state is 0.
    pub(super) fn words(&self) -> &[u64] {
        &self.words
    }

    /// Appends bytes, whole words of them, and returns where they begin.
    fn append(&mut self, bytes: &[u8]) -> usize {
        let at = self.used;
        for (word, chunk) in self.words[at / 8..].iter_mut().zip(bytes.chunks(8)) {
            *word = word_of(chunk);
        }
        self.used += 8 * to_words(bytes.len());
        at
    }

    fn write_shape(&mut self) {
        let seq = self.words[head::COUNT] >> 8;
        self.words[head::COUNT] = self.count as u64 | seq << 8;
        self.words[head::SHAPE] = shape(self.used, self.prefix_len, self.flags, self.run);
    }
}

/// Up to eight bytes as a word, padded with zeros.
#[inline]
pub(super) fn word_of(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// A record's first word.
#[inline]
pub(super) fn record_head(rest_len: usize, kind: u8, value_len: usize) -> u64 {
    rest_len as u64 | u64::from(kind) << KIND_SHIFT | (value_len as u64) << VALUE_LEN_SHIFT
}

/// The head's word of the leaf's shape.
#[inline]
pub(super) fn shape(used: usize, prefix_len: usize, flags: u8, run: u32) -> u64 {
    used as u64 | (prefix_len as u64) << 16 | u64::from(flags) << 24 | u64::from(run) << 32
}
