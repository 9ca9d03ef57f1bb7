//! Where figures are measured: the records, hosts that keep them, and the cost of operations.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, RwLock},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rhumb_remote::{
    Client, ClientBuilder, Host, HostBuilder, Keyspace, ModelStats, ShareOptions, ShareStats,
};

use super::{PapersOptions, results::Counts};
use crate::{
    progress::Progress,
    random::Rng,
    suite::remote::{
        Outcome,
        batch::{Chooser, Tally},
        client::{Course, clean, count, cpu_ns, thread_cpu_ns},
        options::{
            Data,
            Distribution::{self, Uniform},
        },
        rhumb::OneSided,
        subject::Session,
        workload::{Kind, Workload},
    },
    workspace::Workspace,
};

/// The keyspace that a host shares.
pub(super) const NAME: &str = "records";

/// Records of one batch while a host is loaded: a call takes as long as some dozens of inserts.
pub(super) const LOADED_AT_ONCE: usize = 1_000;

/// Gets after which a client has all that it keeps, at least.
const WARM_UP_GETS: u64 = 8_192;

/// The time between two looks at a trainer.
const TRAINER_EVERY: Duration = Duration::from_millis(5);

/// What all figures share.
pub(super) struct Field<'a> {
    pub(super) options: &'a PapersOptions,
    directory: PathBuf,
    /// How answers were.
    pub(super) tally: Tally,
    progress: Progress,
}

impl<'a> Field<'a> {
    pub(super) fn new(
        options: &'a PapersOptions,
        directory: PathBuf,
        progress: Progress,
    ) -> Result<Self> {
        Workspace::empty(&directory)?;
        Ok(Self { options, directory, tally: Tally::default(), progress })
    }

    /// Where the sockets of this run are.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Says what is done from now on.
    pub(super) fn task(&mut self, task: impl Into<String>) {
        self.progress.task(task);
    }

    /// A host that keeps the records of `data`, once its models are trained.
    ///
    /// # Errors
    /// If it does not start, or takes no records.
    pub(super) fn host(
        &mut self,
        data: &Data,
        options: ShareOptions,
        settings: impl FnOnce(HostBuilder) -> HostBuilder,
    ) -> Result<Kept> {
        self.task("loading a host");
        let path = self.directory.join("host.sock");
        let options = options.entry_bytes(data.entry_bytes());
        let host = settings(Host::listen(&path).share(NAME, options)).start()?;
        let kept = Kept { host };
        let client = kept.builder().connect()?;
        let keyspace = client.keyspace(NAME)?;
        let (mut value, records) = (Vec::new(), (0..data.records).collect::<Vec<_>>());
        for some in records.chunks(LOADED_AT_ONCE) {
            let mut batch = client.batch();
            for record in some {
                let key = data.key(*record);
                data.values.fill(key, 0, &mut value);
                batch.insert(&keyspace, key, &value);
            }
            batch.commit().context("cannot load the host")?;
        }
        kept.settle();
        Ok(kept)
    }
}

/// A host of this process that keeps records.
pub(super) struct Kept {
    host: Host,
}

impl Kept {
    /// Settings of a client.
    pub(super) fn builder(&self) -> ClientBuilder {
        Client::builder(self.host.path())
    }

    /// Settings of a client over TCP, of a host that listens there.
    pub(super) fn tcp_builder(&self) -> Result<ClientBuilder> {
        let address = self.host.tcp_addresses().first().context("a host that listens for TCP")?;
        Ok(Client::builder(format!("tcp:{address}")))
    }

    /// The keyspace, by a client of these settings.
    pub(super) fn keyspace(&self, builder: ClientBuilder) -> Result<Keyspace> {
        Ok(builder.connect()?.keyspace(NAME)?)
    }

    /// A session of a client with these settings.
    pub(super) fn session(&self, builder: ClientBuilder) -> Result<OneSided> {
        Ok(OneSided::new(self.keyspace(builder)?))
    }

    /// A session whose reads are calls.
    pub(super) fn session_by_calls(&self) -> Result<OneSided> {
        Ok(OneSided::new(self.keyspace(self.builder())?.by_calls()))
    }

    /// What it holds.
    pub(super) fn stats(&self) -> ShareStats {
        self.host.stats(NAME).unwrap_or_default()
    }

    /// Has the host hold a lock while it trains arrays.
    pub(super) fn train_alone(&self, lock: &Arc<RwLock<()>>) -> Result<()> {
        Ok(self.host.train_alone(NAME, Arc::clone(lock))?)
    }

    /// What its models have cost.
    pub(super) fn models(&self) -> ModelStats {
        self.stats().models
    }

    /// Waits until no model is to be trained.
    pub(super) fn settle(&self) {
        while self.models().waiting > 0 {
            thread::sleep(TRAINER_EVERY);
        }
    }
}

