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
#![allow(unsafe_code, reason = "publishes leaves and retires what they replace")]

use rhumb_sync::{
    epoch::Guard,
    primitive::{Ordering, in_models, spin_loop},
};

use crate::{
    core::{Core, Waste},
    counts::count_moved,
    entry::{self, Entry},
    kinds::AnyLeaf,
    op::Trigger,
    parts,
    plan::{Growth, Part},
    raw::leaf::{Leaf, NODES_MAX},
    record,
    route::{Bound, Branch, Child, GROUP_MAX, Group, Place, Replaced, ptr_of},
    schema::{Probe, Schema},
};

/// A leaf is retrained at this many overflow nodes for 64 buckets, plus its jitter (see
/// [`NODES_SPREAD`]).
const NODES_OF_64: usize = 10;
/// The jitter adds up to this many nodes for 64 buckets, by a hash of the leaf's words. Leaves that
/// were loaded together, and fill together, are then not all replaced at once.
const NODES_SPREAD: usize = 16;
/// Every leaf may have this many nodes more, which counts if it is small.
const NODES_FREE: usize = in_models(4, 1);
/// A leaf is retrained when one of its buckets has this many overflow nodes.
const CHAIN_MAX: usize = 3;
/// The same limit for the first or the last bucket of a leaf without a line. No line predicts where
/// keys beyond the others go, so each replacement lasts only as long as the chain takes to grow to
/// this length.
const END_CHAIN_MAX: usize = 8;
/// The writer itself replaces the leaf, whatever other threads are doing, when a bucket has this
/// many nodes.
const CHAIN_LIMIT: usize = 12;
/// Leaves of fewer keys are joined with a neighbour when they are retrained after removals.
const JOIN_BELOW: usize = in_models(1200, 6);
/// After a leaf was replaced because of removals, this many leaves are looked at for one to move.
const GATHER: usize = 16;
/// Keys come in order if at most one of this many is below the one before.
const ORDERED_OF: usize = 8;
/// A writer looks this many times at a frozen leaf before it replaces the leaf itself.
const PATIENCE: usize = in_models(2000, 1);

