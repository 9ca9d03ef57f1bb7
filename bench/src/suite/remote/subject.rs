//! What is measured: the interface of the subjects of a run.
//!
//! A subject is started in a process of its own, its *keeper*, and read by client processes. The
//! subjects of one keeper share its data, so that what differs between them is how they read.

use std::{path::Path, time::Instant};

use anyhow::Result;
use serde_json::Value;

use super::{
    batch::{Answers, Batch, Span},
    options::{Data, RemoteOptions},
    process::check_abandoned,
    workload::{KEYS_AT_ONCE, Kind, Workload},
};

/// One in this many operations is timed by itself: reading the clock keeps the processor from
/// running one get into the next, and takes as long as a tenth of a get.
const SAMPLE_EVERY: usize = 16;

/// Records that are loaded at once, between two looks at whether the run goes on: enough that a
/// message's round trip is a small part of their time, and a small message.
const LOAD_ENTRIES: usize = 256;

/// Where a run takes place.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// A directory that the processes of the run share, for sockets and files.
    pub directory: &'a Path,
    /// How to measure.
    pub options: &'a RemoteOptions,
    /// What the keepers load.
    pub data: &'a Data,
    /// In a keeper's process, which of the servers that divide the keys it is.
    pub server: usize,
}

/// A way to read and write.
pub trait Subject: Sync {
    /// The name in results and on the command line.
    fn name(&self) -> &'static str;

    /// What a reader needs to know to judge the figures, for the environment line.
    fn options(&self) -> String;

    /// The name of its keeper; `None` if each client has its own data in its own memory.
    fn keeper(&self) -> Option<&'static str>;

    /// Number of processes of its keeper, which divide the keys.
    fn servers(&self, _options: &RemoteOptions) -> usize {
        1
    }

    /// Returns true if it can run a workload.
    fn performs(&self, workload: Workload) -> bool;

