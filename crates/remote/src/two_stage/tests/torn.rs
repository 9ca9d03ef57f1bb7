//! Gets and scans of a region that is read without order, while its host changes it.

use proptest::prelude::*;

use super::*;
use crate::fabric::torn::{History, Torn};

/// What readers may see after a step.
struct Moment {
    now: Map,
    /// While all is loaded anew, what comes after `now`.
    next: Option<Map>,
}

impl Moment {
    fn has(&self, key: &[u8], value: Option<&[u8]>) -> bool {
        let of = |map: &Map| map.get(key).map(Vec::as_slice) == value;
        of(&self.now) || self.next.as_ref().is_some_and(of)
    }
}

#[derive(Clone, Debug)]
enum Change {
    /// Sets values of these lengths, or removes keys, all seen at once.
    Group(Vec<(u16, Option<u16>)>),
    Train(u8),
    /// Loads all keys but the multiples of a number.
    Load(u16),
}

const KEYS: u16 = 160;

/// Numbers; texts of which fences are long; and others of several lengths.
fn key(number: u16) -> Vec<u8> {
    match number % 4 {
        0 | 1 => (u64::from(number / 24) << 40).wrapping_add(number.into()).to_be_bytes().to_vec(),
        2 => format!("all of these begin alike: {number:04}").into_bytes(),
        _ => format!("{number:x}").into_bytes(),
    }
}

fn value(key: &[u8], version: usize, len: u16) -> Vec<u8> {
    let mut value = (version as u32).to_le_bytes().to_vec();
    value.extend(key.iter().cycle().take(len.into()));
    value
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let len = prop_oneof![6 => 0..12_u16, 2 => 13..300_u16, 1 => Just(17_000)];
    let one = (0..KEYS, prop::option::weighted(0.8, len));
    let change = prop_oneof![
        12 => prop::collection::vec(one, 1..6).prop_map(Change::Group),
        2 => (1..9_u8).prop_map(Change::Train),
        1 => (2..9_u16).prop_map(Change::Load),
    ];
    prop::collection::vec(change, 1..50)
}

/// Steps that pass while a read goes on, at most. Some loads are shorter than the longest.
fn duration() -> impl Strategy<Value = usize> {
    prop_oneof![0..4_usize, Just(60)]
}

/// Makes changes, and keeps the region after each step.
fn record(changes: &[Change]) -> (History, Vec<Moment>) {
    let first: Map = (0..KEYS / 2).map(|n| (key(n * 2), value(&key(n * 2), 0, n))).collect();
    let mut world = World::proven(first, 20, 11, 4 << 20);
    let (mut history, mut moments) = (History::default(), Vec::new());
    let spaces = (Arc::clone(&world.control), Arc::clone(&world.leaves));
    let words = || (crate::host::Space::words(&*spaces.0), crate::host::Space::words(&*spaces.1));
    let mut note = |now: &Map, next: Option<&Map>| {
        let (control, leaves) = words();
        history.record(control, leaves);
        moments.push(Moment { now: now.clone(), next: next.cloned() });
    };
    note(&world.map, None);
    for (version, change) in (1..).zip(changes) {
        match change {
            Change::Group(group) => {
                let before = world.map.clone();
                for (number, len) in group {
                    let key = key(*number);
                    match len {
                        Some(len) => {
                            let value = value(&key, version, *len);
                            world.table.set(&key, &value, None).unwrap();
                            world.map.insert(key, value);
                        }
                        None => {
                            world.table.remove(&key, None);
                            world.map.remove(&key);
                        }
                    }
                    note(&before, None);
                }
                world.publish();
            }
            Change::Train(count) => {
                for _ in 0..*count {
                    world.table.train_one().unwrap();
                    note(&world.map, None);
                }
            }
            Change::Load(step) => {
                let pairs = (0..KEYS).filter(|n| n % step != 0);
                let next: Map = pairs.map(|n| (key(n), value(&key(n), version, n % 40))).collect();
                let (before, after) = (world.map.clone(), next.clone());
                let pairs = next.clone().into_iter().inspect(|_| note(&before, Some(&after)));
                world.table.load(pairs.map(Ok)).unwrap();
                world.map = next;
                world.publish();
            }
        }
        note(&world.map, None);
    }
    (history, moments)
}

