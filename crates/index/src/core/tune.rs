//! What becomes of leaves that are used otherwise than they were made for: the first trainer looks at them in
//! turn while nobody asks for anything, and so does [`Index::tune`](super::Index::tune).
//!
//! A leaf that fills up is replaced before a writer has to; one that has not been written since the last look
//! and has much room is made anew without it, and joined with a neighbour if it is small; one of slots gets the
//! narrow windows that lookups like; and one that lies in a chunk of memory that is mostly free is moved out of it.
//! Nobody counts anything for this, neither readers nor writers: what a leaf
//! has taken is read off the headers of its slots. Reads are not seen, so that a leaf is cold that is not
//! written.
//!
//! Thread safety: as in `core`. A look changes no leaf; those that are worth it are replaced as any other.

use std::time::Duration;

use rhumb_sync::{
    epoch,
    primitive::{Ordering, in_models},
};

use super::retrain::most_nodes;
use crate::{
    core::Core,
    kinds::AnyLeaf,
    op::Trigger,
    raw::{leaf::Leaf, noted::Since},
    route::Bound,
    schema::{Probe, Schema},
};

/// Leaves of one look: so many have their headers read in less than a millisecond.
const LEAVES: usize = in_models(64, 4);
/// Between two looks,
const TICK: Duration = Duration::from_millis(20);
/// and where the last ones found nothing to do and nothing has changed since.
const REST: Duration = Duration::from_secs(1);
/// So many tours in a row must have found nothing.
const QUIET_TOURS: usize = 2;

/// A leaf of buckets is compacted when a bucket has fewer keys than so many on average. A new one has more.
const SPARSE: usize = in_models(7, 2);
/// A leaf of another kind is compacted when of so many slots one has a key,
#[cfg(feature = "published")]
const SPARSE_SLOTS: usize = 4;
/// not counting so many slots, because small leaves have them for nothing.
#[cfg(feature = "published")]
const SLOTS_FREE: usize = 64;
/// Bins are trained when their slots are more than one for so many keys, and some more.
#[cfg(feature = "published")]
const BINS_OF: usize = 4;

/// Where the first trainer is on its way through the leaves.
#[derive(Default)]
pub(crate) struct Tour {
    next: Option<Bound>,
    /// Leaves that this tour has replaced.
    replaced: usize,
    /// Tours that changed nothing, nor did anybody else meanwhile.
    quiet: usize,
    /// What the map was like at the end of the last tour.
    seen: (usize, u64),
}

impl Tour {
    /// How long nobody must have asked for anything before the tour goes on.
    pub(crate) fn patience(&self) -> Duration {
        if self.quiet >= QUIET_TOURS { REST } else { TICK }
    }
}

impl<S: Schema> Core<S> {
    /// Looks at some leaves.
    pub(crate) fn go_on(&self, tour: &mut Tour) {
        if self.garbage_bytes() > 0 {
            self.collect_garbage();
        }
        if tour.quiet >= QUIET_TOURS {
            if self.activity() == tour.seen {
                return;
            }
            tour.quiet = 0;
        }
        let (next, replaced) = self.look(tour.next.take(), LEAVES);
        tour.replaced += replaced;
        tour.next = next;
        if tour.next.is_none() {
            let now = self.activity();
            let is_quiet = tour.replaced == 0 && now == tour.seen;
            tour.quiet = if is_quiet { tour.quiet + 1 } else { 0 };
            (tour.seen, tour.replaced) = (now, 0);
        }
    }

    /// Looks at all leaves; returns how many it replaced.
    pub(crate) fn look_at_all(&self) -> usize {
        let (mut next, mut all) = self.look(None, LEAVES);
        while next.is_some() {
            let (further, replaced) = self.look(next, LEAVES);
            (next, all) = (further, all + replaced);
        }
        all
    }

    /// What changes when keys come or leaves are replaced.
    fn activity(&self) -> (usize, u64) {
        (self.len(), self.retrains.load(Ordering::Relaxed))
    }

