//! The side that writes: building a region, changing it and publishing changes.
//!
//! One thread at a time writes. Nothing here waits for a reader, and nothing that a reader does is
//! seen here.

mod cut;
mod directory;
pub(crate) mod extents;
#[cfg(test)]
pub(crate) mod heap;
#[cfg(not(any(loom, shuttle)))]
mod server;
#[cfg(not(any(loom, shuttle)))]
mod session;
#[cfg(not(any(loom, shuttle)))]
mod share;
mod table;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use crate::{error::Result, primitive::AtomicU64};

#[cfg(not(any(loom, shuttle)))]
pub use server::{Host, HostBuilder};
#[cfg(not(any(loom, shuttle)))]
pub use share::{ShareOptions, ShareStats};
pub(crate) use table::Table;

/// Memory that grows at its end and that readers see.
pub(crate) trait Space {
    /// All of it, as it is now.
    fn words(&self) -> &[AtomicU64];

    /// Adds at least `bytes`, zeroed.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full) if that is more than there may be; what the system says.
    fn grow(&self, bytes: usize) -> Result<()>;
}

impl<S: Space> Space for std::sync::Arc<S> {
    fn words(&self) -> &[AtomicU64] {
        (**self).words()
    }

    fn grow(&self, bytes: usize) -> Result<()> {
        (**self).grow(bytes)
    }
}
