//! XStore's figures of writes that are logged, and of a mix that writes most.

use std::{thread, time::Duration};

use anyhow::{Context, Result};
use rhumb::{Database, Keyspace, KeyspaceOptions, PersistMode};
use rhumb_remote::{Client, Host, Preset, ShareOptions};
use rhumb_share::{Shared, Source};

use super::{
    Figure,
    field::{Field, LOADED_AT_ONCE, NAME, Player},
    finestore::{Subject, Way, by_subjects},
    results::Results,
};
use crate::{
    suite::remote::{
        options::{
            Data,
            Distribution::{Latest, Uniform, Zipf},
        },
        rhumb::OneSided,
        workload::Workload,
    },
    workspace::Workspace,
};

/// YCSB without a log and with one.
pub(super) const TABLE_3: Figure = Figure {
    name: "xstore-table-3",
    claim: "with a log on an SSD A keeps 0.76 of its throughput, B 0.98, C all, D 0.96, E 0.97, F \
            0.92",
    run: table_3,
};

/// The mix of Nutanix: 57 % updates, 41 % reads, 2 % scans, of keys of 8 and values of 64 bytes.
pub(super) const FIGURE_13A: Figure = Figure {
    name: "xstore-13a",
    claim: "57 % updates, 41 % reads, 2 % scans: 1.35 to 1.55 times the others with uniform keys, \
            1.6 to 1.8 times by Zipf's law",
    run: figure_13a,
};

/// Length of the values of [`FIGURE_13A`].
const NUTANIX_VALUE_BYTES: usize = 64;

/// Memory of the engine, so that the log is what differs from the volatile keyspace.
const ENGINE_BYTES: u64 = 1 << 30;

fn figure_13a(field: &mut Field<'_>, results: &mut Results) -> Result<()> {
    let mut options = field.options.clone();
    options.value_size = NUTANIX_VALUE_BYTES;
    let data = options.data()?;
    let subjects: [Subject; 4] = [
        ("call", Preset::Rhumb, Way::Calls),
        ("rhumb", Preset::Rhumb, Way::Own),
        ("xstore", Preset::XStore, Way::Own),
        ("finestore", Preset::FineStore, Way::Own),
    ];
    let mixes = [(Workload::Nutanix, Uniform), (Workload::Nutanix, Zipf)];
    by_subjects(field, results, &data, &subjects, &mixes)
}

fn table_3(field: &mut Field<'_>, results: &mut Results) -> Result<()> {
    let data = field.options.data()?;
    let volatile = field.host(&data, ShareOptions::default(), |host| host)?;
    let buffered = Engine::start(field, &data, PersistMode::Buffer)?;
    let synced = Engine::start(field, &data, PersistMode::SyncData)?;
    let mut subjects = [
        ("volatile", volatile.session(volatile.builder())?),
        ("log", buffered.session()?),
        ("log and sync", synced.session()?),
    ];
    let mut players: Vec<_> = subjects.iter().map(|_| Player::new(&data, field.options)).collect();
    for mix in [
        (Workload::A, Zipf),
        (Workload::B, Zipf),
        (Workload::C, Zipf),
        (Workload::D, Latest),
        (Workload::E, Zipf),
        (Workload::F, Zipf),
    ] {
        let mut volatile_ns = None;
        for ((name, session), player) in subjects.iter_mut().zip(&mut players) {
            let case = format!("{name} {} {}", mix.0.name(), mix.1.name());
            field.task(&case);
            let mut counts = player.measure(field, session, mix, data.records)?;
            let ns = counts.iter().find(|(name, _)| *name == "ns_per_op").map_or(0.0, |c| c.1);
            let volatile_ns = *volatile_ns.get_or_insert(ns);
            counts.insert(0, ("throughput_of_volatile", volatile_ns / ns.max(1e-9)));
            results.add(case, data.records, counts);
        }
    }
    Ok(())
}

/// Writes the records to a keyspace of a database.
pub(super) fn load(database: &Database, data: &Data) -> Result<Keyspace> {
    let keyspace = database.keyspace(NAME, KeyspaceOptions::default())?;
    let (mut value, records) = (Vec::new(), (0..data.records).collect::<Vec<_>>());
    for some in records.chunks(LOADED_AT_ONCE) {
        let mut batch = database.batch();
        for record in some {
            let key = data.key(*record);
            data.values.fill(key, 0, &mut value);
            batch.insert(&keyspace, key, &value);
        }
        batch.commit().context("cannot load the database")?;
    }
    Ok(keyspace)
}

/// A database that shares the records.
struct Engine {
    shared: Shared,
    // Dropped after what it shares.
    _database: Database,
}

impl Engine {
    fn start(field: &mut Field<'_>, data: &Data, durability: PersistMode) -> Result<Self> {
        field.task("loading a database");
        let directory = field.directory().join(format!("{durability:?}"));
        Workspace::empty(&directory)?;
        let database = Database::builder(&directory).memory_budget_bytes(ENGINE_BYTES).open()?;
        let keyspace = load(&database, data)?;
        let options = ShareOptions::default().entry_bytes(data.entry_bytes());
        let shared = Shared::on(Host::listen(directory.join("host.sock")))
            .commit_by(move |batch| batch.durability(durability).commit())
            .share(NAME, Source::of(keyspace), options)
            .start(&database)?;
        let engine = Self { shared, _database: database };
        while !engine.shared.stats(NAME).is_some_and(|stats| stats.is_live) {
            thread::sleep(Duration::from_millis(5));
        }
        Ok(engine)
    }

    fn session(&self) -> Result<OneSided> {
        Ok(OneSided::new(Client::connect(self.shared.path())?.keyspace(NAME)?))
    }
}
