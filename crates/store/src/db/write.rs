//! The write path: group commit into the log, then into the memtable.
//!
//! A writer queues its batch and takes the write lock. The thread that gets the lock first commits
//! everything that is queued as one group with at most one sync ([`Core::commit_group`] is the list
//! of its steps). The others find their batch done when they get the lock.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use rhumb_sync::{primitive::Arc, record::Record};

use super::{
    batch::with_trees,
    core::Core,
    writer::{Pending, WriteState},
};
use crate::{
    error::{Error, Result},
    events::Event,
    log::{
        SegmentSync,
        batch::{Batch, Encoded},
    },
    memtable::{MemView, Memtable},
    options::{PersistMode, SEALED_MAX},
    partition::Router,
    types::{SEQ_END, SeqNo},
};

/// A group takes no further batch once it is this large, in bytes.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// Writers are slowed in steps of this length, so that the clock's granularity does not matter.
const DELAY_STEP: Duration = Duration::from_micros(500);

impl Core {
    /// Commits an encoded batch: all of it or nothing.
    pub(crate) fn commit(
        self: &Arc<Self>,
        record: Encoded,
        operations: u32,
        durability: PersistMode,
    ) -> Result<()> {
        if operations == 0 {
            return if durability == PersistMode::Buffer {
                Ok(())
            } else {
                self.persist(durability)
            };
        }
        self.finish(&self.submit(record, operations, durability))
    }

    /// Queues an encoded batch that has operations: the next thread that commits commits it as
    /// well.
    pub(crate) fn submit(
        &self,
        record: Encoded,
        operations: u32,
        durability: PersistMode,
    ) -> Arc<Pending> {
        self.enqueue(Pending::new(record, operations, durability))
    }

    /// Queues a batch.
    pub(super) fn enqueue(&self, pending: Pending) -> Arc<Pending> {
        let pending = Arc::new(pending);
        match self.shared.check_takes_writes() {
            Err(refused) => self.tell(&pending, Err(refused)),
            Ok(()) => {
                self.delay_writer(pending.bytes);
                self.writer.queue.lock().push(Arc::clone(&pending));
            }
        }
        pending
    }

    /// Commits a queued batch, unless that was done already, and takes its result.
    pub(crate) fn finish(&self, pending: &Pending) -> Result<()> {
        // The result stays there: without it, the batch would look as if it had got none.
        if let Some(result) = pending.result() {
            return result;
        }
        // The parent commits what was queued before a fork.
        self.shared.check_process()?;
        let mut state = self.lock_write();
        if !pending.is_done() {
            self.commit_queued(&mut state);
        }
        drop(state);
        self.run_inline();
        // A batch is in the queue until it is done, and any thread that takes it from there gives
        // it a result.
        pending.result().unwrap_or_else(|| {
            let lost = Error::Internal("a batch is neither queued nor done".into());
            self.shared.stop(&lost);
            Err(lost)
        })
    }

    /// Commits all batches queued so far; their owners take the results.
    pub(crate) fn commit_submitted(&self) {
        if self.shared.process.is_here() {
            self.commit_queued(&mut self.lock_write());
            self.run_inline();
        }
    }

    /// Commits everything queued, in groups.
    pub(super) fn commit_queued(&self, state: &mut WriteState) {
        let taken = Taken { core: self, queued: std::mem::take(&mut *self.writer.queue.lock()) };
        self.shared.counters.count_writers(taken.queued.len());
        let mut rest = &taken.queued[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let len = rest
                .iter()
                .take_while(|pending| {
                    let fits = bytes < GROUP_BYTES_MAX;
                    bytes += pending.bytes;
                    fits
                })
                .count();
            let (group, others) = rest.split_at(len);
            if group.iter().any(|pending| pending.checked.is_some() || pending.deferred.is_some()) {
                let ready = self.without_refused(state, group);
                self.commit_and_tell(state, &ready);
            } else {
                self.commit_and_tell(state, group);
            }
            rest = others;
        }
    }

    /// Commits a group and gives each batch its result.
    fn commit_and_tell(&self, state: &mut WriteState, group: &[Arc<Pending>]) {
        if group.is_empty() {
            return;
        }
        let result = self.commit_group(state, group);
        self.shared.health.record_write(group.len(), &result);
        for pending in group {
            self.tell(pending, result.clone());
        }
    }

