//! Places of a sorted set's members in the order of scores, or of names: how many are before a
//! key, and which one is at a place. O(log n), over what is stored and what a transaction has
//! pending.
//!
//! A small sorted set is walked over. Of another one, the blocks of [`crate::ranks`] say where to
//! begin, and a walk over at most one block does the rest.

use std::{cell::RefMut, ops::Bound, sync::Arc};

use parking_lot::{MappedRwLockReadGuard, RwLockReadGuard};
use rhumb::Slice;

use crate::{
    encode::{Meta, member},
    fault::Fault,
    ranks::{Blocks, Kept, Learning, Order, Shifts, range, rest_of},
    txn::{KeyBound, Space, Txn, prefix_range},
};

/// The largest sorted set, in members, that is walked over: it takes some ten microseconds.
const WALKED_MAX: u64 = 256;

/// Members between a place and an end of the order that are stepped over: no more than a walk over
/// a block.
const STEPPED_MAX: u64 = 128;

/// The first key after this one.
fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// One of the two orders of a sorted set's members.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places<'m> {
    meta: &'m Meta,
    by_score: bool,
    /// Where the order may be learned.
    learns: LearnWhere,
}

/// Where the order of a sorted set is learned that nobody has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LearnWhere {
    /// Not by this caller, which may not take long.
    Nowhere,
    /// While the command's keys are not locked: the command is run again then.
    Beside,
    /// Here, under the locks of the keys.
    Here,
}

/// Blocks that are learned, while they are read.
type Learned<'k> = MappedRwLockReadGuard<'k, Blocks>;

impl<'m> Places<'m> {
    /// The order of scores, or of names.
    pub(crate) fn new(meta: &'m Meta, by_score: bool, learns: LearnWhere) -> Self {
        Self { meta, by_score, learns }
    }

    /// The range of all keys of this order.
    pub(crate) fn all(&self) -> (KeyBound, KeyBound) {
        prefix_range(&member::zset_prefix(self.meta.id, self.by_score))
    }

    fn order(&self, txn: &Txn<'_>) -> Option<Order> {
        Order::of(txn.number, &member::zset_prefix(self.meta.id, self.by_score))
    }

    /// How many members are before the start of a range.
    ///
    /// # Errors
    ///
    /// [`Fault::TakesLong`] if it does and may not; [`Fault::Learn`] if the order is to be learned
    /// beside; the engine's.
    pub(crate) fn before_start(&self, txn: &Txn<'_>, start: &KeyBound) -> Result<u64, Fault> {
        match start {
            Bound::Unbounded => Ok(0),
            Bound::Included(key) => self.before(txn, key),
            Bound::Excluded(key) => self.before(txn, &after(key)),
        }
    }

    /// How many members are before the end of a range.
    ///
    /// # Errors
    ///
    /// As [`Places::before_start`].
    pub(crate) fn before_end(&self, txn: &Txn<'_>, end: &KeyBound) -> Result<u64, Fault> {
        match end {
            Bound::Unbounded => Ok(self.meta.count),
            end if *end == self.all().1 => Ok(self.meta.count),
            Bound::Excluded(key) => self.before(txn, key),
            Bound::Included(key) => self.before(txn, &after(key)),
        }
    }

    /// How many members have keys before this one, which is of this order or a bound of it.
    ///
    /// # Errors
    ///
    /// As [`Places::before_start`].
    pub(crate) fn before(&self, txn: &Txn<'_>, key: &[u8]) -> Result<u64, Fault> {
        let to = Bound::Excluded(key.to_vec());
        let Some(order) = self.large(txn) else {
            return self.walk(txn, to);
        };
        let shifts = self.shifts(txn, order)?;
        let shifts = shifts.as_ref().map_or(&[][..], |shifts| &shifts[..]);
        let kept = txn.databases.ranks.ask(order);
        let blocks = self.learned(txn, order, &kept, shifts)?;
        let found = blocks.block_of(rest_of(key));
        let (from, _) = range(order, found.start, found.end);
        let before = found.before;
        drop(blocks);
        let in_block = count(txn.db()?.members.range((from, to)))?;
        count_step(txn, in_block);
        Ok((before + in_block).saturating_add_signed(shift_before(shifts, rest_of(key))))
    }

