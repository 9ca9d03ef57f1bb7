//! One to four hosts and a `BTreeMap`, with random borders and moves.

use std::{
    collections::BTreeMap,
    ops::{Bound, RangeBounds},
};

use proptest::{collection::vec, option, prelude::*};

use super::*;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    Swap(Vec<u8>, bool, Option<Vec<u8>>),
    Batch(Vec<(Vec<u8>, Option<Vec<u8>>)>),
    Get(Vec<u8>),
    MultiGet(Vec<Vec<u8>>),
    Range(Bound<Vec<u8>>, Bound<Vec<u8>>, usize, bool),
    Ends,
    Move(usize, usize),
    /// Another client, whose table is as old as the first.
    Forget,
}

/// Short keys of few letters, so that borders are among them; and long ones.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let letter = prop::sample::select(vec![0u8, b'a', b'b', 0xff]);
    let long = |key: Vec<u8>| [&key[..], &[b'a'; 280]].concat();
    prop_oneof![8 => vec(letter.clone(), 0..4), 1 => vec(letter, 0..2).prop_map(long)]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![8 => vec(any::<u8>(), 0..20), 1 => any::<u8>().prop_map(|byte| vec![byte; 2_000])]
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        Just(Bound::Unbounded),
        key().prop_map(Bound::Included),
        key().prop_map(Bound::Excluded),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let write = (key(), option::of(value()));
    prop_oneof![
        6 => (key(), value()).prop_map(|(key, value)| Step::Insert(key, value)),
        2 => key().prop_map(Step::Remove),
        1 => (key(), any::<bool>(), option::of(value()))
            .prop_map(|(key, is_right, new)| Step::Swap(key, is_right, new)),
        1 => vec(write, 0..4).prop_map(Step::Batch),
        2 => key().prop_map(Step::Get),
        2 => vec(key(), 0..6).prop_map(Step::MultiGet),
        3 => (bound(), bound(), 0usize..20, any::<bool>())
            .prop_map(|(from, to, limit, reverse)| Step::Range(from, to, limit, reverse)),
        1 => Just(Step::Ends),
        3 => any::<(usize, usize)>().prop_map(|(range, to)| Step::Move(range, to)),
        1 => Just(Step::Forget),
    ]
}

/// Does a step, here and there.
fn take(step: &Step, hosts: &mut Hosts, keyspace: &ClusterKeyspace, map: &mut Map) {
    match step {
        Step::Insert(key, value) => {
            keyspace.insert(key, value).unwrap();
            map.insert(key.clone(), value.clone());
        }
        Step::Remove(key) => {
            keyspace.remove(key).unwrap();
            map.remove(key);
        }
        Step::Swap(key, is_right, new) => {
            let expected = map.get(key).cloned().filter(|_| *is_right);
            let swaps = expected.as_ref() == map.get(key);
            let swapped = keyspace.compare_and_swap(key, expected.as_deref(), new.as_deref());
            assert_eq!(swapped.unwrap(), swaps);
            if swaps {
                change(map, key, new.as_ref());
            }
        }
        Step::Batch(writes) => {
            let mut batch = keyspace.batch();
            for (key, value) in writes {
                match value {
                    Some(value) => batch.insert(key, value),
                    None => batch.remove(key),
                }
            }
            let owner = |key: &Vec<u8>| hosts.table.server_of(key);
            let is_one = writes.iter().all(|(key, _)| owner(key) == owner(&writes[0].0));
            let done = batch.commit();
            // What the client knows of borders may be old: then it is told, and asks again.
            if is_one || done.is_ok() {
                writes.iter().for_each(|(key, value)| change(map, key, value.as_ref()));
            }
            match done {
                Ok(()) => assert!(is_one, "a batch over several hosts"),
                Err(Error::InvalidArgument(_)) if !is_one => {}
                // By its old table, keys of one host now were those of several.
                Err(Error::InvalidArgument(_)) => {
                    assert!(keyspace.table().epoch() < hosts.table.epoch());
                    for (key, value) in writes {
                        match value {
                            Some(value) => keyspace.insert(key, value).unwrap(),
                            None => keyspace.remove(key).unwrap(),
                        }
                    }
                }
                Err(error) => panic!("{error}"),
            }
        }
        Step::Get(key) => assert_eq!(keyspace.get(key).unwrap().as_ref(), map.get(key)),
        Step::MultiGet(keys) => {
            let found = keyspace.multi_get(keys).unwrap();
            assert!(found.iter().map(Option::as_ref).eq(keys.iter().map(|key| map.get(key))));
        }
        Step::Range(from, to, limit, reverse) => {
            let bounds = (from.clone(), to.clone());
            let is_in = |(key, _): &(&Vec<u8>, &Vec<u8>)| bounds.contains(*key);
            let mut wanted: Vec<_> = map.iter().filter(is_in).collect();
            let range = keyspace.range(bounds.clone());
            let found: Vec<_> = if *reverse {
                wanted.reverse();
                range.rev().take(*limit).map(|pair| pair.unwrap()).collect()
            } else {
                range.take(*limit).map(|pair| pair.unwrap()).collect()
            };
            let found = found.iter().map(|(key, value)| (key, value));
            assert!(found.eq(wanted.into_iter().take(*limit)), "{bounds:?}");
        }
        Step::Ends => {
            let owned = |pair: (&Vec<u8>, &Vec<u8>)| (pair.0.clone(), pair.1.clone());
            assert_eq!(keyspace.first().unwrap(), map.first_key_value().map(owned));
            assert_eq!(keyspace.last().unwrap(), map.last_key_value().map(owned));
        }
        Step::Move(range, to) => {
            let (range, to) = (range % hosts.owners.len(), to % hosts.hosts.len());
            hosts.move_range(range, to);
        }
        Step::Forget => {}
    }
}

fn change(map: &mut Map, key: &[u8], value: Option<&Vec<u8>>) {
    match value {
        Some(value) => drop(map.insert(key.to_vec(), value.clone())),
        None => drop(map.remove(key)),
    }
}

proptest! {
    #[test]
    fn hosts_together_are_a_map(
        kind in prop::sample::select(kinds().collect::<Vec<_>>()),
        count in 1usize..5,
        borders in prop::collection::btree_set(key(), 0..5),
        owners in vec(0usize..4, 6),
        steps in vec(step(), 1..60),
    ) {
        let lows = std::iter::once(Vec::new()).chain(borders.into_iter().filter(|key| !key.is_empty()));
        let owners = lows.zip(owners).map(|(low, owner)| (low, owner % count));
        let mut hosts = Hosts::start(kind, count, owners.collect());
        let (first, mut map) = (hosts.table.clone(), Map::new());
        let mut keyspace = hosts.keyspace();
        for step in &steps {
            if let Step::Forget = step {
                keyspace = Cluster::new(first.clone()).keyspace(NAME);
            }
            take(step, &mut hosts, &keyspace, &mut map);
        }
        let all = keyspace.iter().map(|pair| pair.unwrap());
        prop_assert!(all.eq(map));
    }
}
