//! Ranges at the host: all pairs in order, or only those that lie in the gaps of one array.

use std::ops::{Bound, RangeBounds};

use super::{
    array::Array,
    bins,
    descriptor::up_to,
    host::Host,
    layout::{Link, Record, Token},
    message::{Operation, Outcome, PAIRS_MAX, Pair, Value},
};
use crate::host::Space;

/// Bytes of keys and values in one reply, beyond which it ends: 1 MiB keeps a host's answer short.
const PAGE_BYTES_MAX: usize = 1 << 20;

/// The pairs of a reply, as they are found.
struct Page<'o> {
    operation: &'o Operation,
    pairs: Vec<Pair>,
    bytes: usize,
    /// Where the range goes on.
    next: Option<Vec<u8>>,
}

impl Page<'_> {
    /// Takes the next record; returns false at the end of the page or of the range.
    fn push<S: Space>(&mut self, host: &Host<S>, record: &Record) -> bool {
        let key = host.records.key(record);
        if key < self.operation.key {
            return true;
        }
        if self.operation.end.as_ref().is_some_and(|end| *key >= **end) {
            return false;
        }
        if self.pairs.len() >= self.operation.limit.min(PAIRS_MAX) as usize
            || self.bytes > PAGE_BYTES_MAX
        {
            self.next = Some(key);
            return false;
        }
        let value = host.records.value(record);
        let value_len = if let Value::Here(value) = &value { value.len() } else { 0 };
        self.bytes += key.len() + value_len;
        self.pairs.push((key, value));
        true
    }
}

/// Takes records in descending order; returns false at the end.
type Take<'t> = &'t mut dyn FnMut(&Record) -> bool;

impl<S: Space> Host<S> {
    /// The last pairs, at most `limit`, of the keys up to a bound, in descending order.
    pub(crate) fn pairs_down(&self, to: Bound<&[u8]>, limit: usize) -> Vec<Pair> {
        let mut pairs = Vec::new();
        for epoch in
            self.tops.range::<[u8], _>((Bound::Unbounded, to)).rev().map(|(_, epoch)| epoch)
        {
            let Some(array) = self.arrays.get(epoch) else { continue };
            let last = match to {
                Bound::Included(key) | Bound::Excluded(key)
                    if array.descriptor.span.contains(key) =>
                {
                    array.search(&self.records, key).unwrap_or_else(|before| before)
                }
                _ => array.len(),
            };
            let goes_on = self.visit_down(array, last, &mut |record| {
                let key = self.records.key(record);
                if !(Bound::Unbounded, to).contains(&key[..]) {
                    return true;
                }
                if pairs.len() < limit {
                    pairs.push((key, self.records.value(record)));
                }
                pairs.len() < limit
            });
            if !goes_on {
                break;
            }
        }
        pairs
    }

    /// Visits an array from the gap after a record on downwards.
    fn visit_down(&self, array: &Array, last: usize, take: Take<'_>) -> bool {
        let mut binned = Vec::new();
        for index in (0..=last).rev() {
            let record = array.record(&self.records, index);
            let goes_on = match record.link() {
                Link::Empty => true,
                Link::Bin(root) => {
                    binned.clear();
                    bins::collect(&self.records, root, &mut binned);
                    binned.iter().rev().all(&mut *take)
                }
                Link::Small(slot) => self
                    .small(slot)
                    .and_then(|small| self.arrays.get(&small))
                    .is_none_or(|small| self.visit_down(small, small.len(), take)),
            };
            let is_wanted = index > 0 && record.token() == Token::Live;
            if !goes_on || is_wanted && !take(&record) {
                return false;
            }
        }
        true
    }

    /// Answers a range: with an address, only what lies in the gaps of its array.
    pub(crate) fn range(&self, operation: &Operation) -> Outcome {
        let mut page = Page { operation, pairs: Vec::new(), bytes: 0, next: None };
        let address = operation.address;
        let named = self.arrays.get(&address.array);
        match named.filter(|array| !array.is_retired && !array.is_small) {
            Some(array) => {
                self.visit(array, address.record as usize, 0, true, &mut page);
            }
            None if address.array != 0 && address.array != super::message::Address::UNTAUGHT => {
                return Outcome::Moved;
            }
            None => {
                let key = &operation.key[..];
                let low = self.tops.range::<[u8], _>(up_to(key)).next_back().map(|(low, _)| low);
                let tops = self.tops.range(low.cloned().unwrap_or_default()..);
                for array in tops.filter_map(|(_, epoch)| self.arrays.get(epoch)) {
                    let first = match array.search(&self.records, key) {
                        _ if *array.descriptor.span.low > *key => 0,
                        Ok(index) | Err(index) => index,
                    };
                    if !self.visit(array, first, 0, false, &mut page) {
                        break;
                    }
                }
            }
        }
        Outcome::Pairs { pairs: page.pairs, next: page.next }
    }

    /// Pushes the pairs of an array from a record on, in order; returns false at the page's end.
    fn visit(
        &self,
        array: &Array,
        first: usize,
        depth: usize,
        only_gaps: bool,
        page: &mut Page<'_>,
    ) -> bool {
        let mut binned = Vec::new();
        for index in first..=array.len() {
            let record = array.record(&self.records, index);
            let is_wanted = index > 0 && record.token() == Token::Live;
            if is_wanted && !(only_gaps && depth == 0) && !page.push(self, &record) {
                return false;
            }
            let goes_on = match record.link() {
                Link::Empty => true,
                Link::Bin(root) => {
                    binned.clear();
                    bins::collect(&self.records, root, &mut binned);
                    binned.iter().all(|record| page.push(self, record))
                }
                Link::Small(slot) => self
                    .small(slot)
                    .and_then(|small| self.arrays.get(&small))
                    .is_none_or(|small| self.visit(small, 0, depth + 1, only_gaps, page)),
            };
            if !goes_on {
                return false;
            }
        }
        true
    }
}
