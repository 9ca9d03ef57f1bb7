//! Models while keys are inserted.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use rhumb_remote::{Client, Counts as Spent, Keyspace, Preset, ShareOptions};

use super::{
    Figure,
    field::{Field, Kept, NAME, Player},
    memory,
    results::{Counts, Results},
};
use crate::suite::remote::{
    options::{
        Data,
        Distribution::{self, Latest, Uniform},
    },
    rhumb::OneSided,
    workload::Workload,
};

/// How far off predictions are.
pub(super) const FIGURE_10_ERROR: Figure = Figure {
    name: "xstore-10-error",
    claim: "predictions are wrong by 0.74 places on average in C, by 8.3 in D",
    run: figure_10_error,
};

/// D over time.
pub(super) const FIGURE_11: Figure = Figure {
    name: "xstore-11",
    claim: "D: 5 % of gets fall back (uniform), 21 % (latest), steadily; speculation halves 10 % \
            to 5 %",
    run: figure_11,
};

/// Training against splits.
pub(super) const FIGURE_14A: Figure = Figure {
    name: "xstore-14a",
    claim: "a model of 200 keys is trained in 8 us; two threads keep up with 2.65 M inserts a \
            second",
    run: figure_14a,
};

/// Fallbacks over the rate of inserts.
pub(super) const FIGURE_14B: Figure = Figure {
    name: "xstore-14b",
    claim: "as inserts come faster, gets lose 40 % of their rate with one trainer, 13 % with two",
    run: figure_14b,
};

/// An expansion.
pub(super) const FIGURE_14C: Figure = Figure {
    name: "xstore-14c",
    claim: "gets degrade until models are expanded at 200 keys each, and recover in 2 s",
    run: figure_14c,
};

/// Parts of a run that is told of over time.
const SLICES: usize = 5;

/// Parts of a run that ends after an expansion, which comes in the middle.
const SLICES_OF_EXPANSION: usize = 8;

/// Shares of the loaded keys that are inserted in each second, in a thousandth: the paper's server
/// takes 28 thousandths at most.
const RATES: [u64; 4] = [5, 10, 25, 50];

/// The most keys of a writer's batch.
const INSERTED_AT_ONCE: usize = 100;

/// Records that are read once a keyspace was written to.
const CHECKED_GETS: usize = 1_000;

/// How often a writer with a rate looks at the clock.
const WRITER_EVERY: Duration = Duration::from_millis(1);

fn per_1000(count: u64, gets: u64) -> f64 {
    1e3 * count as f64 / gets.max(1) as f64
}

fn figure_10_error(field: &mut Field<'_>, results: &mut Results) -> Result<()> {
    let data = field.options.data()?;
    let host = field.host(&data, ShareOptions::default().preset(Preset::XStore), |host| host)?;
    memory::leaves(field, results, &host, (&data, "c"))?;
    let mut session = host.session(host.builder())?;
    let mut player = Player::new(&data, field.options);
    let mix = (Workload::D, Uniform);
    player.run(field, &mut session, mix)?;
    host.settle();
    memory::leaves(field, results, &host, (&data, "d"))
}

fn figure_11(field: &mut Field<'_>, results: &mut Results) -> Result<()> {
    let data = field.options.data()?;
    for distribution in [Uniform, Latest] {
        let host =
            field.host(&data, ShareOptions::default().preset(Preset::XStore), |host| host)?;
        let bold = host.keyspace(host.builder())?;
        let timid = host.keyspace(host.builder())?.without_speculation();
        let mut player = Player::new(&data, field.options);
        for keyspace in [&bold, &timid] {
            player.warm_up(field, &mut OneSided::new(keyspace.clone()))?;
        }
        for slice in 1..=SLICES {
            let case = format!("{} {slice}", distribution.name());
            field.task(&case);
            let counts = beside(field, &mut player, distribution, (&bold, &timid))?;
            results.add(case, data.records, counts);
        }
    }
    Ok(())
}

