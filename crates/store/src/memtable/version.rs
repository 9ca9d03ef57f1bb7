//! The versions of a memtable's keys: the position of each in its log record, and the chain from a
//! key's newest version to its oldest.
//!
//! Thread safety: any number of threads may read. Any thread may make versions. A chain is changed
//! by one thread at a time, the one that holds the lock of its key's bucket. Invariants:
//!
//! 1. Versions and the records that they point into live as long as their [`Versions`].
//! 2. A chain is sorted, newest first, and `jump` leads from a version to one further on in its
//!    chain.
//! 3. A version is linked to the older ones before it can be reached itself.
//!
//! The jumps are those of a list of trees whose sizes have the form 2^n - 1. The way from the
//! newest version to any other takes O(log n) steps, though only the newest version's links are
//! ever written.
#![allow(unsafe_code, reason = "versions point into log records, and to each other")]

use std::{
    mem::ManuallyDrop,
    ptr::{self, NonNull},
};

use rhumb_index::engine::Keyed;
use rhumb_model::code::code_at;
use rhumb_sync::{
    arena::Arena,
    prefetch::prefetch_address,
    primitive::{Arc, AtomicPtr, AtomicU32, Mutex, Ordering},
    record::Record,
};

use super::entry::MemEntry;
use crate::{
    log::batch::BatchOp,
    slice::Slice,
    types::{Kind, SeqNo, TreeId},
};

/// The bits of a word below the alignment of versions. They hold a hash of the key: if the index's
/// eight bytes do not tell two keys apart, most versions need not be read to do so.
const TAGS: u64 = align_of::<Version>() as u64 - 1;

/// The tag of a key: a hash of its last bytes and those in its middle.
#[inline(always)]
fn tag(key: &[u8]) -> u64 {
    let start = key.len().saturating_sub(8);
    let mixed = code_at(key, start) ^ code_at(key, start / 2).rotate_left(32) ^ key.len() as u64;
    mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58 & TAGS
}

/// The number of versions in the first block of memory.
const BLOCK_MIN: usize = 4;
/// The number of versions in the largest blocks of memory.
const BLOCK_MAX: usize = 1024;
/// The number of blocks that are smaller than the largest ones, each twice as large as the one
/// before.
const BLOCKS_GROWING: usize = (BLOCK_MAX / BLOCK_MIN).ilog2() as usize;
/// The memory of the version this many places ahead is prefetched.
const AHEAD: usize = 4;

/// The number of versions in the blocks before this one.
fn block_start(block: usize) -> usize {
    let growing = block.min(BLOCKS_GROWING);
    BLOCK_MIN * ((1 << growing) - 1) + (block - growing) * BLOCK_MAX
}

/// The block of the version that was made after `nth` others.
fn block_of(nth: usize) -> usize {
    let growing = (nth / BLOCK_MIN + 1).ilog2() as usize;
    match nth.checked_sub(block_start(BLOCKS_GROWING)) {
        Some(rest) => BLOCKS_GROWING + rest / BLOCK_MAX,
        None => growing,
    }
}

/// One version of one key: one line of memory.
#[repr(align(64))]
pub(crate) struct Version {
    seq: SeqNo,
    /// Its log record, as [`Record::into_raw`] returned it.
    record: *const (),
    /// The first byte of its key in the record; the value comes after the key.
    key: *const u8,
    /// The next older version.
    next: AtomicPtr<Version>,
    /// An older version, most of the time further away.
    jump: AtomicPtr<Version>,
    /// The number of older versions at the time it was linked.
    depth: AtomicU32,
    tree: TreeId,
    key_len: u32,
    /// The offset of the value from the first byte of the key.
    value_offset: u32,
    value_len: u32,
    kind: Kind,
    /// True if this version owns a count of the record; one version of each record does.
    holds_record: bool,
}

const _: () = assert!(cfg!(any(loom, shuttle)) || size_of::<Version>() == 64);

impl Version {
    /// The version that a word leads to, whatever the word's tag.
    ///
    /// # Safety
    /// The word came from [`Versions::add`], and those versions are not dropped while it is
    /// borrowed.
    #[inline(always)]
    unsafe fn behind<'a>(word: u64) -> &'a Self {
        // SAFETY: the word is the address of a version, whose provenance was exposed, and a tag
        // below its alignment.
        unsafe { &*ptr::with_exposed_provenance((word & !TAGS) as usize) }
    }

