//! Sorted sources of entries: a memtable, a table, or a whole level of tables.
//!
//! A source moves in one direction, the one it was started in. It does no I/O: if it needs a block
//! that is not in memory, it says which, and goes on when it gets the block.

use rhumb_sync::primitive::Arc;

use crate::{
    error::Result,
    keys::successor,
    memtable::{EntryRef, MemCursor},
    plan::BlockRequest,
    ranges::RangeSpan,
    slice::{BlockRef, Slice},
    table::{Access, DataSize, Step, Table, TableCursor},
    types::{Kind, SeqNo},
    version::levels::Levels,
};

/// The start of a walk, and its direction.
#[derive(Clone, Debug)]
pub(crate) enum Start {
    /// Forward from the first entry.
    First,
    /// Forward from the first entry at or after the key's version with this sequence number.
    At(Box<[u8]>, SeqNo),
    /// Backward from the last entry.
    Last,
    /// Backward from the last entry before the key's version with this sequence number.
    Before(Box<[u8]>, SeqNo),
}

impl Start {
    /// Returns true if the walk goes to larger keys.
    pub(crate) fn is_forward(&self) -> bool {
        matches!(self, Self::First | Self::At(..))
    }
}

/// How far a source went past keys that a range tombstone covers.
#[must_use]
pub(crate) enum Skip {
    /// The source has not moved: the next entry may be newer than the tombstone.
    Nothing,
    /// The source went to an entry that may be newer.
    Part(Step),
    /// The source went past all of the keys, or to an entry that may be newer.
    All(Step),
}

/// A sorted source.
pub(crate) enum Source {
    Mem(MemCursor),
    Table(TableCursor),
    Level(LevelCursor),
}

impl Source {
    /// Says that the walk will want about `entries` entries.
    pub(crate) fn hint_len(&mut self, entries: usize) {
        if let Self::Mem(cursor) = self {
            cursor.hint_len(entries);
        }
    }

    /// The size of the source's tables.
    pub(crate) fn extent(&self) -> DataSize {
        match self {
            Self::Mem(_) => DataSize::default(),
            Self::Table(cursor) => DataSize::of(cursor.table()),
            Self::Level(cursor) => cursor.levels.sorted[cursor.level - 1].extent(),
        }
    }

    /// Goes to the first entry of the walk.
    pub(crate) fn start(&mut self, start: &Start) -> Result<Step> {
        match self {
            Self::Mem(cursor) => {
                match start {
                    Start::First => cursor.seek(&[], SeqNo::MAX),
                    Start::At(key, seq) => cursor.seek(key, *seq),
                    Start::Last => cursor.seek_to_last(),
                    Start::Before(key, seq) => cursor.seek_before(key, *seq),
                }
                Ok(Step::Done(()))
            }
            Self::Table(cursor) => start_table(cursor, start),
            Self::Level(cursor) => cursor.start(start),
        }
    }

    /// Goes to the first entry of the walk if a range tombstone covers the keys of `span`, in which
    /// the walk starts: goes past them, unless the source may hold something newer. The source lies
    /// at `depth`.
    pub(crate) fn start_past(
        &mut self,
        start: &Start,
        span: &RangeSpan,
        depth: u32,
    ) -> Result<Skip> {
        match self {
            Self::Level(cursor) => cursor.start_past(start, span, depth),
            _ => self.skip(span, depth, start.is_forward()),
        }
    }

    /// Goes past the keys of `span`, which a range tombstone covers, in the direction of the walk,
    /// as far as the source is known to hold nothing newer than the tombstone. The source lies at
    /// `depth`; if it is deeper than the tombstone, everything in it is older.
    pub(crate) fn skip(&mut self, span: &RangeSpan, depth: u32, forward: bool) -> Result<Skip> {
        match self {
            Self::Mem(cursor) => Ok(skip_in_memtable(cursor, span, depth, forward)),
            Self::Table(cursor) => {
                if !is_older(cursor.table(), span, depth) {
                    return skip_run(cursor, span, forward);
                }
                let Some(start) = past(span, forward) else {
                    cursor.end();
                    return Ok(Skip::All(Step::Done(())));
                };
                start_table(cursor, &start).map(Skip::All)
            }
            Self::Level(cursor) => cursor.skip(span, depth, forward),
        }
    }

