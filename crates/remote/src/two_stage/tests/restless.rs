//! Tables that change between any two reads of a get or a scan.

use std::{cell::RefCell, collections::BTreeSet};

use super::*;
use crate::{
    error::Result,
    fabric::{Extent, Fabric, Image},
    two_stage::leaf::hash_of,
};

/// What a key was, each time that it changed.
type History = BTreeMap<Vec<u8>, Vec<(u64, Option<Vec<u8>>)>>;

/// A table, its random changes, and what they were.
struct Writer {
    world: World,
    random: Random,
    keys: Vec<Vec<u8>>,
    history: History,
}

impl Writer {
    fn change(&mut self) {
        let key = self.keys[self.random.below(self.keys.len() as u64) as usize].clone();
        let value = (self.random.below(3) > 0).then(|| {
            let version = self.world.seq.to_le_bytes();
            let len = [1, 2, 3, 9][self.random.below(4) as usize];
            version.repeat(len)
        });
        match &value {
            Some(value) => drop(self.world.table.set(&key, value, None).unwrap()),
            None => drop(self.world.table.remove(&key, None)),
        }
        if self.random.below(4) == 0 {
            self.world.table.train_one().unwrap();
        }
        self.world.publish();
        self.history.entry(key).or_default().push((self.world.seq, value));
    }

    /// What a key was at some time from `from` on.
    fn since(&self, key: &[u8], from: u64) -> BTreeSet<Option<Vec<u8>>> {
        let changes = self.history.get(key).map_or(&[][..], Vec::as_slice);
        let before = changes.iter().rposition(|(seq, _)| *seq <= from);
        let mut seen: BTreeSet<_> =
            changes[before.unwrap_or(0)..].iter().map(|(_, value)| value.clone()).collect();
        if before.is_none() {
            seen.insert(None);
        }
        seen
    }
}

/// A fabric of a table that changes before some of its reads.
struct Restless {
    writer: RefCell<Writer>,
    control: Arc<HeapSpace>,
    leaves: Arc<HeapSpace>,
}

impl Fabric for Restless {
    fn read(&self, extents: &[Extent], image: &mut Image) -> Result<()> {
        let mut writer = self.writer.borrow_mut();
        while writer.random.below(3) > 0 {
            writer.change();
        }
        MappedFabric::new(self.control.all(), self.leaves.all()).read(extents, image)
    }
}

/// Numbers, texts of which two each have the same hash, and long ones.
fn keys() -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = (0..40u64).map(|n| (n << 50).to_be_bytes().to_vec()).collect();
    keys.extend((0..20).map(|n| format!("a longer prefix {n}").into_bytes()));
    let mut seen = BTreeMap::new();
    for number in 0..40_000u32 {
        let key = format!("{number:x}").into_bytes();
        if let Some(other) = seen.insert(hash_of(&key), key.clone()) {
            keys.extend([key, other]);
        }
    }
    keys.truncate(120);
    keys
}

#[test]
fn answers_were_right_while_they_were_made() {
    let world = World::new(Map::new(), 20, 11, 4 << 20);
    let (control, leaves) = (Arc::clone(&world.control), Arc::clone(&world.leaves));
    let keys = keys();
    let writer =
        Writer { world, random: Random::new(11), keys: keys.clone(), history: History::new() };
    let fabric = Restless { writer: RefCell::new(writer), control, leaves };
    let budgets = [CacheBudget::Full, CacheBudget::Models, CacheBudget::Top];
    let options = |budget| ClientOptions { budget, speculates: true };
    let mut clients = budgets.map(|budget| Client::open(&fabric, options(budget)).unwrap());
    let (mut random, mut answered, mut scanned) = (Random::new(12), 0, 0);
    for round in 0..30_000 {
        let client = &mut clients[round % 3];
        let key = &keys[random.below(keys.len() as u64) as usize];
        let from = fabric.writer.borrow().world.seq;
        let mut out = Vec::new();
        let outcome = client.get(&fabric, key, &mut out).unwrap();
        let mut writer = fabric.writer.borrow_mut();
        let was = writer.since(key, from);
        match outcome {
            Outcome::Found => assert!(was.contains(&Some(out)), "{key:?} was {was:?}"),
            Outcome::Absent => assert!(was.contains(&None), "{key:?} was {was:?}"),
            Outcome::Ask => panic!("no value is large"),
            Outcome::Call => {
                let answer = writer.world.table.answer(&client.lookup(key), |_| None);
                answer.fresh.into_iter().for_each(|fresh| client.learn(fresh));
            }
        }
        answered += u64::from(outcome != Outcome::Call);
        drop(writer);
        if round % 10 == 0 {
            let from = fabric.writer.borrow().world.seq;
            let pairs = client.scan(&fabric, key, 40).unwrap().pairs;
            scanned += pairs.len();
            let writer = fabric.writer.borrow();
            assert!(pairs.is_sorted_by(|(a, _), (b, _)| a < b));
            for (key, value) in pairs {
                assert!(writer.since(&key, from).contains(&value), "a scan's {key:?}");
            }
        }
    }
    assert!(answered > 10_000 && scanned > 10_000, "{answered} answers, {scanned} pairs");
}
