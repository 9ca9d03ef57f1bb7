//! A store as a queue: entries are pushed and popped, with some in between, for two million cycles
//! of one push and one pop.
//!
//! What is to be seen is whether a pop costs the same after millions of others, so each case is
//! reported in ten parts of as many cycles each. Every popped entry must be the one that a model of
//! the queue expects, with its value.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use crate::{
    drive::thread_cpu_time,
    options::Options,
    progress::Progress,
    queueing::{KEY_BYTES, QueueEngine, QueueStore, Step},
    random::{Rng, mix},
    report::{Heading, Report, Sample},
    subject::Tuning,
    workspace::Workspace,
};

/// The name of the workload.
const NAME: &str = "queue";

/// Cycles of a case: 230 MB of pushes and pops, which fill the usual memtable several times.
const CYCLES: usize = 2_000_000;

/// Cycles of a case of a quick run: 23 MB, less than the usual memtable.
const QUICK_CYCLES: usize = 200_000;

/// Parts in which a case is reported.
const PARTS: usize = 10;

/// A case ends early after this many times `--seconds`, because a queue that is not flat does not
/// end at all. Twelve are a minute, in which what is flat is done.
const TIME_LIMIT_TIMES: u32 = 12;

/// Memory of a store, unless `--cache` says otherwise. All that is alive fits many times.
const CACHE_BYTES: u64 = 512 << 20;

/// The most pushes that a stack sees before as many pops.
const STACK_RUN_MAX: u64 = 64;

/// How much later a job of the priority queue is due again, at most, in units of its time.
const DELAY_MAX: u64 = 1000;

/// Where the ordinals of a queue begin that grows both ways.
const MIDDLE: u64 = 1 << 40;

/// What is pushed where, and which entry is popped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Pushes after the last entry, pops the first.
    Fifo,
    /// Pushes after the last entry, pops the last, in runs.
    Stack,
    /// Pushes and pops at either end.
    Deque,
    /// Pops the first entry and pushes one that is due up to [`DELAY_MAX`] later.
    Priority,
}

/// The cases: the workload's name, what it does, and how many entries are in between.
const CASES: [(&str, Kind, u64); 5] = [
    ("queue_100", Kind::Fifo, 100),
    ("queue_10000", Kind::Fifo, 10_000),
    ("stack_1000", Kind::Stack, 1000),
    ("deque_1000", Kind::Deque, 1000),
    ("priority_1000", Kind::Priority, 1000),
];

/// Returns true if the workloads named are this one alone.
///
/// # Errors
/// If it is named beside others: they need data sets, and it makes its own.
pub fn is_chosen(names: &[String]) -> Result<bool> {
    super::is_alone(names, NAME)
}

/// Chooses engines by their names, in the order of the names; all of them if none is named.
///
/// # Errors
/// If a name is unknown.
pub fn choose<'e>(
    names: &[String],
    engines: &[&'e dyn QueueEngine],
) -> Result<Vec<&'e dyn QueueEngine>> {
    super::choose_by(names, engines, |engine| engine.name())
}

/// Measures the engines, one after the other within each case and repetition.
///
/// # Errors
/// If a store fails, or pops anything but what is next.
pub fn run(engines: &[&dyn QueueEngine], options: &Options) -> Result<Report> {
    options.validate()?;
    let usual = if options.run.quick { QUICK_CYCLES } else { CYCLES };
    let cycles = options.run.keys.unwrap_or(usual);
    ensure!(cycles >= PARTS, "--keys are the cycles of {NAME} and must be at least {PARTS}");
    let tuning = Tuning {
        cache_bytes: options.cache.unwrap_or(CACHE_BYTES),
        memtable_bytes: options.memtable,
        direct: false,
        compression: options.compression,
        block_bytes: options.block_size,
        filter_bits: 10,
        background_threads: 2,
        data_bytes: (cycles * (KEY_BYTES + options.value_size)) as u64,
    };
    let mut environment = super::environment_line(options, &[], &[]);
    if let Some(line) = environment.as_object_mut() {
        let subjects = engines.iter();
        let subjects = subjects.map(|one| (one.name().to_owned(), one.options(&tuning).into()));
        line.insert("subjects".into(), subjects.collect::<serde_json::Map<_, _>>().into());
    }
    let heading = Heading {
        suite: "engine",
        data: "push and pop".into(),
        keys: cycles,
        value_bytes: options.value_size,
    };
    let mut report = Report::new(heading, environment);
    let workspace = Workspace::create(options.dir.as_deref())?;
    let directory = workspace.path("store");
    let mut progress = Progress::default();
    for (case, &(name, kind, depth)) in CASES.iter().enumerate() {
        for repetition in 0..options.run.repetitions() {
            for turn in 0..engines.len() {
                let engine = engines[(turn + repetition) % engines.len()];
                progress.task(format!("{name}, repetition {repetition}, {}", engine.name()));
                Workspace::empty(&directory)?;
                let seed = mix(options.run.seed ^ ((case as u64) << 32 | repetition as u64));
                let course = Course { kind, depth, cycles, options, seed };
                let parts = course
                    .run(engine, &tuning, &directory, &mut progress)
                    .with_context(|| format!("{}, {name}", engine.name()))?;
                add(&mut report, engine.name(), name, &parts, cycles);
            }
        }
    }
    Workspace::remove(&directory)?;
    Ok(report)
}

