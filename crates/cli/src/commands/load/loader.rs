//! Moves entries from inputs to a keyspace.
//!
//! Input that ascends is ingested, run by run, straight into tables; from the first entry that
//! does not, everything goes in batches. Whichever way, an entry is acknowledged only when the
//! engine has taken it.

use std::{
    collections::{BTreeMap, HashSet},
    path::PathBuf,
    time::Duration,
};

use rhumb::{Database, Keyspace, PersistMode};
use serde_json::json;

use crate::{
    failure::{Failure, Outcome},
    input::{Entry, Fields, Format, Input, Kind, Wrong},
    interrupt::Interrupt,
    output::{Output, Progress},
};

/// Entries that must ascend before the rest of the input is believed to.
const SAMPLE_ENTRIES: usize = 10_000;

/// Bytes of keys and values after which the sample, or a batch, is full.
const GATHERED_BYTES_MAX: usize = 8 << 20;

/// Entries that are ingested at once, and bytes of keys and values: a larger run makes fewer
/// tables, a smaller one is acknowledged sooner.
const RUN_ENTRIES_MAX: u64 = 500_000;
const RUN_BYTES_MAX: u64 = 256 << 20;

/// Records of one kind that are named among those that were skipped.
const SHOWN_OF_KIND_MAX: u64 = 3;

/// Entries between two looks at the clock.
const ENTRIES_PER_UPDATE: u64 = 1024;

/// What the command line says of the way.
pub(super) struct Settings {
    pub(super) batch_entries: usize,
    /// True if each batch is on disk before the next.
    pub(super) is_synced: bool,
    pub(super) counts_duplicates: bool,
    /// True if each step that is acknowledged is printed.
    pub(super) reports_progress: bool,
}

/// What was loaded.
pub(super) struct Totals {
    /// Entries that the engine took.
    pub(super) entries: u64,
    /// Those of them that went straight to tables.
    pub(super) ingested: u64,
    /// Entries whose key was there before; none if nobody looked.
    pub(super) duplicates: Option<u64>,
    pub(super) skipped: Skipped,
    /// Why the steps were not all printed. The import goes on without them.
    pub(super) unprinted: Option<Failure>,
    pub(super) time: Duration,
}

/// Records that were left out because they are no entries.
#[derive(Debug, Default)]
pub(super) struct Skipped {
    /// How many of each kind.
    pub(super) counts: BTreeMap<Kind, u64>,
    /// The first of each kind, with their places.
    pub(super) first: Vec<String>,
}

impl Skipped {
    fn add(&mut self, name: &str, wrong: &Wrong) {
        let count = self.counts.entry(wrong.kind).or_default();
        *count += 1;
        if *count <= SHOWN_OF_KIND_MAX {
            self.first.push(format!("{name}: {wrong}"));
        }
    }

    /// How many in all.
    pub(super) fn total(&self) -> u64 {
        self.counts.values().sum()
    }
}

/// The entries of all files, one after the other.
pub(super) struct Inputs {
    /// Files not yet open, the next one last.
    paths: Vec<PathBuf>,
    format: Option<Format>,
    fields: Fields,
    /// Entries of earlier lines of the first file are left out.
    first_line: u64,
    is_lenient: bool,
    skipped: Skipped,
    interrupt: Interrupt,
    current: Option<Input>,
    /// Bytes read of the files before the current one.
    bytes_before: u64,
}

impl Inputs {
    pub(super) fn new(mut paths: Vec<PathBuf>, format: Option<Format>, fields: Fields) -> Self {
        paths.reverse();
        Self {
            paths,
            format,
            fields,
            first_line: 1,
            is_lenient: false,
            skipped: Skipped::default(),
            interrupt: Interrupt::default(),
            current: None,
            bytes_before: 0,
        }
    }

    /// Leaves out what is no entry, and counts it.
    pub(super) fn lenient(self, is_lenient: bool) -> Self {
        Self { is_lenient, ..self }
    }

    /// Starts at this line of the first file.
    pub(super) fn starting_at(self, first_line: u64) -> Self {
        Self { first_line, ..self }
    }

