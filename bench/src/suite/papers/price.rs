//! What sharing a keyspace costs: its writers, the time until it can be read, and memory.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use rhumb::{Database, Keyspace};
use rhumb_remote::{Host, ShareOptions, ShareStats};
use rhumb_share::{Shared, Source};

use super::{
    Figure,
    field::{Field, LOADED_AT_ONCE, NAME, medians},
    logging::load,
    results::{Counts, Results},
};
use crate::{
    random::Rng,
    suite::remote::{client::cpu_ns, options::Data},
    workspace::Workspace,
};

/// What `rhumb bench share` measures.
pub const PRICES: &[Figure] = &[WRITERS, REGION];

/// Writers beside a share and without one.
const WRITERS: Figure = Figure {
    name: "writers",
    claim: "writers of a shared keyspace keep 85 % of their throughput, and their P99.9 doubles at \
            most",
    run: writers,
};

/// The region of a share.
const REGION: Figure = Figure {
    name: "region",
    claim: "10 million keys can be read after 3 seconds; a region takes 2.2 bytes for each live \
            one at most, after random inserts and after ten updates of each key",
    run: region,
};

/// Memory of the engine: so much that its flushes are a small part of what writers wait for.
const ENGINE_BYTES: u64 = 1 << 30;

/// Writes between two looks at the clock.
const WRITES_PER_LOOK: usize = 256;

/// Updates of each key, after which a region that grew with them would have several times its size.
const ROUNDS: u32 = 10;

/// The time between two looks at a share that is being loaded.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A database with the loaded records, and its share if it has one.
struct Engine<'d> {
    data: &'d Data,
    keyspace: Keyspace,
    shared: Option<Shared>,
    database: Database,
    versions: Vec<u32>,
    /// Records that have been inserted so far.
    inserted: usize,
}

impl<'d> Engine<'d> {
    fn start(field: &mut Field<'_>, data: &'d Data, name: &str) -> Result<Self> {
        field.task(format!("loading a database: {name}"));
        let directory = field.directory().join(name);
        Workspace::empty(&directory)?;
        let database = Database::builder(&directory).memory_budget_bytes(ENGINE_BYTES).open()?;
        let keyspace = load(&database, data)?;
        let versions = vec![0; data.records];
        Ok(Self { data, keyspace, shared: None, database, versions, inserted: data.records })
    }

    /// Shares the records; returns the time until they can be read.
    fn share(&mut self, field: &Field<'_>) -> Result<Duration> {
        let options = ShareOptions::default().entry_bytes(self.data.entry_bytes());
        let begun = Instant::now();
        let shared = Shared::on(Host::listen(field.directory().join("host.sock")))
            .share(NAME, Source::of(self.keyspace.clone()), options)
            .start(&self.database)?;
        while !shared.stats(NAME).is_some_and(|stats| stats.is_live) {
            thread::sleep(LOOK_EVERY);
        }
        self.shared = Some(shared);
        Ok(begun.elapsed())
    }

    /// Writes for as long as a timed run takes, or until nothing is left to insert; returns what a
    /// write costs.
    fn write(&mut self, field: &Field<'_>, inserts: bool, rng: &mut Rng) -> Result<Counts> {
        let (mut latency_ns, mut value) = (Vec::new(), Vec::new());
        let (begun, cpu_before) = (Instant::now(), cpu_ns());
        let mut writing = Duration::ZERO;
        while begun.elapsed() < field.options.time() {
            let before = latency_ns.len();
            for _ in 0..WRITES_PER_LOOK {
                let (record, version) = if !inserts {
                    let record = rng.below(self.data.records as u64) as usize;
                    self.versions[record] += 1;
                    (record, self.versions[record])
                } else if self.inserted < self.data.set.keys.len() {
                    self.inserted += 1;
                    (self.inserted - 1, 0)
                } else {
                    break;
                };
                let key = self.data.key(record);
                self.data.values.fill(key, version, &mut value);
                let start = Instant::now();
                self.keyspace.insert(key, &value)?;
                latency_ns.push(start.elapsed().as_nanos() as u64);
            }
            writing += Duration::from_nanos(latency_ns[before..].iter().sum());
            if latency_ns.len() == before {
                break;
            }
        }
        let cpu_ns = cpu_ns().saturating_sub(cpu_before) as f64;
        let writes = latency_ns.len().max(1);
        latency_ns.sort_unstable();
        let at = |share: f64| {
            let index = (writes as f64 * share) as usize;
            latency_ns.get(index.min(writes - 1)).map_or(0.0, |ns| *ns as f64)
        };
        Ok(vec![
            ("writes_per_second", writes as f64 / writing.as_secs_f64().max(1e-9)),
            ("p50_ns", at(0.5)),
            ("p99_ns", at(0.99)),
            ("p99_9_ns", at(0.999)),
            ("cpu_ns_per_op", cpu_ns / writes as f64),
        ])
    }

