//! Pieces of a region that is read by messages: where clients keep models, and cannot map it.

use std::cell::Cell;

use super::{
    super::{CacheBudget, connection::unexpected, keyspace::Inner as Keyspace, models::Models},
    Link, Opened,
    link::Shape,
};
use crate::{
    error::{Error, Result},
    fabric::{Fabric, Image, Place},
    message::{Reply, Request},
};

/// Places of one message: some milliseconds' work of the host at most.
const PLACES_MAX: usize = 4_096;
/// Bytes of the pieces of one message, but for a single larger one: what a connection holds at
/// most, and enough that the round trip does not matter.
const PIECES_BYTES: u64 = 256 << 10;

/// What a client keeps of a keyspace that it reads piece by piece.
pub(in crate::client) struct Pieces {
    /// Which of the link's connections it was opened in: the next host may know nothing of what
    /// this one said.
    generation: u64,
    budget: CacheBudget,
    /// `None` if the host shares it in another way by now.
    models: Option<Models>,
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
        Ok(Self { generation: opened.generation, budget, models })
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
}

impl std::fmt::Debug for Pieces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pieces").field("generation", &self.generation).finish_non_exhaustive()
    }
}

/// Reads a region by messages to its host.
#[derive(Clone, Copy)]
pub(in crate::client) struct MessageFabric<'k> {
    link: &'k Link,
    keyspace: &'k Keyspace,
    generation: u64,
}

impl<'k> MessageFabric<'k> {
    /// A fabric of a keyspace as it was opened in one connection.
    pub(in crate::client) fn new(link: &'k Link, keyspace: &'k Keyspace, generation: u64) -> Self {
        Self { link, keyspace, generation }
    }

    /// Reads some of the pieces, after those that are in the image.
    fn read_some(&self, places: &[Place], image: &mut Image) -> Result<()> {
        let generation = Cell::new(0);
        let request = |opened: &Opened| {
            generation.set(opened.generation);
            Request::Pieces { keyspace: opened.number, places: places.to_vec() }
        };
        self.link.call(self.keyspace, true, request, |reply| match reply {
            Reply::Pieces { guards, bytes } => image.append(places, &guards, bytes),
            other => Err(unexpected(&other)),
        })?;
        if generation.get() != self.generation {
            // What led here was said by another host.
            return Err(Error::invalid("pieces of another connection"));
        }
        Ok(())
    }
}

impl Fabric for MessageFabric<'_> {
    fn read(&self, places: &[Place], image: &mut Image) -> Result<()> {
        image.begin(places);
        let mut left = places;
        while !left.is_empty() {
            let mut bytes = 0;
            let some = left.iter().take(PLACES_MAX).take_while(|place| {
                bytes += u64::from(place.len);
                bytes <= PIECES_BYTES
            });
            let (some, others) = left.split_at(some.count().max(1));
            self.read_some(some, image)?;
            left = others;
        }
        Ok(())
    }

    fn is_far(&self) -> bool {
        true
    }
}
