//! Histories of transactions that are open at the same time over three small keyspaces, with other
//! writes between them. Each step is compared with a plain model (`model.rs` in the directory).
//!
//! A byte, taken modulo [`OPERATIONS`], is an operation. What it needs follows: a byte for each
//! keyspace, key, end of a range, time and transaction, and two for a value.

mod model;

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use self::model::{End, Ends, Place, Tables, Write, contains, seen};
use super::Input;
use crate::{
    db::{Database, Keyspace, Savepoint, Transaction, TransactionOptions},
    error::{Error, Result},
    io::{
        Clock,
        sim::{SimClock, SimFs},
    },
    options::KeyspaceOptions,
    partition::Partitioning,
    slice::Slice,
    table::TableOptions,
};

/// The directory of the database.
const DIR: &str = "/db";

/// Keys of each keyspace: few, so that transactions meet. Each has its first letter in common with
/// one other.
const KEYS: u8 = 12;

/// Transactions that are open at the same time: enough for two that meet and one that is older
/// than both.
const OPEN_MAX: usize = 4;

/// The operations of a history that are done. More take seconds under a sanitizer.
const STEPS_MAX: usize = 1_000;

/// The length of a value that has a file of its own, by the options of these keyspaces.
const LARGE_BYTES: usize = 400;

/// The kinds of operations; those from 22 on repeat others, which should be frequent.
const OPERATIONS: u8 = 32;

/// What the operations from 22 on stand for.
const FREQUENT: [u8; 10] = [0, 1, 1, 13, 15, 16, 17, 18, 18, 18];

/// Runs a history.
///
/// # Panics
///
/// If a transaction does not see what it should, conflicts where it should not, or is committed
/// where it should not be; if the database is another afterwards.
pub fn transactions(data: &[u8]) {
    let (mut input, mut world) = (Input(data), World::new());
    for _ in 0..STEPS_MAX {
        if input.0.is_empty() {
            break;
        }
        let operation = input.u8() % OPERATIONS;
        let frequent = operation.checked_sub(22).map(|at| FREQUENT[usize::from(at)]);
        world.step(frequent.unwrap_or(operation), &mut input);
    }
    world.end();
}

/// A database, the model of it, and the transactions that are open.
struct World {
    fs: SimFs,
    clock: SimClock,
    db: Database,
    keyspaces: [Keyspace; 3],
    now: Tables,
    /// All writes that have been committed, in their order.
    committed: Vec<Write>,
    open: Vec<Modelled>,
}

/// A transaction with its model.
struct Modelled {
    real: Transaction,
    model: model::Transaction,
    savepoints: Vec<(Savepoint, model::Savepoint, usize)>,
}

fn open(fs: &SimFs, clock: &SimClock) -> (Database, [Keyspace; 3]) {
    let builder = Database::builder(DIR)
        .file_system(Arc::new(fs.clone()))
        .clock(Arc::new(clock.clone()))
        .background_threads(0);
    let db = builder.open().expect("a disk without faults");
    let table = TableOptions {
        large_value_bytes: Some(LARGE_BYTES as u32 - 1),
        block_bytes: Some(512),
        ..TableOptions::default()
    };
    let plain = KeyspaceOptions { table, ..KeyspaceOptions::default() };
    let parted =
        KeyspaceOptions { partitions: Partitioning::PrefixLength(1), ..KeyspaceOptions::default() };
    let keyspace = |name, options| db.keyspace(name, options).expect("the options are the same");
    let keyspaces =
        [keyspace("one", plain.clone()), keyspace("two", plain), keyspace("parts", parted)];
    (db, keyspaces)
}

fn at(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}

fn place_of(input: &mut Input<'_>) -> Place {
    // The first one is half of all, so that transactions meet.
    [0, 0, 1, 2][usize::from(input.u8() % 4)]
}

fn key_by(byte: u8) -> Vec<u8> {
    let n = byte % KEYS;
    // Some are prefixes of others.
    [&[b'a' + n % 6][..], &b"x"[..usize::from(n / 6)]].concat()
}

