//! Claims: one writer at a time for each slot of a run, by bits of the run's header.
//!
//! Thread safety: writers of different slots never wait for each other. Invariants:
//!
//! 1. A slot's key and value, and its bits in the header, are changed only by the thread that has
//!    its busy bit.
//! 2. The frozen bit is set only while no slot is busy; then nothing of the run changes again.

use rhumb_sync::primitive::{AtomicU64, Ordering, spin_loop, thread};

use crate::{
    op::{Action, KeyChange, LeafWritten},
    raw::{
        bucket::{FROZEN, Frozen, SPINS, USED_SHIFT},
        schema::{self, Schema, cell_of},
    },
};

/// The first of the busy bits, of which there are as many as slots: they follow the present bits
/// (from 0) and the used bits (from [`USED_SHIFT`]), 16 each.
const BUSY_SHIFT: u32 = 32;

/// The slots that threads are writing.
#[inline]
pub(crate) fn busy(header: u64) -> u32 {
    (header >> BUSY_SHIFT) as u32 & 0xffff
}

#[inline]
fn busy_bit(slot: usize) -> u64 {
    1 << (BUSY_SHIFT as usize + slot)
}

/// Waits for a moment while another writer has a slot for a few instructions.
#[inline]
pub(crate) fn pause(looks: &mut u32) {
    *looks += 1;
    if looks.is_multiple_of(SPINS) { thread::yield_now() } else { spin_loop() }
}

/// A slot that the current thread alone may write. Dropping it publishes the changes.
pub(crate) struct SlotClaim<'a> {
    header: &'a AtomicU64,
    pub(crate) slot: usize,
    is_present: bool,
    /// Bits of the header that change.
    flip: u64,
}

impl<'a> SlotClaim<'a> {
    /// Claims a slot, whatever it holds.
    pub(crate) fn new(header: &'a AtomicU64, slot: usize) -> Result<Self, Frozen> {
        let mut looks = 0;
        loop {
            let seen = header.load(Ordering::Relaxed);
            if seen & FROZEN != 0 {
                return Err(Frozen);
            }
            if busy(seen) & 1 << slot == 0
                && let Some(claim) = Self::try_new(header, seen, slot)
            {
                return Ok(claim);
            }
            pause(&mut looks);
        }
    }

    /// Claims a slot that is not busy if the header is still `seen`.
    #[inline]
    pub(crate) fn try_new(header: &'a AtomicU64, seen: u64, slot: usize) -> Option<Self> {
        let flip = busy_bit(slot);
        let (ok, failed) = (Ordering::Acquire, Ordering::Relaxed);
        header.compare_exchange(seen, seen | flip, ok, failed).ok()?;
        Some(Self { header, slot, is_present: seen & 1 << slot != 0, flip })
    }

    /// Applies an action to the key of the slot; `held` is what the slot holds.
    pub(crate) fn rewrite<S: Schema>(&mut self, held: &AtomicU64, action: Action) -> LeafWritten {
        let cell = cell_of::<S>(held);
        let old = self.is_present.then(|| cell.load(Ordering::Relaxed));
        match action.change(old) {
            KeyChange::Keep => return LeafWritten::unchanged(old),
            KeyChange::Store(new) if S::HAS_RECORDS && !self.is_present => {
                self.flip ^= 1 << self.slot;
                return LeafWritten::renewed(schema::renew::<S>(held, new));
            }
            KeyChange::Store(new) => {
                cell.store(old.map_or(new, |old| S::succeed(old, new)), Ordering::Release);
                self.flip ^= u64::from(!self.is_present) << self.slot;
            }
            KeyChange::Remove => self.flip ^= 1 << self.slot,
        }
        LeafWritten::changed(old)
    }

    /// Makes a slot that was never used one of a present key, which has been written.
    pub(crate) fn fill(mut self) {
        self.flip ^= 1 << self.slot | 1 << (USED_SHIFT as usize + self.slot);
    }
}

impl Drop for SlotClaim<'_> {
    #[inline]
    fn drop(&mut self) {
        self.header.fetch_xor(self.flip, Ordering::Release);
    }
}

/// Makes the slots of a header unchangeable.
pub(crate) fn freeze(header: &AtomicU64) {
    let mut looks = 0;
    loop {
        let seen = header.load(Ordering::Relaxed);
        if seen & FROZEN != 0 {
            return;
        }
        let (ok, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        if busy(seen) == 0 && header.compare_exchange_weak(seen, seen | FROZEN, ok, failed).is_ok()
        {
            return;
        }
        pause(&mut looks);
    }
}
