//! Ranges by a client: trained records by a window, and what lies in their gaps by one operation.

use std::{iter::Peekable, sync::Arc};

use super::{
    client::{Answer, Caller, Client, KnownArray, answer_of},
    layout::Link,
    message::{Address, Operation, Outcome, PAIRS_MAX, Pair, Value, Verb},
    window::{Found, Wide, Window},
};
use crate::{
    error::{Error, Result},
    fabric::Fabric,
};

/// Trained records that are read for one page beyond those of the window: three blocks more, which
/// the same trip brings. With 64 of them a range of 100 keys took two pages.
const PAGE_RECORDS: usize = 128;

/// Lines of wide records that are read for one page: 1 MiB, what a host's page has at most.
const WIDE_LINES_MAX: usize = 16 << 10;

/// A part of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangePage {
    pub(crate) pairs: Vec<Pair>,
    /// Where the range goes on; `None` at its end.
    pub(crate) next: Option<Vec<u8>>,
}

impl<C: Caller> Client<C> {
    /// The first pairs, at most `limit`, of the keys from `from` on and below `end`.
    ///
    /// # Errors
    ///
    /// Those of the fabric and the connection.
    pub(crate) fn range(
        &mut self,
        fabric: &impl Fabric,
        now_ms: u64,
        from: &[u8],
        end: Option<&[u8]>,
        limit: usize,
    ) -> Result<RangePage> {
        let limit = limit.clamp(1, PAIRS_MAX as usize);
        self.counts.ranges += 1;
        if end.is_some_and(|end| end <= from) {
            return Ok(RangePage { pairs: Vec::new(), next: None });
        }
        if let Some(known) = self.known(now_ms, from) {
            if let Some(mut page) = self.page(fabric, &known, from, end, limit)? {
                if page.pairs.len() > limit {
                    page.next = Some(page.pairs[limit].0.clone());
                    page.pairs.truncate(limit);
                }
                return Ok(page);
            }
            self.counts.unproven += 1;
        }
        let address = self.no_address(now_ms);
        match self.ask(address, from, end.map(Arc::from), limit)? {
            Some(page) => Ok(page),
            None => Err(Error::invalid("a range that is answered by something else")),
        }
    }

    fn ask(
        &mut self,
        address: Address,
        from: &[u8],
        end: Option<Arc<[u8]>>,
        limit: usize,
    ) -> Result<Option<RangePage>> {
        let mut operation = Operation::new(Verb::Range, address, from, &[]);
        (operation.end, operation.limit) = (end, limit as u32);
        match self.operate(operation)? {
            Outcome::Pairs { pairs, next } => Ok(Some(RangePage { pairs, next })),
            _ => Ok(None),
        }
    }

    /// A page of one array; `None` if its records are not proven, or the array answers no more.
    fn page(
        &mut self,
        fabric: &impl Fabric,
        known: &KnownArray,
        from: &[u8],
        end: Option<&[u8]>,
        limit: usize,
    ) -> Result<Option<RangePage>> {
        let (low, high) = known.array.window(from);
        let last = (high + limit.min(PAGE_RECORDS)).min(known.array.records as usize);
        let Some(mut window) = self.window(fabric, known, (low, last))? else { return Ok(None) };
        let found = if from.starts_with(&known.array.prefix) {
            self.seek(fabric, &window, from)?.map(|(found, _)| found)
        } else {
            window.beside(&known.array.prefix, from)
        };
        let Some(Found::Record(at) | Found::Gap(at)) = found else { return Ok(None) };
        window.shorten(at, WIDE_LINES_MAX);
        let records = &window.records[at..];
        let Some(wide) = self.fetch(fabric, records, records.len())? else { return Ok(None) };
        let Some(trained) = TrainedPage::new(&window, at, wide) else { return Ok(None) };
        let bound = match trained.next_key {
            Some(ref next) => Some(Arc::from(&next[..])),
            None => known.array.span.high.clone(),
        };
        let bound = match (bound, end) {
            (Some(bound), Some(end)) if *bound < *end => Some(bound),
            (Some(bound), None) => Some(bound),
            (_, end) => end.map(Arc::from),
        };
        let is_last = bound.as_deref() == end;
        let mut page = RangePage { pairs: Vec::new(), next: bound.as_deref().map(<[u8]>::to_vec) };
        if is_last {
            page.next = None;
        }
        let mut binned = Vec::new();
        if trained.is_linked {
            let record = (window.first + at) as u32;
            let address = Address { array: known.array.epoch, record, ..Address::default() };
            let all = PAIRS_MAX as usize;
            match self.ask(address, from, bound.clone(), all)? {
                Some(found) => {
                    binned = found.pairs;
                    page.next = found.next.or(page.next);
                }
                None => return Ok(None),
            }
        }
        let is_before = |key: &[u8]| match (&page.next, end) {
            (Some(next), _) => key < &next[..],
            (None, Some(end)) => key < end,
            (None, None) => true,
        };
        let mut trained = trained.pairs;
        trained.retain(|(key, _)| **key >= *from && is_before(key));
        page.pairs = merge(trained.into_iter().peekable(), binned.into_iter().peekable());
        Ok(Some(page))
    }
}

/// The trained records of a page.
struct TrainedPage {
    pairs: Vec<Pair>,
    /// Something is linked to a gap of the page.
    is_linked: bool,
    /// The key of the record after the page; `None` if the array ends with it.
    next_key: Option<Vec<u8>>,
}

impl TrainedPage {
    /// The records of a window from one on, with those that are wide; `None` if one of them is
    /// changing.
    fn new(window: &Window, at: usize, wide: Vec<Wide>) -> Option<Self> {
        let mut wide = wide.into_iter();
        let mut page = Self { pairs: Vec::new(), is_linked: false, next_key: None };
        let count = window.records.len() - at;
        for (index, record) in window.records[at..].iter().enumerate() {
            let wide = record.wide_extent().and_then(|_| wide.next());
            let key = match &wide {
                Some(wide) => wide.key.clone(),
                None => record.key_bytes().to_vec(),
            };
            if index > 0 && index + 1 == count && !window.is_at_end() {
                page.next_key = Some(key);
                return Some(page);
            }
            page.is_linked |= record.link() != Link::Empty;
            if window.first + at + index == 0 {
                continue;
            }
            let value = match answer_of(record, wide)? {
                Answer::Found(value) => Value::Here(value),
                Answer::Ask(len) => Value::Ask(len),
                Answer::Absent => continue,
            };
            page.pairs.push((key, value));
        }
        window.is_at_end().then_some(page)
    }
}

/// Merges pairs of two sorted sequences.
fn merge(
    mut a: Peekable<impl Iterator<Item = Pair>>,
    mut b: Peekable<impl Iterator<Item = Pair>>,
) -> Vec<Pair> {
    let mut all = Vec::new();
    loop {
        let takes_a = match (a.peek(), b.peek()) {
            (Some(a), Some(b)) => a.0 <= b.0,
            (Some(_), None) => true,
            (None, _) => false,
        };
        match if takes_a { a.next() } else { b.next() } {
            Some(pair) => all.push(pair),
            None => return all,
        }
    }
}
