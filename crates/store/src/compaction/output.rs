//! The tables that a compaction writes: cut by size between keys, each with the part of the range
//! tombstones that lies over its keys and up to the next table.
//!
//! A cut is just behind the last key of the table before it, so that the bounds of two tables never
//! touch, and every range tombstone lies within the bounds of its table.

use crate::{
    db::{core::Core, new_tables::NewTables},
    error::Result,
    keys::key_after,
    ranges::{HiddenRunsBuilder, Ranges, newest_of},
    table::{IndexKind, TableLayout, TableMeta, TableWriter},
    types::{KEY_BYTES_MAX, SeqNo},
};

/// How a table is ended.
pub(super) type Finish<'a> = &'a mut dyn FnMut(TableWriter) -> Result<TableMeta>;

/// Tables being written, one after another.
pub(super) struct Output<'a, 'c> {
    core: &'a Core,
    options: TableLayout,
    /// Tables of up to this size are in memory until they are ended.
    held: u64,
    /// What stays of the range tombstones; all have an end.
    ranges: Ranges,
    /// Those before this key are in tables that were ended.
    from: Box<[u8]>,
    open: Option<TableWriter>,
    hidden: HiddenRunsBuilder,
    finish: Finish<'a>,
    done: &'a mut NewTables<'c>,
}

impl<'a, 'c> Output<'a, 'c> {
    pub(super) fn new(
        core: &'a Core,
        (options, held): (TableLayout, u64),
        ranges: Ranges,
        finish: Finish<'a>,
        done: &'a mut NewTables<'c>,
    ) -> Self {
        let (from, hidden) = (Box::default(), HiddenRunsBuilder::default());
        Self { core, options, held, ranges, from, open: None, hidden, finish, done }
    }

    /// Takes note of the range tombstones over the entry that was added last, newest first.
    pub(super) fn note_under(&mut self, key: &[u8], seq: SeqNo, removed: &[SeqNo]) {
        if !self.ranges.is_empty() {
            self.hidden.note(key, seq, newest_of(removed, SeqNo::MAX));
        }
    }

    /// The table that takes the next entry.
    pub(super) fn writer(&mut self) -> &mut TableWriter {
        let Self { core, options, held, open, .. } = self;
        open.get_or_insert_with(|| {
            core.counters.note_table(options.index == IndexKind::Learned);
            TableWriter::create(&core.tables, core.new_file_id(), options).holding(*held)
        })
    }

    /// Ends the table behind its last key if it is large enough. No entry of that key is to come.
    pub(super) fn cut(&mut self) -> Result<()> {
        let is_full = |writer: &TableWriter| {
            writer.bytes_estimate() >= self.core.options.table_bytes
                && writer.last_key().is_some_and(|key| key.len() < KEY_BYTES_MAX)
        };
        let Some(writer) = self.open.take_if(|writer| is_full(writer)) else { return Ok(()) };
        let end = writer.last_key().and_then(key_after);
        self.end_table(writer, end)
    }

    /// Ends the last table. Range tombstones without entries beside them get one of their own.
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
        self.done.add((self.finish)(writer)?, self.hidden.finish());
        Ok(())
    }
}
