//! Level bins: sorted records that have come into the gap after a trained record.
//!
//! A gap has a root bin of 8 records. When that is full, its records go into children of 16, up to
//! 8, and the root keeps a code for each. Bins have these two levels at most: when they are
//! full, or their codes are all alike, they become a small array (FineStore, sections 3.2 and
//! 3.3.1).
//!
//! 1. A child holds the keys whose codes are at or above its code in the root and below the next
//!    child's; the first child also holds what is lower. Splits and shifts change these codes, and
//!    keys that come and go do not. A child that is emptied ends, and its neighbour holds its keys.
//! 2. A child that loses records other than by their removal gets another incarnation, which the
//!    root's link names. So a reader that finds a child by its link finds all keys that the root
//!    said are there.

use super::{
    layout::{
        BIN_HEAD_WORDS, BinKind, BinShape, CHILD_LINES, CHILD_RECORDS, RECORD_WORDS, ROOT_LINES,
        ROOT_RECORDS, Record, Slot,
    },
    records::{Needle, Records},
};
use crate::{error::Result, host::Space, layout::format::INCARNATION_SHIFT};

/// A bin that has records, as it was read.
#[derive(Clone, Copy)]
struct Bin {
    line: u32,
    shape: BinShape,
    records: [Record; CHILD_RECORDS],
}

/// A root that has children, as it was read.
#[derive(Clone, Copy)]
pub(super) struct Inner {
    pub(super) shape: BinShape,
    pub(super) codes: [u64; ROOT_RECORDS],
    pub(super) children: [Slot; ROOT_RECORDS],
}

/// Where a key is in the bins of a gap, or would be.
#[derive(Clone, Copy)]
pub(super) struct BinSpot {
    line: u32,
    at: usize,
    /// The number of the child, if the root has any.
    child: Option<usize>,
    /// The record of the key, if it is there.
    pub(super) found: Option<Record>,
}

/// How an insert into bins ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Insert {
    Done,
    /// The bins are to become a small array first.
    Full,
}

impl Inner {
    /// Reads a root that has children out of its words.
    pub(super) fn of(shape: BinShape, word: impl Fn(usize) -> u64) -> Self {
        let codes = std::array::from_fn(|index| word(BIN_HEAD_WORDS + index));
        let children =
            std::array::from_fn(|index| slot_of(word(BIN_HEAD_WORDS + ROOT_RECORDS + index)));
        Self { shape, codes, children }
    }

    /// The number of the child that holds a code.
    pub(super) fn child_of(&self, code: u64) -> usize {
        (1..self.shape.len).take_while(|child| self.codes[*child] <= code).count()
    }
}

fn slot_of(word: u64) -> Slot {
    Slot { line: word as u32, incarnation: (word >> INCARNATION_SHIFT) as u32 }
}

fn slot_word(slot: Slot) -> u64 {
    u64::from(slot.line) | u64::from(slot.incarnation) << INCARNATION_SHIFT
}

impl Bin {
    fn new(slot: Slot, kind: BinKind, skip: usize, records: &[Record]) -> Self {
        let mut bin = Self {
            line: slot.line,
            shape: BinShape { kind, len: records.len(), skip },
            records: [Record::default(); CHILD_RECORDS],
        };
        bin.records[..records.len()].copy_from_slice(records);
        bin
    }

    fn records(&self) -> &[Record] {
        &self.records[..self.shape.len]
    }

    fn code(&self, at: usize) -> u64 {
        self.records[at].code_after(self.shape.skip)
    }

    fn most(&self) -> usize {
        if self.shape.kind == BinKind::Child { CHILD_RECORDS } else { ROOT_RECORDS }
    }

    /// The place nearest to `wanted` at which the records before have lower codes than the rest.
    fn border(&self, wanted: usize) -> Option<usize> {
        (1..self.shape.len)
            .filter(|at| self.code(*at - 1) < self.code(*at))
            .min_by_key(|at| at.abs_diff(wanted))
    }

    fn with(&self, records: &[Record]) -> Self {
        let slot = Slot { line: self.line, incarnation: 0 };
        Self::new(slot, self.shape.kind, self.shape.skip, records)
    }
}

/// The shape of the root bin of a gap, if it is one.
fn root_shape<S: Space>(records: &Records<S>, root: Slot) -> Option<BinShape> {
    let shape = BinShape::of_word(records.slab.load(root.line, 1))?;
    (shape.kind != BinKind::Child).then_some(shape)
}

fn read_inner<S: Space>(records: &Records<S>, root: Slot) -> Option<Inner> {
    let shape = root_shape(records, root).filter(|shape| shape.kind == BinKind::Inner)?;
    Some(Inner::of(shape, |word| records.slab.load(root.line, word)))
}

