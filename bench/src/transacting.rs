//! What a store must do to be measured under transactions: read two keys and write both, or find
//! that another transaction has changed one of them.
//!
//! Rhumb's part is in [`rhumb_engine`](crate::rhumb_engine), those of its rivals in the `compare`
//! workspace.

use std::path::Path;

use anyhow::Result;

use crate::subject::Tuning;

/// The length of every key, in bytes.
pub const KEY_BYTES: usize = 16;

/// Is shown a key and its value.
pub type OnPair<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<()>;

/// Makes the new value of a key from its present one. The number is that of the key in the
/// transaction.
pub type OnChange<'a> = &'a mut dyn FnMut(usize, &[u8]) -> Result<Vec<u8>>;

/// A kind of store with optimistic transactions.
pub trait TransactEngine: Sync {
    /// The name in results and on the command line.
    fn name(&self) -> &'static str;

    /// What a reader needs to know to judge the figures: above all, the isolation, and what a
    /// commit that has returned outlives.
    fn options(&self, tuning: &Tuning) -> String;

    /// Opens an empty store in `directory`.
    ///
    /// # Errors
    /// If the store fails.
    fn open(&self, directory: &Path, tuning: &Tuning) -> Result<Box<dyn TransactStore>>;
}

/// An open store, which threads share.
pub trait TransactStore: Sync {
    /// Inserts a key without a transaction.
    ///
    /// # Errors
    /// If the store fails.
    fn insert(&self, key: &[u8; KEY_BYTES], value: &[u8]) -> Result<()>;

    /// Brings the store to rest after loading.
    ///
    /// # Errors
    /// If the store fails.
    fn settle(&self) -> Result<()>;

    /// Reads both keys, writes what `on_change` makes of them and commits, in one transaction.
    /// Returns false if there was a conflict and nothing was written.
    ///
    /// `on_change` of the second key may call this for another transaction: no lock is held then.
    ///
    /// # Errors
    /// If the store or `on_change` fails, or a key is missing.
    fn transact(&self, keys: [&[u8; KEY_BYTES]; 2], on_change: OnChange<'_>) -> Result<bool>;

    /// Shows every value, in any order.
    ///
    /// # Errors
    /// If the store or `on_value` fails.
    fn values(&self, on_value: OnPair<'_>) -> Result<()>;
}
