//! The map that an engine's memtable builds on: it holds one word for each key, and reaches the key
//! through it.
//!
//! No part of the stable interface of this crate: it changes in any release.

use std::{marker::PhantomData, ops::Bound};

use rhumb_sync::{arena::Arena, epoch, primitive::Arc};

use crate::{
    core::Core,
    op::Action,
    preset::Preset,
    scan,
    schema::{Probe, Schema},
};

#[cfg(any(test, feature = "counts"))]
pub use crate::counts::count_places;

/// Words that lead to keys.
///
/// # Safety
/// Where a [`KeyedMap`] of the type is made, [`KeyedMap::set`] is given nothing but words that lead
/// to the key that they are set for, and what they lead to is neither moved nor freed before the
/// map.
#[allow(unsafe_code, reason = "promises about words")]
pub unsafe trait Keyed: Send + Sync + 'static {
    /// The key that a word of the map leads to.
    ///
    /// # Safety
    /// The word was given to a map of this type, and what it leads to lives while the key is
    /// borrowed.
    unsafe fn key<'a>(word: u64) -> &'a [u8];

    /// Returns true if a word of the map leads to this key.
    ///
    /// # Safety
    /// The word was given to a map of this type, and what it leads to lives.
    unsafe fn is_key(word: u64, key: &[u8]) -> bool;

    /// The word to hold when `new` is set for a key that has `old`. Readers see it only afterwards.
    ///
    /// # Safety
    /// As for [`Keyed::is_key`], for both. One thread at a time calls it for a key.
    unsafe fn succeed(old: u64, new: u64) -> u64;
}

/// The schema of such words for the inside of the index.
struct Slots<K>(PhantomData<fn() -> K>);

impl<K: Keyed> Schema for Slots<K> {
    const WIDE: bool = true;
    const HAS_RECORDS: bool = false;
    const IS_OWNER: bool = false;

    /// # Safety
    /// As for every [`Schema`].
    #[allow(unsafe_code, reason = "follows a word")]
    #[inline(always)]
    unsafe fn key<'a>(slot: u64) -> &'a [u8] {
        // SAFETY: slots of the map hold words that were given to it, and the caller says that what
        // this one leads to lives.
        unsafe { K::key(slot) }
    }

    /// # Safety
    /// As for every [`Schema`].
    #[allow(unsafe_code, reason = "follows a word")]
    #[inline(always)]
    unsafe fn is_key(slot: u64, key: &[u8]) -> bool {
        // SAFETY: as for `key`.
        unsafe { K::is_key(slot, key) }
    }

    #[allow(unsafe_code, reason = "follows two words")]
    #[inline(always)]
    fn succeed(old: u64, new: u64) -> u64 {
        // SAFETY: both were given to the map, and what they lead to outlives the map, as [`Keyed`]
        // demands; the thread that writes a slot is the only one.
        unsafe { K::succeed(old, new) }
    }

    /// # Safety
    /// None is needed: slots own nothing.
    #[allow(unsafe_code, reason = "as the trait has it")]
    unsafe fn free_value(_word: u64) {}
}

/// An ordered map from byte strings to words that lead to them, in memory of an arena.
pub struct KeyedMap<K: Keyed>(Core<Slots<K>>);

impl<K: Keyed> KeyedMap<K> {
    /// An empty map whose leaves lie in `arena`.
    #[must_use]
    pub fn within(arena: Arc<Arena>) -> Self {
        Self(Core::within(arena, Preset::Auto, None))
    }

    /// An empty map in `arena` whose leaves are addressed as those of this map are now, so that
    /// keys which are distributed in the same way find their room. O(leaves). The room for their
    /// keys is reserved, and touched when they come. `None` if this map cannot be a pattern.
    #[must_use]
    pub fn like(&self, arena: Arc<Arena>) -> Option<Self> {
        self.0.like(arena, &epoch::pin()).map(Self)
    }

    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The word that a key has. Never waits.
    #[inline]
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<u64> {
        self.0.get(Probe::wide(key), &epoch::pin())
    }

    /// Sets the word of a key, or what [`Keyed::succeed`] makes of it and the one that the key has.
    #[inline]
    pub fn set(&self, key: &[u8], word: u64) {
        self.0.write(Probe::wide(key), Action::Set(word), &epoch::pin());
    }

    /// The words of the keys between two bounds.
    #[inline]
    #[must_use]
    pub fn scan(&self, low: Bound<&[u8]>, high: Bound<&[u8]>) -> Scan<'_, K> {
        Scan(scan::Scan::new(&self.0, low.map(Probe::wide), high.map(Probe::wide)))
    }
}

/// The words of a range of keys, from both ends.
pub struct Scan<'m, K: Keyed>(scan::Scan<'m, Slots<K>>);

impl<K: Keyed> Scan<'_, K> {
    /// The next words from below, at most `limit` of them; none at the end.
    #[inline]
    pub fn next_run(&mut self, limit: usize) -> impl ExactSizeIterator<Item = u64> {
        self.0.next_run(limit).iter().map(|entry| entry.value)
    }

    /// The next word from above.
    #[inline]
    pub fn next_back(&mut self) -> Option<u64> {
        self.0.next_back().map(|entry| entry.value)
    }
}
