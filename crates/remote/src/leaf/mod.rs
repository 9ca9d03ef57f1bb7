//! One leaf: entries sorted by key, between two fences.
//!
//! A leaf proves its answers. Its fences say for which keys it answers, so that a key that is
//! between them and not among its entries is nowhere. A reader looks into a leaf while the host may
//! be changing it, and trusts what it saw if the leaf's state is the same word before and after
//! ([`read`]).
//!
//! Every offset and length is checked where it is used: a torn or damaged leaf gives a wrong answer
//! at worst, which the state then refuses, and no access outside of the leaf.

mod image;
pub(crate) mod proof;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
#[cfg(all(any(test, all(feature = "rdma", target_os = "linux")), not(any(loom, shuttle))))]
pub(crate) mod whole;
mod write;

use xxhash_rust::xxh3::xxh3_64;

use crate::{
    layout::{
        Bytes, Geometry, Memory,
        format::{
            FIRST, HEAD_WORDS, HIGH_IS_CODE, KIND_SHIFT, LAST, LATCHED, LIVE, LOW_IS_CODE,
            RECORD_HEAD_BYTES, VALUE_LEN_SHIFT, head,
        },
        to_words,
    },
    primitive::{AtomicU64, Ordering, fence},
};
use rhumb_model::code::code_at;

pub(crate) use image::{Entry, EntryRef, Fences, LeafImage};
pub(crate) use write::LeafWriter;

/// Where a key belongs, as a leaf's fences say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Between the fences.
    Inside,
    /// Below the low fence: in an earlier leaf.
    Left,
    /// At or above the high fence: in a later leaf.
    Right,
}

/// A key as leaves are asked for it.
#[derive(Clone, Copy)]
pub(crate) struct Needle<'k> {
    /// The whole key.
    pub(crate) key: &'k [u8],
    /// Eight times the key's fingerprint.
    fingerprints: u64,
}

/// How far ranks are from what [`Leaf::expected_rank`] says: the standard deviation of the middle
/// one of 64 keys without an order.
const RANK_ERROR: usize = 4;

/// A one in each byte of a word.
const EACH_BYTE: u64 = 0x0101_0101_0101_0101;
/// The seven low bits of each byte of a word.
const LOW_BITS: u64 = 0x7f7f_7f7f_7f7f_7f7f;

impl<'k> Needle<'k> {
    #[inline]
    pub(crate) fn new(key: &'k [u8]) -> Self {
        Self { key, fingerprints: u64::from(fingerprint(key)) * EACH_BYTE }
    }
}

/// Eight bits of a key's hash: of the entries of a leaf that have the wrong key, all but one in 256
/// are passed over without a look at their records.
#[inline]
pub(crate) fn fingerprint(key: &[u8]) -> u8 {
    (xxh3_64(key) >> 56) as u8
}

/// Reads a leaf that the host may be changing; `None` if it was changed meanwhile, and what `look`
/// returned is then worth nothing.
#[inline]
pub(crate) fn read<R>(words: &[AtomicU64], look: impl FnOnce() -> R) -> Option<R> {
    Some(read_noting(words, look)?.0)
}

/// [`read`], with the state in which the leaf was, in the region's byte order.
#[inline]
pub(crate) fn read_noting<R>(words: &[AtomicU64], look: impl FnOnce() -> R) -> Option<(R, u64)> {
    let state = words.first()?;
    // Memory that is mapped for reading alone may be loaded in no stricter order.
    let before = state.load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    if u64::from_le(before) & LATCHED != 0 {
        return None;
    }
    let seen = look();
    // What `look` read is read before the state is read again: a change that it saw a part of has
    // changed the state by now.
    // planted: second-look-at-leaf-state
    fence(Ordering::Acquire);
    // planted: leaf-not-looked-at-again
    (state.load(Ordering::Relaxed) == before).then_some((seen, before))
}