    /// Ends as soon as a signal comes.
    pub(super) fn until(self, interrupt: Interrupt) -> Self {
        Self { interrupt, ..self }
    }

    fn next(&mut self) -> Outcome<Option<Entry>> {
        loop {
            if self.interrupt.has_come() {
                return Err(Failure::Interrupted(self.where_to_go_on()));
            }
            let Some(input) = &mut self.current else {
                let Some(path) = self.paths.last() else { return Ok(None) };
                self.current = Some(Input::open(path, self.format, &self.fields)?);
                self.paths.pop();
                continue;
            };
            let read = input.next();
            let is_before = input.line() < self.first_line;
            match read {
                Ok(Some(_)) if is_before => {}
                Ok(Some(entry)) => return Ok(Some(entry)),
                Ok(None) => {
                    self.bytes_before += input.read_bytes();
                    self.current = None;
                    self.first_line = 1;
                }
                Err(wrong) if is_before && !wrong.is_final => {}
                Err(wrong) if self.is_lenient && !wrong.is_final => {
                    self.skipped.add(input.name(), &wrong);
                }
                Err(wrong) => return Err(Failure::failed(format!("{}: {wrong}", input.name()))),
            }
        }
    }

    /// The arguments that load what was not read.
    fn where_to_go_on(&self) -> String {
        let quoted = |name: String| if name.contains(' ') { format!("'{name}'") } else { name };
        let rest = self.paths.iter().rev().map(|path| quoted(path.display().to_string()));
        let (line, current) = match &self.current {
            Some(input) => (input.line() + 1, Some(quoted(input.argument()))),
            None => (self.first_line, None),
        };
        let files: Vec<_> = current.into_iter().chain(rest).collect();
        format!("go on with --from-line {line} {}", files.join(" "))
    }

    fn read_bytes(&self) -> u64 {
        self.bytes_before + self.current.as_ref().map_or(0, Input::read_bytes)
    }
}

/// The entries still to be loaded: those gathered ahead, then the inputs'.
struct Pending {
    /// Gathered ahead, the next one last.
    ahead: Vec<Entry>,
    inputs: Inputs,
    /// Why nothing comes after those gathered ahead.
    failed: Option<Failure>,
    /// Taken out so far.
    taken: u64,
    progress: Progress,
}

impl Pending {
    fn next(&mut self) -> Outcome<Option<Entry>> {
        let entry = match self.ahead.pop() {
            Some(entry) => Some(entry),
            None => match self.failed.take() {
                Some(failure) => return Err(failure),
                None => self.inputs.next()?,
            },
        };
        if entry.is_some() {
            self.taken += 1;
            if self.taken.is_multiple_of(ENTRIES_PER_UPDATE) {
                self.progress.update(self.taken, self.inputs.read_bytes());
            }
        }
        Ok(entry)
    }

    /// Gathers the first entries, and says whether they ascend. A failure comes after them.
    fn sample(&mut self) -> bool {
        let (mut bytes, mut ascends) = (0, true);
        while self.ahead.len() < SAMPLE_ENTRIES && bytes < GATHERED_BYTES_MAX && ascends {
            let entry = match self.inputs.next() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(failure) => {
                    self.failed = Some(failure);
                    break;
                }
            };
            bytes += entry.key.len() + entry.value.len();
            ascends = self.ahead.last().is_none_or(|last| last.key <= entry.key);
            self.ahead.push(entry);
        }
        self.ahead.reverse();
        ascends
    }

    /// Puts an entry back to the front.
    fn put_back(&mut self, entry: Entry) {
        self.ahead.push(entry);
        self.taken -= 1;
    }
}

/// Loads everything, once.
pub(super) struct Loader<'a> {
    db: &'a Database,
    keyspace: &'a Keyspace,
    settings: Settings,
    pending: Pending,
    totals: Totals,
    out: &'a mut Output,
}

