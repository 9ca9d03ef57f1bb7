//! Regions that are not what they should be.

use super::*;
use crate::{
    primitive::{AtomicU64, Ordering},
    two_stage::layout::TOP,
};

fn mixed(random: &mut Random) -> Map {
    let mut map = Map::new();
    for number in 0..600u64 {
        let key = (number << 34).to_be_bytes();
        map.insert(key.to_vec(), key[..number as usize % 8].to_vec());
        if number % 3 == 0 {
            let key = [b"a longer prefix ".as_slice(), &key[..6]].concat();
            map.insert(key, vec![number as u8; random.below(600) as usize]);
        }
    }
    map
}

fn clients(world: &World) -> Vec<Client> {
    use CacheBudget::*;
    [Full, Bytes(500), Models, Top].map(|budget| world.client(budget, true)).into()
}

/// A word that is likely to do harm.
fn word(random: &mut Random) -> u64 {
    match random.below(5) {
        0 => 0,
        1 => u64::MAX,
        2 => 1 << random.below(64),
        3 => random.below(1 << 20),
        _ => random.next(),
    }
}

fn damage(words: &[AtomicU64], random: &mut Random) -> (usize, u64) {
    let at = random.below(words.len() as u64) as usize;
    let old = words[at].load(Ordering::Relaxed);
    let new = if random.below(2) == 0 { word(random) } else { old ^ 1 << random.below(64) };
    words[at].store(new, Ordering::Relaxed);
    (at, old)
}

#[test]
fn damaged_models_and_tables_cost_time_alone() {
    let mut random = Random::new(7);
    let world = World::new(mixed(&mut random), 40, 11, 4 << 20);
    let keys: Vec<Vec<u8>> = world.map.keys().cloned().collect();
    // Records lie before models and tables, which were made last.
    let models = super::super::layout::line_at(world.table.model_line()) as usize / 8;
    let end = world.control.all().iter().rposition(|word| word.load(Ordering::Relaxed) != 0);
    let control = Arc::clone(&world.control);
    let (top, rest) = (&control.all()[TOP..TOP + 40], &control.all()[models..=end.unwrap()]);
    for round in 0..300 {
        let mut clients = clients(&world);
        let words = if round % 4 == 0 { top } else { rest };
        let old: Vec<_> = (0..1 + random.below(40)).map(|_| damage(words, &mut random)).collect();
        let mut late = self::clients(&world);
        clients.append(&mut late);
        for client in &mut clients {
            client.fill(&world.fabric()).unwrap();
            for _ in 0..20 {
                let mut key = keys[random.below(keys.len() as u64) as usize].clone();
                let mut out = Vec::new();
                if random.below(3) == 0 {
                    key.push(0);
                }
                let outcome = client.get(&world.fabric(), &key, &mut out).unwrap();
                match outcome {
                    Outcome::Found => assert_eq!(world.map.get(&key), Some(&out)),
                    Outcome::Absent => assert_eq!(world.map.get(&key), None),
                    Outcome::Ask => panic!("no value is large"),
                    Outcome::Call => {}
                }
                client.hint(&key);
            }
            let from = &keys[random.below(keys.len() as u64) as usize];
            let limit = random.below(60) as usize;
            let scanned = client.scan(&world.fabric(), from, limit).unwrap();
            let expected = world.map.range(from.clone()..).take(scanned.pairs.len());
            assert!(scanned.pairs.iter().map(|(key, _)| key).eq(expected.map(|(key, _)| key)));
        }
        for (at, old) in old.into_iter().rev() {
            words[at].store(old, Ordering::Relaxed);
        }
    }
}

/// The first word that is no part of the header.
const AFTER_HEADER: usize = 5;

#[test]
fn damaged_words_anywhere_do_no_harm() {
    let mut random = Random::new(8);
    let world = World::new(mixed(&mut random), 40, 11, 4 << 20);
    let keys: Vec<Vec<u8>> = world.map.keys().cloned().collect();
    let used = |space: &HeapSpace| {
        1 + space.all().iter().rposition(|word| word.load(Ordering::Relaxed) != 0).unwrap()
    };
    let (control, leaves) = (used(&world.control), used(&world.leaves));
    for _ in 0..400 {
        for _ in 0..random.below(100) {
            damage(&world.control.all()[AFTER_HEADER..control], &mut random);
            damage(&world.leaves.all()[..leaves], &mut random);
        }
        for mut client in clients(&world) {
            let before = client.reads().trips;
            client.fill(&world.fabric()).unwrap();
            for _ in 0..10 {
                let key = &keys[random.below(keys.len() as u64) as usize];
                client.get(&world.fabric(), key, &mut Vec::new()).unwrap();
                client.scan(&world.fabric(), key, 30).unwrap();
            }
            assert!(client.reads().trips - before < 5_000, "{:?}", client.counts());
        }
    }
}

#[test]
fn answers_of_any_kind_are_learned() {
    let mut random = Random::new(9);
    let mut world = World::new(mixed(&mut random), 40, 11, 4 << 20);
    let keys: Vec<Vec<u8>> = world.map.keys().cloned().collect();
    for mut client in clients(&world) {
        for _ in 0..200 {
            let key = &keys[random.below(keys.len() as u64) as usize];
            let mut lookup = client.lookup(key);
            (lookup.epoch, lookup.wants_model) = (random.below(3) as u32, true);
            let answer = world.table.answer(&lookup, |_| None);
            let mut bytes = Vec::new();
            answer.encode(&mut bytes);
            for _ in 0..random.below(4) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << random.below(8);
            }
            if let Ok(Answer { fresh: Some(fresh), .. }) = Answer::decode(&bytes) {
                client.learn(fresh);
            }
            let key = &keys[random.below(keys.len() as u64) as usize];
            let mut out = Vec::new();
            if client.get(&world.fabric(), key, &mut out).unwrap() == Outcome::Found {
                assert_eq!(world.map[key], out);
            }
        }
    }
}

#[test]
fn other_regions_are_refused() {
    let world = World::new(Map::new(), 40, 11, 64 << 10);
    let options = ClientOptions { budget: CacheBudget::Full, speculates: true };
    for word in 0..4 {
        let words = &world.control.all()[word];
        let old = words.fetch_xor(1 << 3, Ordering::Relaxed);
        assert!(Client::open(&world.fabric(), options).is_err());
        words.store(old, Ordering::Relaxed);
    }
    assert!(Client::open(&MappedFabric::new(&[], &[]), options).is_err());
    assert!(Client::open(&world.fabric(), options).is_ok());
}
