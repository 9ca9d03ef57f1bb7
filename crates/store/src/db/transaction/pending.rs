//! What a transaction has written to one keyspace and not committed.
//!
//! Knows nothing of the database: it answers what of a key or a range is decided here.

use std::{collections::BTreeMap, ops::Bound};

use crate::{
    expiry::Millis,
    keys::{OwnedBound, OwnedBounds},
    slice::Slice,
};

/// A value that is pending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) value: Slice,
    /// When it expires, if it does.
    pub(super) expires_ms: Option<Millis>,
}

impl Written {
    /// The value, for a reader at this time.
    pub(super) fn seen(&self, now_ms: Millis) -> Option<&Slice> {
        // planted: expiry-pending
        self.expires_ms.is_none_or(|at_ms| at_ms > now_ms).then_some(&self.value)
    }
}

/// A key that has a value, or is removed.
pub(super) type Writes = BTreeMap<Slice, Option<Written>>;

/// The pending writes to one keyspace: ranges were removed first, and then keys written.
#[derive(Clone, Debug, Default)]
pub(super) struct Overlay {
    writes: Writes,
    removed: Removed,
    bytes: usize,
}

/// What a key is by the pending writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decided<'o> {
    /// It has this value.
    Value(&'o Written),
    /// It is absent.
    Absent,
    /// The pending writes do not say.
    No,
}

/// Bytes that a pending key takes besides itself and its value: a node of the map has room for
/// eleven keys of 32 bytes and values of 48, and is two thirds full.
const ENTRY_BYTES: usize = 120;

fn bytes_of(key: &[u8], value: Option<&Written>) -> usize {
    ENTRY_BYTES + key.len() + value.map_or(0, |written| written.value.len())
}

impl Overlay {
    /// Returns true if nothing is pending.
    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.removed.is_empty()
    }

    /// The memory that the pending writes take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What a key is. O(log n).
    pub(super) fn get(&self, key: &[u8]) -> Decided<'_> {
        match self.writes.get(key) {
            Some(Some(value)) => Decided::Value(value),
            Some(None) => Decided::Absent,
            None if self.removed.contains(key) => Decided::Absent,
            None => Decided::No,
        }
    }

    /// Writes a key; returns what was pending for it. O(log n).
    pub(super) fn put(&mut self, key: Slice, value: Option<Written>) -> Option<Option<Written>> {
        self.bytes += bytes_of(&key, value.as_ref());
        let len = key.len();
        let before = self.writes.insert(key, value);
        if let Some(before) = &before {
            let value = before.as_ref().map_or(0, |written| written.value.len());
            self.bytes -= ENTRY_BYTES + len + value;
        }
        before
    }

    /// Takes back what [`Overlay::put`] did to a key.
    pub(super) fn restore(&mut self, key: &Slice, before: Option<Option<Written>>) {
        if let Some(written) = self.writes.remove(key) {
            self.bytes -= bytes_of(key, written.as_ref());
        }
        if let Some(before) = before {
            self.put(key.clone(), before);
        }
    }

    /// Removes the keys from `from` on and before `to`; without `to`, all from `from` on. Returns
    /// the writes that this undoes, and the ranges that were removed before. O(writes of the
    /// range).
    pub(super) fn remove_range(&mut self, from: Slice, to: Option<Slice>) -> (Writes, Removed) {
        let mut inside = self.writes.split_off(&from);
        if let Some(to) = &to {
            let mut after = inside.split_off(to);
            // planted: transaction-removed-range
            self.writes.append(&mut after);
        }
        let bytes = |(key, value): (&Slice, &Option<Written>)| bytes_of(key, value.as_ref());
        self.bytes -= inside.iter().map(bytes).sum::<usize>();
        let before = self.removed.clone();
        self.bytes -= before.bytes();
        self.removed.insert(from, to);
        self.bytes += self.removed.bytes();
        (inside, before)
    }

    /// Takes back what [`Overlay::remove_range`] did.
    pub(super) fn restore_range(&mut self, writes: Writes, removed: Removed) {
        let bytes = |(key, value): (&Slice, &Option<Written>)| bytes_of(key, value.as_ref());
        self.bytes += writes.iter().map(bytes).sum::<usize>();
        self.writes.extend(writes);
        self.bytes -= self.removed.bytes();
        self.bytes += removed.bytes();
        self.removed = removed;
    }

    /// The writes of keys, ascending.
    pub(super) fn writes(&self) -> &Writes {
        &self.writes
    }

    /// The ranges that are removed before the keys are written: disjoint, ascending.
    pub(super) fn removed(&self) -> &Removed {
        &self.removed
    }
}

