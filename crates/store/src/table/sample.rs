//! Draws of a table's entries, each as likely as any other.
//!
//! Blocks hold different numbers of entries. So each block counts as having the same number of
//! slots, at least the number of entries of the fullest block. A draw takes a block and a slot in
//! it, and is void if the block has no entry there. The number of slots is not in the file: it
//! begins a little above the mean, and a block with more entries raises it when it is met. Until
//! then the entries of that block are not drawn.

use std::sync::atomic::Ordering;

use rhumb_sync::epoch::pin;

use super::{
    TableMeta,
    block::{BlockView, Damaged},
    hash::KeyHash,
    reader::Table,
};
use crate::{
    error::Result,
    slice::BlockRef,
    types::{Kind, SeqNo},
};

/// The number of slots that a block has at first for each entry that it has on average, as a
/// fraction: a fifth of the draws is void then. With entries of about one length, no block has more
/// entries than this.
const FIRST_SLOTS: (u64, u64) = (5, 4);

/// What is at a slot of a block.
pub(crate) enum Drawn {
    /// No value.
    Nothing,
    /// The block has more entries than slots; the number of slots was raised.
    Crowded,
    /// The newest version of a key here, and the sequence number of its write.
    Value(Vec<u8>, SeqNo),
}

/// The number of slots of each block before any block was drawn.
pub(super) fn first_slots(meta: &TableMeta, blocks: u32) -> u32 {
    let (times, part) = FIRST_SLOTS;
    let mean = meta.entries.saturating_mul(times) / (u64::from(blocks.max(1)) * part);
    u32::try_from(mean).unwrap_or(u32::MAX).saturating_add(1)
}

impl Table {
    /// The number of slots of each block.
    pub(crate) fn slots_per_block(&self) -> u64 {
        u64::from(self.slots_per_block.load(Ordering::Relaxed))
    }

    /// The number of blocks.
    pub(crate) fn block_count(&self) -> u64 {
        u64::from(self.index().block_count())
    }

    /// Returns what is at a slot of a block for a reader at `seq`. One read unless the block is in
    /// memory.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) if the block is damaged,
    /// [`Error::Io`](crate::Error::Io).
    pub(crate) fn draw(&self, number: u32, slot: usize, seq: SeqNo) -> Result<Drawn> {
        let block = self.resident_or_read(number)?;
        let view = BlockView::parse(block.bytes());
        let drawn = view.and_then(|view| self.draw_in(&view, slot, seq));
        drawn.map_err(|damaged| self.damaged_block(number, damaged))
    }

    fn draw_in(&self, view: &BlockView<'_>, slot: usize, seq: SeqNo) -> Result<Drawn, Damaged> {
        let count = u32::try_from(view.count()).unwrap_or(u32::MAX);
        if count > self.slots_per_block.fetch_max(count, Ordering::Relaxed) {
            return Ok(Drawn::Crowded);
        }
        let Some(seq) = seq.checked_sub(self.seq_shift()).filter(|_| slot < view.count()) else {
            return Ok(Drawn::Nothing);
        };
        let entry = view.entry(slot)?;
        if entry.kind == Kind::Tombstone {
            return Ok(Drawn::Nothing);
        }
        let key = [view.shared_prefix(slot, entry.shared)?, entry.suffix].concat();
        // All versions of a key are in one block.
        let newest = view.find(&key, KeyHash::of(&key), seq)?;
        if newest.is_none_or(|newest| newest.seq != entry.seq) {
            return Ok(Drawn::Nothing);
        }
        Ok(Drawn::Value(key, entry.seq + self.seq_shift()))
    }

    fn resident_or_read(&self, number: u32) -> Result<BlockRef> {
        if let Some(loaded) = self.blocks().get(number, &pin()) {
            return Ok(BlockRef::from_shared(loaded.share()));
        }
        self.read_block(number, true)
    }
}