/// What one part of a case measured.
#[derive(Clone, Copy, Debug)]
struct Part {
    cycles: u64,
    time: Duration,
    /// CPU time of the thread that pushes and pops: the steadier figure on a machine that others
    /// use too.
    cpu: Duration,
    /// Entries that were stepped over, where the store counts them.
    passed: Option<u64>,
}

impl Part {
    fn ns_per_cycle(&self) -> f64 {
        self.time.as_secs_f64() * 1e9 / self.cycles.max(1) as f64
    }

    fn cpu_ns_per_cycle(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e9 / self.cycles.max(1) as f64
    }
}

/// Adds the lines of a case to a report.
fn add(report: &mut Report, subject: &str, name: &str, parts: &[Part], cycles: usize) {
    let done: u64 = parts.iter().map(|part| part.cycles).sum();
    let time: Duration = parts.iter().map(|part| part.time).sum();
    let mut line = |what: &str, value, unit| {
        report.add(subject, &format!("{name}{what}"), 1, Sample::plain(value, unit));
    };
    line("", done as f64 / time.as_secs_f64().max(1e-9), "cycles/s");
    if let (Some(first), Some(last)) = (parts.first(), parts.last()) {
        line("_first", first.ns_per_cycle(), "ns/cycle");
        line("_last", last.ns_per_cycle(), "ns/cycle");
        line("_last_to_first", last.ns_per_cycle() / first.ns_per_cycle().max(1e-9), "times");
        let cpu: Duration = parts.iter().map(|part| part.cpu).sum();
        let (first, last) = (first.cpu_ns_per_cycle(), last.cpu_ns_per_cycle());
        line("_cpu", cpu.as_secs_f64() * 1e9 / done.max(1) as f64, "ns/cycle");
        line("_cpu_last_to_first", last / first.max(1e-9), "times");
    }
    if let Some(passed) = parts.iter().map(|part| part.passed).sum::<Option<u64>>() {
        line("_passed", passed as f64 / done.max(1) as f64, "entries/pop");
    }
    let rates: Vec<u64> =
        parts.iter().map(|p| (p.cycles as f64 / p.time.as_secs_f64().max(1e-9)) as u64).collect();
    let passed: Option<Vec<f64>> = parts
        .iter()
        .map(|part| {
            part.passed.map(|n| (n as f64 * 100.0 / part.cycles.max(1) as f64).round() / 100.0)
        })
        .collect();
    let ended = if done < cycles as u64 {
        format!(", given up after {done} of {cycles} cycles")
    } else {
        String::new()
    };
    let shown: Vec<_> = rates.iter().map(|rate| format!("{:.1}", *rate as f64 / 1e3)).collect();
    report.conclude(
        format!("{name} {subject}: thousand cycles/s in each tenth: {}{ended}", shown.join(" ")),
        json!({
            "parts": true, "suite": "engine", "workload": name, "subject": subject,
            "cycles": done, "cycles_wanted": cycles, "cycles_per_second": rates,
            "passed_per_pop": passed,
        }),
    );
}

/// A case to run.
struct Course<'a> {
    kind: Kind,
    depth: u64,
    cycles: usize,
    options: &'a Options,
    seed: u64,
}

impl Course<'_> {
    fn run(
        &self,
        engine: &dyn QueueEngine,
        tuning: &Tuning,
        directory: &Path,
        progress: &mut Progress,
    ) -> Result<Vec<Part>> {
        let mut store = engine.open(directory, tuning)?;
        let mut model = Model::new(self.kind, self.options.value_size, self.seed);
        while model.len() < self.depth {
            model.fill();
            model.perform(store.as_mut())?;
        }
        let limit = self.options.run.time() * TIME_LIMIT_TIMES;
        let (mut parts, begun) = (Vec::with_capacity(PARTS), Instant::now());
        let mut done = 0;
        for number in 1..=PARTS {
            let (first, end) = (done, (self.cycles * number / PARTS) as u64);
            let (before, cpu_before) = (store.passed_entries(), thread_cpu_time());
            let start = Instant::now();
            while done < end && begun.elapsed() < limit {
                // As many as the engine wants at once, and few looks at the clock.
                let wanted = end.min(done + 16.max(engine.group() as u64 / 2));
                while done < wanted {
                    done += model.cycle(wanted - done);
                }
                model.perform(store.as_mut())?;
            }
            let (cycles, time) = (done - first, start.elapsed());
            let cpu = thread_cpu_time().saturating_sub(cpu_before);
            let passed = store.passed_entries().zip(before).map(|(now, before)| now - before);
            parts.extend((cycles > 0).then_some(Part { cycles, time, cpu, passed }));
            progress.rate(done, begun.elapsed(), "cycles/s");
        }
        model.drain(store.as_mut())?;
        Ok(parts)
    }
}

