//! Where the host puts pairs: slots and records, and new leaves where there is no room.
//!
//! What may fail, which is to take memory, is done first: until all is there, no leaf changes.

use rhumb_model::code::separator_len;

use super::{
    host::Table,
    layout::{NO_LEAF, SLOTS, append_bytes, kind, word_of, words_of},
    leaf::{Fences, HashPointer, Head, Record, ValuePointer, hash_of},
    write::{Draft, Pair, fences_lines, latch, store, write_record},
};
use crate::{error::Result, host::Space, layout::format::LINE_BYTES};

/// A value on its way into a leaf.
#[derive(Clone, Debug)]
pub(super) enum Stored {
    Bytes(Vec<u8>),
    /// In a record, with its key.
    Record {
        first_line: u32,
        lines: u32,
    },
    /// Too large for the region.
    Ask,
}

/// Records that a change takes and those that it frees, with their lines.
#[derive(Debug, Default)]
pub(super) struct Staging {
    pub(super) taken: Vec<(u32, u32)>,
    pub(super) dropped: Vec<(u32, u32)>,
}

/// A leaf whose records are written.
pub(super) struct Parts {
    pairs: Vec<Pair>,
    is_exact: bool,
    fences: Fences,
    record: Option<u32>,
}

/// A key that is above `last` and at most `next`.
pub(super) fn border(last: &[u8], next: &[u8]) -> Vec<u8> {
    next[..separator_len(last, next)].to_vec()
}

impl<S: Space> Table<S> {
    /// Puts a pair into a leaf that has no room for it, or holds keys of another kind.
    pub(super) fn reorganise(
        &mut self,
        leaf: &Head,
        new: (Vec<u8>, Stored),
        staging: &mut Staging,
    ) -> Result<()> {
        let mut pairs = self.pairs_of(leaf);
        let at = pairs.partition_point(|(key, _)| *key < new.0);
        pairs.insert(at, new);
        let fences = self.fences(leaf);
        let record = leaf.fences_record();
        if pairs.len() <= SLOTS {
            let parts = self.parts(&pairs, fences, (leaf.number, leaf.incarnation), staging)?;
            staging.dropped.extend(record);
            self.latch(leaf.number);
            self.write_parts(leaf.number, leaf.next, leaf.incarnation, &parts);
            return Ok(());
        }
        let upper = pairs.split_off(pairs.len() / 2);
        let between = match (pairs.last(), upper.first()) {
            (Some((last, _)), Some((next, _))) => border(last, next),
            _ => return Ok(()),
        };
        let left = Fences { low: fences.low.clone(), high: Some(between.clone()) };
        let right = Fences { low: Some(between.clone()), high: fences.high.clone() };
        let sibling = self.reserve_leaf()?;
        // The old leaf answers for less than before: clients notice by its incarnation.
        // planted: split-leaf-keeps-incarnation
        let incarnation = leaf.incarnation.wrapping_add(1) & 0xff_ffff;
        let born = self.next_incarnation(sibling);
        let right = self.parts(&upper, right, (sibling, born), staging)?;
        let left = self.parts(&pairs, left, (leaf.number, incarnation), staging)?;
        staging.dropped.extend(record);
        self.leaf_count += 1;
        self.latch(leaf.number);
        self.write_parts(sibling, leaf.next, born, &right);
        self.write_parts(leaf.number, sibling, incarnation, &left);
        self.counts.splits += 1;
        self.trainer.record_split(&fences, &between);
        self.tree.insert(between, sibling);
        Ok(())
    }

    /// Writes the records of a leaf of sorted pairs, which is to be of this number and incarnation.
    pub(super) fn parts(
        &mut self,
        pairs: &[(Vec<u8>, Stored)],
        fences: Fences,
        (number, incarnation): (u32, u32),
        staging: &mut Staging,
    ) -> Result<Parts> {
        let is_exact = pairs.iter().all(|(key, _)| key.len() == 8);
        let mut record = None;
        if fences_lines(&fences) > 0 {
            let fence = |fence: &Option<Vec<u8>>| fence.clone().unwrap_or_default();
            let (low, high) = (fence(&fences.low), fence(&fences.high));
            let check = u64::from(number) | u64::from(incarnation) << 32;
            let pair = (&low[..], &high[..]);
            record = Some(self.take_record(pair, kind::FENCES, high.len(), check, staging)?.0);
        }
        let mut staged = Vec::with_capacity(pairs.len());
        for (key, stored) in pairs {
            staged.push(self.stage(key, stored, is_exact, staging)?);
        }
        Ok(Parts { pairs: staged, is_exact, fences, record })
    }