fn key_of(input: &mut Input<'_>) -> Vec<u8> {
    key_by(input.u8())
}

fn end_of(input: &mut Input<'_>) -> End {
    let byte = input.u8();
    match byte % 4 {
        0 => End::Unbounded,
        1 => End::Excluded(key_by(byte / 4)),
        _ => End::Included(key_by(byte / 4)),
    }
}

fn ends_of(input: &mut Input<'_>) -> Ends {
    (end_of(input), end_of(input))
}

fn value_of(input: &mut Input<'_>) -> Vec<u8> {
    let (byte, len) = (input.u8(), input.u8());
    vec![byte; if len > 250 { LARGE_BYTES } else { usize::from(len % 20) }]
}

/// What a walk yielded; the simulated disk has no faults.
fn pair(item: Option<Result<(Slice, Slice)>>) -> Option<(Vec<u8>, Vec<u8>)> {
    let (key, value) = item?.expect("a disk without faults");
    Some((key.to_vec(), value.to_vec()))
}

fn pairs(mut walk: impl Iterator<Item = Result<(Slice, Slice)>>) -> Vec<(Vec<u8>, Vec<u8>)> {
    std::iter::from_fn(|| pair(walk.next())).collect()
}

impl World {
    fn new() -> Self {
        let (fs, clock) = (SimFs::new(1), SimClock::new());
        let (db, keyspaces) = open(&fs, &clock);
        let (now, committed, open) = (Tables::default(), Vec::new(), Vec::new());
        Self { fs, clock, db, keyspaces, now, committed, open }
    }

    fn step(&mut self, operation: u8, input: &mut Input<'_>) {
        match operation {
            0 => self.begin(input.u8() % 2 == 1),
            1 => self.commit(input),
            2 => {
                if let Some(at) = self.one_of(input) {
                    drop(self.open.swap_remove(at));
                    self.check_count();
                }
            }
            3..=6 => self.write(operation - 3, input),
            7 => self.batch(input),
            8 => self.db.flush().expect("a disk without faults"),
            9 => {
                let place = place_of(input);
                self.keyspaces[place].compact().expect("a disk without faults");
            }
            10 => {
                let place = place_of(input);
                self.keyspaces[place].clear().expect("a disk without faults");
                self.take(Write::Clear(place));
            }
            11 => self.clock.advance(Duration::from_millis(u64::from(input.u8()))),
            12 => self.compare(),
            _ => {
                if self.open.is_empty() {
                    self.begin(input.u8() % 2 == 1);
                }
                if operation == 21 && self.open.len() > 1 {
                    return self.refuse_a_savepoint_of_another(input);
                }
                let Some(at) = self.one_of(input) else { return };
                let (one, keyspaces) = (&mut self.open[at], &self.keyspaces);
                match operation {
                    13..=16 => one.write(operation - 13, keyspaces, self.clock.wall_ms(), input),
                    17 => one.get(keyspaces, input),
                    18 => one.walk(keyspaces, input),
                    19 => one.mark(),
                    20 => one.go_back(input),
                    _ => one.compare(keyspaces),
                }
            }
        }
    }

    /// The place of an open transaction; `None` if there is none.
    fn one_of(&self, input: &mut Input<'_>) -> Option<usize> {
        usize::from(input.u8()).checked_rem(self.open.len())
    }

    fn check_count(&self) {
        assert_eq!(self.db.stats().open_transactions, self.open.len() as u64);
    }

    fn begin(&mut self, is_serializable: bool) {
        if self.open.len() == OPEN_MAX {
            return;
        }
        let options = TransactionOptions::default();
        let options = if is_serializable { options.serializable() } else { options };
        let real = self.db.transaction_with(options);
        let (now, now_ms) = (self.now.clone(), self.clock.wall_ms());
        let model = model::Transaction::new(now, now_ms, self.committed.len(), is_serializable);
        self.open.push(Modelled { real, model, savepoints: Vec::new() });
        self.check_count();
    }

