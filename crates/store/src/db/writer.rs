//! The writer's state: the queue of batches, the log, and the number of the last visible write.
//!
//! This file keeps the log's segments; `write.rs` is the way of a batch through queue, log and
//! memtable.

use std::{
    task::{Context, Poll, Waker},
    time::Instant,
};

use rhumb_sync::{
    primitive::{Arc, AtomicU64, Mutex, Ordering},
    record::Records,
};

use super::{
    batch::Targets,
    changes::{Keeper, Signal},
    committer::Committer,
    shared::Shared,
    tap::Taps,
    transaction::{Checked, History, Transactions},
};
use crate::{
    error::Result,
    events::Event,
    log::{LogWriter, SegmentSync, batch::Encoded},
    memtable::LogFloor,
    options::PersistMode,
    types::{FileId, SeqNo},
};

/// What all writers of a database share.
pub(crate) struct Writer {
    /// The write lock, and what it protects.
    pub(crate) state: Mutex<WriteState>,
    /// Batches that the next commit takes.
    pub(crate) queue: Mutex<Vec<Arc<Pending>>>,
    /// The thread that commits for callers that do not wait.
    pub(crate) committer: Committer,
    /// The open transactions.
    pub(crate) transactions: Transactions,
    /// Every write up to this sequence number is in the memtables.
    pub(crate) visible: AtomicU64,
    /// Log segments older than this are no longer needed.
    pub(crate) log_floor: AtomicU64,
    /// Logs that are no longer needed but not yet removed.
    pub(crate) old_logs: Mutex<Vec<LogWriter>>,
    /// Everything before this place of the log is durable.
    pub(crate) durable_lsn: AtomicU64,
    /// The segment that takes the records.
    pub(crate) active_segment: AtomicU64,
    /// What is kept of the log for streams of changes.
    pub(crate) keeper: Keeper,
}

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
    /// What was committed, for the checks of open transactions.
    pub(crate) history: History,
    /// The streams of changes that wait for more.
    pub(crate) waiting: Vec<Arc<Signal>>,
}

/// A batch on its way through the queue.
pub(crate) struct Pending {
    /// Taken by the commit.
    pub(super) record: Mutex<Option<Encoded>>,
    pub(super) bytes: usize,
    pub(super) operations: u32,
    pub(super) durability: PersistMode,
    /// What must not have changed, if it is a transaction.
    pub(super) checked: Option<Box<Checked>>,
    /// The keyspaces of a batch that needs partitions which may not exist yet: the commit creates
    /// them, and encodes the record for them.
    pub(super) deferred: Option<Box<Targets>>,
    outcome: Mutex<Outcome>,
}

/// The state of a batch as its owner sees it.
enum Outcome {
    /// Queued or being committed; the waker is that of a future.
    Waiting(Option<Waker>),
    Done(Result<()>),
}

impl Pending {
    pub(super) fn new(record: Encoded, operations: u32, durability: PersistMode) -> Self {
        let bytes = record.bytes().len();
        let (record, outcome) = (Mutex::new(Some(record)), Mutex::new(Outcome::Waiting(None)));
        Self { record, bytes, operations, durability, checked: None, deferred: None, outcome }
    }

    /// Returns true if there is nothing to write and nothing to sync.
    pub(super) fn has_nothing_to_do(&self) -> bool {
        self.operations == 0 && self.durability == PersistMode::Buffer
    }

    /// The result; `None` until the batch is done.
    pub(super) fn result(&self) -> Option<Result<()>> {
        match &*self.outcome.lock() {
            Outcome::Waiting(_) => None,
            Outcome::Done(result) => Some(result.clone()),
        }
    }

    /// Returns true if the batch is done.
    pub(super) fn is_done(&self) -> bool {
        matches!(*self.outcome.lock(), Outcome::Done(_))
    }

    /// Sets the result. Returns the waker of the future that waits for it, to be woken without a
    /// lock.
    #[must_use]
    pub(super) fn complete(&self, result: Result<()>) -> Option<Waker> {
        match std::mem::replace(&mut *self.outcome.lock(), Outcome::Done(result)) {
            Outcome::Waiting(waker) => waker,
            Outcome::Done(_) => None,
        }
    }

    /// The result, or the context's waker is woken once there is one.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<Result<()>> {
        let mut outcome = self.outcome.lock();
        match &mut *outcome {
            Outcome::Done(result) => Poll::Ready(result.clone()),
            Outcome::Waiting(Some(waker)) if waker.will_wake(cx.waker()) => Poll::Pending,
            Outcome::Waiting(waker) => {
                let before = waker.replace(cx.waker().clone());
                // A waker's drop is the caller's code.
                drop(outcome);
                drop(before);
                Poll::Pending
            }
        }
    }
}

impl Writer {
    /// A writer that goes on after the write numbered `last_seq`.
    pub(super) fn new(state: WriteState, last_seq: SeqNo, log_floor: FileId) -> Self {
        Self {
            state: Mutex::new(state),
            queue: Mutex::default(),
            committer: Committer::default(),
            transactions: Transactions::default(),
            visible: AtomicU64::new(last_seq),
            log_floor: AtomicU64::new(log_floor),
            old_logs: Mutex::default(),
            durable_lsn: AtomicU64::new(0),
            active_segment: AtomicU64::new(log_floor),
            keeper: Keeper::default(),
        }
    }

    /// The newest sequence number that reads may see.
    #[inline]
    pub(crate) fn visible_seq(&self) -> SeqNo {
        self.visible.load(Ordering::Acquire)
    }

