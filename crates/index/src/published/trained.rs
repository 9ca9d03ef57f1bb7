//! Trained arrays: sorted keys that never move, one line that predicts where each is, and for each
//! gap between them a link to what has come there since.
//!
//! Thread safety: keys never change. A record's value and presence are written by the thread that
//! has claimed it, as in `claim`; links are replaced by CAS while they are not frozen.
#![allow(unsafe_code, reason = "arrays lie in one block of an arena")]

use std::{ptr::NonNull, slice};

use rhumb_model::Segment as Model;
use rhumb_sync::{
    arena::Arena,
    primitive::{AtomicPtr, AtomicU64, Ordering},
};

use super::{
    claim::{self, SlotClaim},
    segment::is_below,
};
use crate::{
    entry::Entry,
    op::{Action, LeafWritten, Trigger},
    raw::{
        bucket::present,
        pool::Zeroed,
        schema::{KeyProbe, Schema, is_same, reader},
    },
};

/// Records that share a header: as many as the slots of a bucket, whose present and used bits the
/// header has.
const RECORDS: usize = 15;

/// Bytes before the arrays of a trained array that lies in its own block: the array's head, in two
/// cache lines, so that the keys begin with a line of their own.
const HEAD_BYTES: usize = 128;

/// What a link leads to: a value of any type, told apart by the lowest bits of its address.
pub(crate) type Anything = u8;

/// A trained array.
#[derive(Clone, Copy)]
pub(crate) struct TrainedArray {
    model: Model,
    len: u32,
    block: NonNull<u8>,
}

const _: () = assert!(size_of::<TrainedArray>() <= HEAD_BYTES);
const _: () = assert!(align_of::<AtomicU64>() <= 8 && align_of::<AtomicPtr<Anything>>() <= 8);

impl TrainedArray {
    /// The trained array of a run of entries, whose words ascend along `model`.
    pub(crate) fn new(arena: &Arena, model: Model, words: &[u64], entries: &[Entry]) -> Self {
        let len = words.len();
        let block = arena.allocate(Self::bytes_of(len));
        let trained = Self { model, len: len as u32, block };
        // SAFETY: the block is ours, that long and aligned. All of it is written before anything is
        // read: zeroes are no values, absent records and links to nothing.
        unsafe {
            block.cast::<Self>().write(trained);
            let keys = block.add(HEAD_BYTES).cast::<u64>();
            keys.copy_from_nonoverlapping(NonNull::from(words).cast(), len);
            let values = block.add(HEAD_BYTES + Self::values_at(len));
            AtomicU64::make(values.cast().as_ptr(), len + len.div_ceil(RECORDS));
            let links = block.add(HEAD_BYTES + Self::links_at(len));
            AtomicPtr::<Anything>::make(links.cast().as_ptr(), len + 1);
        }
        for (value, entry) in trained.values().iter().zip(entries) {
            value.store(entry.value, Ordering::Relaxed);
        }
        for at in 0..len {
            let header = &trained.headers()[at / RECORDS];
            let bits = header.load(Ordering::Relaxed) | 1 << (at % RECORDS);
            header.store(bits, Ordering::Release);
        }
        trained
    }

    /// Gives the memory back.
    ///
    /// # Safety
    /// The array was made with this arena, and no thread uses it again.
    pub(crate) unsafe fn free(self, arena: &Arena) {
        // SAFETY: the block came from the arena with this length, and the caller gives it up.
        unsafe { arena.release(self.block, self.bytes()) };
    }

    /// The copy of an array that lies in its own block.
    ///
    /// # Safety
    /// The address is that of a trained array's block, which lives for as long as it is borrowed.
    pub(crate) unsafe fn at<'a>(address: *const Anything) -> &'a Self {
        // SAFETY: blocks start with the array's head, and the caller says that this one lives.
        unsafe { &*address.cast() }
    }

    /// The address of the array's block.
    pub(crate) fn address(&self) -> *mut Anything {
        self.block.as_ptr()
    }

    /// The block that it lies in, and how long it is.
    pub(crate) fn block(&self) -> (NonNull<u8>, usize) {
        (self.block, self.bytes())
    }

    /// The offset of the values, after the keys.
    #[inline(always)]
    fn values_at(len: usize) -> usize {
        len * size_of::<u64>()
    }

    #[inline(always)]
    fn headers_at(len: usize) -> usize {
        Self::values_at(len) + len * size_of::<AtomicU64>()
    }

    #[inline(always)]
    fn links_at(len: usize) -> usize {
        Self::headers_at(len) + len.div_ceil(RECORDS) * size_of::<AtomicU64>()
    }

    fn bytes_of(len: usize) -> usize {
        HEAD_BYTES + Self::links_at(len) + (len + 1) * size_of::<AtomicPtr<Anything>>()
    }

