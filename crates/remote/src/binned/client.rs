//! The client's side: it predicts, reads a window, and proves an answer or leaves it to the host.
//!
//! 1. A client reads by itself only while its lease lasts, counted from when it asked for it.
//! 2. An answer is *proven* by the window: the key is a record's, or lies between two records side
//!    by side, or between a record and the end of an array, and nothing is linked to its gap.
//! 3. Whatever is not proven is asked of the host. So descriptors that are old, damaged or made up
//!    cost time, and no answer depends on them.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use super::{
    descriptor::{Descriptor, Lesson, up_to},
    layout::{Link, Record, Sizes, Token, WideExtent, WideKind},
    message::{Address, Operation, Outcome, Reply, Request, Value, Verb},
    window::{Found, RegionLayout, Wide, Window},
};
use crate::{
    error::{Error, Result},
    fabric::{Extent, Fabric, Image},
};

/// Wide records of one code that are fetched to tell them apart: each may be long, and the host
/// compares more of them where they lie.
pub(super) const TIES_MAX: usize = 4;
/// Looks at one window in which a wide record was replaced meanwhile: a third would cost as much as
/// the call that follows.
const LOOKS_MAX: u32 = 2;
/// Replies with descriptors that make one model: 2^32 bytes of them.
const LESSONS_MAX: u32 = 1 << 15;

/// Which side does the work of an operation, for comparison: the paper's figure 21. Without a
/// session the host searches everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The client searches trained arrays, and the host bins.
    #[default]
    Pipeline,
    /// The client searches bins and small arrays too; writes are the host's all the same.
    AllAtClient,
}

/// How much of the model a client keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheBudget {
    /// All of it.
    Full,
    /// As much as fits in this many bytes, learned when it is needed.
    Bytes(usize),
}

/// The way to a host.
pub(crate) trait Caller {
    /// Sends a request and waits for the reply.
    ///
    /// # Errors
    ///
    /// Those of the connection.
    fn call(&mut self, request: &Request) -> Result<Reply>;
}

/// What a get found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Found(Vec<u8>),
    /// The key is there, and its value is this long, longer than the region holds.
    Ask(u32),
    Absent,
}

/// What a client has done. What its reads cost is in its image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientCounts {
    pub(crate) gets: u64,
    /// Parts of ranges.
    pub(crate) ranges: u64,
    /// Gets that the client answered by itself.
    pub(crate) one_sided: u64,
    /// Operations that were sent to the host.
    pub(crate) operations: u64,
    /// Looks that proved nothing: the descriptor was not known or not current, or a piece changed.
    pub(crate) unproven: u64,
    /// Descriptors that were learned, those of the first model among them.
    pub(crate) learned: u64,
    /// Sessions that were begun.
    pub(crate) sessions: u64,
}

/// A descriptor and what it hashes to.
pub(super) struct KnownArray {
    pub(super) array: Descriptor,
    pub(super) tag: u64,
}

/// What a client's look at an array found.
pub(super) enum ArrayLook {
    Proven(Answer),
    /// A key that is, or would be, in the gap after a record.
    Linked(Link, Address),
    Unproven,
}

/// The descriptors that a client keeps.
struct Model {
    arrays: BTreeMap<Arc<[u8]>, Arc<KnownArray>>,
    budget: CacheBudget,
    bytes: usize,
    /// The epoch up to which all changes are known.
    epoch: u64,
}

/// A client of one host.
pub(crate) struct Client<C> {
    pub(super) caller: C,
    mode: Mode,
    model: Model,
    session: Option<u64>,
    /// Until when the session's lease lasts at least.
    until_ms: u64,
    lease_ms: u64,
    sizes: Sizes,
    pub(super) image: Image,
    pub(super) extents: Vec<Extent>,
    pub(super) counts: ClientCounts,
}

impl Model {
    fn find(&self, key: &[u8]) -> Option<Arc<KnownArray>> {
        let (_, known) = self.arrays.range::<[u8], _>(up_to(key)).next_back()?;
        known.array.span.contains(key).then(|| Arc::clone(known))
    }

