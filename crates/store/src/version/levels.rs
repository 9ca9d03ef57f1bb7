//! The levels of one LSM tree: which tables hold its entries, at one moment.
//!
//! A [`Levels`] never changes; flushes and compactions publish a new one. Level 0 holds flushed
//! tables, which may overlap, newest first. Each deeper level holds tables in key order that do
//! not overlap. For one key, an entry of a shallower level is newer than any of a deeper one.

use rhumb_model::{code, search};
use rhumb_sync::primitive::{Arc, Mutex};

use crate::{
    expiry::Millis,
    ranges::{RangeSpan, Ranges},
    table::{DataSize, KeyHash, Table},
    types::{FileId, SeqNo},
};

/// The tables of one LSM tree.
#[derive(Default)]
pub(crate) struct Levels {
    /// Newest first.
    pub(crate) l0: Vec<Arc<Table>>,
    /// Codes of the smallest and the largest key of each table of level 0.
    l0_codes: Vec<(u64, u64)>,
    /// Levels 1 and deeper; `sorted[0]` is level 1. Any of them may be empty.
    pub(crate) sorted: Vec<Level>,
    /// The numbers in `sorted` of the levels that have tables, so that a read skips the others.
    filled: Box<[u8]>,
    /// True if any table has range tombstones.
    has_ranges: bool,
    /// The first time at which an entry of a table expires, if any does.
    first_expiry_ms: Option<Millis>,
    /// The first time at which all entries of a table have expired, if they do.
    first_end_ms: Option<Millis>,
    /// The live snapshots at the last time that no table was found to be hidden from them.
    looked_through: Mutex<Option<Vec<SeqNo>>>,
}

/// One level of tables in key order that do not overlap.
#[derive(Clone, Default)]
pub(crate) struct Level {
    tables: Vec<Arc<Table>>,
    /// The bytes that the largest keys of all tables begin with.
    prefix: Box<[u8]>,
    /// Codes of the largest keys after the prefix: one flat array, so that most lookups find a
    /// table without touching a key.
    heads: Box<[u64]>,
    /// Codes of the smallest keys after the prefix; 0 where the first table begins before the
    /// prefix.
    lows: Box<[u64]>,
    /// The tables that have range tombstones.
    ranged: Vec<Arc<Table>>,
    extent: DataSize,
}

impl Level {
    /// A level of `tables`, which are sorted here.
    pub(crate) fn new(mut tables: Vec<Arc<Table>>) -> Self {
        tables.sort_by(|a, b| a.meta().smallest.cmp(&b.meta().smallest));
        debug_assert!(
            tables.windows(2).all(|pair| pair[0].meta().largest < pair[1].meta().smallest),
            "tables of one level overlap"
        );
        let prefix_len = match &*tables {
            [] => 0,
            // With one table, the prefix of its largest key alone would be the whole key, which no
            // other key has.
            [one] => code::common_prefix_len(&one.meta().smallest, &one.meta().largest),
            [first, .., last] => {
                code::common_prefix_len(&first.meta().largest, &last.meta().largest)
            }
        };
        let prefix = tables.first().map_or_else(Default::default, |first| {
            first.meta().largest[..prefix_len].to_vec().into_boxed_slice()
        });
        let heads = tables.iter().map(|t| code::code_at(&t.meta().largest, prefix_len)).collect();
        let lows = tables
            .iter()
            .map(|t| &t.meta().smallest)
            .map(|key| if key.starts_with(&prefix) { code::code_at(key, prefix_len) } else { 0 })
            .collect();
        let ranged = tables.iter().filter(|t| t.ranges().is_some()).cloned().collect();
        let extent = tables.iter().map(|table| DataSize::of(table)).sum();
        Self { tables, prefix, heads, lows, ranged, extent }
    }

    /// The number of entries and pages in its tables.
    pub(crate) fn extent(&self) -> DataSize {
        self.extent
    }

    /// The tables in key order.
    pub(crate) fn tables(&self) -> &[Arc<Table>] {
        &self.tables
    }

