//! The memtable: every write since the last flush, of all keyspaces, in order.
//!
//! The rest of the engine sees [`Memtable`] and [`MemCursor`] only. Under them is one of two
//! structures: the index, which learns where keys are, or a skip list. A memtable never forgets: an
//! overwritten version stays until the flush decides what snapshots still need.
//!
//! Its parts: entries and their sequence numbers here, cursors in `cursor.rs`, range tombstones in
//! `removed.rs`, what walks found out in `walked.rs` and `dead.rs`.
//!
//! Invariants:
//! 1. An entry's bytes lie in the log record that carried it; entries share the record.
//! 2. Entries are ordered by LSM tree, by key, and from the newest to the oldest.
//! 3. Entries are inserted by one thread at a time, and never removed.

mod cursor;
mod dead;
mod entry;
mod filter;
mod learned;
mod removed;
mod skiplist;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod trees;
mod version;
mod view;
mod walked;

use rhumb_sync::{
    mapping::Gauge,
    primitive::{Arc, AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering},
    record::Record,
};

use self::{
    cursor::{Limit, Pick},
    dead::DeadRanges,
    filter::MemFilter,
    learned::Learned,
    skiplist::SkipList,
    trees::TreeSlots,
};
use crate::{
    expiry::{Millis, Stamp},
    log::{Lsn, batch::BatchOp, creation::Creation},
    options::MemtableKind,
    ranges::RangeLog,
    types::{FileId, Kind, SeqNo, TreeId},
};

pub(crate) use self::{
    cursor::{EntryRef, MemCursor},
    dead::{Asked, DeadRange},
    entry::MemEntry,
    view::MemView,
};

/// The start of the part of the log that a memtable needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogFloor {
    /// The oldest segment that holds an entry of the memtable.
    pub(crate) segment: FileId,
    /// The position of that segment's first byte.
    pub(crate) lsn: Lsn,
}

/// The structure that holds a memtable's entries.
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

/// About how many bytes a new partition takes besides its name, here and among the LSM trees.
const CREATION_BYTES: usize = 512;

/// A sorted set of entries that grows until it is sealed and flushed, and range tombstones beside
/// them.
pub(crate) struct Memtable {
    entries: Entries,
    filter: MemFilter,
    /// Set with the first range tombstone. Until then reads do not look at `ranges`.
    has_ranges: AtomicBool,
    ranges: TreeSlots<RangeLog>,
    /// Key ranges in which walks found nothing living.
    dead: DeadRanges,
    /// The number of entries that walks stepped over, in this memtable and all others of the
    /// database.
    passed: Arc<AtomicU64>,
    /// Bytes of the filter, the records and the range tombstones.
    bytes: AtomicUsize,
    /// The least sequence number of an entry; the greatest possible number if there is no entry.
    first_entry: AtomicU64,
    /// The greatest sequence number of an entry.
    last_entry: AtomicU64,
    /// The greatest sequence number of a range tombstone.
    last_range: AtomicU64,
    /// Bytes of the keys and values of entries that expire.
    expiring_bytes: AtomicU64,
    /// The latest time at which one of them expires.
    last_expiry_ms: AtomicU64,
    /// The LSM trees that have such entries.
    expiring: TreeSlots<()>,
    log: Option<LogFloor>,
    /// The partitions that were created in the log records of these entries. The flush that frees
    /// the records makes the partitions durable.
    created: Mutex<Vec<Creation>>,
}

impl Memtable {
    /// An empty memtable whose entries are logged from `log` on. `log` is `None` for a memtable
    /// that was replayed: the log keeps its records until all that was replayed is flushed. The
    /// memtable will be sealed at about `bytes_max`. `gauge` counts its memory.
    pub(crate) fn new(
        kind: MemtableKind,
        log: Option<LogFloor>,
        bytes_max: u64,
        gauge: &Gauge,
    ) -> Self {
        let entries = match kind {
            MemtableKind::Learned => Entries::Learned(Learned::new(gauge)),
            MemtableKind::SkipList => Entries::SkipList(Box::new(SkipList::new())),
        };
        Self::of(entries, log, bytes_max)
    }

