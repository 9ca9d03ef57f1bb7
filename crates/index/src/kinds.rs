//! Leaves of every kind with one interface: what reading, scanning and retraining need of a leaf,
//! whatever it is made of. What only one kind has stays in its own module.
//!
//! The kinds are a closed set, told apart by a byte in the first line of the leaf. In a map of one
//! kind that branch always goes the same way, and nothing is called through a table. A map may hold
//! several kinds.
#![allow(unsafe_code, reason = "passes the promise on that a leaf is given up")]

#[cfg(feature = "published")]
use rhumb_sync::primitive::{Ordering, in_models};
use rhumb_sync::{
    arena::Arena,
    primitive::{AtomicBool, IS_MODEL},
};

use crate::{
    address::PivotRoot,
    entry::Entry,
    raw::{
        branch::TreeNode,
        bucket::{BUCKET_SLOTS, Bucket, NODE_SLOTS},
        leaf::{BucketLeaf, Shortcut},
        schema::{KeyProbe, Schema, reader, sort},
        tree::LeafNode,
    },
};
#[cfg(feature = "published")]
use crate::{
    op::{Action, Blocked, LeafWritten, Trigger},
    published::{bins::BinLeaf, gapped::GappedLeaf, slots::SlotLeaf},
};

/// Leaves that are not of buckets may be small: only one removal in this many checks whether to
/// replace them. Chosen, not measured: a leaf keeps at most 15 removed keys more than it would.
#[cfg(feature = "published")]
const REMOVED_EVERY: u32 = in_models(16, 2) as u32;

/// A leaf: the keys from its lower bound to that of the next leaf, in places that ascend among each
/// other. A key that has a slot has the same place for as long as the leaf lives.
pub(crate) enum AnyLeaf {
    /// Buckets that are ordered among each other only.
    Buckets(BucketLeaf),
    /// Slots within predicted windows.
    #[cfg(feature = "published")]
    Slots(SlotLeaf),
    /// Sorted arrays with gaps.
    #[cfg(feature = "published")]
    Gapped(GappedLeaf),
    /// A trained array with bins in its gaps.
    #[cfg(feature = "published")]
    Bins(BinLeaf),
}

const _: () = assert!(
    IS_MODEL || size_of::<AnyLeaf>() == size_of::<BucketLeaf>(),
    "the kind is in a leaf's first line"
);

/// The number of buckets by which prefetching runs ahead of copying. Chosen, not measured: a cache
/// miss takes some 80 ns, and freezing and copying a bucket more than 10.
const AHEAD: usize = 8;

/// The places that a scan prefetches for each place that it reads: one more than it reads, so that
/// the distance grows by one with each place up to [`SCAN_AHEAD`].
pub(super) const SCAN_STEP: usize = 2;
/// The most places that a scan prefetches ahead. Chosen, not measured: twelve places are 48 cache
/// lines, more than a core has under way at once.
pub(super) const SCAN_AHEAD: usize = 12;

/// Evaluates an expression for the leaf, whatever its kind.
macro_rules! each {
    ($leaf:expr, $it:ident => $then:expr) => {
        each!($leaf, $it => $then, $it => $then)
    };
    ($leaf:expr, $bucket_leaf:ident => $of_buckets:expr, $it:ident => $then:expr) => {
        match $leaf {
            AnyLeaf::Buckets($bucket_leaf) => $of_buckets,
            #[cfg(feature = "published")]
            AnyLeaf::Slots($it) => $then,
            #[cfg(feature = "published")]
            AnyLeaf::Gapped($it) => $then,
            #[cfg(feature = "published")]
            AnyLeaf::Bins($it) => $then,
        }
    };
}

impl TreeNode for AnyLeaf {
    fn shortcut(&self) -> Option<(Shortcut, Option<&PivotRoot>)> {
        each!(self, leaf => leaf.shortcut(), _leaf => None)
    }

    fn heap_bytes(&self) -> usize {
        each!(self, leaf => leaf.heap_bytes(), leaf => size_of::<Self>() + leaf.heap_bytes())
    }

    /// # Safety
    /// As for every [`TreeNode`]: the leaf was made with this arena, and is given up.
    unsafe fn free(self: Box<Self>, arena: &Arena) {
        // SAFETY: the caller's promise.
        each!(*self, leaf => unsafe { leaf.free(arena) });
    }
}

