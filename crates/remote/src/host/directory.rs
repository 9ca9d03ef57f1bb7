//! The directory as its host keeps and changes it.

use std::collections::VecDeque;

use super::{Space, extents::Extents};
use crate::{
    error::Result,
    layout::{
        control::{self, Units},
        format::{BLOCK_RUNS, UNIT_BYTES},
    },
    primitive::{Ordering, point},
    route::{
        Run,
        directory::{
            BLOCK_BYTES, Located, block_bytes, block_image, find_block, find_slot, top_image,
            top_payload,
        },
    },
};

/// Units that are not used again at once when a reader may be at them: it would only be sent to a
/// wrong leaf, and try again.
const RETIRED_UNITS: usize = 64;

/// A block and what is in it.
struct Block {
    unit: u32,
    runs: Vec<Run>,
}

/// Where a run stands in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunIndex {
    block: usize,
    run: usize,
}

/// The runs of a table, and the region that readers find them in.
pub(super) struct Directory<S> {
    space: S,
    units: Extents,
    retired: VecDeque<Units>,
    blocks: Vec<Block>,
    top: Units,
}

impl<S: Space> Directory<S> {
    /// An empty directory in an empty region; readers find nothing before
    /// [`Directory::append`] and [`Directory::publish`].
    pub(super) fn new(space: S) -> Result<Self> {
        space.grow(UNIT_BYTES)?;
        let mut units = Extents::default();
        units.give(1, (space.words().len() * 8 / UNIT_BYTES) as u32 - 1);
        let top = Units { first: 0, count: 0 };
        Ok(Self { space, units, retired: VecDeque::new(), blocks: Vec::new(), top })
    }

    pub(super) fn space(&self) -> &S {
        &self.space
    }

    pub(super) fn run(&self, at: RunIndex) -> &Run {
        &self.blocks[at.block].runs[at.run]
    }

    pub(super) fn run_count(&self) -> usize {
        self.blocks.iter().map(|block| block.runs.len()).sum()
    }

    /// Where `key` should be, as readers find it: two searches among codes that lie side by side.
    #[inline]
    pub(super) fn locate(&self, key: &[u8]) -> Located {
        let region = self.space.words();
        let top = self.top.of(region).unwrap_or_default();
        let block = Units { first: find_block(top, key), count: 1 };
        find_slot(block.of(region).unwrap_or_default(), key)
    }

    /// The run that has `key`. Logarithmic.
    pub(super) fn find(&self, key: &[u8]) -> RunIndex {
        let block = self.blocks.partition_point(|block| *block.runs[0].low <= *key).max(1) - 1;
        let runs = &self.blocks[block].runs;
        let run = runs.partition_point(|run| *run.low <= *key).max(1) - 1;
        RunIndex { block, run }
    }

    /// Runs side by side in a block, of `leaves` leaves at most together, but for that at `at`,
    /// which is one of them: the first, and how many they are.
    pub(super) fn span(&self, at: RunIndex, leaves: u32) -> (RunIndex, usize) {
        let runs = &self.blocks[at.block].runs;
        let (mut first, mut end, mut sum) = (at.run, at.run + 1, runs[at.run].leaves);
        while let Some(next) = runs.get(end).filter(|next| sum + next.leaves <= leaves) {
            (end, sum) = (end + 1, sum + next.leaves);
        }
        while first > 0 && sum + runs[first - 1].leaves <= leaves {
            (first, sum) = (first - 1, sum + runs[first - 1].leaves);
        }
        (RunIndex { run: first, ..at }, end - first)
    }

    /// Runs side by side in a block.
    pub(super) fn runs(&self, at: RunIndex, count: usize) -> &[Run] {
        &self.blocks[at.block].runs[at.run..at.run + count]
    }

    /// The run after another, in the same block.
    pub(super) fn next_in_block(&self, at: RunIndex) -> Option<RunIndex> {
        let next = RunIndex { run: at.run + 1, ..at };
        (next.run < self.blocks[at.block].runs.len()).then_some(next)
    }

    /// Adds the run with the largest keys so far, while the directory is built.
    pub(super) fn append(&mut self, run: Run) -> Result<()> {
        let has_room = |block: &Block| {
            let bytes = block_bytes(&block.runs) + block_bytes(std::slice::from_ref(&run));
            block.runs.len() < BLOCK_RUNS && bytes - block_bytes(&[]) <= BLOCK_BYTES
        };
        match self.blocks.last_mut() {
            Some(block) if has_room(block) => block.runs.push(run),
            _ => {
                let unit = self.take(1)?.first;
                self.blocks.push(Block { unit, runs: vec![run] });
            }
        }
        Ok(())
    }

