//! The memtable: every write since the last flush, of all keyspaces, in order.
//!
//! The rest of the engine sees [`Memtable`] and [`MemCursor`] only. Behind them is one of two
//! structures: the index, which learns where keys are, or a skip list. A memtable never forgets: an
//! overwritten version stays until the flush decides what snapshots still need.
//!
//! Invariants:
//! 1. An entry's bytes lie in the log record that carried it; entries share the record.
//! 2. Entries are ordered by sub-tree, key, and newest first.
//! 3. Entries are inserted by one thread at a time, and never removed.

mod dead;
mod entry;
mod filter;
mod learned;
mod skiplist;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod trees;
mod version;

use self::{
    dead::DeadRuns, filter::Filter, learned::Learned, skiplist::SkipList, trees::Trees,
    version::Version,
};
pub(crate) use self::{
    dead::{Asked, Stretch},
    entry::MemEntry,
};
use crate::{
    log::{
        Lsn,
        batch::{BatchOp, BatchOps, RangeEnd},
        creation::Creation,
    },
    options::MemtableKind,
    ranges::{KeySpan, RangeLog, Ranges, Span, Tombstone},
    slice::Slice,
    sync::primitive::{Arc, AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering},
    types::{FileId, Kind, SeqNo, TreeId},
};

/// Where the log begins that a memtable needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogFloor {
    /// The oldest segment that holds an entry of the memtable.
    pub(crate) segment: FileId,
    /// The place of that segment's first byte.
    pub(crate) lsn: Lsn,
}

/// A place between the entries of a sub-tree.
#[derive(Clone, Copy)]
struct Limit<'a> {
    key: &'a [u8],
    seq: SeqNo,
    /// Whether the place is behind the key's version of this number, rather than before it.
    is_excluded: bool,
}

impl<'a> Limit<'a> {
    fn before(key: &'a [u8], seq: SeqNo) -> Self {
        Self { key, seq, is_excluded: false }
    }
}

/// What a cursor for one reader takes: of each key the newest version that the reader sees.
struct Pick {
    /// The reader's number.
    seq: SeqNo,
    /// The most keys to take.
    most: usize,
    /// Keys and versions that were looked at and not taken.
    passed: u64,
    /// There may be more: nothing was taken for so long that what there is was given first.
    is_cut: bool,
}

impl Pick {
    /// Returns true if what was taken is to be given before more is looked for.
    #[inline]
    fn is_enough(&mut self, taken: usize) -> bool {
        self.is_cut = taken > 0 && taken < self.most && self.passed >= PASSED_MAX;
        taken >= self.most || self.is_cut
    }
}

/// What a memtable is made of.
enum Entries {
    Learned(Learned),
    SkipList(Box<SkipList>),
}

/// Evaluates an expression for entries of either kind.
macro_rules! each {
    ($entries:expr, $it:ident => $then:expr) => {
        match $entries {
            Entries::Learned($it) => $then,
            Entries::SkipList($it) => $then,
        }
    };
}

/// What a new partition takes besides its name, here and among the sub-trees, about.
const CREATION_BYTES: usize = 512;

/// A cursor for one reader gives what it has taken once it has passed this many keys and versions
/// that the reader does not see: as many as it takes on average.
const PASSED_MAX: u64 = 64;

/// The most keys that are searched for what came in since a stretch was walked: more than walks
/// record at once, and few enough that no walk waits for it.
const SEARCHED_MAX: usize = 4096;

/// What the range tombstones of a sub-tree take at least.
const RANGE_LOG_BYTES: usize = 2 << 10;

/// A sorted set of entries that grows until it is sealed and flushed, and range tombstones beside them.
pub(crate) struct Memtable {
    entries: Entries,
    filter: Filter,
    /// Set with the first range tombstone, so that other reads look no further.
    has_ranges: AtomicBool,
    ranges: Trees<RangeLog>,
    /// Where walks found nothing living.
    dead: DeadRuns,
    /// Entries that walks stepped over, of this memtable and all others of the database.
    passed: Arc<AtomicU64>,
    /// Bytes of the filter, the records and the range tombstones.
    bytes: AtomicUsize,
    /// The least number of an entry; the greatest number there is while there is none.
    first_entry: AtomicU64,
    /// The greatest number of an entry.
    last_entry: AtomicU64,
    /// Of the range tombstones.
    last_range: AtomicU64,
    log: Option<LogFloor>,
    /// Partitions that came into being in the log records of these entries: the flush that gives the
    /// records up makes them durable.
    created: Mutex<Vec<Creation>>,
}

