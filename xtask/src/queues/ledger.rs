//! What became of each job of a queue, as its producers and consumers saw it.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use serde_json::json;

#[derive(Default)]
struct Job {
    /// A producer has sent it.
    is_tried: bool,
    /// The server has acknowledged it.
    is_added: bool,
    deliveries: u64,
    /// Deliveries that are no repetition by the queue's own rules.
    firsts: u64,
    /// When the server acknowledged that it is done.
    done: Option<Instant>,
    /// Deliveries that were asked for after that.
    after_done: u64,
    /// The queue has it as done at the end.
    is_kept: bool,
}

/// The jobs of one queue by their names.
#[derive(Default)]
pub(super) struct Ledger {
    jobs: Mutex<HashMap<String, Job>>,
    faults: Mutex<Vec<String>>,
}

/// What is said of a queue at the end.
pub(super) struct Report {
    pub(super) name: &'static str,
    tried: usize,
    added: usize,
    delivered: u64,
    repeated: u64,
    done: usize,
    pub(super) lost: usize,
    after_done: u64,
    twice: usize,
    unknown: usize,
    pub(super) faults: Vec<String>,
}

impl Ledger {
    fn with<R>(&self, name: &str, change: impl FnOnce(&mut Job) -> R) -> R {
        change(self.jobs().entry(name.to_owned()).or_default())
    }

    fn jobs(&self) -> MutexGuard<'_, HashMap<String, Job>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn tried(&self, name: &str) {
        self.with(name, |job| job.is_tried = true);
    }

    pub(super) fn added(&self, name: &str) {
        self.with(name, |job| job.is_added = true);
    }

    /// A consumer, which asked at this time, was given a job: for the first time by the rules of
    /// the queue, or once more.
    pub(super) fn delivered(&self, name: &str, asked: Instant, is_first: bool) {
        self.with(name, |job| {
            job.deliveries += 1;
            job.firsts += u64::from(is_first);
            job.after_done += u64::from(job.done.is_some_and(|done| done < asked));
        });
    }

    /// The queue has this job as done at the end.
    pub(super) fn kept(&self, name: &str) {
        self.with(name, |job| job.is_kept = true);
    }

    /// Says which acknowledged jobs the queue does not have as done at the end.
    pub(super) fn must_be_kept(&self) {
        let absent = self.jobs().values().filter(|job| job.is_added && !job.is_kept).count();
        if absent > 0 {
            self.fault(format!("{absent} jobs are not done at the end"));
        }
    }

    pub(super) fn done(&self, name: &str) {
        self.with(name, |job| job.done = Some(Instant::now()));
    }

    /// Something that must not happen, in words.
    pub(super) fn fault(&self, what: String) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// How many acknowledged jobs no consumer was given.
    pub(super) fn undelivered(&self) -> usize {
        self.jobs().values().filter(|job| job.is_added && job.deliveries == 0).count()
    }

    /// Says which acknowledged jobs are not among `found`, which must hold them all, each once.
    pub(super) fn must_hold(&self, found: &[String]) {
        let mut counts: HashMap<&str, u64> = HashMap::new();
        found.iter().for_each(|name| *counts.entry(name).or_default() += 1);
        let jobs = self.jobs();
        let absent =
            jobs.iter().filter(|(name, job)| job.is_added && !counts.contains_key(&***name));
        let absent = absent.count();
        let repeated = counts.values().filter(|count| **count > 1).count();
        drop(jobs);
        if absent + repeated > 0 {
            self.fault(format!("{absent} jobs are not kept, {repeated} are kept twice"));
        }
    }

    pub(super) fn report(&self, name: &'static str) -> Report {
        let jobs = self.jobs();
        let count = |is: fn(&Job) -> bool| jobs.values().filter(|job| is(job)).count();
        let sum = |of: fn(&Job) -> u64| jobs.values().map(of).sum::<u64>();
        Report {
            name,
            tried: count(|job| job.is_tried),
            added: count(|job| job.is_added),
            delivered: sum(|job| job.deliveries),
            repeated: sum(|job| job.deliveries.saturating_sub(1)),
            done: count(|job| job.done.is_some()),
            lost: count(|job| job.is_added && job.deliveries == 0),
            after_done: sum(|job| job.after_done),
            twice: count(|job| job.firsts > 1),
            unknown: count(|job| !job.is_tried),
            faults: self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

impl Report {
    /// The first line of a table of reports.
    pub(super) const HEAD: &'static str = "queue      tried    added  delivered  repeated     done  lost  after-done  twice  unknown  faults";

    pub(super) fn line(&self) -> String {
        format!(
            "{:8} {:7}  {:7}  {:9}  {:8}  {:7}  {:4}  {:10}  {:5}  {:7}  {:6}",
            self.name,
            self.tried,
            self.added,
            self.delivered,
            self.repeated,
            self.done,
            self.lost,
            self.after_done,
            self.twice,
            self.unknown,
            self.faults.len()
        )
    }

    pub(super) fn json(&self, kills: u64) -> String {
        json!({"queue": self.name, "kills": kills, "tried": self.tried, "added": self.added,
            "delivered": self.delivered, "repeated": self.repeated, "done": self.done,
            "lost": self.lost, "after_done": self.after_done, "twice": self.twice,
            "unknown": self.unknown, "faults": self.faults})
        .to_string()
    }

    /// Returns true if the queue kept its promises, but that up to `may_lose` jobs are lost.
    pub(super) fn is_right(&self, may_lose: usize) -> bool {
        let wrong = self.after_done + (self.twice + self.unknown + self.faults.len()) as u64;
        self.added > 0 && self.lost <= may_lose && wrong == 0
    }
}
