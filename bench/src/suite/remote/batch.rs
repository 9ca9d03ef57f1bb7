//! Operations that are chosen before the clock starts, and answers that are checked after it has
//! stopped.
//!
//! Each client writes records of its own alone, so that it knows their versions exactly: what it
//! reads of them must be what it wrote last. Of the records of others it knows the version that it
//! saw last, which may not go back.

use std::{ops::Range, time::Instant};

use anyhow::Result;

use super::{
    options::{Data, Distribution},
    subject::Pair,
    workload::{Kind, SCAN_ENTRIES, Workload},
};
use crate::{
    choose::{ZIPF_EXPONENT, Zipf},
    random::Rng,
};

/// Operations of a batch: enough that starting and stopping the clocks costs a nanosecond of each,
/// few enough that keys and values stay in the cache.
pub const BATCH: usize = 256;

/// Scans of a batch, each of which is many entries.
const SCAN_BATCH: usize = 32;

/// One operation.
#[derive(Clone, Debug)]
pub struct Operation {
    /// What it does.
    pub kind: Kind,
    /// Most entries of a scan.
    pub entries: u32,
    record: usize,
    /// What a read of an own record must find.
    expected: Option<u32>,
    key: Range<usize>,
    value: Range<usize>,
}

/// Operations with their keys and values.
#[derive(Debug, Default)]
pub struct Batch {
    /// What they are of.
    pub workload: Workload,
    /// In their order.
    pub operations: Vec<Operation>,
    keys: Vec<u8>,
    values: Vec<u8>,
}

impl Batch {
    /// The key of an operation.
    #[must_use]
    pub fn key(&self, operation: &Operation) -> &[u8] {
        &self.keys[operation.key.clone()]
    }

    /// The value that an operation writes.
    #[must_use]
    pub fn value(&self, operation: &Operation) -> &[u8] {
        &self.values[operation.value.clone()]
    }
}

/// Where a byte string begins and ends among others.
pub type Span = (usize, usize);

/// What a subject returned for a batch.
#[derive(Debug, Default)]
pub struct Answers {
    /// The keys and values that were read, one after the other.
    pub bytes: Vec<u8>,
    /// Where the value of each read ends; `None` if the key was not there.
    pub ends: Vec<Option<usize>>,
    /// The values of reads of several keys.
    pub values: Vec<Option<Span>>,
    /// The entries of scans: keys and values.
    pub pairs: Vec<(Span, Span)>,
    /// Where the entries of each scan end.
    pub scans: Vec<usize>,
    /// Nanoseconds that some operations took.
    pub latency_ns: Vec<u64>,
}

impl Answers {
    /// Takes note of how long an operation took that has ended now.
    pub fn time(&mut self, start: Instant) {
        self.latency_ns.push(start.elapsed().as_nanos() as u64);
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.values.clear();
        self.pairs.clear();
        self.scans.clear();
        self.latency_ns.clear();
    }
}

/// How answers were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Values that were checked.
    pub checked: u64,
    /// Keys that are there and were not found.
    pub missing: u64,
    /// Values that were not what they had to be.
    pub wrong: u64,
}

impl Tally {
    /// Adds another one.
    pub fn add(&mut self, other: Self) {
        self.checked += other.checked;
        self.missing += other.missing;
        self.wrong += other.wrong;
    }

    /// Answers that were not the truth.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.missing + self.wrong
    }
}

/// What one client knows of a keeper's records, and chooses from them.
pub struct Chooser<'a> {
    data: &'a Data,
    client: usize,
    clients: usize,
    zipf: Zipf,
    /// Of own records the version; of others the one that was seen last.
    versions: Vec<u32>,
    /// Own records that have been inserted.
    inserted: usize,
    batch: Batch,
    answers: Answers,
    /// What was found.
    pub tally: Tally,
}

impl<'a> Chooser<'a> {
    /// What client `client` of `clients` knows of freshly loaded records.
    #[must_use]
    pub fn new(data: &'a Data, client: usize, clients: usize) -> Self {
        Self {
            data,
            client,
            clients,
            zipf: Zipf::new(data.records as u64, ZIPF_EXPONENT),
            versions: vec![0; data.set.keys.len()],
            inserted: 0,
            batch: Batch::default(),
            answers: Answers::default(),
            tally: Tally::default(),
        }
    }