/// A slice of D by a client that speculates, and of as many gets by one that does not, batch by
/// batch in turns.
fn beside(
    field: &mut Field<'_>,
    player: &mut Player<'_>,
    distribution: Distribution,
    (bold, timid): (&Keyspace, &Keyspace),
) -> Result<Counts> {
    let before = (bold.counts(), timid.counts());
    let (mut gets, mut others, mut inserts, begun) = (0, 0, 0, Instant::now());
    let sessions = (&mut OneSided::new(bold.clone()), &mut OneSided::new(timid.clone()));
    while begun.elapsed() < field.options.time() {
        let (read, inserted) = player.batch(field, sessions.0, (Workload::D, distribution))?;
        gets += read;
        inserts += inserted;
        others += player.batch(field, sessions.1, (Workload::C, distribution))?.0;
        if inserted == 0 && read == 0 {
            break;
        }
    }
    let (bold, timid) = (bold.counts(), timid.counts());
    Ok(vec![
        ("gets", gets as f64),
        ("inserts", inserts as f64),
        ("calls_per_1000", per_1000(bold.calls - before.0.calls, gets)),
        ("speculative_per_1000", per_1000(bold.speculative - before.0.speculative, gets)),
        ("calls_per_1000_without", per_1000(timid.calls - before.1.calls, others)),
    ])
}

fn figure_14a(field: &mut Field<'_>, results: &mut Results) -> Result<()> {
    let data = field.options.data()?;
    for trainers in [1, 2] {
        let options = ShareOptions::default().preset(Preset::XStore);
        let host = field.host(&data, options, |host| host.trainers(trainers))?;
        let case = format!("{trainers} trainers");
        field.task(&case);
        let (before, begun) = (host.models(), Instant::now());
        let end = begun + field.options.time();
        let mut writer = Writer::new(&host, &data)?;
        while Instant::now() < end && writer.insert(INSERTED_AT_ONCE)? > 0 {}
        let inserts = writer.inserted;
        let (seconds, busy) = (begun.elapsed().as_secs_f64(), host.models());
        host.settle();
        let (settled, models) = (begun.elapsed().as_secs_f64() - seconds, host.models());
        let trained = (models.trained - before.trained) as f64;
        let keys = (models.trained_keys - before.trained_keys) as f64;
        let us = (models.training_ns - before.training_ns) as f64 / 1e3;
        let line = vec![
            ("inserts_per_s", inserts as f64 / seconds),
            ("splits_per_s", (busy.splits - before.splits) as f64 / seconds),
            ("trained_per_s", (busy.trained - before.trained) as f64 / seconds),
            ("us_per_model", us / trained.max(1.0)),
            ("keys_per_model", keys / trained.max(1.0)),
            ("us_per_200_keys", us * 200.0 / keys.max(1.0)),
            ("waiting", busy.waiting as f64),
            ("settled_s", settled),
        ];
        results.add(case, data.records, line);
        let keyspace = host.keyspace(host.builder())?;
        let mut player = Player::new(&data, field.options);
        for _ in 0..CHECKED_GETS {
            player.check_get(field, &keyspace, &data)?;
        }
    }
    Ok(())
}

/// Inserts keys that are kept back, one after the other.
struct Writer<'d> {
    client: Client,
    keyspace: Keyspace,
    data: &'d Data,
    inserted: usize,
}

impl<'d> Writer<'d> {
    fn new(host: &Kept, data: &'d Data) -> Result<Self> {
        let client = host.builder().connect()?;
        let keyspace = client.keyspace(NAME)?;
        Ok(Self { client, keyspace, data, inserted: 0 })
    }

    /// Inserts the next keys in one batch, at most `most` of them; returns their number, which is 0
    /// once there are none.
    fn insert(&mut self, most: usize) -> Result<usize> {
        let (mut batch, mut value) = (self.client.batch(), Vec::new());
        let first = self.data.records + self.inserted;
        let end = self.data.set.keys.len().min(first + most.min(INSERTED_AT_ONCE));
        for record in first..end {
            let key = self.data.key(record);
            self.data.values.fill(key, 0, &mut value);
            batch.insert(&self.keyspace, key, &value);
        }
        batch.commit()?;
        self.inserted += end - first;
        Ok(end - first)
    }

    /// Inserts keys at a rate, in keys a second, until it is `done`; returns their number.
    fn insert_at(&mut self, rate: u64, done: &AtomicBool) -> Result<usize> {
        let (begun, mut count) = (Instant::now(), 0);
        while !done.load(Relaxed) {
            let due = (begun.elapsed().as_secs_f64() * rate as f64) as usize;
            if due > count {
                count += self.insert(due - count)?;
            }
            // What is more than a batch behind goes on at once.
            if due <= count + INSERTED_AT_ONCE {
                thread::sleep(WRITER_EVERY);
            }
        }
        Ok(count)
    }
}