    fn commit(&mut self, input: &mut Input<'_>) {
        let Some(at) = self.one_of(input) else { return };
        let mut one = self.open.swap_remove(at);
        if !one.model.is_serializable() {
            // What a serializable one reads may make it conflict.
            one.compare(&self.keyspaces);
        }
        let conflicts = one.model.conflicts(&self.committed);
        match one.real.commit() {
            Ok(()) => {
                assert!(!conflicts.must, "it was committed beside {:?}", self.committed);
                one.model.into_written().into_iter().for_each(|write| self.take(write));
            }
            Err(Error::Conflict { keyspace, .. }) => {
                let place = self.keyspaces.iter().position(|one| one.name() == &*keyspace);
                let place = place.expect("a conflict names a keyspace of its transaction");
                assert!(conflicts.places[place], "a conflict in {keyspace} without reason");
            }
            Err(error) => panic!("{error}"),
        }
        self.check_count();
    }

    /// A write that was committed.
    fn take(&mut self, write: Write) {
        self.now.apply(&write);
        self.committed.push(write);
    }

    /// A write without a transaction.
    fn write(&mut self, kind: u8, input: &mut Input<'_>) {
        let write = write_of(kind, self.clock.wall_ms(), input);
        let keyspace = &self.keyspaces[write.place()];
        let done = match &write {
            Write::Put(_, key, (value, None)) => keyspace.insert(key, value),
            Write::Put(_, key, (value, Some(ms))) => keyspace.insert_until(key, value, at(*ms)),
            Write::Remove(_, key) => keyspace.remove(key),
            Write::Range(_, ends) => keyspace.remove_range(ends.clone()),
            Write::Clear(_) => keyspace.clear(),
        };
        done.expect("a disk without faults");
        self.take(write);
    }

    /// Some writes at once: how many is a byte.
    fn batch(&mut self, input: &mut Input<'_>) {
        let mut batch = self.db.batch();
        let mut writes = Vec::new();
        for _ in 0..input.u8() % 8 {
            let kind = input.u8() % 4;
            let write = write_of(kind, self.clock.wall_ms(), input);
            let keyspace = &self.keyspaces[write.place()];
            match &write {
                Write::Put(_, key, (value, None)) => batch.insert(keyspace, key, value),
                Write::Put(_, key, (value, Some(ms))) => {
                    batch.insert_until(keyspace, key, value, at(*ms));
                }
                Write::Remove(_, key) => batch.remove(keyspace, key),
                Write::Range(_, ends) => batch.remove_range(keyspace, ends.clone()),
                Write::Clear(_) => {}
            }
            writes.push(write);
        }
        batch.commit().expect("a disk without faults");
        writes.into_iter().for_each(|write| self.take(write));
    }

    /// Compares all that is stored.
    fn compare(&self) {
        for (place, keyspace) in self.keyspaces.iter().enumerate() {
            let expected = seen(self.now.of(place), self.clock.wall_ms());
            assert_eq!(pairs(keyspace.iter()), expected);
        }
    }

    /// Transactions know their own savepoints.
    fn refuse_a_savepoint_of_another(&mut self, input: &mut Input<'_>) {
        let Some(at) = self.one_of(input) else { return };
        let other = (at + 1) % self.open.len();
        let savepoint = self.open[other].savepoints.last().map(|(savepoint, ..)| *savepoint);
        let Some(savepoint) = savepoint else { return };
        let refused = self.open[at].real.rollback_to(savepoint);
        assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");
    }

    /// Commits what is open, and opens the database again.
    fn end(mut self) {
        while !self.open.is_empty() {
            self.commit(&mut Input(&[]));
        }
        self.compare();
        drop((self.db, self.keyspaces));
        (self.db, self.keyspaces) = open(&self.fs, &self.clock);
        self.compare();
    }
}

/// A write of one of four kinds.
fn write_of(kind: u8, now_ms: u64, input: &mut Input<'_>) -> Write {
    let place = place_of(input);
    match kind {
        0 => Write::Put(place, key_of(input), (value_of(input), None)),
        1 => {
            let (key, value) = (key_of(input), value_of(input));
            // Some are over already.
            let expires_ms = (now_ms + u64::from(input.u8())).saturating_sub(16);
            Write::Put(place, key, (value, Some(expires_ms)))
        }
        2 => Write::Remove(place, key_of(input)),
        _ => Write::Range(place, ends_of(input)),
    }
}

