//! The write path: group commit into the log, then into the memtable.
//!
//! A writer queues its batch and takes the write lock. Whoever gets the lock first commits all
//! that is queued as one log record with at most one sync; the others find their batch done when
//! they get the lock. A group's operations become visible together, once all are in the memtable.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use super::core::{Core, MemView};
use crate::{
    error::{Error, Result},
    log::{
        batch::{self, BatchReader},
        log_path,
        writer::LogWriter,
    },
    memtable::{Memtable, Placement},
    options::{PersistMode, SEALED_MAX},
    sync::primitive::{Arc, Mutex},
    types::{FileId, SeqNo},
};

/// A group takes no further batch once it is this large, in bytes.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// Writers are slowed in steps of this length, so that the clock's granularity does not matter.
const DELAY_STEP: Duration = Duration::from_micros(500);

/// What belongs to the write lock.
pub(crate) struct WriteState {
    /// Takes the records; `None` after a segment was abandoned and no new one could be made.
    pub(crate) log: Option<LogWriter>,
    /// Where and after which segment the next one begins.
    pub(crate) log_end: LogEnd,
    /// Writers of the segments of sealed memtables, oldest first: a sync includes them.
    pub(crate) sealed_logs: Vec<LogWriter>,
    /// Whether the directory entry of the newest segment is durable.
    pub(crate) log_entry_durable: bool,
    pub(crate) next_seq: SeqNo,
}

/// Where the log validly ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogEnd {
    pub(crate) segment: FileId,
    pub(crate) lsn: u64,
}

/// A batch on its way through the queue.
pub(crate) struct Pending {
    record: Mutex<Arc<[u8]>>,
    operations: u32,
    durability: PersistMode,
    result: Mutex<Option<Result<()>>>,
}

impl Core {
    /// Commits an encoded batch: all of it or nothing.
    pub(crate) fn commit(
        self: &Arc<Self>,
        record: Vec<u8>,
        operations: u32,
        durability: PersistMode,
    ) -> Result<()> {
        if operations == 0 {
            return if durability == PersistMode::Buffer { Ok(()) } else { self.persist(durability) };
        }
        let bytes = record.len();
        self.delay_writer(bytes);
        let pending = Arc::new(Pending {
            record: Mutex::new(Arc::from(record)),
            operations,
            durability,
            result: Mutex::new(None),
        });
        self.queue.lock().push(Arc::clone(&pending));
        let mut state = self.write.lock();
        if let Some(result) = pending.result.lock().take() {
            return result;
        }
        let (mine, result) = self.commit_queued(&mut state, &pending);
        debug_assert!(mine, "a writer's batch is in the queue until it is done");
        drop(state);
        self.run_inline();
        result
    }

    /// Commits everything queued, in groups, until `own` is among it.
    fn commit_queued(&self, state: &mut WriteState, own: &Arc<Pending>) -> (bool, Result<()>) {
        let queued = std::mem::take(&mut *self.queue.lock());
        let mut outcome = (false, Ok(()));
        let mut rest = &queued[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let len = rest
                .iter()
                .take_while(|pending| {
                    let fits = bytes < GROUP_BYTES_MAX;
                    bytes += pending.record.lock().len();
                    fits
                })
                .count();
            let (group, others) = rest.split_at(len);
            let result = self.commit_group(state, group);
            for pending in group {
                if Arc::ptr_eq(pending, own) {
                    outcome = (true, result.clone());
                } else {
                    *pending.result.lock() = Some(result.clone());
                }
            }
            rest = others;
        }
        outcome
    }

    fn commit_group(&self, state: &mut WriteState, group: &[Arc<Pending>]) -> Result<()> {
        self.check_running()?;
        self.make_room(state)?;
        let first_seq = state.next_seq;
        let mut seq = first_seq;
        let records: Vec<Arc<[u8]>> = group
            .iter()
            .map(|pending| {
                let mut record = pending.record.lock();
                if let Some(bytes) = Arc::get_mut(&mut record) {
                    batch::set_first_seq(bytes, seq);
                }
                seq += SeqNo::from(pending.operations);
                Arc::clone(&record)
            })
            .collect();
        self.log_records(state, &records)?;
        // The numbers are used up even if the sync fails: the record may be replayed.
        state.next_seq = seq;
        let durability = group.iter().map(|p| p.durability).max().unwrap_or_default();
        if durability != PersistMode::Buffer {
            self.sync_logs(state, durability)?;
        }
        let memtable = Arc::clone(&self.mem.get().active);
        let mut inserted = first_seq;
        for record in &records {
            inserted = insert_record(&memtable, record, inserted);
        }
        self.counters.written_entries.fetch_add(seq - first_seq, Ordering::Relaxed);
        self.visible.store(seq - 1, Ordering::Release);
        Ok(())
    }

