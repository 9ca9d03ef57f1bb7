//! Clients of a host on another machine.
//!
//! Such a client cannot read the host's memory. It keeps a copy of the directory, or a part of one,
//! predicts the leaf that holds a key by it, and asks the host to look into that leaf: one message
//! and its answer for a read, whatever the cache holds. A prediction that is out of date costs the
//! host a route by its own directory, and the client a message that brings the piece of the
//! directory that has changed.
//!
//! | module | for | must never |
//! | --- | --- | --- |
//! | `link` | messages of several threads over one connection | hand an answer to another question |
//! | `cache` | the directory's pieces, within a budget | be needed for a right answer |
//! | `reads` | gets by way of the two | believe the host more than an answer |
//! | `pieces` | regions of other assemblies, piece by piece | |

mod cache;
#[cfg(all(test, target_os = "linux", target_pointer_width = "64"))]
mod hostile;
mod link;
mod pieces;
#[cfg(all(test, target_os = "linux", target_pointer_width = "64"))]
mod raw;
mod reads;
#[cfg(all(test, target_os = "linux", target_pointer_width = "64"))]
mod tests;

pub(super) use cache::Cache;
pub use cache::CacheBudget;
#[cfg(all(feature = "rdma", target_os = "linux"))]
pub(super) use link::Connection;
pub(super) use link::{Link, Opened, Shape};
pub(super) use pieces::{MessageFabric, Pieces};
pub(super) use reads::TcpReads;
