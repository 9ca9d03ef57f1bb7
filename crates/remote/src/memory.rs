//! Memory that one process writes and others read, as keyspaces have it, for those that measure
//! other ways to find something in it. Not part of the interface that is kept stable.

use std::{
    fs::File,
    os::fd::{AsRawFd, OwnedFd},
    sync::atomic::AtomicU64,
};

use crate::{
    error::{Error, Result},
    host::Space,
    region::{HostRegion, ReaderRegion},
};

/// The memory in the process that writes it. It only grows.
pub struct Written(HostRegion);

/// The memory in a process that reads it.
pub struct Read {
    region: ReaderRegion,
    attached: usize,
}

/// A file of memory, as another process of the same user can open it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its length, in bytes.
    pub bytes: u64,
    /// Where the system has it, as long as the process that writes it lives.
    pub path: String,
}

impl Written {
    /// Memory of no bytes, which can grow to `capacity_bytes`: a multiple of 2 MiB, at most 1 TiB.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for another capacity; [`Error::Unsupported`] where there is no
    /// memory that can be sealed.
    pub fn new(capacity_bytes: u64) -> Result<Self> {
        HostRegion::new(capacity_bytes).map(Self)
    }

    /// Grows by `bytes` or more.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] beyond the capacity; [`Error::Io`] if the system has no memory.
    pub fn grow(&self, bytes: usize) -> Result<()> {
        Space::grow(&self.0, bytes)
    }

    /// All of it, as words of 8 bytes.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }

    /// What another process attaches, in this order.
    #[must_use]
    pub fn pieces(&self) -> Vec<Piece> {
        let process = std::process::id();
        let path = |fd| format!("/proc/{process}/fd/{fd}");
        let segments = self.0.segments();
        let piece = |segment: &crate::region::Segment| Piece {
            bytes: segment.bytes(),
            path: path(segment.fd().as_raw_fd()),
        };
        segments.iter().map(piece).collect()
    }
}

impl Read {
    /// Memory of no bytes, of which [`Read::attach`] makes some; as large as the writer's at most.
    ///
    /// # Errors
    ///
    /// As [`Written::new`].
    pub fn new(capacity_bytes: u64) -> Result<Self> {
        Ok(Self { region: ReaderRegion::new(capacity_bytes)?, attached: 0 })
    }

    /// Maps the pieces that are not mapped yet, of all that there are.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if one cannot be opened, [`Error::Invalid`] if it is not what it must be.
    pub fn attach(&mut self, pieces: &[Piece]) -> Result<()> {
        for piece in pieces.iter().skip(self.attached) {
            let file = File::open(&piece.path).map_err(|e| Error::io("open memory", e))?;
            self.region.attach(OwnedFd::from(file), piece.bytes)?;
            self.attached += 1;
        }
        Ok(())
    }

    /// All that is attached, as words of 8 bytes. They may be loaded, with relaxed order, and
    /// nothing else: the memory is read-only.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        self.region.words()
    }
}

impl std::fmt::Debug for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Written").field("bytes", &self.0.len_bytes()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Read {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Read").field("attached", &self.attached).finish_non_exhaustive()
    }
}

#[cfg(all(test, target_os = "linux", target_pointer_width = "64", not(miri)))]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn what_is_written_can_be_read_also_after_it_grew() {
        let written = Written::new(8 << 20).unwrap();
        let mut read = Read::new(8 << 20).unwrap();
        for round in 1..=2 {
            written.grow(2 << 20).unwrap();
            written.words().last().unwrap().store(round, Ordering::Release);
            read.attach(&written.pieces()).unwrap();
            assert_eq!(read.words().len(), written.words().len());
            assert_eq!(read.words().last().unwrap().load(Ordering::Relaxed), round);
        }
        assert!(matches!(written.grow(8 << 20), Err(Error::Full { .. })));
    }
}
