//! Random members of a set, and random keys, each as likely as any other. For keys see
//! [`crate::segments`].
//!
//! Members lie in the order of their hashes. A window of hashes that begins anywhere holds each
//! member with the same probability, whatever the others are. So a draw takes a window, and then
//! one of [`PLACES`] places in it: if no member is there, it draws again. Each member is as likely
//! as any other as long as no window holds more members than there are places; one that does makes
//! more places.

use std::{collections::BTreeSet, ops::Bound};

use rhumb::Slice;

use super::Context;
use crate::{
    encode::{Meta, member},
    fault::Fault,
    random::Random,
    segments::Segments,
    txn::{Space, prefix_range},
};

/// The largest set, in members, whose members are counted out instead of drawn: a walk over 64
/// costs what a few draws do.
const COUNTED_MAX: u64 = 64;

/// Members of a window, on average.
const WINDOW_MEMBERS: u64 = 16;

/// Places of a window. With 16 members on average, one window in ten million holds more than 40.
const PLACES: usize = 40;

/// Members of a window that are looked at: more have the same hash only if somebody made them so.
const WINDOW_MAX: usize = 4096;

/// All members are walked over if at least one in eight of them is wanted: draws cost more then.
const WALKED_PART: u64 = 8;

/// Draws that may fail, for each that is wanted, before members are counted out. Two of three fail,
/// so that 1,000 in a row never do.
const DRAWS_MAX: usize = 1000;

/// How many hashes there are.
const HASHES: u64 = 1 << 32;

/// The key of a random member; none if the set has none. O(log n).
pub(super) fn one(
    context: &Context<'_, '_>,
    meta: &Meta,
    random: &mut Random,
) -> Result<Option<Slice>, Fault> {
    if meta.count > COUNTED_MAX {
        let mut places = PLACES;
        for _ in 0..DRAWS_MAX {
            if let Some(key) = draw(context, meta, &mut places, random)? {
                return Ok(Some(key));
            }
        }
    }
    Ok(walk(context, meta, 1, random)?.pop())
}

/// One draw: a member, or none.
fn draw(
    context: &Context<'_, '_>,
    meta: &Meta,
    places: &mut usize,
    random: &mut Random,
) -> Result<Option<Slice>, Fault> {
    let len = (HASHES * WINDOW_MEMBERS).div_ceil(meta.count.max(WINDOW_MEMBERS));
    let (start, mut found) = (random.below(HASHES), Vec::with_capacity(PLACES));
    let end = start + len;
    add_members(context, meta, start..end.min(HASHES), &mut found)?;
    if end > HASHES {
        // The window goes on at the first hash.
        add_members(context, meta, 0..end - HASHES, &mut found)?;
    }
    *places = found.len().max(*places);
    let place = random.below(*places as u64) as usize;
    Ok((place < found.len()).then(|| found.swap_remove(place)))
}

/// Adds the keys of the members whose hashes are in the range.
fn add_members(
    context: &Context<'_, '_>,
    meta: &Meta,
    hashes: std::ops::Range<u64>,
    found: &mut Vec<Slice>,
) -> Result<(), Fault> {
    let from = Bound::Included(member::set_place(meta.id, hashes.start as u32));
    let to = match u32::try_from(hashes.end) {
        Ok(end) => Bound::Excluded(member::set_place(meta.id, end)),
        Err(_) => prefix_range(&member::prefix(meta.id)).1,
    };
    let members = context.txn.scan(Space::Members, from, to, false)?;
    for pair in members.take(WINDOW_MAX - found.len().min(WINDOW_MAX)) {
        found.push(pair?.0);
    }
    Ok(())
}

/// Keys of `count` different members, all of them if there are no more; every choice of them is as
/// likely as any other. O(count * log n).
pub(super) fn different(
    context: &Context<'_, '_>,
    meta: &Meta,
    count: usize,
    random: &mut Random,
) -> Result<Vec<Slice>, Fault> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let is_large_part = (count as u64).saturating_mul(WALKED_PART) >= meta.count;
    if meta.count <= COUNTED_MAX || is_large_part {
        return walk(context, meta, count, random);
    }
    let (mut found, mut places) = (BTreeSet::new(), PLACES);
    for _ in 0..count.saturating_mul(DRAWS_MAX) {
        // One that was drawn before is drawn again.
        found.extend(draw(context, meta, &mut places, random)?);
        if found.len() == count {
            return Ok(found.into_iter().collect());
        }
    }
    walk(context, meta, count, random)
}

