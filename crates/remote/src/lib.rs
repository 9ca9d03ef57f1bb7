//! Rhumb across processes: clients that read a server's memory themselves.
//!
//! A *host* publishes a copy of an ordered keyspace in memory that other processes may read: a
//! *region*. A *client* maps it, predicts the leaf that holds a key, reads it and proves from what
//! it read that the answer is right. No call, no lock and no entry in a table of readers is needed
//! for that. Writes go to the host, which alone changes the region.
//!
//! A client on another machine cannot map anything. It keeps a copy of what predicts leaves, tells
//! the host over TCP in which leaf it expects a key, and the host looks into that leaf alone: one
//! round trip, and no walk from a root. [`CacheBudget`] says how much of the copy it keeps. A token
//! keeps strangers out. TLS keeps listeners out ([`Address::Tls`], [`HostBuilder::listen_tls`]; the
//! feature `tls`, which compiles C); without it nothing on this way is encrypted.
//!
//! ```no_run
//! # fn main() -> rhumb_remote::Result<()> {
//! use rhumb_remote::Client;
//!
//! let client = Client::builder("tcp:db.example:7000").token("a secret of both").connect()?;
//! let users = client.keyspace("users")?;
//! users.insert("ada", "1815")?;
//! for pair in users.prefix("a") {
//!     let (key, value) = pair?;
//!     println!("{} {}", key.escape_ascii(), value.escape_ascii());
//! }
//! let counts = users.counts();
//! println!("{} reads, {} of them calls", counts.reads, counts.calls);
//! # Ok(())
//! # }
//! ```
//!
//! With the feature `rdma`, on Linux, clients of other machines read leaves themselves, by RDMA
//! ([`Address::Rdma`], [`ShareOptions::checksums`]): the host takes no part in that.
//!
//! Calls block their thread, or are futures: [`Keyspace::insert_async`] and the like return a
//! [`Call`], which any executor runs, with a thousand under way at once and no thread for each.
//!
//! A keyspace that is too large for one host is divided by ranges of keys: a [`RoutingTable`] says
//! which host has which keys, a [`Cluster`] is a client of all of them, and [`Served`] says how a
//! range goes from one host to another.
//!
//! | module | for | must never |
//! | --- | --- | --- |
//! | `primitive` | the one door to atomics and threads | be gone around |
//! | `clock` `prefetch` | the clock of leases; a hint to the processor | |
//! | `bounds` `ranges` | ranges of keys, and sets of them | |
//! | [`error`] | what can go wrong | |
//! | `layout` | the bytes of a region, as `docs/wire.md` says them | hold a pointer |
//! | `message` | requests and replies, as bytes | panic or over-allocate for any bytes |
//! | `socket` | frames over a Unix socket, with descriptors, and over TCP, with TLS | leak a descriptor |
//! | `region` | sealed memory, mapped by a host and by readers | hand out more than atomics |
//! | `leaf` | one leaf: read by clients, written by the host | trust a length |
//! | `route` | from a key to the leaf that should hold it | be needed for a right answer |
//! | `memory` | a region by itself, for those that measure | be used by a keyspace |
//! | `fabric` | pieces of a region, by whatever way it is reached | know of leaves |
//! | `host` | building, changing and publishing | wait for a client |
//! | `client` | reading | loop without a bound |
//! | `two_stage` | another assembly: clients keep models of a table of unsorted leaves | |
//! | `binned` | another assembly: trained arrays with level bins | answer without a proof |
//! | `verbs` | RDMA devices, by a library of the system (feature `rdma`) | be needed by a build |
//! | `fuzzing` | entry points of the fuzz targets (feature `fuzzing`) | be part of a build that is used |
#![deny(unsafe_code)]

#[cfg(not(any(loom, shuttle)))]
mod binned;
#[cfg(not(any(loom, shuttle)))]
mod bounds;
mod client;
#[cfg(not(any(loom, shuttle)))]
mod clock;
pub mod error;
mod fabric;
#[cfg(all(any(test, feature = "fuzzing"), not(any(loom, shuttle, miri))))]
pub mod fuzzing;
mod host;
mod layout;
mod leaf;
#[cfg(not(any(loom, shuttle)))]
#[doc(hidden)]
pub mod memory;
mod message;
#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, target_os = "linux", target_pointer_width = "64", not(any(loom, shuttle, miri))))]
mod points;
mod prefetch;
pub(crate) mod primitive;
#[cfg(not(any(loom, shuttle)))]
mod ranges;
#[cfg(not(any(loom, shuttle)))]
mod region;
mod route;
#[cfg(all(unix, not(any(loom, shuttle))))]
mod socket;
#[cfg(not(any(loom, shuttle)))]
mod two_stage;
#[cfg(all(feature = "rdma", target_os = "linux", not(any(loom, shuttle))))]
mod verbs;

#[cfg(not(any(loom, shuttle)))]
pub use client::{
    Address, Batch, CacheBudget, Call, Client, ClientBuilder, Cluster, ClusterBatch,
    ClusterBuilder, ClusterKeyspace, ClusterRange, Counts, Inspection, Keyspace, Range,
    RoutingTable, StringRange, Strings, Walk,
};
pub use error::{Error, Result};
#[cfg(not(any(loom, shuttle)))]
pub use host::{
    Authority, Change, Host, HostBuilder, HostStats, Load, ModelStats, Pair, Paused, Preset,
    Publisher, Scan, Served, ShareOptions, ShareStats,
};
#[cfg(not(any(loom, shuttle)))]
pub use message::GetCounts;
