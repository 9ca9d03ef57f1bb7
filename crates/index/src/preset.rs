//! How an [`Index`](super::Index) is put together: presets and the builder.

use std::marker::PhantomData;

use super::{Index, Key, Value};

/// Which parts an index is assembled from.
///
/// All but [`Preset::Auto`] are for comparison. They keep the same promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Preset {
    /// Rhumb's own design: buckets that a model addresses, retrained by what each leaf sees.
    #[default]
    Auto,
    /// Slots claimed within a predicted window, overflow in wider runs behind it, as LOFT has them. An entry of
    /// an integer key and a word takes up to 72 bytes, more if keys come where no line fits.
    Loft,
    /// Immutable trained arrays with level bins, as FineStore has them. An entry of an integer key and a word
    /// takes up to 128 bytes.
    FineStore,
    /// Gapped leaves of a primary and a secondary array, as TONE has them. An entry of an integer key and a
    /// word takes up to 48 bytes.
    Tone,
}

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

    /// Sets which parts the index is assembled from; [`Preset::Auto`] unless set.
    #[must_use]
    pub fn preset(mut self, preset: Preset) -> Self {
        self.preset = preset;
        self
    }

    /// Sets the number of background threads that retrain; 0 unless set.
    ///
    /// With 0 the writers retrain themselves, one leaf at a time, which takes some tens of
    /// microseconds. The first trainer also does what [`Index::tune`] does, bit by bit while nothing is asked
    /// of it, and frees what waits for that.
    ///
    /// Besides, once any map has grown to 16 MiB, the process has one thread that makes memory ready before a
    /// growing map needs it: at most 4 MiB for each, until a second after it last grew.
    #[must_use]
    pub fn trainers(mut self, trainers: usize) -> Self {
        self.trainers = trainers;
        self
    }

    /// Makes the index.
    #[must_use]
    pub fn build(self) -> Index<K, V> {
        Index::with(&self)
    }
}
