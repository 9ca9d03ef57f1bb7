//! What stands for `space` and `segment` where there are no regions: every region is refused when
//! it is made, so that the rest cannot be reached.
//!
//! Regions need Linux's sealed files, and 64 bits: with 32, a load of eight bytes may write.

use crate::error::Error;

fn unsupported() -> Error {
    Error::Unsupported("a region needs Linux on a processor of 64 bits".into())
}

pub(super) mod space {
    //! A range of addresses that cannot be had.

    use std::os::fd::BorrowedFd;

    use crate::{error::Result, primitive::AtomicU64};

    pub(in super::super) enum Access {
        Read,
        ReadWrite,
    }

    pub(in super::super) enum Space {}

    impl Space {
        pub(in super::super) fn reserve(_capacity_bytes: usize) -> Result<Self> {
            Err(super::unsupported())
        }

        pub(in super::super) fn capacity_bytes(&self) -> u64 {
            match *self {}
        }

        pub(in super::super) fn len_bytes(&self) -> u64 {
            match *self {}
        }

        pub(in super::super) fn words(&self) -> &[AtomicU64] {
            match *self {}
        }

        pub(in super::super) fn grow(&self, _bytes: u64) -> Option<Growth<'_>> {
            match *self {}
        }
    }

    pub(in super::super) struct Growth<'a>(&'a Space);

    impl Growth<'_> {
        pub(in super::super) fn map(
            &mut self,
            _file: BorrowedFd<'_>,
            _access: Access,
        ) -> Result<&[AtomicU64]> {
            match *self.0 {}
        }

        pub(in super::super) fn publish(self) {
            match *self.0 {}
        }
    }

    pub(in super::super) fn collapse(_words: &[AtomicU64]) -> bool {
        false
    }
}

pub(super) mod segment {
    //! Files that cannot be had.

    use std::os::fd::{BorrowedFd, OwnedFd};

    use crate::error::Result;

    pub(in super::super) fn create(_bytes: u64) -> Result<OwnedFd> {
        Err(super::unsupported())
    }

    pub(in super::super) fn fill(_file: BorrowedFd<'_>, _bytes: u64) -> Result<()> {
        Err(super::unsupported())
    }

    pub(in super::super) fn reopen_read_only(_file: BorrowedFd<'_>) -> Result<OwnedFd> {
        Err(super::unsupported())
    }

    pub(in super::super) fn seal(_file: BorrowedFd<'_>) -> Result<()> {
        Err(super::unsupported())
    }

    pub(in super::super) fn check(_file: BorrowedFd<'_>, _bytes: u64) -> Result<()> {
        Err(super::unsupported())
    }
}
