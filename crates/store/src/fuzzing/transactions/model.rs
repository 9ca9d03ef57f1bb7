//! What transactions see and which of them conflict, by lists of writes and of reads.

use std::{collections::BTreeMap, ops::Bound};

/// The place of a keyspace.
pub(super) type Place = usize;

/// A value, and when it expires, in milliseconds since 1970, if it does.
pub(super) type Entry = (Vec<u8>, Option<u64>);

pub(super) type Map = BTreeMap<Vec<u8>, Entry>;

pub(super) type End = Bound<Vec<u8>>;

pub(super) type Ends = (End, End);

/// The place of the keyspace with partitions. A removal from those that are not there is none, so
/// that one of a range there may be a conflict or not.
const PARTED: Place = 2;

/// A write.
#[derive(Clone, Debug)]
pub(super) enum Write {
    Put(Place, Vec<u8>, Entry),
    Remove(Place, Vec<u8>),
    Range(Place, Ends),
    /// The keyspace was cleared; no transaction does that.
    Clear(Place),
}

/// The keyspaces.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables([Map; 3]);

/// How many writes of a transaction there were.
#[derive(Clone, Copy, Debug)]
pub(super) struct Savepoint(usize);

/// How far a range was walked: the last keys that the ends have passed.
#[derive(Debug, Default)]
pub(super) struct Walked {
    pub(super) front: Option<Vec<u8>>,
    pub(super) back: Option<Vec<u8>>,
    pub(super) is_whole: bool,
}

/// What the commit of a transaction may end with.
#[derive(Debug, Default)]
pub(super) struct Conflicts {
    /// True if it must be a conflict.
    pub(super) must: bool,
    /// The keyspaces that one may be in.
    pub(super) places: [bool; 3],
}

/// An open transaction.
#[derive(Debug)]
pub(super) struct Transaction {
    base: Tables,
    now_ms: u64,
    /// How many writes had been committed when it began.
    began: usize,
    is_serializable: bool,
    written: Vec<Write>,
    read: Vec<(Place, Ends)>,
}

/// What a reader at a time sees of a map.
pub(super) fn seen(map: &Map, now_ms: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let living = map.iter().filter(|(_, entry)| lives(entry, now_ms));
    living.map(|(key, (value, _))| (key.clone(), value.clone())).collect()
}

fn lives((_, expires_ms): &Entry, now_ms: u64) -> bool {
    expires_ms.is_none_or(|at_ms| at_ms > now_ms)
}

/// The first key that a range may have.
fn low((from, _): &Ends) -> Vec<u8> {
    match from {
        Bound::Unbounded => Vec::new(),
        Bound::Included(key) => key.clone(),
        Bound::Excluded(key) => [&key[..], &[0]].concat(),
    }
}

/// The first key after a range; `None` if there is none.
fn high((_, to): &Ends) -> Option<Vec<u8>> {
    match to {
        Bound::Unbounded => None,
        Bound::Included(key) => Some([&key[..], &[0]].concat()),
        Bound::Excluded(key) => Some(key.clone()),
    }
}

pub(super) fn contains(ends: &Ends, key: &[u8]) -> bool {
    low(ends)[..] <= *key && high(ends).is_none_or(|high| *key < high[..])
}

/// Returns true if some key may lie in both.
fn meet(a: &Ends, b: &Ends) -> bool {
    let from = low(a).max(low(b));
    [high(a), high(b)].into_iter().flatten().all(|to| from < to)
}

/// The range of one key.
fn only(key: &[u8]) -> Ends {
    (Bound::Included(key.to_vec()), Bound::Included(key.to_vec()))
}

/// The range of the keys that begin with `prefix`, whose last byte is not the last one.
pub(super) fn prefix(prefix: &[u8]) -> Ends {
    let mut end = prefix.to_vec();
    end.last_mut().into_iter().for_each(|last| *last += 1);
    (Bound::Included(prefix.to_vec()), Bound::Excluded(end))
}

impl Write {
    pub(super) fn place(&self) -> Place {
        match self {
            Self::Put(place, ..)
            | Self::Remove(place, _)
            | Self::Range(place, _)
            | Self::Clear(place) => *place,
        }
    }

