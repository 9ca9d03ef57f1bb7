//! From a key to its leaf: a root over groups over leaves, found by lower bounds. What leads from
//! each to the next is in `raw::branch`.

use std::ptr;

use rhumb_sync::epoch::Guard;

use crate::{
    kinds::AnyLeaf,
    raw::{
        branch::{Bound, Branch},
        bucket::Bucket,
        leaf::{BucketLeaf, BucketWay, HalfWay},
        schema::{KeyProbe, Schema},
        tree::LeafPosition,
    },
};

pub(crate) type Group = Branch<AnyLeaf>;
pub(crate) type Root = Branch<Group>;

const _: () =
    assert!(align_of::<AnyLeaf>() >= align_of::<BucketLeaf>(), "pointers have room for tags");

/// The point on the way to a key's bucket that is known.
#[derive(Clone, Copy)]
pub(crate) enum NearBucket<'g> {
    Bucket(&'g Bucket),
    HalfWay(HalfWay<'g>),
    Leaf(&'g AnyLeaf),
}

/// The leaf that a key belongs to, for as long as the thread is pinned.
#[derive(Clone, Copy)]
pub(crate) struct LeafPlace<'g> {
    pub(crate) root: &'g Root,
    pub(crate) group_at: usize,
    pub(crate) group: &'g Group,
    pub(crate) leaf_at: usize,
    pub(crate) leaf: &'g AnyLeaf,
    way: BucketWay<'g>,
}

impl<'g> LeafPlace<'g> {
    /// The leaf that a key belongs to.
    #[inline(always)]
    pub(crate) fn of<S: Schema>(root: &'g Root, probe: KeyProbe<'_>, guard: &'g Guard) -> Self {
        let group_at = root.find::<S>(probe);
        let group = root.child(group_at, guard);
        Self::at(root, (group_at, group), group.find::<S>(probe), guard)
    }

    /// The place of a leaf in its group.
    #[inline(always)]
    pub(crate) fn at(
        root: &'g Root,
        (group_at, group): (usize, &'g Group),
        leaf_at: usize,
        guard: &'g Guard,
    ) -> Self {
        let (leaf, way) = group.child_and_way(leaf_at, guard);
        Self { root, group_at, group, leaf_at, leaf, way }
    }

    /// The bucket that a key with this word belongs to, and its place, if they are known without
    /// reading the leaf.
    #[inline(always)]
    pub(crate) fn bucket(&self, word: u64) -> Option<(&'g Bucket, usize)> {
        match self.way {
            BucketWay::Line(line) => {
                self.leaf.touch();
                Some(line.bucket(word))
            }
            BucketWay::Pivots(pivot_root) => {
                self.leaf.touch();
                Some(pivot_root.half_way(word).bucket(word))
            }
            BucketWay::Leaf => None,
        }
    }

    /// The place of the leaf that a key belongs to.
    #[inline(always)]
    pub(crate) fn seek<S: Schema>(&self, probe: KeyProbe<'_>) -> usize {
        self.bucket(probe.word).map_or_else(|| self.leaf.place::<S>(probe), |(_, at)| at)
    }

    /// Prefetches `count` places from `at` on, which will be read once, if they are known without
    /// reading the leaf. Returns true if it did.
    #[inline(always)]
    pub(crate) fn prefetch_once(&self, at: usize, count: usize) -> bool {
        match &self.way {
            BucketWay::Line(line) => line.prefetch_once(at, count),
            BucketWay::Pivots(pivot_root) => pivot_root.prefetch_once(at, count),
            BucketWay::Leaf => return false,
        }
        true
    }

    /// Goes as far towards a bucket as is possible without waiting for more memory, and prefetches
    /// what comes next.
    #[inline(always)]
    pub(crate) fn near(&self, word: u64) -> NearBucket<'g> {
        match self.way {
            BucketWay::Line(line) => {
                self.leaf.touch();
                let (bucket, _) = line.bucket(word);
                Bucket::prefetch(bucket);
                NearBucket::Bucket(bucket)
            }
            BucketWay::Pivots(pivot_root) => {
                self.leaf.touch();
                let half_way = pivot_root.half_way(word);
                half_way.prefetch();
                NearBucket::HalfWay(half_way)
            }
            BucketWay::Leaf => {
                AnyLeaf::prefetch(self.leaf);
                NearBucket::Leaf(self.leaf)
            }
        }
    }

    /// The same without the leaf itself: what replacing the leaf needs.
    pub(crate) fn position(&self) -> LeafPosition<'g, AnyLeaf> {
        let Self { root, group_at, group, leaf_at, .. } = *self;
        LeafPosition { root, group_at, group, leaf_at }
    }

    /// Returns true if the leaf is another one now, or is in another group.
    pub(crate) fn is_replaced(&self, guard: &'g Guard) -> bool {
        !ptr::eq(self.root.child(self.group_at, guard), self.group)
            || !ptr::eq(self.group.child(self.leaf_at, guard), self.leaf)
    }

    /// The lower bound of the leaf.
    pub(crate) fn lower(&self) -> Option<&'g Bound> {
        self.group.bound(self.leaf_at)
    }

    /// The lower bound of the next leaf; none for the last leaf.
    pub(crate) fn upper(&self) -> Option<&'g Bound> {
        let next_group = || self.root.bound(self.group_at + 1);
        self.group.bound(self.leaf_at + 1).or_else(next_group)
    }

    /// The next leaf, in the same state of the route.
    pub(crate) fn next(&self, guard: &'g Guard) -> Option<Self> {
        if self.leaf_at + 1 < self.group.len() {
            return Some(Self::at(self.root, (self.group_at, self.group), self.leaf_at + 1, guard));
        }
        let group_at = self.group_at + 1;
        (group_at < self.root.len())
            .then(|| Self::at(self.root, (group_at, self.root.child(group_at, guard)), 0, guard))
    }

    /// The leaf before, in the same state of the route.
    pub(crate) fn previous(&self, guard: &'g Guard) -> Option<Self> {
        if let Some(leaf_at) = self.leaf_at.checked_sub(1) {
            return Some(Self::at(self.root, (self.group_at, self.group), leaf_at, guard));
        }
        let group_at = self.group_at.checked_sub(1)?;
        let group = self.root.child(group_at, guard);
        Some(Self::at(self.root, (group_at, group), group.len() - 1, guard))
    }
}
