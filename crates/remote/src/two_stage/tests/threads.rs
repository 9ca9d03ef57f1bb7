//! One writer and several readers.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64 as Counter},
    },
    thread,
};

use super::{
    super::train::{Task, TrainedModel},
    *,
};
use crate::primitive::Ordering;

const KEYS: u64 = 3000;

/// A key that is always there, with values that tell their key and version.
fn key(number: u64) -> Vec<u8> {
    match number % 3 {
        0 => (number << 32).to_be_bytes().to_vec(),
        1 => format!("key {number} with more bytes").into_bytes(),
        _ => format!("{number}").into_bytes(),
    }
}

/// The number again and again, then the version: a torn value is of two versions.
fn value(number: u64, version: u64) -> Vec<u8> {
    let len = 2 + (number.wrapping_mul(version) % 60) as usize;
    let word = number << 32 | version;
    std::iter::repeat_n(word.to_le_bytes(), len).flatten().collect()
}

/// The version of a value, which is whole.
fn version(number: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    assert!(rest.is_empty() && words.iter().all(|word| word == &words[0]), "a torn value");
    let word = u64::from_le_bytes(words[0]);
    assert_eq!(word >> 32, number, "a value of another key");
    let version = word & u64::from(u32::MAX);
    assert_eq!(value(number, version).len(), bytes.len());
    version
}

fn read(
    world: &Mutex<World>,
    (control, leaves): (&HeapSpace, &HeapSpace),
    seed: u64,
    end: &AtomicBool,
    published: &[Counter],
) -> u64 {
    let fabric = MappedFabric::new(control.all(), leaves.all());
    let budget = [CacheBudget::Full, CacheBudget::Models, CacheBudget::Top][seed as usize % 3];
    let mut client = Client::open(&fabric, ClientOptions { budget, speculates: true }).unwrap();
    let (mut random, mut answered) = (Random::new(seed), 0);
    let mut out = Vec::new();
    while !end.load(Ordering::Relaxed) {
        let number = random.below(KEYS);
        let key = key(number);
        let least = published[number as usize].load(Ordering::SeqCst);
        out.clear();
        match client.get(&fabric, &key, &mut out).unwrap() {
            Outcome::Found => {
                assert!(version(number, &out) >= least, "an old value of {number}");
                answered += 1;
            }
            Outcome::Absent => panic!("{number} is lost"),
            Outcome::Ask => panic!("no value is large"),
            Outcome::Call => {
                let mut world = world.lock().unwrap();
                let answer = world.answer(&client.lookup(&key));
                answer.fresh.into_iter().for_each(|fresh| client.learn(fresh));
            }
        }
        if random.below(16) == 0 {
            let scanned = client.scan(&fabric, &key, 20).unwrap();
            assert!(scanned.pairs.is_sorted_by(|(a, _), (b, _)| a < b));
            let present = scanned.pairs.iter().filter(|(key, _)| !key.ends_with(b"~"));
            if let Some((first, _)) = present.clone().next() {
                assert_eq!(first, &key, "a scan lost its first key");
            }
        }
    }
    answered
}

/// Trains without holding the table, as a trainer thread does. Returns how often.
fn train(world: &Mutex<World>, end: &AtomicBool) -> u64 {
    let mut count = 0;
    while !end.load(Ordering::Relaxed) {
        let task: Option<Task> = world.lock().unwrap().table.next_task().unwrap();
        if let Some(task) = task {
            let trained: TrainedModel = task.train();
            world.lock().unwrap().table.commit(trained).unwrap();
            count += 1;
        }
        thread::yield_now();
    }
    count
}

#[test]
fn readers_see_whole_values_and_lose_none() {
    let map: Map = (0..KEYS).map(|number| (key(number), value(number, 1))).collect();
    let world = World::new(map, 60, 11, 64 << 20);
    let (control, leaves) =
        (Arc::clone(world.table.control_space()), Arc::clone(world.table.leaf_space()));
    let world = Mutex::new(world);
    let published: Vec<Counter> = (0..KEYS).map(|_| Counter::new(1)).collect();
    let end = AtomicBool::new(false);
    let answered = thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|seed| {
                let (world, published, end) = (&world, &published, &end);
                let spaces = (&*control, &*leaves);
                scope.spawn(move || read(world, spaces, seed, end, published))
            })
            .collect();
        let trainer = scope.spawn(|| train(&world, &end));
        let mut random = Random::new(99);
        for round in 2..40_000u64 {
            let number = random.below(KEYS);
            let mut world = world.lock().unwrap();
            world.table.set(&key(number), &value(number, round), None).unwrap();
            // Keys that come and go, so that leaves split and pairs move.
            let other = [&key(random.below(KEYS))[..], b"~"].concat();
            if random.below(3) > 0 {
                world.table.set(&other, b"~", None).unwrap();
            } else {
                world.table.remove(&other, None);
            }
            world.publish();
            published[number as usize].store(round, Ordering::SeqCst);
            drop(world);
            if round % 64 == 0 {
                thread::yield_now();
            }
        }
        end.store(true, Ordering::Relaxed);
        assert!(trainer.join().unwrap() > 100);
        readers.into_iter().map(|reader| reader.join().unwrap()).sum::<u64>()
    });
    assert!(answered > 100, "{answered} gets without a call");
}

#[test]
fn hot_values_are_never_torn() {
    const HOT: u64 = 24;
    let map: Map = (0..HOT).map(|number| (key(number), value(number, 1))).collect();
    let world = World::new(map, 60, 11, 4 << 20);
    let (control, leaves) = (Arc::clone(&world.control), Arc::clone(&world.leaves));
    let end = AtomicBool::new(false);
    let found = thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|seed| {
                let (control, leaves, end) = (&control, &leaves, &end);
                scope.spawn(move || {
                    let fabric = MappedFabric::new(control.all(), leaves.all());
                    let options = ClientOptions { budget: CacheBudget::Full, speculates: true };
                    let mut client = Client::open(&fabric, options).unwrap();
                    let (mut random, mut found, mut out) = (Random::new(seed), 0u64, Vec::new());
                    while !end.load(Ordering::Relaxed) {
                        let number = random.below(HOT);
                        out.clear();
                        let outcome = client.get(&fabric, &key(number), &mut out).unwrap();
                        assert_ne!(outcome, Outcome::Absent);
                        if outcome == Outcome::Found {
                            version(number, &out);
                            found += 1;
                        }
                    }
                    found
                })
            })
            .collect();
        let (mut world, mut random) = (world, Random::new(98));
        for round in 2..400_000u64 {
            let number = random.below(HOT);
            // Half of the values of numbers lie in their leaves.
            let version = if round % 2 == 0 { round } else { round * 60 };
            world.table.set(&key(number), &value(number, version), None).unwrap();
            world.publish();
        }
        end.store(true, Ordering::Relaxed);
        readers.into_iter().map(|reader| reader.join().unwrap()).sum::<u64>()
    });
    assert!(found > 100, "{found} gets");
}
