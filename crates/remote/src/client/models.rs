//! Keyspaces whose clients keep models: the assemblies that there are, behind one face.

use std::{ops::Bound, sync::Arc};

use arc_swap::Guard;

use super::{
    CacheBudget, Counts, Page, binned,
    keyspace::{Keyspace, Mapped},
    rdma::{RemoteFabric, RemoteReads},
    served::Claim,
    tcp::{MessageFabric, Pieces},
    two_stage,
};
use crate::{
    binned::{self as arrays, Verb},
    error::{Error, Result},
    fabric::{Extent, Fabric, Image, MappedFabric},
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
            let sizes = arrays::read_header(header)?;
            return Ok(Some(Self::Binned(binned::Caches::new(budget, sizes))));
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

    /// Records that a block of an array has room for; 0 where there are none.
    pub(super) fn block_records(&self) -> usize {
        match self {
            Self::TwoStage(_) => 0,
            Self::Binned(caches) => caches.block_records(),
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

/// What a get by models found: true if the key is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Pieces of the region say so.
    Read(bool),
    /// The host says so, which answers for keys that it serves alone.
    Told(bool),
}

/// What a handle reads by at one moment: models, and the region's pieces.
enum Held {
    Mapped(Guard<Arc<Mapped>>),
    Pieces(Guard<Arc<Pieces>>),
}

/// The way to the pieces of a region.
enum PieceRoute<'k> {
    Mapped(MappedFabric<'k>, &'k Mapped),
    Messages(MessageFabric<'k>),
    Remote(RemoteFabric<'k>),
}

impl PieceRoute<'_> {
    /// The generation of the keys that the host serves, after all that was read; `None` if that was
    /// nothing, or not to be read.
    fn generation(&self) -> Option<u64> {
        match self {
            Self::Mapped(_, mapped) => Some(mapped.generation()),
            // planted: reader-pieces-takes-every-host
            Self::Messages(fabric) => fabric.generation(),
            Self::Remote(fabric) => fabric.generation(),
        }
    }
}

impl Fabric for PieceRoute<'_> {
    fn read(&self, extents: &[Extent], image: &mut Image) -> Result<()> {
        match self {
            Self::Mapped(fabric, _) => fabric.read(extents, image),
            Self::Messages(fabric) => fabric.read(extents, image),
            Self::Remote(fabric) => fabric.read(extents, image),
        }
    }

    fn is_far(&self) -> bool {
        matches!(self, Self::Messages(_))
    }

    fn is_unordered(&self) -> bool {
        matches!(self, Self::Remote(_))
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
        // It looks at its device first.
        let _ = inner.remote(link);
        // A host that cannot be reached keeps the call that follows too, which says so.
        let opened = link.open(inner.name()).ok()?;
        if opened.generation != pieces.load().generation() {
            let next = pieces.load().again(&opened).ok()?;
            pieces.store(Arc::new(next));
        }
        Some(Held::Pieces(pieces.load()))
    }

    fn modelled<'m>(&'m self, held: &'m Held) -> Option<(PieceRoute<'m>, &'m Models)> {
        match held {
            Held::Mapped(mapped) => {
                let models = mapped.models()?;
                Some((PieceRoute::Mapped(mapped.fabric()?, mapped), models))
            }
            Held::Pieces(pieces) => {
                let (client, inner) = self.parts();
                let (link, connection) = (client.tcp()?, pieces.generation());
                let remote = inner.remote(link).filter(RemoteReads::may_read);
                let way = match remote {
                    Some(remote) => PieceRoute::Remote(RemoteFabric::new(remote, connection)),
                    None => PieceRoute::Messages(MessageFabric::new(link, inner, connection)),
                };
                Some((way, pieces.models()?))
            }
        }
    }

    /// Which keys the host is known to serve. Of a mapped region it is asked if that has changed;
    /// by messages a read brings the generation, so that nothing is asked before it.
    fn claim_of_held(&self, held: &Held) -> Claim {
        match held {
            Held::Mapped(mapped) => self.claim(mapped),
            Held::Pieces(pieces) => Claim::of(pieces.known()),
        }
    }

    /// Asks which keys the host serves for the reads that follow, where a read by messages found
    /// that they are others than were known. A mapped region's are asked for by the next read.
    fn learn_after(&self, held: &Held, claim: &Claim, seen: Option<u64>) {
        if let Held::Pieces(pieces) = held
            && seen != Some(claim.generation())
        {
            self.learn_ranges(pieces);
        }
    }

    /// Returns true if this handle reads by models.
    pub(super) fn has_models(&self) -> bool {
        self.held().is_some_and(|held| self.modelled(&held).is_some())
    }

    /// [`Keyspace::get_into`] of a keyspace whose clients keep models; `None` of another.
    pub(super) fn models_get(&self, key: &[u8], value: &mut Vec<u8>) -> Option<Result<bool>> {
        let held = self.held()?;
        let (way, models) = self.modelled(&held)?;
        let (begin, claim) = (value.len(), self.claim_of_held(&held));
        let found = match models {
            Models::TwoStage(caches) => self.two_stage_get(&way, caches, key, value),
            Models::Binned(caches) => self.binned_get(&way, caches, key, value),
        };
        match found {
            Ok(Found::Told(is_there)) => return Some(Ok(is_there)),
            Ok(Found::Read(is_there)) => {
                let seen = way.generation();
                // planted: reader-models-not-look-key
                if seen.is_some_and(|generation| claim.serves(generation, key)) {
                    return Some(Ok(is_there));
                }
                self.learn_after(&held, &claim, seen);
            }
            // Another host may have taken the place of the one that the models are of.
            Err(Error::Invalid(_)) => {}
            Err(error) => return Some(Err(error)),
        }
        value.truncate(begin);
        Some(self.call_get(key, value))
    }

    /// The values of several keys by RDMA, where clients keep models: `each` is called for those of
    /// which the host need not be asked. Returns the indexes of the others; `None` if keys are not
    /// read that way.
    ///
    /// # Errors
    ///
    /// What keeps RDMA from working, if the client does not fall back.
    pub(super) fn models_multi_get(
        &self,
        keys: &[&[u8]],
        mut each: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<Option<Vec<usize>>> {
        let Some(held) = self.held() else { return Ok(None) };
        let Some((way, models)) = self.modelled(&held) else { return Ok(None) };
        let PieceRoute::Remote(fabric) = &way else { return Ok(None) };
        let (claim, mut values) = (self.claim_of_held(&held), vec![None; keys.len()]);
        let keep = |index: usize, value: Option<&[u8]>| {
            values[index] = Some(value.map(<[u8]>::to_vec));
        };
        let read = match models {
            Models::TwoStage(caches) => self.two_stage_multi_get(fabric, caches, keys, keep),
            Models::Binned(caches) => self.binned_multi_get(fabric, caches, keys, keep),
        };
        match read {
            Err(Error::Invalid(_)) => return Ok(None),
            read => drop(read?),
        }
        let seen = way.generation();
        let mut missed = Vec::new();
        for (index, value) in values.into_iter().enumerate() {
            let is_served = seen.is_some_and(|seen| claim.serves(seen, keys[index]));
            match value.filter(|_| is_served) {
                Some(value) => each(index, value.as_deref()),
                None => missed.push(index),
            }
        }
        Ok(Some(missed))
    }

    /// A part of a range upwards; `None` if the host must be asked.
    pub(super) fn models_page(&self, from: Bound<&[u8]>) -> Option<Page> {
        let held = self.held()?;
        let (way, models) = self.modelled(&held)?;
        let claim = self.claim_of_held(&held);
        let above;
        let first = match from {
            Bound::Unbounded => &[],
            Bound::Included(key) => key,
            Bound::Excluded(key) => {
                above = [key, &[0][..]].concat();
                &above[..]
            }
        };
        let page = match models {
            Models::TwoStage(caches) => {
                self.two_stage_page(&way, caches, first).map(|page| (page, false))
            }
            Models::Binned(caches) => {
                match self.binned_page(&way, caches, first, claim.end_of(from)) {
                    Err(Error::Moved { .. }) => {
                        self.learn_after(&held, &claim, None);
                        return None;
                    }
                    page => page.ok(),
                }
            }
        };
        let (seen, (mut page, is_told)) = (way.generation(), page?);
        if seen.map_or(is_told, |generation| generation == claim.generation()) {
            // planted: page-models-goes-beyond-range
            return claim.clip(&mut page, from, false).then_some(page);
        }
        self.learn_after(&held, &claim, seen);
        None
    }

    /// Sets the value of a key, or removes it, with what models say of its place; `None` if there
    /// are no models.
    pub(super) fn models_write(&self, key: &[u8], value: Option<&[u8]>) -> Option<Result<()>> {
        let held = self.held()?;
        let (way, models) = self.modelled(&held)?;
        Some(match models {
            Models::TwoStage(caches) => self.two_stage_write(caches, key, value),
            Models::Binned(caches) => {
                let (verb, value) =
                    value.map_or((Verb::Remove, &[][..]), |value| (Verb::Put, value));
                self.binned_write(&way, caches, verb, key, value)
            }
        })
    }
}
