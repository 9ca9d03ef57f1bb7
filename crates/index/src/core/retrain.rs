//! Replacing a leaf: freeze, copy, publish by CAS.
//!
//! No thread waits for a trainer: a thread that needs the replacement of a frozen leaf makes it
//! from the frozen content, which is the same for all, and the first one published counts. Readers
//! go on in the frozen leaf. This module decides when a key's leaf is replaced; `plan` decides by
//! what.
//!
//! Thread safety: as in `core`. Invariants:
//!
//! 1. Each bucket of the replaced leaves is frozen before its content is copied.
//! 2. A leaf that was not published is freed by its maker. A leaf that was replaced is retired by
//!    the thread that replaced it, with the records of the keys that were removed from it.
#![allow(unsafe_code, reason = "promises what the published leaves hold")]

use rhumb_sync::{
    epoch::Guard,
    primitive::{Ordering, in_models, spin_loop},
};

use crate::{
    core::IndexCore,
    counts::count_moved,
    entry::Entry,
    kinds::AnyLeaf,
    op::Trigger,
    parts,
    plan::{LeafGrowth, PlannedLeaf},
    raw::{
        branch::{Bound, TreeNode},
        leaf::{BucketLeaf, NODES_MAX},
        schema::{self, KeyProbe, Schema},
        tree::BoundLeaf,
    },
    route::LeafPlace,
};

/// A leaf is retrained at this many overflow nodes for 64 buckets, plus its jitter (see
/// [`NODES_SPREAD`]). Chosen, not measured: fewer than one bucket in six then has a node, and nodes
/// add 8 % to the memory of the buckets.
const NODES_OF_64: usize = 10;
/// The jitter adds up to this many nodes for 64 buckets, by a hash of the leaf's words. Leaves that
/// were loaded together, and fill together, are then not all replaced at once. Chosen, not
/// measured: the fullest leaf has 26 nodes for 64 buckets, which add 20 % to the memory of the
/// buckets.
const NODES_SPREAD: usize = 16;
/// Every leaf may have this many nodes more. Chosen, not measured: without them [`NODES_OF_64`]
/// would have a leaf of fewer than seven buckets retrained at its first node.
const NODES_FREE: usize = in_models(4, 1);
/// A leaf is retrained when one of its buckets has this many overflow nodes. Chosen, not measured:
/// the third node comes with the bucket's thirtieth key, and a lookup reads at most three nodes
/// after the bucket.
const CHAIN_MAX: usize = 3;
/// The same limit for the first or the last bucket of a leaf without a line. No line predicts where
/// keys beyond the others go, so each replacement lasts only as long as the chain takes to grow to
/// this length. Chosen, not measured: the eighth node comes with the bucket's 65th key, so that the
/// leaf is copied half as often as with [`CHAIN_MAX`], and lookups of these keys read up to eight
/// nodes.
const END_CHAIN_MAX: usize = 8;
/// The writer itself replaces the leaf, whatever other threads are doing, when a bucket has this
/// many nodes. Chosen, not measured: half as many again as [`END_CHAIN_MAX`], so that a trainer has
/// the time of 28 inserts into this bucket, and a lookup reads at most twelve nodes.
const CHAIN_LIMIT: usize = 12;
/// Leaves of fewer keys are joined with a neighbour when they are retrained after removals. Chosen,
/// not measured: two thirds of `LEAF_TARGET`, so that a leaf cut from a larger one is not joined
/// again after a few removals.
const JOIN_BELOW: usize = in_models(1200, 6);
/// After a leaf was replaced because of removals, this many leaves are looked at for one to move.
/// Chosen, not measured: a look reads one line of each leaf, so it takes at most 16 cache misses,
/// one or two microseconds, beside the tens of microseconds of the replacement.
const GATHER: usize = 16;
/// Keys come in order if at most one of this many is below the one before. Chosen, not measured: of
/// the thirty keys of a full chain three may come late, as where a few threads append.
const ORDERED_OF: usize = 8;
/// A writer looks this many times at a frozen leaf before it replaces the leaf itself. Chosen, not
/// measured: at some 20 ns a look this is about as long as replacing a leaf of 2000 keys takes at
/// 20 ns each.
const PATIENCE: usize = in_models(2000, 1);

