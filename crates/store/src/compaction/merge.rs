//! The merging: reads the inputs in order, keeps what must stay, and writes new tables.
//!
//! It knows of tables alone. Its caller chooses the inputs, and decides what happens to the
//! outputs.

use std::ops::Bound;

use rhumb_sync::primitive::Arc;

use super::{garbage::is_hidden, job::Merge, output::Output};
use crate::{
    error::Result,
    expiry::Stamp,
    iter::{
        merge::{Inputs, MergedSources, SourceSet},
        source::{LevelCursor, Source, Start},
    },
    ranges::{Ranges, Sweep},
    table::{Access, NewTables, Table, TableCursor, TableLayout, TableMeta, TableWriter},
    types::{Kind, SeqNo},
    version::{
        levels::{Level, Levels},
        retain::{Readers, Retain},
    },
};

/// The number of entries between two checks whether the result is still wanted. A merge of some
/// million entries a second checks several hundred times a second.
const ENTRIES_PER_LOOK: u64 = 4096;

/// Finishes a table.
pub(crate) type Finish<'a> = &'a mut dyn FnMut(TableWriter) -> Result<TableMeta>;

/// Creates a table.
pub(crate) type NewTable<'a> = &'a dyn Fn(&TableLayout) -> TableWriter;

/// The output of a merge: what it writes, and the functions that it writes with.
pub(crate) struct MergeTarget<'a> {
    /// The layout of the tables.
    pub(crate) layout: TableLayout,
    /// The size from which a table is full, in bytes.
    pub(crate) table_bytes: u64,
    /// Tables of up to this size, in bytes, are kept in memory until they are finished.
    pub(crate) held: u64,
    /// Creates a table.
    pub(crate) new_table: NewTable<'a>,
    /// Finishes a table.
    pub(crate) finish: Finish<'a>,
}

/// Merges the inputs into `outputs`, and keeps what `readers` see. `go_on` fails once the result is
/// no longer wanted.
pub(crate) fn merge_tables(
    merge: &Merge,
    readers: Readers,
    target: MergeTarget<'_>,
    go_on: &dyn Fn() -> Result<()>,
    outputs: &mut NewTables<'_>,
) -> Result<()> {
    let mut retain = Retain::new(readers, merge.deepest);
    let ranges = merge.inputs.iter().filter_map(|(_, table)| table.ranges().cloned());
    let ranges = Ranges::union(ranges.collect());
    let mut over = Sweep::new(&ranges);
    let kept = ranges.retained(retain.snapshots(), merge.deepest);
    let mut output = Output::new(target, kept, outputs);
    let is_read = |table: &Table| !is_hidden(table, &ranges, retain.snapshots());
    let sources = Inputs::Sources(SourceSet::of(sources(merge, is_read)));
    let mut merged = MergedSources::new(sources, Start::First, Bound::Unbounded, SeqNo::MAX);
    let begun = merged.begin()?;
    merged.drive(begun)?;
    let mut seen = 0_u64;
    while let Some(entry) = merged.top() {
        seen += 1;
        if seen.is_multiple_of(ENTRIES_PER_LOOK) {
            go_on()?;
        }
        // All versions of a key stay in one table, so that the tables of a level do not share a
        // key.
        if !retain.is_same_key(entry.key()) {
            output.cut()?;
        }
        let removed = over.seqs(entry.key());
        let is_hidden = retain.is_hidden(entry.seq(), removed);
        let (kind, value) = retain.seen(entry.kind(), entry.value());
        let stays = retain.judge(entry.key(), entry.seq(), kind);
        // A tombstone in place of what has expired is written only if it may hide something.
        let is_vain = kind == Kind::Tombstone
            && entry.kind() == Kind::Expiring
            && retain.is_oldest_seen(entry.seq())
            // planted: expiry-merge-reveals
            && !merge.may_hide(entry.key());
        if let Some(seq) = stays.filter(|_| !is_hidden && !is_vain) {
            write(output.writer(), (entry.key(), seq), (kind, value), entry.table())?;
            output.record_under(entry.key(), seq, removed);
        }
        let moved = merged.advance()?;
        merged.drive(moved)?;
    }
    output.end()
}

/// Writes an entry, with its value if that is in a file beside the table it comes from.
fn write(
    writer: &mut TableWriter,
    (key, seq): (&[u8], SeqNo),
    (kind, value): (Kind, &[u8]),
    source: Option<&Arc<Table>>,
) -> Result<()> {
    match (kind, source, Stamp::split(value)) {
        (Kind::LargeValue, Some(source), _) => writer.add_large_from(key, seq, source, value),
        (Kind::Expiring, Some(source), Some((stamp, pointer))) if stamp.is_large => {
            writer.add_expiring_large_from(key, seq, source, (stamp.at_ms, pointer))
        }
        _ => writer.add(key, seq, kind, value),
    }
}

/// The inputs that must be read, as sorted sources: one for each table of level 0, and one for each
/// deeper level.
fn sources(merge: &Merge, is_read: impl Fn(&Table) -> bool) -> Vec<Source> {
    let mut sources = Vec::new();
    let inputs: Vec<_> = merge.inputs.iter().filter(|(_, table)| is_read(table)).collect();
    let deepest = inputs.iter().map(|(level, _)| *level).max().unwrap_or(0);
    for (_, table) in inputs.iter().filter(|(level, _)| *level == 0) {
        sources.push(Source::Table(TableCursor::new(Arc::clone(table), Access::Sequential)));
    }
    for wanted in 1..=deepest {
        let tables: Vec<_> =
            inputs.iter().filter(|(l, _)| *l == wanted).map(|(_, t)| Arc::clone(t)).collect();
        if !tables.is_empty() {
            let levels = Levels::new(Vec::new(), vec![Level::new(tables)]);
            let cursor = LevelCursor::new(Arc::new(levels), 1, Access::Sequential);
            sources.push(Source::Level(cursor));
        }
    }
    sources
}