    /// The keys that it concerns.
    fn ends(&self) -> Ends {
        match self {
            Self::Put(_, key, _) | Self::Remove(_, key) => only(key),
            Self::Range(_, ends) => ends.clone(),
            Self::Clear(_) => (Bound::Unbounded, Bound::Unbounded),
        }
    }
}

impl Tables {
    pub(super) fn of(&self, place: Place) -> &Map {
        &self.0[place]
    }

    pub(super) fn apply(&mut self, write: &Write) {
        apply(&mut self.0[write.place()], write);
    }
}

fn apply(map: &mut Map, write: &Write) {
    match write {
        Write::Put(_, key, entry) => drop(map.insert(key.clone(), entry.clone())),
        Write::Remove(_, key) => drop(map.remove(key)),
        Write::Range(_, ends) => map.retain(|key, _| !contains(ends, key)),
        Write::Clear(_) => map.clear(),
    }
}

impl Transaction {
    pub(super) fn new(base: Tables, now_ms: u64, began: usize, is_serializable: bool) -> Self {
        Self { base, now_ms, began, is_serializable, written: Vec::new(), read: Vec::new() }
    }

    pub(super) fn is_serializable(&self) -> bool {
        self.is_serializable
    }

    pub(super) fn write(&mut self, write: Write) {
        // A range without keys is no write.
        if meet(&write.ends(), &write.ends()) {
            self.written.push(write);
        }
    }

    pub(super) fn into_written(self) -> Vec<Write> {
        self.written
    }

    pub(super) fn savepoint(&self) -> Savepoint {
        Savepoint(self.written.len())
    }

    pub(super) fn rollback_to(&mut self, savepoint: Savepoint) {
        self.written.truncate(savepoint.0);
    }

    /// The keys with their values that the transaction sees.
    pub(super) fn sees(&self, place: Place) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut map = self.base.of(place).clone();
        let own = self.written.iter().filter(|write| write.place() == place);
        own.for_each(|write| apply(&mut map, write));
        seen(&map, self.now_ms)
    }

    /// Reads a key. One that the transaction itself has decided is no read.
    pub(super) fn get(&mut self, place: Place, key: &[u8]) -> Option<Vec<u8>> {
        let is_own = |write: &Write| write.place() == place && contains(&write.ends(), key);
        let own = self.written.iter().rev().find(|write| is_own(write));
        let entry = match own {
            Some(Write::Put(_, _, entry)) => Some(entry),
            Some(_) => None,
            None => {
                self.read.push((place, only(key)));
                self.base.of(place).get(key)
            }
        };
        entry.filter(|entry| lives(entry, self.now_ms)).map(|(value, _)| value.clone())
    }

    /// Records a walk over a range.
    pub(super) fn walked(&mut self, place: Place, ends: Ends, walked: Walked) {
        if !meet(&ends, &ends) {
            // No key lies between the ends.
            return;
        }
        if walked.is_whole {
            return self.read.push((place, ends));
        }
        let (from, to) = ends;
        let front = walked.front.map(|key| (place, (from, Bound::Included(key))));
        let back = walked.back.map(|key| (place, (Bound::Included(key), to)));
        self.read.extend(front.into_iter().chain(back));
    }

    /// What the commit may end with, after these commits.
    pub(super) fn conflicts(&self, committed: &[Write]) -> Conflicts {
        let mut found = Conflicts::default();
        if self.written.is_empty() {
            return found;
        }
        let written = self.written.iter().map(|write| (write.place(), write.ends()));
        let read = self.read.iter().filter(|_| self.is_serializable).cloned();
        let depends: Vec<(Place, Ends)> = written.chain(read).collect();
        for change in &committed[self.began..] {
            let (place, ends) = (change.place(), change.ends());
            let is_all = matches!(change, Write::Clear(_));
            let clashes = |(at, own): &(Place, Ends)| *at == place && (is_all || meet(own, &ends));
            if depends.iter().any(clashes) {
                found.places[place] = true;
                found.must |= place != PARTED || !matches!(change, Write::Range(..));
            }
        }
        found
    }
}
