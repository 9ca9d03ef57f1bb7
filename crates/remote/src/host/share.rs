//! A keyspace that a host shares: its region, and what decides what is in it.

mod options;
mod region;
mod stats;

use std::sync::{Arc, RwLock};

use super::{
    Authority, Change, Publisher,
    binned_store::BinnedStore,
    care::Bell,
    consult::Consultant,
    question::{Question, Touched},
    replica::AnyReplica,
    served::{Gate, Served, Serving},
    tally::Gets,
    two_stage_store::TwoStageStore,
    volatile::Volatile,
};
use crate::{
    client::Reader,
    error::{Error, Result},
    fabric::{Extent, Fabric, Image, MappedFabric},
    layout::{Geometry, control},
    message::{HEADER_WORDS, Hint},
    region::HostRegion,
};

pub(super) use self::region::Region;
pub use self::{
    options::{Preset, ShareOptions},
    stats::{ModelStats, ShareStats},
};

/// A keyspace of a host.
pub(super) struct Share {
    region: Region,
    /// The sizes of leaves, in a region of runs.
    geometry: Option<Geometry>,
    source: ShareSource,
    serving: Serving,
    gets: Gets,
    /// What devices reach, if what they read proves itself.
    #[cfg(all(feature = "rdma", target_os = "linux"))]
    reached: Option<super::reached::Reached>,
}

/// Where what is shared comes from.
enum ShareSource {
    /// The region is the store.
    Volatile(Arc<Volatile>),
    /// The region is a copy of a keyspace of a store.
    Published(Publisher, Arc<dyn Authority>),
    /// The region is the store, in the two-stage assembly.
    TwoStage(Arc<TwoStageStore>),
    /// The region is the store, in the assembly of trained arrays.
    Binned(Arc<BinnedStore>),
}

impl Share {
    fn new(
        region: Region,
        options: ShareOptions,
        geometry: Option<Geometry>,
        source: ShareSource,
    ) -> Self {
        let (serving, gets) = (Serving::default(), Gets::default());
        #[cfg(all(feature = "rdma", target_os = "linux"))]
        let reached = options.has_checksums.then(super::reached::Reached::default);
        #[cfg(not(all(feature = "rdma", target_os = "linux")))]
        let _ = options;
        Self {
            region,
            geometry,
            source,
            serving,
            gets,
            #[cfg(all(feature = "rdma", target_os = "linux"))]
            reached,
        }
    }

    /// An empty keyspace that lives in the region alone.
    pub(super) fn volatile(options: ShareOptions, bell: &Arc<Bell>) -> Result<Self> {
        let region = Region::new(options)?;
        if options.preset == Preset::XStore {
            let store = TwoStageStore::new(region.clone(), options.tuning(), Arc::clone(bell))?;
            return Ok(Self::new(region, options, None, ShareSource::TwoStage(Arc::new(store))));
        }
        if options.preset == Preset::FineStore {
            let store = BinnedStore::new(region.clone(), options.arrays(), Arc::clone(bell))?;
            return Ok(Self::new(region, options, None, ShareSource::Binned(Arc::new(store))));
        }
        let table = region.table(options)?;
        let geometry = Some(table.geometry());
        let volatile = Arc::new(Volatile::new(region.clone(), table, Arc::clone(bell)));
        Ok(Self::new(region, options, geometry, ShareSource::Volatile(volatile)))
    }

    /// A keyspace of `authority`, of which the region knows nothing yet.
    pub(super) fn published(
        options: ShareOptions,
        authority: Arc<dyn Authority>,
        bell: &Arc<Bell>,
    ) -> Result<Self> {
        let region = Region::new(options)?;
        let replica = region.replica(options)?;
        let geometry = match &replica {
            AnyReplica::Runs(table) => Some(table.geometry()),
            AnyReplica::TwoStage(_) | AnyReplica::Binned(_) => None,
        };
        let publisher = Publisher::new(region.clone(), replica, Arc::clone(bell));
        Ok(Self::new(region, options, geometry, ShareSource::Published(publisher, authority)))
    }

    /// The header and the directory.
    pub(super) fn control(&self) -> &HostRegion {
        &self.region.control
    }

    /// The sizes that all leaves have.
    pub(super) fn geometry(&self) -> Option<Geometry> {
        self.geometry
    }

    /// What devices reach of it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if what they read would not prove itself.
    #[cfg(all(feature = "rdma", target_os = "linux"))]
    pub(super) fn reached(&self) -> Result<(&super::reached::Reached, &Region)> {
        if let Some(reached) = &self.reached {
            return Ok((reached, &self.region));
        }
        let text = "this keyspace is not read by RDMA: it is shared without checksums";
        Err(Error::InvalidArgument(text.into()))
    }