    pub(crate) fn bytes(&self) -> usize {
        Self::bytes_of(self.len())
    }

    /// The number of records.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// One of the block's arrays.
    #[inline(always)]
    fn array<T>(&self, at: usize, len: usize) -> &[T] {
        // SAFETY: the block holds keys, values, headers and links, each of its own type and aligned
        // to eight bytes, one after the other; the callers name one of these arrays. All of it was
        // initialised by `new` and lives for as long as the array is used.
        unsafe { slice::from_raw_parts(self.block.add(HEAD_BYTES + at).cast().as_ptr(), len) }
    }

    #[inline(always)]
    fn keys(&self) -> &[u64] {
        self.array(0, self.len())
    }

    #[inline(always)]
    fn values(&self) -> &[AtomicU64] {
        self.array(Self::values_at(self.len()), self.len())
    }

    #[inline(always)]
    fn headers(&self) -> &[AtomicU64] {
        self.array(Self::headers_at(self.len()), self.len().div_ceil(RECORDS))
    }

    /// The links: the first is for what is below all records, each other for what comes after one.
    #[inline(always)]
    pub(crate) fn links(&self) -> &[AtomicPtr<Anything>] {
        self.array(Self::links_at(self.len()), self.len() + 1)
    }

    /// The record of a key, or the number of the link of the gap that the key belongs to.
    #[inline(always)]
    pub(crate) fn find<S: Schema>(&self, word: u64, probe: KeyProbe<'_>) -> Result<usize, usize> {
        let (keys, values) = (self.keys(), self.values());
        let window = self.model.window(word);
        let end = (window.hi as usize).min(keys.len());
        let (mut low, mut len) = (window.lo as usize, end.saturating_sub(window.lo as usize));
        while len > 0 {
            let half = len / 2;
            let at = low + half;
            // The record may be a new one, of a key that is just coming back.
            let is_lower = match S::WIDE {
                true => is_below::<S>(keys[at], values[at].load(Ordering::Acquire), word, probe),
                false => keys[at] < word,
            };
            (low, len) = if is_lower { (at + 1, len - half - 1) } else { (low, half) };
        }
        let is_it = keys.get(low) == Some(&word)
            && is_same::<S>(probe)(values[low].load(Ordering::Acquire));
        if is_it { Ok(low) } else { Err(low) }
    }

    /// The word of the value of a record, if it is present.
    #[inline(always)]
    pub(crate) fn get<S: Schema>(&self, at: usize, probe: KeyProbe<'_>) -> Option<u64> {
        let header = &self.headers()[at / RECORDS];
        let is_present = || present(header.load(Ordering::Acquire)) & 1 << (at % RECORDS) != 0;
        if !is_present() {
            return None;
        }
        let value = reader::<S>(probe)(self.values()[at].load(Ordering::Acquire));
        // As in a bucket: a record that is still present had its value in between.
        value.filter(|_| is_present())
    }

    /// Applies an action to a key that has a record.
    pub(crate) fn rewrite<S: Schema>(
        &self,
        at: usize,
        action: Action,
        keep: impl FnOnce(u64) -> Option<Trigger>,
    ) -> Result<LeafWritten, crate::raw::bucket::Frozen> {
        let mut claim = SlotClaim::new(&self.headers()[at / RECORDS], at % RECORDS)?;
        // Before the claim ends, so that the thread that freezes the record finds what was kept.
        Ok(claim.rewrite::<S>(&self.values()[at], action).keeping(keep))
    }

    /// The entry of a record, if it is present.
    pub(crate) fn entry(&self, at: usize) -> Option<Entry> {
        let header = &self.headers()[at / RECORDS];
        let is_present = || present(header.load(Ordering::Acquire)) & 1 << (at % RECORDS) != 0;
        if !is_present() {
            return None;
        }
        let value = self.values()[at].load(Ordering::Acquire);
        is_present().then(|| Entry { word: self.keys()[at], value })
    }

    /// Calls `visit` with the slot of each record that is not present.
    pub(crate) fn for_each_dead(&self, visit: &mut impl FnMut(u64)) {
        for (at, value) in self.values().iter().enumerate() {
            let header = self.headers()[at / RECORDS].load(Ordering::Acquire);
            if present(header) & 1 << (at % RECORDS) == 0 {
                visit(value.load(Ordering::Acquire));
            }
        }
    }

    /// Makes the records, but not what the links lead to, unchangeable.
    pub(crate) fn freeze(&self) {
        self.headers().iter().for_each(claim::freeze);
    }

    /// The lines of a record's key and value.
    pub(crate) fn lines(&self, at: usize) -> Option<[*const u64; 2]> {
        let value = self.values().get(at)?;
        Some([&raw const self.keys()[at], std::ptr::from_ref(value).cast()])
    }
}
