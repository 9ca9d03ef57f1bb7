//! Statistics of an [`Index`](super::Index).

use rhumb_sync::{epoch, primitive::Ordering};

use crate::{
    core::IndexCore,
    kinds::AnyLeaf,
    raw::{
        bucket::BUCKET_SLOTS,
        leaf::AddressMode,
        schema::{KeyProbe, Schema},
    },
};

/// Statistics of an [`Index`](super::Index), gathered while other threads may change it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct IndexStats {
    /// Keys in the map.
    pub keys: usize,
    /// Leaves whose buckets a line addresses.
    pub line_leaves: usize,
    /// Leaves whose buckets are found by their lowest keys.
    pub pivot_leaves: usize,
    /// Leaves of slots in predicted windows: those of the preset `Loft`.
    pub slot_leaves: usize,
    /// Leaves of gapped arrays: those of the preset `Tone`.
    pub gapped_leaves: usize,
    /// Leaves of trained arrays with bins: those of the preset `FineStore`.
    pub bin_leaves: usize,
    /// Groups of leaves under the root.
    pub groups: usize,
    /// Buckets of all leaves.
    pub buckets: usize,
    /// Overflow nodes of buckets, or what a leaf of another kind has in their stead.
    pub overflow_nodes: usize,
    /// Keys for each slot of the leaves: 1 where every slot is taken and nothing overflows.
    pub fill: f64,
    /// Leaves replaced since the map was made.
    pub retrains: u64,
    /// Bytes that wait until no reader can hold them.
    pub garbage_bytes: usize,
    /// Resident bytes, as [`Index::memory_bytes`](super::Index::memory_bytes) counts them.
    pub memory_bytes: usize,
}

/// Gathers the statistics of a map.
pub(super) fn of<S: Schema>(core: &IndexCore<S>) -> IndexStats {
    let mut stats = IndexStats {
        keys: core.len(),
        retrains: core.retrains.load(Ordering::Relaxed),
        memory_bytes: core.memory_bytes(),
        garbage_bytes: core.garbage_bytes(),
        ..IndexStats::default()
    };
    let guard = epoch::pin();
    stats.groups = core.root(&guard).len();
    let mut slots = 0;
    let mut place = Some(core.place(KeyProbe::LEAST, &guard));
    while let Some(current) = place {
        match current.leaf {
            AnyLeaf::Buckets(leaf) => {
                match leaf.mode() {
                    AddressMode::Line => stats.line_leaves += 1,
                    AddressMode::Pivots | AddressMode::Whole | AddressMode::Open => {
                        stats.pivot_leaves += 1
                    }
                }
                stats.buckets += leaf.room();
                stats.overflow_nodes += leaf.nodes();
                slots += leaf.room() * BUCKET_SLOTS;
            }
            #[cfg(feature = "published")]
            AnyLeaf::Slots(leaf) => {
                stats.slot_leaves += 1;
                stats.overflow_nodes += leaf.wider();
                slots += leaf.slots();
            }
            #[cfg(feature = "published")]
            AnyLeaf::Bins(leaf) => {
                stats.bin_leaves += 1;
                stats.overflow_nodes += leaf.bins();
                slots += leaf.slots();
            }
            #[cfg(feature = "published")]
            AnyLeaf::Gapped(leaf) => {
                stats.gapped_leaves += 1;
                stats.overflow_nodes += usize::from(leaf.has_secondary());
                slots += leaf.slots();
            }
        }
        place = current.next(&guard);
    }
    stats.fill = stats.keys as f64 / slots.max(1) as f64;
    stats
}
