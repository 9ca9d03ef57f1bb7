//! Models of the index for loom: a few operations of two or three actors on what the index is made
//! of, with nodes of a few slots.
//!
//! `cargo xtask verify models` runs them all; `LOOM_MAX_PREEMPTIONS=n` sets the number of
//! preemptions.

mod bucket;
mod core;
mod epoch;
mod kinds;
mod open;
mod pivots;
