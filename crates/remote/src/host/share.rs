//! A keyspace that a host shares: its region, and what decides what is in it.

use std::{
    str::FromStr,
    sync::{Arc, RwLock},
};

use super::{
    Authority, Change, Publisher, Space, Table,
    binned_store::BinnedStore,
    care::Bell,
    consult::Consultant,
    question::{Question, Touched},
    replica::{AnyReplica, Arrays},
    served::{Gate, Served, Serving},
    tally::Gets,
    two_stage_store::{Tuning, TwoStageStore, table_in},
    volatile::Volatile,
};
use crate::{
    binned,
    client::Reader,
    error::{Error, Result},
    fabric::{Fabric, Image, MappedFabric, Place},
    layout::{Geometry, control},
    message::{GetCounts, HEADER_WORDS, Hint},
    primitive::AtomicU64,
    region::{CAPACITY_BYTES_MAX, HostRegion, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN},
};

/// The most that a directory and the header can grow to: with the smallest leaves, descriptors of a
/// few hundred million keys.
const CONTROL_BYTES_MAX: u64 = 1 << 30;

/// The most that records of [`Preset::XStore`] can grow to: their places are 32-bit numbers of
/// lines of 64 bytes, and half of what these reach keeps every sum of two of them in range.
const RECORD_BYTES_MAX: u64 = 1 << 37;

/// How a keyspace is shared.
///
/// ```
/// let options = rhumb_remote::ShareOptions::default().capacity_bytes(64 << 20).entry_bytes(116);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ShareOptions {
    capacity_bytes: u64,
    entry_bytes: Option<usize>,
    preset: Preset,
    keys_per_model: u32,
    inline_bytes: Option<usize>,
    has_checksums: bool,
}

/// How a shared keyspace is made: the default, or as a published system does it, to be measured
/// against. `docs/papers.md` says what is of which paper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Preset {
    /// Runs of leaves that a line finds exactly: clients keep nothing.
    #[default]
    Rhumb,
    /// XStore (OSDI 2020): clients keep two-stage models and tables of unsorted leaves.
    XStore,
    /// FineStore, its distributed half: clients keep lines over trained arrays, search these
    /// themselves, and leave to the host what lies in the level bins between their records.
    FineStore,
}

impl Preset {
    /// All presets.
    pub const ALL: [Self; 3] = [Self::Rhumb, Self::XStore, Self::FineStore];

    /// Its name in settings: `rhumb`, `xstore` or `finestore`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rhumb => "rhumb",
            Self::XStore => "xstore",
            Self::FineStore => "finestore",
        }
    }
}

impl FromStr for Preset {
    type Err = Error;

    /// The preset of a name.
    ///
    /// ```
    /// assert_eq!("xstore".parse::<rhumb_remote::Preset>()?, rhumb_remote::Preset::XStore);
    /// # Ok::<(), rhumb_remote::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for any other name.
    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|preset| preset.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::InvalidArgument(format!("{name:?} is no preset: there are {names}").into())
        })
    }
}

/// The mean size of entries where nothing is known of them: a short key and a short record.
const ENTRY_BYTES: usize = 100;

/// Keys a model on average at which models are expanded, as in the paper on `XStore`.
const KEYS_PER_MODEL: u32 = 200;

/// What of an entry is its key, where only the sum is known: a short one.
const KEY_BYTES: usize = 16;

impl Default for ShareOptions {
    /// A budget of 64 GiB, and entries of 100 bytes.
    fn default() -> Self {
        Self {
            capacity_bytes: 64 << 30,
            entry_bytes: None,
            preset: Preset::Rhumb,
            keys_per_model: KEYS_PER_MODEL,
            inline_bytes: None,
            has_checksums: false,
        }
    }
}

impl ShareOptions {
    /// The most memory that the leaves may take, in bytes: rounded up to 2 MiB, at most 1 TiB.
    /// Memory is taken as it is needed. A write beyond it is refused.
    ///
    /// With [`Preset::XStore`] the records that leaves refer to, of long values and of keys that
    /// are not of eight bytes, may take as much again: 1 GiB at least, and at most 128 GiB.
    #[must_use]
    pub fn capacity_bytes(mut self, bytes: u64) -> Self {
        self.capacity_bytes = bytes;
        self
    }

    /// The mean size of a key and its value, in bytes: decides how large leaves are. Entries of any
    /// other size are held too.
    #[must_use]
    pub fn entry_bytes(mut self, bytes: usize) -> Self {
        self.entry_bytes = Some(bytes);
        self
    }

    /// How the keyspace is made.
    #[must_use]
    pub fn preset(mut self, preset: Preset) -> Self {
        self.preset = preset;
        self
    }

