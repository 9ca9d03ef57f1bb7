//! Runs one workload on several threads and measures it.
//!
//! Each worker prepares itself, waits for the others, and then works until the time is over or its
//! work is done. Only what happens between those two moments is measured.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

use crate::random::Rng;

/// How often the coordinating thread wakes.
const TICK: Duration = Duration::from_millis(100);

/// Operations between two reports of a worker's progress, less one; a power of two less one.
const REPORT_MASK: u64 = 255;

/// Length of a [`Slot`].
pub const SLOT: Duration = Duration::from_millis(10);

/// Slots that are kept at most: ten minutes.
const SLOTS_MAX: usize = 60_000;

/// What happened in one stretch of a run's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Operations that were timed and ended in it.
    pub timed: u64,
    /// The longest of them, in nanoseconds.
    pub worst_ns: u64,
}

/// What a run on some threads measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What was done, in the workload's unit: operations or keys.
    pub units: u64,
    /// Wall-clock time, in seconds, of the slowest worker.
    pub seconds: f64,
    /// CPU time, in seconds, of all workers; background threads are not counted.
    pub cpu_seconds: f64,
    /// Latencies of the operations, in nanoseconds.
    pub latency: Histogram<u64>,
    /// Latencies of the writes alone, where the workload tells them apart.
    pub write_latency: Histogram<u64>,
    /// Timed operations over time, [`SLOT`] by [`SLOT`].
    pub timeline: Vec<Slot>,
}

impl Measured {
    /// Adds what another run measured, on other threads at the same time.
    fn join(&mut self, part: &Self) -> Result<()> {
        let seconds = self.seconds.max(part.seconds);
        self.append(part, 0)?;
        self.seconds = seconds;
        Ok(())
    }

    /// Adds what a run measured that began when this one ended.
    ///
    /// # Errors
    /// If the latencies cannot be added, which histograms of one kind always can.
    pub fn follow(&mut self, next: &Self) -> Result<()> {
        self.append(next, self.timeline.len())
    }

    fn append(&mut self, other: &Self, slots_before: usize) -> Result<()> {
        self.units += other.units;
        self.seconds += other.seconds;
        self.cpu_seconds += other.cpu_seconds;
        self.latency.add(&other.latency)?;
        self.write_latency.add(&other.write_latency)?;
        let slots = self.timeline.len().max(slots_before + other.timeline.len());
        self.timeline.resize(slots, Slot::default());
        for (slot, other) in self.timeline[slots_before..].iter_mut().zip(&other.timeline) {
            slot.timed += other.timed;
            slot.worst_ns = slot.worst_ns.max(other.worst_ns);
        }
        Ok(())
    }

    /// Units per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.units as f64 / self.seconds.max(1e-9)
    }
}

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    /// Worker threads.
    pub threads: usize,
    /// When to stop; `None` for workloads that end by themselves.
    pub time: Option<Duration>,
    /// One in this many operations is timed; a power of two. Reading the clock costs a tenth of
    /// the fastest reads.
    pub sample_every: u64,
    /// Of what each worker's random choices are made.
    pub seed: u64,
}

struct Shared {
    start: Barrier,
    stop: AtomicBool,
    done: AtomicU64,
    running: AtomicU64,
}

/// One thread of a run.
pub struct Worker<'a> {
    /// Its number, from 0.
    pub id: usize,
    /// How many workers there are.
    pub threads: usize,
    /// Its own random numbers.
    pub rng: Rng,
    shared: &'a Shared,
    sample_mask: u64,
    operations: u64,
    units: u64,
    reported: u64,
    latency: Histogram<u64>,
    write_latency: Histogram<u64>,
    write_ns: Option<u64>,
    timeline: Vec<Slot>,
    began: Option<(Instant, Duration)>,
}

