//! Trained arrays: sorted records whose keys never change, and a line that predicts their
//! positions.
//!
//! Record 0 of an array is its *sentinel*. It has no key, lies before all others, and gives the
//! keys below the first trained one a gap of their own.

use rhumb_model::{Segment, code::common_prefix_len, search::partition_point};

use super::{
    descriptor::{Descriptor, Span},
    layout::{
        BLOCK_LINES, HEADER_LINES, Link, RECORD_WORDS, Record, Sizes, Slot, Token, header,
        incarnation_of_epoch,
    },
    records::{Needle, Records},
};
use crate::{error::Result, host::Space};

/// An array as its host keeps it.
pub(super) struct Array {
    pub(super) descriptor: Descriptor,
    pub(super) header: Slot,
    /// Other arrays have taken its place: it waits for the barrier.
    pub(super) is_retired: bool,
    /// It lies in a gap of another array.
    pub(super) is_small: bool,
    /// Trained keys that are removed from it, and those that were from its small arrays.
    pub(super) removed: u32,
    /// Those that were removed when it was trained.
    pub(super) kept: u32,
    /// Searches in its gaps since then.
    pub(super) asked: u32,
    /// It is due for training because of these, with what its bins hold.
    pub(super) is_asked: bool,
    /// Epochs of arrays that it has replaced, and that may wait yet.
    pub(super) ancestors: Vec<u64>,
}

/// An array that is to be stored.
pub(super) struct Draft {
    pub(super) span: Span,
    pub(super) prefix: Box<[u8]>,
    pub(super) segment: Segment,
    /// What is linked to the sentinel.
    pub(super) below: Link,
    pub(super) records: Vec<Record>,
}

impl Array {
    /// Number of trained records.
    pub(super) fn len(&self) -> usize {
        self.descriptor.records as usize
    }

    /// Stores an array, latched.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full); nothing is taken then.
    pub(super) fn put<S: Space>(
        records: &mut Records<S>,
        draft: &Draft,
        epoch: u64,
    ) -> Result<Self> {
        let blocks = records.slab.sizes().blocks_of(draft.records.len());
        let base = records.slab.take_blocks(blocks)?;
        let header = match records.slab.take(HEADER_LINES) {
            Ok(header) => header,
            Err(error) => {
                records.slab.give_blocks(base, blocks);
                return Err(error);
            }
        };
        let descriptor = Descriptor {
            span: draft.span.clone(),
            prefix: draft.prefix.clone(),
            epoch,
            base,
            records: draft.records.len() as u32,
            line: draft.segment.line,
            below: draft.segment.below as u16,
            above: draft.segment.above as u16,
        };
        let tag = descriptor.tag();
        for block in base..base + blocks {
            let line = block * BLOCK_LINES;
            records.slab.set_incarnation(line, incarnation_of_epoch(epoch));
            records.slab.store(line, 1, tag);
        }
        let removed = draft.records.iter().filter(|record| record.token() == Token::Removed);
        let kept = removed.count() as u32;
        let array = Self {
            descriptor,
            header,
            is_retired: false,
            is_small: false,
            removed: kept,
            kept,
            asked: 0,
            is_asked: false,
            ancestors: Vec::new(),
        };
        array.store_header(records, tag);
        array.store(records, 0, Record::default().with_link(draft.below));
        for (index, record) in (1..).zip(&draft.records) {
            array.store(records, index, *record);
        }
        Ok(array)
    }

    fn store_header<S: Space>(&self, records: &Records<S>, tag: u64) {
        let array = &self.descriptor;
        let base_and_records = u64::from(array.base) | u64::from(array.records) << 32;
        let reach = u64::from(array.below) << 32 | u64::from(array.above) << 48;
        let slope = u64::from(array.line.mantissa) | u64::from(array.line.shift) << 32;
        for (word, value) in [
            (header::TAG, tag),
            (header::EPOCH, array.epoch),
            (header::PLACE, base_and_records),
            (header::SHAPE, array.prefix.len() as u64 | reach),
            (header::X0, array.line.x0),
            (header::Y0, array.line.y0 as u64),
            (header::SLOPE, slope),
        ] {
            records.slab.store(self.header.line, word, value);
        }
    }

