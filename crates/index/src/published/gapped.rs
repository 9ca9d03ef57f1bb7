//! Gapped leaves: a sorted array with gaps, the *primary*, and a *secondary* one of the same
//! capacity that is made when the primary is full, so that growing is put off (TONE, section 4).
//!
//! Both arrays are cut into segments of fifteen slots. A line predicts roughly which segment a key
//! belongs to, and an exponential search over the segments' lowest words finds it. Within its
//! segment a key is put in its place by the segment's order word, rather than by moving others: a
//! shift would make readers wait, or try again, or miss the key that is being moved.
//!
//! Thread safety: readers take no lock and never retry. Invariants:
//!
//! 1. The segment that a key belongs to never changes. A key has one slot, in either array.
//! 2. The lock bit of a segment of the primary is that of the secondary's segment too.
//! 3. The secondary array is linked once, by a thread that holds the lock of a segment, and lives
//!    as the leaf does.
#![allow(unsafe_code, reason = "segments lie in blocks of an arena")]

use std::{
    ptr::{self, NonNull},
    slice,
};

use rhumb_sync::{
    arena::Arena,
    prefetch::prefetch_address,
    primitive::{AtomicPtr, AtomicU32, Ordering, in_models},
};

use super::{head::LeafHead, segment::SlotSegment};
use crate::{
    address::BucketLine,
    entry::{Entry, KeyRun},
    op::{Action, Blocked, KeyChange, LeafWritten, Trigger},
    raw::{
        bucket::{BUCKET_SLOTS, SlotLookup},
        pool::Zeroed,
        schema::{KeyProbe, Schema, reader, slot_value, sort},
    },
};

/// Slots of a segment.
const SLOTS: usize = BUCKET_SLOTS;
/// The target number of keys of a segment of a new leaf: a density of 0.6 (TONE, section 4.2).
const FILL: usize = SLOTS * 3 / 5;
/// The most keys of a segment of a new leaf. Keys that share a word go into one segment, and make
/// it fuller than [`FILL`]. Chosen, not measured: two slots are left for keys that come.
const FILL_MAX: usize = in_models(13, 3);
/// An array is full when this many of 5 slots are used: a threshold of 0.8 (TONE, section 4.2).
const USED_OF_5: usize = 4;
/// The most keys of a new leaf: its primary array is then 16 KiB of keys and values, half of the
/// largest node in TONE (section 4.2).
pub(crate) const KEYS_MAX: usize = in_models(1024 * 3 / 5, 8);

type GapArray = SlotSegment<SLOTS>;

/// A leaf of two gapped arrays.
pub(crate) struct GappedLeaf {
    /// Maps words to segments, roughly.
    line: BucketLine,
    /// The lowest word of each segment; the first counts as 0.
    lowest: Box<[u64]>,
    primary: NonNull<GapArray>,
    secondary: AtomicPtr<GapArray>,
    /// Used slots of the secondary array.
    secondary_used: AtomicU32,
    pub(crate) head: LeafHead,
}

// SAFETY: the leaf owns its blocks of memory; all that changes is atomic.
unsafe impl Send for GappedLeaf {}
// SAFETY: as above.
unsafe impl Sync for GappedLeaf {}

/// A zeroed array of `segments` segments.
fn allocate(arena: &Arena, segments: usize) -> NonNull<GapArray> {
    let block = arena.allocate(segments * size_of::<GapArray>()).cast::<GapArray>();
    // SAFETY: the block is ours and that long.
    unsafe { GapArray::make(block.as_ptr(), segments) };
    block
}

impl GappedLeaf {
    /// A leaf of a run of entries; none if too many of them share a word.
    pub(crate) fn build(arena: &Arena, run: &KeyRun<'_>) -> Option<Self> {
        let (mut ends, mut start) = (Vec::new(), 0);
        while start < run.words.len() {
            // As even as possible, and no word in two segments.
            let left = run.words.len() - start;
            let mut end = start + left.div_ceil(left.div_ceil(FILL));
            while end < run.words.len() && run.words[end] == run.words[end - 1] {
                end += 1;
            }
            if end - start > FILL_MAX {
                return None;
            }
            ends.push(end);
            start = end;
        }
        let segments = ends.len().max(1);
        let word = |at: usize| run.words.get(at).copied().unwrap_or_default();
        let starts = || std::iter::once(0).chain(ends.iter().copied()).take(segments);
        let last = word(run.words.len().saturating_sub(1));
        let leaf = Self {
            line: BucketLine::new(word(0), last, segments),
            lowest: starts().map(|start| if start == 0 { 0 } else { word(start) }).collect(),
            primary: allocate(arena, segments),
            secondary: AtomicPtr::new(ptr::null_mut()),
            secondary_used: AtomicU32::new(0),
            head: LeafHead::new(run.prefix, run.entries.len()),
        };
        for ((segment, start), end) in leaf.primary().iter().zip(starts()).zip(&ends) {
            let mut segment = segment.unshared();
            for at in start..*end {
                segment.push(run.words[at], run.entries[at].value);
            }
        }
        Some(leaf)
    }

