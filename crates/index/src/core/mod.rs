//! The map itself, in words: reading and writing one key.
//!
//! Thread safety: readers pin the epoch, follow pointers and take no lock. A writer holds the lock
//! bit of one bucket for a few instructions. Invariants:
//!
//! 1. Every key belongs to one bucket of one leaf at a time; a leaf is replaced only after all of
//!    its buckets are frozen, by leaves with the same present keys.
//! 2. A writer that finds its bucket frozen replaces the leaf itself and tries again: the content
//!    of a frozen leaf is the same for all, and the first replacement counts.
//! 3. The word of a value is owned by the slot or record that holds it until a write takes it out.
#![allow(unsafe_code, reason = "gives up what a write took out")]

mod inherit;
pub(crate) mod retrain;
pub(crate) mod train;
mod tune;

use rhumb_sync::{
    arena::Arena,
    epoch::Guard,
    mapping::Gauge,
    primitive::{Arc, AtomicI64, AtomicU64, Mutex, Ordering, in_models},
};

use self::retrain::after_add;
use crate::{
    entry::Entry,
    kinds::AnyLeaf,
    op::{Action, Trigger, WriteOutcome},
    parts,
    plan::LeafGrowth,
    preset::Preset,
    raw::{
        branch::Bound,
        bucket::{Bucket, KeySlot, Locked, NoRoom},
        leaf::BucketLeaf,
        record,
        schema::{KeyProbe, Schema, cell_of, is_same, reader, slot_value},
        tree::{BoundLeaf, LeafTree},
    },
    route::{LeafPlace, Root},
    simd,
    trainers::Trainers,
};

/// The number of cache lines that counters are spread over, so that threads rarely share one.
/// Chosen, not measured: 16 of them take 2 KiB of each map; more threads than that share.
const COUNTERS: usize = in_models(16, 2);

/// A map from keys to words.
pub(crate) struct IndexCore<S: Schema> {
    tree: LeafTree<AnyLeaf, S>,
    /// The arena that leaves lie in; maps may share one.
    pub(crate) arena: Arc<Arena>,
    /// The kind of leaves that new ones are, and how they are built.
    pub(crate) preset: Preset,
    counters: [Counter; COUNTERS],
    pub(crate) retrains: AtomicU64,
    /// Room for the entries of a leaf that is being replaced, empty; kept because the system takes
    /// some microseconds for each page of new memory.
    pub(crate) scratch: Mutex<Vec<Entry>>,
    /// The leaf to look at next for memory that is worth giving back; the first if there is none.
    pub(crate) gathered: Mutex<Option<Bound>>,
    /// The threads that replace leaves, if the writers do not.
    pub(crate) trainers: Option<Trainers>,
}

#[derive(Default)]
#[repr(align(128))]
struct Counter {
    keys: AtomicI64,
    /// Bytes outside of the arena.
    heap_bytes: AtomicI64,
}

/// The outcome of a write in a bucket, and what follows from it for the leaf.
type InBucket = Result<(WriteOutcome, Option<Trigger>), Refused>;

/// The reason why a bucket did not take a key.
enum Refused {
    /// The leaf has no overflow node left.
    NoRoom,
    /// The key belongs to another bucket now.
    Moved,
}

impl<S: Schema> IndexCore<S> {
    pub(crate) fn new(preset: Preset, trainers: Option<Trainers>) -> Self {
        Self::within(Arc::new(Arena::packed(&Gauge::default())), preset, trainers)
    }

    /// An empty map whose leaves lie in this arena.
    pub(crate) fn within(arena: Arc<Arena>, preset: Preset, trainers: Option<Trainers>) -> Self {
        simd::detect();
        let least = || Bound::new::<S>(KeyProbe::LEAST);
        let leaves = parts::parts::<S>(preset, &arena, &[], LeafGrowth::Even, None, None);
        let leaves = leaves.into_iter().map(|part| (least(), part.leaf)).collect();
        // SAFETY: the leaves were made in this arena just now, without keys.
        unsafe { Self::with_leaves(arena, preset, trainers, vec![(least(), leaves)]) }
    }