fn client(torn: &Torn<'_>, budget: CacheBudget) -> Client {
    let mut client = Client::open(torn, ClientOptions { budget, speculates: true }).unwrap();
    client.fill(torn).unwrap();
    client
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn gets_without_order_are_right_at_some_moment_of_their_time(
        changes in changes(), seed: u64, most in duration(), has_models: bool,
    ) {
        let (history, moments) = record(&changes);
        let torn = Torn::new(&history, most, seed);
        let budget = if has_models { CacheBudget::Full } else { CacheBudget::Top };
        let mut client = client(&torn, budget);
        for begin in 0..moments.len() {
            for number in (begin as u16 % 7..KEYS).step_by(7) {
                torn.begin_at(begin);
                let (key, mut out) = (key(number), b"before".to_vec());
                let outcome = client.get(&torn, &key, &mut out).unwrap();
                let mut seen = moments[begin..=torn.now()].iter();
                match outcome {
                    Outcome::Found => {
                        prop_assert!(seen.any(|moment| moment.has(&key, Some(&out[6..]))));
                    }
                    Outcome::Absent => prop_assert!(seen.any(|moment| moment.has(&key, None))),
                    Outcome::Ask | Outcome::Call => {}
                }
            }
        }
    }

    #[test]
    fn several_gets_without_order_are_right_at_some_moment_of_their_time(
        changes in changes(), seed: u64, most in duration(), count in 1..40_u16,
    ) {
        let (history, moments) = record(&changes);
        let (torn, still) = (Torn::new(&history, most, seed), Torn::still(&history));
        let mut clients = [&torn, &still].map(|fabric| client(fabric, CacheBudget::Full));
        for begin in 0..moments.len() {
            let first = begin as u16 * 7;
            let keys: Vec<Vec<u8>> = (first..first + count).map(|n| key(n % KEYS)).collect();
            let wanted: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            torn.begin_at(begin);
            let mut found = vec![None; keys.len()];
            let keep = |index: usize, value: Option<&[u8]>| {
                assert!(found[index].replace(value.map(<[u8]>::to_vec)).is_none());
            };
            let missed = clients[0].multi_get(&torn, &wanted, keep).unwrap();
            for (index, value) in found.iter().enumerate() {
                prop_assert_eq!(value.is_none(), missed.contains(&index));
                let Some(value) = value else { continue };
                let mut seen = moments[begin..=torn.now()].iter();
                prop_assert!(seen.any(|moment| moment.has(&keys[index], value.as_deref())));
            }
            if most == 0 {
                still.begin_at(begin);
                prop_assert_eq!(clients[1].multi_get(&still, &wanted, |_, _| {}).unwrap(), missed);
            }
        }
    }

    /// Checksums change nothing of what a region that stands still says.
    #[test]
    fn regions_with_checksums_answer_as_those_without(
        numbers in prop::collection::btree_set(0..KEYS, 1..160), has_models: bool,
    ) {
        let value = |n: &u16| value(&key(*n), 1, *n);
        let map: Map = numbers.iter().map(|n| (key(*n), value(n))).collect();
        let budget = if has_models { CacheBudget::Full } else { CacheBudget::Top };
        let worlds = [World::new, World::proven].map(|new| new(map.clone(), 20, 4, 4 << 20));
        let [plain, proven] = worlds.map(|world| {
            let mut client = world.client(budget, true);
            let keys = (0..KEYS).flat_map(|n| [key(n), [&key(n)[..], b"+"].concat()]);
            let get = |key: Vec<u8>| {
                let mut out = Vec::new();
                (client.get(&world.fabric(), &key, &mut out).unwrap(), out)
            };
            keys.map(get).collect::<Vec<_>>()
        });
        prop_assert_eq!(plain, proven);
    }

    /// What proves itself where there is an order does so where there is none.
    #[test]
    fn what_stands_still_is_found_as_in_mapped_memory(changes in changes()) {
        let (history, moments) = record(&changes);
        let (torn, still) = (Torn::new(&history, 0, 0), Torn::still(&history));
        let mut clients = [&torn, &still].map(|fabric| client(fabric, CacheBudget::Top));
        for step in 0..moments.len() {
            for number in (step as u16 % 3..KEYS).step_by(3) {
                let [one, other] = [(0, &torn), (1, &still)].map(|(which, fabric)| {
                    fabric.begin_at(step);
                    let mut value = Vec::new();
                    (clients[which].get(fabric, &key(number), &mut value).unwrap(), value)
                });
                prop_assert_eq!(one, other);
            }
            let [one, other] = [(0, &torn), (1, &still)].map(|(which, fabric)| {
                fabric.begin_at(step);
                clients[which].scan(fabric, &key(step as u16 % KEYS), 50).unwrap()
            });
            prop_assert!(one == other);
        }
    }

    #[test]
    fn scans_without_order_pass_over_nothing_that_stays(
        changes in changes(), seed: u64, most in duration(), limit in 1..120_usize,
    ) {
        let (history, moments) = record(&changes);
        let torn = Torn::new(&history, most, seed);
        let mut client = client(&torn, CacheBudget::Full);
        for begin in 0..moments.len() {
            torn.begin_at(begin);
            let from = key((begin * 31 % usize::from(KEYS)) as u16);
            let scanned = client.scan(&torn, &from, limit).unwrap();
            let moments = &moments[begin..=torn.now()];
            for (key, value) in &scanned.pairs {
                let is_right = |moment: &Moment| match value {
                    Some(value) => moment.has(key, Some(value)),
                    None => true,
                };
                prop_assert!(*key >= from && moments.iter().any(is_right), "{key:?}");
            }
            let keys: Vec<&Vec<u8>> = scanned.pairs.iter().map(|(key, _)| key).collect();
            prop_assert!(keys.is_sorted() && keys.len() <= limit);
            let end = match (&scanned.rest, keys.last()) {
                (Some(rest), _) => Some(rest.clone()),
                (None, Some(last)) if keys.len() == limit => Some((*last).clone()),
                (None, _) => None,
            };
            let is_passed = |key: &Vec<u8>| *key >= from && end.as_ref().is_none_or(|end| key < end);
            for key in moments[0].now.keys().filter(|key| is_passed(key)) {
                let stays = |moment: &Moment| {
                    let next = moment.next.as_ref().unwrap_or(&moment.now);
                    moment.now.contains_key(key) && next.contains_key(key)
                };
                let is_missed = !keys.contains(&key) && moments.iter().all(stays);
                prop_assert!(!is_missed, "{key:?} is passed over");
            }
        }
    }
}
