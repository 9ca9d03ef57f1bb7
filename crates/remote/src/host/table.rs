//! A keyspace in a region, and the changes to it.
//!
//! Changes are made in groups. Every leaf that a group changes stays latched until
//! [`Table::publish`], so that readers see all of a group or nothing. An entry that finds no room
//! splits its leaf into a sibling elsewhere, which the leaf links to; when an eighth of a run's
//! leaves have siblings, or much of it was removed, the run is built anew.

use std::collections::HashMap;

use rhumb_model::code::separator_len;

use super::{
    Space,
    cut::{Cut, cut},
    directory::{Directory, RunIndex},
    extents::Extents,
};
use crate::{
    error::{Error, Result},
    layout::{
        Geometry, control,
        format::{FIRST, KIND_INLINE, KIND_LONG_KEYS, LAST, NO_SLOT},
    },
    leaf::{Entry, Fences, Leaf, LeafImage, LeafWriter, Needle, Side},
    primitive::{AtomicU64, IS_MODEL},
    route::Run,
};

/// One in this many leaves of a run may have a sibling: what its line does not find at once.
const SIBLING_SHARE: u32 = if IS_MODEL { 1 } else { 8 };
/// A chain of siblings is at most this long: what a reader follows before it asks the host.
const CHAIN_MAX: u32 = 4;
/// The smallest run that is built anew because entries were removed: several leaves of them.
const REMOVED_MIN: u32 = 128;

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
}