/// The trigger, if any, that follows from a key that went into an overflow node.
pub(crate) fn after_add(leaf: &Leaf, (word, at): (u64, usize), chain: usize) -> Option<Trigger> {
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
pub(crate) fn most_nodes(leaf: &Leaf) -> usize {
    let of_64 = NODES_OF_64 + leaf.lot as usize * NODES_SPREAD / (1 << u8::BITS);
    (leaf.len() * of_64 / 64 + NODES_FREE).min(NODES_MAX)
}

impl<S: Schema> Core<S> {
    /// Replaces the leaf of `place`, unless another thread does or did.
    #[cold]
    pub(crate) fn retrain(&self, place: &Place<'_>, trigger: Trigger, guard: &Guard) {
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
    pub(crate) fn replace(&self, place: &Place<'_>, trigger: Trigger, guard: &Guard) {
        self.garbage.hold_frees(&self.arena, || self.replace_leaf(place, trigger, guard));
    }

    fn replace_leaf(&self, place: &Place<'_>, trigger: Trigger, guard: &Guard) {
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
        let heap: i64 = parts.iter().map(|part| part.leaf.heap_bytes() as i64).sum();
        let lower = place.lower().cloned();
        let children = parts.into_iter().enumerate().map(|(i, Part { first, leaf })| {
            let bound = match (i, &lower) {
                (0, Some(lower)) => lower.clone(),
                _ => bound_of::<S>(&entries[first]),
            };
            (bound, Box::into_raw(leaf))
        });
        let children: Vec<Child<AnyLeaf>> = children.collect();
        if self.publish(place, &replaced, &children, guard) {
            self.retrains.fetch_add(1, Ordering::Relaxed);
            self.count_heap(guard, heap);
            for leaf in replaced {
                // SAFETY: the CAS that published the replacement unlinked the leaf. The records
                // were in one of the leaves and are in none of their successors.
                unsafe { self.retire_leaf(leaf, std::mem::take(&mut dead), guard) };
            }
        } else {
            for (_, leaf) in children {
                // SAFETY: the leaf came from a box just now and was not published.
                unsafe { Box::from_raw(leaf).free(&self.arena) };
            }
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
        let start = next.as_ref().map_or(Probe::LEAST, Bound::probe);
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

    /// Puts leaves in the place of the only leaf if the map is empty. Returns true if it did.
    /// Otherwise the leaves are still the caller's.
    pub(crate) fn replace_empty(&self, leaves: &[Child<AnyLeaf>], guard: &Guard) -> bool {
        let place = self.place(Probe::LEAST, guard);
        if place.root.len() != 1 || place.group.len() != 1 {
            return false;
        }
        let (mut entries, mut dead) = (Vec::new(), Vec::new());
        collect::<S>(place.leaf, &mut entries, &mut dead);
        if !entries.is_empty() || !self.publish(&place, &[place.leaf], leaves, guard) {
            return false;
        }
        // SAFETY: the leaf was replaced just now; its dead records are in no other.
        unsafe { self.retire_leaf(place.leaf, dead, guard) };
        true
    }

    /// Retires a leaf and the records of its removed keys.
    ///
    /// # Safety
    /// The current thread unlinked the leaf.
    unsafe fn retire_leaf(&self, leaf: &AnyLeaf, dead: Vec<u64>, guard: &Guard) {
        self.count_heap(guard, -(leaf.heap_bytes() as i64));
        // SAFETY: the caller unlinked the leaf, and with it the records that no other leaf has.
        unsafe {
            self.retire(Waste::Leaf(ptr_of(leaf)), leaf.bytes(), guard);
            for record in dead {
                self.retire_record(record, guard);
            }
        }
    }

    /// Retires the record of a key that was removed.
    ///
    /// # Safety
    /// The record was unlinked and is retired once.
    pub(super) unsafe fn retire_record(&self, record: u64, guard: &Guard) {
        // SAFETY: the record lives until it is retired.
        let bytes = record::bytes_of(unsafe { record::key(record) }.len());
        self.count_heap(guard, -(bytes as i64));
        // SAFETY: the caller's promise.
        unsafe { self.retire(Waste::Record(record), bytes, guard) };
    }

    /// Puts `children` in the place of the neighbours `replaced`, the first of which is the
    /// place's. Returns true if it did.
    fn publish(
        &self,
        place: &Place<'_>,
        replaced: &[&AnyLeaf],
        children: &[Child<AnyLeaf>],
        guard: &Guard,
    ) -> bool {
        if let ([old], [(_, new)]) = (replaced, children)
            && !place.group.is_worn()
        {
            match place.group.replace(place.leaf_at, old, *new) {
                Replaced::Done => return true,
                Replaced::Lost => return false,
                Replaced::Frozen => {}
            }
        }
        let mut leaves = place.group.freeze();
        let span = place.leaf_at..place.leaf_at + replaced.len();
        let is_current = leaves
            .get(span.clone())
            .is_some_and(|now| now.iter().zip(replaced).all(|((_, p), old)| *p == ptr_of(*old)));
        if is_current {
            leaves.splice(span, children.iter().cloned());
        }
        // Otherwise the group is replaced by one that is the same but not frozen.
        self.publish_groups(place, leaves, guard) && is_current
    }

    /// Replaces the place's group by groups of these leaves. Returns true if it did.
    fn publish_groups(
        &self,
        place: &Place<'_>,
        leaves: Vec<Child<AnyLeaf>>,
        guard: &Guard,
    ) -> bool {
        count_moved(leaves.len());
        let count = leaves.len().div_ceil(GROUP_MAX);
        let size = leaves.len().div_ceil(count);
        let made = leaves
            .chunks(size)
            .map(|leaves| (leaves[0].0.clone(), Box::into_raw(Branch::new(leaves.to_vec()))));
        let made: Vec<Child<Group>> = made.collect();
        // SAFETY: the groups came from boxes just now.
        let bytes = |(_, group): &Child<Group>| unsafe { &**group }.bytes() as i64;
        let heap: i64 = made.iter().map(bytes).sum();
        let is_done = match &made[..] {
            [(_, new)] => match place.root.replace(place.group_at, place.group, *new) {
                Replaced::Done => true,
                Replaced::Lost => false,
                Replaced::Frozen => self.publish_root(place, &made, guard),
            },
            _ => self.publish_root(place, &made, guard),
        };
        if is_done {
            let gone = place.group.bytes();
            self.count_heap(guard, heap - gone as i64);
            // SAFETY: the CAS that published its successors unlinked the group.
            unsafe { self.retire(Waste::Group(ptr_of(place.group)), gone, guard) };
        } else {
            for (_, group) in made {
                // SAFETY: the group came from a box just now and was not published.
                drop(unsafe { Box::from_raw(group) });
            }
        }
        is_done
    }

    /// Replaces the root by one with these groups in the place of the place's group. Returns true
    /// if it did.
    fn publish_root(&self, place: &Place<'_>, groups: &[Child<Group>], guard: &Guard) -> bool {
        let mut children = place.root.freeze();
        let is_current = children.get(place.group_at).is_some_and(|c| c.1 == ptr_of(place.group));
        if is_current {
            let span = place.group_at..place.group_at + 1;
            children.splice(span, groups.iter().cloned());
        }
        count_moved(children.len());
        let new = Branch::new(children);
        let heap = new.bytes() as i64;
        let (old, new) = (ptr_of(place.root), Box::into_raw(new));
        if self.root.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: the root came from a box just now and was not published.
            drop(unsafe { Box::from_raw(new) });
            return false;
        }
        let gone = place.root.bytes();
        self.count_heap(guard, heap - gone as i64);
        // SAFETY: the CAS unlinked the old root.
        unsafe { self.retire(Waste::Root(old), gone, guard) };
        is_current
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
        Bound::new::<S>(Probe::wide(entry::key::<S>(entry)))
    } else {
        Bound::new::<S>(Probe { word: entry.word, bytes: &[] })
    }
}

/// Determines how the leaf has grown, so that its successors have room where the next keys will
/// come.
fn growth<S: Schema>(place: &Place<'_>, trigger: Trigger, entries: &[Entry]) -> Growth {
    let Some(leaf) = place.leaf.buckets() else { return Growth::Even };
    let at = match trigger {
        Trigger::Chain(at, _) => at,
        Trigger::Removed | Trigger::Stray | Trigger::Cold => return Growth::None,
        _ => return Growth::Even,
    };
    // A trainer may come to the successor of the leaf that it was asked to replace, which may have
    // fewer buckets.
    if leaf.len() == 1 || at >= leaf.len() || entries.is_empty() {
        return Growth::Even;
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
        Growth::Above(hot, is_regular, is_ordered)
    } else if hot.start == 0 {
        Growth::Below(hot, is_regular)
    } else if entries.len() < leaf.built_of as usize + leaf.built_of as usize / 16 {
        Growth::Within(hot, is_ordered)
    } else {
        Growth::Even
    }
}
