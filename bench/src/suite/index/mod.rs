//! The index suite: concurrent ordered maps of 64-bit words under the same workloads, with every
//! answer verified.
//!
//! Subjects take turns within each repetition, workload by workload, and the order rotates from
//! repetition to repetition. One load serves all read-only workloads; each workload that inserts
//! has a freshly loaded map for each number of threads, on which its rounds follow one another.

mod case;
mod options;
mod perform;
pub mod subject;
mod timeline;
mod workload;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map as Object, Value, json};

use self::{
    case::{Case, Data},
    perform::{Step, Task, is_kept},
    subject::{Loaded, Subject, Tally},
};
pub use self::{
    options::IndexOptions,
    workload::{Workload, choose as choose_workloads},
};
use crate::{
    drive::{Course, Measured},
    environment,
    progress::Progress,
    report::{Heading, Report, Sample, latency},
};

/// Bytes of a pair.
const PAIR_BYTES: usize = 16;

/// One operation in 8 that may change the map is timed, unless the options give a number.
const SAMPLE_WRITES: u64 = 8;
/// One lookup in 256 is timed, unless the options give a number.
const SAMPLE_LOOKUPS: u64 = 256;

/// Keys that were never inserted and are looked up by the verification, at most.
const ABSENT_KEYS_MAX: usize = 1 << 20;

/// Chooses subjects by their names, in the order of the names.
///
/// # Errors
/// If a name is unknown or comes twice.
pub fn choose<'s>(names: &[String], known: &[&'s dyn Subject]) -> Result<Vec<&'s dyn Subject>> {
    let mut chosen: Vec<&dyn Subject> = Vec::new();
    for name in names {
        let Some(subject) = known.iter().find(|subject| subject.name() == name) else {
            let names: Vec<_> = known.iter().map(|subject| subject.name()).collect();
            bail!("no subject {name}: there are {}", names.join(", "));
        };
        ensure!(chosen.iter().all(|other| other.name() != name), "subject {name} is named twice");
        chosen.push(*subject);
    }
    Ok(chosen)
}

/// Runs `workloads` on `subjects` and prints the report, whose last lines count what was missing,
/// wrong, or there and never inserted.
///
/// # Errors
/// If a map cannot be loaded, or, after the report, if any answer was not the truth.
pub fn run(
    subjects: &[&dyn Subject],
    workloads: &[Workload],
    options: &IndexOptions,
) -> Result<()> {
    let (report, faults) = measure(subjects, workloads, options)?;
    report.print(options.run.json)?;
    ensure!(faults == 0, "{faults} answers were missing, wrong or ghosts");
    Ok(())
}

/// Runs `workloads` on `subjects`; also says how many answers were not the truth.
fn measure(
    subjects: &[&dyn Subject],
    workloads: &[Workload],
    options: &IndexOptions,
) -> Result<(Report, u64)> {
    options.validate()?;
    ensure!(!subjects.is_empty(), "no subjects");
    let mut progress = Progress::default();
    progress.task("making keys");
    let data = Data::load(options, workloads)?;
    let heading = Heading {
        suite: "index",
        data: data.name.clone(),
        keys: data.loaded.len(),
        value_bytes: PAIR_BYTES / 2,
    };
    let mut suite = Suite {
        subjects,
        options,
        data: &data,
        tallies: subjects.iter().map(|_| Tally::default()).collect(),
        resident_before: environment::resident_bytes(),
        plotted: Vec::new(),
        progress,
        report: Report::new(heading, environment_line(subjects, options)),
    };
    suite.read(workloads)?;
    for &workload in workloads.iter().filter(|workload| !workload.is_read_only()) {
        suite.change(workload)?;
    }
    suite.compare_poisons(workloads);
    suite.conclude()
}

fn environment_line(subjects: &[&dyn Subject], options: &IndexOptions) -> Value {
    let mut line = environment::describe();
    let subjects: Object<_, _> =
        subjects.iter().map(|s| (s.name().to_owned(), s.options().into())).collect();
    let run = json!({
        "seconds": options.run.time().as_secs_f64(),
        "repeat": options.run.repetitions(),
        "rounds": options.rounds,
        "sample_every": options.sample.unwrap_or(SAMPLE_WRITES),
        "sample_every_lookup": options.sample.unwrap_or(SAMPLE_LOOKUPS),
        "seed": options.run.seed,
        "quick": options.run.quick,
        "subjects": subjects,
    });
    if let (Some(line), Value::Object(run)) = (line.as_object_mut(), run) {
        line.extend(run);
    }
    line
}

