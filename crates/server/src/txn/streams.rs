//! What only streams need: their entries, and ranges of members that are removed as one.

use std::ops::Bound;

use rhumb::Result;

use super::{KeyBound, Kind, Space, Txn, damaged, is_empty};
use crate::encode::{Entry, StreamMeta, entry};

impl Txn<'_> {
    /// What there is to be known of a stream.
    pub(crate) fn stream_meta(&self, entry: &Entry) -> Result<StreamMeta> {
        StreamMeta::decode(entry.bytes()).ok_or_else(damaged)
    }

    /// A stream that has no entries yet.
    pub(crate) fn new_stream(&self) -> Result<StreamMeta> {
        Ok(StreamMeta::new(self.new_meta()?.id))
    }

    /// Writes what is now to be known of a stream; one without entries stays.
    pub(crate) fn put_stream(&mut self, key: &[u8], meta: &StreamMeta, expires_ms: u64) {
        let mut value = Vec::with_capacity(97);
        entry::push_head(&mut value, Kind::Stream, expires_ms);
        meta.push_to(&mut value);
        self.write(Space::Keys, key.to_vec(), Some(value));
    }

    /// Removes all members of a range as one operation. In this transaction
    /// [`Txn::visit_members`] shows none of them, while other reads still find those that were
    /// committed before, as [`Txn::is_removed`] says.
    pub(crate) fn remove_members(&mut self, from: KeyBound, to: KeyBound) {
        if is_empty(&from, &to) {
            return;
        }
        let number = self.number;
        let mut all = self.pending.writes.iter_mut();
        let writes = all.find(|(n, space, _)| (*n, *space) == (number, Space::Members));
        if let Some((.., writes)) = writes {
            let range = (from.clone(), to.clone());
            let keys: Vec<Vec<u8>> = writes.range(range).map(|(key, _)| key.clone()).collect();
            let mut removed = Vec::new();
            for key in keys {
                let before = writes.remove(&key);
                removed.push((key, before));
            }
            for (key, before) in removed {
                self.pending.note_undo(number, Space::Members, key, before);
            }
        }
        self.pending.count += 1;
        self.pending.ranges.push((number, from, to));
    }

    /// Returns true if a member that a read has found is in a range that was removed.
    pub(crate) fn is_removed(&self, number: u8, key: &[u8]) -> bool {
        let is_inside = |from: &KeyBound, to: &KeyBound| {
            let is_after = match from {
                Bound::Included(from) => key >= from.as_slice(),
                Bound::Excluded(from) => key > from.as_slice(),
                Bound::Unbounded => true,
            };
            is_after
                && match to {
                    Bound::Included(to) => key <= to.as_slice(),
                    Bound::Excluded(to) => key < to.as_slice(),
                    Bound::Unbounded => true,
                }
        };
        let mut ranges = self.pending.ranges.iter();
        if !ranges.any(|(n, from, to)| *n == number && is_inside(from, to)) {
            return false;
        }
        // It may have been written again.
        let mut all = self.pending.writes.iter();
        let writes = all.find(|(n, space, _)| (*n, *space) == (number, Space::Members));
        writes.is_none_or(|(.., writes)| !writes.contains_key(key))
    }
}
