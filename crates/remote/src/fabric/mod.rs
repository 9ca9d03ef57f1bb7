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
//! There are two more: `client::tcp::pieces` asks a host for pieces by messages, and `client::rdma`
//! has a device read them. The device keeps no order between the lines of a read, so that a guard
//! says nothing of its piece: what comes that way proves itself by checksums, or counts for
//! nothing.

mod mapped;
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) mod torn;

use crate::error::{Error, Result};
#[cfg(any(test, all(feature = "rdma", target_os = "linux")))]
use crate::layout::format::LATCHED;

pub(crate) use crate::message::Extent;
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
    fn read(&self, extents: &[Extent], image: &mut Image) -> Result<()>;

    /// Returns true if a read takes as long as a call: then none is worth its while that only
    /// saves a host some work.
    fn is_far(&self) -> bool {
        false
    }

    /// Returns true if the lines of a piece may be of different moments, and its guard of another.
    fn is_unordered(&self) -> bool {
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
    /// [`Error::Invalid`] if they are not those of the extents.
    pub(crate) fn append(
        &mut self,
        extents: &[Extent],
        guards: &[Option<u64>],
        bytes: &[u8],
    ) -> Result<()> {
        let read = extents.iter().zip(guards).filter(|(_, guard)| guard.is_some());
        let len: u64 = read.map(|(extent, _)| u64::from(extent.len)).sum();
        let are_whole = extents.iter().all(|extent| extent.len.is_multiple_of(8));
        if guards.len() != extents.len() || len != bytes.len() as u64 || !are_whole {
            return Err(Error::invalid("other pieces of a region than were asked for"));
        }
        let mut begin = self.words.len();
        let words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        self.words.extend(words);
        for (extent, guard) in extents.iter().zip(guards) {
            let words = if guard.is_some() { extent.len as usize / 8 } else { 0 };
            self.pieces.push(Piece { begin, end: begin + words, guard: *guard });
            begin += words;
        }
        Ok(())
    }

    /// Adds the pieces of a read without order: `words` has those of each extent, and then those of
    /// [`guards_apart`].
    #[cfg(any(test, all(feature = "rdma", target_os = "linux")))]
    pub(crate) fn fill_unordered<'w>(
        &mut self,
        extents: &[Extent],
        words: impl Fn(usize) -> Option<&'w [u64]>,
    ) {
        let mut apart = extents.len()..;
        for (index, extent) in extents.iter().enumerate() {
            let found = words(index);
            let guard = match guard_in(extent) {
                _ if extent.guard == Extent::NO_GUARD => found.map(|_| 0),
                Some(at) => found.and_then(|words| words.get(at).copied()),
                None => apart.next().and_then(&words).and_then(|words| words.first().copied()),
            };
            let found = found.unwrap_or_default();
            let begin = self.words.len();
            self.words.extend_from_slice(found);
            let guard = guard.filter(|guard| guard & LATCHED == 0);
            self.pieces.push(Piece { begin, end: begin + found.len(), guard });
        }
    }

    /// Begins a read of these extents.
    pub(crate) fn begin(&mut self, extents: &[Extent]) {
        self.words.clear();
        self.pieces.clear();
        self.counts.trips += 1;
        self.counts.reads += extents.len() as u64;
        self.counts.bytes += extents.iter().map(|extent| u64::from(extent.len)).sum::<u64>();
    }
}

/// The extents that one trip brings: at most this many, and no more bytes than this but for a
/// single larger one; and the others.
pub(crate) fn split_trip(
    extents: &[Extent],
    most: usize,
    bytes_max: u64,
) -> (&[Extent], &[Extent]) {
    let mut bytes = 0;
    let some = extents.iter().take(most).take_while(|extent| {
        bytes += u64::from(extent.len);
        bytes <= bytes_max
    });
    extents.split_at(some.count().max(1).min(extents.len()))
}

/// The word of a piece that is its guard, if it has it.
#[cfg(any(test, all(feature = "rdma", target_os = "linux")))]
fn guard_in(extent: &Extent) -> Option<usize> {
    let word = extent.guard.checked_sub(extent.at)? / 8;
    (word < u64::from(extent.len / 8)).then_some(word as usize)
}

/// The extents of guards that are not in the pieces that they guard.
#[cfg(any(test, all(feature = "rdma", target_os = "linux")))]
pub(crate) fn guards_apart(extents: &[Extent]) -> Vec<Extent> {
    let is_apart =
        |extent: &&Extent| extent.guard != Extent::NO_GUARD && guard_in(extent).is_none();
    let guard =
        |extent: &Extent| Extent { at: extent.guard, len: 8, guard: Extent::NO_GUARD, ..*extent };
    extents.iter().filter(is_apart).map(guard).collect()
}
