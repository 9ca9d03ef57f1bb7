//! Memory of an assembly: lines that are handed out in pieces of a few sizes, each with a guard.
//!
//! 1. A place belongs to pieces of one size for ever, so that what was a guard stays one.
//! 2. A piece that is handed out is latched until [`Slab::publish`]. So is whatever is changed.
//! 3. A piece that is given back keeps its words until [`Slab::publish`]: a reader that found it
//!    before sees what was there, and no reader finds it afterwards. Then its incarnation rises.

use std::collections::{BTreeMap, VecDeque};

use super::{
    layout::{BLOCK_LINES, LINE_WORDS, LINES_MAX, Sizes, Slot, WIDE_LINES_MAX, incarnation_of},
    proof::{BLOCK_SUM, block_sum},
};
use crate::{
    error::{Error, Result},
    host::{Space, extents::Extents},
    layout::{
        Bytes, Memory,
        format::{INCARNATION_SHIFT, LATCHED, VERSION_STEP},
    },
    primitive::{AtomicU64, Ordering, fence, point},
};

/// Lines of an area, which is given to pieces of one size: 64 KiB, so that the 25 sizes up to 2 KiB
/// take some 2 MiB at least, the smallest step in which regions grow.
const AREA_LINES: u32 = 1024;
/// Blocks of an area.
const AREA_BLOCKS: u32 = AREA_LINES / BLOCK_LINES;

/// What an area is for, once it is for something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Use {
    #[default]
    None,
    Blocks,
    /// Pieces of this many lines.
    Pieces(u32),
}

/// A space, cut into pieces.
pub(super) struct Slab<S> {
    space: S,
    sizes: Sizes,
    areas: Extents,
    /// What each area is for. A piece of more than an area is said at its first.
    uses: Vec<Use>,
    blocks: Extents,
    /// Lines at which free pieces begin, by their size. The oldest is taken first, which makes
    /// incarnations rise evenly.
    free: BTreeMap<u32, VecDeque<u32>>,
    latched: Vec<u32>,
    given: Vec<(u32, u32)>,
    live_lines: u64,
}

impl<S: Space> Slab<S> {
    /// A slab in an empty space.
    pub(super) fn new(space: S, sizes: Sizes) -> Self {
        Self {
            space,
            sizes,
            areas: Extents::default(),
            uses: Vec::new(),
            blocks: Extents::default(),
            free: BTreeMap::new(),
            latched: Vec::new(),
            given: Vec::new(),
            live_lines: 0,
        }
    }

    #[cfg(test)]
    pub(super) fn space(&self) -> &S {
        &self.space
    }

    /// How large the parts of the region are.
    pub(super) fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Bytes of pieces that are handed out.
    pub(super) fn live_bytes(&self) -> u64 {
        self.live_lines * (LINE_WORDS as u64 * 8)
    }

    /// A word of the piece that begins at `line`; 0 outside of the space.
    pub(super) fn load(&self, line: u32, word: usize) -> u64 {
        self.space.words().load(line as usize * LINE_WORDS + word)
    }

    /// Stores a word of a piece that is latched.
    pub(super) fn store(&self, line: u32, word: usize, value: u64) {
        if let Some(cell) = self.space.words().get(line as usize * LINE_WORDS + word) {
            cell.store(value.to_le(), Ordering::Relaxed);
        }
    }

