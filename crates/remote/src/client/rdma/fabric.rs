//! Pieces of a region whose clients keep models, as a device brings them.

use std::cell::Cell;

use super::RemoteReads;
use crate::{
    error::{Error, Result},
    fabric::{Extent, Fabric, Image, guards_apart, split_trip},
    primitive::{AtomicU64, Ordering},
};

/// Places of one trip: some milliseconds' work of the device at most.
const PLACES_MAX: usize = 1_024;
/// Bytes of the pieces of one trip, but for a single larger one: the memory of a queue pair is
/// locked for as long as that lives, and beside this much the trip itself does not matter.
const PIECES_BYTES: u64 = 256 << 10;

/// Reads a region by RDMA. What comes proves itself, or counts for nothing.
pub(in crate::client) struct RemoteFabric<'k> {
    reads: RemoteReads<'k>,
    /// Which of the link's connections its pieces are of.
    connection: u64,
    has_read: Cell<bool>,
}

impl<'k> RemoteFabric<'k> {
    /// A fabric of a keyspace as it was opened in one connection.
    pub(in crate::client) fn new(reads: RemoteReads<'k>, connection: u64) -> Self {
        Self { reads, connection, has_read: Cell::new(false) }
    }

    /// The generation of the keys that the host serves, after all that was read: no other is read.
    /// `None` if nothing was.
    pub(in crate::client) fn generation(&self) -> Option<u64> {
        self.has_read.get().then_some(0)
    }

    /// Reads some of the pieces, after those that are in the image.
    fn read_some(&self, extents: &[Extent], image: &mut Image) -> Result<()> {
        let wanted = [extents, &guards_apart(extents)].concat();
        let mut words: Vec<AtomicU64> = Vec::new();
        let is_there = self.reads.bring_pieces(self.connection, &wanted, &mut words)?;
        let words: Vec<u64> =
            words.iter().map(|word| u64::from_le(word.load(Ordering::Relaxed))).collect();
        let (mut at, mut pieces) = (0, Vec::with_capacity(wanted.len()));
        for (extent, is_there) in wanted.iter().zip(is_there) {
            let end = if is_there { at + extent.len as usize / 8 } else { at };
            pieces.push(is_there.then_some(at..end));
            at = end;
        }
        image.fill_unordered(extents, |index| {
            let range = pieces.get(index)?.clone()?;
            words.get(range)
        });
        self.has_read.set(true);
        Ok(())
    }
}

impl Fabric for RemoteFabric<'_> {
    fn read(&self, extents: &[Extent], image: &mut Image) -> Result<()> {
        image.begin(extents);
        if extents
            .iter()
            .any(|extent| !extent.len.is_multiple_of(8) || !extent.at.is_multiple_of(8))
        {
            return Err(Error::invalid("a piece that does not begin or end with a word"));
        }
        let mut left = extents;
        while !left.is_empty() {
            let (some, others) = split_trip(left, PLACES_MAX, PIECES_BYTES);
            self.read_some(some, image)?;
            left = others;
        }
        Ok(())
    }

    fn is_unordered(&self) -> bool {
        true
    }
}
