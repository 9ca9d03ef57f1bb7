//! Reads of a keyspace whose region is of the two-stage assembly.

use std::sync::{Mutex, PoisonError};

use super::{CacheBudget, Counts, Page, connection::unexpected, keyspace::Keyspace, models::Found};
use crate::{
    error::{Error, Result},
    fabric::Fabric,
    message::{GetCounts, Reply, Request},
    two_stage::{Answer, CacheBudget as Budget, Client, ClientOptions, Outcome},
};

/// Pairs of one part of a scan: what two round trips bring is worth them.
const SCAN_PAIRS: usize = 128;

/// The caches of a keyspace: one for each thread that has ever read at the same time as others.
pub(super) struct Caches {
    budget: CacheBudget,
    idle: Mutex<Vec<Client>>,
}

impl Caches {
    pub(super) fn new(budget: CacheBudget) -> Self {
        Self { budget, idle: Mutex::default() }
    }

    /// A cache with all that the budget has room for.
    fn fill(&self, fabric: &impl Fabric) -> Result<Client> {
        let budget = match self.budget {
            CacheBudget::Full => Budget::Full,
            CacheBudget::Bytes(most) => Budget::Bytes(usize::try_from(most).unwrap_or(usize::MAX)),
            CacheBudget::Models => Budget::Models,
            CacheBudget::Top => Budget::Top,
        };
        let mut client = Client::open(fabric, ClientOptions { budget, speculates: true })?;
        client.fill(fabric)?;
        Ok(client)
    }

    fn take(&self) -> Option<Client> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn give(&self, client: Client) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(client);
    }

    /// How gets went, of those that no thread uses now.
    pub(super) fn get_counts(&self) -> GetCounts {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sums = [0; 7];
        for client in &*idle {
            let (done, reads) = (client.counts(), client.reads());
            let call = done.fallbacks + done.asks;
            let other = done.hops + done.speculative + done.retries + call;
            let one_read = done.gets.saturating_sub(other);
            let counts = [
                one_read,
                done.hops,
                done.speculative,
                done.retries,
                call,
                reads.reads,
                reads.bytes,
            ];
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        GetCounts::of(sums)
    }

    /// Adds what those have done that no thread uses now, and the bytes that they keep: round
    /// trips and bytes are those that reads would cost over a network.
    pub(super) fn add_to(&self, mut counts: Counts) -> Counts {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        for client in &*idle {
            let (done, reads) = (client.counts(), client.reads());
            counts.reads += done.gets + done.scans;
            counts.stale += done.stale;
            counts.leaves += done.leaves;
            counts.speculative += done.speculative;
            counts.round_trips += reads.trips;
            counts.region_reads += reads.reads;
            counts.bytes_received += reads.bytes;
            counts.cache_bytes += client.cache_bytes() as u64;
        }
        counts
    }
}

impl Keyspace {
    /// [`Keyspace::get_into`] in a region of this assembly.
    pub(super) fn two_stage_get(
        &self,
        fabric: &impl Fabric,
        caches: &Caches,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<Found> {
        let mut client = match caches.take() {
            Some(client) => client,
            None => caches.fill(fabric)?,
        };
        client.speculate(!self.reads.is_timid);
        let found = match client.get(fabric, key, value) {
            Ok(Outcome::Found) => Ok(Found::Read(true)),
            Ok(Outcome::Absent) => Ok(Found::Read(false)),
            Ok(Outcome::Ask) => self.call_get(key, value).map(Found::Told),
            Ok(Outcome::Call) => self.consult(&mut client, key, value).map(Found::Told),
            Err(error) => Err(error),
        };
        caches.give(client);
        found
    }

    /// Several gets; returns the indexes of keys of which the host must be asked.
    pub(super) fn two_stage_multi_get(
        &self,
        fabric: &impl Fabric,
        caches: &Caches,
        keys: &[&[u8]],
        each: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<Vec<usize>> {
        let mut client = match caches.take() {
            Some(client) => client,
            None => caches.fill(fabric)?,
        };
        let missed = client.multi_get(fabric, keys, each);
        caches.give(client);
        missed
    }

    /// Writes a key by a request that says where it is expected to belong, if a cache that no other
    /// thread uses knows that without a read.
    pub(super) fn two_stage_write(
        &self,
        caches: &Caches,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<()> {
        let client = if self.reads.is_silent { None } else { caches.take() };
        let hint = client.and_then(|mut client| {
            let hint = client.hint(key);
            caches.give(client);
            hint
        });
        self.write(|keyspace| match value {
            Some(value) => Request::Insert { keyspace, key, value, hint },
            None => Request::Remove { keyspace, key, hint },
        })
    }

    /// Asks for what the cache could not find, and learns what it lacks.
    fn consult(&self, client: &mut Client, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let mut question = Vec::new();
        client.lookup(key).encode(&mut question);
        self.count_call();
        let (remote, inner) = self.parts();
        let answer = remote.call(
            inner,
            true,
            |keyspace| Request::Consult { keyspace, question: &question },
            |reply| match reply {
                Reply::Consulted(answer) => Answer::decode(answer)
                    .map_err(|error| Error::invalid(format!("an answer to a lookup: {error}"))),
                other => Err(unexpected(&other)),
            },
        )?;
        if let Some(fresh) = answer.fresh {
            client.learn(fresh);
        }
        let is_there = answer.value.is_some();
        value.extend(answer.value.into_iter().flatten());
        Ok(is_there)
    }

    /// A part of a scan upwards; `None` if the host must be asked.
    pub(super) fn two_stage_page(
        &self,
        fabric: &impl Fabric,
        caches: &Caches,
        from: &[u8],
    ) -> Option<Page> {
        let mut client = caches.take().or_else(|| caches.fill(fabric).ok())?;
        let scanned = client.scan(fabric, from, SCAN_PAIRS);
        caches.give(client);
        let scanned = scanned.ok()?;
        if scanned.pairs.is_empty() && scanned.rest.is_some() {
            return None;
        }
        let is_part = scanned.pairs.len() == SCAN_PAIRS || scanned.rest.is_some();
        let after = scanned.pairs.last().map(|(key, _)| [&key[..], &[0]].concat());
        let pairs = scanned.pairs.iter().map(|(key, value)| (&key[..], value.as_deref()));
        Some(Page::of(pairs.collect(), after.filter(|_| is_part)))
    }
}