/// The trigger, if any, that follows from a key that went into an overflow node.
pub(crate) fn after_add(
    leaf: &BucketLeaf,
    (word, at): (u64, usize),
    chain: usize,
) -> Option<Trigger> {
    let is_full = leaf.nodes() > most_nodes(leaf);
    // Words that the leaf cannot tell apart need another leaf.
    let is_known = leaf.has_line() || leaf.len() == 1 || word == u64::MAX;
    let has_room = !leaf.is_open() || leaf.len() < leaf.room();
    let is_at_end = !is_known && (at == 0 || at + 1 == leaf.len() && has_room);
    let most = if is_at_end && !is_full { END_CHAIN_MAX } else { CHAIN_MAX };
    if chain >= most {
        return Some(Trigger::Chain(at, chain));
    }
    is_full.then_some(Trigger::Full)
}

/// The most overflow nodes that a leaf may have.
pub(crate) fn most_nodes(leaf: &BucketLeaf) -> usize {
    let of_64 = NODES_OF_64 + leaf.jitter as usize * NODES_SPREAD / (1 << u8::BITS);
    (leaf.len() * of_64 / 64 + NODES_FREE).min(NODES_MAX)
}

impl<S: Schema> IndexCore<S> {
    /// Replaces the leaf of `place`, unless another thread does or did.
    #[cold]
    pub(crate) fn retrain(&self, place: &LeafPlace<'_>, trigger: Trigger, guard: &Guard) {
        let leaf = place.leaf;
        match trigger {
            Trigger::Frozen => {
                // The replacement is some microseconds away, unless the thread that makes it was
                // stopped.
                for _ in 0..PATIENCE {
                    if place.is_replaced(guard) || !std::ptr::eq(self.root(guard), place.root) {
                        return;
                    }
                    spin_loop();
                }
            }
            Trigger::NoRoom => {}
            // The thread that was to replace it takes too long.
            Trigger::Chain(_, CHAIN_LIMIT..) => {}
            _ if leaf.is_retraining().swap(true, Ordering::Relaxed) => return,
            _ => {
                if let (Some(trainers), Some(lower)) = (&self.trainers, place.lower()) {
                    return trainers.ask(lower.clone(), trigger);
                }
            }
        }
        self.replace(place, trigger, guard);
    }

    /// Replaces the leaf of `place` now; does nothing if another thread was faster. Destructors of
    /// values run after that, and may panic.
    pub(crate) fn replace(&self, place: &LeafPlace<'_>, trigger: Trigger, guard: &Guard) {
        self.tree.hold_frees(|| self.replace_leaf(place, trigger, guard));
    }

    fn replace_leaf(&self, place: &LeafPlace<'_>, trigger: Trigger, guard: &Guard) {
        let mut entries = std::mem::take(&mut *self.scratch.lock());
        let mut dead = Vec::new();
        collect::<S>(place.leaf, &mut entries, &mut dead);
        let mut replaced = vec![place.leaf];
        if trigger.shrinks() && entries.len() < JOIN_BELOW && place.leaf_at + 1 < place.group.len()
        {
            let next = place.group.child(place.leaf_at + 1, guard);
            collect::<S>(next, &mut entries, &mut dead);
            replaced.push(next);
        }
        count_moved(entries.len());
        let upper = match replaced.len() {
            1 => place.upper().cloned(),
            _ => place.next(guard).and_then(|next| next.upper().cloned()),
        };
        let growth = growth::<S>(place, trigger, &entries);
        let parts = parts::parts::<S>(
            self.preset,
            &self.arena,
            &entries,
            growth,
            upper.as_ref(),
            Some((place.leaf, trigger)),
        );
        let lower = place.lower().cloned();
        let children = parts.into_iter().enumerate().map(|(i, PlannedLeaf { first, leaf })| {
            let bound = match (i, &lower) {
                (0, Some(lower)) => lower.clone(),
                _ => bound_of::<S>(&entries[first]),
            };
            (bound, leaf)
        });
        let children = children.collect();
        // SAFETY: the new leaves were made in the map's arena of what the frozen ones hold, but for
        // the records of removed keys, which no other leaf has.
        let published =
            unsafe { self.tree.publish(place.position(), &replaced, children, dead, guard) };
        self.count_heap(guard, published.heap_bytes);
        match published.left {
            None => _ = self.retrains.fetch_add(1, Ordering::Relaxed),
            // SAFETY: they were made in the map's arena, and no other thread has seen them.
            Some(left) => left.into_iter().for_each(|(_, leaf)| unsafe { leaf.free(&self.arena) }),
        }
        entries.clear();
        *self.scratch.lock() = entries;
        if trigger.shrinks() {
            self.gather(guard);
        }
    }

