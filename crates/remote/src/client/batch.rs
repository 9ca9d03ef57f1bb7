//! Writes that happen together or not at all.

use std::sync::Arc;

use super::{
    Client,
    connection::{ClientInner, unexpected},
    keyspace::{Keyspace, KeyspaceInner},
};
use crate::{
    error::{Error, Result},
    message::{Op, Reply},
};

/// Operations on keyspaces of one host that happen together or not at all: readers see all of them
/// in a keyspace or none ([`Keyspace::multi_get_atomic`]). Later operations win over earlier ones
/// of the same key. Nothing happens before [`Batch::commit`].
///
/// ```no_run
/// # fn main() -> rhumb_remote::Result<()> {
/// # let client = rhumb_remote::Client::connect("rhumb.sock")?;
/// # let accounts = client.keyspace("accounts")?;
/// let mut batch = client.batch();
/// batch.insert(&accounts, "savings", "70");
/// batch.insert(&accounts, "current", "30");
/// batch.commit()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing happens before it is committed"]
pub struct Batch {
    client: Arc<ClientInner>,
    /// Each keyspace once.
    keyspaces: Vec<Arc<KeyspaceInner>>,
    operations: Vec<Operation>,
    has_strange: bool,
}

/// An operation, without a value if it removes the key.
#[derive(Debug)]
pub(super) struct Operation {
    /// Index of its keyspace.
    keyspace: usize,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
}

impl Operation {
    /// The operation, with the numbers that keyspaces have in a connection.
    pub(super) fn op(&self, numbers: &[u32]) -> Op<'_> {
        let (keyspace, key) = (numbers[self.keyspace], &self.key[..]);
        match &self.value {
            Some(value) => Op::Insert { keyspace, key, value },
            None => Op::Remove { keyspace, key },
        }
    }

    /// Bytes of the key and the value.
    pub(super) fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Vec::len)
    }
}

impl Client {
    /// An empty batch.
    pub fn batch(&self) -> Batch {
        Batch::new(self.inner())
    }
}

impl Keyspace {
    /// An empty batch of this keyspace's client: of operations on this keyspace, and on others.
    pub fn batch(&self) -> Batch {
        Batch::new(self.parts().0)
    }
}

impl Batch {
    fn new(client: &Arc<ClientInner>) -> Self {
        let client = Arc::clone(client);
        Self { client, keyspaces: Vec::new(), operations: Vec::new(), has_strange: false }
    }

    /// Sets the value of a key.
    pub fn insert(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.push(keyspace, key.as_ref(), Some(value.as_ref()));
    }

    /// Removes a key, if it is there.
    pub fn remove(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) {
        self.push(keyspace, key.as_ref(), None);
    }

    fn push(&mut self, keyspace: &Keyspace, key: &[u8], value: Option<&[u8]>) {
        let (client, inner) = keyspace.parts();
        self.has_strange |= !Arc::ptr_eq(client, &self.client);
        let known = self.keyspaces.iter().position(|known| Arc::ptr_eq(known, inner));
        let keyspace = known.unwrap_or_else(|| {
            self.keyspaces.push(Arc::clone(inner));
            self.keyspaces.len() - 1
        });
        let (key, value) = (key.to_vec(), value.map(<[u8]>::to_vec));
        self.operations.push(Operation { keyspace, key, value });
    }

    /// Number of operations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Returns true if there are no operations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Refuses keyspaces of another client.
    pub(super) fn check(&self) -> Result<()> {
        if self.has_strange {
            let what = "a batch has keyspaces of several clients";
            return Err(Error::InvalidArgument(what.into()));
        }
        Ok(())
    }

    /// The client, the keyspaces, and the operations with the keyspaces' indexes.
    pub(super) fn into_parts(self) -> (Arc<ClientInner>, Vec<Arc<KeyspaceInner>>, Vec<Operation>) {
        (self.client, self.keyspaces, self.operations)
    }

    /// Does all operations, or none of them. When it returns, every read sees them, by whatever
    /// client. One call.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a keyspace of another client, for more than 65,536 operations
    /// or more than 16 MiB; [`Error::Refused`] if the host refuses one of them, or cannot do those
    /// of several keyspaces as one, because one of them is volatile; otherwise as
    /// [`Keyspace::insert`].
    pub fn commit(self) -> Result<()> {
        self.check()?;
        if self.is_empty() {
            return Ok(());
        }
        let ops = |numbers: &[u32]| {
            self.operations.iter().map(|operation| operation.op(numbers)).collect()
        };
        self.client.call_batch(&self.keyspaces, ops, |reply| match reply {
            Reply::Done { .. } => Ok(()),
            other => Err(unexpected(&other)),
        })
    }
}