    /// A map of these groups of leaves.
    ///
    /// # Safety
    /// As for [`LeafTree::new`].
    unsafe fn with_leaves(
        arena: Arc<Arena>,
        preset: Preset,
        trainers: Option<Trainers>,
        groups: Vec<(Bound, Vec<BoundLeaf<AnyLeaf>>)>,
    ) -> Self {
        Self {
            // SAFETY: the caller's promise.
            tree: unsafe { LeafTree::new(Arc::clone(&arena), groups) },
            preset,
            arena,
            counters: std::array::from_fn(|_| Counter::default()),
            retrains: AtomicU64::new(0),
            scratch: Mutex::default(),
            gathered: Mutex::default(),
            trainers,
        }
    }

    #[inline(always)]
    pub(crate) fn root<'g>(&'g self, guard: &'g Guard) -> &'g Root {
        self.tree.root(guard)
    }

    #[inline(always)]
    pub(crate) fn place<'g>(&'g self, probe: KeyProbe<'_>, guard: &'g Guard) -> LeafPlace<'g> {
        LeafPlace::of::<S>(self.root(guard), probe, guard)
    }

    /// The last leaf.
    pub(crate) fn last_place<'g>(&'g self, guard: &'g Guard) -> LeafPlace<'g> {
        let root = self.root(guard);
        let group_at = root.len() - 1;
        let group = root.child(group_at, guard);
        let leaf_at = group.len() - 1;
        LeafPlace::at(root, (group_at, group), leaf_at, guard)
    }

    /// The word of a key's value, which lives while the thread is pinned. Never waits.
    #[inline(always)]
    pub(crate) fn get(&self, probe: KeyProbe<'_>, guard: &Guard) -> Option<u64> {
        let place = self.place(probe, guard);
        if let Some((bucket, _)) = place.bucket(probe.word) {
            Bucket::prefetch(bucket);
            return bucket.get(probe.word, reader::<S>(probe));
        }
        #[cfg_attr(
            not(feature = "published"),
            expect(clippy::infallible_destructuring_match, reason = "there are other leaves")
        )]
        let leaf = match place.leaf {
            AnyLeaf::Buckets(leaf) => leaf,
            #[cfg(feature = "published")]
            other => return other.get::<S>(probe),
        };
        let word = leaf.word::<S>(probe);
        let bucket = leaf.bucket(leaf.place::<S>(word, probe));
        Bucket::prefetch(bucket);
        bucket.get(word, reader::<S>(probe))
    }

    /// Writes one key.
    #[inline(always)]
    pub(crate) fn write(&self, probe: KeyProbe<'_>, action: Action, guard: &Guard) -> WriteOutcome {
        loop {
            let place = self.place(probe, guard);
            #[cfg_attr(
                not(feature = "published"),
                expect(clippy::infallible_destructuring_match, reason = "there are other leaves")
            )]
            let leaf = match place.leaf {
                AnyLeaf::Buckets(leaf) => leaf,
                #[cfg(feature = "published")]
                other => match self.write_other(&place, other, probe, action, guard) {
                    Some(outcome) => return outcome,
                    None => continue,
                },
            };
            let word = leaf.word::<S>(probe);
            let (bucket, at) = place.bucket(word).unwrap_or_else(|| {
                let at = leaf.place::<S>(word, probe);
                (leaf.bucket(at), at)
            });
            Bucket::prefetch(bucket);
            let trigger = match bucket.lock() {
                Err(_) => Trigger::Frozen,
                // A bucket was opened for the key meanwhile.
                Ok(_) if leaf.is_open() && leaf.place::<S>(word, probe) != at => continue,
                Ok(locked) => {
                    match self.write_locked(locked, leaf, (word, at), probe, action, guard) {
                        Ok((outcome, None)) => return outcome,
                        Ok((outcome, Some(trigger))) => {
                            self.retrain(&place, trigger, guard);
                            return outcome;
                        }
                        Err(Refused::NoRoom) => Trigger::NoRoom,
                        Err(Refused::Moved) => continue,
                    }
                }
            };
            self.retrain(&place, trigger, guard);
        }
    }

    /// Writes one key in a leaf that is not of buckets; none if the leaf was replaced.
    #[cfg(feature = "published")]
    #[inline(never)]
    fn write_other(
        &self,
        place: &LeafPlace<'_>,
        leaf: &AnyLeaf,
        probe: KeyProbe<'_>,
        action: Action,
        guard: &Guard,
    ) -> Option<WriteOutcome> {
        use crate::op::{Blocked, LeafWritten};

        let LeafWritten { outcome, is_added, replaced, trigger } =
            match leaf.write::<S>(&self.arena, probe, action) {
                Ok(written) => written,
                Err(blocked) => {
                    let trigger = match blocked {
                        Blocked::Frozen => Trigger::Frozen,
                        Blocked::NoRoom => Trigger::NoRoom,
                    };
                    self.retrain(place, trigger, guard);
                    return None;
                }
            };
        let mut trigger = trigger;
        if outcome.is_done {
            match (action, outcome.old) {
                (Action::Remove, _) => {
                    self.count(guard, -1);
                    trigger = leaf.after_remove();
                }
                (_, None) => self.count(guard, 1),
                _ => {}
            }
        }
        if S::HAS_RECORDS && is_added {
            self.count_heap(guard, record::bytes_of(probe.bytes.len()) as i64);
        }
        // SAFETY: the slot holds another record since, and nothing that can be reached from now on
        // holds this one.
        unsafe { self.retire_record(replaced, guard) };
        if let Some(trigger) = trigger {
            self.retrain(place, trigger, guard);
        }
        Some(outcome)
    }

    #[inline(always)]
    fn write_locked<'a>(
        &self,
        mut locked: Locked<'a>,
        leaf: &'a BucketLeaf,
        (word, at): (u64, usize),
        probe: KeyProbe<'_>,
        action: Action,
        guard: &Guard,
    ) -> InBucket {
        match locked.find(word, is_same::<S>(probe)) {
            Some(spot) if spot.is_present => {
                let cell = cell::<S>(&locked, &spot);
                let old = cell.load(Ordering::Relaxed);
                match action {
                    Action::Set(new) | Action::Update(new) => {
                        cell.store(S::succeed(old, new), Ordering::Release);
                    }
                    Action::Exchange { current, new } if old == current => {
                        cell.store(S::succeed(old, new), Ordering::Release);
                    }
                    Action::Remove => {
                        locked.set_present(&spot, false);
                        drop(locked);
                        self.count(guard, -1);
                        let removed = leaf.removed.fetch_add(1, Ordering::Relaxed) + 1;
                        let trigger = Trigger::after_remove(leaf.built_of, removed);
                        return Ok((WriteOutcome::changed(Some(old)), trigger));
                    }
                    Action::SetIfAbsent(_) | Action::Exchange { .. } => {
                        return Ok((WriteOutcome::unchanged(Some(old)), None));
                    }
                }
                Ok((WriteOutcome::changed(Some(old)), None))
            }
            spot => {
                let (Action::Set(new) | Action::SetIfAbsent(new)) = action else {
                    return Ok((WriteOutcome::unchanged(None), None));
                };
                let Some(spot) = spot else {
                    let chain = self.add(&mut locked, leaf, (word, at), probe, new, guard)?;
                    drop(locked);
                    self.count(guard, 1);
                    if chain == 0 {
                        return Ok((WriteOutcome::changed(None), None));
                    }
                    return Ok((WriteOutcome::changed(None), after_add(leaf, (word, at), chain)));
                };
                let replaced = self.add_again(&mut locked, &spot, probe, new, guard);
                drop(locked);
                self.count(guard, 1);
                // SAFETY: the slot holds another record since, and no other leaf that can be
                // reached from now on holds this one.
                unsafe { self.retire_record(replaced, guard) };
                Ok((WriteOutcome::changed(None), None))
            }
        }
    }

    /// Adds a key to a bucket. Returns the number of overflow nodes that the bucket has now.
    ///
    /// A number and not the trigger that may follow from it: a result of two words stays in
    /// registers, and the next write does not wait for this one's stores.
    #[inline(always)]
    fn add<'a>(
        &self,
        locked: &mut Locked<'a>,
        leaf: &'a BucketLeaf,
        (word, at): (u64, usize),
        probe: KeyProbe<'_>,
        new: u64,
        guard: &Guard,
    ) -> Result<usize, Refused> {
        if leaf.is_open() && leaf.open_next(locked, at, word) {
            return Err(Refused::Moved);
        }
        if locked.is_vacant() {
            leaf.note_inhabited(at);
        }
        let value = slot_value::<S>(probe, new);
        match locked.add(word, value, || leaf.new_node(&self.arena)) {
            Ok(chain) => {
                if S::HAS_RECORDS {
                    self.count_heap(guard, record::bytes_of(probe.bytes.len()) as i64);
                }
                Ok(chain)
            }
            Err(NoRoom) => {
                if S::HAS_RECORDS {
                    // SAFETY: the record was made above and no other thread has seen it.
                    unsafe { record::free(value) };
                }
                Err(Refused::NoRoom)
            }
        }
    }

    /// Makes a removed key present again. A wide one gets a new record, and the old one is
    /// returned: a reader that has found the old record in a leaf that was replaced since, or in a
    /// scan, takes its content for the value that was removed. It must not see the new value before
    /// others do.
    fn add_again<'a>(
        &self,
        locked: &mut Locked<'a>,
        spot: &KeySlot<'a>,
        probe: KeyProbe<'_>,
        new: u64,
        guard: &Guard,
    ) -> Option<u64> {
        let slot = locked.value(spot);
        let record = S::HAS_RECORDS.then(|| slot.load(Ordering::Relaxed));
        let value = slot_value::<S>(probe, new);
        slot.store(value, Ordering::Release);
        locked.set_present(spot, true);
        if S::HAS_RECORDS {
            self.count_heap(guard, record::bytes_of(probe.bytes.len()) as i64);
        }
        record
    }

    /// Adds to the number of keys.
    #[inline]
    pub(crate) fn count(&self, guard: &Guard, keys: i64) {
        self.counters[guard.thread_index() % COUNTERS].keys.fetch_add(keys, Ordering::Relaxed);
    }

    /// Adds to the bytes outside of the arena.
    pub(crate) fn count_heap(&self, guard: &Guard, bytes: i64) {
        self.counters[guard.thread_index() % COUNTERS]
            .heap_bytes
            .fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn len(&self) -> usize {
        let keys: i64 = self.counters.iter().map(|c| c.keys.load(Ordering::Relaxed)).sum();
        usize::try_from(keys).unwrap_or(0)
    }

    /// Resident bytes; what may be freed is freed first.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.collect_garbage();
        let heap: i64 = self.counters.iter().map(|c| c.heap_bytes.load(Ordering::Relaxed)).sum();
        let scratch = self.scratch.lock().capacity() * size_of::<Entry>();
        self.arena.bytes() + usize::try_from(heap).unwrap_or(0) + scratch
    }

    /// Frees what no thread can hold any more.
    pub(crate) fn collect_garbage(&self) {
        self.tree.collect_garbage();
    }

    pub(crate) fn garbage_bytes(&self) -> usize {
        self.tree.garbage_bytes()
    }

    /// Frees a value that a write took out, once no reader can hold it.
    ///
    /// # Safety
    /// The word was a value's of this map, and this is the only time that it is retired.
    pub(crate) unsafe fn retire_value(&self, word: u64, bytes: usize, guard: &Guard) {
        self.count_heap(guard, -(bytes as i64));
        // SAFETY: the caller's promise.
        unsafe { self.tree.retire_value(word, bytes, guard) };
    }

    /// Frees the record that a key had before it came back, once no reader can hold it.
    ///
    /// # Safety
    /// The slot holds another record since, and no other leaf that can be reached from now on holds
    /// this one.
    unsafe fn retire_record(&self, record: Option<u64>, guard: &Guard) {
        if let Some(record) = record {
            // SAFETY: the caller's promise.
            let bytes = unsafe { self.tree.retire_record(record, guard) };
            self.count_heap(guard, -(bytes as i64));
        }
    }
}

/// The cell that holds the word of a spot's value.
#[inline(always)]
fn cell<'a, S: Schema>(locked: &Locked<'a>, spot: &KeySlot<'a>) -> &'a AtomicU64 {
    cell_of::<S>(locked.value(spot))
}
