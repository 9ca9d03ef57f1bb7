//! What a thread does for a table while its writer goes on: runs that are to be built anew are
//! read, cut and stored beside those that are in use, and memory is made before it is needed.
//!
//! The writer notes which keys of the run change meanwhile. At the end, for which it waits, the run
//! is put in the place of the old one, and these keys are set in it as they are then.
//!
//! 1. [`Table::begin_renewal`], by the writer's leave: which run.
//! 2. [`Renewal::read`]: its entries, as a reader reads them; and leaves are cut of them.
//! 3. [`Table::reserve_for`]: slots for the leaves, by the writer's leave.
//! 4. [`Renewal::store`]: the leaves, latched.
//! 5. [`Table::finish_renewal`], by the writer's leave; [`scrub`] zeroes the leaves that have
//!    ended, and [`Table::give_back`] frees their slots.

use std::collections::{BTreeSet, HashSet, VecDeque};

use super::{RunState, Table};
use crate::{
    error::Result,
    host::{
        Space,
        cut::{Cut, cut},
    },
    layout::{Geometry, format::NO_SLOT},
    leaf::{Entry, Leaf, LeafWriter, Needle, read},
    primitive::{AtomicU64, IS_MODEL, yield_now},
    route::Run,
};

/// Times that a leaf is looked at that changes meanwhile, before its run is left for later.
const LOOKS_MAX: u32 = 10_000;

/// Times in a row that this happens before runs are left as they are until they change again: a
/// group that is published in time takes far fewer, and one that never is must not keep the thread.
const BUSY_MAX: u32 = 64;

/// Leaves of neighbouring runs that are built anew together. Runs that were short because few keys
/// were there when they were built become one, which needs one descriptor.
const SPAN_LEAVES: u32 = if IS_MODEL { 1 } else { 128 };

/// A region below this grows when it is full: a segment of its size is made in a few milliseconds.
const MANY_BYTES: u64 = 8 << 20;

/// Free memory that a region has at least, beyond an eighth of it: what the fastest writer takes
/// while a segment of the largest size is made, which takes 60 ms where the system has no large
/// page at hand.
const AHEAD_BYTES: u64 = 32 << 20;

/// The most runs that they are divided into.
const RUNS_MAX: u32 = 512;

/// What is to be done for a table, and what changes while it is.
#[derive(Default)]
pub(super) struct Care {
    /// True if a thread stands by for it.
    pub(super) is_cared_for: bool,
    /// Runs that are to be built anew, each with one of its keys.
    wanted: VecDeque<(u32, Vec<u8>)>,
    /// The runs that are being built anew, and their keys that have changed since that began.
    current: Option<(Vec<u32>, BTreeSet<Vec<u8>>)>,
    /// How often in a row a leaf changed all the while that its run was to be read.
    busy: u32,
    /// True if changes of keys were lost, for want of memory.
    is_lost: bool,
}

impl Care {
    pub(super) fn want(&mut self, number: u32, key: &[u8]) {
        if !self.is_current(number) && !self.wanted.iter().any(|(wanted, _)| *wanted == number) {
            self.wanted.push_back((number, key.to_vec()));
        }
    }

    fn is_current(&self, number: u32) -> bool {
        self.current.as_ref().is_some_and(|(current, _)| current.contains(&number))
    }

    /// Notes that a key of a run changes.
    #[inline]
    pub(super) fn changed(&mut self, run: u32, key: &[u8]) {
        if let Some((current, keys)) = &mut self.current
            && current.contains(&run)
        {
            // planted: renewal-not-note-keys-change
            keys.insert(key.to_vec());
        }
    }

    /// Gives up what is being built.
    pub(super) fn forget(&mut self) {
        self.current = None;
    }

    /// Forgets everything of a table that is loaded again.
    pub(super) fn begin_again(&mut self) {
        *self = Self { is_cared_for: self.is_cared_for, ..Self::default() };
    }

    /// Gives up a run that is no more.
    pub(super) fn ended(&mut self, number: u32) {
        if self.is_current(number) {
            self.current = None;
        }
        self.wanted.retain(|(wanted, _)| *wanted != number);
    }
}