impl Memtable {
    /// An empty memtable whose entries are logged from `log` on; `None` for one that was replayed,
    /// which the log keeps until all that was replayed is flushed. It will be sealed at about
    /// `bytes_max`.
    pub(crate) fn new(kind: MemtableKind, log: Option<LogFloor>, bytes_max: u64) -> Self {
        let entries = match kind {
            MemtableKind::Learned => Entries::Learned(Learned::new()),
            MemtableKind::SkipList => Entries::SkipList(Box::new(SkipList::new())),
        };
        Self::of(entries, log, bytes_max)
    }

    /// An empty memtable that follows this one: where this one has learned, it knows from the start
    /// where keys will be, and it takes over what walks found out. No write is on its way.
    /// Otherwise as [`Memtable::new`].
    pub(crate) fn successor(&self, log: Option<LogFloor>, bytes_max: u64) -> Self {
        let entries = match &self.entries {
            Entries::Learned(before) => {
                let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
                Entries::Learned(Learned::after(before, bytes_max))
            }
            Entries::SkipList(_) => Entries::SkipList(Box::new(SkipList::new())),
        };
        let dead = self.dead.successor(self.last_seq());
        Self { dead, passed: Arc::clone(&self.passed), ..Self::of(entries, log, bytes_max) }
    }

    fn of(entries: Entries, log: Option<LogFloor>, bytes_max: u64) -> Self {
        let filter = Filter::new(bytes_max);
        Self {
            entries,
            bytes: AtomicUsize::new(filter.bytes()),
            filter,
            has_ranges: AtomicBool::new(false),
            ranges: Trees::new(),
            dead: DeadRuns::default(),
            passed: Arc::default(),
            first_entry: AtomicU64::new(SeqNo::MAX),
            last_entry: AtomicU64::new(0),
            last_range: AtomicU64::new(0),
            log,
            created: Mutex::default(),
        }
    }

    /// Where the log begins that this memtable needs.
    pub(crate) fn log(&self) -> Option<LogFloor> {
        self.log
    }