/// What one client knows of a keeper's records, and the operations that it performs.
pub(super) struct Player<'a> {
    pub(super) chooser: Chooser<'a>,
    pub(super) rng: Rng,
}

impl<'a> Player<'a> {
    /// The only client of freshly loaded records.
    pub(super) fn new(data: &'a Data, options: &PapersOptions) -> Self {
        Self { chooser: Chooser::new(data, 0, 1), rng: Rng::new(options.run.seed) }
    }

    /// Performs a batch, and checks it; returns the numbers of its reads and of its inserts.
    ///
    /// # Errors
    /// As the session.
    pub(super) fn batch(
        &mut self,
        field: &mut Field<'_>,
        session: &mut dyn Session,
        (workload, distribution): (Workload, Distribution),
    ) -> Result<(u64, u64)> {
        self.chooser.choose(workload, distribution, &mut self.rng);
        let (batch, answers) = self.chooser.batch();
        session.perform(batch, answers)?;
        let of = |kind| batch.operations.iter().filter(|done| done.kind == kind).count() as u64;
        let counts = (of(Kind::Read), of(Kind::Insert));
        self.chooser.check();
        field.tally.add(std::mem::take(&mut self.chooser.tally));
        Ok(counts)
    }

    /// Performs batches for as long as a timed run takes, or until nothing is left to insert.
    ///
    /// # Errors
    /// As the session.
    pub(super) fn run(
        &mut self,
        field: &mut Field<'_>,
        session: &mut dyn Session,
        mix: (Workload, Distribution),
    ) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < field.options.time() && self.batch(field, session, mix)? != (0, 0) {
        }
        Ok(())
    }

    /// Reads until the client has what it keeps.
    ///
    /// # Errors
    /// As the session.
    pub(super) fn warm_up(
        &mut self,
        field: &mut Field<'_>,
        session: &mut dyn Session,
    ) -> Result<()> {
        let (begun, mut gets) = (Instant::now(), 0);
        while gets < WARM_UP_GETS || begun.elapsed() < field.options.time() {
            gets += self.batch(field, session, (Workload::C, Uniform))?.0;
        }
        Ok(())
    }

    /// Reads a loaded record that nobody has written since, by itself.
    ///
    /// # Errors
    /// As the keyspace.
    pub(super) fn check_get(
        &mut self,
        field: &mut Field<'_>,
        keyspace: &Keyspace,
        data: &Data,
    ) -> Result<()> {
        let key = data.key(self.rng.below(data.records as u64) as usize);
        let value = keyspace.get(key)?;
        field.tally.checked += 1;
        field.tally.missing += u64::from(value.is_none());
        let is_right = |value: Vec<u8>| data.values.version_of(key, &value) == Some(0);
        field.tally.wrong += u64::from(!value.is_none_or(is_right));
        Ok(())
    }

    /// What an operation costs: medians over repetitions. What was inserted is removed again.
    ///
    /// # Errors
    /// As the session.
    pub(super) fn measure(
        &mut self,
        field: &mut Field<'_>,
        session: &mut dyn Session,
        (workload, distribution): (Workload, Distribution),
        keys: usize,
    ) -> Result<Counts> {
        let mut all: Vec<Counts> = Vec::new();
        for _ in 0..field.options.repetitions() {
            let course = Course {
                workload,
                distribution,
                time: field.options.time(),
                cpu_ns: thread_cpu_ns,
            };
            let others_ns = || cpu_ns().saturating_sub(thread_cpu_ns());
            let before = others_ns();
            let run = course.run(session, &mut self.chooser, &mut self.rng)?;
            let server_ns = others_ns().saturating_sub(before);
            let mix = (workload, distribution);
            let counted = count(session, &mut self.chooser, mix, &mut self.rng)?;
            clean(session, &mut self.chooser)?;
            field.tally.add(std::mem::take(&mut self.chooser.tally));
            let outcome = Outcome::of(&[run], &[counted])?;
            let mut counts = outcome.counts(Some(server_ns), keys);
            let latency = outcome.sample(workload).latency;
            counts.extend(latency.map(|latency| ("p50_ns", latency[0] as f64)));
            all.push(counts);
        }
        Ok(medians(all))
    }
}

/// The median of each number.
pub(super) fn medians(all: Vec<Counts>) -> Counts {
    let names: Vec<&'static str> = all.iter().flatten().take(all[0].len()).map(|c| c.0).collect();
    let of = |at: usize| {
        let mut values: Vec<f64> = all.iter().map(|counts| counts[at].1).collect();
        values.sort_unstable_by(f64::total_cmp);
        values[values.len() / 2]
    };
    names.into_iter().enumerate().map(|(at, name)| (name, of(at))).collect()
}