impl LeafNode for AnyLeaf {
    fn bytes(&self) -> usize {
        each!(self, leaf => leaf.bytes())
    }

    fn for_each_slot<S: Schema>(&self, mut visit: impl FnMut(u64, bool)) {
        let mut entries = Vec::new();
        self.collect::<S>(&mut entries);
        entries.iter().for_each(|entry| visit(entry.value, true));
        if S::HAS_RECORDS {
            self.for_each_dead(|slot| visit(slot, false));
        }
    }
}

impl AnyLeaf {
    /// Tells loom that the leaf is used. Called by code that uses a copy of its shortcut.
    #[inline(always)]
    pub(crate) fn touch(&self) {
        each!(self, leaf => leaf.touch(), _leaf => ());
    }

    /// Prefetches the lines that finding a place reads.
    #[inline(always)]
    pub(crate) fn prefetch(leaf: *const Self) {
        BucketLeaf::prefetch(leaf.cast());
    }

    /// The leaf, if it is one of buckets.
    #[inline]
    pub(crate) fn buckets(&self) -> Option<&BucketLeaf> {
        each!(self, leaf => Some(leaf), _leaf => None)
    }

    /// The number of places.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        each!(self, leaf => leaf.len())
    }

    /// The place that a key belongs to.
    #[inline(always)]
    pub(crate) fn place<S: Schema>(&self, probe: KeyProbe<'_>) -> usize {
        each!(
            self,
            leaf => leaf.place::<S>(leaf.word::<S>(probe), probe),
            leaf => leaf.place::<S>(probe)
        )
    }

    /// Prefetches the lines of a place.
    #[inline(always)]
    pub(crate) fn prefetch_place(&self, place: usize) {
        each!(self, leaf => Bucket::prefetch(leaf.bucket(place)), leaf => leaf.prefetch_place(place));
    }

    /// Prefetches the lines of a place, which will be read once.
    #[inline(always)]
    pub(crate) fn prefetch_once(&self, place: usize) {
        each!(
            self,
            leaf => Bucket::prefetch_once(leaf.bucket(place)),
            leaf => leaf.prefetch_place(place)
        );
    }

    /// Appends the present entries of a place in ascending order. Never waits.
    #[inline]
    pub(crate) fn append_sorted<S: Schema>(&self, place: usize, entries: &mut Vec<Entry>) {
        #[cfg(any(test, feature = "counts"))]
        crate::counts::count_places(1);
        each!(
            self,
            leaf => append_sorted::<S>(leaf.bucket(place), entries),
            leaf => leaf.append_sorted::<S>(place, entries)
        );
    }

    /// Appends the present entries of the places from `at` to `last` in ascending order until there
    /// are `wanted` or more. Returns the first place that it did not read. `ahead` is the first
    /// place that is not prefetched yet, before and after. Never waits.
    #[inline]
    pub(crate) fn append_run<S: Schema>(
        &self,
        at: usize,
        last: usize,
        wanted: usize,
        ahead: &mut usize,
        entries: &mut Vec<Entry>,
    ) -> usize {
        each!(
            self,
            leaf => append_run(
                (at, last, wanted, ahead, entries),
                |at| leaf.next_inhabited(at),
                |at| Bucket::prefetch_once(leaf.bucket(at)),
                |at, entries| append_sorted::<S>(leaf.bucket(at), entries)
            ),
            leaf => append_run(
                (at, last, wanted, ahead, entries),
                Some,
                |at| leaf.prefetch_place(at),
                |at, entries| leaf.append_sorted::<S>(at, entries)
            )
        )
    }

    /// The last place up to `place` that may have entries; none if there is none in the leaf.
    #[inline]
    pub(crate) fn last_inhabited(&self, place: usize) -> Option<usize> {
        each!(self, leaf => leaf.last_inhabited(place), _leaf => Some(place))
    }

    /// Calls `visit` with the slot of each removed key.
    pub(crate) fn for_each_dead(&self, mut visit: impl FnMut(u64)) {
        each!(
            self,
            leaf => (0..leaf.len()).for_each(|at| leaf.bucket(at).for_each_dead(&mut visit)),
            leaf => leaf.for_each_dead(&mut visit)
        );
    }

    /// Makes the leaf unchangeable and appends all present entries in ascending order. Any number
    /// of threads may do so at once.
    pub(crate) fn collect<S: Schema>(&self, entries: &mut Vec<Entry>) {
        each!(self, leaf => collect::<S>(leaf, entries), leaf => {
            leaf.freeze();
            (0..leaf.len()).for_each(|place| leaf.append_sorted::<S>(place, entries));
        });
    }

    /// Returns true if its main block lies in memory that is worth giving back.
    pub(crate) fn is_stray(&self, arena: &Arena) -> bool {
        let (block, bytes) = each!(self, leaf => leaf.block());
        arena.is_stray(block, bytes)
    }

    /// The word of a key's value, for leaves that are not of buckets. Never waits.
    #[inline(never)]
    pub(crate) fn get<S: Schema>(&self, probe: KeyProbe<'_>) -> Option<u64> {
        each!(
            self,
            leaf => {
                let word = leaf.word::<S>(probe);
                leaf.bucket(leaf.place::<S>(word, probe)).get(word, reader::<S>(probe))
            },
            leaf => leaf.get::<S>(probe)
        )
    }

    /// Writes one key, for leaves that are not of buckets; those are written under their locks.
    #[cfg(feature = "published")]
    #[inline]
    pub(crate) fn write<S: Schema>(
        &self,
        arena: &Arena,
        probe: KeyProbe<'_>,
        action: Action,
    ) -> Result<LeafWritten, Blocked> {
        each!(self, _leaf => Err(Blocked::Frozen), leaf => leaf.write::<S>(arena, probe, action))
    }

    /// Counts a removal, for leaves that are not of buckets. Returns a trigger if the leaf is to be
    /// replaced.
    #[cfg(feature = "published")]
    pub(crate) fn after_remove(&self) -> Option<Trigger> {
        each!(self, _leaf => None, leaf => {
            let removed = leaf.head.removed.fetch_add(1, Ordering::Relaxed) + 1;
            Trigger::after_removing(leaf.head.built_of, removed, REMOVED_EVERY)
        })
    }

    /// The flag that is true while a thread is about to replace it.
    pub(crate) fn is_retraining(&self) -> &AtomicBool {
        each!(self, leaf => &leaf.is_retraining, leaf => &leaf.head.is_retraining)
    }
}

