//! What streams over queue pairs are in a build without RDMA: nothing that could exist.

use std::{os::fd::BorrowedFd, time::Duration};

use crate::error::Result;

/// A stream of bytes by RDMA, which this build has none of.
#[derive(Debug)]
pub(crate) enum ByteStream {}

impl ByteStream {
    pub(super) fn set_timeouts(&self, _: Option<Duration>, _: Option<Duration>) {
        match *self {}
    }

    pub(super) fn came(&self) -> BorrowedFd<'_> {
        match *self {}
    }

    pub(super) fn has_room(&self) -> BorrowedFd<'_> {
        match *self {}
    }

    pub(super) fn put(&self, _: &[u8]) -> Result<Option<usize>> {
        match *self {}
    }

    pub(super) fn send(&self, _: &[u8]) -> Result<()> {
        match *self {}
    }

    pub(super) fn wait_for_room(&self, _: Duration) -> Result<()> {
        match *self {}
    }

    pub(super) fn take(&self, _: &mut [u8]) -> Result<Option<usize>> {
        match *self {}
    }

    pub(super) fn take_soon(&self, _: &mut [u8]) -> Result<Option<usize>> {
        match *self {}
    }

    pub(super) fn receive(&self, _: &mut [u8]) -> Result<usize> {
        match *self {}
    }

    pub(super) fn is_sending(&self) -> bool {
        match *self {}
    }

    pub(super) fn finish(&self) {
        match *self {}
    }

    pub(super) fn has_some(&self) -> bool {
        match *self {}
    }

    pub(super) fn shutdown(&self) -> Result<()> {
        match *self {}
    }
}