/// The leaf of a key.
struct At {
    run: RunIndex,
    /// The leaf that the run's line says: the first of its chain.
    predicted: u32,
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
        loop {
            while waiting.len() < ahead
                && let Some(entry) = entries.next()
            {
                let entry = entry?;
                // Several long keys have one record.
                if waiting.last().is_none_or(|last| last.key != entry.key) {
                    waiting.push(entry);
                }
            }
            let cut = self.cut(&waiting, low.as_deref(), None);
            waiting.drain(..cut.taken);
            low.clone_from(&cut.high);
            let (run, last) = self.place(cut, previous, NO_SLOT, 0)?;
            if previous != NO_SLOT {
                self.link(previous, Some(run.base), None);
            }
            previous = last;
            self.publish_leaves();
            self.directory.append(run)?;
            if waiting.is_empty() {
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
        let slots = (self.leaves.words().len() / self.geometry.leaf_words()) as u64;
        slots - self.slots.free_count()
    }

    /// Sets the value of a key; readers see it after [`Table::publish`].
    ///
    /// # Errors
    ///
    /// [`Error::Full`]; nothing has changed then.
    pub(crate) fn set(&mut self, key: &[u8], value: &[u8], seq: u64) -> Result<()> {
        let is_new = self.put(Entry::new(self.geometry, key, value), seq)?;
        self.entries += u64::from(is_new);
        Ok(())
    }

    /// [`Table::set`] without the count; returns true if the key was not there.
    fn put(&mut self, entry: Entry, seq: u64) -> Result<bool> {
        let at = self.locate(&entry.key);
        let writer = self.writer(at.slot);
        let (leaf, head) = (writer.leaf(), writer.leaf().head());
        let found = leaf.find(&head, &Needle::new(&entry.key)).map(|(index, _)| index);
        let index = found.unwrap_or_else(|| leaf.lower_bound(&head, &entry.key));
        self.latch(at.slot);
        let writer = self.writer(at.slot);
        let has_room = if found.is_some() {
            writer.update(index, &entry)
        } else {
            writer.insert(index, &entry)
        };
        if has_room {
            writer.set_seq(seq);
        } else {
            self.make_room(&at, index, found.is_some(), entry, seq)?;
        }
        Ok(found.is_none())
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
        let Some((index, _)) = leaf.find(&leaf.head(), &Needle::new(key)) else { return false };
        self.latch(at.slot);
        let writer = self.writer(at.slot);
        writer.remove(index);
        writer.set_seq(seq);
        self.entries -= 1;
        let state = self.runs.entry(self.directory.run(at.run).number).or_default();
        state.removed += 1;
        if state.removed > REMOVED_MIN.max(state.entries / 2) {
            // Without memory for that, its leaves stay as empty as they are.
            let _ = self.rebuild(at.run, seq);
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
        for slot in std::mem::take(&mut self.latched) {
            self.writer(slot).unlatch();
        }
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
        let index = self.directory.find(key);
        let run = self.directory.run(index);
        let predicted = run.base + run.leaf_of(key);
        let mut at = At { run: index, predicted, slot: predicted };
        loop {
            let leaf = self.leaf(at.slot);
            at.slot = match leaf.side(&leaf.head(), key) {
                Some(Side::Right) => leaf.next(),
                Some(Side::Left) => leaf.previous(),
                _ => return at,
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
    fn absorb(&mut self) {
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
    fn place(&mut self, cut: Cut, previous: u32, next: u32, seq: u64) -> Result<(Run, u32)> {
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
        let leaf = self.leaf(slot);
        let head = leaf.head();
        for record in (0..head.count).filter_map(|index| leaf.record(index)) {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            leaf.key_into(&head, &record, &mut key);
            record.value.append_to(&mut value);
            out.push(Entry { key, kind: record.kind, value_len: record.value_len, value });
        }
    }

    /// The fences of a leaf.
    fn fences_of(&self, slot: u32) -> Fences {
        let leaf = self.leaf(slot);
        let head = leaf.head();
        let of = |is_open: u8, fence: Option<crate::layout::Bytes<'_, [AtomicU64]>>| {
            let mut bytes = Vec::new();
            fence.filter(|_| head.flags & is_open == 0)?.append_to(&mut bytes);
            Some(bytes)
        };
        Fences::new(of(FIRST, leaf.low_fence()), of(LAST, leaf.high_fence()))
    }

    /// Puts an entry into a leaf that has no room for it: in the place of entry `index`, or before
    /// it.
    fn make_room(
        &mut self,
        at: &At,
        index: usize,
        replaces: bool,
        entry: Entry,
        seq: u64,
    ) -> Result<()> {
        let mut entries = Vec::new();
        self.entries_of(at.slot, &mut entries);
        entries.splice(index..index + usize::from(replaces), [entry]);
        let fences = self.fences_of(at.slot);
        let leaf = self.leaf(at.slot);
        let (run, next, previous) = (leaf.head().run, leaf.next(), leaf.previous());
        // Without the bytes of records that are gone, there may be room.
        if let Some(mut image) = self.image(&entries, &fences, run) {
            image.set_links(next, previous);
            image.set_seq(seq);
            self.writer(at.slot).replace(&image);
            return Ok(());
        }
        if self.siblings_of(at) >= CHAIN_MAX {
            // One more, and readers would not follow the chain to its end.
            let entry = entries.swap_remove(index);
            self.rebuild(at.run, seq)?;
            return self.put(entry, seq).map(drop);
        }
        let (mut left, mut right) = self.halves(&entries, index, &fences, run)?;
        let sibling = self.take_slots(1)?;
        right.set_links(next, at.slot);
        right.set_seq(seq);
        self.writer(sibling).begin(&right);
        self.latched.push(sibling);
        left.set_links(sibling, previous);
        left.set_seq(seq);
        self.writer(at.slot).replace(&left);
        self.link(next, None, Some(sibling));
        let leaves = self.directory.run(at.run).leaves;
        let state = self.runs.entry(run).or_default();
        state.siblings += 1;
        if state.siblings * SIBLING_SHARE > leaves {
            // Without memory for that, the run is found by more links.
            let _ = self.rebuild(at.run, seq);
        }
        Ok(())
    }

    /// Number of leaves between a leaf that a run's line finds and the next one.
    fn siblings_of(&self, at: &At) -> u32 {
        let run = self.directory.run(at.run);
        let found_by_line = run.base..run.base + run.leaves;
        let (mut slot, mut count) = (self.leaf(at.predicted).next(), 0);
        while slot != NO_SLOT
            && !found_by_line.contains(&slot)
            && self.leaf(slot).head().run == run.number
        {
            (slot, count) = (self.leaf(slot).next(), count + 1);
        }
        count
    }

    /// A leaf of these entries, if they fit.
    fn image(&self, entries: &[Entry], fences: &Fences, run: u32) -> Option<LeafImage> {
        let mut image = LeafImage::new(self.geometry, fences, run);
        entries.iter().all(|entry| image.push(entry)).then_some(image)
    }

    /// Two leaves of entries that do not fit into one, of which entry `index` is new.
    fn halves(
        &self,
        entries: &[Entry],
        index: usize,
        fences: &Fences,
        run: u32,
    ) -> Result<(LeafImage, LeafImage)> {
        // Keys that come in order leave full leaves.
        let wanted = match index {
            0 => 1,
            last if last + 1 == entries.len() => last,
            _ => entries.len() / 2,
        };
        let mut places: Vec<usize> = (1..entries.len()).collect();
        places.sort_by_key(|place| place.abs_diff(wanted));
        for place in places {
            let (lower, upper) = entries.split_at(place);
            let (Some(last), Some(first)) = (lower.last(), upper.first()) else { continue };
            let fence = first.key[..separator_len(&last.key, &first.key)].to_vec();
            let left = Fences::new(fences.low.clone(), Some(fence.clone()));
            let right = Fences::new(Some(fence), fences.high.clone());
            let (left, right) = (self.image(lower, &left, run), self.image(upper, &right, run));
            if let (Some(left), Some(right)) = (left, right) {
                return Ok((left, right));
            }
        }
        Err(Error::InvalidArgument("an entry that no leaf has room for".into()))
    }

    /// Builds a run anew, with the next one if there is little in both.
    ///
    /// # Errors
    ///
    /// [`Error::Full`]; all stays as it is then.
    fn rebuild(&mut self, at: RunIndex, seq: u64) -> Result<()> {
        let mut old = vec![at];
        let small = |run: &Run| run.leaves <= 2;
        if let Some(next) = self.directory.next_in_block(at)
            && small(self.directory.run(at))
            && small(self.directory.run(next))
        {
            old.push(next);
        }
        let (mut slots, mut entries) = (Vec::new(), Vec::new());
        for index in &old {
            let run = self.directory.run(*index);
            let (number, mut slot) = (run.number, run.base);
            while slot != NO_SLOT && self.leaf(slot).head().run == number {
                self.entries_of(slot, &mut entries);
                slots.push(slot);
                slot = self.leaf(slot).next();
            }
        }
        let (Some(&first), Some(&last)) = (slots.first(), slots.last()) else { return Ok(()) };
        let (low, high) = (self.fences_of(first).low, self.fences_of(last).high);
        let (previous, next) = (self.leaf(first).previous(), self.leaf(last).next());
        let runs = self.place_all(&entries, low, high, (previous, next), seq)?;
        let ends = runs.first().zip(runs.last()).map(|(first, last)| (first.0.base, last.1));
        let numbers: Vec<u32> = old.iter().map(|run| self.directory.run(*run).number).collect();
        let new = runs.iter().map(|(run, _)| run.clone()).collect();
        if let Err(error) = self.directory.replace(at, old.len(), new) {
            self.take_back(&runs);
            return Err(error);
        }
        if let Some((first, last)) = ends {
            self.link(previous, Some(first), None);
            self.link(next, None, Some(last));
        }
        for number in numbers {
            self.runs.remove(&number);
        }
        self.entries -= entries.len() as u64;
        self.free(&slots);
        Ok(())
    }

    /// Stores entries as runs between two leaves.
    fn place_all(
        &mut self,
        entries: &[Entry],
        low: Option<Vec<u8>>,
        high: Option<Vec<u8>>,
        (mut previous, next): (u32, u32),
        seq: u64,
    ) -> Result<Vec<(Run, u32)>> {
        let (mut runs, mut at, mut low) = (Vec::<(Run, u32)>::new(), 0, low);
        loop {
            let cut = self.cut(&entries[at..], low.as_deref(), high.as_deref());
            at += cut.taken;
            low.clone_from(&cut.high);
            match self.place(cut, previous, next, seq) {
                Ok((run, last)) => {
                    if let Some((_, before)) = runs.last() {
                        self.link(*before, Some(run.base), None);
                    }
                    previous = last;
                    runs.push((run, last));
                }
                Err(error) => {
                    self.take_back(&runs);
                    return Err(error);
                }
            }
            if at == entries.len() {
                return Ok(runs);
            }
        }
    }

    /// Frees runs that readers were not told of.
    fn take_back(&mut self, runs: &[(Run, u32)]) {
        for (run, _) in runs {
            let slots: Vec<u32> = (run.base..run.base + run.leaves).collect();
            let state = self.runs.remove(&run.number).unwrap_or_default();
            self.entries -= u64::from(state.entries);
            self.free(&slots);
        }
    }

    fn retire(&self, slot: u32) {
        let writer = self.writer(slot);
        writer.latch();
        writer.retire();
        writer.unlatch();
    }

    /// Ends leaves and frees their slots. A late reader finds that the leaf answers for nothing, or
    /// what is there next.
    fn free(&mut self, slots: &[u32]) {
        slots.iter().for_each(|slot| self.retire(*slot));
        let freed: std::collections::HashSet<u32> = slots.iter().copied().collect();
        self.latched.retain(|slot| !freed.contains(slot));
        let mut sorted = slots.to_vec();
        sorted.sort_unstable();
        let ranges = sorted.chunk_by(|a, b| a + 1 == *b);
        ranges.for_each(|range| self.slots.give(range[0], range.len() as u32));
    }
}
