//! Places of members in the order of scores, or of names: how many are before a key, and which one
//! is at a place.

use std::ops::Bound;

use rhumb::Slice;

use super::Context;
use crate::{
    encode::{Meta, member},
    fault::Fault,
    txn::{KeyBound, Space, prefix_range},
};

/// The first key after this one.
fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// One of the two orders of a sorted set's members.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places<'m> {
    meta: &'m Meta,
    by_score: bool,
}

impl<'m> Places<'m> {
    /// The order of scores, or of names.
    pub(super) fn new(meta: &'m Meta, by_score: bool) -> Self {
        Self { meta, by_score }
    }

    /// The range of all keys of this order.
    pub(super) fn all(&self) -> (KeyBound, KeyBound) {
        prefix_range(&member::zset_prefix(self.meta.id, self.by_score))
    }

    /// How many members are before the start of a range.
    pub(super) fn before_start(
        &self,
        context: &mut Context<'_, '_>,
        start: &KeyBound,
    ) -> Result<u64, Fault> {
        match start {
            Bound::Unbounded => Ok(0),
            Bound::Included(key) => self.before(context, key),
            Bound::Excluded(key) => self.before(context, &after(key)),
        }
    }

    /// How many members are before the end of a range.
    pub(super) fn before_end(
        &self,
        context: &mut Context<'_, '_>,
        end: &KeyBound,
    ) -> Result<u64, Fault> {
        match end {
            Bound::Unbounded => Ok(self.meta.count),
            Bound::Excluded(key) if Some(key) == self.end().as_ref() => Ok(self.meta.count),
            Bound::Excluded(key) => self.before(context, key),
            Bound::Included(key) => self.before(context, &after(key)),
        }
    }

    /// The first key past this order, if there can be one.
    fn end(&self) -> Option<Vec<u8>> {
        match self.all().1 {
            Bound::Excluded(key) => Some(key),
            Bound::Included(_) | Bound::Unbounded => None,
        }
    }

    /// How many members have keys before this one.
    pub(super) fn before(&self, context: &mut Context<'_, '_>, key: &[u8]) -> Result<u64, Fault> {
        context.check_length(self.meta.count)?;
        let (from, _) = self.all();
        let to = Bound::Excluded(key.to_vec());
        let mut scan = context.txn.scan(Space::Members, from, to, false)?;
        let mut count = 0;
        while let Some(found) = scan.next_with(|_, _| ()) {
            found?;
            count += 1;
        }
        Ok(count)
    }

    /// The key of the member at a place, counted from 0; none past the end.
    pub(super) fn key_at(
        &self,
        context: &mut Context<'_, '_>,
        place: u64,
    ) -> Result<Option<Slice>, Fault> {
        context.check_length(self.meta.count)?;
        let (from, to) = self.all();
        let mut scan = context.txn.scan(Space::Members, from, to, false)?;
        let skip = usize::try_from(place).unwrap_or(usize::MAX);
        Ok(scan.nth(skip).transpose()?.map(|(key, _)| key))
    }
}
