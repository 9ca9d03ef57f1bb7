//! What gets cost, by the distribution of keys and by what a client keeps.

use super::{
    super::{ClientCounts, HostCounts},
    *,
};

const KEYS: u64 = 100_000;

fn uniform(random: &mut Random) -> u64 {
    random.next()
}

/// As the papers' sets: exponentials of normal numbers with a deviation of 2.
fn lognormal(random: &mut Random) -> u64 {
    let radius = (-2.0 * (1.0 - random.fraction()).ln()).sqrt();
    let normal = radius * (std::f64::consts::TAU * random.fraction()).cos();
    ((2.0 * normal).exp() * 1e9) as u64
}

fn map(draw: impl Fn(&mut Random) -> u64) -> Map {
    let (mut random, mut map) = (Random::new(1), Map::new());
    while (map.len() as u64) < KEYS {
        let key = draw(&mut random).to_be_bytes();
        map.insert(key.to_vec(), key.to_vec());
    }
    map
}

fn world(draw: impl Fn(&mut Random) -> u64, keys_per_model_max: u32) -> World {
    World::new(map(draw), keys_per_model_max, 11, 64 << 20)
}

/// Gets each tenth key, with the other counts.
fn gets(world: &mut World, client: &mut Client) -> (f64, f64, f64) {
    let keys: Vec<Vec<u8>> = world.map.keys().step_by(10).cloned().collect();
    let (counts, reads) = (client.counts(), client.reads());
    for key in &keys {
        world.check_get(client, key);
    }
    let gets = keys.len() as f64;
    let trips = (client.reads().trips - reads.trips) as f64 / gets;
    let leaves = (client.counts().leaves - counts.leaves) as f64 / gets;
    let calls = (client.counts().fallbacks - counts.fallbacks) as f64 / gets;
    (trips, leaves, calls)
}

#[test]
fn static_gets_take_two_reads() {
    // On average 200 keys a sub-model, then 50.
    for (most, leaves) in [(400, 2.4..2.6), (100, 1.6..2.0)] {
        let mut world = world(uniform, most);
        assert_eq!(u64::from(world.table.leaf_count()), KEYS.div_ceil(11));
        let budgets =
            [(CacheBudget::Full, 2.0), (CacheBudget::Models, 3.0), (CacheBudget::Top, 4.0)];
        for (budget, trips) in budgets {
            let mut client = world.client(budget, true);
            client.fill(&world.fabric()).unwrap();
            let seen = gets(&mut world, &mut client);
            assert_eq!((seen.0, seen.2), (trips, 0.0), "{budget:?}");
            assert!(leaves.contains(&seen.1), "{} leaves a get", seen.1);
            let bytes = client.cache_bytes() as f64 / KEYS as f64;
            println!("uniform, {budget:?}: {} leaves a get, {bytes} bytes a key", seen.1);
        }
        let host = world.table.counts();
        println!("mean error {}", host.trained_errors as f64 / host.trained_keys as f64);
    }
}

#[test]
fn lognormal_keys_have_wide_windows() {
    // The top's line spends most sub-models on few keys: of 25,000 sub-models, one has a sixth of
    // all keys, and half of all gets would read more than ten leaves.
    for (most, calls) in [(400, 1.0), (8, 0.6)] {
        let mut world = world(lognormal, most);
        let mut client = world.client(CacheBudget::Full, true);
        client.fill(&world.fabric()).unwrap();
        let seen = gets(&mut world, &mut client);
        let counts: ClientCounts = client.counts();
        println!(
            "lognormal, {} a sub-model: {seen:?}, {counts:?}, {} bytes of cache a key",
            most / 2,
            client.cache_bytes() as f64 / KEYS as f64
        );
        assert!(seen.2 < calls);
        assert_eq!(counts.fallbacks, counts.wide + counts.missed);
    }
}

