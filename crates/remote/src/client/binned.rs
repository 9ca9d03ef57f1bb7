//! Reads and writes of a keyspace whose region is of the assembly of trained arrays.

use std::{
    cell::Cell,
    sync::{Mutex, PoisonError},
};

use super::{
    CacheBudget, Counts, Page, Pairs, connection::unexpected, keyspace::Keyspace, models::Found,
};
use crate::{
    binned::{
        Answer, CacheBudget as Budget, Caller, Client, Mode, Reply, Request, Sizes, Value, Verb,
    },
    clock,
    error::{Error, Result},
    fabric::Fabric,
    message,
};

/// Pairs of one part of a range: what a read, and an operation for what bins hold, are worth.
const RANGE_PAIRS: usize = 128;

/// What clients of a keyspace keep: one for each thread that has ever read at the same time as
/// others. Each has a session of its own.
pub(super) struct Caches {
    /// `None` for clients that keep nothing and begin no session.
    budget: Option<Budget>,
    sizes: Sizes,
    idle: Mutex<Vec<Client<()>>>,
}

impl Caches {
    pub(super) fn new(budget: CacheBudget, sizes: Sizes) -> Self {
        let budget = match budget {
            CacheBudget::Full | CacheBudget::Models => Some(Budget::Full),
            CacheBudget::Bytes(0) | CacheBudget::Top => None,
            CacheBudget::Bytes(most) => {
                Some(Budget::Bytes(usize::try_from(most).unwrap_or(usize::MAX)))
            }
        };
        Self { budget, sizes, idle: Mutex::default() }
    }

    fn take(&self) -> Client<()> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let budget = self.budget.unwrap_or(Budget::Bytes(0));
        idle.unwrap_or_else(|| Client::new((), Mode::Pipeline, budget).with_sizes(self.sizes))
    }

    /// Records that a block has room for.
    pub(super) fn block_records(&self) -> usize {
        self.sizes.block_records()
    }

    fn give(&self, client: Client<()>) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(client);
    }

    /// Adds what those have done that no thread uses now, and the bytes that they keep: round
    /// trips and bytes are those that reads would cost over a network.
    pub(super) fn add_to(&self, mut counts: Counts) -> Counts {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        for client in &*idle {
            let (done, reads) = (client.counts(), client.reads());
            counts.reads += done.gets + done.ranges;
            counts.stale += done.unproven;
            counts.round_trips += reads.trips;
            counts.region_reads += reads.reads;
            counts.bytes_received += reads.bytes;
            counts.cache_bytes += client.cache_bytes() as u64;
        }
        counts
    }
}

/// The way of a client to its host: messages of the keyspace's connection.
struct Wire<'k> {
    keyspace: &'k Keyspace,
    /// Set by an operation: what the host answers is of keys that it serves.
    is_told: &'k Cell<bool>,
}

impl Caller for Wire<'_> {
    fn call(&mut self, request: &Request) -> Result<Reply> {
        let mut question = Vec::new();
        request.encode(&mut question);
        let (remote, inner) = self.keyspace.parts();
        let mut is_read = true;
        match request {
            Request::Operate(operation) => {
                self.is_told.set(true);
                match operation.verb {
                    Verb::Search | Verb::Range => self.keyspace.count_call(),
                    Verb::Insert | Verb::Update | Verb::Put | Verb::Remove => is_read = false,
                }
            }
            _ => inner.counters.directory_read(),
        }
        remote.call(
            inner,
            is_read,
            |keyspace| message::Request::Consult { keyspace, question: &question },
            |reply| match reply {
                message::Reply::Consulted(answer) => Reply::decode(answer),
                other => Err(unexpected(&other)),
            },
        )
    }
}

impl Keyspace {
    /// Has a client that this thread alone uses do something; returns true beside what comes of it
    /// if the host did an operation for it.
    fn with_client<T>(
        &self,
        caches: &Caches,
        act: impl FnOnce(&mut Client<Wire<'_>>, u64) -> Result<T>,
    ) -> Result<(T, bool)> {
        let is_told = Cell::new(false);
        let mut client = caches.take().with_caller(Wire { keyspace: self, is_told: &is_told });
        client.set_mode(self.reads.mode);
        let now_ms = clock::now_ms();
        let renewed = match caches.budget {
            Some(_) if client.wants_renewal(now_ms) => client.renew(now_ms),
            _ => Ok(()),
        };
        let done = match renewed {
            // Another host has taken the place of the one that the client knew, or this one breaks
            // the rules. Without a session the host searches.
            Err(Error::Invalid(_)) => {
                client.forget();
                act(&mut client, now_ms)
            }
            Err(error) => Err(error),
            Ok(()) => act(&mut client, now_ms),
        };
        caches.give(client.with_caller(()));
        Ok((done?, is_told.get()))
    }

    /// [`Keyspace::get_into`] in a region of this assembly.
    pub(super) fn binned_get(
        &self,
        fabric: &impl Fabric,
        caches: &Caches,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<Found> {
        let get = |client: &mut Client<Wire<'_>>, now_ms| client.get(fabric, now_ms, key);
        let (answer, is_told) = self.with_client(caches, get)?;
        let is_there = match answer {
            Answer::Found(found) => {
                value.extend_from_slice(&found);
                true
            }
            Answer::Absent => false,
            Answer::Ask(_) => return self.call_get(key, value).map(Found::Told),
        };
        Ok(if is_told { Found::Told(is_there) } else { Found::Read(is_there) })
    }

    /// Several gets; returns the indexes of keys of which the host must be asked.
    pub(super) fn binned_multi_get(
        &self,
        fabric: &impl Fabric,
        caches: &Caches,
        keys: &[&[u8]],
        each: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<Vec<usize>> {
        let get =
            |client: &mut Client<Wire<'_>>, now_ms| client.multi_get(fabric, now_ms, keys, each);
        self.with_client(caches, get).map(|(missed, _)| missed)
    }

    /// Writes a key, by an operation that says where the client has found that it belongs.
    pub(super) fn binned_write(
        &self,
        fabric: &impl Fabric,
        caches: &Caches,
        verb: Verb,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let write =
            |client: &mut Client<Wire<'_>>, now_ms| client.write(fabric, now_ms, verb, key, value);
        self.with_client(caches, write).map(drop)
    }

    /// A part of a range upwards, before `end` if there is such an end; and true if the host had a
    /// part in it.
    ///
    /// # Errors
    ///
    /// Those of the fabric and of a call.
    pub(super) fn binned_page(
        &self,
        fabric: &impl Fabric,
        caches: &Caches,
        from: &[u8],
        end: Option<&[u8]>,
    ) -> Result<(Page, bool)> {
        let range = |client: &mut Client<Wire<'_>>, now_ms| {
            client.range(fabric, now_ms, from, end, RANGE_PAIRS)
        };
        let (page, is_told) = self.with_client(caches, range)?;
        let mut pairs = Pairs::default();
        for (key, value) in &page.pairs {
            let here = match value {
                Value::Here(value) => Some(&value[..]),
                Value::Ask(_) => None,
            };
            pairs.push(key, here);
        }
        Ok((Page::of(pairs, page.next), is_told))
    }
}