    /// Writes a leaf, and leaves it latched.
    pub(super) fn write_parts(&mut self, number: u32, next: u32, incarnation: u32, parts: &Parts) {
        debug_assert!(next == NO_LEAF || next <= self.leaf_count);
        self.latch(number);
        self.writer(number).write(&Draft {
            incarnation,
            next,
            is_exact: parts.is_exact,
            fences: &parts.fences,
            fences_record: parts.record,
            pairs: &parts.pairs,
        });
    }

    /// The slots of a pair, whose record is written if it needs one.
    pub(super) fn stage(
        &mut self,
        key: &[u8],
        stored: &Stored,
        is_exact: bool,
        staging: &mut Staging,
    ) -> Result<Pair> {
        let sizes = self.options.sizes;
        match stored {
            Stored::Bytes(value) if is_exact && value.len() <= sizes.inline_bytes() => {
                let pointer =
                    ValuePointer { kind: kind::HERE, size: value.len() as u32, first_line: 0 };
                Ok(exact_pair(key, pointer, value))
            }
            Stored::Bytes(value) if value.len() <= sizes.published_bytes() => {
                let pair = (key, &value[..]);
                let (first_line, lines) =
                    self.take_record(pair, kind::HERE, value.len(), 0, staging)?;
                Ok(record_pair(key, first_line, lines, is_exact))
            }
            Stored::Bytes(_) | Stored::Ask if is_exact => {
                let pointer = ValuePointer { kind: kind::ASK, size: 0, first_line: 0 };
                Ok(exact_pair(key, pointer, &[]))
            }
            Stored::Bytes(_) | Stored::Ask => {
                let (first_line, lines) = self.take_record((key, &[]), kind::ASK, 0, 0, staging)?;
                Ok(record_pair(key, first_line, lines, false))
            }
            Stored::Record { first_line, lines } => {
                let words = self.record(*first_line);
                let record = Record::parse(&words).filter(|_| is_exact);
                let is_small = |record: &Record<'_>| {
                    record.kind == kind::ASK || record.value_len <= sizes.inline_bytes()
                };
                let Some(record) = record.filter(is_small) else {
                    return Ok(record_pair(key, *first_line, *lines, is_exact));
                };
                staging.dropped.push((*first_line, *lines));
                let mut value = Vec::new();
                let is_here = record.kind == kind::HERE && record.append_value(&mut value);
                let kind = if is_here { kind::HERE } else { kind::ASK };
                let pointer = ValuePointer { kind, size: value.len() as u32, first_line: 0 };
                Ok(exact_pair(key, pointer, &value))
            }
        }
    }

    /// Writes a record, latched.
    fn take_record(
        &mut self,
        pair: (&[u8], &[u8]),
        kind: u8,
        value_len: usize,
        check: u64,
        staging: &mut Staging,
    ) -> Result<(u32, u32)> {
        let lines = Record::lines_for(pair.0.len(), pair.1.len());
        let first_line = self.records.take(lines, &mut self.tail, &self.control)?;
        staging.taken.push((first_line, lines));
        let words = self.lines(first_line, lines);
        latch(words);
        // planted: record-two-stages-proves-itself
        write_record(words, pair, kind, value_len, check);
        Ok((first_line, lines))
    }

    /// Ends a change: what it took is published with the group, and what it dropped is zeroed and
    /// free. No leaf that can be read refers to it.
    pub(super) fn finish(&mut self, staging: Staging) {
        self.staged.extend(staging.taken.iter().map(|(first_line, _)| *first_line));
        for (first_line, lines) in staging.dropped {
            self.free_record(first_line, lines);
        }
    }

    /// Undoes what a change that failed has taken.
    pub(super) fn abandon(&mut self, staging: Staging) {
        for (first_line, lines) in staging.taken {
            self.free_record(first_line, lines);
        }
    }

    fn free_record(&mut self, first_line: u32, lines: u32) {
        let words = self.lines(first_line, lines);
        latch(words);
        store(&words[1..], std::iter::repeat_n(0, lines as usize * LINE_BYTES / 8));
        self.staged.remove(&first_line);
        self.records.give(first_line, lines);
    }
}

fn record_pair(key: &[u8], first_line: u32, lines: u32, is_exact: bool) -> Pair {
    if is_exact {
        return exact_pair(key, ValuePointer { kind: kind::RECORD, size: lines, first_line }, &[]);
    }
    let pointer = HashPointer { hash: hash_of(key), lines, first_line };
    Pair { key: pointer.to_word(), value: Vec::new() }
}

/// A pair whose key, of eight bytes, is its key slot.
fn exact_pair(key: &[u8], pointer: ValuePointer, value: &[u8]) -> Pair {
    let word = rhumb_model::code::code_at(key, 0);
    let mut slot = Vec::with_capacity(2 + words_of(value.len()));
    slot.extend([word, pointer.to_word()]);
    slot.extend(value.chunks(8).map(word_of));
    debug_assert!(append_bytes(&slot[2..], value.len(), &mut Vec::new()));
    Pair { key: word, value: slot }
}
