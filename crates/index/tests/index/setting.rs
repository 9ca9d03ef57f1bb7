//! The settings of an index under test: every preset and number of trainers.

use rhumb_index::{Index, Key, Preset, Value};

/// Every preset.
const PRESETS: [Preset; 4] = [Preset::Auto, Preset::Loft, Preset::FineStore, Preset::Tone];

/// Numbers of background trainers; with 0 the writers train.
const TRAINERS: [usize; 3] = [0, 1, 2];

/// The setting of an index under test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) preset: Preset,
    pub(crate) trainers: usize,
}

impl Setting {
    /// Every setting.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let with = |preset| TRAINERS.map(|trainers| Self { preset, trainers });
        PRESETS.into_iter().flat_map(with)
    }

    /// An empty index.
    pub(crate) fn build<K: Key, V: Value>(self) -> Index<K, V> {
        Index::builder().preset(self.preset).trainers(self.trainers).build()
    }
}