impl<'a> Loader<'a> {
    pub(super) fn new(
        db: &'a Database,
        keyspace: &'a Keyspace,
        inputs: Inputs,
        settings: Settings,
        progress: Progress,
        out: &'a mut Output,
    ) -> Self {
        let pending = Pending { ahead: Vec::new(), inputs, failed: None, taken: 0, progress };
        let totals = Totals {
            entries: 0,
            ingested: 0,
            duplicates: settings.counts_duplicates.then_some(0),
            skipped: Skipped::default(),
            unprinted: None,
            time: Duration::ZERO,
        };
        Self { db, keyspace, settings, pending, totals, out }
    }

    /// Loads everything and makes it durable; also what comes before a wrong line or a signal.
    pub(super) fn run(&mut self) -> Outcome {
        let outcome = self.load();
        self.db.persist(PersistMode::SyncAll)?;
        outcome
    }

    fn load(&mut self) -> Outcome {
        let is_empty = self.keyspace.first_key_value()?.is_none();
        if is_empty && self.pending.sample() {
            self.ingest_runs()?;
        }
        self.insert_batches()
    }

    /// What was loaded, after [`Loader::run`] returned, whichever way.
    pub(super) fn finish(mut self) -> Totals {
        self.totals.time = self.pending.progress.finish();
        self.totals.skipped = self.pending.inputs.skipped;
        self.totals
    }

    /// Ingests as long as keys ascend.
    fn ingest_runs(&mut self) -> Outcome {
        let mut last_key: Option<Vec<u8>> = None;
        loop {
            let mut run = AscendingRun::new(&mut self.pending, last_key, RUN_ENTRIES_MAX);
            self.keyspace.ingest(&mut run)?;
            let AscendingRun { last_key: last, taken, duplicates, end, .. } = run;
            last_key = last;
            self.totals.ingested += taken;
            self.acknowledge(taken, duplicates)?;
            match end {
                RunEnd::Full => {}
                RunEnd::OutOfOrder(entry) => {
                    self.pending.put_back(entry);
                    return Ok(());
                }
                RunEnd::InputEnded => return Ok(()),
                RunEnd::Failed(failure) => return Err(failure),
            }
        }
    }

    fn insert_batches(&mut self) -> Outcome {
        let mut gathered = Vec::with_capacity(self.settings.batch_entries);
        loop {
            let mut bytes = 0;
            let outcome = loop {
                match self.pending.next() {
                    Ok(Some(entry)) => {
                        bytes += entry.key.len() + entry.value.len();
                        gathered.push(entry);
                    }
                    Ok(None) => break Ok(()),
                    Err(failure) => break Err(failure),
                }
                if gathered.len() >= self.settings.batch_entries || bytes >= GATHERED_BYTES_MAX {
                    break Ok(());
                }
            };
            if gathered.is_empty() {
                return outcome;
            }
            self.insert(&gathered)?;
            gathered.clear();
            outcome?;
        }
    }

    fn insert(&mut self, entries: &[Entry]) -> Outcome {
        let duplicates =
            if self.settings.counts_duplicates { self.count_present(entries)? } else { 0 };
        let mode =
            if self.settings.is_synced { PersistMode::SyncData } else { PersistMode::Buffer };
        let mut batch = self.db.batch().durability(mode);
        for entry in entries {
            batch.insert(self.keyspace, &entry.key, &entry.value);
        }
        batch.commit()?;
        self.acknowledge(entries.len() as u64, duplicates)
    }

    /// How many of `entries` have a key that is in the keyspace or earlier in `entries`.
    fn count_present(&self, entries: &[Entry]) -> Outcome<u64> {
        let mut seen = HashSet::with_capacity(entries.len());
        let mut count = 0;
        for entry in entries {
            let is_new = seen.insert(&entry.key) && !self.keyspace.contains_key(&entry.key)?;
            count += u64::from(!is_new);
        }
        Ok(count)
    }

    /// Counts entries that the engine has taken, and says so if that is wanted.
    fn acknowledge(&mut self, entries: u64, duplicates: u64) -> Outcome {
        self.totals.entries += entries;
        if let Some(total) = &mut self.totals.duplicates {
            *total += duplicates;
        }
        if self.settings.reports_progress && entries > 0 {
            let step = json!({ "acknowledged": self.totals.entries });
            // An import does not end because nobody listens any more.
            if let Err(failure) = self.out.json(&step).and_then(|()| self.out.flush()) {
                self.settings.reports_progress = false;
                self.totals.unprinted = Some(failure);
            }
        }
        Ok(())
    }
}

