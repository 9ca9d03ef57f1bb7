//! Walks of a tree that changes, against a map.

use std::collections::BTreeMap;

use clap::{Args, FromArgMatches};

use super::{
    super::{
        options::{Data, RemoteOptions},
        subject::{Place, Session, Subject},
    },
    WALK, WALK_CACHED, WALK_WHOLE, Walk,
    tree::Layouts,
};
use crate::random::Rng;

fn options(more: &[&str]) -> RemoteOptions {
    let usual = ["test", "--keys=6000", "--value-size=20"];
    let command = RemoteOptions::augment_args(clap::Command::new("test"));
    let matches = command.get_matches_from(usual.iter().chain(more));
    RemoteOptions::from_arg_matches(&matches).expect("valid options")
}

/// Every key of the set is there with its value or not there, as the map says.
fn check(session: &mut dyn Session, data: &Data, map: &BTreeMap<Vec<u8>, Vec<u8>>) {
    for record in 0..data.set.keys.len() {
        let (key, mut value) = (data.key(record), Vec::new());
        let is_there = session.get(key, &mut value).expect("read");
        assert_eq!(is_there.then_some(&value), map.get(key));
    }
    let pairs: Vec<_> = map.clone().into_iter().collect();
    assert!(session.pairs(&[], usize::MAX).expect("scanned") == pairs);
    let from = &pairs[pairs.len() / 2].0;
    let scanned = session.pairs(&[&from[..], &[0]].concat(), 40).expect("scanned");
    assert!(scanned == pairs[pairs.len() / 2 + 1..][..40]);
}

#[test]
fn walks_find_what_a_map_has_while_nodes_split() {
    for data_name in ["--data=random16", "--data=uniform"] {
        let options = options(&[data_name]);
        let (data, directory) =
            (options.data().expect("keys"), tempfile::tempdir().expect("a directory"));
        let place =
            Place { directory: directory.path(), options: &options, data: &data, server: 0 };
        let _keeper = WALK.start(&place).expect("started");
        let mut map = BTreeMap::new();
        let mut value = Vec::new();
        for record in 0..data.records {
            data.values.fill(data.key(record), 0, &mut value);
            map.insert(data.key(record).to_vec(), value.clone());
        }
        let walks: [&Walk; 3] = [&WALK, &WALK_CACHED, &WALK_WHOLE];
        let mut sessions: Vec<_> =
            walks.iter().map(|walk| walk.connect(&place).expect("connected")).collect();
        for session in &mut sessions {
            check(session.as_mut(), &data, &map);
        }
        let mut rng = Rng::new(1);
        for round in 0..data.set.keys.len() {
            // Keys that are reserved come, and one in four of all others goes or changes.
            let record = rng.below(data.set.keys.len() as u64) as usize;
            let key = data.key(record);
            if round.is_multiple_of(4) && record < data.records {
                sessions[0].remove(key).expect("removed");
                map.remove(key);
            } else {
                data.values.fill(key, round as u32, &mut value);
                sessions[0].insert(key, &value).expect("written");
                map.insert(key.to_vec(), value.clone());
            }
        }
        for session in &mut sessions {
            check(session.as_mut(), &data, &map);
        }
    }
}

#[test]
fn what_is_kept_is_not_read() {
    let options = options(&["--data=uniform"]);
    let (data, directory) =
        (options.data().expect("keys"), tempfile::tempdir().expect("a directory"));
    let place = Place { directory: directory.path(), options: &options, data: &data, server: 0 };
    let keeper = WALK.start(&place).expect("started");
    let reads = |walk: &Walk| {
        let mut session = walk.connect(&place).expect("connected");
        let mut read = || {
            let before = session.counters().reads;
            for record in 0..data.records {
                assert!(session.get(data.key(record), &mut Vec::new()).expect("read"));
            }
            (session.counters().reads - before) as f64 / data.records as f64
        };
        read();
        read()
    };
    // 5,000 keys: some 450 leaves, and inner nodes on three levels.
    assert_eq!((reads(&WALK), reads(&WALK_CACHED), reads(&WALK_WHOLE)), (4.0, 1.0, 1.0));
    assert!(keeper.describe().0.starts_with("tree: 5000 entries"));
}

#[test]
fn keys_that_are_too_long_or_of_another_length_are_refused() {
    assert!(Layouts::new(17, 8).is_none() && Layouts::new(0, 8).is_none());
    let layouts = Layouts::new(16, 8).expect("two words");
    assert!(layouts.key(&[1; 15]).is_none());
}
