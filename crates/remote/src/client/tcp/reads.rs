//! Gets over TCP: a guess by the cache, a message, and what the answer says of the guess.

use std::{cell::Cell, ops::Bound};

use super::{
    super::{
        Outcome, Page, States, connection::unexpected, keyspace::KeyspaceInner as Keyspace,
        rdma::RemoteReads,
    },
    Cache, Link, Opened, Shape,
    cache::{Expected, Lack},
};
use crate::{
    error::{Error, Result},
    layout::Geometry,
    message::{
        Answer, Guess, How, Reply, Request,
        format::{ITEMS_MAX, failure},
    },
};

/// The most keys of one message: as many as keep it small.
const KEYS_MAX: usize = 1_024;
/// The most bytes of keys in one message, which may have long ones.
const KEY_BYTES_MAX: usize = 1 << 20;

/// Pieces of the directory that one read of several keys brings at most: the others come with the
/// next reads.
const REFRESHES_MAX: usize = 4;

/// The most messages that a top comes in: of a host that goes on for ever, no more is asked.
const TOP_PARTS_MAX: usize = 256;

/// A keyspace that is read over TCP.
#[derive(Clone, Copy)]
pub(in crate::client) struct TcpReads<'k> {
    link: &'k Link,
    keyspace: &'k Keyspace,
    cache: &'k Cache,
    /// If leaves are read by RDMA, and not by the host.
    remote: Option<RemoteReads<'k>>,
}

impl<'k> TcpReads<'k> {
    pub(in crate::client) fn new(
        link: &'k Link,
        keyspace: &'k Keyspace,
        cache: &'k Cache,
        remote: Option<RemoteReads<'k>>,
    ) -> Self {
        Self { link, keyspace, cache, remote }
    }

    /// Returns true if leaves are read by RDMA where that can be done.
    pub(in crate::client) fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    fn expect(&self, opened: &Opened, key: &[u8]) -> Expected {
        let short = match opened.shape {
            Shape::Runs(geometry) => geometry.short(key),
            // The host finds it, whatever is said of leaves.
            Shape::Pieces(_) => key,
        };
        self.cache.expect(opened.generation, short)
    }