    /// Gives a batch its result. The future of its owner is woken by the committer: no code of a
    /// caller runs under the write lock.
    fn tell(&self, pending: &Pending, result: Result<()>) {
        if let Some(waker) = pending.complete(result) {
            self.writer.committer.wake_later(waker);
        }
    }

    /// The batches of a group but for those that are refused and get that as their result:
    /// transactions that conflict with what was committed or with those before them in the group,
    /// and batches whose partitions cannot be created.
    fn without_refused(&self, state: &mut WriteState, group: &[Arc<Pending>]) -> Vec<Arc<Pending>> {
        let mut kept: Vec<Arc<Pending>> = Vec::with_capacity(group.len());
        for pending in group {
            if let Err(refused) = self.resolve_deferred(state, pending) {
                self.tell(pending, Err(refused));
                continue;
            }
            let conflict = pending.checked.as_ref().and_then(|checked| {
                let before: Vec<_> = kept.iter().map(|pending| pending.record.lock()).collect();
                let records = before.iter().filter_map(|record| Some(record.as_ref()?.bytes()));
                state.history.conflict(checked, records)
            });
            match conflict {
                None => kept.push(Arc::clone(pending)),
                Some(conflict) => {
                    self.shared.counters.transaction_conflicts.fetch_add(1, Ordering::Relaxed);
                    self.tell(pending, Err(conflict));
                }
            }
        }
        kept
    }

    /// Creates the partitions that a batch still needs, and encodes its record for them.
    fn resolve_deferred(&self, state: &mut WriteState, pending: &Pending) -> Result<()> {
        let Some(targets) = &pending.deferred else { return Ok(()) };
        let moved = targets.moved(&mut |inner, names| {
            names.iter().try_for_each(|name| Router::check_name(name))?;
            self.create_partitions_in(state, inner, names).map(Some)
        })?;
        let mut record = pending.record.lock();
        *record = match record.take() {
            Some(encoded) => Some(with_trees(encoded, &moved.unwrap_or_default())?),
            None => None,
        };
        Ok(())
    }

    /// Commits a group of batches: all of them or none.
    ///
    /// Readers of single keys find an operation from step 5 on, in the order of the operations.
    /// Snapshots and ranges see the whole group from step 6 on, or nothing of it. If step 4 fails,
    /// the batches may come back when the database is reopened, and no write is taken until then.
    pub(super) fn commit_group(
        &self,
        state: &mut WriteState,
        batches: &[Arc<Pending>],
    ) -> Result<()> {
        self.shared.check_running()?;
        // 1. Room: the active memtable takes the group, or the next one does.
        self.make_room(state)?;
        // 2. Numbers: each operation gets its sequence number.
        let group = Group::number(batches, state.next_seq)?;
        // 3. Log: from here on a kill of the process loses nothing.
        self.log_group(state, &group)?;
        // 4. Sync, if a batch of the group requires it. From here on the group is *durable*.
        if group.durability != PersistMode::Buffer {
            self.writer.sync_logs(&self.shared, state, group.durability)?;
        }
        // 5. Memtable.
        let (first_seq, end_seq) = (group.first_seq, group.end_seq);
        self.insert_group(state, group)?;
        // 6. Publication. From here on the group is *visible*.
        self.writer.visible.store(end_seq - 1, Ordering::Release);
        state.taps.publish(end_seq - 1);
        state.history.prune(&self.writer.transactions, end_seq - 1);
        self.writer.wake_waiting(state);
        self.shared.counters.written_entries.fetch_add(end_seq - first_seq, Ordering::Relaxed);
        // 7. The caller gives each batch its result. From then on the group is *acknowledged*.
        Ok(())
    }

    /// Hands the records of a group to the log with one call of the operating system. Their numbers
    /// are then used up, even if the sync fails: the records may be replayed.
    fn log_group(&self, state: &mut WriteState, group: &Group<'_>) -> Result<()> {
        state.taps.prepare(group.logged());
        self.writer.log_records(&self.shared, state, group.logged())?;
        state.next_seq = group.end_seq;
        Ok(())
    }

