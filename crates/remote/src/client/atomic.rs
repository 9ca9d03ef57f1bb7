//! Reads of several keys at one moment: all of a batch is seen, or nothing of it.
//!
//! A reader notes the state of each leaf that it reads, and looks at all states again at the end.
//! All leaves that a batch changes are latched before one of them is unlatched, so a reader that
//! saw a part of it finds that a leaf of the other part has changed.

use std::{
    ops::{Bound, RangeBounds},
    thread,
};

use super::{
    Outcome, Page, Pairs, States,
    keyspace::Keyspace,
    range::{Pair, is_inside},
    tcp::TcpReads,
};
use crate::error::{Error, Result};

/// Times that leaves are read and found to have changed meanwhile, before the host is asked.
const COLLECTS_MAX: usize = 32;

/// The same of leaves that are read by RDMA, where each time takes two round trips and more.
const REMOTE_COLLECTS_MAX: usize = 4;

/// Said of what does not fit a message, and so cannot be asked for at one moment.
const TOO_LARGE: &str = "too much for one message, so that it cannot be read at one moment";

impl Keyspace {
    /// The values of several keys at one moment, in their order: of a batch that is written
    /// meanwhile, all is seen or nothing.
    ///
    /// Looks at each leaf twice. Where leaves keep changing, or have not all the values, the host
    /// is asked; all keys and values have to fit a message of 16 MiB then.
    ///
    /// ```no_run
    /// # fn main() -> rhumb_remote::Result<()> {
    /// # let users = rhumb_remote::Client::connect("rhumb.sock")?.keyspace("accounts")?;
    /// let both = users.multi_get_atomic(&["savings", "current"])?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`]; [`Error::Refused`] if the answer does not fit a message.
    pub fn multi_get_atomic<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        let states = States::default();
        for _ in 0..COLLECTS_MAX {
            let mapped = self.mapped();
            let Some(reading) = self.begin_read(mapped.as_deref()) else { break };
            let (mut values, mut asks, mut is_whole) = (vec![None; keys.len()], false, true);
            let noting = reading.reader.noting(&states);
            noting.multi_get(keys, |index, outcome, value| match outcome {
                Outcome::Found => values[index] = Some(value.to_vec()),
                Outcome::Absent => {}
                Outcome::Ask(_) => asks = true,
                Outcome::Busy => is_whole = false,
            });
            if asks {
                break;
            }
            // planted: states-not-compared-atomic-read
            if is_whole && reading.reader.are_unchanged(&states) {
                if keys.iter().all(|key| reading.serves(key.as_ref())) {
                    return Ok(values);
                }
                break;
            }
            thread::yield_now();
        }
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        if let Some(apart) = self.apart().filter(TcpReads::is_remote) {
            for _ in 0..REMOTE_COLLECTS_MAX {
                if let Some(values) = apart.multi_get_at_once(&keys)? {
                    return Ok(values);
                }
            }
        }
        self.call_multi_get_once(&keys)
    }

    /// The first `limit` pairs of a range at one moment: of a batch that is written meanwhile, all
    /// is seen or nothing. Otherwise as [`Keyspace::multi_get_atomic`], but where the host is asked
    /// it answers with 256 KiB at most.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`]; [`Error::Refused`] if the answer does not fit a message.
    pub fn range_atomic<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        let (from, to) = (owned(range.start_bound()), owned(range.end_bound()));
        let states = States::default();
        for _ in 0..COLLECTS_MAX {
            match self.collect(&states, &from, &to, limit) {
                Collected::Pairs(pairs) => return Ok(pairs),
                Collected::Changed => thread::yield_now(),
                Collected::Asks => break,
            }
        }
        if let Some(apart) = self.apart().filter(TcpReads::is_remote) {
            for _ in 0..REMOTE_COLLECTS_MAX {
                let states = States::default();
                let gathered = gather(&from, &to, limit, |from, limit, page| {
                    apart.page_up(from, limit, (page, &states))
                });
                match gathered {
                    Collected::Pairs(pairs) if apart.are_unchanged(&states) => return Ok(pairs),
                    Collected::Pairs(_) | Collected::Changed => {}
                    Collected::Asks => break,
                }
            }
        }
        let bounds = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
        let wanted = u32::try_from(limit).unwrap_or(u32::MAX);
        let mut pairs = Pairs::default();
        let more = self.call_scan(bounds.0, bounds.1, false, wanted, true, &mut pairs)?;
        if more && pairs.len() < limit {
            return Err(Error::too_large(TOO_LARGE));
        }
        let owned =
            |(key, value): (&[u8], Option<&[u8]>)| (key.to_vec(), value.map(<[u8]>::to_vec));
        let owned = pairs.iter().map(owned).map(|(key, value)| (key, value.unwrap_or_default()));
        Ok(owned.collect())
    }

    fn collect(
        &self,
        states: &States,
        from: &Bound<Vec<u8>>,
        to: &Bound<Vec<u8>>,
        limit: usize,
    ) -> Collected {
        let mapped = self.mapped();
        let Some(reading) = self.begin_read(mapped.as_deref()) else { return Collected::Asks };
        let noting = reading.reader.noting(states);
        let gathered =
            gather(from, to, limit, |from, limit, page| noting.page_up(from, limit, page));
        let Collected::Pairs(pairs) = gathered else { return gathered };
        if !reading.reader.are_unchanged(states) {
            return Collected::Changed;
        }
        let bounds = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
        if reading.serves_range(bounds) { Collected::Pairs(pairs) } else { Collected::Asks }
    }
}

/// What reading a range came to.
enum Collected {
    Pairs(Vec<Pair>),
    /// It was changed meanwhile.
    Changed,
    /// The host has a part of it.
    Asks,
}

/// Reads the first `limit` pairs of a range part by part: `next_page` is told where a part begins,
/// and returns false if it could not be read.
fn gather(
    from: &Bound<Vec<u8>>,
    to: &Bound<Vec<u8>>,
    limit: usize,
    mut next_page: impl FnMut(Bound<&[u8]>, usize, &mut Page) -> bool,
) -> Collected {
    let (mut pairs, mut page) = (Vec::<Pair>::new(), Page::default());
    let mut at = from.clone();
    'pages: loop {
        let from = at.as_ref().map(Vec::as_slice);
        let left = limit - pairs.len();
        if left == 0 {
            break;
        }
        if !next_page(from, left, &mut page) {
            return Collected::Changed;
        }
        if page.has_long_keys {
            return Collected::Asks;
        }
        for (key, value) in page.pairs.iter() {
            if !is_inside(key, &Bound::Unbounded, to) {
                break 'pages;
            }
            let Some(value) = value else { return Collected::Asks };
            pairs.push((key.to_vec(), value.to_vec()));
        }
        let Some(next) = page.next.take() else { break };
        // A damaged leaf may say that the range goes on where it is.
        let advances = match &at {
            Bound::Unbounded => true,
            Bound::Included(key) | Bound::Excluded(key) => next > *key,
        };
        if !advances {
            return Collected::Asks;
        }
        at = Bound::Included(next);
    }
    Collected::Pairs(pairs)
}
