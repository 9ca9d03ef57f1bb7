//! Builds an [`Index`].

use std::marker::PhantomData;

use crate::{key::Key, map::Index, preset::Preset, value::Value};

/// Settings of a new [`Index`].
#[derive(Clone, Debug)]
pub struct IndexBuilder<K, V> {
    pub(super) preset: Preset,
    pub(super) trainers: usize,
    marker: PhantomData<fn() -> (K, V)>,
}

impl<K: Key, V: Value> IndexBuilder<K, V> {
    /// The settings of [`Index::new`].
    pub(super) fn new() -> Self {
        Self { preset: Preset::Auto, trainers: 0, marker: PhantomData }
    }

    /// Sets the parts that the index is assembled from; [`Preset::Auto`] unless set.
    #[must_use]
    pub fn preset(mut self, preset: Preset) -> Self {
        self.preset = preset;
        self
    }

    /// Sets the number of background threads that retrain; 0 unless set.
    ///
    /// With 0 the writers retrain themselves, one leaf at a time, which takes some tens of
    /// microseconds. The first trainer also does what [`Index::tune`] does, bit by bit while
    /// nothing is asked of it, and frees garbage.
    ///
    /// Besides, once any map has grown to 16 MiB, the process has one thread that makes memory
    /// ready before a growing map needs it: at most 4 MiB for each, until a second after it last
    /// grew.
    #[must_use]
    pub fn trainers(mut self, trainers: usize) -> Self {
        self.trainers = trainers;
        self
    }

    /// Makes the index.
    #[must_use]
    pub fn build(self) -> Index<K, V> {
        Index::with(self.preset, self.trainers)
    }
}

impl<K: Key, V: Value> Index<K, V> {
    /// An empty map of [`Preset::Auto`] without background threads.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Settings for a new map.
    #[must_use]
    pub fn builder() -> IndexBuilder<K, V> {
        IndexBuilder::new()
    }
}

impl<K: Key, V: Value> Default for Index<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Key, V: Value> FromIterator<(K, V)> for Index<K, V> {
    /// A map of [`Preset::Auto`] with these entries; if several have the same key, the last of them
    /// counts.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let index = Self::new();
        (&index).extend(entries);
        index
    }
}
