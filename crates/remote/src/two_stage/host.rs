//! The host's side: an ordered map in shared memory, of which this is the only writer.
//!
//! The map of separators to leaves is the host's own; readers see leaves, records, models and
//! tables. Changes are made in groups: what a group changes stays latched until [`Table::publish`].
//! Leaves are never freed, and only a split moves keys between leaves, until the table is loaded
//! anew (`load`).

use std::{
    collections::{BTreeMap, HashSet},
    ops::Bound,
};

use super::{
    layout::{SLOTS, Sizes, kind, line_at, record, write_header},
    leaf::{Fences, HashPointer, Head, Record, ValuePointer},
    place::{Staging, Stored},
    proof::record_sum,
    slab::{Slab, Tail},
    train::Trainer,
    write::{LeafWriter, is_latched, latch, load, seal_record, unlatch},
};
use crate::{
    error::{Error, Result},
    host::Space,
    layout::{control, format::LINE_BYTES},
    leaf::Side,
    message::{Hint, format::KEY_BYTES_MAX},
    primitive::AtomicU64,
};

/// How a table is built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) sizes: Sizes,
    /// Pairs of a leaf that is built, 1 to [`SLOTS`].
    pub(crate) fill: usize,
    /// Keys a sub-model on average at which the models are expanded. The paper has 200.
    pub(crate) keys_per_model_max: u32,
}

/// A value as the host has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// All of it.
    Here(Vec<u8>),
    /// It is too large for the region: the store that fills the region has it.
    Ask,
}

/// What a host did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostCounts {
    /// Fallback calls that were answered.
    pub(crate) lookups: u64,
    /// Writes whose hint named the right leaf, so that the walk was skipped.
    pub(crate) hints_right: u64,
    /// Writes with another hint.
    pub(crate) hints_wrong: u64,
    pub(crate) splits: u64,
    /// Sub-models that were trained, those of a complete training included.
    pub(crate) trained: u64,
    /// Complete trainings with more sub-models.
    pub(crate) expansions: u64,
    /// Complete trainings with fewer sub-models.
    pub(crate) shrinks: u64,
    /// Trained keys, and the sum of the positions by which their predictions were wrong.
    pub(crate) trained_keys: u64,
    pub(crate) trained_errors: u64,
    /// Time that copying leaves and training on them took, in nanoseconds.
    pub(crate) training_ns: u64,
}

/// An ordered map in two spaces.
pub(crate) struct Table<S> {
    pub(super) options: Options,
    pub(super) leaves: S,
    pub(super) control: S,
    pub(super) tail: Tail,
    pub(super) records: Slab,
    pub(super) trainer: Trainer,
    /// Leaves by their low fences; the first one's is empty.
    pub(super) tree: BTreeMap<Vec<u8>, u32>,
    pub(super) leaf_count: u32,
    /// Leaves that the group changed.
    latched: Vec<u32>,
    /// Records that the group wrote.
    pub(super) staged: HashSet<u32>,
    pub(super) entries: u64,
    pub(super) counts: HostCounts,
}

impl<S: Space> Table<S> {
    /// Builds a table of sorted pairs, no two of the same key, in two empty spaces, and trains its
    /// models.
    ///
    /// # Errors
    ///
    /// [`Error::Full`]; [`Error::InvalidArgument`] for a key that is too long.
    pub(crate) fn build(
        options: Options,
        leaves: S,
        control: S,
        pairs: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>,
    ) -> Result<Self> {
        control.grow(line_at(super::layout::FIRST_LINE) as usize)?;
        write_header(control.words(), options.sizes);
        let mut table = Self {
            options,
            leaves,
            control,
            tail: Tail::new(),
            records: Slab::default(),
            trainer: Trainer::default(),
            tree: BTreeMap::new(),
            leaf_count: 0,
            latched: Vec::new(),
            staged: HashSet::new(),
            entries: 0,
            counts: HostCounts::default(),
        };
        table.fill(pairs.into_iter().map(Ok))?;
        table.publish(0);
        table.train_first()?;
        Ok(table)
    }

    /// Holds no pair and no leaf. What leaves refer to was freed.
    pub(super) fn begin_again(&mut self) {
        self.latched.clear();
        self.staged.clear();
        self.tree.clear();
        (self.leaf_count, self.entries) = (0, 0);
    }

    /// Number of pairs.
    pub(crate) fn len(&self) -> u64 {
        self.entries
    }

