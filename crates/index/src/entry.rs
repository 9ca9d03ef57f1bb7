//! Entries of leaves outside of them: on their way from one leaf to the next, or to a scan.
#![allow(unsafe_code, reason = "reads the keys of records that the caller holds")]
#![cfg_attr(not(feature = "published"), allow(dead_code, reason = "for leaves of other kinds"))]

use crate::schema::Schema;

/// What a slot holds: the word of an integer key with that of its value, or any word with a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) word: u64,
    pub(crate) value: u64,
}

/// The key of an entry whose value is a record. The caller holds what keeps the record alive.
pub(crate) fn key<S: Schema>(entry: &Entry) -> &[u8] {
    // SAFETY: what entries of wide keys lead to lives while the leaf that they came from can be
    // held; the caller is pinned or has them to itself.
    unsafe { S::key(entry.value) }
}

/// Sorts entries of one leaf by their keys.
#[inline]
pub(crate) fn sort<S: Schema>(new: &mut [Entry]) {
    if S::WIDE {
        // Words of one leaf are in the order of the keys, which lie elsewhere and need to be looked
        // at only where words tie.
        let order =
            |a: &Entry, b: &Entry| a.word.cmp(&b.word).then_with(|| key::<S>(a).cmp(key::<S>(b)));
        new.sort_unstable_by(order);
    } else {
        new.sort_unstable_by_key(|entry| entry.word);
    }
}

/// Entries of one leaf and their words.
pub(crate) struct KeyRun<'a> {
    pub(crate) entries: &'a [Entry],
    pub(crate) words: &'a [u64],
    pub(crate) prefix: &'a [u8],
}

impl KeyRun<'_> {
    /// The run of its first entries.
    pub(crate) fn first(&self, len: usize) -> KeyRun<'_> {
        KeyRun { entries: &self.entries[..len], words: &self.words[..len], prefix: self.prefix }
    }
}
