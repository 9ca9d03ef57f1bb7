//! The map that an engine's memtable builds on: it holds one word for each key, and reaches the key
//! through it.
//!
//! No part of the stable interface of this crate: it changes in any release.

use std::ops::Bound;

use rhumb_sync::{arena::Arena, epoch, primitive::Arc};

use crate::{
    core::IndexCore,
    op::Action,
    preset::Preset,
    raw::{keyed::KeyedSchema, schema::KeyProbe},
    scan,
};

#[cfg(any(test, feature = "counts"))]
pub use crate::counts::count_places;
pub use crate::raw::keyed::Keyed;

/// An ordered map from byte strings to words that lead to them, in memory of an arena.
pub struct KeyedMap<K: Keyed>(IndexCore<KeyedSchema<K>>);

impl<K: Keyed> KeyedMap<K> {
    /// An empty map whose leaves lie in `arena`.
    #[must_use]
    pub fn within(arena: Arc<Arena>) -> Self {
        Self(IndexCore::within(arena, Preset::Auto, None))
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
        self.0.get(KeyProbe::wide(key), &epoch::pin())
    }

    /// Sets the word of a key, or what [`Keyed::succeed`] makes of it and the one that the key has.
    #[inline]
    pub fn set(&self, key: &[u8], word: u64) {
        self.0.write(KeyProbe::wide(key), Action::Set(word), &epoch::pin());
    }

    /// The words of the keys between two bounds.
    #[inline]
    #[must_use]
    pub fn scan(&self, low: Bound<&[u8]>, high: Bound<&[u8]>) -> Scan<'_, K> {
        Scan(scan::EntryScan::new(&self.0, low.map(KeyProbe::wide), high.map(KeyProbe::wide)))
    }
}

/// The words of a range of keys, from both ends.
pub struct Scan<'m, K: Keyed>(scan::EntryScan<'m, KeyedSchema<K>>);

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
