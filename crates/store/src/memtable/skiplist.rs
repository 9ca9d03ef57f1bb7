//! A memtable's entries in a lock-free skip list: the structure that the learned one is compared
//! with.
//!
//! Thread safety: any number of threads may read and insert. Entries are never removed, except that
//! a newer entry replaces one of the same position.
//!
//! The list has an epoch of its own, that of the crate that it comes from. All else has the one of
//! `rhumb_sync::epoch`, where a pin is a store without a fence.

use std::{borrow::Borrow, cmp::Ordering as Order, ops::Bound};

use crossbeam_epoch as epoch;
use crossbeam_skiplist::{SkipList as List, base::Entry};
use rhumb_sync::{
    primitive::{AtomicUsize, Ordering},
    record::Record,
};

use super::{
    Limit, Pick,
    entry::{MemEntry, SortKey},
};
use crate::{
    log::batch::BatchOp,
    types::{SeqNo, TreeId},
};

/// The bytes that an entry takes beyond those of its record: the node with its tower, and the
/// allocator's rounding. Measured, not exact.
const ENTRY_BYTES: usize = 128;

/// The number of versions of one key that are stepped over one by one before the next key is
/// searched for. A search costs about as much as eight steps.
const STEPS_MAX: u32 = 8;

/// The number of bytes of a key that are stored in the list's own node.
const HEAD_BYTES: u32 = 16;

/// The position of an entry in the order: what searching needs of an entry, without owning one.
trait Position {
    fn sort_key(&self) -> &SortKey;
    fn key(&self) -> &[u8];
}

impl Position for MemEntry {
    #[inline]
    fn sort_key(&self) -> &SortKey {
        &self.sort_key
    }
    #[inline]
    fn key(&self) -> &[u8] {
        self.key()
    }
}

struct SearchKey<'a> {
    sort_key: SortKey,
    key: &'a [u8],
}

impl<'a> SearchKey<'a> {
    fn new(tree: TreeId, key: &'a [u8], seq: SeqNo) -> Self {
        Self { sort_key: SortKey::new(tree, key, seq), key }
    }
}

impl Position for SearchKey<'_> {
    #[inline]
    fn sort_key(&self) -> &SortKey {
        &self.sort_key
    }
    #[inline]
    fn key(&self) -> &[u8] {
        self.key
    }
}