    /// Keys of a model on average at which a keyspace of [`Preset::XStore`] gets twice as many
    /// models: 200, unless this is called; 0 is 1. With fewer keys a model, a get reads fewer
    /// leaves, and clients keep more.
    #[must_use]
    pub fn keys_per_model(mut self, keys: u32) -> Self {
        self.keys_per_model = keys.max(1);
        self
    }

    /// The longest value that lies in a leaf of a keyspace of [`Preset::XStore`], in bytes: at most
    /// 1,024, rounded up to a multiple of 8. A longer one is elsewhere, which costs a get another
    /// read; all leaves have room for sixteen of this length. Unless this is called, it is the mean
    /// length of values, and at most 128.
    #[must_use]
    pub fn inline_bytes(mut self, bytes: usize) -> Self {
        self.inline_bytes = Some(bytes);
        self
    }

    /// Has all that clients read carry checksums, so that they may read it by RDMA, whose reads
    /// have no order (`Address::Rdma`). Each write hashes what it changes: with [`Preset::Rhumb`]
    /// the head of its leaf, with [`Preset::XStore`] that and the slots of sixteen values, with
    /// [`Preset::FineStore`] a block of 1 KiB. A record takes 8 bytes more; in an array of
    /// [`Preset::FineStore`], blocks have 41 records in place of 42.
    #[must_use]
    pub fn checksums(mut self, has_checksums: bool) -> Self {
        self.has_checksums = has_checksums;
        self
    }

    /// The mean size of values, as far as that is known, and what is said of models.
    pub(super) fn tuning(&self) -> Tuning {
        Tuning {
            value_bytes: self.entry_bytes.unwrap_or(ENTRY_BYTES).saturating_sub(KEY_BYTES),
            inline_bytes: self.inline_bytes,
            keys_per_model: self.keys_per_model,
            has_checksums: self.has_checksums,
        }
    }

    /// What arrays are told.
    fn arrays(&self) -> binned::Options {
        binned::Options { has_checksums: self.has_checksums, ..binned::Options::default() }
    }

    /// As [`ShareOptions::entry_bytes`], if that was not called.
    #[must_use]
    pub fn or_entry_bytes(mut self, bytes: usize) -> Self {
        self.entry_bytes.get_or_insert(bytes);
        self
    }
}

/// What a shared keyspace holds, and the memory that it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShareStats {
    /// Number of entries.
    pub entries: u64,
    /// Number of leaves.
    pub leaves: u64,
    /// Number of runs of leaves, each of which one line describes.
    pub runs: u64,
    /// Sequence number of the last write that can be read.
    pub applied: u64,
    /// Bytes of one leaf; of a trained array ([`Preset::FineStore`]) and what belongs to it, the
    /// mean.
    pub leaf_bytes: u64,
    /// Bytes of memory that clients map, of leaves and directory.
    pub mapped_bytes: u64,
    /// Of these, bytes in large pages.
    pub huge_bytes: u64,
    /// True if clients may read the region; otherwise they ask the host for everything.
    pub is_live: bool,
    /// Bytes of what was replaced and waits until the clients that may read it know of that.
    pub waiting_bytes: u64,
    /// Number of times that the region had to be built anew, or could not be built.
    pub resets: u64,
    /// How gets of clients went, as they reported it: seconds ago, and never what a client did
    /// since its last report if it died.
    pub gets: GetCounts,
    /// What models have cost that clients keep, of [`Preset::XStore`] and [`Preset::FineStore`].
    pub models: ModelStats,
}

/// What a host did for the models that clients of a keyspace keep, of [`Preset::XStore`]. Of
/// [`Preset::FineStore`], whose models are the lines of arrays, it has the first four numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelStats {
    /// Models that are to be trained, or are trained now.
    pub waiting: u64,
    /// Models that were trained, those of complete trainings included.
    pub trained: u64,
    /// Time that copying leaves and training on them took, in nanoseconds, of all threads together.
    /// What a thread waits for a writer is not counted.
    pub training_ns: u64,
    /// Keys that models were trained on.
    pub trained_keys: u64,
    /// Sum of the places by which predictions of these keys were wrong. A leaf has 16 places.
    pub trained_errors: u64,
    /// Leaves that were split.
    pub splits: u64,
    /// Complete trainings with twice the models, and those with half of them.
    pub expansions: u64,
    /// See [`ModelStats::expansions`].
    pub shrinks: u64,
    /// Gets that clients' models could not do.
    pub lookups: u64,
    /// Writes whose client said in which leaf the key belongs, and was right.
    pub hints_right: u64,
    /// Writes whose client said a wrong leaf.
    pub hints_wrong: u64,
}