    /// Looks at some leaves from the one with this lower bound on; returns that of the next, and how many it
    /// replaced.
    fn look(&self, from: Option<Bound>, leaves: usize) -> (Option<Bound>, usize) {
        let guard = epoch::pin();
        let mut place = Some(self.place(from.as_ref().map_or(Probe::LEAST, Bound::probe), &guard));
        let mut replaced = 0;
        for _ in 0..leaves {
            let Some(current) = place else { break };
            place = current.next(&guard);
            let is_stray = || current.leaf.is_stray(&self.arena).then_some(Trigger::Stray);
            let Some(trigger) = advice(current.leaf).or_else(is_stray) else { continue };
            if !current.leaf.is_retraining().swap(true, Ordering::Relaxed) {
                self.replace(&current, trigger, &guard);
                replaced += 1;
                // The next one may have been joined with it.
                place = current.upper().map(|upper| self.place(upper.probe(), &guard));
            }
        }
        (place.and_then(|place| place.lower().cloned()), replaced)
    }
}

/// Why a leaf should be replaced, if it should.
fn advice(leaf: &AnyLeaf) -> Option<Trigger> {
    #[cfg(feature = "published")]
    let removed = |head: &crate::published::head::Head| head.removed.load(Ordering::Relaxed);
    match leaf {
        AnyLeaf::Buckets(leaf) => advice_on_buckets(leaf),
        #[cfg(feature = "published")]
        AnyLeaf::Slots(leaf) => {
            let (used, removed) = (leaf.head.used.load(Ordering::Relaxed), removed(&leaf.head));
            match leaf.head.noted.note(used.wrapping_add(removed)) {
                Since::Unknown => None,
                // As much again would fill it.
                Since::Written(more) => {
                    leaf.is_full(used.saturating_add(more)).then_some(Trigger::Full)
                }
                Since::Unwritten => {
                    let is_wide = leaf.shape().window > crate::fit::READ_WINDOW;
                    let is_sparse = is_sparse(used.saturating_sub(removed), leaf.slots());
                    (is_wide || is_sparse).then_some(Trigger::Cold)
                }
            }
        }
        #[cfg(feature = "published")]
        AnyLeaf::Gapped(leaf) => {
            let (used, removed) = (leaf.used(), removed(&leaf.head));
            let is_cold = leaf.head.noted.note(used.wrapping_add(removed)) == Since::Unwritten;
            let is_sparse = is_sparse(used.saturating_sub(removed), leaf.slots());
            (is_cold && (leaf.has_secondary() || is_sparse)).then_some(Trigger::Cold)
        }
        #[cfg(feature = "published")]
        AnyLeaf::Bins(leaf) => {
            let (used, removed) = (leaf.head.used.load(Ordering::Relaxed), removed(&leaf.head));
            let is_cold = leaf.head.noted.note(used.wrapping_add(removed)) == Since::Unwritten;
            let keys = used.saturating_sub(removed) as usize;
            let is_binned = leaf.slots() > keys + keys / BINS_OF + SLOTS_FREE;
            (is_cold && is_binned).then_some(Trigger::Cold)
        }
    }
}

#[cfg(feature = "published")]
fn is_sparse(keys: u32, slots: usize) -> bool {
    keys as usize * SPARSE_SLOTS + SLOTS_FREE < slots
}

fn advice_on_buckets(leaf: &Leaf) -> Option<Trigger> {
    let (mut used, mut present) = (0, 0);
    for at in 0..leaf.len() {
        let (of_used, of_present) = leaf.bucket(at).count();
        (used, present) = (used + of_used, present + of_present);
    }
    let writes = (used as u32).wrapping_add(leaf.removed.load(Ordering::Relaxed));
    match leaf.noted.note(writes) {
        Since::Unknown => None,
        Since::Written(_) => (leaf.nodes() > most_nodes(leaf) / 4 * 3).then_some(Trigger::Full),
        // A run of keys that was cut into as few buckets as can be may end in one that is almost empty.
        Since::Unwritten => (present < (leaf.len() - 1) * SPARSE).then_some(Trigger::Cold),
    }
}