    /// Starts and loads what the keeper's process has.
    ///
    /// # Errors
    /// If that fails.
    fn start(&self, place: &Place<'_>) -> Result<Box<dyn Server>>;

    /// The way of one client, once the keeper has started.
    ///
    /// # Errors
    /// If that fails.
    fn connect(&self, place: &Place<'_>) -> Result<Box<dyn Session>>;
}

/// What a keeper's process has.
pub trait Server {
    /// What it says of itself once it is loaded: text for people, and an object.
    fn describe(&self) -> (String, Value);

    /// CPU time that it has taken so far, in nanoseconds, if that is not the process' own.
    fn cpu_ns(&self) -> Option<u64> {
        None
    }
}

/// What a session has counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Reads that were calls.
    pub calls: u64,
    /// Messages that were answered, writes included.
    pub trips: u64,
    /// One-sided reads: leaves that were looked at, where a session [counts](Session::count) them.
    pub reads: u64,
    /// Bytes of messages and of one-sided reads, where these are counted always.
    pub bytes: u64,
}

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// What is done with the value of the key with this index, or without one.
pub type OnValue<'f> = &'f mut dyn FnMut(usize, Option<&[u8]>);

/// What is done with a key and its value.
pub type OnPair<'f> = &'f mut dyn FnMut(&[u8], &[u8]);

/// One client's way to a subject.
pub trait Session {
    /// Appends the value of `key` to `value`; returns false if it is not there.
    ///
    /// # Errors
    /// As the subject.
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Calls `on_value` for each of several keys, in any order, with its index and value.
    ///
    /// # Errors
    /// As the subject.
    fn multi_get(&mut self, keys: &[&[u8]], on_value: OnValue<'_>) -> Result<()>;

    /// Calls `on_pair` for the first `limit` entries from `from` on.
    ///
    /// # Errors
    /// As the subject.
    fn scan(&mut self, from: &[u8], limit: usize, on_pair: OnPair<'_>) -> Result<()>;

    /// The entries of a scan.
    ///
    /// # Errors
    /// As the subject.
    fn pairs(&mut self, from: &[u8], limit: usize) -> Result<Vec<Pair>> {
        let mut pairs = Vec::new();
        self.scan(from, limit, &mut |key, value| pairs.push((key.to_vec(), value.to_vec())))?;
        Ok(pairs)
    }

    /// Writes an entry.
    ///
    /// # Errors
    /// As the subject.
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Writes several entries, whose keys differ, as fast as the subject can.
    ///
    /// # Errors
    /// As the subject.
    fn insert_all(&mut self, entries: &[(&[u8], &[u8])]) -> Result<()> {
        entries.iter().try_for_each(|(key, value)| self.insert(key, value))
    }

    /// Removes a key.
    ///
    /// # Errors
    /// As the subject.
    fn remove(&mut self, key: &[u8]) -> Result<()>;

    /// What it has counted since it was made.
    fn counters(&self) -> Counters {
        Counters::default()
    }

    /// Counts one-sided reads from here on, or not any more. Counting may cost time.
    ///
    /// # Errors
    /// As the subject.
    fn count(&mut self, _is_counting: bool) -> Result<()> {
        Ok(())
    }

    /// Number of hosts that divide the keys.
    fn hosts(&self) -> usize {
        1
    }

    /// Which of the hosts has a key.
    fn host_of(&self, _key: &[u8]) -> usize {
        0
    }

    /// Bytes that this client keeps to find keys, besides what all share.
    fn cache_bytes(&self) -> u64 {
        0
    }

    /// Returns true if it returns values, which are verified.
    fn answers(&self) -> bool {
        true
    }

    /// Returns true if it scans, so that everything can be read once more.
    fn answers_scans(&self) -> bool {
        self.answers()
    }

    /// Performs the operations of a batch.
    ///
    /// # Errors
    /// As the subject.
    fn perform(&mut self, batch: &Batch, answers: &mut Answers) -> Result<()> {
        perform_all(self, batch, answers)
    }
}

/// Performs the operations of a batch one after the other; those of `multi_get` 64 at a time.
///
/// # Errors
/// As the session.
#[inline]
pub fn perform_all<S: Session + ?Sized>(
    session: &mut S,
    batch: &Batch,
    answers: &mut Answers,
) -> Result<()> {
    if batch.workload == Workload::MultiGet {
        for some in batch.operations.chunks(KEYS_AT_ONCE) {
            let keys: Vec<&[u8]> = some.iter().map(|operation| batch.key(operation)).collect();
            let start = Instant::now();
            let begin = answers.values.len();
            answers.values.resize(begin + keys.len(), None);
            let (bytes, values) = (&mut answers.bytes, &mut answers.values[begin..]);
            session.multi_get(&keys, &mut |index, value| {
                values[index] = value.map(|value| append(bytes, value));
            })?;
            answers.time(start);
        }
        return Ok(());
    }
    for (index, operation) in batch.operations.iter().enumerate() {
        let start = index.is_multiple_of(SAMPLE_EVERY).then(Instant::now);
        let key = batch.key(operation);
        if matches!(operation.kind, Kind::Read | Kind::ReadModifyWrite) {
            let is_there = session.get(key, &mut answers.bytes)?;
            answers.ends.push(is_there.then_some(answers.bytes.len()));
        }
        match operation.kind {
            Kind::Read => {}
            Kind::Scan => {
                let (bytes, pairs) = (&mut answers.bytes, &mut answers.pairs);
                session.scan(key, operation.entries as usize, &mut |key, value| {
                    pairs.push((append(bytes, key), append(bytes, value)));
                })?;
                answers.scans.push(pairs.len());
            }
            Kind::Update | Kind::ReadModifyWrite | Kind::Insert => {
                session.insert(key, batch.value(operation))?;
            }
        }
        if let Some(start) = start {
            answers.time(start);
        }
    }
    Ok(())
}

/// Appends to `bytes`, and says where.
fn append(bytes: &mut Vec<u8>, more: &[u8]) -> Span {
    let begin = bytes.len();
    bytes.extend_from_slice(more);
    (begin, bytes.len())
}

/// Writes all records by a session, in random order: how most keepers are loaded.
///
/// # Errors
/// As the session.
pub fn load(session: &mut dyn Session, data: &Data) -> Result<()> {
    load_some(session, data, |_| true).map(|_| ())
}

/// [`load`] of the records with some keys; returns their number.
///
/// # Errors
/// As the session.
pub fn load_some(
    session: &mut dyn Session,
    data: &Data,
    is_wanted: impl Fn(&[u8]) -> bool,
) -> Result<usize> {
    let (mut values, mut loaded) = (Vec::new(), 0);
    for begin in (0..data.records).step_by(LOAD_ENTRIES) {
        check_abandoned()?;
        let keys = (begin..data.records.min(begin + LOAD_ENTRIES)).map(|index| data.key(index));
        let keys: Vec<&[u8]> = keys.filter(|key| is_wanted(key)).collect();
        values.resize_with(keys.len().max(values.len()), Vec::new);
        keys.iter().zip(&mut values).for_each(|(key, value)| data.values.fill(key, 0, value));
        let entries: Vec<_> = keys.iter().copied().zip(values.iter().map(Vec::as_slice)).collect();
        session.insert_all(&entries)?;
        loaded += entries.len();
    }
    Ok(loaded)
}