    /// Goes to the next entry of the walk.
    #[inline]
    pub(crate) fn advance(&mut self, forward: bool) -> Result<Step> {
        match self {
            Self::Mem(cursor) => {
                cursor.advance();
                Ok(Step::Done(()))
            }
            Self::Table(cursor) => {
                if forward {
                    cursor.next()
                } else {
                    cursor.prev()
                }
            }
            Self::Level(cursor) => cursor.advance(forward),
        }
    }

    /// Goes past versions of the key under the walk: see [`TableCursor::pass_versions`].
    pub(crate) fn pass_versions(&mut self, seq: Option<SeqNo>, forward: bool) -> Result<Step> {
        match self {
            // A memtable cursor shows one version of each key.
            Self::Mem(cursor) => {
                cursor.advance();
                Ok(Step::Done(()))
            }
            Self::Table(cursor) => cursor.pass_versions(seq, forward),
            Self::Level(cursor) => cursor.pass_versions(seq, forward),
        }
    }

    /// The number of keys and versions that the source looked at and did not give.
    pub(crate) fn passed(&self) -> u64 {
        match self {
            Self::Mem(cursor) => cursor.passed(),
            Self::Table(_) | Self::Level(_) => 0,
        }
    }

    /// Takes the block that was asked for and goes on.
    pub(crate) fn resume(&mut self, block: BlockRef, forward: bool) -> Result<Step> {
        match self {
            Self::Mem(_) => Ok(Step::Done(())),
            Self::Table(cursor) => cursor.resume(block),
            Self::Level(cursor) => cursor.resume(block, forward),
        }
    }

    /// The request for `block` of the table that the source stands in.
    pub(crate) fn request(&self, block: u32) -> Option<BlockRequest> {
        self.table().map(|table| BlockRequest { table: Arc::clone(table), block })
    }

    /// The cursor that asks for blocks, unless the source is a memtable or exhausted.
    pub(crate) fn table_cursor(&mut self) -> Option<&mut TableCursor> {
        match self {
            Self::Mem(_) => None,
            Self::Table(cursor) => Some(cursor),
            Self::Level(level) => level.cursor.as_mut(),
        }
    }

    /// The table under the cursor, unless it is a memtable.
    #[inline]
    pub(crate) fn table(&self) -> Option<&Arc<Table>> {
        match self {
            Self::Mem(_) => None,
            Self::Table(cursor) => Some(cursor.table()),
            Self::Level(cursor) => cursor.cursor.as_ref().map(TableCursor::table),
        }
    }

    /// The cursor inside a table, unless the source is a memtable or exhausted.
    #[inline]
    fn in_table(&self) -> Option<&TableCursor> {
        match self {
            Self::Mem(_) => None,
            Self::Table(cursor) => Some(cursor),
            Self::Level(cursor) => cursor.cursor.as_ref(),
        }
    }

    /// Returns true if the source stands on an entry.
    #[inline]
    pub(crate) fn is_valid(&self) -> bool {
        match self {
            Self::Mem(cursor) => cursor.entry().is_some(),
            _ => self.in_table().is_some_and(TableCursor::is_valid),
        }
    }

    /// The user key under the cursor; empty where there is none.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        match self {
            Self::Mem(cursor) => cursor.entry().map_or(&[], EntryRef::key),
            _ => self.in_table().map_or(&[], TableCursor::key),
        }
    }

    /// The sequence number under the cursor; 0 where there is none.
    #[inline]
    pub(crate) fn seq(&self) -> SeqNo {
        match self {
            Self::Mem(cursor) => cursor.entry().map_or(0, EntryRef::seq),
            _ => self.in_table().map_or(0, TableCursor::seq),
        }
    }

    /// The kind under the cursor.
    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Mem(cursor) => cursor.entry().map_or(Kind::Tombstone, EntryRef::kind),
            _ => self.in_table().map_or(Kind::Tombstone, TableCursor::kind),
        }
    }

    /// The bytes of the value under the cursor; for a large value, its pointer.
    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        match self {
            Self::Mem(cursor) => cursor.entry().map_or(&[], EntryRef::value),
            _ => self.in_table().map_or(&[], TableCursor::value),
        }
    }

    /// The value under the cursor, sharing the memory it is stored in.
    #[inline]
    pub(crate) fn value_slice(&self) -> Slice {
        match self {
            Self::Mem(cursor) => {
                cursor.entry().map_or_else(|| Slice::copy_from(&[]), |e| e.value_slice())
            }
            _ => self.in_table().map_or_else(|| Slice::copy_from(&[]), TableCursor::value_slice),
        }
    }
}