    /// The first table whose largest key is at or after `key`: `tables().len()` if there is none.
    /// O(log n).
    #[inline]
    pub(crate) fn table_at_or_after(&self, key: &[u8]) -> usize {
        match self.head_of(key) {
            Some(head) => self.table_by_head(key, head),
            None => self.tables.partition_point(|t| *t.meta().largest < *key),
        }
    }

    /// The code of `key` after the prefix, if it has the prefix.
    #[inline]
    fn head_of(&self, key: &[u8]) -> Option<u64> {
        let prefix = &*self.prefix;
        (prefix.is_empty() || key.starts_with(prefix)).then(|| code::code_at(key, prefix.len()))
    }

    #[inline]
    fn table_by_head(&self, key: &[u8], head: u64) -> usize {
        let heads = &*self.heads;
        let mut at = search::partition_point(0, heads.len(), |i| heads[i] < head);
        while at < heads.len() && heads[at] == head && *self.tables[at].meta().largest < *key {
            at += 1;
        }
        at
    }

    /// The one table that can hold `key`.
    #[inline]
    pub(crate) fn table_for(&self, key: &[u8]) -> Option<&Arc<Table>> {
        let Some(head) = self.head_of(key) else { return self.table_for_other(key) };
        let at = self.table_by_head(key, head);
        let table = self.tables.get(at)?;
        // Codes before keys: whole keys are compared only if the codes tie.
        let low = self.lows[at];
        (head > low || head == low && *table.meta().smallest <= *key).then_some(table)
    }

    /// As [`Level::table_for`], for a key without the prefix.
    #[cold]
    fn table_for_other(&self, key: &[u8]) -> Option<&Arc<Table>> {
        let table = self.tables.get(self.table_at_or_after(key))?;
        (*table.meta().smallest <= *key).then_some(table)
    }

    /// The range of tables that overlap `smallest..=largest`.
    pub(crate) fn overlapping(&self, smallest: &[u8], largest: &[u8]) -> &[Arc<Table>] {
        let from = self.table_at_or_after(smallest);
        let to = self.tables.partition_point(|t| *t.meta().smallest <= *largest);
        self.tables.get(from..to).unwrap_or_default()
    }

    /// About the number of bytes of files that lie between two keys. O(log tables + tables between
    /// them).
    pub(crate) fn bytes_between(&self, from: &[u8], to: &[u8]) -> u64 {
        let part = |table: &Table| {
            let (meta, index) = (table.meta(), table.index());
            let begins = if *from <= *meta.smallest { 0 } else { index.seek(from).block };
            let ends = if *to > *meta.largest { index.block_count() } else { index.seek(to).block };
            let blocks = u64::from(ends.saturating_sub(begins));
            meta.total_bytes() / u64::from(index.block_count().max(1)) * blocks
        };
        self.overlapping(from, to).iter().map(|table| part(table)).sum()
    }

    /// The range tombstones that may cover `key`, if there are any; narrows `span` to the keys
    /// before those of the next table that has some. O(log tables).
    fn ranges_at(&self, key: &[u8], span: &mut RangeSpan) -> Option<&Ranges> {
        let ranges = |at: usize| self.ranged.get(at).and_then(|table| table.ranges());
        let first = |at| ranges(at).and_then(|ranges| ranges.keys().first());
        let at = search::partition_point(0, self.ranged.len(), |at| {
            first(at).is_some_and(|first| **first <= *key)
        });
        span.narrow(None, first(at));
        at.checked_sub(1).and_then(ranges)
    }

    /// Bytes of all files of the level.
    pub(crate) fn bytes(&self) -> u64 {
        self.tables.iter().map(|t| t.meta().total_bytes()).sum()
    }
}

