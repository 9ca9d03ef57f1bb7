//! Damaged regions, made-up descriptors and wrong addresses.

use proptest::prelude::*;

use super::*;
use crate::{
    binned::{
        Address, ClientCounts, Operation, Outcome, Verb,
        descriptor::{Descriptor, Span},
    },
    primitive::{AtomicU64, Ordering},
};

fn sample(count: u64) -> Map {
    let number = |n: u64| ((n * 37).to_be_bytes().to_vec(), n.to_le_bytes().to_vec());
    let text = |n: u64| (format!("some/prefix/{:05}", n * 3).into_bytes(), vec![n as u8; 20]);
    (0..count).map(number).chain((0..count).map(text)).collect()
}

/// A host with bins, small arrays and removed keys.
fn grown() -> (Local, Map) {
    let mut map = sample(400);
    let local = Local::new(&map, Options::default());
    let mut host = local.host.borrow_mut();
    let mut set = |key: Vec<u8>| {
        host.set(&key, b"set", Address::default()).unwrap();
        map.insert(key, b"set".to_vec());
    };
    (0..300u64).for_each(|n| set((37 * 100 + n % 37 * 40 + n).to_be_bytes().to_vec()));
    (0..200u64).for_each(|n| set(format!("some/prefix/00300/{n:03}").into_bytes()));
    (0..60u64).for_each(|n| set(vec![n as u8; n as usize]));
    for n in (0..400u64).step_by(9) {
        let key = (n * 37).to_be_bytes().to_vec();
        assert!(host.remove(&key, Address::default()).unwrap());
        map.remove(&key);
    }
    host.publish(1);
    check(&host, &map);
    drop(host);
    (local, map)
}

fn keys(map: &Map) -> Vec<Vec<u8>> {
    let near = |key: &Vec<u8>| [key.clone(), [&key[..], b"\0"].concat()];
    map.keys().step_by(7).flat_map(near).chain([vec![], vec![0xff; 30]]).collect()
}

/// A caller that changes the descriptors that come from the host.
struct Forger<F> {
    local: Local,
    forge: F,
}

impl<F: FnMut(&mut Descriptor)> Caller for Forger<F> {
    fn call(&mut self, request: &Request) -> Result<Reply> {
        let mut reply = self.local.call(request)?;
        let mut lessons: Vec<_> = match &mut reply {
            Reply::Learned(lesson) | Reply::Done { lesson: Some(lesson), .. } => vec![lesson],
            Reply::Renewed { lessons, .. } => lessons.iter_mut().collect(),
            _ => vec![],
        };
        let arrays = lessons.iter_mut().flat_map(|lesson| &mut lesson.arrays);
        arrays.for_each(&mut self.forge);
        Ok(reply)
    }
}

