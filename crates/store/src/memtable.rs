//! The memtable: every write since the last flush, of all keyspaces, in order.
//!
//! The rest of the engine sees [`Memtable`] and [`MemCursor`] only; the structure behind them is a
//! lock-free skip list, and may be replaced. A memtable never forgets: an overwritten version stays
//! until the flush decides what snapshots still need.
//!
//! Invariants:
//! 1. An entry's bytes lie in the log record that carried it; entries share the record.
//! 2. Entries are ordered by sub-tree, key, and newest first.
//! 3. Entries are inserted by one thread at a time per sequence number, and never removed.

mod filter;

use std::{borrow::Borrow, cmp::Ordering as Order, ops::Bound};

use crossbeam_skiplist::{SkipList, base::Entry};
use rhumb_model::code::code_at;

use self::filter::Filter;
use crate::{
    log::{Lsn, batch::BatchOp},
    slice::Slice,
    sync::{
        epoch,
        primitive::{Arc, AtomicU64, AtomicUsize, Ordering},
    },
    types::{FileId, Kind, SeqNo, TreeId},
};

/// What a memtable spends on an entry beyond the bytes of its record: the skip-list node with its
/// tower, and the allocator's rounding. Measured, not exact.
const ENTRY_OVERHEAD_BYTES: usize = 128;

/// Bytes of a key that lie in the skip list's own node.
const HEAD_BYTES: u32 = 16;

/// What most comparisons need of an entry.
#[derive(Clone, Copy)]
struct Place {
    /// The first sixteen bytes of the key as two numbers of the same order, so that most
    /// comparisons touch nothing beyond the node.
    head: [u64; 2],
    seq: SeqNo,
    tree: TreeId,
    key_len: u32,
}

impl Place {
    #[inline]
    fn new(tree: TreeId, key: &[u8], seq: SeqNo) -> Self {
        let head = [code_at(key, 0), code_at(key, 8)];
        Self { head, seq, tree, key_len: key.len() as u32 }
    }
}

/// One version of one key.
#[derive(Clone)]
pub(crate) struct MemEntry {
    record: Arc<[u8]>,
    place: Place,
    key_start: u32,
    value_start: u32,
    value_len: u32,
    kind: Kind,
}

impl MemEntry {
    /// The sub-tree that the key belongs to.
    pub(crate) fn tree(&self) -> TreeId {
        self.place.tree
    }

    /// The user key.
    pub(crate) fn key(&self) -> &[u8] {
        &self.record[self.key_start as usize..][..self.place.key_len as usize]
    }

    /// The write that made this version.
    pub(crate) fn seq(&self) -> SeqNo {
        self.place.seq
    }

    /// Value or tombstone.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The value; empty for a tombstone.
    pub(crate) fn value(&self) -> &[u8] {
        &self.record[self.value_start as usize..][..self.value_len as usize]
    }

    /// The value, shared with the record it came in.
    pub(crate) fn value_slice(&self) -> Slice {
        Slice::from_shared_range(Arc::clone(&self.record), self.value_start, self.value_len)
    }
}

/// Where in the order an entry stands: what searching needs of an entry, without owning one.
trait Position {
    fn place(&self) -> &Place;
    fn key(&self) -> &[u8];
}

impl Position for MemEntry {
    #[inline]
    fn place(&self) -> &Place {
        &self.place
    }
    #[inline]
    fn key(&self) -> &[u8] {
        self.key()
    }
}

struct Target<'a> {
    place: Place,
    key: &'a [u8],
}

impl<'a> Target<'a> {
    fn new(tree: TreeId, key: &'a [u8], seq: SeqNo) -> Self {
        Self { place: Place::new(tree, key, seq), key }
    }
}

impl Position for Target<'_> {
    #[inline]
    fn place(&self) -> &Place {
        &self.place
    }
    #[inline]
    fn key(&self) -> &[u8] {
        self.key
    }
}

/// Sub-tree, key, and newest first.
#[inline]
fn compare<A: Position + ?Sized, B: Position + ?Sized>(a: &A, b: &B) -> Order {
    let (x, y) = (a.place(), b.place());
    (x.tree, x.head)
        .cmp(&(y.tree, y.head))
        .then_with(|| {
            if x.key_len.max(y.key_len) <= HEAD_BYTES {
                // The heads are the keys, and zeros behind them: the shorter one is the prefix.
                x.key_len.cmp(&y.key_len)
            } else {
                a.key().cmp(b.key())
            }
        })
        .then_with(|| y.seq.cmp(&x.seq))
}

