//! The remote suite: a keyspace that is shared with other processes, read in several ways.
//!
//! The data is kept by a process of its own, the *keeper*, and read by one or more client
//! processes, each with one thread. All are this program once more. Subjects take turns within each
//! repetition, workload by workload, and the order rotates. Clients choose a batch of operations
//! before the clock starts and check the answers after it has stopped: all answers are checked, and
//! none of that is measured.
//!
//! With `--servers` the keys are divided among several such processes, and clients have a routing
//! table of them: the share of the operations that each got is counted too.
//!
//! What each operation costs is counted beside the time: one-sided reads, calls, round trips, CPU
//! time of client and host. On few cores these decide more than rates do.

pub mod batch;
pub(in crate::suite) mod client;
#[cfg(feature = "rhumb")]
mod divided;
pub mod options;
mod process;
#[cfg(feature = "rhumb")]
pub mod rhumb;
pub mod subject;
#[cfg(test)]
mod tests;
#[cfg(feature = "rhumb")]
pub mod walk;
pub mod workload;

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use self::{
    client::{Client, cpu_ns},
    options::SERVERS_MAX,
    process::{End, Process, Role, listen},
    subject::{Place, Subject},
    workload::Workload,
};
pub use self::{
    options::{Data, RemoteOptions},
    process::is_part_of_a_run,
    workload::choose as choose_workloads,
};
use crate::{
    drive::histogram,
    environment,
    progress::Progress,
    report::{Heading, Report, Sample, latency},
    workspace::Workspace,
};

/// The suite's name.
const SUITE: &str = "remote";

/// Chooses subjects by their names, in the order of the names; all if none is named.
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
    Ok(if names.is_empty() { known.to_vec() } else { chosen })
}

/// Runs `workloads` on `subjects` and prints the report, whose last lines count what was missing
/// or wrong. In a process of a run, which is started with the same arguments, does that process'
/// part and ends it.
///
/// # Errors
/// If a subject fails, or, after the report, if any answer was not the truth.
pub fn run(
    subjects: &[&dyn Subject],
    workloads: &[Workload],
    options: &RemoteOptions,
) -> Result<()> {
    options.validate()?;
    ensure!(!subjects.is_empty(), "no subjects");
    if let Some((role, directory)) = Role::of_this_process()? {
        return play(role, subjects, options, &directory);
    }
    let data = options.data()?;
    let heading = Heading {
        suite: SUITE,
        data: data.set.name.clone(),
        keys: data.records,
        value_bytes: data.values.size(),
    };
    drop(data);
    let workspace = Workspace::create(None)?;
    let mut suite = Suite {
        subjects,
        options,
        tallies: vec![[0; 3]; subjects.len()],
        progress: Progress::default(),
        report: Report::new(heading, environment_line(subjects, options)),
    };
    for &clients in &options.clients {
        let directory = workspace.path(&format!("clients-{clients}"));
        Workspace::empty(&directory)?;
        suite.measure(workloads, clients, &directory)?;
    }
    let Suite { tallies, progress, mut report, .. } = suite;
    drop(progress);
    let mut faults = 0;
    for (subject, [checked, missing, wrong]) in subjects.iter().zip(tallies) {
        faults += missing + wrong;
        if checked + missing == 0 {
            continue;
        }
        let name = subject.name();
        report.conclude(
            format!("{name}: {checked} answers verified, {missing} missing, {wrong} wrong"),
            json!({
                "verified": true, "suite": SUITE, "subject": name, "checked": checked,
                "missing": missing, "wrong": wrong,
            }),
        );
    }
    report.print(options.run.json)?;
    ensure!(faults == 0, "{faults} answers were missing or wrong");
    Ok(())
}

/// What a process of a run does until the run ends.
fn play(
    role: Role,
    subjects: &[&dyn Subject],
    options: &RemoteOptions,
    directory: &Path,
) -> Result<()> {
    let end = if matches!(role, Role::Keeper { .. }) { End::InOrder } else { End::AtOnce };
    let requests = listen(end);
    let data = options.data()?;
    let server = if let Role::Keeper { server, .. } = role { server } else { 0 };
    let place = Place { directory, options, data: &data, server };
    match role {
        Role::Keeper { name, .. } => {
            let subject = subjects.iter().find(|subject| subject.keeper() == Some(&name));
            let server = subject.with_context(|| format!("no keeper {name}"))?.start(&place)?;
            let (text, object) = server.describe();
            requests.serve(&json!({ "text": text, "object": object }), |_| {
                Ok(json!({ "cpu_ns": server.cpu_ns().unwrap_or_else(cpu_ns) }))
            })
        }
        Role::Client { number, clients } => {
            let mut client = Client::new(subjects, &place, (number, clients))?;
            requests.serve(&json!({}), |request| client.answer(request))
        }
    }
}

