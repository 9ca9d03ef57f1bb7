//! A client process: does what it is told, and says what that took.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use super::{
    batch::{Chooser, Tally},
    options::{Data, Distribution, RemoteOptions},
    subject::{Place, Session, Subject},
    workload::Workload,
};
use crate::{drive::histogram, random::Rng};

/// Batches in which one-sided reads are counted: some thousand operations tell leaves for each to
/// three digits.
const COUNTED_BATCHES: usize = 16;

/// Entries of one scan when everything is read once more.
const VERIFIED_AT_ONCE: usize = 1_000;

/// CPU time of this process, in nanoseconds.
pub(in crate::suite) fn cpu_ns() -> u64 {
    nanoseconds(ClockId::ProcessCPUTime)
}

/// CPU time of this thread, in nanoseconds.
#[cfg(feature = "rhumb")]
pub(in crate::suite) fn thread_cpu_ns() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A subject as this client has it.
struct Seat<'a> {
    subject: &'a dyn Subject,
    session: Box<dyn Session>,
    /// Which of the choosers knows its records.
    chooser: usize,
}

/// A client process.
pub(super) struct Client<'a> {
    options: &'a RemoteOptions,
    number: usize,
    seats: Vec<Seat<'a>>,
    /// One for each keeper, and for each subject without one.
    choosers: Vec<(&'static str, Chooser<'a>)>,
}

impl<'a> Client<'a> {
    /// Client `number` of `clients`, with a session of each subject.
    pub(super) fn new(
        subjects: &[&'a dyn Subject],
        place: &Place<'a>,
        (number, clients): (usize, usize),
    ) -> Result<Self> {
        let (mut seats, mut choosers) = (Vec::new(), Vec::<(&str, Chooser<'_>)>::new());
        let data: &'a Data = place.data;
        for &subject in subjects {
            let keeper = subject.keeper().unwrap_or(subject.name());
            let known = choosers.iter().position(|(name, _)| *name == keeper);
            let chooser = known.unwrap_or_else(|| {
                choosers.push((keeper, Chooser::new(data, number, clients)));
                choosers.len() - 1
            });
            let session = subject.connect(place).with_context(|| subject.name().to_owned())?;
            seats.push(Seat { subject, session, chooser });
        }
        Ok(Self { options: place.options, number, seats, choosers })
    }

    /// Does what a request says.
    pub(super) fn answer(&mut self, request: &Value) -> Result<Value> {
        let name = request["subject"].as_str().context("a request without a subject")?;
        let seat = self.seats.iter_mut().find(|seat| seat.subject.name() == name);
        let seat = seat.with_context(|| format!("no subject {name}"))?;
        let chooser = &mut self.choosers[seat.chooser].1;
        let session = seat.session.as_mut();
        let workload = request["workload"].as_str().and_then(Workload::named);
        let workload = workload.unwrap_or_default();
        let distribution = self.options.distribution.unwrap_or(workload.usual_distribution());
        let seed = request["seed"].as_u64().unwrap_or(0);
        let mut rng = Rng::stream(self.options.run.seed ^ seed, self.number as u64);
        let answered = match request["do"].as_str() {
            Some("run") => {
                let time = self.options.run.time();
                let course = Course { workload, distribution, time, cpu_ns };
                course.run(session, chooser, &mut rng)
            }
            Some("count") => count(session, chooser, (workload, distribution), &mut rng),
            Some("clean") => clean(session, chooser),
            Some("verify") => verify(session, chooser),
            other => bail!("a request to do {other:?}"),
        };
        let mut answer = answered.with_context(|| format!("{name} {}", workload.name()))?;
        let Tally { checked, missing, wrong } = std::mem::take(&mut chooser.tally);
        answer["tally"] = json!([checked, missing, wrong]);
        Ok(answer)
    }
}

/// A timed run.
pub(in crate::suite) struct Course {
    pub(in crate::suite) workload: Workload,
    pub(in crate::suite) distribution: Distribution,
    pub(in crate::suite) time: Duration,
    /// CPU time of the client so far, in nanoseconds.
    pub(in crate::suite) cpu_ns: fn() -> u64,
}

impl Course {
    /// Performs batches until the time is over, or nothing is left to insert. The clocks run while
    /// a subject has a batch, and not while it is chosen and checked.
    pub(in crate::suite) fn run(
        &self,
        session: &mut dyn Session,
        chooser: &mut Chooser<'_>,
        rng: &mut Rng,
    ) -> Result<Value> {
        let before = session.counters();
        let begun = Instant::now();
        let mut latency = histogram()?;
        let (mut units, mut operations, mut timed, mut cpu) = (0, 0, Duration::ZERO, 0);
        // At least a batch, however late this thread has its turn.
        while operations == 0 || begun.elapsed() < self.time {
            chooser.choose(self.workload, self.distribution, rng);
            let (batch, answers) = chooser.batch();
            if batch.operations.is_empty() {
                break;
            }
            operations += batch.operations.len() as u64;
            let (cpu_before, start) = ((self.cpu_ns)(), Instant::now());
            session.perform(batch, answers)?;
            timed += start.elapsed();
            cpu += (self.cpu_ns)() - cpu_before;
            units += chooser.units();
            for ns in chooser.latency_ns() {
                latency.saturating_record(*ns);
            }
            if session.answers() {
                chooser.check();
            }
        }
        let after = session.counters();
        let latency: Vec<_> = latency
            .iter_recorded()
            .map(|value| json!([value.value_iterated_to(), value.count_since_last_iteration()]))
            .collect();
        Ok(json!({
            "units": units, "operations": operations, "timed_ns": timed.as_nanos() as u64,
            "cpu_ns": cpu, "calls": after.calls - before.calls,
            "trips": after.trips - before.trips, "bytes": after.bytes - before.bytes,
            "cache_bytes": session.cache_bytes(),
            "latency": latency,
        }))
    }
}

/// Performs some batches, and counts one-sided reads and the operations of each host; those of a
/// scan that goes on at the next one are of the first.
pub(in crate::suite) fn count(
    session: &mut dyn Session,
    chooser: &mut Chooser<'_>,
    (workload, distribution): (Workload, Distribution),
    rng: &mut Rng,
) -> Result<Value> {
    session.count(true)?;
    let (before, mut units) = (session.counters().reads, 0);
    let mut of_hosts = vec![0_u64; session.hosts()];
    for _ in 0..COUNTED_BATCHES {
        chooser.choose(workload, distribution, rng);
        let (batch, answers) = chooser.batch();
        for operation in &batch.operations {
            of_hosts[session.host_of(batch.key(operation))] += 1;
        }
        session.perform(batch, answers)?;
        units += chooser.units();
        if session.answers() {
            chooser.check();
        }
    }
    let reads = session.counters().reads - before;
    session.count(false)?;
    Ok(json!({ "units": units, "reads": reads, "of_hosts": of_hosts }))
}

/// Removes what was inserted, so that every run begins with the same records.
pub(in crate::suite) fn clean(
    session: &mut dyn Session,
    chooser: &mut Chooser<'_>,
) -> Result<Value> {
    let inserted = chooser.take_inserted();
    for key in &inserted {
        session.remove(key)?;
    }
    Ok(json!({ "removed": inserted.len() }))
}

/// Reads everything once more.
fn verify(session: &mut dyn Session, chooser: &mut Chooser<'_>) -> Result<Value> {
    if session.answers_scans() {
        chooser.check_all(|from| session.pairs(from, VERIFIED_AT_ONCE))?;
    }
    Ok(json!({}))
}