    /// Knows nothing of an epoch.
    fn clear(&mut self, epoch: u64) {
        (self.epoch, self.bytes) = (epoch, 0);
        self.arrays.clear();
    }

    fn remove(&mut self, low: &[u8]) {
        if let Some(known) = self.arrays.remove(low) {
            self.bytes -= known.array.bytes();
        }
    }

    /// Puts the arrays of a lesson in the place of those that answered for their keys.
    fn learn(&mut self, lesson: Lesson) {
        let Some(span) = lesson.span().filter(|_| lesson.model >= self.epoch) else { return };
        let high = span.high.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let before = self
            .arrays
            .range::<[u8], _>((Bound::Unbounded, Bound::Excluded(&*span.low)))
            .next_back();
        let before = before.filter(|(_, known)| {
            known.array.span.high.as_ref().is_none_or(|high| *high > span.low)
        });
        let within = self.arrays.range::<[u8], _>((Bound::Included(&*span.low), high));
        let old: Vec<Arc<[u8]>> =
            before.into_iter().chain(within).map(|(k, _)| k.clone()).collect();
        old.iter().for_each(|low| self.remove(low));
        for array in lesson.arrays {
            self.bytes += array.bytes();
            let (low, tag) = (array.span.low.clone(), array.tag());
            self.arrays.insert(low, Arc::new(KnownArray { array, tag }));
        }
        while let CacheBudget::Bytes(most) = self.budget
            && self.bytes > most
        {
            // Of what is kept, the next above what was just learned goes: no order of use is kept.
            let next = self.arrays.range::<[u8], _>((high, Bound::Unbounded)).next();
            let next = next.or_else(|| self.arrays.iter().next()).map(|(low, _)| low.clone());
            let Some(low) = next else { break };
            self.remove(&low);
        }
    }
}

impl<C> Client<C> {
    /// A client without a session: it calls until [`Client::renew`].
    pub(crate) fn new(caller: C, mode: Mode, budget: CacheBudget) -> Self {
        let model = Model { arrays: BTreeMap::new(), budget, bytes: 0, epoch: 0 };
        Self {
            caller,
            mode,
            model,
            session: None,
            until_ms: 0,
            lease_ms: 0,
            sizes: Sizes::default(),
            image: Image::default(),
            extents: Vec::new(),
            counts: ClientCounts::default(),
        }
    }

    /// The same client with another way to its host.
    pub(crate) fn with_caller<D>(self, caller: D) -> Client<D> {
        let Self { mode, model, session, until_ms, lease_ms, sizes, .. } = self;
        let Self { image, extents, counts, .. } = self;
        Client { caller, mode, model, session, until_ms, lease_ms, sizes, image, extents, counts }
    }

    /// The same client of a region whose parts are this large.
    pub(crate) fn with_sizes(self, sizes: Sizes) -> Self {
        Self { sizes, ..self }
    }

    /// How a fabric reads the region.
    pub(super) fn way(&self, fabric: &impl Fabric) -> RegionLayout {
        RegionLayout { sizes: self.sizes, is_unordered: fabric.is_unordered() }
    }

    /// Forgets the session and the model: the host may be another one.
    pub(crate) fn forget(&mut self) {
        (self.session, self.until_ms) = (None, 0);
        self.model.clear(0);
    }

    /// Which side does the work.
    pub(crate) fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// Returns true if bins and small arrays are searched without the host. They do not prove
    /// themselves where reads have no order.
    pub(super) fn walks(&self, fabric: &impl Fabric) -> bool {
        self.mode == Mode::AllAtClient && !fabric.is_unordered()
    }

    /// Returns true if the session is to be renewed: it has none, or half of the lease is over.
    pub(crate) fn wants_renewal(&self, now_ms: u64) -> bool {
        self.session.is_none() || now_ms.saturating_add(self.lease_ms / 2) >= self.until_ms
    }

    /// What was done so far.
    pub(crate) fn counts(&self) -> ClientCounts {
        self.counts
    }