    /// The sequence number of the write that made it.
    pub(super) fn seq(&self) -> SeqNo {
        self.seq
    }

    /// The LSM tree of its key.
    pub(super) fn tree(&self) -> TreeId {
        self.tree
    }

    /// The user key.
    #[inline(always)]
    pub(super) fn key(&self) -> &[u8] {
        // SAFETY: the record lives as long as its versions (invariant 1), and the operation that
        // the version was made of was decoded from it, so that its key lies within.
        unsafe { std::slice::from_raw_parts(self.key, self.key_len as usize) }
    }

    /// The version as an entry, which shares the record.
    #[inline]
    pub(super) fn entry(&self) -> MemEntry {
        let record = self.shared_record();
        let key_start = self.key_start(&record);
        let operation = BatchOp {
            tree: self.tree,
            kind: self.kind,
            range: None,
            key_start,
            key_len: self.key_len,
            value_start: key_start + self.value_offset,
            value_len: self.value_len,
        };
        MemEntry::new(record, &operation, self.seq)
    }

    /// The offset of the key in its record.
    #[inline]
    fn key_start(&self, record: &Record) -> u32 {
        // Payloads are under 4 GiB.
        (self.key.addr() - record.as_ptr().addr()) as u32
    }

    /// The word that leads here.
    #[inline(always)]
    pub(super) fn word(&self) -> u64 {
        ptr::from_ref(self).expose_provenance() as u64
    }

    /// Appends the words of this version and the older ones, until the run has `run_end` words.
    #[inline]
    pub(super) fn append_chain(&self, run_end: usize, run: &mut Vec<u64>) {
        let mut next = Some(self);
        while let Some(version) = next.filter(|_| run.len() < run_end) {
            run.push(version.word());
            next = version.older();
        }
    }

    /// Appends the words of the versions from this one on that are newer than `newer_than`, the
    /// oldest first, until the run has `run_end` words. O(log n) each.
    pub(super) fn append_chain_back(
        &self,
        newer_than: Option<SeqNo>,
        run_end: usize,
        run: &mut Vec<u64>,
    ) {
        let mut next = self.oldest_newer(newer_than);
        while let Some(version) = next.filter(|_| run.len() < run_end) {
            run.push(version.word());
            next = self.oldest_newer(Some(version.seq()));
        }
    }

    /// Returns whether this is a value or a tombstone.
    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// The value; empty for a tombstone.
    #[inline(always)]
    pub(super) fn value(&self) -> &[u8] {
        // SAFETY: as for the key, the record lives as long as its versions (invariant 1), and the
        // operation that was decoded from it says where in it the value lies.
        unsafe {
            let start = self.key.add(self.value_offset as usize);
            std::slice::from_raw_parts(start, self.value_len as usize)
        }
    }

    /// The value, shared with the record it came in.
    pub(super) fn value_slice(&self) -> Slice {
        let record = self.shared_record();
        let start = self.key_start(&record) + self.value_offset;
        Slice::from_record(record, start, self.value_len)
    }

    /// The log record.
    #[inline]
    fn shared_record(&self) -> Record {
        // SAFETY: `Versions` holds a count of the record, which came from `Record::into_raw` and is
        // not given up here.
        let held = ManuallyDrop::new(unsafe { Record::from_raw(self.record) });
        Record::clone(&held)
    }

    /// The version that a link of the same chain leads to.
    #[inline]
    fn follow(&self, link: &AtomicPtr<Self>) -> Option<&Self> {
        // SAFETY: links lead to versions of the same `Versions`, or nowhere, and those live as long
        // as this one (invariant 1).
        unsafe { link.load(Ordering::Acquire).as_ref() }
    }

    /// The next older version.
    #[inline]
    pub(super) fn older(&self) -> Option<&Self> {
        self.follow(&self.next)
    }

    /// The last version from this one on that is newer than `seq`; `None` if this one is not.
    fn last_newer(&self, seq: SeqNo) -> Option<&Self> {
        if self.seq <= seq {
            return None;
        }
        let mut at = self;
        loop {
            let is_newer = |version: &&Self| version.seq > seq;
            let further = self.follow(&at.jump).filter(is_newer);
            match further.or_else(|| at.older().filter(is_newer)) {
                Some(next) => at = next,
                None => return Some(at),
            }
        }
    }

