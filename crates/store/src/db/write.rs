//! The write path: group commit into the log, then into the memtable.
//!
//! A writer queues its batch and takes the write lock. The thread that gets the lock first commits
//! everything that is queued as one log record with at most one sync. The others find their batch
//! done when they get the lock. A group's operations become visible together, once all are in the
//! memtable.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use rhumb_sync::{
    primitive::{Arc, Mutex},
    record::{Record, Records},
};

use super::{core::Core, tap::Taps};
use crate::{
    error::{Error, Result},
    log::{
        LogWriter, SegmentSync,
        batch::{Batch, Encoded},
    },
    memtable::{LogFloor, MemView, Memtable},
    options::{PersistMode, SEALED_MAX},
    types::{SEQ_END, SeqNo},
};

/// A group takes no further batch once it is this large, in bytes.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// Writers are slowed in steps of this length, so that the clock's granularity does not matter.
const DELAY_STEP: Duration = Duration::from_micros(500);

/// The state that the write lock protects.
pub(crate) struct WriteState {
    /// Takes the records.
    pub(crate) log: LogWriter,
    /// Writers of older segments that memtables still need, oldest first: a sync includes them.
    pub(crate) sealed_logs: Vec<LogWriter>,
    /// The sequence number of the next operation.
    pub(crate) next_seq: SeqNo,
    /// The allocator of the memtables' records.
    pub(crate) records: Records,
    /// The taps that follow the writes.
    pub(crate) taps: Taps,
}

/// A batch on its way through the queue.
pub(crate) struct Pending {
    /// Taken by the commit.
    record: Mutex<Option<Encoded>>,
    bytes: usize,
    operations: u32,
    durability: PersistMode,
    result: Mutex<Option<Result<()>>>,
}