fn read_bin<S: Space>(records: &Records<S>, line: u32) -> Option<Bin> {
    let word = |word| records.slab.load(line, word);
    let shape = BinShape::of_word(word(1)).filter(|shape| shape.kind != BinKind::Inner)?;
    let mut bin = Bin { line, shape, records: [Record::default(); CHILD_RECORDS] };
    for (index, record) in bin.records[..shape.len].iter_mut().enumerate() {
        let at = BIN_HEAD_WORDS + index * RECORD_WORDS;
        *record = Record::of_words(&[word(at), word(at + 1), word(at + 2)]);
    }
    Some(bin)
}

fn write_bin<S: Space>(records: &mut Records<S>, bin: &Bin) {
    records.slab.latch(bin.line);
    records.slab.store(bin.line, 1, bin.shape.to_word());
    let words = bin.records[..bin.most()].iter().flat_map(Record::words);
    for (at, word) in (BIN_HEAD_WORDS..).zip(words) {
        records.slab.store(bin.line, at, word);
    }
}

fn write_inner<S: Space>(records: &mut Records<S>, root: Slot, inner: &Inner) {
    records.slab.latch(root.line);
    records.slab.store(root.line, 1, inner.shape.to_word());
    for index in 0..ROOT_RECORDS {
        let is_there = index < inner.shape.len;
        let code = if is_there { inner.codes[index] } else { 0 };
        let link = if is_there { slot_word(inner.children[index]) } else { 0 };
        records.slab.store(root.line, BIN_HEAD_WORDS + index, code);
        records.slab.store(root.line, BIN_HEAD_WORDS + ROOT_RECORDS + index, link);
    }
}

/// Bytes that the codes of a gap's bins skip.
pub(super) fn skip<S: Space>(records: &Records<S>, root: Slot) -> usize {
    root_shape(records, root).map_or(0, |shape| shape.skip)
}

/// Makes a root bin of one record.
///
/// # Errors
///
/// [`Error::Full`](crate::Error::Full).
pub(super) fn begin<S: Space>(
    records: &mut Records<S>,
    skip: usize,
    record: Record,
) -> Result<Slot> {
    let slot = records.slab.take(ROOT_LINES)?;
    write_bin(records, &Bin::new(slot, BinKind::Root, skip, &[record]));
    Ok(slot)
}

/// Finds a key in the bins of a gap; `None` if they are damaged.
pub(super) fn find<S: Space>(records: &Records<S>, root: Slot, key: &[u8]) -> Option<BinSpot> {
    let shape = root_shape(records, root)?;
    let needle = Needle::new(key, shape.skip);
    let (bin, child) = match read_inner(records, root) {
        None => (read_bin(records, root.line)?, None),
        Some(inner) => {
            let child = inner.child_of(needle.code);
            (read_bin(records, inner.children[child].line)?, Some(child))
        }
    };
    let at = bin.records().partition_point(|record| records.compare(record, &needle).is_lt());
    let found =
        bin.records().get(at).copied().filter(|record| records.compare(record, &needle).is_eq());
    Some(BinSpot { line: bin.line, at, child, found })
}

/// Puts another record in the place of one that was found, of the same key.
pub(super) fn replace<S: Space>(records: &mut Records<S>, spot: &BinSpot, record: Record) {
    records.slab.latch(spot.line);
    for (word, value) in record.words().into_iter().enumerate() {
        records.slab.store(spot.line, BIN_HEAD_WORDS + spot.at * RECORD_WORDS + word, value);
    }
}

/// Inserts a record whose key is not there.
///
/// # Errors
///
/// [`Error::Full`](crate::Error::Full); the gap has the keys that it had then.
pub(super) fn insert<S: Space>(
    records: &mut Records<S>,
    root: Slot,
    key: &[u8],
    record: Record,
) -> Result<Insert> {
    // Room for one is made by one step in each bin of a path.
    for _ in 0..4 {
        let Some(spot) = find(records, root, key) else { return Ok(Insert::Full) };
        let Some(mut bin) = read_bin(records, spot.line) else { return Ok(Insert::Full) };
        if bin.shape.len < bin.most() {
            bin.records.copy_within(spot.at..bin.shape.len, spot.at + 1);
            bin.records[spot.at] = record;
            bin.shape.len += 1;
            write_bin(records, &bin);
            return Ok(Insert::Done);
        }
        let has_room = match spot.child {
            None => divide_root(records, root, &bin)?,
            Some(child) => make_room(records, root, child, &bin)?,
        };
        if !has_room {
            return Ok(Insert::Full);
        }
    }
    Ok(Insert::Full)
}