    /// Hands the records to the log with one call of the operating system.
    pub(super) fn log_records<'r>(
        &self,
        shared: &Shared,
        state: &mut WriteState,
        mut records: impl Iterator<Item = &'r [u8]>,
    ) -> Result<()> {
        if state.log.is_closed() {
            // A failed write could not be cut off; the next segment's header voids it.
            self.rotate_log(shared, state)?;
        }
        records.try_for_each(|record| state.log.stage(&[record]).map(drop))?;
        state.log.commit()
    }

    /// Begins a new log segment after the present one. Returns its beginning.
    pub(super) fn rotate_log(&self, shared: &Shared, state: &mut WriteState) -> Result<LogFloor> {
        self.check_files(shared, state)?;
        // planted: changes-segment-synced
        if self.keeper.has_cursors() {
            // Segments that are kept for longer than memtables need them are durable: otherwise
            // what a power cut leaves of them would lack writes that are in tables.
            self.sync_logs(shared, state, PersistMode::SyncData)?;
        }
        let id = shared.new_file_id();
        let next = state.log.rotate(id)?;
        state.sealed_logs.push(std::mem::replace(&mut state.log, next));
        self.active_segment.store(id, Ordering::Release);
        self.release_logs(state);
        let lsn = state.log.header().base;
        Ok(LogFloor { segment: id, lsn })
    }

    /// Hands segments that no memtable needs any more to the next reclaim of the database, which
    /// removes them.
    pub(crate) fn release_logs(&self, state: &mut WriteState) {
        let old = self.take_obsolete_logs(state);
        self.old_logs.lock().extend(old);
    }

    /// Takes out the writers of segments that no memtable needs any more.
    pub(crate) fn take_obsolete_logs(&self, state: &mut WriteState) -> Vec<LogWriter> {
        let floor = self.log_floor.load(Ordering::Acquire);
        let (old, kept) = std::mem::take(&mut state.sealed_logs)
            .into_iter()
            .partition(|log| log.header().id < floor);
        state.sealed_logs = kept;
        // The manifest durably says that nothing before the floor is needed.
        let first = state.sealed_logs.first_mut().unwrap_or(&mut state.log);
        if first.header().id == floor {
            first.record_durable(first.header().base);
        }
        self.note_durable(state);
        old
    }

    /// Tells streams of changes how far the log is durable.
    fn note_durable(&self, state: &mut WriteState) {
        let logs = state.sealed_logs.iter().chain(std::iter::once(&state.log));
        let durable = logs.map(LogWriter::durable_lsn).max().unwrap_or(0);
        if self.durable_lsn.fetch_max(durable, Ordering::AcqRel) < durable {
            self.wake_waiting(state);
        }
    }

    /// Wakes the streams of changes that wait for more. Costs a look at a list if there are none.
    #[inline]
    pub(crate) fn wake_waiting(&self, state: &mut WriteState) {
        // planted: changes-woken
        if !state.waiting.is_empty() {
            let has_thread = self.committer.has_thread();
            for waker in state.waiting.drain(..).filter_map(|signal| signal.notify()) {
                if has_thread {
                    self.committer.wake_later(waker);
                } else {
                    // Without background threads.
                    waker.wake();
                }
            }
        }
    }

    /// Forces everything logged so far to the disk.
    pub(crate) fn sync_logs(
        &self,
        shared: &Shared,
        state: &mut WriteState,
        mode: PersistMode,
    ) -> Result<()> {
        let all = mode == PersistMode::SyncAll;
        let (mut durable, began) = (0, Instant::now());
        shared.counters.log_syncs.fetch_add(1, Ordering::Relaxed);
        for log in state.sealed_logs.iter_mut().chain(std::iter::once(&mut state.log)) {
            log.record_durable(durable);
            match log.sync(all) {
                Ok(lsn) => durable = lsn,
                Err(cause) => {
                    shared.health.count_failed_sync();
                    // The contents of the disk are now unknown: nothing may be acknowledged after
                    // this.
                    shared.stop(&cause);
                    return Err(cause);
                }
            }
        }
        Event::Synced.report(began.elapsed());
        self.note_durable(state);
        self.check_files(shared, state)
    }

    /// Stops writes if the lock or a segment of the log is no longer found under its name. Appended
    /// records would be acknowledged and never seen again, or another process may write here, too.
    fn check_files(&self, shared: &Shared, state: &WriteState) -> Result<()> {
        let mut logs = state.sealed_logs.iter().chain(std::iter::once(&state.log));
        let outcome = shared.check_lock().and_then(|()| logs.try_for_each(LogWriter::check_name));
        outcome.inspect_err(|cause| shared.stop(cause))
    }

    /// Records the results of syncs that were done without the lock. A segment that has gone
    /// meanwhile is not needed.
    pub(super) fn record_syncs(
        &self,
        shared: &Shared,
        state: &mut WriteState,
        outcomes: &[(SegmentSync, Result<()>)],
    ) -> Result<()> {
        let mut durable = 0;
        for log in state.sealed_logs.iter_mut().chain(std::iter::once(&mut state.log)) {
            log.record_durable(durable);
            let Some((sync, outcome)) = outcomes.iter().find(|(s, _)| s.id == log.header().id)
            else {
                // This segment was begun meanwhile: the next sync covers it.
                break;
            };
            durable = log.end_sync(sync, outcome.clone())?;
        }
        self.note_durable(state);
        outcomes.iter().try_for_each(|(_, outcome)| outcome.clone())?;
        self.check_files(shared, state)
    }
}