fn environment_line(subjects: &[&dyn Subject], options: &RemoteOptions) -> Value {
    let mut line = environment::describe();
    let subjects: Map<_, _> =
        subjects.iter().map(|s| (s.name().to_owned(), s.options().into())).collect();
    let run = json!({
        "seconds": options.run.time().as_secs_f64(),
        "repeat": options.run.repetitions(),
        "seed": options.run.seed,
        "quick": options.run.quick,
        "clients": options.clients,
        "servers": options.servers,
        "distribution": options.distribution.map(options::Distribution::name),
        "threads_are": "client processes",
        "subjects": subjects,
    });
    if let (Some(line), Value::Object(run)) = (line.as_object_mut(), run) {
        line.extend(run);
    }
    line
}

struct Suite<'a> {
    subjects: &'a [&'a dyn Subject],
    options: &'a RemoteOptions,
    /// Checked, missing and wrong, for each subject.
    tallies: Vec<[u64; 3]>,
    progress: Progress,
    report: Report,
}

/// The processes of a run.
struct Team {
    /// The processes of each keeper.
    keepers: BTreeMap<&'static str, Vec<Process>>,
    clients: Vec<Process>,
}

impl Team {
    /// Asks all clients at once, and waits for all.
    fn ask(&mut self, request: &Value) -> Result<Vec<Value>> {
        for client in &mut self.clients {
            client.send(request)?;
        }
        self.clients.iter_mut().map(Process::receive).collect()
    }

    /// CPU time of a subject's keepers so far, in nanoseconds.
    fn keeper_ns(&mut self, subject: &dyn Subject) -> Result<Option<u64>> {
        let Some(keepers) = subject.keeper().and_then(|name| self.keepers.get_mut(name)) else {
            return Ok(None);
        };
        let mut sum = Some(0);
        for keeper in keepers {
            let ns = keeper.ask(&json!({}))?["cpu_ns"].as_u64();
            sum = sum.zip(ns).map(|(sum, ns)| sum + ns);
        }
        Ok(sum)
    }
}

impl Suite<'_> {
    fn measure(&mut self, workloads: &[Workload], clients: usize, directory: &Path) -> Result<()> {
        let mut team = self.gather(clients, directory)?;
        for &workload in workloads {
            for repetition in 0..self.options.run.repetitions() {
                for i in 0..self.subjects.len() {
                    let subject = (i + repetition) % self.subjects.len();
                    if self.subjects[subject].performs(workload) {
                        let turn = Turn { subject, workload, repetition };
                        self.take(turn, &mut team)?;
                    }
                }
            }
        }
        if self.options.verify {
            for subject in 0..self.subjects.len() {
                let name = self.subjects[subject].name();
                self.progress.task(format!("{name} verify"));
                let answers = team.ask(&json!({ "do": "verify", "subject": name }))?;
                self.tally(subject, &answers);
            }
        }
        Ok(())
    }

    /// Starts keepers, which load the data, and clients.
    fn gather(&mut self, clients: usize, directory: &Path) -> Result<Team> {
        let mut team = Team { keepers: BTreeMap::new(), clients: Vec::new() };
        for subject in self.subjects {
            let Some(name) = subject.keeper() else { continue };
            if !team.keepers.contains_key(name) {
                self.progress.task(format!("{name} load"));
                let start = |server| {
                    let role = Role::Keeper { name: name.to_owned(), server };
                    Process::start(role, directory)
                };
                let mut keepers: Vec<Process> =
                    (0..subject.servers(self.options)).map(start).collect::<Result<_>>()?;
                for keeper in &mut keepers {
                    let described = keeper.receive()?;
                    let text = described["text"].as_str().unwrap_or_default().to_owned();
                    self.report.conclude(text, described["object"].clone());
                }
                team.keepers.insert(name, keepers);
            }
        }
        self.progress.task("starting clients");
        for number in 0..clients {
            team.clients.push(Process::start(Role::Client { number, clients }, directory)?);
        }
        for client in &mut team.clients {
            client.receive()?;
        }
        Ok(team)
    }

    /// One subject in one repetition.
    fn take(&mut self, turn: Turn, team: &mut Team) -> Result<()> {
        let (subject, workload) = (self.subjects[turn.subject], turn.workload);
        let (name, clients) = (subject.name(), team.clients.len());
        let repetitions = self.options.run.repetitions();
        let (repetition, what) = (turn.repetition + 1, workload.name());
        self.progress.task(format!("{repetition}/{repetitions} {name} {what}"));
        let mut request = json!({
            "do": "run", "subject": name, "workload": what,
            "seed": (turn.repetition as u64 + 1) << 40 ^ (workload as u64) << 32,
        });
        let before = team.keeper_ns(subject)?;
        let runs = team.ask(&request)?;
        let after = team.keeper_ns(subject)?;
        request["do"] = "count".into();
        let counted = team.ask(&request)?;
        request["do"] = "clean".into();
        team.ask(&request)?;
        self.tally(turn.subject, &runs);
        self.tally(turn.subject, &counted);
        let result = Outcome::of(&runs, &counted)?;
        let server_ns = before.zip(after).map(|(before, after)| after.saturating_sub(before));
        let keys = self.report.keys();
        self.report.add(name, what, clients, result.sample(workload));
        self.report.add_counts(name, what, clients, &result.counts(server_ns, keys));
        Ok(())
    }

    fn tally(&mut self, subject: usize, answers: &[Value]) {
        for answer in answers {
            for (sum, number) in self.tallies[subject].iter_mut().zip(0..) {
                *sum += answer["tally"][number as usize].as_u64().unwrap_or(0);
            }
        }
    }
}