    /// Removes what was inserted, so that it can be inserted again.
    fn remove_inserted(&mut self) -> Result<()> {
        for record in self.data.records..std::mem::replace(&mut self.inserted, self.data.records) {
            self.keyspace.remove(self.data.key(record))?;
        }
        Ok(())
    }

    /// Holds some records against what was written.
    fn verify(&self, field: &mut Field<'_>, rng: &mut Rng) -> Result<()> {
        for _ in 0..self.data.records.min(100_000) {
            let record = rng.below(self.data.records as u64) as usize;
            let key = self.data.key(record);
            let found = self.keyspace.get(key)?;
            field.tally.checked += 1;
            field.tally.missing += u64::from(found.is_none());
            let version = found.map(|value| self.data.values.version_of(key, &value));
            let is_wrong = version.is_some_and(|version| version != Some(self.versions[record]));
            field.tally.wrong += u64::from(is_wrong);
        }
        Ok(())
    }
}

fn writers(field: &mut Field<'_>, results: &mut Results) -> Result<()> {
    let data = field.options.data()?;
    let mut alone = Engine::start(field, &data, "alone")?;
    let mut shared = Engine::start(field, &data, "shared")?;
    shared.share(field)?;
    let mut rng = Rng::new(field.options.run.seed);
    for (name, inserts) in [("update", false), ("insert", true)] {
        field.task(name);
        let (mut of_alone, mut of_shared) = (Vec::new(), Vec::new());
        for _ in 0..field.options.repetitions() {
            of_alone.push(alone.write(field, inserts, &mut rng)?);
            of_shared.push(shared.write(field, inserts, &mut rng)?);
            alone.remove_inserted()?;
            shared.remove_inserted()?;
        }
        let (of_alone, mut of_shared) = (medians(of_alone), medians(of_shared));
        let ratio = |at: usize| of_shared[at].1 / of_alone[at].1.max(1e-9);
        let ratios = [("throughput_of_alone", ratio(0)), ("p99_9_of_alone", ratio(3))];
        of_shared.extend(ratios);
        results.add(format!("{name} alone"), data.records, of_alone);
        results.add(format!("{name} shared"), data.records, of_shared);
    }
    alone.verify(field, &mut rng)?;
    shared.verify(field, &mut rng)
}

fn region(field: &mut Field<'_>, results: &mut Results) -> Result<()> {
    let data = field.options.data()?;
    {
        let mut engine = Engine::start(field, &data, "loaded")?;
        let seconds = engine.share(field)?.as_secs_f64();
        let stats = engine.shared.as_ref().and_then(|shared| shared.stats(NAME));
        let mut counts = memory(&data, &stats.unwrap_or_default());
        counts.insert(0, ("seconds", seconds));
        results.add("loaded from an engine", data.records, counts);
    }
    let host = field.host(&data, ShareOptions::default(), |host| host)?;
    results.add("inserted in random order", data.records, memory(&data, &host.stats()));
    let keyspace = host.keyspace(host.builder())?;
    let mut rng = Rng::new(field.options.run.seed);
    let mut records: Vec<usize> = (0..data.records).collect();
    let mut value = Vec::new();
    for round in 1..=ROUNDS {
        field.task(format!("update {round} of {ROUNDS}"));
        rng.shuffle(&mut records);
        for some in records.chunks(LOADED_AT_ONCE) {
            let mut batch = keyspace.batch();
            for record in some {
                data.values.fill(data.key(*record), round, &mut value);
                batch.insert(&keyspace, data.key(*record), &value);
            }
            batch.commit()?;
        }
        let case = format!("updated {round} times");
        results.add(case, data.records, memory(&data, &host.stats()));
    }
    for some in records.chunks(LOADED_AT_ONCE) {
        let keys: Vec<&[u8]> = some.iter().map(|record| data.key(*record)).collect();
        let tally = &mut field.tally;
        keyspace.multi_get_with(&keys, |index, value| {
            tally.checked += 1;
            tally.missing += u64::from(value.is_none());
            let version = value.map(|value| data.values.version_of(keys[index], value));
            tally.wrong += u64::from(version.is_some_and(|version| version != Some(ROUNDS)));
        })?;
    }
    Ok(())
}

/// Bytes of a region for each byte of keys and values.
fn memory(data: &Data, stats: &ShareStats) -> Counts {
    let live = (stats.entries as f64 * data.entry_bytes() as f64).max(1.0);
    let leaves = (stats.leaves * stats.leaf_bytes) as f64;
    vec![
        ("mapped_bytes_per_live_byte", stats.mapped_bytes as f64 / live),
        ("leaf_bytes_per_live_byte", leaves / live),
        ("entries", stats.entries as f64),
    ]
}