    /// Appends the value of `key` to `value`; returns false if the key is not there.
    ///
    /// # Errors
    ///
    /// Those of a call.
    pub(in crate::client) fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.keyspace.counters.read(1);
        let mut found = Outcome::Busy;
        self.get_remotely(&[key], |_, outcome, bytes| {
            found = outcome;
            value.extend_from_slice(bytes);
        })?;
        if matches!(found, Outcome::Found | Outcome::Absent) {
            return Ok(found == Outcome::Found);
        }
        let expected = Cell::new(None);
        let request = |opened: &Opened| {
            let at = self.expect(opened, key);
            expected.set(Some(at));
            Request::Read { keyspace: opened.number, guess: at.guess, key }
        };
        let (epoch, how, is_found) =
            self.link.call(self.keyspace, true, request, |reply| match reply {
                Reply::Read { epoch, answer } => {
                    value.extend_from_slice(answer.value.unwrap_or_default());
                    Ok((epoch, answer.how, answer.value.is_some()))
                }
                other => Err(unexpected(&other)),
            })?;
        if let Some(at) = expected.get()
            && self.is_misled(&at, how)
        {
            self.refresh(&at, epoch, key);
        }
        Ok(is_found)
    }

    /// The values of several keys, in their order.
    ///
    /// # Errors
    ///
    /// Those of a call.
    pub(in crate::client) fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values = Vec::with_capacity(keys.len());
        let mut left = keys;
        while !left.is_empty() {
            let mut bytes = 0;
            let count = left.iter().take(KEYS_MAX).take_while(|key| {
                bytes += key.len();
                bytes <= KEY_BYTES_MAX
            });
            let (some, others) = left.split_at(count.count().max(1));
            self.read_some(some, &mut values)?;
            left = others;
        }
        Ok(values)
    }

    /// Reads keys by RDMA where that can be done, and the others by one message.
    fn read_some(&self, keys: &[&[u8]], values: &mut Vec<Option<Vec<u8>>>) -> Result<()> {
        if self.remote.is_none() {
            return self.read_many(keys, values);
        }
        let mut found: Vec<Option<Option<Vec<u8>>>> = vec![None; keys.len()];
        self.get_remotely(keys, |index, outcome, value| match outcome {
            Outcome::Found => found[index] = Some(Some(value.to_vec())),
            Outcome::Absent => found[index] = Some(None),
            Outcome::Ask(_) | Outcome::Busy => {}
        })?;
        let missed: Vec<&[u8]> = keys
            .iter()
            .zip(&found)
            .filter(|(_, found)| found.is_none())
            .map(|(key, _)| *key)
            .collect();
        self.keyspace.counters.read((keys.len() - missed.len()) as u64);
        let mut asked = Vec::with_capacity(missed.len());
        if !missed.is_empty() {
            self.read_many(&missed, &mut asked)?;
        }
        let mut asked = asked.into_iter();
        values.extend(found.into_iter().map(|found| found.or_else(|| asked.next()).flatten()));
        Ok(())
    }

    /// Gets those of the keys by RDMA of which the cache knows the leaves: `each` is called for
    /// some of them, with their indexes.
    fn get_remotely(&self, keys: &[&[u8]], each: impl FnMut(usize, Outcome, &[u8])) -> Result<()> {
        let Some((remote, geometry, wanted)) = self.wanted_remotely(keys)? else { return Ok(()) };
        let mut each = each;
        let pairs = wanted.iter().map(|(index, slot)| (*slot, keys[*index]));
        remote.get_many(geometry, pairs, |at, outcome, value| {
            each(wanted[at].0, outcome, value);
        })?;
        Ok(())
    }

    /// What reads by RDMA, and the indexes of the keys whose leaves the cache knows, with these.
    #[expect(clippy::type_complexity, reason = "it is taken apart at once")]
    fn wanted_remotely(
        &self,
        keys: &[&[u8]],
    ) -> Result<Option<(RemoteReads<'k>, Geometry, Vec<(usize, u32)>)>> {
        let Some(remote) = self.remote.filter(RemoteReads::may_read) else { return Ok(None) };
        let opened = self.link.open(self.keyspace.name())?;
        let Shape::Runs(geometry) = opened.shape else { return Ok(None) };
        let slot = |(index, key): (usize, &&[u8])| match self.expect(&opened, key).guess {
            Guess::Leaf(slot) => Some((index, slot)),
            Guess::None | Guess::Block(_) => None,
        };
        let wanted: Vec<_> = keys.iter().enumerate().filter_map(slot).collect();
        Ok((!wanted.is_empty()).then_some((remote, geometry, wanted)))
    }

    /// Reads a part of a range upwards by RDMA, and notes the states of its leaves; returns false
    /// if the host must be asked.
    pub(in crate::client) fn page_up(
        &self,
        from: Bound<&[u8]>,
        limit: usize,
        (page, states): (&mut Page, &States),
    ) -> bool {
        let Some((remote, opened, geometry)) = self.pages() else { return false };
        let (key, skips) = match from {
            Bound::Unbounded => (&[][..], false),
            Bound::Included(key) => (geometry.short(key), false),
            // What stands for a long key stands for others after it.
            Bound::Excluded(key) => (geometry.short(key), !geometry.is_long(key)),
        };
        let Guess::Leaf(slot) = self.expect(&opened, key).guess else { return false };
        let slot = page.slot.unwrap_or(slot);
        self.count_page(remote.page_up(geometry, slot, (key, skips), limit, (page, states)))
    }

    /// The same of a range that goes down.
    pub(in crate::client) fn page_down(
        &self,
        to: Bound<&[u8]>,
        limit: usize,
        page: &mut Page,
    ) -> bool {
        let Some((remote, opened, geometry)) = self.pages() else { return false };
        let (key, takes) = match to {
            Bound::Unbounded => (None, false),
            Bound::Included(key) => (Some(geometry.short(key)), true),
            // As in a mapped region: what stands for longer keys may stand for some below this one.
            Bound::Excluded(key) => (Some(geometry.short(key)), geometry.is_long(key)),
        };
        // Above any key that leaves hold, which are shorter.
        let likely = key.unwrap_or(&[0xff; 256]);
        let Guess::Leaf(slot) = self.expect(&opened, likely).guess else { return false };
        let slot = page.slot.unwrap_or(slot);
        self.count_page(remote.page_down(geometry, slot, (key, takes), limit, page))
    }

    /// Returns true if the leaves whose states were noted are in these.
    pub(in crate::client) fn are_unchanged(&self, states: &States) -> bool {
        let pages = self.pages();
        pages.is_some_and(|(remote, _, geometry)| remote.are_unchanged(geometry, states))
    }

    /// What reads parts of ranges by RDMA, where that can be done.
    fn pages(&self) -> Option<(RemoteReads<'k>, Opened, Geometry)> {
        let remote = self.remote.filter(RemoteReads::may_read)?;
        let opened = self.link.open(self.keyspace.name()).ok()?;
        match opened.shape {
            Shape::Runs(geometry) => Some((remote, opened, geometry)),
            Shape::Pieces(_) => None,
        }
    }

    fn count_page(&self, is_read: bool) -> bool {
        if is_read {
            self.keyspace.counters.read(1);
        }
        is_read
    }

    /// The values of several keys at one moment; `None` if RDMA does not bring them all.
    ///
    /// # Errors
    ///
    /// As [`TcpReads::multi_get`].
    pub(in crate::client) fn multi_get_at_once(
        &self,
        keys: &[&[u8]],
    ) -> Result<Option<Vec<Option<Vec<u8>>>>> {
        let Some((remote, geometry, wanted)) = self.wanted_remotely(keys)? else {
            return Ok(None);
        };
        if wanted.len() < keys.len() {
            return Ok(None);
        }
        self.keyspace.counters.read(keys.len() as u64);
        let (mut values, mut is_sure) = (vec![None; keys.len()], true);
        let pairs = wanted.iter().map(|(index, slot)| (*slot, keys[*index]));
        let is_one = remote.get_many_at_once(geometry, pairs, |at, outcome, value| {
            is_sure &= matches!(outcome, Outcome::Found | Outcome::Absent);
            values[at] = (outcome == Outcome::Found).then(|| value.to_vec());
        })?;
        Ok((is_one && is_sure).then_some(values))
    }

    fn read_many(&self, keys: &[&[u8]], values: &mut Vec<Option<Vec<u8>>>) -> Result<()> {
        let expected = Cell::new(Vec::new());
        let request = |opened: &Opened| {
            let at: Vec<Expected> = keys.iter().map(|key| self.expect(opened, key)).collect();
            let wanted = at.iter().zip(keys).map(|(at, key)| (at.guess, *key)).collect();
            expected.set(at);
            Request::ReadMany { keyspace: opened.number, wanted }
        };
        let begin = values.len();
        let read = self.link.call(self.keyspace, true, request, |reply| match reply {
            Reply::ReadMany { epoch, answers } if answers.len() == keys.len() => {
                let value = |answer: &Answer<'_>| answer.value.map(<[u8]>::to_vec);
                values.extend(answers.iter().map(value));
                Ok((epoch, answers.iter().map(|answer| answer.how).collect::<Vec<_>>()))
            }
            other => Err(unexpected(&other)),
        });
        let (epoch, hows) = match read {
            // Values that do not fit one message come in several.
            Err(Error::Refused { code: failure::TOO_LARGE, .. }) if keys.len() > 1 => {
                values.truncate(begin);
                let (some, others) = keys.split_at(keys.len() / 2);
                self.read_many(some, values)?;
                return self.read_many(others, values);
            }
            read => read?,
        };
        self.keyspace.counters.read(keys.len() as u64);
        let mut refreshes = 0;
        for ((at, how), key) in expected.take().iter().zip(hows).zip(keys) {
            if self.is_misled(at, how) && refreshes < REFRESHES_MAX {
                refreshes += usize::from(self.refresh(at, epoch, key));
            }
        }
        Ok(())
    }

    /// Counts how a key was found; returns true if that was not by the client's guess.
    fn is_misled(&self, at: &Expected, how: How) -> bool {
        if how == How::Guessed {
            return false;
        }
        self.keyspace.counters.call(1);
        let is_misled = how == How::Routed;
        if is_misled && at.guess != Guess::None {
            self.keyspace.counters.stale();
        }
        is_misled
    }

    /// Brings the piece of the directory that a guess lacked; returns true if it asked for one.
    /// What keeps it from coming keeps the next read too, which says so.
    fn refresh(&self, at: &Expected, epoch: u64, key: &[u8]) -> bool {
        let Some((lack, _refresh)) = self.cache.lack(at, epoch, key) else { return false };
        let _ = match lack {
            Lack::Block => self.bring_block(key),
            Lack::Top => self.bring_top(),
            Lack::TopEntry => self.bring_top_entry(key),
        };
        true
    }

    /// Asks for a piece of the directory; `take` is given the connection that it came in.
    fn bring<'a, T>(
        &self,
        request: impl Fn(u32) -> Request<'a>,
        take: impl FnOnce(u64, Reply<'_>) -> Result<T>,
    ) -> Result<T> {
        self.keyspace.counters.directory_read();
        let generation = Cell::new(0);
        let request = |opened: &Opened| {
            generation.set(opened.generation);
            request(opened.number)
        };
        self.link.call(self.keyspace, true, request, |reply| take(generation.get(), reply))
    }

    fn bring_block(&self, key: &[u8]) -> Result<()> {
        let request = |keyspace| Request::Block { keyspace, key };
        self.bring(request, |generation, reply| match reply {
            Reply::Block { epoch, low, high, image } => {
                self.cache.put_block((generation, epoch), low, high, image);
                Ok(())
            }
            other => Err(unexpected(&other)),
        })
    }

    fn bring_top_entry(&self, key: &[u8]) -> Result<()> {
        let (came_in, entries, _) = self.top_part(key, 1)?;
        self.cache.put_top(came_in, entries, false);
        Ok(())
    }

    /// Entries of the top from that of a key on, with their connection and epoch; and true if
    /// there are more.
    #[expect(clippy::type_complexity, reason = "it is taken apart at once")]
    fn top_part(&self, from: &[u8], limit: u32) -> Result<((u64, u64), Vec<(Vec<u8>, u32)>, bool)> {
        let request = |keyspace| Request::Top { keyspace, from, limit };
        self.bring(request, |generation, reply| match reply {
            Reply::Top { epoch, blocks, more } => {
                let entries = blocks.iter().map(|(low, unit)| (low.to_vec(), *unit)).collect();
                Ok(((generation, epoch), entries, more))
            }
            other => Err(unexpected(&other)),
        })
    }

    fn bring_top(&self) -> Result<()> {
        let (mut from, mut is_first) = (Vec::new(), true);
        for _ in 0..TOP_PARTS_MAX {
            // Each part but the first begins with the last entry of the one before.
            let (came_in, entries, more) = self.top_part(&from, ITEMS_MAX as u32)?;
            let last = entries.last().map(|(low, _)| low.clone());
            self.cache.put_top(came_in, entries, is_first);
            match last {
                Some(last) if more && (is_first || last > from) => from = last,
                _ => break,
            }
            is_first = false;
        }
        Ok(())
    }
}
