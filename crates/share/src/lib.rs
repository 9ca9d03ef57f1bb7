//! Keyspaces of a database, shared with other processes of the machine.
//!
//! Joins the engine and the remote tier, which do not know each other: the engine's commits are
//! published in memory that clients map, and what clients write or cannot read themselves goes to
//! the engine.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use rhumb_share::{Shared, Source, ShareOptions};
//!
//! let db = rhumb::Database::builder("data").open()?;
//! let users = db.keyspace("users", rhumb::KeyspaceOptions::default())?;
//! let shared = Shared::listen("/run/user/1000/rhumb.sock")
//!     .share("users", Source::of(users.clone()), ShareOptions::default())
//!     .start(&db)?;
//!
//! // In any process of this user:
//! let client = rhumb_remote::Client::connect("/run/user/1000/rhumb.sock")?;
//! let read = client.keyspace("users")?;
//! users.insert("ada", "1815")?;
//! assert_eq!(read.get("ada")?.as_deref(), Some(&b"1815"[..]));
//! # drop(shared);
//! # Ok(())
//! # }
//! ```
//!
//! A share may be made as a published system does it ([`Preset`], [`ShareOptions::preset`]), to be
//! measured against: what clients write goes through the engine all the same, and what they read is
//! as true.
//!
//! | module | for | must never |
//! | --- | --- | --- |
//! | `authority` | what clients ask of the engine | write past the engine |
//! | `follow` | the thread that keeps one region true | fail a write |
//! | `shared` | the host, and the life of its threads | |
#![forbid(unsafe_code)]

mod authority;
mod follow;
mod shared;

pub use authority::Source;
pub use follow::Event;
pub use rhumb_remote::{
    Address, Error, Host, HostBuilder, HostStats, Paused, Preset, Result, RoutingTable, Served,
    ShareOptions, ShareStats,
};
pub use shared::{Shared, SharedBuilder};
