//! Random changes, and clients whose caches are stale by a random number of them.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Set(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    /// Many numbers at one place, so that leaves split again and again.
    Many(u64, u8),
    /// Tasks that are done.
    Train(u8),
    /// One client reads these keys.
    Read(usize, Vec<Vec<u8>>),
    Scan(usize, Vec<u8>, usize),
}

/// Numbers, short keys of few letters, and long ones with a shared prefix.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let text = prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', 0xff]), 0..14);
    let number = (0u64..4000).prop_map(|n| (n << 40).to_be_bytes().to_vec());
    let long = (0u16..200).prop_map(|n| [&[b'l'; 30][..], &n.to_be_bytes()].concat());
    prop_oneof![text, number, long]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let long = prop::sample::select(vec![300usize, 5_000, 20_000, 100_000]);
    prop_oneof![
        20 => prop::collection::vec(any::<u8>(), 0..40),
        1 => (any::<u8>(), long).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let keys = prop::collection::vec(key(), 1..12);
    prop_oneof![
        20 => (key(), value()).prop_map(|(key, value)| Step::Set(key, value)),
        8 => key().prop_map(Step::Remove),
        2 => (0u64..4000, any::<u8>()).prop_map(|(number, count)| Step::Many(number, count)),
        4 => (0u8..20).prop_map(Step::Train),
        8 => (0..CLIENTS, keys).prop_map(|(client, keys)| Step::Read(client, keys)),
        2 => (0..CLIENTS, key(), 0usize..60).prop_map(|(c, from, n)| Step::Scan(c, from, n)),
    ]
}

const CLIENTS: usize = 5;

fn clients(world: &World) -> Vec<Client> {
    use CacheBudget::*;
    let kinds: [(CacheBudget, bool); CLIENTS] =
        [(Full, true), (Full, false), (Bytes(200), true), (Models, true), (Top, false)];
    kinds.map(|(budget, speculates)| world.client(budget, speculates)).into()
}