    /// An empty memtable that follows this one. If this one has learned, the new one knows from the
    /// start where keys will be; it also takes over what walks found out. No write may be in
    /// progress. Otherwise like [`Memtable::new`].
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
        let filter = MemFilter::new(bytes_max);
        Self {
            entries,
            bytes: AtomicUsize::new(filter.bytes()),
            filter,
            has_ranges: AtomicBool::new(false),
            ranges: TreeSlots::new(),
            dead: DeadRanges::default(),
            passed: Arc::default(),
            first_entry: AtomicU64::new(SeqNo::MAX),
            last_entry: AtomicU64::new(0),
            last_range: AtomicU64::new(0),
            expiring_bytes: AtomicU64::new(0),
            last_expiry_ms: AtomicU64::new(0),
            expiring: TreeSlots::new(),
            log,
            created: Mutex::default(),
        }
    }

    /// The start of the part of the log that this memtable needs.
    pub(crate) fn log(&self) -> Option<LogFloor> {
        self.log
    }

    /// The memory taken, in bytes: an upper estimate.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) + each!(&self.entries, entries => entries.bytes())
    }

    /// Returns true if nothing was inserted and no partition created.
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

    /// Records new partitions.
    pub(crate) fn add_created(&self, creations: &[Creation]) {
        let bytes: usize = creations.iter().map(|new| new.name.len() + CREATION_BYTES).sum();
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.created.lock().extend_from_slice(creations);
    }

    /// The partitions that were created while this memtable took the writes, in order.
    pub(crate) fn created(&self) -> Vec<Creation> {
        self.created.lock().clone()
    }

    /// Inserts one operation of `record`. O(log n).
    pub(crate) fn insert(&self, record: &Record, operation: &BatchOp, seq: SeqNo) {
        if let Some(end) = operation.range {
            return self.insert_range(record, operation, end, seq);
        }
        if self.has_ranges.load(Ordering::Relaxed) {
            self.record_under_ranges(operation.tree, operation.key(record));
        }
        if operation.kind == Kind::Expiring {
            self.record_expiring(operation, record);
        }
        self.filter.add(operation.key(record));
        // Only one thread at a time runs this.
        if seq < self.first_entry.load(Ordering::Relaxed) {
            self.first_entry.store(seq, Ordering::Relaxed);
        }
        self.last_entry.store(seq.max(self.last_entry.load(Ordering::Relaxed)), Ordering::Relaxed);
        each!(&self.entries, entries => entries.insert(record, operation, seq));
    }

    /// Accounts for an entry that expires.
    #[cold]
    fn record_expiring(&self, operation: &BatchOp, record: &Record) {
        let Some((stamp, _)) = Stamp::split(operation.value(record)) else { return };
        let bytes = u64::from(operation.key_len) + u64::from(operation.value_len);
        self.expiring_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.last_expiry_ms.fetch_max(stamp.at_ms, Ordering::Relaxed);
        if self.expiring.get(operation.tree).is_none() {
            self.expiring.add(operation.tree, ());
        }
    }

    /// Bytes of the keys and values of entries that expire, and the time from which on none of them
    /// is seen; `None` if no entry expires.
    pub(crate) fn expiring(&self) -> Option<(u64, Millis)> {
        let bytes = self.expiring_bytes.load(Ordering::Relaxed);
        (bytes > 0).then(|| (bytes, self.last_expiry_ms.load(Ordering::Relaxed)))
    }

    /// Returns true if an entry of the LSM tree expires. O(1).
    pub(crate) fn has_expiring_of(&self, tree: TreeId) -> bool {
        self.expiring.get(tree).is_some()
    }

    /// Prefetches what a read of the key touches first.
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

    /// [`Memtable::get`] without the filter.
    #[inline(never)]
    fn get_entry(&self, tree: TreeId, key: &[u8], seq: SeqNo) -> Option<MemEntry> {
        each!(&self.entries, entries => entries.get(tree, key, seq))
    }

    /// Returns true if a reader at `seq` may see an entry of `tree` in this memtable. O(log n).
    pub(crate) fn may_show(&self, tree: TreeId, seq: SeqNo) -> bool {
        // What the reader sees was inserted before the reader got its sequence number, and by then
        // the least number was recorded as well.
        self.first_entry.load(Ordering::Relaxed) <= seq && self.has_entries_of(tree)
    }

    /// Returns true if this memtable holds any entry or range tombstone of `tree`. O(log n). For
    /// tests.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn contains_tree(&self, tree: TreeId) -> bool {
        self.has_entries_of(tree) || self.has_ranges_of(tree)
    }

    /// Returns true if this memtable holds any entry of `tree`. O(log n).
    pub(crate) fn has_entries_of(&self, tree: TreeId) -> bool {
        each!(&self.entries, entries => entries.contains_tree(tree))
    }

    /// An upper bound on the number of entries of `tree` in this memtable.
    pub(crate) fn entries_at_most(&self, tree: TreeId) -> u64 {
        each!(&self.entries, entries => entries.entries_at_most(tree))
    }

    /// The number of versions of keys in this memtable, of all LSM trees, for drawing samples;
    /// `None` if this kind of memtable does not number its entries.
    pub(crate) fn versions(&self) -> Option<u64> {
        match &self.entries {
            Entries::Learned(entries) => Some(entries.versions()),
            Entries::SkipList(_) => None,
        }
    }

    /// The version that was inserted after `nth` others, if it is the newest value of its key that
    /// a reader at `seq` sees in this memtable: its LSM tree, its key and its sequence number.
    /// O(log n).
    pub(crate) fn newest_at(&self, nth: u64, seq: SeqNo) -> Option<(TreeId, &[u8], SeqNo)> {
        match &self.entries {
            Entries::Learned(entries) => {
                let version = entries.newest_at(nth, seq)?;
                Some((version.tree(), version.key(), version.seq()))
            }
            Entries::SkipList(_) => None,
        }
    }

    /// The LSM trees that have entries or range tombstones, ascending.
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
