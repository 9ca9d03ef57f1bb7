//! Optimistic transactions: reads of one moment under pending writes, and a commit that happens
//! only if nothing that it depends on has changed since.
//!
//! | file | what it does |
//! | --- | --- |
//! | `pending.rs` | what is written and not committed, of one keyspace |
//! | `iter.rs` | ranges: what is stored under what is pending |
//! | `reads.rs` | what was read, if the transaction is serializable |
//! | `check.rs` | what a commit depends on |
//! | `history.rs` | what was committed since the oldest open transaction |
//!
//! The check is made by the thread that commits the group, under the write lock, against the
//! records of all commits since the snapshot: no reads, and no lock for the keys. What comes before
//! the transaction in its own group is checked likewise.

mod check;
mod history;
mod iter;
mod options;
mod pending;
mod reads;

use std::{cell::RefCell, fmt, ops::Bound, time::SystemTime};

use rhumb_sync::primitive::Arc;

use self::{
    check::Touched,
    pending::{Decided, Overlay, Removed, Writes, Written},
    reads::Reads,
};
use super::{
    Database, Handle,
    batch::Batch,
    expiring::Expiry,
    keyspace::{Keyspace, KeyspaceInner},
    snapshot::Snapshot,
};
use crate::{
    error::{Error, Result},
    expiry::millis_of,
    keys::{KeyRange, OwnedBounds, owned_bounds, prefix_bounds},
    log::batch::check_lengths,
    options::PersistMode,
    ranges::span_of,
    slice::Slice,
    types::{Kind, SeqNo},
};

pub(crate) use check::Checked;
pub(crate) use history::{History, Transactions};
pub use iter::TransactionIter;
pub use options::TransactionOptions;

/// Reads of one moment, and writes that happen together, or not at all if another commit came
/// between.
///
/// A transaction sees the database as it was when it began, with its own writes; others see nothing
/// of them before [`Transaction::commit`]. Several may be open at the same time, on any threads,
/// and none waits for another. By default they have *snapshot isolation*: a commit fails with
/// [`Error::Conflict`] if another one has written a key, since this one began, that this one
/// writes. [`TransactionOptions::serializable`] ones fail also if another has written what they
/// have read, keys that came into a range included: they take effect as if one came after the
/// other. Dropping a transaction ends it without effect.
///
/// Writes without transactions count as commits. A transaction takes memory for its pending writes,
/// up to [`TransactionOptions::memory_bytes_max`]. While transactions are open, 256 MiB of what
/// others commit are kept in memory; one that is open for longer conflicts. Like any snapshot it
/// keeps the versions that it sees from being reclaimed.
///
/// ```
/// # fn main() -> rhumb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// use rhumb::Error;
///
/// let db = rhumb::Database::open(dir.path())?;
/// let accounts = db.keyspace("accounts", rhumb::KeyspaceOptions::default())?;
/// accounts.insert("ada", "10")?;
///
/// let mut first = db.transaction();
/// let mut second = db.transaction();
/// first.insert(&accounts, "ada", "9")?;
/// second.insert(&accounts, "ada", "8")?;
/// assert_eq!(second.get(&accounts, "ada")?.unwrap(), b"8");
/// first.commit()?;
/// let Err(Error::Conflict { key, .. }) = second.commit() else { panic!("both were committed") };
/// assert_eq!(*key, *b"ada");
///
/// // Again, until nothing comes between.
/// let left = db.transact(10, |transaction| {
///     let balance = transaction.get(&accounts, "ada")?.map_or(0, |text| text[0] - b'0');
///     transaction.insert(&accounts, "ada", [b'0' + balance - 1])?;
///     Ok(balance - 1)
/// })?;
/// assert_eq!(left, 8);
/// # Ok(())
/// # }
/// ```
pub struct Transaction {
    handle: Arc<Handle>,
    snapshot: Snapshot,
    options: TransactionOptions,
    durability: PersistMode,
    /// Tells this transaction's savepoints from those of others.
    number: u64,
    is_registered: bool,
    /// The keyspaces that were read or written; a place is an index here.
    keyspaces: RefCell<Vec<Keyspace>>,
    /// The pending writes by place; it may be shorter.
    overlays: Vec<Overlay>,
    /// What was read, if that matters.
    reads: Option<Reads>,
    /// What takes the writes back since the first savepoint.
    undo: Vec<Undo>,
    has_savepoints: bool,
}