    /// Inserts the operations of a group into the active memtable.
    fn insert_group(&self, state: &mut WriteState, group: Group<'_>) -> Result<()> {
        let memtable = Arc::clone(&self.memtables.get().active);
        let mut next = group.first_seq;
        for (mut encoded, pending) in group.records.into_iter().zip(group.batches) {
            if pending.operations == 0 {
                continue;
            }
            let record = encoded.keep_in(&mut state.records);
            // Taps come before the memtable, which gets read at once. A tap that shows its copy to
            // other readers refuses to from here on, so that no reader finds the old value after
            // the new one.
            state.taps.apply(&record);
            next = insert_record(&memtable, &record, next);
            // planted: transaction-commit-kept
            state.history.record(&record, next - 1);
            // The thread that allocated the bytes frees them.
            *pending.record.lock() = Some(encoded);
        }
        if next == group.end_seq {
            return Ok(());
        }
        let cause = Error::Internal("a group of writes has lost operations".into());
        self.shared.stop(&cause);
        Err(cause)
    }

    /// Makes everything written so far survive the failures that `mode` names. Writers go on during
    /// the sync.
    pub(crate) fn persist(&self, mode: PersistMode) -> Result<()> {
        self.shared.check_writable()?;
        let mut state = self.lock_write();
        self.shared.check_running()?;
        if mode == PersistMode::Buffer {
            return Ok(());
        }
        self.writer.release_logs(&mut state);
        let all = mode == PersistMode::SyncAll;
        let logs = state.sealed_logs.iter().chain(std::iter::once(&state.log));
        let syncs: Option<Vec<SegmentSync>> =
            logs.map(|log| log.begin_sync(all)).collect::<Result<_>>()?;
        let Some(syncs) = syncs else {
            return self.writer.sync_logs(&self.shared, &mut state, mode);
        };
        drop(state);
        self.shared.counters.log_syncs.fetch_add(1, Ordering::Relaxed);
        let began = Instant::now();
        let mut outcomes = Vec::with_capacity(syncs.len());
        for sync in syncs {
            let outcome = sync.run();
            if let Err(cause) = &outcome {
                self.shared.health.count_failed_sync();
                // As in `sync_logs`, and before the write lock is taken again.
                self.shared.stop(cause);
            }
            let failed = outcome.is_err();
            outcomes.push((sync, outcome));
            if failed {
                break;
            }
        }
        Event::Synced.report(began.elapsed());
        self.writer.record_syncs(&self.shared, &mut self.lock_write(), &outcomes)
    }

    /// Makes sure that the active memtable takes another group.
    fn make_room(&self, state: &mut WriteState) -> Result<()> {
        if (self.memtables.get().active.bytes() as u64) < self.shared.options.memtable_bytes {
            return Ok(());
        }
        self.wait_for_sealed(SEALED_MAX - 1)?;
        self.seal(state)
    }

    /// Waits until at most `most` memtables wait for their flush.
    pub(crate) fn wait_for_sealed(&self, most: usize) -> Result<()> {
        if self.memtables.get().sealed.len() <= most {
            return Ok(());
        }
        let began = Instant::now();
        let result = self.scheduler.wait_until(self, || self.memtables.get().sealed.len() <= most);
        let waited = began.elapsed();
        self.shared.counters.count_stall(waited);
        Event::Stalled.report(waited);
        result
    }

    /// Seals the active memtable and begins a new one with a new log segment.
    pub(crate) fn seal(&self, state: &mut WriteState) -> Result<()> {
        let floor = self.writer.rotate_log(&self.shared, state)?;
        let before = Arc::clone(&self.memtables.get().active);
        // Usually the most memory is mapped when a memtable is full.
        self.shared.record_mapped();
        let active = Arc::new(before.successor(Some(floor), self.shared.options.memtable_bytes));
        self.memtables.change(|view| MemView {
            active,
            sealed: std::iter::once(&view.active).chain(&view.sealed).cloned().collect(),
        });
        // The pool also gives the cache less room: evicting takes longer than a writer should wait.
        self.scheduler.wake();
        Ok(())
    }

    /// Slows a writer down while compactions lag, in proportion to what it writes.
    pub(super) fn delay_writer(&self, bytes: usize) {
        let ns_per_kib = self.scheduler.delay_ns_per_kib(self.memory_pressure());
        if ns_per_kib == 0 {
            return;
        }
        let delay = Duration::from_nanos(ns_per_kib.saturating_mul(bytes as u64) / 1024);
        if let Some(due) = self.scheduler.owe_delay(delay, DELAY_STEP) {
            let began = Instant::now();
            self.shared.clock.sleep(due);
            let slept = began.elapsed();
            self.shared.counters.count_delay(slept);
            Event::Delayed.report(slept);
        }
    }