/// Why a run of ascending keys ended.
enum RunEnd {
    /// It is as long as a run may be.
    Full,
    /// This entry's key is not after the last one.
    OutOfOrder(Entry),
    InputEnded,
    Failed(Failure),
}

/// An iterator over the entries whose keys ascend; of equal keys that follow each other it yields
/// the last.
struct AscendingRun<'a> {
    pending: &'a mut Pending,
    /// Read, and yielded as soon as the next one is known to have another key.
    held: Option<Entry>,
    /// The key before `held`; of an earlier run, until the first one of this.
    last_key: Option<Vec<u8>>,
    /// Entries read in this run.
    taken: u64,
    taken_max: u64,
    taken_bytes: u64,
    duplicates: u64,
    end: RunEnd,
    is_over: bool,
}

impl<'a> AscendingRun<'a> {
    /// A run of at most `taken_max` entries with different keys, all after `last_key`.
    fn new(pending: &'a mut Pending, last_key: Option<Vec<u8>>, taken_max: u64) -> Self {
        Self {
            pending,
            held: None,
            last_key,
            taken: 0,
            taken_max,
            taken_bytes: 0,
            duplicates: 0,
            end: RunEnd::Full,
            is_over: false,
        }
    }

    /// Ends the run; what is held is still yielded.
    fn end(&mut self, end: RunEnd) -> Option<Entry> {
        self.end = end;
        self.is_over = true;
        let held = self.held.take();
        if let Some(entry) = &held {
            self.last_key = Some(entry.key.clone());
        }
        held
    }

    fn next_entry(&mut self) -> Option<Entry> {
        while !self.is_over {
            let entry = match self.pending.next() {
                Ok(Some(entry)) => entry,
                Ok(None) => return self.end(RunEnd::InputEnded),
                Err(failure) => return self.end(RunEnd::Failed(failure)),
            };
            let before = self.held.as_ref().map(|held| &held.key).or(self.last_key.as_ref());
            match before.map(|before| before.cmp(&entry.key)) {
                Some(std::cmp::Ordering::Equal) if self.held.is_some() => {
                    self.taken += 1;
                    self.duplicates += 1;
                    self.held = Some(entry);
                }
                // Also a key that the run before ended with: it is in a table already.
                Some(std::cmp::Ordering::Equal | std::cmp::Ordering::Greater) => {
                    return self.end(RunEnd::OutOfOrder(entry));
                }
                // The entry after a full run is left for the next one.
                _ if self.taken >= self.taken_max || self.taken_bytes >= RUN_BYTES_MAX => {
                    self.pending.put_back(entry);
                    return self.end(RunEnd::Full);
                }
                _ => {
                    self.taken += 1;
                    self.taken_bytes += (entry.key.len() + entry.value.len()) as u64;
                    if let Some(held) = self.held.replace(entry) {
                        return Some(held);
                    }
                }
            }
        }
        None
    }
}