    /// The key of the member at a place, counted from 0; none past the end.
    ///
    /// # Errors
    ///
    /// As [`Places::before_start`].
    pub(crate) fn key_at(&self, txn: &Txn<'_>, place: u64) -> Result<Option<Slice>, Fault> {
        if place >= self.meta.count {
            return Ok(None);
        }
        let from_end = self.meta.count - 1 - place;
        if place <= STEPPED_MAX || from_end <= STEPPED_MAX {
            let reverse = from_end < place;
            return nth(txn, self.all(), reverse, place.min(from_end));
        }
        let Some(order) = self.large(txn) else {
            return nth(txn, self.all(), false, place);
        };
        let shifts = self.shifts(txn, order)?;
        let shifts = shifts.as_ref().map_or(&[][..], |shifts| &shifts[..]);
        let kept = txn.databases.ranks.ask(order);
        let blocks = self.learned(txn, order, &kept, shifts)?;
        let Some(found) = blocks.block_at(place, shifts) else { return Ok(None) };
        let before = found.before.saturating_add_signed(match found.start {
            Some(start) => shift_before(shifts, start),
            None => 0,
        });
        let left = place.saturating_sub(before);
        let (start, end) = (found.start.map(<[u8]>::to_vec), found.end.map(<[u8]>::to_vec));
        drop(blocks);
        let in_block = |(key, _): &&(Vec<u8>, i64)| {
            start.as_ref().is_none_or(|start| start <= key)
                && end.as_ref().is_none_or(|end| key < end)
        };
        let shifts = shifts.iter().filter(in_block);
        nth_of(txn, range(order, start.as_deref(), end.as_deref()), (order, shifts), left)
    }

    /// Counts the members before an end, one by one.
    fn walk(&self, txn: &Txn<'_>, to: KeyBound) -> Result<u64, Fault> {
        let mut scan = txn.scan(Space::Members, self.all().0, to, false)?;
        let mut count = 0;
        while let Some(found) = scan.next_with(|_, _| ()) {
            found?;
            count += 1;
        }
        count_step(txn, count);
        Ok(count)
    }

    /// The order, if it is not to be walked over.
    fn large(&self, txn: &Txn<'_>) -> Option<Order> {
        self.order(txn).filter(|_| self.meta.count > WALKED_MAX)
    }

    /// What the transaction has pending, as far as it differs from what is stored; none if it has
    /// nothing pending.
    fn shifts<'t>(
        &self,
        txn: &'t Txn<'_>,
        order: Order,
    ) -> Result<Option<RefMut<'t, Shifts>>, Fault> {
        let Some(writes) = txn.writes(Space::Members) else { return Ok(None) };
        let mut overlays = txn.overlays();
        let all = || writes.range(self.all()).map(|(key, _)| key.clone()).collect();
        let overlay = overlays.of(order, all);
        if !overlay.changed.is_empty() {
            let changed = std::mem::take(&mut overlay.changed);
            let keys: Vec<&[u8]> = changed.iter().map(Vec::as_slice).collect();
            let stored = match txn.db()?.members.multi_get(&keys) {
                Ok(stored) => stored,
                Err(error) => {
                    overlays.forget(order);
                    return Err(error.into());
                }
            };
            for (key, stored) in changed.iter().zip(stored) {
                let is_put = writes.get(key).is_some_and(Option::is_some);
                overlay.set(rest_of(key), i64::from(is_put) - i64::from(stored.is_some()));
            }
        }
        Ok(Some(RefMut::map(overlays, |overlays| &mut overlays.of(order, Vec::new).shifts)))
    }

    /// The blocks of this order; learns them if they are not known.
    fn learned<'k>(
        &self,
        txn: &Txn<'_>,
        order: Order,
        kept: &'k Arc<Kept>,
        shifts: &[(Vec<u8>, i64)],
    ) -> Result<Learned<'k>, Fault> {
        let shift: i64 = shifts.iter().map(|(_, shift)| shift).sum();
        // Another number than the entry says would be a fault of the server: it is learned again.
        let agrees = |blocks: &Blocks| {
            let count = blocks.count().saturating_add_signed(shift);
            debug_assert_eq!(count, self.meta.count, "ranks differ from what is stored");
            count == self.meta.count
        };
        let known = || {
            let blocks = RwLockReadGuard::try_map(kept.blocks.read(), Option::as_ref).ok()?;
            agrees(&blocks).then_some(blocks)
        };
        if let Some(blocks) = known() {
            return Ok(blocks);
        }
        let members = &txn.db()?.members;
        match self.learns {
            LearnWhere::Nowhere => return Err(Fault::TakesLong),
            LearnWhere::Beside => {
                let learning = Learning::begin(order, kept, members, self.meta.count);
                return Err(Fault::Learn(Box::new(learning)));
            }
            LearnWhere::Here => {}
        }
        txn.databases.ranks.keep(kept, Blocks::learn(order, members, self.meta.count)?);
        let blocks = RwLockReadGuard::try_map(kept.blocks.read(), Option::as_ref);
        blocks
            .map_err(|_| Fault::from("ERR the members of a sorted set are not as many as it says"))
    }
}