impl Ord for dyn Position + '_ {
    #[inline]
    fn cmp(&self, other: &Self) -> Order {
        compare(self, other)
    }
}

impl PartialOrd for dyn Position + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Position + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Order::Equal
    }
}

impl Eq for dyn Position + '_ {}

impl<'a> Borrow<dyn Position + 'a> for MemEntry {
    #[inline]
    fn borrow(&self) -> &(dyn Position + 'a) {
        self
    }
}

impl Ord for MemEntry {
    #[inline]
    fn cmp(&self, other: &Self) -> Order {
        compare(self, other)
    }
}

impl PartialOrd for MemEntry {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl PartialEq for MemEntry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Order::Equal
    }
}

impl Eq for MemEntry {}

/// Where the log begins that a memtable needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogFloor {
    /// The oldest segment that holds an entry of the memtable.
    pub(crate) segment: FileId,
    /// The place of that segment's first byte.
    pub(crate) lsn: Lsn,
}

/// A sorted set of entries that grows until it is sealed and flushed.
pub(crate) struct Memtable {
    entries: SkipList<MemEntry, ()>,
    filter: Filter,
    bytes: AtomicUsize,
    last_seq: AtomicU64,
    log: Option<LogFloor>,
}

impl Memtable {
    /// An empty memtable whose entries are logged from `log` on; `None` for one that was replayed,
    /// which the log keeps until all that was replayed is flushed. It will be sealed at about
    /// `bytes_max`.
    pub(crate) fn new(log: Option<LogFloor>, bytes_max: u64) -> Self {
        let filter = Filter::new(bytes_max);
        Self {
            entries: SkipList::new(epoch::collector()),
            bytes: AtomicUsize::new(filter.bytes()),
            filter,
            last_seq: AtomicU64::new(0),
            log,
        }
    }

    /// Where the log begins that this memtable needs.
    pub(crate) fn log(&self) -> Option<LogFloor> {
        self.log
    }

    /// Memory taken, in bytes; an estimate from above.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether nothing was inserted.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The newest sequence number inserted; 0 when empty.
    pub(crate) fn last_seq(&self) -> SeqNo {
        self.last_seq.load(Ordering::Relaxed)
    }

    /// Accounts for a record whose operations are about to be inserted.
    pub(crate) fn charge_record(&self, record: &Arc<[u8]>) {
        self.bytes.fetch_add(record.len() + 32, Ordering::Relaxed);
    }

    /// Inserts one operation of `record`. O(log n).
    pub(crate) fn insert(&self, record: &Arc<[u8]>, operation: &BatchOp, seq: SeqNo) {
        let key = operation.key(record);
        let entry = MemEntry {
            place: Place::new(operation.tree, key, seq),
            record: Arc::clone(record),
            key_start: operation.key_start,
            value_start: operation.value_start,
            value_len: operation.value_len,
            kind: operation.kind,
        };
        self.filter.add(key);
        self.bytes.fetch_add(ENTRY_OVERHEAD_BYTES, Ordering::Relaxed);
        self.last_seq.fetch_max(seq, Ordering::Relaxed);
        let guard = epoch::pin();
        self.entries.insert(entry, (), &guard).release(&guard);
    }

    /// The newest version of `key` that is not newer than `seq`. O(log n).
    pub(crate) fn get(&self, tree: TreeId, key: &[u8], seq: SeqNo) -> Option<MemEntry> {
        if self.is_empty() || !self.filter.may_contain(key) {
            return None;
        }
        let target = Target::new(tree, key, seq);
        let guard = epoch::pin();
        let found = self.entries.lower_bound(Bound::Included(&target as &dyn Position), &guard)?;
        let entry = found.key();
        (entry.tree() == tree && entry.key() == key).then(|| entry.clone())
    }

    /// Whether any entry of `tree` lies here. O(log n).
    pub(crate) fn contains_tree(&self, tree: TreeId) -> bool {
        let target = Target::new(tree, &[], SeqNo::MAX);
        let guard = epoch::pin();
        let first = self.entries.lower_bound(Bound::Included(&target as &dyn Position), &guard);
        first.is_some_and(|entry| entry.key().tree() == tree)
    }

