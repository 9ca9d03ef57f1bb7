//! Prepares point reads of many keys together. Each step prefetches, for all of them, the lines of
//! memory that the next step needs, so that their misses overlap where one read alone would wait
//! for each.
//!
//! It changes nothing but time. What it finds on the way is passed on, so that the reads begin
//! there.

use rhumb_model::code;
use rhumb_sync::epoch::Guard;

use super::levels::Levels;
use crate::{
    table::{KeyHash, Table},
    types::SeqNo,
};

/// The number of reads that are prepared together: about as many as the lines that a core can wait
/// for at once.
pub(crate) const PREPARED_READS: usize = 16;

/// Where a point read begins.
#[derive(Clone, Copy)]
pub(crate) struct Hint<'g> {
    /// The levels that this hint is for.
    pub(crate) levels: &'g Levels,
    pub(crate) hash: KeyHash,
    /// The number of the first table that may hold the key, as [`Levels::candidate`] counts.
    pub(crate) candidate: usize,
    /// The block of that table that holds the key if any does.
    pub(crate) block: u32,
}

/// Prefetches the lines that point reads of these keys, at most [`PREPARED_READS`] of them, are
/// likely to touch in these levels. Returns where each read begins.
pub(crate) fn prepare<'g, 'k>(
    guard: &Guard,
    reads: impl Iterator<Item = Option<(&'g Levels, &'k [u8])>>,
) -> [Option<Hint<'g>>; PREPARED_READS] {
    let mut keys = [None; PREPARED_READS];
    for (place, read) in keys.iter_mut().zip(reads) {
        *place = read.map(|(levels, key)| (levels, key, KeyHash::of(key)));
    }
    for (levels, key, hash) in keys.iter().flatten() {
        candidates(levels, key).for_each(|(_, table)| table.prefetch_filter(*hash));
    }
    let first = keys.map(|read| {
        let (levels, key, hash) = read?;
        // If a range tombstone covers the key, no table after it is read.
        let is_removed = |table: &Table| {
            let ranges = table.ranges().filter(|_| levels.has_ranges());
            ranges.is_some_and(|ranges| ranges.newest(key, SeqNo::MAX) > 0)
        };
        let (at, table) = candidates(levels, key)
            .find(|(_, table)| table.may_contain(hash) || is_removed(table))?;
        Some((at, table, table.find_segment(key)))
    });
    let hints = std::array::from_fn(|at| {
        let (levels, key, hash) = keys[at]?;
        // If no table can hold the key, the read begins after the last one.
        let nowhere = (levels.candidates(), 0);
        let found = first[at].map(|(at, table, segment)| (at, table.locate_in(segment, key)));
        let (candidate, block) = found.unwrap_or(nowhere);
        Some(Hint { levels, hash, candidate, block })
    });
    let likely = || first.iter().zip(&hints).filter_map(|(at, hint)| Some(((*at)?.1, (*hint)?)));
    for (table, Hint { block, .. }) in likely() {
        table.prefetch_directory(block, guard);
    }
    for (table, Hint { block, hash, .. }) in likely() {
        table.prefetch_entry(block, hash, guard);
    }
    hints
}

/// The tables that can hold a key, newest first, each with its number.
#[inline]
fn candidates<'g>(levels: &'g Levels, key: &[u8]) -> impl Iterator<Item = (usize, &'g Table)> {
    let code = code::code_at(key, 0);
    (0..levels.candidates()).filter_map(move |at| Some((at, &**levels.candidate(at, key, code)??)))
}
