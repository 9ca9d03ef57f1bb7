//! What expires in tables, and when its space comes back.
//!
//! * A table of which every entry has expired for every reader is dropped with one edit of the
//!   manifest, without being read, unless an older entry of its keys may lie deeper: that would
//!   come to light.
//! * If more than a twelfth of an LSM tree has expired, the table of which most has is written
//!   anew by itself. So what has expired takes at most a tenth of the space of what lives, and
//!   every byte that is written frees a byte at least one time in twelve.
//!
//! Both are decided by what a table's description says of its stamps ([`Expiries`]).

use rhumb_sync::primitive::Arc;

use super::job::Placed;
use crate::{
    expiry::{Expiries, Millis},
    table::{Table, TableMeta},
    types::{FileId, SeqNo},
    version::levels::Levels,
};

/// An LSM tree has too much that has expired if that is more than one in this many of its bytes:
/// then it takes over a tenth of what lives.
const EXPIRED_PART: u64 = 12;
/// Fewer bytes that have expired are not worth a compaction, which costs two syncs and a file of
/// some KiB.
const EXPIRED_MIN: u64 = 64 << 10;
/// A memtable is flushed for entries that have expired if they are at least one in this many of its
/// bytes.
const MEMTABLE_PART: u64 = 2;

/// How far back readers see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Horizon {
    /// The sequence number of the oldest snapshot; the greatest number if there is none.
    pub(crate) oldest: SeqNo,
    /// What has expired by then has for every reader.
    pub(crate) time_ms: Millis,
}

/// Returns true if every entry of a table has expired at a time.
fn has_expired_whole(meta: &TableMeta, time_ms: Millis) -> bool {
    let all =
        |expiries: Expiries| expiries.entries == meta.entries && expiries.last_ms() <= time_ms;
    meta.range_tombstones == 0 && meta.expiries.is_some_and(all)
}

/// About how many bytes of a table have expired at a time.
fn expired_bytes(meta: &TableMeta, time_ms: Millis) -> u64 {
    let Some(expiries) = meta.expiries else { return 0 };
    let share = expiries.expired(time_ms) as f64 / meta.entries.max(1) as f64;
    (share * meta.total_bytes() as f64) as u64
}

/// The tables of an LSM tree that can be dropped because all of their entries have expired. O(1) if
/// there is none; otherwise O(tables + tables that they overlap).
pub(crate) fn expired(levels: &Levels, time_ms: Millis) -> Vec<Placed> {
    let mut found: Vec<Placed> = Vec::new();
    if levels.first_end_ms().is_none_or(|first| first > time_ms) {
        return found;
    }
    // The oldest first: what is dropped hides nothing from those above it.
    for level in (0..levels.depth()).rev() {
        for table in levels.tables(level).iter().rev() {
            if !has_expired_whole(table.meta(), time_ms) {
                continue;
            }
            let is_found =
                |other: &Arc<Table>| found.iter().any(|(_, one)| Arc::ptr_eq(one, other));
            // planted: expiry-drop-reveals
            if older(levels, level, table).all(is_found) {
                found.push((level, Arc::clone(table)));
            }
        }
    }
    found
}

/// The tables that may hold older entries of a table's keys.
fn older<'l>(
    levels: &'l Levels,
    level: usize,
    table: &'l Table,
) -> impl Iterator<Item = &'l Arc<Table>> {
    let TableMeta { smallest, largest, id, .. } = table.meta();
    let newest_first = if level == 0 { levels.tables(0) } else { &[] };
    let same_level = newest_first.iter().skip_while(move |other| other.meta().id != *id).skip(1);
    let overlaps = |other: &&Arc<Table>| {
        *other.meta().smallest <= **largest && *other.meta().largest >= **smallest
    };
    let deeper = levels.sorted.iter().skip(level);
    same_level.filter(overlaps).chain(deeper.flat_map(|one| one.overlapping(smallest, largest)))
}

/// The table that is to be written anew because much of its LSM tree has expired, with its level.
/// O(1) if no entry expires, otherwise O(tables).
pub(super) fn mostly_expired(levels: &Levels, time_ms: Millis) -> Option<(usize, FileId)> {
    levels.first_expiry_ms().filter(|first| *first <= time_ms)?;
    let (mut expired, mut all, mut most) = (0, 0, None::<(f64, usize, FileId)>);
    for (level, table) in levels.all() {
        let meta = table.meta();
        let here = expired_bytes(meta, time_ms);
        (expired, all) = (expired + here, all + meta.total_bytes());
        let share = here as f64 / meta.total_bytes().max(1) as f64;
        if here > 0 && most.is_none_or(|(other, ..)| share > other) {
            most = Some((share, level, meta.id));
        }
    }
    let is_much = expired >= EXPIRED_MIN && expired.saturating_mul(EXPIRED_PART) > all;
    most.filter(|_| is_much).map(|(_, level, id)| (level, id))
}

/// Returns true if a memtable is worth a flush because of entries that have expired: `expired`
/// bytes of `all`.
pub(crate) fn is_worth_a_flush(expired: u64, all: u64) -> bool {
    expired >= EXPIRED_MIN && expired.saturating_mul(MEMTABLE_PART) >= all
}
