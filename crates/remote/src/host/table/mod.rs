//! A keyspace in a region, and the changes to it.
//!
//! Changes are made in groups. Every leaf that a group changes stays latched until
//! [`Table::publish`], so that readers see all of a group or nothing. An entry that finds no room
//! splits its leaf into a sibling elsewhere, which the leaf links to; when an eighth of a run's
//! leaves have siblings, or much of it was removed, the run is built anew.

mod care;
mod rebuild;
mod split;

use std::collections::HashMap;

use self::care::Care;
#[cfg(all(
    test,
    target_os = "linux",
    target_pointer_width = "64",
    not(any(loom, shuttle, miri))
))]
pub(crate) use self::care::Renewal;
pub(crate) use self::care::{scrub, wants};
use super::{
    Space,
    cut::{Cut, cut},
    directory::Directory,
    extents::Extents,
};
use crate::{
    error::Result,
    layout::{
        Geometry, control,
        format::{FIRST, KIND_INLINE, KIND_LONG_KEYS, LAST, NO_SLOT},
    },
    leaf::{Entry, EntryRef, Fences, Leaf, LeafWriter, Needle, Side},
    prefetch::prefetch,
    primitive::{AtomicU64, IS_MODEL},
    route::{Run, directory::Located},
};

/// One in this many leaves of a run may have a sibling: what its line does not find at once.
const SIBLING_SHARE: u32 = if IS_MODEL { 1 } else { 8 };
/// A chain of siblings is at most this long: what a reader follows before it asks the host.
const CHAIN_MAX: u32 = 4;
/// The smallest run that is built anew because entries were removed: several leaves of them.
const REMOVED_MIN: u32 = 128;

/// Words of what processors fetch at once: 64 bytes on those that there are most of.
const LINE_WORDS: usize = 8;
/// Lines of a new record that are asked for ahead: two hold 16 bytes of key and 100 of value. The
/// processor asks for the lines that follow by itself.
const RECORD_LINES: usize = 2;

/// What happened to a run since it was built.
#[derive(Clone, Copy, Default)]
struct RunState {
    /// Entries when it was built.
    entries: u32,
    siblings: u32,
    removed: u32,
}

/// An ordered map in shared memory, of which this is the only writer.
pub(crate) struct Table<S> {
    geometry: Geometry,
    leaves: S,
    slots: Extents,
    /// Slots that `slots` was given: more may have been added since.
    given: u32,
    directory: Directory<S>,
    runs: HashMap<u32, RunState>,
    next_run: u32,
    latched: Vec<u32>,
    entries: u64,
    care: Care,
}

/// The leaf of a key.
struct At {
    /// The leaf that the run's line says: the first of its chain.
    located: Located,
    slot: u32,
}

impl<S: Space> Table<S> {
    /// Builds a table of sorted entries, no two of the same key, in two empty spaces. Linear.
    ///
    /// # Errors
    ///
    /// [`Error::Full`].
    pub(crate) fn build(
        geometry: Geometry,
        leaves: S,
        control: S,
        entries: impl IntoIterator<Item = Entry>,
    ) -> Result<Self> {
        let directory = Directory::new(control)?;
        control::write_header(directory.space().words(), geometry);
        let mut table = Self {
            geometry,
            leaves,
            slots: Extents::default(),
            given: 0,
            directory,
            runs: HashMap::new(),
            next_run: 0,
            latched: Vec::new(),
            entries: 0,
            care: Care::default(),
        };
        table.fill(entries.into_iter().map(Ok))?;
        Ok(table)
    }

    /// Removes all entries and puts others in their place, which are sorted, no two of the same
    /// key; readers of the table before find nothing that answers. Linear.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], and the first error among the entries. The table is to be loaded again
    /// then: nothing in it answers for anything.
    pub(crate) fn load(&mut self, entries: impl Iterator<Item = Result<Entry>>) -> Result<()> {
        self.absorb();
        self.care.begin_again();
        self.latched.clear();
        for (first, count) in self.slots.taken(self.given) {
            for slot in first..first + count {
                self.retire(slot);
            }
            self.slots.give(first, count);
        }
        self.runs.clear();
        self.entries = 0;
        self.directory.clear();
        self.fill(entries)
    }