/// The start of a walk that goes on after a span; `None` if nothing comes after it.
fn past(span: &RangeSpan, forward: bool) -> Option<Start> {
    if forward {
        return span.to.as_ref().map(|to| Start::At((**to).into(), SeqNo::MAX));
    }
    span.from.as_ref().map(|from| Start::Before((**from).into(), SeqNo::MAX))
}

/// Returns true if no entry that a table at `depth` has of the keys of `span` is newer than their
/// range tombstone. No entry has the sequence number of a tombstone, so if that is the greatest
/// number in the table, it belongs to the tombstone itself.
fn is_older(table: &Table, span: &RangeSpan, depth: u32) -> bool {
    let most = if depth > span.depth { span.deeper_to.max(span.seq) } else { span.seq };
    table.meta().seq_max <= most
}

/// [`Source::skip`] in a memtable.
fn skip_in_memtable(cursor: &mut MemCursor, span: &RangeSpan, depth: u32, forward: bool) -> Skip {
    if depth <= span.depth && cursor.last_entry_seq() >= span.seq {
        // Only the memtable that holds the tombstone knows which of the covered keys were written
        // later.
        match cursor.next_written_over(span).filter(|_| depth == span.depth) {
            None => return Skip::Nothing,
            Some(None) => {}
            Some(Some(key)) => {
                match forward {
                    true => cursor.seek(&key, SeqNo::MAX),
                    false => cursor.seek_before(&successor(&key), SeqNo::MAX),
                }
                return Skip::Part(Step::Done(()));
            }
        }
    }
    match past(span, forward) {
        Some(Start::At(key, seq)) => cursor.seek(&key, seq),
        Some(Start::Before(key, seq)) => cursor.seek_before(&key, seq),
        _ => cursor.end(),
    }
    Skip::All(Step::Done(()))
}

/// [`Source::skip`] in a table that holds the tombstone itself: goes past a run of its entries that
/// are known to be older.
fn skip_run(cursor: &mut TableCursor, span: &RangeSpan, forward: bool) -> Result<Skip> {
    let table = Arc::clone(cursor.table());
    let run = table.hidden_runs().filter(|_| cursor.is_valid());
    let Some((first, last)) = run.and_then(|runs| runs.find(cursor.key(), span.seq)) else {
        return Ok(Skip::Nothing);
    };
    let step = match (past(span, forward), forward) {
        (Some(Start::At(to, _)), true) if *to <= *last => cursor.seek(&to, SeqNo::MAX)?,
        (Some(Start::Before(from, _)), false) if *from >= *first => {
            cursor.seek_before(&from, SeqNo::MAX)?
        }
        // After all versions of the last key, or before all of the first.
        (_, true) => cursor.seek(&successor(last), SeqNo::MAX)?,
        (_, false) => cursor.seek_before(first, SeqNo::MAX)?,
    };
    Ok(Skip::Part(step))
}

fn start_table(cursor: &mut TableCursor, start: &Start) -> Result<Step> {
    match start {
        Start::First => cursor.first(),
        Start::At(key, seq) => cursor.seek(key, *seq),
        Start::Last => cursor.last(),
        Start::Before(key, seq) => cursor.seek_before(key, *seq),
    }
}

/// A walk through the tables of one sorted level, one after another.
pub(crate) struct LevelCursor {
    levels: Arc<Levels>,
    level: usize,
    access: Access,
    at: usize,
    cursor: Option<TableCursor>,
}

impl LevelCursor {
    /// A walk through level `level` (1 or deeper).
    pub(crate) fn new(levels: Arc<Levels>, level: usize, access: Access) -> Self {
        Self { levels, level, access, at: 0, cursor: None }
    }

    fn open(&mut self, at: usize) -> Option<&mut TableCursor> {
        let table = self.levels.tables(self.level).get(at).map(Arc::clone);
        self.at = at;
        self.cursor = match (self.cursor.take(), table) {
            (_, None) => None,
            (Some(before), Some(table)) => Some(before.following(table)),
            (None, Some(table)) => Some(TableCursor::new(table, self.access)),
        };
        self.cursor.as_mut()
    }

    /// The table in which a walk begins; beyond the last if there is none.
    fn table_index(&self, start: &Start) -> usize {
        let level = &self.levels.sorted[self.level - 1];
        let count = level.tables().len();
        match start {
            Start::First => 0,
            Start::At(key, _) => level.table_at_or_after(key),
            Start::Last => count.wrapping_sub(1),
            // The table at or after the key may begin with it; the walk goes on to the one before.
            Start::Before(key, _) => {
                let at = level.table_at_or_after(key);
                if at == count { count.wrapping_sub(1) } else { at }
            }
        }
    }

