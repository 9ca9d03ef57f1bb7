//! Reading pieces of a host's region, by whatever way the region is reached.
//!
//! An assembly whose clients keep a copy of the models says which pieces it wants; a *fabric*
//! brings them, all in one round trip. It knows words and nothing of what they mean, but for one
//! thing: a piece has a *guard*, a word that is odd while its host changes the piece and that is
//! another word afterwards. Where a fabric can, it reads the guard before and after the piece.
//!
//! | module | for | must never |
//! | --- | --- | --- |
//! | `mapped` | a region in this process' memory | call |

mod mapped;

use crate::{error::Result, message::Part};

pub(crate) use mapped::MappedFabric;

/// A piece of a region. Offsets and lengths are in bytes and multiples of 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) part: Part,
    /// Where it begins in the part.
    pub(crate) at: u64,
    pub(crate) len: u32,
    /// Where its guard is in the part.
    pub(crate) guard: u64,
}

/// Pieces that were read, in the order in which they were asked for. One image serves any number
/// of reads, and counts them.
#[derive(Debug, Default)]
pub(crate) struct Image {
    words: Vec<u64>,
    pieces: Vec<Piece>,
    pub(crate) counts: ReadCounts,
}

/// What a piece was found to be.
#[derive(Clone, Copy, Debug)]
struct Piece {
    begin: usize,
    end: usize,
    guard: Option<u64>,
}

/// What reads cost, wherever the region is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadCounts {
    /// Pieces.
    pub(crate) reads: u64,
    /// Bytes of the pieces.
    pub(crate) bytes: u64,
    /// Times that a client had to wait: pieces that are asked for together count once.
    pub(crate) trips: u64,
}

/// A way to read a region without its host's help.
pub(crate) trait Fabric {
    /// Reads pieces into `image`, in place of what was there. A piece that lies outside of the
    /// region, or never stood still, has no guard afterwards.
    ///
    /// # Errors
    ///
    /// Those of a connection, where there is one.
    fn read(&self, places: &[Place], image: &mut Image) -> Result<()>;
}

impl Image {
    /// The words of a piece, in the processor's byte order, and its guard while they were read;
    /// `None` for a piece that could not be read.
    pub(crate) fn piece(&self, index: usize) -> Option<(&[u64], u64)> {
        let piece = self.pieces.get(index)?;
        Some((self.words.get(piece.begin..piece.end)?, piece.guard?))
    }

    /// Begins a read of these places.
    fn begin(&mut self, places: &[Place]) {
        self.words.clear();
        self.pieces.clear();
        self.counts.trips += 1;
        self.counts.reads += places.len() as u64;
        self.counts.bytes += places.iter().map(|place| u64::from(place.len)).sum::<u64>();
    }
}