/// A leaf as it lies in memory.
pub(crate) struct Leaf<'m, M: ?Sized> {
    memory: &'m M,
    geometry: Geometry,
}

impl<M: ?Sized> Clone for Leaf<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: ?Sized> Copy for Leaf<'_, M> {}

/// A leaf's head, but for its fences.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) count: usize,
    pub(crate) flags: u8,
    pub(crate) prefix_len: usize,
    /// Bytes from the leaf's beginning that are in use.
    pub(crate) used: usize,
    pub(crate) run: u32,
}

/// A record of a leaf.
pub(crate) struct Record<'m, M: ?Sized> {
    /// What follows the leaf's prefix.
    pub(crate) key: Bytes<'m, M>,
    pub(crate) kind: u8,
    /// The value's own length, also where the value is not here.
    pub(crate) value_len: usize,
    /// The value, empty where it is not here.
    pub(crate) value: Bytes<'m, M>,
}

impl<M: Memory + ?Sized> Record<'_, M> {
    /// Copies the key's words and the value's, which follow them, to `out`, which is as long.
    #[inline]
    pub(crate) fn copy_to(&self, out: &mut [[u8; 8]]) {
        self.key.copy_words(out);
    }
}

impl<'m, M: Memory + ?Sized> Leaf<'m, M> {
    /// The leaf in `memory`, which is as long as a leaf.
    #[inline]
    pub(crate) fn new(memory: &'m M, geometry: Geometry) -> Self {
        Self { memory, geometry }
    }

    #[inline]
    pub(crate) fn head(&self) -> Head {
        let shape = self.memory.load(head::SHAPE);
        let count = self.memory.load(head::COUNT) as u8;
        Head {
            count: usize::from(count).min(self.geometry.room()),
            flags: (shape >> 24) as u8,
            prefix_len: usize::from((shape >> 16) as u8),
            used: usize::from(shape as u16),
            run: (shape >> 32) as u32,
        }
    }

    /// The sequence number of the last change, of 56 bits.
    #[cfg(test)]
    pub(crate) fn seq(&self) -> u64 {
        self.memory.load(head::COUNT) >> 8
    }

    /// The slot of the next leaf.
    #[inline]
    pub(crate) fn next(&self) -> u32 {
        self.memory.load(head::LINKS) as u32
    }

    /// The slot of the previous leaf.
    #[inline]
    pub(crate) fn previous(&self) -> u32 {
        (self.memory.load(head::LINKS) >> 32) as u32
    }

