//! Random operations by clients of every mode, stale by any number of changes.

use proptest::prelude::*;

use super::*;
use crate::binned::{Address, RangePage, Verb, train::Trained};

#[derive(Clone, Debug)]
enum Step {
    Write {
        client: usize,
        verb: Verb,
        key: Vec<u8>,
        value: Vec<u8>,
    },
    /// Writes or removes keys side by side, in ascending or descending order.
    Fill {
        client: usize,
        key: Vec<u8>,
        count: u16,
        is_up: bool,
        removes: bool,
        wide: bool,
    },
    Get {
        client: usize,
        key: Vec<u8>,
    },
    Range {
        client: usize,
        from: Vec<u8>,
        end: Option<Vec<u8>>,
        limit: usize,
    },
    Renew {
        client: usize,
    },
    Leave {
        client: usize,
    },
    Pass {
        ms: u64,
    },
    Poll,
    Train,
    Begin,
    Finish,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    let text = prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', 0xff]), 0..14);
    let number = (0u64..4000).prop_map(|n| (n * 16).to_be_bytes().to_vec());
    let near = (0u64..64_000).prop_map(|n| n.to_be_bytes().to_vec());
    let long = (0u16..300).prop_map(|n| [&[b'l'; 30][..], &n.to_be_bytes()].concat());
    prop_oneof![2 => text, 4 => number, 4 => near, 2 => long]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => prop::collection::vec(any::<u8>(), 0..9),
        4 => prop::collection::vec(any::<u8>(), 9..300),
        1 => (0..100_000usize, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
    ]
}

fn verb() -> impl Strategy<Value = Verb> {
    prop::sample::select(vec![Verb::Insert, Verb::Update, Verb::Put, Verb::Put, Verb::Remove])
}

fn step() -> impl Strategy<Value = Step> {
    let client = 0..4usize;
    let fill = (client.clone(), key(), 1..260u16, any::<[bool; 3]>());
    let range = (client.clone(), key(), prop::option::of(key()), 1..300usize);
    prop_oneof![
        10 => (client.clone(), verb(), key(), value())
            .prop_map(|(client, verb, key, value)| Step::Write { client, verb, key, value }),
        3 => fill.prop_map(|(client, key, count, [is_up, removes, wide])| {
            Step::Fill { client, key, count, is_up, removes, wide }
        }),
        10 => (client.clone(), key()).prop_map(|(client, key)| Step::Get { client, key }),
        3 => range.prop_map(|(client, from, end, limit)| Step::Range { client, from, end, limit }),
        2 => client.clone().prop_map(|client| Step::Renew { client }),
        1 => client.prop_map(|client| Step::Leave { client }),
        1 => (1..700u64).prop_map(|ms| Step::Pass { ms }),
        2 => Just(Step::Poll),
        2 => Just(Step::Train),
        1 => Just(Step::Begin),
        1 => Just(Step::Finish),
    ]
}

struct World {
    local: Local,
    clients: Vec<Client<Local>>,
    map: Map,
    value_bytes_max: usize,
    trained: Vec<Trained>,
}

impl World {
    fn new(map: Map, value_bytes_max: usize) -> Self {
        // Both kinds of blocks are seen by all that is done here.
        let has_checksums = map.len().is_multiple_of(2);
        let options = Options { value_bytes_max, has_checksums, ..Options::default() };
        let local = Local::new(&map, options);
        let clients = vec![
            local.client(Mode::Pipeline, CacheBudget::Full),
            local.client(Mode::Pipeline, CacheBudget::Bytes(600)),
            local.client(Mode::AllAtClient, CacheBudget::Full),
            // Without a session, until it is renewed.
            Client::new(local.clone(), Mode::Pipeline, CacheBudget::Full)
                .with_sizes(Sizes::new(has_checksums)),
        ];
        Self { local, clients, map, value_bytes_max, trained: Vec::new() }
    }

    fn write(&mut self, client: usize, verb: Verb, key: &[u8], value: &[u8]) {
        let was_there = self.map.contains_key(key);
        let (fabric, now_ms) = (self.local.fabric(), self.local.now_ms.get());
        let done = self.clients[client].write(&fabric, now_ms, verb, key, value);
        assert_eq!(done.unwrap(), was_there, "{verb:?} {key:?}");
        match verb {
            Verb::Insert if was_there => {}
            Verb::Update if !was_there => {}
            Verb::Remove => drop(self.map.remove(key)),
            _ => drop(self.map.insert(key.to_vec(), value.to_vec())),
        }
    }

