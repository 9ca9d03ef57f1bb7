//! Write batches: several operations that happen together or not at all.

use std::{collections::HashMap, fmt, time::SystemTime};

use rhumb_sync::{mapping::release, primitive::Arc};

use super::{
    Handle,
    commit_future::CommitFuture,
    keyspace::{Keyspace, KeyspaceInner},
    transaction::Checked,
    writer::Pending,
};
use crate::{
    error::{Error, Result},
    expiry::{Millis, Stamp, millis_of},
    keys::KeyRange,
    log::batch::{self, BatchBuilder, Encoded, IN_PLACE_BYTES_MIN},
    options::PersistMode,
    partition::Router,
    ranges::span_of,
    tree::Tree,
    types::{Kind, TreeId},
};

/// Operations on any keyspaces of one database that happen together or not at all.
///
/// Later operations win over earlier ones of the same key. Nothing happens before
/// [`Batch::commit`].
pub struct Batch {
    handle: Arc<Handle>,
    builder: BatchBuilder,
    /// The only operation so far, if it inserts a large value, which is not gathered with others.
    single: Option<Encoded>,
    /// The keyspaces that the batch writes to.
    targets: Targets,
    /// The stand-in id of the next partition that must still be created. Stand-ins count down from
    /// the other end of the range of LSM tree ids.
    next_stand_in: TreeId,
    durability: PersistMode,
    refused: Option<Error>,
}

/// The keyspaces that a batch writes to.
#[derive(Default)]
pub(super) struct Targets(Vec<Target>);

/// A keyspace that a batch writes to, with the LSM trees that the operations name.
struct Target {
    inner: Arc<KeyspaceInner>,
    /// The LSM tree of the keyspace.
    tree: TreeId,
    /// The LSM trees of its partitions, by name.
    partitions: HashMap<Box<[u8]>, TreeId>,
}

impl Batch {
    pub(crate) fn new(handle: Arc<Handle>) -> Self {
        let durability = handle.core.shared.options.durability;
        Self {
            handle,
            builder: BatchBuilder::new(),
            single: None,
            targets: Targets::default(),
            next_stand_in: TreeId::MAX,
            durability,
            refused: None,
        }
    }

    /// Sets what the batch survives once it is committed.
    #[must_use]
    pub fn durability(mut self, mode: PersistMode) -> Self {
        self.durability = mode;
        self
    }

    /// Adds an insertion. If an argument is out of bounds, the commit fails.
    pub fn insert(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.insert_parts(keyspace, key, &[value.as_ref()]);
    }

    /// Like [`Batch::insert`], for a value in several consecutive parts, so that the caller need
    /// not join them first.
    pub fn insert_parts(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: &[&[u8]]) {
        match keyspace.end_of_life() {
            None => self.put(keyspace, key.as_ref(), Kind::Value, value),
            Some(at_ms) => self.put_until(keyspace, key.as_ref(), value, at_ms),
        }
    }

    /// Like [`Batch::insert`], for an entry that expires: see [`Keyspace::insert_until`].
    pub fn insert_until(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expires: SystemTime,
    ) {
        self.put_until(keyspace, key.as_ref(), &[value.as_ref()], millis_of(expires));
    }

    /// Adds an insertion with a stamp.
    pub(crate) fn put_until(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        value: &[&[u8]],
        at_ms: Millis,
    ) {
        let stamp = Stamp::new(at_ms).encode();
        let parts: Vec<&[u8]> = std::iter::once(&stamp[..]).chain(value.iter().copied()).collect();
        self.put(keyspace, key, Kind::Expiring, &parts);
    }

    /// Adds an insertion of kind [`Kind::Value`], or of [`Kind::Expiring`] with its stamp first.
    pub(crate) fn put(&mut self, keyspace: &Keyspace, key: &[u8], kind: Kind, value: &[&[u8]]) {
        let Some(tree) = self.target_of(keyspace, key) else { return };
        let len = value.iter().fold(0_usize, |sum, part| sum.saturating_add(part.len()));
        let pushed = if len >= IN_PLACE_BYTES_MIN && self.is_empty() {
            let arena = &self.handle.core.shared.memory.records;
            Encoded::of(arena, tree, kind, key, value).map(|one| self.single = Some(one))
        } else {
            self.gather().and_then(|()| self.builder.put_kind(tree, kind, key, value))
        };
        self.refused = pushed.err();
    }

