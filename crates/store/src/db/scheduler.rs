//! The background pool: flushes first, then the most urgent compaction. If there are several
//! threads, one is always left for flushes, so that no writer waits for the end of a compaction.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{Weak, atomic::Ordering},
    thread::JoinHandle,
    time::Duration,
};

use rhumb_sync::primitive::{Arc, AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex};

use super::{core::Core, training::IDLE_ENTRIES_MAX};
use crate::{
    error::{Error, Result},
    events::Event,
    io::priority::yield_to_others,
    options::{L0_TABLES_SLOW, L0_TABLES_SLOWEST},
};

/// The time after which the pool retries after a failure.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// The delay of a writer at full pressure, in nanoseconds per KiB: about 1 MiB/s.
const DELAY_NS_PER_KIB_MAX: f64 = 1_000_000.0;
/// The delay of a writer when pressure begins, in nanoseconds per KiB: about 500 MiB/s.
const DELAY_NS_PER_KIB_MIN: f64 = 2_000.0;

/// The state of the pool.
#[derive(Default)]
pub(crate) struct Scheduler {
    /// Counts the calls for work, so that none is missed between looking for work and waiting.
    calls: Mutex<u64>,
    wanted: Condvar,
    done: Condvar,
    shutdown: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Held by the thread that flushes.
    pub(crate) flushing: Mutex<()>,
    /// The error of the last flush if it failed.
    flush_failure: Mutex<Option<Error>>,
    /// The error of the last compaction if it failed.
    compaction_failure: Mutex<Option<Error>>,
    /// The error of other work of the pool if it panicked. It is never cleared.
    upkeep_failure: Mutex<Option<Error>>,
    /// The number of tables of level 0 in the LSM tree that has the most.
    pub(crate) l0_tables_max: AtomicUsize,
    /// Set when the tables of a LSM tree change, so that small files are looked for.
    pub(crate) tables_changed: AtomicBool,
    owed_ns: AtomicU64,
    /// The number of threads of the pool that compact.
    compacting: AtomicUsize,
    /// The sequence number of the last range tombstone that [`Core::seal_deletes`] looked at.
    pub(crate) weighed_deletes: AtomicU64,
}

impl Scheduler {
    /// Wakes the pool.
    pub(crate) fn wake(&self) {
        *self.calls.lock() += 1;
        self.wanted.notify_all();
    }

    /// Tells waiting threads that a piece of work is done.
    pub(crate) fn tell_done(&self) {
        *self.calls.lock() += 1;
        self.done.notify_all();
        self.wanted.notify_all();
    }

    /// The error with which background work fails at present.
    pub(crate) fn failure(&self) -> Option<Error> {
        let failures = [&self.flush_failure, &self.compaction_failure, &self.upkeep_failure];
        failures.into_iter().find_map(|failure| failure.lock().clone())
    }

    /// Notes that no compaction is due: the tables that an earlier failure was about are gone.
    pub(crate) fn forget_compaction_failure(&self) {
        *self.compaction_failure.lock() = None;
    }

    /// Returns true if the database is being closed.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.shutdown.load(Ordering::Acquire)
    }

    /// Waits until `ready`, or until flushes fail.
    pub(crate) fn wait_until(&self, core: &Core, ready: impl Fn() -> bool) -> Result<()> {
        if core.shared.options.background_threads == 0 {
            let _one = self.flushing.lock();
            while !ready() && core.flush_oldest()? {}
            return Ok(());
        }
        let mut calls = self.calls.lock();
        while !ready() {
            if let Some(failure) = &*self.flush_failure.lock() {
                return Err(failure.clone());
            }
            if self.is_shut_down() {
                return Err(Error::Closed("the database is being closed".into()));
            }
            if core.shared.unwound.load(Ordering::Acquire) {
                core.shared.check_running()?;
            }
            self.wanted.notify_all();
            self.done.wait_for(&mut calls, RETRY_AFTER);
        }
        Ok(())
    }

    /// The delay by which writers are slowed down: none while the pool keeps up, then smoothly
    /// more. `memory` is the share of the memtables' room that is taken, from 0 to 1.
    pub(crate) fn delay_ns_per_kib(&self, memory: f64) -> u64 {
        let tables = self.l0_tables_max.load(Ordering::Relaxed);
        let span = (L0_TABLES_SLOWEST - L0_TABLES_SLOW) as f64;
        let behind = (tables.saturating_sub(L0_TABLES_SLOW) as f64 / span).min(1.0);
        // The first half of the last memtable's room is free of delay; the rest is given out ever
        // more slowly.
        let squeezed = ((memory - 0.5) * 2.0).max(0.0);
        let pressure = behind.max(squeezed);
        if pressure <= 0.0 {
            return 0;
        }
        let ratio = DELAY_NS_PER_KIB_MAX / DELAY_NS_PER_KIB_MIN;
        (DELAY_NS_PER_KIB_MIN * ratio.powf(pressure)) as u64
    }

    /// Adds to the delay that writers owe. Returns the total once it is worth a sleep.
    pub(crate) fn owe_delay(&self, delay: Duration, step: Duration) -> Option<Duration> {
        let delay = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        let owed = self.owed_ns.fetch_add(delay, Ordering::Relaxed).saturating_add(delay);
        if u128::from(owed) < step.as_nanos() {
            return None;
        }
        Some(Duration::from_nanos(self.owed_ns.swap(0, Ordering::Relaxed)))
    }

    /// Starts the pool.
    pub(crate) fn start(&self, core: &Arc<Core>) -> Result<()> {
        let mut threads = self.threads.lock();
        for number in 0..core.shared.options.background_threads {
            let weak = Arc::downgrade(core);
            let niceness = core.shared.options.background_niceness;
            let thread = std::thread::Builder::new()
                .name(format!("rhumb-{number}"))
                .spawn(move || {
                    yield_to_others(niceness);
                    run(&weak);
                })
                .map_err(|e| Error::io("start a thread for", &core.shared.dir, e))?;
            threads.push(thread);
        }
        Ok(())
    }

    /// Ends the pool after the present jobs.
    pub(crate) fn stop(&self) {
        self.shutdown.store(true, Ordering::Release);
        self.wake();
        self.tell_done();
        let own = std::thread::current().id();
        for thread in self.threads.lock().drain(..) {
            // A job may have dropped the last handle, and a thread cannot wait for itself.
            if thread.thread().id() != own {
                let _ = thread.join();
            }
        }
    }
}