    /// A reader of the region, for clients that cannot read it themselves; `None` while it answers
    /// for nothing.
    pub(super) fn reader(&self) -> Option<Reader<'_>> {
        let (control, leaves) = (self.region.control.words(), self.region.leaves.words());
        let is_live = control::heartbeat(control) != 0;
        self.geometry.filter(|_| is_live).map(|geometry| Reader::of(control, leaves, geometry))
    }

    /// The model epoch.
    pub(super) fn epoch(&self) -> u64 {
        control::epoch(self.region.control.words())
    }

    /// The leaves.
    pub(super) fn leaves(&self) -> &HostRegion {
        &self.region.leaves
    }

    /// What takes writes and knows all values.
    pub(super) fn authority(&self) -> &dyn Authority {
        match &self.source {
            ShareSource::Volatile(volatile) => &**volatile,
            ShareSource::TwoStage(store) => &**store,
            ShareSource::Binned(store) => &**store,
            ShareSource::Published(_, authority) => &**authority,
        }
    }

    /// Returns true if changes of both keyspaces can be made as one.
    pub(super) fn has_authority_of(&self, other: &Self) -> bool {
        match (&self.source, &other.source) {
            (ShareSource::Volatile(one), ShareSource::Volatile(other)) => Arc::ptr_eq(one, other),
            (ShareSource::Published(_, one), ShareSource::Published(_, other)) => {
                Arc::ptr_eq(one, other)
            }
            (ShareSource::TwoStage(one), ShareSource::TwoStage(other)) => Arc::ptr_eq(one, other),
            (ShareSource::Binned(one), ShareSource::Binned(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Where the keyspace's changes are told, if the region is a copy.
    pub(super) fn publisher(&self) -> Option<&Publisher> {
        match &self.source {
            ShareSource::Volatile(_) | ShareSource::TwoStage(_) | ShareSource::Binned(_) => None,
            ShareSource::Published(publisher, _) => Some(publisher),
        }
    }

    /// Sets the value of a key, or removes it. The hint says where the client expects it to belong,
    /// which some assemblies have a use for.
    ///
    /// # Errors
    ///
    /// As [`Authority::commit`].
    pub(super) fn write(&self, change: Change<'_>, hint: Option<Hint>) -> Result<()> {
        match &self.source {
            ShareSource::TwoStage(store) => store.write(change, hint),
            _ => self.authority().commit(&[change]),
        }
    }

    /// The number of the last write that can be read.
    pub(super) fn applied(&self) -> u64 {
        control::applied(self.region.control.words())
    }

    /// What it holds.
    pub(super) fn stats(&self) -> ShareStats {
        let stats = match &self.source {
            ShareSource::Volatile(volatile) => volatile.stats(),
            ShareSource::TwoStage(store) => store.stats(),
            ShareSource::Binned(store) => store.stats(),
            ShareSource::Published(publisher, _) => publisher.stats(),
        };
        ShareStats { gets: self.gets.totals(), ..stats }
    }

    /// What clients report of their gets.
    pub(super) fn gets(&self) -> &Gets {
        &self.gets
    }

    fn preset(&self) -> Preset {
        match &self.source {
            ShareSource::Volatile(_) => Preset::Rhumb,
            ShareSource::TwoStage(_) => Preset::XStore,
            ShareSource::Binned(_) => Preset::FineStore,
            ShareSource::Published(publisher, _) => publisher.preset(),
        }
    }

    /// Answers a client that keeps models of the keyspace, which it knows by a name. `joined` has
    /// the sessions that its connection has begun with the keyspace. A write is made while the gate
    /// is held.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if the keyspace's clients keep none, and for bytes that are no
    /// question; [`Error::Moved`] for keys that are not served; for a write, as its authority.
    pub(super) fn consult(
        &self,
        name: &str,
        question: &[u8],
        joined: &mut Vec<u64>,
        gate: &Gate,
    ) -> Result<Vec<u8>> {
        let question = Question::decode(self.preset(), question)?;
        match question.touched() {
            Touched::Nothing => self.ask(name, &question, joined),
            Touched::Read(keys) => {
                // planted: question-answered-keys-host-not
                self.serving.answer_range(keys, || self.ask(name, &question, joined))
            }
            Touched::Written(key) => {
                let _write = gate.writes();
                // planted: operation-writes-key-host-not
                self.serving.check_write(key)?;
                self.ask(name, &question, joined)
            }
        }
    }

    /// The answer to a question, whether or not its keys are served.
    fn ask(&self, name: &str, question: &Question<'_>, joined: &mut Vec<u64>) -> Result<Vec<u8>> {
        match (&self.source, question) {
            (ShareSource::Published(publisher, authority), _) => {
                Consultant::new(publisher, &**authority, name).answer(question, joined)
            }
            (ShareSource::TwoStage(store), Question::LookUp(lookup)) => store.consult(lookup),
            (ShareSource::Binned(store), Question::Arrays(request)) => {
                store.consult(request, joined)
            }
            _ => Err(Error::InvalidArgument("a question of another preset".into())),
        }
    }

    /// Reads pieces of the region for a client that cannot map it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if the keyspace's clients keep no models, and name leaves.
    pub(super) fn read_pieces(&self, extents: &[Extent], image: &mut Image) -> Result<()> {
        if self.geometry.is_some() {
            return Err(Error::InvalidArgument("clients of this keyspace keep no models".into()));
        }
        let (control, leaves) = (self.region.control.words(), self.region.leaves.words());
        let is_copy = matches!(self.source, ShareSource::Published(..));
        if is_copy && control::heartbeat(control) == 0 {
            // It answers for nothing now, and no piece can be read.
            return MappedFabric::new(&[], &[]).read(extents, image);
        }
        MappedFabric::new(control, leaves).read(extents, image)
    }

    /// What the control part begins with.
    pub(super) fn header(&self) -> [u64; HEADER_WORDS] {
        control::first_words(self.region.control.words())
    }

    /// Ends the sessions that a connection has begun with the keyspace.
    pub(super) fn end_sessions(&self, joined: &[u64]) {
        match &self.source {
            ShareSource::Binned(store) if !joined.is_empty() => store.end(joined),
            ShareSource::Published(publisher, _) if !joined.is_empty() => {
                Consultant::end(publisher, joined);
            }
            _ => {}
        }
    }

    /// [`Host::train_alone`](super::Host::train_alone).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a keyspace that trains no arrays.
    pub(super) fn train_alone(&self, lock: Arc<RwLock<()>>) -> Result<()> {
        let ShareSource::Binned(store) = &self.source else {
            return Err(Error::InvalidArgument("a keyspace that trains no arrays".into()));
        };
        store.train_alone(lock);
        Ok(())
    }

    /// Which keys are served.
    pub(super) fn serving(&self) -> &Serving {
        &self.serving
    }

    /// Serves these keys from here on. No other thread does that, or writes for a client.
    ///
    /// # Errors
    ///
    /// As [`Serving::set`].
    pub(super) fn serve(&self, served: Served) -> Result<()> {
        self.serving.set(served)?;
        control::raise_generation(self.region.control.words());
        Ok(())
    }

    /// Waits until nothing that clients read counts which they began to read before this call: what
    /// is not served any more may be changed then. Clients that map the region notice by its
    /// generation.
    pub(super) fn wait_for_reads(&self) {
        #[cfg(all(feature = "rdma", target_os = "linux"))]
        self.reached.iter().for_each(super::reached::Reached::wait_for_reads);
    }

    /// Returns true if [`Share::let_go_of_devices`] is to be called. Waits for nobody.
    pub(super) fn has_lost_a_device(&self) -> bool {
        #[cfg(all(feature = "rdma", target_os = "linux"))]
        return self.reached.as_ref().is_some_and(super::reached::Reached::has_lost);
        #[cfg(not(all(feature = "rdma", target_os = "linux")))]
        false
    }

    /// Lets go of devices that the system removes.
    pub(super) fn let_go_of_devices(&self) {
        #[cfg(all(feature = "rdma", target_os = "linux"))]
        self.reached.iter().for_each(super::reached::Reached::let_go);
    }

    /// Which generation of keys is served.
    pub(super) fn generation(&self) -> u64 {
        control::generation(self.region.control.words())
    }

    /// Does what its table wants, while writers go on.
    pub(super) fn care(&self) {
        match &self.source {
            ShareSource::Volatile(volatile) => volatile.care(),
            ShareSource::TwoStage(store) => store.care(),
            ShareSource::Binned(store) => store.care(),
            ShareSource::Published(publisher, _) => publisher.care(),
        }
    }

    /// Trains models, if clients keep some that several threads may train.
    pub(super) fn train(&self) {
        if let ShareSource::TwoStage(store) = &self.source {
            store.care();
        }
    }

    /// Says to readers that the host is there, or by a 0 that it has ended.
    pub(super) fn beat(&self, now_ms: u64) {
        match &self.source {
            ShareSource::Volatile(_) | ShareSource::TwoStage(_) => {
                control::set_heartbeat(self.region.control.words(), now_ms);
            }
            ShareSource::Binned(store) => {
                control::set_heartbeat(self.region.control.words(), now_ms);
                store.beat();
            }
            ShareSource::Published(publisher, _) => publisher.beat(now_ms),
        }
    }
}

#[cfg(all(test, target_os = "linux", target_pointer_width = "64", not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn any_budget_is_one() {
        for bytes in [0, 1, u64::MAX] {
            Share::volatile(ShareOptions::default().capacity_bytes(bytes), &Arc::default())
                .unwrap();
        }
    }
}