/// [`AnyLeaf::append_run`] with its parts as functions: `next` returns the next place that may have
/// entries, `prefetch` prefetches a place, and `append` reads it.
#[inline(always)]
fn append_run(
    (mut at, last, wanted, ahead, entries): (usize, usize, usize, &mut usize, &mut Vec<Entry>),
    next: impl Fn(usize) -> Option<usize>,
    prefetch: impl Fn(usize),
    append: impl Fn(usize, &mut Vec<Entry>),
) -> usize {
    while at <= last && entries.len() < wanted {
        at = match next(at) {
            Some(next) if next <= last => next,
            _ => return last + 1,
        };
        *ahead = at.max(*ahead);
        let end = (*ahead + SCAN_STEP).min(at + SCAN_AHEAD).min(last + 1);
        #[cfg(any(test, feature = "counts"))]
        crate::counts::count_places(1);
        (*ahead..end).for_each(&prefetch);
        *ahead = end.max(*ahead);
        append(at, entries);
        at += 1;
    }
    at
}

/// Appends the present entries of a bucket in ascending order.
#[inline]
fn append_sorted<S: Schema>(bucket: &Bucket, entries: &mut Vec<Entry>) {
    if !S::WIDE {
        return bucket.append_ascending(entries);
    }
    let start = entries.len();
    bucket.for_each(|word, value| entries.push(Entry { word, value }));
    sort::<S>(&mut entries[start..]);
}

/// Freezes a leaf and appends its present entries in ascending order.
fn collect<S: Schema>(leaf: &BucketLeaf, entries: &mut Vec<Entry>) {
    entries.reserve(leaf.len() * BUCKET_SLOTS + leaf.nodes() * NODE_SLOTS);
    let mut at = 0;
    // No bucket is opened after a frozen one.
    while at < leaf.len() {
        Bucket::prefetch(leaf.bucket(at + AHEAD));
        leaf.bucket(at + AHEAD / 2).prefetch_behind();
        let bucket = leaf.bucket(at);
        bucket.freeze();
        append_sorted::<S>(bucket, entries);
        at += 1;
    }
}
