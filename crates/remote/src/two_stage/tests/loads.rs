//! Tables that are loaded anew between two reads of a get or a scan.

use std::cell::{Cell, RefCell};

use super::*;
use crate::{
    error::Result,
    fabric::{Extent, Fabric, Image},
};

/// A fabric of a table that is loaded anew before one of its reads.
struct Reloaded<'w> {
    world: &'w RefCell<World>,
    control: Arc<HeapSpace>,
    leaves: Arc<HeapSpace>,
    /// Reads before that one.
    left: Cell<u32>,
    /// What is loaded.
    next: RefCell<Option<Map>>,
}

impl Fabric for Reloaded<'_> {
    fn read(&self, extents: &[Extent], image: &mut Image) -> Result<()> {
        if self.left.get() == 0 {
            self.next
                .borrow_mut()
                .take()
                .into_iter()
                .for_each(|map| self.world.borrow_mut().load(map));
        }
        self.left.set(self.left.get().saturating_sub(1));
        MappedFabric::new(self.control.all(), self.leaves.all()).read(extents, image)
    }
}

impl World {
    fn load(&mut self, map: Map) {
        self.table.load(map.clone().into_iter().map(Ok)).unwrap();
        self.map = map;
    }
}

/// Numbers, and texts whose first bytes are alike, so that fences between them are long.
fn key(n: u64) -> Vec<u8> {
    if n.is_multiple_of(2) {
        (n << 40).to_be_bytes().to_vec()
    } else {
        format!("all of these keys begin alike: {n:06}").into_bytes()
    }
}

/// Some of the keys, and all that stay.
fn some(random: &mut Random, share: u64) -> Map {
    let keys = (0..600).filter(|n| stays(*n) || random.below(100) < share);
    keys.map(|n| (key(n), n.to_le_bytes().to_vec())).collect()
}

fn stays(n: u64) -> bool {
    n.is_multiple_of(5)
}

/// Has `read` read by a client of one map while another is loaded before each of its reads in turn.
fn read_beside_loads(read: impl Fn(&mut Client, &Reloaded<'_>, &mut Random)) {
    let mut random = Random::new(5);
    let first = some(&mut random, 50);
    let world = RefCell::new(World::new(first, 50, 11, 4 << 20));
    let (control, leaves) =
        (Arc::clone(&world.borrow().control), Arc::clone(&world.borrow().leaves));
    for round in 0..1_500 {
        let budget = [CacheBudget::Full, CacheBudget::Models][round % 2];
        let mut client = world.borrow().client(budget, true);
        client.fill(&world.borrow().fabric()).unwrap();
        let share = 5 + random.below(90);
        let fabric = Reloaded {
            world: &world,
            control: Arc::clone(&control),
            leaves: Arc::clone(&leaves),
            left: Cell::new(random.below(5) as u32),
            next: RefCell::new(Some(some(&mut random, share))),
        };
        read(&mut client, &fabric, &mut random);
    }
}

#[test]
fn a_get_finds_what_stays() {
    let found = Cell::new(0);
    read_beside_loads(|client, fabric, random| {
        let n = random.below(120) * 5;
        let mut out = Vec::new();
        match client.get(fabric, &key(n), &mut out).unwrap() {
            Outcome::Found => assert_eq!(out, n.to_le_bytes()),
            Outcome::Call => return,
            outcome => panic!("{outcome:?} for key {n}, which stays"),
        }
        found.set(found.get() + 1);
    });
    assert!(found.get() > 500, "{} were found", found.get());
}

#[test]
fn a_scan_passes_over_nothing_that_stays() {
    const LIMIT: usize = 40;
    let staying: Map =
        (0..600).filter(|n| stays(*n)).map(|n| (key(n), n.to_le_bytes().to_vec())).collect();
    let seen = Cell::new(0);
    read_beside_loads(|client, fabric, random| {
        let from = key(random.below(600));
        let scanned = client.scan(fabric, &from, LIMIT).unwrap();
        let pairs: Map = scanned
            .pairs
            .iter()
            .map(|(key, value)| (key.clone(), value.clone().unwrap()))
            .collect();
        assert_eq!(pairs.len(), scanned.pairs.len());
        let is_all = scanned.rest.is_none() && pairs.len() < LIMIT;
        let end = scanned.rest.or_else(|| pairs.last_key_value().map(|(key, _)| key.clone()));
        let inside =
            staying.range(from..).take_while(|(key, _)| is_all || Some(*key) < end.as_ref());
        for (key, value) in inside {
            assert_eq!(pairs.get(key), Some(value), "{key:?} is passed over");
            seen.set(seen.get() + 1);
        }
    });
    assert!(seen.get() > 1_000, "{} were seen", seen.get());
}

/// What a leaf was and what a model says of it tell nothing of the leaf that comes in its place.
#[test]
fn leaves_come_back_with_other_incarnations() {
    let mut random = Random::new(9);
    let mut world = World::new(some(&mut random, 80), 50, 11, 4 << 20);
    let incarnations = |world: &World| -> Vec<u32> {
        (0..world.table.leaf_count()).map(|n| world.table.head(n).incarnation).collect()
    };
    for share in [10, 90, 40, 100] {
        let before = incarnations(&world);
        world.load(some(&mut random, share));
        let after = incarnations(&world);
        assert!(before.iter().zip(&after).all(|(before, after)| before != after));
        let mut client = world.client(CacheBudget::Full, true);
        client.fill(&world.fabric()).unwrap();
        (0..600).for_each(|n| assert_ne!(world.check_get(&mut client, &key(n)), Outcome::Ask));
        (0..600).step_by(7).for_each(|n| world.check_scan(&mut client, &key(n), 50));
        // New leaves take numbers of before, if there are some.
        for n in 600..900 {
            world.set(&key(n), b"new");
        }
        (500..900).for_each(|n| assert_ne!(world.check_get(&mut client, &key(n)), Outcome::Ask));
    }
}
