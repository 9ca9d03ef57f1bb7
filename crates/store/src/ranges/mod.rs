//! Range tombstones: deletes of all keys from one up to another.
//!
//! Tombstones that overlap are cut at each other's ends, so that the keys fall into *fragments*:
//! the same tombstones cover all keys of a fragment. Invariants:
//!
//! 1. A tombstone hides the entries of its LSM tree with smaller numbers from readers at its own
//!    number or later, and nothing else.
//! 2. For one key, a tombstone in a shallower structure is newer than all in deeper ones, as
//!    entries are: the first structure that has an entry or a tombstone for a key decides.
//! 3. Bounds are at most as long as keys may be ([`span_of`]).
//!
//! No I/O and no locks here. `log.rs` has the tombstones of a memtable, `fragments.rs` those of a
//! table, `block.rs` their bytes, and `hidden.rs` the entries of a table that its own tombstones
//! hide.

mod block;
mod fragments;
mod hidden;
mod log;
mod shelf;
#[cfg(test)]
mod tests;

use std::ops::Bound;

use crate::{
    error::Result,
    keys::{KeySpan, key_after},
    log::batch::check_entry,
    slice::Slice,
    types::SeqNo,
};

pub(crate) use self::{
    fragments::{Ranges, Sweep},
    hidden::{HiddenRuns, HiddenRunsBuilder},
    log::{RangeLog, Tombstone},
};

/// The largest key that can be below `end`, or `end` itself if there is no such key.
pub(crate) fn last_below(end: &[u8]) -> &[u8] {
    end.strip_suffix(&[0]).unwrap_or(end)
}

/// The keys of a range. `None` if no key lies within.
///
/// # Errors
///
/// [`crate::Error::InvalidArgument`] if a bound is longer than a key may be.
pub(crate) fn span_of(from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Option<KeySpan>> {
    for bound in [&from, &to] {
        if let Bound::Included(key) | Bound::Excluded(key) = bound {
            check_entry(key, &[])?;
        }
    }
    let from = match from {
        Bound::Included(key) => Some(Box::from(key)),
        Bound::Excluded(key) => key_after(key),
        Bound::Unbounded => Some(Box::default()),
    };
    let to = match to {
        Bound::Included(key) => key_after(key),
        Bound::Excluded(key) => Some(Box::from(key)),
        Bound::Unbounded => None,
    };
    Ok(from.filter(|from| to.as_ref().is_none_or(|to| from < to)).map(|from| (from, to)))
}

/// Of the tombstones that cover a key, newest first, the newest that a reader at `seq` sees; 0 if
/// none.
#[inline]
pub(crate) fn newest_of(seqs: &[SeqNo], seq: SeqNo) -> SeqNo {
    seqs.iter().find(|of| **of <= seq).copied().unwrap_or(0)
}

/// Keys around one key for all of which the same tombstone is the newest that a reader sees.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeSpan {
    /// Where they begin; absent if no tombstone is before them.
    pub(crate) from: Option<Slice>,
    /// Where they end; absent if no tombstone is after them.
    pub(crate) to: Option<Slice>,
    /// The number of that tombstone; 0 if there is none.
    pub(crate) seq: SeqNo,
    /// The structure that the tombstone lies in: see [`RangeView::memtable_depth`]. All entries of
    /// these keys in deeper structures are older.
    pub(crate) depth: u32,
    /// The greatest sequence number of deeper tables for which that holds. Levels are looked up
    /// after the memtables, and may have tables of later ones.
    pub(crate) deeper_to: SeqNo,
}

impl RangeSpan {
    /// Leaves out the keys before `from` and those at or after `to`.
    pub(crate) fn narrow(&mut self, from: Option<&Slice>, to: Option<&Slice>) {
        if let Some(from) = from
            && self.from.as_ref().is_none_or(|old| old < from)
        {
            self.from = Some(from.clone());
        }
        if let Some(to) = to
            && self.to.as_ref().is_none_or(|old| to < old)
        {
            self.to = Some(to.clone());
        }
    }
}