impl Levels {
    /// Levels of these tables; those of level 0 are sorted here.
    pub(crate) fn new(mut l0: Vec<Arc<Table>>, sorted: Vec<Level>) -> Self {
        // A later flush holds later writes, so this is newest first for every key.
        l0.sort_by_key(|table| std::cmp::Reverse((table.meta().seq_max, table.meta().id)));
        let code = |key: &[u8]| code::code_at(key, 0);
        let l0_codes = l0
            .iter()
            .map(|table| (code(&table.meta().smallest), code(&table.meta().largest)))
            .collect();
        let has_ranges = l0.iter().any(|table| table.ranges().is_some())
            || sorted.iter().any(|level| !level.ranged.is_empty());
        let filled = sorted.iter().zip(0..).filter(|(level, _)| !level.tables.is_empty());
        let filled = filled.map(|(_, at)| at).collect();
        let metas = || l0.iter().chain(sorted.iter().flat_map(Level::tables)).map(|t| t.meta());
        let first_expiry_ms = metas().filter_map(|meta| Some(meta.expiries?.first_ms)).min();
        let ends = metas().filter_map(|meta| {
            let expiries = meta.expiries.filter(|expiries| expiries.entries == meta.entries)?;
            Some(expiries.last_ms())
        });
        let first_end_ms = first_expiry_ms.and_then(|_| ends.min());
        Self {
            l0_codes,
            filled,
            has_ranges,
            first_expiry_ms,
            first_end_ms,
            looked_through: Mutex::default(),
            l0,
            sorted,
        }
    }

    /// The first time at which an entry of a table expires, if any does.
    pub(crate) fn first_expiry_ms(&self) -> Option<Millis> {
        self.first_expiry_ms
    }

    /// The first time at which all entries of a table have expired, if they do.
    pub(crate) fn first_end_ms(&self) -> Option<Millis> {
        self.first_end_ms
    }

    /// Returns true if range tombstones may hide whole tables, as far as is known.
    pub(crate) fn is_to_be_looked_through(&self, snapshots: &[SeqNo]) -> bool {
        self.has_ranges && self.looked_through.lock().as_deref() != Some(snapshots)
    }

    /// Records that no table is hidden while there are these snapshots.
    pub(crate) fn record_looked_through(&self, snapshots: &[SeqNo]) {
        *self.looked_through.lock() = Some(snapshots.to_vec());
    }

    /// Returns true if any table has range tombstones.
    #[inline]
    pub(crate) fn has_ranges(&self) -> bool {
        self.has_ranges
    }

    /// Narrows `span` to keys around `key` for all of which the same range tombstone is the newest
    /// that a reader at `seq` sees, and records it there. Returns where it lies, if there is one:
    /// tables of level 0 count from 0, level 1 follows the last of them.
    pub(crate) fn narrow_to_fragment(
        &self,
        key: &[u8],
        seq: SeqNo,
        span: &mut RangeSpan,
    ) -> Option<usize> {
        self.shallowest(key, span, |ranges, span| ranges.narrow_to_fragment(key, seq, span))
    }

    /// As [`Ranges::narrow_to_run`], for the shallowest table with a range tombstone that covers
    /// the key. Returns where it lies, as [`Levels::narrow_to_fragment`] does.
    pub(crate) fn narrow_to_run(
        &self,
        key: &[u8],
        seq: SeqNo,
        span: &mut RangeSpan,
    ) -> Option<usize> {
        self.shallowest(key, span, |ranges, span| ranges.narrow_to_run(key, seq, span))
    }

    /// Calls `narrows` for the range tombstones of one table after another, the shallowest first,
    /// until it returns true.
    fn shallowest(
        &self,
        key: &[u8],
        span: &mut RangeSpan,
        narrows: impl Fn(&Ranges, &mut RangeSpan) -> bool,
    ) -> Option<usize> {
        for (at, table) in self.l0.iter().enumerate() {
            if table.ranges().is_some_and(|ranges| narrows(ranges, span)) {
                return Some(at);
            }
        }
        for (at, level) in self.sorted.iter().enumerate() {
            if level.ranges_at(key, span).is_some_and(|ranges| narrows(ranges, span)) {
                return Some(self.l0.len() + at);
            }
        }
        None
    }

    /// The greatest sequence number of a range tombstone; 0 if there is none.
    pub(crate) fn most_range(&self) -> SeqNo {
        let deeper = self.sorted.iter().flat_map(|level| &level.ranged);
        let ranges = self.l0.iter().chain(deeper).filter_map(|table| table.ranges());
        ranges.map(Ranges::most).max().unwrap_or(0)
    }

