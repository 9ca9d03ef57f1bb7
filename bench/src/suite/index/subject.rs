//! What an ordered map must do to be measured.
//!
//! An adapter implements [`Map`] and [`Session`]; the loops of the suite are compiled for each map,
//! so that no call of a timed operation is virtual. [`Kind`] hides the type from the rest.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use anyhow::Result;

use super::perform::{self, Task};
use crate::{
    drive::{Measured, OnTick},
    random::{GOLDEN, mix},
};

/// The value that belongs to a key, so that every answer can be verified without a second map.
#[inline]
#[must_use]
pub fn value_of(key: u64) -> u64 {
    mix(key.wrapping_add(GOLDEN))
}

/// A loaded map, shared by threads.
pub trait Map: Sync + 'static {
    /// A thread's handle.
    type Session<'a>: Session;

    /// A handle for one thread.
    fn session(&self) -> Self::Session<'_>;

    /// What the map says that it takes, in bytes.
    fn memory_bytes(&self) -> Option<usize> {
        None
    }
}

/// A thread's handle.
pub trait Session {
    /// The value of `key`.
    fn get(&mut self, key: u64) -> Option<u64>;

    /// Inserts `key` or replaces its value; whether the key was new.
    fn insert(&mut self, key: u64, value: u64) -> bool;

    /// Removes `key`; whether it was there.
    fn remove(&mut self, key: u64) -> bool;

    /// What this thread has copied so far to change the map's structure, in entries; 0 if the map
    /// does not say.
    fn moved(&self) -> u64 {
        0
    }

    /// Appends to `out` the answer for each of `keys`.
    fn get_many(&mut self, keys: &[u64], out: &mut Vec<Option<u64>>) {
        for &key in keys {
            out.push(self.get(key));
        }
    }

    /// Appends to `out` the first `count` entries from `from` on, in ascending order; fewer only if
    /// there are no more.
    fn scan(&mut self, from: u64, count: usize, out: &mut Vec<(u64, u64)>);
}

/// Something to measure.
pub trait Subject: Sync {
    /// The name in results and on the command line.
    fn name(&self) -> &str;

    /// What a reader needs to know to judge the figures, for the environment line.
    fn options(&self) -> String;

    /// A map with every key of `sorted` and its [`value_of`].
    ///
    /// # Errors
    /// If the map cannot be built.
    fn load(&self, sorted: &[u64]) -> Result<Box<dyn Loaded>>;
}

/// A map whose type is hidden; everything that is timed happens behind one call.
pub trait Loaded: Sync {
    /// Runs a task on the map.
    ///
    /// # Errors
    /// If a worker fails. Wrong answers are counted in the task's tally.
    fn perform(&self, task: &Task<'_>, on_tick: OnTick<'_>) -> Result<Measured>;

    /// Looks up every key of `expected`, which is sorted, and some of `absent`, and scans the map.
    fn verify(&self, expected: &[u64], absent: &[u64], tally: &Tally);

    /// What the map says that it takes, in bytes.
    fn memory_bytes(&self) -> Option<usize>;
}

impl<M: Map> Loaded for M {
    fn perform(&self, task: &Task<'_>, on_tick: OnTick<'_>) -> Result<Measured> {
        perform::perform(self, task, on_tick)
    }

    fn verify(&self, expected: &[u64], absent: &[u64], tally: &Tally) {
        perform::verify(&mut self.session(), expected, absent, tally);
    }

    fn memory_bytes(&self) -> Option<usize> {
        Map::memory_bytes(self)
    }
}

/// A map under a name.
pub struct Kind<M, F: Fn(&[u64]) -> Result<M> + Sync> {
    /// The name in results and on the command line.
    pub name: &'static str,
    /// For the environment line.
    pub options: String,
    /// Builds the map with every key of a sorted list and its [`value_of`].
    pub build: F,
}

impl<M: Map, F: Fn(&[u64]) -> Result<M> + Sync> Subject for Kind<M, F> {
    fn name(&self) -> &str {
        self.name
    }

    fn options(&self) -> String {
        self.options.clone()
    }

    fn load(&self, sorted: &[u64]) -> Result<Box<dyn Loaded>> {
        Ok(Box::new((self.build)(sorted)?))
    }
}

/// How many answers were held against the truth, and how many were not it.
#[derive(Debug, Default)]
pub struct Tally {
    /// Keys that were looked up or scanned over.
    pub checked: AtomicU64,
    /// Keys that are in the map and were not found.
    pub missing: AtomicU64,
    /// Keys that were found with another value than theirs.
    pub wrong: AtomicU64,
    /// Keys that were found and are not in the map, and keys that came twice or out of order.
    pub ghosts: AtomicU64,
    changes: Mutex<Changes>,
}

/// What the writes of a run did besides writing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Changes {
    /// What the thread had copied before the next write.
    seen: u64,
    /// The most entries that one write has copied.
    pub(super) most: u64,
    /// Timed writes of over a millisecond that copied some,
    pub(super) slow_moved: u64,
    /// and those that did not.
    pub(super) slow_other: u64,
}

impl Changes {
    /// A thread's, which has copied so much before.
    pub(super) fn new(seen: u64) -> Self {
        Self { seen, ..Self::default() }
    }

    /// Takes note of a write: what the thread has copied so far, and how long it took if it was
    /// timed.
    #[inline]
    pub(super) fn note(&mut self, moved: u64, ns: Option<u64>) {
        let more = moved - self.seen;
        self.seen = moved;
        self.most = self.most.max(more);
        if ns.is_some_and(|ns| ns > 1_000_000) {
            *(if more > 0 { &mut self.slow_moved } else { &mut self.slow_other }) += 1;
        }
    }

    fn join(&mut self, other: Self) {
        self.most = self.most.max(other.most);
        self.slow_moved += other.slow_moved;
        self.slow_other += other.slow_other;
    }
}

/// One thread's part of a [`Tally`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) checked: u64,
    pub(super) missing: u64,
    pub(super) wrong: u64,
    pub(super) ghosts: u64,
}

impl Counts {
    /// Judges the answer to a lookup of a key that is in the map.
    #[inline]
    pub(super) fn judge(&mut self, key: u64, answer: Option<u64>) {
        self.checked += 1;
        if answer != Some(value_of(key)) {
            self.blame(answer);
        }
    }

    #[cold]
    fn blame(&mut self, answer: Option<u64>) {
        match answer {
            None => self.missing += 1,
            Some(_) => self.wrong += 1,
        }
    }
}

impl Tally {
    pub(super) fn add(&self, counts: Counts) {
        self.checked.fetch_add(counts.checked, Relaxed);
        self.missing.fetch_add(counts.missing, Relaxed);
        self.wrong.fetch_add(counts.wrong, Relaxed);
        self.ghosts.fetch_add(counts.ghosts, Relaxed);
    }

    pub(super) fn add_changes(&self, changes: Changes) {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).join(changes);
    }

    /// What the writes since the last call did.
    pub(super) fn take_changes(&self) -> Changes {
        std::mem::take(&mut *self.changes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Checked, missing, wrong, ghosts.
    #[must_use]
    pub fn read(&self) -> [u64; 4] {
        [&self.checked, &self.missing, &self.wrong, &self.ghosts].map(|count| count.load(Relaxed))
    }
}