/// What takes one write back.
enum Undo {
    Put { place: usize, key: Slice, before: Option<Option<Written>> },
    RemoveRange { place: usize, writes: Writes, removed: Removed },
}

/// A moment of a transaction, to go back to: [`Transaction::savepoint`].
#[derive(Clone, Copy, Debug)]
pub struct Savepoint {
    transaction: u64,
    undo: usize,
}

impl Database {
    /// Begins a transaction with snapshot isolation. O(1); see [`Transaction`].
    #[must_use]
    pub fn transaction(&self) -> Transaction {
        self.transaction_with(TransactionOptions::default())
    }

    /// Begins a transaction. O(1); see [`Transaction`].
    #[must_use]
    pub fn transaction_with(&self, options: TransactionOptions) -> Transaction {
        Transaction::begin(Arc::clone(&self.handle), options)
    }

    /// Does `work` in a transaction and commits it. After a conflict it is done again, in another
    /// transaction, `retries` times at most: it should have no other effects.
    ///
    /// # Errors
    ///
    /// Those of `work`, at once; those of [`Transaction::commit`].
    pub fn transact<T>(
        &self,
        retries: u32,
        work: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        self.transact_with(TransactionOptions::default(), retries, work)
    }

    /// [`Database::transact`] with options.
    ///
    /// # Errors
    ///
    /// As [`Database::transact`].
    pub fn transact_with<T>(
        &self,
        options: TransactionOptions,
        retries: u32,
        work: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        retried(&self.handle, &options, retries, work)
    }
}

/// [`Database::transact_with`].
pub(super) fn retried<T>(
    handle: &Arc<Handle>,
    options: &TransactionOptions,
    mut retries: u32,
    mut work: impl FnMut(&mut Transaction) -> Result<T>,
) -> Result<T> {
    loop {
        let mut transaction = Transaction::begin(Arc::clone(handle), options.clone());
        let result = work(&mut transaction)?;
        match transaction.commit() {
            Ok(()) => return Ok(result),
            Err(Error::Conflict { .. }) if retries > 0 => retries -= 1,
            Err(error) => return Err(error),
        }
    }
}

impl Transaction {
    fn begin(handle: Arc<Handle>, options: TransactionOptions) -> Self {
        let core = &handle.core;
        let is_registered = core.shared.process.is_here();
        let snapshot = match is_registered {
            true => registered(&handle),
            // Every read through it is refused.
            false => Snapshot::new(Arc::clone(&handle)),
        };
        let durability = core.shared.options.durability;
        let number = core.writer.transactions.next_number();
        Self {
            snapshot,
            durability,
            number,
            is_registered,
            keyspaces: RefCell::default(),
            overlays: Vec::new(),
            reads: options.is_serializable.then(Reads::default),
            undo: Vec::new(),
            has_savepoints: false,
            options,
            handle,
        }
    }

    /// Sets what the writes survive once they are committed.
    #[must_use]
    pub fn durability(mut self, mode: PersistMode) -> Self {
        self.durability = mode;
        self
    }

    /// The sequence number of the last write that the transaction sees.
    #[must_use]
    pub fn sequence_number(&self) -> SeqNo {
        self.snapshot.sequence_number()
    }