    /// Like [`Batch::insert`], for a value that the caller gives away. If it has 32 MiB or more and
    /// stays the only operation of the batch, it is not copied: see [`Keyspace::insert_owned`]. Its
    /// bytes are moved within the vector, to make room for the key and some bytes before it.
    pub fn insert_owned(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: Vec<u8>) {
        let is_limited = keyspace.end_of_life().is_some();
        if is_limited || value.len() < IN_PLACE_BYTES_MIN || !self.is_empty() {
            self.insert(keyspace, key, &value);
            return release(value);
        }
        let key = key.as_ref();
        let Some(tree) = self.target_of(keyspace, key) else { return };
        let owned = Encoded::of_owned(&self.handle.core.shared.memory.records, tree, key, value);
        self.refused = owned.map(|one| self.single = Some(one)).err();
    }

    /// Adds a removal. Removing an absent key is not an error.
    pub fn remove(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) {
        let Some(tree) = self.target_of(keyspace, key.as_ref()) else { return };
        let pushed = self.gather().and_then(|()| self.builder.remove(tree, key.as_ref()));
        self.refused = pushed.err();
    }

    /// Adds a removal of all keys in `range`. This is one operation whatever the range holds; in a
    /// keyspace with partitions, it is one for each partition that the range reaches. Later
    /// operations are not affected. A range without keys is not an error; a bound over 64 KiB fails
    /// the commit.
    pub fn remove_range(&mut self, keyspace: &Keyspace, range: impl KeyRange) {
        if self.refused.is_some() {
            return;
        }
        let (from, to) = (range.low(), range.high());
        let pushed = span_of(from, to).and_then(|span| {
            let Some((from, to)) = span else { return Ok(()) };
            let trees = self.range_targets(keyspace, &from, to.as_deref())?;
            self.gather()?;
            let mut trees = trees.into_iter();
            trees.try_for_each(|tree| self.builder.remove_range(tree, &from, to.as_deref()))
        });
        self.refused = pushed.err();
    }

    /// The LSM tree that an operation on `key` names; `None` if the batch is refused.
    fn target_of(&mut self, keyspace: &Keyspace, key: &[u8]) -> Option<TreeId> {
        if self.refused.is_some() {
            return None;
        }
        let target = self.target(keyspace, key);
        target.map_err(|error| self.refused = Some(error)).ok()
    }

    /// Moves all operations so far into the builder, because another one follows.
    fn gather(&mut self) -> Result<()> {
        let Some(single) = self.single.take() else { return Ok(()) };
        copy_again(single.bytes(), &mut self.builder, |tree| tree)
    }

    /// The index of a keyspace among those written to.
    fn place(&mut self, keyspace: &Keyspace) -> Result<usize> {
        keyspace.check_is_of(&self.handle)?;
        let inner = &keyspace.inner;
        let targets = &mut self.targets.0;
        let known = targets.iter().position(|target| Arc::ptr_eq(&target.inner, inner));
        if let Some(at) = known {
            return Ok(at);
        }
        inner.check_live()?;
        let (inner, tree) = (Arc::clone(inner), inner.tree.get().id);
        targets.push(Target { inner, tree, partitions: HashMap::new() });
        Ok(targets.len() - 1)
    }

