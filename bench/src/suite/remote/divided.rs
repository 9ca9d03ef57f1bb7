//! A keyspace that several hosts divide, each a process with a range of the keys.
//!
//! Each host has as many of the sorted keys as any other. Hosts are told their ranges, and clients
//! the table of all: nothing moves while it is measured.

use std::ops::Bound;

use anyhow::Result;
use rhumb_remote::{Cluster, ClusterKeyspace, RoutingTable, Served};

use super::{
    options::Data,
    rhumb::{NAME, address, apart},
    subject::{Counters, OnPair, OnValue, Place, Session},
};

/// The first key of a host's range; the first host's is empty.
fn low(data: &Data, server: usize) -> &[u8] {
    match server {
        0 => &[],
        _ => data.set.keys.get(server * data.set.keys.len() / data.servers),
    }
}

/// The key after the last one of a host's range; the last host's range has no end.
fn high(data: &Data, server: usize) -> Option<&[u8]> {
    (server + 1 < data.servers).then(|| low(data, server + 1))
}

/// What a host serves; `None` if it is the only one.
pub(super) fn served(data: &Data, server: usize) -> Option<Served> {
    let part = || Served::nothing().range(low(data, server), high(data, server));
    (data.servers > 1).then(part)
}

/// Returns true if a host has a key.
pub(super) fn has(data: &Data, server: usize, key: &[u8]) -> bool {
    low(data, server) <= key && high(data, server).is_none_or(|high| key < high)
}

fn table(place: &Place<'_>) -> Result<RoutingTable> {
    let ranges = (0..place.data.servers)
        .map(|server| Ok((low(place.data, server), address(place, server)?)));
    Ok(RoutingTable::new(1, ranges.collect::<Result<Vec<_>>>()?)?)
}

/// The keyspace of all hosts; its handle reads by looks or by calls.
pub(super) struct Divided {
    keyspace: ClusterKeyspace,
    /// The handle while reads are not counted, or one that counts them.
    used: ClusterKeyspace,
    /// The first key of each range.
    lows: Vec<Vec<u8>>,
}

impl Divided {
    pub(super) fn new(place: &Place<'_>, by_calls: bool) -> Result<Self> {
        let table = table(place)?;
        let lows = table.ranges().map(|(low, _, _)| low.to_vec()).collect();
        let keyspace = Cluster::new(table).keyspace(NAME);
        let keyspace = if by_calls { keyspace.by_calls() } else { keyspace };
        let divided = Self { used: keyspace.clone(), keyspace, lows };
        divided.open()?;
        Ok(divided)
    }

    /// Has the handle come to all hosts, so that what their connections have counted before is not
    /// taken for its own.
    fn open(&self) -> Result<()> {
        for low in &self.lows {
            self.used.get(low)?;
        }
        Ok(())
    }
}

impl Session for Divided {
    #[inline]
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        Ok(self.used.get_into(key, value)?)
    }

    fn multi_get(&mut self, keys: &[&[u8]], on_value: OnValue<'_>) -> Result<()> {
        let values = self.used.multi_get(keys)?;
        values.iter().enumerate().for_each(|(index, value)| on_value(index, value.as_deref()));
        Ok(())
    }

    fn scan(&mut self, from: &[u8], limit: usize, on_pair: OnPair<'_>) -> Result<()> {
        let range = self.used.range::<&[u8]>((Bound::Included(from), Bound::Unbounded));
        for pair in range.limit(limit) {
            let (key, value) = pair?;
            on_pair(&key, &value);
        }
        Ok(())
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.used.insert(key, value)?)
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        Ok(self.used.remove(key)?)
    }

    fn counters(&self) -> Counters {
        let mut sum = Counters { reads: self.used.looks(), ..Counters::default() };
        for (_, counts) in self.used.counts() {
            sum.calls += counts.calls;
            sum.trips += counts.round_trips;
            sum.reads += apart(&counts);
            sum.bytes += counts.bytes_sent + counts.bytes_received;
        }
        sum
    }

    fn cache_bytes(&self) -> u64 {
        self.used.counts().iter().map(|(_, counts)| counts.cache_bytes).sum()
    }

    fn count(&mut self, is_counting: bool) -> Result<()> {
        self.used = if is_counting { self.keyspace.counted() } else { self.keyspace.clone() };
        self.open()
    }

    fn hosts(&self) -> usize {
        self.lows.len()
    }

    fn host_of(&self, key: &[u8]) -> usize {
        self.lows.partition_point(|low| low.as_slice() <= key).saturating_sub(1)
    }
}
