//! Rhumb across processes: clients that read a server's memory themselves.
//!
//! A *host* publishes a copy of an ordered keyspace in memory that other processes may read: a
//! *region*. A *client* maps it, predicts the leaf that holds a key, reads it and proves from what
//! it read that the answer is right. No call, no lock and no entry in a table of readers is needed
//! for that. Writes go to the host, which alone changes the region.
//!
//! | module | for | must never |
//! | --- | --- | --- |
//! | `primitive` | the one door to atomics and threads | be gone around |
//! | `clock` `prefetch` | the clock of leases; a hint to the processor | |
//! | [`error`] | what can go wrong | |
//! | `layout` | the bytes of a region, as `docs/wire.md` says them | hold a pointer |
//! | `message` | requests and replies, as bytes | panic or over-allocate for any bytes |
//! | `socket` | frames and descriptors over a Unix socket | leak a descriptor |
//! | `region` | sealed memory, mapped by a host and by readers | hand out more than atomics |
//! | `leaf` | one leaf: read by clients, written by the host | trust a length |
//! | `route` | from a key to the leaf that should hold it | be needed for a right answer |
//! | `fabric` | pieces of a region, by whatever way it is reached | know of leaves |
//! | `host` | building, changing and publishing | wait for a client |
//! | `client` | reading | loop without a bound |
//! | `binned` | an assembly of trained arrays with level bins | answer without a proof |
#![deny(unsafe_code)]

#[cfg(not(any(loom, shuttle)))]
#[cfg_attr(not(test), expect(dead_code, unused_imports))]
mod binned;
mod client;
#[cfg(not(any(loom, shuttle)))]
mod clock;
pub mod error;
#[cfg_attr(not(test), expect(dead_code, unused_imports))]
mod fabric;
mod host;
mod layout;
mod leaf;
mod message;
#[cfg(all(test, loom))]
mod models;
mod prefetch;
pub(crate) mod primitive;
#[cfg(not(any(loom, shuttle)))]
mod region;
mod route;
#[cfg(all(unix, not(any(loom, shuttle))))]
mod socket;

#[cfg(not(any(loom, shuttle)))]
pub use client::{Client, Keyspace, Range};
pub use error::{Error, Result};
#[cfg(not(any(loom, shuttle)))]
pub use host::{Host, HostBuilder, ShareOptions, ShareStats};
