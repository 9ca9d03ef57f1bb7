//! Hosts that are loaded anew after one of the reads of an operation of a client.

use super::*;
use crate::{
    binned::Address,
    fabric::{Extent, Fabric, Image},
};

/// A fabric that has a change done after one of its reads.
struct Followed<'a, F> {
    fabric: MappedFabric<'a>,
    /// Reads before that one.
    left: Cell<u32>,
    change: F,
}

impl<F: Fn()> Fabric for Followed<'_, F> {
    fn read(&self, extents: &[Extent], image: &mut Image) -> Result<()> {
        self.fabric.read(extents, image)?;
        if self.left.get() == 0 {
            (self.change)();
        }
        self.left.set(self.left.get().wrapping_sub(1));
        Ok(())
    }
}

/// Keys of eight bytes, and longer ones between them.
fn key(n: u64) -> Vec<u8> {
    let mut key = (n << 20).to_be_bytes().to_vec();
    key.extend((n % 3 == 1).then_some(b'w'));
    key
}

fn stays(n: u64) -> bool {
    n.is_multiple_of(5)
}

/// Some of the keys, and all that stay: those at a step.
fn some(step: u64, from: u64) -> Map {
    let keys = (0..400).filter(|n| stays(*n) || n % step == from % step);
    keys.map(|n| (key(n), n.to_le_bytes().to_vec())).collect()
}

fn epochs(host: &TestHost) -> Vec<u64> {
    host.arrays.keys().copied().collect()
}

/// Whatever a client knew before, what stays is found, and a range passes over nothing of it.
#[test]
fn what_stays_is_found_whatever_is_loaded_meanwhile() {
    let local = Local::within(4 << 20, &some(7, 0), Options::default());
    let staying: Map =
        (0..400).filter(|n| stays(*n)).map(|n| (key(n), n.to_le_bytes().to_vec())).collect();
    let mut one_sided = 0;
    for round in 0..600_u64 {
        let mut client = local.client(Mode::Pipeline, CacheBudget::Full);
        let map = some(2 + round % 9, round);
        let load = || {
            let mut host = local.host.borrow_mut();
            let before = epochs(&host);
            host.load(map.clone().into_iter().map(Ok)).unwrap();
            check(&host, &map);
            assert!(epochs(&host).iter().all(|epoch| !before.contains(epoch)), "an epoch again");
            // Some of what stays lies in bins.
            for n in (0..400).filter(|n| stays(*n) && n % 3 == round % 3) {
                host.remove(&key(n), Address::default()).unwrap();
                host.set(&key(n), &n.to_le_bytes(), Address::default()).unwrap();
            }
            for n in 400..430 {
                host.set(&key(n), b"more", Address::default()).unwrap();
            }
            host.publish(round);
        };
        let left = Cell::new((round / 2 % 3) as u32);
        let fabric = Followed { fabric: local.fabric(), left, change: load };
        let n = round * 7 % 80 * 5;
        if round.is_multiple_of(2) {
            let found = client.get(&fabric, 1, &key(n)).unwrap();
            assert_eq!(found, Answer::Found(n.to_le_bytes().to_vec()), "round {round}, key {n}");
        } else {
            let page = client.range(&fabric, 1, &key(n), None, 60).unwrap();
            let pairs: BTreeMap<_, _> = page.pairs.into_iter().collect();
            let inside = staying.range(key(n)..);
            let inside =
                inside.take_while(|(key, _)| page.next.as_ref().is_none_or(|next| *key < next));
            for (key, value) in inside {
                let value = Value::Here(value.clone());
                assert_eq!(pairs.get(key), Some(&value), "round {round}: {key:?} is passed over");
            }
        }
        one_sided += client.counts().one_sided;
        if fabric.left.get() < 3 {
            // No read was followed by it.
            load();
        }
    }
    assert!(one_sided > 100, "{one_sided} gets were one-sided");
}

/// A session that is over is told so, and its client learns what there is.
#[test]
fn sessions_end_with_what_they_knew() {
    let local = Local::within(4 << 20, &some(7, 0), Options::default());
    let mut client = local.client(Mode::Pipeline, CacheBudget::Full);
    for round in 1..6 {
        let map = some(1 + round, round);
        local.host.borrow_mut().load(map.clone().into_iter().map(Ok)).unwrap();
        assert_eq!((local.host.borrow().session_count(), local.host.borrow().waiting().0), (0, 0));
        for n in 0..400 {
            let found = client.get(&local.fabric(), 1, &key(n)).unwrap();
            assert_eq!(found, answer(map.get(&key(n)), 1 << 10), "key {n}");
        }
        client.renew(1).unwrap();
        let calls = client.counts().operations;
        for n in 0..400 {
            let found = client.get(&local.fabric(), 1, &key(n)).unwrap();
            assert_eq!(found, answer(map.get(&key(n)), 1 << 10), "key {n}");
        }
        assert_eq!(client.counts().operations, calls, "all is learned");
        assert_eq!(client.counts().sessions, 1 + round);
    }
}

#[test]
fn a_range_is_removed() {
    let mut map = some(2, 0);
    let local = Local::within(4 << 20, &map, Options::default());
    let mut host = local.host.borrow_mut();
    assert!(!host.remove_range(&key(10), Some(&key(390)), 20).unwrap());
    assert!(host.remove_range(&key(10), Some(&key(5)), 0).unwrap());
    assert!(host.remove_range(&key(10), Some(&key(390)), 400).unwrap());
    map.retain(|it, _| *it < key(10) || *it >= key(390));
    host.publish(1);
    check(&host, &map);
    assert!(host.remove_range(b"", None, usize::MAX).unwrap());
    host.publish(2);
    check(&host, &Map::new());
}