    fn get(&mut self, client: usize, key: &[u8]) {
        let (fabric, now_ms) = (self.local.fabric(), self.local.now_ms.get());
        let found = self.clients[client].get(&fabric, now_ms, key).unwrap();
        let expected = answer(self.map.get(key), self.value_bytes_max);
        assert!(found == expected, "client {client} of {key:?}");
    }

    fn range(&mut self, client: usize, from: &[u8], end: Option<&[u8]>, limit: usize) {
        let (fabric, now_ms) = (self.local.fabric(), self.local.now_ms.get());
        let (mut from, mut found) = (from.to_vec(), Vec::new());
        let expected = self.map.range(from.clone()..);
        let expected = expected.take_while(|(key, _)| end.is_none_or(|end| &key[..] < end));
        let expected: Vec<_> =
            expected.take(600).map(|(k, v)| pair(k, v, self.value_bytes_max)).collect();
        while found.len() < 600 {
            let page: RangePage =
                self.clients[client].range(&fabric, now_ms, &from, end, limit).unwrap();
            assert!(page.pairs.len() <= limit);
            found.extend(page.pairs);
            match page.next {
                Some(next) => assert!(std::mem::replace(&mut from, next) < from),
                None => break,
            }
        }
        found.truncate(600);
        let keys = |pairs: &[(Vec<u8>, Value)]| -> Vec<Vec<u8>> {
            pairs.iter().map(|(key, _)| key.clone()).collect()
        };
        assert_eq!(keys(&found), keys(&expected), "client {client}");
        assert!(found == expected, "client {client}: other values");
    }

    fn step(&mut self, step: &Step) {
        let now_ms = self.local.now_ms.get();
        match step {
            Step::Write { client, verb, key, value } => self.write(*client, *verb, key, value),
            Step::Fill { client, key, count, is_up, removes, wide } => {
                for n in 0..*count {
                    let n = if *is_up { n } else { count - n };
                    let mut near = key.clone();
                    if *wide || near.len() < 8 {
                        near.extend(n.to_be_bytes());
                    } else {
                        // Some eight bytes as well.
                        near.truncate(6);
                        near.extend(n.to_be_bytes());
                    }
                    let verb = if *removes { Verb::Remove } else { Verb::Put };
                    self.write(*client, verb, &near, &n.to_le_bytes());
                }
            }
            Step::Get { client, key } => self.get(*client, key),
            Step::Range { client, from, end, limit } => {
                self.range(*client, from, end.as_deref(), *limit);
            }
            Step::Renew { client } => self.clients[*client].renew(now_ms).unwrap(),
            Step::Leave { client } => self.clients[*client].leave().unwrap(),
            Step::Pass { ms } => self.local.now_ms.set(now_ms + ms),
            Step::Poll => {
                let mut host = self.local.host.borrow_mut();
                host.poll(now_ms);
                host.publish(0);
            }
            Step::Train => {
                let mut host = self.local.host.borrow_mut();
                let due = host.due.clone();
                // As if they had been searched often.
                let is_asked = self.map.len().is_multiple_of(2);
                for top in due {
                    host.arrays.get_mut(&top).into_iter().for_each(|a| a.is_asked = is_asked);
                }
                while let Some(plan) = host.begin_training() {
                    assert!(host.finish_training(plan.train()).unwrap());
                    host.publish(0);
                }
            }
            Step::Begin => {
                let mut host = self.local.host.borrow_mut();
                let mut tops = host.tops.values().copied();
                let first = tops.nth(self.trained.len() % host.tops.len());
                drop(tops);
                host.due.extend(first);
                self.trained.extend(host.begin_training().map(|plan| plan.train()));
            }
            Step::Finish => {
                let mut host = self.local.host.borrow_mut();
                if let Some(trained) = self.trained.pop() {
                    host.finish_training(trained).unwrap();
                    host.publish(0);
                }
            }
        }
    }

    /// Looks at keys and at what is near them, by every client.
    fn look(&mut self) {
        let keys: Vec<Vec<u8>> = self.map.keys().cloned().collect();
        for key in keys.iter().step_by(keys.len() / 150 + 1) {
            for near in [key.clone(), [&key[..], b"\0"].concat(), key[..key.len() / 2].to_vec()] {
                (0..4).for_each(|client| self.get(client, &near));
            }
        }
    }
}

