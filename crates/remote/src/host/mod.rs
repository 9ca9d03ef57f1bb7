//! The side that writes: building a region, changing it and publishing changes.
//!
//! One thread at a time writes. Nothing here waits for a reader, and nothing that a reader does is
//! seen here. Connections are answered by a few threads (`pool.rs`), none of which waits for a
//! client.

#[cfg(not(any(loom, shuttle)))]
mod access;
#[cfg(not(any(loom, shuttle)))]
mod authority;
#[cfg(not(any(loom, shuttle)))]
mod binned_store;
#[cfg(not(any(loom, shuttle)))]
mod buffers;
#[cfg(not(any(loom, shuttle)))]
mod care;
#[cfg(not(any(loom, shuttle)))]
mod consult;
mod cut;
mod directory;
pub(crate) mod extents;
#[cfg(not(any(loom, shuttle)))]
mod group;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod heap;
#[cfg(not(any(loom, shuttle)))]
mod limits;
#[cfg(not(any(loom, shuttle)))]
mod look;
#[cfg(not(any(loom, shuttle)))]
mod part;
#[cfg(not(any(loom, shuttle)))]
mod pool;
#[cfg(all(test, target_os = "linux", target_pointer_width = "64", not(any(loom, shuttle, miri))))]
mod published;
#[cfg(not(any(loom, shuttle)))]
mod publisher;
#[cfg(not(any(loom, shuttle)))]
mod publisher_care;
#[cfg(not(any(loom, shuttle)))]
mod question;
#[cfg(all(feature = "rdma", target_os = "linux", not(any(loom, shuttle))))]
mod reached;
#[cfg(not(any(loom, shuttle)))]
mod registry;
#[cfg(not(any(loom, shuttle)))]
mod replica;
#[cfg(not(any(loom, shuttle)))]
mod served;
#[cfg(not(any(loom, shuttle)))]
mod server;
#[cfg(not(any(loom, shuttle)))]
mod session;
#[cfg(not(any(loom, shuttle)))]
mod share;
mod table;
#[cfg(not(any(loom, shuttle)))]
mod tally;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
#[cfg(not(any(loom, shuttle)))]
mod two_stage_store;
#[cfg(not(any(loom, shuttle)))]
mod volatile;

use crate::{error::Result, primitive::AtomicU64};

#[cfg(not(any(loom, shuttle)))]
pub use authority::{Authority, Change, Pair, Scan};
#[cfg(not(any(loom, shuttle)))]
pub use publisher::{Load, Paused, Publisher};
#[cfg(not(any(loom, shuttle)))]
pub use served::Served;
#[cfg(not(any(loom, shuttle)))]
pub use server::{Host, HostBuilder};
#[cfg(not(any(loom, shuttle)))]
pub use share::{ModelStats, Preset, ShareOptions, ShareStats};
#[cfg(all(
    test,
    target_os = "linux",
    target_pointer_width = "64",
    not(any(loom, shuttle, miri))
))]
pub(crate) use table::Renewal;
pub(crate) use table::Table;
#[cfg(all(test, any(loom, all(target_os = "linux", target_pointer_width = "64", not(miri)))))]
pub(crate) use table::scrub;
#[cfg(not(any(loom, shuttle)))]
pub use tally::HostStats;

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