    /// Builds what an empty table holds.
    fn fill(&mut self, mut entries: impl Iterator<Item = Result<Entry>>) -> Result<()> {
        // More than one run can take, so that what ends a run is not the end of what was looked at.
        let ahead = 256 * self.geometry.room();
        let (mut waiting, mut low, mut previous) = (Vec::<Entry>::new(), None::<Vec<u8>>, NO_SLOT);
        // Entries of `waiting` that leaves have. They go once they are as many as wait, so that no
        // entry is moved more than once.
        let mut taken = 0;
        loop {
            if taken >= ahead {
                drop(waiting.drain(..taken));
                taken = 0;
            }
            while waiting.len() - taken < ahead
                && let Some(entry) = entries.next()
            {
                let entry = entry?;
                // Several long keys have one record.
                if waiting.last().is_none_or(|last| last.key != entry.key) {
                    waiting.push(entry);
                }
            }
            let cut = self.cut(&waiting[taken..], low.as_deref(), None);
            taken += cut.taken;
            low.clone_from(&cut.high);
            let (run, last) = self.put_run(cut, previous, NO_SLOT, 0)?;
            if previous != NO_SLOT {
                self.link(previous, Some(run.base), None);
            }
            previous = last;
            self.publish_leaves();
            self.directory.append(run)?;
            if waiting.len() == taken {
                break;
            }
        }
        self.directory.publish()
    }

    /// The sizes of its leaves.
    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The space of the leaves.
    pub(crate) fn leaf_space(&self) -> &S {
        &self.leaves
    }