/// Moves the records of a full root into two children.
fn divide_root<S: Space>(records: &mut Records<S>, root: Slot, bin: &Bin) -> Result<bool> {
    let Some(border) = bin.border(bin.shape.len / 2) else { return Ok(false) };
    let slots = records.take_all([CHILD_LINES; 2])?;
    let (lower, upper) = bin.records().split_at(border);
    for (slot, part) in slots.iter().zip([lower, upper]) {
        write_bin(records, &Bin::new(*slot, BinKind::Child, bin.shape.skip, part));
    }
    let mut inner = Inner {
        shape: BinShape { kind: BinKind::Inner, len: 2, ..bin.shape },
        codes: [0; ROOT_RECORDS],
        children: [Slot::default(); ROOT_RECORDS],
    };
    inner.codes[1] = bin.code(border);
    inner.children[..2].copy_from_slice(&slots);
    write_inner(records, root, &inner);
    Ok(true)
}

/// Makes room in a full child: into the child before it, or into a new one after it.
fn make_room<S: Space>(
    records: &mut Records<S>,
    root: Slot,
    child: usize,
    full: &Bin,
) -> Result<bool> {
    let Some(mut inner) = read_inner(records, root) else { return Ok(false) };
    let previous = child.checked_sub(1).and_then(|previous| {
        let previous = read_bin(records, inner.children[previous].line)?;
        let room = CHILD_RECORDS - previous.shape.len;
        let border = full.border(room.div_ceil(2)).filter(|border| *border <= room)?;
        Some((previous, border))
    });
    let border = match previous {
        Some((previous, border)) => {
            let (moved, _) = full.records().split_at(border);
            let joined = [previous.records(), moved].concat();
            write_bin(records, &previous.with(&joined));
            write_bin(records, &full.with(&full.records()[border..]));
            inner.codes[child] = full.code(border);
            border
        }
        None => {
            let border = full.border(full.shape.len / 2);
            let Some(border) = border.filter(|_| inner.shape.len < ROOT_RECORDS) else {
                return Ok(false);
            };
            let slot = records.slab.take(CHILD_LINES)?;
            let (lower, upper) = full.records().split_at(border);
            write_bin(records, &Bin::new(slot, BinKind::Child, full.shape.skip, upper));
            write_bin(records, &full.with(lower));
            let (next, len) = (child + 1, inner.shape.len);
            inner.codes.copy_within(next..len, next + 1);
            inner.children.copy_within(next..len, next + 1);
            (inner.codes[next], inner.children[next]) = (full.code(border), slot);
            inner.shape.len += 1;
            border
        }
    };
    debug_assert!(border > 0);
    inner.children[child].incarnation = records.slab.raise(full.line);
    write_inner(records, root, &inner);
    Ok(true)
}

/// Removes a record that was found; returns true if the bins are empty then, and given back.
pub(super) fn remove<S: Space>(records: &mut Records<S>, root: Slot, spot: &BinSpot) -> bool {
    let Some(mut bin) = read_bin(records, spot.line) else { return false };
    if spot.at >= bin.shape.len {
        return false;
    }
    records.release(&bin.records[spot.at]);
    if bin.shape.len > 1 {
        bin.records.copy_within(spot.at + 1..bin.shape.len, spot.at);
        bin.shape.len -= 1;
        bin.records[bin.shape.len] = Record::default();
        write_bin(records, &bin);
        return false;
    }
    let inner = spot.child.and_then(|child| Some((child, read_inner(records, root)?)));
    if let Some((child, mut inner)) = inner {
        records.slab.give(bin.line, CHILD_LINES);
        let len = inner.shape.len;
        inner.codes.copy_within(child + 1..len, child);
        inner.children.copy_within(child + 1..len, child);
        inner.shape.len -= 1;
        if inner.shape.len > 0 {
            write_inner(records, root, &inner);
            return false;
        }
    }
    records.slab.give(root.line, ROOT_LINES);
    true
}

/// Appends all records of a gap's bins, in order.
pub(super) fn collect<S: Space>(records: &Records<S>, root: Slot, out: &mut Vec<Record>) {
    let mut append = |line| {
        if let Some(bin) = read_bin(records, line) {
            out.extend_from_slice(bin.records());
        }
    };
    match read_inner(records, root) {
        None => append(root.line),
        Some(inner) => {
            inner.children[..inner.shape.len].iter().for_each(|slot| append(slot.line));
        }
    }
}

/// Gives the bins of a gap back, but not what their records have elsewhere.
pub(super) fn give_back<S: Space>(records: &mut Records<S>, root: Slot) {
    if let Some(inner) = read_inner(records, root) {
        for slot in &inner.children[..inner.shape.len] {
            records.slab.give(slot.line, CHILD_LINES);
        }
    }
    records.slab.give(root.line, ROOT_LINES);
}

/// Lines of the pieces of a gap's bins.
#[cfg(test)]
pub(super) fn lines<S: Space>(records: &Records<S>, root: Slot) -> u64 {
    let children = read_inner(records, root).map_or(0, |inner| inner.shape.len);
    u64::from(ROOT_LINES) + children as u64 * u64::from(CHILD_LINES)
}
