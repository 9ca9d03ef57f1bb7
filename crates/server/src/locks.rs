//! Locks of keys: what makes a command that reads and then writes one step for everyone else.
//!
//! A fixed number of stripes; a key's stripe is given by its hash, whatever its database, so that
//! swapping databases changes nothing here. Rules: (1) a task takes its locks in one call, (2) in
//! ascending order of stripes, (3) holds them over no `await`, (4) takes no others meanwhile, and
//! (5) calls `Databases::commit_submitted` before it reads: a `SET` may have been submitted under
//! these locks and be waiting for its commit without them. A commit group holds locks for longer
//! and takes more meanwhile, but waits for none while it has some. While a worker waits for a lock,
//! another thread serves its other clients.

use std::{sync::Arc, time::Duration};

use parking_lot::{ArcRwLockWriteGuard, RawRwLock, RwLock, RwLockReadGuard, RwLockWriteGuard};
use xxhash_rust::xxh3::xxh3_64;

use crate::effort::beside_others;

/// How many stripes. Two unrelated writers meet in one with this chance, and taking all of them
/// costs some ten microseconds.
const STRIPES: usize = 1024;

/// How long a worker waits for a lock before another thread takes over its other clients: a command
/// that may take long can hold it for seconds. Longer than nearly all commands that a worker runs
/// itself, and a small part of the millisecond that clients are to wait for others at most.
pub(crate) const BRIEF: Duration = Duration::from_micros(200);

/// All stripes.
#[derive(Debug)]
pub(crate) struct Locks {
    stripes: Box<[Arc<RwLock<()>>]>,
}

/// Stripes that a commit group has locked against everyone.
#[derive(Debug)]
pub(crate) struct Gathered {
    guards: Vec<ArcRwLockWriteGuard<RawRwLock, ()>>,
    /// One bit for each stripe.
    has: [u64; STRIPES / 64],
}

impl Default for Gathered {
    fn default() -> Self {
        Self { guards: Vec::new(), has: [0; STRIPES / 64] }
    }
}

/// Locks that are held until this is dropped.
#[expect(dead_code, reason = "guards are held and not looked at")]
pub(crate) enum Held<'a> {
    Nothing,
    Shared(RwLockReadGuard<'a, ()>),
    Exclusive(RwLockWriteGuard<'a, ()>),
    ManyShared(Vec<RwLockReadGuard<'a, ()>>),
    ManyExclusive(Vec<RwLockWriteGuard<'a, ()>>),
}

/// Locks a stripe against writers.
fn read(stripe: &RwLock<()>) -> RwLockReadGuard<'_, ()> {
    let held = stripe.try_read().or_else(|| stripe.try_read_for(BRIEF));
    held.unwrap_or_else(|| beside_others(|| stripe.read()))
}

/// Locks a stripe against everyone.
fn write(stripe: &RwLock<()>) -> RwLockWriteGuard<'_, ()> {
    let held = stripe.try_write().or_else(|| stripe.try_write_for(BRIEF));
    held.unwrap_or_else(|| beside_others(|| stripe.write()))
}

impl Default for Locks {
    fn default() -> Self {
        Self { stripes: (0..STRIPES).map(|_| Arc::default()).collect() }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "far fewer stripes")]
fn stripe_of(key: &[u8]) -> usize {
    xxh3_64(key) as usize % STRIPES
}

fn stripes_of<'k>(keys: impl Iterator<Item = &'k [u8]>) -> Vec<usize> {
    let mut stripes: Vec<usize> = keys.map(stripe_of).collect();
    stripes.sort_unstable();
    stripes.dedup();
    stripes
}

impl Locks {
    /// Locks one key against writers.
    pub(crate) fn shared(&self, key: &[u8]) -> Held<'_> {
        Held::Shared(read(&self.stripes[stripe_of(key)]))
    }

    /// As [`Locks::shared`], if that is possible without waiting.
    pub(crate) fn try_shared(&self, key: &[u8]) -> Option<Held<'_>> {
        self.stripes[stripe_of(key)].try_read().map(Held::Shared)
    }

    /// Locks one key against everyone.
    pub(crate) fn exclusive(&self, key: &[u8]) -> Held<'_> {
        Held::Exclusive(write(&self.stripes[stripe_of(key)]))
    }

    /// Locks many keys against writers.
    pub(crate) fn many_shared<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Held<'_> {
        let stripes = stripes_of(keys);
        Held::ManyShared(stripes.into_iter().map(|at| read(&self.stripes[at])).collect())
    }

    /// Locks many keys against everyone.
    pub(crate) fn many_exclusive<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Held<'_> {
        let stripes = stripes_of(keys);
        Held::ManyExclusive(stripes.into_iter().map(|at| write(&self.stripes[at])).collect())
    }

    /// Adds the locks of some keys, against everyone, to those of a commit group. Waits for them
    /// briefly if the group has none yet; returns true if all could be had.
    pub(crate) fn gather<'k>(
        &self,
        held: &mut Gathered,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> bool {
        let may_wait = held.guards.is_empty();
        let mut add = |at: usize| {
            let (word, bit) = (at / 64, 1 << (at % 64));
            if held.has[word] & bit != 0 {
                return true;
            }
            let stripe = &self.stripes[at];
            let guard = match stripe.try_write_arc() {
                None if may_wait => stripe.try_write_arc_for(BRIEF),
                guard => guard,
            };
            let Some(guard) = guard else { return false };
            held.guards.push(guard);
            held.has[word] |= bit;
            true
        };
        let mut keys = keys.peekable();
        match (keys.next(), keys.peek()) {
            (None, _) => true,
            (Some(key), None) => add(stripe_of(key)),
            (Some(key), Some(_)) => {
                stripes_of(std::iter::once(key).chain(keys)).into_iter().all(add)
            }
        }
    }

    /// Locks every key against everyone.
    pub(crate) fn everything(&self) -> Held<'_> {
        Held::ManyExclusive(self.stripes.iter().map(|stripe| write(stripe)).collect())
    }
}