    /// Number of leaves.
    pub(crate) fn leaf_count(&self) -> u32 {
        self.leaf_count
    }

    /// The space of the leaves.
    #[cfg(test)]
    pub(crate) fn leaf_space(&self) -> &S {
        &self.leaves
    }

    /// The space of header, models, tables and records.
    #[cfg(test)]
    pub(crate) fn control_space(&self) -> &S {
        &self.control
    }

    /// What it did.
    pub(crate) fn counts(&self) -> HostCounts {
        self.counts
    }

    /// Sets the value of a key; returns true if the key is new. Readers see it after
    /// [`Table::publish`]. The hint saves the walk if it names the right leaf.
    ///
    /// # Errors
    ///
    /// [`Error::Full`]; [`Error::InvalidArgument`] for a key that is too long. Nothing has changed
    /// then.
    pub(crate) fn set(&mut self, key: &[u8], value: &[u8], hint: Option<Hint>) -> Result<bool> {
        check_key(key)?;
        let number = self.locate(key, hint);
        let mut staging = Staging::default();
        let is_new = match self.set_in(number, key, value, &mut staging) {
            Ok(is_new) => is_new,
            Err(error) => {
                self.abandon(staging);
                return Err(error);
            }
        };
        self.finish(staging);
        self.entries += u64::from(is_new);
        Ok(is_new)
    }

    fn set_in(
        &mut self,
        number: u32,
        key: &[u8],
        value: &[u8],
        staging: &mut Staging,
    ) -> Result<bool> {
        let leaf = self.head(number);
        let found = self.find(&leaf, key);
        let stored = Stored::Bytes(value.to_vec());
        let fits = key.len() == 8 || !leaf.is_exact();
        if !fits || (found.is_none() && leaf.count == SLOTS) {
            self.reorganise(&leaf, (key.to_vec(), stored), staging)?;
            return Ok(true);
        }
        let pair = self.stage(key, &stored, leaf.is_exact(), staging)?;
        staging.dropped.extend(found.and_then(|index| self.record_of(&leaf, index)));
        self.latch(number);
        let writer = self.writer(number);
        writer.put(found.unwrap_or(leaf.count), &pair);
        if found.is_none() {
            writer.set_count(leaf.count + 1);
        }
        Ok(found.is_none())
    }

    /// Removes a key; returns false if it is not there. Readers see it after [`Table::publish`].
    pub(crate) fn remove(&mut self, key: &[u8], hint: Option<Hint>) -> bool {
        let number = self.locate(key, hint);
        let leaf = self.head(number);
        let Some(index) = self.find(&leaf, key) else { return false };
        let record = self.record_of(&leaf, index);
        self.latch(leaf.number);
        self.writer(leaf.number).remove(index, leaf.count);
        self.finish(Staging { dropped: record.into_iter().collect(), ..Staging::default() });
        self.entries -= 1;
        true
    }