/// Which run this is.
#[derive(Clone, Copy)]
struct Turn {
    subject: usize,
    workload: Workload,
    repetition: usize,
}

/// What all clients together did in a run.
pub(in crate::suite) struct Outcome {
    /// Operations a second, in the workload's unit.
    rate: f64,
    units: f64,
    timed_ns: f64,
    cpu_ns: f64,
    calls: f64,
    trips: f64,
    bytes: f64,
    cache_bytes: f64,
    /// One-sided reads of an operation.
    reads: f64,
    /// The share of the operations that each of several hosts got.
    shares: Vec<f64>,
    latency: Histogram<u64>,
}

impl Outcome {
    pub(in crate::suite) fn of(runs: &[Value], counted: &[Value]) -> Result<Self> {
        let number = |answer: &Value, name: &str| answer[name].as_f64().unwrap_or(0.0);
        let sum = |answers: &[Value], name: &str| -> f64 {
            answers.iter().map(|answer| number(answer, name)).sum()
        };
        let mut latency = histogram()?;
        for pair in runs.iter().filter_map(|run| run["latency"].as_array()).flatten() {
            let (value, count) = (pair[0].as_u64().unwrap_or(0), pair[1].as_u64().unwrap_or(0));
            latency.saturating_record_n(value, count);
        }
        let rate = |run: &Value| number(run, "units") * 1e9 / number(run, "timed_ns").max(1.0);
        Ok(Self {
            rate: runs.iter().map(rate).sum(),
            units: sum(runs, "units").max(1.0),
            timed_ns: sum(runs, "timed_ns"),
            cpu_ns: sum(runs, "cpu_ns"),
            calls: sum(runs, "calls"),
            trips: sum(runs, "trips"),
            bytes: sum(runs, "bytes"),
            // Of one client: others have as much again.
            cache_bytes: runs.iter().map(|run| number(run, "cache_bytes")).fold(0.0, f64::max),
            reads: sum(counted, "reads") / sum(counted, "units").max(1.0),
            shares: shares(counted),
            latency,
        })
    }

    pub(in crate::suite) fn sample(&self, workload: Workload) -> Sample {
        Sample { value: self.rate, unit: workload.unit(), latency: latency(&self.latency) }
    }

    /// What one operation cost, and bytes that a client keeps for each key.
    pub(in crate::suite) fn counts(
        &self,
        server_ns: Option<u64>,
        keys: usize,
    ) -> Vec<(&'static str, f64)> {
        let mut counts = vec![
            ("ns_per_op", self.timed_ns / self.units),
            ("reads_per_op", self.reads),
            ("calls_per_op", self.calls / self.units),
            ("trips_per_op", self.trips / self.units),
            ("bytes_per_op", self.bytes / self.units),
            ("client_ns_per_op", self.cpu_ns / self.units),
        ];
        counts.extend(server_ns.map(|ns| ("server_ns_per_op", ns as f64 / self.units)));
        counts.push(("cache_bytes_per_key", self.cache_bytes / keys.max(1) as f64));
        counts.extend(SHARES.into_iter().zip(self.shares.iter().copied()));
        counts
    }
}

/// The names of the shares of hosts, in their order.
const SHARES: [&str; SERVERS_MAX] = [
    "share_of_host_1",
    "share_of_host_2",
    "share_of_host_3",
    "share_of_host_4",
    "share_of_host_5",
    "share_of_host_6",
    "share_of_host_7",
    "share_of_host_8",
];

/// The share of the counted operations that each host got; none if there is one host.
fn shares(counted: &[Value]) -> Vec<f64> {
    let mut sums = Vec::new();
    for answer in counted {
        let of_hosts = answer["of_hosts"].as_array().map(Vec::as_slice).unwrap_or_default();
        sums.resize(of_hosts.len().max(sums.len()), 0.0);
        for (sum, count) in sums.iter_mut().zip(of_hosts) {
            *sum += count.as_f64().unwrap_or(0.0);
        }
    }
    let all: f64 = sums.iter().sum();
    if sums.len() < 2 { Vec::new() } else { sums.iter().map(|sum| sum / all.max(1.0)).collect() }
}
