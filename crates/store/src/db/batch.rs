//! Write batches: several operations that happen together or not at all.

use std::{fmt, sync::atomic::Ordering};

use super::{
    Handle,
    keyspace::{Keyspace, KeyspaceInner},
    write::Pending,
};
use crate::{
    error::{Error, Result},
    log::batch::{self, BatchBuilder},
    options::PersistMode,
    sync::primitive::Arc,
    types::{Kind, TreeId},
};

/// Operations on any keyspaces of one database that happen together or not at all.
///
/// Later operations win over earlier ones of the same key. Nothing happens before
/// [`Batch::commit`].
pub struct Batch {
    handle: Arc<Handle>,
    builder: BatchBuilder,
    /// The keyspaces written to, with the sub-trees that the operations name.
    targets: Vec<(Arc<KeyspaceInner>, TreeId)>,
    durability: PersistMode,
    refused: Option<Error>,
}

impl Batch {
    pub(crate) fn new(handle: Arc<Handle>) -> Self {
        let durability = handle.core.options.durability;
        Self {
            handle,
            builder: BatchBuilder::new(),
            targets: Vec::new(),
            durability,
            refused: None,
        }
    }

    /// What the batch survives once it is committed.
    #[must_use]
    pub fn durability(mut self, mode: PersistMode) -> Self {
        self.durability = mode;
        self
    }

    /// Adds an insertion. An argument that is out of bounds fails the commit.
    pub fn insert(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.push(keyspace, Kind::Value, key.as_ref(), value.as_ref());
    }

    /// Adds a removal. Removing an absent key is no error.
    pub fn remove(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) {
        self.push(keyspace, Kind::Tombstone, key.as_ref(), &[]);
    }

    fn push(&mut self, keyspace: &Keyspace, kind: Kind, key: &[u8], value: &[u8]) {
        if self.refused.is_some() {
            return;
        }
        let pushed = (|| {
            if !Arc::ptr_eq(&keyspace.handle.core, &self.handle.core) {
                return Err(Error::InvalidArgument(
                    format!("keyspace {:?} belongs to another database", keyspace.name()).into(),
                ));
            }
            let tree = self.target(keyspace)?;
            self.builder.push(tree, kind, key, value)
        })();
        self.refused = pushed.err();
    }

    fn target(&mut self, keyspace: &Keyspace) -> Result<TreeId> {
        let known = self.targets.iter().find(|(inner, _)| Arc::ptr_eq(inner, &keyspace.inner));
        if let Some((_, tree)) = known {
            return Ok(*tree);
        }
        let tree = keyspace.live_tree()?.id;
        self.targets.push((Arc::clone(&keyspace.inner), tree));
        Ok(tree)
    }

    /// The encoded operations, meant for the sub-trees of now: a keyspace may have been cleared
    /// since its operations were added.
    fn encode(mut self) -> Result<Vec<u8>> {
        if let Some(refused) = self.refused.take() {
            return Err(refused);
        }
        let mut moved = Vec::new();
        for (inner, tree) in &self.targets {
            if inner.dropped.load(Ordering::Acquire) {
                return Err(Error::KeyspaceDropped(Arc::clone(&inner.name)));
            }
            let now = inner.tree.get().id;
            if now != *tree {
                moved.push((*tree, now));
            }
        }
        if moved.is_empty() {
            return Ok(self.builder.finish());
        }
        let record = self.builder.finish();
        let mut builder = BatchBuilder::with_capacity(record.len());
        let ops = batch::Batch::decode(&record).map(|batch| batch.ops());
        for op in ops.into_iter().flatten() {
            let to = moved.iter().find(|(from, _)| *from == op.tree);
            let tree = to.map_or(op.tree, |(_, now)| *now);
            builder.push(tree, op.kind, op.key(&record), op.value(&record))?;
        }
        Ok(builder.finish())
    }

    /// The number of operations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.builder.count() as usize
    }

    /// Whether there are no operations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Does all operations, or none of them.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a key over 64 KiB, a value over 1 GiB, a batch of 4 GiB or
    /// more, or a keyspace of another database; [`Error::KeyspaceDropped`];
    /// [`Error::Io`] if the log could not be written; [`Error::WritesStopped`].
    pub fn commit(self) -> Result<()> {
        let (core, durability) = (Arc::clone(&self.handle.core), self.durability);
        let operations = self.builder.count();
        core.commit(self.encode()?, operations, durability)
    }

    /// Queues all operations: they are done, together and in the order of the queue, by the next
    /// commit of anyone, at the latest by [`Submitted::finish`]. So callers that submit first and
    /// finish a little later share one write of the log.
    ///
    /// # Errors
    ///
    /// As [`Batch::commit`] for arguments out of bounds; nothing is queued then.
    pub fn submit(self) -> Result<Submitted> {
        let (handle, durability) = (Arc::clone(&self.handle), self.durability);
        let operations = self.builder.count();
        let record = self.encode()?;
        let pending = (operations > 0).then(|| handle.core.submit(record, operations, durability));
        Ok(Submitted { handle, pending })
    }
}

/// A batch that is queued. Dropping it finishes it, whatever comes of it.
#[must_use = "whether it was done is known once it is finished"]
pub struct Submitted {
    handle: Arc<Handle>,
    pending: Option<Arc<Pending>>,
}

impl Submitted {
    /// Sees to it that the batch is committed, together with all that are queued.
    ///
    /// # Errors
    ///
    /// As [`Batch::commit`].
    pub fn finish(mut self) -> Result<()> {
        self.pending.take().map_or(Ok(()), |pending| self.handle.core.finish(&pending))
    }
}

impl Drop for Submitted {
    fn drop(&mut self) {
        if let Some(pending) = self.pending.take() {
            // Whoever wants to know calls `finish`.
            let _ = self.handle.core.finish(&pending);
        }
    }
}

impl fmt::Debug for Submitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submitted").finish_non_exhaustive()
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("len", &self.len())
            .field("durability", &self.durability)
            .finish_non_exhaustive()
    }
}
