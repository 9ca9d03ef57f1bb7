//! Histories of a few keys, by clients in several processes, each checked for linearizability: of
//! volatile keyspaces, and of a store of which a region is a copy that is loaded anew now and then.
//! Neighbours of these keys come and go meanwhile.
//!
//! `RHUMB_REMOTE_HISTORIES=n` says how many there are of each preset, `RHUMB_SEED=n` which is the
//! first.

use std::{collections::BTreeMap, thread, time::Duration};

use rhumb_remote::{Client, Host, Keyspace};
use rhumb_testkit::random::Random;

use crate::{
    PRESETS, address_of_child, child,
    history::{Actor, Call, KEYS, Record, act, check, from_env, now, number, pause, value},
    store::Store,
    volatile, ways,
};

/// Histories of each preset unless the environment says otherwise.
const HISTORIES: u64 = 16;
/// Calls of each client in a history.
const CALLS: usize = 60;
/// Clients that write: each makes values that no other does.
const CLIENTS: u64 = 8;
/// More values than a client makes in a history.
const VALUES: u64 = 1_000;

fn key(number: usize) -> [u8; 8] {
    ((number as u64) << 32 | 1 << 16).to_be_bytes()
}

/// A key beside a watched one: few enough that a scan of all is short.
fn neighbour(random: &mut Random) -> [u8; 8] {
    let (of, at, low) = (random.below(KEYS as u64), 1 + random.below(60), random.below(4));
    (of << 32 | at << 20 | low << 14).to_be_bytes()
}

/// A client, and what it has done.
struct Participant {
    client: Client,
    keyspace: Keyspace,
    random: Random,
    record: Record,
    made: u64,
}

impl Participant {
    fn get(found: Option<Vec<u8>>) -> Call {
        Call::Get { found: found.map(|found| number(&found)) }
    }

    /// A get, or a write, of one key.
    fn step(&mut self) {
        let which = self.random.below(KEYS as u64) as usize;
        let (key, kind) = (key(which), self.random.below(16));
        self.made += CLIENTS;
        let (made, bytes) = (self.made, value(self.made));
        let keyspace = self.keyspace.clone();
        // What a swap expects: now and then what is there.
        let guess = if kind < 2 { keyspace.get(key).unwrap() } else { None };
        let called = now();
        let call = match kind {
            0 | 1 => {
                let expected = guess.as_ref().map(|found| number(found));
                let new = if kind == 0 { Some(made) } else { None };
                let to = new.map(|_| &bytes[..]);
                let swapped = keyspace.compare_and_swap(key, guess.as_deref(), to).unwrap();
                Call::Swap { expected, new, swapped }
            }
            2 => {
                keyspace.remove(key).unwrap();
                Call::Set { new: None }
            }
            3..=6 => {
                keyspace.insert(key, &bytes).unwrap();
                Call::Set { new: Some(made) }
            }
            _ => Self::get(keyspace.get(key).unwrap()),
        };
        self.record.note(which, called, call);
    }

    /// A read of all keys.
    fn read_all(&mut self) {
        let (keys, keyspace) = ((0..KEYS).map(key).collect::<Vec<_>>(), &self.keyspace);
        let map = |pairs: Vec<(Vec<u8>, Vec<u8>)>| {
            let map: BTreeMap<Vec<u8>, Vec<u8>> = pairs.into_iter().collect();
            keys.iter().map(|key| map.get(&key[..]).cloned()).collect()
        };
        let called = now();
        let all: Vec<Option<Vec<u8>>> = match self.random.below(5) {
            0 => keyspace.multi_get(&keys).unwrap(),
            1 => keyspace.multi_get_atomic(&keys).unwrap(),
            2 => map(keyspace.iter().map(Result::unwrap).collect()),
            3 => map(keyspace.iter().rev().map(Result::unwrap).collect()),
            _ => map(keyspace.range_atomic(key(0).., 1_000).unwrap()),
        };
        let returned = now();
        for (which, found) in all.into_iter().enumerate() {
            self.record.note_until(which, called, returned, Self::get(found));
        }
    }

    /// A batch over all keys, each of which it sets or removes.
    fn batch(&mut self) {
        let (mut batch, mut new) = (self.client.batch(), [None; KEYS]);
        for (which, new) in new.iter_mut().enumerate() {
            self.made += CLIENTS;
            if self.random.below(4) > 0 {
                batch.insert(&self.keyspace, key(which), value(self.made));
                *new = Some(self.made);
            } else {
                batch.remove(&self.keyspace, key(which));
            }
        }
        let called = now();
        batch.commit().unwrap();
        let returned = now();
        for (which, new) in new.into_iter().enumerate() {
            self.record.note_until(which, called, returned, Call::Set { new });
        }
    }