/// Neighbouring runs that are being built anew beside their writer.
pub(crate) struct Renewal {
    numbers: Vec<u32>,
    low: Vec<u8>,
    first_slot: u32,
    /// The first of [`RUNS_MAX`] numbers for what it becomes.
    next_run: u32,
    geometry: Geometry,
    high: Option<Vec<u8>>,
    cuts: Vec<Cut>,
    /// True if a leaf changed all the while that it was to be read.
    was_busy: bool,
}

impl Renewal {
    /// Reads the runs and cuts leaves of them. Returns false if they cannot be read.
    pub(crate) fn read(&mut self, leaves: &[AtomicU64]) -> bool {
        let (mut entries, mut slot, mut at) = (Vec::new(), self.first_slot, self.low.clone());
        loop {
            let Some(seen) = self.read_leaf(leaves, slot) else { return false };
            if !self.numbers.contains(&seen.run) {
                // The first leaf of another run.
                break;
            }
            entries.extend(seen.entries.into_iter().filter(|entry| entry.key >= at));
            self.high.clone_from(&seen.high);
            let Some(high) = seen.high else { break };
            (at, slot) = (high, seen.next);
            if slot == NO_SLOT {
                return false;
            }
        }
        let (mut taken, mut low) = (0, (!self.low.is_empty()).then(|| self.low.clone()));
        for number in 0..RUNS_MAX {
            let number = self.next_run.wrapping_add(number);
            let some = &entries[taken..];
            let cut = cut(some, low.as_deref(), self.high.as_deref(), self.geometry, number);
            taken += cut.taken;
            low.clone_from(&cut.high);
            self.cuts.push(cut);
            if taken == entries.len() {
                return true;
            }
        }
        false
    }

    fn read_leaf(&mut self, leaves: &[AtomicU64], slot: u32) -> Option<LeafCopy> {
        let len = self.geometry.leaf_words();
        let words = leaves.get(slot as usize * len..(slot as usize + 1) * len)?;
        for _ in 0..LOOKS_MAX {
            if let Some(seen) = read(words, || LeafCopy::of(Leaf::new(words, self.geometry))) {
                return Some(seen);
            }
            yield_now();
        }
        self.was_busy = true;
        None
    }

    /// Stores the leaves in the slots that were reserved, latched.
    pub(crate) fn store(&mut self, leaves: &[AtomicU64]) {
        let len = self.geometry.leaf_words();
        for cut in &mut self.cuts {
            let last = cut.run.base + cut.run.leaves - 1;
            for (slot, image) in (cut.run.base..).zip(&mut cut.leaves) {
                image.set_links(
                    if slot == last { NO_SLOT } else { slot + 1 },
                    if slot == cut.run.base { NO_SLOT } else { slot - 1 },
                );
                let words = &leaves[slot as usize * len..(slot as usize + 1) * len];
                LeafWriter::new(words, self.geometry).begin(image);
            }
        }
    }

    fn slots(&self) -> Vec<u32> {
        self.cuts.iter().flat_map(|cut| cut.run.base..cut.run.base + cut.run.leaves).collect()
    }
}

/// A leaf as it was at one moment.
struct LeafCopy {
    run: u32,
    next: u32,
    high: Option<Vec<u8>>,
    entries: Vec<Entry>,
}

impl LeafCopy {
    fn of(leaf: Leaf<'_, [AtomicU64]>) -> Self {
        let mut entries = Vec::new();
        super::entries_of(leaf, &mut entries);
        let high = super::fences_of(leaf).high;
        Self { run: leaf.head().run, next: leaf.next(), high, entries }
    }
}

/// Returns true if there is something to do for the thread that stands by.
#[inline]
pub(crate) fn wants<S: Space>(table: &Table<S>) -> bool {
    !table.care.wanted.is_empty() || table.wants_memory()
}

/// Zeroes leaves that have ended, so that what was in them cannot be read.
pub(crate) fn scrub(leaves: &[AtomicU64], geometry: Geometry, slots: &[u32]) {
    let len = geometry.leaf_words();
    for slot in slots {
        let words = &leaves[*slot as usize * len..(*slot as usize + 1) * len];
        let writer = LeafWriter::new(words, geometry);
        writer.latch();
        writer.retire();
        writer.unlatch();
    }
}

