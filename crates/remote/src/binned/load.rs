//! Loading a host anew: sorted entries take the place of all that it held, in the same memory.
//!
//! No array that was there is read any more: its blocks end, no other array has its epoch, and the
//! sessions that knew it are over. The next one learns the model from the beginning. A place keeps
//! the size of its pieces (`slab`), for a reader may come late to it: memory that was blocks of
//! arrays is none for bins after a load either.

use std::sync::Arc;

use super::{
    descriptor::Span,
    host::Host,
    message::{Address, Operation, Outcome, Verb},
    train::{From, Planned, TrainingPlan},
    write::check_key,
};
use crate::{error::Result, host::Space};

/// Entries that are trained together: their keys are in memory meanwhile.
const TRAINED_TOGETHER: usize = 1 << 18;

/// Keys of a range that are looked for at once before they are removed.
const REMOVED_TOGETHER: u32 = 1_024;

impl<S: Space> Host<S> {
    /// Removes all keys and puts entries in their place, which are sorted, no two of the same key.
    /// Linear.
    ///
    /// # Errors
    ///
    /// As [`Host::build`], and the first error among the entries. The host is to be loaded again
    /// then.
    pub(crate) fn load(
        &mut self,
        entries: impl Iterator<Item = Result<(Vec<u8>, Vec<u8>)>>,
    ) -> Result<()> {
        self.records.slab.end_all();
        self.arrays.clear();
        self.tops.clear();
        self.due.clear();
        self.changes.clear();
        self.barrier.clear();
        self.entries = 0;
        // Nothing was ever told of this epoch, so that a client that comes learns everything.
        // planted: arrays-loaded-anew-epochs-before
        self.model += 1;
        self.fill(entries)
    }

    /// Makes arrays of sorted entries, which readers find at once.
    pub(super) fn fill(
        &mut self,
        mut entries: impl Iterator<Item = Result<(Vec<u8>, Vec<u8>)>>,
    ) -> Result<()> {
        let mut next = entries.next().transpose()?;
        let mut low: Arc<[u8]> = Arc::from([]);
        loop {
            let mut records = Vec::new();
            while records.len() < TRAINED_TOGETHER
                && let Some((key, value)) = next.take()
            {
                check_key(&key)?;
                let record = self.records.make(&key, &value, 0)?;
                records.push(Planned { key, from: From::New(record) });
                next = entries.next().transpose()?;
            }
            self.entries += records.len() as u64;
            let high = next.as_ref().map(|(key, _)| Arc::from(&key[..]));
            let span = Span { low, high: high.clone() };
            let (tops, smalls, dropped) = (Vec::new(), Vec::new(), Vec::new());
            let plan = TrainingPlan { tops, smalls, span, below: None, records, dropped };
            self.install(plan.train())?;
            self.records.slab.publish();
            match high {
                Some(high) => low = high,
                None => return Ok(()),
            }
        }
    }

    /// Removes the keys from `from` on, and before `to` if there is such an end; returns false if
    /// they are more than `limit`, some of which are removed then. Readers see it after
    /// [`Host::publish`].
    ///
    /// # Errors
    ///
    /// As [`Host::set`].
    pub(crate) fn remove_range(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
    ) -> Result<bool> {
        if to.is_some_and(|to| to <= from) {
            return Ok(true);
        }
        let address = Address { array: Address::UNTAUGHT, ..Address::default() };
        let mut operation = Operation::new(Verb::Range, address, from, &[]);
        operation.end = to.map(Arc::from);
        operation.limit = REMOVED_TOGETHER;
        let mut left = limit;
        loop {
            let Outcome::Pairs { pairs, next } = self.range(&operation) else { return Ok(true) };
            if pairs.len() > left {
                return Ok(false);
            }
            left -= pairs.len();
            for (key, _) in &pairs {
                self.remove(key, Address::default())?;
            }
            match next {
                Some(next) => operation.key = next,
                None => return Ok(true),
            }
        }
    }
}