    /// The memory that the pending writes take, and what was read if the transaction is
    /// serializable, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let written: usize = self.overlays.iter().map(Overlay::bytes).sum();
        written + self.reads.as_ref().map_or(0, Reads::bytes)
    }

    /// The place of a keyspace in the list.
    fn place(&self, keyspace: &Keyspace) -> Result<usize> {
        let mut keyspaces = self.keyspaces.borrow_mut();
        let is_same = |one: &Keyspace| Arc::ptr_eq(&one.inner, &keyspace.inner);
        if let Some(place) = keyspaces.iter().position(is_same) {
            return Ok(place);
        }
        keyspace.check_is_of(&self.handle)?;
        keyspaces.push(keyspace.clone());
        Ok(keyspaces.len() - 1)
    }

    /// The value of `key`.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`]; [`Error::InvalidArgument`] for a keyspace of another database.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        let (place, key) = (self.place(keyspace)?, key.as_ref());
        match self.decided(place, key) {
            Decided::Value(written) => {
                return Ok(written.seen(self.snapshot.moment().now_ms).cloned());
            }
            Decided::Absent => return Ok(None),
            Decided::No => {}
        }
        self.record_key(place, key);
        self.snapshot.keyspace(keyspace)?.get(key)
    }

    /// Returns true if `key` is present.
    ///
    /// # Errors
    ///
    /// As [`Transaction::get`].
    pub fn contains_key(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        let (place, key) = (self.place(keyspace)?, key.as_ref());
        match self.decided(place, key) {
            Decided::Value(written) => {
                return Ok(written.seen(self.snapshot.moment().now_ms).is_some());
            }
            Decided::Absent => return Ok(false),
            Decided::No => {}
        }
        self.record_key(place, key);
        self.snapshot.keyspace(keyspace)?.contains_key(key)
    }

    fn decided(&self, place: usize, key: &[u8]) -> Decided<'_> {
        self.overlays.get(place).map_or(Decided::No, |overlay| overlay.get(key))
    }

    fn record_key(&self, place: usize, key: &[u8]) {
        if let Some(reads) = &self.reads {
            reads.key(place, key);
        }
    }

    /// The keys of a range with their values, from both ends.
    ///
    /// ```
    /// # fn main() -> rhumb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = rhumb::Database::open(dir.path())?;
    /// let words = db.keyspace("words", rhumb::KeyspaceOptions::default())?;
    /// (b'a'..b'z').try_for_each(|letter| words.insert([letter], ""))?;
    ///
    /// let mut transaction = db.transaction();
    /// transaction.remove_range(&words, "b".."y")?;
    /// transaction.insert(&words, "m", "new")?;
    /// let keys: Result<Vec<_>, _> =
    ///     transaction.range(&words, ..)?.rev().map(|pair| pair.map(|(key, _)| key)).collect();
    /// assert_eq!(keys?, ["y", "m", "a"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a keyspace of another database.
    pub fn range(&self, keyspace: &Keyspace, range: impl KeyRange) -> Result<TransactionIter<'_>> {
        self.walk(keyspace, owned_bounds(&range))
    }

    /// All keys with their values, from both ends.
    ///
    /// # Errors
    ///
    /// As [`Transaction::range`].
    pub fn iter(&self, keyspace: &Keyspace) -> Result<TransactionIter<'_>> {
        self.range(keyspace, ..)
    }

    /// The keys that begin with `prefix`, from both ends.
    ///
    /// # Errors
    ///
    /// As [`Transaction::range`].
    pub fn prefix(
        &self,
        keyspace: &Keyspace,
        prefix: impl AsRef<[u8]>,
    ) -> Result<TransactionIter<'_>> {
        self.walk(keyspace, prefix_bounds(prefix.as_ref()))
    }

    fn walk(&self, keyspace: &Keyspace, bounds: OwnedBounds) -> Result<TransactionIter<'_>> {
        let place = self.place(keyspace)?;
        let overlay = self.overlays.get(place).filter(|overlay| !overlay.is_empty());
        let reads = self.reads.as_ref().map(|reads| (reads, place));
        let source = (self.snapshot.moment(), keyspace.clone());
        Ok(TransactionIter::new(source, overlay, bounds, reads))
    }

    /// Sets the value of `key`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a key over 64 KiB, a value over 1 GiB, or a keyspace of
    /// another database; [`Error::Exhausted`] if the pending writes take more memory than they may.
    /// The transaction is as it was before.
    pub fn insert(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl Into<Slice>,
    ) -> Result<()> {
        let (key, value) = (key.as_ref(), value.into());
        check_lengths(key.len(), value.len())?;
        let expires_ms = keyspace.end_of_life();
        self.put(keyspace, key, Some(Written { value, expires_ms }))
    }

    /// Sets the value of `key` until `expires`: see [`Keyspace::insert_until`]. The transaction's
    /// clock stands still, so for itself nothing expires that had not when it began.
    ///
    /// # Errors
    ///
    /// As [`Transaction::insert`].
    pub fn insert_until(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl Into<Slice>,
        expires: SystemTime,
    ) -> Result<()> {
        self.set(keyspace, key.as_ref(), value.into(), Expiry::At(expires))
    }

    /// Sets the value of `key`, whatever the keyspace's lifetime is.
    pub(super) fn set(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        value: Slice,
        expiry: Expiry,
    ) -> Result<()> {
        check_lengths(key.len(), value.len())?;
        let expires_ms = match expiry {
            Expiry::Never => None,
            Expiry::At(time) => Some(millis_of(time)),
        };
        self.put(keyspace, key, Some(Written { value, expires_ms }))
    }

    /// Removes `key`. Removing an absent key is not an error.
    ///
    /// # Errors
    ///
    /// As [`Transaction::insert`].
    pub fn remove(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        check_lengths(key.as_ref().len(), 0)?;
        self.put(keyspace, key.as_ref(), None)
    }

    fn put(&mut self, keyspace: &Keyspace, key: &[u8], value: Option<Written>) -> Result<()> {
        let place = self.place(keyspace)?;
        self.check_room(key.len() + value.as_ref().map_or(0, |written| written.value.len()))?;
        let key = Slice::copy_from(key);
        let before = self.overlay(place).put(key.clone(), value);
        if self.has_savepoints {
            self.undo.push(Undo::Put { place, key, before });
        }
        Ok(())
    }

    /// Removes all keys in `range`. One operation whatever the range holds.
    ///
    /// # Errors
    ///
    /// As [`Transaction::insert`].
    pub fn remove_range(&mut self, keyspace: &Keyspace, range: impl KeyRange) -> Result<()> {
        let place = self.place(keyspace)?;
        let Some((from, to)) = span_of(range.low(), range.high())? else { return Ok(()) };
        check_lengths(from.len().max(to.as_ref().map_or(0, |to| to.len())), 0)?;
        self.check_room(from.len() + to.as_ref().map_or(0, |to| to.len()))?;
        let (from, to) = (Slice::from(from), to.map(Slice::from));
        let (writes, removed) = self.overlay(place).remove_range(from, to);
        if self.has_savepoints {
            self.undo.push(Undo::RemoveRange { place, writes, removed });
        }
        Ok(())
    }

    fn overlay(&mut self, place: usize) -> &mut Overlay {
        if self.overlays.len() <= place {
            self.overlays.resize_with(place + 1, Overlay::default);
        }
        &mut self.overlays[place]
    }

    fn check_room(&self, more: usize) -> Result<()> {
        let most = self.options.memory_bytes_max;
        if self.bytes().saturating_add(more) > most {
            let what = format!("a transaction's pending writes take over {most} bytes: split it");
            return Err(Error::Exhausted(what.into()));
        }
        Ok(())
    }

    /// Marks a moment to which [`Transaction::rollback_to`] goes back. From the first one on the
    /// writes that are written over are kept.
    #[must_use]
    pub fn savepoint(&mut self) -> Savepoint {
        self.has_savepoints = true;
        Savepoint { transaction: self.number, undo: self.undo.len() }
    }

    /// Takes back all writes since a savepoint. What was read stays recorded. O(writes since then).
    ///
    /// ```
    /// # fn main() -> rhumb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = rhumb::Database::open(dir.path())?;
    /// let words = db.keyspace("words", rhumb::KeyspaceOptions::default())?;
    /// let mut transaction = db.transaction();
    /// transaction.insert(&words, "kept", "")?;
    /// let savepoint = transaction.savepoint();
    /// transaction.remove_range(&words, ..)?;
    /// transaction.rollback_to(savepoint)?;
    /// assert!(transaction.contains_key(&words, "kept")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a savepoint of another transaction, or one that was made
    /// after one that this transaction has gone back to.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        if savepoint.transaction != self.number || savepoint.undo > self.undo.len() {
            let what = "the savepoint is of another transaction, or was taken back";
            return Err(Error::InvalidArgument(what.into()));
        }
        for undo in self.undo.drain(savepoint.undo..).rev() {
            match undo {
                Undo::Put { place, key, before } => self.overlays[place].restore(&key, before),
                Undo::RemoveRange { place, writes, removed } => {
                    self.overlays[place].restore_range(writes, removed);
                }
            }
        }
        Ok(())
    }

    /// Does all writes, unless that would be a conflict: then nothing happens. A transaction
    /// without writes always succeeds.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`]; those of [`Batch::commit`].
    pub fn commit(mut self) -> Result<()> {
        if self.overlays.iter().all(Overlay::is_empty) {
            return Ok(());
        }
        let mut batch = Batch::new(Arc::clone(&self.handle)).durability(self.durability);
        let mut touched = Touched::default();
        let keyspaces = self.keyspaces.take();
        for (place, overlay) in std::mem::take(&mut self.overlays).into_iter().enumerate() {
            let keyspace = &keyspaces[place];
            for (from, to) in overlay.removed().iter() {
                let to = to.map_or(Bound::Unbounded, Bound::Excluded);
                batch.remove_range(keyspace, (Bound::Included(from), to));
                let key = |key: &Slice| Box::from(&key[..]);
                touched.range(place, (Bound::Included(key(from)), to.map(key)));
            }
            for (key, value) in overlay.writes() {
                match value {
                    Some(Written { value, expires_ms: None }) => {
                        batch.put(keyspace, key, Kind::Value, &[value]);
                    }
                    Some(Written { value, expires_ms: Some(at_ms) }) => {
                        batch.put_until(keyspace, key, &[value], *at_ms);
                    }
                    None => batch.remove(keyspace, key),
                }
                touched.key(place, key);
            }
        }
        let inners: Vec<Arc<KeyspaceInner>> =
            keyspaces.iter().map(|keyspace| Arc::clone(&keyspace.inner)).collect();
        let mut checked = Checked::new(self.sequence_number(), inners);
        checked.add(touched);
        if let Some(reads) = self.reads.take() {
            reads.add_to(&mut checked);
        }
        checked.sort();
        batch.commit_checked(checked)
    }
}

/// A snapshot whose number is that of an open transaction: what is committed from then on is kept.
fn registered(handle: &Arc<Handle>) -> Snapshot {
    let core = &handle.core;
    let transactions = &core.writer.transactions;
    loop {
        let mut snapshot = None;
        let now = || snapshot.insert(Snapshot::new(Arc::clone(handle))).sequence_number();
        if transactions.begin(now).is_some()
            && let Some(snapshot) = snapshot
        {
            return snapshot;
        }
        let mut state = core.lock_write();
        state.history.keep(transactions, core.writer.visible_seq());
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let core = &self.handle.core;
        if self.is_registered && core.shared.process.is_here() {
            core.writer.transactions.end(self.snapshot.sequence_number());
        }
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("sequence_number", &self.sequence_number())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