fn run(world: &mut World, steps: Vec<Step>) {
    let mut clients = clients(world);
    for step in steps {
        match step {
            Step::Set(key, value) => {
                let hint = clients[0].hint(&key);
                let is_new = world.table.set(&key, &value, hint).unwrap();
                assert_eq!(world.map.insert(key, value).is_none(), is_new);
            }
            Step::Remove(key) => {
                let hint = clients[0].hint(&key);
                assert_eq!(world.table.remove(&key, hint), world.map.remove(&key).is_some());
            }
            Step::Many(number, count) => {
                for low in 0..u64::from(count) {
                    let key = (number << 40 | low << 20).to_be_bytes();
                    world.table.set(&key, &key[..5], None).unwrap();
                    world.map.insert(key.to_vec(), key[..5].to_vec());
                }
            }
            Step::Train(tasks) => {
                for _ in 0..tasks {
                    world.table.train_one().unwrap();
                }
            }
            Step::Read(client, keys) => {
                world.publish();
                for key in keys {
                    world.check_get(&mut clients[client], &key);
                }
            }
            Step::Scan(client, from, limit) => {
                world.publish();
                world.check_scan(&mut clients[client], &from, limit);
            }
        }
    }
    world.publish();
    assert_eq!(world.table.len(), world.map.len() as u64);
    let keys: Vec<Vec<u8>> = world.map.keys().cloned().collect();
    for client in &mut clients {
        for key in keys.iter().step_by(3) {
            world.check_get(client, key);
        }
        world.check_scan(client, &[], 400);
    }
    world.train();
    for client in &mut clients {
        for key in keys.iter().step_by(7) {
            world.check_get(client, key);
            let above = [&key[..], &[0]].concat();
            world.check_get(client, &above);
        }
        world.check_scan(client, &[], usize::MAX >> 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_table_is_a_sorted_map(
        first in prop::collection::btree_map(key(), value(), 0..800),
        steps in prop::collection::vec(step(), 0..250),
        keys_per_model_max in 4u32..60,
        has_checksums: bool,
    ) {
        let new = if has_checksums { World::proven } else { World::new };
        run(&mut new(first, keys_per_model_max, 11, 32 << 20), steps);
    }

    #[test]
    fn a_table_of_numbers_is_a_sorted_map(
        first in prop::collection::btree_map(
            (0u64..4000).prop_map(|n| (n << 40).to_be_bytes().to_vec()),
            prop::collection::vec(any::<u8>(), 0..20),
            0..1500,
        ),
        steps in prop::collection::vec(step(), 0..150),
        keys_per_model_max in 20u32..200,
        has_checksums: bool,
    ) {
        let new = if has_checksums { World::proven } else { World::new };
        run(&mut new(first, keys_per_model_max, 8, 32 << 20), steps);
    }
}

#[test]
fn a_group_that_is_not_published_is_not_seen() {
    let map: Map = (0u64..500).map(|n| (n.to_be_bytes().to_vec(), b"old".to_vec())).collect();
    let mut world = World::new(map, 100, 11, 4 << 20);
    let mut client = world.client(CacheBudget::Full, true);
    let key = 77u64.to_be_bytes();
    for value in [&b"new"[..], &[9; 500], b"x"] {
        world.table.set(&key, value, None).unwrap();
        let mut out = Vec::new();
        assert_eq!(client.get(&world.fabric(), &key, &mut out).unwrap(), Outcome::Call);
        let scanned = client.scan(&world.fabric(), &key, 1).unwrap();
        assert_eq!((scanned.pairs, scanned.rest), (vec![], Some(key.to_vec())));
        world.map.insert(key.to_vec(), value.to_vec());
        world.publish();
        assert_eq!(world.check_get(&mut client, &key), Outcome::Found);
    }
}

#[test]
fn a_region_that_is_full_refuses_and_stays() {
    let map: Map = (0u64..40).map(|n| (n.to_be_bytes().to_vec(), vec![1; 200])).collect();
    let mut world = World::new(map, 100, 11, 64 << 10);
    let mut client = world.client(CacheBudget::Full, true);
    let mut refused = 0;
    for number in 0..2000u64 {
        let key = (number << 32 | 5).to_be_bytes();
        match world.table.set(&key, &[2; 500], None) {
            Ok(_) => drop(world.map.insert(key.to_vec(), vec![2; 500])),
            Err(crate::Error::Full { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        world.publish();
    }
    assert!(refused > 100 && world.map.len() > 60);
    assert_eq!(world.table.len(), world.map.len() as u64);
    for key in world.map.keys().cloned().collect::<Vec<_>>() {
        world.check_get(&mut client, &key);
    }
    // What is removed makes room.
    let first = world.map.pop_first().unwrap().0;
    let second = (1u64 << 32 | 5).to_be_bytes();
    assert!(world.table.remove(&first, None) && world.table.remove(&second, None));
    world.map.remove(&second[..]);
    world.set(&second, &[3; 500]);
    world.check_get(&mut client, &second);
}

#[test]
fn keys_of_equal_hashes_are_told_apart() {
    let mut seen = std::collections::HashMap::new();
    let mut map = Map::new();
    let mut absent = Vec::new();
    for number in 0..40_000u32 {
        let key = format!("{number:x}").into_bytes();
        match seen.insert(super::super::leaf::hash_of(&key), key.clone()) {
            Some(other) if map.len().is_multiple_of(4) => {
                map.extend([(key, b"1".to_vec()), (other, b"2".to_vec())]);
            }
            Some(other) => {
                map.insert(key, b"3".to_vec());
                absent.push(other);
            }
            None => {}
        }
    }
    assert!(map.len() > 20 && absent.len() > 3);
    let mut world = World::new(map, 400, 16, 4 << 20);
    for budget in [CacheBudget::Full, CacheBudget::Top] {
        let mut client = world.client(budget, true);
        for key in world.map.keys().chain(&absent).cloned().collect::<Vec<_>>() {
            assert_ne!(world.check_get(&mut client, &key), Outcome::Call);
        }
    }
}