/// Which entries are in a queue, and which steps come next.
struct Model {
    kind: Kind,
    value_size: usize,
    rng: Rng,
    /// Ordinal and number of each entry, in order; of a priority queue in its heap.
    line: VecDeque<(u64, u64)>,
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    /// The number of the next entry.
    next: u64,
    steps: Vec<Step>,
    /// The entries that the steps pop.
    expected: VecDeque<(u64, u64)>,
}

impl Model {
    fn new(kind: Kind, value_size: usize, seed: u64) -> Self {
        Self {
            kind,
            value_size,
            rng: Rng::new(seed),
            line: VecDeque::new(),
            heap: BinaryHeap::new(),
            next: 0,
            steps: Vec::new(),
            expected: VecDeque::new(),
        }
    }

    fn len(&self) -> u64 {
        (self.line.len() + self.heap.len()) as u64
    }

    /// Adds a push before the cycles.
    fn fill(&mut self) {
        match self.kind {
            Kind::Priority => {
                let due = self.rng.below(DELAY_MAX);
                self.push_due(due);
            }
            _ => self.push_last(),
        }
    }

    /// Adds one cycle, or for a stack some up to `most`; returns how many.
    fn cycle(&mut self, most: u64) -> u64 {
        match self.kind {
            Kind::Fifo => {
                self.push_last();
                self.pop_first();
            }
            Kind::Stack => {
                let run = most.min(1 + self.rng.below(STACK_RUN_MAX));
                (0..run).for_each(|_| self.push_last());
                (0..run).for_each(|_| self.pop_last());
                return run;
            }
            Kind::Deque => {
                let ends = self.rng.next_u64();
                if ends & 1 == 0 {
                    self.push_first()
                } else {
                    self.push_last()
                }
                if ends & 2 == 0 { self.pop_first() } else { self.pop_last() }
            }
            Kind::Priority => {
                let Some(Reverse((due, number))) = self.heap.pop() else { return 1 };
                self.steps.push(Step::PopFirst);
                self.expected.push_back((due, number));
                let later = due + self.rng.below(DELAY_MAX);
                self.push_due(later);
            }
        }
        1
    }

    fn push(&mut self, ordinal: u64) -> (u64, u64) {
        let number = self.next;
        self.next += 1;
        let mut value = Vec::new();
        append_value(number, self.value_size, &mut value);
        self.steps.push(Step::Push { key: key(ordinal, number), value });
        (ordinal, number)
    }

    fn push_first(&mut self) {
        let ordinal = self.line.front().map_or(MIDDLE, |(first, _)| first - 1);
        let entry = self.push(ordinal);
        self.line.push_front(entry);
    }

    fn push_last(&mut self) {
        // Ordinals of a stack never come again either.
        let ordinal = match self.kind {
            Kind::Stack => MIDDLE + self.next,
            _ => self.line.back().map_or(MIDDLE, |(last, _)| last + 1),
        };
        let entry = self.push(ordinal);
        self.line.push_back(entry);
    }

    fn push_due(&mut self, due: u64) {
        let entry = self.push(due);
        self.heap.push(Reverse(entry));
    }

    fn pop_first(&mut self) {
        self.steps.push(Step::PopFirst);
        self.expected.extend(self.line.pop_front());
    }

    fn pop_last(&mut self) {
        self.steps.push(Step::PopLast);
        self.expected.extend(self.line.pop_back());
    }

    /// Has a store do the steps, and verifies what it pops.
    fn perform(&mut self, store: &mut dyn QueueStore) -> Result<()> {
        let Self { steps, expected, value_size, .. } = self;
        let mut wanted = Vec::with_capacity(*value_size);
        store.perform(steps, &mut |found, value| {
            let Some((ordinal, number)) = expected.pop_front() else {
                bail!("popped {found:?}, which nothing was to pop");
            };
            ensure!(*found == key(ordinal, number), "popped {found:?}, not number {number}");
            wanted.clear();
            append_value(number, *value_size, &mut wanted);
            ensure!(*value == *wanted, "popped a wrong value of number {number}");
            Ok(true)
        })?;
        ensure!(expected.is_empty(), "{} pops found nothing", expected.len());
        steps.clear();
        Ok(())
    }

    /// Pops all that is left; then nothing is.
    fn drain(&mut self, store: &mut dyn QueueStore) -> Result<()> {
        while let Some(Reverse(entry)) = self.heap.pop() {
            self.line.push_back(entry);
        }
        while !self.line.is_empty() {
            self.pop_first();
        }
        self.steps.push(Step::PopFirst);
        self.perform(store)
    }
}

fn key(ordinal: u64, number: u64) -> [u8; KEY_BYTES] {
    (u128::from(ordinal) << 64 | u128::from(number)).to_be_bytes()
}

/// Appends the value of an entry: words that no other number has.
fn append_value(number: u64, len: usize, value: &mut Vec<u8>) {
    let words = (0..len.div_ceil(8) as u64).map(|at| mix(number << 16 | (at & 0xFFFF)));
    words.for_each(|word| value.extend_from_slice(&word.to_le_bytes()));
    value.truncate(len);
}

#[cfg(test)]
mod tests;
