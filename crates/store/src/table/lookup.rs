//! Point reads of a table: from a key to what the table says of it.
//!
//! The index names one block. If the key is not in it and does not belong between its entries, the
//! blocks beside it are searched. So a damaged or hostile index costs time, and never gives a wrong
//! answer.
//!
//! Thread safety: lookups may run at any time. They pin nothing themselves, take no lock, and count
//! no reference until they have found a value to return.

use rhumb_sync::{epoch::Guard, slot::Loaded};

use super::{
    TableCounters,
    block::{BlockView, Found},
    bracket::{Bracket, Side},
    hash::KeyHash,
    reader::Table,
};
use crate::{
    error::Result,
    slice::{BlockRef, Slice},
    types::{Kind, SeqNo},
};

/// What a table says of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// Nothing that the reader sees.
    Absent,
    /// It was removed by the write of this number.
    Tombstone(SeqNo),
    /// Its value, as of the write of this number.
    Value(SeqNo, Slice),
    /// The pointer to its value ([`Table::read_large`]), as of the write of this number.
    Large(SeqNo, Slice),
    /// Its stamp, and then its value or the pointer to it, as of the write of this number.
    Expiring(SeqNo, Slice),
    /// Unknown until this block is in memory ([`Table::read_block`], [`Table::lookup_in`]).
    Need(u32),
    /// The block that the index names does not hold the key, and the key does not belong between
    /// its entries: the blocks beside it are to be searched ([`Table::search`]).
    Unsure(Bracket),
}

/// A value in a resident block.
pub(crate) struct Hit<'g> {
    loaded: Loaded<'g>,
    start: usize,
    len: usize,
}

impl Hit<'_> {
    /// The value: copied if it has up to 22 bytes, otherwise sharing its block by a count.
    #[inline(always)]
    pub(crate) fn into_slice(self) -> Slice {
        loaded_slice(&self.loaded, self.start, self.len)
    }
}

impl Table {
    /// What the table says of `key` to a reader at `seq`, as far as that is known in memory.
    /// `block` is the only block that can hold the key, if that is known and the filter has let the
    /// key through. Never waits and never allocates: a value of up to 22 bytes is copied, a longer
    /// one shares its block. `hash` is that of `key`. O(log segments), then one block.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the block is malformed.
    pub(crate) fn lookup(
        &self,
        guard: &Guard,
        block: Option<u32>,
        key: &[u8],
        hash: KeyHash,
        seq: SeqNo,
    ) -> Result<Lookup> {
        if seq < self.meta().seq_min {
            return Ok(Lookup::Absent);
        }
        match block.or_else(|| self.block_for(guard, key, hash)) {
            Some(block) => self.find_in(guard, block, key, hash, seq),
            None => Ok(Lookup::Absent),
        }
    }