    /// The block of a record.
    pub(super) fn block(&self, sizes: Sizes, index: usize) -> u32 {
        self.descriptor.base + sizes.record_position(index).0 as u32
    }

    /// The line at which the block of a record begins, and the record's first word there.
    fn place_of<S: Space>(&self, records: &Records<S>, index: usize) -> (u32, usize) {
        let sizes = records.slab.sizes();
        (self.block(sizes, index) * BLOCK_LINES, sizes.record_position(index).1)
    }

    /// A record, where 0 is the sentinel.
    pub(super) fn record<S: Space>(&self, records: &Records<S>, index: usize) -> Record {
        let (line, word) = self.place_of(records, index);
        let words: [u64; RECORD_WORDS] =
            std::array::from_fn(|at| records.slab.load(line, word + at));
        Record::of_words(&words)
    }

    /// Changes a record, whose key stays what it is.
    pub(super) fn store<S: Space>(&self, records: &mut Records<S>, index: usize, record: Record) {
        let (line, word) = self.place_of(records, index);
        records.slab.latch(line);
        for (at, value) in (word..).zip(record.words()) {
            records.slab.store(line, at, value);
        }
    }

    /// The record of a key, or else the one before it. Looks at the positions that the line
    /// predicts.
    pub(super) fn search<S: Space>(
        &self,
        records: &Records<S>,
        key: &[u8],
    ) -> Result<usize, usize> {
        let (low, high) = self.descriptor.positions(key);
        if !key.starts_with(&self.descriptor.prefix) {
            return Err(low);
        }
        let needle = Needle::new(key, self.descriptor.prefix.len());
        let position = partition_point(low, (high + 1).min(self.len()), |position| {
            records.compare(&self.record(records, position + 1), &needle).is_lt()
        });
        let is_there = position < self.len()
            && records.compare(&self.record(records, position + 1), &needle).is_eq();
        if is_there { Ok(position + 1) } else { Err(position) }
    }

    /// Checks that a key belongs to a record or to the gap after it: what [`Array::search`] returns
    /// then.
    pub(super) fn check<S: Space>(
        &self,
        records: &Records<S>,
        index: usize,
        key: &[u8],
    ) -> Option<Result<usize, usize>> {
        let array = &self.descriptor;
        if !array.span.contains(key) || !key.starts_with(&array.prefix) || index > self.len() {
            return None;
        }
        let needle = Needle::new(key, array.prefix.len());
        let order = |index| records.compare(&self.record(records, index), &needle);
        if index > 0 && !order(index).is_lt() {
            return order(index).is_eq().then_some(Ok(index));
        }
        let is_below_next = index == self.len() || order(index + 1).is_gt();
        is_below_next.then_some(Err(index))
    }

    /// The bounds of the gap after a record: the keys that bins in it may hold.
    pub(super) fn gap<S: Space>(&self, records: &Records<S>, index: usize) -> Span {
        let key = |index| records.key(&self.record(records, index)).into();
        let span = &self.descriptor.span;
        Span {
            low: if index == 0 { span.low.clone() } else { key(index) },
            high: if index == self.len() { span.high.clone() } else { Some(key(index + 1)) },
        }
    }

    /// Gives the memory back, but not what is linked to its records.
    pub(super) fn free<S: Space>(&self, records: &mut Records<S>) {
        let blocks = records.slab.sizes().blocks_of(self.len());
        records.slab.give_blocks(self.descriptor.base, blocks);
        records.slab.give(self.header.line, HEADER_LINES);
    }

    /// Trained records that are removed.
    pub(super) fn is_removed<S: Space>(&self, records: &Records<S>, index: usize) -> bool {
        self.record(records, index).token() == Token::Removed
    }
}

/// Bytes that all keys of a span begin with.
pub(super) fn shared_len(span: &Span) -> usize {
    span.high.as_ref().map_or(0, |high| common_prefix_len(&span.low, high))
}
