//! The client's side: gets by what it keeps of the models, and reads of what it does not keep.
//!
//! A model or table may be stale, torn or made up: then a get takes longer, or is a call. What is
//! answered is proven by leaves: a key that is found in a leaf is in no other, and one that a leaf
//! between whose fences it is does not hold is nowhere.

use super::{
    cache::{Cache, CacheBudget},
    layout::{
        HEADER_GUARD, HEADER_WORDS, NO_LEAF, SUB_MODEL_WORDS, Sizes, TOP, TOP_WORDS, head, line_at,
        read_header,
    },
    leaf::Head,
    message::{Fresh, Lookup},
    model::{Leaves, Top},
    proof::{is_head_whole, whole_slot},
    table::{Descriptor, TableEntry},
};
use crate::{
    error::{Error, Result},
    fabric::{Extent, Fabric, Image, ReadCounts},
    layout::format::control::LOADS,
    leaf::Side,
    message::{Hint, Part},
};

/// Times that a get begins anew because something changed meanwhile.
const TRIES_MAX: u32 = 4;
/// Links that are followed from the leaves that were predicted.
const HOPS_MAX: u32 = 4;
/// Leaves that one get reads, at most: where more are predicted, a call is cheaper. The published
/// program has ten.
const WINDOW_MAX: u32 = 10;
/// Entries of a table that is read as a whole and kept: 512 KiB. Of a larger one, each get reads
/// what it needs.
const TABLE_MAX: u32 = 1 << 16;
/// Sub-models that one read brings when a cache is filled: 2 KiB.
const FILL_MODELS: u32 = 64;

/// What a get found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The key is there, and its value was copied.
    Found,
    /// The key is not there.
    Absent,
    /// The key is there, and the host has its value.
    Ask,
    /// The host knows: its answer to [`Client::lookup`] may be learned.
    Call,
}

/// What a client did, beside [`Client::reads`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientCounts {
    pub(crate) gets: u64,
    pub(crate) scans: u64,
    /// Gets and scans that ended in a call.
    pub(crate) fallbacks: u64,
    /// Gets whose value the host has.
    pub(crate) asks: u64,
    /// Gets that were answered by a leaf of another incarnation, or by its sibling.
    pub(crate) speculative: u64,
    /// Leaves of another incarnation than expected.
    pub(crate) stale: u64,
    /// Gets of which too many leaves were predicted.
    pub(crate) wide: u64,
    /// Gets whose leaf was not among those predicted, though all had the expected incarnation.
    pub(crate) missed: u64,
    /// Siblings that were read.
    pub(crate) hops: u64,
    /// Leaves whose heads were read.
    pub(crate) leaves: u64,
    /// Times that a get or scan began anew.
    pub(crate) retries: u64,
    /// Sub-models and tables that were read.
    pub(crate) models_read: u64,
    pub(crate) tables_read: u64,
    /// Hints that were given.
    pub(crate) hints: u64,
}

/// How a client reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientOptions {
    pub(crate) budget: CacheBudget,
    /// Search a leaf of another incarnation and its siblings, before the host is asked.
    pub(crate) speculates: bool,
}

/// One reader of a region. Not shared: each thread has its own.
pub(crate) struct Client {
    pub(super) sizes: Sizes,
    options: ClientOptions,
    /// `None` until it was read or learned.
    top: Option<Top>,
    pub(super) cache: Cache,
    pub(super) image: Image,
    pub(super) counts: ClientCounts,
    /// The last call was for want of a good model.
    wants_model: bool,
    /// How often the table was loaded, as of the beginning of the last scan.
    pub(super) loads: Option<u64>,
    /// The load of which leaves prove to be, where they are read without order.
    pub(super) load: Option<u64>,
    /// Set by a head that did not: it was being changed, or there is another load by now.
    load_is_unsure: bool,
}

/// Where a key should be.
pub(super) struct Route {
    pub(super) index: u32,
    pub(super) descriptor: Descriptor,
    pub(super) leaves: Leaves,
    /// Entries of these leaves.
    pub(super) entries: Vec<TableEntry>,
}

/// What leaves say of a key.
pub(super) enum LeafLook {
    /// The leaf at this index in the list answers.
    Is(Outcome, usize),
    /// It is to the right of the leaf at this index in the list.
    Right(usize),
    /// It is in none of them, nor to their right.
    Lost,
    /// Something changed meanwhile.
    Again,
}

/// A step of a get.
enum GetStep {
    Is(Outcome),
    Again,
}

