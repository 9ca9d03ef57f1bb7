//! What an [`Index`](super::Index) says about itself.

/// Figures of an [`Index`](super::Index), gathered while others may change it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct IndexStats {
    /// Keys in the map.
    pub keys: usize,
    /// Leaves whose buckets a line addresses.
    pub line_leaves: usize,
    /// Leaves whose buckets are found by their lowest keys.
    pub pivot_leaves: usize,
    /// Groups of leaves under the root.
    pub groups: usize,
    /// Buckets of all leaves.
    pub buckets: usize,
    /// Overflow nodes behind buckets.
    pub overflow_nodes: usize,
    /// Keys for each slot of the buckets: 1 where every slot is taken and nothing overflows.
    pub fill: f64,
    /// Leaves replaced since the map was made.
    pub retrains: u64,
    /// Bytes that wait until no reader can hold them.
    pub garbage_bytes: usize,
    /// Resident bytes, as [`Index::memory_bytes`](super::Index::memory_bytes) counts them.
    pub memory_bytes: usize,
}
