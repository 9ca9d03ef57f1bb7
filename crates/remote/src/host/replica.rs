//! A copy of a keyspace of a store, in whichever assembly: what a publisher needs of it.

use std::sync::Arc;

use super::{
    Table,
    binned_store::{self, arrays_in},
    share::{Preset, Region, ShareStats},
    table::wants,
    two_stage_store::model_stats,
};
use crate::{
    binned::{self, Address},
    error::Result,
    layout::control,
    leaf::Entry,
    region::HostRegion,
    two_stage,
};

/// Pairs of a load, sorted by key, no two of the same key.
pub(super) trait Pairs {
    /// The next pair, if there is one.
    fn next(&mut self) -> Option<Result<(&[u8], &[u8])>>;
}

/// What lends the pairs of an iterator, one at a time.
pub(super) struct Lent<I, P> {
    pairs: I,
    lent: Option<P>,
}

impl<I, P> Lent<I, P> {
    pub(super) fn new(pairs: I) -> Self {
        Self { pairs, lent: None }
    }
}

impl<K, V, I> Pairs for Lent<I, (K, V)>
where
    K: AsRef<[u8]>,
    V: AsRef<[u8]>,
    I: Iterator<Item = Result<(K, V)>>,
{
    fn next(&mut self) -> Option<Result<(&[u8], &[u8])>> {
        let pair = self.pairs.next()?;
        Some(pair.map(|pair| {
            let pair: &(K, V) = self.lent.insert(pair);
            (pair.0.as_ref(), pair.1.as_ref())
        }))
    }
}

/// A copy of a keyspace in a region. One thread at a time changes it.
///
/// What is changed is latched: from the change on until [`Replica::publish`], no reader takes what
/// is there for an answer, neither what it was nor what it will be.
pub(super) trait Replica: Send {
    /// Puts pairs in the place of all that is there, in the memory that it has. Readers may find
    /// the pairs before all are there.
    ///
    /// # Errors
    ///
    /// The first error among the pairs; [`Error::Full`](crate::Error::Full). The replica is to be
    /// loaded again then.
    fn load(&mut self, pairs: &mut dyn Pairs) -> Result<()>;

    /// Sets the value of a key. `seq` is the number of the change.
    ///
    /// # Errors
    ///
    /// What keeps it from being done; the replica is to be loaded again then.
    fn set(&mut self, key: &[u8], value: &[u8], seq: u64) -> Result<()>;

    /// Removes a key, if it is there.
    ///
    /// # Errors
    ///
    /// As [`Replica::set`].
    fn remove(&mut self, key: &[u8], seq: u64) -> Result<()>;

    /// Removes the keys from `from` on, and before `to` if there is such an end; returns false if
    /// they are more than `limit`, some of which are removed then.
    ///
    /// # Errors
    ///
    /// As [`Replica::set`].
    fn remove_range(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
        seq: u64,
    ) -> Result<bool>;

    /// Lets readers see the changes since the last call, of which `seq` is the last.
    fn publish(&mut self, seq: u64);

    /// Asks for the memory that a change of a key touches, so that it arrives meanwhile.
    fn prepare(&self, _key: &[u8]) {}

    /// Returns true if there is something to be done beside the writer.
    fn wants_care(&self) -> bool;

    /// Returns true if a change could not be kept: the replica is to be loaded again.
    fn is_lost(&self) -> bool {
        false
    }

    /// Adds what it holds.
    fn add_to(&self, stats: &mut ShareStats);
}

/// A replica in one of the assemblies.
pub(super) enum AnyReplica {
    /// Runs of leaves.
    Runs(Box<Table<Arc<HostRegion>>>),
    /// Two stages of models.
    TwoStage(Box<two_stage::Table<Arc<HostRegion>>>),
    /// Trained arrays.
    Binned(Box<Arrays>),
}

/// Trained arrays, with the part of the region that says which change was the last.
pub(super) struct Arrays {
    pub(super) host: binned::Host<Arc<HostRegion>>,
    control: Arc<HostRegion>,
}

impl Arrays {
    /// Arrays of no keys in a region.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full).
    pub(super) fn new(region: &Region, options: binned::Options) -> Result<Self> {
        let host = arrays_in(region, options)?;
        Ok(Self { host, control: Arc::clone(&region.control) })
    }
}

impl AnyReplica {
    pub(super) fn preset(&self) -> Preset {
        match self {
            Self::Runs(_) => Preset::Rhumb,
            Self::TwoStage(_) => Preset::XStore,
            Self::Binned(_) => Preset::FineStore,
        }
    }
}