/// The sum of the shifts before a key.
fn shift_before(shifts: &[(Vec<u8>, i64)], key: &[u8]) -> i64 {
    let len = shifts.partition_point(|(other, _)| other.as_slice() < key);
    shifts[..len].iter().map(|(_, shift)| shift).sum()
}

/// Counts what an iterator gives.
fn count(mut pairs: rhumb::Iter) -> Result<u64, Fault> {
    let mut count = 0;
    while let Some(found) = pairs.next_with(|_, _| ()) {
        found?;
        count += 1;
    }
    Ok(count)
}

/// Takes note, for tests, of members that were stepped over.
fn count_step(txn: &Txn<'_>, members: u64) {
    #[cfg(test)]
    txn.databases.ranks.stepped.fetch_add(members, std::sync::atomic::Ordering::Relaxed);
    #[cfg(not(test))]
    let _ = (txn, members);
}

/// The key at a place of a range: of what is stored, shifted.
fn nth_of<'s>(
    txn: &Txn<'_>,
    bounds: (KeyBound, KeyBound),
    (order, shifts): (Order, impl Iterator<Item = &'s (Vec<u8>, i64)>),
    place: u64,
) -> Result<Option<Slice>, Fault> {
    let (mut left, mut shifts) = (place, shifts.peekable());
    let mut stored = txn.db()?.members.range(bounds);
    loop {
        let next = stored.next().transpose()?.map(|(key, _)| key);
        count_step(txn, 1);
        // Those that are not stored and come before.
        let is_before = |rest: &[u8]| next.as_deref().is_none_or(|next| rest < rest_of(next));
        while let Some((rest, _)) = shifts.next_if(|(rest, _)| is_before(rest)) {
            if left == 0 {
                return Ok(Some(order.key(rest).into()));
            }
            left -= 1;
        }
        let Some(next) = next else { return Ok(None) };
        if shifts.next_if(|(rest, _)| rest.as_slice() == rest_of(&next)).is_some() {
            // It is removed.
            continue;
        }
        if left == 0 {
            return Ok(Some(next));
        }
        left -= 1;
    }
}

fn nth(
    txn: &Txn<'_>,
    (from, to): (KeyBound, KeyBound),
    reverse: bool,
    place: u64,
) -> Result<Option<Slice>, Fault> {
    let mut scan = txn.scan(Space::Members, from, to, reverse)?;
    for _ in 0..place {
        let Some(passed) = scan.next_with(|_, _| ()) else { return Ok(None) };
        passed?;
    }
    count_step(txn, place);
    Ok(scan.next().transpose()?.map(|(key, _)| key))
}

#[cfg(test)]
mod tests;
