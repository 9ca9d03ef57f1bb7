//! Taking the first or the last entry out of a keyspace, for queues, stacks and the like.
//!
//! Concurrent pops are ordered by a lock that is held while the entry is looked for, not while it
//! is removed: its key is claimed meanwhile, and the other pops skip it. So their removals are
//! committed, and synced, together.

use std::collections::BTreeSet;

use super::keyspace::{Keyspace, KeyspaceInner};
use crate::{error::Result, iter::Iter, slice::Slice};

/// The keys that are being taken out of a keyspace.
pub(crate) type Claims = BTreeSet<Slice>;

/// A claim on a key, held until its removal is visible or has failed.
struct Claim<'k> {
    inner: &'k KeyspaceInner,
    key: Slice,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.inner.claims.lock().remove(&self.key);
    }
}

impl Keyspace {
    /// Takes out the smallest key with its value; `None` if there is none.
    ///
    /// Of concurrent calls, of this and of [`Keyspace::pop_last`], no two return the same entry,
    /// and the removal is as durable as other writes. The calls are atomic only with respect to
    /// each other: if another call sets a value for the same key meanwhile, it may be removed
    /// unseen, so reinsert an entry under another key. If a queue's keys ascend, for example by a
    /// counter in big-endian bytes, this is first in, first out; with a time before the counter, it
    /// is a queue of timed entries.
    ///
    /// Costs one search for the first key, O(log n), and one write, however many entries were taken
    /// out before.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = rhumb::Database::builder(dir.path().join("db")).open()?;
    /// let jobs = db.keyspace("jobs", rhumb::KeyspaceOptions::default())?;
    /// for (number, job) in ["wash", "rinse", "spin"].iter().enumerate() {
    ///     jobs.insert((number as u64).to_be_bytes(), job)?;
    /// }
    /// let (_number, job) = jobs.pop_first()?.expect("three jobs are there");
    /// assert_eq!(&*job, b"wash");
    /// let (_number, job) = jobs.pop_last()?.expect("two jobs are there");
    /// assert_eq!(&*job, b"spin");
    /// # Ok::<(), rhumb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`] and [`Keyspace::remove`]. After an error of the latter the entry is
    /// still there, except that after a failed sync it may be gone once the database is reopened.
    pub fn pop_first(&self) -> Result<Option<(Slice, Slice)>> {
        self.pop(Iter::next)
    }

    /// Takes out the largest key with its value; `None` if there is none. Otherwise like
    /// [`Keyspace::pop_first`]: with ascending keys, last in, first out.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::pop_first`].
    pub fn pop_last(&self) -> Result<Option<(Slice, Slice)>> {
        self.pop(Iter::next_back)
    }

    fn pop(
        &self,
        mut next: impl FnMut(&mut Iter) -> Option<Result<(Slice, Slice)>>,
    ) -> Result<Option<(Slice, Slice)>> {
        self.core().shared.check_takes_writes()?;
        let (claim, value) = {
            let mut claims = self.inner.claims.lock();
            // Made under the lock: a pop that has released its claim on a key has removed the key
            // by now.
            let mut entries = self.iter();
            let (key, value) = loop {
                match next(&mut entries).transpose()? {
                    None => return Ok(None),
                    Some((key, _)) if claims.contains(&key) => {}
                    Some(entry) => break entry,
                }
            };
            claims.insert(key.clone());
            (Claim { inner: &self.inner, key }, value)
        };
        self.remove(&*claim.key)?;
        Ok(Some((claim.key.clone(), value)))
    }
}