fn figure_14b(field: &mut Field<'_>, results: &mut Results) -> Result<()> {
    let data = field.options.data()?;
    for (name, preset, trainers) in [
        ("1 trainer", Preset::XStore, 1),
        ("2 trainers", Preset::XStore, 2),
        ("rhumb", Preset::Rhumb, 1),
    ] {
        let options = ShareOptions::default().preset(preset);
        let host = field.host(&data, options, |host| host.trainers(trainers))?;
        let keyspace = host.keyspace(host.builder())?;
        let mut player = Player::new(&data, field.options);
        player.warm_up(field, &mut OneSided::new(keyspace.clone()))?;
        let mut writer = Writer::new(&host, &data)?;
        for rate in RATES {
            let case = format!("{name}, {:.1} %/s", rate as f64 / 10.0);
            field.task(&case);
            let rate = data.records as u64 * rate / 1_000;
            let counts =
                while_inserting(field, &mut player, (&host, &keyspace), (&mut writer, rate))?;
            results.add(case, data.records, counts);
            host.settle();
        }
    }
    Ok(())
}

fn figure_14c(field: &mut Field<'_>, results: &mut Results) -> Result<()> {
    let data = field.options.data()?;
    // About 200 keys to a model, and an expansion once a twelfth of the keys was inserted: that is
    // after less than half of those that are kept back.
    let models = 1_u64 << ((data.records as f64 / 200.0).log2().round().max(1.0) as u32);
    let most = (data.records as f64 * 13.0 / 12.0 / models as f64).ceil() as u32;
    let options = ShareOptions::default().preset(Preset::XStore).keys_per_model(most);
    let host = field.host(&data, options, |host| host)?;
    let keyspace = host.keyspace(host.builder())?;
    let mut player = Player::new(&data, field.options);
    player.warm_up(field, &mut OneSided::new(keyspace.clone()))?;
    let all = (data.set.keys.len() - data.records) as f64;
    let seconds = field.options.time().as_secs_f64() * SLICES_OF_EXPANSION as f64;
    let (rate, mut writer) = ((all / seconds).ceil() as u64, Writer::new(&host, &data)?);
    for slice in 1..=SLICES_OF_EXPANSION {
        let case = format!("{slice}");
        field.task(&case);
        let counts = while_inserting(field, &mut player, (&host, &keyspace), (&mut writer, rate))?;
        results.add(case, data.records, counts);
    }
    Ok(())
}

/// Gets of uniform keys by one client while another one inserts at a rate, in keys a second.
fn while_inserting(
    field: &mut Field<'_>,
    player: &mut Player<'_>,
    (host, keyspace): (&Kept, &Keyspace),
    (writer, rate): (&mut Writer<'_>, u64),
) -> Result<Counts> {
    let done = AtomicBool::new(false);
    let (before, models, begun) = (keyspace.counts(), host.models(), Instant::now());
    let mut gets = 0;
    let inserts = thread::scope(|scope| -> Result<usize> {
        let writing = scope.spawn(|| writer.insert_at(rate, &done));
        let mut session = OneSided::new(keyspace.clone());
        let mut read = Ok(());
        while read.is_ok() && begun.elapsed() < field.options.time() {
            let batch = player.batch(field, &mut session, (Workload::C, Uniform));
            read = batch.map(|(read, _)| gets += read);
        }
        done.store(true, Relaxed);
        let wrote = writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        read.and(wrote)
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let (counts, after) = (keyspace.counts(), host.models());
    Ok(line((before, counts), gets, (inserts, seconds), (models, after)))
}

/// What gets cost while keys were inserted.
fn line(
    (before, counts): (Spent, Spent),
    gets: u64,
    (inserts, seconds): (usize, f64),
    (models, after): (rhumb_remote::ModelStats, rhumb_remote::ModelStats),
) -> Counts {
    vec![
        ("gets_per_s", gets as f64 / seconds),
        ("inserts_per_s", inserts as f64 / seconds),
        ("calls_per_1000", per_1000(counts.calls - before.calls, gets)),
        ("speculative_per_1000", per_1000(counts.speculative - before.speculative, gets)),
        ("leaves_per_get", (counts.leaves - before.leaves) as f64 / gets.max(1) as f64),
        ("splits_per_s", (after.splits - models.splits) as f64 / seconds),
        ("trained_per_s", (after.trained - models.trained) as f64 / seconds),
        ("waiting", after.waiting as f64),
        ("expansions", (after.expansions - models.expansions) as f64),
    ]
}