    /// The LSM trees that a removal of a range names: existing partitions, and those that the batch
    /// creates.
    fn range_targets(
        &mut self,
        keyspace: &Keyspace,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> Result<Vec<TreeId>> {
        let at = self.place(keyspace)?;
        let target = &mut self.targets.0[at];
        let router = &keyspace.inner.router;
        if !router.has_partitions() {
            return Ok(vec![target.tree]);
        }
        let (first, last) = match router.is_ordered() {
            true => (router.name_of(from), to.map(|to| router.name_of(to))),
            false => Default::default(),
        };
        let is_inside = |name: &[u8]| last.as_deref().is_none_or(|last| name <= last);
        let map = keyspace.inner.tree.get().partition_map();
        let mut place = map.at_or_after(&first);
        while let Some(tree) = map.at(place).filter(|tree| is_inside(&tree.name)) {
            target.partitions.entry(tree.name.clone()).or_insert(tree.id);
            place = map.after(place);
        }
        let known = target.partitions.iter();
        let inside = known.filter(|(name, _)| ***name >= *first && is_inside(name));
        let mut trees: Vec<TreeId> = inside.map(|(_, tree)| *tree).collect();
        trees.sort_unstable();
        Ok(trees)
    }

    /// The LSM tree that an operation on `key` names.
    fn target(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<TreeId> {
        let at = self.place(keyspace)?;
        let (inner, target) = (&keyspace.inner, &mut self.targets.0[at]);
        if !inner.router.has_partitions() {
            return Ok(target.tree);
        }
        let name = inner.router.name_of(key);
        if let Some(tree) = target.partitions.get(&*name) {
            return Ok(*tree);
        }
        Router::check_name(&name)?;
        let tree = inner.tree_of(key).unwrap_or_else(|| {
            self.next_stand_in -= 1;
            self.next_stand_in + 1
        });
        target.partitions.insert(name.into(), tree);
        Ok(tree)
    }

    /// The encoded operations, for the LSM trees of now: a keyspace may have been cleared, or a
    /// partition dropped, since its operations were added. Missing partitions are created.
    fn encode(self) -> Result<Encoded> {
        let core = Arc::clone(&self.handle.core);
        let (record, targets) = self.into_parts()?;
        let moved =
            targets.moved(&mut |inner, names| core.create_partitions(inner, names).map(Some))?;
        with_trees(record, &moved.unwrap_or_default())
    }

    /// The operations as they were added, and the keyspaces that they write to.
    fn into_parts(self) -> Result<(Encoded, Targets)> {
        self.handle.core.shared.check_takes_writes()?;
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        let record = self.single.unwrap_or_else(|| Encoded::Bytes(self.builder.finish()));
        Ok((record, self.targets))
    }

    /// The batch for the queue, without taking the write lock. A batch that needs partitions which
    /// do not exist is encoded by the thread that commits it.
    fn into_pending(self) -> Result<Pending> {
        let (operations, durability) = (self.operations(), self.durability);
        let (record, targets) = self.into_parts()?;
        let Some(moved) = targets.moved(&mut |_, _| Ok(None))? else {
            let mut pending = Pending::new(record, operations, durability);
            pending.deferred = Some(Box::new(targets));
            return Ok(pending);
        };
        Ok(Pending::new(with_trees(record, &moved)?, operations, durability))
    }

    /// The number of operations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operations() as usize
    }

    fn operations(&self) -> u32 {
        self.builder.count() + u32::from(self.single.is_some())
    }

    /// Returns true if there are no operations.
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
        let operations = self.operations();
        core.commit(self.encode()?, operations, durability)
    }

    /// Like [`Batch::commit`], for callers that must not block a thread. The batch is queued by the
    /// call itself, so batches commit in the order of the calls. A thread of the engine commits
    /// what is queued, with one sync for all, or another writer does so first. The future has no
    /// need to be polled, and dropping it only gives up the result: see [`CommitFuture`].
    ///
    /// Takes O(bytes of the batch), for the copy that [`Batch::commit`] makes too. What is queued
    /// is in memory until it is committed, and nothing here holds callers back while the disk is
    /// slow: await some of the futures before queueing more.
    ///
    /// # Errors
    ///
    /// Through the future, as [`Batch::commit`].
    ///
    /// ```
    /// # fn main() -> rhumb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = rhumb::Database::builder(dir.path().join("db")).open()?;
    /// # let users = db.keyspace("users", rhumb::KeyspaceOptions::default())?;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let mut batch = db.batch().durability(rhumb::PersistMode::SyncData);
    /// batch.insert(&users, "ada", "1815");
    /// batch.remove(&users, "charles");
    /// batch.commit_async().await?;
    /// assert_eq!(users.get("ada")?.unwrap(), b"1815");
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub fn commit_async(self) -> CommitFuture {
        let handle = Arc::clone(&self.handle);
        CommitFuture::of(&handle.core, self.into_pending())
    }