impl Pending {
    pub(super) fn new(record: Encoded, operations: u32, durability: PersistMode) -> Self {
        let bytes = record.bytes().len();
        let (record, result) = (Mutex::new(Some(record)), Mutex::new(None));
        Self { record, bytes, operations, durability, result }
    }
}

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
        let bytes = record.bytes().len();
        let refused = self.check_writable().err();
        let is_queued = refused.is_none();
        let pending = Arc::new(Pending::new(record, operations, durability));
        *pending.result.lock() = refused.map(Err);
        if is_queued {
            self.delay_writer(bytes);
            self.queue.lock().push(Arc::clone(&pending));
        }
        pending
    }

    /// Commits a queued batch, unless that was done already, and takes its result.
    pub(crate) fn finish(&self, pending: &Pending) -> Result<()> {
        // The result stays there: without it, the batch would look as if it had got none.
        if let Some(result) = pending.result.lock().clone() {
            return result;
        }
        // The parent commits what was queued before a fork.
        self.check_process()?;
        let mut state = self.lock_write();
        if pending.result.lock().is_none() {
            self.commit_queued(&mut state);
        }
        drop(state);
        self.run_inline();
        // A batch is in the queue until it is done, and any thread that takes it from there gives
        // it a result.
        let result = pending.result.lock().clone();
        result.unwrap_or_else(|| {
            let lost = Error::Internal("a batch is neither queued nor done".into());
            self.stop(&lost);
            Err(lost)
        })
    }

    /// Commits all batches queued so far; their owners take the results.
    pub(crate) fn commit_submitted(&self) {
        if self.process.is_here() {
            self.commit_queued(&mut self.lock_write());
            self.run_inline();
        }
    }

    /// Commits everything queued, in groups.
    pub(super) fn commit_queued(&self, state: &mut WriteState) {
        let taken = Taken { core: self, queued: std::mem::take(&mut *self.queue.lock()) };
        self.counters.note_writers(taken.queued.len());
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
            let result = self.commit_group(state, group);
            self.health.note_write(group.len(), &result);
            for pending in group {
                *pending.result.lock() = Some(result.clone());
            }
            rest = others;
        }
    }

    pub(super) fn commit_group(
        &self,
        state: &mut WriteState,
        group: &[Arc<Pending>],
    ) -> Result<()> {
        self.check_running()?;
        self.make_room(state)?;
        let first_seq = state.next_seq;
        let operations: u64 = group.iter().map(|pending| u64::from(pending.operations)).sum();
        if operations > SEQ_END.saturating_sub(first_seq) {
            return Err(Error::InvalidArgument("all numbers of writes are used up".into()));
        }
        let records = number_records(group, first_seq)?;
        state.taps.prepare(records.iter().map(Encoded::bytes));
        self.log_records(state, records.iter().map(Encoded::bytes))?;
        let seq = first_seq + operations;
        // The sequence numbers are used up even if the sync fails: the record may be replayed.
        state.next_seq = seq;
        let durability = group.iter().map(|p| p.durability).max().unwrap_or_default();
        if durability != PersistMode::Buffer {
            self.sync_logs(state, durability)?;
        }
        let memtable = Arc::clone(&self.mem.get().active);
        let mut next = first_seq;
        for (mut encoded, pending) in records.into_iter().zip(group) {
            let record = encoded.keep_in(&mut state.records);
            // Taps come before the memtable, which gets read at once. A tap that shows its copy to
            // other readers refuses to from here on, so that no reader finds the old value after
            // the new one.
            state.taps.apply(&record);
            next = insert_record(&memtable, &record, next);
            // The thread that allocated the bytes frees them.
            *pending.record.lock() = Some(encoded);
        }
        if next != seq {
            let cause = Error::Internal("a group of writes has lost operations".into());
            self.stop(&cause);
            return Err(cause);
        }
        self.counters.written_entries.fetch_add(seq - first_seq, Ordering::Relaxed);
        self.visible.store(seq - 1, Ordering::Release);
        state.taps.publish(seq - 1);
        Ok(())
    }

    /// Hands the records to the log with one call of the operating system.
    pub(super) fn log_records<'r>(
        &self,
        state: &mut WriteState,
        mut records: impl Iterator<Item = &'r [u8]>,
    ) -> Result<()> {
        if state.log.is_closed() {
            // A failed write could not be cut off; the next segment's header voids it.
            self.new_segment(state)?;
        }
        records.try_for_each(|record| state.log.stage(&[record]).map(drop))?;
        state.log.commit()
    }

    /// Begins a new log segment after the present one. Returns its beginning.
    fn new_segment(&self, state: &mut WriteState) -> Result<LogFloor> {
        self.check_files(state)?;
        let id = self.new_file_id();
        let next = state.log.rotate(id)?;
        state.sealed_logs.push(std::mem::replace(&mut state.log, next));
        self.give_up_logs(state);
        let lsn = state.log.header().base;
        Ok(LogFloor { segment: id, lsn })
    }

    /// Hands segments that no memtable needs any more to the next [`Core::reclaim`], which removes
    /// them.
    pub(crate) fn give_up_logs(&self, state: &mut WriteState) {
        let old = self.take_old_logs(state);
        self.old_logs.lock().extend(old);
    }

    /// Takes out the writers of segments that no memtable needs any more.
    pub(crate) fn take_old_logs(&self, state: &mut WriteState) -> Vec<LogWriter> {
        let floor = self.log_floor.load(Ordering::Acquire);
        let (old, kept) = std::mem::take(&mut state.sealed_logs)
            .into_iter()
            .partition(|log| log.header().id < floor);
        state.sealed_logs = kept;
        // The manifest durably says that nothing before the floor is needed.
        let first = state.sealed_logs.first_mut().unwrap_or(&mut state.log);
        if first.header().id == floor {
            first.note_durable(first.header().base);
        }
        old
    }

    /// Forces everything logged so far to the disk.
    pub(crate) fn sync_logs(&self, state: &mut WriteState, mode: PersistMode) -> Result<()> {
        let all = mode == PersistMode::SyncAll;
        let mut durable = 0;
        self.counters.log_syncs.fetch_add(1, Ordering::Relaxed);
        for log in state.sealed_logs.iter_mut().chain(std::iter::once(&mut state.log)) {
            log.note_durable(durable);
            match log.sync(all) {
                Ok(lsn) => durable = lsn,
                Err(cause) => {
                    self.health.note_failed_sync();
                    // The contents of the disk are now unknown: nothing may be acknowledged after
                    // this.
                    self.stop(&cause);
                    return Err(cause);
                }
            }
        }
        self.check_files(state)
    }

    /// Stops writes if the lock or a segment of the log is no longer found under its name. Appended
    /// records would be acknowledged and never seen again, or another process may write here, too.
    fn check_files(&self, state: &WriteState) -> Result<()> {
        let mut logs = state.sealed_logs.iter().chain(std::iter::once(&state.log));
        let outcome = self.check_lock().and_then(|()| logs.try_for_each(LogWriter::check_name));
        outcome.inspect_err(|cause| self.stop(cause))
    }

    /// Makes everything written so far survive the failures that `mode` names. Writers go on during
    /// the sync.
    pub(crate) fn persist(&self, mode: PersistMode) -> Result<()> {
        self.check_writable()?;
        let mut state = self.lock_write();
        self.check_running()?;
        if mode == PersistMode::Buffer {
            return Ok(());
        }
        self.give_up_logs(&mut state);
        let all = mode == PersistMode::SyncAll;
        let logs = state.sealed_logs.iter().chain(std::iter::once(&state.log));
        let syncs: Option<Vec<SegmentSync>> =
            logs.map(|log| log.begin_sync(all)).collect::<Result<_>>()?;
        let Some(syncs) = syncs else { return self.sync_logs(&mut state, mode) };
        drop(state);
        self.counters.log_syncs.fetch_add(1, Ordering::Relaxed);
        let mut outcomes = Vec::with_capacity(syncs.len());
        for sync in syncs {
            let outcome = sync.run();
            if let Err(cause) = &outcome {
                self.health.note_failed_sync();
                // As in `sync_logs`, and before the write lock is taken again.
                self.stop(cause);
            }
            let failed = outcome.is_err();
            outcomes.push((sync, outcome));
            if failed {
                break;
            }
        }
        self.note_syncs(&mut self.lock_write(), &outcomes)
    }

    /// Records the results of syncs that were done without the lock. A segment that has gone
    /// meanwhile is not needed.
    fn note_syncs(
        &self,
        state: &mut WriteState,
        outcomes: &[(SegmentSync, Result<()>)],
    ) -> Result<()> {
        let mut durable = 0;
        for log in state.sealed_logs.iter_mut().chain(std::iter::once(&mut state.log)) {
            log.note_durable(durable);
            let Some((sync, outcome)) = outcomes.iter().find(|(s, _)| s.id == log.header().id)
            else {
                // This segment was begun meanwhile: the next sync covers it.
                break;
            };
            durable = log.end_sync(sync, outcome.clone())?;
        }
        outcomes.iter().try_for_each(|(_, outcome)| outcome.clone())?;
        self.check_files(state)
    }

    /// Makes sure that the active memtable takes another group.
    fn make_room(&self, state: &mut WriteState) -> Result<()> {
        if (self.mem.get().active.bytes() as u64) < self.options.memtable_bytes {
            return Ok(());
        }
        self.wait_for_sealed(SEALED_MAX - 1)?;
        self.seal(state)
    }

    /// Waits until at most `most` memtables wait for their flush.
    pub(crate) fn wait_for_sealed(&self, most: usize) -> Result<()> {
        if self.mem.get().sealed.len() <= most {
            return Ok(());
        }
        let began = Instant::now();
        let result = self.work.wait_until(self, || self.mem.get().sealed.len() <= most);
        self.counters.note_stall(began.elapsed());
        result
    }

    /// Seals the active memtable and begins a new one with a new log segment.
    pub(crate) fn seal(&self, state: &mut WriteState) -> Result<()> {
        let floor = self.new_segment(state)?;
        let before = Arc::clone(&self.mem.get().active);
        // Usually the most memory is mapped when a memtable is full.
        self.record_mapped();
        let active = Arc::new(before.successor(Some(floor), self.options.memtable_bytes));
        self.change_mem(|view| MemView {
            active,
            sealed: std::iter::once(&view.active).chain(&view.sealed).cloned().collect(),
        });
        // The pool also gives the cache less room: evicting takes longer than a writer should wait.
        self.work.wake();
        Ok(())
    }

    /// Slows a writer down while compactions lag, in proportion to what it writes.
    pub(super) fn delay_writer(&self, bytes: usize) {
        let ns_per_kib = self.work.delay_ns_per_kib(self.memory_pressure());
        if ns_per_kib == 0 {
            return;
        }
        let delay = Duration::from_nanos(ns_per_kib.saturating_mul(bytes as u64) / 1024);
        if let Some(due) = self.work.owe_delay(delay, DELAY_STEP) {
            let began = Instant::now();
            self.clock.sleep(due);
            self.counters.note_delay(began.elapsed());
        }
    }

    /// The fill of the memtables: 0 while fewer than the largest number wait for their flush, 1
    /// when all are full.
    fn memory_pressure(&self) -> f64 {
        let guard = rhumb_sync::epoch::pin();
        let view = self.mem.load(&guard);
        if view.sealed.len() < SEALED_MAX {
            return 0.0;
        }
        (view.active.bytes() as f64 / self.options.memtable_bytes as f64).min(1.0)
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
        for pending in &self.queued {
            let mut result = pending.result.lock();
            if result.is_none() {
                *result = Some(Err(Error::WritesStopped(Arc::new(self.core.stop_after_panic()))));
            }
        }
    }
}

/// Takes the records of a group, and numbers them from `seq` on.
fn number_records(group: &[Arc<Pending>], mut seq: SeqNo) -> Result<Vec<Encoded>> {
    let number = |pending: &Arc<Pending>| {
        let taken = || Error::Internal("the record of a batch is not the commit's own".into());
        let mut record = pending.record.lock().take().ok_or_else(taken)?;
        record.set_first_seq(seq)?;
        seq += SeqNo::from(pending.operations);
        Ok(record)
    };
    group.iter().map(number).collect()
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
        let record = Encoded::of(&core.memory.records, tree, Kind::Value, b"a", &[b"1"]).unwrap();
        let pending = core.submit(record, 1, PersistMode::Buffer);
        let taken = Taken { core, queued: std::mem::take(&mut *core.queue.lock()) };
        let result = core.commit_group(&mut core.lock_write(), &taken.queued);
        *pending.result.lock() = Some(result);
        // The owner does not wait for the thread that has committed its batch.
        core.finish(&pending).unwrap();
        drop(taken);
        keyspace.insert("b", "2").unwrap();
        assert_eq!(keyspace.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    }
}
