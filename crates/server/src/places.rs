//! Places of a sorted set's members in the order of scores, or of names: how many are before a
//! key, and which one is at a place. O(log n), over what is stored and what a transaction has
//! pending.
//!
//! A small sorted set is walked over. Of another one, the blocks of [`crate::ranks`] say where to
//! begin, and a walk over at most one block does the rest.

use std::ops::Bound;

use parking_lot::{MappedRwLockReadGuard, RwLockReadGuard};
use rhumb::Slice;

use crate::{
    encode::{Meta, member},
    fault::Fault,
    ranks::{Blocks, Kept, Order, Shifts, range, rest_of},
    txn::{KeyBound, Space, Txn, prefix_range},
};

/// The largest sorted set, in members, that is walked over: it takes some ten microseconds.
const WALKED_MAX: u64 = 256;

/// The first key after this one.
fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// One of the two orders of a sorted set's members.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places<'m> {
    meta: &'m Meta,
    by_score: bool,
    /// True if the caller may take long: other clients of its worker are served meanwhile.
    may_take_long: bool,
}

/// What is pending for a key, and stored.
type PendingAndStored<'w> = ((&'w Vec<u8>, &'w Option<Vec<u8>>), Option<Slice>);

/// Blocks that are learned, while they are read.
type Learned<'k> = MappedRwLockReadGuard<'k, Blocks>;

impl<'m> Places<'m> {
    /// The order of scores, or of names.
    pub(crate) fn new(meta: &'m Meta, by_score: bool, may_take_long: bool) -> Self {
        Self { meta, by_score, may_take_long }
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
    /// [`Fault::TakesLong`] if it does and may not; the engine's.
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
            return count(txn, (self.all().0, to));
        };
        let shifts = self.shifts(txn)?;
        let kept = txn.databases.ranks.ask(order);
        let blocks = self.learned(txn, order, &kept, &shifts)?;
        let found = blocks.block_of(rest_of(key));
        let (from, _) = range(order, found.start, found.end);
        let before = found.before.saturating_add_signed(shift_before(&shifts, found.start));
        drop(blocks);
        Ok(before + count(txn, (from, to))?)
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
        let Some(order) = self.large(txn) else {
            return nth(txn, self.all(), place);
        };
        let shifts = self.shifts(txn)?;
        let kept = txn.databases.ranks.ask(order);
        let blocks = self.learned(txn, order, &kept, &shifts)?;
        let Some(found) = blocks.block_at(place, &shifts) else { return Ok(None) };
        let bounds = range(order, found.start, found.end);
        let before = found.before.saturating_add_signed(shift_before(&shifts, found.start));
        drop(blocks);
        nth(txn, bounds, place.saturating_sub(before))
    }

    /// The order, if it is not to be walked over.
    fn large(&self, txn: &Txn<'_>) -> Option<Order> {
        self.order(txn).filter(|_| self.meta.count > WALKED_MAX)
    }

    /// What the transaction has pending, as far as it differs from what is stored.
    fn shifts(&self, txn: &Txn<'_>) -> Result<Shifts, Fault> {
        let Some(writes) = txn.writes(Space::Members) else { return Ok(Shifts::new()) };
        let writes: Vec<_> = writes.range(self.all()).collect();
        if writes.is_empty() {
            return Ok(Shifts::new());
        }
        let keys: Vec<&[u8]> = writes.iter().map(|(key, _)| key.as_slice()).collect();
        let stored = txn.db()?.members.multi_get(&keys)?;
        let shift = |((key, value), stored): PendingAndStored<'_>| {
            let shift = i64::from(value.is_some()) - i64::from(stored.is_some());
            (shift != 0).then(|| (rest_of(key).to_vec(), shift))
        };
        Ok(writes.into_iter().zip(stored).filter_map(shift).collect())
    }

    /// The blocks of this order; learns them if they are not known.
    fn learned<'k>(
        &self,
        txn: &Txn<'_>,
        order: Order,
        kept: &'k Kept,
        shifts: &Shifts,
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
        if !self.may_take_long {
            return Err(Fault::TakesLong);
        }
        let _one = kept.learning.lock();
        if let Some(blocks) = known() {
            return Ok(blocks);
        }
        txn.databases.ranks.keep(kept, self.learn(txn, order)?);
        let blocks = RwLockReadGuard::try_map(kept.blocks.read(), Option::as_ref);
        blocks
            .map_err(|_| Fault::from("ERR the members of a sorted set are not as many as it says"))
    }

    /// Walks over all that is stored.
    fn learn(&self, txn: &Txn<'_>, order: Order) -> Result<Blocks, Fault> {
        let mut all = txn.db()?.members.range(range(order, None, None));
        all.hint_len(usize::try_from(self.meta.count).unwrap_or(usize::MAX));
        let (mut blocks, mut last) = (Blocks::default(), Vec::new());
        while let Some(pushed) = all.next_with(|key, _| blocks.push(rest_of(key), &mut last)) {
            pushed?;
        }
        Ok(blocks)
    }
}

/// The sum of the shifts before a key.
fn shift_before(shifts: &Shifts, key: Option<&[u8]>) -> i64 {
    let Some(key) = key else { return 0 };
    let before = shifts.iter().take_while(|(other, _)| other.as_slice() < key);
    before.map(|(_, shift)| shift).sum()
}

fn count(txn: &Txn<'_>, (from, to): (KeyBound, KeyBound)) -> Result<u64, Fault> {
    let mut scan = txn.scan(Space::Members, from, to, false)?;
    let mut count = 0;
    while let Some(found) = scan.next_with(|_, _| ()) {
        found?;
        count += 1;
    }
    #[cfg(test)]
    txn.databases.ranks.stepped.fetch_add(count, std::sync::atomic::Ordering::Relaxed);
    Ok(count)
}

fn nth(
    txn: &Txn<'_>,
    (from, to): (KeyBound, KeyBound),
    place: u64,
) -> Result<Option<Slice>, Fault> {
    let mut scan = txn.scan(Space::Members, from, to, false)?;
    for _ in 0..place {
        let Some(passed) = scan.next_with(|_, _| ()) else { return Ok(None) };
        passed?;
    }
    #[cfg(test)]
    txn.databases.ranks.stepped.fetch_add(place, std::sync::atomic::Ordering::Relaxed);
    Ok(scan.next().transpose()?.map(|(key, _)| key))
}

#[cfg(test)]
mod tests;
