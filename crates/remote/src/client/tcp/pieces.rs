//! Pieces of a region that is read by messages: where clients keep models, and cannot map it.
//!
//! The last piece of every message is the generation of the keys that the host serves. The host
//! reads pieces one after the other, so that the generation of the last message of a read is one
//! that came after all that was read.

use std::cell::Cell;

use arc_swap::ArcSwap;

use super::{
    super::{
        CacheBudget, connection::unexpected, keyspace::KeyspaceInner as Keyspace, models::Models,
        served::ServedKeys,
    },
    Link, Opened,
    link::Shape,
};
use crate::{
    error::{Error, Result},
    fabric::{Extent, Fabric, Image, split_trip},
    layout::format::control,
    message::{Part, Reply, Request},
};

/// Places of one message: some milliseconds' work of the host at most.
const PLACES_MAX: usize = 4_096;
/// Bytes of the pieces of one message, but for a single larger one: what a connection holds at
/// most, and enough that the round trip does not matter.
const PIECES_BYTES: u64 = 256 << 10;

/// Where the generation of the keys that the host serves is.
const GENERATION: Extent = Extent {
    part: Part::Control,
    at: control::GENERATION as u64 * 8,
    len: 8,
    guard: control::GUARD as u64 * 8,
};

/// What a client keeps of a keyspace that it reads piece by piece.
pub(in crate::client) struct Pieces {
    /// Which of the link's connections it was opened in: the next host may know nothing of what
    /// this one said.
    generation: u64,
    budget: CacheBudget,
    /// `None` if the host shares it in another way by now.
    models: Option<Models>,
    /// Which keys the host serves.
    known: ArcSwap<ServedKeys>,
}

impl Pieces {
    /// What is to be kept of a keyspace that was opened.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a region of another version.
    pub(in crate::client) fn new(opened: &Opened, budget: CacheBudget) -> Result<Self> {
        let models = match &opened.shape {
            Shape::Runs(_) => None,
            Shape::Pieces(header) => Models::of(header, budget)?,
        };
        let (generation, known) = (opened.generation, ArcSwap::default());
        Ok(Self { generation, budget, models, known })
    }

    /// What is to be kept once the keyspace was opened in another connection.
    ///
    /// # Errors
    ///
    /// As [`Pieces::new`].
    pub(in crate::client) fn again(&self, opened: &Opened) -> Result<Self> {
        Self::new(opened, self.budget)
    }

    pub(in crate::client) fn generation(&self) -> u64 {
        self.generation
    }

    pub(in crate::client) fn models(&self) -> Option<&Models> {
        self.models.as_ref()
    }

    /// Which keys the host serves, as far as this client knows.
    pub(in crate::client) fn known(&self) -> &ArcSwap<ServedKeys> {
        &self.known
    }
}

impl std::fmt::Debug for Pieces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pieces").field("generation", &self.generation).finish_non_exhaustive()
    }
}

/// Reads a region by messages to its host.
pub(in crate::client) struct MessageFabric<'k> {
    link: &'k Link,
    keyspace: &'k Keyspace,
    /// Which of the link's connections its pieces are of.
    connection: u64,
    /// The generation of the served keys in the last message, if it was among its pieces.
    seen: Cell<Option<u64>>,
}

impl<'k> MessageFabric<'k> {
    /// A fabric of a keyspace as it was opened in one connection.
    pub(in crate::client) fn new(link: &'k Link, keyspace: &'k Keyspace, connection: u64) -> Self {
        Self { link, keyspace, connection, seen: Cell::new(None) }
    }

    /// The generation of the keys that the host serves, after all that was read; `None` if nothing
    /// was read, or the region answers for nothing.
    pub(in crate::client) fn generation(&self) -> Option<u64> {
        self.seen.get()
    }

    /// Reads some of the pieces, after those that are in the image, and the generation after them.
    fn read_some(&self, extents: &[Extent], image: &mut Image) -> Result<()> {
        let connection = Cell::new(0);
        let request = |opened: &Opened| {
            connection.set(opened.generation);
            // planted: generation-first-piece-message-not
            let extents = extents.iter().chain([&GENERATION]).copied().collect();
            Request::Pieces { keyspace: opened.number, extents }
        };
        let seen = self.link.call(self.keyspace, true, request, |reply| match reply {
            Reply::Pieces { guards, bytes } => split_last(&guards, bytes)
                .ok_or_else(|| Error::invalid("fewer pieces of a region than were asked for"))
                .and_then(|(guards, bytes, seen)| {
                    image.append(extents, guards, bytes).map(|()| seen)
                }),
            other => Err(unexpected(&other)),
        })?;
        if connection.get() != self.connection {
            // What led here was said by another host.
            return Err(Error::invalid("pieces of another connection"));
        }
        self.seen.set(seen);
        Ok(())
    }
}

/// The pieces but the last, which is a word; and that word, if it could be read.
#[expect(clippy::type_complexity, reason = "it is taken apart at once")]
fn split_last<'r>(
    guards: &'r [Option<u64>],
    bytes: &'r [u8],
) -> Option<(&'r [Option<u64>], &'r [u8], Option<u64>)> {
    let (last, guards) = guards.split_last()?;
    if last.is_none() {
        return Some((guards, bytes, None));
    }
    let (bytes, word) = bytes.split_last_chunk()?;
    Some((guards, bytes, Some(u64::from_le_bytes(*word))))
}

impl Fabric for MessageFabric<'_> {
    fn read(&self, extents: &[Extent], image: &mut Image) -> Result<()> {
        image.begin(extents);
        let mut left = extents;
        while !left.is_empty() {
            let (some, others) = split_trip(left, PLACES_MAX, PIECES_BYTES);
            self.read_some(some, image)?;
            left = others;
        }
        Ok(())
    }

    fn is_far(&self) -> bool {
        true
    }
}