/// Compares by LSM tree, then by key, then the newest first.
#[inline]
fn compare<A: Position + ?Sized, B: Position + ?Sized>(a: &A, b: &B) -> Order {
    let (x, y) = (a.sort_key(), b.sort_key());
    (x.tree, x.head)
        .cmp(&(y.tree, y.head))
        .then_with(|| {
            if x.key_len.max(y.key_len) <= HEAD_BYTES {
                // The heads are the whole keys, padded with zeros: the shorter key is a prefix of
                // the other.
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

/// Entries in a skip list.
pub(super) struct SkipList {
    entries: List<MemEntry, ()>,
    bytes: AtomicUsize,
}

impl SkipList {
    pub(super) fn new() -> Self {
        Self { entries: List::new(epoch::default_collector().clone()), bytes: AtomicUsize::new(0) }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn insert(&self, record: &Record, operation: &BatchOp, seq: SeqNo) {
        let entry = MemEntry::new(record.clone(), operation, seq);
        self.bytes.fetch_add(ENTRY_BYTES, Ordering::Relaxed);
        let guard = epoch::pin();
        self.entries.insert(entry, (), &guard).release(&guard);
    }

    pub(super) fn get(&self, tree: TreeId, key: &[u8], seq: SeqNo) -> Option<MemEntry> {
        let target = SearchKey::new(tree, key, seq);
        let guard = epoch::pin();
        let found = self.entries.lower_bound(Bound::Included(&target as &dyn Position), &guard)?;
        let entry = found.key();
        (entry.tree() == tree && entry.key() == key).then(|| entry.clone())
    }

    pub(super) fn contains_tree(&self, tree: TreeId) -> bool {
        let target = SearchKey::new(tree, &[], SeqNo::MAX);
        let guard = epoch::pin();
        let first = self.entries.lower_bound(Bound::Included(&target as &dyn Position), &guard);
        first.is_some_and(|entry| entry.key().tree() == tree)
    }

    /// An upper bound: the number of entries of all LSM trees, if this LSM tree has any.
    pub(super) fn entries_at_most(&self, tree: TreeId) -> u64 {
        if self.contains_tree(tree) { self.entries.len() as u64 } else { 0 }
    }

    /// The LSM trees that have entries, ascending.
    pub(super) fn trees(&self) -> Vec<TreeId> {
        let mut trees = Vec::new();
        let guard = epoch::pin();
        let mut next = Some(0);
        while let Some(tree) = next {
            let target = SearchKey::new(tree, &[], SeqNo::MAX);
            let from = Bound::Included(&target as &dyn Position);
            let Some(entry) = self.entries.lower_bound(from, &guard) else { break };
            trees.push(entry.key().tree());
            next = entry.key().tree().checked_add(1);
        }
        trees
    }

    /// The LSM tree's entries from `from` on, at most `most`.
    pub(super) fn read(&self, tree: TreeId, from: Limit<'_>, most: usize) -> Vec<MemEntry> {
        let guard = epoch::pin();
        let target = SearchKey::new(tree, from.key, from.seq);
        let bound = match from.is_excluded {
            true => Bound::Excluded(&target as &dyn Position),
            false => Bound::Included(&target as &dyn Position),
        };
        let range = (bound, Bound::Unbounded);
        take(tree, self.entries.range::<dyn Position, _>(range, &guard), most)
    }

    /// The LSM tree's entries before `before`, the last first, at most `most`; without `before`,
    /// the last ones of all.
    pub(super) fn read_back(
        &self,
        tree: TreeId,
        before: Option<Limit<'_>>,
        most: usize,
    ) -> Vec<MemEntry> {
        let guard = epoch::pin();
        let target = match before {
            Some(before) => Some(SearchKey::new(tree, before.key, before.seq)),
            // The position before the first entry of the next LSM tree.
            None => tree.checked_add(1).map(|next| SearchKey::new(next, &[], SeqNo::MAX)),
        };
        let end = target.as_ref().map(|target| Bound::Excluded(target as &dyn Position));
        let range = (Bound::Unbounded, end.unwrap_or(Bound::Unbounded));
        take(tree, self.entries.range::<dyn Position, _>(range, &guard).rev(), most)
    }

    /// Like [`SkipList::read`], but of each key only what `pick` takes. Steps over at most
    /// [`STEPS_MAX`] versions on either side of it.
    pub(super) fn read_newest(
        &self,
        tree: TreeId,
        from: Limit<'_>,
        pick: &mut Pick,
    ) -> Vec<MemEntry> {
        let guard = epoch::pin();
        let mut run: Vec<MemEntry> = Vec::new();
        let target = SearchKey::new(tree, from.key, from.seq);
        let mut next = match from.is_excluded {
            true => self.entries.lower_bound(Bound::Excluded(&target as &dyn Position), &guard),
            false => self.entries.lower_bound(Bound::Included(&target as &dyn Position), &guard),
        };
        let mut steps = 0;
        while let Some(at) = next.filter(|at| at.key().tree() == tree && !pick.is_enough(run.len()))
        {
            let entry = at.key();
            let is_older = match run.last() {
                Some(taken) => taken.key() == entry.key(),
                // A position within a key's versions is after the version that was taken of the
                // key.
                None => from.is_excluded && entry.key() == from.key,
            };
            if !is_older && entry.sort_key.seq <= pick.seq {
                run.push(entry.clone());
                steps = 0;
                next = at.next();
                continue;
            }
            (pick.passed, steps) = (pick.passed + 1, steps + 1);
            if steps < STEPS_MAX {
                next = at.next();
                continue;
            }
            steps = 0;
            let seq = if is_older { 0 } else { pick.seq };
            let target = SearchKey::new(tree, entry.key(), seq);
            let bound = match is_older {
                true => Bound::Excluded(&target as &dyn Position),
                false => Bound::Included(&target as &dyn Position),
            };
            next = self.entries.lower_bound(bound, &guard);
        }
        run
    }

    /// Like [`SkipList::read_back`], but of each key only what `pick` takes. Costs two searches per
    /// key, as a step back in the list is itself a search.
    pub(super) fn read_newest_back(
        &self,
        tree: TreeId,
        before: Option<Limit<'_>>,
        pick: &mut Pick,
    ) -> Vec<MemEntry> {
        let guard = epoch::pin();
        let mut run: Vec<MemEntry> = Vec::new();
        let target = match before {
            Some(before) => Some(SearchKey::new(tree, before.key, before.seq)),
            // The position before the first entry of the next LSM tree.
            None => tree.checked_add(1).map(|next| SearchKey::new(next, &[], SeqNo::MAX)),
        };
        let bound = target.as_ref().map(|target| Bound::Excluded(target as &dyn Position));
        let mut last = self.entries.upper_bound(bound.unwrap_or(Bound::Unbounded), &guard);
        while let Some(at) = last.filter(|at| at.key().tree() == tree && !pick.is_enough(run.len()))
        {
            let key = at.key().key();
            let target = SearchKey::new(tree, key, pick.seq);
            let newest =
                self.entries.lower_bound(Bound::Included(&target as &dyn Position), &guard);
            let is_before = |entry: &&MemEntry| {
                entry.tree() == tree
                    && entry.key() == key
                    && before.is_none_or(|before| before.key != key || entry.seq() > before.seq)
            };
            match newest.as_ref().map(Entry::key).filter(is_before) {
                Some(entry) => run.push(entry.clone()),
                None => pick.passed += 1,
            }
            let target = SearchKey::new(tree, key, SeqNo::MAX);
            last = self.entries.upper_bound(Bound::Excluded(&target as &dyn Position), &guard);
        }
        run
    }
}

fn take<'a: 'g, 'g>(
    tree: TreeId,
    entries: impl Iterator<Item = Entry<'a, 'g, MemEntry, ()>>,
    most: usize,
) -> Vec<MemEntry> {
    let entries = entries.take(most).map(|entry| entry.key().clone());
    entries.take_while(|entry| entry.tree() == tree).collect()
}
