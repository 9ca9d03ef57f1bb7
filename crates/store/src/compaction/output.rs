//! The tables that a compaction writes, cut by size between keys. Each holds the part of the range
//! tombstones that covers its keys and the gap up to the next table.
//!
//! A cut is just after the last key of the table before it. So the bounds of two tables never
//! touch, and every range tombstone lies within the bounds of its table.

use super::merge::MergeTarget;
use crate::{
    error::Result,
    keys::key_after,
    ranges::{HiddenRunsBuilder, Ranges, newest_of},
    table::{NewTables, TableWriter},
    types::{KEY_BYTES_MAX, SeqNo},
};

/// Tables being written, one after another.
pub(super) struct Output<'t, 'a, 'c> {
    target: MergeTarget<'t>,
    /// The range tombstones that must stay; all have an end.
    ranges: Ranges,
    /// Range tombstones before this key are in tables that were finished.
    from: Box<[u8]>,
    open: Option<TableWriter>,
    hidden: HiddenRunsBuilder,
    done: &'a mut NewTables<'c>,
}

impl<'t, 'a, 'c> Output<'t, 'a, 'c> {
    pub(super) fn new(
        target: MergeTarget<'t>,
        ranges: Ranges,
        done: &'a mut NewTables<'c>,
    ) -> Self {
        let (from, hidden) = (Box::default(), HiddenRunsBuilder::default());
        Self { target, ranges, from, open: None, hidden, done }
    }

    /// Records the range tombstones over the entry that was added last, newest first.
    pub(super) fn record_under(&mut self, key: &[u8], seq: SeqNo, removed: &[SeqNo]) {
        if !self.ranges.is_empty() {
            self.hidden.record(key, seq, newest_of(removed, SeqNo::MAX));
        }
    }

    /// The table that gets the next entry.
    pub(super) fn writer(&mut self) -> &mut TableWriter {
        let MergeTarget { new_table, layout, held, .. } = &self.target;
        self.open.get_or_insert_with(|| new_table(layout).holding(*held))
    }

    /// Finishes the table after its last key if it is large enough. No entry of that key may
    /// follow.
    pub(super) fn cut(&mut self) -> Result<()> {
        let is_full = |writer: &TableWriter| {
            writer.bytes_estimate() >= self.target.table_bytes
                && writer.last_key().is_some_and(|key| key.len() < KEY_BYTES_MAX)
        };
        let Some(writer) = self.open.take_if(|writer| is_full(writer)) else { return Ok(()) };
        let end = writer.last_key().and_then(key_after);
        self.end_table(writer, end)
    }

    /// Finishes the last table. Range tombstones without entries beside them get a table of their
    /// own.
    pub(super) fn end(mut self) -> Result<()> {
        if self.open.is_none() && self.ranges.within(&self.from, None).is_empty() {
            return Ok(());
        }
        self.writer();
        match self.open.take() {
            Some(writer) => self.end_table(writer, None),
            None => Ok(()),
        }
    }

    fn end_table(&mut self, mut writer: TableWriter, end: Option<Box<[u8]>>) -> Result<()> {
        if !self.ranges.is_empty() {
            writer.set_ranges(self.ranges.within(&self.from, end.as_deref()));
        }
        self.from = end.unwrap_or_default();
        self.done.add((self.target.finish)(writer)?, self.hidden.finish());
        Ok(())
    }
}
