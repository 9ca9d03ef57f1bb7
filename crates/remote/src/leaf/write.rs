//! Changing a leaf in shared memory. One thread at a time writes to a leaf.
//!
//! A change is made between [`LeafWriter::latch`] and [`LeafWriter::unlatch`]: readers see the leaf
//! before or after all that was done in between, or try again. Only bytes that no entry refers to
//! may be written without.

use super::{
    Leaf,
    image::{EntryRef, LeafImage, record_head, shape, word_of},
    proof::{head_sum, record_seed, record_sum, record_words},
};
use crate::{
    layout::{
        Geometry, Memory,
        format::{
            HEAD_WORDS, INCARNATION_SHIFT, LATCHED, LIVE, RECORD_HEAD_BYTES, VERSION_STEP, head,
        },
        to_words,
    },
    primitive::{AtomicU64, Ordering, fence, point},
};

/// In place of the offsets of records without a sum: none has one.
const ALL_UNSEALED: u64 = u64::MAX;

/// A leaf that its host writes to.
#[derive(Clone, Copy)]
pub(crate) struct LeafWriter<'m> {
    words: &'m [AtomicU64],
    geometry: Geometry,
}

impl<'m> LeafWriter<'m> {
    /// The leaf in `words`, which is as long as a leaf.
    pub(crate) fn new(words: &'m [AtomicU64], geometry: Geometry) -> Self {
        Self { words, geometry }
    }

