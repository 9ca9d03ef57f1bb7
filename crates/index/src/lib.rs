//! An ordered map in memory, for any number of threads, that learns where its keys are.
//!
//! This module is the public face: types in and out, and nothing of how keys are stored.
//!
//! Inside, keys and values are words (`schema`). `route` leads a key to its leaf, `address` within
//! the leaf to a bucket, `core` reads and writes there, `retrain` replaces leaves by what `plan`
//! makes of them, and `scan` walks them. The memory of all this is in `raw`. [`engine`] is what the
//! engine's memtable builds on.
#![deny(unsafe_code)]

mod address;
mod batch;
mod builder;
mod bulk;
mod core;
mod counts;
#[doc(hidden)]
pub mod engine;
mod entry;
#[cfg(feature = "published")]
mod fit;
mod key;
mod kinds;
mod map;
#[cfg(all(test, loom))]
mod models;
mod op;
mod parts;
mod plan;
mod preset;
#[cfg(feature = "published")]
mod published;
mod range;
mod raw;
mod route;
mod scan;
mod simd;
mod stats;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod trainers;
mod value;

pub use builder::IndexBuilder;
pub use bulk::BulkLoadError;
pub use counts::moved_by_thread;
pub use key::Key;
pub use map::{Index, Range};
pub use preset::Preset;
pub use range::KeyRange;
pub use stats::IndexStats;
pub use value::{Value, Word};
