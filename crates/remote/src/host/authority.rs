//! What decides what a shared keyspace holds.

use std::ops::Bound;

use crate::error::{Error, Result};

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// One change of a key that a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// The name under which the keyspace is shared.
    pub keyspace: &'a str,
    /// The key.
    pub key: &'a [u8],
    /// The value that it is to have; none if it is to be removed.
    pub value: Option<&'a [u8]>,
}

/// A part of a keyspace that a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan<'a> {
    /// The lower end.
    pub from: Bound<&'a [u8]>,
    /// The upper end.
    pub to: Bound<&'a [u8]>,
    /// From the upper end downwards.
    pub reverse: bool,
    /// The most pairs that are wanted.
    pub limit: usize,
    /// The most bytes of keys and values that are wanted; one pair may have more.
    pub bytes_max: usize,
}

/// Collects values unless they have over `bytes_max` bytes together: one value more than that at
/// most is in memory.
pub(super) fn bounded(
    values: impl Iterator<Item = Option<Vec<u8>>>,
    bytes_max: usize,
) -> Result<Vec<Option<Vec<u8>>>> {
    let mut left = bytes_max;
    let check = |value: Option<Vec<u8>>| {
        let rest = left.checked_sub(value.as_ref().map_or(0, Vec::len));
        left = rest.ok_or_else(|| Error::too_large("the values do not fit a message"))?;
        Ok(value)
    };
    values.map(check).collect()
}

/// The store of which a host shares keyspaces: it takes the writes of clients, and answers them
/// what they cannot read in the region themselves.
///
/// Threads of the host call it, each for one client; a call may take as long as it needs. Clients
/// are told the text of an error. [`Error::refused`](crate::Error::refused) and
/// [`Error::failed`](crate::Error::failed) make one.
pub trait Authority: Send + Sync {
    /// The value of a key.
    ///
    /// # Errors
    ///
    /// Whatever keeps it from being read.
    fn get(&self, keyspace: &str, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// The values of several keys at one moment, in the order of the keys. A client may ask for one
    /// large value again and again, so what is collected is to end once it is too much.
    ///
    /// # Errors
    ///
    /// As [`Authority::get`]; [`Error::too_large`](crate::Error::too_large) if the values have over
    /// `bytes_max` bytes together.
    fn multi_get(
        &self,
        keyspace: &str,
        keys: &[&[u8]],
        bytes_max: usize,
    ) -> Result<Vec<Option<Vec<u8>>>>;

    /// The first pairs of a range at one moment, in the order that is asked for; and true if there
    /// may be more.
    ///
    /// # Errors
    ///
    /// As [`Authority::get`].
    fn scan(&self, keyspace: &str, scan: &Scan<'_>) -> Result<(Vec<Pair>, bool)>;

    /// Makes changes as one: all of them or, after an error, none. Returns once every reader, of
    /// the region too, sees them.
    ///
    /// # Errors
    ///
    /// Whatever keeps them from being made.
    fn commit(&self, changes: &[Change<'_>]) -> Result<()>;

    /// Makes a change if its key has the value `expected`, or is not there where that is `None`;
    /// returns false otherwise.
    ///
    /// # Errors
    ///
    /// As [`Authority::commit`].
    fn compare_and_swap(&self, change: &Change<'_>, expected: Option<&[u8]>) -> Result<bool>;
}