impl Worker<'_> {
    /// Ends the preparation: waits for the other workers and starts the clock.
    pub fn begin(&mut self) {
        if self.began.is_none() {
            self.shared.start.wait();
            self.began = Some((Instant::now(), thread_cpu_time()));
        }
    }

    /// Whether the run goes on.
    #[inline]
    pub fn goes_on(&self) -> bool {
        !self.shared.stop.load(Relaxed)
    }

    /// Does one operation worth `units`.
    #[inline]
    pub fn time<T>(&mut self, units: u64, operation: impl FnOnce() -> Result<T>) -> Result<T> {
        self.operations += 1;
        if self.operations & REPORT_MASK == 0 {
            self.report();
        }
        if self.operations & self.sample_mask != 0 {
            let result = operation()?;
            self.units += units;
            return Ok(result);
        }
        let start = Instant::now();
        let result = operation()?;
        self.keep(start);
        self.units += units;
        Ok(result)
    }

    /// Notes the end of a timed operation; says how long it took, in nanoseconds.
    fn keep(&mut self, start: Instant) -> u64 {
        let end = Instant::now();
        let ns = (end - start).as_nanos() as u64;
        self.latency.saturating_record(ns);
        let began = self.began.map_or(start, |(began, _)| began);
        let slot = ((end - began).as_nanos() / SLOT.as_nanos()) as usize;
        if slot < SLOTS_MAX {
            if slot >= self.timeline.len() {
                self.timeline.resize(slot + 1, Slot::default());
            }
            let slot = &mut self.timeline[slot];
            slot.timed += 1;
            slot.worst_ns = slot.worst_ns.max(ns);
        }
        ns
    }

    /// Does one write and times it as seldom as the other operations; its latency is also kept
    /// apart.
    #[inline]
    pub fn sample_write<T>(&mut self, operation: impl FnOnce() -> Result<T>) -> Result<T> {
        self.operations += 1;
        if self.operations & REPORT_MASK == 0 {
            self.report();
        }
        self.units += 1;
        if self.operations & self.sample_mask != 0 {
            self.write_ns = None;
            return operation();
        }
        let start = Instant::now();
        let result = operation()?;
        let ns = self.keep(start);
        self.write_latency.saturating_record(ns);
        self.write_ns = Some(ns);
        Ok(result)
    }

    /// How long the last of [`Worker::sample_write`] took, in nanoseconds, if it was timed.
    #[must_use]
    pub fn last_write_ns(&self) -> Option<u64> {
        self.write_ns
    }

    /// Does one write; its latency is also kept apart.
    pub fn time_write<T>(&mut self, operation: impl FnOnce() -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let result = self.time(1, operation)?;
        self.write_latency.saturating_record(start.elapsed().as_nanos() as u64);
        Ok(result)
    }

    /// Counts units within a long operation, so that the progress line moves.
    pub fn count(&mut self, units: u64) {
        self.units += units;
        self.report();
    }

    fn report(&mut self) {
        self.shared.done.fetch_add(self.units - self.reported, Relaxed);
        self.reported = self.units;
    }
}

/// What the coordinating thread does while workers work: it is told the units done so far and the
/// time since the start, about ten times a second.
pub type OnTick<'a> = &'a mut dyn FnMut(u64, Duration) -> Result<()>;

/// Runs `work` on every worker of `course`. The first error of any worker ends the run.
///
/// `work` must call [`Worker::begin`] once it is prepared.
pub fn run(
    course: &Course,
    on_tick: OnTick<'_>,
    work: impl Fn(&mut Worker<'_>) -> Result<()> + Sync,
) -> Result<Measured> {
    let shared = Shared {
        start: Barrier::new(course.threads + 1),
        stop: AtomicBool::new(false),
        done: AtomicU64::new(0),
        running: AtomicU64::new(course.threads as u64),
    };
    let parts = thread::scope(|scope| {
        let (shared, work) = (&shared, &work);
        let workers: Vec<_> = (0..course.threads)
            .map(|id| scope.spawn(move || run_worker(course, shared, id, work)))
            .collect();
        let ticked = coordinate(course, shared, on_tick);
        let parts: Vec<_> = workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|_| Err(anyhow!("a worker panicked"))))
            .collect();
        ticked.and_then(|()| parts.into_iter().collect::<Result<Vec<_>>>())
    })?;
    let mut parts = parts.into_iter();
    let mut total = parts.next().ok_or_else(|| anyhow!("no threads"))?;
    for part in parts {
        total.join(&part)?;
    }
    Ok(total)
}