fn map() -> impl Strategy<Value = Map> {
    let numbers = (0..2500u64, 1..40u64).prop_map(|(count, stride)| -> Map {
        let key = |n: u64| (n * stride).to_be_bytes().to_vec();
        (0..count).map(|n| (key(n), n.to_le_bytes()[..(n % 9) as usize].to_vec())).collect()
    });
    let mixed = prop::collection::btree_map(key(), value(), 0..200);
    (numbers, mixed).prop_map(|(mut numbers, mixed)| {
        numbers.extend(mixed);
        numbers
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, ..ProptestConfig::default() })]

    #[test]
    fn clients_agree_with_a_map(
        map in map(), steps in prop::collection::vec(step(), 1..120), small_limit: bool,
    ) {
        let mut world = World::new(map, if small_limit { 64 } else { 16 << 10 });
        for step in &steps {
            world.step(step);
        }
        check(&world.local.host.borrow(), &world.map);
        world.look();
        let late = world.local.now_ms.get() + 5000;
        let mut host = world.local.host.borrow_mut();
        host.poll(late);
        host.publish(0);
        prop_assert_eq!(host.waiting(), (0, 0));
        check(&host, &world.map);
    }

    #[test]
    fn a_group_is_seen_whole_or_not_at_all(
        map in map(), writes in prop::collection::vec((key(), prop::option::of(value())), 1..60),
    ) {
        let local = Local::new(&map, Options::default());
        let mut client = local.client(Mode::AllAtClient, CacheBudget::Full);
        let mut after = map.clone();
        local.holds.set(true);
        for (key, value) in &writes {
            let mut host = local.host.borrow_mut();
            let address = Address::default();
            let was_there = match value {
                Some(value) => host.set(key, value, address).unwrap(),
                None => host.remove(key, address).unwrap(),
            };
            let before = match value {
                Some(value) => after.insert(key.clone(), value.clone()),
                None => after.remove(key),
            };
            prop_assert_eq!(was_there, before.is_some());
            let value = host.get(key);
            let expected = after.get(key).map(|value| pair(key, value, 16 << 10).1);
            prop_assert!(value == expected);
        }
        // Before the group is published, what is read without a call is what was there before.
        for (key, _) in writes.iter().chain(map.iter().map(|_| &writes[0])).take(100) {
            let before = client.counts().operations;
            let found = client.get(&local.fabric(), 1, key).unwrap();
            if client.counts().operations == before {
                prop_assert_eq!(found, answer(map.get(key), 16 << 10));
            }
        }
        local.host.borrow_mut().publish(7);
        prop_assert_eq!(local.host.borrow().applied(), 7);
        for (key, _) in &writes {
            let found = client.get(&local.fabric(), 1, key).unwrap();
            prop_assert_eq!(found, answer(after.get(key), 16 << 10));
        }
        check(&local.host.borrow(), &after);
    }
}

#[test]
fn gaps_become_bins_children_small_arrays_and_new_arrays() {
    let map: Map = (0..1000u64).map(|n| ((n << 32).to_be_bytes().to_vec(), vec![1])).collect();
    let mut world = World::new(map, 64);
    let key = |gap: u64, n: u64| ((gap << 32) + n).to_be_bytes().to_vec();
    for n in 0..3000u64 {
        for key in [key(500, 1 + n * 7919 % 3001), key(600, n + 1), key(700, 9000 - n)] {
            world.write(0, Verb::Insert, &key, &n.to_le_bytes());
            if n % 97 == 0 {
                (0..4).for_each(|client| world.get(client, &key));
            }
        }
    }
    let counts = world.local.host.borrow().counts();
    assert!(counts.bin_retrainings > 5, "{counts:?}");
    assert!(world.local.host.borrow().due_count() > 0);
    world.step(&Step::Train);
    assert!(world.local.host.borrow().counts().model_retrainings > 0);
    check(&world.local.host.borrow(), &world.map);
    world.look();
    // What is emptied is joined.
    let keys: Vec<_> = world.map.keys().cloned().collect();
    for key in &keys {
        world.write(1, Verb::Remove, key, &[]);
        world.step(&Step::Train);
    }
    check(&world.local.host.borrow(), &world.map);
    assert!(world.local.host.borrow().tops.len() <= 2, "{}", world.local.host.borrow().tops.len());
    world.look();
}