impl std::ops::Deref for AnyReplica {
    type Target = dyn Replica;

    fn deref(&self) -> &(dyn Replica + 'static) {
        match self {
            Self::Runs(table) => &**table,
            Self::TwoStage(table) => &**table,
            Self::Binned(arrays) => &**arrays,
        }
    }
}

impl std::ops::DerefMut for AnyReplica {
    fn deref_mut(&mut self) -> &mut (dyn Replica + 'static) {
        match self {
            Self::Runs(table) => &mut **table,
            Self::TwoStage(table) => &mut **table,
            Self::Binned(arrays) => &mut **arrays,
        }
    }
}

impl std::fmt::Debug for AnyReplica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("AnyReplica").field(&self.preset()).finish()
    }
}

/// The pairs of a load, each of which its taker keeps.
fn owned(pairs: &mut dyn Pairs) -> impl Iterator<Item = Result<(Vec<u8>, Vec<u8>)>> {
    std::iter::from_fn(|| {
        let pair = pairs.next()?;
        Some(pair.map(|(key, value)| (key.to_vec(), value.to_vec())))
    })
}

impl Replica for Table<Arc<HostRegion>> {
    fn load(&mut self, pairs: &mut dyn Pairs) -> Result<()> {
        let geometry = self.geometry();
        let entries = std::iter::from_fn(|| {
            let pair = pairs.next()?;
            Some(pair.map(|(key, value)| Entry::new(geometry, key, value)))
        });
        Self::load(self, entries)
    }

    fn set(&mut self, key: &[u8], value: &[u8], seq: u64) -> Result<()> {
        Self::set(self, key, value, seq)
    }

    fn remove(&mut self, key: &[u8], seq: u64) -> Result<()> {
        Self::remove(self, key, seq);
        Ok(())
    }

    fn remove_range(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
        seq: u64,
    ) -> Result<bool> {
        Ok(Self::remove_range(self, from, to, limit, seq))
    }

    fn publish(&mut self, seq: u64) {
        Self::publish(self, seq);
    }

    fn prepare(&self, key: &[u8]) {
        Self::prepare(self, key);
    }

    fn wants_care(&self) -> bool {
        wants(self)
    }

    fn is_lost(&self) -> bool {
        Self::is_lost(self)
    }

    fn add_to(&self, stats: &mut ShareStats) {
        (stats.entries, stats.leaves) = (self.len(), self.leaf_count());
        stats.runs = self.run_count() as u64;
        stats.leaf_bytes = self.geometry().leaf_bytes() as u64;
    }
}

impl Replica for two_stage::Table<Arc<HostRegion>> {
    fn load(&mut self, pairs: &mut dyn Pairs) -> Result<()> {
        Self::load(self, owned(pairs))
    }

    fn set(&mut self, key: &[u8], value: &[u8], _seq: u64) -> Result<()> {
        Self::set(self, key, value, None).map(drop)
    }

    fn remove(&mut self, key: &[u8], _seq: u64) -> Result<()> {
        Self::remove(self, key, None);
        Ok(())
    }

    fn remove_range(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
        _seq: u64,
    ) -> Result<bool> {
        Ok(Self::remove_range(self, from, to, limit))
    }

    fn publish(&mut self, seq: u64) {
        Self::publish(self, seq);
    }

    fn wants_care(&self) -> bool {
        self.has_task()
    }

    fn add_to(&self, stats: &mut ShareStats) {
        (stats.entries, stats.leaves) = (self.len(), u64::from(self.leaf_count()));
        stats.runs = u64::from(self.model_count());
        stats.leaf_bytes = self.leaf_bytes() as u64;
        stats.models = model_stats(self);
    }
}

impl Replica for Arrays {
    fn load(&mut self, pairs: &mut dyn Pairs) -> Result<()> {
        self.host.load(owned(pairs))
    }

    fn set(&mut self, key: &[u8], value: &[u8], _seq: u64) -> Result<()> {
        self.host.set(key, value, Address::default()).map(drop)
    }

    fn remove(&mut self, key: &[u8], _seq: u64) -> Result<()> {
        self.host.remove(key, Address::default()).map(drop)
    }

    fn remove_range(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
        _seq: u64,
    ) -> Result<bool> {
        self.host.remove_range(from, to, limit)
    }

    fn publish(&mut self, seq: u64) {
        self.host.publish(seq);
        control::set_applied(self.control.words(), seq);
    }

    fn wants_care(&self) -> bool {
        self.host.due_count() > 0
    }

    fn add_to(&self, stats: &mut ShareStats) {
        binned_store::add_to(&self.host, stats);
    }
}
