//! Checksums of leaves that are read without order.
//!
//! A reader that maps a region notices a change by a leaf's state, which it loads before and after
//! the rest. A device that reads another machine's memory promises no order between the lines of a
//! read, so that a state says nothing of what came with it. In a region with checksums a leaf
//! proves itself in parts:
//!
//! - The *head sum* covers the state, the rest of the head, fingerprints, offsets, prefix and
//!   fences: what decides which record is the right one. It lies in the head, and is set as the
//!   leaf is unlatched.
//! - The *records' sum*, which the head sum covers too, adds up the sums of all records: a leaf
//!   that comes as a whole is of one moment if they come to it.
//! - Each record ends in a sum of its own, of its key, kind and value, seeded with the leaf's
//!   prefix and the record's place: what was there before, or is elsewhere, has another one. It is
//!   set as the leaf is unlatched, too: a record that readers may not see yet proves nothing, so
//!   that none sees it before it is published.
//!
//! A head of one moment and a record of a later one, which was read after it, are right together:
//! the record that the head names is what it was, or is newer, whole and published, or has no sum.
//!
//! A record that proves itself is the current one of its key for as long as the state keeps the
//! incarnation that it had: what takes its place erases its proof before it is published
//! (`client/unordered/hints.rs` says why that is enough for a reader that has no head).

use std::ops::Range;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::layout::{
    Geometry, Memory,
    format::{HEAD_WORDS, KIND_INLINE, KIND_SHIFT, RECORD_HEAD_BYTES, VALUE_LEN_SHIFT, head},
    to_words,
};

/// Words that are hashed at once: the heads of most leaves, and most records.
const CHUNK_WORDS: usize = 128;

/// Words of the longest prefix, whose length is one byte.
#[cfg(all(any(test, all(feature = "rdma", target_os = "linux")), not(any(loom, shuttle))))]
const PREFIX_WORDS: usize = to_words(u8::MAX as usize);

/// Hashes words, whose bytes are those of the region.
fn sum_of<M: Memory + ?Sized>(memory: &M, words: Range<usize>, seed: u64) -> u64 {
    let mut chunk = [[0; 8]; CHUNK_WORDS];
    let (mut at, mut sum) = (words.start, seed);
    while at < words.end {
        let some = &mut chunk[..(words.end - at).min(CHUNK_WORDS)];
        memory.copy_to(at, some);
        sum = xxh3_64_with_seed(some.as_flattened(), sum);
        at += some.len();
    }
    sum
}

/// The words that the head sum covers, as the head's own words say: all up to the end of the
/// fences. Never more than a leaf.
pub(crate) fn head_words<M: Memory + ?Sized>(memory: &M, geometry: Geometry) -> usize {
    let prefix_len = usize::from((memory.load(head::SHAPE) >> 16) as u8);
    let fences = memory.load(head::FENCES);
    let end = |offset: u64, len: u64| usize::from(offset as u16) + usize::from(len as u16);
    let end = (geometry.rest() + prefix_len)
        .max(end(fences, fences >> 16))
        .max(end(fences >> 32, fences >> 48));
    to_words(end).min(geometry.leaf_words())
}

/// The head sum of a leaf that is in this state. The words are as many as a leaf has, or as many as
/// [`head_words`] says at least.
pub(crate) fn head_sum<M: Memory + ?Sized>(memory: &M, geometry: Geometry, state: u64) -> u64 {
    let mut first = [0; HEAD_WORDS];
    for (index, word) in first.iter_mut().enumerate() {
        *word = memory.load(index);
    }
    (first[head::STATE], first[head::CHECKSUM]) = (state, 0);
    let first = first.map(u64::to_le_bytes);
    let rest = HEAD_WORDS..head_words(memory, geometry).max(HEAD_WORDS);
    sum_of(memory, rest, xxh3_64(first.as_flattened()))
}

/// The words of the record at an offset, without its sum; `None` if they are not all there.
pub(crate) fn record_words<M: Memory + ?Sized>(memory: &M, offset: usize) -> Option<Range<usize>> {
    let first = memory.load(offset / 8);
    let is_here = (first >> KIND_SHIFT) as u8 == KIND_INLINE;
    let value_len = if is_here { (first >> VALUE_LEN_SHIFT) as usize } else { 0 };
    let words = to_words(usize::from(first as u16)) + to_words(value_len);
    let begin = offset / 8;
    let end = begin + RECORD_HEAD_BYTES / 8 + words;
    (offset.is_multiple_of(8) && end < memory.words()).then_some(begin..end)
}

/// What the sums of a leaf's records are seeded with.
pub(crate) fn record_seed<M: Memory + ?Sized>(memory: &M, geometry: Geometry) -> u64 {
    let prefix_len = usize::from((memory.load(head::SHAPE) >> 16) as u8);
    let begin = geometry.rest() / 8;
    sum_of(memory, begin..begin + to_words(prefix_len), prefix_len as u64)
}

/// What the sums of the records of a leaf with this prefix are seeded with, as [`record_seed`].
#[cfg(all(any(test, all(feature = "rdma", target_os = "linux")), not(any(loom, shuttle))))]
pub(crate) fn prefix_seed(prefix: &[u8]) -> u64 {
    let mut words = [0; PREFIX_WORDS];
    for (word, chunk) in words.iter_mut().zip(prefix.chunks(8)) {
        *word = super::image::word_of(chunk).to_le();
    }
    sum_of(&words[..], 0..to_words(prefix.len()), prefix.len() as u64)
}

/// The sum of the record in these words.
pub(crate) fn record_sum<M: Memory + ?Sized>(memory: &M, words: Range<usize>, seed: u64) -> u64 {
    let place = words.start as u64;
    sum_of(memory, words, seed ^ place)
}