    fn log_records(&self, state: &mut WriteState, records: &[Arc<[u8]>]) -> Result<()> {
        if state.log.is_none() {
            self.new_segment(state)?;
        }
        let Some(log) = state.log.as_mut() else { return Ok(()) };
        let parts: Vec<&[u8]> = records.iter().map(|record| &**record).collect();
        match log.append(&parts) {
            Ok(_) => {
                state.log_end.lsn = log.end_lsn();
                Ok(())
            }
            Err(error) => {
                if log.is_broken() {
                    // The next segment's header says where this one validly ends.
                    state.sealed_logs.extend(state.log.take());
                }
                Err(error)
            }
        }
    }

    /// Begins a new log segment after the present one.
    fn new_segment(&self, state: &mut WriteState) -> Result<()> {
        let id = self.new_file_id();
        let end = state.log_end;
        let log = LogWriter::create(
            &*self.fs,
            &self.dir,
            id,
            end.lsn,
            Some((end.segment, end.lsn)),
        )?;
        state.log_end = LogEnd { segment: id, lsn: log.end_lsn() };
        state.sealed_logs.extend(state.log.replace(log));
        state.log_entry_durable = false;
        self.remove_logs(self.take_old_logs(state));
        Ok(())
    }

    /// Takes out the writers of segments that no memtable needs any more.
    pub(crate) fn take_old_logs(&self, state: &mut WriteState) -> Vec<LogWriter> {
        let floor = self.log_floor.load(Ordering::Acquire);
        let (old, kept) =
            std::mem::take(&mut state.sealed_logs).into_iter().partition(|log| log.id() < floor);
        state.sealed_logs = kept;
        old
    }

    /// Removes log segments.
    pub(crate) fn remove_logs(&self, logs: Vec<LogWriter>) {
        for log in logs {
            self.remove_file(&log_path(&self.dir, log.id()));
        }
    }

    /// Forces everything logged so far to the disk.
    fn sync_logs(&self, state: &mut WriteState, mode: PersistMode) -> Result<()> {
        let all = mode == PersistMode::SyncAll;
        let result = (|| {
            for log in &mut state.sealed_logs {
                log.sync(all)?;
            }
            if let Some(log) = &mut state.log {
                log.sync(all)?;
            }
            if !state.log_entry_durable {
                self.sync_dir()?;
                state.log_entry_durable = true;
            }
            Ok(())
        })();
        self.counters.log_syncs.fetch_add(1, Ordering::Relaxed);
        match result {
            Ok(()) => {
                let durable = state.log_end.lsn;
                if let Some(log) = &mut state.log {
                    log.note_durable(durable);
                }
                Ok(())
            }
            Err(cause) => {
                // What the disk holds now is unknown: nothing may be acknowledged after this.
                self.stop(&cause);
                Err(cause)
            }
        }
    }

    /// Makes everything written so far survive what `mode` says.
    pub(crate) fn persist(&self, mode: PersistMode) -> Result<()> {
        let mut state = self.write.lock();
        self.check_running()?;
        if mode == PersistMode::Buffer {
            return Ok(());
        }
        self.sync_logs(&mut state, mode)
    }

    /// Sees to it that the active memtable takes another group.
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
        self.new_segment(state)?;
        let active = Arc::new(Memtable::new(state.log_end.segment));
        self.change_mem(|view| MemView {
            active,
            sealed: std::iter::once(&view.active).chain(&view.sealed).cloned().collect(),
        });
        self.balance_memory();
        self.work.wake();
        Ok(())
    }

    /// Slows a writer down while compactions are behind, in proportion to what it writes.
    fn delay_writer(&self, bytes: usize) {
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

    /// How full the memtables are: 0 while none waits for its flush, 1 when all are full.
    fn memory_pressure(&self) -> f64 {
        let guard = crossbeam_epoch::pin();
        let view = self.mem.load(&guard);
        if view.sealed.len() < SEALED_MAX {
            return 0.0;
        }
        (view.active.bytes() as f64 / self.options.memtable_bytes as f64).min(1.0)
    }
}

/// Inserts all operations of a record, numbered from `seq`; returns the next number.
pub(crate) fn insert_record(memtable: &Memtable, record: &Arc<[u8]>, mut seq: SeqNo) -> SeqNo {
    memtable.charge_record(record);
    for operation in BatchReader::trusted(record) {
        let at = Placement {
            key_start: operation.key_start,
            key_len: operation.key_len,
            value_start: operation.value_start,
            value_len: operation.value_len,
        };
        memtable.insert(record, at, operation.tree, operation.kind, seq);
        seq += 1;
    }
    seq
}

/// Refuses keys and values that are too long, by name.
pub(crate) fn check_entry(key: &[u8], value: &[u8]) -> Result<()> {
    use crate::types::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
    if key.len() > KEY_BYTES_MAX {
        return Err(Error::InvalidArgument(
            format!("a key of {} bytes is longer than {KEY_BYTES_MAX}", key.len()).into(),
        ));
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err(Error::InvalidArgument(
            format!("a value of {} bytes is longer than {VALUE_BYTES_MAX}", value.len()).into(),
        ));
    }
    Ok(())
}
