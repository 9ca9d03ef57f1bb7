//! Writes of one host that happen together or not at all.

use super::{Attempts, ClusterKeyspace, keyspace::one_host, servers::View};
use crate::error::{Error, Result};

/// Said of batches.
const WRITE: &str = "only keys of one host are written as one";

/// Operations on keys of one host that happen together or not at all: readers see all of them or
/// none ([`ClusterKeyspace::multi_get_atomic`]). Later operations win over earlier ones of the same
/// key. Nothing happens before [`ClusterBatch::commit`].
#[derive(Debug)]
#[must_use = "nothing happens before it is committed"]
pub struct ClusterBatch {
    keyspace: ClusterKeyspace,
    /// Keys with the values that they are to have; none if they are to be removed.
    operations: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl ClusterKeyspace {
    /// An empty batch.
    pub fn batch(&self) -> ClusterBatch {
        ClusterBatch { keyspace: self.clone(), operations: Vec::new() }
    }
}

impl ClusterBatch {
    /// Sets the value of a key.
    pub fn insert(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.operations.push((key.as_ref().to_vec(), Some(value.as_ref().to_vec())));
    }

    /// Removes a key, if it is there.
    pub fn remove(&mut self, key: impl AsRef<[u8]>) {
        self.operations.push((key.as_ref().to_vec(), None));
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

    /// Does all operations, or none of them. When it returns, every read sees them, by whatever
    /// client. One call.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for keys of several hosts, for more than 65,536 operations or
    /// more than 16 MiB; otherwise as [`ClusterKeyspace::insert`].
    pub fn commit(self) -> Result<()> {
        let mut attempts = Attempts::default();
        loop {
            let view = self.keyspace.view();
            let keys = self.operations.iter().map(|(key, _)| &key[..]);
            let Some(range) = one_host(&view, keys, WRITE)? else { return Ok(()) };
            match self.commit_at(&view, range) {
                Err(Error::Moved { epoch }) => {
                    self.keyspace.follow(&view, range, epoch, &mut attempts)?;
                }
                done => return done,
            }
        }
    }

    /// Does all operations at the host of a range.
    fn commit_at(&self, view: &View, range: usize) -> Result<()> {
        view.ask(self.keyspace.name(), range, |keyspace| {
            let mut batch = view.server(range).client()?.batch();
            for (key, value) in &self.operations {
                match value {
                    Some(value) => batch.insert(keyspace, key, value),
                    None => batch.remove(keyspace, key),
                }
            }
            batch.commit()
        })
    }
}
