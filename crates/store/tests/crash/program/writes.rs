//! The steps that write, and what each promises.

use std::ops::Bound;

use rhumb::{Error, Partitioning, PersistMode};

use super::{
    super::{
        coverage::{COVERAGE, Coverage},
        history::{Change, expires},
        oracle::Effect,
    },
    Program,
};

impl Program {
    pub(super) fn write(&mut self, change: &Change) -> Result<(), Error> {
        let result = match change {
            Change::Put { keyspace, key, value } => match expires(value) {
                None => self.keyspace(*keyspace)?.insert(key, value),
                Some(time) => self.keyspace(*keyspace)?.insert_until(key, value, time),
            },
            Change::Remove { keyspace, key } => self.keyspace(*keyspace)?.remove(key),
            Change::RemoveRange { keyspace, from, to } => {
                self.keyspace(*keyspace)?.remove_range(range(from, to))
            }
        };
        self.finish_write(result, vec![effect_of(change)], self.settings.durability)
    }

    /// Like [`Program::finish`], for a call that writes to the log.
    pub(super) fn finish_write(
        &mut self,
        result: Result<(), Error>,
        effects: Vec<Effect>,
        durability: PersistMode,
    ) -> Result<(), Error> {
        if result.is_ok() && durability != PersistMode::Buffer {
            self.durable_acknowledgements += 1;
        }
        // A write that fails has not happened, unless a sync or the power failed.
        let is_undone = !self.fs.faulted_calls().iter().any(|(kind, _)| kind.is_sync());
        if result.is_err() && is_undone && !self.fs.is_dead() {
            return result;
        }
        self.finish(result, effects, durability)
    }

    pub(super) fn batch(
        &mut self,
        changes: &[Change],
        mode: Option<PersistMode>,
    ) -> Result<(), Error> {
        let mut batch = self.db().batch();
        if let Some(mode) = mode {
            batch = batch.durability(mode);
        }
        for change in changes {
            self.add(&mut batch, change)?;
        }
        let effects = changes.iter().map(effect_of).collect();
        self.finish_write(batch.commit(), effects, mode.unwrap_or(self.settings.durability))
    }

    fn add(&mut self, batch: &mut rhumb::Batch, change: &Change) -> Result<(), Error> {
        match change {
            Change::Put { keyspace, key, value } => {
                let keyspace = self.keyspace(*keyspace)?;
                match expires(value) {
                    None => batch.insert(&keyspace, key, value),
                    Some(time) => batch.insert_until(&keyspace, key, value, time),
                }
            }
            Change::Remove { keyspace, key } => batch.remove(&self.keyspace(*keyspace)?, key),
            Change::RemoveRange { keyspace, from, to } => {
                let keyspace = self.keyspace(*keyspace)?;
                batch.remove_range(&keyspace, range(from, to));
            }
        }
        Ok(())
    }

    pub(super) fn submit(&mut self, batches: &[Vec<Change>]) -> Result<(), Error> {
        type Wait = Box<dyn FnOnce() -> Result<(), Error>>;
        let mut submitted = Vec::new();
        for changes in batches {
            let mut batch = self.db().batch();
            let added = changes.iter().try_for_each(|change| self.add(&mut batch, change));
            let wait: Wait = match added {
                Err(refused) => Box::new(|| Err(refused)),
                Ok(()) if batches.len().is_multiple_of(2) => {
                    let future = batch.commit_async();
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    Box::new(move || runtime.block_on(future))
                }
                Ok(()) => {
                    let submitted = batch.submit();
                    Box::new(|| submitted.and_then(rhumb::Submitted::finish))
                }
            };
            submitted.push((wait, changes));
        }
        let mut all = Ok(());
        for (wait, changes) in submitted {
            let result = wait();
            let effects = changes.iter().map(effect_of).collect();
            all = all.and(self.finish_write(result, effects, self.settings.durability));
        }
        all
    }

    pub(super) fn drop_keyspace(&mut self, keyspace: usize) -> Result<Result<(), String>, Error> {
        let old = self.keyspace(keyspace)?;
        let result = self.db().drop_keyspace(&self.keyspace_name(keyspace));
        self.finish(result, vec![Effect::Empty { keyspace }], PersistMode::SyncAll)?;
        self.keyspaces[keyspace] = None;
        Ok(match old.insert("x", "y") {
            Err(Error::KeyspaceDropped(_)) => Ok(()),
            other => Err(format!("a write to a dropped keyspace returned {other:?}")),
        })
    }

    pub(super) fn drop_partition(&mut self, keyspace: usize, key: &[u8]) -> Result<(), Error> {
        let open = self.keyspace(keyspace)?;
        let (name, there) = (open.partition_of(key), open.partitions());
        // Half of the drops are of two partitions together.
        let next = there.iter().find(|info| info.name > name && key.len() % 2 == 1);
        let names: Vec<&[u8]> = std::iter::once(&*name).chain(next.map(|n| &*n.name)).collect();
        let now = self.oracle.now();
        let is_partitioned = open.options().partitions != Partitioning::None;
        let keys = now[keyspace].keys().filter(|key| names.contains(&&*open.partition_of(key)));
        let effects = keys.map(|key| Effect::Remove { keyspace, key: key.clone() });
        let effects: Vec<Effect> = effects.filter(|_| is_partitioned).collect();
        Coverage::add(&COVERAGE.partitions_dropped, u64::from(!effects.is_empty()));
        // If there is no such partition, nothing is made durable.
        let mode = match there.iter().any(|info| names.contains(&&*info.name)) {
            true => PersistMode::SyncAll,
            false => PersistMode::Buffer,
        };
        self.finish(open.drop_partitions(names), effects, mode)?;
        Ok(())
    }

    pub(super) fn ingest(
        &mut self,
        keyspace: usize,
        entries: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<(), Error> {
        let open = self.keyspace(keyspace)?;
        let effects = entries.iter().map(|(key, value)| Effect::Put {
            keyspace,
            key: key.clone(),
            value: value.clone(),
        });
        let effects = effects.collect();
        let result = open.ingest(entries.iter().map(|(key, value)| (key, value)));
        // An empty ingestion makes nothing durable.
        let is_empty = entries.is_empty();
        let mode = if is_empty { PersistMode::Buffer } else { PersistMode::SyncAll };
        self.finish(result, effects, mode)?;
        Ok(())
    }
}

pub(super) fn effect_of(change: &Change) -> Effect {
    match change.clone() {
        Change::Put { keyspace, key, value } => Effect::Put { keyspace, key, value },
        Change::Remove { keyspace, key } => Effect::Remove { keyspace, key },
        Change::RemoveRange { keyspace, from, to } => Effect::RemoveRange { keyspace, from, to },
    }
}

/// The bounds of a range that has no end if `to` is absent.
pub(super) fn range<'a>(
    from: &'a Vec<u8>,
    to: &'a Option<Vec<u8>>,
) -> (Bound<&'a Vec<u8>>, Bound<&'a Vec<u8>>) {
    (Bound::Included(from), to.as_ref().map_or(Bound::Unbounded, Bound::Excluded))
}