/// A keyspace of a host.
pub(super) struct Share {
    region: Region,
    /// The sizes of leaves, in a region of runs.
    geometry: Option<Geometry>,
    source: Source,
    serving: Serving,
    gets: Gets,
    /// What devices reach, if what they read proves itself.
    #[cfg(all(feature = "rdma", target_os = "linux"))]
    reached: Option<super::reached::Reached>,
}

/// The two parts of a region.
#[derive(Clone)]
pub(super) struct Region {
    pub(super) control: Arc<HostRegion>,
    pub(super) leaves: Arc<HostRegion>,
}

/// Where what is shared comes from.
enum Source {
    /// The region is the store.
    Volatile(Arc<Volatile>),
    /// The region is a copy of a keyspace of a store.
    Published(Publisher, Arc<dyn Authority>),
    /// The region is the store, in the two-stage assembly.
    TwoStage(Arc<TwoStageStore>),
    /// The region is the store, in the assembly of trained arrays.
    Binned(Arc<BinnedStore>),
}

impl Region {
    fn new(options: ShareOptions) -> Result<Self> {
        let capacity =
            options.capacity_bytes.clamp(1, CAPACITY_BYTES_MAX).next_multiple_of(SEGMENT_BYTES_MIN);
        let records = match options.preset {
            Preset::XStore => capacity.min(RECORD_BYTES_MAX),
            Preset::Rhumb | Preset::FineStore => 0,
        };
        let control = Arc::new(HostRegion::new(records.max(CONTROL_BYTES_MAX))?);
        let leaves = Arc::new(HostRegion::new(capacity)?);
        Ok(Self { control, leaves })
    }

    fn table(&self, options: ShareOptions) -> Result<Table<Arc<HostRegion>>> {
        let geometry = Geometry::for_entries_of(options.entry_bytes.unwrap_or(ENTRY_BYTES))
            .with_checksums(options.has_checksums);
        let (leaves, control) = (Arc::clone(&self.leaves), Arc::clone(&self.control));
        let mut table = Table::build(geometry, leaves, control, [])?;
        table.set_cared_for();
        Ok(table)
    }

    /// An empty copy of a keyspace of a store.
    fn replica(&self, options: ShareOptions) -> Result<AnyReplica> {
        Ok(match options.preset {
            Preset::Rhumb => AnyReplica::Runs(Box::new(self.table(options)?)),
            Preset::XStore => AnyReplica::TwoStage(Box::new(table_in(self, options.tuning())?)),
            Preset::FineStore => AnyReplica::Binned(Box::new(Arrays::new(self, options.arrays())?)),
        })
    }

    /// The memory of the region, and what all assemblies say alike.
    pub(super) fn stats(&self) -> ShareStats {
        let regions = [self.control.stats(), self.leaves.stats()];
        ShareStats {
            applied: control::applied(self.control.words()),
            mapped_bytes: regions.iter().map(|region| region.bytes).sum(),
            huge_bytes: regions.iter().map(|region| region.huge_bytes).sum(),
            is_live: true,
            ..ShareStats::default()
        }
    }
}

