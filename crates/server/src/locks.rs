//! Locks of keys: what makes a command that reads and then writes one step for everyone else.
//!
//! A fixed number of stripes; a key's stripe is given by its hash, whatever its database, so that
//! swapping databases changes nothing here. Rules: (1) a task takes its locks in one call, (2) in
//! ascending order of stripes, (3) holds them over no `await`, (4) takes no others meanwhile, and
//! (5) calls `Databases::settle` before it reads: a `SET` may have been submitted under these locks
//! and be waiting for its commit without them.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use xxhash_rust::xxh3::xxh3_64;

/// How many stripes. Two unrelated writers meet in one with this chance, and taking all of them
/// costs some ten microseconds.
const STRIPES: usize = 1024;

/// All stripes.
#[derive(Debug)]
pub(crate) struct Locks {
    stripes: Box<[RwLock<()>]>,
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

impl Default for Locks {
    fn default() -> Self {
        Self { stripes: (0..STRIPES).map(|_| RwLock::default()).collect() }
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
        Held::Shared(self.stripes[stripe_of(key)].read())
    }

    /// Locks one key against everyone.
    pub(crate) fn exclusive(&self, key: &[u8]) -> Held<'_> {
        Held::Exclusive(self.stripes[stripe_of(key)].write())
    }

    /// Locks many keys against writers.
    pub(crate) fn many_shared<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Held<'_> {
        let stripes = stripes_of(keys);
        Held::ManyShared(stripes.into_iter().map(|at| self.stripes[at].read()).collect())
    }

    /// Locks many keys against everyone.
    pub(crate) fn many_exclusive<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Held<'_> {
        let stripes = stripes_of(keys);
        Held::ManyExclusive(stripes.into_iter().map(|at| self.stripes[at].write()).collect())
    }

    /// Locks every key against everyone.
    pub(crate) fn everything(&self) -> Held<'_> {
        Held::ManyExclusive(self.stripes.iter().map(RwLock::write).collect())
    }
}
