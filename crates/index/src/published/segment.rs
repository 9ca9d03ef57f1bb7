//! Sorted segments: slots whose order is one word. A key is put in its place among the others by
//! one store, and no reader sees a shift half done.
//!
//! Thread safety: readers take no lock and never retry; writers hold the segment's lock bit for a
//! few instructions. Invariants, besides the first two of `bucket`:
//!
//! 1. The order names every used slot, by ascending keys. It is written before the header in which
//!    the slot becomes used, so a thread that sees the slot finds it in the order.
//! 2. After the frozen bit is set nothing in the segment changes again.
#![allow(unsafe_code, reason = "says that zeroes are an order")]

use rhumb_sync::primitive::{AtomicU64, Ordering};

use crate::{
    entry::Entry,
    op::{Action, KeyChange, LeafWritten},
    raw::{
        bucket::{FROZEN, Frozen, Slots, bits, present, used},
        pool::Zeroed,
        schema::{self, KeyProbe, Schema, cell_of, is_same},
    },
};

/// The slots of a segment by their keys: the number of slots in the lowest four bits, then four
/// bits for each.
pub(crate) struct SlotOrder(AtomicU64);

impl SlotOrder {
    /// The order of no slots.
    pub(crate) fn none() -> Self {
        Self(AtomicU64::new(0))
    }
}

// SAFETY: an order is an atomic word, which is 0 where there are no slots.
unsafe impl Zeroed for SlotOrder {
    fn zero() -> Self {
        Self::none()
    }
}

/// Sorted slots, 7 or 15 of them.
pub(crate) type SlotSegment<const N: usize> = Slots<N, SlotOrder>;

fn len_of(order: u64) -> usize {
    (order & 15) as usize
}

fn slot_at(order: u64, rank: usize) -> usize {
    (order >> (4 + 4 * rank)) as usize & 15
}

/// The order with a slot put at a rank, of which there are at most 15.
fn with_slot(order: u64, rank: usize, slot: usize) -> u64 {
    let below = (1 << (4 + 4 * rank)) - 1;
    let shifted = (order & !below) << 4;
    ((order & below) | shifted | (slot as u64) << (4 + 4 * rank)) + 1
}

/// Returns true if the key of a slot is below the one that is being looked up.
pub(crate) fn is_below<S: Schema>(word: u64, value: u64, sought: u64, probe: KeyProbe<'_>) -> bool {
    if !S::WIDE || word != sought {
        return word < sought;
    }
    schema::key_in_leaf::<S>(value) < probe.bytes
}

impl<const N: usize> SlotSegment<N> {
    /// Calls `visit` with the word and value of each present key in ascending order. Never waits.
    #[inline]
    pub(crate) fn for_each_sorted(&self, mut visit: impl FnMut(u64, u64)) {
        let before = present(self.header.load(Ordering::Acquire));
        let order = self.extra.0.load(Ordering::Acquire);
        let values: [u64; N] =
            std::array::from_fn(|slot| self.values[slot].load(Ordering::Acquire));
        // As in a bucket: a slot that is still present had its value in between.
        let both = before & present(self.header.load(Ordering::Acquire));
        for rank in 0..len_of(order) {
            let slot = slot_at(order, rank);
            if both & 1 << slot != 0 {
                visit(self.keys[slot].load(Ordering::Relaxed), values[slot]);
            }
        }
    }

    /// Appends the present entries in ascending order.
    pub(crate) fn append_to(&self, entries: &mut Vec<Entry>) {
        self.for_each_sorted(|word, value| entries.push(Entry { word, value }));
    }

    /// Takes the lock bit, which other threads hold for a few instructions only.
    #[inline]
    pub(crate) fn lock(&self) -> Result<SegmentWriter<'_, N>, Frozen> {
        Ok(SegmentWriter { segment: self, header: self.take_lock()? })
    }

    /// The segment as if it were locked: for a caller that has the lock that stands for this
    /// segment too, or for a segment that no other thread can reach yet.
    #[inline]
    pub(crate) fn unshared(&self) -> SegmentWriter<'_, N> {
        SegmentWriter { segment: self, header: self.header.load(Ordering::Relaxed) }
    }

    /// Makes the segment unchangeable.
    pub(crate) fn freeze(&self) {
        if let Ok(mut locked) = self.lock() {
            locked.header |= FROZEN;
        }
    }
}