    /// What is in it.
    pub(crate) fn leaf(&self) -> Leaf<'m, [AtomicU64]> {
        Leaf::new(self.words, self.geometry)
    }

    fn store(&self, index: usize, word: u64) {
        self.words[index].store(word.to_le(), Ordering::Relaxed);
    }

    fn state(&self) -> u64 {
        self.words.load(head::STATE)
    }

    /// Returns true between [`LeafWriter::latch`] and [`LeafWriter::unlatch`].
    pub(crate) fn is_latched(&self) -> bool {
        self.state() & LATCHED != 0
    }

    /// Has readers try again from here on.
    pub(crate) fn latch(&self) {
        if self.geometry.has_checksums() && !self.is_latched() {
            self.store(head::CHECKSUM, 0);
        }
        self.store(head::STATE, self.state() | LATCHED);
        // planted: latch-not-fenced
        // A reader that sees what is stored from here on sees the latch when it looks again.
        fence(Ordering::Release);
        point();
    }

    /// Lets readers see what was done since [`LeafWriter::latch`].
    pub(crate) fn unlatch(&self) {
        point();
        // planted: leaf-keeps-version-when-changes
        let state = (self.state() & !LATCHED).wrapping_add(VERSION_STEP);
        if self.geometry.has_checksums() {
            self.seal(state);
        }
        self.words[head::STATE].store(state.to_le(), Ordering::Release);
        point();
    }

    /// Puts a new leaf into the slot, which is latched. Nothing stays of what was there: the image
    /// has as many words as a leaf.
    pub(crate) fn replace(&self, image: &LeafImage) {
        for (index, word) in image.words().iter().enumerate().skip(1) {
            // planted: leaf-stored-anew-keeps-bytes
            self.store(index, *word);
        }
        if self.geometry.has_checksums() {
            self.store(head::CHECKSUM, ALL_UNSEALED);
        }
    }

    /// Takes the sum of a record, which is about to be replaced or scrubbed, off the sum of all.
    /// One that was not sealed has none.
    fn forget(&self, offset: usize) {
        let noted = self.words.load(head::CHECKSUM);
        if noted == ALL_UNSEALED {
            return;
        }
        let lane = (0..u64::BITS).step_by(16).find(|lane| noted >> lane & 0xffff == offset as u64);
        if let Some(lane) = lane {
            self.store(head::CHECKSUM, noted & !(0xffff << lane));
        } else if let Some(record) = record_words(self.words, offset) {
            self.add_to_sum(self.words.load(record.end).wrapping_neg());
        }
    }

    fn add_to_sum(&self, sum: u64) {
        let word = self.geometry.records_sum_word();
        self.store(word, self.words.load(word).wrapping_add(sum));
    }

    /// Notes that a record has no sum until the leaf is unlatched: what readers may not see yet
    /// proves nothing. Nobody reads the head's sum meanwhile, whose word has up to four offsets.
    fn unseal(&self, offset: usize) {
        let noted = self.words.load(head::CHECKSUM);
        let lane = (0..u64::BITS).step_by(16).find(|lane| noted >> lane & 0xffff == 0);
        let noted = lane.map_or(ALL_UNSEALED, |lane| noted | (offset as u64) << lane);
        self.store(head::CHECKSUM, noted);
    }

    /// Sets the sums of what was written since the leaf was latched, and that of its head, for the
    /// state that it is about to have.
    fn seal(&self, state: u64) {
        // A reader that finds a new record proven finds no proof any more of what the group has
        // replaced, in this leaf or in another one.
        fence(Ordering::Release);
        let noted = self.words.load(head::CHECKSUM);
        let seed = record_seed(self.words, self.geometry);
        let seal = |offset: usize| {
            if let Some(record) = record_words(self.words, offset) {
                let (end, sum) = (record.end, record_sum(self.words, record, seed));
                self.store(end, sum);
                self.add_to_sum(sum);
            }
        };
        if noted == ALL_UNSEALED {
            self.store(self.geometry.records_sum_word(), 0);
            let count = self.leaf().head().count;
            (0..count).for_each(|index| seal(self.offset(index)));
        } else {
            let lanes = (0..u64::BITS).step_by(16).map(|lane| noted >> lane & 0xffff);
            lanes.filter(|offset| *offset != 0).for_each(|offset| seal(offset as usize));
        }
        self.store(head::CHECKSUM, head_sum(self.words, self.geometry, state));
    }

    /// Puts a new leaf into a free slot, of the next incarnation, and leaves it latched.
    pub(crate) fn begin(&self, image: &LeafImage) {
        self.latch();
        self.replace(image);
        self.raise_incarnation();
    }

    /// Has the leaf, which is latched, answer for no key, in the next incarnation. Its bytes stay
    /// until [`LeafWriter::retire`], and with them the proofs of its records.
    pub(crate) fn end(&self) {
        // planted: leaf-ends-keeps-incarnation
        self.raise_incarnation();
        self.store(head::SHAPE, 0);
        if self.geometry.has_checksums() {
            // What was written since the leaf was latched is not published here, and gets no sum.
            // planted: not-published-gets-sum-leaf
            self.store(head::CHECKSUM, 0);
        }
    }

    fn raise_incarnation(&self) {
        self.store(head::STATE, self.state().wrapping_add(1 << INCARNATION_SHIFT));
    }

    /// Ends the leaf, which is latched: it answers for no key any more. Its bytes are zeroed, so
    /// that what was removed cannot be read; the slot keeps its state for ever, so that a late
    /// reader notices what becomes of it.
    pub(crate) fn retire(&self) {
        for index in 1..self.words.len() {
            self.store(index, 0);
        }
    }

    /// Sets the neighbours of the leaf, which is latched.
    pub(crate) fn set_links(&self, next: u32, previous: u32) {
        self.store(head::LINKS, u64::from(next) | u64::from(previous) << 32);
    }

    /// Sets the number of the last change of the leaf, which is latched.
    pub(crate) fn set_seq(&self, seq: u64) {
        self.store(head::COUNT, self.words.load(head::COUNT) & 0xff | seq << 8);
    }

    /// Makes `entry` number `index` of the leaf, which is latched; returns false and changes
    /// nothing if there is no room.
    pub(crate) fn insert(&self, index: usize, entry: EntryRef<'_>) -> bool {
        let head = self.leaf().head();
        if head.count == self.geometry.room() {
            return false;
        }
        let Some(offset) = self.append(entry) else { return false };
        let print = u64::from(super::fingerprint(entry.key));
        self.insert_lane(HEAD_WORDS, 8, index, head.count, print);
        self.insert_lane(self.geometry.offsets_word(), 16, index, head.count, offset as u64);
        self.store_count(head.count + 1);
        true
    }

    /// Replaces entry `index` of the leaf, which is latched, by one of the same key; returns false
    /// and changes nothing if there is no room. A record of as many words is put in its place, so
    /// that values of one length never fill a leaf.
    pub(crate) fn update(&self, index: usize, entry: EntryRef<'_>) -> bool {
        let old = self.offset(index);
        let prefix_len = self.leaf().head().prefix_len;
        if self.record_bytes_at(old) == entry.record_bytes(self.geometry, prefix_len) {
            if self.geometry.has_checksums() {
                self.forget(old);
            }
            self.write_record(old, entry, prefix_len);
            return true;
        }
        let Some(offset) = self.append(entry) else { return false };
        let (word, lane) = (self.geometry.offsets_word() + index / 4, 16 * (index % 4));
        let others = self.words.load(word) & !(0xffff << lane);
        self.store(word, others | (offset as u64) << lane);
        self.scrub(old);
        true
    }

    /// Removes entry `index` of the leaf, which is latched.
    pub(crate) fn remove(&self, index: usize) {
        let count = self.leaf().head().count;
        let old = self.offset(index);
        self.remove_lane(HEAD_WORDS, 8, index, count);
        self.remove_lane(self.geometry.offsets_word(), 16, index, count);
        self.store_count(count - 1);
        self.scrub(old);
    }

    fn offset(&self, index: usize) -> usize {
        let word = self.words.load(self.geometry.offsets_word() + index / 4);
        usize::from((word >> (16 * (index % 4))) as u16)
    }

    fn store_count(&self, count: usize) {
        self.store(head::COUNT, self.words.load(head::COUNT) & !0xff | count as u64);
    }

    /// Writes a record after the last one.
    fn append(&self, entry: EntryRef<'_>) -> Option<usize> {
        let head = self.leaf().head();
        let bytes = entry.record_bytes(self.geometry, head.prefix_len);
        if head.used + bytes > self.geometry.leaf_bytes() {
            return None;
        }
        self.write_record(head.used, entry, head.prefix_len);
        let used = head.used + bytes;
        self.store(head::SHAPE, shape(used, head.prefix_len, head.flags | LIVE, head.run));
        Some(head.used)
    }

    /// Writes a record where there is room for it.
    fn write_record(&self, offset: usize, entry: EntryRef<'_>, prefix_len: usize) {
        let rest = &entry.key[prefix_len..];
        self.store(offset / 8, record_head(rest.len(), entry.kind, entry.value_len));
        let key_at = offset + RECORD_HEAD_BYTES;
        self.store_bytes(key_at, rest);
        let value_at = key_at + 8 * to_words(rest.len());
        self.store_bytes(value_at, entry.value);
        if self.geometry.has_checksums() {
            // planted: record-proves-itself-before-published
            self.store(value_at / 8 + to_words(entry.value.len()), 0);
            self.unseal(offset);
        }
    }

    fn store_bytes(&self, offset: usize, bytes: &[u8]) {
        for (index, chunk) in (offset / 8..).zip(bytes.chunks(8)) {
            self.store(index, word_of(chunk));
        }
    }

    /// Bytes of the record at an offset.
    fn record_bytes_at(&self, offset: usize) -> usize {
        let record = self.words.load(offset / 8);
        let rest_len = usize::from(record as u16);
        let is_here = (record >> 16) as u8 == crate::layout::format::KIND_INLINE;
        let value_len = if is_here { (record >> 32) as usize } else { 0 };
        self.geometry.record_bytes(rest_len, value_len)
    }

    /// Zeroes a record that no entry refers to any more.
    fn scrub(&self, offset: usize) {
        if self.geometry.has_checksums() {
            self.forget(offset);
        }
        // planted: bytes-record-replaced-stay
        for index in 0..self.record_bytes_at(offset) / 8 {
            self.store(offset / 8 + index, 0);
        }
    }

    /// Inserts a value of `bits` before lane `index` of the `count` lanes that begin at `base`.
    fn insert_lane(&self, base: usize, bits: usize, index: usize, count: usize, value: u64) {
        let lanes = 64 / bits;
        let (first, last) = (base + index / lanes, base + count / lanes);
        for word in (first + 1..=last).rev() {
            let carried = self.words.load(word - 1) >> (64 - bits);
            self.store(word, self.words.load(word) << bits | carried);
        }
        let at = bits * (index % lanes);
        let below = (1u64 << at) - 1;
        let word = self.words.load(first);
        self.store(first, word & below | value << at | (word & !below) << bits);
    }

    /// Takes lane `index` out of the `count` lanes that begin at `base`.
    fn remove_lane(&self, base: usize, bits: usize, index: usize, count: usize) {
        let lanes = 64 / bits;
        let (first, last) = (base + index / lanes, base + (count - 1) / lanes);
        let below = (1u64 << (bits * (index % lanes))) - 1;
        for at in first..=last {
            let kept = if at == first { below } else { 0 };
            let word = self.words.load(at);
            let carried = if at == last { 0 } else { self.words.load(at + 1) << (64 - bits) };
            self.store(at, word & kept | (word >> bits & !kept) | carried);
        }
    }
}