#[test]
fn no_border_is_missed() {
    let mut random = Random::new(3);
    for draw in [uniform, lognormal] {
        let mut world = world(draw, 100);
        let mut client = world.client(CacheBudget::Full, true);
        client.fill(&world.fabric()).unwrap();
        let keys: Vec<u64> =
            world.map.keys().map(|key| u64::from_be_bytes(*key.first_chunk().unwrap())).collect();
        let mut gets = 0;
        for pair in keys.windows(2) {
            // Both ends of a gap, and a place within it.
            let gap = pair[1] - pair[0];
            for key in [pair[0] + 1, pair[0] + random.below(gap), pair[1] - 1] {
                world.check_get(&mut client, &key.to_be_bytes());
                gets += 1;
            }
        }
        let counts = client.counts();
        assert_eq!((counts.missed, counts.hops), (0, 0));
        assert_eq!(counts.fallbacks, counts.wide);
        assert_eq!(counts.gets, gets);
    }
}

#[test]
fn keys_inserted_after_training_are_in_their_windows() {
    let mut world = World::new(map(uniform), 400, 8, 64 << 20);
    let mut client = world.client(CacheBudget::Full, true);
    client.fill(&world.fabric()).unwrap();
    let keys: Vec<u64> =
        world.map.keys().map(|key| u64::from_be_bytes(*key.first_chunk().unwrap())).collect();
    let mut new = Vec::new();
    for pair in keys.windows(2).step_by(8) {
        let key = pair[1] - 1;
        world.table.set(&key.to_be_bytes(), b"new", None).unwrap();
        world.map.insert(key.to_be_bytes().to_vec(), b"new".to_vec());
        new.push(key);
    }
    world.publish();
    assert_eq!(world.table.counts().splits, 0);
    for key in new {
        assert_eq!(world.check_get(&mut client, &key.to_be_bytes()), Outcome::Found);
    }
    assert_eq!((client.counts().missed, client.counts().stale), (0, 0));
}

#[test]
fn inserts_cost_calls_until_models_are_trained() {
    let mut world = World::new(map(uniform), 400, 14, 64 << 20);
    let mut plain = world.client(CacheBudget::Full, false);
    let mut speculative = world.client(CacheBudget::Full, true);
    for client in [&mut plain, &mut speculative] {
        client.fill(&world.fabric()).unwrap();
        assert_eq!(gets(&mut world, client).2, 0.0);
    }
    let mut random = Random::new(4);
    for _ in 0..KEYS / 10 {
        let key = random.next().to_be_bytes();
        let hint = plain.hint(&key);
        world.table.set(&key, &key, hint).unwrap();
        world.map.insert(key.to_vec(), key.to_vec());
    }
    world.publish();
    let host: HostCounts = world.table.counts();
    assert!(host.hints_right > host.hints_wrong / 2, "{host:?}");
    let calls = gets(&mut world, &mut plain).2;
    let speculative_calls = gets(&mut world, &mut speculative).2;
    println!("{} splits, calls a get: {calls}, with speculation {speculative_calls}", host.splits);
    println!("hints: {} right, {} wrong", host.hints_right, host.hints_wrong);
    assert!(host.splits > 100 && calls > 0.01, "{calls}");
    assert!(speculative_calls < calls * 0.8, "{speculative_calls} of {calls}");
    // Every leaf that was split says so.
    assert!(speculative.counts().speculative > 0 && speculative.counts().stale > 0);
    assert_eq!(speculative.counts().missed, 0);
    world.train();
    for client in [&mut plain, &mut speculative] {
        // The first round learns the new models.
        gets(&mut world, client);
        gets(&mut world, client);
        let seen = gets(&mut world, client);
        assert_eq!((seen.0, seen.2), (2.0, 0.0), "{:?}", client.counts());
    }
}

