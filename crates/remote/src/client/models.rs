//! Keyspaces whose clients keep models: the assemblies that there are, behind one face.

use std::{ops::Bound, sync::Arc};

use super::{
    CacheBudget, Counts, Page, binned,
    keyspace::{Keyspace, Mapped},
    two_stage,
};
use crate::{
    binned::{self as arrays, Verb},
    error::Result,
    fabric::MappedFabric,
    primitive::AtomicU64,
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
    pub(super) fn of(control: &[AtomicU64], budget: CacheBudget) -> Result<Option<Self>> {
        if is_header(control) {
            return Ok(Some(Self::TwoStage(two_stage::Caches::new(budget))));
        }
        if arrays::is_header(control) {
            arrays::check_header(control)?;
            return Ok(Some(Self::Binned(binned::Caches::new(budget))));
        }
        Ok(None)
    }

    /// Adds what reads have cost, and the bytes that are kept.
    pub(super) fn add_to(&self, counts: Counts) -> Counts {
        match self {
            Self::TwoStage(caches) => caches.add_to(counts),
            Self::Binned(caches) => caches.add_to(counts),
        }
    }
}

impl Keyspace {
    /// What is kept of a keyspace whose clients keep models, and the way to read it; `None` if
    /// there are no models, or the host must be asked.
    fn modelled<'m>(
        &self,
        mapped: Option<&'m Arc<Mapped>>,
    ) -> Option<(MappedFabric<'m>, &'m Models)> {
        let mapped = mapped.filter(|_| !self.reads.by_calls)?;
        let models = mapped.models()?;
        Some((mapped.fabric()?, models))
    }

    /// Returns true if this handle reads by models.
    pub(super) fn has_models(&self) -> bool {
        self.modelled(self.mapped().as_deref()).is_some()
    }

    /// [`Keyspace::get_into`] of a keyspace whose clients keep models; `None` of another.
    pub(super) fn models_get(&self, key: &[u8], value: &mut Vec<u8>) -> Option<Result<bool>> {
        let mapped = self.mapped();
        let (fabric, models) = self.modelled(mapped.as_deref())?;
        Some(match models {
            Models::TwoStage(caches) => self.two_stage_get(&fabric, caches, key, value),
            Models::Binned(caches) => self.binned_get(&fabric, caches, key, value),
        })
    }

    /// A part of a range upwards; `None` if the host must be asked.
    pub(super) fn models_page(&self, from: Bound<&[u8]>) -> Option<Page> {
        let mapped = self.mapped();
        let (fabric, models) = self.modelled(mapped.as_deref())?;
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

    /// Sets the value of a key, or removes it, by a message of the assembly's own; `None` if it has
    /// none for that.
    pub(super) fn models_write(&self, key: &[u8], value: Option<&[u8]>) -> Option<Result<()>> {
        let mapped = self.mapped();
        let (fabric, Models::Binned(caches)) = self.modelled(mapped.as_deref())? else {
            return None;
        };
        let (verb, value) = value.map_or((Verb::Remove, &[][..]), |value| (Verb::Put, value));
        Some(self.binned_write(&fabric, caches, verb, key, value))
    }
}
