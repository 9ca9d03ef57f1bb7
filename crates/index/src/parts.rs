//! Builds the leaves for a run of entries, by the preset of the map.

use rhumb_sync::arena::Arena;

use crate::{
    entry::Entry,
    kinds::AnyLeaf,
    plan::{self, Before, LeafGrowth, PlannedLeaf},
    preset::Preset,
    raw::{branch::Bound, schema::Schema},
};

/// Builds the leaves of a preset for all entries; at least one. `upper` is the lower bound of the
/// leaf after them, `before` the leaf that they replace, if there is one.
pub(crate) fn parts<S: Schema>(
    preset: Preset,
    arena: &Arena,
    entries: &[Entry],
    growth: LeafGrowth,
    upper: Option<&Bound>,
    before: Before<'_>,
) -> Vec<PlannedLeaf> {
    match preset {
        #[cfg(feature = "published")]
        Preset::Tone => crate::fit::gapped_leaves::<S>(arena, entries),
        #[cfg(feature = "published")]
        Preset::FineStore => crate::fit::bin_leaves::<S>(arena, entries),
        #[cfg(feature = "published")]
        Preset::Loft => crate::fit::slot_leaves::<S>(arena, entries, before),
        Preset::Auto => {
            // After removals there may be entries of its neighbour.
            let prefix = match before {
                Some((AnyLeaf::Buckets(leaf), trigger)) if !trigger.shrinks() => {
                    Some(leaf.prefix())
                }
                _ => None,
            };
            plan::parts::<S>(arena, entries, growth, upper, prefix)
        }
    }
}