    /// The space of the header and the directory.
    pub(crate) fn control_space(&self) -> &S {
        self.directory.space()
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> u64 {
        self.entries
    }

    /// Number of runs.
    pub(crate) fn run_count(&self) -> usize {
        self.directory.run_count()
    }

    /// Number of leaves.
    pub(crate) fn leaf_count(&self) -> u64 {
        u64::from(self.given) - self.slots.free_count()
    }

    /// Sets the value of a key; readers see it after [`Table::publish`].
    ///
    /// # Errors
    ///
    /// [`Error::Full`]; nothing has changed then.
    pub(crate) fn set(&mut self, key: &[u8], value: &[u8], seq: u64) -> Result<()> {
        let is_new = self.put(EntryRef::new(self.geometry, key, value), seq)?;
        self.entries += u64::from(is_new);
        Ok(())
    }

    /// [`Table::set`] without the count; returns true if the key was not there.
    fn put(&mut self, entry: EntryRef<'_>, seq: u64) -> Result<bool> {
        let at = self.locate(entry.key);
        let head = self.leaf(at.slot).head();
        self.care.changed(head.run, entry.key);
        let leaf = self.leaf(at.slot);
        let found = leaf.find(&head, &Needle::new(entry.key)).map(|(index, _)| index);
        let index = found.unwrap_or_else(|| leaf.lower_bound(&head, entry.key));
        // planted: leaf-latched-after-written
        self.latch(at.slot);
        let writer = self.writer(at.slot);
        let has_room =
            if found.is_some() { writer.update(index, entry) } else { writer.insert(index, entry) };
        if has_room {
            // planted: leaf-unlatched-before-group-published
            writer.set_seq(seq);
        } else {
            self.make_room(&at, index, found.is_some(), entry, seq)?;
        }
        Ok(found.is_none())
    }

    /// Asks for the memory that a change of `key` is about to read and to write, so that it arrives
    /// while its writer does something else.
    pub(crate) fn prepare(&self, key: &[u8]) {
        let needle = Needle::new(self.geometry.short(key));
        let words = self.words(self.directory.locate(needle.key).slot);
        words[..self.geometry.rest() / 8].iter().step_by(LINE_WORDS).for_each(prefetch);
        let leaf = Leaf::new(words, self.geometry);
        let head = leaf.head();
        if leaf.side(&head, needle.key) != Some(Side::Inside) {
            return;
        }
        if let Some(offset) = leaf.likely_offset(&needle) {
            // A key that is there, but for one in some: its record is written anew in its place.
            let record = words.get(offset / 8..).unwrap_or_default();
            record.iter().step_by(LINE_WORDS).take(RECORD_LINES).for_each(prefetch);
            return;
        }
        let rank = leaf.expected_rank(&head, needle.key);
        let offsets = leaf.offsets_about(&head, rank);
        offsets.filter_map(|offset| words.get(offset / 8)).for_each(prefetch);
        let end = words.get(head.used / 8..).unwrap_or_default();
        end.iter().step_by(LINE_WORDS).take(RECORD_LINES).for_each(prefetch);
    }

    /// Removes a key; returns false if it is not there. Readers see it after [`Table::publish`].
    /// What stands for a key that is too long stays, for others may begin as it does.
    pub(crate) fn remove(&mut self, key: &[u8], seq: u64) -> bool {
        if self.geometry.is_long(key) {
            return false;
        }
        self.remove_short(key, seq)
    }

    /// [`Table::remove`] of a key that leaves hold, also of one that stands for longer ones.
    pub(crate) fn remove_short(&mut self, key: &[u8], seq: u64) -> bool {
        let at = self.locate(key);
        let leaf = self.leaf(at.slot);
        let head = leaf.head();
        let Some((index, _)) = leaf.find(&head, &Needle::new(key)) else { return false };
        self.care.changed(head.run, key);
        self.latch(at.slot);
        let writer = self.writer(at.slot);
        writer.remove(index);
        writer.set_seq(seq);
        self.entries -= 1;
        let state = self.runs.entry(head.run).or_default();
        state.removed += 1;
        if state.removed > REMOVED_MIN.max(state.entries / 2) {
            // Without memory for that, its leaves stay as empty as they are.
            let _ = self.renew(head.run, key, seq);
        }
        true
    }

    /// Removes the keys from `from` on, and before `to` if there is such an end; returns false if
    /// they are more than `limit`, some of which are removed then.
    pub(crate) fn remove_range(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
        seq: u64,
    ) -> bool {
        let (mut at, mut left) = (from.to_vec(), limit);
        loop {
            let slot = self.locate(&at).slot;
            let (mut entries, next) = (Vec::new(), self.fences_of(slot).high);
            self.entries_of(slot, &mut entries);
            let is_inside = |key: &[u8]| *key >= *at && to.is_none_or(|to| key < to);
            entries.retain(|entry| entry.kind != KIND_LONG_KEYS && is_inside(&entry.key));
            if entries.len() > left {
                return false;
            }
            left -= entries.len();
            for entry in &entries {
                self.remove_short(&entry.key, seq);
            }
            match next {
                Some(next) if to.is_none_or(|to| *next < *to) => at = next,
                _ => return true,
            }
        }
    }

    /// The value of a key, also of one that is not published yet: `Some(None)` for a value that is
    /// too large for a leaf. `None` for a key that is too long.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<Vec<u8>>> {
        if self.geometry.is_long(key) {
            return None;
        }
        let leaf = self.leaf(self.locate(key).slot);
        let (_, record) = leaf.find(&leaf.head(), &Needle::new(key))?;
        let mut value = Vec::new();
        record.value.append_to(&mut value);
        Some((record.kind == KIND_INLINE).then_some(value))
    }

    /// Lets readers see the changes since the last call, of which `seq` is the last.
    pub(crate) fn publish(&mut self, seq: u64) {
        control::set_applied(self.control_space().words(), seq);
        self.publish_leaves();
    }

    fn publish_leaves(&mut self) {
        let mut latched = std::mem::take(&mut self.latched);
        for slot in latched.drain(..) {
            self.writer(slot).unlatch();
        }
        // With its memory, for the next group.
        self.latched = latched;
    }

    fn words(&self, slot: u32) -> &[AtomicU64] {
        let (at, len) = (slot as usize * self.geometry.leaf_words(), self.geometry.leaf_words());
        &self.leaves.words()[at..at + len]
    }

