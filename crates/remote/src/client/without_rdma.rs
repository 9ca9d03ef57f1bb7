//! What stands for clients that read by RDMA in a build without it: there are none.

use super::{
    Outcome, Page, States,
    keyspace::KeyspaceInner as Keyspace,
    tcp::{Link, Opened},
};
use crate::{
    error::Result,
    fabric::{Extent, Fabric, Image},
    layout::Geometry,
    message::Request,
};

/// How a keyspace is read by RDMA.
#[derive(Debug)]
pub(super) enum Remote {}

impl Remote {
    /// None: addresses that ask for RDMA are refused.
    pub(super) fn new(_: bool) -> Option<Self> {
        None
    }

    pub(super) fn hint_bytes(&self) -> usize {
        match *self {}
    }
}

/// Reads of a keyspace's region by RDMA.
#[derive(Clone, Copy)]
pub(super) struct RemoteReads<'k>(&'k Remote);

impl<'k> RemoteReads<'k> {
    pub(super) fn new(_: &'k Link, _: &'k Keyspace, remote: &'k Remote) -> Self {
        Self(remote)
    }

    pub(super) fn may_read(&self) -> bool {
        match *self.0 {}
    }

    pub(super) fn exchange<'a>(
        &self,
        _: bool,
        _: &impl Fn(&Opened) -> Request<'a>,
    ) -> Option<Result<(usize, Vec<u8>)>> {
        match *self.0 {}
    }

    pub(super) fn get_many<'w>(
        &self,
        _: Geometry,
        _: impl IntoIterator<Item = (u32, &'w [u8])>,
        _: impl FnMut(usize, Outcome, &[u8]),
    ) -> Result<bool> {
        match *self.0 {}
    }

    pub(super) fn get_many_at_once<'w>(
        &self,
        _: Geometry,
        _: impl IntoIterator<Item = (u32, &'w [u8])>,
        _: impl FnMut(usize, Outcome, &[u8]),
    ) -> Result<bool> {
        match *self.0 {}
    }

    pub(super) fn page_up(
        &self,
        _: Geometry,
        _: u32,
        _: (&[u8], bool),
        _: usize,
        _: (&mut Page, &States),
    ) -> bool {
        match *self.0 {}
    }

    pub(super) fn page_down(
        &self,
        _: Geometry,
        _: u32,
        _: (Option<&[u8]>, bool),
        _: usize,
        _: &mut Page,
    ) -> bool {
        match *self.0 {}
    }

    pub(super) fn are_unchanged(&self, _: Geometry, _: &States) -> bool {
        match *self.0 {}
    }
}

/// Reads a region by RDMA.
pub(super) struct RemoteFabric<'k>(RemoteReads<'k>);

impl<'k> RemoteFabric<'k> {
    pub(super) fn new(reads: RemoteReads<'k>, _: u64) -> Self {
        Self(reads)
    }

    pub(super) fn generation(&self) -> Option<u64> {
        match *self.0.0 {}
    }
}

impl Fabric for RemoteFabric<'_> {
    fn read(&self, _: &[Extent], _: &mut Image) -> Result<()> {
        match *self.0.0 {}
    }
}
