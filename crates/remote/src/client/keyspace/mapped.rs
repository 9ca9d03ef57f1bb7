//! A region that a client has mapped: its memory, how it is made, and how long it is believed.
//!
//! Nothing here makes a call or decides what a read does when the region cannot answer it: that is
//! for [`Keyspace`](super::Keyspace).

use std::{
    collections::VecDeque,
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use arc_swap::ArcSwap;

use crate::{
    client::{CacheBudget, Reader, models::Models, served::ServedKeys},
    clock,
    error::{Error, Result},
    fabric::MappedFabric,
    layout::{Geometry, control},
    message::{Part, PartInfo},
    region::ReaderRegion,
};

/// A region that is mapped, of one connection.
pub(in crate::client) struct Mapped {
    /// The keyspace's number in the connection.
    pub(in crate::client) number: u32,
    control: ReaderRegion,
    leaves: ReaderRegion,
    assembly: Assembly,
    lease_ms: u64,
    /// Which keys the host serves.
    known: ArcSwap<ServedKeys>,
    /// Set when the connection is lost.
    is_closed: AtomicBool,
}

/// How a region is made.
enum Assembly {
    Runs(Geometry),
    Models(Models),
}

impl Mapped {
    /// Maps the segments that came with a keyspace.
    pub(in crate::client) fn new(
        number: u32,
        control: &PartInfo,
        leaves: &PartInfo,
        lease_ms: u32,
        budget: CacheBudget,
        fds: &mut VecDeque<OwnedFd>,
    ) -> Result<Self> {
        let control_region = ReaderRegion::new(control.capacity_bytes)?;
        let leaf_region = ReaderRegion::new(leaves.capacity_bytes)?;
        attach(&control_region, &control.segments, fds)?;
        attach(&leaf_region, &leaves.segments, fds)?;
        let assembly = match Models::of(&control::first_words(control_region.words()), budget)? {
            Some(models) => Assembly::Models(models),
            None => Assembly::Runs(control::read_header(control_region.words())?),
        };
        Ok(Self {
            number,
            control: control_region,
            leaves: leaf_region,
            assembly,
            lease_ms: u64::from(lease_ms),
            known: ArcSwap::default(),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Maps further segments.
    pub(in crate::client) fn attach(
        &self,
        part: Part,
        sizes: &[u64],
        fds: &mut VecDeque<OwnedFd>,
    ) -> Result<()> {
        match part {
            Part::Control => attach(&self.control, sizes, fds),
            Part::Leaves => attach(&self.leaves, sizes, fds),
        }
    }

    /// The words of the control part and of the leaves.
    #[inline]
    pub(in crate::client) fn words(&self) -> (&[AtomicU64], &[AtomicU64]) {
        (self.control.words(), self.leaves.words())
    }

    /// The sizes that all leaves have, in a region of runs.
    pub(in crate::client) fn geometry(&self) -> Option<Geometry> {
        match &self.assembly {
            Assembly::Runs(geometry) => Some(*geometry),
            Assembly::Models(_) => None,
        }
    }

    /// What is kept of a keyspace whose clients keep models.
    pub(in crate::client) fn models(&self) -> Option<&Models> {
        match &self.assembly {
            Assembly::Runs(_) => None,
            Assembly::Models(models) => Some(models),
        }
    }

    /// The way to read it piece by piece, if the host was there within its lease.
    pub(in crate::client) fn fabric(&self) -> Option<MappedFabric<'_>> {
        let (control, leaves) = self.words();
        self.is_fresh().then(|| MappedFabric::new(control, leaves))
    }

    /// Which keys the host serves, as far as this client knows.
    #[inline]
    pub(in crate::client) fn known(&self) -> &ArcSwap<ServedKeys> {
        &self.known
    }

    /// Milliseconds for which the region is read without a sign of its host.
    pub(in crate::client) fn lease_ms(&self) -> u64 {
        self.lease_ms
    }

    /// Has reads make calls from here on.
    pub(in crate::client) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// Returns true if the host was there within its lease.
    #[inline]
    pub(in crate::client) fn is_fresh(&self) -> bool {
        let beat = control::heartbeat(self.control.words());
        // planted: reader-not-look-at-heartbeat
        // planted: lease-no-end
        let is_fresh = clock::now_ms().abs_diff(beat) <= self.lease_ms;
        is_fresh && !self.is_closed.load(Ordering::Acquire)
    }

    /// A reader, if the host was there within its lease, of a region of runs.
    #[inline]
    pub(super) fn reader(&self) -> Option<Reader<'_>> {
        let Assembly::Runs(geometry) = self.assembly else { return None };
        let (control, leaves) = self.words();
        self.is_fresh().then(|| Reader::of(control, leaves, geometry))
    }
}

impl std::fmt::Debug for Mapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mapped").field("number", &self.number).finish_non_exhaustive()
    }
}

fn attach(region: &ReaderRegion, sizes: &[u64], fds: &mut VecDeque<OwnedFd>) -> Result<()> {
    for bytes in sizes {
        let missing = || Error::invalid("a segment was announced without its descriptor");
        region.attach(fds.pop_front().ok_or_else(missing)?, *bytes)?;
    }
    Ok(())
}
