//! Shared bytes that readers reach through one atomic load, while writers replace and free them.
//!
//! Thread safety: everything here may be called from any thread. Invariants:
//!
//! 1. The pointer of an [`EpochSlot`] is null or owns exactly one strong count of a
//!    [`SharedBytes`]; its two low bits are flags, which the allocation's alignment leaves free.
//! 2. The count is taken out of the slot by exactly one swap. It is dropped only when every thread
//!    that was pinned at that moment has been unpinned, or by `&mut self`, when no [`Loaded`] of
//!    the slot can exist.
//! 3. What is taken out is dropped through the one epoch of the process, which every [`Guard`]
//!    holds back.
//!
//! This module holds no policy: its users decide what is kept, and for how long.
#![allow(
    unsafe_code,
    reason = "a reader borrows the bytes without owning a count, which only the epoch makes sound"
)]

use std::{
    ffi::c_void,
    marker::PhantomData,
    mem::ManuallyDrop,
    ops::Deref,
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

use super::{
    deferred,
    epoch::Guard,
    prefetch::{LINE_BYTES, prefetch_address},
    shared_bytes::SharedBytes,
};

/// Set by [`EpochSlot::touch`], cleared by [`EpochSlot::take_touched`].
const TOUCHED: usize = 1;
/// Set by the first [`EpochSlot::touch`] of a value and never cleared.
const SEEN: usize = 2;
const FLAGS: usize = TOUCHED | SEEN;

/// A place for one [`SharedBytes`], empty at first. Eight bytes.
pub struct EpochSlot {
    /// Owns the bytes that it points to (invariant 1).
    pointer: AtomicPtr<c_void>,
    owns: PhantomData<SharedBytes>,
}

/// The contents of a slot, borrowed: reading them touches no count.
pub struct Loaded<'a> {
    bytes: ManuallyDrop<SharedBytes>,
    /// The pointer with its flags, as it was read.
    tagged: *mut c_void,
    /// The slot, so that it outlives the borrow, and the guard, so that the contents do.
    borrowed: PhantomData<(&'a EpochSlot, &'a Guard)>,
}

impl Loaded<'_> {
    /// Prefetches `lines` lines from byte `offset` of the contents on, without waiting for any of
    /// it: not even the length is looked at, so `offset` may lie beyond the end.
    #[inline]
    pub fn prefetch(&self, offset: usize, lines: usize) {
        let start = untag(self.tagged).wrapping_byte_add(offset);
        for line in 0..lines {
            prefetch_address(start.wrapping_byte_add(line * LINE_BYTES));
        }
    }

    /// A count of its own, which may outlive the guard.
    #[inline]
    pub fn share(&self) -> SharedBytes {
        SharedBytes::clone(&self.bytes)
    }
}

impl Deref for Loaded<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl EpochSlot {
    /// An empty slot.
    pub const fn empty() -> Self {
        Self { pointer: AtomicPtr::new(ptr::null_mut()), owns: PhantomData }
    }

    /// The content of the slot. Never waits.
    #[inline]
    pub fn load<'a>(&'a self, _guard: &'a Guard) -> Option<Loaded<'a>> {
        let tagged = self.pointer.load(Ordering::Acquire);
        let untagged = untag(tagged);
        if untagged.is_null() {
            return None;
        }
        // SAFETY: a non-null pointer in the slot came from `into_raw` (invariant 1), and its count
        // is not dropped while `_guard` pins this thread nor while the slot is borrowed (invariants
        // 2 and 3). `ManuallyDrop` leaves the count with the slot.
        let bytes = ManuallyDrop::new(unsafe { SharedBytes::from_raw(untagged) });
        Some(Loaded { bytes, tagged, borrowed: PhantomData })
    }

    /// Returns true if the slot held nothing a moment ago.
    pub fn is_empty(&self) -> bool {
        self.pointer.load(Ordering::Relaxed).is_null()
    }

    /// Puts `bytes` into the slot if it is empty. Returns true if it was.
    pub fn fill(&self, bytes: SharedBytes) -> bool {
        let raw = bytes.into_raw();
        debug_assert_eq!(raw.addr() & FLAGS, 0, "a head is aligned to more than the flags");
        let filled = self.pointer.compare_exchange(
            ptr::null_mut(),
            raw,
            Ordering::Release,
            Ordering::Relaxed,
        );
        if filled.is_err() {
            // SAFETY: `raw` came from `into_raw` above and the slot did not take it.
            drop(unsafe { SharedBytes::from_raw(raw) });
        }
        filled.is_ok()
    }

    /// Empties the slot. Returns true if it held anything. The bytes live on for all that share
    /// them and for the threads that are pinned now.
    pub fn clear(&self, guard: &Guard) -> bool {
        let untagged = untag(self.pointer.swap(ptr::null_mut(), Ordering::AcqRel));
        if untagged.is_null() {
            return false;
        }
        // SAFETY: the swap took the slot's count out (invariant 2), so this is its only owner.
        let bytes = unsafe { SharedBytes::from_raw(untagged) };
        deferred::drop_later(guard, bytes.memory_bytes(), bytes);
        true
    }

