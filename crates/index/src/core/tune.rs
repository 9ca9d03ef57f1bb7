//! Tuning leaves that are used differently from what they were made for. The first trainer looks at
//! them in turn while no thread asks for anything, and so does [`Index::tune`](super::Index::tune).
//!
//! A leaf that fills up is replaced before a writer has to. A leaf that has not been written since
//! the last look and has much room is made anew without it, and joined with a neighbour if it is
//! small. A leaf of slots gets the narrow windows that suit lookups. A leaf that lies in a chunk of
//! memory that is mostly free is moved out of it.
//!
//! Neither readers nor writers count anything for this: what a leaf has taken is read off the
//! headers of its slots. Reads are not seen, so a leaf that is not written counts as cold.
//!
//! Thread safety: as in `core`. A look changes no leaf; those that are worth it are replaced like
//! any other.

use std::time::Duration;

use rhumb_sync::{
    epoch,
    primitive::{Ordering, in_models},
};

use super::retrain::most_nodes;
use crate::{
    core::IndexCore,
    kinds::AnyLeaf,
    op::Trigger,
    raw::{
        branch::Bound,
        leaf::BucketLeaf,
        noted::Since,
        schema::{KeyProbe, Schema},
    },
};

/// The leaves of one look. Reading the headers of this many takes less than a millisecond.
const LEAVES: usize = in_models(64, 4);
/// The time between two looks.
const TICK: Duration = Duration::from_millis(20);
/// The time between two looks if the last tours found nothing to do and nothing has changed since.
const REST: Duration = Duration::from_secs(1);
/// The number of tours in a row that must find nothing before the trainer rests ([`REST`]).
const QUIET_TOURS: usize = 2;

/// A leaf of buckets is compacted when a bucket has fewer keys than this on average. A new leaf has
/// more.
const SPARSE: usize = in_models(7, 2);
/// A leaf of another kind is compacted when fewer than one in this many of its slots has a key.
#[cfg(feature = "published")]
const SPARSE_SLOTS: usize = 4;
/// This many slots of a leaf do not count, because small leaves have them for nothing.
#[cfg(feature = "published")]
const SLOTS_FREE: usize = 64;
/// Bins are trained when they have more than one slot for this many keys, and some more.
#[cfg(feature = "published")]
const BINS_OF: usize = 4;

/// The progress of the first trainer on its way through the leaves.
#[derive(Default)]
pub(crate) struct Tour {
    next: Option<Bound>,
    /// Leaves that this tour has replaced.
    replaced: usize,
    /// Tours in a row during which neither the tour nor any other thread changed anything.
    quiet: usize,
    /// The activity of the map at the end of the last tour.
    seen: (usize, u64),
}

impl Tour {
    /// The time without a request after which the tour goes on.
    pub(crate) fn patience(&self) -> Duration {
        if self.quiet >= QUIET_TOURS { REST } else { TICK }
    }
}

impl<S: Schema> IndexCore<S> {
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

    /// Looks at all leaves. Returns the number of leaves that it replaced.
    pub(crate) fn look_at_all(&self) -> usize {
        let (mut next, mut all) = self.look(None, LEAVES);
        while next.is_some() {
            let (further, replaced) = self.look(next, LEAVES);
            (next, all) = (further, all + replaced);
        }
        all
    }

    /// Two numbers that change when keys come or leaves are replaced.
    fn activity(&self) -> (usize, u64) {
        (self.len(), self.retrains.load(Ordering::Relaxed))
    }

    /// Looks at `leaves` leaves from the one with this lower bound on. Returns the lower bound of
    /// the next leaf, and the number of leaves that it replaced.
    fn look(&self, from: Option<Bound>, leaves: usize) -> (Option<Bound>, usize) {
        let guard = epoch::pin();
        let mut place =
            Some(self.place(from.as_ref().map_or(KeyProbe::LEAST, Bound::probe), &guard));
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

/// The reason to replace a leaf, if there is one.
fn advice(leaf: &AnyLeaf) -> Option<Trigger> {
    #[cfg(feature = "published")]
    let removed = |head: &crate::published::head::LeafHead| head.removed.load(Ordering::Relaxed);
    match leaf {
        AnyLeaf::Buckets(leaf) => advice_on_buckets(leaf),
        #[cfg(feature = "published")]
        AnyLeaf::Slots(leaf) => {
            let (used, removed) = (leaf.head.used.load(Ordering::Relaxed), removed(&leaf.head));
            match leaf.head.noted.note(used.wrapping_add(removed)) {
                Since::Unknown => None,
                // As many writes again would fill it.
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

fn advice_on_buckets(leaf: &BucketLeaf) -> Option<Trigger> {
    let (mut used, mut present) = (0, 0);
    for at in 0..leaf.len() {
        let (of_used, of_present) = leaf.bucket(at).count();
        (used, present) = (used + of_used, present + of_present);
    }
    let writes = (used as u32).wrapping_add(leaf.removed.load(Ordering::Relaxed));
    match leaf.noted.note(writes) {
        Since::Unknown => None,
        Since::Written(_) => (leaf.nodes() > most_nodes(leaf) / 4 * 3).then_some(Trigger::Full),
        // A run of keys that was cut into as few buckets as possible may end in one that is almost
        // empty.
        Since::Unwritten => (present < (leaf.len() - 1) * SPARSE).then_some(Trigger::Cold),
    }
}