/// Ranges of keys: disjoint, by the first key of each; `None` is the end of all keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Removed(BTreeMap<Slice, Option<Slice>>);

impl Removed {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn bytes(&self) -> usize {
        let end = |to: Option<&Slice>| to.map_or(0, |to| to.len());
        self.iter().map(|(from, to)| bytes_of(from, None) + end(to)).sum()
    }

    /// The ranges, ascending: the first key, and the first key after the range.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Slice, Option<&Slice>)> {
        self.0.iter().map(|(from, to)| (from, to.as_ref()))
    }

    /// Returns true if a key is in one of the ranges. O(log n).
    fn contains(&self, key: &[u8]) -> bool {
        let mut before = self.0.range::<[u8], _>((Bound::Unbounded, Bound::Included(key)));
        before.next_back().is_some_and(|(_, to)| to.as_ref().is_none_or(|to| key < &to[..]))
    }

    /// Adds a range, and joins it with those that it touches.
    fn insert(&mut self, mut from: Slice, mut to: Option<Slice>) {
        let ends_before =
            |to: &Option<Slice>, from: &Slice| to.as_ref().is_some_and(|to| to[..] < from[..]);
        let touching: Vec<Slice> = self
            .0
            .iter()
            .filter(|(first, end)| !ends_before(end, &from) && !ends_before(&to, first))
            .map(|(first, _)| first.clone())
            .collect();
        for first in touching {
            if let Some(end) = self.0.remove(&first) {
                to = end.zip(to).map(|(a, b)| a.max(b));
                from = from.min(first);
            }
        }
        self.0.insert(from, to);
    }

    /// What of a range is in none of these, ascending.
    pub(super) fn gaps(&self, from: &OwnedBound, to: &OwnedBound) -> Vec<OwnedBounds> {
        let (mut gaps, mut start) = (Vec::new(), Some(from.clone()));
        for (first, end) in &self.0 {
            let Some(low) = &start else { break };
            let is_before = end.as_ref().is_some_and(|end| match low {
                Bound::Unbounded => false,
                Bound::Included(key) | Bound::Excluded(key) => end[..] <= key[..],
            });
            if is_before {
                continue;
            }
            gaps.push((low.clone(), least(Bound::Excluded(Box::from(&first[..])), to)));
            start = end.as_ref().map(|end| Bound::Included(Box::from(&end[..])));
        }
        gaps.extend(start.map(|low| (low, to.clone())));
        gaps.retain(|(low, high)| !is_empty(low, high));
        gaps
    }
}

/// The lower one of two upper ends.
fn least(a: OwnedBound, b: &OwnedBound) -> OwnedBound {
    let is_lower = match (&a, b) {
        (_, Bound::Unbounded) => true,
        (Bound::Unbounded, _) => false,
        (Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a <= b,
        (Bound::Included(a), Bound::Included(b) | Bound::Excluded(b)) => a < b,
    };
    if is_lower { a } else { b.clone() }
}

/// Returns true if no key lies between the ends.
pub(super) fn is_empty(low: &OwnedBound, high: &OwnedBound) -> bool {
    use Bound::{Excluded, Included};
    match (low, high) {
        (Included(low), Included(high)) => low > high,
        (Included(low) | Excluded(low), Excluded(high)) => low >= high,
        (Excluded(low), Included(high)) => low >= high,
        _ => false,
    }
}
