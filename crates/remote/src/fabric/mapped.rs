//! A region that is mapped in this process.

use super::{Extent, Fabric, Image, Piece};
use crate::{
    error::Result,
    leaf::read_noting,
    message::Part,
    primitive::{AtomicU64, IS_MODEL, Ordering, spin_loop},
};

/// Looks at one piece that changes meanwhile: a change takes tens of nanoseconds, as a look does.
const LOOKS_MAX: u32 = if IS_MODEL { 2 } else { 16 };

/// Reads the two parts of a region where they lie.
#[derive(Clone, Copy)]
pub(crate) struct MappedFabric<'r> {
    control: &'r [AtomicU64],
    leaves: &'r [AtomicU64],
}

impl<'r> MappedFabric<'r> {
    /// A fabric of what is mapped.
    pub(crate) fn new(control: &'r [AtomicU64], leaves: &'r [AtomicU64]) -> Self {
        Self { control, leaves }
    }

    /// The words from byte `at` on; `None` if they are not all in the part.
    fn words(&self, part: Part, at: u64, len: u32) -> Option<&'r [AtomicU64]> {
        let words = match part {
            Part::Control => self.control,
            Part::Leaves => self.leaves,
        };
        if !at.is_multiple_of(8) || !len.is_multiple_of(8) {
            return None;
        }
        let begin = usize::try_from(at / 8).ok()?;
        words.get(begin..begin.checked_add(len as usize / 8)?)
    }

    fn piece(&self, extent: &Extent, out: &mut Vec<u64>) -> Option<u64> {
        let words = self.words(extent.part, extent.at, extent.len)?;
        let guard = self.words(extent.part, extent.guard, 8)?;
        let begin = out.len();
        for _ in 0..LOOKS_MAX {
            let seen = read_noting(guard, || {
                out.extend(words.iter().map(|word| u64::from_le(word.load(Ordering::Relaxed))));
            });
            if let Some(((), state)) = seen {
                return Some(u64::from_le(state));
            }
            out.truncate(begin);
            spin_loop();
        }
        None
    }
}

impl Fabric for MappedFabric<'_> {
    fn read(&self, extents: &[Extent], image: &mut Image) -> Result<()> {
        image.begin(extents);
        for extent in extents {
            let begin = image.words.len();
            let guard = self.piece(extent, &mut image.words);
            image.pieces.push(Piece { begin, end: image.words.len(), guard });
        }
        Ok(())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::fabric::MappedFabric;

    #[test]
    fn pieces_come_with_their_guards_in_one_trip() {
        let words = |values: &[u64]| -> Vec<AtomicU64> {
            values.iter().map(|value| AtomicU64::new(value.to_le())).collect()
        };
        // The second piece's guard says that it is being written.
        let (control, leaves) = (words(&[4, 10, 11]), words(&[6, 20, 7, 30]));
        let fabric = MappedFabric::new(&control, &leaves);
        let extent = |part, at, len, guard| Extent { part, at, len, guard };
        let extents = [
            extent(Part::Leaves, 8, 8, 0),
            extent(Part::Leaves, 24, 8, 16),
            extent(Part::Control, 8, 16, 0),
            extent(Part::Control, 8, 24, 0),
            extent(Part::Control, 4, 8, 0),
            extent(Part::Control, 8, 8, 24),
            extent(Part::Control, u64::MAX - 7, 8, 0),
        ];
        let mut image = Image::default();
        for trip in 1..3 {
            fabric.read(&extents, &mut image).unwrap();
            assert_eq!(image.piece(0), Some((&[20][..], 6)));
            assert_eq!(image.piece(2), Some((&[10, 11][..], 4)));
            for unread in [1, 3, 4, 5, 6, 7] {
                assert_eq!(image.piece(unread), None);
            }
            let counts = image.counts;
            assert_eq!((counts.reads, counts.bytes, counts.trips), (7 * trip, 80 * trip, trip));
        }
    }
}