    /// Removes all runs, to be built anew: readers find what was there until
    /// [`Directory::publish`].
    pub(super) fn clear(&mut self) {
        let old = std::mem::take(&mut self.blocks);
        old_units(&old).for_each(|units| self.retire(units));
    }

    /// Lets readers find what was appended.
    pub(super) fn publish(&mut self) -> Result<()> {
        for block in &self.blocks {
            self.store(Units { first: block.unit, count: 1 }, &block_image(&block.runs));
        }
        self.publish_top()
    }

    /// Puts `runs` in the place of `count` runs of a block, and lets readers find them.
    ///
    /// # Errors
    ///
    /// As [`Space::grow`]; nothing has changed then.
    pub(super) fn replace(&mut self, at: RunIndex, count: usize, runs: Vec<Run>) -> Result<()> {
        let mut all = self.blocks[at.block].runs.clone();
        all.splice(at.run..at.run + count, runs);
        let mut parts: Vec<Vec<Run>> = vec![all];
        while let Some(index) = parts.iter().position(|runs| is_too_large(runs)) {
            let half = parts[index].len() / 2;
            let upper = parts[index].split_off(half);
            parts.insert(index + 1, upper);
        }
        let mut blocks = Vec::with_capacity(parts.len());
        for runs in parts {
            match self.take(1) {
                Ok(units) => blocks.push(Block { unit: units.first, runs }),
                Err(error) => {
                    blocks.iter().for_each(|block: &Block| self.units.give(block.unit, 1));
                    return Err(error);
                }
            }
        }
        for block in &blocks {
            self.store(Units { first: block.unit, count: 1 }, &block_image(&block.runs));
        }
        let (count, unit) = (blocks.len(), blocks[0].unit);
        let old: Vec<Block> = self.blocks.splice(at.block..=at.block, blocks).collect();
        if count == 1 {
            // The block's low key is what it was.
            let top = self.top.of(self.space.words()).unwrap_or_default();
            let word = top_payload(self.blocks.len(), at.block);
            if let Some(word) = top.get(word) {
                // planted: directory-keeps-old-place-block
                word.store(u64::from(unit).to_le(), Ordering::Release);
                point();
            }
        } else if let Err(error) = self.publish_top() {
            let new = self.blocks.splice(at.block..at.block + count, old);
            new.for_each(|block| self.units.give(block.unit, 1));
            return Err(error);
        }
        control::raise_epoch(self.space.words());
        old_units(&old).for_each(|units| self.retire(units));
        Ok(())
    }

    fn publish_top(&mut self) -> Result<()> {
        let lows: Vec<_> =
            self.blocks.iter().map(|block| (&*block.runs[0].low, block.unit)).collect();
        let image = top_image(&lows);
        let units = self.take((image.len() * 8).div_ceil(UNIT_BYTES) as u32)?;
        self.store(units, &image);
        control::set_top(self.space.words(), units);
        control::raise_epoch(self.space.words());
        let old = std::mem::replace(&mut self.top, units);
        self.retire(old);
        Ok(())
    }

    fn store(&self, units: Units, image: &[u64]) {
        let words = units.of(self.space.words()).unwrap_or_default();
        for (word, value) in words.iter().zip(image) {
            word.store(value.to_le(), Ordering::Relaxed);
        }
    }

    fn take(&mut self, count: u32) -> Result<Units> {
        loop {
            if let Some(first) = self.units.take(count) {
                return Ok(Units { first, count });
            }
            let before = self.space.words().len();
            self.space.grow(count as usize * UNIT_BYTES)?;
            let unit = |words: usize| (words * 8 / UNIT_BYTES) as u32;
            let after = self.space.words().len();
            self.units.give(unit(before), unit(after) - unit(before));
        }
    }

    fn retire(&mut self, units: Units) {
        self.retired.push_back(units);
        if self.retired.len() > RETIRED_UNITS
            && let Some(oldest) = self.retired.pop_front()
        {
            self.units.give(oldest.first, oldest.count);
        }
    }
}

fn is_too_large(runs: &[Run]) -> bool {
    runs.len() > BLOCK_RUNS || block_bytes(runs) > BLOCK_BYTES
}

fn old_units(blocks: &[Block]) -> impl Iterator<Item = Units> {
    blocks.iter().map(|block| Units { first: block.unit, count: 1 })
}