impl Iterator for AscendingRun<'_> {
    type Item = (Vec<u8>, Vec<u8>);

    fn next(&mut self) -> Option<Self::Item> {
        self.next_entry().map(|entry| (entry.key, entry.value))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::keys::KeyFlags;

    fn entry(key: u8, value: usize) -> Entry {
        Entry { key: vec![key], value: value.to_string().into_bytes() }
    }

    /// The inputs of a test: these keys, their values their places.
    fn pending(keys: &[u8]) -> Pending {
        let fields = Fields::keys(KeyFlags::default());
        let ahead = keys.iter().enumerate().map(|(place, key)| entry(*key, place)).rev().collect();
        let inputs = Inputs::new(Vec::new(), None, fields);
        Pending { ahead, inputs, failed: None, taken: 0, progress: Progress::new("", None, true) }
    }

    type Run = Vec<(Vec<u8>, Vec<u8>)>;

    /// Every run of `keys`, each with at most `taken_max` entries, until one is out of order.
    fn runs(keys: &[u8], taken_max: u64) -> (Vec<Run>, u64, Pending) {
        let mut pending = pending(keys);
        let (mut runs, mut taken, mut last_key) = (Vec::new(), 0, None);
        loop {
            let mut run = AscendingRun::new(&mut pending, last_key, taken_max);
            runs.push((&mut run).collect());
            taken += run.taken;
            last_key = run.last_key.take();
            match std::mem::replace(&mut run.end, RunEnd::Full) {
                RunEnd::Full => {}
                RunEnd::OutOfOrder(entry) => {
                    pending.put_back(entry);
                    return (runs, taken, pending);
                }
                _ => return (runs, taken, pending),
            }
        }
    }

    #[test]
    fn of_equal_keys_the_last_is_kept() {
        let (runs, taken, _) = runs(b"aabccc", 100);
        let expected = [(b'a', 1), (b'b', 2), (b'c', 5)].map(|(key, place)| entry(key, place));
        assert_eq!(runs, [expected.map(|entry| (entry.key, entry.value)).to_vec()]);
        assert_eq!(taken, 6);
    }

    #[test]
    fn a_run_ends_where_the_order_does() {
        let (_, taken, mut pending) = runs(b"abdc", 100);
        assert_eq!(taken, 3);
        assert_eq!(pending.next().unwrap(), Some(entry(b'c', 3)));
        assert_eq!(pending.taken, 4);
    }

    #[test]
    fn the_sample_is_given_back_in_order() {
        let mut ascending = pending(b"");
        ascending.inputs.paths = vec!["missing".into()];
        assert!(ascending.sample());
        assert!(ascending.next().is_err());
        let mut pending = pending(b"ba");
        assert_eq!(pending.next().unwrap(), Some(entry(b'b', 0)));
        assert_eq!(pending.next().unwrap(), Some(entry(b'a', 1)));
        assert_eq!(pending.next().unwrap(), None);
    }

    #[test]
    fn a_signal_ends_the_input_between_two_records() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a.txt"), dir.path().join("b.txt"));
        std::fs::write(&a, "a\nb\nc\n").unwrap();
        std::fs::write(&b, "d\n").unwrap();
        let interrupt = Interrupt::default();
        let inputs =
            Inputs::new(vec![a.clone(), b.clone()], None, Fields::keys(KeyFlags::default()));
        let mut inputs = inputs.until(interrupt.clone());
        inputs.next().unwrap().unwrap();
        inputs.next().unwrap().unwrap();
        interrupt.come();
        let Err(Failure::Interrupted(rest)) = inputs.next() else { panic!("it went on") };
        let expected = format!("go on with --from-line 3 {} {}", a.display(), b.display());
        assert_eq!(rest, expected);
        let rest = Inputs::new(vec![a, b], None, Fields::keys(KeyFlags::default()));
        let mut rest = rest.starting_at(3);
        let keys = std::iter::from_fn(|| rest.next().unwrap().map(|entry| entry.key));
        assert_eq!(keys.collect::<Vec<_>>(), [b"c", b"d"]);
    }

    proptest! {
        /// However the input is cut into runs, they ascend strictly across all of them, hold the
        /// last value of each key, and leave exactly what was not taken.
        #[test]
        fn runs_are_what_ascends(mut keys in prop::collection::vec(0..40_u8, 0..60), sorted: usize, max in 1..20_u64) {
            let sorted = sorted % (keys.len() + 1);
            keys[..sorted].sort_unstable();
            let (runs, taken, mut pending) = runs(&keys, max);
            let all: Vec<_> = runs.concat();
            prop_assert!(all.is_sorted_by(|a, b| a.0 < b.0));
            prop_assert!(taken as usize >= sorted);
            let mut model = std::collections::BTreeMap::new();
            for (place, key) in keys[..taken as usize].iter().enumerate() {
                model.insert(vec![*key], place.to_string().into_bytes());
            }
            prop_assert_eq!(all, model.into_iter().collect::<Vec<_>>());
            for (place, key) in keys.iter().enumerate().skip(taken as usize) {
                prop_assert_eq!(pending.next().unwrap(), Some(entry(*key, place)));
            }
        }
    }
}
