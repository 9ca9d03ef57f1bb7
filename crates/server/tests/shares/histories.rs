//! Histories of a few keys that Redis clients and readers in processes of their own work on at the
//! same time, each checked for linearizability. Neighbours of these keys come and go meanwhile, and
//! now and then the database is emptied, so that the region is loaded anew.
//!
//! `RHUMB_REMOTE_HISTORIES=n` says how many there are of each preset, `RHUMB_SEED=n` which is the
//! first.

use std::{
    env,
    process::{Command, Stdio},
    thread,
};

use rhumb_remote::{Client as Remote, Strings};
use rhumb_testkit::random::Random;

use super::{PRESETS, of, start, wait_until_live};
use crate::{
    common::{Client, Value},
    history::{Actor, Call, KEYS, Record, act, check, from_env, now, number, pause, value},
};

/// Histories unless the environment says otherwise.
const HISTORIES: u64 = 24;
/// Calls of each Redis client in a history.
const COMMANDS: usize = 40;
/// Calls of each reader.
const READS: usize = 120;
/// Redis clients.
const CLIENTS: u64 = 3;
/// More values than a client makes in a history.
const VALUES: u64 = 1_000;
/// Says to a reader at which socket its host is.
const SOCKET: &str = "RHUMB_SHARE_SOCKET";

fn key(number: usize) -> String {
    format!("key:{number:02}:50")
}

/// A key beside a watched one.
fn neighbour(random: &mut Random) -> String {
    let of = random.below(KEYS as u64);
    format!("key:{of:02}:{:02}", random.below(49) + 50 * random.below(2) + 1)
}

fn read(strings: &Strings, random: &mut Random, record: &mut Record) {
    let which = random.below(KEYS as u64) as usize;
    let found = |string: Option<Vec<u8>>| Call::Get { found: string.map(|found| number(&found)) };
    let keys: Vec<String> = (0..KEYS).map(key).collect();
    let called = now();
    let all: Vec<Option<Vec<u8>>> = match random.below(8) {
        0 => strings.multi_get(&keys).unwrap(),
        1 | 2 => {
            let pairs = strings.prefix("key:").map(|pair| pair.unwrap());
            let pairs: std::collections::BTreeMap<_, _> = pairs.collect();
            keys.iter().map(|key| pairs.get(key.as_bytes()).cloned()).collect()
        }
        _ => return record.note(which, called, found(strings.get(key(which)).unwrap())),
    };
    let returned = now();
    for (key, string) in all.into_iter().enumerate() {
        record.note_until(key, called, returned, found(string));
    }
}

#[test]
#[ignore = "started by another test: a reader, until its input ends"]
fn child_reader() {
    let Some(socket) = env::var_os(SOCKET) else { return };
    let strings = Remote::connect(socket).unwrap().strings(0).unwrap();
    act(|seed| {
        let (mut random, mut record) = (Random::new(seed), Record::new());
        for _ in 0..READS {
            if random.below(3) > 0 {
                pause(&mut random);
            }
            read(&strings, &mut random, &mut record);
        }
        record
    });
}

/// A Redis client, and what it has done.
struct Writer<'a> {
    client: &'a mut Client,
    random: Random,
    record: Record,
    /// How many values it has made; the lowest digits are its own number.
    made: u64,
}