    /// All entries, in order. Taken in runs, so that nothing is pinned while the caller works.
    pub(crate) fn iter(&self) -> impl Iterator<Item = MemEntry> + '_ {
        let mut last: Option<MemEntry> = None;
        let mut run = Vec::new().into_iter();
        std::iter::from_fn(move || {
            if run.len() == 0 {
                let guard = epoch::pin();
                let from = match &last {
                    None => Bound::Unbounded,
                    Some(last) => Bound::Excluded(last as &dyn Position),
                };
                let range = (from, Bound::Unbounded);
                let entries = self.entries.range::<dyn Position, _>(range, &guard);
                let next: Vec<MemEntry> =
                    entries.take(REFILL_MAX).map(|entry| entry.key().clone()).collect();
                last = next.last().cloned();
                run = next.into_iter();
            }
            run.next()
        })
    }
}

/// How many entries a cursor takes from the skip list at first, and at most, in one go.
const REFILL_MIN: usize = 8;
const REFILL_MAX: usize = 256;

/// A position among one sub-tree's entries of a memtable, moving one way.
///
/// Entries are taken in runs that grow, because a skip list's own iterator cannot outlive the
/// pinned epoch, and searching again for every entry would cost O(log n) each.
pub(crate) struct MemCursor {
    table: Arc<Memtable>,
    tree: TreeId,
    run: Vec<MemEntry>,
    at: usize,
    refill: usize,
    forward: bool,
}

impl MemCursor {
    /// A cursor that stands nowhere yet.
    pub(crate) fn new(table: Arc<Memtable>, tree: TreeId) -> Self {
        Self { table, tree, run: Vec::new(), at: 0, refill: REFILL_MIN, forward: true }
    }

    /// The entry under the cursor.
    pub(crate) fn entry(&self) -> Option<&MemEntry> {
        self.run.get(self.at)
    }

    /// Moves to the first entry at or after (`key`, `seq`).
    pub(crate) fn seek(&mut self, key: &[u8], seq: SeqNo) {
        let target = Target::new(self.tree, key, seq);
        self.forward = true;
        self.refill = REFILL_MIN;
        let (table, guard) = (Arc::clone(&self.table), epoch::pin());
        let from = (Bound::Included(&target as &dyn Position), Bound::Unbounded);
        self.fill(table.entries.range::<dyn Position, _>(from, &guard));
    }

    /// Moves to the last entry before (`key`, `seq`).
    pub(crate) fn seek_before(&mut self, key: &[u8], seq: SeqNo) {
        self.start_back(&Target::new(self.tree, key, seq));
    }

    /// Moves to the last entry of the sub-tree.
    pub(crate) fn seek_to_last(&mut self) {
        // The place before the first entry of the next sub-tree.
        self.start_back(&Target::new(self.tree.saturating_add(1), &[], SeqNo::MAX));
    }

    fn start_back(&mut self, end: &Target<'_>) {
        self.forward = false;
        self.refill = REFILL_MIN;
        let (table, guard) = (Arc::clone(&self.table), epoch::pin());
        let before = (Bound::Unbounded, Bound::Excluded(end as &dyn Position));
        self.fill(table.entries.range::<dyn Position, _>(before, &guard).rev());
    }

    /// Moves one entry on, in the direction of the last seek.
    pub(crate) fn advance(&mut self) {
        self.at += 1;
        if self.at < self.run.len() || self.run.len() < self.refill {
            return;
        }
        let Some(last) = self.run.pop() else { return };
        self.refill = (self.refill * 4).min(REFILL_MAX);
        let (table, guard) = (Arc::clone(&self.table), epoch::pin());
        let place = Bound::Excluded(&last as &dyn Position);
        if self.forward {
            let rest = (place, Bound::Unbounded);
            self.fill(table.entries.range::<dyn Position, _>(rest, &guard));
        } else {
            let rest = (Bound::Unbounded, place);
            self.fill(table.entries.range::<dyn Position, _>(rest, &guard).rev());
        }
    }

    fn fill<'a: 'g, 'g>(&mut self, entries: impl Iterator<Item = Entry<'a, 'g, MemEntry, ()>>) {
        let tree = self.tree;
        self.run.clear();
        self.at = 0;
        self.run.extend(
            entries
                .take(self.refill)
                .map(|entry| entry.key().clone())
                .take_while(|entry| entry.tree() == tree),
        );
    }
}
