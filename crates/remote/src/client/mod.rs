//! The side that reads: a region that is mapped and nothing else, or messages over TCP.
//!
//! Every loop has a bound. A reader that meets it says [`Outcome::Busy`], and its caller asks the
//! host.

#[cfg(not(any(loom, shuttle)))]
mod address;
#[cfg(not(any(loom, shuttle)))]
mod atomic;
#[cfg(not(any(loom, shuttle)))]
mod batch;
#[cfg(not(any(loom, shuttle)))]
mod binned;
#[cfg(not(any(loom, shuttle)))]
mod builder;
#[cfg(not(any(loom, shuttle)))]
mod calls;
#[cfg(not(any(loom, shuttle)))]
mod cluster;
#[cfg(not(any(loom, shuttle)))]
mod connection;
#[cfg(not(any(loom, shuttle)))]
mod counts;
#[cfg(all(test, target_os = "linux", target_pointer_width = "64", not(any(loom, shuttle))))]
mod hostile;
#[cfg(all(test, target_os = "linux", target_pointer_width = "64", not(any(loom, shuttle))))]
mod hostile_models;
#[cfg(not(any(loom, shuttle)))]
mod inspect;
#[cfg(not(any(loom, shuttle)))]
mod keyspace;
#[cfg(not(any(loom, shuttle)))]
mod models;
mod page;
#[cfg(not(any(loom, shuttle)))]
mod probe;
#[cfg(not(any(loom, shuttle)))]
mod range;
#[cfg(all(feature = "rdma", target_os = "linux", not(any(loom, shuttle))))]
mod rdma;
#[cfg(not(any(all(feature = "rdma", target_os = "linux"), loom, shuttle)))]
#[path = "without_rdma.rs"]
mod rdma;
mod reader;
#[cfg(not(any(loom, shuttle)))]
mod renewal;
#[cfg(not(any(loom, shuttle)))]
mod served;
#[cfg(not(any(loom, shuttle)))]
mod strings;
#[cfg(not(any(loom, shuttle)))]
mod target;
#[cfg(not(any(loom, shuttle)))]
mod tcp;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
#[cfg(not(any(loom, shuttle)))]
mod two_stage;
#[cfg(all(any(test, all(feature = "rdma", target_os = "linux")), not(any(loom, shuttle))))]
mod unordered;

#[cfg(not(any(loom, shuttle)))]
pub use address::Address;
#[cfg(not(any(loom, shuttle)))]
pub use batch::Batch;
#[cfg(not(any(loom, shuttle)))]
pub use builder::ClientBuilder;
#[cfg(not(any(loom, shuttle)))]
pub use calls::Call;
#[cfg(not(any(loom, shuttle)))]
pub use cluster::{
    Cluster, ClusterBatch, ClusterBuilder, ClusterKeyspace, ClusterRange, RoutingTable,
};
#[cfg(not(any(loom, shuttle)))]
pub use connection::Client;
#[cfg(not(any(loom, shuttle)))]
pub use counts::Counts;
#[cfg(not(any(loom, shuttle)))]
pub use inspect::{Inspection, Walk};
#[cfg(not(any(loom, shuttle)))]
pub use keyspace::Keyspace;
pub(crate) use page::{Page, Pairs};
#[cfg(not(any(loom, shuttle)))]
pub use range::Range;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use reader::Trouble;
pub(crate) use reader::{Outcome, Reader, States};
#[cfg(not(any(loom, shuttle)))]
pub use strings::{StringRange, Strings};
#[cfg(not(any(loom, shuttle)))]
pub use tcp::CacheBudget;