    /// Like [`Source::start_past`].
    fn start_past(&mut self, start: &Start, span: &RangeSpan, depth: u32) -> Result<Skip> {
        self.at = self.table_index(start);
        self.skip(span, depth, start.is_forward())
    }

    /// Like [`Source::skip`]: whole tables are passed by their bounds.
    fn skip(&mut self, span: &RangeSpan, depth: u32, forward: bool) -> Result<Skip> {
        let tables = self.levels.tables(self.level);
        let is_older = |table: &Arc<Table>| is_older(table, span, depth);
        let is_inside = |table: &Arc<Table>| match (forward, &span.from, &span.to) {
            (true, _, to) => to.as_ref().is_none_or(|to| *table.meta().largest < **to),
            (false, from, _) => from.as_ref().is_none_or(|from| *table.meta().smallest >= **from),
        };
        let step = |at: usize| if forward { at + 1 } else { at.wrapping_sub(1) };
        let mut at = self.at;
        if !tables.get(at).is_some_and(is_older) {
            return match &mut self.cursor {
                Some(cursor) => {
                    let skip = skip_run(cursor, span, forward)?;
                    self.finish_skip(skip, forward)
                }
                None => Ok(Skip::Nothing),
            };
        }
        while tables.get(at).is_some_and(|table| is_older(table) && is_inside(table)) {
            at = step(at);
        }
        let start = match (tables.get(at).filter(|table| is_older(table)), forward) {
            (Some(_), _) => past(span, forward),
            (None, true) => Some(Start::First),
            (None, false) => Some(Start::Last),
        };
        if at != self.at || self.cursor.is_none() {
            self.open(at);
        }
        let (Some(cursor), Some(start)) = (self.cursor.as_mut(), start) else {
            return Ok(Skip::All(Step::Done(())));
        };
        let step = start_table(cursor, &start)?;
        self.go_on_to_entry(step, forward).map(Skip::All)
    }

    /// [`LevelCursor::go_on_to_entry`] after a skip within a table.
    fn finish_skip(&mut self, skip: Skip, forward: bool) -> Result<Skip> {
        match skip {
            Skip::Nothing => Ok(Skip::Nothing),
            Skip::Part(step) => self.go_on_to_entry(step, forward).map(Skip::Part),
            Skip::All(step) => self.go_on_to_entry(step, forward).map(Skip::All),
        }
    }

    fn start(&mut self, start: &Start) -> Result<Step> {
        let at = self.table_index(start);
        let Some(cursor) = self.open(at) else { return Ok(Step::Done(())) };
        let step = start_table(cursor, start)?;
        self.go_on_to_entry(step, start.is_forward())
    }

    #[inline]
    fn advance(&mut self, forward: bool) -> Result<Step> {
        let Some(cursor) = self.cursor.as_mut() else { return Ok(Step::Done(())) };
        let step = if forward { cursor.next()? } else { cursor.prev()? };
        if matches!(step, Step::Done(())) && cursor.is_valid() {
            return Ok(step);
        }
        self.go_on_to_entry(step, forward)
    }

    /// Like [`Source::pass_versions`].
    fn pass_versions(&mut self, seq: Option<SeqNo>, forward: bool) -> Result<Step> {
        let Some(cursor) = self.cursor.as_mut() else { return Ok(Step::Done(())) };
        let step = cursor.pass_versions(seq, forward)?;
        self.go_on_to_entry(step, forward)
    }

    fn resume(&mut self, block: BlockRef, forward: bool) -> Result<Step> {
        let Some(cursor) = self.cursor.as_mut() else { return Ok(Step::Done(())) };
        let step = cursor.resume(block)?;
        self.go_on_to_entry(step, forward)
    }

    /// Moves on to the neighbouring tables until it finds an entry or needs a block.
    fn go_on_to_entry(&mut self, mut step: Step, forward: bool) -> Result<Step> {
        loop {
            if matches!(step, Step::Need(_)) {
                return Ok(step);
            }
            match &self.cursor {
                Some(cursor) if !cursor.is_valid() => {}
                _ => return Ok(step),
            }
            let at = if forward { self.at + 1 } else { self.at.wrapping_sub(1) };
            let Some(cursor) = self.open(at) else { return Ok(Step::Done(())) };
            step = if forward { cursor.first()? } else { cursor.last()? };
        }
    }
}
