//! The background pool: flushes first, then the compaction that is needed most. One thread of
//! several is always left for flushes, so that no writer waits for the end of a compaction.

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
    options::{ZERO_TABLES_SLOW, ZERO_TABLES_SLOWEST},
};

/// After a failure the pool tries again this much later.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// Delay of a writer at full pressure, in nanoseconds per KiB: about 1 MiB/s.
const DELAY_NS_PER_KIB_MAX: f64 = 1_000_000.0;
/// Delay where it begins: about 500 MiB/s.
const DELAY_NS_PER_KIB_MIN: f64 = 2_000.0;

/// The pool's state.
#[derive(Default)]
pub(crate) struct Work {
    /// Counts the calls to work, so that none is missed between looking for work and waiting.
    calls: Mutex<u64>,
    wanted: Condvar,
    done: Condvar,
    shutdown: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Held by the one that flushes.
    pub(crate) flushing: Mutex<()>,
    /// Why the last flush failed; cleared by the next that does not.
    flush_failure: Mutex<Option<Error>>,
    /// Why the last compaction failed; cleared by the next that does not.
    compaction_failure: Mutex<Option<Error>>,
    /// Why other work of the pool failed: it panicked, which is remembered for good.
    upkeep_failure: Mutex<Option<Error>>,
    /// Tables of level 0 in the sub-tree that has the most.
    pub(crate) zero_tables_max: AtomicUsize,
    /// Set when the tables of a sub-tree change: then small files are looked for.
    pub(crate) tables_changed: AtomicBool,
    owed_ns: AtomicU64,
    /// Threads of the pool that compact.
    compacting: AtomicUsize,
    /// The last range tombstone that [`Core::seal_deletes`] looked at.
    pub(crate) weighed_deletes: AtomicU64,
}

impl Work {
    /// Wakes the pool.
    pub(crate) fn wake(&self) {
        *self.calls.lock() += 1;
        self.wanted.notify_all();
    }

    /// Tells waiters that something was finished.
    pub(crate) fn tell_done(&self) {
        *self.calls.lock() += 1;
        self.done.notify_all();
        self.wanted.notify_all();
    }

    /// Why background work fails at present.
    pub(crate) fn failure(&self) -> Option<Error> {
        let failures = [&self.flush_failure, &self.compaction_failure, &self.upkeep_failure];
        failures.into_iter().find_map(|failure| failure.lock().clone())
    }

    /// Takes note that no compaction is due: what failed before was about tables that have gone.
    pub(crate) fn forget_compaction_failure(&self) {
        *self.compaction_failure.lock() = None;
    }

