//! Looking for a key in leaves that were read, and reading its value.

use super::{
    client::{Client, LeafLook, Outcome},
    layout::{append_bytes, kind, line_at},
    leaf::{Head, POINTER_LINES_MAX, Record, SLOT_LINES_MAX, ValuePointer, hash_of},
};
use crate::{
    error::Result,
    fabric::{Extent, Fabric},
    layout::format::LINE_BYTES,
    leaf::Side,
    message::{Part, format::KEY_BYTES_MAX},
};

impl Client {
    /// Looks for a key in leaves, which are in the order of keys, and reads its value.
    pub(super) fn look(
        &mut self,
        fabric: &impl Fabric,
        heads: &[Head],
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<LeafLook> {
        let exact =
            heads.iter().enumerate().find_map(|(at, leaf)| Some((at, leaf.find_exact(key)?)));
        if let Some((at, slot)) = exact {
            let outcome = self.value_in_slot(fabric, &heads[at], slot, key, out)?;
            return Ok(outcome.map_or(LeafLook::Again, |outcome| LeafLook::Is(outcome, at)));
        }
        let hash = hash_of(key);
        let (mut records, mut leaves) = (Vec::new(), Vec::new());
        for (at, leaf) in heads.iter().enumerate() {
            for (_, pointer) in leaf.find_hashed(hash) {
                records.push((pointer.first_line, pointer.lines));
                leaves.push(at);
            }
        }
        if !records.is_empty() {
            if let Some((outcome, piece)) = self.value_in_records(fabric, &records, key, out)? {
                return Ok(LeafLook::Is(outcome, leaves[piece]));
            }
            // Records of other keys with this hash, unless the leaf has changed meanwhile.
            leaves.dedup();
            // planted: leaf-not-looked-at-again-after
            if !self.is_unchanged(fabric, leaves.iter().map(|at| &heads[*at]))? {
                return Ok(LeafLook::Again);
            }
        }
        self.look_at_fences(fabric, heads, key)
    }

    /// What the fences of leaves say of a key that is not among their pairs.
    fn look_at_fences(
        &mut self,
        fabric: &impl Fabric,
        heads: &[Head],
        key: &[u8],
    ) -> Result<LeafLook> {
        let Some(sides) = self.sides(fabric, heads, key)? else { return Ok(LeafLook::Again) };
        if let Some(at) = sides.iter().position(|side| *side == Side::Inside) {
            return Ok(LeafLook::Is(Outcome::Absent, at));
        }
        let right = sides.iter().rposition(|side| *side == Side::Right);
        Ok(right.map_or(LeafLook::Lost, LeafLook::Right))
    }

    /// The value in a slot, which repeats the key; `None` if the slot has another one meanwhile.
    fn value_in_slot(
        &mut self,
        fabric: &impl Fabric,
        leaf: &Head,
        slot: usize,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Outcome>> {
        let extent = self.slot_extent(fabric, leaf.number, slot);
        self.read(fabric, &[extent])?;
        let words = self.image.piece(0);
        let words = words.and_then(|(words, _)| self.slot(fabric, (leaf.number, slot), words));
        let Some(&[word, pointer, ref value @ ..]) = words else { return Ok(None) };
        // planted: slot-value-taken-whatever-key
        if word != rhumb_model::code::code_at(key, 0) {
            return Ok(None);
        }
        let pointer = ValuePointer::from_word(pointer);
        match pointer.kind {
            kind::HERE => {
                let is_whole = append_bytes(value, pointer.size as usize, out);
                Ok(is_whole.then_some(Outcome::Found))
            }
            kind::RECORD => {
                let found =
                    self.value_in_records(fabric, &[(pointer.first_line, pointer.size)], key, out)?;
                Ok(found.map(|(outcome, _)| outcome))
            }
            kind::ASK => Ok(Some(Outcome::Ask)),
            _ => Ok(None),
        }
    }

    /// The value in one of some records, with the record's index in the list; `None` if none is of
    /// the key.
    fn value_in_records(
        &mut self,
        fabric: &impl Fabric,
        records: &[(u32, u32)],
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<(Outcome, usize)>> {
        self.read_records(fabric, records)?;
        let is_of = |piece: &usize| {
            self.record(*piece, records[*piece].0).is_some_and(|record| record.is_of(key))
        };
        let Some(piece) = (0..records.len()).find(is_of) else { return Ok(None) };
        let outcome = self.value_in_piece(fabric, records[piece], piece, key, out)?;
        Ok(outcome.map(|outcome| (outcome, piece)))
    }

    /// The value in a record that was read, which is read again if it is longer than that.
    pub(super) fn value_in_piece(
        &mut self,
        fabric: &impl Fabric,
        (first_line, _): (u32, u32),
        mut piece: usize,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Outcome>> {
        let Some(record) = self.record(piece, first_line) else { return Ok(None) };
        if record.kind == kind::ASK {
            return Ok(Some(Outcome::Ask));
        }
        if record.append_value(out) {
            return Ok(Some(Outcome::Found));
        }
        let lines = record.lines();
        if lines > Record::lines_for(KEY_BYTES_MAX, self.sizes.published_bytes()) {
            return Ok(None);
        }
        self.read(fabric, &[record_extent(first_line, lines)])?;
        piece = 0;
        let record = self.record(piece, first_line).filter(|record| record.is_of(key));
        Ok(record.is_some_and(|record| record.append_value(out)).then_some(Outcome::Found))
    }

    /// Reads records, each with its own guard, or the beginnings of long ones.
    pub(super) fn read_records(
        &mut self,
        fabric: &impl Fabric,
        records: &[(u32, u32)],
    ) -> Result<()> {
        let most = SLOT_LINES_MAX.max(POINTER_LINES_MAX);
        let extent =
            |(first_line, lines): &(u32, u32)| record_extent(*first_line, (*lines).clamp(1, most));
        let extents: Vec<Extent> = records.iter().map(extent).collect();
        self.read(fabric, &extents)
    }

    /// The record that begins at a line, in a piece of the last read.
    pub(super) fn record(&self, piece: usize, first_line: u32) -> Option<Record<'_>> {
        let (words, _) = self.image.piece(piece)?;
        match self.sizes.has_checksums() {
            true => Record::sealed(words, first_line),
            false => Record::parse(words),
        }
    }

    /// Returns true if leaves have not changed since their heads were read.
    pub(super) fn is_unchanged<'h>(
        &mut self,
        fabric: &impl Fabric,
        heads: impl Iterator<Item = &'h Head>,
    ) -> Result<bool> {
        let (mut extents, mut guards) = (Vec::new(), Vec::new());
        for leaf in heads {
            extents.push(self.leaf_extent(leaf.number, 0, 1));
            guards.push(leaf.guard);
        }
        self.read(fabric, &extents)?;
        let is_same = |(piece, guard): (usize, &u64)| {
            self.image.piece(piece).is_some_and(|(_, seen)| seen == *guard)
        };
        Ok(guards.iter().enumerate().all(is_same))
    }
}

/// The first lines of a record.
pub(super) fn record_extent(first_line: u32, lines: u32) -> Extent {
    let at = line_at(first_line);
    Extent { part: Part::Control, at, len: lines * LINE_BYTES as u32, guard: at }
}