    /// What reads have cost so far.
    pub(crate) fn reads(&self) -> crate::fabric::ReadCounts {
        self.image.counts
    }

    /// Bytes of the descriptors that are kept.
    pub(crate) fn cache_bytes(&self) -> usize {
        self.model.bytes
    }
}

impl<C: Caller> Client<C> {
    /// Renews the session and learns what has changed, or begins a session. To be called several
    /// times in each lease.
    ///
    /// # Errors
    ///
    /// Those of the connection; [`Error::Invalid`] for a reply that is none.
    pub(crate) fn renew(&mut self, now_ms: u64) -> Result<()> {
        let Some(session) = self.session else { return self.join(now_ms) };
        match self.caller.call(&Request::Renew { session, model: self.model.epoch })? {
            Reply::Unknown => self.join(now_ms),
            renewed => self.follow(now_ms, renewed),
        }
    }

    /// Learns what a renewal says of the model.
    fn follow(&mut self, now_ms: u64, renewed: Reply) -> Result<()> {
        match renewed {
            Reply::Renewed { model, lessons } if model >= self.model.epoch => {
                if lessons.is_empty() && model > self.model.epoch {
                    self.learn_all(model)?;
                }
                lessons.into_iter().for_each(|lesson| self.learn(lesson));
                self.model.epoch = model;
                self.until_ms = now_ms.saturating_add(self.lease_ms);
                Ok(())
            }
            _ => Err(Error::invalid("a renewal that is answered by something else")),
        }
    }