    /// Gives the leaf's memory back, but not the records that its slots point to.
    ///
    /// # Safety
    /// The leaf was made with this arena, and no thread uses it again.
    pub(crate) unsafe fn free(self, arena: &Arena) {
        let bytes = self.len() * size_of::<GapArray>();
        // SAFETY: both blocks came from the arena with this length; the caller gives them up.
        unsafe {
            arena.release(self.primary.cast(), bytes);
            if let Some(secondary) = NonNull::new(self.secondary.load(Ordering::Acquire)) {
                arena.release(secondary.cast(), bytes);
            }
        }
    }

    /// The block of its primary array, and how long it is.
    pub(crate) fn block(&self) -> (NonNull<u8>, usize) {
        (self.primary.cast(), self.len() * size_of::<GapArray>())
    }

    /// The number of segments.
    pub(crate) fn len(&self) -> usize {
        self.lowest.len()
    }

    /// Slots of both arrays.
    pub(crate) fn slots(&self) -> usize {
        self.len() * SLOTS * (1 + usize::from(self.secondary().is_some()))
    }

    /// Slots of both arrays that hold a key, present or removed.
    pub(crate) fn used(&self) -> u32 {
        let both = [&self.head.used, &self.secondary_used];
        both.iter().map(|used| used.load(Ordering::Relaxed)).sum()
    }

    /// Returns true if there is a secondary array.
    pub(crate) fn has_secondary(&self) -> bool {
        self.secondary().is_some()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.slots() / SLOTS * size_of::<GapArray>() + self.heap_bytes()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.head.heap_bytes() + size_of_val(&*self.lowest)
    }

    #[inline(always)]
    fn primary(&self) -> &[GapArray] {
        // SAFETY: the block has as many segments as `lowest` has words, initialised when it was
        // allocated, and lives as the leaf does.
        unsafe { slice::from_raw_parts(self.primary.as_ptr(), self.lowest.len()) }
    }

    #[inline(always)]
    fn secondary(&self) -> Option<&[GapArray]> {
        let secondary = NonNull::new(self.secondary.load(Ordering::Acquire))?;
        // SAFETY: as for the primary array.
        Some(unsafe { slice::from_raw_parts(secondary.as_ptr(), self.lowest.len()) })
    }

    /// The segment that a word belongs to, searched from the one that the line predicts, in steps
    /// that double.
    #[inline(always)]
    fn segment(&self, word: u64) -> usize {
        let lowest = &*self.lowest;
        let guess = self.line.at(word).min(lowest.len() - 1);
        let mut step = 1;
        let range = if lowest[guess] <= word {
            while lowest.get(guess + step).is_some_and(|low| *low <= word) {
                step *= 2;
            }
            guess + step / 2..(guess + step).min(lowest.len())
        } else {
            while lowest.get(guess.saturating_sub(step)).is_some_and(|low| *low > word) {
                step *= 2;
            }
            guess.saturating_sub(step)..guess
        };
        let (start, end) = (range.start, range.end);
        (start + lowest[start..end].partition_point(|low| *low <= word)).saturating_sub(1)
    }

    /// The word of a key's value. Never waits.
    #[inline]
    pub(crate) fn get<S: Schema>(&self, probe: KeyProbe<'_>) -> Option<u64> {
        let word = self.head.word::<S>(probe);
        let at = self.segment(word);
        let primary = &self.primary()[at];
        prefetch_segment(primary);
        let read = reader::<S>(probe);
        // Fewer and later keys are in the secondary array.
        let secondary = self.secondary().map(|secondary| &secondary[at]);
        for segment in secondary.into_iter().chain([primary]) {
            match segment.get_here(word, &read) {
                SlotLookup::Found(value) => return Some(value),
                SlotLookup::Absent => return None,
                SlotLookup::Elsewhere => {}
            }
        }
        None
    }

