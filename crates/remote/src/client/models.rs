//! Keyspaces whose clients keep models: the assemblies that there are, behind one face.

use std::{ops::Bound, sync::Arc};

use arc_swap::Guard;

use super::{
    CacheBudget, Counts, Page, binned,
    keyspace::{Keyspace, Mapped},
    tcp::{MessageFabric, Pieces},
    two_stage,
};
use crate::{
    binned::{self as arrays, Verb},
    error::{Error, Result},
    fabric::{Fabric, Image, MappedFabric, Place},
    host::Preset,
    message::{GetCounts, HEADER_WORDS},
    two_stage::is_header,
};

/// What clients keep of a keyspace, by how it is made.
pub(super) enum Models {
    /// Two stages of models, and tables of leaves.
    TwoStage(two_stage::Caches),
    /// Lines over trained arrays.
    Binned(binned::Caches),
}

impl Models {
    /// What is to be kept of a region that begins like this; `None` if nothing is.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`](crate::Error::Invalid) for a region of another version.
    pub(super) fn of(header: &[u64; HEADER_WORDS], budget: CacheBudget) -> Result<Option<Self>> {
        if is_header(header) {
            return Ok(Some(Self::TwoStage(two_stage::Caches::new(budget))));
        }
        if arrays::is_header(header) {
            arrays::check_header(header)?;
            return Ok(Some(Self::Binned(binned::Caches::new(budget))));
        }
        Ok(None)
    }

    /// How the keyspace is made.
    pub(super) fn preset(&self) -> Preset {
        match self {
            Self::TwoStage(_) => Preset::XStore,
            Self::Binned(_) => Preset::FineStore,
        }
    }

    /// How gets went, with the number of those that were calls.
    pub(super) fn get_counts(&self, calls: u64) -> GetCounts {
        match self {
            Self::TwoStage(caches) => caches.get_counts(),
            Self::Binned(caches) => {
                let counts = caches.add_to(Counts::default());
                let one_read = counts.reads.saturating_sub(counts.stale + calls);
                let (reads, bytes) = (counts.region_reads, counts.bytes_received);
                GetCounts::of([one_read, 0, 0, counts.stale, calls, reads, bytes])
            }
        }
    }

    /// Adds what reads have cost, and the bytes that are kept. Where reads are messages, these are
    /// counted already.
    pub(super) fn add_to(&self, counts: Counts, are_messages: bool) -> Counts {
        let (trips, bytes) = (counts.round_trips, counts.bytes_received);
        let mut counts = match self {
            Self::TwoStage(caches) => caches.add_to(counts),
            Self::Binned(caches) => caches.add_to(counts),
        };
        if are_messages {
            (counts.round_trips, counts.bytes_received) = (trips, bytes);
        }
        counts
    }
}

/// What a handle reads by at one moment: models, and the region's pieces.
enum Held {
    Mapped(Guard<Arc<Mapped>>),
    Pieces(Guard<Arc<Pieces>>),
}

/// The way to the pieces of a region.
enum Way<'k> {
    Mapped(MappedFabric<'k>),
    Messages(MessageFabric<'k>),
}

impl Fabric for Way<'_> {
    fn read(&self, places: &[Place], image: &mut Image) -> Result<()> {
        match self {
            Self::Mapped(fabric) => fabric.read(places, image),
            Self::Messages(fabric) => fabric.read(places, image),
        }
    }

    fn is_far(&self) -> bool {
        matches!(self, Self::Messages(_))
    }
}

impl Keyspace {
    /// What there is to read by; `None` if that is nothing, or the host must be asked.
    fn held(&self) -> Option<Held> {
        if self.reads.by_calls {
            return None;
        }
        if let Some(mapped) = self.mapped() {
            return Some(Held::Mapped(mapped));
        }
        let (client, inner) = self.parts();
        let (pieces, link) = (inner.pieces()?, client.tcp()?);
        // A host that cannot be reached keeps the call that follows too, which says so.
        let opened = link.open(inner.name()).ok()?;
        if opened.generation != pieces.load().generation() {
            let next = pieces.load().again(&opened).ok()?;
            pieces.store(Arc::new(next));
        }
        Some(Held::Pieces(pieces.load()))
    }

    fn modelled<'m>(&'m self, held: &'m Held) -> Option<(Way<'m>, &'m Models)> {
        match held {
            Held::Mapped(mapped) => {
                let models = mapped.models()?;
                Some((Way::Mapped(mapped.fabric()?), models))
            }
            Held::Pieces(pieces) => {
                let (client, inner) = self.parts();
                let fabric = MessageFabric::new(client.tcp()?, inner, pieces.generation());
                Some((Way::Messages(fabric), pieces.models()?))
            }
        }
    }

    /// Returns true if this handle reads by models.
    pub(super) fn has_models(&self) -> bool {
        self.held().is_some_and(|held| self.modelled(&held).is_some())
    }

    /// [`Keyspace::get_into`] of a keyspace whose clients keep models; `None` of another.
    pub(super) fn models_get(&self, key: &[u8], value: &mut Vec<u8>) -> Option<Result<bool>> {
        let held = self.held()?;
        let (fabric, models) = self.modelled(&held)?;
        let begin = value.len();
        let found = match models {
            Models::TwoStage(caches) => self.two_stage_get(&fabric, caches, key, value),
            Models::Binned(caches) => self.binned_get(&fabric, caches, key, value),
        };
        Some(match found {
            // Another host may have taken the place of the one that the models are of.
            Err(Error::Invalid(_)) => {
                value.truncate(begin);
                self.call_get(key, value)
            }
            found => found,
        })
    }

    /// A part of a range upwards; `None` if the host must be asked.
    pub(super) fn models_page(&self, from: Bound<&[u8]>) -> Option<Page> {
        let held = self.held()?;
        let (fabric, models) = self.modelled(&held)?;
        let above;
        let from = match from {
            Bound::Unbounded => &[],
            Bound::Included(key) => key,
            Bound::Excluded(key) => {
                above = [key, &[0][..]].concat();
                &above[..]
            }
        };
        match models {
            Models::TwoStage(caches) => self.two_stage_page(&fabric, caches, from),
            Models::Binned(caches) => self.binned_page(&fabric, caches, from),
        }
    }

    /// Sets the value of a key, or removes it, with what models say of its place; `None` if there
    /// are no models.
    pub(super) fn models_write(&self, key: &[u8], value: Option<&[u8]>) -> Option<Result<()>> {
        let held = self.held()?;
        let (fabric, models) = self.modelled(&held)?;
        Some(match models {
            Models::TwoStage(caches) => self.two_stage_write(caches, key, value),
            Models::Binned(caches) => {
                let (verb, value) =
                    value.map_or((Verb::Remove, &[][..]), |value| (Verb::Put, value));
                self.binned_write(&fabric, caches, verb, key, value)
            }
        })
    }
}