    /// Chooses a batch; empty if no record is left to be inserted.
    pub fn choose(&mut self, workload: Workload, distribution: Distribution, rng: &mut Rng) {
        self.batch.workload = workload;
        self.batch.operations.clear();
        self.batch.keys.clear();
        self.batch.values.clear();
        self.answers.clear();
        let size = if workload.mix()[0].1 == Kind::Scan { SCAN_BATCH } else { BATCH };
        while self.batch.operations.len() < size {
            let kind = workload.kind_of(rng.below(100));
            let record = match kind {
                Kind::Insert => match self.next_insert() {
                    Some(record) => record,
                    None => break,
                },
                Kind::Update | Kind::ReadModifyWrite => self.own(self.draw(distribution, rng)),
                Kind::Read | Kind::Scan => self.draw(distribution, rng),
            };
            let entries = match workload {
                Workload::Scan100 => SCAN_ENTRIES,
                _ => 1 + rng.below(u64::from(SCAN_ENTRIES)) as u32,
            };
            self.push(kind, record, entries);
        }
    }

    fn push(&mut self, kind: Kind, record: usize, entries: u32) {
        let key = self.data.key(record);
        let at = self.batch.keys.len();
        self.batch.keys.extend_from_slice(key);
        let expected = self.is_own(record).then(|| self.versions[record]);
        let begin = self.batch.values.len();
        if !matches!(kind, Kind::Read | Kind::Scan) {
            if kind != Kind::Insert {
                self.versions[record] += 1;
            }
            self.data.values.append(key, self.versions[record], &mut self.batch.values);
        }
        self.batch.operations.push(Operation {
            kind,
            entries,
            record,
            expected,
            key: at..self.batch.keys.len(),
            value: begin..self.batch.values.len(),
        });
    }

    /// The batch, and where its answers go.
    pub fn batch(&mut self) -> (&Batch, &mut Answers) {
        (&self.batch, &mut self.answers)
    }

    /// Latencies of the last batch, in nanoseconds.
    #[must_use]
    pub fn latency_ns(&self) -> &[u64] {
        &self.answers.latency_ns
    }

    /// Operations of the last batch, in the workload's unit.
    #[must_use]
    pub fn units(&self) -> u64 {
        if self.batch.workload == Workload::Scan100 {
            return self.answers.pairs.len() as u64;
        }
        self.batch.operations.len() as u64
    }

    fn draw(&self, distribution: Distribution, rng: &mut Rng) -> usize {
        let records = self.data.records;
        match distribution {
            Distribution::Uniform => rng.below(records as u64) as usize,
            Distribution::Zipf => self.zipf.draw(rng) as usize,
            Distribution::Latest => {
                let age = self.zipf.draw(rng) as usize;
                match self.inserted.checked_sub(age + 1) {
                    Some(newest) => self.insert_at(newest),
                    None => records - 1 - (age - self.inserted).min(records - 1),
                }
            }
        }
    }

    fn is_own(&self, record: usize) -> bool {
        record % self.clients == self.client
    }

    /// The loaded record nearest to `record` that this client alone writes.
    fn own(&self, record: usize) -> usize {
        let record = record.min(self.data.records - 1);
        let own = record - record % self.clients + self.client;
        if own < self.data.records { own } else { own - self.clients }
    }

    /// The own record that is inserted as number `number`.
    fn insert_at(&self, number: usize) -> usize {
        let first = self.data.records.next_multiple_of(self.clients) + self.client;
        first + number * self.clients
    }

    fn next_insert(&mut self) -> Option<usize> {
        let record = self.insert_at(self.inserted);
        (record < self.data.set.keys.len()).then(|| {
            self.inserted += 1;
            record
        })
    }

