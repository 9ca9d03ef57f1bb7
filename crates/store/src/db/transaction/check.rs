//! What the commit of a transaction depends on, and whether another commit has changed it.

use std::{collections::HashMap, ops::Bound};

use rhumb_sync::primitive::Arc;

use crate::{
    db::keyspace::KeyspaceInner,
    error::Error,
    keys::{OwnedBounds, successor},
    log::batch::{Batch, BatchOp},
    types::{SeqNo, TreeId},
};

/// Bytes that a recorded key takes besides itself: two words in an array that grows by doubling.
const KEY_OVERHEAD_BYTES: usize = 32;

/// Keys and ranges of keyspaces, each of which has a place in the transaction's list.
#[derive(Debug, Default)]
pub(super) struct Touched {
    keys: Vec<Vec<Box<[u8]>>>,
    ranges: Vec<(usize, OwnedBounds)>,
    bytes: usize,
}

impl Touched {
    /// Adds a key.
    pub(super) fn key(&mut self, place: usize, key: &[u8]) {
        if self.keys.len() <= place {
            self.keys.resize_with(place + 1, Vec::new);
        }
        // A key is often read again at once.
        if self.keys[place].last().is_some_and(|last| **last == *key) {
            return;
        }
        self.keys[place].push(key.into());
        self.bytes += key.len() + KEY_OVERHEAD_BYTES;
    }

    /// Adds a range.
    pub(super) fn range(&mut self, place: usize, range: OwnedBounds) {
        let len = |bound: &Bound<Box<[u8]>>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => key.len(),
            Bound::Unbounded => 0,
        };
        self.bytes += len(&range.0) + len(&range.1) + size_of::<(usize, OwnedBounds)>();
        self.ranges.push((place, range));
    }

    /// The memory that this takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// What a commit depends on: none of it may have changed since the transaction's snapshot.
pub(crate) struct Checked {
    /// The sequence number of the snapshot.
    pub(super) since: SeqNo,
    keyspaces: Vec<Arc<KeyspaceInner>>,
    /// Sorted keys, by the place of the keyspace.
    keys: Vec<Vec<Box<[u8]>>>,
    ranges: Vec<(usize, OwnedBounds)>,
}

impl Checked {
    pub(super) fn new(since: SeqNo, keyspaces: Vec<Arc<KeyspaceInner>>) -> Self {
        let keys = keyspaces.iter().map(|_| Vec::new()).collect();
        Self { since, keyspaces, keys, ranges: Vec::new() }
    }

    /// Adds keys and ranges.
    pub(super) fn add(&mut self, touched: Touched) {
        for (all, keys) in self.keys.iter_mut().zip(touched.keys) {
            all.extend(keys);
        }
        self.ranges.extend(touched.ranges);
    }

    /// Makes it ready for checks.
    pub(super) fn sort(&mut self) {
        for keys in &mut self.keys {
            keys.sort_unstable();
            keys.dedup();
        }
    }

    /// The places of the keyspaces by their LSM trees, as they are now.
    pub(crate) fn trees(&self) -> HashMap<TreeId, usize> {
        let mut trees = HashMap::new();
        for (place, inner) in self.keyspaces.iter().enumerate() {
            trees.extend(inner.tree.get().with_partitions().iter().map(|tree| (tree.id, place)));
        }
        trees
    }

    /// The conflict with a keyspace that was changed as a whole, if it is one of these.
    pub(crate) fn with_keyspace(&self, id: u32) -> Option<Error> {
        let (place, inner) = self.keyspaces.iter().enumerate().find(|(_, inner)| inner.id == id)?;
        let is_used =
            !self.keys[place].is_empty() || self.ranges.iter().any(|(at, _)| *at == place);
        if !is_used {
            return None;
        }
        Some(Error::Conflict { keyspace: Arc::clone(&inner.name), key: Box::default() })
    }

    /// The conflict with more than is known of.
    pub(crate) fn with_too_much(&self) -> Error {
        let keyspace = self.keyspaces.first().map_or_else(|| "".into(), |one| one.name.clone());
        Error::Conflict { keyspace, key: Box::default() }
    }

    /// The conflict with the operations of a record, if there is one.
    pub(crate) fn with_record(
        &self,
        trees: &HashMap<TreeId, usize>,
        record: &[u8],
    ) -> Option<Error> {
        Batch::built(record).ops().find_map(|op| self.with_op(*trees.get(&op.tree)?, &op, record))
    }

    fn with_op(&self, place: usize, op: &BatchOp, record: &[u8]) -> Option<Error> {
        let key = op.key(record);
        let found = match op.range {
            None => self.find_key(place, key),
            Some(_) => self.find_range(place, key, op.range_end(record)),
        };
        found.map(|key| Error::Conflict {
            keyspace: Arc::clone(&self.keyspaces[place].name),
            key: key.into(),
        })
    }

    /// A key that was written, if it is one of these.
    fn find_key<'k>(&self, place: usize, key: &'k [u8]) -> Option<&'k [u8]> {
        let is_key = self.keys[place].binary_search_by(|one| (**one).cmp(key)).is_ok();
        let contains = |(at, (from, to)): &(usize, OwnedBounds)| {
            *at == place && !is_before(key, from) && !is_after(key, to)
        };
        // planted: transaction-phantom
        (is_key || self.ranges.iter().any(contains)).then_some(key)
    }

    /// A key of a range that was removed, if one of these or of their ranges is in it.
    fn find_range<'k>(
        &'k self,
        place: usize,
        from: &'k [u8],
        to: Option<&[u8]>,
    ) -> Option<&'k [u8]> {
        let keys = &self.keys[place];
        let first = keys.get(keys.partition_point(|key| **key < *from));
        if let Some(key) = first.filter(|key| to.is_none_or(|to| ***key < *to)) {
            return Some(key);
        }
        let meets = |(at, (low, high)): &(usize, OwnedBounds)| {
            let is_lower = match low {
                Bound::Unbounded => true,
                Bound::Included(low) => to.is_none_or(|to| **low < *to),
                Bound::Excluded(low) => to.is_none_or(|to| *successor(low) < *to),
            };
            *at == place && is_lower && !is_after(from, high)
        };
        self.ranges.iter().any(meets).then_some(from)
    }
}

/// Returns true if a key is below a lower end.
fn is_before(key: &[u8], from: &Bound<Box<[u8]>>) -> bool {
    match from {
        Bound::Unbounded => false,
        Bound::Included(from) => *key < **from,
        Bound::Excluded(from) => *key <= **from,
    }
}

/// Returns true if a key is above an upper end.
fn is_after(key: &[u8], to: &Bound<Box<[u8]>>) -> bool {
    match to {
        Bound::Unbounded => false,
        Bound::Included(to) => *key > **to,
        Bound::Excluded(to) => *key >= **to,
    }
}
