//! Choosing and checking, against a map that is sound or not.

use std::collections::BTreeMap;

use clap::{Args, FromArgMatches};

use super::{
    batch::Chooser,
    options::{Data, RemoteOptions},
    subject::{OnPair, OnValue, Session, load},
    workload::{self, Workload},
};
use crate::random::Rng;
use anyhow::Result;

/// What a map does wrong.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// It forgets a key.
    Loses,
    /// It keeps the old value.
    IsOld,
    /// It returns another key's value.
    Mixes,
}

struct MapSession {
    map: BTreeMap<Vec<u8>, Vec<u8>>,
    fault: Option<Fault>,
    written: u64,
}

impl Session for MapSession {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.map.get(key);
        if let Some(found) = found {
            value.extend_from_slice(found);
        }
        Ok(found.is_some())
    }

    fn multi_get(&mut self, keys: &[&[u8]], on_value: OnValue<'_>) -> Result<()> {
        for (index, key) in keys.iter().enumerate() {
            on_value(index, self.map.get(*key).map(Vec::as_slice));
        }
        Ok(())
    }

    fn scan(&mut self, from: &[u8], limit: usize, on_pair: OnPair<'_>) -> Result<()> {
        let pairs = self.map.range(from.to_vec()..).take(limit);
        pairs.for_each(|(key, value)| on_pair(key, value));
        Ok(())
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.written += 1;
        let fails = self.written > 3_000 && self.written.is_multiple_of(10);
        match self.fault.filter(|_| fails) {
            None => {
                self.map.insert(key.to_vec(), value.to_vec());
            }
            Some(Fault::Loses) => {
                self.map.remove(key);
            }
            Some(Fault::IsOld) => {}
            Some(Fault::Mixes) => {
                let (_, other) = self.map.first_key_value().expect("some");
                self.map.insert(key.to_vec(), other.clone());
            }
        }
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.map.remove(key);
        Ok(())
    }
}

fn options(more: &[&str]) -> RemoteOptions {
    let usual = ["test", "--keys=3000", "--value-size=20"];
    let command = RemoteOptions::augment_args(clap::Command::new("test"));
    let matches = command.get_matches_from(usual.iter().chain(more));
    RemoteOptions::from_arg_matches(&matches).expect("valid options")
}

fn loaded(data: &Data, fault: Option<Fault>) -> MapSession {
    let mut session = MapSession { map: BTreeMap::new(), fault, written: 0 };
    load(&mut session, data).expect("loaded");
    session
}

/// All workloads by two clients in turns on one map; returns checked answers and faults.
fn perform(fault: Option<Fault>) -> (u64, u64) {
    let options = options(&[]);
    let data = options.data().expect("keys");
    let mut session = loaded(&data, fault);
    let mut rng = Rng::new(7);
    let mut clients: Vec<_> = (0..2).map(|client| Chooser::new(&data, client, 2)).collect();
    for workload in Workload::ALL {
        for chooser in &mut clients {
            for _ in 0..20 {
                chooser.choose(workload, workload.usual_distribution(), &mut rng);
                let (batch, answers) = chooser.batch();
                session.perform(batch, answers).expect("sound");
                chooser.check();
            }
        }
        for chooser in &mut clients {
            for key in chooser.take_inserted() {
                session.remove(key).expect("sound");
            }
        }
    }
    for chooser in &mut clients {
        chooser.check_all(|from| session.pairs(from, 70)).expect("sound");
    }
    let sum = |of: fn(&super::batch::Tally) -> u64| clients.iter().map(|c| of(&c.tally)).sum();
    (sum(|tally| tally.checked), sum(super::batch::Tally::faults))
}

#[test]
fn a_sound_map_passes_and_each_fault_is_found() {
    let (checked, faults) = perform(None);
    assert!(checked > 30_000 && faults == 0, "{faults} of {checked}");
    for fault in [Fault::Loses, Fault::IsOld, Fault::Mixes] {
        assert!(perform(Some(fault)).1 > 0);
    }
}

#[test]
fn a_key_that_is_nobodys_and_one_that_is_lost_are_found_at_the_end() {
    let options = options(&[]);
    let data = options.data().expect("keys");
    let mut session = loaded(&data, None);
    let mut chooser = Chooser::new(&data, 0, 1);
    session.map.remove(data.key(17));
    let mut value = Vec::new();
    let reserved = data.key(data.records);
    data.values.fill(reserved, 0, &mut value);
    session.map.insert(reserved.to_vec(), value);
    chooser.check_all(|from| session.pairs(from, 100)).expect("sound");
    assert_eq!((chooser.tally.missing, chooser.tally.wrong), (1, 1));
}

#[test]
fn what_cannot_be_measured_is_refused() {
    options(&[]).validate().expect("usual");
    for (args, what) in [
        (&["--clients=0"][..], "--clients must be from 1"),
        (&["--threads=2"], "--clients says how many"),
        (&["--servers=9"], "--servers must be from 1 to 8"),
        (&["--value-size=1"], "needs 8 bytes"),
        (&["--keys=3"], "--keys must be at least 100"),
    ] {
        let args: Vec<&str> = args.to_vec();
        let usual = ["test"];
        let command = RemoteOptions::augment_args(clap::Command::new("test"));
        let matches = command.get_matches_from(usual.iter().chain(&args));
        let refused = RemoteOptions::from_arg_matches(&matches).expect("parsed").validate();
        let refused = refused.expect_err("refused").to_string();
        assert!(refused.contains(what), "{refused}");
    }
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(workload::choose(&[]).expect("all"), Workload::ALL);
    let chosen = workload::choose(&names(&["insert", "GET", "get"])).expect("known");
    assert_eq!(chosen, [Workload::Get, Workload::Insert]);
    assert!(
        workload::choose(&names(&["g"])).expect_err("unknown").to_string().contains("multi_get")
    );
}