fn forged(which: u32, by: u64) -> impl FnMut(&mut Descriptor) {
    move |array| match which {
        0 => array.epoch = array.epoch.wrapping_add(by),
        1 => array.base = array.base.wrapping_add(by as u32 % 40),
        2 => array.records = by as u32 % 8193,
        3 => array.below = (by % 66) as u16,
        4 => array.above = (by % 66) as u16,
        5 => array.line.y0 = by as i64,
        6 => array.line.x0 = array.line.x0.wrapping_add(by),
        7 => array.line.mantissa = by as u32,
        8 => array.prefix = array.prefix.iter().take(by as usize % 9).copied().collect(),
        9 => array.prefix = [&array.prefix[..], &by.to_be_bytes()[..1]].concat().into(),
        10 => array.span = Span { low: array.span.low.clone(), high: None },
        _ => array.span.low = Arc::from([]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn made_up_descriptors_cost_time_and_no_answer(which in 0..12u32, by: u64) {
        let (local, map) = grown();
        for mode in [Mode::Pipeline, Mode::AllAtClient] {
            let forger = Forger { local: local.clone(), forge: forged(which, by) };
            let mut client = Client::new(forger, mode, CacheBudget::Full);
            // A model with a hole is none.
            let _ = client.renew(1);
            for key in keys(&map) {
                let found = client.get(&local.fabric(), 1, &key).unwrap();
                prop_assert_eq!(found, answer(map.get(&key), 16 << 10), "{:?}", key);
            }
            let page = client.range(&local.fabric(), 1, b"some", None, 50).unwrap();
            let expected = map.range(b"some".to_vec()..).take(page.pairs.len());
            let expected: Vec<_> = expected.map(|(k, v)| pair(k, v, 16 << 10)).collect();
            prop_assert!(page.pairs == expected && !expected.is_empty());
        }
    }

    #[test]
    fn damaged_regions_are_read_without_a_panic(
        damage in prop::collection::vec(
            (any::<prop::sample::Index>(), any::<u64>(), 0..3usize), 1..60),
    ) {
        let (local, map) = grown();
        let live = local.host.borrow().space().all().len().min(16_384);
        let words: Vec<AtomicU64> = local.space.all()[..live]
            .iter()
            .map(|word| AtomicU64::new(word.load(Ordering::Relaxed)))
            .collect();
        for (at, value, kind) in damage {
            let word = &words[at.index(words.len())];
            let old = word.load(Ordering::Relaxed);
            let damaged = [value, old ^ 1 << (value % 64), old.wrapping_add(value % 9)];
            word.store(damaged[kind], Ordering::Relaxed);
        }
        let fabric = MappedFabric::new(&[], &words);
        for mode in [Mode::Pipeline, Mode::AllAtClient] {
            let mut client = local.client(mode, CacheBudget::Full);
            for key in keys(&map) {
                client.get(&fabric, 1, &key).unwrap();
                let page = client.range(&fabric, 1, &key, None, 20).unwrap();
                prop_assert!(page.pairs.len() <= 20);
            }
            prop_assert!(client.counts() != ClientCounts::default());
        }
    }

    #[test]
    fn wrong_addresses_change_no_other_key(
        wrong in prop::collection::vec(
            (0..30u64, 0..500u32, 0..3000u32, 0..4u32, any::<prop::sample::Index>(), 0..4usize),
            1..150),
    ) {
        let (local, mut map) = grown();
        let all = keys(&map);
        let mut host = local.host.borrow_mut();
        for (array, record, bin, incarnation, key, verb) in wrong {
            let address = Address { array, record, bin, incarnation };
            let key = &all[key.index(all.len())];
            let verb = [Verb::Put, Verb::Remove, Verb::Insert, Verb::Search][verb];
            let was_there = map.contains_key(key);
            let reply = host.operate(&Operation::new(verb, address, key, b"wrong")).unwrap();
            let Reply::Done { outcome, .. } = reply else { panic!("no outcome") };
            match verb {
                Verb::Search => {
                    let value = map.get(key).map(|value| Value::Here(value.clone()));
                    prop_assert_eq!(outcome, value.map_or(Outcome::Absent, Outcome::Found));
                    continue;
                }
                Verb::Remove => drop(map.remove(key)),
                Verb::Insert if was_there => {}
                _ => drop(map.insert(key.clone(), b"wrong".to_vec())),
            }
            prop_assert_eq!(outcome, Outcome::Written { was_there });
        }
        host.publish(2);
        check(&host, &map);
    }
}

#[test]
fn a_host_without_room_refuses_and_loses_nothing() {
    let space = Arc::new(HeapSpace::new(64 << 10, 1 << 20));
    let mut map = sample(40);
    let entries = map.iter().map(|(key, value)| (key.clone(), value.clone()));
    let mut host = Host::build(Arc::clone(&space), Options::default(), entries).unwrap();
    let mut refused = 0;
    for n in 0..20_000u64 {
        let key = (n * 7919 % 20_000).to_be_bytes().to_vec();
        let value = vec![n as u8; (n % 300) as usize];
        match host.set(&key, &value, Address::default()) {
            Ok(was_there) => assert_eq!(was_there, map.insert(key, value).is_some()),
            Err(_) => refused += 1,
        }
        host.publish(n);
    }
    assert!(refused > 100);
    check(&host, &map);
    for key in map.keys().cloned().collect::<Vec<_>>() {
        assert!(host.remove(&key, Address::default()).unwrap());
        host.publish(0);
    }
    map.clear();
    check(&host, &map);
    host.poll(1);
    assert!(host.set(b"some key", &[1; 200], Address::default()).is_ok());
}
