//! Placement: which block of a segment a key goes to, in integers, the same when the table is
//! written and when it is read.

use rhumb_model::Line;

/// Positions are in 1/64 of a block, so that a line can start inside a block.
const FRACTION_BITS: u32 = 6;
/// The number of positions in a block.
pub(super) const BLOCK_UNITS: i64 = 1 << FRACTION_BITS;

/// The model of one segment: its keys agree on the first `skip` bytes, and the code of what
/// follows them says which of its `blocks` blocks they are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Placement {
    /// Positions in 1/64 of a block.
    pub(super) line: Line,
    pub(super) skip: u32,
    /// At least 1.
    pub(super) blocks: u32,
}

impl Placement {
    /// All keys in one block.
    pub(super) const SINGLE: Self =
        Self { line: Line { x0: 0, y0: 0, mantissa: 0, shift: 0 }, skip: 0, blocks: 1 };

    /// The block, counted from the segment's first, of a key with this code. Monotone.
    #[inline]
    pub(super) fn block_of_code(&self, code: u64) -> u32 {
        let block = self.line.at(code) >> FRACTION_BITS;
        block.min(u64::from(self.blocks - 1)) as u32
    }

    /// The block of a key with this code, and about how far into it the key is, in parts of
    /// [`BLOCK_UNITS`].
    #[inline]
    pub(super) fn place_of_code(&self, code: u64) -> (u32, u32) {
        let units = self.line.at(code);
        let last = u64::from(self.blocks - 1);
        if units >> FRACTION_BITS > last {
            return (last as u32, BLOCK_UNITS as u32 - 1);
        }
        ((units >> FRACTION_BITS) as u32, (units as u32) & (BLOCK_UNITS as u32 - 1))
    }
}
