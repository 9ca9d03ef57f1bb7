//! How a transaction is isolated, and what it may take.

/// The memory that a transaction's pending writes may take by default. A batch of that size is
/// committed in a fraction of a second.
const MEMORY_BYTES_DEFAULT: usize = 256 << 20;

/// Settings of a [`Transaction`](crate::Transaction).
///
/// ```
/// # fn main() -> rhumb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// use rhumb::{Error, TransactionOptions};
///
/// let db = rhumb::Database::open(dir.path())?;
/// let shifts = db.keyspace("on call", rhumb::KeyspaceOptions::default())?;
/// shifts.insert("ada", "")?;
/// shifts.insert("grace", "")?;
///
/// // Each may leave if another one stays.
/// let leave = |name: &str| -> rhumb::Result<_> {
///     let mut transaction = db.transaction_with(TransactionOptions::default().serializable());
///     if transaction.iter(&shifts)?.count() > 1 {
///         transaction.remove(&shifts, name)?;
///     }
///     Ok(transaction)
/// };
/// let (ada, grace) = (leave("ada")?, leave("grace")?);
/// ada.commit()?;
/// assert!(matches!(grace.commit(), Err(Error::Conflict { .. })));
/// assert_eq!(shifts.iter().count(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TransactionOptions {
    pub(super) is_serializable: bool,
    pub(super) memory_bytes_max: usize,
}

impl Default for TransactionOptions {
    /// Snapshot isolation, 256 MiB.
    fn default() -> Self {
        Self { is_serializable: false, memory_bytes_max: MEMORY_BYTES_DEFAULT }
    }
}

impl TransactionOptions {
    /// Has the commit fail if another one has written what the transaction has read: a key, present
    /// or absent, or any key of a range as far as it was walked. Transactions that are all
    /// serializable take effect as if one came after the other.
    #[must_use]
    pub fn serializable(mut self) -> Self {
        self.is_serializable = true;
        self
    }

    /// The memory, in bytes, that the pending writes of the transaction may take, and what was read
    /// if it is serializable. Default 256 MiB.
    #[must_use]
    pub fn memory_bytes_max(mut self, bytes: usize) -> Self {
        self.memory_bytes_max = bytes;
        self
    }
}