    /// Memory taken, in bytes; an estimate from above.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) + each!(&self.entries, entries => entries.bytes())
    }

    /// Whether nothing was inserted, and no partition created.
    pub(crate) fn is_empty(&self) -> bool {
        self.created.lock().is_empty()
            && !self.has_ranges.load(Ordering::Relaxed)
            && each!(&self.entries, entries => entries.is_empty())
    }

    /// The newest sequence number inserted; 0 when empty.
    pub(crate) fn last_seq(&self) -> SeqNo {
        self.last_entry_seq().max(self.last_range_seq())
    }

    /// The newest sequence number of an entry; 0 if there is none. Range tombstones do not count.
    pub(crate) fn last_entry_seq(&self) -> SeqNo {
        self.last_entry.load(Ordering::Relaxed)
    }

    /// Accounts for a record whose operations have been inserted, and no reader sees yet: what was
    /// found dead where it has values is not any more.
    #[inline]
    pub(crate) fn finish_record(&self, record: &Arc<[u8]>, operations: BatchOps<'_>) {
        // With `record_dead`: a walk that announces a stretch before this finds the values in it,
        // and one that does so after this is heard of here.
        self.bytes.fetch_add(record.len() + 32, Ordering::AcqRel);
        for operation in operations {
            if !self.dead.may_have_any() {
                return;
            }
            if operation.kind == Kind::Value && self.dead.may_have(operation.tree) {
                self.dead.revive(operation.tree, operation.key(record));
            }
        }
    }

    /// A stretch of keys of a sub-tree where a reader at `seq`, who reads this memtable and older
    /// ones, sees nothing. O(log stretches).
    #[inline]
    pub(crate) fn dead_stretch(
        &self,
        tree: TreeId,
        asked: Asked<'_>,
        seq: SeqNo,
    ) -> Option<Stretch> {
        self.dead.find(tree, asked, seq)
    }

    /// Takes note of a stretch in which a reader at `seq`, who reads this memtable and older ones,
    /// saw nothing living: later ones pass it at once. O(keys of the memtable in it that are in no
    /// other).
    pub(crate) fn record_dead(self: &Arc<Self>, tree: TreeId, stretch: Stretch, seq: SeqNo) {
        let Some(announcement) = self.dead.announce(tree, stretch, seq) else { return };
        self.bytes.fetch_add(0, Ordering::AcqRel);
        let newest = self.newest_of_dead(tree, &announcement.parts);
        self.dead.finish(tree, &announcement, newest);
    }

    /// The greatest number of a tombstone in these parts, which are all that the memtable has
    /// there; 0 if it has nothing. None if it has a value, or too much to be searched.
    fn newest_of_dead(self: &Arc<Self>, tree: TreeId, parts: &[KeySpan]) -> Option<SeqNo> {
        let (mut newest, mut searched) = (0, 0);
        for (from, to) in parts {
            let mut cursor = MemCursor::newest(Arc::clone(self), tree, SeqNo::MAX);
            cursor.seek(from, SeqNo::MAX);
            while let Some(entry) = cursor.entry() {
                if to.as_ref().is_some_and(|to| *entry.key() >= **to) {
                    break;
                }
                searched += 1;
                if entry.kind() != Kind::Tombstone || searched > SEARCHED_MAX {
                    return None;
                }
                newest = newest.max(entry.seq());
                cursor.advance();
            }
        }
        Some(newest)
    }

    /// To be called before a sub-tree gets entries of the number `seq` past the memtable, and
    /// before a reader can see them: what was found dead may not be any more.
    pub(crate) fn forget_dead(&self, tree: TreeId, seq: SeqNo) {
        self.dead.forget(tree, seq);
    }

    /// Counts entries that a walk stepped over.
    pub(crate) fn note_passed(&self, entries: u64) {
        self.passed.fetch_add(entries, Ordering::Relaxed);
    }

    /// The entries that walks of the database stepped over since it was opened.
    pub(crate) fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// Takes note of new partitions.
    pub(crate) fn add_created(&self, creations: &[Creation]) {
        let bytes: usize = creations.iter().map(|new| new.name.len() + CREATION_BYTES).sum();
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.created.lock().extend_from_slice(creations);
    }

    /// The partitions that were created in this memtable's time, in order.
    pub(crate) fn created(&self) -> Vec<Creation> {
        self.created.lock().clone()
    }

    /// Inserts one operation of `record`. O(log n).
    pub(crate) fn insert(&self, record: &Arc<[u8]>, operation: &BatchOp, seq: SeqNo) {
        if let Some(end) = operation.range {
            return self.insert_range(record, operation, end, seq);
        }
        if self.has_ranges.load(Ordering::Relaxed) {
            self.note_under_ranges(operation.tree, operation.key(record));
        }
        self.filter.add(operation.key(record));
        // One thread at a time is here.
        if seq < self.first_entry.load(Ordering::Relaxed) {
            self.first_entry.store(seq, Ordering::Relaxed);
        }
        self.last_entry.store(seq.max(self.last_entry.load(Ordering::Relaxed)), Ordering::Relaxed);
        each!(&self.entries, entries => entries.insert(record, operation, seq));
    }

    /// Takes note of an entry that is about to be inserted, if range tombstones lie over its key.
    #[cold]
    #[inline(never)]
    fn note_under_ranges(&self, tree: TreeId, key: &[u8]) {
        let bytes = self.range_log(tree).map_or(0, |log| log.note_entry(key));
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Inserts a range tombstone. O(log n) on average.
    #[cold]
    fn insert_range(&self, record: &Arc<[u8]>, operation: &BatchOp, end: RangeEnd, seq: SeqNo) {
        self.last_range.store(seq.max(self.last_range.load(Ordering::Relaxed)), Ordering::Relaxed);
        // No entry has a smaller number than the first.
        if seq == 0 {
            return;
        }
        let slice =
            |start, len| Slice::from_shared_range(Arc::clone(record), start, len).made_small();
        let to =
            (end == RangeEnd::Before).then(|| slice(operation.value_start, operation.value_len));
        let from = slice(operation.key_start, operation.key_len);
        let log = self.ranges.get(operation.tree).unwrap_or_else(|| {
            self.bytes.fetch_add(RANGE_LOG_BYTES, Ordering::Relaxed);
            self.ranges.add(operation.tree, RangeLog::new())
        });
        let bytes = log.add(Tombstone { from, to, seq });
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.has_ranges.store(true, Ordering::Release);
    }

    /// The range tombstones of a sub-tree, if there ever were any.
    #[inline]
    fn range_log(&self, tree: TreeId) -> Option<&RangeLog> {
        if !self.has_ranges.load(Ordering::Acquire) {
            return None;
        }
        self.ranges.get(tree)
    }

    /// Whether there are range tombstones of a sub-tree.
    pub(crate) fn has_ranges_of(&self, tree: TreeId) -> bool {
        self.range_log(tree).is_some()
    }

    /// The newest range tombstone over `key` that a reader at `seq` sees; 0 if none. One load where
    /// there are none, else O(log² n).
    #[inline]
    pub(crate) fn newest_range(&self, tree: TreeId, key: &[u8], seq: SeqNo) -> SeqNo {
        if self.has_ranges.load(Ordering::Acquire) { self.look_up_range(tree, key, seq) } else { 0 }
    }

    #[cold]
    #[inline(never)]
    fn look_up_range(&self, tree: TreeId, key: &[u8], seq: SeqNo) -> SeqNo {
        self.range_log(tree).map_or(0, |log| log.newest(key, seq))
    }

    /// As [`RangeLog::meet`].
    pub(crate) fn meet_ranges(
        &self,
        tree: TreeId,
        key: &[u8],
        seq: SeqNo,
        span: &mut Span,
    ) -> bool {
        self.range_log(tree).is_some_and(|log| log.meet(key, seq, span))
    }

    /// As [`RangeLog::meet_run`].
    pub(crate) fn meet_range_run(
        &self,
        tree: TreeId,
        key: &[u8],
        seq: SeqNo,
        span: &mut Span,
    ) -> bool {
        self.range_log(tree).is_some_and(|log| log.meet_run(key, seq, span))
    }

    /// The greatest number of a range tombstone; 0 if there is none.
    pub(crate) fn last_range_seq(&self) -> SeqNo {
        self.last_range.load(Ordering::Relaxed)
    }

    /// The greatest number of a range tombstone of a sub-tree; 0 if there is none.
    pub(crate) fn most_range(&self, tree: TreeId) -> SeqNo {
        self.range_log(tree).map_or(0, RangeLog::most)
    }

    /// As [`RangeLog::retained`].
    pub(crate) fn retained_ranges(&self, tree: TreeId, snapshots: &[SeqNo]) -> Ranges {
        self.range_log(tree).map(|log| log.retained(snapshots)).unwrap_or_default()
    }

    /// Asks for what a read of the key touches first.
    #[inline]
    pub(crate) fn prefetch(&self, key: &[u8]) {
        self.filter.prefetch(key);
    }

    /// The newest version of `key` that is not newer than `seq`. O(log n).
    #[inline(always)]
    pub(crate) fn get(&self, tree: TreeId, key: &[u8], seq: SeqNo) -> Option<MemEntry> {
        if !self.filter.may_contain(key) {
            return None;
        }
        self.get_entry(tree, key, seq)
    }

    /// [`Memtable::get`] behind the filter.
    #[inline(never)]
    fn get_entry(&self, tree: TreeId, key: &[u8], seq: SeqNo) -> Option<MemEntry> {
        each!(&self.entries, entries => entries.get(tree, key, seq))
    }

    /// Returns true if a reader at `seq` may see an entry of `tree` that lies here. O(log n).
    pub(crate) fn may_show(&self, tree: TreeId, seq: SeqNo) -> bool {
        // What the reader sees was inserted before it got its number, and so was the least one
        // noted.
        self.first_entry.load(Ordering::Relaxed) <= seq && self.has_entries_of(tree)
    }

    /// Returns true if any entry or range tombstone of `tree` lies here. O(log n). For tests.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn contains_tree(&self, tree: TreeId) -> bool {
        self.has_entries_of(tree) || self.has_ranges_of(tree)
    }

    /// Whether any entry of `tree` lies here. O(log n).
    pub(crate) fn has_entries_of(&self, tree: TreeId) -> bool {
        each!(&self.entries, entries => entries.contains_tree(tree))
    }

    /// At most so many entries of `tree` are here.
    pub(crate) fn entries_at_most(&self, tree: TreeId) -> u64 {
        each!(&self.entries, entries => entries.entries_at_most(tree))
    }

    /// How many versions of keys are here, of all sub-trees, to be drawn from; none if entries of
    /// this kind of memtable have no numbers.
    pub(crate) fn versions(&self) -> Option<u64> {
        match &self.entries {
            Entries::Learned(entries) => Some(entries.versions()),
            Entries::SkipList(_) => None,
        }
    }

    /// The version that was inserted after `nth` others, if it is the newest value of its key that
    /// a reader at `seq` sees here: its sub-tree, its key and its number. O(log n).
    pub(crate) fn newest_at(&self, nth: u64, seq: SeqNo) -> Option<(TreeId, &[u8], SeqNo)> {
        match &self.entries {
            Entries::Learned(entries) => {
                let version = entries.newest_at(nth, seq)?;
                Some((version.tree(), version.key(), version.seq()))
            }
            Entries::SkipList(_) => None,
        }
    }

    /// The sub-trees that have entries or range tombstones, ascending.
    pub(crate) fn trees(&self) -> Vec<TreeId> {
        let mut trees = each!(&self.entries, entries => entries.trees());
        if self.has_ranges.load(Ordering::Acquire) {
            trees.extend(self.ranges.all().iter().map(|(tree, _)| *tree));
            trees.sort_unstable();
            trees.dedup();
        }
        trees
    }
}