struct Suite<'a> {
    subjects: &'a [&'a dyn Subject],
    options: &'a IndexOptions,
    data: &'a Data,
    /// One for each subject.
    tallies: Vec<Tally>,
    /// Memory of the process when all keys were made and no map was, in bytes.
    resident_before: Option<u64>,
    /// What the plot shows: a title and the course of time of the last run.
    plotted: Vec<(String, Measured)>,
    progress: Progress,
    report: Report,
}

/// Which run of which repetition this is.
#[derive(Clone, Copy)]
struct Turn {
    repetition: usize,
    subject: usize,
    threads: usize,
}

impl<'a> Suite<'a> {
    /// All turns with one number of threads, subject by subject within each repetition.
    fn turns(&self, threads: usize) -> Vec<Turn> {
        let subjects = self.subjects.len();
        let turns = (0..self.options.run.repetitions()).flat_map(|repetition| {
            (0..subjects).map(move |i| Turn {
                repetition,
                subject: (i + repetition) % subjects,
                threads,
            })
        });
        turns.collect()
    }

    /// The read-only workloads: all maps are loaded once and stay, so that the turns are short.
    fn read(&mut self, workloads: &[Workload]) -> Result<()> {
        let workloads: Vec<_> = workloads.iter().filter(|w| w.is_read_only()).collect();
        if workloads.is_empty() {
            return Ok(());
        }
        let mut maps = Vec::new();
        for subject in 0..self.subjects.len() {
            let turn = Turn { repetition: 0, subject, threads: 1 };
            let map = self.load(turn, &self.data.loaded)?;
            self.weigh(turn, "load_memory", map.as_ref(), self.data.loaded.len());
            maps.push(map);
        }
        for &&workload in &workloads {
            let case = Case::new(workload, self.data, self.options)?;
            for threads in self.options.run.threads.clone() {
                for turn in self.turns(threads) {
                    let map = maps[turn.subject].as_ref();
                    let measured = self.perform(&case, Step::Read, turn, map)?;
                    self.keep(turn, workload.name(), workload, measured);
                }
            }
        }
        Ok(())
    }

    fn change(&mut self, workload: Workload) -> Result<()> {
        let case = Case::new(workload, self.data, self.options)?;
        for threads in self.options.run.threads.clone() {
            for turn in self.turns(threads) {
                let name = self.subjects[turn.subject].name();
                self.change_one(&case, turn).with_context(|| name.to_owned())?;
            }
        }
        Ok(())
    }

    fn change_one(&mut self, case: &Case<'_>, turn: Turn) -> Result<()> {
        let (workload, name) = (case.workload, case.workload.name());
        let map = self.load(turn, &case.loaded)?;
        match workload {
            Workload::Growth => return self.grow(case, turn, map.as_ref()),
            Workload::Remove => return self.remove_most(case, turn, map.as_ref(), "remove"),
            _ => {}
        }
        let mut total: Option<Measured> = None;
        for round in 0..case.rounds {
            let measured = self.perform(case, Step::Round(round), turn, map.as_ref())?;
            match &mut total {
                Some(total) => total.follow(&measured)?,
                None => total = Some(measured),
            }
        }
        let measured = total.context("no rounds")?;
        let inserts = case.inserts() * case.rounds;
        if workload.inserts_percent() < 100 {
            let value = inserts as f64 / measured.seconds.max(1e-9);
            let sample = Sample { value, unit: "ops/s", latency: latency(&measured.write_latency) };
            self.add(turn, &format!("{name}_insert"), sample);
        }
        self.keep(turn, name, workload, measured);
        self.tell_changes(turn, name);
        let pairs = case.loaded.len() + inserts;
        self.weigh(turn, &format!("{name}_memory"), map.as_ref(), pairs);
        if self.options.verify {
            self.verify(case, turn, map.as_ref(), |_| true);
        }
        if workload.is_poison() {
            let measured = self.perform(case, Step::ReadAfter(case.rounds), turn, map.as_ref())?;
            self.keep(turn, &format!("{name}_lookup"), workload, measured);
        }
        if workload == Workload::Insert {
            self.remove_most(case, turn, map.as_ref(), "insert_remove")?;
        }
        Ok(())
    }