impl Modelled {
    fn write(&mut self, kind: u8, keyspaces: &[Keyspace; 3], now_ms: u64, input: &mut Input<'_>) {
        let write = write_of(kind, now_ms, input);
        let keyspace = &keyspaces[write.place()];
        let real = &mut self.real;
        let done = match &write {
            Write::Put(_, key, (value, None)) => real.insert(keyspace, key, value.clone()),
            Write::Put(_, key, (value, Some(ms))) => {
                real.insert_until(keyspace, key, value.clone(), at(*ms))
            }
            Write::Remove(_, key) => real.remove(keyspace, key),
            Write::Range(_, ends) => real.remove_range(keyspace, ends.clone()),
            Write::Clear(_) => Ok(()),
        };
        done.expect("there is room for it");
        self.model.write(write);
    }

    fn get(&mut self, keyspaces: &[Keyspace; 3], input: &mut Input<'_>) {
        let (place, key) = (place_of(input), key_of(input));
        let expected = self.model.get(place, &key);
        let found = self.real.get(&keyspaces[place], &key).expect("a disk without faults");
        assert_eq!(found.as_deref(), expected.as_deref());
        let is_there = self.real.contains_key(&keyspaces[place], &key);
        assert_eq!(is_there.expect("a disk without faults"), expected.is_some());
    }

    /// Walks a range from both ends. Each bit of a byte is an end, and the next byte the steps.
    fn walk(&mut self, keyspaces: &[Keyspace; 3], input: &mut Input<'_>) {
        let (place, is_prefix) = (place_of(input), input.u8().is_multiple_of(4));
        let (ends, prefix) = (ends_of(input), key_of(input));
        let (directions, steps) = (input.u8(), input.u8() % (2 * KEYS));
        let keyspace = &keyspaces[place];
        let (walk, ends) = if is_prefix {
            (self.real.prefix(keyspace, &prefix), model::prefix(&prefix))
        } else {
            (self.real.range(keyspace, ends.clone()), ends)
        };
        let mut walk = walk.expect("the keyspace is of the same database");
        let inside = self.model.sees(place);
        let mut inside = inside.into_iter().filter(|(key, _)| contains(&ends, key));
        let mut walked = model::Walked::default();
        for step in 0..steps {
            let is_front = directions >> (step % 8) & 1 == 0;
            let (real, expected) = match is_front {
                true => (pair(walk.next()), inside.next()),
                false => (pair(walk.next_back()), inside.next_back()),
            };
            assert_eq!(real, expected);
            let Some((key, _)) = expected else {
                walked.is_whole = true;
                break;
            };
            *if is_front { &mut walked.front } else { &mut walked.back } = Some(key);
        }
        drop(walk);
        self.model.walked(place, ends, walked);
    }

    fn mark(&mut self) {
        let savepoint = self.real.savepoint();
        self.savepoints.push((savepoint, self.model.savepoint(), self.real.bytes()));
    }

    fn go_back(&mut self, input: &mut Input<'_>) {
        let Some(at) = usize::from(input.u8()).checked_rem(self.savepoints.len()) else { return };
        self.savepoints.truncate(at + 1);
        let (savepoint, model, bytes) = self.savepoints[at];
        self.real.rollback_to(savepoint).expect("it was not taken back");
        self.model.rollback_to(model);
        if !self.model.is_serializable() {
            assert_eq!(self.real.bytes(), bytes, "memory of writes that were taken back");
        }
    }

    /// Compares all that the transaction sees.
    fn compare(&mut self, keyspaces: &[Keyspace; 3]) {
        for (place, keyspace) in keyspaces.iter().enumerate() {
            let all = self.real.iter(keyspace).expect("the keyspace is of the same database");
            assert_eq!(pairs(all), self.model.sees(place));
            let walked = model::Walked { is_whole: true, ..model::Walked::default() };
            self.model.walked(place, (End::Unbounded, End::Unbounded), walked);
        }
    }
}
