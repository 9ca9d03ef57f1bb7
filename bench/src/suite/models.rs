//! What index blocks take and what they cost: Rhumb's ways to make numbers of keys, against each
//! other and against index blocks that are searched. Then the codes by themselves.
//!
//! Every value that is read is verified. The keys are the same for all; a repetition loads each
//! subject anew, in random order.

use std::{collections::HashSet, hint::black_box, path::Path, time::Instant};

use anyhow::{Result, ensure};
use rhumb::{
    BlockIndexKind, Database, Keyspace, KeyspaceOptions, StringCoding, TableOptions,
    inspect::Inspector, io::ReadMode,
};
use rhumb_model::{
    StringCode, code,
    codec::Reader,
    string_code::{Context, Trainer},
};

use crate::{
    data::KeySet,
    keys::Keys,
    options::Options,
    progress::Progress,
    random::Rng,
    report::{Heading, Report, Sample},
    value::Values,
    workspace::Workspace,
};

/// A way to find blocks.
struct Way {
    name: &'static str,
    index: BlockIndexKind,
    coding: StringCoding,
}

const WAYS: [Way; 4] = [
    Way { name: "rhumb", index: BlockIndexKind::Learned, coding: StringCoding::Auto },
    Way { name: "rhumb-coded", index: BlockIndexKind::Learned, coding: StringCoding::On },
    Way { name: "rhumb-plain", index: BlockIndexKind::Learned, coding: StringCoding::Off },
    Way { name: "rhumb-binary", index: BlockIndexKind::BinarySearch, coding: StringCoding::Off },
];

/// Reads of which the blocks are counted.
const COLD_READS: u64 = 2000;
/// Memory of a store that has nothing cached.
const COLD_BYTES: u64 = 4 << 20;
/// Keys that have a prefix taken off, and a code trained, together.
const GROUP_KEYS: usize = 100_000;
/// Bytes of a key behind what it shares with its neighbour that a code is trained on.
const BEYOND: usize = 3;

/// Measures Rhumb.
///
/// # Errors
/// If the store fails, or returns anything but what was written to it.
pub fn run(options: &Options) -> Result<Report> {
    options.validate()?;
    let (set, values) = (options.key_set()?, options.values()?);
    let heading = Heading {
        suite: "models",
        data: set.name.clone(),
        keys: set.keys.len(),
        value_bytes: options.value_size,
    };
    let mut report = Report::new(heading, super::environment_line(options, &[], &[]));
    let workspace = Workspace::create(options.dir.as_deref())?;
    let mut progress = Progress::default();
    for repetition in 0..options.run.repetitions() {
        for way in &WAYS {
            progress.task(format!("repetition {repetition}, {}", way.name));
            let directory = workspace.path("store");
            Workspace::empty(&directory)?;
            Measured { options, set: &set, values: &values, way }.run(&directory, &mut report)?;
            Workspace::remove(&directory)?;
        }
        progress.task(format!("repetition {repetition}, codes"));
        measure_codes(&set.keys, &mut report);
    }
    conclude(&mut report);
    Ok(report)
}

/// Bytes a key, for a table with two digits.
fn per_1k(bytes: f64) -> Sample {
    Sample::plain(bytes * 1e3, "bytes/1k keys")
}

/// Says how much smaller learned indexes are.
fn conclude(report: &mut Report) {
    let bytes = |report: &Report, name| report.value(name, "index", 1);
    let Some(searched) = bytes(report, "rhumb-binary") else { return };
    for way in WAYS.iter().filter(|way| way.index == BlockIndexKind::Learned) {
        if let Some(learned) = bytes(report, way.name) {
            let share = searched / learned;
            let text = format!("{} takes 1/{share:.1} of the searched index", way.name);
            let object =
                serde_json::json!({ "subject": way.name, "index_share_of_searched": 1.0 / share });
            report.conclude(text, object);
        }
    }
}

/// One subject's run.
struct Measured<'a> {
    options: &'a Options,
    set: &'a KeySet,
    values: &'a Values,
    way: &'a Way,
}