    /// Reports the most entries that one write has copied to change the structure, and how many of
    /// the timed writes that took over a millisecond did so and did not: a clock alone cannot say
    /// whose fault a slow one is.
    fn tell_changes(&mut self, turn: Turn, name: &str) {
        let changes = self.tallies[turn.subject].take_changes();
        if changes.most == 0 {
            return;
        }
        for (what, count, unit) in [
            ("moved_most", changes.most, "entries"),
            ("slow_moved", changes.slow_moved, "writes"),
            ("slow_other", changes.slow_other, "writes"),
        ] {
            self.add(turn, &format!("{name}_{what}"), Sample::plain(count as f64, unit));
        }
    }

    /// Reports inserts, lookups and memory at each power of ten of the keys:
    /// `growth_1000000_lookup` is the rate of lookups in 1,000,000 keys, and
    /// `growth_1000000_insert` the rate of the inserts since the power before.
    fn grow(&mut self, case: &Case<'_>, turn: Turn, map: &dyn Loaded) -> Result<()> {
        let mut grown: Option<Measured> = None;
        for rounds in 0..=case.rounds {
            if let Some(round) = rounds.checked_sub(1) {
                let measured = self.perform(case, Step::Round(round), turn, map)?;
                match &mut grown {
                    Some(grown) => grown.follow(&measured)?,
                    None => grown = Some(measured),
                }
            }
            // A hundredth, a tenth, and all of them.
            if ![0, 1, case.rounds].contains(&rounds) {
                continue;
            }
            let keys = case.loaded.len() + case.inserted_by(rounds).len();
            let name = format!("growth_{keys}");
            if let Some(grown) = grown.take() {
                self.keep(turn, &format!("{name}_insert"), case.workload, grown);
            }
            let measured = self.perform(case, Step::ReadAfter(rounds), turn, map)?;
            self.keep(turn, &format!("{name}_lookup"), case.workload, measured);
            self.weigh(turn, &format!("{name}_memory"), map, keys);
        }
        self.tell_changes(turn, "growth");
        if self.options.verify {
            self.verify(case, turn, map, |_| true);
        }
        Ok(())
    }

    /// Removes nine in ten of all keys, and reports memory after a quiet moment: per pair that
    /// there was at the peak, and as a share of the peak.
    fn remove_most(
        &mut self,
        case: &Case<'_>,
        turn: Turn,
        map: &dyn Loaded,
        name: &str,
    ) -> Result<()> {
        let at_peak = map.memory_bytes();
        let measured = self.perform(case, Step::RemoveMost, turn, map)?;
        self.keep(turn, name, case.workload, measured);
        self.say(turn, "quiet");
        std::thread::sleep(self.options.quiet());
        let pairs = case.loaded.len() + case.inserted().len();
        self.weigh(turn, &format!("{name}d_memory"), map, pairs);
        if let (Some(peak), Some(now)) = (at_peak, map.memory_bytes()) {
            let share = 100.0 * now as f64 / peak.max(1) as f64;
            self.add(turn, &format!("{name}d_share"), Sample::plain(share, "% of peak"));
        }
        if self.options.verify {
            self.verify(case, turn, map, is_kept);
        }
        Ok(())
    }

    /// Holds the whole map against what was loaded and inserted and is kept.
    fn verify(
        &mut self,
        case: &Case<'_>,
        turn: Turn,
        map: &dyn Loaded,
        is_kept: impl Fn(u64) -> bool,
    ) {
        self.say(turn, "verify");
        let all = case.loaded.iter().chain(case.inserted()).copied();
        let (mut expected, mut absent): (Vec<_>, Vec<_>) = all.partition(|&key| is_kept(key));
        expected.sort_unstable();
        absent.extend(case.fresh[case.inserted().len()..].iter().copied());
        absent.truncate(ABSENT_KEYS_MAX);
        map.verify(&expected, &absent, &self.tallies[turn.subject]);
    }

    fn load(&mut self, turn: Turn, sorted: &[u64]) -> Result<Box<dyn Loaded>> {
        self.say(turn, "load");
        let subject = self.subjects[turn.subject];
        subject.load(sorted).with_context(|| format!("{}: cannot load", subject.name()))
    }

