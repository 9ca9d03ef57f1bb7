//! A position among one LSM tree's entries of a memtable, and the entries it has taken.
//!
//! For one reader a cursor gives one version of each key, and counts what else it looked at. It
//! must not know of sealing, flushing or dead ranges; a walk does.

use rhumb_sync::primitive::Arc;

use super::{Entries, Memtable, entry::MemEntry, version::Version};
use crate::{
    ranges::RangeSpan,
    slice::Slice,
    types::{Kind, SeqNo, TreeId},
};

/// A position between the entries of an LSM tree.
#[derive(Clone, Copy)]
pub(super) struct Limit<'a> {
    pub(super) key: &'a [u8],
    pub(super) seq: SeqNo,
    /// True if the position is after the key's version with this sequence number, false if before
    /// it.
    pub(super) is_excluded: bool,
}

impl<'a> Limit<'a> {
    pub(super) fn before(key: &'a [u8], seq: SeqNo) -> Self {
        Self { key, seq, is_excluded: false }
    }
}

/// The selection of a cursor for one reader: of each key the newest version that the reader sees.
pub(super) struct Pick {
    /// The reader's sequence number.
    pub(super) seq: SeqNo,
    /// The most keys to take.
    pub(super) most: usize,
    /// The number of keys and versions that were looked at and not taken.
    pub(super) passed: u64,
    /// True if there may be more: nothing was taken for so long that what there is must be given
    /// first.
    pub(super) is_cut: bool,
}

impl Pick {
    /// Returns true if what was taken must be given before more is looked for.
    #[inline]
    pub(super) fn is_enough(&mut self, taken: usize) -> bool {
        self.is_cut = taken > 0 && taken < self.most && self.passed >= PASSED_MAX;
        taken >= self.most || self.is_cut
    }
}

/// The number of keys and versions invisible to its reader that a cursor passes before it gives
/// what it has taken. It takes about as many entries at a time on average.
const PASSED_MAX: u64 = 64;

/// The number of entries that a cursor takes at once at first, unless it is told how many will be
/// wanted.
const REFILL_MIN: usize = 8;

/// The largest number of entries that a cursor takes at once.
const REFILL_MAX: usize = 256;

/// The entries that a cursor has taken: clones of entries of the skip list, or words of versions,
/// which live as long as the memtable.
enum CursorRun {
    Cloned(Vec<MemEntry>),
    Versions(Vec<u64>),
}

impl CursorRun {
    fn len(&self) -> usize {
        match self {
            Self::Cloned(run) => run.len(),
            Self::Versions(run) => run.len(),
        }
    }
}

/// An entry under a cursor.
#[derive(Clone, Copy)]
pub(crate) enum EntryRef<'a> {
    Cloned(&'a MemEntry),
    Version(&'a Version),
}

/// Evaluates an expression for an entry of either kind.
macro_rules! of {
    ($entry:expr, $it:ident => $then:expr) => {
        match $entry {
            EntryRef::Cloned($it) => $then,
            EntryRef::Version($it) => $then,
        }
    };
}

impl<'a> EntryRef<'a> {
    /// The user key.
    #[inline]
    pub(crate) fn key(self) -> &'a [u8] {
        of!(self, entry => entry.key())
    }

    /// The sequence number of the write that made this version.
    #[inline]
    pub(crate) fn seq(self) -> SeqNo {
        of!(self, entry => entry.seq())
    }

    /// Returns whether this is a value or a tombstone.
    #[inline]
    pub(crate) fn kind(self) -> Kind {
        of!(self, entry => entry.kind())
    }

    /// The value; empty for a tombstone.
    #[inline]
    pub(crate) fn value(self) -> &'a [u8] {
        of!(self, entry => entry.value())
    }

    /// The value, shared with the record it came in.
    #[inline]
    pub(crate) fn value_slice(self) -> Slice {
        of!(self, entry => entry.value_slice())
    }
}

/// A position among one LSM tree's entries of a memtable, moving in one direction.
///
/// Entries are taken in runs that grow: an iterator cannot outlive the pinned epoch, and searching
/// again for every entry would cost O(log n) each.
pub(crate) struct MemCursor {
    table: Arc<Memtable>,
    tree: TreeId,
    run: CursorRun,
    at: usize,
    /// The number of entries to take at once the next time.
    refill: usize,
    /// The number of entries to take at once after a seek.
    first: usize,
    forward: bool,
    /// True if there may be entries after those of the run.
    has_more: bool,
    /// The sequence number of the one reader whose versions are wanted; `None` if all versions are.
    reader: Option<SeqNo>,
    /// The number of keys and versions that were looked at and that the reader does not see.
    passed: u64,
}

impl MemCursor {
    /// A cursor over all versions of all keys, that stands nowhere yet.
    pub(crate) fn new(table: Arc<Memtable>, tree: TreeId) -> Self {
        let run = match &table.entries {
            Entries::Learned(_) => CursorRun::Versions(Vec::new()),
            Entries::SkipList(_) => CursorRun::Cloned(Vec::new()),
        };
        Self {
            table,
            tree,
            run,
            at: 0,
            refill: REFILL_MIN,
            first: REFILL_MIN,
            forward: true,
            has_more: false,
            reader: None,
            passed: 0,
        }
    }

    /// A cursor over the newest version of each key that a reader at `seq` sees, tombstones
    /// included. It steps over no other version: however often a key was written, finding it costs
    /// O(log versions).
    pub(crate) fn newest(table: Arc<Memtable>, tree: TreeId, seq: SeqNo) -> Self {
        Self { reader: Some(seq), ..Self::new(table, tree) }
    }