    /// A byte string of the piece that begins at `line`.
    pub(super) fn bytes(
        &self,
        line: u32,
        word: usize,
        len: usize,
    ) -> Option<Bytes<'_, [AtomicU64]>> {
        self.space.words().bytes((line as usize * LINE_WORDS + word) * 8, len)
    }

    /// Returns true if the piece that begins at the slot's line has the slot's incarnation.
    pub(super) fn is_current(&self, slot: Slot) -> bool {
        incarnation_of(self.load(slot.line, 0)) == slot.incarnation
    }

    /// Hands out a piece of at least `lines`, latched.
    ///
    /// # Errors
    ///
    /// [`Error::Full`]; [`Error::InvalidArgument`] if no piece is that long.
    pub(super) fn take(&mut self, lines: u32) -> Result<Slot> {
        if lines as usize > WIDE_LINES_MAX {
            return Err(Error::InvalidArgument(format!("a piece of {lines} lines").into()));
        }
        let size = size_of(lines);
        let line = loop {
            if let Some(line) = self.free.get_mut(&size).and_then(VecDeque::pop_front) {
                break line;
            }
            let count = size.div_ceil(AREA_LINES);
            let first = self.take_areas(count, Use::Pieces(size))?;
            self.free.entry(size).or_default().extend(pieces_of(first, size));
        };
        self.live_lines += u64::from(size);
        self.latch(line);
        if incarnation_of(self.load(line, 0)) == 0 {
            self.raise(line);
        }
        Ok(Slot { line, incarnation: incarnation_of(self.load(line, 0)) })
    }

    /// Gives a piece back that was taken with this number of lines.
    pub(super) fn give(&mut self, line: u32, lines: u32) {
        let size = size_of(lines);
        self.live_lines = self.live_lines.saturating_sub(u64::from(size));
        self.given.push((line, size));
    }

    /// Hands out blocks side by side, latched, whose incarnation is to be set.
    ///
    /// # Errors
    ///
    /// [`Error::Full`].
    pub(super) fn take_blocks(&mut self, count: u32) -> Result<u32> {
        let first = loop {
            if let Some(first) = self.blocks.take(count) {
                break first;
            }
            let areas = count.div_ceil(AREA_BLOCKS);
            let first = self.take_areas(areas, Use::Blocks)?;
            self.blocks.give(first * AREA_BLOCKS, areas * AREA_BLOCKS);
        };
        self.live_lines += u64::from(count * BLOCK_LINES);
        (first..first + count).for_each(|block| self.latch(block * BLOCK_LINES));
        Ok(first)
    }

    /// Gives blocks back at once: no reader may know them any more.
    pub(super) fn give_blocks(&mut self, first: u32, count: u32) {
        for block in first..first + count {
            self.end(block * BLOCK_LINES, BLOCK_LINES, 0);
        }
        self.live_lines = self.live_lines.saturating_sub(u64::from(count * BLOCK_LINES));
        self.blocks.give(first, count);
    }

    /// Has readers of a piece try again until [`Slab::publish`].
    pub(super) fn latch(&mut self, line: u32) {
        if self.load(line, 0) & LATCHED == 0 {
            self.close(line);
            self.latched.push(line);
        }
    }

    /// Gives a latched piece another incarnation.
    pub(super) fn set_incarnation(&mut self, line: u32, incarnation: u32) {
        let low = self.load(line, 0) & ((1 << INCARNATION_SHIFT) - 1);
        self.store(line, 0, low | u64::from(incarnation) << INCARNATION_SHIFT);
    }

    /// Gives a latched piece the next incarnation, and returns it.
    pub(super) fn raise(&mut self, line: u32) -> u32 {
        let next = (incarnation_of(self.load(line, 0)) + 1) & 0xff_ffff;
        // No link names incarnation 0.
        self.set_incarnation(line, next.max(1));
        next.max(1)
    }

    /// Has readers find, from now on, that a block answers for nothing.
    pub(super) fn retire_block(&mut self, block: u32) {
        let line = block * BLOCK_LINES;
        let is_latched = self.load(line, 0) & LATCHED != 0;
        if is_latched {
            self.set_incarnation(line, 0);
        } else {
            self.close(line);
            self.set_incarnation(line, 0);
            self.open(line);
        }
    }

    /// Lets readers see the changes since the last call, and ends what was given back.
    pub(super) fn publish(&mut self) {
        for line in std::mem::take(&mut self.latched) {
            if self.load(line, 0) & LATCHED != 0 {
                self.open(line);
            }
        }
        self.end_given();
    }

    /// Has pieces that were given back since the last [`Slab::publish`] be handed out again before
    /// the next: what undoes a group needs no more memory than there was before the group. A reader
    /// that has found one of them reads another incarnation.
    pub(super) fn end_given(&mut self) {
        for (line, size) in std::mem::take(&mut self.given) {
            self.use_again(line, size);
        }
    }

    /// Ends a piece, and has it be handed out again.
    fn use_again(&mut self, line: u32, size: u32) {
        let next = (incarnation_of(self.load(line, 0)) + 1) & 0xff_ffff;
        // planted: piece-used-again-before-another
        self.end(line, size, next.max(1));
        self.free.entry(size).or_default().push_back(line);
    }

    fn close(&self, line: u32) {
        self.store(line, 0, self.load(line, 0) | LATCHED);
        // A reader that sees what is stored from here on sees the latch when it looks again.
        fence(Ordering::Release);
        point();
    }

    fn open(&self, line: u32) {
        let guard = self.opened(line);
        let area = self.uses.get((line / AREA_LINES) as usize);
        if self.sizes.has_checksums() && area == Some(&Use::Blocks) {
            let words = (1..BLOCK_SUM).map(|word| self.load(line, word));
            let sum = block_sum([guard].into_iter().chain(words), line);
            self.store(line, BLOCK_SUM, sum);
        }
        point();
        if let Some(cell) = self.space.words().get(line as usize * LINE_WORDS) {
            cell.store(guard.to_le(), Ordering::Release);
        }
        point();
    }

    /// The guard of a latched piece as it will be once readers see the piece.
    pub(super) fn opened(&self, line: u32) -> u64 {
        let guard = self.load(line, 0);
        // The version wraps within its own bits.
        let version = guard.wrapping_add(VERSION_STEP) & ((1 << INCARNATION_SHIFT) - 1);
        guard >> INCARNATION_SHIFT << INCARNATION_SHIFT | version & !LATCHED
    }

    /// Zeroes a piece and gives it another incarnation.
    fn end(&mut self, line: u32, lines: u32, incarnation: u32) {
        self.close(line);
        (1..lines as usize * LINE_WORDS).for_each(|word| self.store(line, word, 0));
        self.set_incarnation(line, incarnation);
        self.open(line);
    }

    /// Ends all that was ever handed out, and has its memory be handed out again. A reader that has
    /// found any of it reads another incarnation. Linear in the memory.
    pub(super) fn end_all(&mut self) {
        self.latched.clear();
        self.given.clear();
        self.free.clear();
        (self.blocks, self.live_lines) = (Extents::default(), 0);
        for (area, what) in (0..).zip(std::mem::take(&mut self.uses)) {
            match what {
                Use::None => {}
                Use::Blocks => {
                    let first = area * AREA_BLOCKS;
                    for block in first..first + AREA_BLOCKS {
                        self.end(block * BLOCK_LINES, BLOCK_LINES, 0);
                    }
                    self.blocks.give(first, AREA_BLOCKS);
                }
                Use::Pieces(size) => {
                    pieces_of(area, size).for_each(|line| self.use_again(line, size));
                }
            }
            self.uses.push(what);
        }
    }

    /// Takes areas side by side, for one use for ever.
    fn take_areas(&mut self, count: u32, what: Use) -> Result<u32> {
        loop {
            if let Some(first) = self.areas.take(count) {
                let end = (first + count) as usize;
                self.uses.resize(self.uses.len().max(end), Use::None);
                let of_one = if what == Use::Blocks { count as usize } else { 1 };
                self.uses[first as usize..][..of_one].fill(what);
                return Ok(first);
            }
            let of = |space: &S| (space.words().len() / LINE_WORDS) as u64 / u64::from(AREA_LINES);
            let before = of(&self.space);
            self.space.grow((count * AREA_LINES) as usize * LINE_WORDS * 8)?;
            let after = of(&self.space).min(u64::from(LINES_MAX / AREA_LINES));
            if after <= before {
                let capacity_bytes = before * u64::from(AREA_LINES) * LINE_WORDS as u64 * 8;
                return Err(Error::Full { capacity_bytes });
            }
            self.areas.give(before as u32, (after - before) as u32);
        }
    }
}