fn run_worker(
    course: &Course,
    shared: &Shared,
    id: usize,
    work: &(impl Fn(&mut Worker<'_>) -> Result<()> + Sync),
) -> Result<Measured> {
    let mut worker = Worker {
        id,
        threads: course.threads,
        rng: Rng::stream(course.seed, id as u64),
        shared,
        sample_mask: course.sample_every - 1,
        operations: 0,
        units: 0,
        reported: 0,
        latency: histogram()?,
        write_latency: histogram()?,
        write_ns: None,
        timeline: Vec::new(),
        began: None,
    };
    let result = catch_unwind(AssertUnwindSafe(|| work(&mut worker)))
        .unwrap_or_else(|_| Err(anyhow!("a worker panicked")));
    // A worker that failed while it prepared still has to let the others begin.
    worker.begin();
    worker.report();
    let (start, cpu_start) = worker.began.ok_or_else(|| anyhow!("never began"))?;
    let seconds = start.elapsed().as_secs_f64();
    if result.is_err() {
        shared.stop.store(true, Relaxed);
    }
    shared.running.fetch_sub(1, Relaxed);
    result.map(|()| Measured {
        units: worker.units,
        seconds,
        cpu_seconds: thread_cpu_time().saturating_sub(cpu_start).as_secs_f64(),
        latency: worker.latency,
        write_latency: worker.write_latency,
        timeline: worker.timeline,
    })
}

fn coordinate(course: &Course, shared: &Shared, on_tick: OnTick<'_>) -> Result<()> {
    shared.start.wait();
    let start = Instant::now();
    loop {
        let elapsed = start.elapsed();
        if course.time.is_some_and(|time| elapsed >= time) {
            shared.stop.store(true, Relaxed);
        }
        if shared.running.load(Relaxed) == 0 {
            return Ok(());
        }
        if let Err(error) = on_tick(shared.done.load(Relaxed), elapsed) {
            shared.stop.store(true, Relaxed);
            return Err(error);
        }
        let left = course.time.map_or(TICK, |time| time.saturating_sub(elapsed));
        thread::sleep(left.clamp(Duration::from_millis(1), TICK));
    }
}

/// Latencies from 1 ns to an hour, to three digits.
pub(crate) fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 3_600_000_000_000, 3)?)
}

/// CPU time of the calling thread.
pub(crate) fn thread_cpu_time() -> Duration {
    cpu_time(ClockId::ThreadCPUTime)
}

/// CPU time of all threads of this process.
#[cfg(feature = "rhumb")]
pub(crate) fn process_cpu_time() -> Duration {
    cpu_time(ClockId::ProcessCPUTime)
}

fn cpu_time(of: ClockId) -> Duration {
    let time = clock_gettime(of);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{bail, ensure};

    fn course(threads: usize, time: Option<Duration>) -> Course {
        Course { threads, time, sample_every: 1, seed: 1 }
    }

    #[test]
    fn everything_that_is_done_is_counted() {
        let course = Course { sample_every: 8, ..course(3, None) };
        let measured = run(&course, &mut |_, _| Ok(()), |worker| {
            worker.begin();
            for _ in 0..1000 {
                worker.time(2, || Ok(()))?;
            }
            for _ in 0..10 {
                worker.time_write(|| Ok(()))?;
            }
            worker.count(5);
            Ok(())
        })
        .expect("no errors");
        assert_eq!(measured.units, 3 * (2000 + 10 + 5));
        assert_eq!(measured.latency.len(), 3 * (1010 / 8));
        assert_eq!(measured.write_latency.len(), 30);
    }

    #[test]
    fn a_run_ends_when_its_time_is_over() {
        let mut ticks = 0;
        let mut on_tick = |_, _| {
            ticks += 1;
            Ok(())
        };
        let time = Some(Duration::from_millis(20));
        let measured = run(&course(2, time), &mut on_tick, |worker| {
            worker.begin();
            while worker.goes_on() {
                worker.time(1, || Ok(()))?;
            }
            Ok(())
        })
        .expect("no errors");
        assert!(measured.units > 0 && measured.seconds >= 0.02 && ticks > 0);
    }

    #[test]
    fn an_error_before_or_after_the_start_ends_the_run() {
        for fails_early in [true, false] {
            let error = run(&course(2, None), &mut |_, _| Ok(()), |worker| {
                ensure!(!(fails_early && worker.id == 1), "early");
                worker.begin();
                if worker.id == 1 {
                    bail!("late");
                }
                while worker.goes_on() {
                    thread::yield_now();
                }
                Ok(())
            });
            let text = error.expect_err("one worker failed").to_string();
            assert_eq!(text, if fails_early { "early" } else { "late" });
        }
        let error = run(&course(1, None), &mut |_, _| Ok(()), |worker| {
            worker.begin();
            if worker.id == 0 {
                panic!("planted");
            }
            Ok(())
        });
        assert!(error.is_err());
    }
}