    /// Inserts neighbours of watched keys, or removes them.
    fn burst(&mut self) {
        let mut batch = self.client.batch();
        let removes = self.random.below(2) == 0;
        for _ in 0..self.random.below(200) {
            let neighbour = neighbour(&mut self.random);
            if removes {
                batch.remove(&self.keyspace, neighbour);
            } else {
                batch.insert(&self.keyspace, neighbour, value(self.random.below(1_000)));
            }
        }
        batch.commit().unwrap();
    }

    fn run(&mut self) {
        for _ in 0..CALLS {
            match self.random.below(24) {
                0 => self.burst(),
                1 => self.batch(),
                2..=4 => self.read_all(),
                5..=8 => pause(&mut self.random),
                _ => self.step(),
            }
        }
    }
}

/// Takes part in the history of a seed, as the client of a number.
fn participate(client: &Client, seed: u64, id: u64) -> Record {
    let keyspace = client.keyspace("k").unwrap();
    let random = Random::new(seed << 8 | id);
    let made = seed * CLIENTS * VALUES + id;
    let client = client.clone();
    let mut participant = Participant { client, keyspace, random, record: Record::new(), made };
    participant.run();
    participant.record
}

#[test]
#[ignore = "started by another test: a client, until its input ends"]
fn child_client() {
    let Some(address) = address_of_child() else { return };
    let client = Client::connect(address).unwrap();
    // Opened once: what it learns of the keyspace stays from one history to the next.
    let _keyspace = client.keyspace("k").unwrap();
    act(|seed| participate(&client, seed / CLIENTS, seed % CLIENTS));
}

#[test]
fn histories_of_clients_are_linearizable() {
    for preset in PRESETS {
        let dir = tempfile::tempdir().unwrap();
        let host = volatile(dir.path(), preset).start().unwrap();
        check_histories(&format!("{preset:?}"), &host, || {});
    }
}

#[test]
fn histories_of_clients_of_a_store_are_linearizable() {
    for preset in PRESETS {
        let dir = tempfile::tempdir().unwrap();
        let (store, host, loader) = Store::share(dir.path(), preset);
        check_histories(&format!("a store, {preset:?}"), &host, || store.reset());
        drop(host);
        loader.join().unwrap();
    }
}

/// Checks histories of clients of a host, which `disturb` is called beside.
fn check_histories(what: &str, host: &Host, disturb: impl Fn() + Sync) {
    let count = from_env("RHUMB_REMOTE_HISTORIES").unwrap_or(HISTORIES);
    let first = from_env("RHUMB_SEED").unwrap_or(0);
    let ways = ways(host);
    let children = [&ways[0], &ways[0], &ways[ways.len() - 1]];
    let mut children =
        children.map(|way| Actor::new(child("histories::child_client", way).spawn().unwrap()));
    let clients = [Client::connect(&ways[0]).unwrap(), Client::connect(&ways[0]).unwrap()];
    let (own, mut checked) = (clients[0].keyspace("k").unwrap(), 0);
    for seed in first..first + count {
        // The reads of the last history have seen what this one begins with.
        let initial: Vec<_> = (0..KEYS).map(|which| own.get(key(which)).unwrap()).collect();
        let initial = std::array::from_fn(|which| initial[which].as_deref().map(number));
        let mut records = thread::scope(|scope| {
            let threads: Vec<_> = (0..)
                .zip(&clients)
                .map(|(id, client)| scope.spawn(move || participate(client, seed, id)))
                .collect();
            for (id, child) in (2..).zip(&mut children) {
                child.begin(seed * CLIENTS + id);
            }
            if seed.is_multiple_of(2) {
                (0..3).for_each(|_| {
                    thread::sleep(Duration::from_millis(3));
                    disturb();
                });
            }
            let mut records: Vec<Record> = children.iter_mut().map(Actor::record).collect();
            records.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
            records
        });
        let mut last = Record::new();
        for which in 0..KEYS {
            let called = now();
            let found = own.get(key(which)).unwrap();
            last.note(which, called, Participant::get(found));
        }
        records.push(last);
        checked += check(&format!("{what}, RHUMB_SEED={seed}"), &records, initial);
    }
    println!("{what}: {count} histories, {checked} operations");
    children.into_iter().for_each(Actor::end);
}