    /// As [`Batch::commit`], unless what the batch depends on has changed.
    pub(super) fn commit_checked(self, checked: Checked) -> Result<()> {
        let (core, durability) = (Arc::clone(&self.handle.core), self.durability);
        let operations = self.operations();
        let record = self.encode()?;
        let mut pending = Pending::new(record, operations, durability);
        pending.checked = Some(Box::new(checked));
        core.finish(&core.enqueue(pending))
    }

    /// Queues all operations. The next commit of any thread does them, together and in the order of
    /// the queue, at the latest [`Submitted::finish`]. So callers that submit first and finish a
    /// little later share one write of the log.
    ///
    /// # Errors
    ///
    /// As [`Batch::commit`] for arguments out of bounds; then nothing is queued.
    pub fn submit(self) -> Result<Submitted> {
        let (handle, durability) = (Arc::clone(&self.handle), self.durability);
        let operations = self.operations();
        let record = self.encode()?;
        let submit = || handle.core.submit(record, operations, durability);
        let pending = (operations > 0).then(submit);
        Ok(Submitted { handle, pending })
    }
}

/// Returns the LSM trees of the partitions of these names, or `None` if it may not create them.
type CreatePartitions<'c> =
    dyn FnMut(&KeyspaceInner, &[&[u8]]) -> Result<Option<Vec<Arc<Tree>>>> + 'c;

impl Targets {
    /// The LSM trees of now that take the place of those that the operations name. `create` returns
    /// the LSM trees of partitions, or `None` if it may not create them; then so does this.
    pub(super) fn moved(
        &self,
        create: &mut CreatePartitions<'_>,
    ) -> Result<Option<HashMap<TreeId, TreeId>>> {
        let mut moved = HashMap::new();
        for target in &self.0 {
            target.inner.check_live()?;
            let root = target.inner.tree.get();
            if root.partitions.is_none() {
                moved.extend((root.id != target.tree).then_some((target.tree, root.id)));
                continue;
            }
            let map = root.partition_map();
            let is_same = |name: &[u8], tree| map.get(name).is_some_and(|now| now.id == tree);
            let others = target.partitions.iter().filter(|(name, tree)| !is_same(name, **tree));
            let (names, trees): (Vec<&[u8]>, Vec<TreeId>) =
                others.map(|(name, tree)| (&**name, *tree)).unzip();
            if !names.is_empty() {
                let Some(now) = create(&target.inner, &names)? else { return Ok(None) };
                moved.extend(trees.into_iter().zip(now.iter().map(|tree| tree.id)));
            }
        }
        Ok(Some(moved))
    }
}

/// `record` with its operations on the LSM trees that `moved` has for theirs.
pub(super) fn with_trees(record: Encoded, moved: &HashMap<TreeId, TreeId>) -> Result<Encoded> {
    if moved.is_empty() {
        return Ok(record);
    }
    let mut builder = BatchBuilder::with_capacity(record.bytes().len());
    copy_again(record.bytes(), &mut builder, |tree| moved.get(&tree).copied().unwrap_or(tree))?;
    Ok(Encoded::Bytes(builder.finish()))
}

/// Adds the operations of a payload that was built here, for the LSM trees that `tree_of` gives.
fn copy_again(
    payload: &[u8],
    builder: &mut BatchBuilder,
    tree_of: impl Fn(TreeId) -> TreeId,
) -> Result<()> {
    let decoded = batch::Batch::decode(payload);
    let decoded = decoded.map_err(|fault| {
        Error::Internal(format!("a batch is not as it was built: {}", fault.expected).into())
    })?;
    decoded.ops().try_for_each(|op| builder.push_again(tree_of(op.tree), &op, payload))
}

/// A batch that is queued. Dropping it finishes it and ignores the result.
#[must_use = "whether it was done is known once it is finished"]
pub struct Submitted {
    handle: Arc<Handle>,
    pending: Option<Arc<Pending>>,
}

impl Submitted {
    /// Commits the batch, together with all that are queued, unless that has been done already.
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
            // A caller that needs the result calls `finish`.
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
