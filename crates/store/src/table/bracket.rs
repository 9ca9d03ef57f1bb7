//! Finds the block of a table that a key belongs to by what is in the blocks; the index only says
//! where to begin. So a read whose key is not where the index points gets the right answer,
//! whatever the index says.
//!
//! Does no I/O: it says which block to look into, and is told on which side of it the key is.

/// Where a key's position is, relative to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The block has no entries.
    Empty,
    /// All its entries are before the position.
    Before,
    /// All its entries are at or after the position.
    Behind,
    /// The position is between two of its entries: no other block matters.
    Within,
}

/// How the next block is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The block that the index named.
    Named,
    /// The block above it, because the named block's entries are before the position.
    Above,
    /// The block below it, because the named block's entries are at or after the position.
    Below,
    /// The index was wrong: bisect the blocks that are left.
    Bisect,
}

/// The search for a position, given that blocks are in the order of their entries.
///
/// Where the index is right, the search looks into at most one block beside the one that it names,
/// and into the empty blocks between them. Where the index is wrong, it looks into O(log blocks)
/// blocks and empty ones.
///
/// Invariant: all entries in blocks below `low` are before the position, and all in blocks from
/// `high` on are at or after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bracket {
    low: u32,
    high: u32,
    /// The block to look into: `low <= block < high`.
    block: u32,
    /// The blocks from here up to `block` are empty.
    run: u32,
    stage: Stage,
}

impl Bracket {
    /// A search among `blocks` blocks, at least one, that begins with `named`.
    pub(crate) fn new(blocks: u32, named: u32) -> Self {
        let block = named.min(blocks.saturating_sub(1));
        Self { low: 0, high: blocks, block, run: block, stage: Stage::Named }
    }

    /// The block to look into.
    pub(crate) fn block(&self) -> u32 {
        self.block
    }

    /// Once [`Bracket::narrow`] has said that the search is over: the first block from here on that
    /// has entries holds the first entry at or after the position.
    pub(crate) fn position_block(&self) -> u32 {
        self.high
    }

    /// Returns true if the index was found to be wrong.
    pub(crate) fn is_refuted(&self) -> bool {
        self.stage == Stage::Bisect
    }

    /// Takes the [`Side`] of block [`Bracket::block`], which is not [`Side::Within`]. False if the
    /// search is over: the position is between two blocks.
    #[must_use]
    pub(crate) fn narrow(&mut self, side: Side) -> bool {
        match side {
            // Walks towards what is after the position, so that the run ends there.
            Side::Empty if self.stage == Stage::Below => self.high = self.block,
            Side::Empty => {
                self.block += 1;
                if self.block < self.high {
                    return true;
                }
                self.high = self.run;
            }
            Side::Before => self.low = self.block + 1,
            Side::Behind | Side::Within => self.high = self.run,
        }
        self.stage = match (self.stage, side) {
            (Stage::Named, Side::Before) => Stage::Above,
            (Stage::Named, _) | (Stage::Below, Side::Empty) => Stage::Below,
            // The search is over, unless the neighbour is on the wrong side.
            (stage, _) if self.low >= self.high => stage,
            _ => Stage::Bisect,
        };
        if self.low >= self.high {
            return false;
        }
        self.block = match self.stage {
            Stage::Named | Stage::Above => self.low,
            Stage::Below => self.high - 1,
            Stage::Bisect => self.low + (self.high - self.low) / 2,
        };
        self.run = self.block;
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Looks for a position between the numbers in `blocks`. Returns the position, the number of
    /// blocks with entries that were looked into, and whether the index was found to be wrong.
    fn search(blocks: &[Vec<u32>], named: u32, position: u32) -> (Result<u32, u32>, u32, bool) {
        let mut bracket = Bracket::new(blocks.len() as u32, named);
        let mut looks = 0;
        loop {
            let block = &blocks[bracket.block() as usize];
            let before = block.iter().filter(|n| **n < position).count();
            let side = match (block.len(), before) {
                (0, _) => Side::Empty,
                (count, before) if before == count => Side::Before,
                (_, 0) => Side::Behind,
                _ => return (Ok(bracket.block()), looks + 1, bracket.is_refuted()),
            };
            looks += u32::from(side != Side::Empty);
            if !bracket.narrow(side) {
                return (Err(bracket.position_block()), looks, bracket.is_refuted());
            }
        }
    }

    proptest! {
        #[test]
        fn every_place_is_found_from_everywhere(counts in prop::collection::vec(prop_oneof![Just(0usize), 1usize..4], 1..40)) {
            let mut next = 0..;
            // Even numbers are there, odd ones are positions between them.
            let blocks: Vec<Vec<u32>> = counts.iter().map(|count| next.by_ref().take(*count).map(|n| n * 2 + 1).collect()).collect();
            let total: usize = counts.iter().sum();
            for position in (0..=total as u32).map(|n| n * 2) {
                // What a right index may say: a block with the neighbours of the position, or
                // between them.
                let lo = blocks.iter().rposition(|block| block.first().is_some_and(|n| *n < position));
                let hi = blocks.iter().position(|block| block.last().is_some_and(|n| *n > position));
                for named in 0..blocks.len() {
                    let (found, looks, refuted) = search(&blocks, named as u32, position);
                    match found {
                        Ok(block) => prop_assert!(lo == hi && lo == Some(block as usize)),
                        Err(position) => {
                            prop_assert!(lo.is_none_or(|lo| lo < position as usize));
                            let behind = blocks[position as usize..].iter().position(|block| !block.is_empty());
                            prop_assert_eq!(behind.map(|at| at + position as usize), hi);
                        }
                    }
                    let is_right = lo.is_none_or(|lo| lo <= named) && hi.is_none_or(|hi| named <= hi);
                    if is_right {
                        prop_assert!(looks <= 2 && !refuted, "{} looks", looks);
                    }
                    prop_assert!(looks <= 9, "{} looks", looks);
                }
            }
        }
    }
}