    /// Whether the database is being closed.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.shutdown.load(Ordering::Acquire)
    }

    /// Waits until `ready`, or until flushes fail.
    pub(crate) fn wait_until(&self, core: &Core, ready: impl Fn() -> bool) -> Result<()> {
        if core.options.background_threads == 0 {
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
                return Err(Error::InvalidArgument("the database is being closed".into()));
            }
            if core.unwound.load(Ordering::Acquire) {
                core.check_running()?;
            }
            self.wanted.notify_all();
            self.done.wait_for(&mut calls, RETRY_AFTER);
        }
        Ok(())
    }

    /// How much to slow writers down: nothing while the pool keeps up, then smoothly more.
    /// `memory` is the share of the memtables' room that is taken, 0 to 1.
    pub(crate) fn delay_ns_per_kib(&self, memory: f64) -> u64 {
        let tables = self.zero_tables_max.load(Ordering::Relaxed);
        let span = (ZERO_TABLES_SLOWEST - ZERO_TABLES_SLOW) as f64;
        let behind = (tables.saturating_sub(ZERO_TABLES_SLOW) as f64 / span).min(1.0);
        // Half of the last memtable's room is free of delay; the rest is handed out ever slower.
        let squeezed = ((memory - 0.5) * 2.0).max(0.0);
        let pressure = behind.max(squeezed);
        if pressure <= 0.0 {
            return 0;
        }
        let ratio = DELAY_NS_PER_KIB_MAX / DELAY_NS_PER_KIB_MIN;
        (DELAY_NS_PER_KIB_MIN * ratio.powf(pressure)) as u64
    }

    /// Adds to the delay that writers owe; returns it once it is worth a sleep.
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
        for number in 0..core.options.background_threads {
            let weak = Arc::downgrade(core);
            let thread = std::thread::Builder::new()
                .name(format!("rhumb-{number}"))
                .spawn(move || run(&weak))
                .map_err(|e| Error::io("start a thread for", &core.dir, e))?;
            threads.push(thread);
        }
        Ok(())
    }

    /// Ends the pool after the jobs at hand.
    pub(crate) fn stop(&self) {
        self.shutdown.store(true, Ordering::Release);
        self.wake();
        self.tell_done();
        let own = std::thread::current().id();
        for thread in self.threads.lock().drain(..) {
            // The last handle may have been dropped by a job: a thread cannot wait for itself.
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

/// What each thread of the pool does. It holds the database only while it works, so that dropping
/// the last handle closes it.
fn run(weak: &Weak<Core>) {
    // What was visible when the last wait began, if nobody called for work meanwhile.
    let mut quiet_since = None;
    loop {
        let Some(core) = weak.upgrade() else { return };
        if core.work.is_shut_down() {
            return;
        }
        let seen = *core.work.calls.lock();
        let was_busy = core.guarded(&core.work.upkeep_failure, || {
            core.balance_memory();
            let was_busy = core.run_job();
            core.reclaim();
            was_busy
        });
        if was_busy {
            quiet_since = None;
            continue;
        }
        let visible = core.visible_seq();
        let is_idle = quiet_since.is_some_and(|before| visible - before <= IDLE_ENTRIES_MAX);
        let improve = || core.train_one() || core.seal_deletes();
        if is_idle && core.guarded(&core.work.upkeep_failure, improve) {
            continue;
        }
        quiet_since = None;
        let mut calls = core.work.calls.lock();
        if *calls == seen && !core.work.is_shut_down() {
            let waited = core.work.wanted.wait_for(&mut calls, RETRY_AFTER);
            quiet_since = waited.timed_out().then_some(visible);
        }
    }
}

impl Core {
    /// Does one piece of background work; says whether any was done.
    fn run_job(&self) -> bool {
        // What would be written could not be made known.
        if self.unwound.load(Ordering::Acquire) {
            return false;
        }
        self.run_flush() || self.run_compaction()
    }

    fn run_flush(&self) -> bool {
        self.guarded(&self.work.flush_failure, || {
            let Some(_one) = self.work.flushing.try_lock() else { return false };
            let result = self.flush_oldest();
            self.settle(result, &self.work.flush_failure)
        })
    }

    /// Does background work. Where it panics on a thread of the pool, that is a failure like
    /// others: the thread goes on, or writers would wait for it for ever.
    fn guarded(&self, failure: &Mutex<Option<Error>>, work: impl FnOnce() -> bool) -> bool {
        if self.options.background_threads == 0 {
            return work();
        }
        let outcome = panic::catch_unwind(AssertUnwindSafe(work));
        outcome.unwrap_or_else(|payload| {
            let text = payload.downcast_ref::<&str>().map(ToString::to_string);
            let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
            let text = text.unwrap_or_else(|| "no message".to_owned());
            self.settle(Err(Error::Internal(format!("a job panicked: {text}").into())), failure)
        })
    }

    /// Compacts unless the last thread that could flush would be busy with it.
    fn run_compaction(&self) -> bool {
        let most = self.options.background_threads.saturating_sub(1).max(1);
        let before = self.work.compacting.fetch_add(1, Ordering::AcqRel);
        let _one = Compacting(&self.work.compacting);
        if before >= most {
            return false;
        }
        self.guarded(&self.work.compaction_failure, || {
            let result = self.compact_most_needed();
            self.settle(result, &self.work.compaction_failure)
        })
    }

    fn settle(&self, result: Result<bool>, failure: &Mutex<Option<Error>>) -> bool {
        match result {
            Ok(false) => false,
            Ok(true) => {
                *failure.lock() = None;
                self.work.tell_done();
                true
            }
            Err(error) => {
                self.counters.failed_jobs.fetch_add(1, Ordering::Relaxed);
                *failure.lock() = Some(error);
                self.work.tell_done();
                false
            }
        }
    }

    /// Without a pool, does all background work now. What fails is tried again by the next write.
    pub(crate) fn run_inline(&self) {
        if self.options.background_threads == 0 {
            while self.run_job() || self.train_one() {}
            self.reclaim();
            self.balance_memory();
        }
    }

    /// Seals the active memtable if it holds anything, and waits until all are flushed.
    pub(crate) fn flush(&self) -> Result<()> {
        self.check_writable()?;
        {
            let mut state = self.lock_write();
            self.check_running()?;
            if !self.mem.get().active.is_empty() {
                self.seal(&mut state)?;
            }
        }
        let wanted: Vec<_> = self.mem.get().sealed.iter().map(Arc::downgrade).collect();
        self.work.wait_until(self, || {
            let view = self.mem.get();
            !view.sealed.iter().any(|m| wanted.iter().any(|w| w.as_ptr() == Arc::as_ptr(m)))
        })
    }
}