    /// The bytes with which every key of the leaf begins.
    #[inline]
    pub(crate) fn prefix(&self, head: &Head) -> Option<Bytes<'m, M>> {
        self.memory.bytes(self.geometry.rest(), head.prefix_len)
    }

    /// The low fence: no key of the leaf is below it. Empty in the first leaf.
    pub(crate) fn low_fence(&self) -> Option<Bytes<'m, M>> {
        let fences = self.memory.load(head::FENCES);
        self.memory.bytes(usize::from(fences as u16), usize::from((fences >> 16) as u16))
    }

    /// The high fence: every key of the leaf is below it. Empty in the last leaf.
    pub(crate) fn high_fence(&self) -> Option<Bytes<'m, M>> {
        let fences = self.memory.load(head::FENCES) >> 32;
        self.memory.bytes(usize::from(fences as u16), usize::from((fences >> 16) as u16))
    }

    /// Where `key` belongs. `None` for a leaf that answers for nothing, or whose fences are
    /// damaged.
    #[inline]
    pub(crate) fn side(&self, head: &Head, key: &[u8]) -> Option<Side> {
        if head.flags & LIVE == 0 {
            return None;
        }
        if head.prefix_len > 0 {
            let begins = key.get(..head.prefix_len);
            if !begins.is_some_and(|begins| self.prefix(head).is_some_and(|p| p.equals(begins))) {
                return self.side_by_fences(head, key);
            }
        }
        let code = code_at(key, head.prefix_len);
        let low = self.memory.load(head::LOW_CODE);
        let high = self.memory.load(head::HIGH_CODE);
        if code > low && code < high {
            return Some(Side::Inside);
        }
        if head.flags & FIRST == 0 {
            if code < low {
                return Some(Side::Left);
            }
            if code == low
                && head.flags & LOW_IS_CODE == 0
                && self.low_fence()?.compare(key).is_gt()
            {
                return Some(Side::Left);
            }
        }
        if head.flags & LAST == 0 {
            // planted: key-above-leaf-high-fence
            if code > high {
                return Some(Side::Right);
            }
            let is_code = head.flags & HIGH_IS_CODE != 0;
            if code == high && (is_code || self.high_fence()?.compare(key).is_le()) {
                return Some(Side::Right);
            }
        }
        Some(Side::Inside)
    }

    /// [`Leaf::side`] for keys that do not begin with the leaf's prefix.
    #[cold]
    fn side_by_fences(&self, head: &Head, key: &[u8]) -> Option<Side> {
        if head.flags & FIRST == 0 && self.low_fence()?.compare(key).is_gt() {
            return Some(Side::Left);
        }
        if head.flags & LAST == 0 && self.high_fence()?.compare(key).is_le() {
            return Some(Side::Right);
        }
        Some(Side::Inside)
    }

    /// The record at an offset of the leaf; `None` if it is no place of a record.
    #[inline]
    pub(crate) fn record_at(&self, offset: usize) -> Option<Record<'m, M>> {
        if offset < self.geometry.rest() || !offset.is_multiple_of(8) {
            return None;
        }
        // What begins outside of the leaf reads as a record of nothing.
        let head = self.memory.load(offset / 8);
        let kind = (head >> KIND_SHIFT) as u8;
        let value_len = (head >> VALUE_LEN_SHIFT) as usize;
        let key_at = offset + RECORD_HEAD_BYTES;
        let key_len = usize::from(head as u16);
        let key = self.memory.bytes(key_at, key_len)?;
        let here = if kind == crate::layout::format::KIND_INLINE { value_len } else { 0 };
        let value = self.memory.bytes(key_at + to_words(key_len) * 8, here)?;
        Some(Record { key, kind, value_len, value })
    }

    /// The byte offset of the record of entry `index`. Not checked.
    #[inline]
    pub(crate) fn offset(&self, index: usize) -> usize {
        let word = self.memory.load(self.geometry.offsets_word() + index / 4);
        usize::from((word >> (16 * (index % 4))) as u16)
    }

    /// The record of entry `index`, in the order of keys.
    #[inline]
    pub(crate) fn record(&self, index: usize) -> Option<Record<'m, M>> {
        self.record_at(self.offset(index))
    }

    /// The place of the record that is likely to have the needle's key, which need not be between
    /// the fences: a byte offset, not checked.
    #[inline]
    pub(crate) fn likely_offset(&self, needle: &Needle<'_>) -> Option<usize> {
        let count = self.head().count;
        let mut first = None;
        for word in 0..count.div_ceil(8) {
            let index = word * 8 + (self.equal_prints(word, needle).trailing_zeros() / 8) as usize;
            if index < count.min(word * 8 + 8) {
                first = Some(index);
                break;
            }
        }
        first.map(|index| self.offset(index))
    }

    /// The top bit of each byte of a word of fingerprints that is the needle's.
    #[inline]
    fn equal_prints(&self, word: usize, needle: &Needle<'_>) -> u64 {
        let difference = self.memory.load(HEAD_WORDS + word) ^ needle.fingerprints;
        !(((difference & LOW_BITS) + LOW_BITS) | difference | LOW_BITS)
    }

    /// The entry that has the needle's key, which is between the fences. Looks at the fingerprints
    /// and, but for one in 256 of the other entries, at no other record.
    #[inline]
    pub(crate) fn find(&self, head: &Head, needle: &Needle<'_>) -> Option<(usize, Record<'m, M>)> {
        let rest = needle.key.get(head.prefix_len..)?;
        for word in 0..head.count.div_ceil(8) {
            let mut equal = self.equal_prints(word, needle);
            while equal != 0 {
                let index = word * 8 + (equal.trailing_zeros() / 8) as usize;
                equal &= equal - 1;
                if index >= head.count {
                    break;
                }
                if let Some(record) = self.record(index).filter(|record| record.key.equals(rest)) {
                    return Some((index, record));
                }
            }
        }
        None
    }

    /// The entries that may have the needle's key, as their fingerprints say.
    #[cfg(all(any(test, all(feature = "rdma", target_os = "linux")), not(any(loom, shuttle))))]
    pub(crate) fn candidates(
        &self,
        head: &Head,
        needle: &Needle<'_>,
    ) -> impl Iterator<Item = usize> {
        let print = needle.fingerprints as u8;
        (0..head.count).filter(move |index| {
            let word = self.memory.load(HEAD_WORDS + index / 8);
            (word >> (8 * (index % 8))) as u8 == print
        })
    }

    /// The number of entries below `key`, which is between the fences, if the keys were spread
    /// evenly between the codes of the fences.
    #[inline]
    pub(crate) fn expected_rank(&self, head: &Head, key: &[u8]) -> usize {
        let low = self.memory.load(head::LOW_CODE);
        let all = self.memory.load(head::HIGH_CODE).saturating_sub(low);
        let below = code_at(key, head.prefix_len).saturating_sub(low).min(all);
        // Rounded to the precision of such a number, which is far finer than a rank.
        (below as f64 / all.max(1) as f64 * head.count as f64) as usize
    }

    /// The offsets, in bytes, of the records about rank `rank`: those that
    /// [`Leaf::lower_bound`] is likely to look at. Not checked.
    #[inline]
    pub(crate) fn offsets_about(&self, head: &Head, rank: usize) -> impl Iterator<Item = usize> {
        let ranks = rank.saturating_sub(RANK_ERROR)..(rank + RANK_ERROR + 1).min(head.count);
        ranks.map(|index| self.offset(index))
    }

    /// The number of entries below `key`. Logarithmic in the distance from
    /// [`Leaf::expected_rank`].
    pub(crate) fn lower_bound(&self, head: &Head, key: &[u8]) -> usize {
        use std::cmp::Ordering as Order;
        let begins = &key[..head.prefix_len.min(key.len())];
        let prefix = self.prefix(head).map_or(Order::Equal, |prefix| prefix.compare(begins));
        match prefix {
            Order::Less => return head.count,
            Order::Greater => return 0,
            Order::Equal => {}
        }
        let rest = &key[head.prefix_len.min(key.len())..];
        let is_before = |index| {
            self.record(index).is_some_and(|record: Record<'m, M>| record.key.compare(rest).is_lt())
        };
        let (mut low, mut high) = (0, head.count);
        let (mut at, mut step) = (self.expected_rank(head, key), RANK_ERROR / 2);
        while low < high {
            at = at.clamp(low, high - 1);
            if is_before(at) {
                low = at + 1;
                at = low + step;
            } else {
                high = at;
                at = high.saturating_sub(step + 1);
            }
            step *= 2;
            // Both ends are known to be near: the rest is halved.
            if low > 0 && high < head.count {
                break;
            }
        }
        rhumb_model::search::partition_point(low, high, is_before)
    }

    /// The whole key of a record of this leaf, in place of what `out` holds.
    pub(crate) fn key_into(&self, head: &Head, record: &Record<'_, M>, out: &mut Vec<u8>) {
        out.clear();
        if let Some(prefix) = self.prefix(head) {
            prefix.append_to(out);
        }
        record.key.append_to(out);
    }
}