    /// Looks at the next leaves in turn and moves the first whose memory is worth giving back.
    /// Otherwise a map that shrinks would keep many chunks for a few leaves each.
    pub(crate) fn gather(&self, guard: &Guard) {
        // Other threads that come meanwhile start at the first leaf.
        let next = self.gathered.lock().take();
        let start = next.as_ref().map_or(KeyProbe::LEAST, Bound::probe);
        let mut place = Some(self.place(start, guard));
        for _ in 0..GATHER {
            let Some(current) = place else { break };
            let is_stray = current.leaf.is_stray(&self.arena);
            place = current.next(guard);
            if is_stray && !current.leaf.is_retraining().swap(true, Ordering::Relaxed) {
                self.replace(&current, Trigger::Stray, guard);
                break;
            }
        }
        *self.gathered.lock() = place.and_then(|place| place.lower().cloned());
    }

    /// Puts leaves in the place of the only leaf if the map is empty. Returns them if it is not.
    ///
    /// # Safety
    /// The leaves lie in the map's arena, their slots hold what `S` says, and own it.
    pub(crate) unsafe fn replace_empty(
        &self,
        leaves: Vec<BoundLeaf<AnyLeaf>>,
        guard: &Guard,
    ) -> Result<(), Vec<BoundLeaf<AnyLeaf>>> {
        let place = self.place(KeyProbe::LEAST, guard);
        if place.root.len() != 1 || place.group.len() != 1 {
            return Err(leaves);
        }
        let (mut entries, mut dead) = (Vec::new(), Vec::new());
        collect::<S>(place.leaf, &mut entries, &mut dead);
        if !entries.is_empty() {
            return Err(leaves);
        }
        // SAFETY: the caller's promise; the records are the replaced leaf's, of removed keys.
        let published =
            unsafe { self.tree.publish(place.position(), &[place.leaf], leaves, dead, guard) };
        self.count_heap(guard, published.heap_bytes);
        published.left.map_or(Ok(()), Err)
    }
}

/// Freezes a leaf, and appends its present entries, in order, and the records of its removed keys.
fn collect<S: Schema>(leaf: &AnyLeaf, entries: &mut Vec<Entry>, dead: &mut Vec<u64>) {
    leaf.collect::<S>(entries);
    if S::HAS_RECORDS {
        leaf.for_each_dead(|record| dead.push(record));
    }
}

/// The lower bound of a leaf that starts with this entry.
pub(crate) fn bound_of<S: Schema>(entry: &Entry) -> Bound {
    if S::WIDE {
        Bound::new::<S>(KeyProbe::wide(schema::key::<S>(entry)))
    } else {
        Bound::new::<S>(KeyProbe { word: entry.word, bytes: &[] })
    }
}

/// Determines how the leaf has grown, so that its successors have room where the next keys will
/// come.
fn growth<S: Schema>(place: &LeafPlace<'_>, trigger: Trigger, entries: &[Entry]) -> LeafGrowth {
    let Some(leaf) = place.leaf.buckets() else { return LeafGrowth::Even };
    let at = match trigger {
        Trigger::Chain(at, _) => at,
        Trigger::Removed | Trigger::Stray | Trigger::Cold => return LeafGrowth::None,
        _ => return LeafGrowth::Even,
    };
    // A trainer may come to the successor of the leaf that it was asked to replace, which may have
    // fewer buckets.
    if leaf.len() == 1 || at >= leaf.len() || entries.is_empty() {
        return LeafGrowth::Even;
    }
    // The keys of the bucket whose chain is too long.
    let mut below = 0;
    for before in 0..at {
        leaf.bucket(before).for_each(|_, _| below += 1);
    }
    let (mut here, mut falls, mut before) = (0, 0, 0);
    leaf.bucket(at).for_each(|word, _| {
        here += 1;
        falls += usize::from(word < before);
        before = word;
    });
    let hot = below..below + here;
    // Slots are taken in the order in which keys come.
    let is_ordered = falls <= here / ORDERED_OF;
    // If no line predicted where keys come, and the leaf did not take them by opening all of its
    // buckets, the next replacement is not far: it should be of few keys.
    let is_regular = leaf.has_line() || leaf.is_open() && leaf.len() == leaf.room();
    if hot.end == entries.len() {
        LeafGrowth::Above(hot, is_regular, is_ordered)
    } else if hot.start == 0 {
        LeafGrowth::Below(hot, is_regular)
    } else if entries.len() < leaf.built_of as usize + leaf.built_of as usize / 16 {
        LeafGrowth::Within(hot, is_ordered)
    } else {
        LeafGrowth::Even
    }
}