    /// The fill of the memtables: 0 while fewer than the largest number wait for their flush, 1
    /// when all are full.
    fn memory_pressure(&self) -> f64 {
        let guard = rhumb_sync::epoch::pin();
        let view = self.memtables.load(&guard);
        if view.sealed.len() < SEALED_MAX {
            return 0.0;
        }
        (view.active.bytes() as f64 / self.shared.options.memtable_bytes as f64).min(1.0)
    }
}

/// Batches that are committed together, with the sequence numbers of their operations.
struct Group<'g> {
    batches: &'g [Arc<Pending>],
    /// The record of each batch.
    records: Vec<Encoded>,
    first_seq: SeqNo,
    /// The sequence number after the last operation.
    end_seq: SeqNo,
    /// The strongest durability that a batch of the group requires.
    durability: PersistMode,
}

impl<'g> Group<'g> {
    /// Takes the records of the batches, and numbers their operations from `first_seq` on.
    ///
    /// # Errors
    ///
    /// If the numbers are used up; then no record is taken.
    fn number(batches: &'g [Arc<Pending>], first_seq: SeqNo) -> Result<Self> {
        let operations: u64 = batches.iter().map(|batch| u64::from(batch.operations)).sum();
        if operations > SEQ_END.saturating_sub(first_seq) {
            return Err(Error::Exhausted("all sequence numbers of writes are used up".into()));
        }
        let mut seq = first_seq;
        let mut number = |batch: &Arc<Pending>| {
            let taken = || Error::Internal("the record of a batch is not the commit's own".into());
            let mut record = batch.record.lock().take().ok_or_else(taken)?;
            record.set_first_seq(seq)?;
            seq += SeqNo::from(batch.operations);
            Ok(record)
        };
        let records = batches.iter().map(&mut number).collect::<Result<_>>()?;
        let durability = batches.iter().map(|batch| batch.durability).max().unwrap_or_default();
        Ok(Self { batches, records, first_seq, end_seq: first_seq + operations, durability })
    }

    /// The payloads for the log. A batch without operations, which only waits for a sync, has none.
    fn logged(&self) -> impl Iterator<Item = &[u8]> {
        let all = self.records.iter().zip(self.batches);
        all.filter(|(_, batch)| batch.operations > 0).map(|(record, _)| record.bytes())
    }
}

/// The batches that were taken out of the queue to be committed.
struct Taken<'c> {
    core: &'c Core,
    queued: Vec<Arc<Pending>>,
}

impl Drop for Taken<'_> {
    /// Gives a result to every batch, even if this thread unwinds: the work in progress is then
    /// half done, and no thread may take it for done.
    fn drop(&mut self) {
        for pending in self.queued.iter().filter(|pending| !pending.is_done()) {
            let cause = Arc::new(self.core.shared.stop_after_panic());
            self.core.tell(pending, Err(Error::WritesStopped(cause)));
        }
    }
}

/// Inserts all operations of a record that was built here or checked before, numbered from `seq`.
/// Returns the sequence number after the last.
pub(crate) fn insert_record(memtable: &Memtable, record: &Record, mut seq: SeqNo) -> SeqNo {
    let batch = Batch::built(record);
    for operation in batch.ops() {
        memtable.insert(record, &operation, seq);
        seq += 1;
    }
    memtable.finish_record(record, batch.ops());
    seq
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Database, KeyspaceOptions, types::Kind};

    #[test]
    fn an_owner_that_has_its_result_before_all_have_theirs_stops_no_writes() {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::builder(dir.path()).open().unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        let (core, tree) = (db.core(), keyspace.tree_to_write(b"a").unwrap());
        let record =
            Encoded::of(&core.shared.memory.records, tree, Kind::Value, b"a", &[b"1"]).unwrap();
        let pending = core.submit(record, 1, PersistMode::Buffer);
        let taken = Taken { core, queued: std::mem::take(&mut *core.writer.queue.lock()) };
        let result = core.commit_group(&mut core.lock_write(), &taken.queued);
        core.tell(&pending, result);
        // The owner does not wait for the thread that has committed its batch.
        core.finish(&pending).unwrap();
        drop(taken);
        keyspace.insert("b", "2").unwrap();
        assert_eq!(keyspace.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    }
}
