//! The other end of a stream of changes: a copy of the database takes them, under the same sequence
//! numbers.
//!
//! A replica writes nothing else, so the number of its next write is the position in the stream at
//! which it goes on, after a crash too.

use std::collections::HashMap;

use rhumb_sync::primitive::{Arc, Ordering};

use super::{
    super::{
        Database,
        core::Core,
        keyspace::KeyspaceInner,
        writer::{Pending, WriteState},
    },
    commit::{Commit, Content, TreeName},
};
use crate::{
    error::{Error, Result},
    log::batch::{Batch, BatchBuilder, Encoded},
    options::KeyspaceOptions,
    partition::Router,
    types::{SeqNo, TreeId},
    version::edit::{EventKind, KeyspaceEvent},
};

/// The LSM tree of writes that have no effect: no LSM tree has this number.
const NO_TREE: TreeId = 0;

/// A group of commits takes no further one once it is this large, in bytes: as the groups of
/// writers.
const GROUP_BYTES_MAX: usize = 1 << 20;

impl Database {
    /// Takes commits of the database that this one is a copy of, in their order: each whole or not
    /// at all, with the sequence numbers that it has there. Those that are there already are
    /// skipped, so after a crash the stream may begin anew at any earlier place;
    /// `stats().sequence_number + 1` is where it goes on. Returns the number of commits that were
    /// taken. They are as durable as [`DatabaseBuilder::durability`] says, together with one sync.
    ///
    /// The database must be open as a [replica](crate::DatabaseBuilder::replica).
    ///
    /// [`DatabaseBuilder::durability`]: crate::DatabaseBuilder::durability
    ///
    /// ```
    /// # fn main() -> rhumb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use rhumb::{Database, KeyspaceOptions};
    ///
    /// let db = Database::open(dir.path().join("db"))?;
    /// let users = db.keyspace("users", KeyspaceOptions::default())?;
    /// db.checkpoint(dir.path().join("copy"))?;
    /// users.insert("ada", "1815")?;
    ///
    /// let copy = Database::builder(dir.path().join("copy")).replica(true).open()?;
    /// let mut changes = db.changes(copy.stats().sequence_number + 1)?;
    /// while let Some(commit) = changes.try_next()? {
    ///     copy.apply(&[commit])?;
    /// }
    /// let copied = copy.keyspace("users", KeyspaceOptions::default())?;
    /// assert_eq!(copied.get("ada")?.unwrap(), b"1815");
    /// assert!(copied.insert("grace", "1906").is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if the database is no replica, or a copy of another one than the
    /// commits are of, or has not got what comes before them; [`Error::Lagged`] for an ingestion,
    /// whose entries are not in the stream: begin with another copy. [`Error::Io`],
    /// [`Error::WritesStopped`]. After an error some of the first commits may have been taken.
    pub fn apply(&self, commits: &[Commit]) -> Result<u64> {
        self.core().apply(commits)
    }
}

impl Core {
    fn apply(self: &Arc<Self>, commits: &[Commit]) -> Result<u64> {
        self.shared.check_running()?;
        let source = self.lock_catalog().state.source;
        if !self.shared.options.is_replica || source == 0 {
            let what = "changes are taken by a database that is open as a replica, and this is not";
            return Err(Error::InvalidArgument(what.into()));
        }
        if commits.iter().any(|commit| commit.origin != source) {
            let what = "changes of another database than the one that this is a copy of";
            return Err(Error::InvalidArgument(what.into()));
        }
        let (mut taken, mut rest) = (0, commits);
        while let Some(first) = rest.first() {
            let count = match &first.content {
                Content::Event(event) => {
                    taken += u64::from(self.apply_event(first, event)?);
                    1
                }
                Content::Writes { .. } => {
                    let (count, new) = self.apply_group(rest)?;
                    taken += new;
                    count
                }
            };
            rest = &rest[count..];
        }
        Ok(taken)
    }

    /// Commits the first commits that follow each other without a gap as one group. Returns their
    /// number, and how many of them were not there already.
    fn apply_group(self: &Arc<Self>, commits: &[Commit]) -> Result<(usize, u64)> {
        let mut state = self.lock_write();
        let (mut group, mut bytes, mut count) = (Vec::new(), 0, 0);
        let mut next = state.next_seq;
        for commit in commits {
            let Content::Writes { payload, names } = &commit.content else { break };
            if is_there(commit, next)? {
                count += 1;
                continue;
            }
            if bytes > 0 && (commit.first_seq != next || bytes >= GROUP_BYTES_MAX) {
                break;
            }
            if group.is_empty() {
                state.next_seq = commit.first_seq;
            }
            let record = self.translated(&mut state, payload, names)?;
            bytes += payload.len();
            group.push(Arc::new(record));
            next = commit.last_seq + 1;
            count += 1;
        }
        if !group.is_empty() {
            let result = self.commit_group(&mut state, &group);
            self.shared.health.record_write(group.len(), &result);
            drop(state);
            self.run_inline();
            result?;
        }
        Ok((count, group.len() as u64))
    }