    /// Table `at` of level 0, if it can hold `key`, whose code is `code`.
    #[inline]
    fn l0_for(&self, at: usize, key: &[u8], code: u64) -> Option<&Arc<Table>> {
        let (low, high) = self.l0_codes[at];
        let table = &self.l0[at];
        let inside = low < code && code < high
            || low <= code
                && code <= high
                && *table.meta().smallest <= *key
                && *key <= *table.meta().largest;
        inside.then_some(table)
    }

    /// The largest number of candidates of a read: the tables of level 0, and one of each deeper
    /// level that has any.
    pub(crate) fn candidates(&self) -> usize {
        self.l0.len() + self.filled.len()
    }

    /// The candidate `at` of a read of `key`, whose code is `code`: the tables of level 0 first,
    /// then one of each deeper level that has any. `None` past the last candidate, `Some(None)` if
    /// this one cannot hold the key.
    #[inline]
    pub(crate) fn candidate(
        &self,
        at: usize,
        key: &[u8],
        code: u64,
    ) -> Option<Option<&Arc<Table>>> {
        match at.checked_sub(self.l0.len()) {
            None => Some(self.l0_for(at, key, code)),
            Some(at) => {
                let level = self.sorted.get(usize::from(*self.filled.get(at)?))?;
                Some(level.table_for(key))
            }
        }
    }

    /// The tables of `level`, in the level's order.
    pub(crate) fn tables(&self, level: usize) -> &[Arc<Table>] {
        match level.checked_sub(1) {
            None => &self.l0,
            Some(i) => self.sorted.get(i).map_or(&[], Level::tables),
        }
    }

    /// The number of levels up to the deepest that holds a table.
    pub(crate) fn depth(&self) -> usize {
        let deepest = self.sorted.iter().rposition(|level| !level.tables.is_empty());
        deepest.map_or(usize::from(!self.l0.is_empty()), |i| i + 2)
    }

    /// All tables with their level.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, &Arc<Table>)> {
        (0..=self.sorted.len()).flat_map(|i| self.tables(i).iter().map(move |t| (i, t)))
    }

    /// Returns true if a level deeper than `level` may hold an entry of a key in
    /// `smallest..=largest`.
    pub(crate) fn deeper_overlaps(&self, level: usize, smallest: &[u8], largest: &[u8]) -> bool {
        self.sorted.iter().skip(level).any(|l| !l.overlapping(smallest, largest).is_empty())
    }

    /// Returns true if a table may have an entry of this key, by the bounds of its keys; with
    /// `by_filters`, by their filters as well. O(tables of level 0 + levels log tables).
    pub(crate) fn may_hold(&self, key: &[u8], by_filters: bool) -> bool {
        let may = |table: &Arc<Table>| !by_filters || table.may_contain(KeyHash::of(key));
        let covers = |t: &&Arc<Table>| *t.meta().smallest <= *key && *t.meta().largest >= *key;
        self.l0.iter().filter(covers).any(may)
            || self.sorted.iter().filter_map(|level| level.table_for(key)).any(may)
    }

    /// These levels without the tables in `remove`, and with those in `add`.
    pub(crate) fn edited(&self, remove: &[FileId], add: &[(usize, Arc<Table>)]) -> Self {
        let deepest = add.iter().map(|(level, _)| *level).max().unwrap_or(0);
        let kept = |tables: &[Arc<Table>]| -> Vec<Arc<Table>> {
            tables.iter().filter(|t| !remove.contains(&t.meta().id)).cloned().collect()
        };
        let mut l0 = kept(&self.l0);
        l0.extend(add.iter().filter(|(level, _)| *level == 0).map(|(_, t)| Arc::clone(t)));
        let sorted = (1..=deepest.max(self.sorted.len()))
            .map(|level| {
                let changed = add.iter().any(|(l, _)| *l == level)
                    || self.tables(level).iter().any(|t| remove.contains(&t.meta().id));
                if !changed {
                    return self.sorted.get(level - 1).cloned().unwrap_or_default();
                }
                let mut tables = kept(self.tables(level));
                tables.extend(add.iter().filter(|(l, _)| *l == level).map(|(_, t)| Arc::clone(t)));
                Level::new(tables)
            })
            .collect();
        Self::new(l0, sorted)
    }
}