impl<S: Space> Table<S> {
    /// Says that a thread stands by that calls [`Table::begin_renewal`].
    pub(crate) fn set_cared_for(&mut self) {
        self.care.is_cared_for = true;
    }

    /// The next run that is to be built anew, if there is one.
    pub(crate) fn begin_renewal(&mut self) -> Option<Renewal> {
        loop {
            let (number, key) = self.care.wanted.pop_front()?;
            let run = self.directory.run(self.directory.find(&key));
            if run.number != number {
                continue;
            }
            let (at, count) = self.directory.span(self.directory.find(&key), SPAN_LEAVES);
            let runs = self.directory.runs(at, count);
            let numbers: Vec<u32> = runs.iter().map(|run| run.number).collect();
            let (low, first_slot) = (runs[0].low.clone(), runs[0].base);
            let next_run = self.next_run;
            self.next_run = self.next_run.wrapping_add(RUNS_MAX);
            self.care.wanted.retain(|(wanted, _)| !numbers.contains(wanted));
            self.care.current = Some((numbers.clone(), BTreeSet::new()));
            let geometry = self.geometry;
            let (high, cuts, was_busy) = (None, Vec::new(), false);
            return Some(Renewal {
                numbers,
                low,
                first_slot,
                next_run,
                geometry,
                high,
                cuts,
                was_busy,
            });
        }
    }

