//! Models of the index for loom: a few operations of two or three actors on what the index is made
//! of, with nodes of a few slots.
//!
//! `cargo xtask verify models` runs them all; `LOOM_MAX_PREEMPTIONS=n` says how far.

mod bucket;
mod core;
mod epoch;
mod kinds;
mod open;
mod pivots;