/// How many entries a cursor takes at first, and at most, in one go.
const REFILL_MIN: usize = 8;
const REFILL_MAX: usize = 256;

/// The entries that a cursor has taken: clones of what the skip list has, or words of versions, which
/// live as long as the memtable.
enum Run {
    Cloned(Vec<MemEntry>),
    Versions(Vec<u64>),
}

impl Run {
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

    /// The write that made this version.
    #[inline]
    pub(crate) fn seq(self) -> SeqNo {
        of!(self, entry => entry.seq())
    }

    /// Value or tombstone.
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

/// A position among one sub-tree's entries of a memtable, moving one way.
///
/// Entries are taken in runs that grow, because an iterator cannot outlive the pinned epoch, and
/// searching again for every entry would cost O(log n) each.
pub(crate) struct MemCursor {
    table: Arc<Memtable>,
    tree: TreeId,
    run: Run,
    at: usize,
    /// Entries to take at once the next time, and after a seek.
    refill: usize,
    first: usize,
    forward: bool,
    /// There may be entries after those of the run.
    has_more: bool,
    /// The number of the one reader whose versions are wanted; all versions without.
    reader: Option<SeqNo>,
    /// Keys and versions that were looked at and that the reader does not see.
    passed: u64,
}

impl MemCursor {
    /// A cursor over all versions of all keys, that stands nowhere yet.
    pub(crate) fn new(table: Arc<Memtable>, tree: TreeId) -> Self {
        let run = match &table.entries {
            Entries::Learned(_) => Run::Versions(Vec::new()),
            Entries::SkipList(_) => Run::Cloned(Vec::new()),
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
    /// included. It steps over no other version: however often a key was written, it costs O(log
    /// versions).
    pub(crate) fn newest(table: Arc<Memtable>, tree: TreeId, seq: SeqNo) -> Self {
        Self { reader: Some(seq), ..Self::new(table, tree) }
    }

    /// The keys and versions that were looked at for a reader who does not see them.
    pub(crate) fn passed(&self) -> u64 {
        self.passed
    }

    /// Says how many entries will be wanted after a seek, about.
    pub(crate) fn expect(&mut self, entries: usize) {
        // One more, so that the end of the run is not met.
        self.first = entries.saturating_add(1).clamp(REFILL_MIN, REFILL_MAX);
    }

    fn entry_at(&self, at: usize) -> Option<EntryRef<'_>> {
        match (&self.run, &self.table.entries) {
            (Run::Cloned(run), _) => run.get(at).map(EntryRef::Cloned),
            (Run::Versions(run), Entries::Learned(entries)) => {
                run.get(at).map(|word| EntryRef::Version(entries.version(*word)))
            }
            // A cursor's run is of the kind of its memtable.
            (Run::Versions(_), Entries::SkipList(_)) => None,
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

    /// Moves to the last entry of the sub-tree.
    pub(crate) fn seek_to_last(&mut self) {
        self.start(false, None);
    }

    fn start(&mut self, forward: bool, limit: Option<Limit<'_>>) {
        self.forward = forward;
        self.refill = self.first;
        self.fill(limit);
    }

    /// Moves behind the last entry, in the direction of the last seek.
    pub(crate) fn end(&mut self) {
        self.run = Run::Cloned(Vec::new());
        self.at = 0;
        self.has_more = false;
    }

    /// The newest sequence number of an entry of the memtable.
    pub(crate) fn last_entry_seq(&self) -> SeqNo {
        self.table.last_entry_seq()
    }

    /// Where the memtable has tombstones over the keys of `span`: the next key among these, in the
    /// direction of the last seek, that was written after one. `None` if the cursor is on no entry,
    /// or if newer versions of its key are still to come: going backward the oldest one is first.
    pub(crate) fn next_written_over(&self, span: &Span) -> Option<Option<Box<[u8]>>> {
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

    /// Takes the next run, behind the last entry of this one.
    #[cold]
    fn go_on(&mut self) {
        self.refill = (self.refill * 4).min(REFILL_MAX);
        let run = std::mem::replace(&mut self.run, Run::Cloned(Vec::new()));
        let last = Self { run, table: Arc::clone(&self.table), ..*self };
        let Some(entry) = last.entry_at(last.run.len() - 1) else { return };
        let limit = Limit { key: entry.key(), seq: entry.seq(), is_excluded: self.forward };
        self.fill(Some(limit));
    }

    /// Takes the next run; `limit` is where it begins.
    fn fill(&mut self, limit: Option<Limit<'_>>) {
        let Self { tree, refill, forward, .. } = *self;
        self.at = 0;
        if let Some(seq) = self.reader {
            return self.fill_newest(limit, seq);
        }
        self.run = match &self.table.entries {
            Entries::Learned(entries) => Run::Versions(match limit {
                Some(from) if forward => entries.read(tree, from, refill),
                before => entries.read_back(tree, before, refill),
            }),
            Entries::SkipList(entries) => Run::Cloned(match limit {
                Some(from) if forward => entries.read(tree, from, refill),
                before => entries.read_back(tree, before, refill),
            }),
        };
        self.has_more = self.run.len() >= refill;
    }

    /// As [`MemCursor::fill`], for a reader at `seq`.
    fn fill_newest(&mut self, limit: Option<Limit<'_>>, seq: SeqNo) {
        let Self { tree, refill, forward, .. } = *self;
        let mut pick = Pick { seq, most: refill, passed: 0, is_cut: false };
        self.run = match &self.table.entries {
            Entries::Learned(entries) => Run::Versions(match limit {
                Some(from) if forward => entries.read_newest(tree, from, &mut pick),
                before => entries.read_newest_back(tree, before, &mut pick),
            }),
            Entries::SkipList(entries) => Run::Cloned(match limit {
                Some(from) if forward => entries.read_newest(tree, from, &mut pick),
                before => entries.read_newest_back(tree, before, &mut pick),
            }),
        };
        self.passed += pick.passed;
        self.has_more = self.run.len() >= refill || pick.is_cut;
    }
}