/// A segment that the current thread alone may write; dropping it publishes the changes.
pub(crate) struct SegmentWriter<'a, const N: usize> {
    segment: &'a SlotSegment<N>,
    /// The header that dropping this stores.
    header: u64,
}

impl<const N: usize> SegmentWriter<'_, N> {
    /// Applies an action to a key if it has a slot here.
    #[inline]
    pub(crate) fn rewrite<S: Schema>(
        &mut self,
        word: u64,
        probe: KeyProbe<'_>,
        action: Action,
    ) -> Option<LeafWritten> {
        let slot = self.segment.slot(word, self.header, &is_same::<S>(probe))?;
        let cell = cell_of::<S>(&self.segment.values[slot]);
        let is_present = present(self.header) & 1 << slot != 0;
        let old = is_present.then(|| cell.load(Ordering::Relaxed));
        match action.change(old) {
            KeyChange::Keep => return Some(LeafWritten::unchanged(old)),
            KeyChange::Store(new) if S::HAS_RECORDS && !is_present => {
                self.header |= 1 << slot;
                return Some(LeafWritten::renewed(schema::renew::<S>(
                    &self.segment.values[slot],
                    new,
                )));
            }
            KeyChange::Store(new) => {
                cell.store(old.map_or(new, |old| S::succeed(old, new)), Ordering::Release);
                self.header |= 1 << slot;
            }
            KeyChange::Remove => self.header &= !(1 << slot),
        }
        Some(LeafWritten::changed(old))
    }

    /// Returns true if a slot was never used.
    pub(crate) fn has_room(&self) -> bool {
        SlotSegment::<N>::vacant(self.header).is_some()
    }

    /// Puts a key that has no slot here in its place among the others. Returns true if there was
    /// room. `value` makes what its slot holds.
    pub(crate) fn add<S: Schema>(
        &mut self,
        word: u64,
        probe: KeyProbe<'_>,
        value: impl FnOnce() -> u64,
    ) -> bool {
        let Some(slot) = SlotSegment::<N>::vacant(self.header) else { return false };
        let order = self.segment.extra.0.load(Ordering::Relaxed);
        let below = |rank: &usize| {
            let at = slot_at(order, *rank);
            let [key, value] = [&self.segment.keys[at], &self.segment.values[at]]
                .map(|cell| cell.load(Ordering::Relaxed));
            is_below::<S>(key, value, word, probe)
        };
        let rank = (0..len_of(order)).filter(below).count();
        self.segment.put(slot, word, value());
        self.segment.extra.0.store(with_slot(order, rank, slot), Ordering::Release);
        self.header |= bits(slot);
        true
    }

    /// Puts an entry after all others; there must be room.
    pub(crate) fn push(&mut self, word: u64, value: u64) {
        let slot = used(self.header).trailing_ones() as usize;
        debug_assert!(slot < N, "a segment has room for what it is built of");
        let order = self.segment.extra.0.load(Ordering::Relaxed);
        self.segment.put(slot, word, value);
        self.segment.extra.0.store(with_slot(order, slot, slot), Ordering::Release);
        self.header |= bits(slot);
    }
}

impl<const N: usize> Drop for SegmentWriter<'_, N> {
    #[inline]
    fn drop(&mut self) {
        self.segment.header.store(self.header, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_take_slots_at_any_rank() {
        let (mut order, mut expected) = (0, Vec::new());
        for slot in 0..15 {
            let rank = slot * 7 % (slot + 1);
            order = with_slot(order, rank, slot);
            expected.insert(rank, slot);
            assert_eq!(len_of(order), expected.len());
            let found: Vec<usize> = (0..len_of(order)).map(|rank| slot_at(order, rank)).collect();
            assert_eq!(found, expected);
        }
    }
}
