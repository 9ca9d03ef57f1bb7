//! Writes for callers that must not block a thread: the future of a batch, and the writes of single
//! keys. `committer.rs` has the thread that does them.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use rhumb_sync::primitive::Arc;

use super::{batch::Batch, core::Core, keyspace::Keyspace, writer::Pending};
use crate::{error::Result, expiry::Stamp, log::batch::Encoded, types::Kind};

/// The result of an asynchronous write ([`Keyspace::insert_async`], [`Keyspace::remove_async`],
/// [`Batch::commit_async`]). Once it is `Ok`, the write is as durable as was asked for, and every
/// read finds it.
///
/// The write was queued by the call that returned this, and goes on by itself. So the future may be
/// dropped at any time, before its first poll as well: that undoes nothing and loses nothing but
/// the result. A crash before the result loses the write as a whole or keeps it as a whole, as with
/// any write that was not acknowledged yet.
///
/// The future needs no particular executor. It keeps no handle of the database: closing the
/// database commits what is queued first, and every future then has its result. Polled again after
/// that, it gives the same result again. In a process that was forked from the one that opened the
/// database, it may only be dropped.
#[must_use = "whether the write was done is known once this is awaited"]
pub struct CommitFuture(State);

enum State {
    /// The write was refused before it was queued, or had nothing to do.
    Ended(Result<()>),
    Queued(Arc<Pending>),
}

impl CommitFuture {
    /// Queues a batch, unless it could not be made.
    pub(super) fn of(core: &Arc<Core>, pending: Result<Pending>) -> Self {
        let writable = core.shared.check_takes_writes();
        Self(match writable.and(pending) {
            Err(refused) => State::Ended(Err(refused)),
            Ok(pending) if pending.has_nothing_to_do() => State::Ended(Ok(())),
            Ok(pending) => State::Queued(core.enqueue_async(pending)),
        })
    }
}

impl Future for CommitFuture {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match &self.0 {
            State::Ended(result) => Poll::Ready(result.clone()),
            State::Queued(pending) => pending.poll(cx),
        }
    }
}

impl fmt::Debug for CommitFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommitFuture").finish_non_exhaustive()
    }
}

impl Keyspace {
    /// [`Keyspace::insert`] for callers that must not block a thread: neither the write nor a sync
    /// is waited for here. The write is queued by the call itself, so writes take effect in the
    /// order of the calls, and writes that are queued together share one sync. See
    /// [`Batch::commit_async`], which also says what bounds the memory.
    ///
    /// # Errors
    ///
    /// Through the future, as [`Keyspace::insert`].
    ///
    /// ```
    /// # fn main() -> rhumb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use rhumb::{Database, KeyspaceOptions, PersistMode};
    ///
    /// let db = Database::builder(dir.path().join("db")).durability(PersistMode::SyncData).open()?;
    /// let users = db.keyspace("users", KeyspaceOptions::default())?;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// // Both are on their way before the first is awaited.
    /// let (ada, grace) = (users.insert_async("ada", "1815"), users.insert_async("grace", "1906"));
    /// ada.await?;
    /// grace.await?;
    /// assert_eq!(users.get_async("ada").await?.unwrap(), b"1815");
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub fn insert_async(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> CommitFuture {
        let (key, value) = (key.as_ref(), value.as_ref());
        match self.end_of_life() {
            None => self.write_async(Kind::Value, key, &[value]),
            Some(at_ms) => {
                self.write_async(Kind::Expiring, key, &[&Stamp::new(at_ms).encode(), value])
            }
        }
    }

    /// [`Keyspace::remove`] for callers that must not block a thread, as [`Keyspace::insert_async`]
    /// is to [`Keyspace::insert`].
    ///
    /// # Errors
    ///
    /// Through the future, as [`Keyspace::remove`].
    pub fn remove_async(&self, key: impl AsRef<[u8]>) -> CommitFuture {
        self.write_async(Kind::Tombstone, key.as_ref(), &[])
    }

    fn write_async(&self, kind: Kind, key: &[u8], value: &[&[u8]]) -> CommitFuture {
        let core = self.core();
        if let (Ok(()), Some(tree)) = (self.inner.check_live(), self.inner.tree_of(key)) {
            let record = Encoded::of(&core.shared.memory.records, tree, kind, key, value);
            let durability = core.shared.options.durability;
            return CommitFuture::of(core, record.map(|it| Pending::new(it, 1, durability)));
        }
        // The partition of the key is created by the thread that commits.
        let mut batch = Batch::new(Arc::clone(&self.handle));
        match kind {
            Kind::Tombstone => batch.remove(self, key),
            _ => batch.put(self, key, kind, value),
        }
        batch.commit_async()
    }
}
