//! Maps that begin with the models of another: leaves as its leaves are, and what leads to them,
//! without its keys.
//!
//! Thread safety: as in `core`. The other map may be written meanwhile. What is copied of a leaf or
//! a branch never changes, except that a leaf opens buckets; of those, the ones that are open are
//! copied.
#![allow(unsafe_code, reason = "promises what the leaves hold")]

use rhumb_sync::{arena::Arena, epoch::Guard, primitive::Arc};

use crate::{
    core::IndexCore,
    kinds::AnyLeaf,
    raw::{branch::TreeNode, schema::Schema},
};

impl<S: Schema> IndexCore<S> {
    /// An empty map whose leaves lie in this arena and are addressed as those of this map are now,
    /// so that keys which are distributed in the same way find their room. O(leaves). The room for
    /// their keys is reserved, and touched when they come. None if this map has leaves that are not
    /// of buckets.
    pub(crate) fn like(&self, arena: Arc<Arena>, guard: &Guard) -> Option<Self> {
        let root = self.root(guard);
        let (mut groups, mut heap_bytes) = (Vec::with_capacity(root.len()), 0);
        for group_at in 0..root.len() {
            let group = root.child(group_at, guard);
            let mut leaves = Vec::with_capacity(group.len());
            for leaf_at in 0..group.len() {
                let leaf = group.child(leaf_at, guard).buckets()?;
                let leaf = Box::new(AnyLeaf::Buckets(*leaf.like(&arena)));
                heap_bytes += leaf.heap_bytes();
                leaves.push((group.bound(leaf_at)?.clone(), leaf));
            }
            groups.push((root.bound(group_at)?.clone(), leaves));
        }
        // SAFETY: the leaves were made in this arena just now, without keys.
        let core = unsafe { Self::with_leaves(arena, self.preset, None, groups) };
        core.count_heap(guard, heap_bytes as i64);
        Some(core)
    }
}