impl Client {
    /// A client of the region that `fabric` reads.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`](crate::Error::Invalid) for a region of another kind; those of the fabric.
    pub(crate) fn open(fabric: &impl Fabric, options: ClientOptions) -> Result<Self> {
        let mut image = Image::default();
        let header = Extent {
            part: Part::Control,
            at: 0,
            len: HEADER_WORDS as u32 * 8,
            guard: HEADER_GUARD as u64 * 8,
        };
        fabric.read(&[header], &mut image)?;
        let words = image.piece(0).map_or(&[][..], |(words, _)| words);
        let sizes = read_header(words)?;
        if fabric.is_unordered() && !sizes.has_checksums() {
            return Err(Error::invalid("a region without checksums, which is read without order"));
        }
        let mut client = Self {
            sizes,
            options,
            top: None,
            cache: Cache::new(options.budget),
            image,
            counts: ClientCounts::default(),
            wants_model: false,
            loads: None,
            load: None,
            load_is_unsure: false,
        };
        client.read_top(fabric)?;
        Ok(client)
    }

    fn read_top(&mut self, fabric: &impl Fabric) -> Result<()> {
        let at = TOP as u64 * 8;
        let extent = Extent { part: Part::Control, at, len: TOP_WORDS as u32 * 8, guard: at };
        fabric.read(&[extent], &mut self.image)?;
        self.top = self.image.piece(0).and_then(|(words, _)| Top::from_words(words.get(1..)?));
        Ok(())
    }

    /// Reads all sub-models, and their tables, that the budget has room for.
    ///
    /// # Errors
    ///
    /// Those of the fabric.
    pub(crate) fn fill(&mut self, fabric: &impl Fabric) -> Result<()> {
        let Some(models) = self.top.as_ref().map(|top| top.models) else { return Ok(()) };
        if !self.cache.keeps_models() {
            return Ok(());
        }
        for first in (0..models).step_by(FILL_MODELS as usize) {
            let end = models.min(first.saturating_add(FILL_MODELS));
            let extents: Vec<Extent> =
                (first..end).filter_map(|index| self.descriptor_extent(index)).collect();
            self.read(fabric, &extents)?;
            let found: Vec<Option<Descriptor>> =
                (0..extents.len()).map(|piece| self.descriptor_in(piece)).collect();
            // What cannot be read is not there: the number of sub-models is made up.
            let Some(found) = found.into_iter().collect::<Option<Vec<_>>>() else { break };
            self.counts.models_read += found.len() as u64;
            for (index, descriptor) in (first..).zip(&found) {
                self.cache.insert(index, *descriptor, None);
            }
            if self.cache.keeps_tables() {
                self.fill_tables(fabric, first, &found)?;
            }
        }
        Ok(())
    }

    fn fill_tables(
        &mut self,
        fabric: &impl Fabric,
        first: u32,
        found: &[Descriptor],
    ) -> Result<()> {
        let whole = (first..).zip(found).filter(|(_, found)| found.model.leaves <= TABLE_MAX);
        let whole: Vec<(u32, Descriptor)> = whole.map(|(index, found)| (index, *found)).collect();
        let extents: Vec<Extent> = whole
            .iter()
            .filter_map(|(index, found)| self.table_extent(*index, found, 0, found.model.leaves))
            .collect();
        self.read(fabric, &extents)?;
        for (piece, (index, descriptor)) in whole.into_iter().enumerate() {
            if let Some((words, guard)) = self.image.piece(piece)
                && guard as u32 == descriptor.version
            {
                self.counts.tables_read += 1;
                let table = words.to_vec();
                self.cache.insert(index, descriptor, Some(table));
            }
        }
        Ok(())
    }

    /// Number of sub-models, as the region says; 0 if it could not be read.
    pub(super) fn sub_models(&self) -> u32 {
        self.top.as_ref().map_or(0, |top| top.models)
    }

    /// Speculates from here on, or not any more.
    pub(crate) fn speculate(&mut self, speculates: bool) {
        self.options.speculates = speculates;
    }

    /// What the client did.
    pub(crate) fn counts(&self) -> ClientCounts {
        self.counts
    }

    /// What its reads cost.
    pub(crate) fn reads(&self) -> ReadCounts {
        self.image.counts
    }

    /// Bytes of the sub-models and tables that it keeps.
    pub(crate) fn cache_bytes(&self) -> usize {
        self.cache.bytes()
    }