    /// The newest version from this one on that is not newer than `seq`. O(log n).
    #[inline]
    pub(super) fn up_to(&self, seq: SeqNo) -> Option<&Self> {
        match self.last_newer(seq) {
            None => Some(self),
            Some(newer) => newer.older(),
        }
    }

    /// The oldest version from this one on that is newer than `seq`; without `seq`, the oldest of
    /// all. O(log n).
    pub(super) fn oldest_newer(&self, seq: Option<SeqNo>) -> Option<&Self> {
        match seq {
            Some(seq) => self.last_newer(seq),
            // Sequence number 0 occurs only in a log that nothing wrote; such a version is the
            // oldest.
            None => {
                self.last_newer(0).map_or(Some(self), |last| Some(last.older().unwrap_or(last)))
            }
        }
    }

    /// Links a version that no thread can reach yet to `next`, and so to the older ones.
    fn link(&self, next: Option<&Self>, jump: Option<&Self>, depth: u32) {
        let pointer =
            |to: Option<&Self>| to.map_or(ptr::null_mut(), |to| ptr::from_ref(to).cast_mut());
        self.next.store(pointer(next), Ordering::Release);
        self.jump.store(pointer(jump), Ordering::Release);
        self.depth.store(depth, Ordering::Relaxed);
    }

    /// Puts `new` into the chain that begins here. Returns true if the chain begins with `new`
    /// then.
    fn put(&self, new: &Self) -> bool {
        let depth = |version: &Self| version.depth.load(Ordering::Relaxed);
        if new.seq > self.seq {
            let near = self.follow(&self.jump);
            let far = near.and_then(|near| Some((near, near.follow(&near.jump)?)));
            let jump = match far {
                Some((near, far))
                    if depth(self).wrapping_sub(depth(near))
                        == depth(near).wrapping_sub(depth(far)) =>
                {
                    far
                }
                _ => self,
            };
            new.link(Some(self), Some(jump), depth(self).wrapping_add(1));
            return true;
        }
        if new.seq == self.seq {
            new.link(self.older(), self.follow(&self.jump), depth(self));
            return true;
        }
        // Out of order: no log that the engine wrote causes this. From now on no jump leads over
        // this place, or to a version that is replaced.
        let mut newer = self;
        loop {
            newer.jump.store(ptr::null_mut(), Ordering::Release);
            match newer.older().filter(|older| older.seq > new.seq) {
                Some(next) => newer = next,
                None => break,
            }
        }
        let older = newer.older();
        let older = older.filter(|older| older.seq < new.seq).or_else(|| older?.older());
        new.link(older, None, depth(newer));
        newer.next.store(ptr::from_ref(new).cast_mut(), Ordering::Release);
        false
    }
}

/// Tells the index how to compare the keys of an LSM tree: it holds the newest version of each.
pub(super) struct Newest;

// SAFETY: only `Learned` makes a map of this. It sets words of its own `Versions` for the keys of
// these versions, and drops its maps before them.
unsafe impl Keyed for Newest {
    /// # Safety
    /// As for every [`Keyed`]: the word's version lives.
    #[inline(always)]
    unsafe fn key<'a>(word: u64) -> &'a [u8] {
        // SAFETY: the map has words of versions, and the caller says that this one lives.
        unsafe { Version::behind(word) }.key()
    }

    /// # Safety
    /// As for every [`Keyed`]: the word's version lives.
    #[inline(always)]
    unsafe fn is_key(word: u64, key: &[u8]) -> bool {
        // SAFETY: the caller's promise.
        word & TAGS == tag(key) && unsafe { Self::key(word) == key }
    }

    /// # Safety
    /// As for every [`Keyed`]: both versions live, and the caller alone writes.
    #[inline(always)]
    unsafe fn succeed(old: u64, new: u64) -> u64 {
        // SAFETY: the caller's promise.
        if unsafe { Version::behind(old).put(Version::behind(new)) } { new } else { old }
    }
}

/// All versions of a memtable, and the records that they point into.
pub(super) struct Versions {
    state: Mutex<MakingState>,
    arena: Arc<Arena>,
}

struct MakingState {
    /// The memory of the next version.
    free: NonNull<Version>,
    /// The number of versions that have room at `free`.
    left: usize,
    /// The record of the previous version.
    record: *const (),
    /// All blocks: their memory, and the number of versions that have room in each.
    blocks: Vec<(NonNull<Version>, usize)>,
}