    fn perform(
        &mut self,
        case: &Case<'_>,
        step: Step,
        turn: Turn,
        map: &dyn Loaded,
    ) -> Result<Measured> {
        self.say(turn, case.workload.name());
        let is_timed = matches!(step, Step::Read | Step::ReadAfter(_));
        let sample_every = match case.workload {
            // A batch is timed as a whole: the clock is cheap there.
            Workload::Batch64 => 1,
            // Two readings are a tenth of the fastest subject's scan.
            Workload::Scan100 => self.options.sample.unwrap_or(SAMPLE_WRITES),
            // Reading the clock keeps the processor from running one lookup into the next, which
            // would cost the fastest subject most.
            _ if is_timed => self.options.sample.unwrap_or(SAMPLE_LOOKUPS),
            _ => self.options.sample.unwrap_or(SAMPLE_WRITES),
        };
        let course = Course {
            threads: turn.threads,
            time: is_timed.then(|| self.options.run.time()),
            sample_every,
            seed: self.options.run.seed
                ^ ((turn.repetition as u64 + 1) << 40)
                ^ ((case.workload as u64) << 32)
                ^ if let Step::Round(round) = step { (round as u64) << 48 } else { 0 },
        };
        let task = Task { case, step, course, tally: &self.tallies[turn.subject] };
        let (progress, unit) = (&mut self.progress, case.workload.unit());
        map.perform(&task, &mut |units, elapsed| {
            progress.rate(units, elapsed, unit);
            Ok(())
        })
    }

    /// Reports a run under `name`.
    fn keep(&mut self, turn: Turn, name: &str, workload: Workload, measured: Measured) {
        self.add(turn, name, Sample::rate(&measured, workload.unit()));
        if self.options.plot.is_some() {
            let subject = self.subjects[turn.subject].name();
            let title = format!("{subject} {name}, {} threads", turn.threads);
            self.plotted.retain(|(other, _)| *other != title);
            self.plotted.push((title, measured));
        }
    }

    fn add(&mut self, turn: Turn, name: &str, sample: Sample) {
        let subject = self.subjects[turn.subject].name();
        self.report.add(subject, name, turn.threads, sample);
    }

    /// Reports what the map says that it takes and, where nobody else's memory is in the process,
    /// by how much the process grew; both per pair.
    fn weigh(&mut self, turn: Turn, name: &str, map: &dyn Loaded, pairs: usize) {
        let per_pair = |bytes: f64| Sample::plain(bytes / pairs.max(1) as f64, "bytes/pair");
        if let Some(bytes) = map.memory_bytes() {
            self.add(turn, name, per_pair(bytes as f64));
        }
        if let (1, Some(before), Some(now)) =
            (self.subjects.len(), self.resident_before, environment::resident_bytes())
        {
            let grown = now.saturating_sub(before) as f64;
            self.add(turn, &name.replace("memory", "resident"), per_pair(grown));
        }
    }

    fn say(&mut self, turn: Turn, what: &str) {
        let name = self.subjects[turn.subject].name();
        let repetitions = self.options.run.repetitions();
        self.progress.task(format!("{}/{repetitions} {name} {what}", turn.repetition + 1));
    }

    /// How many times slower and larger crafted keys make each subject than as many random ones.
    fn compare_poisons(&mut self, workloads: &[Workload]) {
        let poisons = workloads.iter().filter(|w| w.is_poison() && **w != Workload::PoisonRandom);
        let mut ratios = Vec::new();
        for poison in poisons {
            for threads in &self.options.run.threads {
                for subject in self.subjects {
                    let value = |workload: &str, figure: &str| {
                        let line = format!("{workload}_{figure}");
                        self.report.value(subject.name(), &line, *threads)
                    };
                    let random = Workload::PoisonRandom.name();
                    for (figure, is_rate) in [("lookup", true), ("memory", false)] {
                        let pair = value(random, figure).zip(value(poison.name(), figure));
                        if let Some((random, crafted)) = pair {
                            let times = if is_rate { random / crafted } else { crafted / random };
                            let name = format!("{}_{figure}_times_random", poison.name());
                            ratios.push((subject.name(), name, *threads, times));
                        }
                    }
                }
            }
        }
        for (subject, name, threads, times) in ratios {
            self.report.add(subject, &name, threads, Sample::plain(times, "times"));
        }
    }

    fn conclude(mut self) -> Result<(Report, u64)> {
        let mut faults = 0;
        for (subject, tally) in self.subjects.iter().zip(&self.tallies) {
            let name = subject.name();
            let [checked, missing, wrong, ghosts] = tally.read();
            faults += missing + wrong + ghosts;
            self.report.conclude(
                format!(
                    "{name}: {checked} answers verified, {missing} missing, {wrong} wrong, \
                     {ghosts} ghosts"
                ),
                json!({
                    "verified": true, "suite": "index", "subject": name, "checked": checked,
                    "missing": missing, "wrong": wrong, "ghosts": ghosts,
                }),
            );
        }
        if let Some(path) = &self.options.plot {
            timeline::draw(&self.plotted, path)?;
        }
        Ok((self.report, faults))
    }
}

#[cfg(test)]
mod tests;