impl Measured<'_> {
    fn open(&self, directory: &Path, memory: u64, mode: ReadMode) -> Result<(Database, Keyspace)> {
        let db = Database::builder(directory)
            .memory_budget_bytes(memory)
            .memtable_bytes(self.options.memtable)
            .read_mode(mode)
            .open()?;
        let table = TableOptions {
            index: Some(self.way.index),
            string_coding: Some(self.way.coding),
            compression: Some(rhumb::Compression::None),
            ..TableOptions::default()
        };
        let keyspace =
            db.keyspace("bench", KeyspaceOptions { table, ..KeyspaceOptions::default() })?;
        Ok((db, keyspace))
    }

    fn run(&self, directory: &Path, report: &mut Report) -> Result<()> {
        let warm = self.options.warm(self.set);
        let (db, keyspace) =
            self.open(directory, warm.cache_bytes + 3 * warm.memtable_bytes, ReadMode::Buffered)?;
        let mut value = Vec::new();
        for rank in &self.set.order {
            let key = self.set.keys.get(*rank as usize);
            self.values.fill(key, 0, &mut value);
            keyspace.insert(key, &value)?;
        }
        db.flush()?;
        let begun = Instant::now();
        keyspace.compact()?;
        let took = begun.elapsed().as_secs_f64() * 1e9 / self.set.keys.len() as f64;
        self.add(report, "compact", Sample::plain(took, "ns/key"));
        self.describe(directory, report)?;
        self.read(&keyspace, report)?;
        drop((db, keyspace));

        let (db, keyspace) = self.open(directory, COLD_BYTES, ReadMode::Direct)?;
        let before = db.stats().block_reads;
        let mut rng = Rng::new(self.options.run.seed);
        for _ in 0..COLD_READS {
            self.get(&keyspace, &mut rng)?;
        }
        let blocks = (db.stats().block_reads - before) as f64 / COLD_READS as f64;
        self.add(report, "blocks_read", Sample::plain(blocks, "blocks/get"));
        Ok(())
    }

    fn add(&self, report: &mut Report, workload: &str, sample: Sample) {
        report.add(self.way.name, workload, 1, sample);
    }

    /// What the tables' indexes are.
    fn describe(&self, directory: &Path, report: &mut Report) -> Result<()> {
        let database = Inspector::new().database(directory)?;
        let levels = || database.keyspaces.iter().flat_map(|keyspace| &keyspace.levels);
        let total = |of: fn(&rhumb::inspect::TableReport) -> u64| {
            levels().map(|level| level.sum(of)).sum::<u64>() as f64
        };
        let keys = total(|table| table.keys);
        let segments = total(|table| table.segments.into());
        let blocks = total(|table| table.blocks.into());
        self.add(report, "index", per_1k(total(|t| t.index_bytes) / keys));
        let resident = total(|table| table.index_resident_bytes);
        self.add(report, "index_memory", per_1k(resident / keys));
        self.add(
            report,
            "index_per_block",
            Sample::plain(total(|t| t.index_bytes) / blocks, "bytes"),
        );
        if segments > 0.0 {
            self.add(report, "keys_per_segment", Sample::plain(keys / segments, "keys"));
            let coded = total(|table| table.coded_segments.into()) / segments;
            self.add(report, "coded_segments", Sample::plain(100.0 * coded, "%"));
            self.add(report, "codes", Sample::plain(total(|table| table.codes.into()), "codes"));
        }
        Ok(())
    }

    fn read(&self, keyspace: &Keyspace, report: &mut Report) -> Result<()> {
        // Every block once, so that none is read from a file while it is timed.
        let entries = keyspace.iter().count();
        ensure!(entries == self.set.keys.len(), "{entries} entries of {}", self.set.keys.len());
        let (mut rng, time) = (Rng::new(self.options.run.seed), self.options.run.time());
        let (begun, mut reads) = (Instant::now(), 0_u32);
        while begun.elapsed() < time {
            for _ in 0..64 {
                self.get(keyspace, &mut rng)?;
            }
            reads += 64;
        }
        let rate = f64::from(reads) / begun.elapsed().as_secs_f64();
        self.add(report, "get", Sample::plain(rate, "ops/s"));
        Ok(())
    }

    fn get(&self, keyspace: &Keyspace, rng: &mut Rng) -> Result<()> {
        let key = self.set.keys.get(rng.below(self.set.keys.len() as u64) as usize);
        let value = keyspace.get(key)?;
        let version = value.and_then(|value| self.values.version_of(key, &value));
        ensure!(version == Some(0), "a wrong value of {key:?}");
        Ok(())
    }
}

/// Codes by themselves, for groups of keys whose common prefix is taken off.
fn measure_codes(keys: &Keys, report: &mut Report) {
    for (name, context) in [
        ("plain8", None),
        ("by-position", Some(Context::Position)),
        ("by-previous", Some(Context::Previous)),
    ] {
        let (mut distinct, mut bytes, mut took) = (0, 0, 0.0);
        let mut numbers = HashSet::new();
        for begin in (0..keys.len()).step_by(GROUP_KEYS) {
            let end = (begin + GROUP_KEYS).min(keys.len());
            let skip = code::common_prefix_len(keys.get(begin), keys.get(end - 1));
            let trained = context.and_then(|context| {
                let encoded = train(keys, begin..end, context, skip);
                bytes += encoded.len();
                StringCode::decode(&mut Reader::new(&encoded)).ok()
            });
            let number = |i: usize| match &trained {
                None => code::code_at(keys.get(i), skip),
                Some(trained) => trained.code(keys.get(i), skip),
            };
            let started = Instant::now();
            (begin..end).for_each(|i| _ = black_box(number(i)));
            took += started.elapsed().as_secs_f64() * 1e9;
            numbers.clear();
            numbers.extend((begin..end).map(number));
            distinct += numbers.len();
        }
        let of = keys.len() as f64;
        report.add(name, "distinct", 1, Sample::plain(100.0 * distinct as f64 / of, "%"));
        report.add(name, "coding", 1, Sample::plain(took / of, "ns/key"));
        report.add(name, "parameters", 1, per_1k(bytes as f64 / of));
    }
}

fn train(keys: &Keys, of: std::ops::Range<usize>, context: Context, skip: usize) -> Vec<u8> {
    let mut trainer = Trainer::new(context, skip);
    for i in of.start + 1..of.end {
        let shared = code::common_prefix_len(keys.get(i - 1), keys.get(i));
        trainer.add(keys.get(i), shared + BEYOND);
    }
    trainer.encode()
}