    /// Ends the session.
    ///
    /// # Errors
    ///
    /// Those of the connection.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn leave(&mut self) -> Result<()> {
        self.until_ms = 0;
        let Some(session) = self.session.take() else { return Ok(()) };
        self.caller.call(&Request::Leave { session }).map(drop)
    }

    fn join(&mut self, now_ms: u64) -> Result<()> {
        (self.session, self.until_ms) = (None, 0);
        match self.caller.call(&Request::Join)? {
            Reply::Joined { session, lease_ms, model } => {
                self.counts.sessions += 1;
                (self.session, self.lease_ms) = (Some(session), lease_ms);
                if !self.model.arrays.is_empty() {
                    // What was learned in an earlier session is right where nothing has changed.
                    let renewal = Request::Renew { session, model: self.model.epoch };
                    let renewed = self.caller.call(&renewal)?;
                    return self.follow(now_ms, renewed);
                }
                self.learn_all(model)?;
                self.until_ms = now_ms.saturating_add(lease_ms);
                Ok(())
            }
            _ => Err(Error::invalid("a session that is answered by something else")),
        }
    }

    /// Learns the model anew, as it is at an epoch or later.
    fn learn_all(&mut self, epoch: u64) -> Result<()> {
        self.model.clear(epoch);
        let mut from: Arc<[u8]> = Arc::from([]);
        for _ in 0..LESSONS_MAX {
            if self.model.budget != CacheBudget::Full {
                return Ok(());
            }
            let request = Request::Learn { from: from.to_vec() };
            let Reply::Learned(lesson) = self.caller.call(&request)? else { break };
            let Some(span) = lesson.span() else { break };
            self.learn(lesson);
            match span.high {
                None => return Ok(()),
                Some(high) if high > from => from = high,
                Some(_) => break,
            }
        }
        Err(Error::invalid("a model that is not all of one"))
    }

    fn learn(&mut self, lesson: Lesson) {
        self.counts.learned += lesson.arrays.len() as u64;
        self.model.learn(lesson);
    }

    /// What is known of the array of a key, if it may be read.
    pub(super) fn known(&self, now_ms: u64, key: &[u8]) -> Option<Arc<KnownArray>> {
        if now_ms >= self.until_ms { None } else { self.model.find(key) }
    }

    /// The address to send where nothing is known.
    pub(super) fn no_address(&self, now_ms: u64) -> Address {
        let array = if now_ms < self.until_ms { 0 } else { Address::UNTAUGHT };
        Address { array, ..Address::default() }
    }

    /// Sends an operation, and learns what the reply brings.
    ///
    /// # Errors
    ///
    /// Those of the connection; [`Error::Invalid`] for a reply that is none.
    pub(super) fn operate(&mut self, operation: Operation) -> Result<Outcome> {
        self.counts.operations += 1;
        match self.caller.call(&Request::Operate(operation))? {
            Reply::Done { outcome, lesson } => {
                if let Some(lesson) = lesson {
                    self.learn(lesson);
                }
                Ok(outcome)
            }
            _ => Err(Error::invalid("an operation that is answered by something else")),
        }
    }

    /// Gets the value of a key.
    ///
    /// # Errors
    ///
    /// Those of the fabric and the connection.
    pub(crate) fn get(&mut self, fabric: &impl Fabric, now_ms: u64, key: &[u8]) -> Result<Answer> {
        self.counts.gets += 1;
        let mut address = self.no_address(now_ms);
        if let Some(known) = self.known(now_ms, key) {
            let proven = match self.look(fabric, &known, key)? {
                ArrayLook::Proven(answer) => Some(answer),
                ArrayLook::Linked(link, at) => {
                    address = at;
                    if self.walks(fabric) { self.walk(fabric, link, key)? } else { None }
                }
                ArrayLook::Unproven => None,
            };
            if let Some(answer) = proven {
                self.counts.one_sided += 1;
                return Ok(answer);
            }
        }
        match self.operate(Operation::new(Verb::Search, address, key, &[]))? {
            Outcome::Found(Value::Here(value)) => Ok(Answer::Found(value)),
            Outcome::Found(Value::Ask(len)) => Ok(Answer::Ask(len)),
            Outcome::Absent => Ok(Answer::Absent),
            _ => Err(Error::invalid("a search that is answered by something else")),
        }
    }

    /// Writes a key; returns true if it was there before.
    ///
    /// # Errors
    ///
    /// Those of the fabric and the connection, and what the host refuses.
    pub(crate) fn write(
        &mut self,
        fabric: &impl Fabric,
        now_ms: u64,
        verb: Verb,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool> {
        let address = match self.known(now_ms, key) {
            Some(_) if fabric.is_far() => {
                Address { array: Address::UNTAUGHT, ..Address::default() }
            }
            Some(known) => self.hint(fabric, &known, key)?.unwrap_or_default(),
            None => self.no_address(now_ms),
        };
        match self.operate(Operation::new(verb, address, key, value))? {
            Outcome::Written { was_there } => Ok(was_there),
            _ => Err(Error::invalid("a write that is answered by something else")),
        }
    }

    /// Reads the window of a key.
    pub(super) fn window(
        &mut self,
        fabric: &impl Fabric,
        known: &KnownArray,
        range: (usize, usize),
    ) -> Result<Option<Window>> {
        let way = self.way(fabric);
        self.extents.clear();
        Window::extents(&known.array, range, way, &mut self.extents);
        fabric.read(&self.extents, &mut self.image)?;
        Ok(Window::of_array(known, range, way, (&self.image, 0)))
    }

    /// Looks for a key in the window that its array's line predicts.
    fn look(&mut self, fabric: &impl Fabric, known: &KnownArray, key: &[u8]) -> Result<ArrayLook> {
        for _ in 0..LOOKS_MAX {
            let range = known.array.window(key);
            let Some(window) = self.window(fabric, known, range)? else { break };
            let found = if key.starts_with(&known.array.prefix) {
                self.seek(fabric, &window, key)?
            } else {
                window.beside(&known.array.prefix, key).map(|found| (found, None))
            };
            let Some((found, wide)) = found else { continue };
            let (Found::Record(at) | Found::Gap(at)) = found;
            let record = window.records[at];
            let address = address_of(known, &window, at);
            let answer = match (found, record.link()) {
                (Found::Record(_), _) => answer_of(&record, wide),
                (Found::Gap(_), Link::Empty) => Some(Answer::Absent),
                (Found::Gap(_), link) => return Ok(ArrayLook::Linked(link, address)),
            };
            if let Some(answer) = answer {
                return Ok(ArrayLook::Proven(answer));
            }
        }
        self.counts.unproven += 1;
        Ok(ArrayLook::Unproven)
    }

    /// Finds a key among records, and reads the wide ones of which the code is the key's; `None` if
    /// that proves nothing.
    pub(super) fn seek(
        &mut self,
        fabric: &impl Fabric,
        window: &Window,
        key: &[u8],
    ) -> Result<Option<(Found, Option<Wide>)>> {
        let sought = window.seek(key);
        let wide = match self.fetch(fabric, &window.records[sought.ties.clone()], TIES_MAX)? {
            Some(wide) => wide,
            None => return Ok(None),
        };
        let Some(found) = window.resolve(key, &sought, &wide) else { return Ok(None) };
        Ok(Some((found, wide.into_iter().find(|wide| wide.key == key))))
    }

    /// Reads those of some records that are wide, all at once; `None` if one has gone, or if they
    /// are more than `most`.
    pub(super) fn fetch(
        &mut self,
        fabric: &impl Fabric,
        records: &[Record],
        most: usize,
    ) -> Result<Option<Vec<Wide>>> {
        let extents: Vec<_> = records.iter().filter_map(Record::wide_extent).collect();
        if extents.is_empty() {
            return Ok(Some(Vec::new()));
        }
        if extents.len() > most {
            return Ok(None);
        }
        self.extents.clear();
        let way = self.way(fabric);
        self.extents.extend(extents.iter().map(|extent| Wide::extent(*extent, way)));
        fabric.read(&self.extents, &mut self.image)?;
        let piece = |(index, extent): (usize, &WideExtent)| {
            Wide::of_piece(*extent, way, self.image.piece(index))
        };
        Ok(extents.iter().enumerate().map(piece).collect())
    }

    /// Where a key is likely to belong: the address of a write, which the host checks. Wide records
    /// are not read for it.
    fn hint(
        &mut self,
        fabric: &impl Fabric,
        known: &KnownArray,
        key: &[u8],
    ) -> Result<Option<Address>> {
        let Some(window) = self.window(fabric, known, known.array.window(key))? else {
            self.counts.unproven += 1;
            return Ok(None);
        };
        let found = if key.starts_with(&known.array.prefix) {
            let sought = window.seek(key);
            let ties = &window.records[sought.ties.clone()];
            if ties.iter().any(|record| record.wide_extent().is_some()) {
                Some(Found::Record(sought.ties.start))
            } else {
                window.resolve(key, &sought, &[])
            }
        } else {
            window.beside(&known.array.prefix, key)
        };
        Ok(found.map(|found| {
            let (Found::Record(at) | Found::Gap(at)) = found;
            address_of(known, &window, at)
        }))
    }
}

/// The address of a record of a window.
fn address_of(known: &KnownArray, window: &Window, at: usize) -> Address {
    let (bin, incarnation) = match window.records[at].link() {
        Link::Bin(slot) | Link::Small(slot) => (slot.line, slot.incarnation),
        Link::Empty => (0, 0),
    };
    let record = (window.first + at) as u32;
    Address { array: known.array.epoch, record, bin, incarnation }
}

/// What a record says of its key; `None` if its value has gone meanwhile.
pub(super) fn answer_of(record: &Record, wide: Option<Wide>) -> Option<Answer> {
    match (record.token(), record.wide_extent(), wide) {
        (Token::Removed, _, _) => Some(Answer::Absent),
        (Token::Live, None, _) => {
            let (bytes, len) = record.value_bytes();
            Some(Answer::Found(bytes[..len].to_vec()))
        }
        (Token::Live, Some(_), Some(wide)) => match wide.kind {
            WideKind::Here => Some(Answer::Found(wide.value)),
            WideKind::Ask => Some(Answer::Ask(wide.value_len as u32)),
            WideKind::Gone => None,
        },
        _ => None,
    }
}