    /// Records that the contents were used. Returns true the first time for these contents. Writes
    /// to the slot only if that is not recorded yet.
    #[inline]
    pub fn touch(&self, loaded: &Loaded<'_>) -> bool {
        if loaded.tagged.addr() & TOUCHED != 0 {
            return false;
        }
        let noted = loaded.tagged.map_addr(|address| address | FLAGS);
        let outcome = self.pointer.compare_exchange(
            loaded.tagged,
            noted,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        outcome.is_ok() && loaded.tagged.addr() & SEEN == 0
    }

    /// Returns true if the contents were used since the last call.
    pub fn take_touched(&self) -> bool {
        let tagged = self.pointer.load(Ordering::Relaxed);
        if tagged.addr() & TOUCHED == 0 {
            return false;
        }
        let cleared = tagged.map_addr(|address| address & !TOUCHED);
        // A failure means that the contents changed: the new ones were not examined, so keep them.
        let _ =
            self.pointer.compare_exchange(tagged, cleared, Ordering::Relaxed, Ordering::Relaxed);
        true
    }
}

impl EpochSlot {
    /// Empties a slot that no other thread can read any more.
    pub fn take(&mut self) -> Option<SharedBytes> {
        let untagged = untag(std::mem::replace(self.pointer.get_mut(), ptr::null_mut()));
        if untagged.is_null() {
            return None;
        }
        // SAFETY: the slot owned one count (invariant 1) that was taken out just now, and
        // `&mut self` says that no `Loaded` of this slot exists (invariant 2).
        Some(unsafe { SharedBytes::from_raw(untagged) })
    }
}

impl Drop for EpochSlot {
    fn drop(&mut self) {
        drop(self.take());
    }
}

#[inline]
fn untag(tagged: *mut c_void) -> *mut c_void {
    tagged.map_addr(|address| address & !FLAGS)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::epoch::pin;

    fn bytes(text: &[u8]) -> SharedBytes {
        SharedBytes::copy_from(text)
    }

    #[test]
    fn a_slot_holds_one_value_until_it_is_cleared() {
        let slot = EpochSlot::empty();
        let guard = pin();
        assert!(slot.load(&guard).is_none());
        assert!(!slot.clear(&guard));
        let kept = bytes(b"first");
        assert!(slot.fill(kept.clone()));
        assert!(!slot.fill(bytes(b"second")), "a full slot refuses");
        let loaded = slot.load(&guard).unwrap();
        assert_eq!(&*loaded, b"first");
        assert!(slot.clear(&guard));
        assert!(slot.is_empty());
        assert_eq!(&*loaded, b"first", "the guard keeps what was loaded");
        drop(guard);
        assert_eq!(&*kept, b"first");
    }

    #[test]
    fn what_is_cleared_is_freed_after_those_who_are_pinned_and_not_before() {
        let kept = bytes(b"kept");
        let slot = EpochSlot::empty();
        assert!(slot.fill(kept.clone()));
        let guard = pin();
        assert!(slot.clear(&guard));
        for _ in 0..10 {
            crate::deferred::collect();
        }
        assert_eq!(kept.strong_count(), 2, "this thread is pinned");
        drop(guard);
        while kept.strong_count() == 2 {
            crate::deferred::collect();
            thread::yield_now();
        }
        assert_eq!(kept.strong_count(), 1);
    }

    #[test]
    fn dropping_a_full_slot_gives_its_count_back() {
        let kept = bytes(b"kept");
        let slot = EpochSlot::empty();
        assert!(slot.fill(kept.clone()));
        assert_eq!(kept.strong_count(), 2);
        drop(slot);
        assert_eq!(kept.strong_count(), 1);
    }

    #[test]
    fn touching_is_noted_once_and_taken_once() {
        let slot = EpochSlot::empty();
        assert!(slot.fill(bytes(b"x")));
        assert!(!slot.take_touched());
        let guard = pin();
        assert!(slot.touch(&slot.load(&guard).unwrap()), "the first touch of these contents");
        assert!(!slot.touch(&slot.load(&guard).unwrap()));
        assert!(slot.take_touched());
        assert!(!slot.take_touched());
        assert!(!slot.touch(&slot.load(&guard).unwrap()), "touched again, but not the first time");
        assert!(slot.take_touched());
        assert_eq!(&*slot.load(&guard).unwrap(), b"x", "flags never reach the pointer");
    }

    #[test]
    fn readers_always_see_whole_values_while_they_are_replaced() {
        let rounds = if cfg!(miri) { 40 } else { 20_000 };
        let slot = EpochSlot::empty();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let guard = pin();
                        if let Some(loaded) = slot.load(&guard) {
                            slot.touch(&loaded);
                            assert!(loaded.iter().all(|byte| *byte == loaded[0]));
                            let shared = loaded.share();
                            drop(guard);
                            assert_eq!(shared.len(), 40);
                        }
                    }
                });
            }
            scope.spawn(|| {
                for round in 0..rounds {
                    #[expect(clippy::cast_possible_truncation, reason = "any byte will do")]
                    slot.fill(bytes(&[round as u8; 40]));
                    slot.take_touched();
                    slot.clear(&pin());
                }
            });
        });
        assert!(slot.is_empty());
    }
}