/// Keys of `count` members, of which each is drawn from all. O(count * log n).
pub(super) fn repeated(
    context: &Context<'_, '_>,
    meta: &Meta,
    count: usize,
    random: &mut Random,
) -> Result<Vec<Slice>, Fault> {
    let mut found = Vec::new();
    let is_large_part = (count as u64).saturating_mul(WALKED_PART) >= meta.count;
    if meta.count <= COUNTED_MAX || (is_large_part && meta.count <= WINDOW_MAX as u64) {
        let all = walk(context, meta, usize::MAX, random)?;
        if !all.is_empty() {
            let mut place = || random.below(all.len() as u64) as usize;
            found.extend((0..count).map(|_| all[place()].clone()));
        }
        return Ok(found);
    }
    for _ in 0..count {
        found.extend(one(context, meta, random)?);
    }
    Ok(found)
}

/// Keys of `count` different members, by a walk over all: each is taken with the probability with
/// which it belongs to those that are still wanted. O(n).
fn walk(
    context: &Context<'_, '_>,
    meta: &Meta,
    count: usize,
    random: &mut Random,
) -> Result<Vec<Slice>, Fault> {
    let (mut left, mut found) = (meta.count, Vec::new());
    for pair in context.txn.members(&member::prefix(meta.id))?.expecting(meta.count) {
        let key = pair?.0;
        let wanted = (count - found.len()) as u64;
        if random.below(left.max(1)) < wanted {
            found.push(key);
            if found.len() == count {
                break;
            }
        }
        left = left.saturating_sub(1);
    }
    Ok(found)
}

/// The most entries that a walk over all keys may meet for keys to be counted out instead of drawn.
const COUNTED_ENTRIES_MAX: u64 = 512;

/// Keys that have ended that a draw may come to before keys are drawn from segments, which it then
/// does to the one that is left of hundreds.
const ENDED_MAX: usize = 256;

/// A random key; none if there are none. O(tables), and some steps in memory or reads of blocks
/// ([`rhumb::Keyspace::sample`]).
///
/// Where nearly all that the database holds is dead or has ended, and within a transaction, it is
/// O(log n), and O(n) after the keys have grown by an eighth: another thread takes over the other
/// connections meanwhile.
pub(super) fn key(context: &Context<'_, '_>, random: &mut Random) -> Result<Option<Slice>, Fault> {
    let db = context.txn.db()?;
    let entries = db.keys.entries_at_most();
    // The engine does not know what a transaction has written so far.
    if entries > COUNTED_ENTRIES_MAX && !context.in_exec {
        for _ in 0..ENDED_MAX {
            let Some((key, value)) = db.keys.sample(|end| random.below(end))? else { break };
            if context.txn.is_live(&key, &value) {
                return Ok(Some(key));
            }
        }
    }
    if entries > COUNTED_ENTRIES_MAX {
        let mut segments = db.segments.current(&db.keys);
        for _ in 0..2 {
            let learn = || db.segments.learn(&db.keys);
            let current = match segments.take() {
                Some(segments) => segments,
                None => tokio::task::block_in_place(learn)?,
            };
            if let Some(key) = key_among(context, &current, random)? {
                return Ok(Some(key));
            }
        }
    }
    let (mut chosen, mut met) = (None, 0);
    for pair in context.txn.scan(Space::Keys, Bound::Unbounded, Bound::Unbounded, false)? {
        let (key, value) = pair?;
        if context.txn.is_live(&key, &value) {
            met += 1;
            if random.below(met) == 0 {
                chosen = Some(key);
            }
        }
    }
    Ok(chosen)
}

/// Draws until a key is found; none if the segments are those of other keys.
fn key_among(
    context: &Context<'_, '_>,
    segments: &Segments,
    random: &mut Random,
) -> Result<Option<Slice>, Fault> {
    let places = segments.places();
    for _ in 0..segments.draws() {
        let (from, to) = segments.range(random.below(segments.len()) as usize);
        let (mut live, mut met) = (Vec::new(), 0);
        for pair in context.txn.scan(Space::Keys, from, to, false)? {
            let (key, value) = pair?;
            met += 1;
            if met > places {
                return Ok(None);
            }
            if context.txn.is_live(&key, &value) {
                live.push(key);
            }
        }
        let place = random.below(places as u64) as usize;
        if place < live.len() {
            return Ok(Some(live.swap_remove(place)));
        }
    }
    Ok(None)
}
