//! A volatile keyspace in the two-stage assembly: the table, the values that are too large for it,
//! and the trainer.

use std::{
    collections::BTreeMap,
    ops::{Bound, ControlFlow},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    Authority, Change, Pair, Scan,
    authority::bounded,
    care::Bell,
    group::{self, Changed},
    part::Part,
    replica::Replica,
    share::{ModelStats, Region, ShareStats},
};
use crate::{
    error::{Error, Result},
    message::Hint,
    region::HostRegion,
    two_stage::{Lookup, Options, SLOTS, Sizes, Table, Value},
};

/// The longest value that the region publishes: one read has to bring it.
const PUBLISHED_BYTES: u32 = 64 << 10;

/// The longest value that lies in a leaf's slots unless the user says otherwise: all are as large.
/// Longer ones have a record, which takes a read more.
const INLINE_BYTES: usize = 128;

/// The longest value that may lie in a leaf's slots.
const INLINE_BYTES_MAX: usize = 1024;

/// Pairs that a scan looks at beside those that it returns: some leaves of them.
const SCAN_PAIRS: usize = 256;

/// What a user may say of a keyspace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tuning {
    /// The mean length of values.
    pub(super) value_bytes: usize,
    /// The longest value that lies in a leaf, if that is said.
    pub(super) inline_bytes: Option<usize>,
    /// Keys a sub-model on average at which the models are expanded.
    pub(super) keys_per_model: u32,
    /// What is read proves itself by checksums.
    pub(super) has_checksums: bool,
}

/// A keyspace that is in no store.
pub(super) struct TwoStageStore {
    region: Region,
    state: Mutex<TwoStageState>,
    bell: Arc<Bell>,
}

/// What one thread at a time changes.
struct TwoStageState {
    table: Table<Arc<HostRegion>>,
    /// The values that are too large for the region.
    large: BTreeMap<Vec<u8>, Vec<u8>>,
    seq: u64,
}

/// An empty table in a region.
///
/// # Errors
///
/// [`Error::Full`].
pub(super) fn table_in(region: &Region, tuning: Tuning) -> Result<Table<Arc<HostRegion>>> {
    let usual = tuning.value_bytes.clamp(8, INLINE_BYTES);
    let inline = tuning.inline_bytes.unwrap_or(usual).min(INLINE_BYTES_MAX);
    let sizes = Sizes::new(inline.next_multiple_of(8) as u32, PUBLISHED_BYTES)?
        .with_checksums(tuning.has_checksums);
    let options = Options { sizes, fill: SLOTS, keys_per_model_max: tuning.keys_per_model };
    let (leaves, control) = (Arc::clone(&region.leaves), Arc::clone(&region.control));
    Table::build(options, leaves, control, [])
}

/// What the models of a table have cost.
pub(super) fn model_stats(table: &Table<Arc<HostRegion>>) -> ModelStats {
    let counts = table.counts();
    ModelStats {
        waiting: table.models_waiting(),
        trained: counts.trained,
        training_ns: counts.training_ns,
        trained_keys: counts.trained_keys,
        trained_errors: counts.trained_errors,
        splits: counts.splits,
        expansions: counts.expansions,
        shrinks: counts.shrinks,
        lookups: counts.lookups,
        hints_right: counts.hints_right,
        hints_wrong: counts.hints_wrong,
    }
}

impl TwoStageStore {
    /// An empty keyspace.
    pub(super) fn new(region: Region, tuning: Tuning, bell: Arc<Bell>) -> Result<Self> {
        let table = table_in(&region, tuning)?;
        let state = TwoStageState { table, large: BTreeMap::new(), seq: 0 };
        Ok(Self { region, state: Mutex::new(state), bell })
    }

    fn lock(&self) -> Result<MutexGuard<'_, TwoStageState>> {
        self.state.lock().map_err(|_| Error::invalid("a write of this host's own did not end"))
    }

    /// What it holds.
    pub(super) fn stats(&self) -> ShareStats {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stats = self.region.stats();
        state.table.add_to(&mut stats);
        stats
    }

    /// Answers a get that a client's models could not do.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if a write before did not end.
    pub(super) fn consult(&self, lookup: &Lookup<'_>) -> Result<Vec<u8>> {
        let state = &mut *self.lock()?;
        let answer = state.table.answer(lookup, |key| state.large.get(key).cloned());
        // A stale sub-model that it met is to be trained.
        self.bell.ring();
        let mut out = Vec::new();
        answer.encode(&mut out);
        Ok(out)
    }

    /// Sets the value of a key, or removes it. The hint saves the walk if it names the right leaf.
    ///
    /// # Errors
    ///
    /// As [`Authority::commit`].
    pub(super) fn write(&self, change: Change<'_>, hint: Option<Hint>) -> Result<()> {
        let mut state = self.lock()?;
        let written = state.put_at(change.key, change.value, hint);
        let seq = state.seq + u64::from(written.is_ok());
        state.publish(seq);
        drop(state);
        self.bell.ring();
        written
    }

    /// Trains what is stale, while writers go on. Several threads may do that at once.
    pub(super) fn care(&self) {
        loop {
            let task = match self.lock().map(|mut state| state.table.next_task()) {
                Ok(Ok(Some(task))) => task,
                // Without memory for that, gets fall back to calls.
                _ => return,
            };
            let trained = task.train();
            let Ok(mut state) = self.lock() else { return };
            if state.table.commit(trained).is_err() {
                return;
            }
        }
    }
}

