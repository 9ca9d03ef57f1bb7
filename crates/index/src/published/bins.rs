//! Leaves of bins: a trained array, and *level bins* in the gaps between its records for keys that
//! come later (FineStore, section 3).
//!
//! A gap is empty or has one bin of seven slots. When that is full, it has one of fifteen; then a
//! root over up to seven bins of fifteen slots; when those are full, a small trained array of their
//! keys with gaps of its own. When a gap of a small array would need a smaller one, the leaf is to
//! be replaced.
//!
//! Thread safety: readers take no lock and never retry. Every change of what is in a gap, other
//! than writing a bin, is made in the same way: the bin is frozen, its successors are made of its
//! content, and one CAS on the gap's link publishes them. A thread that finds a frozen bin does so
//! itself. Invariants:
//!
//! 1. Trained records and gaps keep their keys for the life of the leaf: a key has a record or one
//!    gap.
//! 2. What a link leads to is unchangeable except for the bins' slots. A link is replaced only
//!    after the bins that its successor leaves out are frozen, and never once its frozen bit is
//!    set.
//! 3. What was linked once lives as long as the leaf, and so do the records of wide keys that were
//!    removed.
#![allow(unsafe_code, reason = "follows links")]

use std::ptr::{self, NonNull};

use rhumb_model::{Segment as Model, lpa};
use rhumb_sync::{
    arena::Arena,
    prefetch::prefetch_address,
    primitive::{AtomicPtr, AtomicU64, Mutex, Ordering, in_models},
};

use super::{
    head::LeafHead,
    segment::{SlotSegment, is_below},
    trained::{Anything, TrainedArray},
};
use crate::{
    entry::{Entry, KeyRun},
    op::{Action, Blocked, KeyChange, LeafWritten, Trigger},
    raw::{
        bucket::{BUCKET_SLOTS, NODE_SLOTS, SlotLookup},
        pool::{PiecePool, Zeroed},
        schema::{KeyProbe, Schema, is_same, reader, slot_value},
    },
};

/// The most bins under a root: seven, as FineStore's bins have 8 to 16 slots (section 3.2), and
/// three words for each with the length fit into 256 bytes.
const CHILDREN: usize = in_models(7, 2);
/// A full bin with at least this many removed keys is made anew rather than split. Chosen, not
/// measured: a third of a bin of fifteen, so that the new one takes five keys before it is full
/// again. A bin of seven is made anew if at most three of its keys are left.
const DEAD_MIN: usize = in_models(5, 2);
/// The records and gaps of one place. Chosen, not measured: the keys and values of 32 records are
/// eight cache lines, as many as two buckets have.
const PLACE: usize = in_models(32, 2);
/// A leaf is replaced when it has this many keys. FineStore has no such limit; by its rule alone a
/// leaf grows a hundredfold (docs/papers.md). Chosen, not measured: four times the most keys of a
/// trained array, and at some tens of nanoseconds for each key a replacement takes a few hundred
/// microseconds.
const KEYS_MAX: u32 = in_models(8192, 24) as u32;
/// The writer itself replaces a leaf, whatever other threads are doing, when it has this many keys.
/// Chosen, not measured: a trainer has the time of 16384 inserts.
const KEYS_LIMIT: u32 = 3 * KEYS_MAX;

/// The kind of a link, in the lowest bits of its address: to a bin of seven slots, or to nothing.
const FIRST: usize = 0;
/// A link to a root.
const ROOT: usize = 1;
/// A link to a small trained array.
const SMALL: usize = 2;
/// A link to a bin of fifteen slots.
const SECOND: usize = 3;
/// The bits of a link that tell its kind.
const KINDS: usize = 3;
/// Set in a link that must not be replaced any more.
const FROZEN: usize = 4;

type FirstBin = SlotSegment<NODE_SLOTS>;
type ChildBin = SlotSegment<BUCKET_SLOTS>;

