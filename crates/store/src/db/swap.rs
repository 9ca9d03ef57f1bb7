//! Writes that happen only if a key has an expected value.

use rhumb_sync::primitive::Arc;

use super::{
    core::Core,
    keyspace::{Keyspace, KeyspaceInner},
    writer::Pending,
};
use crate::{
    error::Result,
    expiry::Stamp,
    log::batch::Encoded,
    types::{Kind, TreeId},
};

impl Keyspace {
    /// Sets the value of `key` to `new`, or removes it if `new` is `None`, provided that its value
    /// is now `expected`, or that it is absent if `expected` is `None`. Returns false otherwise.
    /// Atomic with respect to all other writes.
    ///
    /// Costs a read of the key and one commit of its own: it is not grouped with other writes. The
    /// key's value is read again while writers wait, usually from memory.
    ///
    /// ```
    /// # fn main() -> rhumb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = rhumb::Database::builder(dir.path().join("db")).open()?;
    /// let jobs = db.keyspace("jobs", rhumb::KeyspaceOptions::default())?;
    /// assert!(jobs.compare_and_swap("job 7", None, Some(b"worker 1"))?);
    /// assert!(!jobs.compare_and_swap("job 7", None, Some(b"worker 2"))?);
    /// assert!(jobs.compare_and_swap("job 7", Some(b"worker 1"), None)?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`] and [`Keyspace::insert`]. After an error nothing was changed, except
    /// that after a failed sync `new` may be there once the database is reopened.
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        let key = key.as_ref();
        self.core().shared.check_takes_writes()?;
        let has_expected = || Ok(self.get(key)?.as_deref() == expected);
        loop {
            if !has_expected()? {
                return Ok(false);
            }
            let tree = self.tree_to_write(key)?;
            let arena = &self.core().shared.memory.records;
            let record = match new {
                Some(new) => match self.end_of_life() {
                    None => Encoded::of(arena, tree, Kind::Value, key, &[new])?,
                    Some(at_ms) => {
                        let stamp = Stamp::new(at_ms).encode();
                        Encoded::of(arena, tree, Kind::Expiring, key, &[&stamp, new])?
                    }
                },
                None => Encoded::of(arena, tree, Kind::Tombstone, key, &[])?,
            };
            match self.core().commit_if(record, || swaps(&self.inner, key, tree, has_expected))? {
                Answer::Other => {}
                Answer::Swapped => return Ok(true),
                Answer::Kept => return Ok(false),
            }
        }
    }
}

/// The outcome of a swap.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Swapped,
    /// The key has another value.
    Kept,
    /// The keyspace was cleared, or the key's partition dropped: the record names a LSM tree that
    /// is gone.
    Other,
}

/// Decides a swap whose record is for `tree`. The caller holds the write lock.
fn swaps(
    inner: &KeyspaceInner,
    key: &[u8],
    tree: TreeId,
    has_expected: impl Fn() -> Result<bool>,
) -> Result<Answer> {
    inner.check_live()?;
    if inner.tree_of(key) != Some(tree) {
        return Ok(Answer::Other);
    }
    // planted: swap-not-look-at-key
    Ok(if has_expected()? { Answer::Swapped } else { Answer::Kept })
}

impl Core {
    /// Commits one operation by itself if `decide` allows it: everything queued before it is
    /// committed first, and no other write comes after that.
    fn commit_if(
        self: &Arc<Self>,
        record: Encoded,
        decide: impl FnOnce() -> Result<Answer>,
    ) -> Result<Answer> {
        self.delay_writer(record.bytes().len());
        let mut state = self.lock_write();
        self.commit_queued(&mut state);
        let answer = decide()?;
        if answer == Answer::Swapped {
            let pending = Arc::new(Pending::new(record, 1, self.shared.options.durability));
            let result = self.commit_group(&mut state, std::slice::from_ref(&pending));
            self.shared.health.record_write(1, &result);
            drop(state);
            self.run_inline();
            result?;
        }
        Ok(answer)
    }
}
