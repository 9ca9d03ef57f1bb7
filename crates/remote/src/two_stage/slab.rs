//! Which lines of the control part are free.
//!
//! Lines are handed out in pieces of fixed sizes, and a piece keeps its size for ever: the guard of
//! a record is at the same place in whatever the piece holds next.

use std::collections::BTreeMap;

use super::layout::FIRST_LINE;
use crate::{error::Result, host::Space, layout::format::LINE_BYTES};

/// The lines that were never handed out.
pub(super) struct Tail(u32);

impl Tail {
    /// All but the header's.
    pub(super) fn new() -> Self {
        Self(FIRST_LINE)
    }

    fn take(&mut self, lines: u32, space: &impl Space) -> Result<u32> {
        let end = (self.0 as usize + lines as usize) * LINE_BYTES;
        let len = space.words().len() * 8;
        if end > len {
            space.grow(end - len)?;
        }
        let first = self.0;
        self.0 += lines;
        Ok(first)
    }
}

/// Pieces of one use that are free.
#[derive(Default)]
pub(super) struct Slab {
    /// First lines by the number of lines.
    free: BTreeMap<u32, Vec<u32>>,
}

impl Slab {
    /// The first line of a piece of at least `lines` lines.
    ///
    /// # Errors
    ///
    /// Those of [`Space::grow`].
    pub(super) fn take(&mut self, lines: u32, tail: &mut Tail, space: &impl Space) -> Result<u32> {
        let size = piece(lines);
        match self.free.get_mut(&size).and_then(Vec::pop) {
            Some(first) => Ok(first),
            None => tail.take(size, space),
        }
    }

    /// Gives a piece back that was taken for this number of lines.
    pub(super) fn give(&mut self, first: u32, lines: u32) {
        self.free.entry(piece(lines)).or_default().push(first);
    }
}

/// The size of the piece that holds this many lines: powers of two, and halfway between them.
fn piece(lines: u32) -> u32 {
    let power = lines.max(1).next_power_of_two();
    let halfway = power / 4 * 3;
    if lines <= halfway { halfway } else { power }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::host::heap::HeapSpace;

    #[test]
    fn pieces_keep_their_size() {
        let sizes: Vec<u32> = [1, 2, 3, 4, 5, 7, 9, 13].map(piece).to_vec();
        assert_eq!(sizes, [1, 2, 3, 4, 6, 8, 12, 16]);
        let (mut tail, mut slab, space) =
            (Tail::new(), Slab::default(), HeapSpace::new(64, 1 << 10));
        let one = slab.take(5, &mut tail, &space).unwrap();
        assert_eq!((one, slab.take(1, &mut tail, &space).unwrap()), (FIRST_LINE, FIRST_LINE + 6));
        slab.give(one, 5);
        assert_eq!(slab.take(6, &mut tail, &space).unwrap(), one);
        assert!(slab.take(4, &mut tail, &space).is_err());
    }
}
