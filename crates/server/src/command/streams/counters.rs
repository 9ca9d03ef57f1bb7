//! How many entries a group has read, and how many it has not: known as far as no removed entry is
//! between.

use crate::encode::{GroupRecord, StreamId, StreamMeta};

/// Returns true if an entry from `from` on was removed by `XDEL`, as far as that matters: before
/// the first entry it does not.
pub(super) fn has_gaps(meta: &StreamMeta, from: StreamId) -> bool {
    meta.length > 0
        && meta.max_deleted != StreamId::MIN
        && meta.first <= meta.max_deleted
        && from <= meta.max_deleted
}

/// How many entries there ever were up to this one, if that can be told.
fn entries_up_to(meta: &StreamMeta, id: StreamId) -> Option<u64> {
    if meta.added == 0 {
        return Some(0);
    }
    if meta.length == 0 && id <= meta.last || id == meta.last {
        return Some(meta.added);
    }
    if id > meta.last || (meta.max_deleted != StreamId::MIN && meta.max_deleted >= meta.first) {
        return None;
    }
    let before = meta.added.saturating_sub(meta.length);
    match id.cmp(&meta.first) {
        std::cmp::Ordering::Less => Some(before),
        std::cmp::Ordering::Equal => Some(before + 1),
        std::cmp::Ordering::Greater => None,
    }
}

/// How many entries a group has not read, if that can be told.
pub(super) fn lag(meta: &StreamMeta, group: &GroupRecord) -> Option<i64> {
    if meta.added == 0 {
        return Some(0);
    }
    let read = group.entries_read.filter(|_| !has_gaps(meta, group.last));
    let read = read.or_else(|| entries_up_to(meta, group.last))?;
    Some((meta.added as i64).wrapping_sub(read as i64))
}

/// Moves a group on to an entry that it reads.
pub(super) fn advance(meta: &StreamMeta, group: &mut GroupRecord, id: StreamId) {
    if id <= group.last {
        return;
    }
    group.entries_read = match group.entries_read {
        Some(read) if !has_gaps(meta, id) => Some(read.wrapping_add(1)),
        read if meta.added == 0 => read,
        _ => entries_up_to(meta, id),
    };
    group.last = id;
}