    /// The number of keys and versions that were looked at and that the reader does not see.
    pub(crate) fn passed(&self) -> u64 {
        self.passed
    }

    /// Says that about `entries` entries will be wanted after a seek.
    pub(crate) fn hint_len(&mut self, entries: usize) {
        // One more, so that the walk does not reach the end of the run.
        self.first = entries.saturating_add(1).clamp(REFILL_MIN, REFILL_MAX);
    }

    fn entry_at(&self, at: usize) -> Option<EntryRef<'_>> {
        match (&self.run, &self.table.entries) {
            (CursorRun::Cloned(run), _) => run.get(at).map(EntryRef::Cloned),
            (CursorRun::Versions(run), Entries::Learned(entries)) => {
                run.get(at).map(|word| EntryRef::Version(entries.version(*word)))
            }
            // A cursor's run is of the kind of its memtable.
            (CursorRun::Versions(_), Entries::SkipList(_)) => None,
        }
    }

    /// The entry under the cursor.
    #[inline]
    pub(crate) fn entry(&self) -> Option<EntryRef<'_>> {
        self.entry_at(self.at)
    }

    /// Moves to the first entry at or after (`key`, `seq`).
    pub(crate) fn seek(&mut self, key: &[u8], seq: SeqNo) {
        self.start(true, Some(Limit::before(key, seq)));
    }

    /// Moves to the last entry before (`key`, `seq`).
    pub(crate) fn seek_before(&mut self, key: &[u8], seq: SeqNo) {
        self.start(false, Some(Limit::before(key, seq)));
    }

    /// Moves to the last entry of the LSM tree.
    pub(crate) fn seek_to_last(&mut self) {
        self.start(false, None);
    }

    fn start(&mut self, forward: bool, limit: Option<Limit<'_>>) {
        self.forward = forward;
        self.refill = self.first;
        self.fill(limit);
    }

    /// Moves after the last entry, in the direction of the last seek.
    pub(crate) fn end(&mut self) {
        self.run = CursorRun::Cloned(Vec::new());
        self.at = 0;
        self.has_more = false;
    }

    /// The newest sequence number of an entry of the memtable.
    pub(crate) fn last_entry_seq(&self) -> SeqNo {
        self.table.last_entry_seq()
    }

    /// If the memtable has tombstones over the keys of `span`: the next of these keys, in the
    /// direction of the last seek, that was written after a tombstone. `None` if the cursor is on
    /// no entry, or if newer versions of its key are still to come: a backward cursor meets the
    /// oldest version first.
    pub(crate) fn next_written_over(&self, span: &RangeSpan) -> Option<Option<Box<[u8]>>> {
        let (key, log) = (self.entry()?.key(), self.table.range_log(self.tree)?);
        if !self.forward && log.is_written_over(key) {
            return None;
        }
        let next = log.next_written_over(key, self.forward);
        Some(next.filter(|next| match self.forward {
            true => span.to.as_ref().is_none_or(|to| **next < **to),
            false => span.from.as_ref().is_none_or(|from| **next >= **from),
        }))
    }

    /// Moves one entry on, in the direction of the last seek.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.at += 1;
        if self.at >= self.run.len() && self.has_more {
            self.go_on();
        }
    }

    /// Takes the next run, which begins after the last entry of this one.
    #[cold]
    fn go_on(&mut self) {
        self.refill = (self.refill * 4).min(REFILL_MAX);
        let run = std::mem::replace(&mut self.run, CursorRun::Cloned(Vec::new()));
        let last = Self { run, table: Arc::clone(&self.table), ..*self };
        let Some(entry) = last.entry_at(last.run.len() - 1) else { return };
        let limit = Limit { key: entry.key(), seq: entry.seq(), is_excluded: self.forward };
        self.fill(Some(limit));
    }

    /// Takes the next run, which begins at `limit`.
    fn fill(&mut self, limit: Option<Limit<'_>>) {
        let Self { tree, refill, forward, .. } = *self;
        self.at = 0;
        if let Some(seq) = self.reader {
            return self.fill_newest(limit, seq);
        }
        self.run = match &self.table.entries {
            Entries::Learned(entries) => CursorRun::Versions(match limit {
                Some(from) if forward => entries.read(tree, from, refill),
                before => entries.read_back(tree, before, refill),
            }),
            Entries::SkipList(entries) => CursorRun::Cloned(match limit {
                Some(from) if forward => entries.read(tree, from, refill),
                before => entries.read_back(tree, before, refill),
            }),
        };
        self.has_more = self.run.len() >= refill;
    }

    /// Like [`MemCursor::fill`], for a reader at `seq`.
    fn fill_newest(&mut self, limit: Option<Limit<'_>>, seq: SeqNo) {
        let Self { tree, refill, forward, .. } = *self;
        let mut pick = Pick { seq, most: refill, passed: 0, is_cut: false };
        self.run = match &self.table.entries {
            Entries::Learned(entries) => CursorRun::Versions(match limit {
                Some(from) if forward => entries.read_newest(tree, from, &mut pick),
                before => entries.read_newest_back(tree, before, &mut pick),
            }),
            Entries::SkipList(entries) => CursorRun::Cloned(match limit {
                Some(from) if forward => entries.read_newest(tree, from, &mut pick),
                before => entries.read_newest_back(tree, before, &mut pick),
            }),
        };
        self.passed += pick.passed;
        self.has_more = self.run.len() >= refill || pick.is_cut;
    }
}