impl Writer<'_> {
    fn found(reply: &Value) -> Option<u64> {
        match reply {
            Value::Null => None,
            Value::Bulk(found) => Some(number(found)),
            other => panic!("{other:?}"),
        }
    }

    fn command(&mut self, words: &[&[u8]]) -> Value {
        self.client.call_bytes(words)
    }

    /// One command on a watched key.
    fn step(&mut self) {
        let which = self.random.below(KEYS as u64) as usize;
        let (key, kind) = (key(which), self.random.below(9));
        let key = key.as_bytes();
        self.made += CLIENTS;
        let (new, bytes) = (self.made, value(self.made));
        let called = now();
        let call = match kind {
            0..=2 => {
                assert_eq!(self.command(&[b"SET", key, &bytes]), Value::ok());
                Call::Set { new: Some(new) }
            }
            3 => {
                let old = Self::found(&self.command(&[b"SET", key, &bytes, b"GET"]));
                Call::Exchange { new: Some(new), old }
            }
            4 => Call::Exchange { new: None, old: Self::found(&self.command(&[b"GETDEL", key])) },
            5 => {
                self.command(&[b"DEL", key]);
                Call::Set { new: None }
            }
            6 => match self.command(&[b"SET", key, &bytes, b"NX"]) {
                Value::Null => Call::Swap { expected: None, new: Some(new), swapped: false },
                _ => Call::Swap { expected: None, new: Some(new), swapped: true },
            },
            _ => Call::Get { found: Self::found(&self.command(&[b"GET", key])) },
        };
        self.record.note(which, called, call);
    }

    /// Sets all watched keys at once.
    fn set_all(&mut self) {
        let mut command = vec![b"MSET".to_vec()];
        self.made += CLIENTS;
        for which in 0..KEYS {
            command.extend([key(which).into_bytes(), value(self.made)]);
        }
        let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        let called = now();
        assert_eq!(self.command(&words), Value::ok());
        self.note_all(called, Some(self.made));
    }

    fn note_all(&mut self, called: u64, new: Option<u64>) {
        let returned = now();
        for which in 0..KEYS {
            self.record.note_until(which, called, returned, Call::Set { new });
        }
    }

    /// Inserts neighbours of watched keys, or removes them.
    fn burst(&mut self) {
        let removes = self.random.below(2) == 0;
        let mut command = vec![if removes { b"DEL".to_vec() } else { b"MSET".to_vec() }];
        for _ in 0..4 + self.random.below(60) {
            command.push(neighbour(&mut self.random).into_bytes());
            if !removes {
                command.push(value(self.random.below(1_000)));
            }
        }
        let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        self.command(&words);
    }

    fn run(mut self, empties: bool) -> Record {
        for _ in 0..COMMANDS {
            match self.random.below(24) {
                0 if empties => {
                    let called = now();
                    assert_eq!(self.client.run("FLUSHDB"), Value::ok());
                    self.note_all(called, None);
                }
                0..=2 => self.burst(),
                3 => self.set_all(),
                4 => pause(&mut self.random),
                _ => self.step(),
            }
        }
        self.record
    }
}

#[test]
fn histories_of_redis_clients_and_readers_are_linearizable() {
    PRESETS.into_iter().for_each(check_histories);
}

fn check_histories(preset: &str) {
    let count = from_env("RHUMB_REMOTE_HISTORIES").unwrap_or(HISTORIES);
    let first = from_env("RHUMB_SEED").unwrap_or(0);
    let dir = tempfile::tempdir().unwrap();
    let (server, mut client, remote) = start(&dir, &[&of("db0", preset)]);
    let socket = super::config(&dir).share_socket();
    let mut readers = [0, 1].map(|_| {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["histories::child_reader", "--exact", "--ignored", "--nocapture"]);
        command.env(SOCKET, &socket).stdin(Stdio::piped()).stdout(Stdio::piped());
        Actor::new(command.spawn().unwrap())
    });
    let mut clients: Vec<Client> =
        (0..CLIENTS).map(|_| Client::connect(server.address())).collect();
    let strings = remote.strings(0).unwrap();
    let mut checked = 0;
    for seed in first..first + count {
        // What the last history left is not known to this one.
        client.run("FLUSHDB");
        if seed % 3 > 0 {
            wait_until_live(&server);
        }
        let mut records = thread::scope(|scope| {
            let writers: Vec<_> = (0..CLIENTS)
                .zip(&mut clients)
                .map(|(id, client)| {
                    let random = Random::new(seed << 8 | id);
                    let made = seed * CLIENTS * VALUES + id;
                    let writer = Writer { client, random, record: Record::new(), made };
                    scope.spawn(move || writer.run(seed % 4 == 1))
                })
                .collect();
            (0..).zip(&mut readers).for_each(|(id, reader)| reader.begin(seed << 8 | 0x80 | id));
            let mut records: Vec<Record> = readers.iter_mut().map(Actor::record).collect();
            records.extend(writers.into_iter().map(|writer| writer.join().unwrap()));
            records
        });
        // What is there in the end, by both ways.
        for _ in 0..2 {
            let mut last = Record::new();
            for which in 0..KEYS {
                let called = now();
                let found = strings.get(key(which)).unwrap().map(|found| number(&found));
                last.note(which, called, Call::Get { found });
                let called = now();
                let found = Writer::found(&client.call(&["GET", &key(which)]));
                last.note(which, called, Call::Get { found });
            }
            records.push(last);
        }
        checked += check(&format!("{preset}, RHUMB_SEED={seed}"), &records, [None; KEYS]);
    }
    println!("{preset}: {count} histories, {checked} operations");
    readers.into_iter().for_each(Actor::end);
}