    fn writer(&self, slot: u32) -> LeafWriter<'_> {
        LeafWriter::new(self.words(slot), self.geometry)
    }

    fn leaf(&self, slot: u32) -> Leaf<'_, [AtomicU64]> {
        Leaf::new(self.words(slot), self.geometry)
    }

    /// Latches a leaf until the group is published.
    fn latch(&mut self, slot: u32) {
        let writer = self.writer(slot);
        if !writer.is_latched() {
            writer.latch();
            self.latched.push(slot);
        }
    }

    /// Sets one neighbour of a leaf, or both.
    fn link(&mut self, slot: u32, next: Option<u32>, previous: Option<u32>) {
        if slot == NO_SLOT {
            return;
        }
        self.latch(slot);
        let leaf = self.leaf(slot);
        let (next, previous) = (next.unwrap_or(leaf.next()), previous.unwrap_or(leaf.previous()));
        self.writer(slot).set_links(next, previous);
    }

    /// The leaf between whose fences `key` is.
    fn locate(&self, key: &[u8]) -> At {
        let located = self.directory.locate(key);
        let mut slot = located.slot;
        loop {
            let leaf = self.leaf(slot);
            slot = match leaf.side(&leaf.head(), key) {
                Some(Side::Right) => leaf.next(),
                Some(Side::Left) => leaf.previous(),
                _ => return At { located, slot },
            };
        }
    }

    /// Takes slots side by side.
    fn take_slots(&mut self, count: u32) -> Result<u32> {
        loop {
            self.absorb();
            if let Some(first) = self.slots.take(count) {
                return Ok(first);
            }
            self.leaves.grow(count as usize * self.geometry.leaf_bytes())?;
        }
    }

    /// Takes note of memory that was added.
    pub(crate) fn absorb(&mut self) {
        let slots = (self.leaves.words().len() / self.geometry.leaf_words()) as u32;
        self.slots.give(self.given, slots - self.given);
        self.given = slots;
    }

    fn cut(&mut self, entries: &[Entry], low: Option<&[u8]>, high: Option<&[u8]>) -> Cut {
        let number = self.next_run;
        self.next_run = self.next_run.wrapping_add(1);
        cut(entries, low, high, self.geometry, number)
    }

    /// Stores a run between two leaves, latched, and returns it with its last slot.
    fn put_run(&mut self, cut: Cut, previous: u32, next: u32, seq: u64) -> Result<(Run, u32)> {
        let Cut { mut run, mut leaves, taken, .. } = cut;
        run.base = self.take_slots(run.leaves)?;
        let last = run.base + run.leaves - 1;
        for (slot, image) in (run.base..).zip(&mut leaves) {
            image.set_links(
                if slot == last { next } else { slot + 1 },
                if slot == run.base { previous } else { slot - 1 },
            );
            image.set_seq(seq);
            self.writer(slot).begin(image);
            self.latched.push(slot);
        }
        self.runs.insert(run.number, RunState { entries: taken as u32, ..RunState::default() });
        self.entries += taken as u64;
        Ok((run, last))
    }

    /// The entries of a leaf.
    fn entries_of(&self, slot: u32, out: &mut Vec<Entry>) {
        entries_of(self.leaf(slot), out);
    }

    /// The fences of a leaf.
    fn fences_of(&self, slot: u32) -> Fences {
        fences_of(self.leaf(slot))
    }

    fn retire(&self, slot: u32) {
        let writer = self.writer(slot);
        // planted: leaf-retired-without-change-version
        writer.latch();
        writer.retire();
        writer.unlatch();
    }
}

/// The entries of a leaf.
fn entries_of(leaf: Leaf<'_, [AtomicU64]>, out: &mut Vec<Entry>) {
    let head = leaf.head();
    for record in (0..head.count).filter_map(|index| leaf.record(index)) {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        leaf.key_into(&head, &record, &mut key);
        record.value.append_to(&mut value);
        out.push(Entry { key, kind: record.kind, value_len: record.value_len, value });
    }
}

/// The fences of a leaf.
fn fences_of(leaf: Leaf<'_, [AtomicU64]>) -> Fences {
    let head = leaf.head();
    let of = |is_open: u8, fence: Option<crate::layout::Bytes<'_, [AtomicU64]>>| {
        let mut bytes = Vec::new();
        fence.filter(|_| head.flags & is_open == 0)?.append_to(&mut bytes);
        Some(bytes)
    };
    Fences::new(of(FIRST, leaf.low_fence()), of(LAST, leaf.high_fence()))
}
