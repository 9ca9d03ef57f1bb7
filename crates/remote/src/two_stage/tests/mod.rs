//! Tables and their clients against a sorted map.

mod counts;
mod golden;
mod hostile;
mod loads;
mod properties;
mod restless;
mod threads;
mod torn;

use std::{collections::BTreeMap, sync::Arc};

use rhumb_testkit::random::Random;

use super::{
    Answer, CacheBudget, Client, ClientOptions, Fresh, Lookup, Options, Outcome, Scanned, Sizes,
    Table, Value,
};
use crate::{fabric::MappedFabric, host::heap::HeapSpace};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Values of slots, and of records; longer ones are asked for.
const INLINE_BYTES: u32 = 16;
const PUBLISHED_BYTES: u32 = 64 << 10;

/// A table and what it should hold.
struct World {
    table: Table<Arc<HeapSpace>>,
    control: Arc<HeapSpace>,
    leaves: Arc<HeapSpace>,
    map: Map,
    seq: u64,
}

impl World {
    /// A table in `bytes` bytes for each part.
    fn new(map: Map, keys_per_model_max: u32, fill: usize, bytes: usize) -> Self {
        let sizes = Sizes::new(INLINE_BYTES, PUBLISHED_BYTES).unwrap();
        Self::of(sizes, map, keys_per_model_max, fill, bytes)
    }

    /// The same whose leaves and records prove themselves.
    fn proven(map: Map, keys_per_model_max: u32, fill: usize, bytes: usize) -> Self {
        let sizes = Sizes::new(INLINE_BYTES, PUBLISHED_BYTES).unwrap().with_checksums(true);
        Self::of(sizes, map, keys_per_model_max, fill, bytes)
    }

    fn of(sizes: Sizes, map: Map, keys_per_model_max: u32, fill: usize, bytes: usize) -> Self {
        let space = || Arc::new(HeapSpace::new(64 << 10, bytes));
        let (leaves, control) = (space(), space());
        let options = Options { sizes, fill, keys_per_model_max };
        let pairs = map.clone();
        let table =
            Table::build(options, Arc::clone(&leaves), Arc::clone(&control), pairs).unwrap();
        Self { table, control, leaves, map, seq: 0 }
    }

    fn fabric(&self) -> MappedFabric<'_> {
        MappedFabric::new(self.control.all(), self.leaves.all())
    }

    fn client(&self, budget: CacheBudget, speculates: bool) -> Client {
        Client::open(&self.fabric(), ClientOptions { budget, speculates }).unwrap()
    }

    /// Sets a value, as its own group.
    fn set(&mut self, key: &[u8], value: &[u8]) {
        let is_new = self.table.set(key, value, None).unwrap();
        assert_eq!(self.map.insert(key.to_vec(), value.to_vec()).is_none(), is_new);
        self.publish();
    }

    fn publish(&mut self) {
        self.seq += 1;
        self.table.publish(self.seq);
    }

    fn train(&mut self) {
        while self.table.train_one().unwrap() {}
    }

    /// The host's answer to a lookup, through bytes.
    fn answer(&mut self, lookup: &Lookup<'_>) -> Answer {
        let mut bytes = Vec::new();
        lookup.encode(&mut bytes);
        let lookup = Lookup::decode(&bytes).unwrap();
        let answer = self.table.answer(&lookup, |key| self.map.get(key).cloned());
        bytes.clear();
        answer.encode(&mut bytes);
        Answer::decode(&bytes).unwrap()
    }

    /// Gets a key as a whole client does it, and checks the answer.
    fn check_get(&mut self, client: &mut Client, key: &[u8]) -> Outcome {
        let mut out = b"before".to_vec();
        let outcome = client.get(&self.fabric(), key, &mut out).unwrap();
        let expected = self.map.get(key).cloned();
        match outcome {
            Outcome::Found => assert_eq!(Some(&out[6..]), expected.as_deref(), "{key:?}"),
            Outcome::Absent => assert_eq!(None, expected, "{key:?}"),
            Outcome::Ask => assert!(expected.unwrap().len() > PUBLISHED_BYTES as usize),
            Outcome::Call => {
                let answer = self.answer(&client.lookup(key));
                assert_eq!(answer.value, expected, "{key:?}");
                answer.fresh.into_iter().for_each(|fresh: Fresh| client.learn(fresh));
            }
        }
        if outcome != Outcome::Found {
            assert_eq!(out, b"before");
        }
        outcome
    }

    /// Scans as a whole client does it, and checks the pairs.
    fn check_scan(&mut self, client: &mut Client, from: &[u8], limit: usize) {
        let scanned: Scanned = client.scan(&self.fabric(), from, limit).unwrap();
        let mut pairs = scanned.pairs;
        if let Some(rest) = scanned.rest {
            let more = self.table.scan(&rest, limit - pairs.len());
            pairs.extend(more.into_iter().map(|(key, value)| match value {
                Value::Here(value) => (key, Some(value)),
                Value::Ask => (key, None),
            }));
        }
        let seen =
            |value: &Vec<u8>| (value.len() <= PUBLISHED_BYTES as usize).then(|| value.clone());
        let expected: Vec<_> = self
            .map
            .range(from.to_vec()..)
            .take(limit)
            .map(|(key, value)| (key.clone(), seen(value)))
            .collect();
        assert_eq!(pairs.len(), expected.len(), "{limit} from {from:?}");
        assert!(pairs == expected, "{limit} from {from:?}");
    }
}
