//! Entries that expire: writing them, and asking when they do.
//!
//! An entry that has expired is seen by no read, from the very millisecond on. It takes its space
//! until a flush or a compaction leaves it out (`compaction/expired.rs`).

use std::time::SystemTime;

use rhumb_sync::primitive::Arc;

use super::{
    keyspace::Keyspace,
    transaction::{Transaction, TransactionOptions, retried},
};
use crate::{
    error::Result,
    expiry::{Millis, Stamp, millis_of},
    log::batch::Encoded,
    tree::Tree,
    types::Kind,
};

/// When an entry that is present expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Expiry {
    /// It stays until it is removed or written over.
    Never,
    /// No reader sees it from this time on. Times are kept in milliseconds.
    At(SystemTime),
}

/// The number of times that [`Keyspace::expire_at`] starts over if the key is written meanwhile.
/// Each time another write of the same key has succeeded, so more would mean a key that is written
/// without end.
const RETRIES: u32 = 1000;

impl Keyspace {
    /// Sets the value of `key` until `expires`: from then on no reader sees it, except through a
    /// [`Snapshot`](crate::Snapshot) or a [`Transaction`](crate::Transaction) that began before.
    /// Costs eight bytes more than [`Keyspace::insert`]. A time that has passed makes the key
    /// absent.
    ///
    /// The database's clock is the system's time of day, in milliseconds. If that goes back, the
    /// database's clock stands still until it is caught up. That also holds over a restart, as of
    /// the last flush, compaction or orderly close.
    ///
    /// ```
    /// # fn main() -> rhumb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use std::time::{Duration, SystemTime};
    ///
    /// let db = rhumb::Database::open(dir.path())?;
    /// let sessions = db.keyspace("sessions", rhumb::KeyspaceOptions::default())?;
    /// sessions.insert_until("ada", "token 1", SystemTime::now() + Duration::from_secs(3600))?;
    /// sessions.insert_until("bob", "token 2", SystemTime::now())?;
    /// assert_eq!(sessions.get("ada")?.unwrap(), "token 1");
    /// assert_eq!(sessions.get("bob")?, None);
    /// assert_eq!(sessions.iter().count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Keyspace::insert`].
    pub fn insert_until(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expires: SystemTime,
    ) -> Result<()> {
        self.write_until(key.as_ref(), value.as_ref(), millis_of(expires))
    }

    /// Writes a value with a stamp.
    pub(super) fn write_until(&self, key: &[u8], value: &[u8], at_ms: Millis) -> Result<()> {
        let tree = self.tree_to_write(key)?;
        let (core, stamp) = (self.core(), Stamp::new(at_ms).encode());
        let arena = &core.shared.memory.records;
        let record = Encoded::of(arena, tree, Kind::Expiring, key, &[&stamp, value])?;
        core.commit(record, 1, core.shared.options.durability)
    }

    /// Changes when `key` expires, and leaves its value. Returns false if the key is absent.
    /// Atomic with respect to all other writes: the value is read and written again, by a
    /// transaction that starts over if the key was written meanwhile.
    ///
    /// ```
    /// # fn main() -> rhumb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use rhumb::Expiry;
    ///
    /// let db = rhumb::Database::open(dir.path())?;
    /// let sessions = db.keyspace("sessions", rhumb::KeyspaceOptions::default())?;
    /// sessions.insert("ada", "token 1")?;
    /// let end = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1 << 40);
    /// assert!(sessions.expire_at("ada", Expiry::At(end))?);
    /// assert_eq!(sessions.expiry_of("ada")?, Some(Expiry::At(end)));
    /// assert!(!sessions.expire_at("bob", Expiry::Never)?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`] and [`Keyspace::insert`]; [`Error::Conflict`](crate::Error::Conflict)
    /// if the key was written by others a thousand times meanwhile.
    pub fn expire_at(&self, key: impl AsRef<[u8]>, expiry: Expiry) -> Result<bool> {
        let key = key.as_ref();
        let change = |transaction: &mut Transaction| {
            let Some(value) = transaction.get(self, key)? else { return Ok(false) };
            transaction.set(self, key, value, expiry)?;
            Ok(true)
        };
        retried(&self.handle, &TransactionOptions::default(), RETRIES, change)
    }

    /// When `key` expires, if it is present. Reads no value that is stored outside its table's
    /// blocks.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn expiry_of(&self, key: impl AsRef<[u8]>) -> Result<Option<Expiry>> {
        self.reader().expiry_of(key)
    }

    /// Returns true if entries of the keyspace may expire: if it has a lifetime, or if there are
    /// entries with a time, in its tables or in a memtable. O(1) for each partition. For a copy
    /// that cannot tell its readers of expiry.
    #[must_use]
    pub fn may_expire(&self) -> bool {
        let core = self.core();
        // The memtables first: a flush moves entries to tables.
        let memtables = core.memtables.get();
        let may_expire = |tree: &Arc<Tree>| {
            memtables.all().any(|memtable| memtable.has_expiring_of(tree.id))
                || tree.levels.get().first_expiry_ms().is_some()
        };
        self.inner.options.lifetime_ms().is_some()
            || self.inner.tree.get().with_partitions().iter().any(may_expire)
    }

    /// The time at which an entry expires that is written now without a time of its own, by the
    /// lifetime among the keyspace's options.
    #[inline]
    pub(super) fn end_of_life(&self) -> Option<Millis> {
        let lifetime_ms = self.inner.options.lifetime_ms()?;
        Some(self.core().shared.wall_ms().saturating_add(lifetime_ms))
    }
}