// SAFETY: the state owns its memory and its counts of records, which may be given up on any thread.
unsafe impl Send for MakingState {}

impl Versions {
    /// An empty set of versions. They will be stored in this arena, which is freed with them.
    pub(super) fn new(arena: Arc<Arena>) -> Self {
        let state = MakingState {
            free: NonNull::dangling(),
            left: 0,
            record: ptr::null(),
            blocks: Vec::new(),
        };
        Self { state: Mutex::new(state), arena }
    }

    /// Makes the version of an operation of `record`, which is in no chain yet. Returns the word
    /// for the index.
    #[inline]
    pub(super) fn add(&self, record: &Record, operation: &BatchOp, seq: SeqNo) -> u64 {
        // Both are used later without checking again that they lie in the record.
        let (key, value) = (operation.key(record), operation.value(record));
        let tag = tag(key);
        // A tombstone's value is empty, and may be said to begin anywhere.
        let value_offset = match value {
            [] => 0,
            _ => operation.value_start - operation.key_start,
        };
        let mut state = self.state.lock();
        let holds_record = state.record != record.raw();
        if holds_record {
            state.record = record.clone().into_raw();
        }
        let version = Version {
            seq,
            record: state.record,
            key: key.as_ptr(),
            next: AtomicPtr::new(ptr::null_mut()),
            jump: AtomicPtr::new(ptr::null_mut()),
            depth: AtomicU32::new(0),
            tree: operation.tree,
            key_len: operation.key_len,
            value_offset,
            value_len: operation.value_len,
            kind: operation.kind,
            holds_record,
        };
        if state.left == 0 {
            let before = state.blocks.last().map_or(BLOCK_MIN / 2, |(_, len)| *len);
            state.left = (before * 2).min(BLOCK_MAX);
            state.free = self.arena.allocate(state.left * size_of::<Version>()).cast();
            let block = (state.free, state.left);
            state.blocks.push(block);
        }
        let slot = state.free;
        // SAFETY: the block has room for `left` versions from here on, and no other thread has
        // them.
        unsafe {
            slot.write(version);
            state.free = slot.add(1);
        }
        state.left -= 1;
        drop(state);
        // Prefetches the cache line of a later version, so that no write waits for it.
        prefetch_address(slot.as_ptr().wrapping_add(AHEAD));
        slot.as_ptr().expose_provenance() as u64 | tag
    }

    /// The number of versions that were made. O(1).
    pub(super) fn len(&self) -> usize {
        let state = self.state.lock();
        let last = state.blocks.len().checked_sub(1);
        last.map_or(0, |last| block_start(last) + state.blocks[last].1 - state.left)
    }

    /// The version that was made after `nth` others, if there is one. O(1).
    pub(super) fn nth(&self, nth: usize) -> Option<&Version> {
        let state = self.state.lock();
        let block = block_of(nth);
        let (start, len) = *state.blocks.get(block)?;
        let unused = if block + 1 == state.blocks.len() { state.left } else { 0 };
        let at = nth - block_start(block);
        // SAFETY: `len - unused` versions were written to the block, under the lock that is held;
        // none is moved or dropped before `self` is.
        (at < len - unused).then(|| unsafe { start.add(at).as_ref() })
    }

    /// The version that a word leads to, which the index of the same memtable holds.
    #[inline(always)]
    pub(super) fn version(&self, word: u64) -> &Version {
        // SAFETY: only words of these versions are put into the indexes of their memtable, and all
        // versions live as long as `self`.
        unsafe { Version::behind(word) }
    }
}

impl Drop for Versions {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let last = state.blocks.len();
        for (i, (block, len)) in state.blocks.drain(..).enumerate() {
            let unused = if i + 1 == last { state.left } else { 0 };
            // SAFETY: `len - unused` versions were written to the block, which the arena still has.
            let versions = unsafe { std::slice::from_raw_parts(block.as_ptr(), len - unused) };
            for version in versions.iter().filter(|version| version.holds_record) {
                // SAFETY: the count that goes with the version came from `Record::into_raw`, and
                // no thread can reach the version any more.
                drop(unsafe { Record::from_raw(version.record) });
            }
        }
    }
}