/// Counts a thread among those that compact, until it is dropped.
struct Compacting<'w>(&'w AtomicUsize);

impl Drop for Compacting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The loop of each thread of the pool. It holds the database only while it works, so that dropping
/// the last handle closes it.
fn run(weak: &Weak<Core>) {
    // The visible sequence number when the last wait began, if no call for work came meanwhile.
    let mut quiet_since = None;
    loop {
        let Some(core) = weak.upgrade() else { return };
        if core.scheduler.is_shut_down() {
            return;
        }
        let seen = *core.scheduler.calls.lock();
        let was_busy = core.guarded(&core.scheduler.upkeep_failure, || {
            core.shared.balance_memory();
            let was_busy = core.run_job();
            core.reclaim();
            was_busy
        });
        if was_busy {
            quiet_since = None;
            continue;
        }
        let visible = core.writer.visible_seq();
        let is_idle = quiet_since.is_some_and(|before| visible - before <= IDLE_ENTRIES_MAX);
        let improve = || core.train_one() || core.seal_deletes() || core.seal_expired();
        if is_idle && core.guarded(&core.scheduler.upkeep_failure, improve) {
            continue;
        }
        quiet_since = None;
        let mut calls = core.scheduler.calls.lock();
        if *calls == seen && !core.scheduler.is_shut_down() {
            let waited = core.scheduler.wanted.wait_for(&mut calls, RETRY_AFTER);
            quiet_since = waited.timed_out().then_some(visible);
        }
    }
}

impl Core {
    /// Does one piece of background work. Returns true if there was any.
    fn run_job(&self) -> bool {
        // The manifest could not record what would be written.
        if self.shared.unwound.load(Ordering::Acquire) {
            return false;
        }
        self.run_flush() || self.run_compaction()
    }

    fn run_flush(&self) -> bool {
        self.guarded(&self.scheduler.flush_failure, || {
            let Some(_one) = self.scheduler.flushing.try_lock() else { return false };
            let result = self.flush_oldest();
            self.record_outcome(result, &self.scheduler.flush_failure)
        })
    }

    /// Does background work. A panic on a thread of the pool is a failure like others: the thread
    /// goes on, or writers would wait for it forever.
    fn guarded(&self, failure: &Mutex<Option<Error>>, work: impl FnOnce() -> bool) -> bool {
        if self.shared.options.background_threads == 0 {
            return work();
        }
        let outcome = panic::catch_unwind(AssertUnwindSafe(work));
        outcome.unwrap_or_else(|payload| {
            let text = payload.downcast_ref::<&str>().map(ToString::to_string);
            let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
            let text = text.unwrap_or_else(|| "no message".to_owned());
            self.record_outcome(
                Err(Error::Internal(format!("a job panicked: {text}").into())),
                failure,
            )
        })
    }

    /// Compacts, unless that would occupy the last thread that could flush.
    fn run_compaction(&self) -> bool {
        let most = self.shared.options.background_threads.saturating_sub(1).max(1);
        let before = self.scheduler.compacting.fetch_add(1, Ordering::AcqRel);
        let _one = Compacting(&self.scheduler.compacting);
        if before >= most {
            return false;
        }
        self.guarded(&self.scheduler.compaction_failure, || {
            let result = self.compact_most_needed();
            self.record_outcome(result, &self.scheduler.compaction_failure)
        })
    }

    fn record_outcome(&self, result: Result<bool>, failure: &Mutex<Option<Error>>) -> bool {
        match result {
            Ok(false) => false,
            Ok(true) => {
                *failure.lock() = None;
                self.scheduler.tell_done();
                true
            }
            Err(error) => {
                self.shared.counters.failed_jobs.fetch_add(1, Ordering::Relaxed);
                Event::Failed { error: &error }.report(Duration::ZERO);
                *failure.lock() = Some(error);
                self.scheduler.tell_done();
                false
            }
        }
    }

    /// Without a pool, does all background work now. What fails is tried again by the next
    /// write.
    pub(crate) fn run_inline(&self) {
        if self.shared.options.background_threads == 0 {
            while self.run_job() || self.train_one() {}
            self.reclaim();
            self.shared.balance_memory();
        }
    }

    /// Seals the active memtable if it holds anything, and waits until all sealed ones are flushed.
    pub(crate) fn flush(&self) -> Result<()> {
        self.shared.check_writable()?;
        {
            let mut state = self.lock_write();
            self.shared.check_running()?;
            if !self.memtables.get().active.is_empty() {
                self.seal(&mut state)?;
            }
        }
        let wanted: Vec<_> = self.memtables.get().sealed.iter().map(Arc::downgrade).collect();
        self.scheduler.wait_until(self, || {
            let view = self.memtables.get();
            !view.sealed.iter().any(|m| wanted.iter().any(|w| w.as_ptr() == Arc::as_ptr(m)))
        })?;
        // A pool does so after each job.
        if self.shared.options.background_threads == 0 {
            self.reclaim();
        }
        Ok(())
    }
}
