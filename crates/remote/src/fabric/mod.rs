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
//!
//! `client::tcp::pieces` is the other one: it asks a host for pieces by messages.

mod mapped;

use crate::error::{Error, Result};

pub(crate) use crate::message::Place;
pub(crate) use mapped::MappedFabric;

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

    /// Returns true if a read takes as long as a call: then none is worth its while that only
    /// saves a host some work.
    fn is_far(&self) -> bool {
        false
    }
}

impl Image {
    /// The words of a piece, in the processor's byte order, and its guard while they were read;
    /// `None` for a piece that could not be read.
    pub(crate) fn piece(&self, index: usize) -> Option<(&[u64], u64)> {
        let piece = self.pieces.get(index)?;
        Some((self.words.get(piece.begin..piece.end)?, piece.guard?))
    }

    /// The guards of all pieces, and the bytes of those that could be read, side by side.
    pub(crate) fn to_bytes(&self) -> (Vec<Option<u64>>, Vec<u8>) {
        let guards = self.pieces.iter().map(|piece| piece.guard).collect();
        (guards, self.words.iter().flat_map(|word| word.to_le_bytes()).collect())
    }

    /// Adds pieces out of what [`Image::to_bytes`] returned elsewhere.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if they are not those of the places.
    pub(crate) fn append(
        &mut self,
        places: &[Place],
        guards: &[Option<u64>],
        bytes: &[u8],
    ) -> Result<()> {
        let read = places.iter().zip(guards).filter(|(_, guard)| guard.is_some());
        let len: u64 = read.map(|(place, _)| u64::from(place.len)).sum();
        let are_whole = places.iter().all(|place| place.len.is_multiple_of(8));
        if guards.len() != places.len() || len != bytes.len() as u64 || !are_whole {
            return Err(Error::invalid("other pieces of a region than were asked for"));
        }
        let mut begin = self.words.len();
        let words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        self.words.extend(words);
        for (place, guard) in places.iter().zip(guards) {
            let words = if guard.is_some() { place.len as usize / 8 } else { 0 };
            self.pieces.push(Piece { begin, end: begin + words, guard: *guard });
            begin += words;
        }
        Ok(())
    }

    /// Begins a read of these places.
    pub(crate) fn begin(&mut self, places: &[Place]) {
        self.words.clear();
        self.pieces.clear();
        self.counts.trips += 1;
        self.counts.reads += places.len() as u64;
        self.counts.bytes += places.iter().map(|place| u64::from(place.len)).sum::<u64>();
    }
}
