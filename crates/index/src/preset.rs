//! The parts that an index is assembled from.

/// The parts that an index is assembled from.
///
/// All presets except [`Preset::Auto`] are for comparison, and exist only with the feature
/// `published`. They keep the same promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Preset {
    /// Rhumb's own design: buckets that a model addresses, retrained by what each leaf sees.
    #[default]
    Auto,
    /// Slots claimed within a predicted window, with overflow in wider runs, as LOFT has them. An
    /// entry of an integer key and a word takes up to 72 bytes, more if keys come where no line
    /// fits.
    #[cfg(feature = "published")]
    Loft,
    /// Immutable trained arrays with level bins, as FineStore has them. An entry of an integer key
    /// and a word takes up to 128 bytes.
    #[cfg(feature = "published")]
    FineStore,
    /// Gapped leaves of a primary and a secondary array, as TONE has them. An entry of an integer
    /// key and a word takes up to 48 bytes.
    #[cfg(feature = "published")]
    Tone,
}
