//! The number of keys of a database: counted when a client asks, and from then on kept with the
//! writes.
//!
//! A plain `SET` writes without a look at what it replaces, so nobody knows how many keys there are
//! until they are counted; a writer that keeps the count looks. So it is kept from the first time
//! that somebody asks, and for [`KEPT`] after the last. Nothing of it is on the disk.
//!
//! Rules: (1) keeping begins under all keys' locks, at the moment that the counting sees; (2) a
//! writer adds to the count under its keys' locks, after a look at what is there; (3) when it is
//! not known whether a write happened, the count is forgotten.

use std::{
    sync::atomic::{AtomicI64, AtomicU8, Ordering},
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};

use crate::encode::entry::decode_head;

/// How long after it was asked for last the count is kept.
const KEPT: Duration = Duration::from_secs(600);

/// Nobody keeps the count.
const OFF: u8 = 0;
/// Writers add to it; what was there before is being counted.
const COUNTING: u8 = 1;
/// It is right.
const KNOWN: u8 = 2;

/// Keys, and those of them with a time of expiry; or a change of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) keys: i64,
    pub(crate) expires: i64,
}

impl Tally {
    /// Adds the entry of a key, if there is one.
    pub(crate) fn add(&mut self, entry: Option<&[u8]>) {
        let (keys, expires) = of_entry(entry);
        self.keys += keys;
        self.expires += expires;
    }

    /// Takes the entry of a key away, if there is one.
    pub(crate) fn subtract(&mut self, entry: Option<&[u8]>) {
        let (keys, expires) = of_entry(entry);
        self.keys -= keys;
        self.expires -= expires;
    }
}

fn of_entry(entry: Option<&[u8]>) -> (i64, i64) {
    let has_end = entry.and_then(decode_head).is_some_and(|(_, expires, _)| expires != 0);
    (entry.is_some().into(), has_end.into())
}

/// The count of one database.
#[derive(Debug)]
pub(crate) struct Count {
    state: AtomicU8,
    keys: AtomicI64,
    expires: AtomicI64,
    /// When it was asked for last. Held by the thread that counts.
    asked: Mutex<Instant>,
}

impl Default for Count {
    fn default() -> Self {
        Self {
            state: AtomicU8::new(OFF),
            keys: AtomicI64::new(0),
            expires: AtomicI64::new(0),
            asked: Mutex::new(Instant::now()),
        }
    }
}

impl Count {
    /// Returns true if a writer, which holds its keys' locks, is to add what it changes.
    #[inline]
    pub(crate) fn is_kept(&self) -> bool {
        self.state.load(Ordering::Relaxed) != OFF
    }

    /// Adds what a writer changed.
    pub(crate) fn change(&self, by: Tally) {
        self.keys.fetch_add(by.keys, Ordering::Relaxed);
        self.expires.fetch_add(by.expires, Ordering::Relaxed);
    }

    /// The count, if it is known.
    pub(crate) fn known(&self) -> Option<Tally> {
        (self.state.load(Ordering::Acquire) == KNOWN).then(|| Tally {
            keys: self.keys.load(Ordering::Relaxed),
            expires: self.expires.load(Ordering::Relaxed),
        })
    }

    /// Keeps the count no longer.
    pub(crate) fn forget(&self) {
        self.state.store(OFF, Ordering::Release);
    }

    /// Says that the database was emptied. The caller holds all keys' locks.
    pub(crate) fn clear(&self) {
        // What is being counted was there before.
        let _ = self.state.compare_exchange(COUNTING, OFF, Ordering::AcqRel, Ordering::Relaxed);
        self.keys.store(0, Ordering::Relaxed);
        self.expires.store(0, Ordering::Relaxed);
    }

    /// Keeps the count no longer if nobody has asked for some time.
    pub(crate) fn lapse(&self) {
        if self.asked.try_lock().is_some_and(|asked| asked.elapsed() > KEPT) {
            self.forget();
        }
    }

    /// Takes the place of the one that counts, and notes that the count was asked for.
    pub(crate) fn ask(&self) -> MutexGuard<'_, Instant> {
        let mut asked = self.asked.lock();
        *asked = Instant::now();
        asked
    }

    /// Begins to count: writers add to it from now on. The caller holds all keys' locks.
    pub(crate) fn begin(&self) {
        self.clear();
        self.state.store(COUNTING, Ordering::Release);
    }

    /// Adds what was there at the beginning, unless the count was forgotten meanwhile. Returns what
    /// is known then.
    pub(crate) fn end(&self, counted: Tally) -> Tally {
        self.change(counted);
        let _ = self.state.compare_exchange(COUNTING, KNOWN, Ordering::AcqRel, Ordering::Relaxed);
        // If it was forgotten this is the count of the beginning.
        self.known().unwrap_or(counted)
    }
}