    /// The question for the host after [`Outcome::Call`].
    pub(crate) fn lookup<'k>(&self, key: &'k [u8]) -> Lookup<'k> {
        let epoch = self.top.as_ref().map_or(0, |top| top.epoch);
        Lookup { epoch, wants_model: self.wants_model && self.cache.keeps_models(), key }
    }

    /// Keeps what the host's answer brought. Sub-models of another top model are dropped.
    pub(crate) fn learn(&mut self, fresh: Fresh) {
        if self.top.as_ref().is_none_or(|top| top.epoch != fresh.epoch) {
            let Some(top) = fresh.top else { return };
            self.top = Some(top);
            self.cache.clear();
        }
        let is_whole =
            fresh.first == 0 && fresh.entries.len() == fresh.descriptor.model.leaves as usize;
        self.cache.insert(fresh.index, fresh.descriptor, is_whole.then_some(fresh.entries));
    }

    /// Where a key is likely to be, for a write: known without a read, or not at all.
    pub(crate) fn hint(&mut self, key: &[u8]) -> Option<Hint> {
        let top = self.top.as_ref()?;
        let spot = top.spot(top.code(key));
        let likely = self.cache.descriptor(spot.index)?.model.window(spot.fraction)?.likely;
        let entry = TableEntry::from_word(*self.cache.table(spot.index)?.get(likely as usize)?);
        self.counts.hints += u64::from(entry.is_valid);
        let hint = Hint { slot: entry.number, incarnation: entry.incarnation };
        entry.is_valid.then_some(hint)
    }

    /// Appends the value of a key to `out`.
    ///
    /// # Errors
    ///
    /// Those of the fabric.
    pub(crate) fn get(
        &mut self,
        fabric: &impl Fabric,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Outcome> {
        self.counts.gets += 1;
        let begin = out.len();
        let mut found = Outcome::Call;
        for _ in 0..TRIES_MAX {
            self.wants_model = true;
            match self.try_get(fabric, key, out)? {
                GetStep::Is(outcome) => {
                    found = outcome;
                    break;
                }
                GetStep::Again => {
                    out.truncate(begin);
                    self.counts.retries += 1;
                    // A model does not help where leaves are being changed.
                    self.wants_model = false;
                }
            }
        }
        self.counts.fallbacks += u64::from(found == Outcome::Call);
        self.counts.asks += u64::from(found == Outcome::Ask);
        if found != Outcome::Found {
            out.truncate(begin);
        }
        Ok(found)
    }

    fn try_get(&mut self, fabric: &impl Fabric, key: &[u8], out: &mut Vec<u8>) -> Result<GetStep> {
        let Some(route) = self.route(fabric, key)? else { return Ok(GetStep::Is(Outcome::Call)) };
        let numbers: Vec<u32> = route.entries.iter().map(|entry| entry.number).collect();
        let found = self.heads(fabric, &numbers)?;
        let (mut heads, mut stale, mut is_whole) = (Vec::new(), Vec::new(), true);
        for ((leaf, entry), found) in (route.leaves.first..).zip(&route.entries).zip(found) {
            let Some(found) = found else {
                is_whole = false;
                continue;
            };
            let is_stale = found.incarnation != entry.incarnation;
            if is_stale {
                self.counts.stale += 1;
                self.cache.invalidate(route.index, leaf);
                // What precedes it in the order of keys may still hold the key.
                if !self.options.speculates {
                    return self.end_at_stale(fabric, &heads, key, out);
                }
            }
            heads.push(found);
            stale.push(is_stale);
        }
        match self.look(fabric, &heads, key, out)? {
            LeafLook::Is(outcome, at) => {
                self.counts.speculative += u64::from(stale[at]);
                Ok(GetStep::Is(outcome))
            }
            LeafLook::Again => Ok(GetStep::Again),
            _ if !is_whole => Ok(GetStep::Again),
            LeafLook::Lost => {
                self.counts.missed += u64::from(!stale.contains(&true));
                Ok(GetStep::Is(Outcome::Call))
            }
            LeafLook::Right(at) => {
                self.counts.missed += u64::from(!stale[at]);
                if !self.options.speculates {
                    return Ok(GetStep::Is(Outcome::Call));
                }
                self.hop(fabric, heads[at].next, key, out)
            }
        }
    }

    /// Ends a get that does not speculate at a stale leaf: only if a key was found before it, it
    /// is answered.
    fn end_at_stale(
        &mut self,
        fabric: &impl Fabric,
        heads: &[Head],
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<GetStep> {
        Ok(match self.look(fabric, heads, key, out)? {
            LeafLook::Is(outcome @ (Outcome::Found | Outcome::Ask), _) => GetStep::Is(outcome),
            _ => GetStep::Is(Outcome::Call),
        })
    }

    /// Looks for a key in leaf `next` and those to its right.
    fn hop(
        &mut self,
        fabric: &impl Fabric,
        mut next: u32,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<GetStep> {
        for _ in 0..HOPS_MAX {
            if next == NO_LEAF {
                break;
            }
            self.counts.hops += 1;
            let Some(leaf) = self.heads(fabric, &[next])?.pop().flatten() else {
                return Ok(GetStep::Again);
            };
            let sibling = leaf.next;
            match self.look(fabric, &[leaf], key, out)? {
                LeafLook::Is(outcome, _) => {
                    self.counts.speculative += 1;
                    return Ok(GetStep::Is(outcome));
                }
                LeafLook::Right(_) => next = sibling,
                LeafLook::Lost => break,
                LeafLook::Again => return Ok(GetStep::Again),
            }
        }
        Ok(GetStep::Is(Outcome::Call))
    }

    /// Where a key should be; `None` if the models do not say, or too vaguely.
    pub(super) fn route(&mut self, fabric: &impl Fabric, key: &[u8]) -> Result<Option<Route>> {
        for _ in 0..2 {
            let Some(top) = &self.top else { return Ok(None) };
            let spot = top.spot(top.code(key));
            let Some(descriptor) = self.descriptor(fabric, spot.index)? else { return Ok(None) };
            let Some(leaves) = descriptor.model.window(spot.fraction) else { return Ok(None) };
            let count = leaves.last - leaves.first + 1;
            if count > WINDOW_MAX {
                self.counts.wide += 1;
                self.wants_model = false;
                return Ok(None);
            }
            let entries = self.entries(fabric, spot.index, &descriptor, leaves.first, count)?;
            let Some(entries) = entries else { continue };
            let is_valid = entries.iter().all(|entry| entry.is_valid);
            let route = Route { index: spot.index, descriptor, leaves, entries };
            return Ok(is_valid.then_some(route));
        }
        Ok(None)
    }

    /// Returns true if there is a sub-model of this number.
    pub(super) fn has_model(&self, index: u32) -> bool {
        self.top.as_ref().is_some_and(|top| index < top.models)
    }

    /// A sub-model, kept or read.
    pub(super) fn descriptor(
        &mut self,
        fabric: &impl Fabric,
        index: u32,
    ) -> Result<Option<Descriptor>> {
        if let Some(descriptor) = self.cache.descriptor(index) {
            return Ok(Some(descriptor));
        }
        let Some(extent) = self.descriptor_extent(index) else { return Ok(None) };
        self.read(fabric, &[extent])?;
        self.counts.models_read += 1;
        let found = self.descriptor_in(0);
        if let Some(descriptor) = found {
            self.cache.insert(index, descriptor, None);
        }
        Ok(found)
    }

    fn descriptor_in(&self, piece: usize) -> Option<Descriptor> {
        let (words, guard) = self.image.piece(piece)?;
        Descriptor::from_words(words, guard)
    }

    /// Entries of a table, kept or read; `None` if the sub-model is not what it was, and is then
    /// dropped.
    pub(super) fn entries(
        &mut self,
        fabric: &impl Fabric,
        index: u32,
        descriptor: &Descriptor,
        first: u32,
        count: u32,
    ) -> Result<Option<Vec<TableEntry>>> {
        let range = first as usize..first as usize + count as usize;
        let unpack =
            |words: &[u64]| Some(words.iter().map(|word| TableEntry::from_word(*word)).collect());
        if let Some(table) = self.cache.table(index) {
            return Ok(table.get(range).and_then(unpack));
        }
        let leaves = descriptor.model.leaves;
        let keeps = self.cache.keeps_tables() && leaves <= TABLE_MAX;
        let (begin, len) = if keeps { (0, leaves) } else { (first, count) };
        let Some(extent) = self.table_extent(index, descriptor, begin, len) else {
            return Ok(None);
        };
        self.read(fabric, &[extent])?;
        self.counts.tables_read += 1;
        let words = match self.image.piece(0) {
            Some((words, guard)) if guard as u32 == descriptor.version => words,
            _ => {
                self.cache.forget(index);
                return Ok(None);
            }
        };
        let range = range.start - begin as usize..range.end - begin as usize;
        let entries = words.get(range).and_then(unpack);
        if keeps {
            self.cache.insert(index, *descriptor, Some(words.to_vec()));
        }
        Ok(entries)
    }

    /// The heads of leaves, in one read; `None` for those that cannot be read.
    pub(super) fn heads(
        &mut self,
        fabric: &impl Fabric,
        numbers: &[u32],
    ) -> Result<Vec<Option<Head>>> {
        let mut extents: Vec<Extent> =
            numbers.iter().map(|number| self.leaf_extent(*number, 0, head::WORDS)).collect();
        let wants_load = fabric.is_unordered() && (self.load.is_none() || self.load_is_unsure);
        if wants_load {
            extents.push(loads_extent());
        }
        self.read(fabric, &extents)?;
        self.counts.leaves += numbers.len() as u64;
        if wants_load {
            (self.load, self.load_is_unsure) = (self.loads_in(numbers.len()), false);
        }
        let found = numbers.iter().enumerate();
        Ok(found.map(|(piece, number)| self.head_in(fabric, piece, *number)).collect())
    }

    /// The head in a piece of the last read, which may be a whole leaf.
    pub(super) fn head_in(
        &mut self,
        fabric: &impl Fabric,
        piece: usize,
        number: u32,
    ) -> Option<Head> {
        let (words, guard) = self.image.piece(piece)?;
        // planted: head-device-brought-not-proven
        if fabric.is_unordered() && !self.load.is_some_and(|load| is_head_whole(words, load)) {
            self.load_is_unsure = true;
            return None;
        }
        Head::parse(number, words, guard)
    }

    /// The number of loads in a piece of the last read.
    pub(super) fn loads_in(&self, piece: usize) -> Option<u64> {
        self.image.piece(piece)?.0.first().copied()
    }

    /// Reads pieces in one round trip.
    pub(super) fn read(&mut self, fabric: &impl Fabric, extents: &[Extent]) -> Result<()> {
        fabric.read(extents, &mut self.image)
    }

    /// A value slot. Read without order it proves itself, and its leaf's guard is of no use.
    pub(super) fn slot_extent(&self, fabric: &impl Fabric, number: u32, index: usize) -> Extent {
        let extent = self.leaf_extent(number, self.sizes.slot_word(index), self.sizes.slot_words());
        let guard = if fabric.is_unordered() { Extent::NO_GUARD } else { extent.guard };
        Extent { guard, ..extent }
    }

    /// The words of a value slot, without a sum; `None` if it was read without order, and does not
    /// prove itself.
    pub(super) fn slot<'w>(
        &self,
        fabric: &impl Fabric,
        (number, index): (u32, usize),
        words: &'w [u64],
    ) -> Option<&'w [u64]> {
        match self.sizes.has_checksums() {
            // planted: value-slot-device-brought-not
            true if fabric.is_unordered() => whole_slot(words, number, index),
            true => words.split_last().map(|(_, words)| words),
            false => Some(words),
        }
    }

    /// Words of a leaf.
    pub(super) fn leaf_extent(&self, number: u32, word: usize, words: usize) -> Extent {
        let guard = self.sizes.leaf_at(number);
        Extent { part: Part::Leaves, at: guard + word as u64 * 8, len: words as u32 * 8, guard }
    }

    fn descriptor_extent(&self, index: u32) -> Option<Extent> {
        let first = line_at(self.top.as_ref()?.first_line);
        let len = SUB_MODEL_WORDS as u32 * 8;
        let at = first + u64::from(index) * u64::from(len);
        Some(Extent { part: Part::Control, at, len, guard: at })
    }

    fn table_extent(
        &self,
        index: u32,
        descriptor: &Descriptor,
        first: u32,
        count: u32,
    ) -> Option<Extent> {
        let guard = self.descriptor_extent(index)?.at;
        let at = line_at(descriptor.first_line) + u64::from(first) * 8;
        Some(Extent { part: Part::Control, at, len: count.checked_mul(8)?, guard })
    }

    /// Where a key belongs, of each of some leaves, by their fences. Long ones are read; `None` if
    /// those changed meanwhile.
    pub(super) fn sides(
        &mut self,
        fabric: &impl Fabric,
        heads: &[Head],
        key: &[u8],
    ) -> Result<Option<Vec<Side>>> {
        let mut sides: Vec<Option<Side>> = heads.iter().map(|leaf| leaf.side(key)).collect();
        let unknown: Vec<usize> = (0..heads.len()).filter(|at| sides[*at].is_none()).collect();
        if !unknown.is_empty() {
            let records: Vec<(u32, u32)> =
                unknown.iter().filter_map(|at| heads[*at].fences_record()).collect();
            self.read_records(fabric, &records)?;
            for (piece, at) in unknown.iter().enumerate() {
                let record = self.record(piece, records.get(piece).map_or(0, |record| record.0));
                let fences = record.and_then(|record| record.fences(&heads[*at]));
                sides[*at] = fences.map(|fences| fences.side(key));
            }
        }
        Ok(sides.into_iter().collect())
    }
}

/// Where the number of loads is.
pub(super) fn loads_extent() -> Extent {
    let guard = HEADER_GUARD as u64 * 8;
    Extent { part: Part::Control, at: LOADS as u64 * 8, len: 8, guard }
}