    /// Takes slots for the leaves of a renewal.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full); the renewal is given up then.
    pub(crate) fn reserve_for(&mut self, renewal: &mut Renewal) -> Result<()> {
        for taken in 0..renewal.cuts.len() {
            match self.take_slots(renewal.cuts[taken].run.leaves) {
                Ok(base) => renewal.cuts[taken].run.base = base,
                Err(error) => {
                    let taken = renewal.cuts[..taken].iter();
                    taken.for_each(|cut| self.slots.give(cut.run.base, cut.run.leaves));
                    self.care.forget();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Gives up a renewal that has no slots yet. If that is because a leaf was changing, its runs
    /// are still wanted: nothing else may ever split them again, and readers would go from sibling
    /// to sibling for good.
    pub(crate) fn give_up_renewal(&mut self, renewal: &Renewal) {
        self.care.forget();
        if renewal.was_busy && self.care.busy < BUSY_MAX {
            self.care.busy += 1;
            self.care.want(renewal.numbers[0], &renewal.low);
        }
    }

    /// Puts what was built in the place of the old runs, and returns the slots of the leaves that
    /// have ended, to be scrubbed and given back; if the old runs are no more, or if there is no
    /// room for what has changed meanwhile, these are the slots of the new ones. Readers see it at
    /// once or, if there are changes that are not published, with these.
    pub(crate) fn finish_renewal(&mut self, renewal: &Renewal, seq: u64) -> Vec<u32> {
        self.care.busy = 0;
        let is_alone = self.latched.is_empty();
        let ended = self.take_over(renewal, seq);
        self.end(&ended);
        if is_alone {
            self.publish_leaves();
        }
        ended
    }

    fn take_over(&mut self, renewal: &Renewal, seq: u64) -> Vec<u32> {
        let current = self.care.current.take();
        let Some((_, changed)) = current.filter(|(numbers, _)| *numbers == renewal.numbers) else {
            return renewal.slots();
        };
        let old = self.chain_of(renewal.first_slot, &renewal.numbers);
        let Some(last) = old.last().filter(|last| self.fences_of(**last).high == renewal.high)
        else {
            return renewal.slots();
        };
        let ends = (self.leaf(renewal.first_slot).previous(), self.leaf(*last).next());
        let entry = |key: Vec<u8>| {
            let entry = self.entry_of(&key);
            (key, entry)
        };
        let changes: Vec<(Vec<u8>, Option<Entry>)> = changed.into_iter().map(entry).collect();
        let (at, count) = (self.directory.find(&renewal.low), renewal.numbers.len());
        let old_runs = self.directory.runs(at, count).to_vec();
        let new_runs: Vec<Run> = renewal.cuts.iter().map(|cut| cut.run.clone()).collect();
        if self.directory.replace(at, count, new_runs.clone()).is_err() {
            return renewal.slots();
        }
        self.latched.extend(renewal.slots());
        self.join(&new_runs, ends);
        for cut in &renewal.cuts {
            let entries = cut.taken as u32;
            self.runs.insert(cut.run.number, RunState { entries, ..RunState::default() });
        }
        // planted: changed-beside-renewal-not-made
        if self.change_again(&changes, seq).is_ok() {
            self.forget_runs(&renewal.numbers);
            return old;
        }
        // There is no room: all stays as it was.
        let numbers: Vec<u32> = new_runs.iter().map(|run| run.number).collect();
        let new = self.chain_of(new_runs[0].base, &numbers);
        let at = self.directory.find(&renewal.low);
        if self.directory.replace(at, new_runs.len(), old_runs).is_err() {
            // Not even for the directory. What has changed is lost to readers, who are told so.
            self.care.is_lost = true;
            return old;
        }
        self.link(ends.0, Some(renewal.first_slot), None);
        self.link(ends.1, None, old.last().copied());
        self.forget_runs(&numbers);
        new
    }

    fn forget_runs(&mut self, numbers: &[u32]) {
        for number in numbers {
            self.runs.remove(number);
        }
    }

    /// Links runs with each other and with the leaves before and after them.
    fn join(&mut self, runs: &[Run], (mut previous, next): (u32, u32)) {
        for run in runs {
            self.link(previous, Some(run.base), None);
            self.link(run.base, None, Some(previous));
            previous = run.base + run.leaves - 1;
        }
        self.link(previous, Some(next), None);
        self.link(next, None, Some(previous));
    }

    /// Makes changes again that were made in leaves that end.
    fn change_again(&mut self, changes: &[(Vec<u8>, Option<Entry>)], seq: u64) -> Result<()> {
        // They were counted when they were made, and are not again.
        let entries = self.entries;
        self.entries += changes.len() as u64;
        let mut result = Ok(());
        for (key, entry) in changes {
            result = match entry {
                Some(entry) => self.put(entry.by_ref(), seq).map(drop),
                None => {
                    self.remove_short(key, seq);
                    Ok(())
                }
            };
            if result.is_err() {
                break;
            }
        }
        self.entries = entries;
        result
    }

    /// Has leaves answer for nothing. They are scrubbed later, by [`scrub`].
    fn end(&mut self, slots: &[u32]) {
        for slot in slots {
            let writer = self.writer(*slot);
            writer.latch();
            writer.end();
            writer.unlatch();
        }
        let ended: HashSet<u32> = slots.iter().copied().collect();
        self.latched.retain(|slot| !ended.contains(slot));
    }

    /// Takes back slots of leaves that were scrubbed.
    pub(crate) fn give_back(&mut self, slots: &[u32]) {
        let mut sorted = slots.to_vec();
        sorted.sort_unstable();
        let ranges = sorted.chunk_by(|a, b| a + 1 == *b);
        ranges.for_each(|range| self.slots.give(range[0], range.len() as u32));
    }

    /// Returns true if there will soon be no free slot.
    pub(crate) fn wants_memory(&self) -> bool {
        let bytes = |slots: u64| slots * self.geometry.leaf_bytes() as u64;
        let all = bytes(u64::from(self.given));
        self.care.is_cared_for
            && all >= MANY_BYTES
            && bytes(self.slots.free_count()) < (all / 8).min(AHEAD_BYTES)
    }

    /// Returns true if changes were lost to readers: the table is to be loaded again.
    pub(crate) fn is_lost(&self) -> bool {
        self.care.is_lost
    }

    /// The slots of neighbouring runs, in the order of their keys.
    fn chain_of(&self, first: u32, numbers: &[u32]) -> Vec<u32> {
        let (mut slots, mut slot) = (Vec::new(), first);
        while slot != NO_SLOT && numbers.contains(&self.leaf(slot).head().run) {
            slots.push(slot);
            slot = self.leaf(slot).next();
        }
        slots
    }

    /// The entry of a key.
    fn entry_of(&self, key: &[u8]) -> Option<Entry> {
        let leaf = self.leaf(self.locate(key).slot);
        let (_, record) = leaf.find(&leaf.head(), &Needle::new(key))?;
        let mut value = Vec::new();
        record.value.append_to(&mut value);
        let (kind, value_len) = (record.kind, record.value_len);
        Some(Entry { key: key.to_vec(), kind, value_len, value })
    }
}