impl Authority for TwoStageStore {
    fn get(&self, _keyspace: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.lock()?.get(key))
    }

    fn multi_get(
        &self,
        _keyspace: &str,
        keys: &[&[u8]],
        bytes_max: usize,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let state = self.lock()?;
        bounded(keys.iter().map(|key| state.get(key)), bytes_max)
    }

    fn scan(&self, _keyspace: &str, scan: &Scan<'_>) -> Result<(Vec<Pair>, bool)> {
        let state = self.lock()?;
        Ok(if scan.reverse { state.scan_down(scan) } else { state.scan_up(scan) })
    }

    fn commit(&self, changes: &[Change<'_>]) -> Result<()> {
        let applied = group::apply(&mut *self.lock()?, changes);
        self.bell.ring();
        applied
    }

    fn compare_and_swap(&self, change: &Change<'_>, expected: Option<&[u8]>) -> Result<bool> {
        let swaps = group::swap(&mut *self.lock()?, change, expected);
        self.bell.ring();
        swaps
    }
}

impl TwoStageState {
    fn value_of(&self, key: &[u8], value: Value) -> Vec<u8> {
        match value {
            Value::Here(value) => value,
            Value::Ask => self.large.get(key).cloned().unwrap_or_default(),
        }
    }

    fn scan_up(&self, scan: &Scan<'_>) -> (Vec<Pair>, bool) {
        let mut part = Part::new(scan);
        let mut from = match scan.from {
            Bound::Unbounded => Vec::new(),
            Bound::Included(key) => key.to_vec(),
            // The first key that is above it.
            Bound::Excluded(key) => [key, &[0]].concat(),
        };
        loop {
            let found = self.table.scan(&from, SCAN_PAIRS);
            let Some((last, _)) = found.last() else { return (part.pairs, false) };
            from = [&last[..], &[0]].concat();
            for (key, value) in found {
                let value = self.value_of(&key, value);
                if let ControlFlow::Break(has_more) = part.push(&key, &value) {
                    return (part.pairs, has_more);
                }
            }
        }
    }

    fn scan_down(&self, scan: &Scan<'_>) -> (Vec<Pair>, bool) {
        let mut part = Part::new(scan);
        let mut to = scan.to.map(<[u8]>::to_vec);
        loop {
            let found = self.table.scan_down(to.as_ref().map(Vec::as_slice), SCAN_PAIRS);
            let Some((last, _)) = found.last() else { return (part.pairs, false) };
            to = Bound::Excluded(last.clone());
            for (key, value) in found {
                let value = self.value_of(&key, value);
                if let ControlFlow::Break(has_more) = part.push(&key, &value) {
                    return (part.pairs, has_more);
                }
            }
        }
    }

    fn put_at(&mut self, key: &[u8], value: Option<&[u8]>, hint: Option<Hint>) -> Result<()> {
        match value {
            Some(value) => {
                self.table.set(key, value, hint)?;
                if value.len() > PUBLISHED_BYTES as usize {
                    self.large.insert(key.to_vec(), value.to_vec());
                } else {
                    self.large.remove(key);
                }
            }
            None => {
                self.table.remove(key, hint);
                self.large.remove(key);
            }
        }
        Ok(())
    }
}

impl Changed for TwoStageState {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.table.get(key).map(|value| self.value_of(key, value))
    }

    fn put(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.put_at(key, value, None)
    }

    fn seq(&self) -> u64 {
        self.seq
    }

    fn publish(&mut self, seq: u64) {
        self.seq = seq;
        self.table.publish(seq);
    }
}

#[cfg(all(test, target_os = "linux", target_pointer_width = "64", not(miri)))]
mod tests {
    use super::*;
    use crate::{
        fabric::MappedFabric,
        layout::control,
        two_stage::{CacheBudget, Client, ClientOptions},
    };

    /// Hints that are right save walks, and wrong ones change nothing.
    #[test]
    fn writes_go_where_hints_say_if_they_are_right() {
        let region = || Arc::new(HostRegion::new(8 << 20).unwrap());
        let region = Region { control: region(), leaves: region() };
        let tuning = Tuning {
            value_bytes: 8,
            inline_bytes: None,
            keys_per_model: 200,
            has_checksums: false,
        };
        let store = TwoStageStore::new(region.clone(), tuning, Arc::default()).unwrap();
        let key = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let write = |key: &[u8], value: Option<&[u8]>, hint| {
            store.write(Change { keyspace: "", key, value }, hint).unwrap();
        };
        (0..3_000).for_each(|n| write(&key(n), Some(b"first"), None));
        store.care();
        let fabric = MappedFabric::new(region.control.words(), region.leaves.words());
        let options = ClientOptions { budget: CacheBudget::Full, speculates: true };
        let mut client = Client::open(&fabric, options).unwrap();
        client.fill(&fabric).unwrap();
        for n in 0..3_000 {
            let hint = client.hint(&key(n)).expect("a table that is kept");
            write(&key(n), (n % 3 != 0).then_some(b"second"), Some(hint));
        }
        let counts = store.lock().unwrap().table.counts();
        assert!(counts.hints_right > 1_000, "{} of 3000 were right", counts.hints_right);
        assert_eq!(counts.hints_right + counts.hints_wrong, 3_000);
        for n in 0..3_000 {
            let expected = (n % 3 != 0).then(|| b"second".to_vec());
            assert_eq!(store.get("", &key(n)).unwrap(), expected);
        }
        assert_eq!(control::applied(region.control.words()), 6_000);
    }
}