#[test]
fn models_are_expanded_and_shrunk() {
    let mut world = World::new(map(uniform), 200, 11, 128 << 20);
    let models = world.table.model_count();
    let mut client = world.client(CacheBudget::Full, true);
    client.fill(&world.fabric()).unwrap();
    let mut random = Random::new(5);
    while world.table.counts().expansions == 0 {
        let key = random.next().to_be_bytes();
        world.set(&key, b"v");
        world.table.train_one().unwrap();
        if random.below(100) == 0 {
            let key = world.map.range(random.next().to_be_bytes().to_vec()..).next();
            let key = key.map_or(vec![], |(key, _)| key.clone());
            world.check_get(&mut client, &key);
        }
    }
    assert_eq!(world.table.model_count(), 2 * models);
    world.train();
    gets(&mut world, &mut client);
    client.fill(&world.fabric()).unwrap();
    let seen = gets(&mut world, &mut client);
    assert!(seen.1 < 3.0 && seen.2 < 0.02, "{seen:?}");
    let keys: Vec<Vec<u8>> = world.map.keys().cloned().collect();
    for key in keys.iter().filter(|_| random.below(30) > 0) {
        assert!(world.table.remove(key, None));
        world.map.remove(key);
    }
    world.publish();
    world.train();
    assert!(world.table.counts().shrinks > 0 && world.table.model_count() <= models);
    gets(&mut world, &mut client);
    world.check_scan(&mut client, &[], 5000);
}

/// Of uniform keys none is placed outside of all sub-models.
#[test]
fn no_key_is_beyond_the_ends_of_the_top() {
    for seed in 1..=8 {
        let mut random = Random::new(seed);
        let keys = (0..KEYS).map(|_| random.next().to_be_bytes().to_vec());
        let mut world = World::new(keys.map(|key| (key.clone(), key)).collect(), 200, 11, 64 << 20);
        let mut client = world.client(CacheBudget::Full, true);
        client.fill(&world.fabric()).unwrap();
        let ends = world.map.keys().take(300).chain(world.map.keys().rev().take(300));
        for key in ends.cloned().collect::<Vec<_>>() {
            world.check_get(&mut client, &key);
        }
        assert_eq!(client.counts().fallbacks, 0, "{:?}", client.counts());
    }
}

/// Keys above all that models were trained on are told apart by the next ones.
#[test]
fn keys_that_ascend_or_descend_are_found_by_models() {
    for ascends in [true, false] {
        let mut world = World::new(BTreeMap::new(), 200, 11, 64 << 20);
        for n in 0..12_000u64 {
            let n = if ascends { n } else { 11_999 - n };
            let key = (n << 40 | n).to_be_bytes();
            world.set(&key, &key);
            if n % 50 == 0 {
                world.train();
            }
        }
        world.train();
        let mut client = world.client(CacheBudget::Full, true);
        client.fill(&world.fabric()).unwrap();
        let seen = gets(&mut world, &mut client);
        println!("{} trained, {seen:?}", world.table.counts().trained);
        assert!(seen.2 < 0.2, "{seen:?}");
        // 60 models have 200 keys each: they were trained by doublings, and after each eighth more.
        let trained = world.table.counts().trained;
        assert!(trained < 60 * 32, "{trained}");
    }
}

#[test]
fn scans_take_two_reads_as_a_rule() {
    let mut world = world(uniform, 400);
    let mut client = world.client(CacheBudget::Full, true);
    client.fill(&world.fabric()).unwrap();
    let keys: Vec<Vec<u8>> = world.map.keys().step_by(99).cloned().collect();
    let before = client.reads().trips;
    for (index, key) in keys.iter().enumerate() {
        world.check_scan(&mut client, key, 1 + index % 100);
    }
    let trips = (client.reads().trips - before) as f64 / keys.len() as f64;
    println!("{trips} trips a scan of 1 to 100 pairs");
    assert!(trips < 2.05 && client.counts().fallbacks == 0, "{trips}");
}

#[test]
fn a_budget_of_bytes_is_kept() {
    let mut world = world(uniform, 400);
    let mut client = world.client(CacheBudget::Bytes(20_000), true);
    client.fill(&world.fabric()).unwrap();
    let seen = gets(&mut world, &mut client);
    assert!(client.cache_bytes() <= 20_000 && client.cache_bytes() > 15_000);
    assert!(seen.0 < 4.1 && seen.2 == 0.0, "{seen:?}");
}