/// Bins by their lowest keys; written once, before it is linked.
#[repr(C, align(256))]
struct BinRoot {
    len: AtomicU64,
    /// Lowest words; the first counts as 0.
    lowest: [AtomicU64; CHILDREN],
    /// The records of these keys, if they are wide.
    records: [AtomicU64; CHILDREN],
    children: [AtomicPtr<ChildBin>; CHILDREN],
}

// SAFETY: made of atomics, for which zeroes are values; 256 bytes, aligned to that.
unsafe impl Zeroed for BinRoot {
    fn zero() -> Self {
        let zeroes = || std::array::from_fn(|_| AtomicU64::zero());
        let children = std::array::from_fn(|_| AtomicPtr::zero());
        Self { len: AtomicU64::zero(), lowest: zeroes(), records: zeroes(), children }
    }
}

/// The content of a gap.
enum Gap<'a> {
    Empty,
    First(&'a FirstBin),
    Second(&'a ChildBin),
    Root(&'a BinRoot),
    Small(&'a TrainedArray),
}

impl Gap<'_> {
    /// The content of the gap whose link is `link`.
    #[inline(always)]
    fn behind(link: *mut Anything) -> Self {
        let address = link.map_addr(|address| address & !(KINDS | FROZEN));
        // SAFETY: links lead to nothing or to what their lowest bits say, which lives as the leaf
        // does; the leaf outlives what is borrowed from its links.
        unsafe {
            match link.addr() & KINDS {
                _ if address.is_null() => Gap::Empty,
                FIRST => Gap::First(&*address.cast()),
                SECOND => Gap::Second(&*address.cast()),
                ROOT => Gap::Root(&*address.cast()),
                _ => Gap::Small(TrainedArray::at(address)),
            }
        }
    }
}

fn link_to<T>(kind: usize, to: *const T) -> *mut Anything {
    to.cast_mut().cast::<Anything>().map_addr(|address| address | kind)
}

impl BinRoot {
    fn len(&self) -> usize {
        (self.len.load(Ordering::Relaxed) as usize).min(CHILDREN)
    }

    fn child(&self, at: usize) -> &ChildBin {
        // SAFETY: the root was linked with more than `at` children, which live as the leaf does.
        unsafe { &*self.children[at].load(Ordering::Relaxed) }
    }

    /// The bin that a key belongs to.
    fn find<S: Schema>(&self, word: u64, probe: KeyProbe<'_>) -> usize {
        let is_up_to = |at: &usize| {
            let [lowest, record] =
                [&self.lowest[*at], &self.records[*at]].map(|cell| cell.load(Ordering::Relaxed));
            is_below::<S>(lowest, record, word, probe)
                || lowest == word && is_same::<S>(probe)(record)
        };
        (1..self.len()).take_while(is_up_to).count()
    }

    /// Appends a bin of these entries; there is at least one.
    fn push(&self, child: &ChildBin, lowest: Entry) {
        let at = self.len();
        self.lowest[at].store(lowest.word, Ordering::Relaxed);
        self.records[at].store(lowest.value, Ordering::Relaxed);
        self.children[at].store(ptr::from_ref(child).cast_mut(), Ordering::Relaxed);
        self.len.store(at as u64 + 1, Ordering::Relaxed);
    }

    fn lowest(&self, at: usize) -> Entry {
        let [word, value] =
            [&self.lowest[at], &self.records[at]].map(|cell| cell.load(Ordering::Relaxed));
        Entry { word, value }
    }
}

/// Memory that a leaf takes for its bins.
struct Pools {
    firsts: PiecePool<FirstBin>,
    roots: PiecePool<BinRoot>,
    children: PiecePool<ChildBin>,
    /// Records of removed keys that were in bins which have been replaced.
    dead: Mutex<Vec<u64>>,
}

/// A leaf of bins.
pub(crate) struct BinLeaf {
    trained: TrainedArray,
    pools: Box<Pools>,
    pub(crate) head: LeafHead,
}

// SAFETY: the leaf owns its blocks of memory; all that changes is atomic or behind a lock.
unsafe impl Send for BinLeaf {}
// SAFETY: as above.
unsafe impl Sync for BinLeaf {}

/// The place of a writer: a gap, and the kind of array that it is in.
#[derive(Clone, Copy)]
struct GapSpot<'a> {
    link: &'a AtomicPtr<Anything>,
    seen: *mut Anything,
    is_small: bool,
}

impl BinLeaf {
    /// A leaf whose trained array is a run of entries.
    pub(crate) fn build(arena: &Arena, model: Model, run: &KeyRun<'_>) -> Self {
        let pools = Pools {
            firsts: PiecePool::new(),
            roots: PiecePool::new(),
            children: PiecePool::new(),
            dead: Mutex::new(Vec::new()),
        };
        Self {
            trained: TrainedArray::new(arena, model, run.words, run.entries),
            pools: Box::new(pools),
            head: LeafHead::new(run.prefix, run.entries.len()),
        }
    }

    /// Gives the leaf's memory back, but not the records that its slots point to.
    ///
    /// # Safety
    /// The leaf was made with this arena, and no thread uses it again.
    pub(crate) unsafe fn free(self, arena: &Arena) {
        // SAFETY: small arrays are linked in one place each and came from this arena, as did the
        // rest; the caller gives all of it up.
        unsafe {
            self.for_each_small(|small| small.free(arena));
            self.trained.free(arena);
            self.pools.firsts.free(arena);
            self.pools.roots.free(arena);
            self.pools.children.free(arena);
        }
    }

    fn for_each_small(&self, mut visit: impl FnMut(TrainedArray)) {
        for link in self.trained.links() {
            if let Gap::Small(small) = Gap::behind(link.load(Ordering::Acquire)) {
                visit(*small);
            }
        }
    }

    /// The block of its trained array, and how long it is.
    pub(crate) fn block(&self) -> (NonNull<u8>, usize) {
        self.trained.block()
    }

    /// The number of places.
    pub(crate) fn len(&self) -> usize {
        self.trained.len() / PLACE + 1
    }

    /// Slots for keys: trained records and those of bins.
    pub(crate) fn slots(&self) -> usize {
        self.trained.len()
            + self.pools.firsts.len() * NODE_SLOTS
            + self.pools.children.len() * BUCKET_SLOTS
    }

    /// The number of bins that were made.
    pub(crate) fn bins(&self) -> usize {
        self.pools.firsts.len() + self.pools.children.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        let Pools { firsts, roots, children, .. } = &*self.pools;
        let mut small = 0;
        self.for_each_small(|array| small += array.bytes());
        let pools = firsts.bytes() + roots.bytes() + children.bytes();
        self.trained.bytes() + small + pools + self.heap_bytes()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.head.heap_bytes() + size_of::<Pools>()
    }

    /// The word of a key's value. Never waits.
    #[inline]
    pub(crate) fn get<S: Schema>(&self, probe: KeyProbe<'_>) -> Option<u64> {
        let word = self.head.word::<S>(probe);
        let read = reader::<S>(probe);
        let mut array = &self.trained;
        loop {
            let gap = match array.find::<S>(word, probe) {
                Ok(record) => return array.get::<S>(record, probe),
                Err(gap) => gap,
            };
            let found = match Gap::behind(array.links()[gap].load(Ordering::Acquire)) {
                Gap::Empty => return None,
                Gap::First(bin) => bin.get_here(word, &read),
                Gap::Second(bin) => bin.get_here(word, &read),
                Gap::Root(root) => root.child(root.find::<S>(word, probe)).get_here(word, &read),
                Gap::Small(small) => {
                    array = small;
                    continue;
                }
            };
            return match found {
                SlotLookup::Found(value) => Some(value),
                SlotLookup::Absent | SlotLookup::Elsewhere => None,
            };
        }
    }

    /// Writes one key.
    pub(crate) fn write<S: Schema>(
        &self,
        arena: &Arena,
        probe: KeyProbe<'_>,
        action: Action,
    ) -> Result<LeafWritten, Blocked> {
        let word = self.head.word::<S>(probe);
        let (mut array, mut is_small) = (&self.trained, false);
        loop {
            let gap = match array.find::<S>(word, probe) {
                Ok(record) => {
                    return Ok(array.rewrite::<S>(record, action, |record| self.keep(record))?);
                }
                Err(gap) => gap,
            };
            let link = &array.links()[gap];
            loop {
                let seen = link.load(Ordering::Acquire);
                let spot = GapSpot { link, seen, is_small };
                let written = match Gap::behind(seen) {
                    Gap::Small(small) => {
                        (array, is_small) = (small, true);
                        break;
                    }
                    Gap::Empty if !action.inserts() => return Ok(LeafWritten::unchanged(None)),
                    Gap::Empty => {
                        let bin = self.pools.firsts.take(arena);
                        self.relink(spot, link_to(FIRST, bin), Vec::new())?;
                        None
                    }
                    Gap::First(bin) => match self.write_bin::<S, _>(bin, word, probe, action) {
                        None => {
                            self.grow_first::<S>(arena, spot, bin)?;
                            None
                        }
                        written => written,
                    },
                    Gap::Second(bin) => match self.write_bin::<S, _>(bin, word, probe, action) {
                        None => {
                            self.split_second::<S>(arena, spot, bin)?;
                            None
                        }
                        written => written,
                    },
                    Gap::Root(root) => {
                        let at = root.find::<S>(word, probe);
                        match self.write_bin::<S, _>(root.child(at), word, probe, action) {
                            None => {
                                self.split_child::<S>(arena, spot, root, at)?;
                                None
                            }
                            written => written,
                        }
                    }
                };
                if let Some(written) = written {
                    return Ok(written);
                }
            }
        }
    }

    /// Writes a key in its bin. Returns none if the bin is full or frozen; it is then frozen.
    fn write_bin<S: Schema, const N: usize>(
        &self,
        bin: &SlotSegment<N>,
        word: u64,
        probe: KeyProbe<'_>,
        action: Action,
    ) -> Option<LeafWritten> {
        let mut locked = bin.lock().ok()?;
        if let Some(written) = locked.rewrite::<S>(word, probe, action) {
            // Before the lock is released, so that the thread that freezes the bin finds what was
            // kept.
            return Some(written.keeping(|record| self.keep(record)));
        }
        let KeyChange::Store(new) = action.change(None) else {
            return Some(LeafWritten::unchanged(None));
        };
        if !locked.add::<S>(word, probe, || slot_value::<S>(probe, new)) {
            drop(locked);
            bin.freeze();
            return None;
        }
        Some(LeafWritten::added(self.count_used()))
    }

    /// Keeps a record that no slot holds any more: a root may know its bins by it. It is counted
    /// like a used slot, so that a key that comes and goes has the leaf replaced in the end.
    fn keep(&self, record: u64) -> Option<Trigger> {
        self.pools.dead.lock().push(record);
        self.count_used()
    }

    fn count_used(&self) -> Option<Trigger> {
        match self.head.used.fetch_add(1, Ordering::Relaxed) + 1 {
            KEYS_LIMIT.. => Some(Trigger::NoRoom),
            KEYS_MAX.. => Some(Trigger::Full),
            _ => None,
        }
    }

    /// Puts something else in a gap, unless another thread was faster. `dead` are the slots that it
    /// leaves out.
    fn relink(
        &self,
        spot: GapSpot<'_>,
        to: *mut Anything,
        dead: Vec<u64>,
    ) -> Result<bool, Blocked> {
        if spot.seen.addr() & FROZEN != 0 {
            return Err(Blocked::Frozen);
        }
        // A thread that looks at the list after the link was frozen finds all of them there.
        let mut list = self.pools.dead.lock();
        let (ok, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        let is_done = spot.link.compare_exchange(spot.seen, to, ok, failed).is_ok();
        if is_done {
            list.extend(dead);
        }
        Ok(is_done)
    }

    /// Replaces the first bin of a gap, which is frozen, by a larger one, or by a fresh one if it
    /// holds many removed keys.
    #[cold]
    fn grow_first<S: Schema>(
        &self,
        arena: &Arena,
        spot: GapSpot<'_>,
        bin: &FirstBin,
    ) -> Result<(), Blocked> {
        let (entries, dead) = content::<S, _>(bin);
        let to = if entries.len() + DEAD_MIN <= NODE_SLOTS + 1 {
            let fresh = self.pools.firsts.take(arena);
            fill(fresh, &entries);
            link_to(FIRST, fresh)
        } else {
            self.second(arena, &entries)
        };
        self.relink(spot, to, dead)?;
        Ok(())
    }

    /// Replaces the only bin of a gap, which is frozen, by two under a root, or by a fresh one if
    /// it holds many removed keys.
    #[cold]
    fn split_second<S: Schema>(
        &self,
        arena: &Arena,
        spot: GapSpot<'_>,
        bin: &ChildBin,
    ) -> Result<(), Blocked> {
        let (entries, dead) = content::<S, _>(bin);
        let to = if entries.len() + DEAD_MIN <= BUCKET_SLOTS {
            self.second(arena, &entries)
        } else {
            let root = self.pools.roots.take(arena);
            let (low, high) = entries.split_at(entries.len() / 2);
            self.push_child(arena, root, low, low[0]);
            self.push_child(arena, root, high, high[0]);
            link_to(ROOT, root)
        };
        self.relink(spot, to, dead)?;
        Ok(())
    }

    fn second(&self, arena: &Arena, entries: &[Entry]) -> *mut Anything {
        let fresh = self.pools.children.take(arena);
        fill(fresh, entries);
        link_to(SECOND, fresh)
    }

    fn push_child(&self, arena: &Arena, root: &BinRoot, entries: &[Entry], lowest: Entry) {
        let child = self.pools.children.take(arena);
        fill(child, entries);
        root.push(child, lowest);
    }

    /// Replaces a bin under a root, which is frozen, by two, or by a fresh one if it holds many
    /// removed keys; or all bins under the root by a small trained array.
    #[cold]
    fn split_child<S: Schema>(
        &self,
        arena: &Arena,
        spot: GapSpot<'_>,
        root: &BinRoot,
        at: usize,
    ) -> Result<(), Blocked> {
        let (entries, dead) = content::<S, _>(root.child(at));
        let is_sparse = entries.len() + DEAD_MIN <= BUCKET_SLOTS;
        if !is_sparse && root.len() == CHILDREN {
            return self.retrain_gap::<S>(arena, spot, root);
        }
        let fresh = self.pools.roots.take(arena);
        for other in 0..root.len() {
            let lowest = root.lowest(other);
            if other != at {
                fresh.push(root.child(other), lowest);
            } else if is_sparse {
                self.push_child(arena, fresh, &entries, lowest);
            } else {
                let (low, high) = entries.split_at(entries.len() / 2);
                self.push_child(arena, fresh, low, lowest);
                self.push_child(arena, fresh, high, high[0]);
            }
        }
        self.relink(spot, link_to(ROOT, fresh), dead)?;
        Ok(())
    }

    /// Replaces a root by a small trained array of all its bins' keys.
    fn retrain_gap<S: Schema>(
        &self,
        arena: &Arena,
        spot: GapSpot<'_>,
        root: &BinRoot,
    ) -> Result<(), Blocked> {
        if spot.is_small {
            return Err(Blocked::NoRoom);
        }
        let (mut entries, mut dead) = (Vec::new(), Vec::new());
        for at in 0..root.len() {
            root.child(at).freeze();
            let (more, gone) = content::<S, _>(root.child(at));
            entries.extend(more);
            dead.extend(gone);
        }
        let words: Vec<u64> = entries.iter().map(|entry| entry.word).collect();
        let small = TrainedArray::new(arena, lpa::train(&words), &words, &entries);
        match self.relink(spot, link_to(SMALL, small.address()), dead) {
            Ok(true) => Ok(()),
            lost => {
                // SAFETY: the array was made just now and was not linked.
                unsafe { small.free(arena) };
                lost.map(|_| ())
            }
        }
    }

    /// The place that a key belongs to: that of its record, or of the record after its gap.
    pub(crate) fn place<S: Schema>(&self, probe: KeyProbe<'_>) -> usize {
        let (Ok(at) | Err(at)) = self.trained.find::<S>(self.head.word::<S>(probe), probe);
        at / PLACE
    }

    pub(crate) fn prefetch_place(&self, place: usize) {
        for at in [place * PLACE, place * PLACE + 8, place * PLACE + 16, place * PLACE + 24] {
            self.trained.lines(at).into_iter().flatten().for_each(prefetch_address);
        }
    }

    /// Appends the present entries of a place in ascending order.
    pub(crate) fn append_sorted<S: Schema>(&self, place: usize, entries: &mut Vec<Entry>) {
        let end = (place + 1) * PLACE;
        append_range(&self.trained, place * PLACE..end.min(self.trained.len() + 1), entries);
    }

    /// Calls `visit` with the slot of each removed key.
    pub(crate) fn for_each_dead(&self, visit: &mut impl FnMut(u64)) {
        for_each_dead_of(&self.trained, visit);
        self.pools.dead.lock().iter().for_each(|slot| visit(*slot));
    }

    /// Makes the leaf unchangeable. Any number of threads may do so at once.
    pub(crate) fn freeze(&self) {
        freeze(&self.trained);
    }
}

/// Puts entries into an empty bin that no other thread can reach.
fn fill<const N: usize>(bin: &SlotSegment<N>, entries: &[Entry]) {
    let mut bin = bin.unshared();
    entries.iter().for_each(|entry| bin.push(entry.word, entry.value));
}

/// The present entries of a frozen bin, and the slots of its removed keys if those hold records.
fn content<S: Schema, const N: usize>(bin: &SlotSegment<N>) -> (Vec<Entry>, Vec<u64>) {
    let (mut entries, mut dead) = (Vec::with_capacity(N), Vec::new());
    bin.append_to(&mut entries);
    if S::HAS_RECORDS {
        bin.for_each_dead_here(&mut |slot| dead.push(slot));
    }
    (entries, dead)
}

/// Appends the present entries of gaps and of the records after them.
fn append_range(array: &TrainedArray, range: std::ops::Range<usize>, entries: &mut Vec<Entry>) {
    for at in range {
        match Gap::behind(array.links()[at].load(Ordering::Acquire)) {
            Gap::Empty => {}
            Gap::First(bin) => bin.append_to(entries),
            Gap::Second(bin) => bin.append_to(entries),
            Gap::Root(root) => (0..root.len()).for_each(|at| root.child(at).append_to(entries)),
            Gap::Small(small) => append_range(small, 0..small.len() + 1, entries),
        }
        if at < array.len() {
            entries.extend(array.entry(at));
        }
    }
}

fn for_each_dead_of(array: &TrainedArray, visit: &mut impl FnMut(u64)) {
    array.for_each_dead(visit);
    for link in array.links() {
        match Gap::behind(link.load(Ordering::Acquire)) {
            Gap::Empty => {}
            Gap::First(bin) => bin.for_each_dead_here(visit),
            Gap::Second(bin) => bin.for_each_dead_here(visit),
            Gap::Root(root) => {
                (0..root.len()).for_each(|at| root.child(at).for_each_dead_here(visit));
            }
            Gap::Small(small) => for_each_dead_of(small, visit),
        }
    }
}

/// Makes a trained array and everything that its links lead to unchangeable.
fn freeze(array: &TrainedArray) {
    array.freeze();
    for link in array.links() {
        let mut seen = link.load(Ordering::Acquire);
        while seen.addr() & FROZEN == 0 {
            let frozen = seen.map_addr(|address| address | FROZEN);
            match link.compare_exchange(seen, frozen, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(changed) => seen = changed,
            }
        }
        match Gap::behind(seen) {
            Gap::Empty => {}
            Gap::First(bin) => bin.freeze(),
            Gap::Second(bin) => bin.freeze(),
            Gap::Root(root) => (0..root.len()).for_each(|at| root.child(at).freeze()),
            Gap::Small(small) => freeze(small),
        }
    }
}