    /// The keys that were inserted since this was last called.
    pub fn take_inserted(&mut self) -> Vec<&'a [u8]> {
        let data = self.data;
        let inserted = std::mem::take(&mut self.inserted);
        (0..inserted).map(|number| data.key(self.insert_at(number))).collect()
    }

    /// Checks the answers of the last batch.
    pub fn check(&mut self) {
        let answers = std::mem::take(&mut self.answers);
        let batch = std::mem::take(&mut self.batch);
        let bytes = |span: Span| &answers.bytes[span.0..span.1];
        let (mut begin, mut ends) = (0, answers.ends.iter());
        let (mut values, mut first, mut scans) = (answers.values.iter(), 0, answers.scans.iter());
        for operation in &batch.operations {
            let key = batch.key(operation);
            match operation.kind {
                Kind::Read if batch.workload == Workload::MultiGet => {
                    let value = values.next().copied().flatten();
                    self.check_value(operation, key, value.map(bytes));
                }
                Kind::Read | Kind::ReadModifyWrite => {
                    let end = ends.next().copied().flatten();
                    self.check_value(operation, key, end.map(|end| &answers.bytes[begin..end]));
                    begin = end.unwrap_or(begin);
                }
                Kind::Scan => {
                    let end = scans.next().copied().unwrap_or(first);
                    let pairs = answers.pairs[first..end].iter();
                    // The bytes of the next value follow those of the pairs.
                    begin = pairs.clone().last().map_or(begin, |(_, value)| value.1);
                    let pairs: Vec<_> =
                        pairs.map(|(key, value)| (bytes(*key), bytes(*value))).collect();
                    self.check_scan(key, &pairs, operation.entries as usize);
                    first = end;
                }
                Kind::Update | Kind::Insert => {}
            }
        }
        (self.answers, self.batch) = (answers, batch);
    }

    fn check_value(&mut self, operation: &Operation, key: &[u8], value: Option<&[u8]>) {
        self.tally.checked += 1;
        let Some(value) = value else {
            self.tally.missing += 1;
            return;
        };
        let version = self.data.values.version_of(key, value);
        let known = &mut self.versions[operation.record];
        let is_right = version.is_some_and(|version| match operation.expected {
            Some(expected) => version == expected,
            None => version >= *known,
        });
        self.tally.wrong += u64::from(!is_right);
        if let (Some(version), None) = (version, operation.expected) {
            *known = version;
        }
    }

    /// Holds a scan's entries against its start: the first is there, and all ascend.
    fn check_scan(&mut self, from: &[u8], pairs: &[(&[u8], &[u8])], limit: usize) {
        let starts = pairs.first().is_some_and(|(key, _)| *key == from);
        let ascends = pairs.is_sorted_by(|(a, _), (b, _)| a < b);
        self.tally.missing += u64::from(!starts);
        self.tally.wrong += u64::from(!ascends || pairs.len() > limit);
        for (key, value) in pairs {
            self.tally.checked += 1;
            let version = self.data.values.version_of(key, value);
            self.tally.wrong += u64::from(version.is_none());
        }
    }

    /// Holds everything against what was loaded, after what was inserted has been removed. `scan`
    /// returns the entries from a key on.
    ///
    /// # Errors
    /// As `scan`.
    pub fn check_all(&mut self, mut scan: impl FnMut(&[u8]) -> Result<Vec<Pair>>) -> Result<()> {
        let mut expected: Vec<usize> = (0..self.data.records).collect();
        expected.sort_unstable_by_key(|record| self.data.set.order[*record]);
        let mut expected = expected.into_iter().peekable();
        let mut from = Vec::new();
        loop {
            let pairs = scan(&from)?;
            let Some((last, _)) = pairs.last() else { break };
            from.clone_from(last);
            // The key after it.
            from.push(0);
            for (key, value) in &pairs {
                // Records that do not come are missing; keys that are none were never written.
                while expected.next_if(|record| self.data.key(*record) < &key[..]).is_some() {
                    self.tally.missing += 1;
                }
                let record = expected.next_if(|record| self.data.key(*record) == &key[..]);
                let version = self.data.values.version_of(key, value);
                let is_right = record.zip(version).is_some_and(|(record, version)| {
                    let known = self.versions[record];
                    if self.is_own(record) { version == known } else { version >= known }
                });
                self.tally.checked += 1;
                self.tally.wrong += u64::from(!is_right);
            }
        }
        self.tally.missing += expected.count() as u64;
        Ok(())
    }
}
