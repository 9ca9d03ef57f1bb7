//! FineStore's figures: who does the work of an operation, what retraining costs clients, and what
//! clients and the region keep.

use std::{
    sync::{
        Arc, PoisonError, RwLock, TryLockError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use rhumb_remote::{Keyspace, Preset, ShareOptions};

use super::{
    Figure, PapersOptions,
    field::{Field, Kept, Player},
    results::{Counts, Results},
};
use crate::{
    random::Rng,
    suite::remote::{
        options::{
            Data,
            Distribution::{self, Latest, Uniform, Zipf},
        },
        rhumb::OneSided,
        workload::Workload,
    },
};

/// Time to train.
pub(super) const FIGURE_14: Figure = Figure {
    name: "finestore-14",
    claim: "arrays are trained 1.3 times as fast as LI+delta and 8.9 times as fast as XIndex; 1.5 \
            ms for 10,000 records, 27 us for a full bin",
    run: figure_14,
};

/// Memory of the host and of clients.
pub(super) const FIGURE_15: Figure = Figure {
    name: "finestore-15",
    claim: "15 and 16: models are 2 % of the memory, at most 10 MB for 2 * 10^8 lognormal keys, \
            and clients keep nothing else",
    run: figure_15,
};

/// YCSB's mixes.
pub(super) const FIGURE_17: Figure = Figure {
    name: "finestore-17",
    claim: "C as fast as XStore and up to 2.4 times the others; mixes with writes up to 1.7 times",
    run: figure_17,
};

/// Reads and updates in several proportions.
pub(super) const FIGURE_18: Figure = Figure {
    name: "finestore-18",
    claim: "with many writes 1.5 times the calls, 1.3 times XStore",
    run: figure_18,
};

/// Inserts only.
pub(super) const FIGURE_19: Figure = Figure {
    name: "finestore-19",
    claim: "inserts up to 1.9 times the calls, 1.4 times XStore",
    run: figure_19,
};

/// Retraining beside readers.
pub(super) const FIGURE_20: Figure = Figure {
    name: "finestore-20",
    claim: "the barrier lets operations go on while arrays are trained, a lock has them wait",
    run: figure_20,
};

/// Where operations are done.
pub(super) const FIGURE_21: Figure = Figure {
    name: "finestore-21",
    claim: "pipeline operations take fewer round trips than all at the client, and less of the \
            server than all there; lognormal keys",
    run: figure_21,
};

/// Data sets whose memory is compared.
const DATA_SETS: [&str; 4] = ["uniform", "lognormal", "hard", "snowflake"];

/// The most inserts beside readers: a second's, and some thousand trainings.
const INSERTS_MAX: usize = 200_000;

/// Who performs operations on a host.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The client as its preset has it.
    Own,
    /// The host does all.
    Calls,
    /// The client searches level bins itself.
    Client,
}

/// A name, the host's preset, and who performs operations.
pub(super) type Subject = (&'static str, Preset, Way);

/// The systems of the paper: eRPC and Masstree in one is the host that does all.
const SYSTEMS: [Subject; 3] = [
    ("call", Preset::Rhumb, Way::Calls),
    ("xstore", Preset::XStore, Way::Own),
    ("finestore", Preset::FineStore, Way::Own),
];

/// Measures mixes of operations by each subject; subjects of one preset share its host.
pub(super) fn by_subjects(
    field: &mut Field<'_>,
    results: &mut Results,
    data: &Data,
    subjects: &[Subject],
    mixes: &[(Workload, Distribution)],
) -> Result<()> {
    for of_preset in subjects.chunk_by(|one, other| one.1 == other.1) {
        let options = ShareOptions::default().preset(of_preset[0].1);
        let host = field.host(data, options, |host| host)?;
        let mut player = Player::new(data, field.options);
        let mut sessions = Vec::new();
        for (name, _, way) in of_preset {
            let mut session = session(&host, *way)?;
            player.warm_up(field, &mut session)?;
            sessions.push((name, session));
        }
        for mix in mixes {
            for (name, session) in &mut sessions {
                let case = format!("{name} {} {}", mix.0.name(), mix.1.name());
                field.task(&case);
                let counts = player.measure(field, session, *mix, data.records)?;
                results.add(case, data.records, counts);
            }
        }
    }
    Ok(())
}

fn session(host: &Kept, way: Way) -> Result<OneSided> {
    Ok(match way {
        Way::Own => host.session(host.builder())?,
        Way::Calls => host.session_by_calls()?,
        Way::Client => OneSided::new(host.keyspace(host.builder())?.searching_bins()),
    })
}

fn figure_17(field: &mut Field<'_>, results: &mut Results) -> Result<()> {
    let mixes = [
        (Workload::A, Zipf),
        (Workload::B, Zipf),
        (Workload::C, Zipf),
        (Workload::D, Latest),
        (Workload::E, Zipf),
        (Workload::F, Zipf),
    ];
    let data = field.options.data()?;
    by_subjects(field, results, &data, &SYSTEMS, &mixes)
}

fn figure_18(field: &mut Field<'_>, results: &mut Results) -> Result<()> {
    let workloads =
        [Workload::C, Workload::Updates25, Workload::A, Workload::Updates75, Workload::Updates100];
    let data = field.options.data()?;
    by_subjects(field, results, &data, &SYSTEMS, &workloads.map(|workload| (workload, Uniform)))
}

fn figure_19(field: &mut Field<'_>, results: &mut Results) -> Result<()> {
    let data = field.options.data()?;
    by_subjects(field, results, &data, &SYSTEMS, &[(Workload::Insert, Uniform)])
}

fn figure_21(field: &mut Field<'_>, results: &mut Results) -> Result<()> {
    let options = with_data(field.options, "lognormal");
    let data = options.data()?;
    let subjects = [
        ("pipeline", Preset::FineStore, Way::Own),
        ("client", Preset::FineStore, Way::Client),
        ("server", Preset::FineStore, Way::Calls),
    ];
    let mixes = [
        (Workload::C, Uniform),
        (Workload::A, Uniform),
        (Workload::D, Latest),
        (Workload::Insert, Uniform),
        (Workload::Scan100, Uniform),
    ];
    by_subjects(field, results, &data, &subjects, &mixes)
}

/// The options with this data set, if they name none.
fn with_data(options: &PapersOptions, name: &str) -> PapersOptions {
    let mut options = options.clone();
    if options.run.keys_file.is_none() {
        options.run.data.get_or_insert(name.to_owned());
    }
    options
}

fn figure_14(field: &mut Field<'_>, results: &mut Results) -> Result<()> {
    let data = field.options.data()?;
    for (name, preset) in [("xstore", Preset::XStore), ("finestore", Preset::FineStore)] {
        let host = field.host(&data, ShareOptions::default().preset(preset), |host| host)?;
        let models = host.models();
        let per = |number: u64, of: u64| number as f64 / of.max(1) as f64;
        let counts = vec![
            ("trainings", models.trained as f64),
            ("us_per_training", per(models.training_ns, models.trained) / 1e3),
            ("keys_per_training", per(models.trained_keys, models.trained)),
            ("ns_per_key", per(models.training_ns, models.trained_keys)),
        ];
        results.add(name, data.records, counts);
        let mut session = host.session(host.builder())?;
        Player::new(&data, field.options).warm_up(field, &mut session)?;
    }
    Ok(())
}

fn figure_15(field: &mut Field<'_>, results: &mut Results) -> Result<()> {
    let named = field.options.run.data.is_some() || field.options.run.keys_file.is_some();
    let sets = if named { &[""][..] } else { &DATA_SETS };
    for set in sets {
        let options = with_data(field.options, set);
        let data = options.data()?;
        for (name, preset) in
            [("rhumb", Preset::Rhumb), ("xstore", Preset::XStore), ("finestore", Preset::FineStore)]
        {
            let host = field.host(&data, ShareOptions::default().preset(preset), |host| host)?;
            let mut session = host.session(host.builder())?;
            let mut player = Player::new(&data, field.options);
            player.warm_up(field, &mut session)?;
            let mix = (Workload::C, Uniform);
            let measured = player.measure(field, &mut session, mix, data.records)?;
            let mut counts = memory(&host, &data, preset)?;
            counts.extend(measured.into_iter().filter(|(name, _)| *name == "cache_bytes_per_key"));
            let case = format!("{name} {}", data.set.name);
            results.add(case, data.records, counts);
        }
    }
    Ok(())
}

/// Bytes a key of the region, and of what it finds keys by where all clients share that.
fn memory(host: &Kept, data: &Data, preset: Preset) -> Result<Counts> {
    let per_key = |bytes: u64| bytes as f64 / data.records.max(1) as f64;
    let stats = host.stats();
    let mut counts = vec![("region_bytes_per_key", per_key(stats.mapped_bytes))];
    if preset == Preset::Rhumb {
        let seen = host.keyspace(host.builder())?.inspect(false)?;
        counts.push(("directory_bytes_per_key", per_key(seen.directory_bytes)));
    }
    Ok(counts)
}

fn figure_20(field: &mut Field<'_>, results: &mut Results) -> Result<()> {
    let data = field.options.data()?;
    for (case, is_locked) in [("barrier", false), ("read lock", true)] {
        let options = ShareOptions::default().preset(Preset::FineStore);
        let host = field.host(&data, options, |host| host)?;
        field.task(case);
        let lock = is_locked.then(Arc::<RwLock<()>>::default);
        if let Some(lock) = &lock {
            host.train_alone(lock)?;
        }
        let trained = host.models().trained;
        let reader = host.keyspace(host.builder())?;
        let writer = host.keyspace(host.builder())?;
        let is_over = AtomicBool::new(false);
        let (read, written) = thread::scope(|scope| {
            let read = scope.spawn(|| read_beside(&data, &reader, lock.as_deref(), &is_over));
            let written = insert_all(&data, &writer);
            is_over.store(true, Relaxed);
            (read.join(), written)
        });
        let read = read.map_err(|_| anyhow::anyhow!("a reader panicked"))??;
        let (inserts, took) = written?;
        field.tally.checked += read.gets;
        let gets = read.gets.max(1) as f64;
        let counts = vec![
            ("trainings", (host.models().trained - trained) as f64),
            ("inserts", inserts as f64),
            ("inserts_per_second", inserts as f64 / took.as_secs_f64().max(1e-9)),
            ("gets", read.gets as f64),
            ("waits_per_1000_gets", 1e3 * read.waits as f64 / gets),
            ("waited_share", read.waited.as_secs_f64() / took.as_secs_f64().max(1e-9)),
            ("longest_wait_us", read.longest_wait.as_nanos() as f64 / 1e3),
            ("longest_get_us", read.longest_get.as_nanos() as f64 / 1e3),
        ];
        results.add(case, data.records, counts);
    }
    Ok(())
}

/// What a reader beside a writer has met.
#[derive(Debug, Default)]
struct Beside {
    gets: u64,
    /// Gets that had to wait for the lock.
    waits: u64,
    waited: Duration,
    longest_wait: Duration,
    /// Without a wait for the lock.
    longest_get: Duration,
}

/// Gets loaded records until a run is over, each under the lock if there is one.
fn read_beside(
    data: &Data,
    keyspace: &Keyspace,
    lock: Option<&RwLock<()>>,
    is_over: &AtomicBool,
) -> Result<Beside> {
    let (mut found, mut rng, mut value) = (Beside::default(), Rng::new(20), Vec::new());
    while !is_over.load(Relaxed) {
        let key = data.key(rng.below(data.records as u64) as usize);
        let begun = Instant::now();
        let held = lock.map(|lock| match lock.try_read() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                found.waits += 1;
                let held = lock.read().unwrap_or_else(PoisonError::into_inner);
                let waited = begun.elapsed();
                found.waited += waited;
                found.longest_wait = found.longest_wait.max(waited);
                held
            }
        });
        let begun = Instant::now();
        value.clear();
        let is_there = keyspace.get_into(key, &mut value)?;
        found.longest_get = found.longest_get.max(begun.elapsed());
        drop(held);
        found.gets += 1;
        ensure!(is_there && data.values.version_of(key, &value) == Some(0), "a wrong answer");
    }
    Ok(found)
}

/// Inserts the records that are not loaded; returns their number and how long that took.
fn insert_all(data: &Data, keyspace: &Keyspace) -> Result<(usize, Duration)> {
    let records = data.records..data.set.keys.len().min(data.records + INSERTS_MAX);
    let (count, mut value, begun) = (records.len(), Vec::new(), Instant::now());
    for record in records {
        let key = data.key(record);
        data.values.fill(key, 0, &mut value);
        keyspace.insert(key, &value)?;
    }
    Ok((count, begun.elapsed()))
}