    /// Writes one key.
    pub(crate) fn write<S: Schema>(
        &self,
        arena: &Arena,
        probe: KeyProbe<'_>,
        action: Action,
    ) -> Result<LeafWritten, Blocked> {
        let word = self.head.word::<S>(probe);
        let at = self.segment(word);
        prefetch_segment(&self.primary()[at]);
        let mut primary = self.primary()[at].lock()?;
        if let Some(written) = primary.rewrite::<S>(word, probe, action) {
            return Ok(written);
        }
        let secondary = self.secondary().map(|secondary| &secondary[at]);
        if let Some(segment) = secondary
            && let Some(written) = segment.unshared().rewrite::<S>(word, probe, action)
        {
            return Ok(written);
        }
        let KeyChange::Store(new) = action.change(None) else {
            return Ok(LeafWritten::unchanged(None));
        };
        let value = || slot_value::<S>(probe, new);
        let full = self.len() * SLOTS * USED_OF_5 / 5;
        let is_full = self.head.used.load(Ordering::Relaxed) as usize >= full;
        if is_full || !primary.has_room() {
            let segment = match secondary {
                Some(segment) => segment,
                None => &self.add_secondary(arena)[at],
            };
            if segment.unshared().add::<S>(word, probe, value) {
                let used = self.secondary_used.fetch_add(1, Ordering::Relaxed) as usize + 1;
                return Ok(LeafWritten::added((used >= full).then_some(Trigger::Full)));
            }
        }
        if !primary.add::<S>(word, probe, value) {
            return Err(Blocked::NoRoom);
        }
        self.head.used.fetch_add(1, Ordering::Relaxed);
        Ok(LeafWritten::added(None))
    }

    /// The secondary array, made if it does not exist yet. The caller holds the lock of a segment.
    #[cold]
    fn add_secondary(&self, arena: &Arena) -> &[GapArray] {
        let block = allocate(arena, self.len());
        let (none, ok, failed) = (ptr::null_mut(), Ordering::AcqRel, Ordering::Acquire);
        let linked = match self.secondary.compare_exchange(none, block.as_ptr(), ok, failed) {
            Ok(_) => block.as_ptr(),
            Err(others) => {
                // SAFETY: no other thread has seen the block, which has this length.
                unsafe { arena.release(block.cast(), self.len() * size_of::<GapArray>()) };
                others
            }
        };
        // SAFETY: as for the primary array.
        unsafe { slice::from_raw_parts(linked, self.lowest.len()) }
    }

    /// The place that a key belongs to: its segment.
    pub(crate) fn place<S: Schema>(&self, probe: KeyProbe<'_>) -> usize {
        self.segment(self.head.word::<S>(probe))
    }

    pub(crate) fn prefetch_place(&self, place: usize) {
        prefetch_segment(&self.primary()[place]);
        if let Some(secondary) = self.secondary() {
            prefetch_segment(&secondary[place]);
        }
    }

    /// Appends the present entries of a place in ascending order.
    pub(crate) fn append_sorted<S: Schema>(&self, place: usize, entries: &mut Vec<Entry>) {
        let start = entries.len();
        self.primary()[place].append_to(entries);
        if let Some(secondary) = self.secondary() {
            let middle = entries.len();
            secondary[place].append_to(entries);
            if entries.len() > middle {
                sort::<S>(&mut entries[start..]);
            }
        }
    }

    fn for_each_segment(&self, visit: impl FnMut(&GapArray)) {
        self.primary().iter().chain(self.secondary().into_iter().flatten()).for_each(visit);
    }

    /// Calls `visit` with the slot of each removed key.
    pub(crate) fn for_each_dead(&self, visit: &mut impl FnMut(u64)) {
        self.for_each_segment(|segment| segment.for_each_dead_here(visit));
    }

    /// Makes the leaf unchangeable. Any number of threads may do so at once.
    pub(crate) fn freeze(&self) {
        // After that no thread makes or writes a secondary array.
        self.primary().iter().for_each(SlotSegment::freeze);
    }
}

#[inline(always)]
fn prefetch_segment(segment: &GapArray) {
    let start = ptr::from_ref(segment).cast::<u8>();
    (0..4).for_each(|line| prefetch_address(start.wrapping_add(64 * line)));
}