    /// The value of a key, also of one that is not published yet.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Value> {
        let leaf = self.head(self.walk(key));
        self.find(&leaf, key).map(|index| self.value_of(&leaf, index))
    }

    /// The first pairs at and after `from`, at most `limit`.
    pub(crate) fn scan(&self, from: &[u8], limit: usize) -> Vec<(Vec<u8>, Value)> {
        let mut found = Vec::new();
        let mut number = self.walk(from);
        while number != super::layout::NO_LEAF && found.len() < limit {
            let leaf = self.head(number);
            let mut pairs: Vec<_> = (0..leaf.count)
                .map(|index| (self.key_of(&leaf, index), index))
                .filter(|(key, _)| &key[..] >= from)
                .collect();
            pairs.sort_unstable();
            pairs.truncate(limit - found.len());
            found.extend(pairs.into_iter().map(|(key, index)| (key, self.value_of(&leaf, index))));
            number = leaf.next;
        }
        found
    }

    /// The last pairs below `to`, or at it, in descending order: all of a leaf at least, and at
    /// most `limit` and those of one leaf.
    pub(crate) fn scan_down(&self, to: Bound<&[u8]>, limit: usize) -> Vec<(Vec<u8>, Value)> {
        let mut found = Vec::new();
        let is_below = |key: &[u8]| match to {
            Bound::Unbounded => true,
            Bound::Included(to) => key <= to,
            Bound::Excluded(to) => key < to,
        };
        // A leaf whose low fence is excluded has no key of the range.
        for number in self.tree.range::<[u8], _>((Bound::Unbounded, to)).rev().map(|leaf| *leaf.1) {
            let leaf = self.head(number);
            let mut pairs: Vec<_> = (0..leaf.count)
                .map(|index| (self.key_of(&leaf, index), index))
                .filter(|(key, _)| is_below(key))
                .collect();
            pairs.sort_unstable_by(|a, b| b.cmp(a));
            found.extend(pairs.into_iter().map(|(key, index)| (key, self.value_of(&leaf, index))));
            if found.len() >= limit {
                break;
            }
        }
        found
    }

    /// Bytes of a leaf.
    pub(crate) fn leaf_bytes(&self) -> usize {
        self.options.sizes.leaf_words() * 8
    }

    /// Lets readers see the changes since the last call, of which `seq` is the last.
    pub(crate) fn publish(&mut self, seq: u64) {
        control::set_applied(self.control.words(), seq);
        self.unlatch_all();
    }

    /// Lets readers see what was changed since the last call.
    pub(super) fn unlatch_all(&mut self) {
        // Records first: a leaf that can be read refers to records that can.
        let has_checksums = self.options.sizes.has_checksums();
        for first_line in std::mem::take(&mut self.staged) {
            if has_checksums {
                let lines =
                    Record::parse(&load(self.lines(first_line, 1))).map_or(1, |r| r.lines());
                seal_record(self.lines(first_line, lines), first_line);
            }
            unlatch(self.lines(first_line, 1));
        }
        for number in std::mem::take(&mut self.latched) {
            self.unlatch_leaf(number);
        }
    }

    /// Lets readers see what was done to a leaf since it was latched.
    pub(super) fn unlatch_leaf(&self, number: u32) {
        let leaf = self.writer(number);
        if self.options.sizes.has_checksums() {
            leaf.seal(number, control::loads(self.control.words()));
        }
        unlatch(leaf.words());
    }

    /// The leaf that a hint names, if it is the right one, or the one that the walk finds.
    fn locate(&mut self, key: &[u8], hint: Option<Hint>) -> u32 {
        let Some(hint) = hint else { return self.walk(key) };
        if hint.slot < self.leaf_count {
            let leaf = self.head(hint.slot);
            let side = leaf.side(key).unwrap_or_else(|| self.fences(&leaf).side(key));
            if leaf.incarnation == hint.incarnation && side == Side::Inside {
                self.counts.hints_right += 1;
                return hint.slot;
            }
        }
        self.counts.hints_wrong += 1;
        self.walk(key)
    }

    /// The leaf between whose fences a key is.
    pub(super) fn walk(&self, key: &[u8]) -> u32 {
        self.find_leaf(key).map_or(0, |(_, number)| *number)
    }

    /// The leaf of a key, with its low fence.
    pub(super) fn find_leaf(&self, key: &[u8]) -> Option<(&Vec<u8>, &u32)> {
        let range = (Bound::Unbounded, Bound::Included(key));
        self.tree.range::<[u8], _>(range).next_back()
    }

    pub(super) fn writer(&self, number: u32) -> LeafWriter<'_> {
        let (at, len) = (self.options.sizes.leaf_at(number), self.options.sizes.leaf_words());
        LeafWriter::new(&self.leaves.words()[at as usize / 8..][..len], self.options.sizes)
    }

    /// The head of one of the table's leaves.
    pub(super) fn head(&self, number: u32) -> Head {
        let head = self.writer(number).head(number);
        head.expect("the host alone writes leaves")
    }

    /// Lines of the control part.
    pub(super) fn lines(&self, first_line: u32, lines: u32) -> &[AtomicU64] {
        let at = line_at(first_line) as usize / 8;
        &self.control.words()[at..at + lines as usize * LINE_BYTES / 8]
    }

    /// The words of the record that begins at a line, without a sum.
    pub(super) fn record(&self, first_line: u32) -> Vec<u64> {
        let first = load(self.lines(first_line, 1));
        let Some(record) = Record::parse(&first) else { return first };
        let (lines, len) = (record.lines(), record.words());
        // No other record's check word is looked at.
        let is_sealed = self.options.sizes.has_checksums()
            && record.kind == kind::FENCES
            && !is_latched(self.lines(first_line, 1));
        let mut words = if lines == 1 { first } else { load(self.lines(first_line, lines)) };
        if is_sealed {
            words[record::CHECK] ^= record_sum(&words[..len], first_line);
        }
        words
    }

    /// Between what keys a leaf answers.
    pub(super) fn fences(&self, leaf: &Head) -> Fences {
        if let Some(fences) = Fences::of(leaf) {
            return fences;
        }
        let (first_line, _) = leaf.fences_record().expect("a long fence has a record");
        let words = self.record(first_line);
        Record::parse(&words).and_then(|record| record.fences(leaf)).expect("a leaf's own record")
    }

    /// The slot of a key in its leaf.
    fn find(&self, leaf: &Head, key: &[u8]) -> Option<usize> {
        if leaf.is_exact() {
            return leaf.find_exact(key);
        }
        let mut slots = leaf.find_hashed(super::leaf::hash_of(key));
        let is_of =
            |first_line| Record::parse(&self.record(first_line)).is_some_and(|r| r.is_of(key));
        slots.find(|(_, pointer)| is_of(pointer.first_line)).map(|(index, _)| index)
    }

    /// The key in a slot.
    pub(super) fn key_of(&self, leaf: &Head, index: usize) -> Vec<u8> {
        let word = leaf.keys()[index];
        if leaf.is_exact() {
            return word.to_be_bytes().to_vec();
        }
        let (words, mut key) = (self.record(HashPointer::from_word(word).first_line), Vec::new());
        let is_whole = Record::parse(&words).is_some_and(|record| record.append_key(&mut key));
        debug_assert!(is_whole);
        key
    }

    /// First line and number of lines of the record of a slot, if it has one.
    pub(super) fn record_of(&self, leaf: &Head, index: usize) -> Option<(u32, u32)> {
        let first_line = if leaf.is_exact() {
            let pointer = ValuePointer::from_word(self.writer(leaf.number).slot(index)[1]);
            (pointer.kind == kind::RECORD).then_some(pointer.first_line)?
        } else {
            HashPointer::from_word(leaf.keys()[index]).first_line
        };
        let words = load(self.lines(first_line, 1));
        Record::parse(&words).map(|record| (first_line, record.lines()))
    }

    fn value_of(&self, leaf: &Head, index: usize) -> Value {
        let mut value = Vec::new();
        if let Some((first_line, _)) = self.record_of(leaf, index) {
            let words = self.record(first_line);
            let record = Record::parse(&words).filter(|record| record.kind == kind::HERE);
            let is_here = record.is_some_and(|record| record.append_value(&mut value));
            return if is_here { Value::Here(value) } else { Value::Ask };
        }
        let slot = self.writer(leaf.number).slot(index);
        let pointer = ValuePointer::from_word(slot[1]);
        let is_here = pointer.kind == kind::HERE
            && super::layout::append_bytes(&slot[2..], pointer.size as usize, &mut value);
        if is_here { Value::Here(value) } else { Value::Ask }
    }

    /// The pairs of a leaf, sorted.
    pub(super) fn pairs_of(&self, leaf: &Head) -> Vec<(Vec<u8>, Stored)> {
        let stored = |index| match self.record_of(leaf, index) {
            Some((first_line, lines)) => Stored::Record { first_line, lines },
            None => match self.value_of(leaf, index) {
                Value::Here(value) => Stored::Bytes(value),
                Value::Ask => Stored::Ask,
            },
        };
        let mut pairs: Vec<_> =
            (0..leaf.count).map(|index| (self.key_of(leaf, index), stored(index))).collect();
        pairs.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        pairs
    }

    /// Latches a leaf until the group is published.
    pub(super) fn latch(&mut self, number: u32) {
        let words = self.writer(number).words();
        if !is_latched(words) {
            latch(words);
            self.latched.push(number);
        }
    }

    /// The number of the next new leaf, for which there is memory.
    pub(super) fn reserve_leaf(&self) -> Result<u32> {
        let number = self.leaf_count;
        if number == super::layout::LEAVES_MAX {
            return Err(Error::Full { capacity_bytes: self.options.sizes.leaf_at(number) });
        }
        let end = self.options.sizes.leaf_at(number + 1) as usize;
        let len = self.leaves.words().len() * 8;
        if end > len {
            self.leaves.grow(end - len)?;
        }
        Ok(number)
    }
}

/// Refuses a key that messages do not carry.
pub(super) fn check_key(key: &[u8]) -> Result<()> {
    if key.len() <= KEY_BYTES_MAX {
        return Ok(());
    }
    let what = format!("a key of {} bytes, where {KEY_BYTES_MAX} are the most", key.len());
    Err(Error::InvalidArgument(what.into()))
}