impl Share {
    fn new(
        region: Region,
        options: ShareOptions,
        geometry: Option<Geometry>,
        source: Source,
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
            return Ok(Self::new(region, options, None, Source::TwoStage(Arc::new(store))));
        }
        if options.preset == Preset::FineStore {
            let store = BinnedStore::new(region.clone(), options.arrays(), Arc::clone(bell))?;
            return Ok(Self::new(region, options, None, Source::Binned(Arc::new(store))));
        }
        let table = region.table(options)?;
        let geometry = Some(table.geometry());
        let volatile = Arc::new(Volatile::new(region.clone(), table, Arc::clone(bell)));
        Ok(Self::new(region, options, geometry, Source::Volatile(volatile)))
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
        Ok(Self::new(region, options, geometry, Source::Published(publisher, authority)))
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
            Source::Volatile(volatile) => &**volatile,
            Source::TwoStage(store) => &**store,
            Source::Binned(store) => &**store,
            Source::Published(_, authority) => &**authority,
        }
    }

    /// Returns true if changes of both keyspaces can be made as one.
    pub(super) fn has_authority_of(&self, other: &Self) -> bool {
        match (&self.source, &other.source) {
            (Source::Volatile(one), Source::Volatile(other)) => Arc::ptr_eq(one, other),
            (Source::Published(_, one), Source::Published(_, other)) => Arc::ptr_eq(one, other),
            (Source::TwoStage(one), Source::TwoStage(other)) => Arc::ptr_eq(one, other),
            (Source::Binned(one), Source::Binned(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Where the keyspace's changes are told, if the region is a copy.
    pub(super) fn publisher(&self) -> Option<&Publisher> {
        match &self.source {
            Source::Volatile(_) | Source::TwoStage(_) | Source::Binned(_) => None,
            Source::Published(publisher, _) => Some(publisher),
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
            Source::TwoStage(store) => store.write(change, hint),
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
            Source::Volatile(volatile) => volatile.stats(),
            Source::TwoStage(store) => store.stats(),
            Source::Binned(store) => store.stats(),
            Source::Published(publisher, _) => publisher.stats(),
        };
        ShareStats { gets: self.gets.totals(), ..stats }
    }

    /// What clients report of their gets.
    pub(super) fn gets(&self) -> &Gets {
        &self.gets
    }

    fn preset(&self) -> Preset {
        match &self.source {
            Source::Volatile(_) => Preset::Rhumb,
            Source::TwoStage(_) => Preset::XStore,
            Source::Binned(_) => Preset::FineStore,
            Source::Published(publisher, _) => publisher.preset(),
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
            (Source::Published(publisher, authority), _) => {
                Consultant::new(publisher, &**authority, name).answer(question, joined)
            }
            (Source::TwoStage(store), Question::LookUp(lookup)) => store.consult(lookup),
            (Source::Binned(store), Question::Arrays(request)) => store.consult(request, joined),
            _ => Err(Error::InvalidArgument("a question of another preset".into())),
        }
    }

    /// Reads pieces of the region for a client that cannot map it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if the keyspace's clients keep no models, and name leaves.
    pub(super) fn read_pieces(&self, places: &[Place], image: &mut Image) -> Result<()> {
        if self.geometry.is_some() {
            return Err(Error::InvalidArgument("clients of this keyspace keep no models".into()));
        }
        let (control, leaves) = (self.region.control.words(), self.region.leaves.words());
        let is_copy = matches!(self.source, Source::Published(..));
        if is_copy && control::heartbeat(control) == 0 {
            // It answers for nothing now, and no piece can be read.
            return MappedFabric::new(&[], &[]).read(places, image);
        }
        MappedFabric::new(control, leaves).read(places, image)
    }

    /// What the control part begins with.
    pub(super) fn header(&self) -> [u64; HEADER_WORDS] {
        control::first_words(self.region.control.words())
    }

    /// Ends the sessions that a connection has begun with the keyspace.
    pub(super) fn end_sessions(&self, joined: &[u64]) {
        match &self.source {
            Source::Binned(store) if !joined.is_empty() => store.end(joined),
            Source::Published(publisher, _) if !joined.is_empty() => {
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
        let Source::Binned(store) = &self.source else {
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
            Source::Volatile(volatile) => volatile.care(),
            Source::TwoStage(store) => store.care(),
            Source::Binned(store) => store.care(),
            Source::Published(publisher, _) => publisher.care(),
        }
    }

    /// Trains models, if clients keep some that several threads may train.
    pub(super) fn train(&self) {
        if let Source::TwoStage(store) = &self.source {
            store.care();
        }
    }

    /// Says to readers that the host is there, or by a 0 that it has ended.
    pub(super) fn beat(&self, now_ms: u64) {
        match &self.source {
            Source::Volatile(_) | Source::TwoStage(_) => {
                control::set_heartbeat(self.region.control.words(), now_ms);
            }
            Source::Binned(store) => {
                control::set_heartbeat(self.region.control.words(), now_ms);
                store.beat();
            }
            Source::Published(publisher, _) => publisher.beat(now_ms),
        }
    }
}

impl Space for HostRegion {
    fn words(&self) -> &[AtomicU64] {
        Self::words(self)
    }

    fn grow(&self, bytes: usize) -> Result<()> {
        let mut left = bytes as u64;
        while left > 0 {
            // Twice as much as there is, so that a large region has few segments.
            let double = self.len_bytes().max(1).next_power_of_two();
            let segment = left.next_power_of_two().max(double);
            let segment = segment.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
            let grown = match Self::grow(self, segment) {
                Err(Error::Full { .. }) if segment > SEGMENT_BYTES_MIN => {
                    Self::grow(self, SEGMENT_BYTES_MIN).map(|()| SEGMENT_BYTES_MIN)
                }
                other => other.map(|()| segment),
            };
            left = left.saturating_sub(grown?);
        }
        Ok(())
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

    /// Ten million records of 100 bytes are more than the least that there is.
    #[test]
    fn records_beside_leaves_may_take_what_leaves_may() {
        let region = Region::new(ShareOptions::default().preset(Preset::XStore)).unwrap();
        assert_eq!(region.control.capacity_bytes(), region.leaves.capacity_bytes());
    }
}