    /// The value of `key`, if [`Table::lookup`] in this block finds it with nothing to wait for and
    /// nothing to report but the value. The hit is a few numbers, which the caller's loop keeps in
    /// registers. An answer that is returned in memory is written in parts and read as a whole, and
    /// each time the processor waits until the parts have left its store buffer.
    #[inline(always)]
    pub(crate) fn hit<'g>(
        &'g self,
        guard: &'g Guard,
        block: u32,
        key: &[u8],
        hash: KeyHash,
        seq: SeqNo,
    ) -> Option<Hit<'g>> {
        if seq < self.meta().seq_min {
            return None;
        }
        let loaded = self.blocks().get(block, guard)?;
        let view = BlockView::parse(&loaded).ok()?;
        let found = view.find(key, hash, seq - self.seq_shift()).ok()??;
        let Found { kind, value_start: start, value_len: len, .. } = found;
        (kind == Kind::Value).then_some(Hit { loaded, start, len })
    }

    /// The only block that can hold `key`, whose cache lines are prefetched; `None` if the filter
    /// says that no block does. Every point read comes here, so all of it is inlined into the
    /// caller's loop.
    #[inline(always)]
    pub(crate) fn block_for(&self, guard: &Guard, key: &[u8], hash: KeyHash) -> Option<u32> {
        // The filter's line is prefetched before it is needed: its miss overlaps the model's work,
        // and the miss of the block's slot.
        self.filter.prefetch(hash);
        let may_contain = || self.filter.may_contain(hash);
        let (block, part) = self.index().predict_if(key, may_contain)?;
        self.blocks().prefetch_slot(block);
        if !may_contain() {
            return None;
        }
        // The model predicts about where the entry is: its lines are prefetched together with the
        // block's head.
        self.blocks().prefetch(block, part * self.block_bytes_mean / 64, guard);
        Some(block)
    }

    /// Looks a key up in its block, if that is resident; at least one entry of this table must be
    /// visible at `seq`.
    #[inline]
    fn find_in(
        &self,
        guard: &Guard,
        block: u32,
        key: &[u8],
        hash: KeyHash,
        seq: SeqNo,
    ) -> Result<Lookup> {
        // Cannot underflow, as no entry is numbered below `seq_min`.
        let seq = seq - self.seq_shift();
        let Some(loaded) = self.blocks().get(block, guard) else { return Ok(Lookup::Need(block)) };
        match BlockView::parse(&loaded).and_then(|view| view.find(key, hash, seq)) {
            Ok(Some(found)) => {
                Ok(self.answer(found, |start, len| loaded_slice(&loaded, start, len)))
            }
            Ok(None) => self.absent_or_unsure(&loaded, block, key),
            Err(damaged) => Err(self.damaged_block(block, damaged)),
        }
    }

    /// Decides whether `key` is absent, given that the block that the index named, with this
    /// payload, does not hold it. It is absent if it belongs between the entries of this block;
    /// otherwise the blocks beside it must be searched.
    #[cold]
    #[inline(never)]
    fn absent_or_unsure(&self, payload: &[u8], block: u32, key: &[u8]) -> Result<Lookup> {
        let side = BlockView::parse(payload).and_then(|view| view.side_of(key));
        let side = side.map_err(|damaged| self.damaged_block(block, damaged))?;
        if side == Side::Within {
            return Ok(Lookup::Absent);
        }
        // For a key that is not in the table, only its place in the order counts.
        let named = self.index().seek(key).block;
        let mut bracket = Bracket::new(self.index().block_count(), named);
        let goes_on = named != block || bracket.narrow(side);
        Ok(if goes_on { Lookup::Unsure(bracket) } else { Lookup::Absent })
    }

    /// Goes on with [`Lookup::Unsure`] as far as blocks are in memory. Returns an answer, or
    /// [`Lookup::Need`] with the block that `bracket` names, for [`Table::search_in`].
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if a block is malformed.
    pub(crate) fn search(
        &self,
        guard: &Guard,
        bracket: &mut Bracket,
        key: &[u8],
        hash: KeyHash,
        seq: SeqNo,
    ) -> Result<Lookup> {
        loop {
            let number = bracket.block();
            let Some(loaded) = self.blocks().get(number, guard) else {
                return Ok(Lookup::Need(number));
            };
            let block = BlockRef::from_shared(loaded.share());
            match self.search_in(&block, bracket, key, hash, seq)? {
                Lookup::Unsure(_) => {}
                answer => return Ok(answer),
            }
        }
    }

    /// Looks into the block that `bracket` names. Returns an answer, or [`Lookup::Unsure`] if the
    /// search goes on.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the block is malformed.
    pub(crate) fn search_in(
        &self,
        block: &BlockRef,
        bracket: &mut Bracket,
        key: &[u8],
        hash: KeyHash,
        seq: SeqNo,
    ) -> Result<Lookup> {
        let number = bracket.block();
        let damaged = |damaged| self.damaged_block(number, damaged);
        let view = BlockView::parse(block.bytes()).map_err(damaged)?;
        let side = view.side_of(key).map_err(damaged)?;
        if side != Side::Within {
            let goes_on = bracket.narrow(side);
            return Ok(if goes_on { Lookup::Unsure(*bracket) } else { Lookup::Absent });
        }
        let seq = seq.saturating_sub(self.seq_shift());
        let Some(found) = view.find(key, hash, seq).map_err(damaged)? else {
            return Ok(Lookup::Absent);
        };
        // The index named another block for this key.
        TableCounters::add(&self.counters().refuted, 1);
        Ok(self.answer(found, |start, len| block.slice(start, len)))
    }

    /// Resolves a lookup by reading the blocks that it needs.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if a block is damaged, [`Error::Io`].
    pub(crate) fn resolve(
        &self,
        mut lookup: Lookup,
        key: &[u8],
        hash: KeyHash,
        seq: SeqNo,
    ) -> Result<Lookup> {
        loop {
            lookup = match lookup {
                Lookup::Need(number) => {
                    self.lookup_in(&self.read_block(number, true)?, key, hash, seq)?
                }
                Lookup::Unsure(mut bracket) => {
                    let block = self.read_block(bracket.block(), true)?;
                    self.search_in(&block, &mut bracket, key, hash, seq)?
                }
                answer => return Ok(answer),
            }
        }
    }

    /// Prefetches the line of the filter that [`Table::lookup`] reads, so that the misses of many
    /// lookups overlap.
    #[inline]
    pub(crate) fn prefetch_filter(&self, hash: KeyHash) {
        self.filter.prefetch(hash);
    }

    /// Returns true if the filter lets a key with this hash through.
    #[inline]
    pub(crate) fn may_contain(&self, hash: KeyHash) -> bool {
        self.filter.may_contain(hash)
    }

    /// The segment of the index that the key belongs to. Prefetches what [`Table::locate_in`]
    /// reads.
    #[inline]
    pub(crate) fn find_segment(&self, key: &[u8]) -> usize {
        self.index().find_segment(key)
    }

    /// The block that holds the key if it is here; the key belongs to this segment. Prefetches the
    /// block's slot.
    #[inline]
    pub(crate) fn locate_in(&self, segment: usize, key: &[u8]) -> u32 {
        let block = self.index().locate_in(segment, key);
        self.blocks().prefetch_slot(block);
        block
    }

    /// Prefetches the lines of the block's directory, if the block is resident.
    #[inline]
    pub(crate) fn prefetch_directory(&self, block: u32, guard: &Guard) {
        self.blocks().prefetch_head(block, guard);
    }

    /// Prefetches the lines of the entry that is likely to be that of a key with this hash, if the
    /// block is resident. To be called once the block's directory has arrived.
    #[inline]
    pub(crate) fn prefetch_entry(&self, block: u32, hash: KeyHash, guard: &Guard) {
        if let Some(loaded) = self.blocks().peek(block, guard)
            && let Ok(view) = BlockView::parse(&loaded)
        {
            view.prefetch_likely(hash);
        }
    }

    /// [`Table::lookup`] in the block that it needed.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the block is malformed.
    pub(crate) fn lookup_in(
        &self,
        block: &BlockRef,
        key: &[u8],
        hash: KeyHash,
        seq: SeqNo,
    ) -> Result<Lookup> {
        let seq = seq.saturating_sub(self.seq_shift());
        let number = || self.index().locate(key);
        match BlockView::parse(block.bytes()).and_then(|view| view.find(key, hash, seq)) {
            Ok(Some(found)) => Ok(self.answer(found, |start, len| block.slice(start, len))),
            Ok(None) => self.absent_or_unsure(block.bytes(), number(), key),
            Err(damaged) => Err(self.damaged_block(number(), damaged)),
        }
    }

    /// Turns an entry found in a block into an answer.
    #[inline]
    fn answer(&self, found: Found, value: impl FnOnce(usize, usize) -> Slice) -> Lookup {
        let seq = found.seq + self.seq_shift();
        match found.kind {
            Kind::Tombstone => Lookup::Tombstone(seq),
            Kind::Value => Lookup::Value(seq, value(found.value_start, found.value_len)),
            Kind::LargeValue => Lookup::Large(seq, value(found.value_start, found.value_len)),
            Kind::Expiring => Lookup::Expiring(seq, value(found.value_start, found.value_len)),
        }
    }
}

/// A value out of a resident block: small ones are copied, others share the block.
#[inline]
fn loaded_slice(loaded: &Loaded<'_>, start: usize, len: usize) -> Slice {
    if len <= BlockRef::COPY_BYTES_MAX {
        return Slice::copy_from(&loaded[start..start + len]);
    }
    BlockRef::from_shared(loaded.share()).into_slice(start, len)
}