    /// A batch with the LSM trees of this database.
    fn translated(
        &self,
        state: &mut WriteState,
        payload: &[u8],
        names: &HashMap<TreeId, TreeName>,
    ) -> Result<Pending> {
        let mut trees = HashMap::with_capacity(names.len());
        for (tree, name) in names {
            trees.insert(*tree, self.tree_named(state, name)?);
        }
        let mut builder = BatchBuilder::with_capacity(payload.len());
        for op in Batch::built(payload).ops() {
            let tree = trees.get(&op.tree).copied().unwrap_or(NO_TREE);
            builder.push_again(tree, &op, payload)?;
        }
        let count = builder.count();
        let durability = self.shared.options.durability;
        Ok(Pending::new(Encoded::Bytes(builder.finish()), count, durability))
    }

    /// The LSM tree of this name, which is created if it is that of a partition.
    fn tree_named(&self, state: &mut WriteState, name: &TreeName) -> Result<TreeId> {
        let inner = self.keyspace_named(&name.keyspace)?;
        let trees = self.create_partitions_in(state, &inner, &[&name.partition])?;
        Ok(trees.first().map_or(NO_TREE, |tree| tree.id))
    }

    fn keyspace_named(&self, name: &str) -> Result<Arc<KeyspaceInner>> {
        let inner = self.lock_catalog().keyspaces.get(name).cloned();
        inner.ok_or_else(|| {
            let what = format!("changes of the keyspace {name:?}, which the copy does not have");
            Error::InvalidArgument(what.into())
        })
    }

    /// Changes a keyspace as a whole. Returns false if that was done already.
    fn apply_event(self: &Arc<Self>, commit: &Commit, event: &KeyspaceEvent) -> Result<bool> {
        // planted: changes-event-synced
        let mut state = self.lock_to_change()?;
        if is_there(commit, state.next_seq)? {
            return Ok(false);
        }
        state.next_seq = event.seq;
        match &event.what {
            EventKind::Opened { options } => {
                let options = KeyspaceOptions::decode(options).map_err(|found| {
                    let what = format!("options of a keyspace with {found}");
                    Error::Unsupported { path: self.shared.dir.clone(), what }
                })?;
                let router = Router::new(&options.partitions, &self.shared.functions)?;
                self.open_keyspaces_in(&mut state, &[&event.keyspace], &options, &router)?;
                // If it had these options, it has taken no number.
                self.skip_to(&mut state, event.seq);
            }
            EventKind::Dropped => {
                let inner = self.keyspace_named(&event.keyspace)?;
                self.retire_tree(state, &inner, true)?;
            }
            EventKind::Cleared => {
                let inner = self.keyspace_named(&event.keyspace)?;
                self.retire_tree(state, &inner, false)?;
            }
            EventKind::PartitionsDropped => {
                let inner = self.keyspace_named(&event.keyspace)?;
                let names: Vec<&[u8]> = event.gone.iter().map(|(_, name)| &**name).collect();
                if self.drop_partitions_in(state, &inner, &names)? == 0 {
                    // Without one of them it has taken no number.
                    self.skip_to(&mut self.lock_write(), event.seq);
                }
            }
            EventKind::Ingested => {
                return Err(Error::Lagged { wanted: event.seq, oldest: event.seq + 1 });
            }
        }
        Ok(true)
    }
}

impl Core {
    /// Takes the numbers up to `seq`, which no write has.
    fn skip_to(&self, state: &mut WriteState, seq: SeqNo) {
        if state.next_seq <= seq {
            state.next_seq = seq + 1;
            self.writer.visible.store(seq, Ordering::Release);
        }
    }
}

/// Returns true if a commit is there already, where `next` is the number of the next write.
fn is_there(commit: &Commit, next: SeqNo) -> Result<bool> {
    // planted: changes-there
    if commit.last_seq < next {
        return Ok(true);
    }
    // planted: changes-missing
    if commit.first_seq < next || next < commit.after {
        let what = format!(
            "a commit of the numbers {} to {}, which follows number {}, where the next is {next}",
            commit.first_seq,
            commit.last_seq,
            commit.after - 1
        );
        return Err(Error::InvalidArgument(what.into()));
    }
    Ok(false)
}