/// The lines at which the pieces of this size begin that lie in one area, or in as many as one
/// piece takes.
fn pieces_of(area: u32, size: u32) -> impl Iterator<Item = u32> {
    let pieces = size.div_ceil(AREA_LINES) * AREA_LINES / size;
    (0..pieces).map(move |piece| area * AREA_LINES + piece * size)
}

/// The size of the pieces that are used for `lines`: four sizes between a power of two and the
/// next.
pub(super) fn size_of(lines: u32) -> u32 {
    let step = (lines.max(1).next_power_of_two() / 8).max(1);
    lines.max(1).next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::heap::HeapSpace;

    #[test]
    fn sizes_waste_a_quarter_at_most() {
        for lines in 1..=WIDE_LINES_MAX as u32 {
            assert!(size_of(lines) >= lines && size_of(lines) * 4 <= lines * 5 + 4, "{lines}");
            assert_eq!(size_of(size_of(lines)), size_of(lines));
        }
    }

    #[test]
    fn a_piece_that_comes_back_has_another_incarnation() {
        let mut slab = Slab::new(HeapSpace::new(64 << 10, 1 << 20), Sizes::default());
        let first = slab.take(7).unwrap();
        slab.store(first.line, 3, 33);
        slab.publish();
        slab.give(first.line, 7);
        assert!(slab.is_current(first) && slab.load(first.line, 3) == 33);
        slab.publish();
        assert!(!slab.is_current(first) && slab.load(first.line, 3) == 0);
        let mut others = (0..1024 / 7).map(|_| slab.take(7).unwrap());
        let again = others.find(|slot| slot.line == first.line).unwrap();
        assert_ne!(again, first);
    }

    /// All memory comes back in the sizes that it had, whatever it was used for, and nothing that
    /// was found in it before is there.
    #[test]
    fn what_ended_at_once_is_handed_out_again() {
        let mut slab = Slab::new(HeapSpace::new(64 << 10, 1 << 20), Sizes::default());
        let sizes = [1, 2, 7, 40, 1500];
        let mut before = Vec::new();
        for round in 0..5 {
            let mut slots: Vec<(u32, Slot)> = Vec::new();
            let mut blocks = Vec::new();
            for lines in sizes {
                slots.extend((0..20).filter_map(|_| Some((lines, slab.take(lines).ok()?))));
                blocks.extend(slab.take_blocks(30));
            }
            for (lines, slot) in &slots {
                assert!(slab.is_current(*slot));
                (1..*lines as usize * LINE_WORDS).for_each(|word| {
                    assert_eq!(slab.load(slot.line, word), 0);
                    slab.store(slot.line, word, u64::MAX);
                });
            }
            for first in &blocks {
                (*first..first + 30).for_each(|block| {
                    slab.set_incarnation(block * BLOCK_LINES, 77);
                    slab.store(block * BLOCK_LINES, 1, 88);
                });
            }
            if round % 2 == 0 {
                slab.publish();
            }
            if let Some(last) = slots.pop() {
                slab.give(last.1.line, last.0);
            }
            let taken: Vec<_> = slots.iter().map(|(lines, slot)| (*lines, slot.line)).collect();
            if round > 0 {
                assert_eq!(taken, before, "of the same memory");
            }
            before = taken;
            slab.end_all();
            assert!(slots.iter().all(|(_, slot)| !slab.is_current(*slot)));
            for first in &blocks {
                (*first..first + 30).for_each(|block| {
                    assert_eq!(incarnation_of(slab.load(block * BLOCK_LINES, 0)), 0);
                    assert_eq!(slab.load(block * BLOCK_LINES, 0) & LATCHED, 0);
                    assert_eq!(slab.load(block * BLOCK_LINES, 1), 0);
                });
            }
            assert_eq!(slab.live_bytes(), 0);
        }
    }

    #[test]
    fn the_space_ends_with_an_error() {
        let mut slab = Slab::new(HeapSpace::new(64 << 10, 256 << 10), Sizes::default());
        assert!(matches!(slab.take(2048), Err(Error::InvalidArgument(_))));
        let blocks = slab.take_blocks(100).unwrap();
        let taken = (0..).take_while(|_| slab.take(2).is_ok()).count();
        assert_eq!(taken, 2 * 1024 / 2);
        assert!(matches!(slab.take_blocks(100), Err(Error::Full { .. })));
        slab.give_blocks(blocks, 100);
        assert_eq!(slab.take_blocks(100).unwrap(), blocks);
    }
}
